//! Values: set by the holder, under its term, and by no other session.

use crate::fixture::{Fixture, LIMIT, sure, value};
use tenure::{
    model::{Term, Value},
    store::{LockRecord, LockSeen, ReleaseTo, SetAnswer, SetValue, StoreExt},
};

/// The record with that value, and the number of whatever change was the last.
fn with_value(record: &LockRecord, value: Option<Value>, last: &LockRecord) -> LockRecord {
    let mut record = record.clone();
    if let (Some(held), Some(last)) = (&mut record.holding, &last.holding) {
        held.by.value = value;
        held.value_set = last.value_set;
    }
    record
}

/// Set, set to nothing but bytes of length zero, cleared, set again: and nothing else changes.
pub async fn the_holder_sets_and_clears_its_value(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let by = fixture.talkative(fixture.session(), 1);
    let held = fixture.taken(&lock, &by).await;
    for new in [Some(value(b"page 8")), Some(value(b"")), None, Some(value(&[0xff; Value::MAX_BYTES]))] {
        let set = fixture.set(&lock, by.session, held.term, new.clone()).await;
        assert_eq!(set, SetAnswer::Set);
        let found = fixture.record(&lock).await;
        assert_eq!(found, with_value(&held, new, &found), "only the value must change");
        assert_eq!(fixture.record(&lock).await, found, "and stay through reads");
    }
}

/// Sent twice, it is set once and says so twice.
pub async fn a_value_set_again_is_set(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let held = fixture.held(&lock, session, 1).await;
    for _ in 0..2 {
        let set = fixture.set(&lock, session, held.term, Some(value(b"page 8"))).await;
        assert_eq!(set, SetAnswer::Set, "a value that stands there already is set");
    }
}

/// Changes that arrive out of order leave the last one, and each is answered that it was made.
pub async fn a_late_value_changes_nothing(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let held = fixture.held(&lock, session, 1).await;
    for (number, bytes, stands) in
        [(2, b"page 2", b"page 2"), (1, b"page 1", b"page 2"), (2, b"page 2", b"page 2")]
    {
        let new = Some(value(bytes));
        let set = SetValue { lock: lock.clone(), session, term: held.term, number, value: new };
        assert_eq!(sure(fixture.store().set_value(set, LIMIT)).await, SetAnswer::Set);
        let holding = fixture.record(&lock).await.holding.expect("it is held");
        assert_eq!(
            (holding.by.value, holding.value_set),
            (Some(value(stands)), 2),
            "the larger number stands"
        );
    }
}

/// Neither another session, nor the same under another term, nor the holder before.
pub async fn only_the_holder_sets_a_value(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let first = fixture.held(&lock, session, 1).await;
    let by = with!(fixture.candidate(session, 2); value: Some(value(b"mine")));
    let held = fixture.taken(&lock, &by).await;
    let stranger = fixture.session();
    let never = Term::new(held.term.get() + 1);
    for (who, term) in [(stranger, held.term), (session, first.term), (session, never)] {
        for new in [Some(value(b"theirs")), None] {
            let set = fixture.set(&lock, who, term, new).await;
            assert_eq!(set, SetAnswer::NotHeld, "another session, or another term");
        }
    }
    assert_eq!(fixture.record(&lock).await, held, "values of others must change nothing");
}

/// A lock without a holder, or that was never taken, has no value to set.
pub async fn a_lock_nobody_holds_has_no_value(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let set = fixture.set(&lock, session, Term::new(1), Some(value(b"x"))).await;
    assert_eq!(set, SetAnswer::NotHeld);
    assert_eq!(fixture.look(&lock).await, LockSeen::Absent, "setting a value must make no record");
    let held = fixture.held(&lock, session, 1).await;
    let freed = fixture.freed(&held).await;
    let set = fixture.set(&lock, session, held.term, Some(value(b"x"))).await;
    assert_eq!(set, SetAnswer::NotHeld, "it was released");
    assert_eq!(fixture.record(&lock).await, freed);
}

/// The next holder starts with its own value, not with what was left behind.
pub async fn a_value_goes_with_its_holder(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let by = with!(fixture.candidate(fixture.session(), 1); value: Some(value(b"mine")));
    let first = fixture.taken(&lock, &by).await;
    fixture.freed(&first).await;
    let second = fixture.held(&lock, fixture.session(), 1).await;
    assert_eq!(second.holding.and_then(|held| held.by.value), None, "a new grant has its own value");
    let third = with!(fixture.candidate(fixture.session(), 1); value: Some(value(b"third")));
    let session = fixture.record(&lock).await.holding.expect("it was just granted").by.session;
    fixture.release(&lock, session, second.term, ReleaseTo::HandTo(Box::new(third.clone()))).await;
    let handed = fixture.record(&lock).await.holding.map(|held| held.by);
    assert_eq!(handed, Some(third), "so has a hand-over");
}
