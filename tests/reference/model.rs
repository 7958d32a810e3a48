//! Answers that a store must give, told as histories.
//!
//! Nothing here is shaped like the records of a store. A lock is the list of all grants there ever
//! were; who holds it, its past holders and whether a term is right follow from the list. A session
//! is what was said at its opening and since. Times are taken as they come, and must then stay.

mod locks;
mod queue;
mod runs;
mod schedules;
mod sessions;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use tenure::model::{LockId, RunId, ScheduleId, SessionId, StoreTime};

pub(crate) use locks::Lock;
pub(crate) use queue::Place;
pub(crate) use runs::Attempt;
pub(crate) use schedules::Said;
pub(crate) use sessions::Life;

/// Error of the store, if it made one.
pub(crate) type Check = Result<(), String>;

macro_rules! ensure {
    ($holds:expr, $($said:tt)+) => {
        if !$holds {
            return Err(format!($($said)+));
        }
    };
}
pub(crate) use ensure;

/// Knowledge about one namespace.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) lives: HashMap<SessionId, Life>,
    pub(crate) locks: HashMap<LockId, Lock>,
    /// In the order they came.
    pub(crate) queue: Vec<Place>,
    pub(crate) ticks: BTreeMap<RunId, Attempt>,
    pub(crate) said: HashMap<ScheduleId, Said>,
    pub(crate) marks: HashMap<ScheduleId, StoreTime>,
    /// Number of turns of the store's clock: after one, nothing is known of what is over.
    pub(crate) turns: u64,
    /// Number of turns ahead by more than a day.
    pub(crate) weeks: u64,
    /// Counts of what was met: answers by their names, ends of grants, what was purged.
    pub(crate) met: BTreeMap<String, u64>,
}

impl Model {
    /// Notes that an operation was answered so.
    pub(crate) fn meet(&mut self, operation: &str, answer: &impl fmt::Debug) {
        /// Takes the first word, and then no more.
        struct Word(String);

        impl fmt::Write for Word {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                let word: String = text.chars().take_while(|c| c.is_alphanumeric()).collect();
                self.0 += &word;
                if word.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
            }
        }

        let mut word = Word(String::new());
        // An error is the end of the word.
        let _ = fmt::write(&mut word, format_args!("{answer:?}"));
        *self.met.entry(format!("{operation}: {}", word.0)).or_default() += 1;
    }
}

/// A thing the store chose (a time, mostly): taken as it comes first, and the same ever after.
#[derive(Clone, Debug)]
pub(crate) struct Once<T>(Option<T>);

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Clone + PartialEq + std::fmt::Debug> Once<T> {
    pub(crate) fn meet(&mut self, what: &str, seen: &T) -> Check {
        let known = self.0.get_or_insert_with(|| seen.clone());
        ensure!(known == seen, "{what} was {known:?}, and is {seen:?} now");
        Ok(())
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }
}
