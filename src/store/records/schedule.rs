//! The schedule: its definition, its pauses and its orders.

use serde::Serialize;

use crate::model::{Holder, Rules, ScheduleId, StoreTime, Term, Why};

/// Schedule as the store has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ScheduleRecord {
    /// Name of the schedule.
    pub id: ScheduleId,
    /// Definition; nothing until an owner has written it.
    pub definition: Option<Definition>,
    /// The last time it was held back.
    pub pause: Option<Pause>,
    /// The times before that, earliest first: the last twenty. The instance that has the schedule next reports the
    /// ticks that fell into them.
    pub pauses_before: Vec<PauseBefore>,
    /// Runs that are wanted now, earliest first.
    pub orders: Vec<RunNow>,
    /// Runs up to this instant may have been purged.
    pub mark: Option<StoreTime>,
}

impl ScheduleRecord {
    /// A schedule of which nothing is recorded yet.
    #[must_use]
    pub const fn new(id: ScheduleId) -> Self {
        Self { id, definition: None, pause: None, pauses_before: Vec::new(), orders: Vec::new(), mark: None }
    }
}

/// Definition of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Definition {
    /// Rules for its instants: expression, zone, and whatever else they depend on.
    pub timing: Rules,
    /// Policies for ticks that are late, overlap, or fail.
    pub policies: Rules,
    /// Since when it has this timing. It has no tick before.
    pub since: StoreTime,
    /// The term of the owner that wrote it.
    pub term: Term,
}

impl Definition {
    /// A definition, as an owner of that term wrote it.
    #[must_use]
    pub const fn new(timing: Rules, policies: Rules, since: StoreTime, term: Term) -> Self {
        Self { timing, policies, since, term }
    }
}

/// A time in which a schedule's ticks are not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pause {
    /// Time of its start.
    pub since: StoreTime,
    /// Time of its end, once it is over.
    pub until: Option<StoreTime>,
    /// Operator or instance that wanted it.
    pub by: Holder,
    /// Why.
    pub why: Why,
}

impl Pause {
    /// A pause that goes on.
    #[must_use]
    pub const fn new(since: StoreTime, by: Holder, why: Why) -> Self {
        Self { since, until: None, by, why }
    }

    /// Returns whether it goes on.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.until.is_none()
    }

    /// Returns whether a tick of that instant falls into it.
    #[must_use]
    pub fn covers(&self, instant: StoreTime) -> bool {
        self.since <= instant && self.until.is_none_or(|until| instant < until)
    }
}

/// A time in which a schedule's ticks were not run, before the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PauseBefore {
    /// Time of its start.
    pub since: StoreTime,
    /// Time of its end.
    pub until: StoreTime,
}

impl PauseBefore {
    /// Returns whether a tick of that instant falls into it.
    #[must_use]
    pub fn covers(&self, instant: StoreTime) -> bool {
        self.since <= instant && instant < self.until
    }
}

/// A request to run a schedule now, besides its ticks. Known by its instant: two of the same one are one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunNow {
    /// Time of the request, by the store's clock as the instance that wrote it knew it.
    pub at: StoreTime,
    /// Operator or instance that wants it.
    pub by: Holder,
    /// Why.
    pub why: Why,
}
