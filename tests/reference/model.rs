//! What a store must answer, told as histories.
//!
//! Nothing here is shaped like the records of a store. A lock is the list of all grants there ever
//! were; who holds it, its past holders and whether a term is right follow from the list. A session
//! is what was said at its opening and since. Times are taken as they come, and must then stay.

mod locks;
mod queue;
mod runs;
mod sessions;

use std::collections::{BTreeMap, HashMap};

use tenure::model::{LockId, RunId, ScheduleId, SessionId, StoreTime};

pub use locks::{Grant, Lock};
pub use queue::Place;
pub use runs::Attempt;
pub use sessions::Life;

/// What the store did wrong, if it did.
pub type Check = Result<(), String>;

macro_rules! ensure {
    ($holds:expr, $($said:tt)+) => {
        if !$holds {
            return Err(format!($($said)+));
        }
    };
}
pub(crate) use ensure;

/// What is known of one namespace.
#[derive(Debug, Default)]
pub struct Model {
    pub lives: HashMap<SessionId, Life>,
    pub locks: HashMap<LockId, Lock>,
    /// In the order they came.
    pub line: Vec<Place>,
    pub ticks: BTreeMap<RunId, Attempt>,
    pub marks: HashMap<ScheduleId, StoreTime>,
    /// How often the store's clock was turned: after that, nothing is known of what is over.
    pub turns: u64,
    /// How often it was turned ahead by more than a day.
    pub weeks: u64,
}

/// A thing the store chose (a time, mostly): taken as it comes first, and the same ever after.
#[derive(Clone, Debug)]
pub struct Once<T>(Option<T>);

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Clone + PartialEq + std::fmt::Debug> Once<T> {
    pub fn meet(&mut self, what: &str, seen: &T) -> Check {
        let known = self.0.get_or_insert_with(|| seen.clone());
        ensure!(known == seen, "{what} was {known:?}, and is {seen:?} now");
        Ok(())
    }

    pub fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }
}
