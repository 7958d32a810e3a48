//! Races: each step is atomic, whatever else is under way.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::fixture::{Fixture, LIMIT, race, sure};
use tenure::store::{Ended, LockRecord, Release, ReleaseTo, StoreExt, Take, TakeAnswer};

/// Of 64 sessions that want a lock at the same moment one gets it; the others learn which.
pub async fn of_takes_that_race_one_wins(fixture: &Fixture) {
    let lock = fixture.lock("prize");
    fixture.freed(&fixture.held(&lock, fixture.session(), 1).await).await;
    for lock in [lock, fixture.lock("never taken before")] {
        let answers = race(64, |_| {
            let take = Take { lock: lock.clone(), by: fixture.candidate(fixture.session(), 1) };
            let store = Arc::clone(fixture.store());
            async move { sure(store.take(vec![take], Vec::new(), LIMIT)).await.remove(0) }
        })
        .await;
        let record = fixture.record(&lock).await;
        let won = answers.iter().filter_map(TakeAnswer::taken).count();
        assert_eq!(won, 1, "of 64 takes one must win");
        for answer in answers {
            let (TakeAnswer::Taken(seen) | TakeAnswer::Held(seen)) = answer else {
                panic!("a race is won or lost, not {answer:?}");
            };
            assert_eq!(seen, record, "winner and losers must see the lock as it is afterwards");
        }
        let last = record.past.first().map(|past| past.term);
        assert!(Some(record.term) > last, "the winner's term must be larger than the last one");
    }
}

/// A take that is sent 32 times at the same moment is one take.
pub async fn repeats_of_a_take_that_race_get_one_term(fixture: &Fixture) {
    let lock = fixture.lock("prize");
    let by = fixture.talkative(fixture.session(), 1);
    let answers = race(32, |_| {
        let (take, store) = (Take { lock: lock.clone(), by: by.clone() }, Arc::clone(fixture.store()));
        async move { sure(store.take(vec![take], Vec::new(), LIMIT)).await.remove(0) }
    })
    .await;
    let record = fixture.record(&lock).await;
    assert_eq!(record.past, [], "one take must be granted once");
    for answer in answers {
        assert_eq!(answer, TakeAnswer::Taken(record.clone()), "every repeat must get the same term");
    }
}

/// Of 32 sessions that take over from the dead one gets the lock.
pub async fn of_takeovers_that_race_one_wins(fixture: &Fixture) {
    let lock = fixture.lock("inheritance");
    let dead = fixture.opened().await.id;
    let held = fixture.held(&lock, dead, 1).await;
    fixture.declare_dead(dead).await;
    let answers = race(32, |_| {
        let take = Take { lock: lock.clone(), by: fixture.candidate(fixture.session(), 1) };
        let store = Arc::clone(fixture.store());
        async move { sure(store.take(vec![take], vec![dead], LIMIT)).await.remove(0) }
    })
    .await;
    let record = fixture.record(&lock).await;
    assert_eq!(answers.iter().filter_map(TakeAnswer::taken).collect::<Vec<_>>(), [&record]);
    assert!(record.term > held.term);
    assert_eq!(record.past.len(), 1, "the dead must be remembered once: {record:?}");
}

/// Of many releases and hand-overs of one term one counts.
pub async fn of_releases_that_race_one_counts(fixture: &Fixture) {
    for round in 0..8 {
        let lock = fixture.lock(&format!("gift {round}"));
        let former = fixture.session();
        let held = fixture.held(&lock, former, 1).await;
        race(8, |number| {
            let then = match number % 4 {
                0 => ReleaseTo::Free,
                1 => ReleaseTo::HandTo(Box::new(fixture.candidate(former, 2))),
                _ => ReleaseTo::HandTo(Box::new(fixture.candidate(fixture.session(), 1))),
            };
            let release = Release { lock: lock.clone(), session: former, term: held.term, note: None, then };
            let store = Arc::clone(fixture.store());
            async move { sure(store.release(vec![release], LIMIT)).await }
        })
        .await;
        fixture.settle().await;
        let record = fixture.record(&lock).await;
        let ended: Vec<_> = record.past.iter().map(|past| past.how).collect();
        let expected = if record.holding.is_some() { Ended::HandedOver } else { Ended::Released };
        assert_eq!(ended, [expected], "a term must end once: {record:?}");
    }
}

/// Batches that overlap, in different orders, take each key once and do not wait for one another
/// for ever.
pub async fn batches_that_race_take_each_key_once(fixture: &Fixture) {
    let locks: Vec<_> = (0..40).map(|number| fixture.lock(&format!("key {number}"))).collect();
    let answers = race(8, |number| {
        let by = fixture.candidate(fixture.session(), 1);
        let mut takes: Vec<_> =
            locks.iter().map(|lock| Take { lock: lock.clone(), by: by.clone() }).collect();
        if number % 2 == 0 {
            takes.reverse();
        }
        let store = Arc::clone(fixture.store());
        async move { sure(store.take(takes, Vec::new(), LIMIT)).await }
    })
    .await;
    let taken = answers.iter().flatten().filter_map(TakeAnswer::taken);
    let mut taken: Vec<&LockRecord> = taken.collect();
    taken.sort_by_key(|record| record.id.clone());
    let mut expected = Vec::new();
    for lock in &locks {
        expected.push(fixture.record(lock).await);
    }
    expected.sort_by_key(|record| record.id.clone());
    assert_eq!(taken, expected.iter().collect::<Vec<_>>(), "each key must be granted to one batch");
}

/// Eight sessions take and release one lock as fast as they can: never two hold it at once, and the
/// terms rise in the order they held it.
pub async fn a_lock_has_one_holder_at_a_time(fixture: &Fixture) {
    let lock = fixture.lock("hot");
    let inside = Arc::new(AtomicUsize::new(0));
    let grants = race(8, |_| {
        let (store, lock, inside) = (Arc::clone(fixture.store()), lock.clone(), Arc::clone(&inside));
        let by = fixture.candidate(fixture.session(), 0);
        async move {
            let mut terms = Vec::new();
            for ticket in 1..=40 {
                let by = with!(by.clone(); ticket: tenure::store::Ticket::new(ticket));
                let take = Take { lock: lock.clone(), by };
                let answer = sure(store.take(vec![take.clone()], Vec::new(), LIMIT)).await.remove(0);
                let Some(record) = answer.taken() else { continue };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold one lock at once");
                tokio::task::yield_now().await;
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two hold one lock at once");
                terms.push(record.term);
                let (session, term) = (take.by.session, record.term);
                let release = Release { lock: take.lock, session, term, note: None, then: ReleaseTo::Free };
                sure(store.release(vec![release], LIMIT)).await;
            }
            terms
        }
    })
    .await;
    assert!(grants.iter().all(|terms| terms.is_sorted_by(|one, next| one < next)), "{grants:?}");
    let mut all = grants.concat();
    assert!(!all.is_empty(), "somebody must get the lock");
    all.sort_unstable();
    assert!(all.is_sorted_by(|one, next| one < next), "no term may be given out twice");
}
