//! One task of a share: its lock is held, its job runs, and runs again, until it is given away.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
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
    Busy,
    busy::{Postponed, Turn},
    metrics,
};
use crate::{
    Event,
    core::{
        backoff::Backoff,
        key::{LINE_READ, Parting},
    },
    elect::{Engine, Hold, JobEnd, Lease, Loss, Note, Work, Worker as Inside, job},
    model::{Candidate, Key, LockId, Past, SessionId, Value, Why},
    store::LockSeen,
};

/// How long an heir is waited for that does not stand in line yet. Then the task stays, for the heir may have
/// died; or is just released, if it must go.
const HEIR_PATIENCE: Duration = Duration::from_secs(1);
/// How long a task stays closed that is done for good: as good as for ever, and no clock overflows.
const FOR_GOOD: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// What the record of a task says that an instance gave up; another one looks for it.
const GAVE_UP: &str = "gave up: ";
/// What a record says of a task that is done.
const DONE: &str = "done";
/// What the value of a task says that is set aside.
pub(super) const SET_ASIDE: &str = "set aside: ";

pub(crate) type Start =
    Arc<dyn Fn(&Key, Lease, &Busy) -> Option<BoxFuture<'static, Result<(), String>>> + Send + Sync>;

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
    /// How often a job may fail in a row before another instance tries.
    pub(super) tries: u32,
}

/// What a worker is told.
#[derive(Debug)]
pub(super) enum Order {
    /// Give the task away, to that session once it stands in line; if it must go, in any case.
    Give { to: Option<SessionId>, must: bool },
    /// Try again, with a clean record.
    PutBack,
}

/// What a task of a share is about at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
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
    /// Its job failed here and elsewhere. It is not run until it is put back.
    SetAside {
        /// What it said last.
        error: String,
    },
    /// It goes to another instance.
    Leaving,
}

/// How a worker's time with a task came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was given away, to that session if any.
    Given(Option<SessionId>),
    /// It failed too often here: somebody else is to try.
    GaveUp,
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
    Ended(Key, Ended),
    /// It was to give its task away, and the heir does not come, or the job is busy: it keeps it.
    Stays(Key),
    /// The record says that the task is kept as its job is busy, or says so no more.
    Said(Key),
}

/// Tells how it ended, whatever ends it.
struct Telling {
    report: mpsc::UnboundedSender<Report>,
    key: Key,
    ended: Ended,
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
    pub(super) orders: mpsc::UnboundedSender<Order>,
    leaving: Arc<AtomicBool>,
    /// Somebody began to wait for the task.
    pub(super) line: Arc<Notify>,
    pub(super) phase: Arc<Mutex<Phase>>,
}

impl Handle {
    pub(super) fn phase(&self) -> Phase {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has it given away.
    pub(super) fn give(&self, to: Option<SessionId>, must: bool) {
        self.leaving.store(true, Ordering::Release);
        // An error says that it has ended by itself.
        let _ = self.orders.send(Order::Give { to, must });
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
    /// Whether somebody else could try a task that fails here.
    others: Arc<dyn Fn() -> bool + Send + Sync>,
    orders: mpsc::UnboundedReceiver<Order>,
    line: Arc<Notify>,
    phase: Arc<Mutex<Phase>>,
    /// Counts the changes of the spread.
    changed: watch::Sender<u64>,
    seeking: Fuse<BoxFuture<'static, Option<Box<Candidate>>>>,
    /// It was said that it is to go.
    leaving: Arc<AtomicBool>,
    /// Whether it can.
    busy: Busy,
    /// What waits until it can.
    postponed: Postponed,
    /// It goes in any case.
    must: bool,
    report: mpsc::UnboundedSender<Report>,
    heir: Option<Box<Candidate>>,
}

/// How a worker lets go, and of what sort the parting is.
type Exit = (Ended, Parting);

/// What comes after a job.
enum Next {
    Again(Duration),
    End(Exit),
}

impl Worker {
    pub(super) fn new(
        engine: Arc<Engine>,
        hold: &Hold,
        start: Start,
        rules: Rules,
        others: Arc<dyn Fn() -> bool + Send + Sync>,
        changed: watch::Sender<u64>,
        report: mpsc::UnboundedSender<Report>,
    ) -> (Self, Handle) {
        let leaving = Arc::new(AtomicBool::new(false));
        let (order, orders) = mpsc::unbounded_channel();
        let (line, phase) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Phase::Running)));
        let lease = hold.lease();
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
            others,
            orders,
            line,
            phase,
            changed,
            seeking: Fuse::terminated(),
            leaving,
            busy: Busy::default(),
            postponed: Postponed::default(),
            must: false,
            report,
            heir: None,
        };
        (worker, handle)
    }

    fn set_phase(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Works on the task until its time is over, and lets go of its lock.
    ///
    /// It is inside for the whole time: between two runs nobody else leaves last.
    pub(super) async fn work(mut self, mut hold: Hold, inside: Inside) {
        let mut telling = Telling { report: self.report.clone(), key: self.key.clone(), ended: Ended::Over };
        let (ended, mut parting) = self.run(&hold).await;
        // A restart: the record waits for the next session of this holder.
        let is_restart = self.lease.loss() == Some(Loss::Closed) && self.engine.spreads.is_reserved();
        parting.keep = is_restart && ended != Ended::Done;
        telling.ended = ended;
        hold.part_with(parting);
        drop(inside);
        drop(hold);
    }

    async fn run(&mut self, hold: &Hold) -> Exit {
        let mut rests = Backoff::of_a_job(self.engine.config.refresh_duration());
        let mut failures = 0;
        loop {
            self.set_phase(Phase::Running);
            let Some(future) = (self.start)(&self.key, self.lease.clone(), &self.busy) else {
                // It is no task any more.
                return (Ended::Given(None), Parting::default());
            };
            let begun = self.engine.clock.now();
            let cell = hold.cell().clone();
            let run = async move { job::drive(&cell, future).instrument(job::span(&cell)).await };
            let end = self.attend(run).await;
            if self.engine.clock.now().since(begun) > rests.longest() {
                // It worked for a while: this failure is another one.
                failures = 0;
                rests.reset();
            }
            let rest = match self.after(end, &mut failures, &mut rests).await {
                Next::Again(rest) => rest,
                Next::End(exit) => return exit,
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
    async fn after(&mut self, end: JobEnd<(), String>, failures: &mut u32, rests: &mut Backoff) -> Next {
        let done = self.rules.done == Done::ForGood && end == JobEnd::Finished(());
        if self.lease.is_cancelled() && !done {
            return Next::End(self.told_to_go());
        }
        let error = match end {
            JobEnd::Finished(()) => {
                *failures = 0;
                rests.reset();
                return match self.rules.done {
                    Done::Again(rest) => {
                        self.set_phase(Phase::Resting);
                        Next::Again(rest.unwrap_or(self.engine.times.interval))
                    }
                    Done::ForGood => {
                        let note = Some(Why::shortened(DONE));
                        let parting = Parting { note, closed_for: FOR_GOOD, ..Parting::default() };
                        Next::End((Ended::Done, parting))
                    }
                };
            }
            JobEnd::Failed(error) | JobEnd::Panicked(error) => error,
            JobEnd::Cancelled(_) | JobEnd::Overran { .. } => return Next::End(self.told_to_go()),
        };
        *failures += 1;
        let (lock, term) = (self.lease.lock(), self.lease.term());
        self.engine.tallies.note(lock, Note::Failed, Some(error.clone()));
        tracing::debug!(kind = %lock.kind, key = lock.key.as_str(), namespace = %lock.namespace, %term, error, failures, "a task failed");
        if *failures < self.rules.tries {
            self.set_phase(Phase::Failed { times: *failures, error });
            return Next::Again(rests.next(self.engine.entropy.roll()));
        }
        if (self.others)() && !self.was_tried_elsewhere().await {
            let note = Some(Why::shortened(&format!("{GAVE_UP}{error}")));
            return Next::End((Ended::GaveUp, Parting { note, ..Parting::default() }));
        }
        self.set_aside(error).await;
        *failures = 0;
        rests.reset();
        if self.lease.is_cancelled() {
            return Next::End(self.told_to_go());
        }
        Next::Again(Duration::ZERO)
    }

    /// Keeps the task from everybody, until it is put back or the lease ends.
    async fn set_aside(&mut self, error: String) {
        let (lock, term) = (self.lease.lock().clone(), self.lease.term());
        self.engine.tallies.note(&lock, Note::SetAside, Some(error.clone()));
        tracing::debug!(kind = %lock.kind, key = lock.key.as_str(), namespace = %lock.namespace, %term, error, "a task was set aside");
        self.set_phase(Phase::SetAside { error: error.clone() });
        // For others to read; it is told here all the same.
        let said = Why::shortened(&format!("{SET_ASIDE}{error}"));
        if let Ok(value) = Value::new(said.as_str()) {
            let _ = self.lease.set_value(Some(value)).await;
        }
        self.engine.events.tell(Event::SetAside { lock, term, error });
        let lease = self.lease.clone();
        metrics::set_aside(&self.engine, &self.lease, true);
        let put_back = self.attend_orders(async move { lease.cancelled().await }).await.is_none();
        metrics::set_aside(&self.engine, &self.lease, false);
        if put_back {
            let _ = self.lease.set_value(None).await;
        }
    }

    /// Whether the record says that another instance gave this task up.
    async fn was_tried_elsewhere(&mut self) -> bool {
        let own = self.engine.config.holder();
        match self.engine.look(self.lease.lock().clone()).await {
            Ok(LockSeen::Found(record)) => {
                let gave_up =
                    |past: &&Past| past.note.as_ref().is_some_and(|note| note.as_str().starts_with(GAVE_UP));
                let gave_up: Vec<_> = record.past.iter().filter(gave_up).collect();
                // Two instances may carry one name.
                gave_up.len() > 1 || gave_up.iter().any(|past| past.holder != *own)
            }
            // Another try elsewhere does no harm.
            _ => false,
        }
    }

    /// The lease was cancelled: by whom it was given away, or lost.
    fn told_to_go(&mut self) -> Exit {
        let heir = self.heir.take();
        let ended = match self.lease.loss() {
            Some(Loss::Moved) => Ended::Given(heir.as_ref().map(|heir| heir.session)),
            Some(Loss::Revoked { .. }) => Ended::Revoked,
            _ => Ended::Over,
        };
        (ended, Parting { heir, ..Parting::default() })
    }

    /// Awaits this, and does what is ordered meanwhile.
    async fn attend<T>(&mut self, activity: impl Future<Output = T>) -> T {
        let mut activity = pin!(activity);
        loop {
            if let Some(done) = self.attend_orders(&mut activity).await {
                return done;
            }
        }
    }

    /// Awaits this; nothing if the task was put back meanwhile.
    async fn attend_orders<T>(&mut self, activity: impl Future<Output = T>) -> Option<T> {
        let mut activity = pin!(activity);
        let (engine, busy) = (self.engine.clone(), self.busy.clone());
        loop {
            tokio::select! {
                biased;
                done = &mut activity => return Some(done),
                heir = &mut self.seeking, if !self.seeking.is_terminated() => {
                    if heir.is_some() || self.must {
                        self.go(heir);
                    } else {
                        self.stay();
                    }
                }
                turn = self.postponed.turn(&engine, &busy) => self.take(turn),
                Some(order) = self.orders.recv() => match order {
                    Order::Give { must: false, .. } if self.postponed.is_kept() => self.stay(),
                    Order::Give { to: Some(to), must } => {
                        self.must = must;
                        self.seeking = self.seek(to).boxed().fuse();
                    }
                    Order::Give { to: None, must } => {
                        self.must = must;
                        self.go(None);
                    }
                    Order::PutBack => return None,
                },
            }
        }
    }

    /// What is to be done about a move that waited for the end of a run.
    fn take(&mut self, turn: Turn) {
        match turn {
            Turn::Ended(heir) => {
                // It may have left meanwhile, and the next run is due.
                let find = find(self.engine.clone(), self.lease.lock().clone(), heir);
                self.seeking = find.boxed().fuse();
            }
            Turn::Kept => {
                self.stay();
                self.postponed.keep(self.lease.clone(), &self.busy);
            }
            Turn::Said => {
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

    /// The wish of that session in the line of this task, as soon as it is there.
    fn seek(&self, to: SessionId) -> impl Future<Output = Option<Box<Candidate>>> + use<> {
        let (engine, lock, line) = (self.engine.clone(), self.lease.lock().clone(), self.line.clone());
        let look = async move {
            loop {
                let mut more = pin!(line.notified());
                more.as_mut().enable();
                if let Some(wish) = find(engine.clone(), lock.clone(), to).await {
                    return wish;
                }
                more.await;
            }
        };
        async move { tokio::time::timeout(HEIR_PATIENCE, look).await.ok() }
    }
}

/// The wish of that session in the line of a task, if it is there.
async fn find(engine: Arc<Engine>, lock: LockId, to: SessionId) -> Option<Box<Candidate>> {
    let limit = engine.limit();
    let line = engine.call(Work::Lines, limit, engine.store.waiters(lock, LINE_READ, limit)).await;
    let wishes = line.ok()?.waiters.into_iter().filter(|one| one.by.session == to);
    // The latest: it may have left the line with an earlier one.
    wishes.max_by_key(|one| one.by.wish).map(|wish| Box::new(wish.by))
}
