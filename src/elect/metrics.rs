//! Metrics of the engine, through the `metrics` facade (feature `metrics`).

use std::time::Duration;

use super::{Engine, Work, hold::LeaseCell};
use crate::{
    model::{LockId, Loss},
    words::{
        Kind, Unit,
        numbers::{add, count, describe, record, set},
    },
};

/// Descriptions of all metrics, including those of spreads and schedules; `docs/operations.md` has the same words.
const METRICS: &[(Kind, &str, Unit, &str)] = &[
    (Kind::Gauge, "tenure_leading", Unit::Count, "1 while a campaign of this instance leads, else 0"),
    (Kind::Gauge, "tenure_contending", Unit::Count, "campaigns of this instance that contend for the key"),
    (Kind::Gauge, "tenure_held", Unit::Count, "locks held by jobs, guards and campaigns"),
    (
        Kind::Gauge,
        "tenure_waiting",
        Unit::Count,
        "requests waiting for a lock, counted about once per refresh_interval",
    ),
    (
        Kind::Gauge,
        "tenure_trouble",
        Unit::Count,
        "1 while this kind of work is failing and that was logged, else 0",
    ),
    (Kind::Gauge, "tenure_spread_tasks", Unit::Count, "tasks this instance has"),
    (
        Kind::Gauge,
        "tenure_spread_waiting",
        Unit::Count,
        "tasks that wait for room, as no instance has any; every member counts the same",
    ),
    (Kind::Gauge, "tenure_spread_members", Unit::Count, "members that this instance plans with"),
    (
        Kind::Gauge,
        "tenure_spread_resting",
        Unit::Count,
        "tasks that rest because they failed too often, on any instance",
    ),
    (
        Kind::Gauge,
        "tenure_schedule_overdue_seconds",
        Unit::Seconds,
        "how long a tick has been due of a schedule that no live instance has; set by the instance that checks",
    ),
    (
        Kind::Gauge,
        "tenure_schedule_failures",
        Unit::Count,
        "ticks in a row that failed for good, on the instance that runs the schedule",
    ),
    (Kind::Counter, "tenure_acquired_total", Unit::Count, "locks acquired"),
    (
        Kind::Counter,
        "tenure_lost_total",
        Unit::Count,
        "leases lost against the program's will: expired, revoked, declared_dead, vanished, timed_out, probe",
    ),
    (
        Kind::Counter,
        "tenure_sessions_lost_total",
        Unit::Count,
        "sessions lost against the program's will: expired, revoked, declared_dead, vanished, probe",
    ),
    (Kind::Counter, "tenure_overruns_total", Unit::Count, "jobs that kept running after their lease ended"),
    (
        Kind::Counter,
        "tenure_failed_calls_total",
        Unit::Count,
        "store calls that failed, by the kind of work they were for",
    ),
    (
        Kind::Counter,
        "tenure_spread_actions_total",
        Unit::Count,
        "tasks that a new plan made this instance take, wait for or give away",
    ),
    (
        Kind::Counter,
        "tenure_schedule_runs_total",
        Unit::Count,
        "attempts that ended: succeeded, failed, cancelled, timed out, displaced, abandoned",
    ),
    (
        Kind::Counter,
        "tenure_schedule_skipped_total",
        Unit::Count,
        "ticks that were skipped: too late, previous run still active, paused, rescheduled",
    ),
    (Kind::Histogram, "tenure_beat_seconds", Unit::Seconds, "duration of a confirmed heartbeat"),
    (
        Kind::Histogram,
        "tenure_beat_budget_ratio",
        Unit::Count,
        "duration of a confirmed heartbeat as a fraction of refresh_interval",
    ),
    (
        Kind::Histogram,
        "tenure_takeover_seconds",
        Unit::Seconds,
        "how long a dead holder had been silent when its lock was taken over",
    ),
    (
        Kind::Histogram,
        "tenure_schedule_lateness_seconds",
        Unit::Seconds,
        "delay between a tick's instant and the start of its run",
    ),
    (Kind::Histogram, "tenure_schedule_run_seconds", Unit::Seconds, "duration of a run"),
];

/// Describes all metrics, and starts those at 0 whose first change would be invisible otherwise: a rate needs
/// a value before it.
pub(crate) fn begin(engine: &Engine) {
    for (kind, name, unit, says) in METRICS {
        describe(*kind, name, *unit, says);
    }
    let namespace = namespace(engine);
    count("tenure_acquired_total", [namespace], 0);
    count("tenure_overruns_total", [namespace], 0);
    set("tenure_waiting", [namespace], 0.0);
    add("tenure_held", [namespace, ("kind", "lock")], 0.0);
    for reason in Loss::UNWANTED {
        count("tenure_lost_total", [namespace, ("reason", reason)], 0);
        // It is a job that has a timeout.
        if *reason != "timed_out" {
            count("tenure_sessions_lost_total", [namespace, ("reason", reason)], 0);
        }
    }
    for work in Work::ALL {
        count("tenure_failed_calls_total", [namespace, ("work", work.name())], 0);
        set("tenure_trouble", [namespace, ("work", work.name())], 0.0);
    }
}

/// Returns the label that each of them has.
pub(crate) fn namespace(engine: &Engine) -> (&'static str, &str) {
    ("namespace", engine.config.namespace().as_str())
}

/// Counts a lock that was acquired.
pub(crate) fn acquired(engine: &Engine, lease: &LeaseCell) {
    count("tenure_acquired_total", [namespace(engine)], 1);
    add("tenure_held", [namespace(engine), ("kind", &lease.lock.kind.to_string())], 1.0);
}

/// Counts a lock that is no longer held.
pub(crate) fn returned(engine: &Engine, lease: &LeaseCell) {
    add("tenure_held", [namespace(engine), ("kind", &lease.lock.kind.to_string())], -1.0);
}

/// Counts a lost lease.
pub(crate) fn lost(engine: &Engine, loss: &Loss) {
    count("tenure_lost_total", [namespace(engine), ("reason", loss.name())], 1);
}

/// Counts a lost session.
pub(crate) fn session_lost(engine: &Engine, loss: &Loss) {
    count("tenure_sessions_lost_total", [namespace(engine), ("reason", loss.name())], 1);
}

/// Records the duration of a confirmed heartbeat, and its share of the budget.
pub(crate) fn beaten(engine: &Engine, took: Duration, budget: Duration) {
    record("tenure_beat_seconds", [namespace(engine)], took.as_secs_f64());
    record("tenure_beat_budget_ratio", [namespace(engine)], took.as_secs_f64() / budget.as_secs_f64());
}

/// Counts a job that kept running after its lease ended.
pub(crate) fn overran(engine: &Engine) {
    count("tenure_overruns_total", [namespace(engine)], 1);
}

/// Sets whether a campaign leads.
pub(crate) fn leading(engine: &Engine, lock: &LockId, leads: bool) {
    set("tenure_leading", [namespace(engine), ("key", lock.key.as_str())], f64::from(u8::from(leads)));
}

/// Counts the campaigns that contend for a key here; a sum of zero over all instances means that none does.
pub(crate) fn contending(engine: &Engine, lock: &LockId, more: bool) {
    let more = if more { 1.0 } else { -1.0 };
    add("tenure_contending", [namespace(engine), ("key", lock.key.as_str())], more);
}

/// Sets the number of requests that wait here, over all keys.
pub(crate) fn waiting(engine: &Engine, waiting: usize) {
    set("tenure_waiting", [namespace(engine)], waiting as f64);
}

/// Records a takeover, and how long the dead session had been silent.
pub(crate) fn taken_over(engine: &Engine, after: Duration) {
    record("tenure_takeover_seconds", [namespace(engine)], after.as_secs_f64());
}

/// Counts a failed call.
pub(crate) fn failed(engine: &Engine, work: Work) {
    count("tenure_failed_calls_total", [namespace(engine), ("work", work.name())], 1);
}

/// Marks a kind of work as failing, or as working again.
pub(crate) fn trouble(engine: &Engine, work: Work, is_on: bool) {
    set("tenure_trouble", [namespace(engine), ("work", work.name())], f64::from(u8::from(is_on)));
}
