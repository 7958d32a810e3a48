//! What the engine counts, by the `metrics` facade (feature `metrics`). Without the feature, nothing.

use std::time::Duration;

use super::{Engine, Loss, lease::LeaseCell, troubles::Work};

#[cfg(feature = "metrics")]
use metrics::{counter, gauge, histogram};

macro_rules! when_on {
    ($($body:tt)*) => {
        #[cfg(feature = "metrics")]
        { $($body)* }
    };
}

/// A lock was granted.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn acquired(engine: &Engine, lease: &LeaseCell) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        counter!("tenure_acquired_total", "namespace" => namespace.clone()).increment(1);
        gauge!("tenure_held", "namespace" => namespace, "kind" => lease.lock.kind.to_string()).increment(1);
    }
}

/// A lock was given back, or given up.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn parted(engine: &Engine, lease: &LeaseCell) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        gauge!("tenure_held", "namespace" => namespace, "kind" => lease.lock.kind.to_string()).decrement(1);
    }
}

/// A lease was lost.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn lost(engine: &Engine, loss: &Loss) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        counter!("tenure_lost_total", "namespace" => namespace, "reason" => loss.name()).increment(1);
    }
}

/// A session was lost.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn session_lost(engine: &Engine, loss: &Loss) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        counter!("tenure_sessions_lost_total", "namespace" => namespace, "reason" => loss.name()).increment(1);
    }
}

/// A beat was confirmed, and took so much of its budget.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn beaten(engine: &Engine, took: Duration, budget: Duration) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        histogram!("tenure_beat_seconds", "namespace" => namespace.clone()).record(took.as_secs_f64());
        let part = took.as_secs_f64() / budget.as_secs_f64();
        histogram!("tenure_beat_budget_ratio", "namespace" => namespace).record(part);
    }
}

/// A job ran on after its lease had ended.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn overran(engine: &Engine) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        counter!("tenure_overruns_total", "namespace" => namespace).increment(1);
    }
}

/// A campaign began, or ended, to lead.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn leading(engine: &Engine, lock: &crate::model::LockId, leads: bool) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        gauge!("tenure_leading", "namespace" => namespace, "key" => lock.key.to_string())
            .set(if leads { 1.0 } else { 0.0 });
    }
}

/// How many stand for a key here; the fleet's sum of zero says that nobody does.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn standing(engine: &Engine, lock: &crate::model::LockId, more: bool) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        let standing = gauge!("tenure_standing", "namespace" => namespace, "key" => lock.key.to_string());
        if more { standing.increment(1) } else { standing.decrement(1) }
    }
}

/// How many wait here, over all keys.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn waiting(engine: &Engine, waiting: usize) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        gauge!("tenure_waiting", "namespace" => namespace).set(waiting as f64);
    }
}

/// A lock of a dead session was taken over, so long after it was last seen to beat.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn taken_over(engine: &Engine, after: Duration) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        histogram!("tenure_takeover_seconds", "namespace" => namespace).record(after.as_secs_f64());
    }
}

/// Work of the engine failed.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn failed(engine: &Engine, work: Work) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        counter!("tenure_failed_calls_total", "namespace" => namespace, "work" => work.name()).increment(1);
    }
}

/// Work of the engine does not work, and that was told; or it works again.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(crate) fn trouble(engine: &Engine, work: Work, is_on: bool) {
    when_on! {
        let namespace = engine.config.namespace().to_string();
        gauge!("tenure_trouble", "namespace" => namespace, "work" => work.name())
            .set(if is_on { 1.0 } else { 0.0 });
    }
}
