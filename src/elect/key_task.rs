//! The task of one key: it performs what the key's machine decides, and answers the callers that wait.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::future::{Either, select};
use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};

use super::{
    Engine, Life, Work,
    hold::{Hold, LeaseCell},
    parcel::Parcel,
    session::Session,
    ticket::{Delivery, Wants},
};
use crate::{
    StoreError,
    logic::{
        key::{
            Context, FIRST_IN_QUEUE, Handback, KeyMachine, NextOp, Op, OpReply, Output, TicketOutcome,
            WATCHED_AHEAD,
        },
        watch::Liveness,
    },
    model::{Holder, LockId, SessionId},
    store::{Candidate, Queue, Release, StoreExt, Take, Ticket, Wait, Waiter},
    sync::locked,
};

/// A release waits no longer for the queue, which is left at the same time.
const LEAVING: Duration = Duration::from_millis(100);

pub(super) struct PendingKey {
    pub(super) ticket: Ticket,
    pub(super) reply: oneshot::Sender<Delivery>,
    pub(super) session: Arc<Session>,
    pub(super) life: Option<Arc<Life>>,
    pub(super) wants: Wants,
}

pub(super) struct KeyCell {
    pub(super) lock: LockId,
    pub(super) state: Mutex<KeyState>,
    pub(super) wake: Notify,
}

pub(super) struct KeyState {
    pub(super) machine: KeyMachine,
    /// Tickets of it that stand in the queue, as the instance knows.
    in_queue: usize,
    /// Set while a task performs what the machine says.
    pub(super) running: bool,
    pub(super) pending: Vec<PendingKey>,
    pub(super) lease: Option<Arc<LeaseCell>>,
    /// Waiters for the lock to be handed back.
    pub(super) awaiting: Vec<(Ticket, oneshot::Sender<()>)>,
}

impl KeyCell {
    pub(super) fn state(&self) -> MutexGuard<'_, KeyState> {
        locked(&self.state)
    }
}

/// Effects to perform once no mutex is held any more.
#[derive(Default)]
pub(super) struct AfterStep {
    pub(super) replies: Vec<(oneshot::Sender<Delivery>, Delivery)>,
    pub(super) holds: Vec<Hold>,
    /// With these may go the last that keeps the engine alive.
    pub(super) lives: Vec<Arc<Life>>,
    pub(super) returned: Vec<oneshot::Sender<()>>,
}

impl AfterStep {
    pub(super) fn perform(self, engine: &Engine) {
        for (reply, outcome) in self.replies {
            // If no caller waits any more, what was granted is given back by its drop.
            engine.wake(move || reply.send(outcome));
        }
        for returned in self.returned {
            engine.wake(move || returned.send(()));
        }
    }
}

impl KeyCell {
    pub(super) fn new(engine: &Arc<Engine>, lock: &LockId) -> Self {
        let machine = KeyMachine::new(
            engine.poll(),
            engine.store().capabilities().hints.is_some(),
            engine.flaws,
            engine.clock.now(),
        );
        let state = KeyState {
            machine,
            in_queue: 0,
            running: false,
            pending: Vec::new(),
            lease: None,
            awaiting: Vec::new(),
        };
        Self { lock: lock.clone(), state: Mutex::new(state), wake: Notify::new() }
    }
}

/// Applies an event to a key's machine, and performs its outputs.
pub(super) fn apply<T>(
    engine: &Arc<Engine>,
    cell: &Arc<KeyCell>,
    state: &mut KeyState,
    event: impl FnOnce(&mut KeyState, Context<'_>) -> T,
) -> (T, AfterStep) {
    let made = engine.with_context(|context| event(state, context));
    state.count_in_queue(engine, &cell.lock);
    let mut after = AfterStep::default();
    for out in state.machine.take_out() {
        match out {
            Output::Verdict(ticket, outcome) => state.conclude(engine, cell, ticket, outcome, &mut after),
            Output::TookOver(session) => engine.lock_taken_over(&cell.lock, session),
            Output::Refused(refusal) => engine.met_unreadable(&cell.lock, &refusal),
            Output::Watch(session, named) => {
                if engine.watcher.watch(engine, session, named) == Some(Liveness::Dead) {
                    state.machine.died(engine.clock.now(), session);
                }
            }
            Output::Lost(ticket, loss) => {
                if let Some(lease) = state.lease.as_ref().filter(|lease| lease.ticket == ticket) {
                    lease.cut(&loss);
                }
            }
            Output::Returned(ticket) => {
                let (of_it, rest): (Vec<_>, Vec<_>) =
                    std::mem::take(&mut state.awaiting).into_iter().partition(|(of, _)| *of == ticket);
                state.awaiting = rest;
                after.returned.extend(of_it.into_iter().map(|(_, notify)| notify));
            }
        }
    }
    (made, after)
}

impl KeyState {
    /// Returns whether every lock has been handed back and every queue was left.
    pub(super) fn is_done(&self) -> bool {
        self.machine.is_done() && self.lease.is_none()
    }

    /// Tells the instance how many tickets stand in the queue: then it listens. Of tasks it hears by their spread.
    pub(super) fn count_in_queue(&mut self, engine: &Engine, lock: &LockId) {
        if lock.kind.spread().is_none() {
            let before = std::mem::replace(&mut self.in_queue, self.machine.in_queue());
            engine.count_in_queue(before, self.in_queue);
        }
    }

    /// Answers a ticket.
    fn conclude(
        &mut self,
        engine: &Arc<Engine>,
        cell: &KeyCell,
        ticket: Ticket,
        outcome: TicketOutcome,
        after: &mut AfterStep,
    ) {
        let Some(place) = self.pending.iter().position(|pending| pending.ticket == ticket) else { return };
        let pending = self.pending.swap_remove(place);
        let TicketOutcome::Granted { term, since } = outcome else {
            after.replies.push((pending.reply, Delivery::Other(outcome)));
            return;
        };
        let lease = LeaseCell::new(
            engine.clone(),
            pending.session,
            cell.lock.clone(),
            ticket,
            pending.wants,
            term,
            since,
        );
        let outcome = if lease.begin() {
            self.lease = Some(lease.clone());
            lease.end_in_time();
            let hold = Hold::new(lease.clone(), pending.life);
            if engine.is_closed() {
                // It is given back as this is dropped.
                after.holds.push(hold);
                Delivery::Other(TicketOutcome::SessionOver)
            } else {
                Delivery::Granted(Parcel::of(&lease, hold))
            }
        } else {
            // The session is expiring: the lock goes back, and a caller that waits waits for a session.
            engine.with_context(|context| self.machine.ended(context, ticket, Handback::default()));
            after.lives.extend(pending.life);
            Delivery::Other(TicketOutcome::SessionOver)
        };
        after.replies.push((pending.reply, outcome));
    }
}

/// Performs what the machine of one key says, until there is nothing to do.
pub(super) async fn run(engine: Arc<Engine>, cell: Arc<KeyCell>) {
    loop {
        // The session's end sees to the rest.
        if engine.closing.is_cancelled() {
            return;
        }
        match engine.next_op(&cell) {
            NextOp::Idle => return,
            NextOp::At(at) => {
                let wait = at.since(engine.clock.now());
                tokio::select! {
                    biased;
                    () = cell.wake.notified() => {}
                    () = engine.closing.cancelled() => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
            NextOp::Do(op) => {
                let sent = engine.clock.now();
                let is_stuck = cell.state().machine.is_stuck();
                let answer = perform(&engine, &cell.lock, &op, is_stuck).await;
                let ((), after) = {
                    let mut state = cell.state();
                    apply(&engine, &cell, &mut state, |state, context| {
                        state.machine.answered(context, sent, op, answer);
                    })
                };
                after.perform(&engine);
            }
        }
    }
}

pub(super) async fn perform(engine: &Arc<Engine>, lock: &LockId, op: &Op, is_stuck: bool) -> OpReply {
    let answer = match op.clone() {
        Op::Look => engine.look(lock.clone()).await.map(OpReply::Seen),
        Op::Peek => engine.peek(lock.clone()).await.map(OpReply::Seen),
        Op::Poll { session, ticket } => {
            let place = (lock.clone(), session, ticket);
            let (seen, in_queue) =
                futures::future::join(engine.look(lock.clone()), engine.place(place)).await;
            seen.map(|seen| OpReply::Polled { seen, in_queue: in_queue.ok() })
        }
        Op::Take { by, dead } => {
            engine.take(Take { lock: lock.clone(), by: *by }, dead, is_stuck).await.map(OpReply::Took)
        }
        Op::Confirm { session, ticket } => {
            let by: Candidate = engine.candidate_of(session, ticket, &Wants::default());
            engine.take(Take { lock: lock.clone(), by }, Vec::new(), is_stuck).await.map(OpReply::Took)
        }
        Op::Release { session, term, note, then, leaving } => {
            let release = Release { lock: lock.clone(), session, term, note, then };
            let leaves =
                async { leaving.is_empty() || engine.stop_waiting(places(lock, leaving)).await.is_ok() };
            let release = engine.release(release, is_stuck);
            let (released, left) = match select(pin!(release), pin!(leaves)).await {
                Either::Left((released, leaves)) => {
                    (released, timeout(LEAVING, leaves).await.unwrap_or_default())
                }
                Either::Right((left, release)) => (release.await, left),
            };
            released.map(|answer| OpReply::Released { answer, left })
        }
        Op::ReadQueue { most, to } => read_queue(engine, lock, most, to.as_ref()).await.map(OpReply::Queue),
        Op::Register(tickets) => {
            let waits = tickets.into_iter().map(|by| Wait { lock: lock.clone(), by }).collect();
            engine.wait(waits).await.map(|()| OpReply::Done)
        }
        Op::Leave(left) => engine.stop_waiting(places(lock, left)).await.map(|()| OpReply::Done),
        Op::Inquire { session, named } => {
            engine.watcher.inquire(engine, session, named).await.map(OpReply::Known)
        }
    };
    answer.unwrap_or_else(OpReply::Failed)
}

fn places(lock: &LockId, tickets: Vec<(SessionId, Ticket)>) -> Vec<(LockId, SessionId, Ticket)> {
    tickets.into_iter().map(|(session, ticket)| (lock.clone(), session, ticket)).collect()
}

/// Reads the queue, and looks at the sessions that matter, unless the store does not answer: the first in
/// the queue, which may be handed the lock, and the waiters of that name; and if the first are dead, those behind them.
pub(super) async fn read_queue(
    engine: &Arc<Engine>,
    lock: &LockId,
    most: usize,
    to: Option<&Holder>,
) -> Result<Queue, Arc<StoreError>> {
    let limit = engine.limit();
    let queue = engine.call(Work::Queues, limit, engine.store().waiters(lock.clone(), most, limit)).await?;
    let (first, rest) = queue.waiters.split_at(queue.waiters.len().min(FIRST_IN_QUEUE));
    let sessions = |waiters: &[Waiter]| waiters.iter().map(|waiter| waiter.by.session).collect::<Vec<_>>();
    let named = rest.iter().filter(|waiter| to == Some(&waiter.by.holder)).map(|waiter| waiter.by.session);
    engine.watcher.meet(engine, sessions(first).into_iter().chain(named).collect()).await;
    let now = engine.clock.now();
    let beat = first.iter().filter(|waiter| engine.watcher.beats(waiter.by.session, now)).count();
    if beat < WATCHED_AHEAD && to.is_none() {
        engine.watcher.meet(engine, sessions(rest)).await;
    }
    Ok(queue)
}
