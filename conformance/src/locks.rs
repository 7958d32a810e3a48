//! Takes: granted when free, lost while held, taken over from the dead.

use std::time::Duration;

use crate::fixture::{Fixture, TTL, eventually, granted, value};
use tenure::{
    model::{LockId, Term},
    store::{
        Candidate, Ended, Evidence, Holding, LockRecord, LockSeen, ReleaseTo, SetAnswer, Take, TakeAnswer,
    },
};

/// Long enough to be over only when the test is.
const LONG: Duration = TTL;

/// A lock that was never taken is taken; the record says what the candidate said, and nothing else.
pub async fn a_lock_without_a_record_is_taken(fixture: &Fixture) {
    let lock = fixture.lock("report");
    assert_eq!(fixture.look(&lock).await, LockSeen::Absent, "a lock nobody ever took has no record");
    let by = fixture.talkative(fixture.session(), 7);
    let record = fixture.taken(&lock, &by).await;
    let acquired_at = record.holding.as_ref().expect("it was just granted").acquired_at;
    let expected = with!(
        LockRecord::new(lock.clone(), record.term);
        holding: Some(with!(Holding::new(by, acquired_at); value_set: 0)),
        closed: None,
        wanted: false,
        past: Vec::new(),
    );
    assert_eq!(record, expected, "the record must say what the candidate said");
    assert!(record.term > Term::new(0), "the first term must be larger than zero");
    assert_eq!(fixture.record(&lock).await, record, "a read must see what the take was answered");
}

/// The loser learns the holder, and the whole record stays as it was.
pub async fn a_take_of_a_held_lock_changes_nothing(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let held = fixture.taken(&lock, &fixture.talkative(fixture.session(), 7)).await;
    for ticket in [1, 7, 9] {
        let loser = fixture.talkative(fixture.session(), ticket);
        let answer = fixture.take(&lock, &loser).await;
        assert_eq!(answer, TakeAnswer::Held(held.clone()), "the loser must learn who holds the lock");
    }
    assert_eq!(fixture.record(&lock).await, held, "takes that lost must change nothing at all");
}

/// [R7](tenure::store#rules-of-safety), an equal ticket: a take sent again is answered with the same term.
pub async fn a_take_sent_again_gets_the_same_term(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let by = fixture.talkative(fixture.session(), 7);
    let first = fixture.taken(&lock, &by).await;
    for _ in 0..3 {
        let again = fixture.taken(&lock, &by).await;
        assert_eq!(again, first, "a take sent again must find its own earlier success, unchanged");
    }
}

/// Changes that its holder made to the lock since stay as they are.
pub async fn a_take_sent_again_does_not_undo_a_new_value(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let by = fixture.talkative(fixture.session(), 7);
    let first = fixture.taken(&lock, &by).await;
    let set = fixture.set(&lock, by.session, first.term, Some(value(b"page 8"))).await;
    assert_eq!(set, SetAnswer::Set);
    let again = fixture.taken(&lock, &by).await;
    let kept = again.holding.and_then(|held| held.by.value);
    assert_eq!(kept, Some(value(b"page 8")), "a take sent again must not write the value again");
}

/// [R7](tenure::store#rules-of-safety), a larger ticket on record: this take came late.
pub async fn a_take_for_an_earlier_ticket_changes_nothing(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let held = fixture.held(&lock, session, 7).await;
    for ticket in [6, 0] {
        let late = fixture.talkative(session, ticket);
        let answer = fixture.take(&lock, &late).await;
        assert_eq!(answer, TakeAnswer::Held(held.clone()), "ticket {ticket} after ticket 7 came late");
    }
    assert_eq!(fixture.record(&lock).await, held, "a late take must change nothing");
}

/// [R7](tenure::store#rules-of-safety), a smaller ticket on record: it was given up unheard, and this one starts a new
/// term.
pub async fn a_take_for_a_later_ticket_starts_a_new_term(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let first = fixture.taken(&lock, &fixture.talkative(session, 7)).await;
    let by = fixture.candidate(session, 8);
    let record = fixture.taken(&lock, &by).await;
    assert!(record.term > first.term, "a later ticket must get a new term");
    assert_eq!(record.holding.as_ref().map(|held| &held.by), Some(&by), "granted as the later ticket asked");
    let past: Vec<_> = record.past.iter().map(|past| (past.term, past.how)).collect();
    assert_eq!(past, [(first.term, Ended::Superseded)], "the earlier ticket must be remembered");
}

/// A session that died with the lock in hand loses it to the candidate that names it.
pub async fn a_take_that_names_the_dead_holder_takes_over(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let opened = fixture.opened().await;
    let held = fixture.held(&lock, opened.id, 3).await;
    let seen = fixture.declare(opened.id, Evidence::Unbeaten { nonce: opened.nonce }).await;
    assert!(seen.is_dead());
    let by = fixture.talkative(fixture.session(), 1);
    let dead = [fixture.session(), opened.id, fixture.session()];
    let record = granted(fixture.take_over(&lock, &by, &dead).await);
    assert!(record.term > held.term, "a takeover must raise the term");
    assert_eq!(record.holding.as_ref().map(|held| &held.by), Some(&by), "granted as the taker asked");
    let past: Vec<_> = record.past.iter().map(|past| (past.term, past.how)).collect();
    assert_eq!(past, [(held.term, Ended::Died)], "the dead holder must be remembered");
    assert_eq!(fixture.record(&lock).await, record);
}

/// The store does not look for itself whether the holder is dead, nor takes another's word.
pub async fn a_take_that_does_not_name_the_dead_holder_changes_nothing(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.opened().await.id;
    let held = fixture.held(&lock, session, 3).await;
    fixture.declare_dead(session).await;
    let by = fixture.candidate(fixture.session(), 1);
    for dead in [vec![], vec![fixture.session(), fixture.dead_session().await]] {
        let answer = fixture.take_over(&lock, &by, &dead).await;
        assert_eq!(answer, TakeAnswer::Held(held.clone()), "only a holder that is named is dead");
    }
    assert_eq!(fixture.record(&lock).await, held);
}

/// A session that waits for a lock and is named dead by a late take has lost nothing it holds.
pub async fn naming_the_dead_does_not_disturb_the_living(fixture: &Fixture) {
    let [held, free] = ["held", "free"].map(|key| fixture.lock(key));
    let dead = fixture.dead_session().await;
    let record = fixture.held(&held, fixture.session(), 1).await;
    let by = fixture.candidate(fixture.session(), 1);
    assert_eq!(fixture.take_over(&held, &by, &[dead]).await, TakeAnswer::Held(record));
    let record = granted(fixture.take_over(&free, &by, &[dead]).await);
    assert_eq!(record.past, [], "a lock that was free was taken from nobody");
}

/// A lock whose holder asked for a lock-delay and died becomes free and stays closed for so long.
pub async fn a_lock_delay_closes_the_lock_of_the_dead(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.opened().await.id;
    let careful = with!(fixture.talkative(session, 3); lock_delay: LONG);
    let held = fixture.taken(&lock, &careful).await;
    fixture.declare_dead(session).await;
    let by = fixture.candidate(fixture.session(), 1);
    let answer = fixture.take_over(&lock, &by, &[session]).await;
    let TakeAnswer::Closed(closed) = &answer else {
        panic!("the lock-delay of the dead must keep the lock closed, but the answer was {answer:?}");
    };
    assert_eq!(closed.holding, None, "nobody holds a closed lock");
    assert_eq!(closed.closed.map(|closed| closed.length), Some(LONG), "closed for as long as was asked");
    assert_eq!(closed.term, held.term, "closing grants nothing, so the term stays");
    let past: Vec<_> = closed.past.iter().map(|past| (past.term, past.how)).collect();
    assert_eq!(past, [(held.term, Ended::Died)]);
    let again = fixture.take_over(&lock, &by, &[session]).await;
    assert_eq!(again, answer, "a take of a closed lock must change nothing: the delay does not start anew");
    assert_eq!(fixture.record(&lock).await, *closed);
}

/// A lock whose delay is over is taken like any other.
pub async fn a_lock_delay_ends(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.opened().await.id;
    let careful = with!(fixture.candidate(session, 3); lock_delay: Duration::from_millis(5));
    let held = fixture.taken(&lock, &careful).await;
    fixture.declare_dead(session).await;
    let by = fixture.candidate(fixture.session(), 1);
    let record = open_again(fixture, &lock, &by, &[session]).await;
    assert!(record.term > held.term, "a grant after a delay must raise the term");
}

/// A lock may be kept closed for a while after its release, also to the session that held it.
pub async fn a_lock_released_for_later_is_closed_to_all(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let held = fixture.held(&lock, session, 1).await;
    fixture.release(&lock, session, held.term, ReleaseTo::ClosedFor(LONG)).await;
    let record = fixture.record(&lock).await;
    assert_eq!(record.holding, None);
    assert_eq!(record.closed.map(|closed| closed.length), Some(LONG), "closed for as long as was asked");
    for by in [fixture.candidate(session, 2), fixture.candidate(fixture.session(), 1)] {
        let answer = fixture.take(&lock, &by).await;
        assert_eq!(answer, TakeAnswer::Closed(record.clone()), "a closed lock is granted to nobody");
    }
    assert_eq!(fixture.record(&lock).await, record, "takes of a closed lock must change nothing");
}

/// A lock whose time is over is taken like any other, and nothing is left of the wait.
pub async fn a_lock_released_for_later_opens_again(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let held = fixture.held(&lock, session, 1).await;
    fixture.release(&lock, session, held.term, ReleaseTo::ClosedFor(Duration::from_millis(5))).await;
    let by = fixture.candidate(fixture.session(), 1);
    let record = open_again(fixture, &lock, &by, &[]).await;
    assert!(record.term > held.term, "a grant after a wait must raise the term");
    assert_eq!(record.closed, None, "a lock in somebody's hand is not closed");
}

/// Polls a closed lock until it is granted, which must not change it meanwhile.
async fn open_again(
    fixture: &Fixture,
    lock: &LockId,
    by: &Candidate,
    dead: &[tenure::model::SessionId],
) -> LockRecord {
    eventually("a closed lock opens", async || match fixture.take_over(lock, by, dead).await {
        TakeAnswer::Taken(record) => Some(record),
        TakeAnswer::Closed(_) => None,
        other => panic!("a closed lock is closed until it is taken, not {other:?}"),
    })
    .await
}

/// However long that is: the record must not become one that is refused.
pub async fn a_lock_may_be_closed_for_ever(fixture: &Fixture) {
    let (released, left) = (fixture.lock("released"), fixture.lock("left by the dead"));
    let by = with!(fixture.candidate(fixture.opened().await.id, 1); lock_delay: Duration::MAX);
    let record = fixture.taken(&released, &by).await;
    fixture.release(&released, by.session, record.term, ReleaseTo::ClosedFor(Duration::MAX)).await;
    fixture.taken(&left, &by).await;
    fixture.declare_dead(by.session).await;
    let successor = fixture.candidate(fixture.session(), 1);
    for lock in [&released, &left] {
        for _ in 0..2 {
            let answer = fixture.take_over(lock, &successor, &[by.session]).await;
            assert!(matches!(answer, TakeAnswer::Closed(_)), "{lock}: {answer:?}");
        }
        let takes =
            [lock, &fixture.lock("healthy")].map(|lock| Take { lock: lock.clone(), by: successor.clone() });
        let answers = fixture.take_all(takes.to_vec(), &[by.session]).await;
        assert!(matches!(answers[0], TakeAnswer::Closed(_)), "{lock}: {answers:?}");
        assert!(answers[1].taken().is_some(), "{answers:?}");
        assert!(fixture.record(lock).await.closed.is_some(), "{lock}");
    }
}
