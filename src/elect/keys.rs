//! Keys that this instance uses: a machine for each, and a task for each with something to do.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::{Notify, oneshot};

use super::{
    Engine, Life,
    hold::LeaseCell,
    key_task::{KeyCell, KeyState, PendingKey, apply, run},
    session::Session,
    ticket::{AcquireOutcome, Delivery, Wants},
};
use crate::{
    clock::Moment,
    logic::key::{Context, Handback, KeyMachine, NextOp, Standing, TicketOutcome, WaitMode},
    model::{LockId, SessionId},
    store::Ticket,
    sync::locked,
};

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
            Ok(Delivery::Granted(parcel)) => parcel.open().map(|hold| {
                hold.cell().mark_picked_up(true);
                AcquireOutcome::Granted(hold)
            }),
            Ok(Delivery::Other(outcome)) => Some(AcquireOutcome::Other(outcome)),
            Err(_) => None,
        };
        picked_up.unwrap_or(AcquireOutcome::Other(TicketOutcome::SessionOver))
    }

    /// Gives it up, as its drop does. Returns what is known of its lock; `None` if it was answered.
    pub(super) fn give_up(&mut self) -> Option<Standing> {
        let ticket = self.ticket;
        let gone = self.engine.step_key(&self.lock, false, |state, context| {
            let place = state.pending.iter().position(|contender| contender.ticket == ticket);
            // Before it goes: with it may go all that is known.
            let standing = place.map(|_| state.machine.standing());
            state.machine.leave(context.now, ticket);
            // With it may go the last that keeps the engine alive.
            standing.zip(place.map(|place| state.pending.swap_remove(place)))
        });
        let (standing, pending) = gone.flatten()?;
        self.answered = true;
        drop(pending);
        Some(standing)
    }
}

impl Drop for PendingTicket {
    fn drop(&mut self) {
        if !self.answered {
            self.give_up();
        }
    }
}

/// All keys of this instance.
#[derive(Default)]
pub(crate) struct Keys {
    cells: Mutex<BTreeMap<LockId, Arc<KeyCell>>>,
    /// Notifies when there is nothing to do about a key any more.
    done: Notify,
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
            let mut done = std::pin::pin!(self.done.notified());
            done.as_mut().enable();
            if self.cells().values().all(|cell| cell.state().is_done()) {
                return;
            }
            done.await;
        }
    }

    /// Returns the number of waiting tickets, over all keys.
    pub(crate) fn waiting(&self) -> usize {
        let cells: Vec<_> = self.cells().values().cloned().collect();
        cells.iter().map(|cell| cell.state().machine.waiting()).sum()
    }
}

/// The engine steps the machine of a key: calls, hints, findings of the audit, deaths.
impl Engine {
    /// Creates a ticket for a key, under the session that is valid now.
    pub(crate) fn contend(
        self: &Arc<Self>,
        session: &Arc<Session>,
        life: Option<Arc<Life>>,
        lock: &LockId,
        wants: &Wants,
        mode: WaitMode,
    ) -> PendingTicket {
        let (sender, reply) = oneshot::channel();
        let ticket = self.step_key(lock, true, |state, context| {
            // Drawn here, so that tickets are in the order of their numbers.
            let ticket = session.next_ticket();
            let by = self.candidate(session, ticket, wants);
            state.pending.push(PendingKey {
                ticket,
                reply: sender,
                session: session.clone(),
                life,
                wants: wants.clone(),
            });
            state.machine.contend(context, by, mode);
            // Its tickets may have been ended just before.
            if !session.is_valid(context.now) {
                state.machine.session_over(context.now, session.id);
            }
            ticket
        });
        let ticket = ticket.expect("the key was made");
        PendingTicket { engine: self.clone(), lock: lock.clone(), ticket, reply, answered: false }
    }

    /// Hands a lock back: nothing runs under this ticket any more.
    pub(crate) fn hand_back(self: &Arc<Self>, lock: &LockId, ticket: Ticket, handback: Handback) {
        self.step_key(lock, false, |state, context| {
            state.lease.take_if(|lease| lease.ticket == ticket);
            state.machine.ended(context, ticket, handback);
        });
    }

    /// Ends all tickets of a session of this instance that is over.
    pub(crate) fn end_tickets(self: &Arc<Self>, session: SessionId) {
        for lock in self.keys.all() {
            self.with_key(&lock, |machine, context| machine.session_over(context.now, session));
        }
    }

    /// A hint: the lock may have changed hands.
    pub(crate) fn lock_hint(self: &Arc<Self>, lock: &LockId) {
        self.with_key(lock, KeyMachine::hint);
    }

    /// A hint: the lock was handed to this session, perhaps to a ticket that is forgotten here.
    pub(crate) fn handed_hint(self: &Arc<Self>, lock: &LockId) {
        self.step_key(lock, true, |state, context| state.machine.handed(context));
    }

    /// A hint: the lock may have been taken away from its holder.
    pub(crate) fn revoked_hint(self: &Arc<Self>, lock: &LockId) {
        self.with_key(lock, KeyMachine::revoked);
    }

    pub(crate) fn queue_hint(self: &Arc<Self>, lock: &LockId) {
        self.with_key(lock, KeyMachine::queue_hint);
    }

    pub(crate) fn resync_keys(self: &Arc<Self>) {
        for lock in self.keys.all() {
            self.with_key(&lock, |machine, context| machine.resync(context.now));
        }
    }

    /// Passes the death of a session to the machines of its locks. They know which locks it held: a list kept
    /// elsewhere would be kept for as long as the session lives.
    pub(crate) fn holder_died(self: &Arc<Self>, session: SessionId) {
        let cells: Vec<_> = self.keys.cells().values().cloned().collect();
        for cell in cells.iter().filter(|cell| cell.state().machine.is_held_by(session)) {
            self.with_key(&cell.lock, |machine, context| machine.died(context.now, session));
        }
    }

    /// Passes on a lock that the audit found recorded for this session.
    pub(crate) fn lock_found(self: &Arc<Self>, asked: Moment, session: SessionId, held: &crate::store::Held) {
        let (ticket, term) = (held.ticket, held.term);
        self.step_key(&held.lock, true, |state, context| {
            state.machine.found(asked, context.now, session, ticket, term);
        });
    }

    /// Passes on that the audit did not find a lock that runs here.
    pub(crate) fn lock_missed(self: &Arc<Self>, asked: Moment, lease: &LeaseCell) {
        self.with_key(&lease.lock, |machine, _| machine.missed(asked, lease.term));
    }

    fn with_key(self: &Arc<Self>, lock: &LockId, event: impl FnOnce(&mut KeyMachine, Context<'_>)) {
        self.step_key(lock, false, |state, context| event(&mut state.machine, context));
    }

    /// Applies an event to a key, and wakes or starts the task that performs what follows.
    fn step_key<T>(
        self: &Arc<Self>,
        lock: &LockId,
        make: bool,
        event: impl FnOnce(&mut KeyState, Context<'_>) -> T,
    ) -> Option<T> {
        let (made, after) = {
            let mut cells = self.keys.cells();
            let cell = match cells.get(lock) {
                Some(cell) => cell.clone(),
                None if make => {
                    let cell = Arc::new(KeyCell::new(self, lock));
                    cells.insert(lock.clone(), cell.clone());
                    cell
                }
                None => return None,
            };
            let mut state = cell.state();
            drop(cells);
            let (made, after) = apply(self, &cell, &mut state, event);
            if state.running {
                cell.wake.notify_one();
            } else if self.with_context(|context| state.machine.has_something(context)) {
                state.running = true;
                let of = (self.clone(), cell.clone());
                self.work.spawn_again(move || run(of.0.clone(), of.1.clone()));
            }
            (made, after)
        };
        after.perform(self);
        Some(made)
    }

    /// Returns the machine's next operation. A key with nothing to do loses its task, and if nothing at all
    /// is left, its cell.
    pub(super) fn next_op(self: &Arc<Self>, cell: &Arc<KeyCell>) -> NextOp {
        let mut cells = self.keys.cells();
        let mut state = cell.state();
        let next = self.with_context(|context| state.machine.next(context));
        state.count_in_queue(self, &cell.lock);
        let is_done = state.is_done();
        if next == NextOp::Idle {
            state.running = false;
            if is_done {
                cells.remove(&cell.lock);
            }
        }
        drop(state);
        drop(cells);
        // Nobody waits for it before.
        if is_done && self.is_closed() {
            let engine = self.clone();
            self.wake(move || engine.keys.done.notify_waiters());
        }
        next
    }
}
