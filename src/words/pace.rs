//! Health of the log and the recorder, which are code of others.

use std::time::Duration;

use crate::clock::{Clock, Moment, SystemClock};

/// Time after which a call that has not returned is stuck.
const STUCK: Duration = Duration::from_secs(5);

/// Course of the last calls of the log, or of the recorder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Start of the call that has not returned.
    under_way: Option<Moment>,
    /// Times in a row that it panicked.
    panics: u64,
}

/// Problem with the log, or with the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    /// The last call has not returned for this duration.
    Stuck(Duration),
    /// The last call panicked.
    Panics,
}

impl Pace {
    pub(super) const NEW: Self = Self { under_way: None, panics: 0 };

    pub(super) fn begun(&mut self) {
        self.under_way = Some(SystemClock::new().now());
    }

    pub(super) const fn returned(&mut self, well: bool) {
        self.under_way = None;
        self.panics = if well { 0 } else { self.panics + 1 };
    }

    pub(super) const fn panics(&self) -> u64 {
        self.panics
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns what is wrong, if something is.
    pub(super) fn voice(&self) -> Option<Voice> {
        self.voice_at(SystemClock::new().now())
    }

    fn voice_at(&self, now: Moment) -> Option<Voice> {
        match self.under_way.map(|at| now.since(at)) {
            Some(since) if since >= STUCK => Some(Voice::Stuck(since)),
            _ => (self.panics > 0).then_some(Voice::Panics),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_stuck_after_five_seconds_and_a_panic_counts_until_the_next_that_is_well() {
        let (begun, later) = (SystemClock::new().now(), |seconds| Duration::from_secs(seconds));
        let mut pace = Pace { under_way: Some(begun), panics: 0 };
        assert_eq!(pace.voice_at(begun + later(4)), None);
        assert_eq!(pace.voice_at(begun + later(6)), Some(Voice::Stuck(later(6))));
        pace.returned(false);
        assert_eq!(pace.voice_at(begun + later(60)), Some(Voice::Panics));
        pace.returned(true);
        assert_eq!(pace.voice_at(begun + later(60)), None);
    }
}
