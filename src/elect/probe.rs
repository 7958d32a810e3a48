//! Checks that threads run tasks. Those of the program's runtime: one that stands still is shown, and with a liveness
//! probe it does not keep its locks. And the keeper's: it may hang in code of others.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{Engine, Work};
use crate::{clock::Moment, model::StoreTime};

/// Time without a task after which others are told.
const STANDS_STILL: Duration = Duration::from_secs(10);

/// Least time without a task after which the keeper hangs: a machine may be as busy.
const BUSY: Duration = Duration::from_secs(1);

/// A runtime shows that it runs by running a task from time to time.
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

    /// Shows that the keeper's thread runs.
    pub(crate) fn show_keeper(&self) {
        if let Some(pulse) = &self.pulse {
            pulse.shown(self.clock.now());
        }
    }

    /// Returns the time without a task after which the keeper hangs: it has missed a beat then.
    pub(crate) fn keeper_patience(&self) -> Duration {
        self.times.interval.max(BUSY)
    }

    /// Records whether the keeper's thread runs. For any thread but that.
    pub(crate) fn look_at_keeper(&self) {
        let Some(pulse) = self.pulse.as_ref().filter(|_| !self.closing.is_cancelled()) else { return };
        let silent = pulse.silent_for(self.clock.now());
        if silent < self.keeper_patience() {
            return self.record_success(Work::Keeping);
        }
        let error = format!(
            "it has run nothing for {silent:.0?}: does code of others hang on it, such as a logger or a panic hook?"
        );
        self.record_trouble(Work::Keeping, self.clock.now() - silent, true, error);
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
