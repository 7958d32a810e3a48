//! An operator wants a lock back.

use std::time::Duration;

use tenure::{
    Elect, Event, Lease, Loss,
    elect::Campaign,
    model::{Holder, Request, Why},
    store::{Revocation, RevokeAnswer, Store},
};

use crate::{
    fleet::{
        LIMIT, MS, Place, bounded, config, event, losses, quick, record, replica_set, session, told, until,
    },
    polls::{Polls, Told, now},
};

fn request(lease: &Lease) -> Request {
    let (by, why) = (Holder::new("operator").unwrap(), Why::new("node is drained").unwrap());
    Request { lock: lease.lock().clone(), term: lease.term(), by, why }
}

fn asked(elect: &Elect, lease: &Lease) -> Revocation {
    Revocation::Ask { session: elect.health().session.unwrap(), request: request(lease) }
}

fn revoked() -> Loss {
    let request = ("operator", "node is drained");
    Loss::Revoked { by: Holder::new(request.0).unwrap(), why: Why::new(request.1).unwrap() }
}

async fn leads(campaign: &Campaign) -> Lease {
    bounded("a free key is led", campaign.led()).await.unwrap()
}

/// Asks for one lock after the other. Answers with how long each took to reach the holder.
async fn ask(place: &Place, elect: &Elect, times: u32) -> Vec<Duration> {
    let store = place.store().await;
    let mut took = Vec::new();
    for turn in 0..times {
        let campaign = elect.campaign(format!("key {turn}")).start().unwrap();
        let lease = leads(&campaign).await;
        let before = now();
        let answer = store.revoke(asked(elect, &lease), LIMIT).await.unwrap();
        assert_eq!(answer, RevokeAnswer::Asked);
        bounded("it is told", lease.cancelled()).await;
        took.push(now().since(before));
        assert_eq!(lease.loss(), Some(revoked()));
        // It is given back, and the campaign stands aside.
        until("the lock is free", || async {
            record(&store, lease.key().as_str()).await.unwrap().holding.is_none().then_some(())
        })
        .await;
        assert!(!campaign.is_leading());
    }
    let id = elect.health().session.unwrap();
    until("the requests are removed", || async {
        session(&store, id).await.unwrap().requests.is_empty().then_some(())
    })
    .await;
    took.sort();
    took
}

#[tokio::test]
async fn a_revoke_reaches_a_holder_that_waits_for_another_lock_at_once() {
    let place = Place::on(replica_set().await.uri()).await;
    let elect = place.instance(config("pod")).await;
    assert_eq!(elect.health().hints, Some("bells"));
    let taken = place.instance(config("other")).await.acquire("taken").await.unwrap();
    let waits = elect.campaign("taken").start().unwrap();
    let store = place.store().await;
    until("it stands in line", || async {
        let line = store.waiters(taken.lease().lock().clone(), 1, LIMIT).await.unwrap();
        (!line.waiters.is_empty()).then_some(())
    })
    .await;
    let took = ask(&place, &elect, 10).await;
    println!("revoke, of one that listens: median {:.0?}, max {:.0?}", took[5], took[9]);
    assert!(took[9] < 200 * MS, "{took:?}");
    assert!(!waits.is_leading());
}

#[tokio::test]
async fn a_revoke_reaches_a_holder_that_listens_to_nothing_with_its_next_beat() {
    let place = Place::on(replica_set().await.uri()).await;
    let took = ask(&place, &place.instance(quick("pod")).await, 5).await;
    println!("revoke, a beat every 500ms: median {:.0?}, max {:.0?}", took[2], took[4]);
    assert!(took[4] < quick("x").refresh_interval() + 200 * MS, "{took:?}");
}

#[tokio::test]
async fn force_takes_one_lock_away_and_leaves_the_others() {
    let place = Place::on(replica_set().await.uri()).await;
    let (elect, other) = (place.instance(quick("pod")).await, place.instance(quick("other")).await);
    let store = place.store().await;
    let campaign = elect.campaign("key").start().unwrap();
    let lease = leads(&campaign).await;
    let spare = elect.acquire("spare").await.unwrap();
    let mut events = elect.events();
    let waits = tokio::spawn(async move { other.acquire("key").await.unwrap() });
    until("the other waits", || async {
        let store = &store;
        let line = store.waiters(lease.lock().clone(), 10, LIMIT).await.unwrap();
        (line.waiters.len() == 1).then_some(())
    })
    .await;

    let before = now();
    let answer = store.revoke(Revocation::Force(request(&lease)), LIMIT).await.unwrap();
    assert!(matches!(answer, RevokeAnswer::Freed(_)), "{answer:?}");
    let guard = bounded("the other has it", waits).await.unwrap();
    println!("force: the next one had it after {:.1?}", now().since(before));
    assert!(guard.term() > lease.term());
    bounded("it is told", lease.cancelled()).await;
    println!("force: the old one was told after {:.1?}", now().since(before));
    assert_eq!(lease.loss(), Some(revoked()));
    assert!(now().since(before) < quick("x").refresh_interval() + 500 * MS);
    event(&mut events, "it is lost", |event| match event {
        Event::Lost { lock, .. } => Some(lock.clone()).filter(|lock| lock == lease.lock()).map(drop),
        _ => None,
    })
    .await;
    // No beat, no audit takes the other lock with it.
    assert!(spare.check().await.unwrap() && !spare.lease().is_cancelled());
    assert!(elect.health().is_ok());
    let events = told(&mut events);
    assert!(losses(&events).is_empty(), "{events:?}");
    assert!(guard.check().await.unwrap());
}

#[tokio::test]
async fn force_tells_the_holder_with_its_next_audit() {
    let place = Place::on(replica_set().await.uri()).await;
    let (elect, store) = (place.instance(quick("pod")).await, place.store().await);
    let guard = elect.acquire("key").await.unwrap();
    let lease = guard.lease();
    let before = now();
    store.revoke(Revocation::Force(request(&lease)), LIMIT).await.unwrap();
    bounded("it is told", guard.lost()).await;
    println!("force, nobody waits: told after {:.1?}", now().since(before));
    assert_eq!(lease.loss(), Some(revoked()));
    assert!(
        now().since(before) < quick("x").refresh_interval() + 500 * MS,
        "told after {:?}",
        now().since(before)
    );
}

#[tokio::test]
async fn a_revoked_job_that_does_not_listen_is_dropped_before_the_next_one_begins() {
    let place = Place::on(replica_set().await.uri()).await;
    let (elect, other) = (place.instance(quick("pod")).await, place.instance(quick("other")).await);
    let store = place.store().await;
    let polls = Polls::default();
    let stand = |elect: &Elect| {
        let polls = polls.clone();
        let campaign = elect.campaign("key");
        campaign.run(move |lease| polls.job(lease, 5 * MS, Told::GoesOn)).unwrap()
    };
    let campaign = stand(&elect);
    let lease = leads(&campaign).await;
    let next = stand(&other);
    until("the other waits", || async { (other.health().waiting == 1).then_some(()) }).await;
    let before = now();
    store.revoke(asked(&elect, &lease), LIMIT).await.unwrap();
    let led = bounded("the other leads", next.led()).await.unwrap();
    until("its job runs", || async { polls.under("key", led.term()).pop() }).await;
    let last = polls.under("key", lease.term()).last().unwrap().at;
    let first = polls.under("key", led.term())[0].at;
    println!(
        "revoked, stubborn: dropped after {:.0?}, the next began {:.1?} later",
        last.since(before),
        first.since(last)
    );
    assert!(first > last);
    assert!(last.since(before) + 50 * MS >= quick("x").stop_grace(), "it has its grace");
    // The one that was told to go stands behind the others.
    assert!(!campaign.is_leading() && led.check().await.unwrap());
}
