//! The actor of a spread: its loop decides when to read and when to plan.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::mpsc;

use super::{
    reading::{self, PendingRead, ReadCursor, Reading},
    shared::{ActorState, Shared},
    worker::{JobRules, Report, Start},
};
use crate::{
    backoff::{Backoff, jittered},
    clock::Moment,
    elect::{AcquireOutcome, Elect, Engine, Inbox, SpreadNews, Wants},
    logic::{digest, view::TaskPlace},
    model::Key,
};

/// Longest wait for changes to settle before a plan, in times of `settle`.
const LONGEST_SETTLE: u32 = 5;
/// Reads of what is unknown before one plan: a task's record, its holder's session, and once more.
const MOST_PREPARATIONS: u32 = 3;
/// Pause after a first read that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Outcome of a ticket; `None` if it was withdrawn.
type PendingTake = BoxFuture<'static, (Key, Option<AcquireOutcome>)>;

/// Membership in the spread, for as long as this lives.
struct Joined {
    engine: Arc<Engine>,
    shared: Arc<Shared>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.engine.spreads.leave(&self.shared.spread);
        self.engine.listen();
        self.shared.over.cancel();
    }
}

/// Changes that no plan covers yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unplanned {
    first: Moment,
    last: Moment,
}

impl Unplanned {
    pub(super) const fn since(now: Moment) -> Self {
        Self { first: now, last: now }
    }

    /// Returns when to plan for them: once they have settled, but not too late after the first.
    fn settled(self, settle: Duration) -> Moment {
        (self.last + settle).min(self.first + settle * LONGEST_SETTLE)
    }
}

/// The spread's own task: it reads, plans, and does this instance's part of the plan.
pub(super) struct SpreadActor {
    pub(super) elect: Elect,
    pub(super) shared: Arc<Shared>,
    pub(super) inbox: Arc<Inbox<SpreadNews>>,
    pub(super) start: Start,
    pub(super) rules: JobRules,
    pub(super) wants: Wants,
    pub(super) takes: FuturesUnordered<PendingTake>,
    pub(super) reports: mpsc::UnboundedReceiver<Report>,
    pub(super) report: mpsc::UnboundedSender<Report>,
    reading: Option<BoxFuture<'static, Reading>>,
    /// To be read next.
    pub(super) ask: PendingRead,
    /// Being read now.
    pub(super) asked: PendingRead,
    /// Reads of what is unknown, for the plan that is due.
    pub(super) preparations: u32,
    pub(super) failures: Backoff,
    pub(super) rolling: ReadCursor,
    pub(super) changed: Option<Unplanned>,
    poll_at: Moment,
    /// After a read that failed, none is made before this.
    pub(super) pause: Moment,
    /// After a plan that could not be made, none is made before this.
    pub(super) retry_at: Moment,
}

impl SpreadActor {
    pub(super) fn new(
        elect: Elect,
        shared: Arc<Shared>,
        inbox: Arc<Inbox<SpreadNews>>,
        start: Start,
        rules: JobRules,
        wants: Wants,
    ) -> Self {
        let (report, reports) = mpsc::unbounded_channel();
        let (now, elect_poll) = (elect.engine().clock.now(), elect.engine().poll());
        Self {
            elect,
            shared,
            inbox,
            start,
            rules,
            wants,
            takes: FuturesUnordered::new(),
            reports,
            report,
            reading: None,
            ask: PendingRead { everything: true, ..PendingRead::default() },
            asked: PendingRead::default(),
            preparations: 0,
            failures: Backoff::new(FIRST_PAUSE, elect_poll.max(FIRST_PAUSE)),
            rolling: ReadCursor::default(),
            changed: None,
            poll_at: now,
            pause: now,
            retry_at: now,
        }
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.elect.engine()
    }

    pub(super) async fn run(mut self) {
        let engine = self.engine().clone();
        // Whatever ends this task: no instance may plan with one that does nothing.
        let _joined = Joined { engine: engine.clone(), shared: self.shared.clone() };
        let session = || engine.session.borrow().as_ref().map(|session| session.id);
        let mut known = session();
        let retiring = engine.retiring.clone();
        let mut drained = engine.drained.subscribe();
        // Its cancellation may come late, as whatever callers are woken by.
        while !engine.is_closed() {
            self.drain(drained.borrow_and_update().is_some());
            let session_changed = engine.session_changes();
            let current = session();
            if known != current {
                known = current;
                self.mark_changed();
            }
            self.absorb_news();
            let now = engine.clock.now();
            if now >= self.poll_at {
                self.poll(now);
            }
            let is_due = self.is_due(now);
            // Records may name sessions that are not known. Not for ever: what turns up later is for the next
            // plan.
            if is_due && self.preparations < MOST_PREPARATIONS && self.reading.is_none() {
                self.preparations += 1;
                self.ask_for_unknown(now);
            }
            self.start_reading(now);
            if is_due && self.reading.is_none() {
                self.plan(now);
            }
            let wait = self.deadline(now).since(now);
            let shared = self.shared.clone();
            tokio::select! {
                biased;
                () = shared.stop.cancelled() => break,
                () = retiring.cancelled() => break,
                reading = next_reading(&mut self.reading) => self.absorb_reading(reading),
                Some((key, outcome)) = self.takes.next() => self.on_take_result(key, outcome),
                Some(report) = self.reports.recv() => self.on_report(report),
                () = shared.woken() => {}
                () = self.inbox.news() => {}
                () = session_changed => {}
                // The sender is in the engine.
                _ = drained.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.leave().await;
    }

    /// Follows what the program and operators say of draining.
    fn drain(&self, is_ordered: bool) {
        let mut state = self.shared.state();
        let draining = state.drains || is_ordered;
        if state.share.draining != draining {
            state.share.draining = draining;
            state.news = true;
        }
    }

    // ----- when to plan

    /// Notes that something has changed which the plan depends on.
    pub(super) fn mark_changed(&mut self) {
        let now = self.engine().clock.now();
        self.changed.get_or_insert(Unplanned::since(now)).last = now;
        self.shared.state().planned = false;
    }

    /// Notes that a task has changed hands. That delays no plan: others may be about to act on the same one already.
    pub(super) fn mark_touched(&mut self) {
        if self.changed.is_none() {
            self.mark_changed();
        }
        self.shared.state().planned = false;
    }

    fn plan_at(&self) -> Option<Moment> {
        let settle = self.engine().config.settle();
        let settled = self.changed.map(|changed| changed.settled(settle));
        let state = self.shared.state();
        let next = state.resolved.next;
        match (settled, next) {
            (Some(settled), Some(next)) => Some(settled.min(next)),
            (one, other) => one.or(other),
        }
    }

    /// Returns whether this instance takes no part yet, though everything is known.
    fn is_held_back(&self) -> bool {
        let state = self.shared.state();
        state.complete && !state.startup_hold.is_over()
    }

    fn is_due(&self, now: Moment) -> bool {
        let is_known = self.shared.state().keys.is_some() && !self.is_held_back();
        is_known && self.plan_at().is_some_and(|at| now >= at) && now >= self.retry_at
    }

    fn deadline(&self, now: Moment) -> Moment {
        let (mut at, is_held_back) = (self.poll_at, self.is_held_back());
        if is_held_back {
            at = at.min(self.shared.state().startup_hold.until);
        }
        if self.reading.is_none() {
            if !is_held_back
                && self.shared.state().keys.is_some()
                && let Some(plan) = self.plan_at()
            {
                at = at.min(plan.max(self.retry_at));
            }
            if !self.ask.is_nothing() {
                at = at.min(self.pause);
            }
        }
        at.max(now)
    }

    // ----- what to publish and to read

    /// Publishes the share, after it or the tasks have changed.
    pub(super) fn renew_share(&self, state: &mut ActorState) {
        let Some(keys) = state.keys.clone() else { return };
        state.view.set(&keys);
        state.waiting.retain(|key, _| keys.contains(key));
        let now = self.engine().store_now().unwrap_or_else(|| self.engine().clock.wall());
        digest::publish(&mut state.share, keys.iter(), now);
        // No instance may plan with one that does not know yet what it would do.
        if !state.complete || !state.startup_hold.is_over() {
            return;
        }
        if self.engine().spreads.publish(state.share.clone()) {
            self.engine().hurry();
        }
    }

    fn ask_for_unknown(&mut self, now: Moment) {
        let state = self.shared.state();
        if !state.complete {
            self.ask.everything = true;
            return;
        }
        self.ask.tasks.extend(state.view.unknown(now));
        let own = self.engine().current().map(|session| session.id);
        let strangers = state.view.strangers().into_iter().filter(|session| Some(*session) != own);
        self.ask.sessions.extend(strangers);
    }

    fn poll(&mut self, now: Moment) {
        let engine = self.engine().clone();
        self.poll_at = now + jittered(engine.poll(), engine.entropy.roll());
        let hints = engine.hints().is_some();
        self.ask.everything |= !hints;
        self.ask.rolling = hints.then(|| self.rolling.clone());
        let Some(own) = engine.current() else { return };
        let mut state = self.shared.state();
        state.view.forget(now);
        let ActorState { left_behind, view, .. } = &mut *state;
        left_behind.retain(|key, (dead, _)| match view.task(key) {
            Some(TaskPlace::Held { session, .. }) => session == dead,
            Some(TaskPlace::Free { .. }) | None => false,
            Some(_) => true,
        });
        self.ask.ring = Some(state.view.after(own.id));
        self.ask.tasks.extend(state.view.of_the_missing());
        // Said to be held here, and not held: the read was old, or the task is on its way back.
        let stray = state.view.held_by(own.id).filter(|key| !state.mine.contains_key(key));
        let stray: Vec<_> = stray.cloned().collect();
        let strays = !stray.is_empty();
        for key in stray {
            state.view.forget_place(&key, now);
        }
        drop(state);
        if strays {
            self.mark_changed();
        }
    }

    fn start_reading(&mut self, now: Moment) {
        if self.reading.is_none() && !self.ask.is_nothing() && now >= self.pause {
            let asked = std::mem::take(&mut self.ask);
            self.asked = asked.clone();
            let (engine, spread) = (self.engine().clone(), self.shared.spread.clone());
            self.reading = Some(reading::read(engine, spread, asked).boxed());
        }
    }
}

/// Waits for the reading that is under way; for ever, if there is none.
async fn next_reading(reading: &mut Option<BoxFuture<'static, Reading>>) -> Reading {
    match reading {
        Some(future) => {
            let read = future.await;
            *reading = None;
            read
        }
        None => std::future::pending().await,
    }
}
