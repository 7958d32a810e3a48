//! Campaigns: contending for a key until stopped.

use std::{fmt, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use serde::Serialize;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    Elect, Error, EventStream, HeldBy, JobEnd, KeyRequest, Lease, Work,
    engine::WORDS_OF_A_LOSS,
    events::EventFilter,
    hold::Hold,
    job, metrics,
    ticket::{AcquireOutcome, Wants},
};
use crate::{
    backoff::Backoff,
    logic::{
        key::{Handback, WHOLE_QUEUE, WaitMode},
        session::LONGEST_ATTEMPT,
    },
    model::{Holder, LockId, Loss},
    store::StoreExt,
    words,
};

type Callback<A> = Arc<dyn Fn(A) -> BoxFuture<'static, ()> + Send + Sync>;
type Job = Arc<dyn Fn(Lease) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Builder of a campaign, which [`run`](Self::run) or [`start`](Self::start) begins. Made by [`KeyRequest::campaign`].
#[must_use = "it contends for nothing until it is run or started"]
pub struct CampaignBuilder {
    ask: KeyRequest,
    on_acquired: Option<Callback<Lease>>,
    on_lost: Option<Callback<Loss>>,
    on_new_leader: Option<Callback<Option<HeldBy>>>,
    rest: Option<Duration>,
}

impl fmt::Debug for CampaignBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CampaignBuilder").field("ask", &self.ask).finish_non_exhaustive()
    }
}

impl CampaignBuilder {
    pub(crate) const fn new(ask: KeyRequest) -> Self {
        Self { ask, on_acquired: None, on_lost: None, on_new_leader: None, rest: None }
    }

    /// Called each time the key is acquired, beside the job of [`run`](Self::run), in no order. The key is kept when the
    /// callback has returned, until it is lost or [resigned](Campaign::resign); it is [`run`](Self::run) that gives it
    /// back. The callback runs under the lease: it is dropped when its time is over, and the lock is not released before.
    pub fn on_acquired<F>(mut self, callback: impl Fn(Lease) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.on_acquired = Some(Arc::new(move |lease| callback(lease).boxed()));
        self
    }

    /// Called each time the lock is lost or given up, at the moment its lease is cancelled. The lock is
    /// released when the callback has returned, or the grace is over; the callback itself runs on to its
    /// end.
    pub fn on_lost<F>(mut self, callback: impl Fn(Loss) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.on_lost = Some(Arc::new(move |loss| callback(loss).boxed()));
        self
    }

    /// Called whenever the key has a new holder: another instance, this one, or none; up to a `poll_interval` after the
    /// change, that of this instance, too. Changes that come while the callback runs are combined into one.
    pub fn on_new_leader<F>(mut self, callback: impl Fn(Option<HeldBy>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.on_new_leader = Some(Arc::new(move |leader| callback(leader).boxed()));
        self
    }

    /// Sets the rest after the job returned, before the campaign contends again. Default: `refresh_interval`;
    /// after a failure from 1 s, doubling up to `refresh_duration`.
    pub const fn rest_between(mut self, rest: Duration) -> Self {
        self.rest = Some(rest);
        self
    }

    /// Contends for the key, and runs this job whenever it is held. When the job returns, the lock is released, and
    /// contended for again after a [rest](Self::rest_between).
    ///
    /// # Errors
    /// A limit is broken, or the engine is closed.
    pub fn run<E, F>(self, job: impl Fn(Lease) -> F + Send + Sync + 'static) -> Result<Campaign, Error>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let job = move |lease| job(lease).map(|end| end.map_err(|error| error.to_string())).boxed();
        self.begin(Some(Arc::new(job)))
    }

    /// Contends like [`run`](Self::run), with a job that gets a clone of `state` at each call: an `async fn`, or an `async`
    /// closure that captures nothing.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with<S, E, F>(
        self,
        state: S,
        job: impl Fn(S, Lease) -> F + Send + Sync + 'static,
    ) -> Result<Campaign, Error>
    where
        S: Clone + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        self.run(move |lease| job(state.clone(), lease))
    }

    /// Contends for the key without a job, for programs with callbacks: it is kept until it is lost or
    /// [resigned](Campaign::resign).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn start(self) -> Result<Campaign, Error> {
        self.begin(None)
    }

    fn begin(self, job: Option<Job>) -> Result<Campaign, Error> {
        let Self { ask, on_acquired, on_lost, on_new_leader, rest } = self;
        let (elect, lock, wants) = ask.parts()?;
        let stop = elect.engine().retiring.child_token();
        let (lead, leading) = watch::channel(None);
        let (resign, resigned) = mpsc::unbounded_channel();
        let runtime = elect.engine().runtime.clone();
        if let Some(callback) = on_new_leader {
            runtime.spawn(tell_of_leaders(elect.clone(), lock.clone(), callback, stop.clone()));
        }
        let campaign = CampaignTask {
            elect: elect.clone(),
            lock: lock.clone(),
            wants,
            on_acquired,
            on_lost,
            job,
            rest,
            failures: Backoff::of_a_job(elect.engine().config.refresh_duration()),
            stop: stop.clone(),
            lead,
            resigned,
            last_callback: None,
        };
        let task = runtime.spawn(campaign.run());
        Ok(Campaign { elect, lock, stop: stop.clone(), stopper: stop.drop_guard(), leading, resign, task })
    }
}

/// A campaign that contends for a key until it is stopped or dropped.
///
/// Dropping it is one of the [ways to give a key up](crate::elect#ways-to-give-a-key-up).
#[derive(Debug)]
#[must_use = "dropping a campaign stops it: keep it in a variable with a name, as `_leader`"]
pub struct Campaign {
    elect: Elect,
    lock: LockId,
    stop: CancellationToken,
    #[expect(dead_code, reason = "its drop stops the campaign")]
    stopper: tokio_util::sync::DropGuard,
    leading: watch::Receiver<Option<Lease>>,
    resign: mpsc::UnboundedSender<Handback>,
    task: JoinHandle<()>,
}

/// Outcome of resigning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Resigned {
    /// The lock is being given up.
    Yes,
    /// The lock is not held here.
    NotLeading,
    /// No instance of that name waits for the lock, so it is kept.
    NobodyWaits,
}

impl Campaign {
    /// Returns the lease, while the key is held and the job has not been cancelled.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        self.leading.borrow().clone().filter(|lease| lease.is_valid() && !lease.is_cancelled())
    }

    /// Returns whether the key is held.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.lease().is_some()
    }

    /// Waits until the key is held.
    ///
    /// # Errors
    /// The campaign has ended.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn led(&self) -> Result<Lease, Error> {
        let mut leading = self.leading.clone();
        loop {
            if let Some(lease) = self.lease() {
                return Ok(lease);
            }
            leading.changed().await.map_err(|_| Error::Closed)?;
        }
    }

    /// Returns the events of this key from now on.
    #[must_use]
    pub fn events(&self) -> EventStream {
        self.elect.engine().events.listen(EventFilter::Lock(self.lock.clone()))
    }

    /// Gives up the lock if it is held, to the first in the queue, and contends again after a rest. One of the [ways
    /// to give a key up](crate::elect#ways-to-give-a-key-up).
    #[must_use]
    pub fn resign(&self) -> Resigned {
        self.hand_back(Handback::default())
    }

    /// Gives up the lock if it is held, to a waiting instance of that name, and contends again after a rest.
    /// One of the [ways to give a key up](crate::elect#ways-to-give-a-key-up).
    ///
    /// # Errors
    /// The name breaks a limit, or the store did not list the waiters.
    pub async fn resign_to(&self, holder: impl AsRef<str>) -> Result<Resigned, Error> {
        let holder = Holder::new(holder)?;
        if !self.is_leading() {
            return Ok(Resigned::NotLeading);
        }
        let engine = self.elect.engine();
        let limit = engine.limit();
        let queue = engine.given.waiters(self.lock.clone(), WHOLE_QUEUE, limit);
        let queue = engine.call(Work::Requested, limit, queue);
        let queue = queue.await.map_err(Error::store)?;
        if !queue.waiters.iter().any(|waiter| waiter.by.holder == holder) {
            return Ok(Resigned::NobodyWaits);
        }
        Ok(self.hand_back(Handback { to: Some(holder), ..Handback::default() }))
    }

    fn hand_back(&self, handback: Handback) -> Resigned {
        // An error says that the campaign has ended.
        if self.is_leading() && self.resign.send(handback).is_ok() {
            Resigned::Yes
        } else {
            Resigned::NotLeading
        }
    }

    /// Stops contending. If the key is held, cancels the job, waits until it has stopped, and releases the
    /// lock. Bounded by the grace and two attempts at the store. One of the [ways to give a key
    /// up](crate::elect#ways-to-give-a-key-up).
    ///
    /// # Cancel safety
    /// Dropped, the campaign stops all the same.
    pub async fn stop(self) {
        self.stop.cancel();
        let patience = self.elect.engine().times.stop_grace + LONGEST_ATTEMPT * 2;
        // An error says that it takes longer, and goes on.
        let _ = tokio::time::timeout(patience, self.task).await;
    }
}

/// Task that runs a campaign.
struct CampaignTask {
    elect: Elect,
    lock: LockId,
    wants: Wants,
    on_acquired: Option<Callback<Lease>>,
    on_lost: Option<Callback<Loss>>,
    job: Option<Job>,
    rest: Option<Duration>,
    failures: Backoff,
    stop: CancellationToken,
    lead: watch::Sender<Option<Lease>>,
    resigned: mpsc::UnboundedReceiver<Handback>,
    /// The callback that was started last: the next one waits for it.
    last_callback: Option<JoinHandle<()>>,
}

impl CampaignTask {
    async fn run(mut self) {
        metrics::contending(self.elect.engine(), &self.lock, true);
        while !self.stop.is_cancelled() {
            let Some(hold) = self.acquired().await else { break };
            // Requests to resign an earlier lease are over with it.
            while self.resigned.try_recv().is_ok() {}
            metrics::leading(self.elect.engine(), &self.lock, true);
            let rest = self.lead(hold).await;
            metrics::leading(self.elect.engine(), &self.lock, false);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
        metrics::contending(self.elect.engine(), &self.lock, false);
    }

    async fn acquired(&self) -> Option<Hold> {
        loop {
            let engine = self.elect.engine();
            let session = tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                session = engine.valid_session() => session.ok()?,
            };
            let life = Some(self.elect.life());
            let mut ticket = engine.contend(&session, life, &self.lock, &self.wants, WaitMode::WAITS);
            let outcome = tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                outcome = ticket.outcome() => outcome,
            };
            if let AcquireOutcome::Granted(hold) = outcome {
                return Some(hold);
            }
        }
    }

    /// Leads until the job returns, the lock is lost, or the campaign is stopped or resigned. Returns how
    /// long to rest before contending again.
    async fn lead(&mut self, mut hold: Hold) -> Duration {
        let (lease, cell) = (hold.lease(), hold.cell().clone());
        self.lead.send_replace(Some(lease.clone()));
        let engine = self.elect.engine().clone();
        self.call_acquired(&lease);
        let worker = hold.work();
        let job = self.job.clone();
        let runs = async {
            if let Some(job) = job {
                let given = lease.clone();
                Some(job::drive(&cell, async move { job(given).await }).await)
            } else {
                lease.cancelled().await;
                None
            }
        };
        let mut runs = std::pin::pin!(runs);
        let mut handback = Handback::default();
        let mut over = None;
        tokio::select! {
            biased;
            end = &mut runs => over = Some(end),
            () = self.stop.cancelled() => cell.cancel(&if engine.is_closed() { Loss::Closed } else { Loss::Resigned }),
            Some(to) = self.resigned.recv() => {
                handback = to;
                cell.cancel(&Loss::Resigned);
            }
            () = lease.cancelled() => {}
        }
        let loss = lease.loss();
        if over.is_some() {
            // Its callbacks are notified, and have the grace.
            cell.cancel(&Loss::Resigned);
        }
        let callback = self.call_lost(loss.clone().unwrap_or(Loss::Resigned));
        let end = match over {
            Some(end) => end,
            None => runs.await,
        };
        if let Some(callback) = callback {
            tokio::select! {
                biased;
                () = cell.stopped() => {}
                () = callback.cancelled() => {}
            }
        }
        self.lead.send_replace(None);
        hold.set_handback(handback);
        drop(worker);
        let rest = self.rest_after(end, loss);
        let returned = engine.keys.when_returned(&self.lock, cell.ticket);
        drop(hold);
        if let Some(returned) = returned {
            // Stopped means released; should it take too long, it goes on behind.
            let patience = engine.times.stop_grace + LONGEST_ATTEMPT;
            let _ = tokio::time::timeout(patience, returned).await;
        }
        rest
    }

    fn rest_after(&mut self, end: Option<JobEnd<(), String>>, loss: Option<Loss>) -> Duration {
        let engine = self.elect.engine();
        match (end, loss) {
            // An operator does not want it here: others go first.
            (_, Some(Loss::Revoked { .. })) => engine.config.refresh_duration(),
            (_, Some(Loss::Resigned)) => engine.times.interval,
            // A job that hung, as one that failed.
            (_, Some(Loss::TimedOut { .. })) => self.failures.next(engine.entropy.roll()),
            (Some(JobEnd::Finished(())), None) => {
                self.failures.reset();
                self.rest.unwrap_or(engine.times.interval)
            }
            (Some(end @ (JobEnd::Failed(_) | JobEnd::Panicked(_))), _) => {
                let rest = self.failures.next(engine.entropy.roll());
                let error = match &end {
                    JobEnd::Failed(error) | JobEnd::Panicked(error) => error.as_str(),
                    _ => "",
                };
                let LockId { kind, key, namespace } = &self.lock;
                words::warn!(%kind, key = key.as_str(), %namespace, holder = %engine.config.holder(), error, end = end.name(), ?rest, "a campaign's job failed");
                rest
            }
            _ => Duration::ZERO,
        }
    }

    /// Starts `on_acquired`. The callbacks of one campaign run one after the other.
    fn call_acquired(&mut self, lease: &Lease) {
        let Some(callback) = self.on_acquired.clone() else { return };
        let (before, under) = (self.last_callback.take(), lease.clone());
        // On the lease's account: it is dropped with it, and reported if it panics.
        let task = lease.spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            callback(under).await;
            Ok::<(), String>(())
        });
        self.last_callback = Some(self.elect.engine().runtime.spawn(async move {
            let _ = task.await;
        }));
    }

    /// Starts `on_lost`. The returned token fires when the callback has returned.
    fn call_lost(&mut self, loss: Loss) -> Option<CancellationToken> {
        let callback = self.on_lost.clone()?;
        let before = self.last_callback.take();
        let done = CancellationToken::new();
        let (done_guard, lock) = (done.clone().drop_guard(), self.lock.clone());
        let engine = self.elect.engine().clone();
        self.last_callback = Some(self.elect.engine().runtime.spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            // Programs exit in it.
            engine.tell_log(WORDS_OF_A_LOSS).await;
            if AssertUnwindSafe(async { callback(loss).await }).catch_unwind().await.is_err() {
                let LockId { kind, key, namespace } = &lock;
                words::error!(%kind, key = key.as_str(), %namespace, "the on_lost callback panicked");
            }
            drop(done_guard);
        }));
        Some(done)
    }
}

async fn tell_of_leaders(
    elect: Elect,
    lock: LockId,
    callback: Callback<Option<HeldBy>>,
    stop: CancellationToken,
) {
    let mut watch = elect.engine().leaders.watch(elect.engine(), &lock);
    // The watch needs no life: the campaign has one.
    drop(elect);
    let mut last = None;
    loop {
        let leader = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            leader = watch.changed() => leader,
        };
        let Ok(leader) = leader else { return };
        let term = leader.as_ref().map(|leader| leader.term);
        if last == Some(term) {
            continue;
        }
        last = Some(term);
        if AssertUnwindSafe(async { callback(leader).await }).catch_unwind().await.is_err() {
            let LockId { kind, key, namespace } = &lock;
            words::error!(%kind, key = key.as_str(), %namespace, "the on_new_leader callback panicked");
        }
    }
}
