//! Records that are deleted by hand while they are in use.

use std::time::Duration;

use tenure::{
    Elect, ElectConfig, Event, Lease, Loss, clock::Moment, elect::Campaign, store::mongo::MongoStore,
};

use crate::elect_mongodb::{
    fleet::{
        Place, by_key, by_session, event, holds, quick, record, replica_set, session, steady, told, until,
        waits, within,
    },
    polls::{Polls, Told, now},
};

const PACE: Duration = Duration::from_millis(5);

/// An instance that leads.
struct Leader {
    place: Place,
    store: MongoStore,
    elect: Elect,
    polls: Polls,
    campaign: Campaign,
    lease: Lease,
}

impl Leader {
    async fn start(config: ElectConfig) -> Self {
        let place = Place::on(replica_set().await.uri()).await;
        let elect = place.instance(config).await;
        let polls = Polls::default();
        let campaign = {
            let polls = polls.clone();
            elect.campaign("key").run(move |lease| polls.job(lease, PACE, Told::GoesOn)).unwrap()
        };
        let lease = within("a free key is led", campaign.led()).await.unwrap();
        Self { store: place.store().await, place, elect, polls, campaign, lease }
    }

    /// Waits until it leads once more; under a larger term, and what ran before is not polled any more.
    async fn leads_again(&self, told: Moment) -> Lease {
        let term = self.lease.term();
        let again = until("it leads again", async || {
            let lease = self.campaign.lease();
            lease.filter(|lease| lease.term() != term).ok_or_else(|| self.elect.health())
        })
        .await;
        assert!(again.term() > term, "{} after {term}", again.term());
        assert!(holds(&again).await);
        self.not_polled_after(told + self.elect.config().stop_grace());
        until("the new job runs", async || self.polls.under("key", again.term()).pop().ok_or(())).await;
        let first = self.polls.under("key", again.term())[0].at;
        assert!(Some(first) > self.polls.last_allowed("key", term), "two jobs ran at once");
        assert_eq!(record(&self.store, "key").await.unwrap().term, again.term());
        again
    }

    fn not_polled_after(&self, end: Moment) {
        let last = self.polls.last_allowed("key", self.lease.term());
        assert!(last <= Some(end), "polled {:?} after its end", last.unwrap().since(end));
    }
}

#[track_caller]
fn assert_vanished(loss: Option<&Loss>) {
    assert!(matches!(loss, Some(Loss::Vanished { .. })), "{loss:?}");
}

#[tokio::test]
async fn a_holder_whose_locks_are_all_dropped_is_told_and_leads_again() {
    let leader = Leader::start(steady("pod")).await;
    let mut events = leader.elect.events();
    let other = leader.place.instance(steady("other")).await;
    let campaign = other.campaign("key").start().unwrap();
    waits(&other, 1).await;
    let before = now();
    leader.place.collection("locks").drop().await.unwrap();
    assert!(record(&leader.store, "key").await.is_none_or(|record| record.term > leader.lease.term()));

    within("it is told", leader.lease.cancelled()).await;
    println!("locks dropped: told after {:.1?}", now().since(before));
    assert_vanished(leader.lease.loss().as_ref());
    let led = tokio::select! {
        led = within("somebody leads", campaign.led()) => led.unwrap(),
        led = leader.leads_again(now()) => led,
    };
    assert!(led.term() > leader.lease.term());
    println!("locks dropped: somebody led {:.1?} later", now().since(before));
    drop(campaign);
    leader.leads_again(now()).await;
    let events = told(&mut events);
    assert!(!events.iter().any(|event| matches!(event, Event::SessionLost { .. })), "{events:?}");
}

#[tokio::test]
async fn a_holder_whose_lock_is_deleted_is_told_and_leads_again() {
    let leader = Leader::start(steady("pod")).await;
    let spare = leader.elect.acquire("spare").await.unwrap();
    let before = now();
    leader.place.delete("locks", by_key("key")).await;
    within("it is told", leader.lease.cancelled()).await;
    let told = now();
    println!("lock deleted: told after {:.1?}", told.since(before));
    assert_vanished(leader.lease.loss().as_ref());
    leader.leads_again(told).await;
    assert!(holds(&spare.lease()).await, "the other lock stays");
}

#[tokio::test]
async fn a_session_that_is_deleted_ends_with_a_beat_and_another_is_opened() {
    let leader = Leader::start(quick("pod")).await;
    let mut events = leader.elect.events();
    let id = leader.elect.health().session.unwrap();
    let before = now();
    leader.place.delete("sessions", by_session(id)).await;
    let (at, loss) = event(&mut events, "the session is lost", |event| match event {
        Event::SessionLost { session, loss } if *session == id => Some((now(), loss.clone())),
        _ => None,
    })
    .await;
    println!("session deleted: told after {:.1?}", at.since(before));
    assert_vanished(Some(&loss));
    assert_vanished(leader.lease.loss().as_ref());
    // There is no grace: the future is dropped at once.
    assert!(!leader.lease.is_valid());

    let next = event(&mut events, "another session", |event| match event {
        Event::SessionOpened { session } => Some(*session),
        _ => None,
    })
    .await;
    assert_ne!(next, id);
    leader.leads_again(at).await;
    leader.not_polled_after(at);
    // Nobody can tell it from one that beats somewhere: its ttl is waited for.
    println!("session deleted: led again {:.1?} later", now().since(before));
    assert!(now().since(before) >= leader.elect.config().ttl());
    assert!(session(&leader.store, next).await.unwrap().is_alive());
}
