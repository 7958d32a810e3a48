//! The state that the parts of one engine share.

use std::{
    any::Any,
    io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Error, Event, Work, batch::Batch, entropy::Entropy, events::Events, keeper::Command, keys::Keys,
    leader::Leaders, listening::Listening, metrics, own_look, probe::Probe, runtime::Runtime,
    schedule_inbox::ScheduleInbox, session::Session, spreads::Spreads, store_times::StoreTimes,
    tallies::EventDigest, ticket::Wants, time, troubles::Troubles, unreadable::Unreadable, wakes::Waking,
    watcher::Watcher,
};
use crate::{
    StoreError,
    clock::{Clock, Moment},
    config::ElectConfig,
    logic::{
        flaw::Flaws,
        key::Context,
        session::{LONGEST_ATTEMPT, Times},
    },
    model::{LockId, Loss, ScheduleId, SessionId, StoreTime},
    store::{
        Candidate, Drained, LockSeen, Release, ReleaseAnswer, ScheduleSeen, Store, StoreExt, Take,
        TakeAnswer, Ticket, Wait,
    },
    sync::locked,
    words::{self, Under, Voice},
};

/// Last failure of the store, as the keeper found it.
#[derive(Clone, Debug)]
pub(crate) struct LastFailure {
    /// Time at which the first failed attempt since the last answer was sent.
    pub(crate) since: Moment,
    pub(crate) error: Arc<StoreError>,
}

/// Patience with the log at the end of an instance, and before a callback in which programs exit.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);
pub(crate) const WORDS_OF_A_LOSS: Duration = Duration::from_millis(50);

/// The parts of an engine, and what they share.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The program's handle of the store, for its own requests.
    pub(crate) given: Arc<dyn Store>,
    /// The engine's own, where the store has such: it is driven by the engine's thread.
    own: OnceLock<Arc<dyn Store>>,
    pub(crate) config: ElectConfig,
    pub(crate) times: Times,
    pub(crate) clock: Arc<dyn Clock>,
    /// Time at which this process joined.
    pub(crate) born: Moment,
    /// The part of its sessions' ids that names this process.
    pub(crate) process: u64,
    pub(crate) entropy: Entropy,
    pub(crate) flaws: Flaws,
    /// Time passes while something waits: it is not a test's.
    passes: bool,
    /// The log that the program had when it began this.
    under: Under,
    /// The program's runtime: its jobs and callbacks run on it.
    pub(crate) runtime: Runtime,
    /// The engine's, on a thread of its own: the work on the store does not depend on the program's.
    pub(crate) work: Runtime,
    pub(crate) host: String,
    pub(crate) program: String,
    pub(crate) keys: Keys,
    pub(crate) watcher: Watcher,
    pub(crate) events: Events,
    pub(crate) leaders: Leaders,
    pub(crate) spreads: Spreads,
    pub(crate) schedule_inbox: ScheduleInbox,
    /// State of schedules, whose type a room above defines.
    schedules: OnceLock<Box<dyn Any + Send + Sync>>,
    pub(crate) store_times: StoreTimes,
    takes: Batch<(Take, Vec<SessionId>), TakeAnswer>,
    releases: Batch<Release, ReleaseAnswer>,
    waits: Batch<Wait, ()>,
    leaves: Batch<(LockId, SessionId, Ticket), ()>,
    looks: Batch<LockId, LockSeen>,
    peeks: Batch<LockId, LockSeen>,
    places: Batch<(LockId, SessionId, Ticket), bool>,
    schedule_looks: Batch<ScheduleId, ScheduleSeen>,
    /// The session that was opened last, unless it is over.
    pub(crate) session: watch::Sender<Option<Arc<Session>>>,
    /// Wakes the waiters for a session in the order in which they came; the watch does not.
    session_changed: Arc<Notify>,
    pub(crate) troubles: Troubles,
    pub(crate) tallies: EventDigest,
    pub(crate) unreadable: Unreadable,
    pub(crate) listening: Listening,
    trouble: Arc<watch::Sender<Option<LastFailure>>>,
    keeper: mpsc::UnboundedSender<Command>,
    /// Set when no new tickets are accepted: the engine is about to close.
    closed: AtomicBool,
    /// Fires when campaigns are to stop.
    pub(crate) retiring: CancellationToken,
    /// Fires when everything has been given back, and the background ends.
    pub(crate) closing: CancellationToken,
    /// An operator wants this instance to have no tasks.
    pub(crate) drained: watch::Sender<Option<Drained>>,
    /// Time at which a heartbeat was last acknowledged.
    last_beat: Mutex<Option<Moment>>,
    last_attempt: Mutex<Option<Moment>>,
    /// Time at which a write of locks or places was last answered, or given up.
    last_write: Mutex<Option<Moment>>,
    pub(super) probe: Option<Probe>,
    /// Signs of life of the keeper's thread, if it has one.
    pub(super) pulse: Option<Probe>,
}

/// Parts that differ from one engine to another.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: ElectConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) passes: bool,
    pub(crate) entropy: Entropy,
    pub(crate) flaws: Flaws,
    pub(crate) runtime: Runtime,
    pub(crate) work: Runtime,
    pub(crate) host: String,
    pub(crate) program: String,
    pub(crate) probe: Option<Probe>,
    pub(crate) pulse: Option<Probe>,
}

/// Reads of one sort, by that method of the store.
macro_rules! reads {
    ($work:ident, $method:ident) => {
        Batch::new(|engine, items| {
            async move {
                let limit = engine.limit();
                engine.call(Work::$work, limit, engine.store().$method(items, limit)).await
            }
            .boxed()
        })
    };
}

impl Engine {
    pub(crate) fn new(parts: Parts, keeper: mpsc::UnboundedSender<Command>) -> Self {
        let Parts {
            store,
            config,
            clock,
            passes,
            entropy,
            flaws,
            runtime,
            work,
            host,
            program,
            probe,
            pulse,
        } = parts;
        let times = Times {
            ttl: config.ttl(),
            interval: config.refresh_interval(),
            stop_grace: config.stop_grace(),
            margin: config.margin(),
        };
        let now = clock.now();
        Self {
            given: store,
            own: OnceLock::new(),
            config,
            times,
            clock,
            passes,
            under: Under::current(),
            born: now,
            process: entropy.roll(),
            entropy,
            flaws,
            runtime,
            work,
            host,
            program,
            keys: Keys::default(),
            watcher: Watcher::default(),
            events: Events::new(Waking::where_time(passes)),
            leaders: Leaders::default(),
            spreads: Spreads::default(),
            schedule_inbox: ScheduleInbox::default(),
            schedules: OnceLock::new(),
            store_times: StoreTimes::default(),
            takes: Batch::new(|engine, items| take_all(engine, items).boxed()),
            releases: Batch::new(|engine, items| {
                async move {
                    let limit = engine.limit();
                    engine.call(Work::Releases, limit, engine.store().release(items, limit)).await
                }
                .boxed()
            }),
            waits: Batch::new(|engine, items| {
                async move {
                    let (limit, many) = (engine.limit(), items.len());
                    let call = engine.store().wait(items, limit);
                    engine.call(Work::Joining, limit, call).await.map(|()| vec![(); many])
                }
                .boxed()
            }),
            leaves: Batch::new(|engine, items| {
                async move {
                    let (limit, many) = (engine.limit(), items.len());
                    let call = engine.store().stop_waiting(items, limit);
                    engine.call(Work::Leaving, limit, call).await.map(|()| vec![(); many])
                }
                .boxed()
            }),
            looks: reads!(Reads, locks),
            peeks: reads!(Reads, peek),
            places: reads!(Queues, places),
            schedule_looks: reads!(Schedules, schedules),
            session: watch::Sender::new(None),
            session_changed: Arc::default(),
            troubles: Troubles::default(),
            tallies: EventDigest::default(),
            unreadable: Unreadable::default(),
            listening: Listening::default(),
            trouble: Arc::new(watch::Sender::new(None)),
            keeper,
            closed: AtomicBool::new(false),
            retiring: CancellationToken::new(),
            closing: CancellationToken::new(),
            drained: watch::Sender::new(None),
            last_beat: Mutex::default(),
            last_attempt: Mutex::default(),
            last_write: Mutex::default(),
            probe,
            pulse,
        }
    }

    /// Returns the handle of the store for the engine's own work. What is done after its end is the program's.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.own.get().filter(|_| !self.closing.is_cancelled()).unwrap_or(&self.given)
    }

    /// Returns the engine's own, where the store has such.
    pub(crate) fn own(&self) -> Option<&Arc<dyn Store>> {
        self.own.get()
    }

    /// Has the engine work over this one.
    pub(crate) fn use_own(&self, own: Arc<dyn Store>) {
        // There is one keeper, which asks once.
        let _ = self.own.set(own);
    }

    /// Returns the state of schedules, which begins empty.
    pub(crate) fn schedules<T: Default + Send + Sync + 'static>(&self) -> &T {
        let state = self.schedules.get_or_init(|| Box::new(T::default()));
        state.downcast_ref().expect("schedules have one type of state")
    }

    // ----- the session

    /// Returns the session, if there is a valid one.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        let session = self.session.borrow().clone()?;
        session.is_valid(self.clock.now()).then_some(session)
    }

    /// Returns the session, if jobs may begin under it.
    fn sound(&self) -> Option<Arc<Session>> {
        self.current().filter(|session| !session.is_expiring())
    }

    /// Waits until the session changes, counted from the call. Waiters are woken in the order in which they
    /// came.
    pub(crate) fn session_changes(&self) -> impl Future<Output = ()> + '_ {
        self.session_changed.notified()
    }

    /// Wakes the waiters for a session: there is one, it is sound again, or it is over.
    pub(crate) fn session_has_changed(&self) {
        let changed = self.session_changed.clone();
        self.wake(move || changed.notify_waiters());
    }

    /// Returns where callers of the program are woken.
    pub(super) const fn waking(&self) -> Waking {
        Waking::where_time(self.passes)
    }

    /// Wakes callers of the program by this, which is code of others.
    pub(super) fn wake<T>(&self, wake: impl FnOnce() -> T + Send + 'static) {
        self.waking().wake(wake);
    }

    /// Changes a value that callers of the program wait for.
    pub(super) fn change<T: Send + Sync + 'static>(
        &self,
        value: &Arc<watch::Sender<T>>,
        change: impl FnOnce(&mut T) -> bool,
    ) {
        self.waking().change(value, change);
    }

    /// Waits for a session that jobs may begin under.
    ///
    /// # Errors
    /// The engine is closed.
    pub(crate) async fn valid_session(&self) -> Result<Arc<Session>, Error> {
        loop {
            let mut changed = std::pin::pin!(self.session_changed.notified());
            changed.as_mut().enable();
            if self.is_closed() {
                return Err(Error::Closed);
            }
            if let Some(session) = self.sound() {
                return Ok(session);
            }
            tokio::select! {
                biased;
                () = self.retiring.cancelled() => {}
                () = changed => {}
                () = own_look::sleep(self.times.interval) => {}
            }
        }
    }

    pub(crate) fn session_or_error(&self) -> Result<Arc<Session>, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        self.sound().ok_or_else(|| {
            let last = self.trouble.borrow().as_ref().map(|trouble| trouble.error.clone());
            Error::NoSession { last }
        })
    }

    pub(crate) fn session_opened(self: &Arc<Self>, session: &Arc<Session>) {
        let (holder, namespace) = (self.config.holder(), self.config.namespace());
        words::info!(
            session = %session.id, %holder, %namespace,
            ttl = ?self.times.ttl, cancelled_after = ?self.times.validity().saturating_sub(self.times.stop_grace),
            "session opened"
        );
        // Nobody waits for it: it is read.
        self.session.send_replace(Some(session.clone()));
        if self.passes {
            time::watch(session, &self.clock, &self.under);
        }
        self.listen();
        self.session_has_changed();
        self.events.send(Event::SessionOpened { session: session.id });
    }

    /// Ends the session here: what runs under it is cut. Its keeper and the end of the engine both may do so.
    pub(crate) fn session_ended(self: &Arc<Self>, session: &Arc<Session>, loss: Loss) {
        session.finish(&loss);
        if !session.is_news() {
            return;
        }
        // The first reason is kept.
        let loss = session.loss(self.clock.now()).unwrap_or(loss);
        let (holder, namespace) = (self.config.holder(), self.config.namespace());
        // The events that led to it are logged before it.
        self.log_tallies();
        if loss == Loss::Closed {
            words::info!(session = %session.id, %holder, %namespace, "session closed");
        } else {
            words::error!(session = %session.id, %holder, %namespace, %loss, held = session.inside(), "session lost");
            metrics::session_lost(self, &loss);
        }
        session.cut_all(&loss);
        self.session.send_replace(None);
        self.listen();
        self.session_has_changed();
        self.end_tickets(session.id);
        let session = session.id;
        self.events.send(match loss {
            Loss::Closed => Event::SessionClosed { session },
            loss => Event::SessionLost { session, loss },
        });
    }

    /// Returns the least that the store's clock may show now. A guess, for waits that decide nothing.
    pub(crate) fn store_now(&self) -> Option<StoreTime> {
        self.store_times.at_least(self.clock.now())
    }

    /// Returns the time limit of an operation: less than half of the session's remaining time (R8).
    pub(crate) fn limit(&self) -> Duration {
        let left = self.current().map(|session| session.remaining(self.clock.now()));
        let half = left.unwrap_or(self.times.ttl) * 9 / 20;
        half.clamp(Duration::from_millis(20), LONGEST_ATTEMPT)
    }

    pub(crate) fn poll(&self) -> Duration {
        self.config.poll_interval()
    }

    /// Runs a call of the program that blocks. In the time of a test it is on the runtime's pool, which keeps that time
    /// from passing.
    ///
    /// # Errors
    /// There is no thread for it: it never begins.
    pub(crate) fn block(&self, call: impl FnOnce() + Send + 'static) -> io::Result<()> {
        if self.passes {
            return self.runtime.spawn_thread(call);
        }
        self.runtime.spawn_blocking(call);
        Ok(())
    }

    pub(crate) fn with_context<T>(&self, step: impl FnOnce(Context<'_>) -> T) -> T {
        let current = self.current();
        let now = self.clock.now();
        step(Context {
            now,
            current: current.as_ref().map(|session| session.id),
            known: &|session| self.watcher.known(session),
            beats: &|session| self.watcher.beats(session, now),
            store_now: self.store_times.at_least(now),
            roll: self.entropy.roll(),
        })
    }

    // ----- operations

    pub(crate) fn candidate(&self, session: &Session, ticket: Ticket, wants: &Wants) -> Candidate {
        self.candidate_of(session.id, ticket, wants)
    }

    pub(crate) fn candidate_of(&self, session: SessionId, ticket: Ticket, wants: &Wants) -> Candidate {
        Candidate {
            session,
            ticket,
            ttl: self.times.ttl,
            holder: self.config.holder().clone(),
            who: wants.who.clone(),
            why: wants.why.clone(),
            value: wants.value.clone(),
            lock_delay: wants.lock_delay,
        }
    }

    /// Takes a lock. One that is stuck goes by itself, unless it is the store that is: its record may be kept by
    /// another client's transaction, and the server waits for that.
    pub(crate) async fn take(
        self: &Arc<Self>,
        take: Take,
        dead: Vec<SessionId>,
        is_stuck: bool,
    ) -> Result<TakeAnswer, Arc<StoreError>> {
        self.written(if is_stuck && !self.troubles.has(Work::Beats) {
            self.takes.send_alone(self, (take, dead)).await
        } else {
            self.takes.submit(self, |engine| &engine.takes, (take, dead)).await
        })
    }

    /// Releases a lock, likewise.
    pub(crate) async fn release(
        self: &Arc<Self>,
        release: Release,
        is_stuck: bool,
    ) -> Result<ReleaseAnswer, Arc<StoreError>> {
        self.written(if is_stuck && !self.troubles.has(Work::Beats) {
            self.releases.send_alone(self, release).await
        } else {
            self.releases.submit(self, |engine| &engine.releases, release).await
        })
    }

    /// Joins the queue of a lock with all these tickets.
    pub(crate) async fn wait(self: &Arc<Self>, waits: Vec<Wait>) -> Result<(), Arc<StoreError>> {
        self.written(self.waits.submit_all(self, |engine| &engine.waits, waits).await.map(drop))
    }

    pub(crate) async fn stop_waiting(
        self: &Arc<Self>,
        places: Vec<(LockId, SessionId, Ticket)>,
    ) -> Result<(), Arc<StoreError>> {
        self.written(self.leaves.submit_all(self, |engine| &engine.leaves, places).await.map(drop))
    }

    /// Notes that a write of locks or places was answered, or given up, and passes on how.
    fn written<T>(&self, answer: T) -> T {
        *locked(&self.last_write) = Some(self.clock.now());
        answer
    }

    /// Returns when a write of locks or places was last answered, or given up.
    pub(crate) fn last_write(&self) -> Option<Moment> {
        *locked(&self.last_write)
    }

    pub(crate) async fn look(self: &Arc<Self>, lock: LockId) -> Result<LockSeen, Arc<StoreError>> {
        self.looks.submit(self, |engine| &engine.looks, lock).await
    }

    /// Reads it as it is now, though a failure of the store may undo that.
    pub(crate) async fn peek(self: &Arc<Self>, lock: LockId) -> Result<LockSeen, Arc<StoreError>> {
        self.peeks.submit(self, |engine| &engine.peeks, lock).await
    }

    /// Reads it over the program's own store, for a call of the program.
    pub(crate) async fn requested_look(&self, lock: LockId) -> Result<LockSeen, Error> {
        let limit = self.limit();
        let seen = self.call(Work::Requested, limit, self.given.locks(vec![lock], limit)).await;
        Ok(seen.map_err(Error::store)?.pop().unwrap_or(LockSeen::Absent))
    }

    /// Reads whether this ticket is in the queue.
    pub(crate) async fn place(
        self: &Arc<Self>,
        place: (LockId, SessionId, Ticket),
    ) -> Result<bool, Arc<StoreError>> {
        self.places.submit(self, |engine| &engine.places, place).await
    }

    pub(crate) async fn look_at_schedule(
        self: &Arc<Self>,
        schedule: ScheduleId,
    ) -> Result<ScheduleSeen, Arc<StoreError>> {
        self.schedule_looks.submit(self, |engine| &engine.schedule_looks, schedule).await
    }

    // ----- the state of the store, as the keeper finds it

    pub(crate) fn beaten(&self, took: Duration, budget: Duration) {
        metrics::beaten(self, took, budget);
        *locked(&self.last_beat) = Some(self.clock.now());
    }

    pub(crate) fn last_beat(&self) -> Option<Moment> {
        *locked(&self.last_beat)
    }

    pub(crate) fn last_attempt(&self) -> Option<Moment> {
        *locked(&self.last_attempt)
    }

    /// Records a failure of the store, or its end. The time of the first failure is kept until an answer.
    pub(crate) fn trouble(&self, trouble: Option<LastFailure>) {
        *locked(&self.last_attempt) = Some(self.clock.now());
        self.change(&self.trouble, |known| {
            let changed = known.is_some() || trouble.is_some();
            *known = match (known.take(), trouble) {
                (Some(old), Some(new)) => Some(LastFailure { since: old.since, ..new }),
                (_, new) => new,
            };
            changed
        });
    }

    pub(crate) fn troubles(&self) -> watch::Receiver<Option<LastFailure>> {
        self.trouble.subscribe()
    }

    // ----- its words

    /// Waits until the log has the lines so far, at most for so long: programs exit after some of them.
    pub(crate) async fn tell_log(&self, at_most: Duration) {
        if self.passes {
            let _ = tokio::time::timeout(at_most, words::told()).await;
        }
    }

    /// Records whether the program's log takes lines, and its recorder numbers.
    pub(crate) fn look_at_words(&self) {
        let Some((which, voice)) = words::voice() else { return self.record_success(Work::Telling) };
        let (since, wrong) = match voice {
            Voice::Stuck(since) => (since, "does not return: is it read, and is there space on its disk?"),
            Voice::Panics => (Duration::ZERO, "panics"),
        };
        let error = format!("the program's {which} {wrong}");
        self.record_trouble(Work::Telling, self.clock.now() - since, true, error);
    }

    // ----- the keeper

    fn command(&self, command: Command) {
        // An error only says that the keeper has ended.
        let _ = self.keeper.send(command);
    }

    pub(crate) fn hurry(&self) {
        self.command(Command::Hurry);
    }

    pub(crate) fn close_session(&self, reply: Option<tokio::sync::oneshot::Sender<()>>) {
        self.command(Command::Close(reply));
    }

    // ----- its end

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Accepts no new tickets from now on. Returns whether this call was the first.
    pub(crate) fn retire(&self) -> bool {
        let first = !self.closed.swap(true, Ordering::AcqRel);
        let retiring = self.retiring.clone();
        self.wake(move || retiring.cancel());
        first
    }

    /// Ends the engine once everything on its way to the store has arrived, or is late.
    pub(crate) fn end_gently(self: &Arc<Self>) {
        self.retire();
        let engine = self.clone();
        // On a thread that is gone this is dropped; the engine has ended then.
        self.work.spawn(async move {
            let _ = tokio::time::timeout(LONGEST_ATTEMPT * 2, engine.keys.settled()).await;
            engine.end();
        });
    }

    /// Ends the engine at once. The keeper closes the session in the store, if there is one still: it may have been on
    /// a runtime that has ended.
    pub(crate) fn end(self: &Arc<Self>) {
        self.retire();
        self.log_tallies();
        // First: the keeper opens no other.
        self.close_session(None);
        let session = self.session.borrow().clone();
        if let Some(session) = session {
            self.session_ended(&session, Loss::Closed);
        }
        self.closing.cancel();
        self.events.end();
    }
}

async fn take_all(
    engine: Arc<Engine>,
    items: Vec<(Take, Vec<SessionId>)>,
) -> Result<Vec<TakeAnswer>, StoreError> {
    let (takes, dead): (Vec<_>, Vec<_>) = items.into_iter().unzip();
    // A dead session is dead for all takes: naming more than a take needs does no harm.
    let mut dead: Vec<_> = dead.into_iter().flatten().collect();
    dead.sort_unstable();
    dead.dedup();
    let limit = engine.limit();
    engine.call(Work::Takes, limit, engine.store().take(takes, dead, limit)).await
}
