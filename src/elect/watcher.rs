//! Watches the sessions this instance waits for, and declares a session dead that does not beat (R3).

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::{Engine, Work};
use crate::{
    StoreError,
    backoff::fraction,
    clock::Moment,
    error::chain,
    logic::{
        flaw::Flaw,
        watch::{Due, Liveness, Named, Observation},
    },
    model::{Holder, SessionId, Why},
    store::{Declaration, Evidence, SessionSeen, StoreExt},
    sync::locked,
    words,
};

/// Number of ttls for which an observation is kept that no caller asks for any more: the session may become the
/// holder again, and a count that has run need not start anew.
const KEPT_FOR_TTLS: u32 = 3;

/// Observations of other sessions.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    registry: Mutex<BTreeMap<SessionId, WatchedSession>>,
    wake: Notify,
    running: AtomicBool,
}

#[derive(Debug)]
struct WatchedSession {
    observation: Observation,
    /// Time at which it was last asked for.
    wanted: Moment,
    /// Holder name, as a record says.
    name: Option<Holder>,
}

/// Work of one turn of the watcher.
#[derive(Default)]
struct WatchTurn {
    looks: Vec<SessionId>,
    declarations: Vec<(SessionId, Evidence)>,
    next: Option<Moment>,
}

impl Watcher {
    fn registry(&self) -> MutexGuard<'_, BTreeMap<SessionId, WatchedSession>> {
        locked(&self.registry)
    }

    /// Returns what is known of a session.
    pub(crate) fn known(&self, session: SessionId) -> Option<Liveness> {
        self.registry().get(&session).and_then(|watched| watched.observation.liveness())
    }

    /// Returns the holder name of a session; its id, if no record gave one.
    pub(crate) fn name(&self, session: SessionId) -> String {
        let name = self.registry().get(&session).and_then(|watched| watched.name.clone());
        name.map_or_else(|| session.to_string(), |name| name.to_string())
    }

    /// Returns whether a session was seen to beat, and its next beat is not due yet.
    pub(crate) fn beats(&self, session: SessionId, now: Moment) -> bool {
        self.registry().get(&session).is_some_and(|watched| watched.observation.beats(now))
    }

    /// Returns the time since the last beat that was seen.
    pub(crate) fn silent_for(&self, session: SessionId, now: Moment) -> Option<Duration> {
        self.registry().get(&session).and_then(|watched| watched.observation.silent_for(now))
    }

    /// Watches a session from now on.
    ///
    /// Returns its state as far as known: a death that is already known is not reported again.
    pub(crate) fn watch(
        &self,
        engine: &Arc<Engine>,
        session: SessionId,
        named: Option<Named>,
    ) -> Option<Liveness> {
        let now = engine.clock.now();
        let liveness = {
            let mut registry = self.registry();
            let watched = registry.entry(session).or_insert_with(|| WatchedSession::new(engine, now));
            watched.wanted = now;
            if let Some(named) = named {
                watched.name = Some(named.holder.clone());
                watched.observation.name(named);
            }
            watched.observation.liveness()
        };
        self.run(engine);
        liveness
    }

    /// Looks at a session that is said to have changed, if this instance waits for it.
    pub(crate) fn on_hint(&self, engine: &Arc<Engine>, session: SessionId) {
        let now = engine.clock.now();
        let is_watched = match self.registry().get_mut(&session) {
            Some(watched) if watched.observation.liveness() != Some(Liveness::Dead) => {
                watched.observation.hurry(now);
                true
            }
            _ => false,
        };
        if is_watched {
            self.run(engine);
        }
    }

    /// Marks these sessions as asked for now.
    fn want(&self, engine: &Engine, sessions: &[SessionId]) {
        let now = engine.clock.now();
        let mut registry = self.registry();
        for session in sessions {
            registry.entry(*session).or_insert_with(|| WatchedSession::new(engine, now)).wanted = now;
        }
    }

    /// Returns whether something here has asked for a session since the last poll or so.
    fn is_wanted(&self, engine: &Engine, session: SessionId) -> bool {
        let since = |watched: &WatchedSession| engine.clock.now().since(watched.wanted);
        self.registry().get(&session).is_some_and(|watched| since(watched) <= engine.poll() * 2)
    }

    /// Looks at each of these sessions that was never seen, or whose next beat is due. Sessions known to be
    /// overdue are looked at anyway.
    pub(crate) async fn meet(&self, engine: &Arc<Engine>, mut sessions: Vec<SessionId>) {
        let (own, now) = (engine.current().map(|session| session.id), engine.clock.now());
        sessions.retain(|session| {
            let is_told = matches!(self.known(*session), Some(Liveness::Overdue | Liveness::Dead));
            Some(*session) != own && !is_told && !self.beats(*session, now)
        });
        sessions.sort_unstable();
        sessions.dedup();
        if sessions.is_empty() {
            return;
        }
        self.want(engine, &sessions);
        // Sessions without an answer stay unknown.
        let _ = self.look(engine, sessions).await;
        self.run(engine);
    }

    /// Watches the holders of tasks, and returns which of them were seen to beat within that time; the
    /// others are looked at first.
    pub(crate) async fn attend(
        &self,
        engine: &Arc<Engine>,
        sessions: &[SessionId],
        within: Duration,
    ) -> Vec<bool> {
        let fresh = |session: &SessionId| {
            let silent = self.silent_for(*session, engine.clock.now());
            self.known(*session) == Some(Liveness::Alive) && silent.is_some_and(|silent| silent <= within)
        };
        self.want(engine, sessions);
        let stale: Vec<_> = sessions
            .iter()
            .copied()
            .filter(|session| !fresh(session) && self.known(*session) != Some(Liveness::Dead))
            .collect();
        if !stale.is_empty() {
            // Sessions without an answer stay as they were.
            let _ = self.look(engine, stale).await;
        }
        self.run(engine);
        sessions.iter().map(fresh).collect()
    }

    /// Returns the state of a session: as it was seen lately, or as it is seen now.
    pub(crate) async fn inquire(
        &self,
        engine: &Arc<Engine>,
        session: SessionId,
        named: Named,
    ) -> Result<Liveness, Arc<StoreError>> {
        let now = engine.clock.now();
        {
            let mut registry = self.registry();
            let watched = registry.entry(session).or_insert_with(|| WatchedSession::new(engine, now));
            watched.wanted = now;
            watched.name = Some(named.holder.clone());
            watched.observation.name(named);
        }
        if self.known(session).is_none() {
            self.look(engine, vec![session]).await.map_err(Arc::new)?;
        }
        self.run(engine);
        Ok(self.known(session).unwrap_or(Liveness::Alive))
    }

    /// Records a sighting of a session: by a read sent then, or because it is this instance's own.
    pub(crate) fn saw(&self, engine: &Arc<Engine>, session: SessionId, sent: Moment, sighting: &SessionSeen) {
        let now = engine.clock.now();
        engine.spreads.saw(session, sighting);
        if let SessionSeen::Refused(refusal) = sighting
            && self.is_wanted(engine, session)
        {
            engine.met_unreadable(format_args!("session {session} of {}", self.name(session)), refusal);
        }
        {
            let mut registry = self.registry();
            let watched = registry.entry(session).or_insert_with(|| WatchedSession::new(engine, now));
            if let Some(record) = sighting.record() {
                watched.name = Some(record.about.holder.clone());
            }
            let before = watched.observation.liveness();
            let store_now = engine.store_now();
            let liveness = watched.observation.answered(sent, now, sighting, store_now);
            if liveness != Liveness::Dead || before == Some(Liveness::Dead) {
                return;
            }
        }
        engine.holder_died(session);
    }

    async fn look(&self, engine: &Arc<Engine>, sessions: Vec<SessionId>) -> Result<(), StoreError> {
        let sent = engine.clock.now();
        let limit = engine.limit();
        let seen = engine.call(Work::Watching, limit, engine.store().observe(sessions.clone(), limit)).await;
        match seen {
            Ok(seen) => {
                for (session, sighting) in sessions.into_iter().zip(seen) {
                    self.saw(engine, session, sent, &sighting);
                }
                Ok(())
            }
            Err(error) => {
                self.failed(engine, &sessions);
                Err(error)
            }
        }
    }

    async fn declare(&self, engine: &Arc<Engine>, session: SessionId, ground: Evidence) {
        let sent = engine.clock.now();
        let why = match ground {
            Evidence::Missing { .. } => "its record is missing",
            Evidence::Unbeaten { .. } | Evidence::Gone | Evidence::Operator => {
                "no heartbeat for its whole ttl"
            }
        };
        // It may hold a task of theirs, and take part no more.
        let tell = engine.spreads.joined();
        let by = engine.config.holder().clone();
        let declaration = Declaration { session, ground, by, why: Why::shortened(why), tell };
        let limit = engine.limit();
        match engine.call(Work::Declaring, limit, engine.store().declare(declaration, limit)).await {
            Ok(sighting) => {
                self.saw(engine, session, sent, &sighting);
                if sighting.is_dead() {
                    let (of, by) = (self.name(session), engine.config.holder());
                    let about = sighting.record().map(|record| &record.about);
                    let (host, pid) = about.map(|about| (about.host.as_str(), about.pid)).unzip();
                    let namespace = engine.config.namespace();
                    words::info!(of, host, pid, %namespace, holder = %by, %session, why, "declared a session dead");
                }
            }
            Err(error) => {
                let (of, namespace, error) = (self.name(session), engine.config.namespace(), chain(&error));
                words::debug!(of, %namespace, %session, error, "could not declare a session dead");
                self.failed(engine, &[session]);
            }
        }
    }

    fn failed(&self, engine: &Arc<Engine>, sessions: &[SessionId]) {
        let now = engine.clock.now();
        let wait = engine.poll() / 8;
        for session in sessions {
            let wait = wait + fraction(wait, engine.entropy.roll());
            if let Some(watched) = self.registry().get_mut(session) {
                watched.observation.failed(now, wait);
            }
        }
    }

    /// Starts the watcher, or wakes it for what is new.
    fn run(&self, engine: &Arc<Engine>) {
        if self.running.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
        } else {
            let (work, engine) = (&engine.work, engine.clone());
            work.spawn_again(move || {
                let engine = engine.clone();
                async move { engine.watcher.keep_watch(&engine).await }
            });
        }
    }

    async fn keep_watch(&self, engine: &Arc<Engine>) {
        loop {
            let turn = self.turn(engine);
            if !turn.looks.is_empty() {
                // A failure has put the next look off.
                let _ = self.look(engine, turn.looks).await;
                continue;
            }
            if !turn.declarations.is_empty() {
                for (session, ground) in turn.declarations {
                    self.declare(engine, session, ground).await;
                }
                continue;
            }
            let wait = turn.next.map(|next| next.since(engine.clock.now()));
            let Some(wait) = wait.filter(|_| !engine.closing.is_cancelled()) else {
                self.running.store(false, Ordering::Release);
                // A session that came in between may have met a watcher that runs.
                if self.turn(engine).is_idle() || self.running.swap(true, Ordering::AcqRel) {
                    return;
                }
                continue;
            };
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                () = engine.closing.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn turn(&self, engine: &Arc<Engine>) -> WatchTurn {
        let mut turn = WatchTurn::default();
        if engine.closing.is_cancelled() {
            return turn;
        }
        let now = engine.clock.now();
        let keep = engine.times.ttl * KEPT_FOR_TTLS;
        let mut registry = self.registry();
        registry.retain(|_, watched| now.since(watched.wanted) < keep);
        let own = engine.current().map(|session| session.id);
        for (session, watched) in registry.iter() {
            if watched.observation.liveness() == Some(Liveness::Dead) {
                continue;
            }
            if engine.flaws.has(Flaw::ChosenWatchers) && !is_chosen(own, *session) {
                continue;
            }
            match watched.observation.due(now) {
                Due::Look => turn.looks.push(*session),
                Due::Declare(ground) => turn.declarations.push((*session, ground)),
                Due::At(at) => turn.next = Some(turn.next.map_or(at, |next| next.min(at))),
            }
        }
        turn
    }
}

/// Returns whether the hash of the two chooses this instance; one in four, dead or alive.
fn is_chosen(own: Option<SessionId>, session: SessionId) -> bool {
    own.is_some_and(|own| (own.as_u128() ^ session.as_u128()).is_multiple_of(4))
}

impl WatchTurn {
    fn is_idle(&self) -> bool {
        self.looks.is_empty() && self.declarations.is_empty() && self.next.is_none()
    }
}

impl WatchedSession {
    fn new(engine: &Engine, now: Moment) -> Self {
        let observation = Observation::new(engine.times.ttl, engine.times.interval, engine.flaws, now);
        Self { observation, wanted: now, name: None }
    }
}
