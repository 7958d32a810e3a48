//! Attempts at one tick.

use std::time::Duration;

use super::{
    Driver,
    retry::pauses,
    unbegun::Unbegun,
    unwritten::{LateOutcome, RunOutcome, is_recorded},
};
use crate::{
    Event,
    backoff::Backoff,
    elect::Work,
    logic::{
        flaw::Flaw,
        tick::{Attempt, NotRun, Retries, Ticks},
    },
    model::{Entry, Outcome, RunId, RunRecord, StoreTime, Why},
    schedule::{
        Failure, Tick, metrics,
        run::{self, AttemptEnd},
        subscriptions::Subscription,
    },
    store::{Claim, ClaimAnswer, FinishRun, Instruction, StoreExt},
    words,
};

/// The first moment that is too late.
const JUST_AFTER: Duration = Duration::from_millis(1);

/// Returns whether no attempt is to be begun: what is ordered is run also while the schedule is held back.
fn is_held_back(ticks: &Ticks, entry: Entry) -> bool {
    entry != Entry::Order && ticks.is_held_back()
}

/// Attempts at one tick by this driver, one after the other.
struct Series<'a> {
    ticks: &'a mut Ticks,
    subscription: &'a mut Subscription,
    rests: Backoff,
    /// Begin of the first one that was claimed.
    first_begun: Option<StoreTime>,
}

impl<'a> Series<'a> {
    fn new(ticks: &'a mut Ticks, subscription: &'a mut Subscription, retries: Retries) -> Self {
        let rests = Backoff::new(retries.first, retries.longest.max(retries.first));
        Self { ticks, subscription, rests, first_begun: None }
    }
}

/// Result of one attempt, or of asking for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptResult {
    /// Another one is to be made.
    Retry,
    /// The tick is dealt with, as far as this driver can.
    Over,
    /// The claim was given back: nothing was begun.
    GivenBack,
}

/// Outcome of the rest before another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rested {
    /// The attempt is to be made.
    Well,
    /// Not here and now: the lease ends, or the schedule is held back.
    Interrupted,
    /// Not at all: a tick is due that the run has to make way for.
    Displaced,
}

/// Outcome of asking for a claim.
#[derive(Debug)]
enum ClaimReply {
    Answered(ClaimAnswer),
    /// The lease ends: nothing is begun.
    Over,
    /// No attempt is begun, for that reason.
    NotRun(NotRun),
}

impl Driver {
    /// Runs a tick: one attempt, and more if it fails and may be tried again.
    pub(super) async fn run_tick(
        &mut self,
        ticks: &mut Ticks,
        subscription: &mut Subscription,
        mut attempt: Attempt,
    ) {
        let latest = ticks.latest_begin(&attempt);
        let mut series = Series::new(ticks, subscription, self.spec.policies.retries);
        loop {
            if attempt.instead_of == Some((self.lease.term(), attempt.number)) {
                // This owner has given the attempt back itself.
                attempt = attempt.again(self.lease.term());
            }
            let latest = latest.filter(|_| attempt.number == 1);
            match self.attempt_once(&mut series, attempt, latest).await {
                AttemptResult::Retry => attempt = attempt.again(self.lease.term()),
                AttemptResult::Over => break,
                AttemptResult::GivenBack => return,
            }
        }
        if !ticks.is_to_be_settled(attempt.entry, attempt.instant) {
            self.clear_order(ticks, attempt.entry, attempt.instant).await;
        }
        self.purge_sometimes(ticks).await;
    }

    /// Claims an attempt, runs its job, and records the outcome.
    async fn attempt_once(
        &mut self,
        series: &mut Series<'_>,
        attempt: Attempt,
        latest: Option<StoreTime>,
    ) -> AttemptResult {
        let claim = self.claim(attempt);
        let unbegun = Unbegun::new(&self.engine, claim.clone());
        let early = self.run_too_early(series, attempt, &unbegun).await;
        let answer = match self.ask_for_claim(series, attempt, &unbegun, latest).await {
            ClaimReply::Answered(answer) => answer,
            ClaimReply::Over => {
                unbegun.give_back().await;
                return AttemptResult::GivenBack;
            }
            ClaimReply::NotRun(why) if attempt.is_first_of_a_tick() => {
                unbegun.give_back().await;
                self.skip(series.ticks, attempt.instant, attempt.instant, 1, why).await;
                return AttemptResult::GivenBack;
            }
            ClaimReply::NotRun(_) => {
                self.postpone(series, attempt, &unbegun).await;
                return AttemptResult::GivenBack;
            }
        };
        if early.is_some() {
            unbegun.set_begun();
        }
        if !self.accept_claim(series.ticks, answer).await {
            return AttemptResult::Over;
        }
        let begun = self.now_or(attempt.instant);
        series.first_begun.get_or_insert(begun);
        let end = match early {
            Some(end) => end,
            None => self.run(series.ticks, series.subscription, attempt, &unbegun).await,
        };
        self.conclude(series, attempt, &claim, begun, end).await
    }

    /// Gives back another attempt at a tick, which is made when the schedule goes on.
    async fn postpone(&self, series: &mut Series<'_>, attempt: Attempt, unbegun: &Unbegun) {
        let answer = tokio::select! {
            biased;
            () = self.lease.cancelled() => None,
            answer = unbegun.give_back_for_sure() => Some(answer),
        };
        let Some(answer) = answer else { return unbegun.give_back().await };
        if let Some(begun) = series.first_begun {
            series.ticks.ended(begun, self.now_or(attempt.instant));
        }
        self.accept_claim(series.ticks, answer).await;
    }

    /// Breaks the rule that an attempt is claimed before its job runs, to see whether a test notices.
    async fn run_too_early(
        &self,
        series: &mut Series<'_>,
        attempt: Attempt,
        unbegun: &Unbegun,
    ) -> Option<AttemptEnd> {
        if !self.engine.flaws.has(Flaw::ClaimAfterRun) {
            return None;
        }
        Some(self.run(series.ticks, series.subscription, attempt, unbegun).await)
    }

    /// Records how an attempt has ended, and rests if there is to be another one.
    async fn conclude(
        &mut self,
        series: &mut Series<'_>,
        attempt: Attempt,
        claim: &Claim,
        begun: StoreTime,
        end: AttemptEnd,
    ) -> AttemptResult {
        let ended = self.now_or(attempt.instant);
        let may_try_again = self.may_try_again(attempt, &end);
        let goes_on = self.spec.policies.goes_on_after(end.outcome, attempt.number);
        let written = self.finish(claim, &end, !goes_on).await;
        let rest = series.rests.next(self.engine.entropy.roll());
        let rested = if may_try_again {
            self.rest(series.ticks, series.subscription, attempt.entry, begun, rest).await
        } else {
            Rested::Interrupted
        };
        if rested == Rested::Well {
            return AttemptResult::Retry;
        }
        let written = match written {
            // On record before it is told: else the next owner would take it for a run to be tried again.
            Some(_) if rested == Rested::Displaced => self.finish(claim, &end, true).await,
            written => written,
        };
        let Series { ticks, first_begun, .. } = series;
        // It is on until there is no other attempt.
        let ended = if may_try_again { self.now_or(attempt.instant) } else { ended };
        ticks.ended(first_begun.unwrap_or(begun), ended);
        if let Some(run) = &written {
            self.report_if_failed(run, &end, goes_on, rested);
        }
        match written {
            // It is tried again when the schedule goes on.
            Some(run) if may_try_again && is_held_back(ticks, attempt.entry) => ticks.found(run, ended),
            _ => ticks.count(end.outcome),
        }
        metrics::failures(&self.engine, &self.spec.id, ticks.failures());
        AttemptResult::Over
    }

    /// Clears an order that has come to its end.
    async fn clear_order(&self, ticks: &mut Ticks, entry: Entry, at: StoreTime) {
        if entry != Entry::Order {
            return;
        }
        let (store, id, ran) = (self.engine.store(), &self.spec.id, Instruction::Ran { at });
        let instruct = |limit| store.instruct(id.clone(), ran.clone(), limit);
        if self.retry_or_cancelled(Work::Defining, instruct).await.is_some() {
            ticks.ordered(at);
        }
    }

    /// Sends a claim until it is answered, as long as its attempt may be begun. The answer to one that was sent is
    /// waited for, so that it is known.
    async fn ask_for_claim(
        &self,
        series: &mut Series<'_>,
        attempt: Attempt,
        unbegun: &Unbegun,
        latest: Option<StoreTime>,
    ) -> ClaimReply {
        let mut pauses = pauses();
        loop {
            if self.lease.is_cancelled() {
                return ClaimReply::Over;
            }
            if let Some(why) = self.why_not_now(series, attempt, latest) {
                return ClaimReply::NotRun(why);
            }
            match unbegun.send().await {
                Ok(ClaimAnswer::Yours(run)) if run.finish.is_none() && self.lease.is_cancelled() => {
                    return ClaimReply::Over;
                }
                Ok(ClaimAnswer::Yours(run)) if run.finish.is_none() => {
                    let why_not = self.why_not_now(series, attempt, latest);
                    return why_not.map_or(ClaimReply::Answered(ClaimAnswer::Yours(run)), ClaimReply::NotRun);
                }
                Ok(answer) => return ClaimReply::Answered(answer),
                Err(error) => {
                    words::debug!(schedule = self.spec.id.name.as_str(), namespace = %self.spec.id.namespace, %error, "could not claim a tick, retrying");
                }
            }
            tokio::select! {
                biased;
                () = self.lease.cancelled() => {}
                () = run::until(&self.engine, latest.map(|latest| latest.plus(JUST_AFTER))), if latest.is_some() => {}
                () = series.subscription.changed() => {}
                () = tokio::time::sleep(pauses.next(self.engine.entropy.roll())) => {}
            }
        }
    }

    /// Reason why an attempt may not begin any more, whose claim took its time.
    fn why_not_now(
        &self,
        series: &mut Series<'_>,
        attempt: Attempt,
        latest: Option<StoreTime>,
    ) -> Option<NotRun> {
        let now = self.now_or(attempt.instant);
        if let Some(record) = series.subscription.take_news() {
            series.ticks.hear(&record, now);
        }
        if is_held_back(series.ticks, attempt.entry) {
            return Some(NotRun::Paused);
        }
        latest.filter(|latest| now > *latest).map(|_| NotRun::Late)
    }

    /// Takes in the answer to a claim. Returns whether the attempt is to be made.
    async fn accept_claim(&self, ticks: &mut Ticks, answer: ClaimAnswer) -> bool {
        let id = &self.spec.id;
        let is_ours = match answer {
            // Also one that was applied and not answered; but not one that came to its end.
            ClaimAnswer::Yours(run) if run.was_not_begun() => {
                let now = self.now_or(run.id.instant);
                ticks.found(run, now);
                false
            }
            ClaimAnswer::Yours(run) => run.finish.is_none(),
            ClaimAnswer::Others(run) if run.term > self.lease.term() => {
                self.warn_superseded(Some(&run.holder));
                self.lease.cancelled().await;
                false
            }
            ClaimAnswer::Others(run) => {
                words::debug!(schedule = id.name.as_str(), namespace = %id.namespace, instant = %run.id.instant, by = %run.holder, "the tick is already in the ledger");
                let now = self.now_or(run.id.instant);
                ticks.found(run, now);
                false
            }
            ClaimAnswer::Refused(refusal) => {
                words::error!(schedule = id.name.as_str(), namespace = %id.namespace, %refusal, "cannot run a tick, inspect its entry in the ledger");
                false
            }
            ClaimAnswer::Absent => false,
        };
        is_ours || self.engine.flaws.has(Flaw::RunUnclaimed)
    }

    /// Returns whether there is another attempt after this one, which has ended like this.
    fn may_try_again(&self, attempt: Attempt, end: &AttemptEnd) -> bool {
        // A cancelled attempt is begun again, which is no retry.
        end.outcome != Outcome::Cancelled && self.spec.policies.goes_on_after(end.outcome, attempt.number)
    }

    /// Returns the end as the ledger has it: a tick that is cancelled in its last attempt is abandoned.
    fn on_record(&self, end: AttemptEnd, attempt: Attempt) -> AttemptEnd {
        let outcome = self.spec.policies.on_record(end.outcome, attempt.number);
        if outcome == end.outcome {
            return end;
        }
        let said = end.error.unwrap_or_default();
        let error = format!("cancelled in attempt {} and not retried: {said}", attempt.number);
        AttemptEnd { outcome, error: Some(error) }
    }

    /// Runs the job of a claimed attempt.
    async fn run(
        &self,
        ticks: &mut Ticks,
        subscription: &mut Subscription,
        attempt: Attempt,
        unbegun: &Unbegun,
    ) -> AttemptEnd {
        let engine = &self.engine;
        let begun = engine.clock.now();
        let now = engine.store_times.now(begun).unwrap_or(attempt.instant);
        let lateness = now.since(attempt.instant);
        if attempt.number == 1 {
            metrics::begun(engine, &self.spec.id, lateness);
        }
        let tick = Tick::new(self.spec.id.clone(), attempt, lateness);
        let timeout = self.spec.policies.timeout;
        let displaced = self.make_way(ticks, subscription, now);
        let begins = || unbegun.set_begun();
        let end = run::run(engine, &self.lease, tick, &self.spec.body, timeout, displaced, begins).await;
        let end = self.on_record(end, attempt);
        let took = engine.clock.now().since(begun);
        if end.outcome == Outcome::Succeeded {
            words::debug!(schedule = self.spec.id.name.as_str(), namespace = %self.spec.id.namespace, instant = %attempt.instant, ?lateness, ?took, "a run succeeded");
        } else {
            let (outcome, error) = (end.outcome.as_str(), end.error.as_deref().unwrap_or_default());
            let (id, instant, tries) = (&self.spec.id, attempt.instant, self.spec.policies.retries.tries);
            let (schedule, namespace) = (id.name.as_str(), &id.namespace);
            if self.may_try_again(attempt, &end) {
                words::warn!(
                    schedule, %namespace, %instant, outcome, error,
                    "attempt {} of {tries} failed, retrying", attempt.number
                );
            } else {
                words::warn!(
                    schedule, %namespace, %instant, attempt = attempt.number, tries, outcome, error,
                    "a run did not complete"
                );
            }
        }
        metrics::ended(engine, &self.spec.id, end.outcome, took);
        let last = !self.spec.policies.goes_on_after(end.outcome, attempt.number);
        let run = self.run_id(attempt.entry, attempt.instant);
        self.send_ran(run, attempt.number, lateness, took, &end, last);
        end
    }

    /// Sends the event of an attempt's end.
    fn send_ran(
        &self,
        run: RunId,
        attempt: u32,
        lateness: Duration,
        took: Duration,
        end: &AttemptEnd,
        last: bool,
    ) {
        let AttemptEnd { outcome, error } = end.clone();
        let lock = self.lease.lock().clone();
        self.engine.events.send(Event::Ran { lock, run, attempt, outcome, last, lateness, took, error });
    }

    /// Reports that a tick has failed for good, if it has: the attempt that ended like this is on record.
    fn report_if_failed(&mut self, run: &RunRecord, end: &AttemptEnd, goes_on: bool, rested: Rested) {
        if goes_on && rested != Rested::Displaced || end.outcome == Outcome::Succeeded {
            return;
        }
        if goes_on {
            // An event has announced another attempt, which no instance makes.
            let none = AttemptEnd { outcome: Outcome::Displaced, error: end.error.clone() };
            let attempt = run.attempt.saturating_add(1);
            self.send_ran(run.id.clone(), attempt, run.lateness(), Duration::ZERO, &none, true);
        }
        let AttemptEnd { outcome, error } = end.clone();
        self.notify_failure(Tick::of(run), Failure { outcome, error, attempts: run.attempt });
    }

    /// Records the outcome, also after the lease is cancelled: no other instance has the schedule before this one has
    /// let go of it.
    async fn finish(&self, claim: &Claim, end: &AttemptEnd, last: bool) -> Option<RunRecord> {
        let finish = FinishRun {
            run: claim.run.clone(),
            session: claim.session,
            term: claim.term,
            attempt: claim.attempt,
            outcome: end.outcome,
            error: end.error.as_deref().map(Why::shortened),
            last,
        };
        let late = LateOutcome { finish: finish.clone(), on_failure: self.spec.on_failure.clone() };
        let outcome = RunOutcome::new(&self.engine, &self.unwritten, late);
        let store = self.engine.store();
        let answer = self.retry_forever(Work::Ledger, &mut |limit| store.finish(finish.clone(), limit)).await;
        outcome.set_written();
        match answer {
            ClaimAnswer::Yours(run) if is_recorded(&finish, &run) => return Some(run),
            _ => {}
        }
        words::warn!(schedule = self.spec.id.name.as_str(), namespace = %self.spec.id.namespace, instant = %claim.run.instant, ?answer, "could not record the run's outcome");
        None
    }

    /// Writes how runs of this schedule have ended that this instance could not write before. Returns whether that is
    /// done: before that the ledger says less than is known.
    pub(super) async fn write_what_ended(&mut self) -> bool {
        for late in self.unwritten.of(&self.spec.id) {
            let store = self.engine.store();
            let write = |limit| store.finish(late.finish.clone(), limit);
            let Some(answer) = self.retry_or_cancelled(Work::Ledger, write).await else { return false };
            if let Some((callback, tick, failure)) = self.unwritten.answered(&late, &answer) {
                self.callbacks.call(&self.engine, callback, tick, failure);
            }
        }
        true
    }

    /// Waits until a run has to make way for the first tick after that; for ever, if it need not. Ticks that fall due
    /// while the schedule is held back displace nothing.
    async fn make_way(&self, ticks: &mut Ticks, subscription: &mut Subscription, mut since: StoreTime) {
        loop {
            let at = ticks.displaced_at(since);
            tokio::select! {
                biased;
                () = subscription.changed() => {}
                () = run::until(&self.engine, at) => return,
            }
            let now = self.now_or(since);
            if ticks.is_held_back() {
                since = now;
            }
            if let Some(record) = subscription.take_news() {
                ticks.hear(&record, now);
            }
        }
    }

    /// Rests before the next attempt. Returns whether there is to be one.
    async fn rest(
        &self,
        ticks: &mut Ticks,
        subscription: &mut Subscription,
        entry: Entry,
        begun: StoreTime,
        rest: Duration,
    ) -> Rested {
        let Some(now) = self.now().await else { return Rested::Interrupted };
        let rested = tokio::select! {
            biased;
            () = self.lease.cancelled() => Rested::Interrupted,
            () = self.make_way(ticks, subscription, begun) => Rested::Displaced,
            () = tokio::time::sleep(rest) => Rested::Well,
        };
        if let Some(record) = subscription.take_news() {
            ticks.hear(&record, now);
        }
        if is_held_back(ticks, entry) { Rested::Interrupted } else { rested }
    }

    /// Records that no instance runs a tick again, whose runner's lease ended without an outcome.
    pub(super) async fn abandon(&mut self, ticks: &mut Ticks, run: &RunRecord) {
        let finish = FinishRun {
            run: run.id.clone(),
            session: run.session,
            term: run.term,
            attempt: run.attempt,
            outcome: Outcome::Abandoned,
            error: Some(Why::shortened("its lease ended before an outcome was recorded")),
            last: true,
        };
        let store = self.engine.store();
        let answer = self.retry_or_cancelled(Work::Ledger, |limit| store.finish(finish.clone(), limit)).await;
        // Its end may have arrived in between.
        let Some(ClaimAnswer::Yours(known)) = answer else { return };
        if known.finish.as_ref().is_none_or(|finish| finish.outcome != Outcome::Abandoned) {
            let now = self.now_or(run.id.instant);
            ticks.found(known, now);
            if !ticks.is_to_be_settled(run.id.entry, run.id.instant) {
                self.clear_order(ticks, run.id.entry, run.id.instant).await;
            }
            return;
        }
        words::warn!(schedule = self.spec.id.name.as_str(), namespace = %self.spec.id.namespace, instant = %run.id.instant, by = %run.holder, "the lease of a run ended before its outcome was recorded, the tick is not run again");
        ticks.count(Outcome::Abandoned);
        metrics::failures(&self.engine, &self.spec.id, ticks.failures());
        let end = AttemptEnd { outcome: Outcome::Abandoned, error: None };
        metrics::ended(&self.engine, &self.spec.id, end.outcome, Duration::ZERO);
        self.send_ran(run.id.clone(), run.attempt, run.lateness(), Duration::ZERO, &end, true);
        let failure = Failure {
            outcome: Outcome::Abandoned,
            error: Some(format!("the lease of {} ended before an outcome was recorded", run.holder)),
            attempts: run.attempt,
        };
        self.notify_failure(Tick::of(run), failure);
        self.clear_order(ticks, run.id.entry, run.id.instant).await;
    }
}
