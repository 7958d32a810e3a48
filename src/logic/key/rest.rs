//! Rests of work that nothing else waits for.

use std::time::Duration;

use crate::{backoff::Backoff, clock::Moment};

/// Work of one sort that failed rests, for longer each time, while all other work goes on. The rest counts from
/// the failure, also after a call that hung: so one that always hangs takes no more than a part of the time.
#[derive(Clone, Debug)]
pub(super) struct Throttle {
    until: Moment,
    backoff: Backoff,
}

impl Throttle {
    pub(super) const fn new(shortest: Duration, longest: Duration, now: Moment) -> Self {
        Self { until: now, backoff: Backoff::new(shortest, longest) }
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        now >= self.until
    }

    /// End of the rest, unless it is over.
    pub(super) fn end(&self, now: Moment) -> Option<Moment> {
        (!self.is_over(now)).then_some(self.until)
    }

    /// Returns whether it worked when it was tried last, or was not tried.
    pub(super) const fn is_well(&self) -> bool {
        self.backoff.is_fresh()
    }

    pub(super) fn failed(&mut self, now: Moment, roll: u64) {
        self.until = now + self.backoff.next(roll);
    }

    pub(super) const fn worked(&mut self) {
        self.backoff.reset();
    }

    /// After success it rests for so long: what comes meanwhile goes together.
    pub(super) fn gathers(&mut self, now: Moment, time: Duration) {
        self.worked();
        self.until = now + time;
    }
}
