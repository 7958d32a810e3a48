//! Names of locks: the namespace, the kind and the key.

use std::{fmt, sync::LazyLock};

use serde::Serialize;

use super::{Key, Namespace, SpreadName};

/// Sort of thing a key names. Keys of different kinds never meet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A lock, asked for by name.
    Lock,
    /// A schedule.
    Schedule,
    /// A task of a spread.
    Task(SpreadName),
}

/// The spread whose tasks are the schedules.
pub(crate) const SCHEDULES: &str = "tenure.schedules";

impl Kind {
    /// Returns the kind of a spread's tasks; of the spread of schedules, which is called `tenure.schedules`, they are
    /// the schedules.
    #[must_use]
    pub fn of_tasks(spread: &SpreadName) -> Self {
        if spread.as_str() == SCHEDULES { Self::Schedule } else { Self::Task(spread.clone()) }
    }

    /// The spread that keys of this kind are tasks of, if they are.
    #[must_use]
    pub fn spread(&self) -> Option<SpreadName> {
        match self {
            Self::Lock => None,
            Self::Schedule => Some(schedules()),
            Self::Task(spread) => Some(spread.clone()),
        }
    }

    /// Returns the kind that is displayed so.
    #[cfg(any(feature = "mongodb", feature = "sqlite"))]
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        match text {
            "lock" => Some(Self::Lock),
            "schedule" => Some(Self::Schedule),
            _ => SpreadName::new(text.strip_prefix("task:")?).ok().map(Self::Task),
        }
    }
}

/// The name of the spread whose tasks are the schedules.
pub(crate) fn schedules() -> SpreadName {
    static NAME: LazyLock<SpreadName> = LazyLock::new(|| SpreadName::new(SCHEDULES).expect("it is a name"));
    NAME.clone()
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str("lock"),
            Self::Schedule => f.write_str("schedule"),
            Self::Task(spread) => write!(f, "task:{spread}"),
        }
    }
}

/// Names one lock in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LockId {
    /// Namespace of the key.
    pub namespace: Namespace,
    /// Kind of key.
    pub kind: Kind,
    /// The key.
    pub key: Key,
}

impl fmt::Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} of {}", self.kind, self.key, self.namespace)
    }
}
