//! A clock to turn by hand.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    clock::{Clock, Moment},
    model::StoreTime,
    sync::locked,
};

/// A clock that follows tokio's time, which a test can stop and advance, and that can be set
/// forward and back beside it.
///
/// ```
/// use std::time::Duration;
/// use tenure::{Clock, testing::TestClock};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let clock = TestClock::new();
/// let (before, wall) = (clock.now(), clock.wall());
/// tokio::time::advance(Duration::from_secs(30)).await;
/// assert_eq!(clock.now().since(before), Duration::from_secs(30));
///
/// clock.step_wall_back(Duration::from_secs(3600));
/// assert!(clock.wall() < wall);
/// # }
/// ```
#[derive(Debug)]
pub struct TestClock {
    start: Instant,
    set: Mutex<Set>,
}

#[derive(Clone, Copy, Debug)]
struct Set {
    wall_at_start: StoreTime,
    suspended: Duration,
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl TestClock {
    /// A clock that starts now, with its wall at the first of January 2026.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is a clock")]
    pub fn new() -> Self {
        let wall_at_start = StoreTime::from_millis(1_767_225_600_000);
        Self { start: Instant::now(), set: Mutex::new(Set { wall_at_start, suspended: Duration::ZERO }) }
    }

    /// The wall clock jumps ahead.
    pub fn step_wall(&self, by: Duration) {
        let mut set = self.set();
        set.wall_at_start = set.wall_at_start.plus(by);
    }

    /// The wall clock jumps back.
    pub fn step_wall_back(&self, by: Duration) {
        let mut set = self.set();
        set.wall_at_start = set.wall_at_start.minus(by);
    }

    /// The machine was suspended for so long: both clocks have gone on, tokio's timers have not.
    pub fn suspend(&self, time: Duration) {
        self.set().suspended += time;
        self.step_wall(time);
    }

    fn set(&self) -> MutexGuard<'_, Set> {
        locked(&self.set)
    }

    #[expect(clippy::disallowed_methods, reason = "this is a clock")]
    fn elapsed(&self) -> Duration {
        Instant::now().duration_since(self.start)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        Moment::after_start(self.elapsed() + self.set().suspended)
    }

    fn wall(&self) -> StoreTime {
        self.set().wall_at_start.plus(self.elapsed())
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_suspended_machine_finds_both_clocks_ahead() {
        let clock = TestClock::new();
        let (now, wall) = (clock.now(), clock.wall());
        let hour = Duration::from_secs(3600);
        clock.suspend(hour);
        assert_eq!(clock.now().since(now), hour);
        assert_eq!(clock.wall(), wall.plus(hour));
    }
}
