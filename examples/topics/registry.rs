//! Registry of the runs in this process, by which the example is judged.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tenure::model::Key;

/// Subscriptions that run, and where.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    running: BTreeMap<Key, Arc<str>>,
    /// Instance on which each ran last.
    last: BTreeMap<Key, Arc<str>>,
    starts: usize,
    /// Number that were begun elsewhere than before, since the last question.
    moved: usize,
    /// Subscriptions that were started while they ran already.
    twice: Vec<String>,
}

/// Summary of the runs.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) starts: usize,
    pub(crate) running: usize,
    pub(crate) twice: Vec<String>,
}

/// A subscription that runs, until this is dropped: also if its job is dropped half-way.
#[derive(Debug)]
pub(crate) struct Running {
    registry: Arc<Registry>,
    key: Key,
}

impl Registry {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(self: &Arc<Self>, key: &Key, at: &Arc<str>) -> Running {
        let mut entries = self.entries();
        entries.starts += 1;
        if let Some(other) = entries.running.insert(key.clone(), at.clone()) {
            entries.twice.push(format!("{key} ran at {at} while it ran at {other}"));
        }
        if entries.last.insert(key.clone(), at.clone()).is_some_and(|last| last != *at) {
            entries.moved += 1;
        }
        Running { registry: self.clone(), key: key.clone() }
    }

    pub(crate) fn running(&self) -> usize {
        self.entries().running.len()
    }

    /// Number that have moved since the last question.
    pub(crate) fn take_moved(&self) -> usize {
        mem::take(&mut self.entries().moved)
    }

    pub(crate) fn summary(&self) -> Summary {
        let entries = self.entries();
        Summary { starts: entries.starts, running: entries.running.len(), twice: entries.twice.clone() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.registry.entries().running.remove(&self.key);
    }
}
