//! What performs a spread's plan: it looks, plans, and does its own part.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    reading::{self, PendingRead, ReadCursor as ReadFrom, Reading},
    trial::Bench,
    worker::{Handle, Phase, Report, Rules, Start, TaskEnd, Worker},
    young::{self, Youth},
};
use crate::{
    Event,
    clock::Moment,
    elect::{AcquireOutcome, Elect, Engine, Hold, Inbox, Session, Wants},
    logic::{
        backoff::{Backoff, jittered},
        digest,
        key::{TicketOutcome, WaitMode},
        picture::{Bounds, Me, Mine, PeerSeen, Resolved, SpreadAction, SpreadView, TaskPlace},
    },
    model::{Key, Loss, SessionId, Share, SpreadName},
    store::{LockChange, LockSeen, SessionSeen},
    sync::locked,
};

/// A plan waits for changes to settle no longer than so many times `settle`.
const LONGEST_SETTLE: u32 = 5;
/// The most moves one instance has under way: enough to be quick, few enough that a fleet that changes its
/// mind has not stopped everything.
const BOUNDS: Bounds = Bounds { gives: 64, waits: 1000 };
/// A task whose heir did not come is not given again for so long.
const STAYS: Duration = Duration::from_secs(5);
/// A task's record, its holder's session, and once more.
const MOST_PREPARATIONS: u32 = 3;
/// How long to wait after a first read that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// What the handle and the shell share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) spread: SpreadName,
    state: Mutex<ActorState>,
    /// Counts the changes.
    pub(super) changed: watch::Sender<u64>,
    wake: Notify,
    pub(super) stop: CancellationToken,
    /// Fires when it has stopped.
    pub(super) over: CancellationToken,
}

impl Shared {
    pub(super) fn new(spread: SpreadName, share: Share) -> Self {
        Self {
            state: Mutex::new(ActorState {
                picture: SpreadView::new(spread.clone()),
                share,
                keys: None,
                news: true,
                mine: BTreeMap::new(),
                planned: false,
                stays: BTreeMap::new(),
                resolved: Resolved::default(),
                waiting: BTreeMap::new(),
                complete: false,
                youth: Youth::default(),
                bench: Arc::new(Bench::new(spread.clone())),
            }),
            spread,
            changed: watch::Sender::new(0),
            wake: Notify::new(),
            stop: CancellationToken::new(),
            over: CancellationToken::new(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ActorState> {
        locked(&self.state)
    }

    /// Changes what is wanted, and tells the shell.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut ActorState) -> T) -> T {
        let made = {
            let mut state = self.state();
            state.news = true;
            change(&mut state)
        };
        self.wake.notify_one();
        made
    }

    pub(super) fn tell(&self) {
        self.changed.send_modify(|changes| *changes += 1);
    }
}

/// What is known and wanted of a spread.
#[derive(Debug)]
pub(super) struct ActorState {
    pub(super) picture: SpreadView,
    pub(super) share: Share,
    /// The tasks there are; nothing until that was told.
    pub(super) keys: Option<BTreeSet<Key>>,
    /// The share or the tasks have changed.
    news: bool,
    pub(super) mine: BTreeMap<Key, TaskWork>,
    /// The plan is of what is known.
    planned: bool,
    /// Tasks whose heirs did not come, and until when they are not given.
    stays: BTreeMap<Key, Moment>,
    pub(super) resolved: Resolved,
    /// Tasks for which nobody has room, and since when.
    pub(super) waiting: BTreeMap<Key, Moment>,
    /// Everything was read at least once.
    pub(super) complete: bool,
    /// Whether this instance is old enough to take part.
    pub(super) youth: Youth,
    pub(super) bench: Arc<Bench>,
}

/// What this instance does about a task.
#[derive(Debug)]
pub(super) enum TaskWork {
    /// It asks for it, since then.
    Asks { since: Moment },
    /// It stands in line.
    Waits(CancellationToken),
    /// It has it.
    Has(Handle),
}

impl ActorState {
    /// Whether the plan is of what is known, and wanted.
    pub(super) const fn is_planned(&self) -> bool {
        self.planned && !self.news
    }

    /// The tasks that this instance has, and who works on each.
    pub(super) fn has(&self) -> impl Iterator<Item = (&Key, &Handle)> {
        self.mine.iter().filter_map(|(key, work)| match work {
            TaskWork::Has(worker) => Some((key, worker)),
            TaskWork::Asks { .. } | TaskWork::Waits(_) => None,
        })
    }

    /// Whose picture it is, under that session.
    pub(super) fn me(&self, engine: &Engine, session: &Session) -> Me {
        Me {
            session: session.id,
            holder: engine.config.holder().clone(),
            started: session.started(),
            share: self.share.clone(),
        }
    }

    fn mine(&self, now: Moment) -> BTreeMap<Key, Mine> {
        let what = |key: &Key, work: &TaskWork| match work {
            TaskWork::Asks { .. } => Mine::Asks,
            TaskWork::Waits(_) => Mine::Waits,
            TaskWork::Has(worker) => match worker.phase() {
                Phase::Leaving => Mine::Gives,
                _ if worker.is_leaving() => Mine::Gives,
                _ if self.stays.get(key).is_some_and(|until| now < *until) => Mine::Keeps,
                // Moved on, it would begin anew elsewhere, and be tried again.
                _ if self.bench.holds(key) => Mine::Keeps,
                _ => Mine::Has,
            },
        };
        self.mine.iter().map(|(key, work)| (key.clone(), what(key, work))).collect()
    }
}

type PendingTake = BoxFuture<'static, (Key, Option<AcquireOutcome>)>;

/// As long as there is one, this instance takes part.
struct Joined {
    engine: Arc<Engine>,
    shared: Arc<Shared>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.engine.spreads.leave(&self.shared.spread);
        self.shared.over.cancel();
    }
}

/// The spread's own task.
pub(super) struct Shell {
    elect: Elect,
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    start: Start,
    rules: Rules,
    wants: Wants,
    standing: FuturesUnordered<PendingTake>,
    reports: mpsc::UnboundedReceiver<Report>,
    report: mpsc::UnboundedSender<Report>,
    reading: Option<BoxFuture<'static, Reading>>,
    /// What is to be read next.
    ask: PendingRead,
    /// What is being read.
    asked: PendingRead,
    /// How often what is unknown was asked for, for the plan that is due.
    preparations: u32,
    failures: Backoff,
    rolling: ReadFrom,
    /// What to plan for: since when, and when it changed last.
    changed: Option<(Moment, Moment)>,
    poll_at: Moment,
    /// Reads are not repeated before, after one failed.
    pause: Moment,
    /// Nor is a plan that could not be made.
    retry_at: Moment,
}

impl Shell {
    pub(super) fn new(
        elect: Elect,
        shared: Arc<Shared>,
        inbox: Arc<Inbox>,
        start: Start,
        rules: Rules,
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
            standing: FuturesUnordered::new(),
            reports,
            report,
            reading: None,
            ask: PendingRead { everything: true, ..PendingRead::default() },
            asked: PendingRead::default(),
            preparations: 0,
            failures: Backoff::new(FIRST_PAUSE, elect_poll.max(FIRST_PAUSE)),
            rolling: ReadFrom::default(),
            changed: None,
            poll_at: now,
            pause: now,
            retry_at: now,
        }
    }

    fn engine(&self) -> &Arc<Engine> {
        self.elect.engine()
    }

    pub(super) async fn run(mut self) {
        let engine = self.engine().clone();
        // Whatever ends this task: nobody is to plan with one that does nothing.
        let _joined = Joined { engine: engine.clone(), shared: self.shared.clone() };
        let session = || engine.session.borrow().as_ref().map(|session| session.id);
        let mut known = session();
        let retiring = engine.retiring.clone();
        loop {
            let session_changed = engine.session_changes();
            let current = session();
            if known != current {
                known = current;
                self.change();
            }
            self.hear();
            let now = engine.clock.now();
            if now >= self.poll_at {
                self.poll(now);
            }
            let is_due = self.is_due(now);
            // What is read may name others that are not known. Not for ever: what turns up later is for the
            // next plan.
            if is_due && self.preparations < MOST_PREPARATIONS && self.reading.is_none() {
                self.preparations += 1;
                self.ask_for_the_unknown(now);
            }
            self.begin_to_read(now);
            if is_due && self.reading.is_none() {
                self.plan(now);
            }
            let wait = self.deadline(now).since(now);
            let (stop, wake) = (self.shared.stop.clone(), self.shared.clone());
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = retiring.cancelled() => break,
                reading = read_on(&mut self.reading) => self.has_read(reading),
                Some((key, told)) = self.standing.next() => self.told(key, told),
                Some(report) = self.reports.recv() => self.reported(report),
                () = wake.wake.notified() => {}
                () = self.inbox.news() => {}
                () = session_changed => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.leave().await;
    }

    // ----- when

    /// Something has changed that the plan depends on.
    fn change(&mut self) {
        let now = self.engine().clock.now();
        let first = self.changed.map_or(now, |(first, _)| first);
        self.changed = Some((first, now));
        self.shared.state().planned = false;
    }

    /// A task has changed hands. That delays no plan: others may be about to act on the same one already.
    fn touch(&mut self) {
        if self.changed.is_none() {
            self.change();
        }
        self.shared.state().planned = false;
    }

    fn plan_at(&self) -> Option<Moment> {
        let settle = self.engine().config.settle();
        let settled = self.changed.map(|(first, last)| (last + settle).min(first + settle * LONGEST_SETTLE));
        let state = self.shared.state();
        let next = state.resolved.next;
        match (settled, next) {
            (Some(settled), Some(next)) => Some(settled.min(next)),
            (one, other) => one.or(other),
        }
    }

    /// Everything is known, and it takes no part yet.
    fn is_held_back(&self) -> bool {
        let state = self.shared.state();
        state.complete && !state.youth.is_over()
    }

    fn is_due(&self, now: Moment) -> bool {
        let is_known = self.shared.state().keys.is_some() && !self.is_held_back();
        is_known && self.plan_at().is_some_and(|at| now >= at) && now >= self.retry_at
    }

    fn deadline(&self, now: Moment) -> Moment {
        let (mut at, is_held_back) = (self.poll_at, self.is_held_back());
        if is_held_back {
            at = at.min(self.shared.state().youth.ends(self.engine()));
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

    // ----- what is learned

    fn hear(&mut self) {
        let engine = self.engine().clone();
        let (now, store_now) = (engine.clock.now(), engine.store_now());
        let own = engine.current().map(|session| session.id);
        let news = self.inbox.take();
        let mut state = self.shared.state();
        let (mut changed, mut touched) = (false, false);
        if state.news {
            state.news = false;
            changed = true;
            self.renew(&mut state);
        }
        for (key, change) in news.tasks {
            touched |= state.picture.hinted(&key, change, now);
        }
        for (session, sighting) in news.sightings {
            state.youth.saw(session, &sighting);
            state.learn_of_death(session, &sighting);
            if Some(session) != own && state.picture.session(session).is_some() {
                changed |= state.picture.saw(session, &sighting, now, store_now);
            }
        }
        for key in news.lines {
            if let Some(TaskWork::Has(worker)) = state.mine.get(&key) {
                worker.line.notify_waiters();
            }
        }
        if young::comes_of_age(&engine, &mut state, now) {
            changed = true;
            self.renew(&mut state);
        }
        drop(state);
        self.ask.everything |= news.resync;
        self.ask.sessions.extend(news.sessions);
        if changed {
            self.change();
        } else if touched {
            self.touch();
        }
    }

    /// The share or the tasks have changed.
    fn renew(&self, state: &mut ActorState) {
        let Some(keys) = state.keys.clone() else { return };
        state.picture.set(&keys);
        state.waiting.retain(|key, _| keys.contains(key));
        digest::publish(&mut state.share, keys.iter());
        // Nobody is to plan with one that does not know yet what it would do.
        if !state.complete || !state.youth.is_over() {
            return;
        }
        if self.engine().spreads.publish(state.share.clone()) {
            self.engine().hurry();
        }
    }

    fn ask_for_the_unknown(&mut self, now: Moment) {
        let state = self.shared.state();
        if !state.complete {
            self.ask.everything = true;
            return;
        }
        self.ask.tasks.extend(state.picture.unknown(now));
        let own = self.engine().current().map(|session| session.id);
        let strangers = state.picture.strangers().into_iter().filter(|session| Some(*session) != own);
        self.ask.sessions.extend(strangers);
    }

    fn poll(&mut self, now: Moment) {
        let engine = self.engine().clone();
        self.poll_at = now + jittered(engine.poll(), engine.entropy.roll());
        let hints = engine.store.capabilities().hints;
        self.ask.everything |= !hints;
        self.ask.rolling = hints.then(|| self.rolling.clone());
        let Some(own) = engine.current() else { return };
        let mut state = self.shared.state();
        state.picture.forget(now);
        state.bench.forget(engine.store_now());
        self.ask.ring = Some(state.picture.after(own.id));
        self.ask.tasks.extend(state.picture.of_the_missing());
        // What is said to be held here, and is not: what was read was old, or it is on its way back.
        let stray = state.picture.held_by(own.id).filter(|key| !state.mine.contains_key(key));
        let stray: Vec<_> = stray.cloned().collect();
        let strays = !stray.is_empty();
        for key in stray {
            state.picture.doubt(&key, now);
        }
        drop(state);
        if strays {
            self.change();
        }
    }

    fn begin_to_read(&mut self, now: Moment) {
        if self.reading.is_none() && !self.ask.is_nothing() && now >= self.pause {
            let asked = std::mem::take(&mut self.ask);
            self.asked = asked.clone();
            let (engine, spread) = (self.engine().clone(), self.shared.spread.clone());
            self.reading = Some(reading::read(engine, spread, asked).boxed());
        }
    }

    fn has_read(&mut self, reading: Reading) {
        let engine = self.engine().clone();
        let (now, store_now) = (engine.clock.now(), engine.store_now());
        let own = engine.current().map(|session| session.id);
        let mut changed = false;
        if let Some(error) = &reading.error {
            tracing::debug!(spread = %self.shared.spread, error = crate::elect::chain(error), "could not read how the spread stands");
            self.pause = now + self.failures.next(engine.entropy.roll());
            // What was read counts all the same; all of it is asked for again.
            self.ask.and(std::mem::take(&mut self.asked));
        } else {
            self.failures.reset();
        }
        let mut state = self.shared.state();
        let before: BTreeSet<SessionId> = state.picture.members().map(|(session, _)| session).collect();
        let mut listed = BTreeSet::new();
        if reading.everything && !state.complete {
            state.youth.begin(&engine, &self.shared.spread, &reading.sessions, own);
        }
        for record in reading.sessions {
            listed.insert(record.id);
            if Some(record.id) != own {
                let (id, sighting) = (record.id, SessionSeen::of(record));
                state.learn_of_death(id, &sighting);
                changed |= state.picture.saw(id, &sighting, now, store_now);
            }
        }
        if reading.all_sessions {
            // Whoever is not listed came just now, or its record is gone: another look will tell.
            let gone = before.iter().filter(|session| !listed.contains(session) && Some(**session) != own);
            self.ask.sessions.extend(gone.copied());
        }
        for (session, sighting) in reading.sightings {
            state.youth.saw(session, &sighting);
            state.learn_of_death(session, &sighting);
            if Some(session) == own {
                continue;
            }
            if sighting.is_dead() {
                engine.watcher.saw(&engine, session, reading.asked, &sighting);
            }
            changed |= state.picture.saw(session, &sighting, now, store_now);
        }
        for page in reading.listed {
            let mut found = BTreeSet::new();
            for record in page.records {
                let key = record.id.key.clone();
                let seen = LockSeen::Found(record);
                state.bench.read(&key, &seen);
                changed |= state.picture.read(&key, &seen, page.asked, now, store_now);
                found.insert(key);
            }
            for key in state.picture.between(page.after.as_ref(), page.before.as_ref()) {
                if found.contains(&key) {
                } else if page.refused {
                    state.picture.doubt(&key, now);
                    changed = true;
                } else {
                    changed |= state.picture.read(&key, &LockSeen::Absent, page.asked, now, store_now);
                }
            }
        }
        for (key, seen) in reading.tasks {
            if let LockSeen::Found(record) = &seen
                && let Some(held) = &record.holding
                && state.picture.session(held.by.session) == Some(&PeerSeen::Missing)
                && reading::watch_missing(&engine, record, held)
            {
                changed |= state.picture.knows_dead(held.by.session, now);
            }
            state.bench.read(&key, &seen);
            changed |= state.picture.read(&key, &seen, reading.asked, now, store_now);
        }
        let complete = reading.everything && !state.complete;
        state.complete |= reading.everything;
        state.news |= complete;
        let after: BTreeSet<SessionId> = state.picture.members().map(|(session, _)| session).collect();
        if before != after
            && let Some(own) = own
        {
            self.ask.ring = Some(state.picture.after(own));
        }
        drop(state);
        if let Some(place) = reading.place {
            self.rolling = place;
        }
        if changed || complete {
            self.change();
        }
    }

    // ----- what is done

    /// Plans, and does what is to be done. R13: a plan that cannot be made ends nothing.
    fn plan(&mut self, now: Moment) {
        self.preparations = 0;
        let planned = catch_unwind(AssertUnwindSafe(|| self.resolve(now)));
        if !matches!(planned, Ok(true)) {
            // Later; meanwhile what runs runs on.
            let engine = self.engine();
            let pause = if planned.is_ok() { engine.config.settle() } else { engine.poll() };
            self.retry_at = now + pause;
            self.changed = Some((now, now));
        }
        if planned.is_err() {
            tracing::error!(spread = %self.shared.spread, namespace = %self.engine().config.namespace(), "the spread could not be planned, it stays as it is");
        }
    }

    /// Says whether it could.
    fn resolve(&mut self, now: Moment) -> bool {
        let engine = self.engine().clone();
        // There will be one, or this one will be past its doubt.
        let Some(session) = engine.current().filter(|session| !session.is_in_doubt()) else { return false };
        let shared = self.shared.clone();
        let mut state = shared.state();
        if !state.complete {
            return false;
        }
        self.changed = None;
        state.planned = true;
        state.stays.retain(|_, until| now < *until);
        let me = state.me(&engine, &session);
        let mine = state.mine(now);
        let ActorState { picture, waiting, .. } = &mut *state;
        picture.had_no_room(waiting.keys(), now);
        let mut resolved = state.picture.resolve(&me, &mine, BOUNDS, now);
        let orders = std::mem::take(&mut resolved.orders);
        let later = state.stays.values().filter(|at| **at > now).min().copied();
        resolved.next = [resolved.next, later].into_iter().flatten().min();
        for key in &resolved.waiting {
            if !state.waiting.contains_key(key) {
                let lock = reading::lock(&engine, &self.shared.spread, key);
                engine.events.tell(Event::Waiting { lock });
            }
        }
        let waiting = resolved.waiting.iter();
        state.waiting =
            waiting.map(|key| (key.clone(), state.waiting.get(key).copied().unwrap_or(now))).collect();
        state.resolved = resolved;
        // One of those who know the same tasks tells.
        let tells = state
            .picture
            .members()
            .all(|(other, peer)| other >= session.id || peer.share.digest != state.share.digest);
        let since = state.waiting.values().min().copied().filter(|_| tells);
        engine.tallies.no_room(&self.shared.spread, since, state.waiting.keys());
        tracing::debug!(
            spread = %self.shared.spread, orders = orders.len(), waiting = state.waiting.len(), "planned"
        );
        super::metrics::planned(&engine, &self.shared.spread, &state, orders.len(), now);
        for order in orders {
            self.perform(&mut state, &session, order, now);
        }
        drop(state);
        self.shared.tell();
        true
    }

    fn perform(&mut self, state: &mut ActorState, session: &Arc<Session>, order: SpreadAction, now: Moment) {
        match order {
            SpreadAction::Take { key, dead } => {
                state.bench.note(dead.iter().map(|_| &key));
                self.stand(session, &key, WaitMode::once(dead), CancellationToken::new());
                state.mine.insert(key, TaskWork::Asks { since: now });
            }
            SpreadAction::Wait { key } => {
                let withdraw = CancellationToken::new();
                self.stand(session, &key, WaitMode::HEIR, withdraw.clone());
                state.mine.insert(key, TaskWork::Waits(withdraw));
            }
            SpreadAction::Withdraw { key } => {
                if let Some(TaskWork::Waits(withdraw)) = state.mine.get(&key) {
                    withdraw.cancel();
                }
            }
            SpreadAction::Give { key, to, must } => {
                if let Some(TaskWork::Has(worker)) = state.mine.get(&key) {
                    worker.give(to, must);
                }
            }
        }
    }

    fn stand(&self, session: &Arc<Session>, key: &Key, manner: WaitMode, withdraw: CancellationToken) {
        let lock = reading::lock(self.engine(), &self.shared.spread, key);
        let life = Some(self.elect.life());
        let mut standing = self.engine().stand(session, life, &lock, &self.wants, manner);
        let key = key.clone();
        self.standing.push(
            async move {
                tokio::select! {
                    biased;
                    told = standing.told() => (key, Some(told)),
                    () = withdraw.cancelled() => (key, None),
                }
            }
            .boxed(),
        );
    }

    /// What came of a ticket.
    fn told(&mut self, key: Key, told: Option<AcquireOutcome>) {
        let engine = self.engine().clone();
        let (now, store_now) = (engine.clock.now(), engine.store_now());
        let shared = self.shared.clone();
        let mut state = shared.state();
        let work = state.mine.remove(&key);
        let asked = if let Some(TaskWork::Asks { since }) = work { since } else { now };
        match told {
            Some(AcquireOutcome::Granted(hold)) => {
                let lease = hold.lease();
                state.picture.granted(&key, hold.cell().session.id, lease.term(), now);
                let room = state.has().count() < state.share.cap as usize;
                if state.picture.knows(&key) && room {
                    let worker = self.employ(hold, state.bench.clone());
                    state.mine.insert(key, TaskWork::Has(worker));
                }
                // Otherwise it is no task any more, or the cap was lowered meanwhile: it goes back.
            }
            Some(AcquireOutcome::Other(verdict)) => match verdict {
                TicketOutcome::Held(record, _) | TicketOutcome::Closed(record) => {
                    state.picture.read(&key, &LockSeen::Found(*record), asked, now, store_now);
                }
                TicketOutcome::Refused(refusal) => {
                    let lock = reading::lock(&engine, &shared.spread, &key);
                    tracing::error!(kind = %lock.kind, key = lock.key.as_str(), namespace = %lock.namespace, %refusal, "the task cannot be taken, its record has to be looked at");
                    state.picture.read(&key, &LockSeen::Refused(refusal), asked, now, store_now);
                }
                TicketOutcome::Here | TicketOutcome::Failed(_) => state.picture.doubt(&key, now),
                TicketOutcome::Granted { .. } | TicketOutcome::SessionOver => {}
            },
            None => {}
        }
        drop(state);
        self.shared.tell();
        self.touch();
    }

    /// Somebody to work on the task.
    fn employ(&self, hold: Hold, bench: Arc<Bench>) -> Handle {
        let engine = self.engine().clone();
        let (worker, handle) = Worker::new(
            engine.clone(),
            &hold,
            self.start.clone(),
            self.rules,
            bench,
            self.shared.changed.clone(),
            self.report.clone(),
        );
        // Here and not in the task: a runtime that shuts down drops a task before it ran.
        let inside = hold.work();
        engine.runtime.spawn(worker.work(hold, inside));
        handle
    }

    fn reported(&mut self, report: Report) {
        match report {
            Report::Ended(key, ended) => self.ended(&key, ended),
            Report::Tried => self.change(),
            Report::Stays(key) => {
                let now = self.engine().clock.now();
                tracing::debug!(spread = %self.shared.spread, %key, "its heir does not come, or it is busy: the task stays");
                self.shared.state().stays.insert(key, now + STAYS);
                self.change();
            }
            Report::Said(key) => {
                // Plans go by the record, here as everywhere.
                let now = self.engine().clock.now();
                {
                    let mut state = self.shared.state();
                    state.stays.remove(&key);
                    state.picture.doubt(&key, now);
                }
                self.touch();
            }
        }
    }

    /// A worker has let go of its task.
    fn ended(&mut self, key: &Key, ended: TaskEnd) {
        let engine = self.engine().clone();
        let now = engine.clock.now();
        let mut state = self.shared.state();
        let Some(TaskWork::Has(worker)) = state.mine.remove(key) else { return };
        state.stays.remove(key);
        let held = match state.picture.task(key) {
            Some(TaskPlace::Held { session, term, .. }) => Some((*session, *term)),
            _ => None,
        };
        // What a hint has told since then is newer.
        let term = worker.lease.term();
        if held.is_some_and(|(_, known)| known == term) {
            match ended {
                // The hint will say under which term.
                TaskEnd::Given(Some(heir)) => {
                    state.picture.granted(key, heir, term, now);
                }
                TaskEnd::Given(None) => {
                    state.picture.hinted(key, Some(LockChange::Freed), now);
                }
                // What the record says of it is to be read by all.
                TaskEnd::Quarantined | TaskEnd::Revoked | TaskEnd::Done | TaskEnd::Over => {
                    state.picture.doubt(key, now);
                }
            }
        }
        drop(state);
        self.shared.tell();
        self.touch();
    }

    // ----- the end

    /// Leaves the spread: the share is taken back, every job is told and waited for.
    async fn leave(mut self) {
        let engine = self.engine().clone();
        // Places in line are left, and what is granted all the same goes back.
        self.standing.clear();
        engine.spreads.retract(&self.shared.spread);
        if !engine.is_closed() {
            engine.hurry();
            for (_, worker) in self.shared.state().has() {
                worker.lease.give_up(Loss::Resigned);
            }
        }
        let works = |shared: &Shared| shared.state().has().next().is_some();
        while works(&self.shared) {
            let Some(report) = self.reports.recv().await else { break };
            self.reported(report);
        }
        self.shared.state().mine.clear();
        self.shared.tell();
    }
}

/// The reading that is under way; never, if there is none.
async fn read_on(reading: &mut Option<BoxFuture<'static, Reading>>) -> Reading {
    match reading {
        Some(future) => {
            let read = future.await;
            *reading = None;
            read
        }
        None => std::future::pending().await,
    }
}
