//! The driver of one schedule: it goes through the ticks, for as long as the schedule is this instance's task.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use tokio::sync::watch;

use super::{
    Failure, Tick,
    failure::FailureCallbacks,
    metrics, run,
    runner::ScheduleRunner,
    spec::{Keep, ScheduleSpec},
    subscriptions::Subscription,
};
use crate::{
    Event,
    elect::{Engine, Lease, Work},
    logic::{
        flaw::Flaw,
        tick::{Attempt, NotRun, OnCrash, TickStep, Ticks},
    },
    model::{Entry, Holder, Key, RunId, SessionId, Skipped, StoreTime, Why},
    spread::{BusyGuard, MovePermit},
    store::{Claim, ScheduleRecord, StoreExt},
    words,
};

mod attempts;
mod load;
mod retry;
mod unbegun;
mod unwritten;

pub(super) use unwritten::Unwritten;

/// Number of ticks of which one is followed by a purge, at most.
const ROLL: usize = 10;

/// Reason for a driver to stop, or to begin anew.
enum Halt {
    /// The lease has ended, or was never ours.
    Over,
    /// The ledger has to be read again.
    Reload,
    /// The program has set another timing.
    Retimed,
    /// The program has removed the schedule.
    Removed,
}

/// Drives a schedule until its lease ends.
pub(super) struct Driver {
    engine: Arc<Engine>,
    runner: Weak<ScheduleRunner>,
    unwritten: Arc<Unwritten>,
    key: Key,
    lease: Lease,
    session: SessionId,
    holder: Holder,
    permit: MovePermit,
    specs: watch::Receiver<Arc<ScheduleSpec>>,
    spec: Arc<ScheduleSpec>,
    callbacks: FailureCallbacks,
}

impl Driver {
    pub(super) fn new(
        engine: Arc<Engine>,
        runner: &Arc<ScheduleRunner>,
        key: Key,
        lease: Lease,
        permit: MovePermit,
        mut specs: watch::Receiver<Arc<ScheduleSpec>>,
    ) -> Self {
        let (session, holder) = (lease.session(), engine.config.holder().clone());
        let spec = specs.borrow_and_update().clone();
        let callbacks = FailureCallbacks::default();
        let (runner, unwritten) = (Arc::downgrade(runner), runner.unwritten.clone());
        Self { engine, runner, unwritten, key, lease, session, holder, permit, specs, spec, callbacks }
    }

    pub(super) async fn drive(mut self) {
        self.drive_on().await;
        // Closing the instance waits for the callbacks, for as long as the grace lasts.
        std::mem::take(&mut self.callbacks).finish().await;
    }

    async fn drive_on(&mut self) {
        while !self.lease.is_cancelled() {
            self.spec = self.specs.borrow_and_update().clone();
            // Before the record is read: what changes meanwhile arrives.
            let Some(runner) = self.runner.upgrade() else { return };
            let subscription = runner.subscriptions.subscribe(self.key.clone(), self.spec.id.clone());
            drop(runner);
            if !self.write_what_ended().await {
                return;
            }
            let (record, runs) = match self.load().await {
                Ok(loaded) => loaded,
                Err(why) => return self.report_not_loaded(why).await,
            };
            let Some(now) = self.now().await else { return };
            let ScheduleSpec { calendar, policies, .. } = &*self.spec;
            let mut policies = *policies;
            let since = record.definition.as_ref().map_or(now, |definition| definition.since);
            if calendar.only(since).is_some_and(|only| only <= since) {
                // Later than that the schedule may have run, and been removed since.
                policies.misfire = policies.misfire.within(self.engine.config.retention_runs());
            }
            if self.engine.flaws.has(Flaw::SettleTwice) {
                policies.on_crash = OnCrash::default();
            }
            let ticks = if self.engine.flaws.has(Flaw::ForgetLedger) {
                Ticks::load(calendar.clone(), policies, &ScheduleRecord::new(record.id.clone()), &[], now)
            } else {
                Ticks::load(calendar.clone(), policies, &record, &runs, now)
            };
            if ticks.is_silenced(now) {
                words::error!(
                    schedule = self.spec.id.name.as_str(), namespace = %self.spec.id.namespace, mark = ?record.mark,
                    "the store's clock was ahead: no tick runs until it passes the purged part of the ledger"
                );
            }
            subscription.set_read(record);
            match self.go_through(ticks, subscription).await {
                Halt::Over => return,
                Halt::Reload | Halt::Retimed => {}
                Halt::Removed => {
                    match ScheduleRunner::added_again(&self.runner, &self.key, &self.lease).await {
                        Some(specs) => self.specs = specs,
                        None => return,
                    }
                }
            }
        }
    }

    async fn go_through(&mut self, mut ticks: Ticks, mut subscription: Subscription) -> Halt {
        metrics::failures(&self.engine, &self.spec.id, ticks.failures());
        let mut clock = self.engine.store_times.changes();
        loop {
            clock.mark_seen();
            if self.lease.is_cancelled() {
                return Halt::Over;
            }
            match self.specs.has_changed() {
                Ok(true) if self.specs.borrow_and_update().timing != self.spec.timing => {
                    return Halt::Retimed;
                }
                Ok(_) => {}
                Err(_) => return Halt::Removed,
            }
            // From here on the schedule is not moved; nor is anything begun while it is.
            let Some(busy) = self.begin().await else { return Halt::Over };
            let Some(now) = self.now().await else { return Halt::Over };
            if let Some(record) = subscription.take_news() {
                ticks.hear(&record, now);
            }
            match ticks.next(now) {
                TickStep::Run(attempt) => {
                    self.run_tick(&mut ticks, &mut subscription, attempt).await;
                }
                TickStep::Abandon(run) => self.abandon(&mut ticks, &run).await,
                TickStep::Skip { from, to, count, why } => self.skip(&mut ticks, from, to, count, why).await,
                TickStep::Reload => {
                    words::error!(
                        schedule = self.spec.id.name.as_str(), namespace = %self.spec.id.namespace,
                        "the store's clock went back behind the ledger: ticks continue from its time, and none runs twice"
                    );
                    return Halt::Reload;
                }
                TickStep::Overwritten => match self.restore().await {
                    Ok(record) => ticks.define(&record, now),
                    Err(why) => {
                        self.report_not_loaded(why).await;
                        return Halt::Over;
                    }
                },
                TickStep::Wait(at) => {
                    drop(busy);
                    let (lease, engine) = (self.lease.clone(), self.engine.clone());
                    tokio::select! {
                        biased;
                        () = lease.cancelled() => return Halt::Over,
                        changed = self.specs.changed() => match changed {
                            Ok(()) => self.specs.mark_changed(),
                            Err(_) => return Halt::Removed,
                        },
                        () = subscription.changed() => {}
                        // It may have gone back: then this is not what to wait for.
                        () = clock.changed() => {}
                        () = run::until(&engine, at) => {}
                    }
                }
            }
        }
    }

    /// Waits for the right to begin something; `None` if the lease ends, as the schedule is moved or otherwise.
    async fn begin(&self) -> Option<BusyGuard> {
        let begun = tokio::select! {
            biased;
            () = self.lease.cancelled() => return None,
            begun = self.permit.begin() => begun,
        };
        if begun.is_none() {
            self.lease.cancelled().await;
        }
        begun
    }

    /// Calls the program about a tick that has failed for good, which is on record.
    fn notify_failure(&mut self, tick: Tick, failure: Failure) {
        if let Some(callback) = self.spec.on_failure.clone() {
            self.callbacks.call(&self.engine, callback, tick, failure);
        }
    }

    /// Warns that another instance has the schedule under a later term: this lease is about to end.
    fn warn_superseded(&self, by: Option<&Holder>) {
        words::warn!(schedule = self.spec.id.name.as_str(), namespace = %self.spec.id.namespace, by, "another instance owns this schedule under a later term");
    }

    /// Rests, as nothing can be run, before the driver ends and its spread begins it again.
    async fn rest_before_reload(&self) {
        tokio::select! {
            biased;
            () = self.lease.cancelled() => {}
            () = tokio::time::sleep(self.engine.config.refresh_duration()) => {}
        }
    }

    /// Returns the store's time; if it is not known, that.
    fn now_or(&self, other: StoreTime) -> StoreTime {
        self.engine.store_times.now(self.engine.clock.now()).unwrap_or(other)
    }

    /// Waits for the store's time to be known.
    async fn now(&self) -> Option<StoreTime> {
        let mut changes = self.engine.store_times.changes();
        loop {
            changes.mark_seen();
            if let Some(now) = self.engine.store_times.now(self.engine.clock.now()) {
                return Some(now);
            }
            tokio::select! {
                biased;
                () = self.lease.cancelled() => return None,
                () = changes.changed() => {}
            }
        }
    }

    // ----- what is written

    fn run_id(&self, entry: Entry, instant: StoreTime) -> RunId {
        RunId { schedule: self.spec.id.clone(), instant, entry }
    }

    fn claim(&self, attempt: Attempt) -> Claim {
        Claim {
            run: self.run_id(attempt.entry, attempt.instant),
            session: self.session,
            holder: self.holder.clone(),
            term: self.lease.term(),
            attempt: attempt.number,
            instead_of: attempt.instead_of,
            skipped: None,
        }
    }

    /// Writes that ticks are not run.
    async fn skip(&self, ticks: &mut Ticks, from: StoreTime, to: StoreTime, count: u64, why: NotRun) {
        if self.write_skip(from, to, count, why).await {
            self.purge_sometimes(ticks).await;
        }
    }

    /// Writes the same, without a look at what is old. Returns whether it is written.
    async fn write_skip(&self, from: StoreTime, to: StoreTime, count: u64, why: NotRun) -> bool {
        let skipped = Some(Skipped { from, count, why: Why::shortened(why.as_str()) });
        let attempt = Attempt { entry: Entry::Skipped, instant: to, number: 1, instead_of: None };
        let claim = Claim { skipped, ..self.claim(attempt) };
        let store = self.engine.store();
        if self.retry_or_cancelled(Work::Ledger, |limit| store.claim(claim.clone(), limit)).await.is_none() {
            return false;
        }
        words::warn!(schedule = self.spec.id.name.as_str(), namespace = %self.spec.id.namespace, %from, %to, count, why = why.as_str(), "ticks were skipped");
        metrics::skipped(&self.engine, &self.spec.id, count, why);
        let lock = self.lease.lock().clone();
        self.engine.events.send(Event::NotRun { lock, from, to, count, why });
        true
    }

    /// Purges what is old: so seldom that it costs little, often enough that the ledger does not grow.
    async fn purge_sometimes(&self, ticks: &mut Ticks) {
        let Keep { younger_than, at_least } = self.spec.keep;
        if !self.engine.entropy.roll().is_multiple_of(at_least.max(ROLL) as u64) || !ticks.may_purge() {
            return;
        }
        let mut gone = BTreeSet::new();
        loop {
            let limit = self.engine.limit();
            let page = self.engine.store().purge_runs(self.spec.id.clone(), younger_than, at_least, limit);
            let page = tokio::select! {
                biased;
                () = self.lease.cancelled() => return,
                page = self.engine.call(Work::History, limit, page) => page,
            };
            if let Ok(page) = &page {
                ticks.purged(page.mark);
            }
            match page.map(|page| page.items.last().map(|run| run.id.clone())) {
                // A run that is purged twice would have the store asked for ever.
                Ok(Some(last)) if gone.insert(last.clone()) => {}
                Ok(_) => return,
                Err(error) => {
                    // Another time.
                    words::debug!(schedule = self.spec.id.name.as_str(), namespace = %self.spec.id.namespace, %error, "could not purge the ledger");
                    return;
                }
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The next owner counts them.
        metrics::failures(&self.engine, &self.spec.id, 0);
    }
}
