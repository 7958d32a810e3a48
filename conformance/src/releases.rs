//! Releases and hand-overs: by the holder, under its term, and by no other session.

use std::time::Duration;

use crate::fixture::{Fixture, LIMIT, TTL, sure};
use tenure::{
    model::{StoreTime, Term},
    store::{DeathRow, Ended, LockSeen, Note, Release, ReleaseAnswer, ReleaseTo, StoreExt, Wait},
};

/// Long enough to be over only when the test is.
const LONG: Duration = TTL;

/// The record stays when the lock has no holder, and remembers the last holder.
pub async fn a_release_keeps_the_record_and_its_term(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let by = fixture.talkative(fixture.session(), 1);
    let held = fixture.taken(&lock, &by).await;
    let release = Release {
        lock: lock.clone(),
        session: by.session,
        term: held.term,
        note: Some(Note::Done),
        then: ReleaseTo::Free,
    };
    fixture.release_as(release).await;
    let record = fixture.record(&lock).await;
    assert_eq!((record.term, &record.holding, record.closed), (held.term, &None, None));
    let [past] = &record.past[..] else { panic!("one holder must be remembered, not {:?}", record.past) };
    assert_eq!((&past.holder, &past.who, &past.note), (&by.holder, &by.who, &Some(Note::Done)));
    assert_eq!((past.term, past.session, past.how), (held.term, Some(by.session), Ended::Released));
    assert_eq!(Some(past.from), held.holding.map(|held| held.acquired_at), "since it was granted");
    assert!(past.to >= past.from, "nobody held a lock until before it was granted");
}

/// A waiter has marked the lock: its holder reads the queue before it releases it.
pub async fn a_lock_that_is_wanted_is_not_released_unasked(fixture: &Fixture) {
    let store = fixture.store();
    for wanted in [true, false] {
        let lock = fixture.lock(if wanted { "wanted" } else { "lonely" });
        let session = fixture.session();
        let held = fixture.held(&lock, session, 1).await;
        if wanted {
            let by = fixture.candidate(fixture.session(), 1);
            sure(store.wait(vec![Wait { lock: lock.clone(), by }], LIMIT)).await;
        }
        let release = Release {
            lock: lock.clone(),
            session,
            term: held.term,
            note: None,
            then: ReleaseTo::FreeUnlessWanted,
        };
        let answers = sure(store.release(vec![release.clone()], LIMIT)).await;
        let expected = if wanted { ReleaseAnswer::Wanted } else { ReleaseAnswer::Released };
        assert_eq!(answers, [expected]);
        fixture.settle().await;
        assert_eq!(fixture.record(&lock).await.is_held_by(session), wanted);
        let late = Release { term: Term::new(held.term.get() + 1), ..release };
        let answers = sure(store.release(vec![late], LIMIT)).await;
        assert_eq!(answers, [ReleaseAnswer::Released], "it is not held under that term");
    }
}

/// A lock that goes to one of its waiters is still wanted by the others.
pub async fn a_mark_goes_with_a_release_to_nobody(fixture: &Fixture) {
    let next = |session| ReleaseTo::HandTo(Box::new(fixture.candidate(session, 5)));
    for (key, then, stays) in [
        ("free", ReleaseTo::Free, false),
        ("for one", next(fixture.session()), true),
        ("later", ReleaseTo::ClosedFor(TTL), true),
    ] {
        let (lock, session) = (fixture.lock(key), fixture.session());
        let held = fixture.held(&lock, session, 1).await;
        let by = fixture.candidate(fixture.session(), 1);
        sure(fixture.store().wait(vec![Wait { lock: lock.clone(), by }], LIMIT)).await;
        fixture.release(&lock, session, held.term, then).await;
        assert_eq!(fixture.record(&lock).await.wanted, stays, "{key}");
    }
}

/// [R6](tenure::store#rules-of-safety): only its holder, under its term, releases a lock.
pub async fn a_release_by_anybody_else_does_nothing(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let first = fixture.held(&lock, session, 1).await;
    let second = fixture.held(&lock, session, 2).await;
    let stranger = fixture.session();
    let never = Term::new(second.term.get() + 1);
    for then in [
        ReleaseTo::Free,
        ReleaseTo::ClosedFor(LONG),
        ReleaseTo::HandTo(Box::new(fixture.candidate(stranger, 5))),
        ReleaseTo::HandTo(Box::new(fixture.candidate(session, 3))),
    ] {
        for (who, term) in
            [(stranger, second.term), (session, first.term), (session, never), (stranger, first.term)]
        {
            fixture.release(&lock, who, term, then.clone()).await;
            let record = fixture.record(&lock).await;
            assert_eq!(record, second, "{then:?} by another session or under another term");
        }
    }
}

/// A release of a lock that has no record makes none.
pub async fn a_release_of_a_lock_without_a_record_does_nothing(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let (session, term) = (fixture.session(), Term::new(1));
    for then in [
        ReleaseTo::Free,
        ReleaseTo::ClosedFor(LONG),
        ReleaseTo::HandTo(Box::new(fixture.candidate(fixture.session(), 5))),
    ] {
        fixture.release(&lock, session, term, then.clone()).await;
        assert_eq!(fixture.look(&lock).await, LockSeen::Absent, "{then:?} must make no record");
    }
}

/// A release that arrives again, or late, does not touch what was granted since.
pub async fn a_release_sent_again_does_nothing(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let first = fixture.held(&lock, session, 1).await;
    let freed = fixture.freed(&first).await;
    for then in [ReleaseTo::Free, ReleaseTo::ClosedFor(LONG)] {
        fixture.release(&lock, session, first.term, then).await;
        assert_eq!(fixture.record(&lock).await, freed, "a release sent again must change nothing");
    }
    let second = fixture.held(&lock, session, 2).await;
    fixture.release(&lock, session, first.term, ReleaseTo::Free).await;
    assert_eq!(fixture.record(&lock).await, second, "a late release must not free the next grant");
}

/// A hand-over is a grant like any other: as the waiter asked, for its ticket, under a new term.
pub async fn a_hand_over_grants_the_lock_as_the_waiter_asked(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let former = fixture.session();
    let held = fixture.held(&lock, former, 1).await;
    let waiter = fixture.talkative(fixture.session(), 5);
    let release = Release {
        lock: lock.clone(),
        session: former,
        term: held.term,
        note: Some(Note::Dying(DeathRow { deaths: u32::MAX, since: StoreTime::from_millis(-1) })),
        then: ReleaseTo::HandTo(Box::new(waiter.clone())),
    };
    fixture.release_as(release.clone()).await;
    let record = fixture.record(&lock).await;
    assert!(record.term > held.term, "a hand-over must raise the term");
    assert_eq!(record.holding.as_ref().map(|held| &held.by), Some(&waiter), "as the waiter asked");
    assert_eq!(record.closed, None);
    let [past] = &record.past[..] else { panic!("one holder must be remembered, not {:?}", record.past) };
    assert_eq!((past.term, past.session), (held.term, Some(former)));
    assert_eq!((past.how, &past.note), (Ended::HandedOver, &release.note));

    fixture.release_as(release).await;
    assert_eq!(fixture.record(&lock).await, record, "a hand-over sent again must change nothing");
    assert_eq!(fixture.taken(&lock, &waiter).await, record, "the waiter's own take finds the same grant");
}

/// A session may hand over to another ticket of its own, also to an earlier one.
pub async fn a_hand_over_may_stay_in_the_session(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let mut last = fixture.held(&lock, session, 5).await;
    for ticket in [9, 2] {
        let next = fixture.candidate(session, ticket);
        fixture.release(&lock, session, last.term, ReleaseTo::HandTo(Box::new(next.clone()))).await;
        let record = fixture.record(&lock).await;
        assert!(record.term > last.term && record.is_granted_to(session, next.ticket), "{record:?}");
        last = record;
    }
}
