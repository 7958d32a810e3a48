//! Metrics of schedules (feature `metrics`). Without the feature, nothing is counted.

use std::time::Duration;

use crate::{
    elect::Engine,
    logic::tick::NotRun,
    model::{Outcome, ScheduleId, ScheduleName},
};

#[cfg(feature = "metrics")]
use metrics::{counter, gauge, histogram};

/// Sets the metrics of a schedule to 0, as this instance adds it.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(super) fn added(engine: &Engine, id: &ScheduleId) {
    #[cfg(feature = "metrics")]
    {
        let (namespace, schedule) = (engine.config.namespace().to_string(), id.name.to_string());
        for outcome in Outcome::ALL
            .into_iter()
            .filter(|outcome| !matches!(outcome, Outcome::NotBegun | Outcome::Skipped))
        {
            counter!(
                "tenure_schedule_runs_total",
                "namespace" => namespace.clone(), "schedule" => schedule.clone(), "outcome" => outcome.as_str()
            )
            .increment(0);
        }
        for why in NotRun::ALL {
            counter!(
                "tenure_schedule_skipped_total",
                "namespace" => namespace.clone(), "schedule" => schedule.clone(), "why" => why.as_str()
            )
            .increment(0);
        }
        gauge!("tenure_schedule_failures", "namespace" => namespace, "schedule" => schedule).set(0.0);
    }
}

/// A run begins, so long after its instant.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(super) fn begun(engine: &Engine, id: &ScheduleId, lateness: Duration) {
    #[cfg(feature = "metrics")]
    {
        let (namespace, schedule) = (engine.config.namespace().to_string(), id.name.to_string());
        histogram!("tenure_schedule_lateness_seconds", "namespace" => namespace, "schedule" => schedule)
            .record(lateness.as_secs_f64());
    }
}

/// Counts a run that has ended.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(super) fn ended(engine: &Engine, id: &ScheduleId, outcome: Outcome, took: Duration) {
    #[cfg(feature = "metrics")]
    {
        let (namespace, schedule) = (engine.config.namespace().to_string(), id.name.to_string());
        counter!(
            "tenure_schedule_runs_total",
            "namespace" => namespace.clone(), "schedule" => schedule.clone(), "outcome" => outcome.as_str()
        )
        .increment(1);
        histogram!("tenure_schedule_run_seconds", "namespace" => namespace, "schedule" => schedule)
            .record(took.as_secs_f64());
    }
}

/// Counts ticks that were not run.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(super) fn skipped(engine: &Engine, id: &ScheduleId, count: u64, why: NotRun) {
    #[cfg(feature = "metrics")]
    {
        let (namespace, schedule) = (engine.config.namespace().to_string(), id.name.to_string());
        counter!(
            "tenure_schedule_skipped_total",
            "namespace" => namespace, "schedule" => schedule, "why" => why.as_str()
        )
        .increment(count);
    }
}

/// Sets the time for which a tick of a schedule that nobody runs is due.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(super) fn overdue(engine: &Engine, schedule: &ScheduleName, by: Duration) {
    #[cfg(feature = "metrics")]
    {
        let (namespace, schedule) = (engine.config.namespace().to_string(), schedule.to_string());
        gauge!("tenure_schedule_overdue_seconds", "namespace" => namespace, "schedule" => schedule)
            .set(by.as_secs_f64());
    }
}

/// Sets the number of ticks in a row that failed.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(super) fn failures(engine: &Engine, id: &ScheduleId, failures: u32) {
    #[cfg(feature = "metrics")]
    {
        let (namespace, schedule) = (engine.config.namespace().to_string(), id.name.to_string());
        gauge!("tenure_schedule_failures", "namespace" => namespace, "schedule" => schedule)
            .set(f64::from(failures));
    }
}
