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
    Tick,
    host::{Board, Host, Seat},
    metrics,
    run::{self, End},
};
use crate::{
    Event, StoreError,
    core::{
        backoff::Backoff,
        calendar::Calendar,
        flaw::Flaw,
        tick::{Attempt, NotRun, Policies, Promise, Step, Ticks},
    },
    elect::{Engine, Lease, careful},
    model::{
        Entry, Finish, Holder, Key, Outcome, Rules, RunId, RunRecord, ScheduleId, ScheduleRecord, SessionId,
        Skipped, StoreTime, Why,
    },
    spread::Busy,
    store::{Claim, ClaimAnswer, Cursor, Define, FinishRun, Instruction, Refusal, ScheduleSeen},
};

/// How many entries of the ledger its new owner reads at once.
const READ: usize = 20;
/// And then, if these do not suffice.
const READ_ON: usize = 1000;
/// A store that does not answer for so long is told of.
const WORTH_TELLING: Duration = Duration::from_secs(10);
/// How long to wait before a call that failed is made again, at first.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// And at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

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

impl Plan {
    fn policies(&self) -> Rules {
        Rules::new(self.policies.to_string()).expect("policies are one short line")
    }
}

/// Why nothing can be run yet.
enum NotLoaded {
    /// The lease is told to end.
    Over,
    /// Another instance has the schedule under a later term.
    Superseded,
    /// The record cannot be used.
    Refused(Refusal),
}

/// The schedule is not to be driven here any more, or not as before.
enum Halt {
    /// The lease has ended, or was never ours.
    Over,
    /// What the program says has changed, or the ledger is to be read again.
    Reload,
    /// The program has removed it.
    Removed,
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
            // Before the record is read: what is said meanwhile arrives.
            let Some(host) = self.host.upgrade() else { return };
            let seat = Board::sit(&host, self.key.clone(), self.plan.id.clone());
            drop(host);
            let (record, runs) = match self.load().await {
                Ok(loaded) => loaded,
                Err(why) => return self.wait_for_the_end(why).await,
            };
            let Some(now) = self.now().await else { return };
            let Plan { calendar, policies, .. } = &*self.plan;
            let mut policies = *policies;
            if self.engine.flaws.has(Flaw::SettleTwice) {
                policies.promise = Promise::default();
            }
            let ticks = if self.engine.flaws.has(Flaw::ForgetLedger) {
                Ticks::load(calendar.clone(), policies, &ScheduleRecord::new(record.id.clone()), &[], now)
            } else {
                Ticks::load(calendar.clone(), policies, &record, &runs, now)
            };
            if ticks.is_silenced(now) {
                tracing::error!(
                    schedule = %self.plan.id, mark = ?record.mark,
                    "nothing is run until the store's clock has passed what was purged from the ledger: it was ahead"
                );
            }
            seat.knows(record);
            match self.go_through(ticks, seat).await {
                Halt::Over => return,
                Halt::Reload => {}
                Halt::Removed => match Host::again(&self.host, &self.key, &self.lease).await {
                    Some(plans) => self.plans = plans,
                    None => return,
                },
            }
        }
    }

    /// Nothing can be run. If the lease does not end, the driver does: its spread begins it again after a rest.
    async fn wait_for_the_end(&self, why: NotLoaded) {
        match why {
            NotLoaded::Over => {}
            NotLoaded::Superseded => {
                tracing::warn!(schedule = %self.plan.id, "another instance has this schedule under a later term");
                self.lease.cancelled().await;
            }
            NotLoaded::Refused(refusal) => {
                tracing::error!(schedule = %self.plan.id, %refusal, "the schedule cannot be run, its record has to be looked at");
                tokio::select! {
                    biased;
                    () = self.lease.cancelled() => {}
                    () = tokio::time::sleep(self.engine.config.refresh_duration()) => {}
                }
            }
        }
    }

    async fn go_through(&mut self, mut ticks: Ticks, mut seat: Seat) -> Halt {
        metrics::failures(&self.engine, &self.plan.id, ticks.failures());
        let mut clock = self.engine.store_times.changes();
        loop {
            clock.mark_seen();
            if self.lease.is_cancelled() {
                return Halt::Over;
            }
            match self.plans.has_changed() {
                Ok(true) => return Halt::Reload,
                Ok(false) => {}
                Err(_) => return Halt::Removed,
            }
            let Some(now) = self.now().await else { return Halt::Over };
            if let Some(record) = seat.news() {
                ticks.hear(&record, now);
            }
            // From here on the schedule is not moved; nor is anything begun while it is.
            let Some(busy) = self.busy.begin() else {
                self.lease.cancelled().await;
                return Halt::Over;
            };
            match ticks.next(now) {
                Step::Run(attempt) => self.tick(&mut ticks, &mut seat, attempt).await,
                Step::Abandon(run) => self.abandon(&mut ticks, &run).await,
                Step::Skip { from, to, count, why } => self.skip(&mut ticks, from, to, count, why).await,
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
                            return if changed.is_ok() { Halt::Reload } else { Halt::Removed };
                        }
                        () = seat.changed() => {}
                        // It may have gone back: then this is not what to wait for.
                        () = clock.changed() => {}
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
        let engine = &self.engine;
        self.until_answered(|| {
            let limit = engine.limit();
            careful(limit, call(limit))
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
                        tracing::info!(schedule = %self.plan.id, "the schedule goes on, the store has answered");
                    }
                    return answer;
                }
                Err(error) => {
                    if !told && self.engine.clock.now().since(begun) >= WORTH_TELLING {
                        told = true;
                        tracing::warn!(schedule = %self.plan.id, %error, "the schedule waits for the store");
                    }
                    tokio::time::sleep(pauses.next(self.engine.entropy.roll())).await;
                }
            }
        }
    }

    // ----- its beginning

    /// What the store knows of the schedule: its record, and the last entries of its ledger.
    async fn load(&self) -> Result<(ScheduleRecord, Vec<RunRecord>), NotLoaded> {
        let host = self.host.upgrade().ok_or(NotLoaded::Over)?;
        // Whoever takes over ten thousand schedules asks for some at a time.
        let _turn = tokio::select! {
            biased;
            () = self.lease.cancelled() => return Err(NotLoaded::Over),
            turn = host.loading.acquire() => turn.map_err(|_| NotLoaded::Over)?,
        };
        let (record, is_new) = self.defined().await?;
        let (store, id) = (&self.engine.store, &self.plan.id);
        let mut runs: Vec<RunRecord> = Vec::new();
        if is_new {
            return Ok((record, runs));
        }
        let mut after: Option<Cursor> = None;
        let now = self.now().await.ok_or(NotLoaded::Over)?;
        loop {
            // More of them only after a clock that was ahead.
            let many = if runs.is_empty() { READ } else { READ_ON };
            let page = self.ask(|limit| store.history(id.clone(), after.clone(), many, limit)).await;
            let page = page.ok_or(NotLoaded::Over)?;
            for (entry, refusal) in &page.page.refused {
                tracing::error!(schedule = %id, entry, %refusal, "an entry of the ledger cannot be used");
            }
            runs.extend(page.page.items);
            after = page.page.next;
            if after.is_none() || Ticks::are_enough(&runs, now) {
                let mark = record.mark.max(page.mark);
                return Ok((ScheduleRecord { mark, ..record }, runs));
            }
        }
    }

    /// The schedule's record, which says what the program says; and whether there was none before.
    async fn defined(&self) -> Result<(ScheduleRecord, bool), NotLoaded> {
        let (store, id) = (&self.engine.store, &self.plan.id);
        let (timing, policies) = (self.plan.timing.clone(), self.plan.policies());
        let known = tokio::select! {
            biased;
            () = self.lease.cancelled() => return Err(NotLoaded::Over),
            known = self.until_answered(|| self.engine.look_at_schedule(id.clone())) => known,
        };
        let before = match known {
            ScheduleSeen::Refused(refusal) => return Err(NotLoaded::Refused(refusal)),
            ScheduleSeen::Found(record) => Some(record),
            ScheduleSeen::Absent => None,
        };
        let says = |record: &ScheduleRecord| {
            let definition = record.definition.as_ref();
            definition.is_some_and(|known| known.timing == timing && known.policies == policies)
        };
        if let Some(record) = before.as_ref().filter(|record| says(record)) {
            return Ok((record.clone(), false));
        }
        let define = Define {
            schedule: id.clone(),
            term: self.lease.term(),
            timing: timing.clone(),
            policies: policies.clone(),
        };
        let seen = self.ask(|limit| store.define(define.clone(), limit)).await.ok_or(NotLoaded::Over)?;
        let record = match seen {
            ScheduleSeen::Found(record) if says(&record) => record,
            ScheduleSeen::Refused(refusal) => return Err(NotLoaded::Refused(refusal)),
            ScheduleSeen::Found(_) | ScheduleSeen::Absent => return Err(NotLoaded::Superseded),
        };
        let is_new = before.is_none();
        if before.and_then(|record| record.definition).is_some_and(|before| before.timing != timing) {
            tracing::info!(schedule = %id, %timing, "the schedule has another timing from now on");
            self.engine.events.tell(Event::Retimed { lock: self.lease.lock().clone(), timing });
        }
        Ok((record, is_new))
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
    async fn tick(&mut self, ticks: &mut Ticks, seat: &mut Seat, mut attempt: Attempt) {
        let mut rests = {
            let retries = self.plan.policies.retries;
            Backoff::new(retries.first, retries.longest.max(retries.first))
        };
        let (mut is_over, mut begun) = (false, None);
        while !is_over {
            let claim = self.claim(attempt);
            let flaws = self.engine.flaws;
            let early = if flaws.has(Flaw::ClaimAfterRun) {
                Some(self.run(ticks, seat, attempt).await)
            } else {
                None
            };
            let store = self.engine.store.clone();
            let Some(claimed) = self.ask(|limit| store.claim(claim.clone(), limit)).await else { return };
            if !self.is_ours(ticks, claimed).await && !flaws.has(Flaw::RunUnclaimed) {
                break;
            }
            let now = || self.engine.store_times.now(self.engine.clock.now()).unwrap_or(attempt.instant);
            let begun = *begun.get_or_insert_with(now);
            let end = match early {
                Some(end) => end,
                None => self.run(ticks, seat, attempt).await,
            };
            let ended = now();
            let may_try_again = matches!(end.outcome, Outcome::Failed | Outcome::TimedOut)
                && attempt.number < self.plan.policies.retries.tries;
            self.finish(&claim, &end).await;
            is_over = !may_try_again || !self.rest(ticks, seat, rests.next(self.engine.entropy.roll())).await;
            if is_over {
                ticks.ended(begun, ended, end.outcome);
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
        self.purge_sometimes(ticks).await;
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
    async fn run(&self, ticks: &mut Ticks, seat: &mut Seat, attempt: Attempt) -> End {
        let engine = &self.engine;
        let begun = engine.clock.now();
        let now = engine.store_times.now(begun).unwrap_or(attempt.instant);
        let lateness = now.since(attempt.instant);
        metrics::begun(engine, &self.plan.id, lateness);
        let tick = Tick::new(self.plan.id.clone(), attempt, lateness);
        let timeout = self.plan.policies.timeout;
        let displaced = self.make_way(ticks, seat, now);
        let end = run::run(engine, &self.lease, tick, &self.plan.body, timeout, displaced).await;
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

    /// Until a run is to make way for the next tick; never, if it need not, or if that one is held back.
    async fn make_way(&self, ticks: &mut Ticks, seat: &mut Seat, now: StoreTime) {
        if let Some(at) = ticks.displaced_at(now) {
            run::until(&self.engine, at).await;
            if let Some(record) = seat.news() {
                ticks.hear(&record, at);
            }
            if !ticks.is_held_back() {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Rests before the next try. Says whether there is to be one: not if the schedule is held back.
    async fn rest(&self, ticks: &mut Ticks, seat: &mut Seat, rest: Duration) -> bool {
        let Some(now) = self.now().await else { return false };
        let is_over = tokio::select! {
            biased;
            () = self.lease.cancelled() => true,
            () = self.make_way(ticks, seat, now) => true,
            () = tokio::time::sleep(rest) => false,
        };
        if let Some(record) = seat.news() {
            ticks.hear(&record, now);
        }
        !is_over && !ticks.is_held_back()
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
        let answer = self.ask(|limit| store.finish(finish.clone(), limit)).await;
        let is_abandoned = |finish: &Finish| finish.outcome == Outcome::Abandoned;
        // Its end may have arrived in between.
        let Some(ClaimAnswer::Yours(RunRecord { finish: Some(finish), .. })) = answer else { return };
        if !is_abandoned(&finish) {
            return;
        }
        tracing::warn!(schedule = %self.plan.id, instant = %run.id.instant, by = %run.holder, "the runner of a tick died, and nobody runs it again");
        ticks.count(Outcome::Abandoned);
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
    async fn skip(&self, ticks: &mut Ticks, from: StoreTime, to: StoreTime, count: u64, why: NotRun) {
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
        self.purge_sometimes(ticks).await;
    }

    /// Purges what is old, so seldom that it does not count, and often enough that the ledger does not grow.
    async fn purge_sometimes(&self, ticks: &mut Ticks) {
        let Keep { younger_than, at_least } = self.plan.keep;
        if !self.engine.entropy.roll().is_multiple_of(at_least.max(1) as u64) || !ticks.may_purge() {
            return;
        }
        let mut gone = BTreeSet::new();
        loop {
            let limit = self.engine.limit();
            let page = self.engine.store.purge_runs(self.plan.id.clone(), younger_than, at_least, limit);
            let page = tokio::select! {
                biased;
                () = self.lease.cancelled() => return,
                page = careful(limit, page) => page,
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
                    tracing::warn!(schedule = %self.plan.id, %error, "the ledger could not be purged");
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
