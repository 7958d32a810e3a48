//! A spread that is taken part in.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use super::{
    Change, Explanation, Picture, Task,
    shell::{Shared, Work},
    source::Book,
};
use crate::{
    core::session::LONGEST_ATTEMPT,
    elect::{Closed, Elect, Error, EventStream, Lease, Only, careful},
    model::{Key, Kind, Request, Share, SpreadName, Why},
    store::{LockSeen, Revocation, RevokeAnswer},
};

/// A spread that this instance takes part in, until this is stopped or dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the part this instance takes"]
pub struct Spread<M = ()> {
    elect: Elect,
    shared: Arc<Shared>,
    book: Arc<Book<M>>,
    task: JoinHandle<()>,
    #[expect(dead_code, reason = "its drop ends the part it takes")]
    stopper: DropGuard,
}

impl<M: Clone + Send + Sync + 'static> Spread<M> {
    pub(super) fn new(elect: Elect, shared: Arc<Shared>, book: Arc<Book<M>>, task: JoinHandle<()>) -> Self {
        let stopper = shared.stop.clone().drop_guard();
        Self { elect, shared, book, task, stopper }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &SpreadName {
        &self.shared.spread
    }

    // ----- what there is

    /// The tasks that this instance has, with their leases.
    #[must_use]
    pub fn share(&self) -> BTreeMap<Key, Lease> {
        let state = self.shared.state();
        let has = |(key, work): (&Key, &Work)| match work {
            Work::Has(worker) => Some((key.clone(), worker.lease.clone())),
            Work::Asks { .. } | Work::Waits(_) => None,
        };
        state.mine.iter().filter_map(has).collect()
    }

    /// The whole spread, as this instance knows it. It asks nobody.
    #[must_use]
    pub fn picture(&self) -> Picture {
        Picture::of(self.elect.engine(), &self.shared)
    }

    /// Until the picture is so, or the spread has stopped; looks at it whenever it changes.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn until(&self, mut is_so: impl FnMut(&Picture) -> bool) -> Picture {
        let mut changes = self.shared.changed.subscribe();
        loop {
            changes.borrow_and_update();
            let picture = self.picture();
            if is_so(&picture) || self.shared.over.is_cancelled() {
                return picture;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = self.shared.over.cancelled() => {}
            }
        }
    }

    /// What happens to its tasks here from now on: gained ([`Acquired`](crate::Event::Acquired)), given away or
    /// done ([`Released`](crate::Event::Released)), [lost](crate::Event::Lost),
    /// [waiting](crate::Event::Waiting) because nobody has room, [set aside](crate::Event::SetAside).
    #[must_use]
    pub fn events(&self) -> EventStream {
        self.elect.engine().events.listen(Only::Kind(Kind::Task(self.shared.spread.clone())))
    }

    /// Why a task is where it is. Reads its record.
    ///
    /// # Errors
    /// The key breaks a limit, or the store did not answer.
    pub async fn explain(&self, key: impl AsRef<str>) -> Result<Explanation, Error> {
        let key = Key::new(key)?;
        let engine = self.elect.engine();
        let limit = engine.limit();
        let lock = super::reading::lock(engine, &self.shared.spread, &key);
        let mut seen = careful(limit, engine.store.locks(vec![lock], limit)).await.map_err(Error::store)?;
        Ok(Explanation::of(engine, &self.shared, key, &seen.pop().unwrap_or(LockSeen::Absent)))
    }

    // ----- what is wanted

    fn change(&self, change: impl FnOnce(&mut Share)) {
        self.shared.change(|state| change(&mut state.share));
    }

    /// The most tasks this instance may have, from now on.
    pub fn set_cap(&self, cap: u32) {
        self.change(|share| share.cap = cap);
    }

    /// Its part in proportion to that of the others, from now on.
    pub fn set_weight(&self, weight: u32) {
        self.change(|share| share.weight = weight);
    }

    /// Gives its tasks away and gets no new ones, until [`undrain`](Self::undrain). See
    /// [`until`](Self::until) for its end.
    pub fn drain(&self) {
        self.change(|share| share.draining = true);
    }

    /// Takes its part again.
    pub fn undrain(&self) {
        self.change(|share| share.draining = false);
    }

    /// Keeps what it has, and neither gives nor takes, until [`resume`](Self::resume): for somebody who looks
    /// into something.
    pub fn pause(&self) {
        self.change(|share| share.paused = true);
    }

    /// Gives and takes again.
    pub fn resume(&self) {
        self.change(|share| share.paused = false);
    }

    /// There is this task, too, or in place of the one of the same key. Instances that know different tasks
    /// share out those they know alike: tell all of them.
    pub fn add(&self, task: Task<M>) {
        self.book.apply(Change::Add(task));
    }

    /// There is no task of this key any more.
    pub fn remove(&self, key: &Key) {
        self.book.apply(Change::Remove(key.clone()));
    }

    /// There are these tasks, and no others.
    pub fn replace(&self, tasks: impl IntoIterator<Item = Task<M>>) {
        self.book.apply(Change::Replace(tasks.into_iter().collect()));
    }

    /// Has a task tried again that was [set aside](crate::Event::SetAside), here or by another instance. Says
    /// whether somebody holds it who can be asked.
    ///
    /// # Errors
    /// The key breaks a limit, or the store did not answer.
    pub async fn put_back(&self, key: impl AsRef<str>) -> Result<bool, Error> {
        let key = Key::new(key)?;
        if self.shared.change(|state| state.put_back(&key)) {
            return Ok(true);
        }
        let engine = self.elect.engine();
        let limit = engine.limit();
        let lock = super::reading::lock(engine, &self.shared.spread, &key);
        let seen =
            careful(limit, engine.store.locks(vec![lock.clone()], limit)).await.map_err(Error::store)?;
        let Some(LockSeen::Found(record)) = seen.first() else { return Ok(false) };
        let is_aside = |held: &&crate::model::Holding| {
            let value = held.by.value.as_ref();
            value.is_some_and(|value| value.as_bytes().starts_with(super::worker::SET_ASIDE.as_bytes()))
        };
        let Some(held) = record.holding.as_ref().filter(is_aside) else { return Ok(false) };
        // Its holder gives it back, and another one tries it.
        let by = engine.config.holder().clone();
        let request = Request { lock: lock.clone(), term: record.term, by, why: Why::shortened("put back") };
        let ask = Revocation::Ask { session: held.by.session, request };
        match careful(limit, engine.store.revoke(ask, limit)).await.map_err(Error::store)? {
            RevokeAnswer::Asked | RevokeAnswer::Freed(_) => Ok(true),
            RevokeAnswer::NotHeld => Ok(false),
            RevokeAnswer::Refused(refusal) => Err(Error::Refused { lock, refusal }),
        }
    }

    // ----- its end

    /// Ends the part this instance takes: every job is told and waited for, and its tasks go to the others.
    /// Bounded by the grace and two attempts at the store.
    ///
    /// # Cancel safety
    /// Dropped, it ends all the same.
    pub async fn stop(self) {
        self.shared.stop.cancel();
        let patience = self.elect.engine().times.stop_grace + LONGEST_ATTEMPT * 2;
        // An error says that it takes longer, and goes on.
        let _ = tokio::time::timeout(patience, self.task).await;
    }

    /// Closes the whole instance, and keeps its tasks for the next one of the same holder's name. See
    /// [`Elect::close_for_restart`].
    pub async fn close_for_restart(self, grace: Duration) -> Closed {
        self.elect.close_for_restart(grace).await
    }
}
