//! Records that are deleted by hand while they are in use.

use std::time::Duration;

use tenure::{Elect, Event, Lease, Loss, elect::Campaign, store::mongo::MongoStore};

use crate::{
    fleet::{
        MS, Place, SECOND, bounded, by_key, by_session, event, quick, record, replica_set, session, told,
        until,
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
    async fn on(place: Place) -> Self {
        let elect = place.instance(quick("pod")).await;
        let polls = Polls::default();
        let campaign = {
            let polls = polls.clone();
            elect.campaign("key").run(move |lease| polls.job(lease, PACE, Told::GoesOn)).unwrap()
        };
        let lease = bounded("a free key is led", campaign.led()).await.unwrap();
        Self { store: place.store().await, place, elect, polls, campaign, lease }
    }

    /// Until it leads once more; under a larger term, and what ran before is not polled any more.
    async fn leads_again(&self, told: tenure::clock::Moment) -> Lease {
        let term = self.lease.term();
        let again =
            until("it leads again", || async { self.campaign.lease().filter(|lease| lease.term() != term) })
                .await;
        assert!(again.term() > term, "{} after {term}", again.term());
        assert!(again.check().await.unwrap());
        let grace = self.elect.config().stop_grace();
        let last = self.polls.under("key", term).last().unwrap().at;
        assert!(last <= told + grace, "polled {:?} after it was told", last.since(told));
        until("the new job runs", || async { self.polls.under("key", again.term()).pop() }).await;
        let first = self.polls.under("key", again.term())[0].at;
        assert!(first > last, "two jobs ran at once");
        assert_eq!(record(&self.store, "key").await.unwrap().term, again.term());
        again
    }
}

#[track_caller]
fn assert_vanished(loss: Option<&Loss>) {
    assert!(matches!(loss, Some(Loss::Vanished { .. })), "{loss:?}");
}

#[tokio::test]
async fn a_holder_whose_locks_are_all_dropped_is_told_and_leads_again() {
    let leader = Leader::on(Place::on(replica_set().await.uri()).await).await;
    let mut events = leader.elect.events();
    let other = leader.place.instance(quick("other")).await;
    let campaign = other.campaign("key").start().unwrap();
    until("the other waits", || async { (other.health().waiting == 1).then_some(()) }).await;
    let before = now();
    leader.place.collection("locks").drop().await.unwrap();
    assert!(record(&leader.store, "key").await.is_none_or(|record| record.term > leader.lease.term()));

    bounded("it is told", leader.lease.cancelled()).await;
    println!("locks dropped: told after {:.1?}", now().since(before));
    assert_vanished(leader.lease.loss().as_ref());
    let led = tokio::select! {
        led = bounded("somebody leads", campaign.led()) => led.unwrap(),
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
    let leader = Leader::on(Place::on(replica_set().await.uri()).await).await;
    let spare = leader.elect.acquire("spare").await.unwrap();
    let before = now();
    leader.place.delete("locks", by_key("key")).await;
    bounded("it is told", leader.lease.cancelled()).await;
    let told = now();
    println!("lock deleted: told after {:.1?}", told.since(before));
    assert_vanished(leader.lease.loss().as_ref());
    leader.leads_again(told).await;
    assert!(spare.check().await.unwrap(), "the other lock stays");
}

#[tokio::test]
async fn a_session_that_is_deleted_ends_with_its_next_beat_and_another_is_opened() {
    let leader = Leader::on(Place::on(replica_set().await.uri()).await).await;
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
    assert!(at.since(before) <= quick("x").refresh_interval() + 300 * MS, "{:?}", at.since(before));
    // There is no grace: the future is dropped at once.
    assert!(!leader.lease.is_valid());
    let polls = leader.polls.under("key", leader.lease.term());
    assert!(polls.last().unwrap().at <= at + 50 * MS);

    let next = event(&mut events, "another session", |event| match event {
        Event::SessionOpened { session } => Some(*session),
        _ => None,
    })
    .await;
    assert_ne!(next, id);
    leader.leads_again(at).await;
    println!("session deleted: led again {:.1?} later", now().since(before));
    // Nobody can tell it from one that beats somewhere: its ttl is waited for, no longer.
    assert!(now().since(before) < quick("x").ttl() + 2 * SECOND);
    assert!(session(&leader.store, next).await.unwrap().is_alive());
}
