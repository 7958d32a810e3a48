//! What the engine cannot do, and what to do about it.

use std::{fmt, sync::Arc};

use super::Loss;
use crate::{
    StoreError,
    error::Applied,
    model::{LimitError, LockId, ScheduleName, SpreadName},
    store::Refusal,
};

/// The engine could not do what it was asked.
///
/// Never says that somebody else holds a lock: that is an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A key, name or value breaks a limit.
    Limit(LimitError),
    /// The store did not answer, or not in time.
    Store(Arc<StoreError>),
    /// The lock's record cannot be used; somebody has to look at it.
    Refused {
        /// Which lock.
        lock: LockId,
        /// What is wrong with it.
        refusal: Refusal,
    },
    /// There is no valid session: the store has been out of reach for too long, and a new session could
    /// not be opened yet.
    NoSession {
        /// What the store said last.
        last: Option<Arc<StoreError>>,
    },
    /// The lease is lost.
    Lost {
        /// Why, if that is known here.
        loss: Option<Loss>,
    },
    /// This instance takes part in that spread already.
    Joined(SpreadName),
    /// The name of a spread is kept for the schedules.
    Reserved(SpreadName),
    /// This instance has a schedule of that name already.
    Scheduled(ScheduleName),
    /// A schedule cannot be what it is to be.
    Schedule {
        /// Which.
        schedule: ScheduleName,
        /// Why not.
        problem: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The engine is closed.
    Closed,
}

impl Error {
    pub(crate) fn store(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }

    pub(crate) const fn lost(loss: Option<Loss>) -> Self {
        Self::Lost { loss }
    }

    /// Whether the same call may succeed later, with nothing changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::NoSession { last } => last.as_ref().is_none_or(|error| error.is_retryable()),
            _ => false,
        }
    }

    /// Whether a lease is lost.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Whether the program or its configuration has to change.
    #[must_use]
    pub fn is_config(&self) -> bool {
        match self {
            Self::Limit(_)
            | Self::Joined(_)
            | Self::Reserved(_)
            | Self::Scheduled(_)
            | Self::Schedule { .. } => true,
            Self::Store(error) => !error.is_retryable(),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(_) => f.write_str("a limit is broken"),
            Self::Store(_) => f.write_str("the store did not answer"),
            Self::Refused { lock, refusal } => write!(f, "{lock} cannot be used: {refusal}"),
            Self::NoSession { .. } => f.write_str("there is no valid session with the store"),
            Self::Lost { loss: Some(loss) } => write!(f, "the lease is lost: {loss}"),
            Self::Lost { loss: None } => f.write_str("the lease is lost"),
            Self::Joined(spread) => write!(f, "this instance takes part in the spread {spread} already"),
            Self::Reserved(spread) => write!(f, "the name {spread} is kept for the spread of the schedules"),
            Self::Scheduled(schedule) => write!(f, "this instance has a schedule {schedule:?} already"),
            Self::Schedule { schedule, .. } => write!(f, "the schedule {schedule:?} cannot be"),
            Self::Closed => f.write_str("the engine is closed"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Limit(error) => Some(error),
            Self::Store(error) | Self::NoSession { last: Some(error) } => Some(&**error),
            Self::Schedule { problem, .. } => Some(&**problem),
            _ => None,
        }
    }
}

impl From<LimitError> for Error {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}

/// The runtime ended under an operation.
pub(crate) fn shut_down() -> StoreError {
    StoreError::new("tenure", "finish an operation", Applied::Unknown, true, "the runtime shuts down")
}

/// A release was not answered in time.
pub(crate) fn unconfirmed() -> StoreError {
    let cause = "no answer yet, it goes on in the background";
    StoreError::new("the store", "release a lock", Applied::Unknown, true, cause)
}
