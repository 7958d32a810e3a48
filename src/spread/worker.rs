//! One task of a share: its lock is held, its job runs, and runs again, until it is given away.

mod trial;

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
use tokio::sync::{Notify, mpsc, watch};
use tracing::Instrument;

use super::{
    MovePermit,
    busy::{PermitTurn, Postponed},
    trial::Bench,
};
use crate::{
    Event,
    clock::Moment,
    elect::{Engine, Hold, JobEnd, Lease, Note, RunPermit as Inside, Work, job},
    logic::{
        backoff::Backoff,
        key::{Handback, LINE_READ},
        quarantine::{self, Quarantine},
    },
    model::{Candidate, Key, LockId, Loss, SessionId, StoreTime, Why},
    store::LockSeen,
    sync::locked,
};

/// How long an heir is waited for that does not stand in line yet. Then the task stays, for the heir may have
/// died; or is just released, if it must go.
const HEIR_PATIENCE: Duration = Duration::from_secs(1);
/// How long a task stays closed that is done for good: as good as for ever, and no clock overflows.
const FOR_GOOD: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// What a record says of a task that is done.
const DONE: &str = "done";
/// A task that an operator wanted back stays closed for a moment: so all members read whom it was taken from.
const REVOKED_FOR: Duration = Duration::from_secs(1);

pub(crate) type Start =
    Arc<dyn Fn(&Key, Lease, &MovePermit) -> Option<BoxFuture<'static, Result<(), String>>> + Send + Sync>;

/// What becomes of a task whose job has returned `Ok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// It is run again here after a rest.
    Again(Option<Duration>),
    /// It is never run again, by anybody.
    ForGood,
}

impl Done {
    /// How long the rest is, if somebody has set it.
    pub(super) const fn rest(self) -> Option<Duration> {
        if let Self::Again(rest) = self { rest } else { None }
    }
}

/// By what rules jobs are run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) done: Done,
    /// How often a job may fail in a row before its task rests, and another instance tries.
    pub(super) tries: u32,
}

/// What a worker is told.
#[derive(Debug)]
pub(super) enum WorkerCommand {
    /// Give the task away, to that session once it stands in line; if it must go, in any case.
    Give { to: Option<SessionId>, must: bool },
}

/// What a task of a share is about at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Its holders before died with it: it waits to be tried.
    Suspect {
        /// How many, one after the other.
        deaths: u32,
    },
    /// Its job runs.
    Running,
    /// Its job returned, and is run again after a rest.
    Resting,
    /// Its job failed, and is tried again.
    Failed {
        /// How often in a row.
        times: u32,
        /// What it said last.
        error: String,
    },
    /// It goes to another instance.
    Leaving,
}

/// How a worker's time with a task came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskEnd {
    /// It was given away, to that session if any.
    Given(Option<SessionId>),
    /// It failed too often: it rests, and then somebody else is to try.
    Quarantined,
    /// It is done.
    Done,
    /// An operator wanted it back.
    Revoked,
    /// It was lost, or the program stops.
    Over,
}

/// What a worker tells its spread.
#[derive(Debug)]
pub(super) enum Report {
    /// It has let go of its task.
    Ended(Key, TaskEnd),
    /// It was to give its task away, and the heir does not come, or the job is busy: it keeps it.
    Stays(Key),
    /// The record says that the task is kept as its job is busy, or says so no more.
    Said(Key),
    /// A task was tried, and may be moved again.
    Tried,
}

/// Tells how it ended, whatever ends it.
struct Telling {
    report: mpsc::UnboundedSender<Report>,
    key: Key,
    ended: TaskEnd,
}

impl Drop for Telling {
    fn drop(&mut self) {
        // An error says that the spread has stopped.
        let _ = self.report.send(Report::Ended(self.key.clone(), self.ended));
    }
}

/// The worker as its spread sees it.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) lease: Lease,
    pub(super) orders: mpsc::UnboundedSender<WorkerCommand>,
    leaving: Arc<AtomicBool>,
    /// Somebody began to wait for the task.
    pub(super) line: Arc<Notify>,
    pub(super) phase: Arc<Mutex<Phase>>,
}

impl Handle {
    pub(super) fn phase(&self) -> Phase {
        locked(&self.phase).clone()
    }

    /// Has it given away.
    pub(super) fn give(&self, to: Option<SessionId>, must: bool) {
        self.leaving.store(true, Ordering::Release);
        // An error says that it has ended by itself.
        let _ = self.orders.send(WorkerCommand::Give { to, must });
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }
}

pub(super) struct Worker {
    engine: Arc<Engine>,
    key: Key,
    lease: Lease,
    start: Start,
    rules: Rules,
    /// Since when it has it.
    taken: Moment,
    /// Where it waits if its holders before died with it.
    bench: Arc<Bench>,
    /// Its record may say that they did.
    noted: bool,
    orders: mpsc::UnboundedReceiver<WorkerCommand>,
    line: Arc<Notify>,
    phase: Arc<Mutex<Phase>>,
    /// Counts the changes of the spread.
    changed: watch::Sender<u64>,
    seeking: Fuse<BoxFuture<'static, Option<Box<Candidate>>>>,
    /// It was said that it is to go.
    leaving: Arc<AtomicBool>,
    /// Whether it can.
    busy: MovePermit,
    /// What waits until it can.
    postponed: Postponed,
    /// It goes in any case.
    must: bool,
    report: mpsc::UnboundedSender<Report>,
    heir: Option<Box<Candidate>>,
}

/// How the job has fared since the task was taken.
#[derive(Debug)]
struct Fares {
    rests: Backoff,
    /// How often it failed in a row here.
    failures: u32,
    /// When it failed first, of those.
    first: Option<Moment>,
    /// It worked here: what others had to say of it is over.
    worked: bool,
}

impl Fares {
    fn is_well(&mut self) {
        *self = Self { failures: 0, first: None, worked: true, rests: self.rests };
        self.rests.reset();
    }

    fn failed(&mut self, now: Moment) {
        self.failures = self.failures.saturating_add(1);
        self.first.get_or_insert(now);
    }
}

/// How a worker lets go, and of what sort the parting is.
type Exit = (TaskEnd, Handback);

/// What comes after a job.
enum NextRun {
    Again(Duration),
    End(Exit),
}

impl Worker {
    pub(super) fn new(
        engine: Arc<Engine>,
        hold: &Hold,
        start: Start,
        rules: Rules,
        bench: Arc<Bench>,
        changed: watch::Sender<u64>,
        report: mpsc::UnboundedSender<Report>,
    ) -> (Self, Handle) {
        let leaving = Arc::new(AtomicBool::new(false));
        let (order, orders) = mpsc::unbounded_channel();
        let (line, phase) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Phase::Running)));
        let (lease, taken) = (hold.lease(), engine.clock.now());
        let noted = bench.was_noted(lease.key());
        let handle = Handle {
            lease: lease.clone(),
            orders: order,
            leaving: leaving.clone(),
            line: line.clone(),
            phase: phase.clone(),
        };
        let worker = Self {
            engine,
            key: lease.key().clone(),
            lease,
            start,
            rules,
            taken,
            bench,
            noted,
            orders,
            line,
            phase,
            changed,
            seeking: Fuse::terminated(),
            leaving,
            busy: MovePermit::default(),
            postponed: Postponed::default(),
            must: false,
            report,
            heir: None,
        };
        (worker, handle)
    }

    fn set_phase(&self, phase: Phase) {
        *locked(&self.phase) = phase;
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Works on the task until its time is over, and lets go of its lock.
    ///
    /// It is inside for the whole time: between two runs nobody else leaves last.
    pub(super) async fn work(mut self, mut hold: Hold, inside: Inside) {
        let mut telling =
            Telling { report: self.report.clone(), key: self.key.clone(), ended: TaskEnd::Over };
        let (ended, mut parting) = self.run(&hold).await;
        if self.lease.is_cancelled() {
            // A call that blocks goes on: until it has returned the task is here.
            hold.cell().alone().await;
        }
        // A restart: the record waits for the next session of this holder.
        let is_restart = self.lease.loss() == Some(Loss::Closed) && self.engine.spreads.is_reserved();
        parting.keep = is_restart && ended != TaskEnd::Done;
        telling.ended = ended;
        hold.part_with(parting);
        drop(inside);
        drop(hold);
    }

    async fn run(&mut self, hold: &Hold) -> Exit {
        let rests = Backoff::of_a_job(self.engine.config.refresh_duration());
        let mut fares = Fares { rests, failures: 0, first: None, worked: false };
        if let Some(exit) = self.stands_trial().await {
            return exit;
        }
        loop {
            self.set_phase(Phase::Running);
            let Some(future) = (self.start)(&self.key, self.lease.clone(), &self.busy) else {
                // It is no task any more.
                return (TaskEnd::Given(None), Handback::default());
            };
            let begun = self.engine.clock.now();
            let cell = hold.cell().clone();
            let run = async move { job::drive(&cell, future).instrument(job::span(&cell)).await };
            let end = self.attend(run).await;
            if self.engine.clock.now().since(begun) > rests.longest() {
                // It worked for a while: this failure is another one.
                fares.is_well();
            }
            let rest = match self.after(end, &mut fares).await {
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
                return self.told_to_go();
            }
        }
    }

    /// What comes after a job that ended so.
    async fn after(&mut self, end: JobEnd<(), String>, fares: &mut Fares) -> NextRun {
        let done = self.rules.done == Done::ForGood && end == JobEnd::Finished(());
        if self.lease.is_cancelled() && !done {
            return NextRun::End(self.told_to_go());
        }
        let error = match end {
            JobEnd::Finished(()) => {
                fares.is_well();
                return match self.rules.done {
                    Done::Again(rest) => {
                        self.set_phase(Phase::Resting);
                        NextRun::Again(rest.unwrap_or(self.engine.times.interval))
                    }
                    Done::ForGood => {
                        let note = Some(Why::shortened(DONE));
                        let parting = Handback { note, closed_for: FOR_GOOD, ..Handback::default() };
                        NextRun::End((TaskEnd::Done, parting))
                    }
                };
            }
            JobEnd::Failed(error) | JobEnd::Panicked(error) => error,
            JobEnd::Cancelled(_) | JobEnd::Overran { .. } => return NextRun::End(self.told_to_go()),
        };
        fares.failed(self.engine.clock.now());
        let (lock, term, failures) = (self.lease.lock(), self.lease.term(), fares.failures);
        self.engine.tallies.note(lock, Note::Failed, Some(error.clone()));
        tracing::debug!(kind = %lock.kind, key = lock.key.as_str(), namespace = %lock.namespace, %term, error, failures, "a task failed");
        self.set_phase(Phase::Failed { times: failures, error: error.clone() });
        if failures < self.rules.tries {
            return NextRun::Again(fares.rests.next(self.engine.entropy.roll()));
        }
        NextRun::End(self.quarantine(error, fares).await)
    }

    /// Lets go of the task, so that it rests and somebody else tries. The row of its failures goes on over those who
    /// have it, one after the other.
    async fn quarantine(&mut self, error: String, fares: &Fares) -> Exit {
        let found = if fares.worked { None } else { self.row(fares.rests.longest()).await };
        if self.lease.is_cancelled() {
            return self.told_to_go();
        }
        let now = self.engine.clock.now();
        let store_now = self.store_now(now);
        let (since, tries) = match found {
            Some(row) => (row.since, row.tries.saturating_add(1)),
            None => (store_now.minus(now.since(fares.first.unwrap_or(now))), 1),
        };
        let quarantine = Quarantine { since, tries, error };
        let rest = quarantine.rest(store_now);
        let parting = Handback { note: Some(quarantine.note()), closed_for: rest, ..Handback::default() };
        let (lock, term, error) = (self.lease.lock().clone(), self.lease.term(), quarantine.error);
        self.engine.tallies.note(&lock, Note::Quarantined, Some(error.clone()));
        tracing::debug!(kind = %lock.kind, key = lock.key.as_str(), namespace = %lock.namespace, %term, error, %since, tries, ?rest, "a task is quarantined");
        self.engine.events.tell(Event::Quarantined { lock, term, since, tries, error, rest });
        (TaskEnd::Quarantined, parting)
    }

    /// The failures before this instance had the task, if they are of the same row.
    async fn row(&mut self, well: Duration) -> Option<Quarantine> {
        let (engine, lock, taken) =
            (self.engine.clone(), self.lease.lock().clone(), self.lease.acquired_at());
        match self.attend(async move { engine.look(lock).await }).await {
            Ok(LockSeen::Found(record)) => quarantine::row(&record.past, taken, well),
            // Then it begins anew: one more try does no harm.
            _ => None,
        }
    }

    fn store_now(&self, now: Moment) -> StoreTime {
        let held = now.since(self.taken);
        self.engine.store_now().unwrap_or_else(|| self.lease.acquired_at().plus(held))
    }

    /// The lease was cancelled: by whom it was given away, or lost.
    fn told_to_go(&mut self) -> Exit {
        let mut parting = Handback { heir: self.heir.take(), ..Handback::default() };
        let ended = match self.lease.loss() {
            Some(Loss::Moved) => TaskEnd::Given(parting.heir.as_ref().map(|heir| heir.session)),
            // An operator does not want it here: others go first, and find out in the record.
            Some(Loss::Revoked { by, why }) => {
                let note = Some(quarantine::revoked(&by, &why));
                parting = Handback { note, closed_for: REVOKED_FOR, ..Handback::default() };
                TaskEnd::Revoked
            }
            _ => TaskEnd::Over,
        };
        (ended, parting)
    }

    /// Awaits this, and does what is ordered meanwhile.
    async fn attend<T>(&mut self, activity: impl Future<Output = T>) -> T {
        let mut activity = pin!(activity);
        let (engine, busy) = (self.engine.clone(), self.busy.clone());
        loop {
            tokio::select! {
                biased;
                done = &mut activity => return done,
                heir = &mut self.seeking, if !self.seeking.is_terminated() => {
                    if heir.is_some() || self.must {
                        self.go(heir);
                    } else {
                        self.stay();
                    }
                }
                turn = self.postponed.turn(&engine, &busy) => self.take(turn),
                Some(order) = self.orders.recv() => match order {
                    WorkerCommand::Give { must: false, .. } if self.postponed.is_kept() => self.stay(),
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

    /// What is to be done about a move that waited for the end of a run.
    fn take(&mut self, turn: PermitTurn) {
        match turn {
            PermitTurn::Ended(heir) => {
                // It may have left meanwhile, and the next run is due.
                let find = find(self.engine.clone(), self.lease.lock().clone(), heir);
                self.seeking = find.boxed().fuse();
            }
            PermitTurn::Kept => {
                self.stay();
                self.postponed.keep(self.lease.clone(), &self.busy);
            }
            PermitTurn::Said => {
                let _ = self.report.send(Report::Said(self.key.clone()));
            }
        }
    }

    /// It is not given away now.
    fn stay(&mut self) {
        self.postponed.end(&self.busy);
        self.leaving.store(false, Ordering::Release);
        let _ = self.report.send(Report::Stays(self.key.clone()));
    }

    /// The job is to stop: the heir waits, or nobody does. One that is busy goes on, unless it must go.
    fn go(&mut self, heir: Option<Box<Candidate>>) {
        if !self.must && !self.busy.lets_go() {
            return match heir {
                // When the run has ended.
                Some(heir) => self.postponed.wait(heir.session, self.engine.clock.now()),
                None => self.stay(),
            };
        }
        self.postponed.end(&self.busy);
        self.heir = heir;
        self.set_phase(Phase::Leaving);
        self.lease.give_up(Loss::Moved);
    }

    /// The ticket of that session in the line of this task, as soon as it is there.
    fn seek(&self, to: SessionId) -> impl Future<Output = Option<Box<Candidate>>> + use<> {
        let (engine, lock, line) = (self.engine.clone(), self.lease.lock().clone(), self.line.clone());
        let look = async move {
            loop {
                let mut more = pin!(line.notified());
                more.as_mut().enable();
                if let Some(ticket) = find(engine.clone(), lock.clone(), to).await {
                    return ticket;
                }
                more.await;
            }
        };
        async move { tokio::time::timeout(HEIR_PATIENCE, look).await.ok() }
    }
}

/// The ticket of that session in the line of a task, if it is there.
async fn find(engine: Arc<Engine>, lock: LockId, to: SessionId) -> Option<Box<Candidate>> {
    let limit = engine.limit();
    let line = engine.call(Work::Lines, limit, engine.store.waiters(lock, LINE_READ, limit)).await;
    let tickets = line.ok()?.waiters.into_iter().filter(|one| one.by.session == to);
    // The latest: it may have left the line with an earlier one.
    tickets.max_by_key(|one| one.by.ticket).map(|ticket| Box::new(ticket.by))
}
