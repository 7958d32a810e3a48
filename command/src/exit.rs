//! Exit codes, and a sentence for each failure.

use std::fmt;

/// The command line is invalid.
pub(crate) const USAGE: u8 = 64;
/// The store cannot be reached, or does not answer.
pub(crate) const STORE_AWAY: u8 = 69;
/// Another holder has the key, or the schedule.
pub(crate) const HELD: u8 = 75;
/// The configuration breaks a rule.
pub(crate) const CONFIG: u8 = 78;
/// The lease was lost while the child ran.
pub(crate) const LEASE_LOST: u8 = 80;
/// The child took longer than its time: as `timeout` of the coreutils says it.
pub(crate) const TIMED_OUT: u8 = 124;
/// tenure itself failed.
pub(crate) const FAILED: u8 = 125;
/// The child's program was found and could not be started.
pub(crate) const NOT_STARTED: u8 = 126;
/// The child's program was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// Why the command ends without having done what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Something that was written on the command line breaks a rule.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(CONFIG, message)
    }

    pub(crate) fn store(message: impl Into<String>) -> Self {
        Self::new(STORE_AWAY, message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(FAILED, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<tenure::StoreError> for Failure {
    fn from(error: tenure::StoreError) -> Self {
        Self::store(error.to_string())
    }
}

impl From<tenure_look::NotDone> for Failure {
    fn from(not_done: tenure_look::NotDone) -> Self {
        match not_done {
            tenure_look::NotDone::Store(error) => error.into(),
            tenure_look::NotDone::Owned { .. } => Self::new(HELD, not_done.to_string()),
            _ => Self::failed(not_done.to_string()),
        }
    }
}

impl From<tenure::elect::Error> for Failure {
    fn from(error: tenure::elect::Error) -> Self {
        let code = match &error {
            tenure::elect::Error::Limit(_) => USAGE,
            error if error.is_retryable() => STORE_AWAY,
            _ => FAILED,
        };
        Self::new(code, error.to_string())
    }
}

impl From<tenure::elect::StartError> for Failure {
    fn from(error: tenure::elect::StartError) -> Self {
        let code = if error.is_config() { CONFIG } else { STORE_AWAY };
        Self::new(code, error.to_string())
    }
}
