//! The leases under which the code runs that is polled or called now.

use std::{iter::successors, sync::Arc};

use super::{Engine, hold::LeaseCell};
use crate::model::LockId;

tokio::task_local! {
    static WITHIN: Arc<Nesting>;
}

/// A lease whose job runs, and those around it.
pub(super) struct Nesting {
    lease: Arc<LeaseCell>,
    outer: Option<Arc<Self>>,
}

impl Nesting {
    /// The job of that lease, within whatever runs now.
    pub(super) fn of(lease: &Arc<LeaseCell>) -> Arc<Self> {
        Arc::new(Self { lease: lease.clone(), outer: WITHIN.try_with(Arc::clone).ok() })
    }

    /// Runs a step of the job.
    pub(super) fn scope<T>(self: &Arc<Self>, step: impl FnOnce() -> T) -> T {
        WITHIN.sync_scope(self.clone(), step)
    }
}

/// Returns whether what runs now is part of a job under that lock of that instance: it would wait for itself. A task
/// that a job has spawned by other means than its [lease](super::Lease::spawn) is no part of it here.
pub(super) fn runs_under(engine: &Arc<Engine>, lock: &LockId) -> bool {
    let is_it =
        |within: &Arc<Nesting>| within.lease.lock == *lock && Arc::ptr_eq(&within.lease.engine, engine);
    WITHIN
        .try_with(|within| successors(Some(within), |within| within.outer.as_ref()).any(is_it))
        .unwrap_or(false)
}
