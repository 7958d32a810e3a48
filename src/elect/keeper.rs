//! The keeper: opens sessions, sends heartbeats, watches the session's end, and opens the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    io, mem,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use super::{Engine, LastFailure, Work, runtime::Runtime, session::Session, troubles::careful, upkeep};
use crate::{
    StoreError,
    clock::Moment,
    error::chain,
    logic::{
        flaw::Flaw,
        plan::PLAN_VERSION,
        session::{Action, LONGEST_ATTEMPT, SessionEvent, SessionMachine},
    },
    model::{LockId, Loss, SessionId, SpreadName, Term},
    store::{
        About, Beat, BeatWrite, Death, Declaration, Drained, Evidence, Nonce, Open, Presence, Request,
        SessionSeen, Store, StoreExt,
    },
    sync::caught,
    words,
};

/// A store limits by itself how long a connection takes; one that does not is asked again.
const LONGEST_CONNECT: Duration = Duration::from_secs(60);

/// Time for what a store tells others of the last writes of an instance.
const LAST_BELLS: Duration = Duration::from_secs(1);

/// Commands to the keeper.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send a heartbeat now: there may be news.
    Hurry,
    /// End the session, in the store too, and stop.
    Close(Option<oneshot::Sender<()>>),
}

type PendingBeat = BoxFuture<'static, (Nonce, Moment, Result<SessionSeen, StoreError>)>;

pub(crate) struct Keeper {
    engine: Arc<Engine>,
    /// Over a connection of its own, where the store has such.
    store: Arc<dyn Store>,
    commands: mpsc::UnboundedReceiver<Command>,
    /// Tasks that close ended sessions in the store.
    closers: JoinSet<()>,
    /// True if it was logged that the store could not give a presence.
    warned_no_presence: bool,
}

/// Next step after a session has ended.
enum NextSession {
    Again,
    Closed(Option<oneshot::Sender<()>>),
}

impl Keeper {
    pub(crate) fn new(engine: Arc<Engine>, commands: mpsc::UnboundedReceiver<Command>) -> Self {
        let store = engine.store().clone();
        Self { engine, store, commands, closers: JoinSet::new(), warned_no_presence: false }
    }

    /// Keeps one session after the other, until the engine closes.
    pub(crate) async fn run(mut self) {
        loop {
            let after = match self.program_answers().await {
                NextSession::Again => {
                    let kept = AssertUnwindSafe(self.session()).catch_unwind().await;
                    if let Ok(after) = kept { after } else { self.panicked().await }
                }
                closed @ NextSession::Closed(_) => closed,
            };
            if let NextSession::Closed(reply) = after {
                // Bounded: jobs that still run keep their session from being closed.
                let patience = LONGEST_ATTEMPT * 2;
                let closing = async { while self.closers.join_next().await.is_some() {} };
                if tokio::time::timeout(patience, closing).await.is_err() {
                    words::warn!(
                        holder = %self.engine.config.holder(), namespace = %self.engine.config.namespace(),
                        "left a session open because something still runs under it: another instance will declare it dead"
                    );
                }
                self.tell_the_last().await;
                if let Some(reply) = reply {
                    self.engine.wake(move || reply.send(()));
                }
                return;
            }
        }
    }

    /// Has the engine's own store tell others of its last writes: its runtime ends after this.
    async fn tell_the_last(&self) {
        if let Some(own) = self.engine.own() {
            // An error says that it takes longer. What others are not told they find at their next poll.
            let _ = careful(LAST_BELLS, async { own.at_rest().await }).await;
        }
    }

    /// A session whose keeper panicked is kept no more. Its record is left to its ttl.
    async fn panicked(&self) -> NextSession {
        let (engine, rest) = (&self.engine, self.engine.times.interval);
        let end = || {
            let (holder, namespace) = (engine.config.holder(), engine.config.namespace());
            words::error!(%holder, %namespace, "the keeper panicked, its session ends and another is opened");
            if let Some(session) = engine.current() {
                engine.session_ended(&session, Loss::Vanished { found: "its keeper panicked".into() });
            }
        };
        while !caught(end) {
            tokio::time::sleep(rest).await;
        }
        tokio::time::sleep(rest).await;
        // The panic may have come after the command to close was taken.
        if engine.closing.is_cancelled() { NextSession::Closed(None) } else { NextSession::Again }
    }

    /// Waits until the program answers its liveness probe: before that nothing could begin under a session,
    /// and it would be lost at once.
    async fn program_answers(&mut self) -> NextSession {
        let engine = self.engine.clone();
        let Some(patience) = engine.probe_patience().filter(|_| engine.probe_failed()) else {
            return NextSession::Again;
        };
        while engine.probe_failed() {
            tokio::select! {
                biased;
                reply = self.close_command() => return NextSession::Closed(reply),
                () = tokio::time::sleep(patience / 4) => {}
            }
        }
        let (holder, namespace) = (engine.config.holder(), engine.config.namespace());
        words::info!(%holder, %namespace, "the liveness probe succeeds again, opening a session");
        NextSession::Again
    }

    /// Waits for the command to close, while there is no session for other commands. Returns its reply.
    async fn close_command(&mut self) -> Option<oneshot::Sender<()>> {
        loop {
            match self.commands.recv().await {
                Some(Command::Hurry) => {}
                Some(Command::Close(reply)) => return reply,
                None => return None,
            }
        }
    }

    /// Asks for what is kept as long as a session lives, before it is opened. A session without lives as well, and
    /// dies by its ttl. Returns the reply of a close that came meanwhile as an error.
    async fn presence(
        &mut self,
        session: SessionId,
    ) -> Result<Option<Presence>, Option<oneshot::Sender<()>>> {
        let store = self.store.clone();
        let mut given = pin!(careful(LONGEST_ATTEMPT, async { store.presence(session).await }));
        let given = tokio::select! {
            biased;
            given = given.as_mut() => given,
            reply = self.close_command() => return Err(reply),
        };
        let error = match given {
            Ok(presence) => return Ok(presence),
            Err(error) => chain(&error),
        };
        if !mem::replace(&mut self.warned_no_presence, true) {
            let (holder, namespace) = (self.engine.config.holder(), self.engine.config.namespace());
            words::warn!(
                %session, %holder, %namespace, error,
                "no crash detection for the session: if this process dies, its takeovers wait for the ttl"
            );
        }
        Ok(None)
    }

    async fn session(&mut self) -> NextSession {
        let engine = self.engine.clone();
        let id = engine.entropy.session(engine.process);
        let presence = match self.presence(id).await {
            Ok(presence) => presence,
            Err(reply) => return NextSession::Closed(reply),
        };
        let first_ticket = engine.entropy.first_ticket();
        let mut life = SessionTask {
            machine: SessionMachine::new(engine.times, engine.flaws, engine.clock.now()),
            session: Arc::new(Session::new(id, engine.times, engine.flaws, first_ticket, presence)),
            attempts: FuturesUnordered::new(),
            opened: false,
            heard: BTreeSet::new(),
            read: Beat::new(0),
            shares: 0,
            said: BTreeSet::new(),
            brought: BTreeMap::new(),
            store: self.store.clone(),
            engine,
        };
        let mut closed = None;
        life.step(SessionEvent::Wake);
        while !life.machine.is_over() {
            if let Some(loss) = life.session.loss(life.engine.clock.now()).filter(|_| life.session.is_over())
            {
                // The time thread was first: an answer that comes now is too late.
                life.step(SessionEvent::Abandon(loss));
                continue;
            }
            let look_by = life.machine.look_by();
            life.session.looks_by(look_by);
            let wait = look_by.since(life.engine.clock.now());
            let wait = life.engine.probe_patience().map_or(wait, |patience| wait.min(patience / 2));
            tokio::select! {
                biased;
                command = self.commands.recv() => match command.unwrap_or(Command::Close(None)) {
                    Command::Hurry => life.step(SessionEvent::Hurry),
                    Command::Close(reply) => {
                        closed = Some(reply);
                        life.step(SessionEvent::Abandon(Loss::Closed));
                    }
                },
                Some((nonce, sent, answer)) = life.attempts.next() => life.answered(nonce, sent, answer),
                () = tokio::time::sleep(wait) => {
                    life.probe();
                    life.step(SessionEvent::Wake);
                }
            }
        }
        // An opening that was never answered may have been applied, too.
        let nonces = life.machine.nonces();
        let closing = close_when_empty(self.engine.clone(), self.store.clone(), life.session, nonces);
        self.closers.spawn(self.engine.work.guard(closing));
        while self.closers.try_join_next().is_some() {}
        match closed {
            Some(reply) => NextSession::Closed(reply),
            None => NextSession::Again,
        }
    }
}

/// State of one session that the keeper keeps.
struct SessionTask {
    engine: Arc<Engine>,
    store: Arc<dyn Store>,
    machine: SessionMachine,
    session: Arc<Session>,
    attempts: FuturesUnordered<PendingBeat>,
    opened: bool,
    /// Requests that were passed on; the next beat says so.
    heard: BTreeSet<(LockId, Term)>,
    /// The latest beat whose record was read: the answer to an earlier one may come later.
    read: Beat,
    /// The version of the shares that its record has.
    shares: u64,
    /// Spreads that any attempt so far said it takes part in.
    said: BTreeSet<SpreadName>,
    /// The versions that attempts brought whose answers are awaited.
    brought: BTreeMap<Nonce, u64>,
}

impl SessionTask {
    fn step(&mut self, event: SessionEvent) {
        let engine = self.engine.clone();
        let (now, nonce, roll) = (engine.clock.now(), engine.entropy.nonce(), engine.entropy.roll());
        for action in self.machine.step(now, event, nonce, roll) {
            self.perform(now, action);
        }
    }

    fn perform(&mut self, now: Moment, action: Action) {
        let id = self.session.id;
        match action {
            Action::Open { nonce, limit } => {
                let (version, shares) = self.engine.spreads.shares();
                let drained = self.engine.drained.borrow().clone();
                self.said.extend(shares.iter().map(|share| share.spread.clone()));
                self.brought.insert(nonce, version);
                let (about, ttl) = (self.about(), self.engine.times.ttl);
                let open = Open { session: id, nonce, about, ttl, shares, drained };
                let store = self.store.clone();
                self.attempt(now, nonce, limit, async move { store.open(open, limit).await });
            }
            Action::Beat { number, nonce, limit } => {
                let heard = self.heard.iter().cloned().collect();
                let (version, shares) = self.engine.spreads.shares();
                let shares = (version != self.shares).then_some(shares);
                let mut left = Vec::new();
                if let Some(shares) = &shares {
                    self.brought.insert(nonce, version);
                    let has = |spread: &SpreadName| shares.iter().any(|share| share.spread == *spread);
                    left.extend(self.said.iter().filter(|spread| !has(spread)).cloned());
                    self.said.extend(shares.iter().map(|share| share.spread.clone()));
                }
                let stalled_since = self.engine.stalled_since();
                let beat = BeatWrite { session: id, beat: number, nonce, stalled_since, shares, left, heard };
                let store = self.store.clone();
                self.attempt(now, nonce, limit, async move { store.beat(beat, limit).await });
            }
            Action::Extend { end, took, sound } => {
                self.session.extend(end);
                self.engine.beaten(took, self.engine.times.interval);
                if sound && !self.opened {
                    self.opened = true;
                    self.engine.session_opened(&self.session);
                } else if sound && self.session.clear_expiring() {
                    self.engine.session_has_changed();
                }
            }
            Action::Requests(requests) => self.requests(requests),
            Action::Expiring(loss) => {
                let (holder, namespace) = (self.engine.config.holder(), self.engine.config.namespace());
                words::warn!(session = %id, %holder, %namespace, %loss, "no heartbeat acknowledged, session about to expire: cancelling jobs");
                self.session.cancel_all(&loss);
            }
            Action::End(loss) => self.end(loss),
            Action::Rename => {
                let (holder, namespace) = (self.engine.config.holder(), self.engine.config.namespace());
                words::warn!(session = %id, %holder, %namespace, "the session id is already in use, generating a new one");
            }
            Action::TooLate { took } => {
                let (holder, namespace) = (self.engine.config.holder(), self.engine.config.namespace());
                let ttl = self.engine.times.ttl;
                words::warn!(session = %id, %holder, %namespace, ?took, ?ttl, "the new session was confirmed too late to be valid, opening another");
            }
        }
    }

    fn end(&mut self, loss: Loss) {
        if self.opened {
            self.engine.session_ended(&self.session, loss);
        } else {
            if loss != Loss::Closed {
                let (holder, namespace) = (self.engine.config.holder(), self.engine.config.namespace());
                words::warn!(session = %self.session.id, %holder, %namespace, %loss, "a session ended before any work began under it, opening another");
            }
            self.session.finish(&loss);
            self.session.cut_all(&loss);
        }
    }

    fn attempt(
        &self,
        sent: Moment,
        nonce: Nonce,
        limit: Duration,
        call: impl Future<Output = Result<SessionSeen, StoreError>> + Send + 'static,
    ) {
        let engine = self.engine.clone();
        self.attempts
            .push(Box::pin(async move { (nonce, sent, engine.call(Work::Beats, limit, call).await) }));
    }

    fn answered(&mut self, nonce: Nonce, sent: Moment, answer: Result<SessionSeen, StoreError>) {
        let brought = self.brought.remove(&nonce);
        match answer {
            Ok(sighting) => {
                if let Some(version) = brought.filter(|_| sighting.bears(nonce)) {
                    self.shares = self.shares.max(version);
                    self.engine.spreads.mark_published(&self.engine, version);
                }
                if let Some(record) = sighting.record() {
                    if sighting.bears(nonce) {
                        self.engine.record_store_time(sent, record.beat_at);
                        if record.is_alive() && record.beat >= self.read {
                            self.read = record.beat;
                            self.drain(record.drained.as_ref());
                        }
                    }
                    self.session.opened(record.started);
                    self.heard.retain(|(lock, term)| {
                        record.requests.iter().any(|request| request.is_about(lock, *term))
                    });
                }
                self.engine.trouble(None);
                self.engine.look_at_words();
                self.engine.look_at_program();
                self.step(SessionEvent::Answered(nonce, Box::new(sighting)));
            }
            Err(error) => {
                let took = self.engine.clock.now().since(sent);
                words::debug!(session = %self.session.id, ?took, error = chain(&error), "a heartbeat failed");
                self.engine.trouble(Some(LastFailure { since: sent, error: Arc::new(error) }));
                self.step(SessionEvent::Failed(nonce));
            }
        }
    }

    /// Passes requests of operators to revoke locks on to their leases.
    fn requests(&mut self, requests: Vec<Request>) {
        let mut news = false;
        for request in requests {
            if !self.heard.insert((request.lock.clone(), request.term)) {
                continue;
            }
            news = true;
            match self.session.lease(&request.lock, request.term) {
                Some(lease) => lease.cancel(&Loss::Revoked { by: request.by, why: request.why }),
                None => self.session.ask(request),
            }
        }
        if news {
            // Beats at once, so that the record does not keep them.
            self.engine.hurry();
        }
    }

    /// Has this instance give its tasks away, or take some again, as its record says.
    fn drain(&self, order: Option<&Drained>) {
        if self.engine.drained.borrow().as_ref() == order {
            return;
        }
        let (holder, namespace) = (self.engine.config.holder(), self.engine.config.namespace());
        let session = self.session.id;
        if let Some(Drained { by, why, .. }) = order {
            words::info!(%session, %holder, %namespace, %by, %why, "an operator drains this instance: its tasks go to others");
        } else {
            words::info!(%session, %holder, %namespace, "an operator ended the drain of this instance");
        }
        caught(|| self.engine.drained.send_replace(order.cloned()));
    }

    fn probe(&mut self) {
        if self.opened && self.engine.probe_failed() {
            let (holder, namespace) = (self.engine.config.holder(), self.engine.config.namespace());
            words::error!(session = %self.session.id, %holder, %namespace, "the liveness probe failed, ending the session");
            self.step(SessionEvent::Abandon(Loss::Probe));
        }
    }

    fn about(&self) -> About {
        let engine = &self.engine;
        About {
            namespace: engine.config.namespace().clone(),
            holder: engine.config.holder().clone(),
            host: engine.host.clone(),
            pid: std::process::id(),
            program: engine.program.clone(),
            plan_version: PLAN_VERSION,
        }
    }
}

/// Closes a session in the store, once nothing runs under it any more: its locks are free that much sooner.
/// If that takes longer than its ttl, others declare it dead; while the store is away they cannot, and the session is
/// closed when it is back.
///
/// It is closed only if its last beat was one of ours: a clone of this machine may run under the same id, and
/// what runs there is not known here.
async fn close_when_empty(
    engine: Arc<Engine>,
    store: Arc<dyn Store>,
    session: Arc<Session>,
    nonces: Vec<Nonce>,
) {
    // The session is over. Until it is closed, no instance needs a proof of its end; after that, or once this gives
    // up, any may have it. Jobs that still run keep a presence of their own.
    let kept = ReleasePresence(session);
    let session = &kept.0;
    if !engine.flaws.has(Flaw::CloseUnderJob) {
        session.emptied().await;
    }
    let mut until = engine.clock.now() + engine.times.ttl * 2;
    let mut backoff = crate::backoff::Backoff::new(Duration::from_millis(100), engine.times.interval);
    while engine.clock.now() < until {
        let sent = engine.clock.now();
        match close(&engine, &*store, session.id, &nonces).await {
            Ok(Some(sighting)) if sighting.is_dead() => {
                engine.watcher.saw(&engine, session.id, sent, &sighting);
                return;
            }
            // A late beat of ours came in between.
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) if !error.is_retryable() => return,
            Err(_) => {
                tokio::time::sleep(backoff.next(engine.entropy.roll())).await;
                until = engine.clock.now() + engine.times.ttl * 2;
            }
        }
    }
}

/// Lets the presence of a session go that is over.
struct ReleasePresence(Arc<Session>);

impl Drop for ReleasePresence {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// Makes one attempt to close a session; `None` if there is nothing to close.
async fn close(
    engine: &Engine,
    store: &dyn Store,
    session: SessionId,
    nonces: &[Nonce],
) -> Result<Option<SessionSeen>, StoreError> {
    let observe = store.observe(vec![session], LONGEST_ATTEMPT);
    let mut seen = engine.call(Work::Watching, LONGEST_ATTEMPT, observe).await?;
    match seen.pop() {
        Some(SessionSeen::Alive(record)) if nonces.contains(&record.nonce) => {
            let declaration = Declaration {
                session,
                ground: Evidence::Unbeaten { nonce: record.nonce },
                by: engine.config.holder().clone(),
                why: Death::own(),
                tell: Vec::new(),
            };
            let declare = store.declare(declaration, LONGEST_ATTEMPT);
            engine.call(Work::Declaring, LONGEST_ATTEMPT, declare).await.map(Some)
        }
        Some(dead @ SessionSeen::Dead(_)) => Ok(Some(dead)),
        _ => Ok(None),
    }
}

/// The engine's thread, until it knows its engine.
pub(crate) struct KeeperThread {
    runtime: Handle,
    engine: oneshot::Sender<(Arc<Engine>, mpsc::UnboundedReceiver<Command>)>,
}

impl KeeperThread {
    /// Starts it. It ends after its engine, or if it gets none.
    pub(crate) fn start() -> io::Result<Self> {
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let (engine, given) = oneshot::channel();
        let under = words::Under::current();
        let run = move || {
            // Built here: a runtime may be dropped on a thread that has no other.
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            // An error says that no caller wants it any more.
            let _ = ready.send(Ok(runtime.handle().clone()));
            under.run(|| {
                runtime.block_on(async move {
                    if let Ok((engine, commands)) = given.await {
                        keep(engine, commands).await;
                    }
                });
            });
        };
        std::thread::Builder::new().name("tenure-keeper".to_owned()).spawn(run)?;
        let runtime = is_ready.recv().map_err(|_| io::Error::other("the thread ended"))??;
        Ok(Self { runtime, engine })
    }

    pub(crate) fn runtime(&self) -> Runtime {
        Runtime::of(self.runtime.clone())
    }

    pub(crate) fn begin(self, engine: Arc<Engine>, commands: mpsc::UnboundedReceiver<Command>) {
        // The thread waits for this.
        let _ = self.engine.send((engine, commands));
    }
}

/// Keeps an engine on its own thread.
async fn keep(engine: Arc<Engine>, commands: mpsc::UnboundedReceiver<Command>) {
    if let Some(own) = connect(&engine).await {
        engine.use_own(own);
    }
    upkeep::begin(&engine);
    Keeper::new(engine, commands).run().await;
}

/// Keeps an engine on the runtime of a test, which turns the clock.
pub(crate) fn keep_here(engine: Arc<Engine>, commands: mpsc::UnboundedReceiver<Command>) {
    upkeep::begin(&engine);
    engine.work.clone().spawn(Keeper::new(engine, commands).run());
}

/// Opens a connection for the keeper alone, if the store has such.
async fn connect(engine: &Engine) -> Option<Arc<dyn Store>> {
    let mut backoff = crate::backoff::Backoff::new(Duration::from_millis(100), engine.times.interval);
    loop {
        match careful(LONGEST_CONNECT, async { engine.given.dedicated().await }).await {
            Ok(own) => return own,
            Err(error) if engine.closing.is_cancelled() => {
                words::debug!(error = chain(&error), "closed before the keeper connected");
                return None;
            }
            Err(error) => {
                let since = engine.clock.now();
                engine.record_failure(Work::Beats, since, &error);
                engine.trouble(Some(LastFailure { since, error: Arc::new(error) }));
                tokio::time::sleep(backoff.next(engine.entropy.roll())).await;
            }
        }
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}
