//! The owner of one schedule: it goes through its ticks, for as long as the schedule is its task.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::sync::watch;

use super::{
    Failure, Tick,
    failure::{OnFailure, Teller},
    metrics, run,
    runner::ScheduleRunner,
    subscriptions::{Subscription, Subscriptions},
};
use crate::{
    Event, StoreError,
    elect::{Engine, Lease, Work},
    logic::{
        backoff::Backoff,
        calendar::Calendar,
        flaw::Flaw,
        tick::{Attempt, NotRun, OnCrash, Policies, TickStep, Ticks},
    },
    model::{
        Entry, Holder, Key, Rules, RunId, ScheduleId, ScheduleRecord, SessionId, Skipped, StoreTime, Why,
    },
    spread::{BusyGuard, MovePermit},
    store::Claim,
};

mod attempts;
mod load;
mod unbegun;

/// A purge comes after one of so many ticks at most.
const ROLL: usize = 10;
/// A store that does not answer for so long is told of.
const WORTH_TELLING: Duration = Duration::from_secs(10);
/// How long to wait before a call that failed is made again, at first.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// And at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

type TickJob = Arc<dyn Fn(Tick, Lease) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The job of a schedule.
#[derive(Clone)]
pub(super) struct Body {
    pub(super) call: TickJob,
    /// It waits for a call that blocks, and which goes on if it is dropped.
    pub(super) blocks: bool,
}

/// What a schedule is, as the program says.
#[derive(Clone)]
pub(super) struct ScheduleSpec {
    pub(super) id: ScheduleId,
    pub(super) calendar: Calendar,
    pub(super) policies: Policies,
    pub(super) timing: Rules,
    pub(super) keep: Keep,
    pub(super) body: Body,
    pub(super) on_failure: Option<OnFailure>,
}

/// How much of its history is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    pub(super) younger_than: Duration,
    pub(super) at_least: usize,
}

impl ScheduleSpec {
    /// What is done about its ticks, and by which rules its zone's clocks go: for people, who see from it that two
    /// builds know different ones.
    pub(super) fn policies(&self) -> Rules {
        let text = self.policies.to_string() + &self.calendar.zone_rules().unwrap_or_default();
        Rules::new(text).expect("policies are one short line")
    }
}

/// The schedule is not to be driven here any more, or not as before.
enum Halt {
    /// The lease has ended, or was never ours.
    Over,
    /// The ledger is to be read again.
    Reload,
    /// The program says another timing.
    Retimed,
    /// The program has removed it.
    Removed,
}

/// Drives a schedule until its lease ends.
pub(super) struct Driver {
    engine: Arc<Engine>,
    runner: Weak<ScheduleRunner>,
    key: Key,
    lease: Lease,
    session: SessionId,
    holder: Holder,
    busy: MovePermit,
    plans: watch::Receiver<Arc<ScheduleSpec>>,
    plan: Arc<ScheduleSpec>,
    teller: Teller,
}

impl Driver {
    pub(super) fn new(
        engine: Arc<Engine>,
        runner: Weak<ScheduleRunner>,
        key: Key,
        lease: Lease,
        busy: MovePermit,
        mut plans: watch::Receiver<Arc<ScheduleSpec>>,
    ) -> Self {
        let (session, holder) = (lease.session(), engine.config.holder().clone());
        let plan = plans.borrow_and_update().clone();
        let teller = Teller::default();
        Self { engine, runner, key, lease, session, holder, busy, plans, plan, teller }
    }

    pub(super) async fn drive(mut self) {
        self.drive_on().await;
        // Whoever closes waits for what a failure is told to, for as long as the grace lasts.
        std::mem::take(&mut self.teller).finish().await;
    }

    async fn drive_on(&mut self) {
        while !self.lease.is_cancelled() {
            self.plan = self.plans.borrow_and_update().clone();
            // Before the record is read: what is said meanwhile arrives.
            let Some(runner) = self.runner.upgrade() else { return };
            let subscription = Subscriptions::subscribe(&runner, self.key.clone(), self.plan.id.clone());
            drop(runner);
            let (record, runs) = match self.load().await {
                Ok(loaded) => loaded,
                Err(why) => return self.wait_for_the_end(why).await,
            };
            let Some(now) = self.now().await else { return };
            let ScheduleSpec { calendar, policies, .. } = &*self.plan;
            let mut policies = *policies;
            if self.engine.flaws.has(Flaw::SettleTwice) {
                policies.on_crash = OnCrash::default();
            }
            let ticks = if self.engine.flaws.has(Flaw::ForgetLedger) {
                Ticks::load(calendar.clone(), policies, &ScheduleRecord::new(record.id.clone()), &[], now)
            } else {
                Ticks::load(calendar.clone(), policies, &record, &runs, now)
            };
            if ticks.is_silenced(now) {
                tracing::error!(
                    schedule = self.plan.id.name.as_str(), namespace = %self.plan.id.namespace, mark = ?record.mark,
                    "nothing is run until the store's clock has passed what was purged from the ledger: it was ahead"
                );
            }
            subscription.set_read(record);
            match self.go_through(ticks, subscription).await {
                Halt::Over => return,
                Halt::Reload | Halt::Retimed => {}
                Halt::Removed => {
                    match ScheduleRunner::added_again(&self.runner, &self.key, &self.lease).await {
                        Some(plans) => self.plans = plans,
                        None => return,
                    }
                }
            }
        }
    }

    async fn go_through(&mut self, mut ticks: Ticks, mut subscription: Subscription) -> Halt {
        metrics::failures(&self.engine, &self.plan.id, ticks.failures());
        let mut clock = self.engine.store_times.changes();
        loop {
            clock.mark_seen();
            if self.lease.is_cancelled() {
                return Halt::Over;
            }
            match self.plans.has_changed() {
                Ok(true) if self.plans.borrow_and_update().timing != self.plan.timing => {
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
                TickStep::Run(attempt) => self.tick(&mut ticks, &mut subscription, attempt).await,
                TickStep::Abandon(run) => self.abandon(&mut ticks, &run).await,
                TickStep::Skip { from, to, count, why } => self.skip(&mut ticks, from, to, count, why).await,
                TickStep::Reload => {
                    tracing::error!(
                        schedule = self.plan.id.name.as_str(), namespace = %self.plan.id.namespace,
                        "the store's clock has gone back behind the ledger: ticks go on from its time, those that have run are not run again"
                    );
                    return Halt::Reload;
                }
                TickStep::Overwritten => match self.defined().await {
                    Ok(record) => ticks.is_defined(&record, now),
                    Err(why) => {
                        self.wait_for_the_end(why).await;
                        return Halt::Over;
                    }
                },
                TickStep::Wait(at) => {
                    drop(busy);
                    let (lease, engine) = (self.lease.clone(), self.engine.clone());
                    tokio::select! {
                        biased;
                        () = lease.cancelled() => return Halt::Over,
                        changed = self.plans.changed() => match changed {
                            Ok(()) => self.plans.mark_changed(),
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

    /// The right to begin something; nothing if the lease ends, since the schedule is moved or for another reason.
    async fn begin(&self) -> Option<BusyGuard> {
        let begun = tokio::select! {
            biased;
            () = self.lease.cancelled() => return None,
            begun = self.busy.begin() => begun,
        };
        if begun.is_none() {
            self.lease.cancelled().await;
        }
        begun
    }

    /// A tick has failed for good: that is on record.
    fn failed(&mut self, tick: Tick, failure: Failure) {
        if let Some(callback) = self.plan.on_failure.clone() {
            self.teller.tell(&self.engine, callback, tick, failure);
        }
    }

    /// The schedule is somebody else's under a later term, and this lease is about to end.
    fn is_superseded(&self, by: Option<&Holder>) {
        let by = by.map(tracing::field::display);
        tracing::warn!(schedule = self.plan.id.name.as_str(), namespace = %self.plan.id.namespace, by, "another instance has this schedule under a later term");
    }

    /// Nothing can be run. If the lease does not end, it is tried again after a rest.
    async fn rest_in_vain(&self) {
        tokio::select! {
            biased;
            () = self.lease.cancelled() => {}
            () = tokio::time::sleep(self.engine.config.refresh_duration()) => {}
        }
    }

    /// The store's time; if it is not known, that.
    fn now_or(&self, other: StoreTime) -> StoreTime {
        self.engine.store_times.now(self.engine.clock.now()).unwrap_or(other)
    }

    /// The store's time, as soon as that is known.
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

    /// Makes a call until it is answered; nothing if the lease is told to end before.
    async fn ask<T, F>(&self, work: Work, mut call: impl FnMut(Duration) -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let lease = self.lease.clone();
        tokio::select! {
            biased;
            () = lease.cancelled() => None,
            answer = self.insist(work, &mut call) => Some(answer),
        }
    }

    /// Makes a call until it is answered, for as long as this is polled: also within the grace.
    async fn insist<T, F>(&self, work: Work, call: &mut impl FnMut(Duration) -> F) -> T
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let engine = &self.engine;
        self.until_answered(|| {
            let limit = engine.limit();
            engine.call(work, limit, call(limit))
        })
        .await
    }

    async fn until_answered<T, E, F>(&self, mut call: impl FnMut() -> F) -> T
    where
        E: fmt::Display,
        F: Future<Output = Result<T, E>>,
    {
        let mut pauses = Backoff::new(FIRST_PAUSE * 2, LONGEST_PAUSE);
        let (begun, mut told) = (self.engine.clock.now(), false);
        loop {
            match call().await {
                Ok(answer) => {
                    if told {
                        tracing::debug!(schedule = self.plan.id.name.as_str(), namespace = %self.plan.id.namespace, "the schedule goes on, the store has answered");
                    }
                    return answer;
                }
                Err(error) => {
                    if !told && self.engine.clock.now().since(begun) >= WORTH_TELLING {
                        told = true;
                        tracing::debug!(schedule = self.plan.id.name.as_str(), namespace = %self.plan.id.namespace, %error, "the schedule waits for the store");
                    }
                    tokio::time::sleep(pauses.next(self.engine.entropy.roll())).await;
                }
            }
        }
    }

    // ----- what is written

    fn run_id(&self, entry: Entry, instant: StoreTime) -> RunId {
        RunId { schedule: self.plan.id.clone(), instant, entry }
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

    /// The same, without a look at what is old. Says whether it is written.
    async fn write_skip(&self, from: StoreTime, to: StoreTime, count: u64, why: NotRun) -> bool {
        let skipped = Some(Skipped { from, count, why: Why::shortened(why.as_str()) });
        let attempt = Attempt { entry: Entry::Skipped, instant: to, number: 1, instead_of: None };
        let claim = Claim { skipped, ..self.claim(attempt) };
        let store = &self.engine.store;
        if self.ask(Work::Ledger, |limit| store.claim(claim.clone(), limit)).await.is_none() {
            return false;
        }
        tracing::warn!(schedule = self.plan.id.name.as_str(), namespace = %self.plan.id.namespace, %from, %to, count, why = why.as_str(), "ticks were not run");
        metrics::skipped(&self.engine, &self.plan.id, count, why);
        let lock = self.lease.lock().clone();
        self.engine.events.tell(Event::NotRun { lock, from, to, count, why });
        true
    }

    /// Purges what is old, so seldom that it does not count, and often enough that the ledger does not grow.
    async fn purge_sometimes(&self, ticks: &mut Ticks) {
        let Keep { younger_than, at_least } = self.plan.keep;
        if !self.engine.entropy.roll().is_multiple_of(at_least.max(ROLL) as u64) || !ticks.may_purge() {
            return;
        }
        let mut gone = BTreeSet::new();
        loop {
            let limit = self.engine.limit();
            let page = self.engine.store.purge_runs(self.plan.id.clone(), younger_than, at_least, limit);
            let page = tokio::select! {
                biased;
                () = self.lease.cancelled() => return,
                page = self.engine.call(Work::History, limit, page) => page,
            };
            if let Ok(page) = &page {
                ticks.purged(page.mark);
            }
            match page.map(|page| page.page.items.last().map(|run| run.id.clone())) {
                // What was purged before is not purged again: a store that says so would be asked for ever.
                Ok(Some(last)) if gone.insert(last.clone()) => {}
                Ok(_) => return,
                Err(error) => {
                    // Another time.
                    tracing::debug!(schedule = self.plan.id.name.as_str(), namespace = %self.plan.id.namespace, %error, "the ledger could not be purged");
                    return;
                }
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // They are counted by whoever has it next.
        metrics::failures(&self.engine, &self.plan.id, 0);
    }
}
