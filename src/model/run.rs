//! The ledger of a schedule: what it goes by, which ticks were claimed, and what came of them.

use std::{fmt, time::Duration};

use serde::Serialize;

use super::{Holder, Namespace, ScheduleName, SessionId, StoreTime, Term, Why};

/// Names one schedule in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ScheduleId {
    /// Namespace of the schedule.
    pub namespace: Namespace,
    /// Name of the schedule.
    pub name: ScheduleName,
}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "schedule {:?} of {}", self.name, self.namespace)
    }
}

/// Subject of a ledger entry. Entries of different sorts never meet, also at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A tick: an instant of the schedule.
    Tick,
    /// A [`RunNow`](crate::store::RunNow): a run that was wanted at once.
    Order,
    /// Ticks that were not run, recorded in one entry. It excludes nothing.
    Skipped,
}

impl Entry {
    /// The word in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tick => "tick",
            Self::Order => "order",
            Self::Skipped => "skipped",
        }
    }
}

/// Names one entry of the ledger, such as a tick: a schedule and a nominal instant of it. The unit of
/// exclusion. In the order of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RunId {
    /// Name of the schedule.
    pub schedule: ScheduleId,
    /// The instant the tick is named after, whenever it runs; of skipped ticks that of the last one.
    pub instant: StoreTime,
    /// Subject of the entry.
    pub entry: Entry,
}

impl RunId {
    /// A tick.
    #[must_use]
    pub const fn tick(schedule: ScheduleId, instant: StoreTime) -> Self {
        Self { schedule, instant, entry: Entry::Tick }
    }
}

/// Ticks that were not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The first of them; the last one is the entry's instant.
    pub from: StoreTime,
    /// Number of them; [`MOST`](Self::MOST) stands for that many or more.
    pub count: u64,
    /// Why they were not run.
    pub why: Why,
}

impl Skipped {
    /// Ticks are counted no further.
    pub const MOST: usize = 10_000;

    /// Returns how many ticks it were, in words.
    #[must_use]
    pub fn ticks(&self) -> String {
        match self.count {
            1 => "1 tick".to_owned(),
            count if count >= Self::MOST as u64 => format!("{count} or more ticks"),
            count => format!("{count} ticks"),
        }
    }
}

/// A claimed tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunRecord {
    /// Tick of the run.
    pub id: RunId,
    /// Session that claimed it.
    pub session: SessionId,
    /// The claimer's name.
    pub holder: Holder,
    /// Under which term of the schedule.
    pub term: Term,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Time of the claim.
    pub started: StoreTime,
    /// Outcome; nothing while it runs, or if its runner died.
    pub finish: Option<Finish>,
    /// Set in an entry of ticks that were not run.
    pub skipped: Option<Skipped>,
}

impl RunRecord {
    /// The first attempt at a tick, which runs.
    #[must_use]
    pub const fn new(id: RunId, session: SessionId, holder: Holder, term: Term, started: StoreTime) -> Self {
        Self { id, session, holder, term, attempt: 1, started, finish: None, skipped: None }
    }

    /// Returns how long after its instant it started.
    #[must_use]
    pub fn lateness(&self) -> Duration {
        self.started.since(self.id.instant)
    }

    /// Returns whether the job did its work.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.finish.as_ref().is_some_and(|finish| finish.outcome == Outcome::Succeeded)
    }

    /// Returns whether no attempt follows: the job did its work, or the policies of its time allow no other.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.has_succeeded() || self.finish.as_ref().is_some_and(|finish| finish.last)
    }

    /// Returns whether it was returned before its job started.
    #[must_use]
    pub fn was_not_begun(&self) -> bool {
        self.finish.as_ref().is_some_and(|finish| finish.outcome == Outcome::NotBegun)
    }

    /// Returns whether this attempt, under this session and term, is the one on record.
    #[must_use]
    pub fn is_claimed_by(&self, session: SessionId, term: Term, attempt: u32) -> bool {
        self.session == session && self.term == term && self.attempt == attempt
    }
}

impl fmt::Display for RunRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.id.instant)?;
        if let Some(skipped) = &self.skipped {
            return write!(f, "{} not run: {}", skipped.ticks(), skipped.why);
        }
        write!(f, "by {}, ", self.holder)?;
        let Some(finish) = &self.finish else {
            return f.write_str("which is still running, or recorded no outcome");
        };
        f.write_str(finish.outcome.as_str())?;
        finish.error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finish {
    /// Time of the end.
    pub at: StoreTime,
    /// Outcome of the run.
    pub outcome: Outcome,
    /// Error that the job reported.
    pub error: Option<Why>,
    /// No attempt follows, by the policies of that time, or as the one that was to follow made way for another tick.
    /// Later policies change nothing of that. Records of earlier versions do not say it, which is read as no.
    pub last: bool,
}

impl Finish {
    /// An end that another attempt may follow.
    #[must_use]
    pub const fn new(at: StoreTime, outcome: Outcome) -> Self {
        Self { at, outcome, error: None, last: false }
    }
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The job did its work.
    Succeeded,
    /// The job returned an error, or panicked.
    Failed,
    /// The job was asked to stop: its schedule moved, or the program ended.
    Cancelled,
    /// The job was asked to stop, for it took too long.
    TimedOut,
    /// The job was asked to stop, for the next tick was due.
    Displaced,
    /// The runner died, or was asked to stop too often, and the run is not repeated.
    Abandoned,
    /// Was claimed, and returned before its job started: the instance that has the schedule next may claim the
    /// same attempt.
    NotBegun,
    /// Not run.
    Skipped,
}

impl Outcome {
    /// All there are.
    pub const ALL: [Self; 8] = [
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
        Self::Displaced,
        Self::Abandoned,
        Self::NotBegun,
        Self::Skipped,
    ];

    /// The word in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed out",
            Self::Displaced => "displaced",
            Self::Abandoned => "abandoned",
            Self::NotBegun => "not begun",
            Self::Skipped => "skipped",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_printed_with_its_instant_its_runner_and_its_end() {
        let at = StoreTime::from_millis(1_795_230_000_000);
        let schedule = ScheduleId { namespace: "shop".parse().unwrap(), name: "cleanup".parse().unwrap() };
        let (session, holder) = (SessionId::from_u128(1), "pod-1".parse().unwrap());
        let begun = RunRecord::new(RunId::tick(schedule, at), session, holder, Term::new(1), at);
        assert_eq!(
            begun.to_string(),
            "2026-11-21T03:00:00Z by pod-1, which is still running, or recorded no outcome"
        );
        let failed = Finish { error: Some(Why::shortened("no disk")), ..Finish::new(at, Outcome::Failed) };
        let failed = RunRecord { finish: Some(failed), ..begun.clone() };
        assert_eq!(failed.to_string(), "2026-11-21T03:00:00Z by pod-1, failed: no disk");
        let skipped = Skipped { from: at, count: 3, why: Why::shortened("paused") };
        let skipped = RunRecord { skipped: Some(skipped), ..begun };
        assert_eq!(skipped.to_string(), "2026-11-21T03:00:00Z 3 ticks not run: paused");
    }
}
