//! Metrics of spreads (feature `metrics`).

use super::shared::ActorState;
use crate::{
    clock::Moment,
    elect::{Engine, metrics::namespace},
    model::{Kind, SpreadName},
    words::numbers::{add, count, set},
};

/// Sets all metrics to 0, as this instance joins the spread.
pub(super) fn joined(engine: &Engine, name: &SpreadName) {
    let [namespace, spread] = [namespace(engine), ("spread", name.as_str())];
    for metric in
        ["tenure_spread_tasks", "tenure_spread_waiting", "tenure_spread_resting", "tenure_spread_members"]
    {
        set(metric, [namespace, spread], 0.0);
    }
    add("tenure_held", [namespace, ("kind", &Kind::of_tasks(name).to_string())], 0.0);
    count("tenure_spread_actions_total", [namespace, spread], 0);
}

/// Counts a plan, with the number of actions to be done here.
pub(super) fn planned(engine: &Engine, spread: &SpreadName, state: &ActorState, orders: usize, now: Moment) {
    let [namespace, spread] = [namespace(engine), ("spread", spread.as_str())];
    set("tenure_spread_tasks", [namespace, spread], state.has().count() as f64);
    set("tenure_spread_waiting", [namespace, spread], state.waiting.len() as f64);
    set("tenure_spread_resting", [namespace, spread], state.view.resting(now) as f64);
    set("tenure_spread_members", [namespace, spread], state.resolved.targets.len() as f64);
    count("tenure_spread_actions_total", [namespace, spread], orders as u64);
}
