//! What a job gets with its lock.

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Engine, Error, JobEnd, Work, job, session::Session};
use crate::{
    clock::Moment,
    logic::{flaw::Flaw, key::Handback},
    model::{Key, LockId, Loss, SessionId, StoreTime, Term, Ticket, Value},
    store::{LockSeen, SetAnswer, SetValue},
    sync::locked,
};

/// A lock in the hands of this process, for as long as something runs under it.
pub(crate) struct LeaseCell {
    engine: Arc<Engine>,
    pub(crate) session: Arc<Session>,
    pub(crate) lock: LockId,
    pub(crate) ticket: Ticket,
    pub(crate) term: Term,
    pub(crate) since: StoreTime,
    granted: Moment,
    token: CancellationToken,
    /// Something was said that concerns those who run.
    changed: Notify,
    state: Mutex<LeaseState>,
}

#[derive(Debug, Default)]
struct LeaseState {
    /// Why it is lost, once it is.
    loss: Option<Loss>,
    /// When what still runs is dropped.
    drop_at: Option<Moment>,
    /// How many futures and calls run under it.
    workers: u32,
    /// When nothing more was to be polled under it, because the lock itself was lost.
    cut_at: Option<Moment>,
    /// Its owner is done with it; it goes back when the last worker has left, and lets the engine go.
    closing: Option<(Handback, Option<Arc<super::Life>>)>,
    /// The key has been given back.
    parted: bool,
    /// The number of the last change of the value.
    value_set: u64,
    /// The value is the program's, if there is one.
    speaks: bool,
}

impl fmt::Debug for LeaseCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("lock", &self.lock)
            .field("term", &self.term)
            .field("loss", &self.state().loss)
            .finish_non_exhaustive()
    }
}

impl LeaseCell {
    pub(crate) fn new(
        engine: Arc<Engine>,
        session: Arc<Session>,
        lock: LockId,
        ticket: Ticket,
        term: Term,
        since: StoreTime,
    ) -> Arc<Self> {
        let granted = engine.clock.now();
        Arc::new(Self {
            engine,
            session,
            lock,
            ticket,
            term,
            since,
            granted,
            token: CancellationToken::new(),
            changed: Notify::new(),
            state: Mutex::default(),
        })
    }

    /// From now on it is told what becomes of its session. Nothing begins in a doubt, or after the end:
    /// then nobody is told of it, and the answer is no.
    pub(crate) fn begin(self: &Arc<Self>) -> bool {
        self.session.enter(self, self.granted, || self.engine.lease_granted(self))
    }

    fn state(&self) -> MutexGuard<'_, LeaseState> {
        locked(&self.state)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    fn now(&self) -> Moment {
        self.engine.clock.now()
    }

    /// Tells those who run to stop within the grace. The first reason stands.
    pub(crate) fn cancel(&self, loss: Loss) {
        let drop_at = self.now() + self.session.times.stop_grace;
        self.tell(loss, drop_at);
        if self.session.flaws.has(Flaw::ReleaseBeforeDrain) {
            let (engine, lock, ticket, term) =
                (self.engine.clone(), self.lock.clone(), self.ticket, self.term);
            // Later: whoever cancels may have the key in hand.
            self.engine.runtime.spawn(async move {
                engine.keys.ended(&engine, &lock, ticket, term, Handback::default());
            });
        }
    }

    /// Nothing is polled under it any more: somebody else may hold the lock.
    pub(crate) fn cut(&self, loss: Loss) {
        let now = self.now();
        self.state().cut_at.get_or_insert(now);
        self.tell(loss, Moment::after_start(Duration::ZERO));
    }

    fn tell(&self, loss: Loss, drop_at: Moment) {
        {
            let mut state = self.state();
            if state.parted {
                return;
            }
            // The first reason stands; but what was given up and ran out before it was given back is lost.
            let first = match &state.loss {
                None => true,
                Some(before) => before.is_wanted() && state.cut_at.is_some() && !loss.is_wanted(),
            };
            if first {
                self.engine.lease_lost(self, &loss);
                state.loss = Some(loss);
            }
            state.drop_at = Some(state.drop_at.map_or(drop_at, |before| before.min(drop_at)));
        }
        self.token.cancel();
        self.changed.notify_waiters();
    }

    /// Why nothing more may be polled under it, if so (R9). Whoever finds first that its session is over
    /// tells of it: that may be a poll, when the process was frozen until now.
    pub(crate) fn must_stop(&self, now: Moment) -> Option<Loss> {
        self.find_out(now);
        self.stops(now)
    }

    /// The same, for those who only look.
    fn stops(&self, now: Moment) -> Option<Loss> {
        if let Some(loss) = self.session.loss(now) {
            return Some(self.state().loss.clone().unwrap_or(loss));
        }
        let state = self.state();
        state.loss.clone().filter(|_| state.drop_at.is_some_and(|at| now >= at))
    }

    fn find_out(&self, now: Moment) {
        let known = self.state().cut_at.is_some();
        if let Some(loss) = self.session.loss(now).filter(|_| !known) {
            self.cut(loss);
        }
    }

    /// By how much what returns now went past the end of the lease, if it did.
    pub(crate) fn overrun(&self, now: Moment) -> Option<(Duration, Loss)> {
        let end = self.session.end();
        let (cut_at, loss) = {
            let state = self.state();
            (state.cut_at, state.loss.clone())
        };
        let since = if now >= end { cut_at.map_or(end, |cut| cut.min(end)) } else { cut_at? };
        Some((now.since(since), loss.or_else(|| self.session.loss(now))?))
    }

    /// Until nothing more may be polled under it.
    pub(crate) async fn stopped(&self) {
        let mut changed = std::pin::pin!(self.changed.notified());
        loop {
            changed.as_mut().enable();
            let now = self.now();
            if self.must_stop(now).is_some() {
                return;
            }
            // The keeper tells when the session is over; only a grace has an end of its own.
            let drop_at = self.state().drop_at;
            if let Some(at) = drop_at {
                let at = at.min(self.session.end());
                tokio::select! {
                    biased;
                    () = changed.as_mut() => changed.set(self.changed.notified()),
                    () = tokio::time::sleep(at.since(now)) => {}
                }
            } else {
                changed.as_mut().await;
                changed.set(self.changed.notified());
            }
        }
    }

    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        let parted = self.state().parted;
        !parted && self.stops(now).is_none()
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        if !self.is_valid(now) {
            return Duration::ZERO;
        }
        let end = self.session.end();
        self.state().drop_at.map_or(end, |at| at.min(end)).since(now)
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        let told = self.state().loss.clone();
        told.or_else(|| self.session.loss(self.now()))
    }

    pub(crate) fn held_for(&self) -> Duration {
        self.now().since(self.granted)
    }

    /// Whether something runs under it, or its owner has not let go.
    pub(crate) fn runs(&self) -> bool {
        !self.state().parted
    }

    // ----- those who run under it

    /// Somebody begins to run under it; unless its owner is done with it.
    pub(super) fn enter(self: &Arc<Self>) -> Option<RunPermit> {
        let mut state = self.state();
        if state.closing.is_some() {
            return None;
        }
        state.workers += 1;
        Some(RunPermit(self.clone()))
    }

    /// Until only one runs under it: calls that block may go on after all else has ended.
    pub(crate) async fn alone(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.state().workers <= 1 {
                return;
            }
            changed.await;
        }
    }

    /// Its owner is done with it. It goes back once nothing runs under it.
    fn close(&self, parting: Handback, life: Option<Arc<super::Life>>) {
        // What ran out before it was given back is lost, whoever comes to know it.
        self.find_out(self.now());
        let go = {
            let mut state = self.state();
            if state.closing.is_none() {
                state.closing = Some((parting, life));
            }
            if state.workers > 0 {
                let grace = self.now() + self.session.times.stop_grace;
                state.loss.get_or_insert(Loss::Resigned);
                state.drop_at.get_or_insert(grace);
            }
            state.may_go()
        };
        self.token.cancel();
        self.changed.notify_waiters();
        if let Some(parting) = go {
            self.part(parting);
        }
    }

    fn part(&self, (parting, life): (Handback, Option<Arc<super::Life>>)) {
        let lost = self.state().loss.as_ref().is_some_and(|loss| !loss.is_wanted());
        self.engine.lease_parted(self, lost);
        self.session.left(self.ticket);
        self.engine.keys.ended(&self.engine, &self.lock, self.ticket, self.term, parting);
        // Last: the engine may end with it.
        drop(life);
    }
}

impl LeaseState {
    fn next_value(&mut self) -> u64 {
        self.value_set += 1;
        self.value_set
    }

    /// The parting, once: when the owner is done and nobody runs.
    fn may_go(&mut self) -> Option<(Handback, Option<Arc<super::Life>>)> {
        let go = self.workers == 0 && self.closing.is_some() && !self.parted;
        self.parted |= go;
        // What is left behind says that the owner is done.
        if go { self.closing.replace((Handback::default(), None)) } else { None }
    }
}

/// Somebody who runs under a lease. The lock is not released while there is one.
#[derive(Debug)]
pub(crate) struct RunPermit(Arc<LeaseCell>);

impl Drop for RunPermit {
    fn drop(&mut self) {
        self.0.find_out(self.0.now());
        let go = {
            let mut state = self.0.state();
            state.workers -= 1;
            state.may_go()
        };
        self.0.changed.notify_waiters();
        if let Some(parting) = go {
            self.0.part(parting);
        }
    }
}

/// The one that owns a granted lock. Dropping it gives the lock back, when nothing runs under it any
/// more; from any thread, also outside a runtime.
#[derive(Debug)]
pub(crate) struct Hold {
    cell: Arc<LeaseCell>,
    /// Keeps the engine alive.
    life: Option<Arc<super::Life>>,
    /// The least time the key stays closed to others, counted from the grant.
    at_least: Duration,
    /// To whom, and what to say.
    parting: Handback,
}

impl Hold {
    pub(crate) fn new(cell: Arc<LeaseCell>, life: Option<Arc<super::Life>>, at_least: Duration) -> Self {
        Self { cell, life, at_least, parting: Handback::default() }
    }

    pub(crate) fn cell(&self) -> &Arc<LeaseCell> {
        &self.cell
    }

    pub(crate) fn lease(&self) -> Lease {
        Lease::of(self.cell.clone())
    }

    /// Somebody begins to run under it.
    pub(crate) fn work(&self) -> RunPermit {
        self.cell.enter().expect("the owner has not let go")
    }

    pub(crate) fn part_with(&mut self, parting: Handback) {
        self.parting = parting;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut parting = std::mem::take(&mut self.parting);
        let rest = self.at_least.saturating_sub(self.cell.held_for());
        // The store keeps whole milliseconds.
        let rest = Duration::from_millis(u64::try_from(rest.as_micros().div_ceil(1000)).unwrap_or(u64::MAX));
        parting.closed_for = parting.closed_for.max(rest);
        self.cell.close(parting, self.life.take());
    }
}

/// The right to do one thing, for a time.
///
/// A lease is given to a job with its lock. It is valid until the lock is released or lost, by this
/// machine's clock; [`is_valid`](Self::is_valid) and [`remaining`](Self::remaining) compute it at each
/// call. When it is about to end, its [token](Self::token) is cancelled: the job should then return
/// within `stop_grace`. A job that does not is dropped at its next `.await`, and no poll of it begins
/// after the lease has ended.
///
/// What the job writes elsewhere should carry the [term](Self::term): a write that is under way when
/// the lease ends may arrive late.
///
/// Clones are the same lease.
#[derive(Clone)]
pub struct Lease {
    pub(super) cell: Arc<LeaseCell>,
    /// Fires with the lease's own; that of one run of a schedule may fire before.
    token: CancellationToken,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.cell, f)
    }
}

impl Lease {
    pub(crate) fn of(cell: Arc<LeaseCell>) -> Self {
        let token = cell.token.clone();
        Self { cell, token }
    }

    pub(crate) fn session(&self) -> SessionId {
        self.cell.session.id
    }

    /// Something that runs under it panicked.
    pub(crate) fn panicked(&self, message: &str) {
        self.cell.engine.panicked(&self.cell, message);
    }

    /// Tells this part of the job to stop.
    pub(crate) fn stop(&self) {
        self.token.cancel();
    }

    /// The same lease for a part of the job, which may be told to stop before the rest.
    pub(crate) fn narrowed(&self) -> Self {
        Self { cell: self.cell.clone(), token: self.token.child_token() }
    }

    /// The lease of the whole job, of which this may be a part.
    #[cfg(tenure_sim)]
    #[doc(hidden)]
    #[must_use]
    pub fn whole(&self) -> Self {
        Self::of(self.cell.clone())
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.cell.lock.key
    }

    /// The lock as the store names it: namespace, kind and key.
    #[must_use]
    pub fn lock(&self) -> &LockId {
        &self.cell.lock
    }

    /// The fencing number: larger than that of every earlier holder.
    #[must_use]
    pub fn term(&self) -> Term {
        self.cell.term
    }

    /// Since when, by the store's clock.
    #[must_use]
    pub fn acquired_at(&self) -> StoreTime {
        self.cell.since
    }

    /// Whether the lock is still held, as far as this machine can tell without asking: nobody else
    /// holds it at this moment.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.cell.is_valid(self.cell.now())
    }

    /// How long it is valid if no beat is answered any more, and if it was cancelled, how much of the
    /// grace is left. Zero if it is not valid.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.cell.remaining(self.cell.now())
    }

    /// Tells those who run under it to stop.
    pub(crate) fn give_up(&self, loss: Loss) {
        self.cell.cancel(loss);
    }

    /// Fires when the job is to stop.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Whether the job is to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Until the job is to stop.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// Why it ended or is to end; nothing while all is well, or if only one run of a schedule is to stop.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.cell.loss()
    }

    /// Asks the store whether this lease still holds the lock. One read of the lock and one of the
    /// session, both of what a majority has.
    ///
    /// Needed seldom: for an effect outside every fence, where a moment more of certainty is worth two
    /// reads. More it is not: a primary that was cut off and has not noticed yet answers with what a
    /// majority had until then, and may confirm what a forced revocation took on the other side. Only a
    /// fence, or the term where the effect lands, covers that.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn check(&self) -> Result<bool, Error> {
        let cell = &self.cell;
        let engine = &cell.engine;
        let limit = engine.limit();
        let locks = engine.call(Work::Asked, limit, engine.store.locks(vec![cell.lock.clone()], limit));
        let sessions = engine.call(Work::Asked, limit, engine.store.observe(vec![cell.session.id], limit));
        let (locks, sessions) = tokio::try_join!(locks, sessions).map_err(Error::store)?;
        let ours = matches!(&locks[..], [LockSeen::Found(record)]
            if record.term == cell.term && record.is_granted_to(cell.session.id, cell.ticket));
        let alive = matches!(&sessions[..], [crate::store::SessionSeen::Alive(_)]);
        Ok(ours && alive && self.is_valid())
    }

    /// Changes the value others read with the lock; nothing to clear it.
    ///
    /// # Errors
    /// The lock is not held any more ([`Error::is_lost`]), the record cannot be written, or the store
    /// did not answer; then the value may have been set.
    pub async fn set_value(&self, value: Option<Value>) -> Result<(), Error> {
        let number = {
            let mut state = self.cell.state();
            state.speaks = true;
            state.next_value()
        };
        self.say(number, value).await
    }

    /// The same for what tenure has to say, if the program says nothing. Whether it does not.
    pub(crate) async fn note(&self, value: Option<Value>) -> Result<bool, Error> {
        let number = {
            let mut state = self.cell.state();
            if state.speaks {
                return Ok(false);
            }
            state.next_value()
        };
        self.say(number, value).await.map(|()| true)
    }

    async fn say(&self, number: u64, value: Option<Value>) -> Result<(), Error> {
        let cell = &self.cell;
        if !self.is_valid() {
            return Err(Error::lost(self.loss()));
        }
        let set =
            SetValue { lock: cell.lock.clone(), session: cell.session.id, term: cell.term, number, value };
        let limit = cell.engine.limit();
        match cell
            .engine
            .call(Work::Asked, limit, cell.engine.store.set_value(set, limit))
            .await
            .map_err(Error::store)?
        {
            SetAnswer::Set => Ok(()),
            SetAnswer::NotHeld => Err(Error::lost(self.loss())),
            SetAnswer::Refused(refusal) => Err(Error::Refused { lock: cell.lock.clone(), refusal }),
        }
    }

    /// Runs a task that ends with this lease: cancelled with it, dropped when its time is over, and
    /// waited for before the lock is released.
    ///
    /// If the lease's job has returned already, the task is not started and ends as cancelled.
    pub fn spawn<T, E, F>(&self, task: F) -> JoinHandle<JobEnd<T, E>>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let worker = self.cell.enter();
        let cell = self.cell.clone();
        self.cell.engine.runtime.spawn(async move {
            match worker {
                Some(worker) => {
                    let end = job::drive(&cell, task).instrument(job::span(&cell)).await;
                    drop(worker);
                    end
                }
                None => JobEnd::Cancelled(cell.loss().unwrap_or(Loss::Resigned)),
            }
        })
    }
}
