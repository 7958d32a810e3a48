//! Time that unused records are kept.

use std::time::Duration;

/// The time that unused records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Locks that have no holder; and for how long a lock of the dead is kept for the session that takes it over.
    /// Default 7 days.
    pub locks: Duration,
    /// Sessions that are dead. Default 24 hours.
    pub sessions: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        Self { locks: 7 * day, sessions: day }
    }
}
