//! A granted lock while this process has it: the workers under it, and how it is given back.

use std::{
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Engine, Lease, Life, own_look, parcel::Unclaimed, session::Session, ticket::Wants};
use crate::{
    clock::Moment,
    logic::{flaw::Flaw, key::Handback, session::LONGEST_ATTEMPT},
    model::{Kind, LockId, Loss, StoreTime, Term},
    store::{Note, Presence, Release, ReleaseTo, Ticket},
    sync::locked,
};

/// A granted lock of this process, for as long as something runs under it.
pub(crate) struct LeaseCell {
    pub(super) engine: Arc<Engine>,
    pub(crate) session: Arc<Session>,
    pub(crate) lock: LockId,
    pub(crate) ticket: Ticket,
    wants: Wants,
    pub(crate) term: Term,
    pub(crate) since: StoreTime,
    pub(super) granted: Moment,
    pub(super) token: CancellationToken,
    /// Notifies the workers of a change.
    pub(super) changed: Arc<Notify>,
    pub(super) state: Mutex<LeaseState>,
    /// Kept until nothing runs under it any more: a job may outlast its session.
    presence: Mutex<Option<Presence>>,
    /// Since when the program's runtime is to pick it up, if it is.
    pub(super) unclaimed: Mutex<Option<(Moment, Weak<dyn Unclaimed>)>>,
}

#[derive(Debug, Default)]
pub(super) struct LeaseState {
    /// Reason why it is lost, once it is.
    pub(super) loss: Option<Loss>,
    /// Time at which futures that still run are dropped.
    pub(super) drop_at: Option<Moment>,
    /// Number of futures and calls that run under it.
    pub(super) workers: u32,
    /// Time at which polling had to stop, because the lock or its session was lost.
    pub(super) cut_at: Option<Moment>,
    owner: OwnerState,
    /// A caller got it.
    is_picked_up: bool,
    /// A process of its own may run under it.
    is_presence_given: bool,
    /// The number of the last change of the value.
    pub(super) value_set: u64,
}

/// State of the owner of a lock.
#[derive(Debug, Default)]
enum OwnerState {
    /// Has it.
    #[default]
    Holds,
    /// Is done with it: it goes back when the last worker has left, and lets the engine go.
    Done(Handback, Option<Arc<Life>>),
    /// Has given it back.
    Released,
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
        wants: Wants,
        term: Term,
        since: StoreTime,
    ) -> Arc<Self> {
        let granted = engine.clock.now();
        let presence = Mutex::new(session.presence());
        Arc::new(Self {
            engine,
            session,
            lock,
            ticket,
            wants,
            term,
            since,
            granted,
            token: CancellationToken::new(),
            changed: Arc::default(),
            state: Mutex::default(),
            presence,
            unclaimed: Mutex::default(),
        })
    }

    /// Registers the lease with its session. Returns false, and reports nothing, if the session is expiring
    /// or over: no lease begins then.
    pub(crate) fn begin(self: &Arc<Self>) -> bool {
        self.session.enter(self, self.granted, || self.engine.lease_granted(self))
    }

    /// Cancels what runs under it when it takes longer than it may: on the engine's runtime, whatever the job does to
    /// the program's.
    pub(super) fn end_in_time(self: &Arc<Self>) {
        let Some(after) = self.wants.timeout else { return };
        let lease = self.clone();
        self.engine.work.spawn(async move {
            tokio::select! {
                biased;
                // Also as it is given back.
                () = lease.token.cancelled() => {}
                () = tokio::time::sleep(after) => lease.cancel(&Loss::TimedOut { after }),
            }
        });
    }

    pub(super) fn state(&self) -> MutexGuard<'_, LeaseState> {
        locked(&self.state)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(super) fn now(&self) -> Moment {
        self.engine.clock.now()
    }

    /// Returns what is kept as long as something runs under it, for processes that are to keep it as well; `None` once
    /// none may begin.
    pub(super) fn presence(&self) -> Option<Presence> {
        let mut state = self.state();
        let presence = locked(&self.presence).clone().filter(|_| !state.is_over(self.now()));
        state.is_presence_given |= presence.is_some();
        presence
    }

    /// Cancels what runs under it: it has the grace to stop. The first reason is kept.
    pub(crate) fn cancel(&self, loss: &Loss) {
        self.mark_cancelled(loss);
        self.wake();
    }

    /// Does so, and wakes no worker yet.
    pub(super) fn mark_cancelled(&self, loss: &Loss) {
        let drop_at = self.now() + self.session.times.stop_grace;
        self.mark(loss, drop_at);
        if self.session.flaws.has(Flaw::ReleaseBeforeDrain) {
            let (engine, lock, ticket) = (self.engine.clone(), self.lock.clone(), self.ticket);
            // Later: the caller may hold the key's mutex.
            self.engine.work.spawn(async move {
                engine.hand_back(&lock, ticket, Handback::default());
            });
        }
    }

    /// Stops all polling under it: another instance may hold the lock.
    pub(crate) fn cut(&self, loss: &Loss) {
        self.mark_cut(loss);
        self.wake();
    }

    /// Does so, and wakes no worker yet.
    pub(super) fn mark_cut(&self, loss: &Loss) {
        let now = self.now();
        self.state().cut_at.get_or_insert(now);
        self.mark(loss, Moment::after_start(Duration::ZERO));
    }

    fn mark(&self, loss: &Loss, drop_at: Moment) {
        let mut state = self.state();
        if state.is_released() {
            return;
        }
        state.drop_at = Some(state.drop_at.map_or(drop_at, |before| before.min(drop_at)));
        // The first reason is kept; but what was given up and ran out before it was handed back is lost.
        let first = match &state.loss {
            None => true,
            Some(before) => before.is_wanted() && state.cut_at.is_some() && !loss.is_wanted(),
        };
        if first {
            state.loss = Some(loss.clone());
            self.engine.lease_lost(self, loss);
        }
    }

    /// Wakes what runs under it, after it was marked.
    pub(super) fn wake(&self) {
        let (token, changed) = (self.token.clone(), self.changed.clone());
        self.engine.wake(move || token.cancel());
        self.engine.wake(move || changed.notify_waiters());
    }

    /// Returns whether what runs under it should stop. The clock is asked first: nothing of this process may have run
    /// since that became true. Once it is, it stays.
    pub(crate) fn should_stop(&self, now: Moment) -> bool {
        let told = {
            let state = self.state();
            state.drop_at.is_some() || !matches!(state.owner, OwnerState::Holds)
        };
        if told {
            return true;
        }
        if let Some(loss) = self.session.loss(now) {
            self.cut(&loss);
            return true;
        }
        match self.session.due(now) {
            Some(loss) => self.cancel(&loss),
            None => return false,
        }
        true
    }

    /// Returns why nothing more may be polled under it, if so (R9). The first to find that its session is
    /// over records that: it may be a poll, if the process was frozen until now.
    pub(crate) fn check_stop(&self, now: Moment) -> Option<Loss> {
        self.note_end(now);
        self.stop_reason(now)
    }

    /// Returns the same, and records nothing.
    pub(super) fn stop_reason(&self, now: Moment) -> Option<Loss> {
        if let Some(loss) = self.session.loss(now) {
            return Some(self.state().loss.clone().unwrap_or(loss));
        }
        let state = self.state();
        state.loss.clone().filter(|_| state.drop_at.is_some_and(|at| now >= at))
    }

    pub(super) fn note_end(&self, now: Moment) {
        let known = self.state().cut_at.is_some();
        if let Some(loss) = self.session.loss(now).filter(|_| !known) {
            self.cut(&loss);
        }
    }

    /// Returns by how much a poll or call that returns now overran the end of the lease, if it did.
    pub(crate) fn overrun(&self, now: Moment) -> Option<(Duration, Loss)> {
        let end = self.session.end();
        let (cut_at, loss) = {
            let state = self.state();
            (state.cut_at, state.loss.clone())
        };
        let since = if now >= end { cut_at.map_or(end, |cut| cut.min(end)) } else { cut_at? };
        Some((now.since(since), loss.or_else(|| self.session.loss(now))?))
    }

    /// Waits until what runs under it should stop. It looks at the clock itself when that time has come: nobody may
    /// have woken it.
    pub(super) async fn told(&self, token: &CancellationToken) {
        loop {
            let wait = self.session.told_at().since(self.now()).min(self.session.times.interval);
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                // Looked at whoever wakes it; and first, for a timer of a runtime that shuts down panics.
                () = own_look::is_so(|| self.should_stop(self.now())) => return,
                () = own_look::sleep(wait) => {}
            }
        }
    }

    /// Waits until nothing more may be polled under it. It looks at the clock itself, likewise.
    pub(crate) async fn stopped(&self) {
        let mut changed = std::pin::pin!(self.changed.notified());
        loop {
            changed.as_mut().enable();
            let now = self.now();
            if self.check_stop(now).is_some() {
                return;
            }
            let end = self.session.end();
            let drop_at = self.state().drop_at;
            let at = drop_at.map_or(end, |at| at.min(end));
            // The keeper cuts the lease when the session is over; only a grace has an end of its own.
            if drop_at.is_some() && !own_look::is_in_a_task() {
                self.wake_at(at);
            }
            tokio::select! {
                biased;
                () = changed.as_mut() => changed.set(self.changed.notified()),
                () = own_look::is_so(|| self.check_stop(self.now()).is_some()) => return,
                () = own_look::sleep(at.since(now).min(self.session.times.interval)) => {}
            }
        }
    }

    /// Wakes the workers at that time.
    fn wake_at(&self, at: Moment) {
        let (engine, changed) = (self.engine.clone(), self.changed.clone());
        // As its caller does, it goes on though the keeper hangs.
        self.engine.runtime.spawn(async move {
            tokio::time::sleep(at.since(engine.clock.now())).await;
            engine.wake(move || changed.notify_waiters());
        });
    }

    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        let released = self.state().is_released();
        !released && self.stop_reason(now).is_none()
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        if !self.is_valid(now) {
            return Duration::ZERO;
        }
        let end = self.session.end();
        self.state().drop_at.map_or(end, |at| at.min(end)).since(now)
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        let loss = self.state().loss.clone();
        loss.or_else(|| self.session.loss(self.now()))
    }

    pub(crate) fn held_for(&self) -> Duration {
        self.now().since(self.granted)
    }

    /// Notes whether a caller got it, and whatever it is to run can begin.
    pub(super) fn mark_picked_up(&self, is_picked_up: bool) {
        self.state().is_picked_up = is_picked_up;
    }

    /// Returns the rest of the least time for which others are kept from the key, counted from the grant. There is none
    /// of a grant that no caller got, or whose job never began.
    fn kept_for(&self) -> Duration {
        if !self.state().is_picked_up {
            return Duration::ZERO;
        }
        let rest = self.wants.at_least.saturating_sub(self.held_for());
        // The store keeps whole milliseconds.
        Duration::from_millis(u64::try_from(rest.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
    }

    /// Returns the release that keeps the key closed for that rest though the owner is not done with it; `None` if there
    /// is no rest, or something of ours or a process of its own may run under it: its session's death frees the lock (R9).
    /// The key is closed for a ttl at least, as work under a guard has until that death.
    pub(super) fn closed_release(&self) -> Option<Release> {
        let (now, rest) = (self.now(), self.kept_for());
        let is_over = {
            let state = self.state();
            state.workers == 0 && !state.is_presence_given && state.is_over(now)
        };
        let then = ReleaseTo::ClosedFor(rest.max(self.session.times.ttl));
        let (lock, session, term) = (self.lock.clone(), self.session.id, self.term);
        let is_wanted = is_over && !rest.is_zero() && self.session.is_valid(now);
        is_wanted.then_some(Release { lock, session, term, note: None, then })
    }

    /// Returns whether something runs under it, or its owner still holds it.
    pub(crate) fn runs(&self) -> bool {
        !self.state().is_released()
    }

    // ----- the workers under it

    /// Returns a permit to run under it; `None` if its owner is done with it.
    pub(super) fn enter(self: &Arc<Self>) -> Option<RunPermit> {
        let mut state = self.state();
        if !matches!(state.owner, OwnerState::Holds) {
            return None;
        }
        state.workers += 1;
        Some(RunPermit(self.clone()))
    }

    /// Waits until only one worker is left: blocking calls may outlast everything else.
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

    /// Waits until the lock has been handed back, for as long as what runs under it may take to stop, and the store to
    /// confirm it. Returns whether it has been.
    pub(super) async fn returned(&self) -> bool {
        let Some(returned) = self.engine.keys.when_returned(&self.lock, self.ticket) else { return true };
        let patience = self.session.times.stop_grace + LONGEST_ATTEMPT * 2;
        tokio::time::timeout(patience, returned).await.is_ok()
    }

    /// Ends the owner's hold. The lock is handed back once nothing runs under it.
    fn close(&self, mut handback: Handback, life: Option<Arc<Life>>) {
        // A lease that ran out before it was given back is lost, even if this is the first to notice.
        self.note_end(self.now());
        let go = {
            let mut state = self.state();
            // Of a task its spread says more. A lock that was taken by force has its note already, under its term.
            let is_asked_back = self.lock.kind == Kind::Lock && state.cut_at.is_none();
            if let Some(Loss::Revoked { by, why }) = state.loss.as_ref().filter(|_| is_asked_back) {
                handback.note.get_or_insert_with(|| Note::Revoked { by: by.clone(), why: why.clone() });
            }
            if matches!(state.owner, OwnerState::Holds) {
                state.owner = OwnerState::Done(handback, life);
            }
            if state.workers > 0 {
                let grace = self.now() + self.session.times.stop_grace;
                state.loss.get_or_insert(Loss::Resigned);
                state.drop_at.get_or_insert(grace);
            }
            state.release()
        };
        self.wake();
        if let Some(handback) = go {
            self.hand_back(handback);
        }
    }

    fn hand_back(&self, (handback, life): (Handback, Option<Arc<Life>>)) {
        let lost = self.state().loss.as_ref().is_some_and(|loss| !loss.is_wanted());
        self.session.left(self.ticket);
        // A clone of a lease that has ended keeps no presence.
        let presence = locked(&self.presence).take();
        drop(presence);
        // Before the next of this instance says that it has it.
        self.engine.lease_returned(self, lost);
        self.engine.hand_back(&self.lock, self.ticket, handback);
        // Last: the engine may end with it.
        drop(life);
    }
}

impl LeaseState {
    pub(super) fn next_value(&mut self) -> u64 {
        self.value_set += 1;
        self.value_set
    }

    fn is_over(&self, now: Moment) -> bool {
        self.drop_at.is_some_and(|at| at <= now)
    }

    const fn is_released(&self) -> bool {
        matches!(self.owner, OwnerState::Released)
    }

    /// Releases the lock, once its owner is done and nothing runs under it. Returns how it goes back.
    fn release(&mut self) -> Option<(Handback, Option<Arc<Life>>)> {
        if self.workers > 0 || !matches!(self.owner, OwnerState::Done(..)) {
            return None;
        }
        match mem::replace(&mut self.owner, OwnerState::Released) {
            OwnerState::Done(handback, life) => Some((handback, life)),
            OwnerState::Holds | OwnerState::Released => None,
        }
    }
}

/// Permit to run under a lease. The lock is not released while there is one.
#[derive(Debug)]
pub(crate) struct RunPermit(Arc<LeaseCell>);

impl Drop for RunPermit {
    fn drop(&mut self) {
        self.0.note_end(self.0.now());
        let go = {
            let mut state = self.0.state();
            state.workers -= 1;
            state.release()
        };
        let changed = self.0.changed.clone();
        self.0.engine.wake(move || changed.notify_waiters());
        if let Some(handback) = go {
            self.0.hand_back(handback);
        }
    }
}

/// Owner of a granted lock. Dropping it hands the lock back once nothing runs under it any more; from any
/// thread, also outside a runtime.
#[derive(Debug)]
pub(crate) struct Hold {
    cell: Arc<LeaseCell>,
    /// Keeps the engine alive.
    life: Option<Arc<Life>>,
    /// Successor and note of the release.
    handback: Handback,
}

impl Hold {
    pub(crate) fn new(cell: Arc<LeaseCell>, life: Option<Arc<Life>>) -> Self {
        Self { cell, life, handback: Handback::default() }
    }

    pub(crate) fn cell(&self) -> &Arc<LeaseCell> {
        &self.cell
    }

    pub(crate) fn lease(&self) -> Lease {
        Lease::of(self.cell.clone())
    }

    /// Returns a permit to run under it.
    pub(crate) fn work(&self) -> RunPermit {
        self.cell.enter().expect("the owner has not let go")
    }

    pub(crate) fn set_handback(&mut self, handback: Handback) {
        self.handback = handback;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut handback = mem::take(&mut self.handback);
        handback.closed_for = handback.closed_for.max(self.cell.kept_for());
        self.cell.close(handback, self.life.take());
    }
}
