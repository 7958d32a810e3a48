//! Tick as its job gets it.

use std::{fmt, time::Duration};

use crate::{
    logic::tick::Attempt,
    model::{Entry, RunId, RunRecord, ScheduleId, ScheduleName, StoreTime},
};

/// Tick of a schedule, as its job gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    schedule: ScheduleId,
    scheduled_at: StoreTime,
    entry: Entry,
    attempt: u32,
    lateness: Duration,
}

impl Tick {
    pub(super) const fn new(schedule: ScheduleId, attempt: Attempt, lateness: Duration) -> Self {
        let Attempt { entry, instant, number, .. } = attempt;
        Self { schedule, scheduled_at: instant, entry, attempt: number, lateness }
    }

    /// Restores the tick from its record.
    pub(super) fn of(run: &RunRecord) -> Self {
        let RunId { schedule, instant, entry } = run.id.clone();
        Self { schedule, scheduled_at: instant, entry, attempt: run.attempt, lateness: run.lateness() }
    }

    /// Name of the schedule.
    #[must_use]
    pub const fn schedule(&self) -> &ScheduleName {
        &self.schedule.name
    }

    /// Instant for which it is scheduled, whenever it runs: the same for every attempt. Together with the name it is a
    /// key for work that must not be done twice.
    #[must_use]
    pub const fn scheduled_at(&self) -> StoreTime {
        self.scheduled_at
    }

    /// Number of the attempt, from 1. Larger than 1 after a failure, or when the instance that ran the tick died:
    /// then some of the work may be done already.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns whether it was ordered to be [run now](super::Schedule::run_now), besides the schedule's own ticks.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.entry == Entry::Order
    }

    /// Delay from its instant to its start, as this instance estimates it.
    #[must_use]
    pub const fn lateness(&self) -> Duration {
        self.lateness
    }
}

impl fmt::Display for Tick {
    /// `cleanup at 2026-11-21T03:00:00Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.schedule.name, self.scheduled_at)
    }
}
