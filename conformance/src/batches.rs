//! Batches: answered key by key, in order, each key a step of its own.

use std::{future::poll_fn, task::Poll, time::Duration};

use futures::FutureExt;

use crate::fixture::{Fixture, LIMIT, TTL, sure};
use tenure::{
    model::LockId,
    store::{Candidate, LockSeen, Release, ReleaseAnswer, ReleaseTo, StoreExt, Take, TakeAnswer},
};

/// Free, held, ours already, ours by a later ticket, closed, dead, dead with a delay: in one batch.
pub async fn a_batch_of_takes_mixes_outcomes_and_keeps_the_order(fixture: &Fixture) {
    let [session, other] = [fixture.session(), fixture.session()];
    let dead = fixture.opened().await.id;
    let keys = ["free", "held", "ours", "later", "superseded", "closed", "dead", "delayed", "new"];
    let locks = keys.map(|key| fixture.lock(key));
    let [free, held, ours, later, superseded, closed, died, delayed, _] = &locks;

    fixture.freed(&fixture.held(free, other, 1).await).await;
    let held = fixture.held(held, other, 1).await;
    let ours = fixture.held(ours, session, 10).await;
    let later = fixture.held(later, session, 11).await;
    fixture.held(superseded, session, 9).await;
    let record = fixture.held(closed, other, 1).await;
    fixture.release(closed, other, record.term, ReleaseTo::ClosedFor(TTL)).await;
    fixture.held(died, dead, 1).await;
    fixture.taken(delayed, &with!(fixture.candidate(dead, 1); lock_delay: TTL)).await;
    fixture.declare_dead(dead).await;

    let by = fixture.candidate(session, 10);
    let takes = locks.iter().map(|lock| Take { lock: lock.clone(), by: by.clone() }).collect();
    let answers = fixture.take_all(takes, &[dead]).await;
    for (lock, answer) in locks.iter().zip(&answers) {
        let record = fixture.record(lock).await;
        let expected = match lock.key.as_str() {
            "held" => TakeAnswer::Held(held.clone()),
            "later" => TakeAnswer::Held(later.clone()),
            "ours" => TakeAnswer::Taken(ours.clone()),
            "closed" | "delayed" => TakeAnswer::Closed(record),
            _ => TakeAnswer::Taken(record),
        };
        assert_eq!(*answer, expected, "the answer for {lock} in a mixed batch");
    }
}

/// As many as an instance takes at its start.
pub async fn a_batch_of_a_thousand_is_taken_and_released(fixture: &Fixture) {
    let locks: Vec<_> = (0..1000).map(|number| fixture.lock(&format!("key {number}"))).collect();
    let [first, second] = [fixture.session(), fixture.session()].map(|one| fixture.candidate(one, 1));
    let takes = |by: &Candidate| -> Vec<_> {
        locks.iter().map(|lock| Take { lock: lock.clone(), by: by.clone() }).collect()
    };
    let answers = fixture.take_all(takes(&first), &[]).await;
    for (lock, answer) in locks.iter().zip(&answers) {
        let record = answer.taken().unwrap_or_else(|| panic!("{lock} was free, but is {answer:?}"));
        assert_eq!((&record.id, record.holding.as_ref().map(|held| &held.by)), (lock, Some(&first)));
    }
    for (taken, lost) in answers.iter().zip(fixture.take_all(takes(&second), &[]).await) {
        let TakeAnswer::Taken(record) = taken else { continue };
        assert_eq!(lost, TakeAnswer::Held(record.clone()), "held by the first session");
    }
    let seen = sure(fixture.store().locks(locks.clone(), LIMIT)).await;
    for (taken, seen) in answers.iter().zip(seen) {
        assert_eq!(seen.found().as_ref(), taken.taken(), "a read of many locks must keep their order");
    }
    let releases = answers.iter().filter_map(TakeAnswer::taken).map(|record| Release {
        lock: record.id.clone(),
        session: first.session,
        term: record.term,
        note: None,
        then: ReleaseTo::Free,
    });
    let said = sure(fixture.store().release(releases.collect(), LIMIT)).await;
    fixture.settle().await;
    assert_eq!(said, vec![ReleaseAnswer::Released; locks.len()]);
    for (before, after) in answers.iter().zip(fixture.take_all(takes(&second), &[]).await) {
        let (before, after) = (before.taken(), after.taken());
        let terms = before.zip(after).map(|(before, after)| (before.term, after.term));
        let (before, after) = terms.unwrap_or_else(|| panic!("free again, but is {after:?}"));
        assert!(after > before, "the term of each lock must rise");
    }
}

/// Each release of a batch is for itself: the wrong ones do nothing, the right ones are done.
pub async fn a_batch_of_releases_mixes_outcomes(fixture: &Fixture) {
    let keys = ["freed", "closed", "handed over", "of a stranger", "never taken"];
    let locks = keys.map(|key| fixture.lock(key));
    let [session, stranger] = [fixture.session(), fixture.session()];
    let next = fixture.candidate(stranger, 8);
    let mut releases = Vec::new();
    for (lock, then) in locks.iter().zip([
        ReleaseTo::Free,
        ReleaseTo::ClosedFor(TTL),
        ReleaseTo::HandTo(Box::new(next.clone())),
        ReleaseTo::Free,
        ReleaseTo::Free,
    ]) {
        let term = match lock.key.as_str() {
            "never taken" => tenure::model::Term::new(1),
            "of a stranger" => fixture.held(lock, stranger, 1).await.term,
            _ => fixture.held(lock, session, 1).await.term,
        };
        releases.push(Release { lock: lock.clone(), session, term, note: None, then });
    }
    for _ in 0..2 {
        let answers = sure(fixture.store().release(releases.clone(), LIMIT)).await;
        fixture.settle().await;
        assert_eq!(answers, vec![ReleaseAnswer::Released; locks.len()]);
        let seen = sure(fixture.store().locks(locks.to_vec(), LIMIT)).await;
        let stands = |place: usize| match &seen[place] {
            LockSeen::Found(record) => (record.holding.as_ref().map(|held| &held.by), record.closed),
            other => panic!("{} must have a record, not {other:?}", locks[place]),
        };
        assert_eq!(stands(0), (None, None), "released to nobody");
        assert_eq!(stands(1).0, None, "released for later");
        assert!(stands(1).1.is_some(), "released for later, it must be closed");
        assert_eq!(stands(2), (Some(&next), None), "handed over");
        assert_eq!(stands(3).0.map(|by| by.session), Some(stranger), "a stranger's lock stays its own");
        assert_eq!(seen[4], LockSeen::Absent, "a release makes no record");
    }
}

/// Two steps of one batch on the same lock come in some order, and leave it whole.
pub async fn a_batch_may_name_a_lock_twice(fixture: &Fixture) {
    let [own, others, again] = ["own", "others", "again"].map(|key| fixture.lock(key));
    let session = fixture.session();
    let take = |lock: &LockId, by: Candidate| Take { lock: lock.clone(), by };
    let later = fixture.candidate(session, 2);
    let takes = vec![take(&own, fixture.candidate(session, 1)), take(&own, later.clone())];
    let answers = fixture.take_all(takes, &[]).await;
    let record = fixture.record(&own).await;
    assert!(record.is_granted_to(session, later.ticket), "in any order the later ticket wins: {record:?}");
    assert_eq!(answers[1], TakeAnswer::Taken(record), "the later ticket must learn so");

    let [one, two] = [1, 2].map(|_| fixture.candidate(fixture.session(), 1));
    let answers = fixture.take_all(vec![take(&others, one), take(&others, two)], &[]).await;
    let won: Vec<_> = answers.iter().filter_map(TakeAnswer::taken).collect();
    assert_eq!(won, [&fixture.record(&others).await], "of two sessions one gets the lock");

    let same = take(&again, fixture.candidate(session, 3));
    let answers = fixture.take_all(vec![same.clone(), same], &[]).await;
    let record = fixture.record(&again).await;
    assert_eq!(answers, [TakeAnswer::Taken(record.clone()), TakeAnswer::Taken(record)], "one take, twice");

    let hand_to = |ticket| Release {
        lock: again.clone(),
        session,
        term: answers[0].taken().expect("it was just granted").term,
        note: None,
        then: ReleaseTo::HandTo(Box::new(fixture.candidate(fixture.session(), ticket))),
    };
    sure(fixture.store().release(vec![hand_to(1), hand_to(2)], LIMIT)).await;
    fixture.settle().await;
    let record = fixture.record(&again).await;
    assert_eq!(record.past.len(), 1, "of two hand-overs of one term one counts: {record:?}");
}

/// No requests, no answers, no effects.
pub async fn an_empty_batch_does_nothing(fixture: &Fixture) {
    let store = fixture.store();
    assert_eq!(fixture.take_all(Vec::new(), &[fixture.session()]).await, []);
    assert_eq!(sure(store.release(Vec::new(), LIMIT)).await, []);
    assert_eq!(sure(store.locks(Vec::new(), LIMIT)).await, []);
    assert_eq!(sure(store.peek(Vec::new(), LIMIT)).await, []);
    sure(store.wait(Vec::new(), LIMIT)).await;
    sure(store.stop_waiting(Vec::new(), LIMIT)).await;
    assert_eq!(sure(store.places(Vec::new(), LIMIT)).await, [false; 0]);
}

/// A time limit that is over before the store can answer leaves the outcome open; sent again with
/// more time, each operation finds what became of it.
pub async fn a_call_without_time_is_answered_soon_and_may_be_sent_again(fixture: &Fixture) {
    let store = fixture.store();
    let locks: Vec<LockId> = (0..3).map(|number| fixture.lock(&format!("key {number}"))).collect();
    let by = fixture.candidate(fixture.session(), 1);
    let takes: Vec<_> = locks.iter().map(|lock| Take { lock: lock.clone(), by: by.clone() }).collect();
    for limit in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)] {
        let hurried = store.take(takes.clone(), Vec::new(), limit);
        let answered = tokio::time::timeout(LIMIT / 2, hurried).await;
        let answered = answered.unwrap_or_else(|_| panic!("a limit of {limit:?} must not mean no limit"));
        if let Ok(answers) = answered {
            assert!(answers.iter().all(|answer| answer.taken().is_some()), "{answers:?}");
        }
    }
    let first = fixture.take_all(takes.clone(), &[]).await;
    assert!(first.iter().all(|answer| answer.taken().is_some()), "sent again, it must be granted: {first:?}");
    assert_eq!(fixture.take_all(takes, &[]).await, first, "and stay granted under the same terms");
}

/// A future that is dropped, at whatever point, leaves the records whole.
pub async fn a_call_that_was_dropped_may_be_sent_again(fixture: &Fixture) {
    let store = fixture.store();
    let by = fixture.candidate(fixture.session(), 1);
    for polls in 0..6 {
        let lock = fixture.lock(&format!("taken {polls}"));
        let takes = vec![Take { lock: lock.clone(), by: by.clone() }];
        drop_after(polls, store.take(takes, Vec::new(), LIMIT)).await;
        let held = fixture.taken(&lock, &by).await;
        assert_eq!(held.past, [], "a take that was dropped and sent again must be granted once");

        // Another lock: a take that was dropped may be applied after this release.
        let held = fixture.taken(&fixture.lock(&format!("released {polls}")), &by).await;
        let (lock, term) = (held.id.clone(), held.term);
        let release = Release { lock, session: by.session, term, note: None, then: ReleaseTo::Free };
        drop_after(polls, store.release(vec![release], LIMIT)).await;
        let freed = fixture.freed(&held).await;
        assert_eq!(freed.past.len(), 1, "a release that was dropped and sent again must count once");
    }
}

/// Drives a call for so many polls, at a moment's distance, and drops it.
async fn drop_after(polls: usize, mut call: impl Future + Unpin) {
    for _ in 0..polls {
        if poll_fn(|context| Poll::Ready(call.poll_unpin(context))).await.is_ready() {
            return;
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}
