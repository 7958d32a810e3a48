//! The delay with which this process is served where processor time is scarce, and how much earlier it has to begin.

use std::time::Duration;

use super::super::{boot_time, wire::Times};

/// Looks of the timer in the time of a lease, by which a delay is noticed before it matters.
const LOOKS: u32 = 4;
/// The kill begins so many times the delay before the lease ends: it waits for the processor once or twice, and so do
/// those that are killed.
const TIMES: u32 = 3;

/// The worst delay of late, and the time that the last order gave.
pub(super) struct Delay {
    worst: Duration,
    given: Duration,
}

impl Delay {
    pub(super) fn of(times: Times) -> Self {
        Self { worst: Duration::ZERO, given: times.end.saturating_sub(boot_time()) }
    }

    /// Notes that an order has extended the lease.
    pub(super) fn extended(&mut self, times: Times) {
        self.given = times.end.saturating_sub(boot_time());
    }

    /// Notes that a look was so late, or that it took so long.
    pub(super) fn seen(&mut self, late: Duration) {
        self.worst = self.worst.max(late);
    }

    /// Lets a delay that does not come again be forgotten, look by look.
    pub(super) fn fade(&mut self) {
        self.worst /= 2;
    }

    /// Time until the next look of the timer, at the latest.
    pub(super) fn look(&self) -> Duration {
        self.given / LOOKS
    }

    /// Time at which the last of them is killed at the latest. Half of the lease is left to it, however late this
    /// process is: a lease that is extended in time is never ended for a delay.
    pub(super) fn kill_at(&self, times: Times) -> Duration {
        let before = (self.worst * TIMES).min(self.given / 2).max(times.allowance);
        times.end.saturating_sub(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_kill_begins_three_delays_before_the_end_and_never_in_the_first_half_of_a_lease() {
        let allowance = SECOND / 2;
        let times = Times { end: SECOND * 100, grace: SECOND * 5, allowance, kill_after: SECOND };
        let before = |worst| times.end.saturating_sub(Delay { worst, given: SECOND * 30 }.kill_at(times));
        assert_eq!(before(Duration::ZERO), allowance);
        assert_eq!(before(SECOND / 10), allowance);
        assert_eq!(before(SECOND), SECOND * 3);
        assert_eq!(before(SECOND * 60), SECOND * 15);
    }

    #[test]
    fn a_delay_that_does_not_come_again_is_forgotten() {
        let mut delay = Delay { worst: Duration::ZERO, given: SECOND };
        delay.seen(SECOND);
        delay.seen(SECOND / 10);
        assert_eq!(delay.worst, SECOND);
        for _ in 0..10 {
            delay.fade();
        }
        assert!(delay.worst < SECOND / 1000);
    }
}
