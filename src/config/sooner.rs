//! The durations of an instance whose locks are to be taken over within a given time.

use std::{ops::RangeInclusive, time::Duration};

use super::{ConfigError, DAY, ElectConfig, check, whole_ms};

/// Below a second a single slow write costs a lease.
const WITHIN: RangeInclusive<Duration> = Duration::from_secs(1)..=DAY.saturating_mul(30);
/// The part of the time that is the ttl. The rest is for what is not counted in it: that a waiter saw the last beat
/// up to a twentieth of an interval late, declares it dead and takes the lock, a write each.
const TTL: (u32, u32) = (4, 5);
/// Number of beats in a ttl, as in the defaults.
const BEATS: u32 = 6;

impl ElectConfig {
    /// Sets `hold_duration`, `refresh_interval` and `refresh_duration` such that another instance has the locks of
    /// an instance that died within this time, if the store answers promptly: the ttl is four fifths of it, and
    /// it beats six times in a ttl.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure::ElectConfig;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ElectConfig::new("shop", "pod-7")?.takeover_within(Duration::from_secs(3));
    /// config.validate()?;
    /// assert_eq!(config.ttl(), Duration::from_millis(2400));
    /// assert_eq!(config.refresh_interval(), Duration::from_millis(400));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// From 1s to 30d: what is shorter or longer is refused by [`validate`](Self::validate).
    #[must_use]
    pub fn takeover_within(mut self, time: Duration) -> Self {
        let ttl = whole_ms(time.saturating_mul(TTL.0) / TTL.1);
        self.refresh_duration = ttl;
        self.refresh_interval = whole_ms(ttl / BEATS);
        self.hold_duration = None;
        self.takeover_within = Some(time);
        self
    }

    /// Checks that such a time can be kept, and that it alone says what the durations are.
    pub(super) fn check_takeover_within(&self) -> Result<(), ConfigError> {
        let Some(time) = self.takeover_within else { return Ok(()) };
        check("takeover_within", time, &WITHIN)?;
        let plain = self.clone().takeover_within(time);
        for (field, is_changed) in [
            ("hold_duration", self.hold_duration.is_some()),
            ("refresh_interval", self.refresh_interval != plain.refresh_interval),
            ("refresh_duration", self.refresh_duration != plain.refresh_duration),
        ] {
            if is_changed {
                return Err(conflict(field));
            }
        }
        Ok(())
    }
}

/// A field beside `takeover_within`, as it is called where it was written.
pub(super) fn conflict(called: &str) -> ConfigError {
    ConfigError::new(called, format!("{called} and takeover_within are both set: set only one of them"))
}
