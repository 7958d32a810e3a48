//! History of some locks, written down by several sessions as they saw it, and the check that it could happen on
//! locks that only one holds at a time.
//!
//! A holding lasts from the moment the grant was *answered* to the moment its release was *sent*:
//! what lies outside of that nobody may rely on. Both are read off one clock, that of the test.

#![expect(clippy::unwrap_used, reason = "in a test, also outside of the function that is marked as one")]

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    sync::Mutex,
    time::{Duration, Instant},
};

use tenure::{
    model::{LockId, SessionId, Term},
    store::Ticket,
};

/// The clock of the test.
#[expect(clippy::disallowed_methods, reason = "the one clock that judges all sessions, and limits")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A holding, as its holder saw it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) session: SessionId,
    pub(crate) ticket: Ticket,
    pub(crate) term: Term,
    /// Moment at which the grant was answered.
    pub(crate) granted: Instant,
    /// Moment at which the release was sent; nothing if it never was.
    pub(crate) released: Option<Instant>,
}

/// All holdings of all locks.
#[derive(Debug, Default)]
pub(crate) struct History {
    locks: Mutex<BTreeMap<LockId, Vec<Held>>>,
}

impl History {
    pub(crate) fn add(&self, lock: &LockId, held: Held) {
        self.locks.lock().unwrap().entry(lock.clone()).or_default().push(held);
    }

    /// Returns whether anybody claims this term.
    pub(crate) fn knows(&self, lock: &LockId, term: Term) -> bool {
        self.locks.lock().unwrap().get(lock).is_some_and(|held| held.iter().any(|held| held.term == term))
    }

    pub(crate) fn grants(&self) -> usize {
        self.locks.lock().unwrap().values().map(Vec::len).sum()
    }

    /// Number of sessions that held the lock that most of them held.
    pub(crate) fn most_sessions(&self) -> usize {
        let sessions = |held: &Vec<Held>| {
            let mut sessions: Vec<_> = held.iter().map(|held| held.session).collect();
            sessions.sort_unstable();
            sessions.dedup();
            sessions.len()
        };
        self.locks.lock().unwrap().values().map(sessions).max().unwrap_or_default()
    }

    /// Everything that cannot be.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.locks.lock().unwrap().iter().flat_map(|(lock, held)| violations_of(lock, held)).collect()
    }

    pub(crate) fn check(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    }
}

fn violations_of(lock: &LockId, held: &[Held]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut owners: HashMap<Term, (SessionId, Ticket)> = HashMap::new();
    for one in held {
        let owner = (one.session, one.ticket);
        let first = *owners.entry(one.term).or_insert(owner);
        if first != owner {
            violations.push(format!("{lock}: term {} belongs to {first:?} and to {owner:?}", one.term));
        }
    }
    let mut in_order = held.to_vec();
    in_order.sort_by_key(|held| held.granted);
    for (earlier, later) in in_order.iter().zip(in_order.iter().skip(1)) {
        if later.term <= earlier.term {
            violations.push(told(lock, "the term did not rise", earlier, later));
        }
        if (earlier.session, earlier.ticket) == (later.session, later.ticket) {
            violations.push(told(lock, "one ticket was granted twice", earlier, later));
        }
        // The next one alone is enough to look at: if a third one overlapped the first, so does
        // the second.
        if earlier.released.is_none_or(|released| later.granted < released) {
            violations.push(told(lock, "two held it at once", earlier, later));
        }
    }
    violations
}

fn told(lock: &LockId, what: &str, earlier: &Held, later: &Held) -> String {
    let mut text = format!("{lock}: {what}");
    for held in [earlier, later] {
        let since = held.granted.saturating_duration_since(earlier.granted);
        let until = held.released.map(|released| released.saturating_duration_since(earlier.granted));
        let (session, ticket, term) = (held.session, held.ticket, held.term);
        let _ = write!(text, "\n  {session} ticket {ticket} term {term}: from {since:?} to {until:?}");
    }
    text
}

// ----- the checker, checked

fn lock() -> LockId {
    use tenure::model::{Key, Kind, Namespace};
    LockId { namespace: Namespace::new("ns").unwrap(), kind: Kind::Lock, key: Key::new("key").unwrap() }
}

/// A history of holdings (session, ticket, term, from, to) in milliseconds.
fn history(held: &[(u128, u64, u64, u64, u64)]) -> History {
    let (start, history) = (now(), History::default());
    for &(session, ticket, term, from, to) in held {
        let at = |millis| start + Duration::from_millis(millis);
        let (session, ticket, term) = (SessionId::from_u128(session), Ticket::new(ticket), Term::new(term));
        let (granted, released) = (at(from), (to > 0).then(|| at(to)));
        history.add(&lock(), Held { session, ticket, term, granted, released });
    }
    history
}

#[test]
fn holdings_one_after_the_other_are_as_they_should_be() {
    let history = history(&[(2, 1, 20, 7, 9), (1, 1, 10, 0, 5), (1, 2, 21, 9, 12), (2, 2, 30, 12, 0)]);
    assert_eq!(history.violations(), Vec::<String>::new());
    assert_eq!((history.grants(), history.most_sessions()), (4, 2));
    assert!(history.knows(&lock(), Term::new(20)) && !history.knows(&lock(), Term::new(22)));
}

#[test]
fn impossible_histories_are_found() {
    for (held, found) in [
        (&[(1, 1, 10, 0, 5), (2, 1, 20, 4, 9)][..], "two held it at once"),
        (&[(1, 1, 10, 0, 0), (2, 1, 20, 4, 9)], "two held it at once"),
        (&[(1, 1, 10, 0, 9), (2, 1, 20, 4, 5), (1, 2, 30, 6, 7)], "two held it at once"),
        (&[(1, 1, 20, 0, 5), (2, 1, 10, 6, 9)], "the term did not rise"),
        (&[(1, 1, 10, 0, 5), (2, 1, 10, 6, 9)], "belongs to"),
        (&[(1, 1, 10, 0, 5), (1, 1, 20, 6, 9)], "granted twice"),
    ] {
        let violations = history(held).violations();
        assert!(violations.iter().any(|one| one.contains(found)), "{found}: {violations:?}");
    }
}
