//! Keys that this instance uses: a machine for each, and a task for those with something to do.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::sync::{Notify, oneshot};

use super::{
    Engine, Life,
    hold::{Hold, LeaseCell},
    key_task::{KeyCell, KeyState, PendingKey, apply, run},
    parcel::Parcel,
    session::Session,
};
use crate::{
    clock::Moment,
    logic::key::{Context, Handback, KeyMachine, NextOp, TicketOutcome, WaitMode},
    model::{LockId, SessionId, Value, Who, Why},
    store::Ticket,
    sync::locked,
};

/// Outcome of a ticket, with the lock itself if it was granted.
#[derive(Debug)]
pub(crate) enum AcquireOutcome {
    Granted(Hold),
    Other(TicketOutcome),
}

/// The same on its way to its caller.
#[derive(Debug)]
pub(super) enum Delivery {
    Granted(Arc<Parcel<Hold>>),
    Other(TicketOutcome),
}

/// Settings of a ticket besides the key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wants {
    pub(crate) who: Option<Who>,
    pub(crate) why: Option<Why>,
    pub(crate) value: Option<Value>,
    pub(crate) lock_delay: Duration,
    pub(crate) at_least: Duration,
}

/// Pending ticket. Dropping it before its answer gives it up; a lock that arrives all the same is passed on.
#[derive(Debug)]
pub(crate) struct PendingTicket {
    engine: Arc<Engine>,
    lock: LockId,
    ticket: Ticket,
    reply: oneshot::Receiver<Delivery>,
    answered: bool,
}

impl PendingTicket {
    pub(crate) async fn outcome(&mut self) -> AcquireOutcome {
        let outcome = (&mut self.reply).await;
        self.answered = true;
        let picked_up = match outcome {
            Ok(Delivery::Granted(parcel)) => parcel.open().map(AcquireOutcome::Granted),
            Ok(Delivery::Other(outcome)) => Some(AcquireOutcome::Other(outcome)),
            Err(_) => None,
        };
        picked_up.unwrap_or(AcquireOutcome::Other(TicketOutcome::SessionOver))
    }
}

impl Drop for PendingTicket {
    fn drop(&mut self) {
        if !self.answered {
            let ticket = self.ticket;
            let gone = self.engine.keys.step(&self.engine, &self.lock, false, |state, context| {
                state.machine.leave(context.now, ticket);
                let place = state.pending.iter().position(|contender| contender.ticket == ticket)?;
                Some(state.pending.swap_remove(place))
            });
            // With it may go the last that keeps the engine alive.
            drop(gone);
        }
    }
}

/// All keys of this instance.
#[derive(Default)]
pub(crate) struct Keys {
    cells: Mutex<BTreeMap<LockId, Arc<KeyCell>>>,
    /// Notifies when a key is forgotten.
    forgotten: Notify,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("keys", &self.cells().len()).finish()
    }
}

impl Keys {
    fn cells(&self) -> MutexGuard<'_, BTreeMap<LockId, Arc<KeyCell>>> {
        locked(&self.cells)
    }

    fn all(&self) -> Vec<LockId> {
        self.cells().keys().cloned().collect()
    }

    // ----- what callers want

    /// Creates a ticket for a key.
    pub(crate) fn contend(
        &self,
        engine: &Arc<Engine>,
        session: &Arc<Session>,
        life: Option<Arc<Life>>,
        lock: &LockId,
        wants: &Wants,
        mode: WaitMode,
    ) -> PendingTicket {
        let (sender, reply) = oneshot::channel();
        let ticket = self.step(engine, lock, true, |state, context| {
            // Drawn here, so that tickets are in the order of their numbers.
            let ticket = session.next_ticket();
            let by = engine.candidate(session, ticket, wants);
            let at_least = wants.at_least;
            state.pending.push(PendingKey {
                ticket,
                reply: sender,
                session: session.clone(),
                life,
                at_least,
            });
            state.machine.contend(context, by, mode);
            // Its tickets may have been ended just before.
            if !session.is_valid(context.now) {
                state.machine.session_over(context.now, session.id);
            }
            ticket
        });
        let ticket = ticket.expect("the key was made");
        PendingTicket { engine: engine.clone(), lock: lock.clone(), ticket, reply, answered: false }
    }

    /// Returns the lease of a key that is held here.
    pub(crate) fn lease(&self, lock: &LockId) -> Option<Arc<LeaseCell>> {
        let cell = self.cells().get(lock).cloned()?;
        cell.state().lease.clone()
    }

    /// Returns all leases, in the order of their keys.
    pub(crate) fn leases(&self) -> Vec<Arc<LeaseCell>> {
        let cells: Vec<_> = self.cells().values().cloned().collect();
        cells.iter().filter_map(|cell| cell.state().lease.clone()).collect()
    }

    /// Returns a receiver that fires when the lock has been handed back; `None` if it already is.
    pub(crate) fn when_returned(&self, lock: &LockId, ticket: Ticket) -> Option<oneshot::Receiver<()>> {
        let cell = self.cells().get(lock).cloned()?;
        let mut state = cell.state();
        let (sender, receiver) = oneshot::channel();
        let pending = state.lease.as_ref().is_some_and(|lease| lease.ticket == ticket)
            || state.machine.is_returning(ticket);
        pending.then(|| {
            state.awaiting.push((ticket, sender));
            receiver
        })
    }

    /// Waits until every lock has been handed back and every queue was left.
    pub(crate) async fn settled(&self) {
        loop {
            let mut forgotten = std::pin::pin!(self.forgotten.notified());
            forgotten.as_mut().enable();
            if self.cells().is_empty() {
                return;
            }
            forgotten.await;
        }
    }

    /// Returns the number of waiting tickets, over all keys.
    pub(crate) fn waiting(&self) -> usize {
        let cells: Vec<_> = self.cells().values().cloned().collect();
        cells.iter().map(|cell| cell.state().machine.waiting()).sum()
    }

    // ----- what happens

    /// Hands a lock back: nothing runs under this ticket any more.
    pub(crate) fn ended(&self, engine: &Arc<Engine>, lock: &LockId, ticket: Ticket, handback: Handback) {
        self.step(engine, lock, false, |state, context| {
            state.lease.take_if(|lease| lease.ticket == ticket);
            state.machine.ended(context, ticket, handback);
        });
    }

    /// Ends all tickets of a session of this instance that is over.
    pub(crate) fn session_over(&self, engine: &Arc<Engine>, session: SessionId) {
        for lock in self.all() {
            self.with(engine, &lock, |machine, context| machine.session_over(context.now, session));
        }
    }

    /// A hint: the lock may have changed hands.
    pub(crate) fn hint(&self, engine: &Arc<Engine>, lock: &LockId) {
        self.with(engine, lock, KeyMachine::hint);
    }

    /// A hint: the lock was handed to this session, perhaps to a ticket that nobody here remembers.
    pub(crate) fn handed(&self, engine: &Arc<Engine>, lock: &LockId) {
        self.step(engine, lock, true, |state, context| state.machine.handed(context));
    }

    /// A hint: the lock may have been taken away from its holder.
    pub(crate) fn revoked(&self, engine: &Arc<Engine>, lock: &LockId) {
        self.with(engine, lock, KeyMachine::revoked);
    }

    pub(crate) fn queue_hint(&self, engine: &Arc<Engine>, lock: &LockId) {
        self.with(engine, lock, KeyMachine::queue_hint);
    }

    pub(crate) fn resync(&self, engine: &Arc<Engine>) {
        for lock in self.all() {
            self.with(engine, &lock, |machine, context| machine.resync(context.now));
        }
    }

    /// Passes the death of a session to the machines of its locks. They know which locks it held: a list kept
    /// elsewhere would be kept for as long as the session lives.
    pub(crate) fn died(&self, engine: &Arc<Engine>, session: SessionId) {
        let cells: Vec<_> = self.cells().values().cloned().collect();
        for cell in cells.iter().filter(|cell| cell.state().machine.is_held_by(session)) {
            self.with(engine, &cell.lock, |machine, context| machine.died(context.now, session));
        }
    }

    /// Passes on a lock that the audit found recorded for this session.
    pub(crate) fn found(
        &self,
        engine: &Arc<Engine>,
        asked: Moment,
        session: SessionId,
        held: &crate::store::Held,
    ) {
        let (ticket, term) = (held.ticket, held.term);
        self.step(engine, &held.lock, true, |state, context| {
            state.machine.found(asked, context.now, session, ticket, term);
        });
    }

    /// Passes on that the audit did not find a lock that runs here.
    pub(crate) fn missed(&self, engine: &Arc<Engine>, asked: Moment, lease: &LeaseCell) {
        self.with(engine, &lease.lock, |machine, _| machine.missed(asked, lease.term));
    }

    fn with(&self, engine: &Arc<Engine>, lock: &LockId, event: impl FnOnce(&mut KeyMachine, Context<'_>)) {
        self.step(engine, lock, false, |state, context| event(&mut state.machine, context));
    }

    /// Applies an event to a key, and wakes or starts the task that performs what follows.
    fn step<T>(
        &self,
        engine: &Arc<Engine>,
        lock: &LockId,
        make: bool,
        event: impl FnOnce(&mut KeyState, Context<'_>) -> T,
    ) -> Option<T> {
        let (made, after) = {
            let mut cells = self.cells();
            let cell = match cells.get(lock) {
                Some(cell) => cell.clone(),
                None if make => {
                    let cell = Arc::new(KeyCell::new(engine, lock));
                    cells.insert(lock.clone(), cell.clone());
                    cell
                }
                None => return None,
            };
            let mut state = cell.state();
            drop(cells);
            let (made, after) = apply(engine, &cell, &mut state, event);
            if state.running {
                cell.wake.notify_one();
            } else if engine.with_context(|context| state.machine.has_something(context)) {
                state.running = true;
                let of = (engine.clone(), cell.clone());
                engine.work.spawn_again(move || run(of.0.clone(), of.1.clone()));
            }
            (made, after)
        };
        after.perform();
        Some(made)
    }

    /// Returns the machine's next operation. A key with nothing to do loses its task, and if nothing at all
    /// is left, its cell.
    pub(super) fn next(&self, engine: &Arc<Engine>, cell: &Arc<KeyCell>) -> NextOp {
        let mut cells = self.cells();
        let mut state = cell.state();
        let next = engine.with_context(|context| state.machine.next(context));
        state.count_in_queue(engine, &cell.lock);
        if next == NextOp::Idle {
            state.running = false;
            if state.machine.is_done() && state.lease.is_none() {
                cells.remove(&cell.lock);
                self.forgotten.notify_waiters();
            }
        }
        next
    }
}
