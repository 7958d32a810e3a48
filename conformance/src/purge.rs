//! Purging: only records that are not needed any more.

use std::time::Duration;

use crate::fixture::{Fixture, LIMIT, eventually, sure};
use tenure::{
    model::Retention,
    store::{Purged, SessionSeen, StoreExt, Wait},
};

/// Keep nothing that need not be kept.
pub(crate) const NOTHING: Retention = Retention { locks: Duration::ZERO, sessions: Duration::ZERO };

/// Purges from the beginning to the end.
pub(crate) async fn purge(fixture: &Fixture, retention: Retention) -> Purged {
    let mut all = Purged::default();
    for _ in 0..1000 {
        let after = all.next.take();
        let some = sure(fixture.store().purge(fixture.namespace().clone(), retention, after, LIMIT)).await;
        all.locks += some.locks;
        all.freed += some.freed;
        all.sessions += some.sessions;
        all.waiters += some.waiters;
        all.next = some.next;
        if all.next.is_none() {
            return all;
        }
    }
    panic!("a purge must come to an end");
}

/// A dead session goes when its time is over, and its places in the queue with it.
pub async fn a_dead_session_is_purged_with_its_places_in_the_queue(fixture: &Fixture) {
    let [dead, alive] = [fixture.opened().await.id, fixture.opened().await.id];
    let locks = ["a", "b"].map(|key| fixture.lock(key));
    let waits = locks.iter().flat_map(|lock| {
        [dead, alive].map(|session| Wait { lock: lock.clone(), by: fixture.candidate(session, 1) })
    });
    sure(fixture.store().wait(waits.collect(), LIMIT)).await;
    fixture.declare_dead(dead).await;
    let mut purged = Purged::default();
    eventually("a dead session is purged", async || {
        let some = purge(fixture, NOTHING).await;
        purged.sessions += some.sessions;
        purged.waiters += some.waiters;
        (fixture.seen(dead).await == SessionSeen::Missing).then_some(())
    })
    .await;
    assert_eq!((purged.sessions, purged.waiters), (1, 2), "what was removed must be counted");
    for lock in locks {
        let queue = sure(fixture.store().waiters(lock, 10, LIMIT)).await;
        let queue: Vec<_> = queue.waiters.iter().map(|waiter| waiter.by.session).collect();
        assert_eq!(queue, [alive], "the living must keep their places");
    }
    assert!(matches!(fixture.seen(alive).await, SessionSeen::Alive(_)), "the living must stay");
}

/// A session that died lately is kept, so that latecomers find it dead.
pub async fn a_session_that_died_lately_is_kept(fixture: &Fixture) {
    let dead = SessionSeen::Dead(fixture.declare_dead(fixture.opened().await.id).await);
    let session = dead.record().expect("it was just declared dead").id;
    // The store's clock has to go on, or nothing were old enough to be purged.
    marker_is_purged(&fixture.another()).await;
    for retention in [Retention::default(), Retention { sessions: Duration::from_secs(3600), ..NOTHING }] {
        assert_eq!(purge(fixture, retention).await, Purged::default());
        assert_eq!(fixture.seen(session).await, dead);
    }
}

/// As long as a lock names it, its death must be there to be seen.
pub async fn a_dead_session_that_a_lock_names_is_kept(fixture: &Fixture) {
    let retention = Retention { locks: Duration::from_secs(3600), ..NOTHING };
    let [holding, other] = [fixture.opened().await.id, fixture.opened().await.id];
    let record = fixture.held(&fixture.lock("report"), holding, 1).await;
    for session in [holding, other] {
        fixture.declare_dead(session).await;
    }
    eventually("the dead session that holds nothing is purged", async || {
        purge(fixture, retention).await;
        (fixture.seen(other).await == SessionSeen::Missing).then_some(())
    })
    .await;
    assert!(fixture.seen(holding).await.is_dead(), "a lock names it");
    assert_eq!(fixture.record(&record.id).await, record);

    fixture.freed(&record).await;
    eventually("it is purged when no lock names it any more", async || {
        purge(fixture, retention).await;
        (fixture.seen(holding).await == SessionSeen::Missing).then_some(())
    })
    .await;
}

/// However long ago it beat: it was not declared dead.
pub async fn the_living_are_never_purged(fixture: &Fixture) {
    let open = tenure::store::Open { ttl: Duration::from_millis(1), ..fixture.opening() };
    let silent = fixture.open(&open).await;
    marker_is_purged(fixture).await;
    assert_eq!(fixture.seen(open.session).await, silent);
}

/// A held lock stays, whichever session holds it; so does one whose term is young, however short the retention: the
/// next term must be larger.
pub async fn held_locks_and_young_terms_are_never_purged(fixture: &Fixture) {
    let held = fixture.held(&fixture.lock("held"), fixture.session(), 1).await;
    let freed = fixture.freed(&fixture.held(&fixture.lock("free"), fixture.session(), 1).await).await;
    marker_is_purged(fixture).await;
    assert_eq!(fixture.record(&held.id).await, held, "it is held");
    assert_eq!(fixture.record(&freed.id).await, freed, "its term is younger than a day");
    let next = fixture.held(&freed.id, fixture.session(), 1).await;
    assert!(next.term > freed.term);
}

/// Purges with no retention until a session that died just now is gone, so that everything before
/// would be gone, too.
pub(crate) async fn marker_is_purged(fixture: &Fixture) {
    let marker = fixture.dead_session().await;
    eventually("a dead session is purged", async || {
        purge(fixture, NOTHING).await;
        (fixture.seen(marker).await == SessionSeen::Missing).then_some(())
    })
    .await;
}

/// The dead of another namespace are not this one's to purge.
pub async fn a_purge_keeps_to_its_namespace(fixture: &Fixture) {
    let neighbour = fixture.another();
    let session = neighbour.opened().await.id;
    sure(
        neighbour
            .store()
            .wait(vec![Wait { lock: neighbour.lock("report"), by: neighbour.candidate(session, 1) }], LIMIT),
    )
    .await;
    let dead = SessionSeen::Dead(neighbour.declare_dead(session).await);
    marker_is_purged(fixture).await;
    assert_eq!(neighbour.seen(session).await, dead);
    let queue = sure(neighbour.store().waiters(neighbour.lock("report"), 10, LIMIT)).await;
    assert_eq!(queue.waiters.len(), 1);
}

/// The purge of an empty namespace finds nothing.
pub async fn a_purge_of_nothing_removes_nothing(fixture: &Fixture) {
    assert_eq!(purge(fixture, NOTHING).await, Purged::default());
}
