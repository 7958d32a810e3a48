//! Decision about a lock that a session wants, apart from how a store carries it out.

use std::time::Duration;

use crate::{
    model::{SessionId, StoreTime, Term},
    store::{Candidate, Ended, LockRecord},
};

/// The decision about a take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeVerdict {
    /// No change: a session holds it, it is closed, it is granted to this very ticket already, or there is no
    /// larger term to grant it under.
    Keep,
    /// The lock is granted.
    Grant {
        /// The new term.
        term: Term,
        /// The way its holder ends, if it had one.
        ended: Option<Ended>,
    },
    /// The holder is dead, and asked for the key to be closed for this duration after its death.
    Delay(Duration),
}

/// Decides a take of a lock that has a record (R4, R7). One without is granted.
pub(super) fn verdict(
    record: &LockRecord,
    by: &Candidate,
    dead: &[SessionId],
    now: StoreTime,
) -> TakeVerdict {
    let Some(term) = record.term.next(now) else { return TakeVerdict::Keep };
    let grant = |ended| TakeVerdict::Grant { term, ended };
    let Some(held) = &record.holding else {
        let closed = record.closed.is_some_and(|closed| !closed.left(now).is_zero());
        return if closed { TakeVerdict::Keep } else { grant(None) };
    };
    if held.by.session == by.session {
        // A smaller ticket came late, an equal one came again.
        return if by.ticket > held.by.ticket { grant(Some(Ended::Superseded)) } else { TakeVerdict::Keep };
    }
    if !dead.contains(&held.by.session) {
        return TakeVerdict::Keep;
    }
    if held.by.lock_delay.is_zero() {
        grant(Some(Ended::Died))
    } else {
        TakeVerdict::Delay(held.by.lock_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Kind, LockId, MAX_NUMBER},
        store::{Closed, Holding, Ticket},
    };

    fn candidate(session: u128, ticket: u64) -> Candidate {
        let (session, ticket) = (SessionId::from_u128(session), Ticket::new(ticket));
        Candidate::new(session, ticket, Duration::from_secs(30), "pod".parse().unwrap())
    }

    #[test]
    fn every_way_a_take_can_go() {
        let now = StoreTime::from_millis(1_000_000);
        let second = Duration::from_secs(1);
        let id = LockId { namespace: "n".parse().unwrap(), kind: Kind::Lock, key: "k".parse().unwrap() };
        let free = LockRecord::new(id, Term::new(7));
        let closed =
            |at: StoreTime| LockRecord { closed: Some(Closed::for_length(at, second)), ..free.clone() };
        let held = |delay| {
            let by = Candidate { lock_delay: delay, ..candidate(1, 5) };
            LockRecord { holding: Some(Holding::new(by, now)), ..free.clone() }
        };
        let (first, second_one) = (SessionId::from_u128(1), SessionId::from_u128(2));
        let grant = |ended| TakeVerdict::Grant { term: Term::new(1_000_000), ended };
        for (record, by, dead, expected) in [
            (free.clone(), candidate(2, 1), vec![], grant(None)),
            (closed(now), candidate(2, 1), vec![], TakeVerdict::Keep),
            (closed(now.minus(second)), candidate(2, 1), vec![], grant(None)),
            (closed(now.plus(second)), candidate(2, 1), vec![], grant(None)),
            (held(Duration::ZERO), candidate(2, 9), vec![], TakeVerdict::Keep),
            (held(Duration::ZERO), candidate(2, 9), vec![second_one], TakeVerdict::Keep),
            (held(Duration::ZERO), candidate(2, 1), vec![second_one, first], grant(Some(Ended::Died))),
            (held(second), candidate(2, 1), vec![first], TakeVerdict::Delay(second)),
            (held(second), candidate(1, 4), vec![first], TakeVerdict::Keep),
            (held(second), candidate(1, 5), vec![first], TakeVerdict::Keep),
            (held(second), candidate(1, 6), vec![], grant(Some(Ended::Superseded))),
        ] {
            assert_eq!(verdict(&record, &by, &dead, now), expected, "{record:?} {by:?} {dead:?}");
            let spent = LockRecord { term: Term::new(MAX_NUMBER), ..record };
            assert_eq!(
                verdict(&spent, &by, &dead, now),
                TakeVerdict::Keep,
                "no larger term: {by:?} {dead:?}"
            );
        }
    }
}
