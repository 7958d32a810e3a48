//! What goes wrong between an instance and its store, and what can be said of it.

use std::{error::Error as StdError, fmt};

/// Whether a store's operation that failed may have changed something (R8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// Nothing was changed, and nothing will be.
    No,
    /// It may have been applied, or be applied later. Nothing may be concluded: the operation is
    /// repeated until it is answered.
    Unknown,
}

/// A store did not answer an operation.
///
/// Never says that a race was lost or a record is damaged: those are answers. What can be done now
/// is told by [`is_retryable`](Self::is_retryable) and [`applied`](Self::applied).
#[derive(Debug)]
pub struct StoreError {
    store: &'static str,
    doing: &'static str,
    applied: Applied,
    retryable: bool,
    source: Box<dyn StdError + Send + Sync>,
}

impl StoreError {
    /// The operation `doing` failed in `store`.
    #[must_use]
    pub fn new(
        store: &'static str,
        doing: &'static str,
        applied: Applied,
        retryable: bool,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { store, doing, applied, retryable, source: source.into() }
    }

    /// Which store.
    #[must_use]
    pub const fn store(&self) -> &'static str {
        self.store
    }

    /// What it was doing.
    #[must_use]
    pub const fn doing(&self) -> &'static str {
        self.doing
    }

    /// Whether something may have changed.
    #[must_use]
    pub const fn applied(&self) -> Applied {
        self.applied
    }

    /// Whether the same operation may succeed if it is sent again. If not, somebody has to change
    /// something first: a right, a password, the server's version.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        self.retryable
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, doing, applied, .. } = self;
        match applied {
            Applied::No => write!(f, "{store} could not {doing}, nothing was changed"),
            Applied::Unknown => write!(f, "{store} did not confirm to {doing}, the outcome is unknown"),
        }
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_tells_what_was_done_and_what_became_of_it_and_leaves_the_cause_to_the_source() {
        let error = StoreError::new("mongodb", "take 3 locks", Applied::Unknown, true, "reply lost");
        assert_eq!(error.to_string(), "mongodb did not confirm to take 3 locks, the outcome is unknown");
        assert_eq!(error.source().unwrap().to_string(), "reply lost");
        let error = StoreError::new("mongodb", "beat", Applied::No, false, "not authorised");
        assert_eq!(error.to_string(), "mongodb could not beat, nothing was changed");
    }
}
