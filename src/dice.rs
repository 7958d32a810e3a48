//! Dice that fall the same way for the same seed: whatever is left to chance in a test can be repeated.

use std::time::Duration;

/// Dice that fall the same way for the same seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice of that seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Other dice, for a part that throws on its own: what it throws moves nothing here.
    #[must_use]
    pub fn split(&mut self, label: u64) -> Self {
        Self(self.roll() ^ label.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Any number (`SplitMix64`: enough for dice, and not worth a dependency).
    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below that one.
    pub fn below(&mut self, most: u64) -> u64 {
        self.roll() % most.max(1)
    }

    /// A place in a list of so many.
    pub fn place(&mut self, of: usize) -> usize {
        usize::try_from(self.below(of as u64)).unwrap_or(0)
    }

    /// Draws an event that happens so often in a hundred.
    pub fn percent(&mut self, rate: u64) -> bool {
        self.below(100) < rate
    }

    /// A time in whole milliseconds, between the two.
    pub fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let span = u64::try_from(longest.saturating_sub(shortest).as_millis()).unwrap_or(u64::MAX - 1);
        shortest + Duration::from_millis(self.below(span + 1))
    }

    /// A time in whole milliseconds, up to that.
    pub fn up_to(&mut self, longest: Duration) -> Duration {
        self.between(Duration::ZERO, longest)
    }

    /// Another order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.place(last + 1);
            list.swap(last, other);
        }
    }
}
