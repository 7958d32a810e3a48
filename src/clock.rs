//! The clocks: the one leases are counted by, and the one on the wall.

use std::{
    fmt,
    ops::{Add, Sub},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::model::StoreTime;

/// An instant by the clock that leases are counted by. Only two of the same [`Clock`] compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment so long after the clock's own beginning.
    #[must_use]
    pub const fn after_start(time: Duration) -> Self {
        Self(time)
    }

    /// Time since `earlier`; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }
}

/// Clock of an instance. There is one for each engine, so that a test can turn it.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time leases are counted by. Never goes back, and goes on while the machine is suspended.
    fn now(&self) -> Moment;

    /// The wall clock: may stand anywhere and jump at any time. Only the memory store uses it, in
    /// place of a server's.
    fn wall(&self) -> StoreTime;

    /// Returns whether this clock goes with tokio's paused time: an instance then has no thread of its own.
    fn is_virtual(&self) -> bool {
        false
    }
}

/// The machine's clocks.
///
/// On Linux and Android leases are counted in boot time, which goes on while the machine is
/// suspended. Elsewhere it is the best the standard library has: on macOS its clock stops during
/// sleep, so a machine that was asleep believes in a lease for as long as it slept until the next
/// beat is answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock(());

impl SystemClock {
    /// The machine's clocks.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

impl Clock for SystemClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).expect("boot time counts from the machine's start");
        let nanos = u32::try_from(time.tv_nsec).expect("a timespec holds less than a second of nanoseconds");
        Moment(Duration::new(seconds, nanos))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Moment {
        use std::{sync::LazyLock, time::Instant};

        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let start = *START;
        Moment(Instant::now().saturating_duration_since(start))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn wall(&self) -> StoreTime {
        let now = SystemTime::now();
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        StoreTime::from_millis(match now.duration_since(UNIX_EPOCH) {
            Ok(after) => millis(after),
            Err(before) => -millis(before.duration()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_leases_goes_on_and_never_back() {
        let clock = SystemClock::new();
        let mut last = clock.now();
        for _ in 0..1000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        std::thread::sleep(Duration::from_millis(5));
        assert!(clock.now().since(last) >= Duration::from_millis(5));
    }

    #[test]
    fn moments_do_not_overflow() {
        let start = Moment::after_start(Duration::ZERO);
        assert_eq!(start - Duration::from_secs(1), start);
        assert_eq!(start + Duration::MAX + Duration::MAX, Moment::after_start(Duration::MAX));
        assert_eq!(start.since(start + Duration::from_secs(1)), Duration::ZERO);
    }
}
