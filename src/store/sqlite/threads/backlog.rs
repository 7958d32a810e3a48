//! The backlog: operations that wait for a thread of the store.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, PoisonError},
};

use super::trouble::Trouble;
use crate::{
    error::Applied,
    model::StoreTime,
    store::{
        Bell,
        sqlite::rows::{Outcome, SqlRows},
    },
    sync::locked,
};

/// An operation whose caller waits for it.
pub(crate) trait Job: Send {
    /// Returns whether its answer may be given only once a disk has it.
    fn is_synced(&self) -> bool;
    /// Returns whether no caller waits for it any more, and it has not begun: then it never does.
    fn is_given_up(&self) -> bool;
    /// Begins it, unless it was given up.
    fn begin(&self) -> bool;
    /// Does it, within a transaction. Keeps the answer until that has ended. Done again if that was given up.
    fn run(&mut self, rows: &mut SqlRows<'_>, now: StoreTime) -> Outcome<()>;
    /// Returns the bells that it rang.
    fn rung(&self) -> &[Bell];
    /// Answers: the transaction has ended.
    fn answer(self: Box<Self>, ended: Result<(), (Trouble, Applied)>);
}

/// Operations in the order in which they came.
#[derive(Default)]
pub(crate) struct Backlog {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Box<dyn Job>>,
    is_closed: bool,
    /// The trouble that keeps the thread from doing anything at present.
    trouble: Option<Trouble>,
}

impl Backlog {
    /// Puts a job at the end. If the backlog is closed, it is answered so.
    pub(crate) fn push(&self, job: Box<dyn Job>) {
        let mut waiting = locked(&self.waiting);
        if waiting.is_closed {
            drop(waiting);
            job.answer(Err((Trouble::ended(), Applied::No)));
            return;
        }
        waiting.jobs.push_back(job);
        drop(waiting);
        self.came.notify_one();
    }

    /// Waits until there is something to do. Says whether a disk has to have it; nothing once the backlog is closed and
    /// empty.
    pub(crate) fn wait(&self) -> Option<bool> {
        let mut waiting = locked(&self.waiting);
        loop {
            waiting.jobs.retain(|job| !job.is_given_up());
            if !waiting.jobs.is_empty() {
                return Some(waiting.jobs.iter().any(|job| job.is_synced()));
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.came.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes so many jobs, and begins them. Without a sync only the jobs that need none.
    pub(crate) fn begin(&self, is_synced: bool, at_most: usize) -> Vec<Box<dyn Job>> {
        let mut begun = Vec::new();
        let mut waiting = locked(&self.waiting);
        let jobs = std::mem::take(&mut waiting.jobs);
        for job in jobs {
            if begun.len() == at_most || (job.is_synced() && !is_synced) {
                waiting.jobs.push_back(job);
            } else if job.begin() {
                begun.push(job);
            }
        }
        begun
    }

    /// No job can be done at present, for this reason.
    pub(crate) fn held_up(&self, trouble: Trouble) {
        locked(&self.waiting).trouble = Some(trouble);
    }

    /// Something can be done again.
    pub(crate) fn goes_on(&self) {
        locked(&self.waiting).trouble = None;
    }

    /// Why a caller had to wait for longer than was allowed.
    pub(crate) fn why_late(&self) -> Trouble {
        locked(&self.waiting).trouble.clone().unwrap_or_else(Trouble::out_of_time)
    }

    /// Lets no job in any more. The waiting jobs are done.
    pub(crate) fn close(&self) {
        locked(&self.waiting).is_closed = true;
        self.came.notify_all();
    }

    /// Lets no job in any more: the waiting jobs are not done.
    pub(crate) fn give_up(&self) {
        self.close();
        let jobs = std::mem::take(&mut locked(&self.waiting).jobs);
        for job in jobs {
            job.answer(Err((Trouble::ended(), Applied::No)));
        }
    }
}
