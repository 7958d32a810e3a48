//! The ledger of a schedule: which ticks were claimed, and what came of them.

use std::{fmt, time::Duration};

use super::{Holder, Namespace, ScheduleName, SessionId, StoreTime, Term, Why};

/// Names one schedule in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId {
    /// Who shares schedules.
    pub namespace: Namespace,
    /// Its name.
    pub name: ScheduleName,
}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "schedule {:?} of {}", self.name, self.namespace)
    }
}

/// Names one tick: a schedule and a nominal instant of it. The unit of exclusion.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    /// Which schedule.
    pub schedule: ScheduleId,
    /// The instant the tick is named after, whenever it runs.
    pub instant: StoreTime,
}

/// A claimed tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// Which tick.
    pub id: RunId,
    /// Who claimed it.
    pub session: SessionId,
    /// The claimer's name.
    pub holder: Holder,
    /// Under which term of the schedule.
    pub term: Term,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// When it was claimed.
    pub started: StoreTime,
    /// What came of it; nothing while it runs, or if its runner died.
    pub finish: Option<Finish>,
}

impl RunRecord {
    /// How long after its instant it started.
    #[must_use]
    pub fn lateness(&self) -> Duration {
        self.started.since(self.id.instant)
    }

    /// Whether the job did its work.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.finish.as_ref().is_some_and(|finish| finish.outcome == Outcome::Succeeded)
    }

    /// Whether this attempt, under this session and term, is the one on record.
    #[must_use]
    pub fn is_claimed_by(&self, session: SessionId, term: Term, attempt: u32) -> bool {
        self.session == session && self.term == term && self.attempt == attempt
    }
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// When.
    pub at: StoreTime,
    /// How.
    pub outcome: Outcome,
    /// What the job said went wrong.
    pub error: Option<Why>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The job did its work.
    Succeeded,
    /// The job returned an error, or panicked.
    Failed,
    /// The job was told to stop.
    Cancelled,
    /// Its runner died, and nobody runs it again.
    Abandoned,
}

impl Outcome {
    /// The word in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
        }
    }
}
