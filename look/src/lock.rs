//! A lock, as its record and its holder's session tell.

use std::time::Duration;

use serde::Serialize;

use crate::{Liveness, SessionStates, reader::holder};
use tenure::{
    model::{LockId, StoreTime},
    store::{LockRecord, LockSeen, Queue, Refusal, SessionRecord, Waiter},
};

/// A lock, and the liveness of its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Lock {
    /// Record of the lock.
    #[serde(flatten)]
    pub record: LockRecord,
    /// Liveness of its holder; none if it has no holder.
    pub life: Option<Liveness>,
    /// True if nothing is to be expected of its holder any more.
    pub looks_dead: bool,
}

impl Lock {
    /// A lock as its record tells, beside these sessions.
    #[must_use]
    pub fn of(record: LockRecord, lives: &SessionStates, now: StoreTime) -> Self {
        let life = holder(&record).map(|session| lives.life(session, now));
        Self { looks_dead: life.is_some_and(Liveness::looks_dead), life, record }
    }
}

/// All that is known of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyDetails {
    /// Name of the key.
    pub id: LockId,
    /// None if it was never held, or cannot be used.
    pub record: Option<LockRecord>,
    /// Why its record cannot be used.
    pub refusal: Option<Refusal>,
    /// The session of its holder.
    pub session: Option<SessionRecord>,
    /// Liveness of its holder.
    pub life: Option<Liveness>,
    /// True if nothing is to be expected of its holder any more.
    pub looks_dead: bool,
    /// Time for which it cannot be taken yet.
    #[serde(rename = "closed_left_ms", serialize_with = "crate::serial::ms_if_any")]
    pub closed_left: Option<Duration>,
    /// Waiters in its queue.
    pub waiters: Vec<Waiter>,
    /// Liveness of each of them.
    pub waiter_lives: Vec<Liveness>,
    /// Why its queue cannot be read, if it cannot.
    pub waiters_unreadable: Option<String>,
    /// True if no waiter is behind these.
    pub whole: bool,
    /// Time of the look.
    pub now: StoreTime,
}

impl KeyDetails {
    /// A key as it was found.
    #[must_use]
    pub fn of(id: LockId, seen: LockSeen, queue: Queue, lives: &SessionStates, now: StoreTime) -> Self {
        let (record, refusal) = match seen {
            LockSeen::Found(record) => (Some(record), None),
            LockSeen::Refused(refusal) => (None, Some(refusal)),
            LockSeen::Absent => (None, None),
        };
        let session = record.as_ref().and_then(holder);
        let life = session.map(|session| lives.life(session, now));
        let left = record.as_ref().and_then(|record| record.closed).map(|closed| closed.left(now));
        Self {
            session: session.and_then(|session| lives.record(session)).cloned(),
            life,
            looks_dead: life.is_some_and(Liveness::looks_dead),
            closed_left: left.filter(|left| !left.is_zero()),
            waiter_lives: lives_of(&queue, lives, now),
            waiters: queue.waiters,
            waiters_unreadable: None,
            whole: queue.whole,
            id,
            record,
            refusal,
            now,
        }
    }
}

/// Returns the liveness of each waiter of a queue.
pub(crate) fn lives_of(queue: &Queue, lives: &SessionStates, now: StoreTime) -> Vec<Liveness> {
    queue.waiters.iter().map(|waiter| lives.life(waiter.by.session, now)).collect()
}
