//! The attempts at one tick.

use std::time::Duration;

use super::{Driver, FIRST_PAUSE, LONGEST_PAUSE, unbegun::Unbegun};
use crate::{
    Event,
    elect::Work,
    logic::{
        backoff::Backoff,
        flaw::Flaw,
        tick::{Attempt, NotRun, Ticks},
    },
    model::{Entry, Outcome, RunId, RunRecord, StoreTime, Why},
    schedule::{
        Failure, Tick, metrics,
        run::{self, AttemptEnd},
        subscriptions::Subscription,
    },
    store::{Claim, ClaimAnswer, FinishRun, Instruction},
};

/// The first moment that is too late.
const JUST_AFTER: Duration = Duration::from_millis(1);

/// Whether no attempt at that is to be begun: what is ordered is run also while the schedule is held back.
fn is_held_back(ticks: &Ticks, entry: Entry) -> bool {
    entry != Entry::Order && ticks.is_held_back()
}

/// What came of the rest before another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rested {
    /// The try is to be made.
    Well,
    /// Not here and now: the lease ends, or the schedule is held back.
    Interrupted,
    /// Not at all: a tick is due that the run has to make way for.
    Displaced,
}

/// What came of asking for a claim.
#[derive(Debug)]
enum ClaimReply {
    Answered(ClaimAnswer),
    /// The lease ends: nothing is begun.
    Over,
    /// By now it is too late to begin.
    Late,
}

impl Driver {
    /// Runs a tick: one attempt, and more if it fails and may be tried again.
    pub(super) async fn tick(
        &mut self,
        ticks: &mut Ticks,
        subscription: &mut Subscription,
        mut attempt: Attempt,
    ) {
        let mut rests = {
            let retries = self.plan.policies.retries;
            Backoff::new(retries.first, retries.longest.max(retries.first))
        };
        let (mut is_over, mut first_begun) = (false, None);
        while !is_over {
            if attempt.instead_of == Some((self.lease.term(), attempt.number)) {
                // Of what this owner has given back itself.
                attempt = attempt.again(self.lease.term());
            }
            let claim = self.claim(attempt);
            let unbegun = Unbegun::new(&self.engine, claim.clone());
            let flaws = self.engine.flaws;
            let early = if flaws.has(Flaw::ClaimAfterRun) {
                Some(self.run(ticks, subscription, attempt, &unbegun).await)
            } else {
                None
            };
            let latest = ticks.latest_begin(&attempt, self.now_or(attempt.instant));
            let claimed = match self.ask_for(&unbegun, latest).await {
                ClaimReply::Answered(claimed) => claimed,
                ClaimReply::Over => return unbegun.give_back().await,
                ClaimReply::Late => {
                    unbegun.give_back().await;
                    self.skip(ticks, attempt.instant, attempt.instant, 1, NotRun::Late).await;
                    return;
                }
            };
            if early.is_some() {
                unbegun.begins();
            }
            if !self.is_ours(ticks, claimed).await && !flaws.has(Flaw::RunUnclaimed) {
                break;
            }
            let now = || self.now_or(attempt.instant);
            let begun = now();
            let first_begun = *first_begun.get_or_insert(begun);
            let end = match early {
                Some(end) => end,
                None => self.run(ticks, subscription, attempt, &unbegun).await,
            };
            let ended = now();
            let goes_on = self.plan.policies.goes_on_after(end.outcome, attempt.number);
            let may_try_again = self.may_try_again(attempt, &end);
            let written = self.finish(&claim, &end).await;
            let rest = rests.next(self.engine.entropy.roll());
            let rested = if may_try_again {
                self.rest(ticks, subscription, attempt.entry, begun, rest).await
            } else {
                Rested::Interrupted
            };
            is_over = rested != Rested::Well;
            if is_over {
                // It is on until there is no other try.
                let ended = if may_try_again { now() } else { ended };
                ticks.ended(first_begun, ended);
                if let Some(run) = &written {
                    self.tell_if_failed(run, &end, goes_on, rested);
                }
                match written {
                    // It is tried again when the schedule goes on.
                    Some(run) if may_try_again && is_held_back(ticks, attempt.entry) => {
                        ticks.found(run, ended);
                    }
                    _ => ticks.count(end.outcome),
                }
                metrics::failures(&self.engine, &self.plan.id, ticks.failures());
            }
            attempt = attempt.again(self.lease.term());
        }
        if !ticks.is_to_be_settled(attempt.entry, attempt.instant) {
            self.is_done_with(ticks, attempt.entry, attempt.instant).await;
        }
        self.purge_sometimes(ticks).await;
    }

    /// An order that came to its end is not wanted any more.
    async fn is_done_with(&self, ticks: &mut Ticks, entry: Entry, at: StoreTime) {
        if entry != Entry::Order {
            return;
        }
        let (store, id, ran) = (&self.engine.store, &self.plan.id, Instruction::Ran { at });
        if self.ask(Work::Defining, |limit| store.instruct(id.clone(), ran.clone(), limit)).await.is_some() {
            ticks.ordered(at);
        }
    }

    /// Sends a claim until it is answered, as long as its attempt may be begun. What was sent is waited for, so
    /// that it is known.
    async fn ask_for(&self, unbegun: &Unbegun, latest: Option<StoreTime>) -> ClaimReply {
        let mut pauses = Backoff::new(FIRST_PAUSE * 2, LONGEST_PAUSE);
        loop {
            if self.lease.is_cancelled() {
                return ClaimReply::Over;
            }
            let answer = unbegun.send().await;
            let is_late = latest.is_some_and(|latest| self.now_or(latest) > latest);
            match answer {
                Ok(ClaimAnswer::Yours(run)) if run.finish.is_none() && self.lease.is_cancelled() => {
                    return ClaimReply::Over;
                }
                Ok(ClaimAnswer::Yours(run)) if run.finish.is_none() && is_late => return ClaimReply::Late,
                Ok(answer) => return ClaimReply::Answered(answer),
                Err(_) if is_late => return ClaimReply::Late,
                Err(error) => {
                    tracing::debug!(schedule = self.plan.id.name.as_str(), namespace = %self.plan.id.namespace, %error, "a claim was not answered, it is sent again");
                }
            }
            tokio::select! {
                biased;
                () = self.lease.cancelled() => {}
                () = run::until(&self.engine, latest.map(|latest| latest.plus(JUST_AFTER))), if latest.is_some() => {}
                () = tokio::time::sleep(pauses.next(self.engine.entropy.roll())) => {}
            }
        }
    }

    /// Whether the attempt is to be made.
    async fn is_ours(&self, ticks: &mut Ticks, claimed: ClaimAnswer) -> bool {
        let id = &self.plan.id;
        match claimed {
            // Also one that was applied and not answered; but not one that came to its end.
            ClaimAnswer::Yours(run) if run.was_not_begun() => {
                let now = self.now_or(run.id.instant);
                ticks.found(run, now);
                false
            }
            ClaimAnswer::Yours(run) => run.finish.is_none(),
            ClaimAnswer::Others(run) if run.term > self.lease.term() => {
                self.is_superseded(Some(&run.holder));
                self.lease.cancelled().await;
                false
            }
            ClaimAnswer::Others(run) => {
                tracing::debug!(schedule = id.name.as_str(), namespace = %id.namespace, instant = %run.id.instant, by = %run.holder, "the tick is in the ledger already");
                let now = self.now_or(run.id.instant);
                ticks.found(run, now);
                false
            }
            ClaimAnswer::Refused(refusal) => {
                tracing::error!(schedule = id.name.as_str(), namespace = %id.namespace, %refusal, "a tick cannot be run, its entry in the ledger has to be looked at");
                false
            }
            ClaimAnswer::Absent => false,
        }
    }

    /// Whether there is another try after this attempt, which has failed.
    fn may_try_again(&self, attempt: Attempt, end: &AttemptEnd) -> bool {
        // What was told to stop is begun again, and not tried again.
        end.outcome != Outcome::Cancelled && self.plan.policies.goes_on_after(end.outcome, attempt.number)
    }

    /// One that was told to stop in its last attempt is given up.
    fn on_record(&self, end: AttemptEnd, attempt: Attempt) -> AttemptEnd {
        let outcome = self.plan.policies.on_record(end.outcome, attempt.number);
        if outcome == end.outcome {
            return end;
        }
        let said = end.error.unwrap_or_default();
        let error = format!("told to stop in attempt {}, and not begun again: {said}", attempt.number);
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
            metrics::begun(engine, &self.plan.id, lateness);
        }
        let tick = Tick::new(self.plan.id.clone(), attempt, lateness);
        let timeout = self.plan.policies.timeout;
        let displaced = self.make_way(ticks, subscription, now);
        let begins = || unbegun.begins();
        let end = run::run(engine, &self.lease, tick, &self.plan.body, timeout, displaced, begins).await;
        let end = self.on_record(end, attempt);
        let took = engine.clock.now().since(begun);
        if end.outcome == Outcome::Succeeded {
            tracing::debug!(schedule = self.plan.id.name.as_str(), namespace = %self.plan.id.namespace, instant = %attempt.instant, ?lateness, ?took, "a tick was run");
        } else {
            let (outcome, error) = (end.outcome.as_str(), end.error.as_deref().unwrap_or_default());
            let (id, instant, tries) = (&self.plan.id, attempt.instant, self.plan.policies.retries.tries);
            let (schedule, namespace) = (id.name.as_str(), &id.namespace);
            if self.may_try_again(attempt, &end) {
                tracing::warn!(
                    schedule, %namespace, %instant, outcome, error,
                    "attempt {} of {tries} failed, the tick is tried again", attempt.number
                );
            } else {
                tracing::warn!(
                    schedule, %namespace, %instant, attempt = attempt.number, tries, outcome, error,
                    "a tick was not run to its end"
                );
            }
        }
        metrics::ended(engine, &self.plan.id, end.outcome, took);
        let last = !self.plan.policies.goes_on_after(end.outcome, attempt.number);
        let run = self.run_id(attempt.entry, attempt.instant);
        self.tell(run, attempt.number, lateness, took, &end, last);
        end
    }

    /// Tells of the end of an attempt.
    fn tell(
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
        self.engine.events.tell(Event::Ran { lock, run, attempt, outcome, last, lateness, took, error });
    }

    /// Tells that a tick has failed for good, if it has: the attempt that ended like this is on record.
    fn tell_if_failed(&mut self, run: &RunRecord, end: &AttemptEnd, goes_on: bool, rested: Rested) {
        if goes_on && rested != Rested::Displaced || end.outcome == Outcome::Succeeded {
            return;
        }
        if goes_on {
            // The events have said that another attempt follows: this one is made by nobody.
            let none = AttemptEnd { outcome: Outcome::Displaced, error: end.error.clone() };
            let attempt = run.attempt.saturating_add(1);
            self.tell(run.id.clone(), attempt, run.lateness(), Duration::ZERO, &none, true);
        }
        let AttemptEnd { outcome, error } = end.clone();
        self.failed(Tick::of(run), Failure { outcome, error, attempts: run.attempt });
    }

    /// Writes what came of it, also after the lease was told to end: nobody else has the schedule before this
    /// instance has let go of it.
    async fn finish(&self, claim: &Claim, end: &AttemptEnd) -> Option<RunRecord> {
        let finish = FinishRun {
            run: claim.run.clone(),
            session: claim.session,
            term: claim.term,
            attempt: claim.attempt,
            outcome: end.outcome,
            error: end.error.as_deref().map(Why::shortened),
            last: !self.plan.policies.goes_on_after(end.outcome, claim.attempt),
        };
        let store = &self.engine.store;
        let answer = self.insist(Work::Ledger, &mut |limit| store.finish(finish.clone(), limit)).await;
        if let ClaimAnswer::Yours(run) = answer {
            return Some(run);
        }
        tracing::warn!(schedule = self.plan.id.name.as_str(), namespace = %self.plan.id.namespace, instant = %claim.run.instant, ?answer, "what came of a run could not be written");
        None
    }

    /// Until a run is to make way for the first tick after that; never, if it need not. What falls due while
    /// the schedule is held back displaces nothing.
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

    /// Rests before the next try. Says whether there is to be one.
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

    /// Nobody runs it again.
    pub(super) async fn abandon(&mut self, ticks: &mut Ticks, run: &RunRecord) {
        let finish = FinishRun {
            run: run.id.clone(),
            session: run.session,
            term: run.term,
            attempt: run.attempt,
            outcome: Outcome::Abandoned,
            error: Some(Why::shortened("its runner died")),
            last: true,
        };
        let store = &self.engine.store;
        let answer = self.ask(Work::Ledger, |limit| store.finish(finish.clone(), limit)).await;
        // Its end may have arrived in between.
        let Some(ClaimAnswer::Yours(RunRecord { finish: Some(finish), .. })) = answer else { return };
        if finish.outcome != Outcome::Abandoned {
            return;
        }
        tracing::warn!(schedule = self.plan.id.name.as_str(), namespace = %self.plan.id.namespace, instant = %run.id.instant, by = %run.holder, "the runner of a tick died, and nobody runs it again");
        ticks.count(Outcome::Abandoned);
        metrics::failures(&self.engine, &self.plan.id, ticks.failures());
        let end = AttemptEnd { outcome: Outcome::Abandoned, error: None };
        metrics::ended(&self.engine, &self.plan.id, end.outcome, Duration::ZERO);
        self.tell(run.id.clone(), run.attempt, run.lateness(), Duration::ZERO, &end, true);
        let failure = Failure {
            outcome: Outcome::Abandoned,
            error: Some(format!("{} died while it ran it", run.holder)),
            attempts: run.attempt,
        };
        self.failed(Tick::of(run), failure);
        self.is_done_with(ticks, run.id.entry, run.id.instant).await;
    }
}
