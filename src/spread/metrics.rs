//! Metrics of spreads (feature `metrics`). Without the feature, nothing is counted.

use super::shared::ActorState;
use crate::{clock::Moment, elect::Engine, model::SpreadName};

#[cfg(feature = "metrics")]
use metrics::{counter, gauge};

/// Sets all metrics to 0, as this instance joins the spread.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(super) fn joined(engine: &Engine, spread: &SpreadName) {
    #[cfg(feature = "metrics")]
    {
        let namespace = engine.config.namespace().to_string();
        let kind = crate::model::Kind::of_tasks(spread).to_string();
        let spread = spread.to_string();
        let gauge = |name| gauge!(name, "namespace" => namespace.clone(), "spread" => spread.clone());
        for name in [
            "tenure_spread_tasks",
            "tenure_spread_waiting",
            "tenure_spread_quarantined",
            "tenure_spread_members",
        ] {
            gauge(name).set(0.0);
        }
        gauge!("tenure_held", "namespace" => namespace.clone(), "kind" => kind).increment(0.0);
        counter!("tenure_spread_actions_total", "namespace" => namespace.clone(), "spread" => spread.clone())
            .increment(0);
    }
}

/// Counts a plan, with the number of actions to be done here.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(super) fn planned(engine: &Engine, spread: &SpreadName, state: &ActorState, orders: usize, now: Moment) {
    #[cfg(feature = "metrics")]
    {
        let namespace = engine.config.namespace().to_string();
        let spread = spread.to_string();
        let (tasks, waiting) = (state.has().count() as f64, state.waiting.len() as f64);
        let members = state.resolved.targets.len() as f64;
        let quarantined = state.view.quarantined(now) as f64;
        gauge!("tenure_spread_tasks", "namespace" => namespace.clone(), "spread" => spread.clone())
            .set(tasks);
        gauge!("tenure_spread_waiting", "namespace" => namespace.clone(), "spread" => spread.clone())
            .set(waiting);
        gauge!("tenure_spread_quarantined", "namespace" => namespace.clone(), "spread" => spread.clone())
            .set(quarantined);
        gauge!("tenure_spread_members", "namespace" => namespace.clone(), "spread" => spread.clone())
            .set(members);
        counter!("tenure_spread_actions_total", "namespace" => namespace, "spread" => spread)
            .increment(orders as u64);
    }
}
