//! Policies for ticks that are late, overlap, or fail.

use std::{fmt, time::Duration};

use crate::model::Outcome;

/// Rule for ticks that could not be run when they were due: no instance was there to run them, or the store
/// could not be reached.
///
/// A tick is one of these whenever it is looked at, a millisecond late or a day. What is not run is recorded in
/// one entry of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misfire {
    /// A tick that is later than the tolerance is not run. Of several within the tolerance the latest is run,
    /// and the others are not.
    Skip {
        /// A tick that is no later than this is on time.
        tolerance: Duration,
    },
    /// The latest of them is run, and the others are not.
    One {
        /// A tick that is older than this is not run.
        window: Duration,
    },
    /// All of them are run, one after the other, earliest first.
    All {
        /// A tick that is older than this is not run.
        window: Duration,
        /// If there are more than so many, the latest of them are run, and the others are not.
        at_most: u32,
    },
}

impl Misfire {
    /// The same with a window that is no longer.
    pub(crate) fn within(self, longest: Duration) -> Self {
        match self {
            Self::Skip { tolerance } => Self::Skip { tolerance: tolerance.min(longest) },
            Self::One { window } => Self::One { window: window.min(longest) },
            Self::All { window, at_most } => Self::All { window: window.min(longest), at_most },
        }
    }

    pub(super) const fn bounds(self) -> (Duration, usize) {
        match self {
            Self::Skip { tolerance } => (tolerance, 1),
            Self::One { window } => (window, 1),
            Self::All { window, at_most } => (window, at_most as usize),
        }
    }
}

impl Default for Misfire {
    /// The latest, if it is no older than a week.
    fn default() -> Self {
        Self::One { window: Duration::from_secs(7 * 24 * 60 * 60) }
    }
}

/// Rule for a tick that falls due while the run before it is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// Not run.
    #[default]
    Skip,
    /// Waits until the run has ended, and is late then: [`Misfire`] says how many of those that wait are
    /// run.
    Queue,
    /// The run is asked to stop, and the tick is run when it has.
    Cancel,
}

/// Rule for a run whose runner died, or was asked to stop before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnCrash {
    /// Begun again, by the instance that has the schedule next, however late that is: [`Misfire`] is about ticks that
    /// were not begun. So its job may do its work twice. For a job that can be repeated.
    AtLeastOnce {
        /// A tick is begun so often in all, so that one that kills its runner does not kill all of them.
        attempts: u32,
    },
    /// Not begun again: so its job may have done half of its work, and the rest is not done. For a job
    /// that must not be repeated.
    AtMostOnce,
}

impl Default for OnCrash {
    /// At least once, in five attempts: a tick that kills its runner does not kill all instances for ever.
    fn default() -> Self {
        Self::AtLeastOnce { attempts: 5 }
    }
}

/// Retries, within its tick, of a job that returned an error, panicked or took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Tries of a tick in all. Default: 1.
    pub tries: u32,
    /// The rest before the second try, up to half of it shorter at random; later ones double. At least 10 ms, if
    /// there is a second try. Default: 1 s.
    pub first: Duration,
    /// The longest rest. Default: 1 min.
    pub longest: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { tries: 1, first: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

/// Policies for ticks that are late, overlap, or fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policies {
    pub(crate) misfire: Misfire,
    pub(crate) overlap: Overlap,
    pub(crate) on_crash: OnCrash,
    pub(crate) retries: Retries,
    pub(crate) timeout: Option<Duration>,
}

impl Policies {
    /// Returns whether a tick is begun once more after an attempt that ended like this, here or elsewhere.
    pub(crate) const fn goes_on_after(self, outcome: Outcome, attempt: u32) -> bool {
        match outcome {
            Outcome::Failed | Outcome::TimedOut => attempt < self.retries.tries,
            Outcome::Cancelled => self.may_begin_again(attempt),
            Outcome::Succeeded
            | Outcome::Displaced
            | Outcome::Abandoned
            | Outcome::NotBegun
            | Outcome::Skipped => false,
        }
    }

    /// Returns the outcome to record for an attempt that ended like this: one that was asked to stop in its last attempt
    /// is given up, like one whose runner died.
    pub(crate) const fn on_record(self, outcome: Outcome, attempt: u32) -> Outcome {
        match (outcome, self.on_crash) {
            (Outcome::Cancelled, OnCrash::AtLeastOnce { .. }) if !self.may_begin_again(attempt) => {
                Outcome::Abandoned
            }
            (outcome, _) => outcome,
        }
    }

    /// Returns whether what died, or was asked to stop, in that attempt is begun again.
    pub(super) const fn may_begin_again(self, attempt: u32) -> bool {
        match self.on_crash {
            // A policy that allows more tries allows as many attempts.
            OnCrash::AtLeastOnce { attempts } => attempt < attempts || attempt < self.retries.tries,
            OnCrash::AtMostOnce => false,
        }
    }
}

impl fmt::Display for Policies {
    /// In one line, as the store keeps it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = humantime_serde::re::humantime::format_duration;
        match self.misfire {
            Misfire::Skip { tolerance } => write!(f, "misfire skip later than {}", time(tolerance))?,
            Misfire::One { window } => write!(f, "misfire one within {}", time(window))?,
            Misfire::All { window, at_most } => {
                write!(f, "misfire all within {} at most {at_most}", time(window))?;
            }
        }
        f.write_str(match self.overlap {
            Overlap::Skip => ", overlap skip",
            Overlap::Queue => ", overlap queue",
            Overlap::Cancel => ", overlap cancel",
        })?;
        match self.on_crash {
            OnCrash::AtLeastOnce { attempts } => {
                write!(f, ", at least once (begun up to {attempts} times where its runners die)")?;
            }
            OnCrash::AtMostOnce => f.write_str(", at most once")?,
        }
        let Retries { tries, first, longest } = self.retries;
        match tries {
            0 | 1 => f.write_str(", tries once")?,
            _ => write!(f, ", tries {tries} times {} to {} apart", time(first), time(longest))?,
        }
        if let Some(timeout) = self.timeout {
            write!(f, ", timeout {}", time(timeout))?;
        }
        Ok(())
    }
}
