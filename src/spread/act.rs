//! Acting on the plan: tickets for tasks, workers, and their ends.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use tokio_util::sync::CancellationToken;

use super::{
    actor::{SpreadActor, Unplanned},
    metrics, reading,
    shared::{ActorState, Shared, TaskWork},
    worker::{JobRules, Report, TaskEnd, Worker, WorkerHandle},
};
use crate::{
    Event,
    clock::Moment,
    elect::{AcquireOutcome, Engine, Hold, Session},
    logic::{
        failing::Longest,
        key::{TicketOutcome, WaitMode},
        view::{Bounds, Resolved, SpreadAction, TaskPlace},
    },
    model::{Key, Loss, SessionId},
    store::LockSeen,
    words,
};

/// Moves that one instance has under way at most: enough to be quick, few enough that a fleet that changes its
/// mind has not stopped everything.
const BOUNDS: Bounds = Bounds { gives: 64, waits: 1000 };
/// A task whose successor did not come is not given away again for so long.
const STAYS: Duration = Duration::from_secs(5);

impl SpreadActor {
    /// Plans, and acts on the plan. R13: a plan that cannot be made ends nothing.
    pub(super) fn plan(&mut self, now: Moment) {
        self.preparations = 0;
        let planned = catch_unwind(AssertUnwindSafe(|| self.plan_and_act(now)));
        if !matches!(planned, Ok(true)) {
            // Later; meanwhile what runs runs on.
            let engine = self.engine();
            let pause = if planned.is_ok() { engine.config.settle() } else { engine.poll() };
            self.retry_at = now + pause;
            self.changed = Some(Unplanned::since(now));
        }
        if planned.is_err() {
            words::error!(spread = %self.shared.spread, namespace = %self.engine().config.namespace(), "could not plan the spread, keeping its tasks where they are");
        }
    }

    /// Returns whether there was a session, and enough was known, to plan.
    fn plan_and_act(&mut self, now: Moment) -> bool {
        let engine = self.engine().clone();
        // There will be another session, or this one will be confirmed.
        let Some(session) = engine.current().filter(|session| !session.is_expiring()) else { return false };
        let shared = self.shared.clone();
        let mut state = shared.state();
        if !state.complete {
            return false;
        }
        self.changed = None;
        state.planned = true;
        state.stays.retain(|_, until| now < *until);
        let me = state.me(&engine, &session);
        let mine = state.mine(now);
        let ActorState { view, waiting, .. } = &mut *state;
        view.had_no_room(waiting.keys(), now);
        let mut resolved = state.view.resolve(&me, &mine, BOUNDS, now);
        let actions = std::mem::take(&mut resolved.orders);
        let later = state.stays.values().filter(|at| **at > now).min().copied();
        resolved.next = [resolved.next, later].into_iter().flatten().min();
        state.waiting = self.note_waiting(&state, &resolved, now);
        self.log_failing(&state, &resolved, session.id);
        state.resolved = resolved;
        // Of the instances that know the same tasks one reports the tasks without room.
        let reports = state
            .view
            .members()
            .all(|(other, peer)| other >= session.id || peer.share.digest != state.share.digest);
        let since = state.waiting.values().min().copied().filter(|_| reports);
        engine.tallies.no_room(&shared.spread, since, state.waiting.keys());
        words::debug!(
            spread = %shared.spread, orders = actions.len(), waiting = state.waiting.len(), "planned"
        );
        metrics::planned(&engine, &shared.spread, &state, actions.len(), now);
        for action in actions {
            self.act(&mut state, &session, action, now);
        }
        drop(state);
        shared.notify();
        true
    }

    /// Logs that this instance fails, or does not any more.
    fn log_failing(&self, state: &ActorState, resolved: &Resolved, own: SessionId) {
        let (spread, namespace) = (&self.shared.spread, self.engine().config.namespace());
        let holder = self.engine().config.holder();
        match (state.resolved.failing.contains(&own), resolved.failing.contains(&own)) {
            (false, true) => {
                words::warn!(%spread, %namespace, %holder, "tasks that this instance gave up run well elsewhere: it gets no more of them while others have room, but for one at a time as a probe");
            }
            (true, false) => {
                words::info!(%spread, %namespace, %holder, "this instance takes tasks like the others again");
            }
            _ => {}
        }
    }

    /// Sends an event for each task that has begun to wait for room. Returns all that wait, and since when.
    fn note_waiting(&self, state: &ActorState, resolved: &Resolved, now: Moment) -> BTreeMap<Key, Moment> {
        let engine = self.engine();
        let mut waiting = BTreeMap::new();
        for key in &resolved.waiting {
            let since = state.waiting.get(key).copied();
            if since.is_none() {
                let lock = reading::lock(engine, &self.shared.spread, key);
                engine.events.send(Event::Waiting { lock });
            }
            waiting.insert(key.clone(), since.unwrap_or(now));
        }
        waiting
    }

    fn act(&mut self, state: &mut ActorState, session: &Arc<Session>, action: SpreadAction, now: Moment) {
        match action {
            SpreadAction::Take { key, dead } => {
                let noted = state.left_behind.get(&key).map(|(session, _)| *session);
                if let Some(dead) = dead.filter(|dead| noted != Some(*dead)) {
                    state.note_left_behind(dead);
                }
                self.send_ticket(session, &key, WaitMode::once(dead), CancellationToken::new());
                state.mine.insert(key, TaskWork::Asks { since: now });
            }
            SpreadAction::Wait { key } => {
                let withdraw = CancellationToken::new();
                self.send_ticket(session, &key, WaitMode::SUCCESSOR, withdraw.clone());
                state.mine.insert(key, TaskWork::Waits(withdraw));
            }
            SpreadAction::Withdraw { key } => {
                if let Some(TaskWork::Waits(withdraw)) = state.mine.get(&key) {
                    withdraw.cancel();
                }
            }
            SpreadAction::Give { key, to, must } => {
                if let Some(TaskWork::Has(worker)) = state.mine.get(&key) {
                    worker.give(to, must);
                }
            }
        }
    }

    /// Contends for a task. The loop receives the outcome.
    fn send_ticket(&self, session: &Arc<Session>, key: &Key, mode: WaitMode, withdraw: CancellationToken) {
        let lock = reading::lock(self.engine(), &self.shared.spread, key);
        let life = Some(self.elect.life());
        let mut ticket = self.engine().contend(session, life, &lock, &self.wants, mode);
        let key = key.clone();
        self.takes.push(
            async move {
                tokio::select! {
                    biased;
                    outcome = ticket.outcome() => (key, Some(outcome)),
                    () = withdraw.cancelled() => (key, None),
                }
            }
            .boxed(),
        );
    }

    /// Acts on the outcome of a ticket; `None` if it was withdrawn.
    pub(super) fn on_take_result(&mut self, key: Key, outcome: Option<AcquireOutcome>) {
        let engine = self.engine().clone();
        let (now, store_now) = (engine.clock.now(), engine.store_now());
        let shared = self.shared.clone();
        let mut state = shared.state();
        let work = state.mine.remove(&key);
        let asked = if let Some(TaskWork::Asks { since }) = work { since } else { now };
        match outcome {
            Some(AcquireOutcome::Granted(hold)) => {
                let lease = hold.lease();
                state.view.granted(&key, hold.cell().session.id, lease.term(), now);
                let room = state.has().count() < state.share.cap as usize;
                if state.view.knows(&key) && room {
                    let left_behind = state.left_behind.remove(&key).map(|(_, longest)| longest);
                    // A task that a failing member gets is a probe: it has one try.
                    let is_probe = state.resolved.failing.contains(&hold.cell().session.id);
                    let rules = if is_probe { JobRules { tries: 1, ..self.rules } } else { self.rules };
                    let worker = self.start_worker(hold, rules, left_behind);
                    state.mine.insert(key, TaskWork::Has(worker));
                }
                // Otherwise it is no task any more, or the cap was lowered meanwhile: the hold is dropped.
            }
            Some(AcquireOutcome::Other(TicketOutcome::Held(record, _) | TicketOutcome::Closed(record))) => {
                state.view.read(&key, &LockSeen::Found(*record), asked, now, store_now);
            }
            Some(AcquireOutcome::Other(TicketOutcome::Refused(refusal))) => {
                let lock = reading::lock(&engine, &shared.spread, &key);
                words::error!(kind = %lock.kind, key = lock.key.as_str(), namespace = %lock.namespace, %refusal, "cannot take the task, inspect its record");
                state.view.read(&key, &LockSeen::Refused(refusal), asked, now, store_now);
            }
            Some(AcquireOutcome::Other(TicketOutcome::Here | TicketOutcome::Failed(_))) => {
                state.view.forget_place(&key, now);
            }
            Some(AcquireOutcome::Other(TicketOutcome::Granted { .. } | TicketOutcome::SessionOver))
            | None => {}
        }
        drop(state);
        shared.notify();
        self.mark_touched();
    }

    fn start_worker(&self, hold: Hold, rules: JobRules, left_behind: Option<Longest>) -> WorkerHandle {
        let engine = self.engine().clone();
        let (worker, handle) = Worker::new(
            engine.clone(),
            &hold,
            self.start.clone(),
            rules,
            left_behind,
            self.shared.clone(),
            self.report.clone(),
        );
        // Here and not in the task: a runtime that shuts down drops a task before it ran.
        let permit = hold.work();
        engine.runtime.spawn(worker.work(hold, permit));
        handle
    }

    pub(super) fn on_report(&mut self, report: Report) {
        match report {
            Report::Ended(key, end) => self.on_end(&key, end),
            Report::Stays(key) => {
                let now = self.engine().clock.now();
                words::debug!(spread = %self.shared.spread, %key, "the successor does not take the task, keeping it");
                self.shared.state().stays.insert(key, now + STAYS);
                self.mark_changed();
            }
        }
    }

    /// Notes that a worker has let go of its task.
    fn on_end(&mut self, key: &Key, end: TaskEnd) {
        let now = self.engine().clock.now();
        let mut state = self.shared.state();
        let Some(TaskWork::Has(worker)) = state.mine.remove(key) else { return };
        state.stays.remove(key);
        let known = match state.view.task(key) {
            Some(TaskPlace::Held { term, .. }) => Some(*term),
            _ => None,
        };
        // Under another term, a hint has arrived since then, and is newer.
        let term = worker.lease.term();
        if known == Some(term) {
            match end {
                // The hint will say under which term.
                TaskEnd::Given(Some(successor)) => {
                    state.view.granted(key, successor, term, now);
                }
                TaskEnd::Given(None) => {
                    state.view.freed(key, now);
                }
                // All are to read what the record says of it.
                TaskEnd::Resting | TaskEnd::Revoked | TaskEnd::Done | TaskEnd::Over => {
                    state.view.forget_place(key, now);
                }
            }
        }
        drop(state);
        self.shared.notify();
        self.mark_touched();
    }

    /// Leaves the spread: retracts the share, cancels every job, and waits for them.
    pub(super) async fn leave(mut self) {
        let engine: Arc<Engine> = self.engine().clone();
        // Places in the queue are left, and a lock that is granted all the same goes back.
        self.takes.clear();
        engine.spreads.retract(&self.shared.spread);
        if !engine.is_closed() {
            engine.hurry();
            for (_, worker) in self.shared.state().has() {
                worker.lease.give_up(&Loss::Resigned);
            }
        }
        let has_workers = |shared: &Shared| shared.state().has().next().is_some();
        while has_workers(&self.shared) {
            let Some(report) = self.reports.recv().await else { break };
            self.on_report(report);
        }
        self.shared.state().mine.clear();
        self.shared.notify();
    }
}
