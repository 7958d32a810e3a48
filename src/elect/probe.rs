//! The liveness probe: a program whose runtime runs no task does not keep its locks.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::Engine;
use crate::clock::Moment;

/// Liveness probe. The program shows that it is alive by running a task from time to time.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) patience: Duration,
    alive: AtomicU64,
}

impl Probe {
    pub(crate) fn new(patience: Duration, now: Moment) -> Self {
        Self { patience, alive: AtomicU64::new(nanos(now)) }
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since(Moment::after_start(Duration::ZERO)).as_nanos()).unwrap_or(u64::MAX)
}

impl Engine {
    pub(crate) fn probe_patience(&self) -> Option<Duration> {
        self.probe.as_ref().map(|probe| probe.patience)
    }

    pub(crate) fn show_alive(&self) {
        if let Some(probe) = &self.probe {
            probe.alive.store(nanos(self.clock.now()), Ordering::Release);
        }
    }

    pub(crate) fn probe_failed(&self) -> bool {
        self.probe.as_ref().is_some_and(|probe| {
            let alive = Moment::after_start(Duration::from_nanos(probe.alive.load(Ordering::Acquire)));
            self.clock.now().since(alive) > probe.patience
        })
    }
}
