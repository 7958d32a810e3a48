//! The owner of one schedule: it goes through its ticks, for as long as the schedule is its task.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::sync::watch;

use super::{
    Tick,
    host::Host,
    metrics,
    run::{self, Bounds, End},
};
use crate::{
    Event, StoreError,
    core::{
        backoff::Backoff,
        calendar::Calendar,
        tick::{Attempt, NotRun, Policies, Step, Ticks},
    },
    elect::{Engine, Lease, careful},
    model::{
        Entry, Holder, Key, Outcome, Rules, RunId, RunRecord, ScheduleId, ScheduleRecord, SessionId, Skipped,
        StoreTime, Why,
    },
    spread::Busy,
    store::{Claim, ClaimAnswer, Cursor, Define, FinishRun, Instruction, ScheduleSeen},
};

/// How many entries of the ledger its new owner reads at once.
const READ: usize = 20;
/// How long to wait before a call that failed is made again, at first.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// And at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A tick is dealt with while its store answers no later than this ahead of the clock.
const AHEAD: Duration = Duration::from_secs(60);

/// The job of a schedule.
pub(super) type Body = Arc<dyn Fn(Tick, Lease) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// What a schedule is, as the program says.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) id: ScheduleId,
    pub(super) calendar: Calendar,
    pub(super) policies: Policies,
    pub(super) timing: Rules,
    pub(super) keep: Keep,
    pub(super) body: Body,
}

/// How much of its history is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    pub(super) younger_than: Duration,
    pub(super) at_least: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self { younger_than: Duration::from_secs(7 * 24 * 60 * 60), at_least: 100 }
    }
}

impl Plan {
    fn policies(&self) -> Rules {
        Rules::new(self.policies.to_string()).expect("policies are one short line")
    }
}

/// The schedule is not to be driven here any more, or not as before.
enum Halt {
    /// The lease has ended, or was never ours.
    Over,
    /// What the program says has changed, or the ledger is to be read again.
    Reload,
}

/// Drives a schedule until its lease ends.
pub(super) struct Driver {
    engine: Arc<Engine>,
    host: Weak<Host>,
    key: Key,
    lease: Lease,
    session: SessionId,
    holder: Holder,
    busy: Busy,
    plans: watch::Receiver<Arc<Plan>>,
    plan: Arc<Plan>,
}

impl Driver {
    pub(super) fn new(
        engine: Arc<Engine>,
        host: Weak<Host>,
        key: Key,
        lease: Lease,
        busy: Busy,
        mut plans: watch::Receiver<Arc<Plan>>,
    ) -> Self {
        let (session, holder) = (lease.session(), engine.config.holder().clone());
        let plan = plans.borrow_and_update().clone();
        Self { engine, host, key, lease, session, holder, busy, plans, plan }
    }

    pub(super) async fn drive(mut self) {
        while !self.lease.is_cancelled() {
            self.plan = self.plans.borrow_and_update().clone();
            let Some((record, runs)) = self.load().await else { return };
            let Some(now) = self.now().await else { return };
            let Plan { calendar, policies, .. } = &*self.plan;
            let ticks = Ticks::load(calendar.clone(), *policies, &record, &runs, now);
            let Some(records) = self.host.upgrade().map(|host| host.board.sit(self.key.clone(), record))
            else {
                return;
            };
            let halt = self.go_through(ticks, records).await;
            if let Some(host) = self.host.upgrade() {
                host.board.leave(&self.key);
            }
            if matches!(halt, Halt::Over) {
                return;
            }
        }
    }

    async fn go_through(&mut self, mut ticks: Ticks, mut records: watch::Receiver<ScheduleRecord>) -> Halt {
        metrics::failures(&self.engine, &self.plan.id, ticks.failures());
        let mut clock = self.engine.store_times.changes();
        loop {
            clock.borrow_and_update();
            if self.lease.is_cancelled() {
                return Halt::Over;
            }
            if self.plans.has_changed().unwrap_or(false) {
                return Halt::Reload;
            }
            if records.has_changed().unwrap_or(false) {
                ticks.hear(&records.borrow_and_update());
            }
            let Some(now) = self.now().await else { return Halt::Over };
            // From here on the schedule is not moved; nor is anything begun while it is.
            let Some(busy) = self.busy.begin() else {
                self.lease.cancelled().await;
                return Halt::Over;
            };
            match ticks.next(now) {
                Step::Run(attempt) => self.tick(&mut ticks, attempt).await,
                Step::Abandon(run) => self.abandon(&mut ticks, &run).await,
                Step::Skip { from, to, count, why } => self.skip(from, to, count, why).await,
                Step::Reload => {
                    tracing::error!(
                        schedule = %self.plan.id,
                        "the store's clock has gone back behind the ledger: ticks go on from its time, those that have run are not run again"
                    );
                    return Halt::Reload;
                }
                Step::Wait(at) => {
                    drop(busy);
                    let (lease, engine) = (self.lease.clone(), self.engine.clone());
                    let due = async {
                        match at {
                            Some(at) => run::until(&engine, at).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        biased;
                        () = lease.cancelled() => return Halt::Over,
                        changed = self.plans.changed() => {
                            if changed.is_err() {
                                // It was removed here: its spread gives it away.
                                lease.cancelled().await;
                            }
                            return Halt::Reload;
                        }
                        Ok(()) = records.changed() => ticks.hear(&records.borrow_and_update()),
                        // It may have gone back: then this is not what to wait for.
                        _ = clock.changed() => {}
                        () = due => {}
                    }
                }
            }
        }
    }

    /// The store's time, as soon as that is known.
    async fn now(&self) -> Option<StoreTime> {
        let mut changes = self.engine.store_times.changes();
        loop {
            changes.borrow_and_update();
            if let Some(now) = self.engine.store_times.now(self.engine.clock.now()) {
                return Some(now);
            }
            tokio::select! {
                biased;
                () = self.lease.cancelled() => return None,
                _ = changes.changed() => {}
            }
        }
    }

    /// Makes a call until it is answered; nothing if the lease is told to end before.
    async fn ask<T, F>(&self, mut call: impl FnMut(Duration) -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let lease = self.lease.clone();
        tokio::select! {
            biased;
            () = lease.cancelled() => None,
            answer = self.insist(&mut call) => Some(answer),
        }
    }

    /// Makes a call until it is answered, for as long as this is polled: also within the grace.
    async fn insist<T, F>(&self, call: &mut impl FnMut(Duration) -> F) -> T
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pauses = Backoff::new(FIRST_PAUSE * 2, LONGEST_PAUSE);
        loop {
            let limit = self.engine.limit();
            match careful(limit, call(limit)).await {
                Ok(answer) => return answer,
                Err(error) => {
                    tracing::debug!(schedule = %self.plan.id, %error, "a call of a schedule was not answered");
                    tokio::time::sleep(pauses.next(self.engine.entropy.roll())).await;
                }
            }
        }
    }

    // ----- its beginning

    /// What the store knows of the schedule: its record, and the last entries of its ledger.
    async fn load(&self) -> Option<(ScheduleRecord, Vec<RunRecord>)> {
        let host = self.host.upgrade()?;
        // Whoever takes over ten thousand schedules asks for some at a time.
        let _turn = host.loading.acquire().await.ok()?;
        let record = self.defined().await?;
        let (store, id) = (&self.engine.store, &self.plan.id);
        let mut runs: Vec<RunRecord> = Vec::new();
        let mut after: Option<Cursor> = None;
        let believable = self.now().await?.plus(AHEAD);
        loop {
            let page = self.ask(|limit| store.history(id.clone(), after.clone(), READ, limit)).await?;
            for (entry, refusal) in &page.page.refused {
                tracing::error!(schedule = %id, entry, %refusal, "an entry of the ledger cannot be used");
            }
            runs.extend(page.page.items);
            after = page.page.next;
            let is_behind = |run: &RunRecord| run.id.entry != Entry::Order && run.id.instant <= believable;
            if after.is_none() || runs.iter().any(is_behind) {
                let mark = page.mark;
                return Some((ScheduleRecord { mark: record.mark.max(mark), ..record }, runs));
            }
        }
    }

    /// The schedule's record, which says what the program says.
    async fn defined(&self) -> Option<ScheduleRecord> {
        let (store, id) = (&self.engine.store, &self.plan.id);
        let (timing, policies) = (self.plan.timing.clone(), self.plan.policies());
        let mut known = self.ask(|limit| store.schedules(vec![id.clone()], limit)).await?;
        let known = known.pop().unwrap_or(ScheduleSeen::Absent);
        let definition = match &known {
            ScheduleSeen::Found(record) => record.definition.clone(),
            ScheduleSeen::Absent => None,
            ScheduleSeen::Refused(_) => return self.unusable(&known).await,
        };
        let is_known =
            definition.as_ref().is_some_and(|known| known.timing == timing && known.policies == policies);
        if let (true, ScheduleSeen::Found(record)) = (is_known, known) {
            return Some(record);
        }
        let define =
            Define { schedule: id.clone(), term: self.lease.term(), timing: timing.clone(), policies };
        let seen = self.ask(|limit| store.define(define.clone(), limit)).await?;
        let ScheduleSeen::Found(record) = seen else { return self.unusable(&seen).await };
        let is_ours = record.definition.as_ref().is_some_and(|known| known.timing == timing);
        if !is_ours {
            tracing::warn!(schedule = %id, "another instance has this schedule under a later term");
            self.lease.cancelled().await;
            return None;
        }
        if definition.is_some_and(|before| before.timing != timing) {
            tracing::info!(schedule = %id, %timing, "the schedule has another timing from now on");
            self.engine.events.tell(Event::Retimed { lock: self.lease.lock().clone(), timing });
        }
        Some(record)
    }

    /// The record cannot be used. Somebody has to look at it; meanwhile nothing is run.
    async fn unusable<T>(&self, seen: &ScheduleSeen) -> Option<T> {
        if let ScheduleSeen::Refused(refusal) = seen {
            tracing::error!(schedule = %self.plan.id, %refusal, "the schedule cannot be run, its record has to be looked at");
        }
        tokio::select! {
            biased;
            () = self.lease.cancelled() => {}
            // Then the driver fails, and its spread tries again.
            () = tokio::time::sleep(self.engine.config.refresh_duration()) => {}
        }
        None
    }

    // ----- its ticks

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

    /// Runs a tick: one attempt, and more if it fails and may be tried again.
    async fn tick(&mut self, ticks: &mut Ticks, mut attempt: Attempt) {
        let mut rests = {
            let retries = self.plan.policies.retries;
            Backoff::new(retries.first, retries.longest.max(retries.first))
        };
        let mut is_over = false;
        while !is_over {
            let claim = self.claim(attempt);
            let store = self.engine.store.clone();
            let Some(claimed) = self.ask(|limit| store.claim(claim.clone(), limit)).await else { return };
            if !self.is_ours(ticks, claimed).await {
                break;
            }
            let end = self.run(ticks, attempt).await;
            let ended = self.engine.store_times.now(self.engine.clock.now());
            let may_try_again = matches!(end.outcome, Outcome::Failed | Outcome::TimedOut)
                && attempt.number < self.plan.policies.retries.tries;
            self.finish(&claim, &end).await;
            is_over = !may_try_again || !self.rest(ticks, rests.next(self.engine.entropy.roll())).await;
            if is_over {
                ticks.ended(ended.unwrap_or(attempt.instant), end.outcome);
                metrics::failures(&self.engine, &self.plan.id, ticks.failures());
            }
            attempt = attempt.again(self.lease.term());
        }
        if attempt.entry == Entry::Order {
            let (store, id, at) = (&self.engine.store, &self.plan.id, attempt.instant);
            let ran = Instruction::Ran { at };
            if self.ask(|limit| store.instruct(id.clone(), ran.clone(), limit)).await.is_some() {
                ticks.ordered(at);
            }
        }
        self.purge_sometimes().await;
    }

    /// Whether the attempt is to be made.
    async fn is_ours(&self, ticks: &mut Ticks, claimed: ClaimAnswer) -> bool {
        let id = &self.plan.id;
        match claimed {
            // Also one that was applied and not answered; but not one that came to its end.
            ClaimAnswer::Yours(run) => run.finish.is_none(),
            ClaimAnswer::Others(run) if run.term > self.lease.term() => {
                tracing::warn!(schedule = %id, instant = %run.id.instant, by = %run.holder, "another instance has this schedule under a later term");
                self.lease.cancelled().await;
                false
            }
            ClaimAnswer::Others(run) => {
                tracing::debug!(schedule = %id, instant = %run.id.instant, by = %run.holder, "the tick is in the ledger already");
                ticks.found(run);
                false
            }
            ClaimAnswer::Refused(refusal) => {
                tracing::error!(schedule = %id, %refusal, "a tick cannot be run, its entry in the ledger has to be looked at");
                false
            }
            ClaimAnswer::Absent => false,
        }
    }

    /// Runs the job of a claimed attempt.
    async fn run(&self, ticks: &Ticks, attempt: Attempt) -> End {
        let engine = &self.engine;
        let (begun, now) = (engine.clock.now(), engine.store_times.now(engine.clock.now()));
        let lateness = now.map_or(Duration::ZERO, |now| now.since(attempt.instant));
        metrics::begun(engine, &self.plan.id, lateness);
        let tick = Tick::new(self.plan.id.clone(), attempt, lateness);
        let bounds = Bounds { timeout: self.plan.policies.timeout, displaced_at: ticks.displaced_at() };
        let end = run::run(engine, &self.lease, tick, &self.plan.body, bounds).await;
        let took = engine.clock.now().since(begun);
        metrics::ended(engine, &self.plan.id, end.outcome, took);
        if end.outcome == Outcome::Succeeded {
            tracing::debug!(schedule = %self.plan.id, instant = %attempt.instant, ?lateness, ?took, "a tick was run");
        } else {
            let (outcome, error) = (end.outcome.as_str(), end.error.as_deref().unwrap_or_default());
            tracing::warn!(schedule = %self.plan.id, instant = %attempt.instant, attempt = attempt.number, outcome, error, "a tick was not run to its end");
        }
        engine.events.tell(Event::Ran {
            lock: self.lease.lock().clone(),
            run: self.run_id(attempt.entry, attempt.instant),
            attempt: attempt.number,
            outcome: end.outcome,
            lateness,
            took,
            error: end.error.clone(),
        });
        end
    }

    /// Writes what came of it, also after the lease was told to end: nobody else has the schedule before this
    /// instance has let go of it.
    async fn finish(&self, claim: &Claim, end: &End) {
        let finish = FinishRun {
            run: claim.run.clone(),
            session: claim.session,
            term: claim.term,
            attempt: claim.attempt,
            outcome: end.outcome,
            error: end.error.as_deref().map(Why::shortened),
        };
        let store = &self.engine.store;
        let answer = self.insist(&mut |limit| store.finish(finish.clone(), limit)).await;
        if !matches!(answer, ClaimAnswer::Yours(_)) {
            tracing::warn!(schedule = %self.plan.id, instant = %claim.run.instant, ?answer, "what came of a run could not be written");
        }
    }

    /// Rests before the next try. Says whether there is to be one.
    async fn rest(&self, ticks: &Ticks, rest: Duration) -> bool {
        let displaced = async {
            match ticks.displaced_at() {
                Some(at) => run::until(&self.engine, at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.lease.cancelled() => false,
            () = displaced => false,
            () = tokio::time::sleep(rest) => true,
        }
    }

    /// Nobody runs it again.
    async fn abandon(&self, ticks: &mut Ticks, run: &RunRecord) {
        let finish = FinishRun {
            run: run.id.clone(),
            session: run.session,
            term: run.term,
            attempt: run.attempt,
            outcome: Outcome::Abandoned,
            error: Some(Why::shortened("its runner died")),
        };
        let store = &self.engine.store;
        if self.ask(|limit| store.finish(finish.clone(), limit)).await.is_none() {
            return;
        }
        tracing::warn!(schedule = %self.plan.id, instant = %run.id.instant, by = %run.holder, "the runner of a tick died, and nobody runs it again");
        ticks.ended(run.id.instant, Outcome::Abandoned);
        metrics::failures(&self.engine, &self.plan.id, ticks.failures());
        metrics::ended(&self.engine, &self.plan.id, Outcome::Abandoned, Duration::ZERO);
        self.engine.events.tell(Event::Ran {
            lock: self.lease.lock().clone(),
            run: run.id.clone(),
            attempt: run.attempt,
            outcome: Outcome::Abandoned,
            lateness: run.lateness(),
            took: Duration::ZERO,
            error: None,
        });
    }

    /// Writes that ticks are not run.
    async fn skip(&self, from: StoreTime, to: StoreTime, count: u64, why: NotRun) {
        let skipped = Some(Skipped { from, count, why: Why::shortened(why.as_str()) });
        let attempt = Attempt { entry: Entry::Skipped, instant: to, number: 1, instead_of: None };
        let claim = Claim { skipped, ..self.claim(attempt) };
        let store = &self.engine.store;
        if self.ask(|limit| store.claim(claim.clone(), limit)).await.is_none() {
            return;
        }
        tracing::warn!(schedule = %self.plan.id, %from, %to, count, why = why.as_str(), "ticks were not run");
        metrics::skipped(&self.engine, &self.plan.id, count, why);
        let lock = self.lease.lock().clone();
        self.engine.events.tell(Event::NotRun { lock, from, to, count, why });
    }

    /// Purges what is old, so seldom that it does not count, and often enough that the ledger does not grow.
    async fn purge_sometimes(&self) {
        let Keep { younger_than, at_least } = self.plan.keep;
        if !self.engine.entropy.roll().is_multiple_of(at_least.max(1) as u64) {
            return;
        }
        let (store, id) = (&self.engine.store, &self.plan.id);
        let mut gone = BTreeSet::new();
        loop {
            let page = self.ask(|limit| store.purge_runs(id.clone(), younger_than, at_least, limit)).await;
            // What was purged before is not purged again: a store that says so would be asked for ever.
            match page.and_then(|page| page.page.items.last().map(|run| run.id.clone())) {
                Some(last) if gone.insert(last.clone()) => {}
                _ => return,
            }
        }
    }
}
