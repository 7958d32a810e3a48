//! Estimate of the store's clock in one instance: its own clock, and how far the store's is off.
//!
//! Each answered beat says that the store's clock stood at `at` at some moment between its sending and its
//! answer. What several say together is narrower than what each says, until the store's clock is set, or
//! another member's takes its place.

use std::time::Duration;

use crate::{clock::Moment, model::StoreTime};

/// A jump up to here is believed at once.
const SMALL: Duration = Duration::from_secs(60);
/// A larger one when it has held for so long: a member with a wrong clock may be primary for a minute.
const HELD: Duration = Duration::from_secs(5 * 60);
/// Two good clocks part by no more than one part in so many.
const DRIFT: u32 = 2000;
/// The store's clock is read in whole milliseconds.
const GRAIN: Duration = Duration::from_millis(1);
/// A change of what is known that is worth waking the waiters for an instant.
const WORTH: u64 = 20;

/// Milliseconds by which the store's clock is ahead of this one: no less, and no more, at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offset {
    low: i64,
    high: i64,
    at: Moment,
}

impl Offset {
    fn middle(self) -> i64 {
        self.low + (self.high - self.low) / 2
    }

    /// Returns what it may have become since.
    fn aged(self, now: Moment) -> Self {
        let drift = millis(now.since(self.at) / DRIFT);
        Self { low: self.low.saturating_sub(drift), high: self.high.saturating_add(drift), at: now }
    }

    /// Returns what both allow, if they do not contradict each other.
    fn and(self, other: Self) -> Option<Self> {
        let both = Self { low: self.low.max(other.low), high: self.high.min(other.high), at: other.at };
        (both.low <= both.high).then_some(both)
    }

    fn is_near(self, other: Self) -> bool {
        self.middle().abs_diff(other.middle()) <= u64::try_from(SMALL.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A jump of the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jump {
    /// Too far off to be believed yet; negative: back.
    Suspected { millis: i64 },
    /// Believed now.
    Believed { millis: i64 },
}

/// The store's time as this instance estimates it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreClock {
    known: Option<Offset>,
    /// Another time that the store shows, and since when.
    suspected: Option<(Offset, Moment)>,
    /// Offset that was last reported to the waiters.
    reported: Option<i64>,
}

impl StoreClock {
    /// The store's clock showed `at`, between these two moments. Says what is remarkable about that.
    pub(crate) fn saw(&mut self, sent: Moment, answered: Moment, at: StoreTime) -> Option<Jump> {
        let seen = Offset {
            low: at.as_millis().saturating_sub(since_start(answered)),
            high: at.as_millis().saturating_add(millis(GRAIN)).saturating_sub(since_start(sent)),
            at: answered,
        };
        let Some(known) = self.known.map(|known| known.aged(answered)) else {
            self.known = Some(seen);
            return None;
        };
        if known.is_near(seen) {
            self.suspected = None;
            self.known = Some(known.and(seen).unwrap_or(seen));
            return None;
        }
        let jump = seen.middle().saturating_sub(known.middle());
        match self.suspected {
            Some((suspected, since)) if suspected.is_near(seen) => {
                if answered.since(since) < HELD {
                    self.suspected = Some((seen, since));
                    return None;
                }
                self.suspected = None;
                self.known = Some(seen);
                Some(Jump::Believed { millis: jump })
            }
            _ => {
                self.suspected = Some((seen, answered));
                Some(Jump::Suspected { millis: jump })
            }
        }
    }

    /// Returns what it shows now; nothing before the first answer.
    pub(crate) fn now(&self, now: Moment) -> Option<StoreTime> {
        let known = self.known?;
        Some(StoreTime::from_millis(since_start(now).saturating_add(known.middle())))
    }

    /// Returns the least that it may show now.
    pub(crate) fn at_least(&self, now: Moment) -> Option<StoreTime> {
        let known = self.known?.aged(now);
        Some(StoreTime::from_millis(since_start(now).saturating_add(known.low)))
    }

    /// Returns how far off [`now`](Self::now) may be.
    pub(crate) fn uncertainty(&self, now: Moment) -> Option<Duration> {
        let known = self.known?.aged(now);
        Some(Duration::from_millis(known.high.abs_diff(known.low) / 2))
    }

    /// Returns whether the waiters for an instant are to be notified: with what was reported to them last they would
    /// wait for too long or not long enough. Counts as reported then.
    pub(crate) fn report_news(&mut self) -> bool {
        let Some(known) = self.known else { return false };
        let is_news = self.reported.is_none_or(|reported| reported.abs_diff(known.middle()) > WORTH);
        if is_news {
            self.reported = Some(known.middle());
        }
        is_news
    }
}

fn since_start(moment: Moment) -> i64 {
    millis(moment.since(Moment::after_start(Duration::ZERO)))
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(millis: u64) -> Moment {
        Moment::after_start(Duration::from_millis(millis))
    }

    /// Beats every five seconds, answered after `round_trip`, by a store whose clock is that far ahead.
    fn beat(clock: &mut StoreClock, at: u64, round_trip: u64, ahead: i64) -> Option<Jump> {
        let there = StoreTime::from_millis((at + round_trip / 2).cast_signed() + ahead);
        clock.saw(here(at), here(at + round_trip), there)
    }

    fn ahead(clock: &StoreClock, at: u64) -> i64 {
        clock.now(here(at)).unwrap().as_millis() - at.cast_signed()
    }

    const DAY: i64 = 24 * 3600 * 1000;

    #[test]
    fn a_quick_answer_narrows_the_uncertainty_that_slow_ones_left() {
        let mut clock = StoreClock::default();
        assert_eq!(clock.now(here(0)), None);
        assert_eq!(beat(&mut clock, 0, 2000, 7000), None);
        assert_eq!(clock.uncertainty(here(2000)), Some(Duration::from_secs(1)));
        assert_eq!(beat(&mut clock, 5000, 4, 7000), None);
        assert!(clock.uncertainty(here(5004)).unwrap() <= Duration::from_millis(3));
        assert!(ahead(&clock, 5004).abs_diff(7000) <= 3);
        assert_eq!(beat(&mut clock, 10_000, 2000, 7000), None, "and stays so");
        assert!(clock.uncertainty(here(12_000)).unwrap() <= Duration::from_millis(8));
    }

    #[test]
    fn store_time_grows_uncertain_in_both_directions() {
        for drift in [-40, 40] {
            let mut clock = StoreClock::default();
            beat(&mut clock, 0, 4, 7000);
            let later = clock.uncertainty(here(100_004)).unwrap();
            assert!(later.abs_diff(Duration::from_millis(52)) <= GRAIN, "one in two thousand: {later:?}");
            // A slow answer contradicts nothing: what was known is as good, but for the drift.
            beat(&mut clock, 100_000, 2000, 7000 + drift);
            assert!(ahead(&clock, 102_000).abs_diff(7000) <= 3, "{drift}");
            // A quick one says that it has drifted by as much as it may.
            beat(&mut clock, 102_000, 4, 7000 + drift);
            assert!(ahead(&clock, 102_004).abs_diff(7000 + drift) <= 3, "{drift}");
            assert!(clock.uncertainty(here(102_004)).unwrap() <= Duration::from_millis(3));
        }
    }

    #[test]
    fn a_small_jump_is_believed_at_once() {
        let mut clock = StoreClock::default();
        beat(&mut clock, 0, 4, 0);
        assert!(clock.report_news());
        beat(&mut clock, 5000, 4, 30_000);
        assert!(ahead(&clock, 5004).abs_diff(30_000) <= 3);
        assert!(clock.report_news() && !clock.report_news());
        beat(&mut clock, 10_000, 4, -20_000);
        assert!(ahead(&clock, 10_004).abs_diff(-20_000) <= 3);
    }

    #[test]
    fn a_large_jump_is_believed_when_it_has_held_for_five_minutes() {
        for jump in [30 * DAY, -30 * DAY, 120_000, -120_000] {
            let mut clock = StoreClock::default();
            beat(&mut clock, 0, 4, 0);
            let jumped = beat(&mut clock, 5000, 4, jump);
            assert!(
                matches!(jumped, Some(Jump::Suspected { millis }) if millis.abs_diff(jump) <= 5),
                "{jumped:?}"
            );
            let mut at = 10_000;
            while at < 305_000 {
                assert_eq!(beat(&mut clock, at, 4, jump), None);
                assert!(ahead(&clock, at).abs_diff(0) <= 200, "until then it is as it was");
                at += 5000;
            }
            let believed = beat(&mut clock, at, 4, jump);
            assert!(matches!(believed, Some(Jump::Believed { .. })), "{believed:?}");
            assert!(ahead(&clock, at).abs_diff(jump) <= 3);
        }
    }

    #[test]
    fn a_jump_that_goes_back_in_time_never_was() {
        let mut clock = StoreClock::default();
        beat(&mut clock, 0, 4, 0);
        for round in 0..100_u64 {
            let at = 5000 + round * 10_000;
            // Two members take turns, one of them a month ahead.
            assert!(matches!(beat(&mut clock, at, 4, 30 * DAY), Some(Jump::Suspected { .. })));
            assert_eq!(beat(&mut clock, at + 5000, 4, 0), None);
        }
        assert!(ahead(&clock, 1_005_000).abs_diff(0) <= 5);
    }

    #[test]
    fn a_clock_that_runs_faster_than_it_should_is_followed() {
        let mut clock = StoreClock::default();
        for beat_no in 0..1000_u64 {
            let at = beat_no * 5000;
            // One percent fast.
            let fast = (at / 100).cast_signed();
            beat(&mut clock, at, 4, fast);
            assert!(ahead(&clock, at).abs_diff(fast) <= 60, "at {at}");
        }
    }

    #[test]
    fn instants_at_the_ends_of_time_do_not_overflow() {
        let mut clock = StoreClock::default();
        for at in [i64::MIN, i64::MAX, 0, i64::MIN] {
            clock.saw(here(1), here(2), StoreTime::from_millis(at));
            let _ = (clock.now(here(5)), clock.uncertainty(here(5)), clock.report_news());
        }
    }
}
