//! An operator wants a lock back.

use tenure::{
    Elect, Event, Lease, Loss,
    elect::Campaign,
    model::{Holder, Why},
    store::{Request, Revocation, RevokeAnswer, StoreExt, mongo::MongoStore},
};

use crate::elect_mongodb::{
    fleet::{
        LIMIT, MS, Place, SECOND, event, free, holds, losses, replica_set, session, steady, told, until,
        waits, when, within,
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
    within("a free key is led", campaign.led()).await.unwrap()
}

/// Leads, and is asked for the lock.
async fn ask(store: &MongoStore, elect: &Elect, key: &str) -> (Campaign, Lease) {
    let campaign = elect.campaign(key).start().unwrap();
    let lease = leads(&campaign).await;
    let answer = store.revoke(asked(elect, &lease), LIMIT).await.unwrap();
    assert_eq!(answer, RevokeAnswer::Asked);
    (campaign, lease)
}

/// Checks that it received the request, gives the lock back, stands aside, and takes the request off its record.
async fn heeds(store: &MongoStore, elect: &Elect, (campaign, lease): (Campaign, Lease)) {
    assert_eq!(lease.loss(), Some(revoked()));
    free(store, lease.key().as_str()).await;
    assert!(!campaign.is_leading());
    let id = elect.health().session.unwrap();
    until("the requests are removed", async || {
        let requests = session(store, id).await.unwrap().requests;
        when(requests.is_empty(), requests)
    })
    .await;
}

#[tokio::test]
async fn a_revoke_reaches_a_holder_that_waits_for_another_lock_at_once() {
    let place = Place::on(replica_set().await.uri()).await;
    // Its next beat comes later than anything here is waited for: only a bell can tell it.
    let seldom = steady("pod").with_refresh_interval(LIMIT * 2).with_refresh_duration(LIMIT * 10);
    let elect = place.instance(seldom).await;
    assert_eq!(elect.health().hints, Some("bells"));
    let _taken = within("it is free", place.instance(steady("other")).await.acquire("taken")).await.unwrap();
    let waits = elect.campaign("taken").start().unwrap();
    let store = place.store().await;
    // It begins to listen when it waits: what was rung before that it does not hear.
    let mut number = 0;
    let heard = until("it hears a bell", async || {
        number += 1;
        let asked = ask(&store, &elect, &format!("key {number}")).await;
        match tokio::time::timeout(5 * SECOND, asked.1.cancelled()).await {
            Ok(()) => Ok(asked),
            Err(_) => Err(number),
        }
    })
    .await;
    heeds(&store, &elect, heard).await;
    assert!(!waits.is_leading());
}

/// Delivery by the next beat is judged in paused time, by `campaigns::a_revoked_leader…` of `tests/elect/`.
#[tokio::test]
async fn a_revoke_reaches_a_holder_that_listens_to_nothing_with_a_beat() {
    let place = Place::on(replica_set().await.uri()).await;
    let (elect, store) = (place.instance(steady("pod")).await, place.store().await);
    let asked = ask(&store, &elect, "key").await;
    within("it is told", asked.1.cancelled()).await;
    heeds(&store, &elect, asked).await;
}

#[tokio::test]
async fn force_takes_one_lock_away_and_leaves_the_others() {
    let place = Place::on(replica_set().await.uri()).await;
    let (elect, other) = (place.instance(steady("pod")).await, place.instance(steady("other")).await);
    let store = place.store().await;
    let campaign = elect.campaign("key").start().unwrap();
    let lease = leads(&campaign).await;
    let spare = elect.acquire("spare").await.unwrap();
    let mut events = elect.events();
    let waits = tokio::spawn(async move { other.acquire("key").await.unwrap() });
    until("the other waits", async || {
        let line = store.waiters(lease.lock().clone(), 10, LIMIT).await.unwrap();
        when(line.waiters.len() == 1, line)
    })
    .await;

    let before = now();
    let answer = store.revoke(Revocation::Force(request(&lease)), LIMIT).await.unwrap();
    assert!(matches!(answer, RevokeAnswer::Freed(_)), "{answer:?}");
    let guard = within("the other has it", waits).await.unwrap();
    println!("force: the next one had it after {:.1?}", now().since(before));
    assert!(guard.term() > lease.term());
    within("it is told", lease.cancelled()).await;
    println!("force: the old one was told after {:.1?}", now().since(before));
    assert_eq!(lease.loss(), Some(revoked()));
    event(&mut events, "it is lost", |event| match event {
        Event::Lost { lock, .. } => Some(lock.clone()).filter(|lock| lock == lease.lock()).map(drop),
        _ => None,
    })
    .await;
    // No beat, no audit takes the other lock with it.
    assert!(holds(&spare.lease()).await && !spare.lease().is_cancelled());
    assert!(elect.health().is_ok());
    let events = told(&mut events);
    assert!(losses(&events).is_empty(), "{events:?}");
    assert!(holds(&guard.lease()).await);
}

#[tokio::test]
async fn force_tells_the_holder_with_an_audit() {
    let place = Place::on(replica_set().await.uri()).await;
    let (elect, store) = (place.instance(steady("pod")).await, place.store().await);
    let guard = elect.acquire("key").await.unwrap();
    let lease = guard.lease();
    let before = now();
    store.revoke(Revocation::Force(request(&lease)), LIMIT).await.unwrap();
    within("it is told", guard.lost()).await;
    println!("force, nobody waits: told after {:.1?}", now().since(before));
    assert_eq!(lease.loss(), Some(revoked()));
}

#[tokio::test]
async fn a_revoked_job_that_does_not_listen_is_dropped_before_the_next_one_begins() {
    let place = Place::on(replica_set().await.uri()).await;
    let (elect, other) = (place.instance(steady("pod")).await, place.instance(steady("other")).await);
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
    waits(&other, 1).await;
    let before = now();
    store.revoke(asked(&elect, &lease), LIMIT).await.unwrap();
    let led = within("the other leads", next.led()).await.unwrap();
    until("its job runs", async || polls.under("key", led.term()).pop().ok_or(())).await;
    let last = polls.under("key", lease.term()).last().unwrap().at;
    let first = polls.under("key", led.term())[0].at;
    println!(
        "revoked, stubborn: dropped after {:.0?}, the next began {:.1?} later",
        last.since(before),
        first.since(last)
    );
    assert!(first > last);
    assert!(first.since(before) >= elect.config().stop_grace(), "the old one has its grace");
    // The one that was told to go stands behind the others.
    assert!(!campaign.is_leading() && holds(&led).await);
}
