//! Delays before the next try.

use std::time::Duration;

/// A job that fails again and again is tried no more often than this at first.
const FIRST_REST: Duration = Duration::from_secs(1);

/// Doubles from a shortest to a longest wait. Each wait is drawn between half of it and the whole, so
/// that callers that failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    failures: u32,
    shortest: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) const fn new(shortest: Duration, longest: Duration) -> Self {
        Self { failures: 0, shortest, longest }
    }

    /// For a job that fails again and again: from a second up to so long, and a second at least.
    pub(crate) fn of_a_job(longest: Duration) -> Self {
        Self::new(FIRST_REST * 2, longest.max(FIRST_REST * 2))
    }

    pub(crate) const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns whether no failure has come since it was reset.
    pub(crate) const fn is_fresh(&self) -> bool {
        self.failures == 0
    }

    /// The wait after one more failure; `roll` is any random number.
    pub(crate) fn next(&mut self, roll: u64) -> Duration {
        let whole = self.shortest.saturating_mul(1 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        whole / 2 + fraction(whole / 2, roll)
    }
}

/// A wait of up to a fifth less than `whole`, so that callers that began together do not go on together.
pub(crate) fn jittered(whole: Duration, roll: u64) -> Duration {
    whole.saturating_sub(fraction(whole / 5, roll))
}

/// A part of `whole` as random as `roll`: from nothing to just below all of it.
pub(crate) fn fraction(whole: Duration, roll: u64) -> Duration {
    // The upper half of the number, so that the product stays exact.
    whole.mul_f64(f64::from((roll >> 32) as u32) / (f64::from(u32::MAX) + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_never_fall_below_half() {
        let ms = Duration::from_millis;
        let mut low = Backoff::new(ms(100), ms(1000));
        let mut high = low;
        let lows: Vec<_> = (0..6).map(|_| low.next(0)).collect();
        assert_eq!(lows, [ms(50), ms(100), ms(200), ms(400), ms(500), ms(500)]);
        for low in lows {
            let high = high.next(u64::MAX);
            assert!(high >= low && high <= low * 2, "{low:?} {high:?}");
        }
        low.reset();
        assert_eq!(low.next(0), ms(50));
    }
}
