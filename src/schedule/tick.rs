//! What a job is told of its tick.

use std::{fmt, time::Duration};

use crate::{
    logic::tick::Attempt,
    model::{Entry, RunId, RunRecord, ScheduleId, ScheduleName, StoreTime},
};

/// A tick, as its job gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    schedule: ScheduleId,
    instant: StoreTime,
    entry: Entry,
    attempt: u32,
    lateness: Duration,
}

impl Tick {
    pub(super) const fn new(schedule: ScheduleId, attempt: Attempt, lateness: Duration) -> Self {
        let Attempt { entry, instant, number, .. } = attempt;
        Self { schedule, instant, entry, attempt: number, lateness }
    }

    /// As its record tells of it.
    pub(super) fn of(run: &RunRecord) -> Self {
        let RunId { schedule, instant, entry } = run.id.clone();
        Self { schedule, instant, entry, attempt: run.attempt, lateness: run.lateness() }
    }

    /// The schedule's name.
    #[must_use]
    pub const fn schedule(&self) -> &ScheduleName {
        &self.schedule.name
    }

    /// The instant it is named after, whenever it runs: the same for every attempt. Together with the name a
    /// key for work that must not be done twice.
    #[must_use]
    pub const fn instant(&self) -> StoreTime {
        self.instant
    }

    /// Which attempt this is, from 1. Larger than 1 after a failure, or when the one who ran it died: then
    /// some of the work may be done already.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether somebody wanted it [run now](super::Schedule::run_now), besides the schedule's own ticks.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.entry == Entry::Order
    }

    /// How long after its instant it began, as far as this instance can tell.
    #[must_use]
    pub const fn lateness(&self) -> Duration {
        self.lateness
    }
}

impl fmt::Display for Tick {
    /// `cleanup at 2026-11-21T03:00:00Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.schedule.name, self.instant)
    }
}
