//! Invariants of every history: a small checker for each.
//!
//! None of them knows the engine: they judge by what the store applied, by what went over the wire, and
//! by what the programs saw.

mod closing;
mod early_cancel;
mod events;
mod exclusion;
mod fence;
mod grant;
mod leak;
mod liveness;
mod release;
mod spreading;
mod terms;
mod theft;
mod ticks;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Entry, Life, Registry, TickId};
use tenure::{
    model::{SessionId, StoreTime, Term},
    store::Ticket,
};

/// Lateness allowed for what is due: timers have whole milliseconds, and clocks run at different rates.
pub const SLACK: Duration = Duration::from_millis(60);

/// Judges a history.
pub trait Invariant: Send {
    /// Name in reports.
    fn name(&self) -> &'static str;

    /// Judges the next entry. The registry is as it was before.
    ///
    /// # Errors
    /// The violation, in words.
    fn see(&mut self, registry: &Registry, entry: &Entry) -> Result<(), String> {
        let _ = (registry, entry);
        Ok(())
    }

    /// Judges the state at the end of a stage.
    ///
    /// # Errors
    /// The violation, in words, and its key.
    fn judge(&mut self, registry: &Registry, stage: &Stage) -> Result<(), (String, Option<usize>)> {
        let _ = (registry, stage);
        Ok(())
    }
}

/// A stage of a run at which all is judged.
#[derive(Clone, Debug)]
pub enum Stage {
    /// There was no fault for long enough, and every instance contends for every key.
    Settled(Census),
    /// Every instance was closed, some time ago.
    Closed(Census),
}

/// Contents of the store and of the instances.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// The keys that a healthy instance contends for.
    pub wanted: Vec<usize>,
    /// The locks that are held.
    pub held: Vec<(usize, Term, SessionId)>,
    /// Tasks that a member gave up, or that an operator took from it, as the locks' records say, by its number.
    pub gave_up: BTreeSet<(usize, usize)>,
    /// The sessions that were not declared dead.
    pub alive: Vec<SessionId>,
    /// Waiters in the queues.
    pub waiters: Vec<(usize, SessionId, Ticket)>,
    /// The instances that were closed, and the tasks that are left of them.
    pub lives: Vec<(Life, Vec<String>)>,
    /// Ledgers of the schedules.
    pub ledgers: BTreeMap<usize, StoreLedger>,
    /// Reading of the store's clock.
    pub store_shows: Option<StoreTime>,
}

/// Ledger of a schedule.
#[derive(Clone, Debug, Default)]
pub struct StoreLedger {
    /// Entries, and the attempt of each.
    pub entries: BTreeMap<TickId, u32>,
    /// Mark: ticks up to it may have been purged.
    pub mark: Option<StoreTime>,
}

pub(super) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        // First the one that says most about what is wrong.
        Box::new(terms::Terms::default()),
        Box::new(theft::NoTheft),
        Box::new(closing::Closing),
        Box::new(grant::Granted),
        Box::new(early_cancel::EarlyCancel),
        Box::new(exclusion::Exclusion),
        Box::new(fence::Fence::default()),
        Box::new(events::EventOrder::default()),
        Box::new(release::Released),
        Box::new(liveness::Liveness),
        Box::new(spreading::Spreading::default()),
        Box::new(ticks::Ticks::default()),
        Box::new(leak::NoLeak::default()),
    ]
}
