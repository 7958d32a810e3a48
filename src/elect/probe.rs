//! Check that the program's runtime runs tasks: one that stands still is shown, and with a liveness probe it does not
//! keep its locks.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{Engine, Work};
use crate::{clock::Moment, model::StoreTime};

/// Time without a task after which others are told.
const STANDS_STILL: Duration = Duration::from_secs(10);

/// The program shows that its runtime runs by running a task from time to time.
#[derive(Debug)]
pub(crate) struct Probe {
    /// Time after which the session ends, if that is wanted.
    patience: Option<Duration>,
    shown: AtomicU64,
}

impl Probe {
    pub(crate) fn new(patience: Option<Duration>, now: Moment) -> Self {
        Self { patience, shown: AtomicU64::new(nanos(now)) }
    }

    /// The program shows itself so often.
    pub(crate) fn pace(&self) -> Duration {
        self.patience.map_or(STANDS_STILL, |patience| patience.min(STANDS_STILL)) / 4
    }

    fn shown(&self, now: Moment) {
        self.shown.store(nanos(now), Ordering::Release);
    }

    fn silent_for(&self, now: Moment) -> Duration {
        now.since(Moment::after_start(Duration::from_nanos(self.shown.load(Ordering::Acquire))))
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since(Moment::after_start(Duration::ZERO)).as_nanos()).unwrap_or(u64::MAX)
}

impl Engine {
    pub(crate) fn probe_patience(&self) -> Option<Duration> {
        self.probe.as_ref()?.patience
    }

    pub(crate) fn show_alive(&self) {
        if let Some(probe) = &self.probe {
            probe.shown(self.clock.now());
        }
    }

    pub(crate) fn probe_failed(&self) -> bool {
        self.probe.as_ref().is_some_and(|probe| {
            probe.patience.is_some_and(|patience| probe.silent_for(self.clock.now()) > patience)
        })
    }

    /// Returns for how long the program's runtime has run no task, if that is long and something is held here: a
    /// program may drive its runtime now and then.
    fn stands_still_for(&self) -> Option<Duration> {
        if self.current()?.inside() == 0 {
            return None;
        }
        let silent = self.probe.as_ref()?.silent_for(self.clock.now());
        (silent > STANDS_STILL).then_some(silent)
    }

    /// The same as a beat carries it.
    pub(crate) fn stalled_since(&self) -> Option<StoreTime> {
        Some(self.store_now()?.minus(self.stands_still_for()?))
    }

    /// Records whether the program's runtime runs tasks.
    pub(crate) fn look_at_program(&self) {
        let Some(silent) = self.stands_still_for() else { return self.record_success(Work::Jobs) };
        let error = format!("the program's runtime has run no task for {silent:.0?}");
        self.record_trouble(Work::Jobs, self.clock.now() - silent, false, error);
    }
}
