//! Exit codes, and a sentence for each failure.

use std::fmt;

use tenure::{Applied, StoreError, elect::StartError, store::sqlite::OpenError};

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
    /// True if other processes had the store's file locked, and nothing was changed.
    pub(crate) is_locked: bool,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_locked: false }
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

fn is_locked(error: &StoreError) -> bool {
    let cause = error.cause().downcast_ref();
    error.applied() == Applied::No && matches!(cause, Some(OpenError::Locked { .. }))
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self { is_locked: matches!(error, OpenError::Locked { .. }), ..Self::store(error.to_string()) }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { is_locked: is_locked(&error), ..Self::store(error.to_string()) }
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
        let cause = match &error {
            tenure::elect::Error::Store(cause) => Some(cause),
            tenure::elect::Error::NoSession { last } => last.as_ref(),
            _ => None,
        };
        let is_locked = cause.is_some_and(|cause| is_locked(cause));
        Self { is_locked, ..Self::new(code, error.to_string()) }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let code = if error.is_config() { CONFIG } else { STORE_AWAY };
        let is_locked = matches!(&error, StartError::Store(error) if is_locked(error));
        Self { is_locked, ..Self::new(code, error.to_string()) }
    }
}
