//! Remains of the dead: locks that no session takes over, and places in the queue.

use std::time::Duration;

use futures::{StreamExt, stream};

use crate::{
    fixture::{Fixture, LIMIT, eventually, sure},
    purge::{NOTHING, marker_is_purged, purge},
};
use tenure::{
    model::{LockId, Retention, SessionId},
    store::{Ended, LockSeen, Open, SessionSeen, StoreExt, Take, TakeAnswer, Wait},
};

/// More than a store takes at once.
const MANY: usize = 1100;
/// Number of tasks that prepare them.
const SIDE_BY_SIDE: usize = 32;

/// Keeps what the dead hold, and not the dead.
const LOCKS_STAY: Retention = Retention { locks: Duration::from_secs(3600), sessions: Duration::ZERO };

/// A session of that id that has died.
async fn declared_dead(fixture: &Fixture, session: SessionId) -> SessionId {
    fixture.open(&Open { session, ..fixture.opening() }).await;
    fixture.declare_dead(session).await.id
}

/// Returns whether no session holds the lock any more.
async fn is_free(fixture: &Fixture, lock: &LockId) -> bool {
    fixture.record(lock).await.holding.is_none()
}

/// A session that wants it later takes it like any other, under a larger term.
pub async fn a_lock_of_the_dead_becomes_free_and_keeps_its_term(fixture: &Fixture) {
    let lock = fixture.lock("order 4711");
    let dead = fixture.opened().await.id;
    let held = fixture.taken(&lock, &with!(fixture.talkative(dead, 5); lock_delay: Duration::ZERO)).await;
    fixture.declare_dead(dead).await;
    let mut freed = 0;
    eventually("a lock of the dead is freed", async || {
        freed += purge(fixture, NOTHING).await.freed;
        is_free(fixture, &lock).await.then_some(())
    })
    .await;
    let record = fixture.record(&lock).await;
    let last = record.past.first().expect("its last holder must be remembered");
    assert_eq!((freed, record.term, record.closed), (1, held.term, None));
    assert_eq!((last.how, last.term, last.holder.as_str()), (Ended::Died, held.term, "pod-2"));
    let next = fixture.held(&lock, fixture.session(), 1).await;
    assert!(next.term > held.term, "{} after {}", next.term, held.term);
}

/// For as long as idle locks are kept it stays as it was, for the session that takes over.
pub async fn a_lock_of_one_that_died_lately_is_kept(fixture: &Fixture) {
    let dead = fixture.opened().await.id;
    let held = fixture.held(&fixture.lock("report"), dead, 1).await;
    fixture.declare_dead(dead).await;
    // The store's clock has to go on, or nothing were old enough.
    marker_is_purged(&fixture.another()).await;
    assert_eq!(purge(fixture, LOCKS_STAY).await.freed, 0);
    assert_eq!(fixture.record(&held.id).await, held);
}

/// Writes that were sent under it may still arrive: it is as closed as if it had been taken over.
pub async fn a_lock_of_the_dead_with_a_delay_is_closed(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let delay = Duration::from_secs(3600);
    let careful = with!(fixture.candidate(fixture.opened().await.id, 1); lock_delay: delay);
    let held = fixture.taken(&lock, &careful).await;
    fixture.declare_dead(careful.session).await;
    eventually("a lock of the dead is freed", async || {
        purge(fixture, NOTHING).await;
        is_free(fixture, &lock).await.then_some(())
    })
    .await;
    let record = fixture.record(&lock).await;
    assert_eq!((record.term, record.closed.map(|closed| closed.length)), (held.term, Some(delay)));
    let answer = fixture.take(&lock, &fixture.candidate(fixture.session(), 1)).await;
    assert!(matches!(answer, TakeAnswer::Closed(_)), "{answer:?}");
}

/// However long it has not beaten; nor what is held by a session that there is not.
pub async fn a_lock_is_freed_of_the_dead_only(fixture: &Fixture) {
    let silent = Open { ttl: Duration::from_millis(1), ..fixture.opening() };
    fixture.open(&silent).await;
    let mut held = Vec::new();
    for (key, session) in [("of the silent", silent.session), ("of a stranger", fixture.session())] {
        held.push(fixture.held(&fixture.lock(key), session, 1).await);
    }
    marker_is_purged(fixture).await;
    for record in held {
        assert_eq!(fixture.record(&record.id).await, record);
    }
}

/// All of it, however much that is; and then it goes itself.
pub async fn a_dead_session_with_a_thousand_locks_is_purged(fixture: &Fixture) {
    let dead = fixture.opened().await.id;
    let locks: Vec<_> = (0..MANY).map(|number| fixture.lock(&format!("order {number}"))).collect();
    let takes = locks.iter().map(|lock| Take { lock: lock.clone(), by: fixture.candidate(dead, 1) });
    let taken = fixture.take_all(takes.collect(), &[]).await;
    fixture.declare_dead(dead).await;
    let mut freed = 0;
    eventually("a dead session that held a thousand locks is purged", async || {
        freed += purge(fixture, NOTHING).await.freed;
        (fixture.seen(dead).await == SessionSeen::Missing).then_some(())
    })
    .await;
    assert_eq!(freed, MANY as u64, "each of them is counted");
    let seen = sure(fixture.store().locks(locks, LIMIT)).await;
    for (seen, taken) in seen.into_iter().zip(taken) {
        let LockSeen::Found(record) = seen else { panic!("a young term must stay: {seen:?}") };
        assert_eq!(record.holding, None);
        assert_eq!(Some(record.term), taken.taken().map(|taken| taken.term));
    }
}

/// Dead sessions that must stay are not in the way of those that come after them.
pub async fn a_purge_gets_past_a_thousand_dead_that_stay(fixture: &Fixture) {
    let half = 1_u128 << 127;
    let first: Vec<_> =
        (0..MANY).map(|_| SessionId::from_u128(fixture.session().as_u128() & !half)).collect();
    let last: Vec<_> = (0..5).map(|_| SessionId::from_u128(fixture.session().as_u128() | half)).collect();
    let takes = first.iter().enumerate().map(|(number, session)| Take {
        lock: fixture.lock(&format!("order {number}")),
        by: fixture.candidate(*session, 1),
    });
    fixture.take_all(takes.collect(), &[]).await;
    let all = stream::iter(first.iter().chain(&last)).map(|session| declared_dead(fixture, *session));
    let _all: Vec<_> = all.buffer_unordered(SIDE_BY_SIDE).collect().await;
    eventually("the dead that hold nothing are purged", async || {
        purge(fixture, LOCKS_STAY).await;
        let seen = sure(fixture.store().observe(last.clone(), LIMIT)).await;
        seen.iter().all(|seen| *seen == SessionSeen::Missing).then_some(())
    })
    .await;
    let seen = sure(fixture.store().observe(first, LIMIT)).await;
    assert!(seen.iter().all(SessionSeen::is_dead), "a lock names each of them");
}

/// A dead session is never granted the lock it waits for; the others keep their places.
pub async fn places_of_the_dead_go_however_lately_they_died(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let [dead, alive] = [fixture.opened().await.id, fixture.opened().await.id];
    let stranger = fixture.session();
    for session in [dead, alive, stranger] {
        let wait = Wait { lock: lock.clone(), by: fixture.candidate(session, 1) };
        sure(fixture.store().wait(vec![wait], LIMIT)).await;
    }
    fixture.declare_dead(dead).await;
    let purged = purge(fixture, Retention::default()).await;
    assert_eq!((purged.waiters, purged.sessions), (1, 0));
    let queue = sure(fixture.store().waiters(lock, 10, LIMIT)).await;
    let queue: Vec<_> = queue.waiters.iter().map(|waiter| waiter.by.session).collect();
    assert_eq!(queue.len(), 2, "{queue:?}");
    assert!(queue.contains(&alive) && queue.contains(&stranger), "nobody has declared them dead: {queue:?}");
}
