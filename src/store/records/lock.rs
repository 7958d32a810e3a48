//! The lock: its holder, its term, and its waiters.

use std::time::Duration;

use serde::Serialize;

use super::{Note, Ticket};
use crate::model::{Holder, LockId, SessionId, StoreTime, Term, Value, Who, Why};

/// Candidate for a lock, with everything the record says if it is granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Candidate {
    /// The session that is to hold it.
    pub session: SessionId,
    /// The ticket it is granted to. Goes unchanged with every repeat ([R7](crate::store#rules-of-safety)).
    pub ticket: Ticket,
    /// The session's ttl, for an instance that finds the lock held by a session that is missing.
    #[serde(rename = "ttl_ms", serialize_with = "crate::model::serial::ms")]
    pub ttl: Duration,
    /// The instance's name.
    pub holder: Holder,
    /// The part of the program.
    pub who: Option<Who>,
    /// Purpose of the lock.
    pub why: Option<Why>,
    /// Value for others to read.
    pub value: Option<Value>,
    /// If the session dies with the lock in hand, keep the key closed for so long (lock-delay):
    /// time for work already sent to arrive. Zero for none.
    #[serde(rename = "lock_delay_ms", serialize_with = "crate::model::serial::ms")]
    pub lock_delay: Duration,
}

impl Candidate {
    /// A candidate that says nothing of itself, and asks for no [`lock_delay`](Self::lock_delay).
    #[must_use]
    pub const fn new(session: SessionId, ticket: Ticket, ttl: Duration, holder: Holder) -> Self {
        let lock_delay = Duration::ZERO;
        Self { session, ticket, ttl, holder, who: None, why: None, value: None, lock_delay }
    }
}

/// The present holding of a lock: holder, ticket, time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holding {
    /// Holder, as granted; the value as it was last set.
    pub by: Candidate,
    /// The number of the last change of the value, 0 if it is as granted: a late one changes nothing.
    pub value_set: u64,
    /// Since when.
    pub acquired_at: StoreTime,
}

impl Holding {
    /// A lock as it was granted.
    #[must_use]
    pub const fn new(by: Candidate, acquired_at: StoreTime) -> Self {
        Self { by, value_set: 0, acquired_at }
    }
}

/// A key that is kept closed although it has no holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Closed {
    /// End of the wait, by the store's clock.
    pub until: StoreTime,
    /// Length of the wait when it was written. A clock that stands further back than that is
    /// another clock: the wait is not believed ([R1](crate::store#rules-of-safety)). [`FOR_GOOD`] and more is no
    /// time: the key stays closed until it is opened.
    #[serde(rename = "length_ms", serialize_with = "crate::model::serial::ms")]
    pub length: Duration,
}

/// Length that is no time: a key closed for so long stays closed until it is opened, whatever the store's clock
/// says.
pub const FOR_GOOD: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// The most by which an estimate of the store's time is believed to be behind.
const UNSURE: Duration = Duration::from_secs(5);

impl Closed {
    /// Closed from `now` on, for so long.
    #[must_use]
    pub fn for_length(now: StoreTime, length: Duration) -> Self {
        Self { until: now.plus(length), length }
    }

    /// Returns how much of the wait is left, and never more than its whole length. Of one for good that is all of it,
    /// whatever the time.
    #[must_use]
    pub fn left(&self, now: StoreTime) -> Duration {
        self.left_within(now, Duration::ZERO)
    }

    /// Returns the same by an estimate of the store's time, which may be a little behind.
    pub(crate) fn left_about(&self, now: StoreTime) -> Duration {
        self.left_within(now, UNSURE)
    }

    fn left_within(&self, now: StoreTime, unsure: Duration) -> Duration {
        if self.length >= FOR_GOOD {
            return self.length;
        }
        let left = self.until.since(now);
        if left > self.length + unsure { Duration::ZERO } else { left.min(self.length) }
    }
}

/// End of a holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Gave it back.
    Released,
    /// Gave it to a waiter.
    HandedOver,
    /// Ended by the death of its session.
    Died,
    /// A later ticket of its own session took over, after an earlier one was given up unheard.
    Superseded,
    /// An operator took it away.
    Forced,
}

impl Ended {
    /// The word in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::HandedOver => "handed over",
            Self::Died => "died",
            Self::Superseded => "superseded",
            Self::Forced => "forced",
        }
    }

    /// Returns what the record has that word for.
    #[cfg(any(feature = "mongodb", feature = "sqlite"))]
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        [Self::Released, Self::HandedOver, Self::Died, Self::Superseded, Self::Forced]
            .into_iter()
            .find(|how| how.as_str() == word)
    }
}

/// Most past holders a record remembers.
pub const PAST_HOLDERS: usize = 5;

/// A past holding of a lock, for the question which instance had it at 03:12.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Past {
    /// The instance's name.
    pub holder: Holder,
    /// The session that held it. Unknown of a holding that an earlier version remembered.
    pub session: Option<SessionId>,
    /// The part of the program.
    pub who: Option<Who>,
    /// Under which term.
    pub term: Term,
    /// Time of its start.
    pub from: StoreTime,
    /// Time of its end.
    pub to: StoreTime,
    /// End of the holding.
    pub how: Ended,
    /// Note on the end.
    pub note: Option<Note>,
}

impl Past {
    /// A holding between these times, with no other details.
    #[must_use]
    pub const fn new(holder: Holder, term: Term, from: StoreTime, to: StoreTime, how: Ended) -> Self {
        Self { holder, session: None, who: None, term, from, to, how, note: None }
    }
}

/// Lock as the store has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockRecord {
    /// Name of the lock.
    pub id: LockId,
    /// The term of its holder, or of the last one.
    pub term: Term,
    /// Present holder. Its session may be dead; the record alone does not tell.
    pub holding: Option<Holding>,
    /// Closing of the key: without a holder, and not to be taken yet.
    pub closed: Option<Closed>,
    /// True if it has or had waiters: a release reads the queue first. It decides nothing.
    pub wanted: bool,
    /// The last holders, latest first, at most [`PAST_HOLDERS`].
    pub past: Vec<Past>,
}

impl LockRecord {
    /// A lock that has no holder, with no memory of past holders.
    #[must_use]
    pub const fn new(id: LockId, term: Term) -> Self {
        Self { id, term, holding: None, closed: None, wanted: false, past: Vec::new() }
    }

    /// Ends the holding, if there is one, and remembers it.
    pub(crate) fn end(&mut self, now: StoreTime, how: Ended, note: Option<Note>) {
        let Some(Holding { by, acquired_at, .. }) = self.holding.take() else { return };
        let ended = Past::new(by.holder, self.term, acquired_at, now, how);
        let past = Past { session: Some(by.session), who: by.who, note, ..ended };
        self.past.insert(0, past);
        self.past.truncate(PAST_HOLDERS);
    }

    /// Returns whether this session holds it.
    #[must_use]
    pub fn is_held_by(&self, session: SessionId) -> bool {
        self.holding.as_ref().is_some_and(|held| held.by.session == session)
    }

    /// Returns whether it has had no holder since it was taken away from the holder of that term.
    #[must_use]
    pub fn was_forced_from(&self, term: Term) -> bool {
        let last = self.past.first();
        self.holding.is_none() && last.is_some_and(|last| last.term == term && last.how == Ended::Forced)
    }

    /// Returns whether no session has held it since the holder of that term.
    #[must_use]
    pub fn was_left_by(&self, term: Term) -> bool {
        self.holding.is_none() && self.term == term
    }

    /// Returns whether this ticket of this session holds it.
    #[must_use]
    pub fn is_granted_to(&self, session: SessionId, ticket: Ticket) -> bool {
        self.holding.as_ref().is_some_and(|held| held.by.session == session && held.by.ticket == ticket)
    }
}

/// Waiter for a lock. An entry a ticket: one session may wait twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiter {
    /// For which lock.
    pub lock: LockId,
    /// New holder, and what the record is to say when it is granted.
    pub by: Candidate,
    /// Since when: the queue's order.
    pub since: StoreTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_never_believed_beyond_its_length() {
        let minute = Duration::from_secs(60);
        let written = StoreTime::from_millis(1_000_000);
        let closed = Closed::for_length(written, minute);
        let hour = Duration::from_secs(3600);
        let good = Closed::for_length(written, FOR_GOOD);
        for now in [written, written.minus(FOR_GOOD), written.plus(FOR_GOOD * 2)] {
            assert_eq!((good.left(now), good.left_about(now)), (FOR_GOOD, FOR_GOOD), "{now:?}");
        }
        for (now, left) in [
            (written, minute),
            (written.plus(minute / 2), minute / 2),
            (written.plus(minute), Duration::ZERO),
            (written.plus(hour), Duration::ZERO),
            (written.minus(hour), Duration::ZERO),
        ] {
            assert_eq!(closed.left(now), left, "{now:?}");
        }
    }
}
