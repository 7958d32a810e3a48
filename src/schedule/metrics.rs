//! Metrics of schedules (feature `metrics`).

use std::time::Duration;

use crate::{
    elect::{Engine, metrics::namespace},
    logic::tick::NotRun,
    model::{Outcome, ScheduleId, ScheduleName},
    words::numbers::{count, record, set},
};

fn schedule(name: &ScheduleName) -> (&'static str, &str) {
    ("schedule", name.as_str())
}

/// Sets the metrics of a schedule to 0, as this instance adds it.
pub(super) fn added(engine: &Engine, id: &ScheduleId) {
    let [namespace, schedule] = [namespace(engine), schedule(&id.name)];
    let ends = |outcome: &Outcome| !matches!(outcome, Outcome::NotBegun | Outcome::Skipped);
    for outcome in Outcome::ALL.into_iter().filter(ends) {
        count("tenure_schedule_runs_total", [namespace, schedule, ("outcome", outcome.as_str())], 0);
    }
    for why in NotRun::ALL {
        count("tenure_schedule_skipped_total", [namespace, schedule, ("why", why.as_str())], 0);
    }
    set("tenure_schedule_failures", [namespace, schedule], 0.0);
}

/// A run begins, so long after its instant.
pub(super) fn begun(engine: &Engine, id: &ScheduleId, lateness: Duration) {
    let [namespace, schedule] = [namespace(engine), schedule(&id.name)];
    record("tenure_schedule_lateness_seconds", [namespace, schedule], lateness.as_secs_f64());
}

/// Counts a run that has ended.
pub(super) fn ended(engine: &Engine, id: &ScheduleId, outcome: Outcome, took: Duration) {
    let [namespace, schedule] = [namespace(engine), schedule(&id.name)];
    count("tenure_schedule_runs_total", [namespace, schedule, ("outcome", outcome.as_str())], 1);
    record("tenure_schedule_run_seconds", [namespace, schedule], took.as_secs_f64());
}

/// Counts ticks that were not run.
pub(super) fn skipped(engine: &Engine, id: &ScheduleId, ticks: u64, why: NotRun) {
    let [namespace, schedule] = [namespace(engine), schedule(&id.name)];
    count("tenure_schedule_skipped_total", [namespace, schedule, ("why", why.as_str())], ticks);
}

/// Sets the time for which a tick of a schedule that no instance runs is due.
pub(super) fn overdue(engine: &Engine, name: &ScheduleName, by: Duration) {
    set("tenure_schedule_overdue_seconds", [namespace(engine), schedule(name)], by.as_secs_f64());
}

/// Sets the number of ticks in a row that failed.
pub(super) fn failures(engine: &Engine, id: &ScheduleId, failures: u32) {
    set("tenure_schedule_failures", [namespace(engine), schedule(&id.name)], f64::from(failures));
}
