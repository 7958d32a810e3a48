//! What a spread counts (feature `metrics`). Without the feature, nothing.

use super::shell::State;
use crate::{elect::Engine, model::SpreadName};

#[cfg(feature = "metrics")]
use metrics::{counter, gauge};

/// A plan was made, and something is to be done about it.
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]
pub(super) fn planned(engine: &Engine, spread: &SpreadName, state: &State, moved: bool) {
    #[cfg(feature = "metrics")]
    {
        let labels = [("namespace", engine.config.namespace().to_string()), ("spread", spread.to_string())];
        counter!("tenure_spread_plans_total", &labels).increment(1);
        counter!("tenure_spread_rebalances_total", &labels).increment(u64::from(moved));
        gauge!("tenure_spread_share", &labels).set(state.has() as f64);
        gauge!("tenure_spread_waiting", &labels).set(state.waiting.len() as f64);
        gauge!("tenure_spread_members", &labels).set(state.resolved.targets.len() as f64);
    }
}
