//! Audit: what the store says this instance holds, against what runs here.

use std::{sync::Arc, time::Duration};

use tenure::{
    Elect,
    model::{Kind, LockId},
    store::{Candidate, LockSeen, Store, StoreExt, Take, TakeAnswer, Ticket},
    testing::{Counting, Faulty, Intercept, Intercepted, Operation, Rates},
};
use tokio::time::Instant;

use crate::elect::world::{SECOND, World};

const LIMIT: Duration = SECOND;
/// A page of the audit.
const PAGE: usize = 1000;

/// An instance whose hints are all lost: only the audit tells it what it does not know.
async fn deaf(world: &World) -> (Elect, Arc<Intercepted<Counting>>) {
    let counting = Counting::default().around(Arc::new(world.memory.clone()));
    let rates = Rates { hint_lost: 1000, ..Rates::default() };
    let store: Arc<dyn Store> = Faulty::seeded(1, rates).around(counting.clone());
    let builder = world.on(store, World::config("a"));
    (builder.start().await.unwrap(), counting)
}

async fn hold(elect: &Elect, numbers: std::ops::Range<usize>) -> Vec<tenure::Guard> {
    let guards = numbers.map(|number| elect.acquire(format!("key {number:05}")));
    futures::future::join_all(guards).await.into_iter().map(Result::unwrap).collect()
}

fn lock(key: &str) -> LockId {
    LockId { namespace: "test".parse().unwrap(), kind: Kind::Lock, key: key.parse().unwrap() }
}

/// A take that was given up, and applied all the same.
async fn stray(world: &World, elect: &Elect, key: &str) {
    let (session, config) = (elect.health().session.unwrap(), elect.config());
    let by = Candidate::new(session, Ticket::new(1), config.ttl(), config.holder().clone());
    let took = world.memory.take(vec![Take { lock: lock(key), by }], Vec::new(), LIMIT).await.unwrap();
    assert!(matches!(took[..], [TakeAnswer::Taken(_)]), "{took:?}");
}

/// Time until nobody holds it.
async fn until_free(world: &World, key: &str, at_most: Duration) -> Duration {
    let from = Instant::now();
    loop {
        let seen = world.memory.locks(vec![lock(key)], LIMIT).await.unwrap();
        if matches!(&seen[..], [LockSeen::Found(record)] if record.holding.is_none()) {
            return from.elapsed();
        }
        assert!(from.elapsed() < at_most, "the lock {key} is held without need for {:?}", from.elapsed());
        tokio::time::sleep(SECOND / 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_waits_for_is_found_in_an_interval_or_two_however_much_is_held() {
    let world = World::new();
    let (elect, _) = deaf(&world).await;
    let guards = hold(&elect, 0..4 * PAGE + 500).await;
    let interval = elect.config().refresh_interval();
    for number in 0..6 {
        // In all phases of the rolling look at the older ones.
        tokio::time::sleep(interval * 3 / 2).await;
        let key = format!("stray {number}");
        stray(&world, &elect, &key).await;
        let took = until_free(&world, &key, interval * 2 + SECOND / 5).await;
        println!("found after {took:?}");
    }
    assert!(guards.iter().all(tenure::Guard::is_valid));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_waits_for_is_found_among_the_oldest_too() {
    let world = World::new();
    let (elect, _) = deaf(&world).await;
    let first = elect.acquire("first").await.unwrap();
    stray(&world, &elect, "stray").await;
    // More than a page is granted before the next look.
    let guards = hold(&elect, 0..2 * PAGE + 500).await;
    let interval = elect.config().refresh_interval();
    until_free(&world, "stray", interval * 6).await;
    assert!(first.is_valid() && guards.iter().all(tenure::Guard::is_valid));
}

#[tokio::test(start_paused = true)]
async fn an_audit_over_several_pages_misses_only_locks_that_are_gone() {
    let world = World::new();
    let (elect, counting) = deaf(&world).await;
    let guards = hold(&elect, 0..2 * PAGE + 500).await;
    let before = counting.intercept().counts();
    tokio::time::sleep(elect.config().refresh_interval() * 8).await;
    let made = counting.intercept().counts() - before;
    assert!(made.calls(Operation::HeldBy) >= 8, "it looks");
    assert_eq!(made.calls(Operation::Take), 0, "all is as it should be: nothing has to be confirmed");
    assert!(guards.iter().all(tenure::Guard::is_valid));
    // One of the oldest, and one of the newest, are gone: both are missed.
    for guard in [&guards[0], guards.last().unwrap()] {
        let forced = tenure::store::Revocation::Force(tenure::store::Request {
            lock: guard.lease().lock().clone(),
            term: guard.term(),
            by: "operator".parse().unwrap(),
            why: tenure::model::Why::shortened("by force"),
        });
        world.memory.revoke(forced, LIMIT).await.unwrap();
        let lost = tokio::time::timeout(elect.config().refresh_interval() * 6, guard.lost()).await;
        assert!(lost.is_ok(), "{} was not missed", guard.key());
    }
}
