//! Terms rise with every change of holder, and the record remembers the holders before.

use crate::fixture::{Fixture, LIMIT, granted, holder, name, sure, why};
use tenure::{
    model::{StoreTime, Who},
    store::{
        Ended, FailureRow, LockRecord, Note, PAST_HOLDERS, Release, ReleaseTo, Request, Revocation,
        RevokeAnswer, StoreExt,
    },
};

/// Through every way a lock changes hands: released, superseded, handed over, died, forced.
///
/// The past holders come latest first, each with how it ended.
pub async fn the_term_rises_with_every_change_of_holder(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let mut terms = Vec::new();
    let mut note = |record: &LockRecord| terms.push(record.term);

    let first = fixture.opened().await.id;
    let record = fixture.held(&lock, first, 1).await;
    note(&record);
    fixture.release(&lock, first, record.term, ReleaseTo::Free).await;

    let record = fixture.held(&lock, first, 2).await;
    note(&record);
    let record = fixture.held(&lock, first, 3).await;
    note(&record);

    let second = fixture.opened().await.id;
    let next = Box::new(fixture.candidate(second, 1));
    fixture.release(&lock, first, record.term, ReleaseTo::HandTo(next)).await;
    let record = fixture.record(&lock).await;
    note(&record);

    fixture.declare_dead(second).await;
    let third = fixture.candidate(fixture.session(), 1);
    let record = granted(fixture.take_over(&lock, &third, &[second]).await);
    note(&record);

    let request =
        Request { lock: lock.clone(), term: record.term, by: holder("admin"), why: why("it hangs") };
    let answer = sure(fixture.store().revoke(Revocation::Force(request), LIMIT)).await;
    let RevokeAnswer::Freed(forced) = answer else { panic!("a forced lock must be free, not {answer:?}") };
    assert_eq!(forced.term, record.term, "freeing grants nothing, so the term stays");

    let record = fixture.held(&lock, first, 4).await;
    note(&record);

    assert!(terms.is_sorted_by(|one, next| one < next), "terms must rise: {terms:?}");
    let ended: Vec<_> = record.past.iter().map(|past| past.how).collect();
    let expected = [Ended::Forced, Ended::Died, Ended::HandedOver, Ended::Superseded, Ended::Released];
    assert_eq!(ended, expected, "past holders must come latest first, with how each ended");
    let held: Vec<_> = record.past.iter().rev().map(|past| past.term).collect();
    assert_eq!(held, terms[..5], "each past holder must be remembered with its term");
}

/// Taken and released in quick succession, within one tick of the store's clock.
pub async fn terms_rise_also_within_one_tick_of_the_clock(fixture: &Fixture) {
    let lock = fixture.lock("busy");
    let session = fixture.session();
    let mut last = None;
    for ticket in 1..=50 {
        let record = fixture.held(&lock, session, ticket).await;
        assert!(Some(record.term) > last, "term {:?} after {last:?}", record.term);
        last = Some(record.term);
        if ticket % 3 == 0 {
            fixture.release(&lock, session, record.term, ReleaseTo::Free).await;
        }
    }
}

/// The last [`PAST_HOLDERS`], latest first.
pub async fn the_last_holders_are_remembered(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let mut records = Vec::new();
    let turns = PAST_HOLDERS + 3;
    for turn in 0..turns {
        let session = fixture.session();
        let mut by = fixture.candidate(session, 1);
        by.holder = holder(&format!("pod-{turn}"));
        by.who = (turn % 2 == 0).then(|| name(Who::new(format!("part {turn}"))));
        let record = fixture.taken(&lock, &by).await;
        let row = || FailureRow::begun(StoreTime::from_millis(-1), &by.holder, &format!("error {turn}"));
        let note = (turn % 3 == 0).then(|| Note::Failing(row()));
        let release = Release {
            lock: lock.clone(),
            session,
            term: record.term,
            note: note.clone(),
            then: ReleaseTo::Free,
        };
        fixture.release_as(release).await;
        records.push((by.holder, by.who, record.term, note));
    }
    let past = fixture.record(&lock).await.past;
    assert!(past.is_sorted_by(|later, earlier| later.from >= earlier.to), "one after the other: {past:?}");
    let past: Vec<_> = past.into_iter().map(|past| (past.holder, past.who, past.term, past.note)).collect();
    records.reverse();
    records.truncate(PAST_HOLDERS);
    assert_eq!(past, records, "the last {PAST_HOLDERS} of {turns} holders must be remembered, latest first");
}
