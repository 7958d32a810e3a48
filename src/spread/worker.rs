//! Worker of one task: it holds the task's lock and runs its job, again and again, until the task is given away.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Fuse, FusedFuture},
};
use serde::Serialize;
use tokio::sync::{Notify, mpsc};

use super::{MovePermit, shared::Shared};
use crate::{
    Event,
    backoff::Backoff,
    clock::Moment,
    elect::{Engine, Hold, JobEnd, Lease, Note, RunPermit, Work, job},
    logic::{
        failing::Longest,
        key::{Handback, QUEUE_READ},
    },
    model::{Key, LockId, Loss, SessionId, StoreTime},
    store::{Candidate, Ended, FOR_GOOD, FailureRow, LockSeen, Note as LastNote, StoreExt},
    sync::locked,
    words,
};

/// Time for which a successor may be missing from the queue. Then the task stays, as the successor may have died; or
/// it is just released, if it must go.
const SUCCESSOR_PATIENCE: Duration = Duration::from_secs(1);
/// Time for which a revoked task stays closed: all members read meanwhile which one it was taken from.
const REVOKED_FOR: Duration = Duration::from_secs(1);

pub(crate) type Start =
    Arc<dyn Fn(&Key, Lease, &MovePermit) -> Option<BoxFuture<'static, Result<(), String>>> + Send + Sync>;

/// Fate of a task whose job has returned `Ok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// Run again here after a rest.
    Again(Option<Duration>),
    /// Never run again, by any instance.
    ForGood,
}

impl Done {
    /// Returns the rest, if the program has set it.
    pub(super) const fn rest(self) -> Option<Duration> {
        if let Self::Again(rest) = self { rest } else { None }
    }
}

/// Rules for the jobs of a spread.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobRules {
    pub(super) done: Done,
    /// Failures in a row before the task is given up.
    pub(super) tries: u32,
    /// Tells the errors after which it is given up at once.
    pub(super) gives_up_on: fn(&str) -> bool,
}

/// Command to a worker.
#[derive(Debug)]
pub(super) enum WorkerCommand {
    /// Give the task away, to that session once it is in the queue; if it `must` go, in any case.
    Give { to: Option<SessionId>, must: bool },
}

/// Phase of a task that this instance holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Phase {
    /// Running.
    Running,
    /// The job has returned, and is run again after a while.
    Idle,
    /// The job has failed, and is to be tried again.
    Failing {
        /// Failures in a row.
        times: u32,
        /// Number of failures after which it is given up.
        of: u32,
        /// Last error.
        error: String,
    },
    /// On its way to another instance.
    Moving,
}

/// End of a worker's time with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskEnd {
    /// Given away, to that session if any.
    Given(Option<SessionId>),
    /// Given up after too many failures: the task rests, and then another instance is to try.
    Resting,
    /// Done for good.
    Done,
    /// Revoked by an operator.
    Revoked,
    /// Lost, or the program stops.
    Over,
}

/// Report of a worker to its spread.
#[derive(Debug)]
pub(super) enum Report {
    /// The worker has let go of its task.
    Ended(Key, TaskEnd),
    /// The task stays: the successor does not come.
    Stays(Key),
}

/// Reports how the work ended, whatever ends it.
struct EndReport {
    report: mpsc::UnboundedSender<Report>,
    key: Key,
    ended: TaskEnd,
}

impl Drop for EndReport {
    fn drop(&mut self) {
        // An error says that the spread has stopped.
        let _ = self.report.send(Report::Ended(self.key.clone(), self.ended));
    }
}

/// Handle of the spread to a worker.
#[derive(Debug)]
pub(super) struct WorkerHandle {
    pub(super) lease: Lease,
    commands: mpsc::UnboundedSender<WorkerCommand>,
    leaving: Arc<AtomicBool>,
    move_permit: MovePermit,
    /// Notifies when an instance begins to wait for the task.
    pub(super) queue: Arc<Notify>,
    pub(super) phase: Arc<Mutex<Phase>>,
}

impl WorkerHandle {
    pub(super) fn phase(&self) -> Phase {
        locked(&self.phase).clone()
    }

    /// Has the task given away.
    pub(super) fn give(&self, to: Option<SessionId>, must: bool) {
        self.leaving.store(true, Ordering::Release);
        // An error says that the worker has ended by itself.
        let _ = self.commands.send(WorkerCommand::Give { to, must });
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// Returns whether the task goes when its job is idle.
    pub(super) fn is_awaited(&self) -> bool {
        self.move_permit.is_awaited()
    }
}

pub(super) struct Worker {
    engine: Arc<Engine>,
    key: Key,
    lease: Lease,
    start: Start,
    rules: JobRules,
    /// Moment at which the task was taken.
    taken: Moment,
    /// Set if its last holder died: the longest row of deaths of a task that this one left behind.
    left_behind: Option<Longest>,
    commands: mpsc::UnboundedReceiver<WorkerCommand>,
    queue: Arc<Notify>,
    phase: Arc<Mutex<Phase>>,
    shared: Arc<Shared>,
    seeking: Fuse<BoxFuture<'static, Option<Box<Candidate>>>>,
    /// Set once the task has been ordered to go.
    leaving: Arc<AtomicBool>,
    /// Withheld while the job is busy.
    move_permit: MovePermit,
    /// The task goes also while its job is busy.
    must: bool,
    report: mpsc::UnboundedSender<Report>,
    successor: Option<Box<Candidate>>,
}

/// Record of the job's runs since the task was taken.
#[derive(Debug)]
struct RunHistory {
    rests: Backoff,
    /// Failures in a row here.
    failures: u32,
    /// Moment of the first of them.
    first: Option<Moment>,
    /// The job worked here: a row of failures elsewhere has ended.
    worked: bool,
}

impl RunHistory {
    fn mark_well(&mut self) {
        *self = Self { failures: 0, first: None, worked: true, rests: self.rests };
        self.rests.reset();
    }

    fn mark_failed(&mut self, now: Moment) {
        self.failures = self.failures.saturating_add(1);
        self.first.get_or_insert(now);
    }
}

/// Exit of a worker: how it ends, and with what its lock is handed back.
type Exit = (TaskEnd, Handback);

/// Step after a run.
enum NextRun {
    Again(Duration),
    End(Exit),
}

impl Worker {
    pub(super) fn new(
        engine: Arc<Engine>,
        hold: &Hold,
        start: Start,
        rules: JobRules,
        left_behind: Option<Longest>,
        shared: Arc<Shared>,
        report: mpsc::UnboundedSender<Report>,
    ) -> (Self, WorkerHandle) {
        let leaving = Arc::new(AtomicBool::new(false));
        let (command, commands) = mpsc::unbounded_channel();
        let (queue, phase) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Phase::Running)));
        let (lease, taken, move_permit) = (hold.lease(), engine.clock.now(), MovePermit::default());
        let handle = WorkerHandle {
            lease: lease.clone(),
            commands: command,
            leaving: leaving.clone(),
            move_permit: move_permit.clone(),
            queue: queue.clone(),
            phase: phase.clone(),
        };
        let worker = Self {
            engine,
            key: lease.key().clone(),
            lease,
            start,
            rules,
            taken,
            left_behind,
            commands,
            queue,
            phase,
            shared,
            seeking: Fuse::terminated(),
            leaving,
            move_permit,
            must: false,
            report,
            successor: None,
        };
        (worker, handle)
    }

    fn set_phase(&self, phase: Phase) {
        *locked(&self.phase) = phase;
        self.shared.notify();
    }

    /// Works on the task until its time is over, and lets go of its lock.
    ///
    /// Holds a run permit throughout, so that the lock is not released between two runs.
    pub(super) async fn work(mut self, mut hold: Hold, permit: RunPermit) {
        let mut end_report =
            EndReport { report: self.report.clone(), key: self.key.clone(), ended: TaskEnd::Over };
        let (ended, mut handback) = self.run(&hold).await;
        if self.lease.is_cancelled() {
            // A blocking call goes on: the task stays here until it has returned.
            hold.cell().alone().await;
        }
        // On a restart the record waits for the next session of this holder.
        let is_restart = self.lease.loss() == Some(Loss::Closed) && self.engine.spreads.is_reserved();
        handback.keep = is_restart && ended != TaskEnd::Done;
        end_report.ended = ended;
        hold.set_handback(handback);
        drop(permit);
        drop(hold);
    }

    async fn run(&mut self, hold: &Hold) -> Exit {
        let well = self.engine.config.refresh_duration();
        // Tasks are tried again within this time after their dependency is back.
        let rests = Backoff::of_a_job(well / 3);
        let mut history = RunHistory { rests, failures: 0, first: None, worked: false };
        if let Some(exit) = self.pause_after_deaths().await {
            return exit;
        }
        loop {
            self.set_phase(Phase::Running);
            let Some(future) = (self.start)(&self.key, self.lease.clone(), &self.move_permit) else {
                // The program has removed the task.
                return (TaskEnd::Given(None), Handback::default());
            };
            let begun = self.engine.clock.now();
            let cell = hold.cell().clone();
            let run = async move { job::drive(&cell, future).await };
            let end = self.attend(run).await;
            if self.engine.clock.now().since(begun) > well {
                // The job worked for a while: this failure begins another row.
                history.mark_well();
            }
            let rest = match self.after(end, &mut history).await {
                NextRun::Again(rest) => rest,
                NextRun::End(exit) => return exit,
            };
            let lease = self.lease.clone();
            self.attend(async move {
                tokio::select! {
                    biased;
                    () = lease.cancelled() => {}
                    () = tokio::time::sleep(rest) => {}
                }
            })
            .await;
            if self.lease.is_cancelled() {
                return self.exit_on_cancel();
            }
        }
    }

    /// Decides what follows a run that ended like this.
    async fn after(&mut self, end: JobEnd<(), String>, history: &mut RunHistory) -> NextRun {
        let done = self.rules.done == Done::ForGood && end == JobEnd::Finished(());
        if self.lease.is_cancelled() && !done {
            return NextRun::End(self.exit_on_cancel());
        }
        let error = match end {
            JobEnd::Finished(()) => {
                history.mark_well();
                return match self.rules.done {
                    Done::Again(rest) => {
                        self.set_phase(Phase::Idle);
                        NextRun::Again(rest.unwrap_or(self.engine.times.interval))
                    }
                    Done::ForGood => {
                        let note = Some(LastNote::Done);
                        let handback = Handback { note, closed_for: FOR_GOOD, ..Handback::default() };
                        NextRun::End((TaskEnd::Done, handback))
                    }
                };
            }
            JobEnd::Failed(error) | JobEnd::Panicked(error) => error,
            JobEnd::Cancelled(_) | JobEnd::Overran { .. } => return NextRun::End(self.exit_on_cancel()),
        };
        history.mark_failed(self.engine.clock.now());
        let (lock, term, failures) = (self.lease.lock(), self.lease.term(), history.failures);
        self.engine.tallies.note(lock, Note::Failed, Some(error.clone()));
        words::debug!(kind = %lock.kind, key = lock.key.as_str(), namespace = %lock.namespace, %term, error, failures, "a task failed");
        let of = if (self.rules.gives_up_on)(&error) { failures } else { self.rules.tries };
        self.set_phase(Phase::Failing { times: failures, of, error: error.clone() });
        if failures < of {
            return NextRun::Again(history.rests.next(self.engine.entropy.roll()));
        }
        NextRun::End(self.give_up(error, history).await)
    }

    /// Gives the task up, so that it rests and another instance tries. The row of its failures goes on over all
    /// instances that have it, one after the other.
    async fn give_up(&mut self, error: String, history: &RunHistory) -> Exit {
        let found = if history.worked {
            None
        } else {
            self.earlier_failures(self.engine.config.refresh_duration()).await
        };
        if self.lease.is_cancelled() {
            return self.exit_on_cancel();
        }
        let now = self.engine.clock.now();
        let store_now = self.store_now(now);
        let holder = self.engine.config.holder();
        let row = if let Some(row) = found {
            row.followed_by(holder, &error)
        } else {
            FailureRow::begun(store_now.minus(now.since(history.first.unwrap_or(now))), holder, &error)
        };
        let rest = row.rest(self.others_have_room(&row), store_now);
        let (since, tries) = (row.since, row.tries);
        self.exit_to_rest(LastNote::Failing(row), since, tries, error, rest)
    }

    /// Gives the task back for a while, if too many of its last holders died while they had it. Returns nothing if it may
    /// start.
    async fn pause_after_deaths(&mut self) -> Option<Exit> {
        let longest = self.left_behind?;
        let (engine, lock) = (self.engine.clone(), self.lease.lock().clone());
        let seen = self.attend(async move { engine.look(lock).await }).await;
        if self.lease.is_cancelled() {
            return Some(self.exit_on_cancel());
        }
        // Without its record it starts: another death would show it.
        let Ok(LockSeen::Found(record)) = seen else { return None };
        let last = record.past.first().filter(|last| last.how == Ended::Died)?;
        let row = {
            let state = self.shared.state();
            // A process that goes on did not die.
            state.view.deaths.of_task(std::slice::from_ref(last))?;
            state.view.deaths.of_task(&record.past)?
        };
        let row = row.row;
        let pause = longest.pause(row.deaths, self.engine.entropy.roll());
        if pause.is_zero() {
            return None;
        }
        Some(self.exit_to_rest(LastNote::Dying(row), row.since, row.deaths, row.to_string(), pause))
    }

    /// Gives the task back, closed while it rests.
    fn exit_to_rest(
        &self,
        note: LastNote,
        since: StoreTime,
        tries: u32,
        error: String,
        rest: Duration,
    ) -> Exit {
        let handback = Handback { note: Some(note), closed_for: rest, ..Handback::default() };
        let (lock, term) = (self.lease.lock().clone(), self.lease.term());
        self.engine.tallies.note(&lock, Note::Resting, Some(error.clone()));
        words::debug!(kind = %lock.kind, key = lock.key.as_str(), namespace = %lock.namespace, %term, error, %since, tries, ?rest, "a task rests");
        self.engine.events.send(Event::Resting { lock, term, since, tries, error, rest });
        (TaskEnd::Resting, handback)
    }

    /// Returns whether a member with room is left that did not give the task up in this row.
    fn others_have_room(&self, row: &FailureRow) -> bool {
        let Some(session) = self.engine.current() else { return false };
        let state = self.shared.state();
        let me = state.me(&self.engine, &session);
        state.view.others_have_room(&me, &self.key, &row.by, &state.resolved.targets)
    }

    /// Reads the failures before this instance had the task, if they are of the same row.
    async fn earlier_failures(&mut self, well: Duration) -> Option<FailureRow> {
        let (engine, lock, taken) =
            (self.engine.clone(), self.lease.lock().clone(), self.lease.acquired_at());
        match self.attend(async move { engine.look(lock).await }).await {
            Ok(LockSeen::Found(record)) => {
                let now = self.store_now(self.engine.clock.now());
                FailureRow::of(&record.past, taken, now, well)
            }
            // Then the row begins anew: one more try does no harm.
            _ => None,
        }
    }

    fn store_now(&self, now: Moment) -> StoreTime {
        let held = now.since(self.taken);
        self.engine.store_now().unwrap_or_else(|| self.lease.acquired_at().plus(held))
    }

    /// Returns the exit of a worker whose lease is cancelled.
    fn exit_on_cancel(&mut self) -> Exit {
        let mut handback = Handback { successor: self.successor.take(), ..Handback::default() };
        let ended = match self.lease.loss() {
            Some(Loss::Moved) => {
                TaskEnd::Given(handback.successor.as_ref().map(|successor| successor.session))
            }
            // An operator does not want the task here: others go first, as they read in the record.
            Some(Loss::Revoked { by, why }) => {
                let note = Some(LastNote::Revoked { by, why });
                handback = Handback { note, closed_for: REVOKED_FOR, ..Handback::default() };
                TaskEnd::Revoked
            }
            Some(
                Loss::Expired { .. }
                | Loss::DeclaredDead { .. }
                | Loss::Vanished { .. }
                | Loss::Resigned
                | Loss::Closed
                | Loss::TimedOut { .. }
                | Loss::Probe,
            )
            | None => TaskEnd::Over,
        };
        (ended, handback)
    }

    /// Awaits this, and obeys commands meanwhile.
    async fn attend<T>(&mut self, activity: impl Future<Output = T>) -> T {
        let mut activity = pin!(activity);
        let permit = self.move_permit.clone();
        loop {
            tokio::select! {
                biased;
                done = &mut activity => return done,
                successor = &mut self.seeking, if !self.seeking.is_terminated() => {
                    if successor.is_some() || self.must {
                        self.go(successor);
                    } else {
                        self.stay();
                    }
                }
                // The successor may have left the queue meanwhile, and the next run is due.
                successor = permit.until_movable(), if self.seeking.is_terminated() => {
                    let find = find(self.engine.clone(), self.lease.lock().clone(), successor);
                    self.seeking = find.boxed().fuse();
                }
                Some(command) = self.commands.recv() => match command {
                    WorkerCommand::Give { to: Some(to), must } => {
                        self.must = must;
                        self.seeking = self.seek(to).boxed().fuse();
                    }
                    WorkerCommand::Give { to: None, must } => {
                        self.must = must;
                        self.go(None);
                    }
                },
            }
        }
    }

    /// Keeps the task for now.
    fn stay(&mut self) {
        self.move_permit.stay();
        self.leaving.store(false, Ordering::Release);
        let _ = self.report.send(Report::Stays(self.key.clone()));
    }

    /// Gives the task away: the successor waits, or there is none. A job that is busy goes on, unless the task must go.
    fn go(&mut self, successor: Option<Box<Candidate>>) {
        let session = successor.as_ref().map(|successor| successor.session);
        if !self.must && !self.move_permit.let_go(session) {
            // With a successor it is given away when the run has ended.
            if session.is_none() {
                self.stay();
            }
            return;
        }
        self.move_permit.stay();
        self.successor = successor;
        self.set_phase(Phase::Moving);
        self.lease.give_up(&Loss::Moved);
    }

    /// Waits for the ticket of that session in the queue of this task.
    fn seek(&self, to: SessionId) -> impl Future<Output = Option<Box<Candidate>>> + use<> {
        let (engine, lock, queue) = (self.engine.clone(), self.lease.lock().clone(), self.queue.clone());
        let look = async move {
            loop {
                let mut more = pin!(queue.notified());
                more.as_mut().enable();
                if let Some(ticket) = find(engine.clone(), lock.clone(), to).await {
                    return ticket;
                }
                more.await;
            }
        };
        async move { tokio::time::timeout(SUCCESSOR_PATIENCE, look).await.ok() }
    }
}

/// Finds the ticket of that session in the queue of a task.
async fn find(engine: Arc<Engine>, lock: LockId, to: SessionId) -> Option<Box<Candidate>> {
    let limit = engine.limit();
    let queue = engine.call(Work::Queues, limit, engine.store().waiters(lock, QUEUE_READ, limit)).await;
    let tickets = queue.ok()?.waiters.into_iter().filter(|one| one.by.session == to);
    // The latest: the session may have left the queue with an earlier one.
    tickets.max_by_key(|one| one.by.ticket).map(|ticket| Box::new(ticket.by))
}
