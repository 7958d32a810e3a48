//! Clocks that run at different rates over one time.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use tenure::{
    clock::{Clock, Moment},
    model::StoreTime,
};

/// The time a fleet is judged by: that of the runtime, since the fleet began.
#[derive(Clone, Copy, Debug)]
pub struct Reference(Instant);

impl Reference {
    /// A reference that begins now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "clocks are made of it")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since it began.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "clocks are made of it")]
    pub fn now(&self) -> Duration {
        Instant::now().duration_since(self.0)
    }
}

/// A clock that runs a little faster or slower than the reference, and stands elsewhere.
#[derive(Debug)]
pub struct Drifting {
    reference: Reference,
    /// Gain in millionths.
    gains: i32,
    ahead: Duration,
    wall: Mutex<StoreTime>,
}

impl Drifting {
    /// Returns a clock with this gain in millionths, and this lead at its beginning.
    #[must_use]
    pub const fn new(reference: Reference, gains: i32, ahead: Duration) -> Self {
        Self { reference, gains, ahead, wall: Mutex::new(StoreTime::from_millis(0)) }
    }

    /// Makes its wall clock jump, which must have no effect.
    pub fn step_wall(&self, by: Duration, ahead: bool) {
        let mut wall = self.wall.lock().unwrap_or_else(PoisonError::into_inner);
        *wall = if ahead { wall.plus(by) } else { wall.minus(by) };
    }
}

impl Clock for Drifting {
    fn now(&self) -> Moment {
        let time = self.reference.now();
        let drift = time * self.gains.unsigned_abs() / 1_000_000;
        let shown = if self.gains < 0 { time.saturating_sub(drift) } else { time + drift };
        Moment::after_start(self.ahead + shown)
    }

    fn wall(&self) -> StoreTime {
        self.wall.lock().unwrap_or_else(PoisonError::into_inner).plus(self.reference.now())
    }

    fn is_virtual(&self) -> bool {
        true
    }
}
