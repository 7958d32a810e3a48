//! Handle of a spread that this instance takes part in.

use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use super::{Explanation, SpreadStatus, Task, put_back, shared::Shared, source::TaskRegistry};
use crate::{
    elect::{Elect, Error, EventFilter, EventStream, Lease},
    logic::session::LONGEST_ATTEMPT,
    model::{Key, Kind, SpreadName},
    store::{LockSeen, Share},
};

/// Spread that this instance takes part in, until this is stopped or dropped. Both are
/// [ways to give a key up](crate::elect#ways-to-give-a-key-up).
#[derive(Debug)]
#[must_use = "dropping it makes this instance leave the spread: keep it in a variable with a name, as `_topics`"]
pub struct Spread<M = ()> {
    elect: Elect,
    shared: Arc<Shared>,
    registry: Arc<TaskRegistry<M>>,
    task: JoinHandle<()>,
    #[expect(dead_code, reason = "its drop ends the part it takes")]
    stopper: DropGuard,
}

impl<M: Clone + Send + Sync + 'static> Spread<M> {
    pub(super) fn new(
        elect: Elect,
        shared: Arc<Shared>,
        registry: Arc<TaskRegistry<M>>,
        task: JoinHandle<()>,
    ) -> Self {
        let stopper = shared.stop.clone().drop_guard();
        Self { elect, shared, registry, task, stopper }
    }

    /// Name of the spread.
    #[must_use]
    pub fn name(&self) -> &SpreadName {
        &self.shared.spread
    }

    // ----- what there is

    /// Tasks that this instance has, with their leases.
    #[must_use]
    pub fn share(&self) -> BTreeMap<Key, Lease> {
        self.shared.state().has().map(|(key, worker)| (key.clone(), worker.lease.clone())).collect()
    }

    /// Returns the whole spread as this instance knows it. Makes no call.
    #[must_use]
    pub fn status(&self) -> SpreadStatus {
        SpreadStatus::of(self.elect.engine(), &self.shared)
    }

    /// Waits until the spread is as wanted, or has stopped; looks at it whenever it changes.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn until(&self, mut predicate: impl FnMut(&SpreadStatus) -> bool) -> SpreadStatus {
        let mut changes = self.shared.changed.subscribe();
        loop {
            changes.borrow_and_update();
            let status = self.status();
            if predicate(&status) || self.shared.over.is_cancelled() {
                return status;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = self.shared.over.cancelled() => {}
            }
        }
    }

    /// Follows what happens to its tasks here from now on: gained ([`Acquired`](crate::Event::Acquired)), given away
    /// or done ([`Released`](crate::Event::Released)), [lost](crate::Event::Lost),
    /// [waiting](crate::Event::Waiting) as no instance has room, [resting](crate::Event::Resting) after too many
    /// failures.
    #[must_use]
    pub fn events(&self) -> EventStream {
        self.elect.engine().events.listen(EventFilter::Kind(Kind::of_tasks(&self.shared.spread)))
    }

    /// Explains why a task is where it is. Reads its record.
    ///
    /// # Errors
    /// The key breaks a limit, or the store did not answer.
    pub async fn explain(&self, key: impl AsRef<str>) -> Result<Explanation, Error> {
        let key = Key::new(key)?;
        let seen = self.look(&key).await?;
        Ok(Explanation::of(self.elect.engine(), &self.shared, key, &seen))
    }

    /// Reads the record of a task.
    async fn look(&self, key: &Key) -> Result<LockSeen, Error> {
        let engine = self.elect.engine();
        engine.requested_look(super::reading::lock(engine, &self.shared.spread, key)).await
    }

    // ----- what is wanted

    fn change(&self, change: impl FnOnce(&mut Share)) {
        self.shared.change(|state| change(&mut state.share));
    }

    /// Sets the most tasks this instance may have.
    pub fn set_cap(&self, cap: u32) {
        self.change(|share| share.cap = cap);
    }

    /// Sets this instance's part in proportion to that of the others.
    pub fn set_weight(&self, weight: u32) {
        self.change(|share| share.weight = weight);
    }

    /// Gives its tasks away and gets no new ones, until [`undrain`](Self::undrain). See
    /// [`until`](Self::until) for its end. One of the [ways to give a key up](crate::elect#ways-to-give-a-key-up).
    pub fn drain(&self) {
        self.shared.change(|state| state.drains = true);
    }

    /// Takes its part again.
    pub fn undrain(&self) {
        self.shared.change(|state| state.drains = false);
    }

    /// Keeps its tasks, and neither gives nor takes, until [`resume`](Self::resume): for an operator who looks into
    /// something.
    pub fn pause(&self) {
        self.change(|share| share.paused = true);
    }

    /// Gives and takes again.
    pub fn resume(&self) {
        self.change(|share| share.paused = false);
    }

    /// Adds this task, or replaces the one of the same key. Instances that know different tasks share out those they
    /// have in common: add it in all of them.
    pub fn add(&self, task: Task<M>) {
        self.registry.add(task);
    }

    /// Removes the task of this key: its job here is cancelled, and others that know it go on with it. One of the
    /// [ways to give a key up](crate::elect#ways-to-give-a-key-up).
    ///
    /// # Errors
    /// The key breaks a limit.
    pub fn remove(&self, key: impl AsRef<str>) -> Result<(), Error> {
        self.remove_task(&Key::new(key)?);
        Ok(())
    }

    pub(crate) fn remove_task(&self, key: &Key) {
        self.registry.remove(key);
    }

    /// Replaces all tasks by these.
    pub fn replace(&self, tasks: impl IntoIterator<Item = Task<M>>) {
        self.registry.replace(tasks);
    }

    /// Has a task tried again now that rests after [too many failures](crate::Event::Resting), by the instance that
    /// is to have it. Returns whether it rested. May be called in any instance.
    ///
    /// # Errors
    /// The key breaks a limit, its record cannot be written, or the store did not answer.
    pub async fn put_back(&self, key: impl AsRef<str>) -> Result<bool, Error> {
        let LockSeen::Found(record) = self.look(&Key::new(key)?).await? else { return Ok(false) };
        put_back::one(self.elect.engine(), record).await
    }

    /// Puts back all tasks of the spread that rest. Returns their number.
    ///
    /// # Errors
    /// A record cannot be written, or the store did not answer; some may have been put back.
    pub async fn put_back_all(&self) -> Result<usize, Error> {
        put_back::all(self.elect.engine(), &self.shared.spread).await
    }

    // ----- its end

    /// Ends the part this instance takes: cancels every job and waits for it, and leaves its tasks to the others.
    /// Bounded by the grace and two attempts at the store. One of the
    /// [ways to give a key up](crate::elect#ways-to-give-a-key-up).
    ///
    /// # Cancel safety
    /// Dropped, it ends all the same.
    pub async fn stop(self) {
        self.shared.stop.cancel();
        let patience = self.elect.engine().times.stop_grace + LONGEST_ATTEMPT * 2;
        // An error says that it takes longer, and goes on.
        let _ = tokio::time::timeout(patience, self.task).await;
    }
}
