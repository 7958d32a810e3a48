//! Metrics of the engine, through the `metrics` facade (feature `metrics`). Without the feature, nothing is
//! counted.

use std::time::Duration;

use super::{Engine, hold::LeaseCell, troubles::Work};

use crate::model::Loss;
#[cfg(feature = "metrics")]
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

macro_rules! when_on {
    ($($body:tt)*) => {
        #[cfg(feature = "metrics")]
        { $($body)* }
    };
}

/// Descriptions of the gauges, including those of spreads and schedules; `docs/operations.md` has the same
/// words.
#[cfg(feature = "metrics")]
const GAUGES: &[(&str, Unit, &str)] = &[
    ("tenure_leading", Unit::Count, "1 while a campaign of this instance leads, else 0"),
    ("tenure_contending", Unit::Count, "campaigns of this instance that contend for the key"),
    ("tenure_held", Unit::Count, "locks held by jobs, guards and campaigns"),
    ("tenure_waiting", Unit::Count, "requests waiting for a lock, counted about once per refresh_interval"),
    ("tenure_trouble", Unit::Count, "1 while this kind of work is failing and that was logged, else 0"),
    ("tenure_spread_tasks", Unit::Count, "tasks this instance has"),
    (
        "tenure_spread_waiting",
        Unit::Count,
        "tasks that no instance has capacity for; every member counts the same",
    ),
    ("tenure_spread_members", Unit::Count, "members that this instance plans with"),
    (
        "tenure_spread_quarantined",
        Unit::Count,
        "tasks in quarantine because they failed too often, on any instance",
    ),
    (
        "tenure_schedule_overdue_seconds",
        Unit::Seconds,
        "how long a tick has been due of a schedule that no live instance has; set by the instance that checks",
    ),
    (
        "tenure_schedule_failures",
        Unit::Count,
        "ticks in a row that failed for good, on the instance that runs the schedule",
    ),
];

#[cfg(feature = "metrics")]
const COUNTERS: &[(&str, &str)] = &[
    ("tenure_acquired_total", "locks acquired"),
    (
        "tenure_lost_total",
        "leases lost against the program's will: expired, revoked, declared_dead, vanished, probe",
    ),
    (
        "tenure_sessions_lost_total",
        "sessions lost against the program's will: expired, revoked, declared_dead, vanished, probe",
    ),
    ("tenure_overruns_total", "jobs that kept running after their lease ended"),
    ("tenure_failed_calls_total", "store calls that failed, by the kind of work they were for"),
    ("tenure_spread_actions_total", "tasks that a new plan made this instance take, wait for or give away"),
    (
        "tenure_schedule_runs_total",
        "attempts that ended: succeeded, failed, cancelled, timed out, displaced, abandoned",
    ),
    (
        "tenure_schedule_skipped_total",
        "ticks that were skipped: too late, previous run still active, paused, rescheduled",
    ),
];

#[cfg(feature = "metrics")]
const HISTOGRAMS: &[(&str, Unit, &str)] = &[
    ("tenure_beat_seconds", Unit::Seconds, "duration of a confirmed heartbeat"),
    (
        "tenure_beat_budget_ratio",
        Unit::Count,
        "duration of a confirmed heartbeat as a fraction of refresh_interval",
    ),
    (
        "tenure_takeover_seconds",
        Unit::Seconds,
        "how long a dead holder had been silent when its lock was taken over",
    ),
    (
        "tenure_schedule_lateness_seconds",
        Unit::Seconds,
        "delay between a tick's instant and the start of its run",
    ),
    ("tenure_schedule_run_seconds", Unit::Seconds, "duration of a run"),
];

/// Describes all metrics, and starts those at 0 whose first change would be invisible otherwise: a rate needs
/// a value before it.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn begin(engine: &Engine) {
    when_on! {
        for (name, unit, says) in GAUGES {
            describe_gauge!(*name, *unit, *says);
        }
        for (name, says) in COUNTERS {
            describe_counter!(*name, Unit::Count, *says);
        }
        for (name, unit, says) in HISTOGRAMS {
            describe_histogram!(*name, *unit, *says);
        }
        let namespace = engine.config.namespace().to_string();
        counter!("tenure_acquired_total", "namespace" => namespace.clone()).increment(0);
        counter!("tenure_overruns_total", "namespace" => namespace.clone()).increment(0);
        gauge!("tenure_waiting", "namespace" => namespace.clone()).set(0.0);
        gauge!("tenure_held", "namespace" => namespace.clone(), "kind" => "lock").increment(0.0);
        for reason in Loss::UNWANTED {
            counter!("tenure_lost_total", "namespace" => namespace.clone(), "reason" => *reason).increment(0);
            counter!("tenure_sessions_lost_total", "namespace" => namespace.clone(), "reason" => *reason)
                .increment(0);
        }
        for work in Work::ALL {
            counter!("tenure_failed_calls_total", "namespace" => namespace.clone(), "work" => work.name())
                .increment(0);
            gauge!("tenure_trouble", "namespace" => namespace.clone(), "work" => work.name()).set(0.0);
        }
    }
}

/// Counts a lock that was acquired.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn acquired(engine: &Engine, lease: &LeaseCell) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        counter!("tenure_acquired_total", "namespace" => namespace.clone()).increment(1);
        gauge!("tenure_held", "namespace" => namespace, "kind" => lease.lock.kind.to_string()).increment(1);
    }
}

/// Counts a lock that is no longer held.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn returned(engine: &Engine, lease: &LeaseCell) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        gauge!("tenure_held", "namespace" => namespace, "kind" => lease.lock.kind.to_string()).decrement(1);
    }
}

/// Counts a lost lease.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn lost(engine: &Engine, loss: &Loss) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        counter!("tenure_lost_total", "namespace" => namespace, "reason" => loss.name()).increment(1);
    }
}

/// Counts a lost session.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn session_lost(engine: &Engine, loss: &Loss) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        counter!("tenure_sessions_lost_total", "namespace" => namespace, "reason" => loss.name()).increment(1);
    }
}

/// Records the duration of a confirmed heartbeat, and its share of the budget.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn beaten(engine: &Engine, took: Duration, budget: Duration) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        histogram!("tenure_beat_seconds", "namespace" => namespace.clone()).record(took.as_secs_f64());
        let part = took.as_secs_f64() / budget.as_secs_f64();
        histogram!("tenure_beat_budget_ratio", "namespace" => namespace).record(part);
    }
}

/// Counts a job that kept running after its lease ended.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn overran(engine: &Engine) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        counter!("tenure_overruns_total", "namespace" => namespace).increment(1);
    }
}

/// Sets whether a campaign leads.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn leading(engine: &Engine, lock: &crate::model::LockId, leads: bool) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        gauge!("tenure_leading", "namespace" => namespace, "key" => lock.key.to_string())
            .set(if leads { 1.0 } else { 0.0 });
    }
}

/// Counts the campaigns that contend for a key here; a sum of zero over all instances means that none does.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn contending(engine: &Engine, lock: &crate::model::LockId, more: bool) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        let contending = gauge!("tenure_contending", "namespace" => namespace, "key" => lock.key.to_string());
        if more { contending.increment(1) } else { contending.decrement(1) }
    }
}

/// Sets the number of requests that wait here, over all keys.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn waiting(engine: &Engine, waiting: usize) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        gauge!("tenure_waiting", "namespace" => namespace).set(waiting as f64);
    }
}

/// Records a takeover, and how long the dead session had been silent.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn taken_over(engine: &Engine, after: Duration) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        histogram!("tenure_takeover_seconds", "namespace" => namespace).record(after.as_secs_f64());
    }
}

/// Counts a failed call.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn failed(engine: &Engine, work: Work) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        counter!("tenure_failed_calls_total", "namespace" => namespace, "work" => work.name()).increment(1);
    }
}

/// Marks a kind of work as failing, or as working again.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn trouble(engine: &Engine, work: Work, is_on: bool) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        gauge!("tenure_trouble", "namespace" => namespace, "work" => work.name())
            .set(if is_on { 1.0 } else { 0.0 });
    }
}
