//! The keys this instance has to do with: a machine for each, and a task for those with something to
//! do.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::sync::{Notify, oneshot};

use super::{
    Engine, Life, Note, Work,
    lease::{Hold, LeaseCell},
    metrics,
    session::Session,
};
use crate::{
    StoreError,
    clock::Moment,
    logic::{
        key::{
            Context, FIRST_IN_LINE, Handback, KeyMachine, NextOp, Op, OpReply, Out, TicketOutcome,
            WATCHED_AHEAD, WaitMode,
        },
        watch::Liveness as Known,
    },
    model::{Candidate, Holder, LockId, Loss, SessionId, Term, Ticket, Value, Waiter, Who, Why},
    store::{Line, LockChange, Release, Take, Wait},
    sync::locked,
};

/// What came of a ticket, with the lock itself if it was granted.
#[derive(Debug)]
pub(crate) enum AcquireOutcome {
    Granted(Hold),
    Other(TicketOutcome),
}

/// What a ticket wants besides the key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wants {
    pub(crate) who: Option<Who>,
    pub(crate) why: Option<Why>,
    pub(crate) value: Option<Value>,
    pub(crate) lock_delay: Duration,
    pub(crate) at_least: Duration,
}

/// A ticket that stands. Dropping it before its answer gives it up; a lock that arrives all the same is
/// passed on.
#[derive(Debug)]
pub(crate) struct PendingTicket {
    engine: Arc<Engine>,
    lock: LockId,
    ticket: Ticket,
    told: oneshot::Receiver<AcquireOutcome>,
    answered: bool,
}

impl PendingTicket {
    pub(crate) async fn told(&mut self) -> AcquireOutcome {
        let told = (&mut self.told).await;
        self.answered = true;
        told.unwrap_or(AcquireOutcome::Other(TicketOutcome::SessionOver))
    }
}

impl Drop for PendingTicket {
    fn drop(&mut self) {
        if !self.answered {
            let ticket = self.ticket;
            let gone = self.engine.keys.step(&self.engine, &self.lock, false, |state, around| {
                state.machine.leave(around.now, ticket);
                let place = state.standers.iter().position(|stander| stander.ticket == ticket)?;
                Some(state.standers.swap_remove(place))
            });
            // With it may go the last that keeps the engine alive.
            drop(gone);
        }
    }
}

struct PendingKey {
    ticket: Ticket,
    tell: oneshot::Sender<AcquireOutcome>,
    session: Arc<Session>,
    life: Option<Arc<Life>>,
    at_least: Duration,
}

struct KeyCell {
    lock: LockId,
    state: Mutex<KeyState>,
    wake: Notify,
}

struct KeyState {
    machine: KeyMachine,
    /// A task performs what the machine says.
    running: bool,
    standers: Vec<PendingKey>,
    lease: Option<Arc<LeaseCell>>,
    /// Those who wait for a lock to be given back.
    awaiting: Vec<(Ticket, oneshot::Sender<()>)>,
}

impl KeyCell {
    fn state(&self) -> MutexGuard<'_, KeyState> {
        locked(&self.state)
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Keys {
    book: Mutex<BTreeMap<LockId, Arc<KeyCell>>>,
    parted: Mutex<LastParted>,
    /// A key left the book.
    forgotten: Notify,
}

/// The terms that were given back last: a hint of their grant may come after that.
#[derive(Default)]
struct LastParted {
    order: VecDeque<(LockId, Term)>,
    all: BTreeSet<(LockId, Term)>,
}

impl LastParted {
    /// Hints are seldom later than so many grants.
    const KEPT: usize = 1024;

    fn add(&mut self, lock: &LockId, term: Term) {
        if self.order.len() == Self::KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
        self.order.push_back((lock.clone(), term));
        self.all.insert((lock.clone(), term));
    }

    fn has(&self, lock: &LockId, term: Term) -> bool {
        self.all.contains(&(lock.clone(), term))
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("keys", &self.book().len()).finish()
    }
}

/// What is done once no lock is held any more.
#[derive(Default)]
struct AfterStep {
    tells: Vec<(oneshot::Sender<AcquireOutcome>, AcquireOutcome)>,
    holds: Vec<Hold>,
    /// With these may go the last that keeps the engine alive.
    lives: Vec<Arc<Life>>,
    parted: Vec<oneshot::Sender<()>>,
}

impl AfterStep {
    fn perform(self) {
        for (tell, told) in self.tells {
            // Nobody waits for it any more: what was granted is given back by its drop.
            let _ = tell.send(told);
        }
        for parted in self.parted {
            let _ = parted.send(());
        }
    }
}

impl Keys {
    fn book(&self) -> MutexGuard<'_, BTreeMap<LockId, Arc<KeyCell>>> {
        locked(&self.book)
    }

    fn all(&self) -> Vec<LockId> {
        self.book().keys().cloned().collect()
    }

    // ----- what callers want

    /// A new ticket for a key.
    pub(crate) fn stand(
        &self,
        engine: &Arc<Engine>,
        session: &Arc<Session>,
        life: Option<Arc<Life>>,
        lock: &LockId,
        wants: &Wants,
        manner: WaitMode,
    ) -> PendingTicket {
        let (tell, told) = oneshot::channel();
        let ticket = self.step(engine, lock, true, |state, around| {
            // Drawn here, so that tickets stand in the order of their numbers.
            let ticket = session.next_ticket();
            let by = engine.candidate(session, ticket, wants);
            let at_least = wants.at_least;
            state.standers.push(PendingKey { ticket, tell, session: session.clone(), life, at_least });
            state.machine.stand(around, by, manner);
            // Its tickets may have been ended just before.
            if !session.is_valid(around.now) {
                state.machine.session_over(around.now, session.id);
            }
            ticket
        });
        let ticket = ticket.expect("the key was made");
        PendingTicket { engine: engine.clone(), lock: lock.clone(), ticket, told, answered: false }
    }

    /// The lease of a key that is held here.
    pub(crate) fn lease(&self, lock: &LockId) -> Option<Arc<LeaseCell>> {
        let cell = self.book().get(lock).cloned()?;
        cell.state().lease.clone()
    }

    /// All leases, in the order of their keys.
    pub(crate) fn leases(&self) -> Vec<Arc<LeaseCell>> {
        let cells: Vec<_> = self.book().values().cloned().collect();
        cells.iter().filter_map(|cell| cell.state().lease.clone()).collect()
    }

    /// Until a lock has been given back, or is gone.
    pub(crate) fn parted(&self, lock: &LockId, ticket: Ticket) -> Option<oneshot::Receiver<()>> {
        let cell = self.book().get(lock).cloned()?;
        let mut state = cell.state();
        let (tell, told) = oneshot::channel();
        let pending = state.lease.as_ref().is_some_and(|lease| lease.ticket == ticket)
            || state.machine.is_returning(ticket);
        pending.then(|| {
            state.awaiting.push((ticket, tell));
            told
        })
    }

    /// Until every lock has gone back and every place in line was left.
    pub(crate) async fn settled(&self) {
        loop {
            let mut forgotten = std::pin::pin!(self.forgotten.notified());
            forgotten.as_mut().enable();
            if self.book().is_empty() {
                return;
            }
            forgotten.await;
        }
    }

    /// How many wait here, over all keys.
    pub(crate) fn waiting(&self) -> usize {
        let cells: Vec<_> = self.book().values().cloned().collect();
        cells.iter().map(|cell| cell.state().machine.waiting()).sum()
    }

    // ----- what happens

    /// Nothing runs under this ticket any more.
    pub(crate) fn ended(
        &self,
        engine: &Arc<Engine>,
        lock: &LockId,
        ticket: Ticket,
        term: Term,
        parting: Handback,
    ) {
        self.has_parted(lock, term);
        self.step(engine, lock, false, |state, around| {
            state.lease.take_if(|lease| lease.ticket == ticket);
            state.machine.ended(around, ticket, parting);
        });
    }

    /// A hint of this grant that comes from now on is late.
    fn has_parted(&self, lock: &LockId, term: Term) {
        locked(&self.parted).add(lock, term);
    }

    /// A session of this instance is over.
    pub(crate) fn session_over(&self, engine: &Arc<Engine>, session: SessionId) {
        for lock in self.all() {
            self.with(engine, &lock, |machine, around| machine.session_over(around.now, session));
        }
    }

    pub(crate) fn hint(&self, engine: &Arc<Engine>, lock: &LockId, change: Option<LockChange>) {
        // A grant to a ticket nobody here remembers is to be passed on, unless it was given back already.
        let stray = match change {
            Some(LockChange::Granted { session, term, .. }) => {
                if locked(&self.parted).has(lock, term) {
                    return;
                }
                engine.session.borrow().as_ref().is_some_and(|own| own.id == session)
            }
            _ => false,
        };
        self.step(engine, lock, stray, |state, around| state.machine.hint(around, change));
    }

    pub(crate) fn queue_hint(&self, engine: &Arc<Engine>, lock: &LockId) {
        self.with(engine, lock, KeyMachine::queue_hint);
    }

    pub(crate) fn resync(&self, engine: &Arc<Engine>) {
        for lock in self.all() {
            self.with(engine, &lock, |machine, around| machine.resync(around.now));
        }
    }

    /// A session is dead. Which locks it held the machines know: whoever kept that for it would keep it for as long
    /// as it lives.
    pub(crate) fn died(&self, engine: &Arc<Engine>, session: SessionId) {
        let cells: Vec<_> = self.book().values().cloned().collect();
        for cell in cells.iter().filter(|cell| cell.state().machine.is_held_by(session)) {
            self.with(engine, &cell.lock, |machine, around| machine.died(around.now, session));
        }
    }

    /// The audit found a lock that this session holds.
    pub(crate) fn found(
        &self,
        engine: &Arc<Engine>,
        asked: Moment,
        session: SessionId,
        held: &crate::store::Held,
    ) {
        let (ticket, term) = (held.ticket, held.term);
        self.step(engine, &held.lock, true, |state, around| {
            state.machine.found(asked, around.now, session, ticket, term);
        });
    }

    /// The audit did not find a lock that runs here.
    pub(crate) fn missed(&self, engine: &Arc<Engine>, asked: Moment, lease: &LeaseCell) {
        self.with(engine, &lease.lock, |machine, _| machine.missed(asked, lease.term));
    }

    fn with(&self, engine: &Arc<Engine>, lock: &LockId, event: impl FnOnce(&mut KeyMachine, Context<'_>)) {
        self.step(engine, lock, false, |state, around| event(&mut state.machine, around));
    }

    /// Lets something happen to a key; sees to it that what follows is done.
    fn step<T>(
        &self,
        engine: &Arc<Engine>,
        lock: &LockId,
        make: bool,
        event: impl FnOnce(&mut KeyState, Context<'_>) -> T,
    ) -> Option<T> {
        let (made, after) = {
            let mut book = self.book();
            let cell = match book.get(lock) {
                Some(cell) => cell.clone(),
                None if make => {
                    let cell = Arc::new(KeyCell::new(engine, lock));
                    book.insert(lock.clone(), cell.clone());
                    cell
                }
                None => return None,
            };
            let mut state = cell.state();
            drop(book);
            let (made, after) = happen(engine, &cell, &mut state, event);
            if state.running {
                cell.wake.notify_one();
            } else if engine.around(|around| state.machine.has_something(around)) {
                state.running = true;
                engine.runtime.spawn(run(engine.clone(), cell.clone()));
            }
            (made, after)
        };
        after.perform();
        Some(made)
    }

    /// What the machine wants next. A key with nothing to do loses its task, and if it has nothing
    /// left at all, its place in the book.
    fn next(&self, engine: &Arc<Engine>, cell: &Arc<KeyCell>) -> NextOp {
        let mut book = self.book();
        let mut state = cell.state();
        let next = engine.around(|around| state.machine.next(around));
        if next == NextOp::Idle {
            state.running = false;
            if state.machine.is_done() && state.lease.is_none() {
                book.remove(&cell.lock);
                self.forgotten.notify_waiters();
            }
        }
        next
    }
}

impl KeyCell {
    fn new(engine: &Arc<Engine>, lock: &LockId) -> Self {
        let machine = KeyMachine::new(
            engine.poll(),
            engine.store.capabilities().hints,
            engine.flaws,
            engine.clock.now(),
        );
        let state =
            KeyState { machine, running: false, standers: Vec::new(), lease: None, awaiting: Vec::new() };
        Self { lock: lock.clone(), state: Mutex::new(state), wake: Notify::new() }
    }
}

fn happen<T>(
    engine: &Arc<Engine>,
    cell: &Arc<KeyCell>,
    state: &mut KeyState,
    event: impl FnOnce(&mut KeyState, Context<'_>) -> T,
) -> (T, AfterStep) {
    let made = engine.around(|around| event(state, around));
    let mut after = AfterStep::default();
    for out in state.machine.take_out() {
        match out {
            Out::Verdict(ticket, verdict) => {
                let Some(place) = state.standers.iter().position(|stander| stander.ticket == ticket) else {
                    continue;
                };
                let stander = state.standers.swap_remove(place);
                let told = match verdict {
                    TicketOutcome::Granted { term, since } => {
                        let lock = cell.lock.clone();
                        let lease =
                            LeaseCell::new(engine.clone(), stander.session, lock, ticket, term, since);
                        if lease.begin() {
                            state.lease = Some(lease.clone());
                            let hold = Hold::new(lease, stander.life, stander.at_least);
                            if engine.is_closed() {
                                // It is given back as this is dropped.
                                after.holds.push(hold);
                                AcquireOutcome::Other(TicketOutcome::SessionOver)
                            } else {
                                AcquireOutcome::Granted(hold)
                            }
                        } else {
                            // In a doubt, say: it goes back, and whoever waits waits for a session.
                            engine.keys.has_parted(&cell.lock, term);
                            engine.around(|around| state.machine.ended(around, ticket, Handback::default()));
                            after.lives.extend(stander.life);
                            AcquireOutcome::Other(TicketOutcome::SessionOver)
                        }
                    }
                    other => AcquireOutcome::Other(other),
                };
                after.tells.push((stander.tell, told));
            }
            Out::TookOver(session) => {
                if let Some(silent) = engine.watcher.silent_for(session, engine.clock.now()) {
                    let (from, LockId { kind, key, namespace }) = (engine.watcher.name(session), &cell.lock);
                    let holder = engine.config.holder();
                    if engine.tallies.note(&cell.lock, Note::TookOver, Some(from.clone())) {
                        tracing::debug!(%kind, key = key.as_str(), %namespace, %holder, from, %session, ?silent, "took over a task from a dead session");
                    } else {
                        tracing::info!(%kind, key = key.as_str(), %namespace, %holder, from, %session, ?silent, "took over from a dead session");
                    }
                    metrics::taken_over(engine, silent);
                }
            }
            Out::Refused(refusal) => {
                let LockId { kind, key, namespace } = &cell.lock;
                tracing::error!(%kind, key = key.as_str(), %namespace, %refusal, "the lock cannot be released, its record has to be looked at");
            }
            Out::Watch(session, named) => {
                if engine.watcher.watch(engine, session, named) == Some(Known::Dead) {
                    state.machine.died(engine.clock.now(), session);
                }
            }
            Out::Lost(ticket, loss) => {
                if let Some(lease) = state.lease.as_ref().filter(|lease| lease.ticket == ticket) {
                    lease.cut(loss);
                }
            }
            Out::Parted(ticket) => {
                let (told, rest) =
                    std::mem::take(&mut state.awaiting).into_iter().partition(|(of, _)| *of == ticket);
                state.awaiting = rest;
                after
                    .parted
                    .extend(Vec::from_iter::<Vec<(Ticket, _)>>(told).into_iter().map(|(_, tell)| tell));
            }
        }
    }
    (made, after)
}

/// Does what the machine of one key says, until there is nothing to do.
async fn run(engine: Arc<Engine>, cell: Arc<KeyCell>) {
    loop {
        // What is left then is seen to by the session's end.
        if engine.closing.is_cancelled() {
            return;
        }
        match engine.keys.next(&engine, &cell) {
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
                let answer = perform(&engine, &cell.lock, &op).await;
                let ((), after) = {
                    let mut state = cell.state();
                    happen(&engine, &cell, &mut state, |state, around| {
                        state.machine.answered(around, sent, op, answer);
                    })
                };
                after.perform();
            }
        }
    }
}

async fn perform(engine: &Arc<Engine>, lock: &LockId, op: &Op) -> OpReply {
    let answer = match op.clone() {
        Op::Look => engine.look(lock.clone()).await.map(OpReply::Seen),
        Op::Poll { session, ticket } => {
            let place = (lock.clone(), session, ticket);
            let (seen, stands) = futures::future::join(engine.look(lock.clone()), engine.place(place)).await;
            seen.map(|seen| OpReply::Polled { seen, stands: stands.ok() })
        }
        Op::Take { by, dead } => {
            engine.take(Take { lock: lock.clone(), by: *by }, dead).await.map(OpReply::Took)
        }
        Op::Confirm { session, ticket } => {
            let by: Candidate = engine.candidate_of(session, ticket, &Wants::default());
            engine.take(Take { lock: lock.clone(), by }, Vec::new()).await.map(OpReply::Took)
        }
        Op::Release { session, term, note, then } => {
            let release = Release { lock: lock.clone(), session, term, note, then };
            engine.release(release).await.map(OpReply::Released)
        }
        Op::ReadLine { most, to } => read_line(engine, lock, most, to.as_ref()).await.map(OpReply::Line),
        Op::Register(tickets) => {
            let waits = tickets.into_iter().map(|by| Wait { lock: lock.clone(), by }).collect();
            engine.wait(waits).await.map(|()| OpReply::Done)
        }
        Op::Leave(left) => {
            let places = left.into_iter().map(|(session, ticket)| (lock.clone(), session, ticket)).collect();
            engine.stop_waiting(places).await.map(|()| OpReply::Done)
        }
        Op::Inquire { session, named } => {
            engine.watcher.inquire(engine, session, named).await.map(OpReply::Known)
        }
    };
    answer.unwrap_or_else(OpReply::Failed)
}

/// The line, and of whom it matters whether they live, unless the store does not answer: the first, who may be given
/// the lock, or those of that name; and of a line whose first are dead those behind them, whose turn it may be.
async fn read_line(
    engine: &Arc<Engine>,
    lock: &LockId,
    most: usize,
    to: Option<&Holder>,
) -> Result<Line, Arc<StoreError>> {
    let limit = engine.limit();
    let line = engine.call(Work::Lines, limit, engine.store.waiters(lock.clone(), most, limit)).await?;
    let (first, rest) = line.waiters.split_at(line.waiters.len().min(FIRST_IN_LINE));
    let sessions = |waiters: &[Waiter]| waiters.iter().map(|waiter| waiter.by.session).collect::<Vec<_>>();
    let named = rest.iter().filter(|waiter| to == Some(&waiter.by.holder)).map(|waiter| waiter.by.session);
    engine.watcher.meet(engine, sessions(first).into_iter().chain(named).collect()).await;
    let now = engine.clock.now();
    let beat = first.iter().filter(|waiter| engine.watcher.beats(waiter.by.session, now)).count();
    if beat < WATCHED_AHEAD && to.is_none() {
        engine.watcher.meet(engine, sessions(rest)).await;
    }
    Ok(line)
}

/// Why a lease was cancelled by its owner.
pub(crate) const GIVEN_UP: Loss = Loss::Resigned;
