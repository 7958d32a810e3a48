//! Errors of the engine.

use std::{fmt, io, sync::Arc, time::Duration};

use super::job::no_thread;
use crate::{
    StoreError,
    error::{Applied, in_words},
    model::{Holder, Key, LimitError, LockId, Loss, ScheduleName, SpreadName},
    store::Refusal,
};

/// An operation of the engine failed.
///
/// Printed with its cause, in one line; so its [`source`](std::error::Error::source) is nothing, and a chain of
/// causes says nothing twice. The cause is in the variant.
///
/// Never says that another instance holds a lock: that is an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A key, name or value breaks a limit.
    Limit(LimitError),
    /// The store did not answer, or not in time.
    Store(Arc<StoreError>),
    /// The lock's record cannot be used; an operator has to look at it.
    Refused {
        /// Lock whose record it is.
        lock: LockId,
        /// Problem with the record.
        refusal: Refusal,
    },
    /// No valid session: the store has been unreachable for too long, and a new session could not be opened
    /// yet.
    NoSession {
        /// Last error of the store.
        last: Option<Arc<StoreError>>,
    },
    /// The lease is lost.
    Lost {
        /// Reason, if it is known here.
        loss: Option<Loss>,
    },
    /// The instance has already joined that spread.
    Joined(SpreadName),
    /// The tasks of a spread contain the same key twice.
    Twice {
        /// Name of the spread.
        spread: SpreadName,
        /// Key that appears twice.
        key: Key,
    },
    /// A pause of a spread is too short: the instance would do nothing else.
    Rest {
        /// Name of the spread.
        spread: SpreadName,
        /// Setting that contains it.
        setting: &'static str,
        /// Requested value.
        rest: Duration,
        /// Smallest allowed value.
        least: Duration,
    },
    /// The name of a spread is reserved for the schedules.
    Reserved(SpreadName),
    /// The instance already has a schedule of that name.
    Scheduled(ScheduleName),
    /// A setting of a schedule is invalid.
    Schedule {
        /// Name of the schedule.
        schedule: ScheduleName,
        /// Problem with the setting.
        problem: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// No instance has ever run a schedule of that name: it may be a typo.
    /// [`even_if_unknown`](crate::schedule::Schedules::even_if_unknown) applies the instruction all the same.
    UnknownSchedule(ScheduleName),
    /// An instance has the schedule: delete it when no instance does.
    /// [`even_if_owned`](crate::schedule::Schedules::even_if_owned) deletes it all the same.
    Owned {
        /// Name of the schedule.
        schedule: ScheduleName,
        /// Instance that has it.
        by: Holder,
    },
    /// A job waits for the key that it runs under, and would wait for itself.
    Nested {
        /// Lock of that key.
        lock: LockId,
    },
    /// No thread could be started for a job that blocks. It never begins.
    Thread(Arc<io::Error>),
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

    /// Returns whether the same call may succeed later, with nothing changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::NoSession { last } => last.as_ref().is_none_or(|error| error.is_retryable()),
            Self::Thread(_) => true,
            _ => false,
        }
    }

    /// Returns whether a lease is lost.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Returns whether the program or its configuration has to change.
    #[must_use]
    pub fn is_config(&self) -> bool {
        match self {
            Self::Limit(_)
            | Self::Joined(_)
            | Self::Twice { .. }
            | Self::Rest { .. }
            | Self::Reserved(_)
            | Self::Scheduled(_)
            | Self::Schedule { .. }
            | Self::Nested { .. } => true,
            Self::Store(error) => !error.is_retryable(),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(error) => fmt::Display::fmt(error, f),
            Self::Store(error) => fmt::Display::fmt(error, f),
            Self::Refused { lock, refusal: refusal @ Refusal::Full { .. } } => write!(f, "{lock}: {refusal}"),
            Self::Refused { lock, refusal } => write!(f, "{lock} cannot be used: {refusal}"),
            Self::NoSession { last: Some(error) } => {
                write!(f, "no valid session with the store: {error}")
            }
            Self::NoSession { last: None } => f.write_str("no valid session with the store"),
            Self::Lost { loss: Some(loss) } => write!(f, "the lease is lost: {loss}"),
            Self::Lost { loss: None } => f.write_str("the lease is lost"),
            Self::Joined(spread) => write!(f, "this instance has already joined the spread {spread}"),
            Self::Twice { spread, key } => {
                write!(f, "the spread {spread} has the task {key:?} twice: list each key once")
            }
            Self::Rest { spread, setting, rest, least } => {
                write!(f, "{setting} ({rest:?}) of the spread {spread} must be at least {least:?}")
            }
            Self::Reserved(spread) => {
                write!(f, "the name {spread} is reserved for the spread of the schedules")
            }
            Self::Scheduled(schedule) => write!(f, "this instance already has a schedule {schedule:?}"),
            Self::Schedule { schedule, problem } => {
                write!(f, "the schedule {schedule:?} cannot be run: {}", in_words(&**problem))
            }
            Self::UnknownSchedule(schedule) => write!(
                f,
                "the schedule {schedule:?} is unknown: no instance has ever run it; use `even_if_unknown` if the name is right"
            ),
            Self::Owned { schedule, by } => write!(
                f,
                "the schedule {schedule:?} is run by {by}: remove it from the programs that have it first, or use `even_if_owned`"
            ),
            Self::Nested { lock } => {
                write!(
                    f,
                    "this job runs under the {lock} and would wait for itself: a job must not wait for its own key"
                )
            }
            Self::Thread(error) => f.write_str(&no_thread(error)),
            Self::Closed => f.write_str("the engine is closed"),
        }
    }
}

impl std::error::Error for Error {}

impl From<LimitError> for Error {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}

/// Error for an operation that the end of the runtime cut off.
pub(crate) fn shut_down() -> StoreError {
    StoreError::new("tenure", "finish an operation", Applied::Unknown, true, "the runtime is shutting down")
}

/// Error for a release that was not confirmed in time.
pub(crate) fn unconfirmed() -> StoreError {
    let cause = "no answer yet, still trying in the background";
    StoreError::new("the store", "release a lock", Applied::Unknown, true, cause)
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use expect_test::expect;

    use super::*;
    use crate::{ConfigError, ElectConfig, elect::StartError, model::Key};

    #[test]
    fn every_error_is_printed_with_its_cause_and_a_chain_says_nothing_twice() {
        let store = || StoreError::new("mongodb", "take locks", Applied::No, false, "Unauthorized (13): no");
        let schedule: ScheduleName = "nightly".parse().unwrap();
        let problem = crate::schedule::Timing::new("* *").check().unwrap_err();
        let spread: SpreadName = "topics".parse().unwrap();
        let errors = [
            Error::Limit(Key::new("").unwrap_err()),
            Error::store(store()),
            Error::NoSession { last: Some(Arc::new(store())) },
            Error::NoSession { last: None },
            Error::lost(None),
            Error::Joined(spread.clone()),
            Error::Twice { spread: spread.clone(), key: Key::new("a").unwrap() },
            Error::Rest {
                spread: spread.clone(),
                setting: "again_after",
                rest: Duration::ZERO,
                least: Duration::from_millis(10),
            },
            Error::Reserved(spread),
            Error::Scheduled(schedule.clone()),
            Error::Schedule { schedule, problem: Arc::new(problem) },
            Error::Nested {
                lock: LockId {
                    namespace: "shop".parse().unwrap(),
                    kind: crate::model::Kind::Lock,
                    key: Key::new("a").unwrap(),
                },
            },
            Error::Thread(Arc::new(std::io::Error::other("no memory"))),
            Error::Closed,
        ];
        assert!(errors.iter().all(|error| error.source().is_none()));
        let short = ElectConfig::new("shop", "pod-7").unwrap().with_settle(std::time::Duration::ZERO);
        let config: ConfigError = short.validate().unwrap_err();
        let starts = [
            StartError::Config(config),
            StartError::Store(Arc::new(store())),
            StartError::NoAnswer { waited: std::time::Duration::from_secs(3) },
            StartError::Thread(Arc::new(std::io::Error::other("no memory"))),
        ];
        assert!(starts.iter().all(|error| error.source().is_none()));
        let errors: Vec<_> = errors.iter().map(Error::to_string).collect();
        let starts: Vec<_> = starts.iter().map(StartError::to_string).collect();
        expect![[r#"
            key must not be empty
            mongodb could not take locks, nothing was changed: Unauthorized (13): no
            no valid session with the store: mongodb could not take locks, nothing was changed: Unauthorized (13): no
            no valid session with the store
            the lease is lost
            this instance has already joined the spread topics
            the spread topics has the task "a" twice: list each key once
            again_after (0ns) of the spread topics must be at least 10ms
            the name topics is reserved for the spread of the schedules
            this instance already has a schedule "nightly"
            the schedule "nightly" cannot be run: the expression "* *" has 2 fields, and must have 5, or 6 with seconds first
            this job runs under the lock "a" of shop and would wait for itself: a job must not wait for its own key
            no thread could be started for a job that blocks: no memory
            the engine is closed
            settle (0s) must be between 10ms and 30d
            could not open a session: mongodb could not take locks, nothing was changed: Unauthorized (13): no
            the store did not answer within 3s
            could not start the keeper's thread: no memory"#]]
        .assert_eq(&[errors, starts].concat().join("\n"));
    }
}
