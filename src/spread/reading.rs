//! Reads of a spread: sessions, and the records of its tasks.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::{
    StoreError,
    clock::Moment,
    elect::{Engine, Work},
    logic::watch::{Liveness, Named},
    model::{Key, Kind, LockId, SessionId, SpreadName},
    store::{Cursor, Holding, LockRecord, LockSeen, Page, SessionRecord, SessionSeen, StoreExt},
};

/// Records that a listing reads at once.
const PAGE: usize = 1000;
/// Records of each sort read by an occasional look, where hints report what changes.
const ROLLING: usize = 100;
/// Number of beating members after it on the ring that each member watches: two may die with the one they watch.
const WATCHED: usize = 3;

/// Read to be made.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingRead {
    /// Reads everything: hints may have been lost, or there are none.
    pub(super) everything: bool,
    /// Reads a little of everything, from where the last one ended.
    pub(super) rolling: Option<ReadCursor>,
    pub(super) sessions: BTreeSet<SessionId>,
    pub(super) tasks: Vec<Key>,
    /// Members that come after this one, if it is time to see to them.
    pub(super) ring: Option<Vec<SessionId>>,
}

impl PendingRead {
    /// Adds another read.
    pub(super) fn and(&mut self, other: Self) {
        self.everything |= other.everything;
        self.rolling = self.rolling.take().or(other.rolling);
        self.sessions.extend(other.sessions);
        self.tasks.extend(other.tasks);
        self.tasks.sort_unstable();
        self.tasks.dedup();
        self.ring = self.ring.take().or(other.ring);
    }

    pub(super) fn is_nothing(&self) -> bool {
        !self.everything
            && self.rolling.is_none()
            && self.sessions.is_empty()
            && self.tasks.is_empty()
            && self.ring.is_none()
    }
}

/// Position at which a rolling look goes on.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadCursor {
    sessions: Option<Cursor>,
    tasks: Option<(Cursor, Key)>,
}

/// Page of a listing of the tasks' records.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) asked: Moment,
    /// Tasks between these two that are not among the records have none; both are left out.
    pub(super) after: Option<Key>,
    pub(super) before: Option<Key>,
    pub(super) records: Vec<LockRecord>,
    /// Some records cannot be used.
    pub(super) refused: bool,
}

/// Result of a read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) asked: Moment,
    pub(super) sessions: Vec<SessionRecord>,
    /// The sessions are all there are.
    pub(super) all_sessions: bool,
    pub(super) listed: Vec<Listed>,
    pub(super) sightings: Vec<(SessionId, SessionSeen)>,
    pub(super) tasks: Vec<(Key, LockSeen)>,
    pub(super) place: Option<ReadCursor>,
    pub(super) everything: bool,
    /// Error; then nothing was read, or not all.
    pub(super) error: Option<StoreError>,
}

/// Reads as far as the store answers.
pub(super) async fn read(engine: Arc<Engine>, spread: SpreadName, asked: PendingRead) -> Reading {
    let mut reading = Reading {
        asked: engine.clock.now(),
        sessions: Vec::new(),
        all_sessions: false,
        listed: Vec::new(),
        sightings: Vec::new(),
        tasks: Vec::new(),
        place: None,
        everything: false,
        error: None,
    };
    if let Err(error) = reading.fill(&engine, &spread, asked).await {
        reading.error = Some(error);
    }
    reading
}

impl Reading {
    async fn fill(
        &mut self,
        engine: &Arc<Engine>,
        spread: &SpreadName,
        asked: PendingRead,
    ) -> Result<(), StoreError> {
        if asked.everything {
            let mut place = ReadCursor::default();
            while self.list_sessions(engine, &mut place, PAGE).await? {}
            self.all_sessions = true;
            while self.list_tasks(engine, spread, &mut place, PAGE).await? {}
            self.everything = true;
        }
        if let Some(mut place) = asked.rolling {
            self.list_sessions(engine, &mut place, ROLLING).await?;
            self.list_tasks(engine, spread, &mut place, ROLLING).await?;
            self.place = Some(place);
        }
        let sessions: Vec<_> = asked.sessions.into_iter().collect();
        for some in sessions.chunks(PAGE) {
            let limit = engine.limit();
            let seen =
                engine.call(Work::Watching, limit, engine.store().observe(some.to_vec(), limit)).await?;
            self.sightings.extend(some.iter().copied().zip(seen));
        }
        for some in asked.tasks.chunks(PAGE) {
            let limit = engine.limit();
            let locks = some.iter().map(|key| lock(engine, spread, key)).collect();
            let seen = engine.call(Work::Spreads, limit, engine.store().locks(locks, limit)).await?;
            self.tasks.extend(some.iter().cloned().zip(seen));
        }
        if let Some(ring) = asked.ring {
            attend(engine, &ring).await;
        }
        Ok(())
    }

    /// Reads one page of the sessions. Returns whether there are more.
    async fn list_sessions(
        &mut self,
        engine: &Arc<Engine>,
        place: &mut ReadCursor,
        at_most: usize,
    ) -> Result<bool, StoreError> {
        let (namespace, limit) = (engine.config.namespace().clone(), engine.limit());
        let page = engine.store().sessions(namespace, place.sessions.take(), at_most, limit);
        let page = engine.call(Work::Spreads, limit, page).await?;
        self.sessions.extend(page.items);
        place.sessions = page.next;
        Ok(place.sessions.is_some())
    }

    async fn list_tasks(
        &mut self,
        engine: &Arc<Engine>,
        spread: &SpreadName,
        place: &mut ReadCursor,
        at_most: usize,
    ) -> Result<bool, StoreError> {
        let asked = engine.clock.now();
        let (namespace, limit) = (engine.config.namespace().clone(), engine.limit());
        let kind = Some(Kind::of_tasks(spread));
        let (cursor, after) = place.tasks.take().unzip();
        let page = engine.store().list_locks(namespace, kind, cursor, at_most, limit);
        let page: Page<LockRecord> = engine.call(Work::Spreads, limit, page).await?;
        let last = page.items.last().map(|record| record.id.key.clone()).or_else(|| after.clone());
        let before = page.next.is_some().then(|| last.clone()).flatten();
        let refused = !page.refused.is_empty();
        // No record on a whole page can be used: where it ends is not known.
        let is_blind = page.next.is_some() && before.is_none();
        if !is_blind {
            self.listed.push(Listed { asked, after, before, records: page.items, refused });
        }
        place.tasks = page.next.zip(last);
        Ok(place.tasks.is_some())
    }
}

/// Returns the lock of a task.
pub(super) fn lock(engine: &Engine, spread: &SpreadName, key: &Key) -> LockId {
    let namespace = engine.config.namespace().clone();
    LockId { namespace, kind: Kind::of_tasks(spread), key: key.clone() }
}

/// Watches the members that come next on the ring, until some of them were seen to beat (R3): so each member is
/// watched, also if its watchers have died with it.
async fn attend(engine: &Arc<Engine>, ring: &[SessionId]) {
    let within = engine.times.interval * 2 + Duration::from_millis(500);
    let (mut beating, mut at) = (0, 0);
    while beating < WATCHED && at < ring.len() {
        let more = (WATCHED - beating).max(at);
        let some = &ring[at..ring.len().min(at + more)];
        let fresh = engine.watcher.attend(engine, some, within).await;
        beating += fresh.into_iter().filter(|fresh| *fresh).count();
        at += some.len();
    }
}

/// Watches a holder whose session's record is missing, for the ttl that the lock's record carries. Returns whether this
/// instance knows already that the session is dead: the record of its death was deleted.
pub(super) fn watch_missing(engine: &Arc<Engine>, record: &LockRecord, held: &Holding) -> bool {
    let (namespace, holder) = (record.id.namespace.clone(), held.by.holder.clone());
    let named = Named { namespace, holder, ttl: held.by.ttl };
    engine.watcher.watch(engine, held.by.session, Some(named)) == Some(Liveness::Dead)
}
