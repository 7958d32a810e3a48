//! Spreads that this instance takes part in: its share of each, and the inbox for its news.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};

use super::{Engine, Work, inbox::Inbox};
use crate::{
    clock::Moment,
    model::{Key, SessionId, SpreadName},
    store::{SessionSeen, Share},
    sync::locked,
};

/// News since they were last taken. Of each task and session the latest only, so that they are never larger than the
/// spread.
#[derive(Debug, Default)]
pub(crate) struct SpreadNews {
    /// Hints may have been lost.
    pub(crate) resync: bool,
    /// Tasks that may have changed hands.
    pub(crate) tasks: BTreeSet<Key>,
    /// Tasks that an instance has begun to wait for.
    pub(crate) queues: BTreeSet<Key>,
    /// Sessions that changed.
    pub(crate) sessions: BTreeSet<SessionId>,
    /// Sessions as other parts of this instance saw them.
    pub(crate) sightings: BTreeMap<SessionId, SessionSeen>,
}

/// Keeps the tasks for a restart, if [`keep`](Self::keep) is called. Dropped, it does not.
pub(crate) struct Reserving<'a> {
    spreads: &'a Spreads,
    version: u64,
}

impl Reserving<'_> {
    /// Version of the shares that says so.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// Has tasks kept when their jobs end: the store has the version.
    pub(crate) fn keep(self) {
        self.spreads.reserved.store(true, Ordering::Release);
    }
}

impl Drop for Reserving<'_> {
    fn drop(&mut self) {
        if !self.spreads.is_reserved() {
            self.spreads.set_reserved(Duration::ZERO);
        }
    }
}

/// Registry of the spreads that this instance has joined.
#[derive(Debug)]
pub(crate) struct Spreads {
    registry: Mutex<SpreadRegistry>,
    /// Version of the shares that the store has for certain.
    published: Arc<watch::Sender<u64>>,
    /// The instance closes for a restart: its tasks wait for its next session.
    reserved: AtomicBool,
    /// Notifies when a spread is left.
    left: Notify,
    /// Spreads whose task sources fail: while there is one, the trouble is not over.
    failing: Mutex<BTreeSet<SpreadName>>,
}

#[derive(Debug, Default)]
struct SpreadRegistry {
    inboxes: BTreeMap<SpreadName, Arc<Inbox<SpreadNews>>>,
    shares: BTreeMap<SpreadName, Share>,
    /// Counts the changes of the shares.
    version: u64,
}

impl Default for Spreads {
    fn default() -> Self {
        Self {
            registry: Mutex::default(),
            published: Arc::new(watch::Sender::new(0)),
            reserved: AtomicBool::new(false),
            left: Notify::new(),
            failing: Mutex::default(),
        }
    }
}

impl Spreads {
    fn registry(&self) -> MutexGuard<'_, SpreadRegistry> {
        locked(&self.registry)
    }

    fn failing(&self) -> MutexGuard<'_, BTreeSet<SpreadName>> {
        locked(&self.failing)
    }

    /// Joins a spread; `None` if this instance takes part in it already.
    pub(crate) fn join(&self, spread: &SpreadName) -> Option<Arc<Inbox<SpreadNews>>> {
        let mut registry = self.registry();
        if registry.inboxes.contains_key(spread) {
            return None;
        }
        let inbox = Arc::new(Inbox::default());
        registry.inboxes.insert(spread.clone(), inbox.clone());
        Some(inbox)
    }

    /// Returns whether this instance takes part in a spread.
    pub(crate) fn has_joined(&self, spread: &SpreadName) -> bool {
        self.registry().inboxes.contains_key(spread)
    }

    /// Returns the spreads that this instance takes part in.
    pub(crate) fn joined(&self) -> Vec<SpreadName> {
        self.registry().inboxes.keys().cloned().collect()
    }

    /// Leaves a spread, which may be joined again.
    pub(crate) fn leave(&self, spread: &SpreadName) {
        self.retract(spread);
        self.registry().inboxes.remove(spread);
        self.left.notify_waiters();
    }

    /// Waits until a spread is left, from the call on.
    pub(crate) fn left(&self) -> impl Future<Output = ()> + '_ {
        self.left.notified()
    }

    /// Retracts the share of a spread, unless it is reserved for a restart.
    pub(crate) fn retract(&self, spread: &SpreadName) {
        let mut registry = self.registry();
        if !self.is_reserved() && registry.shares.remove(spread).is_some() {
            registry.version += 1;
        }
    }

    /// Sets the share of a spread. Returns whether it has changed.
    pub(crate) fn publish(&self, share: Share) -> bool {
        let mut registry = self.registry();
        // A reservation for a restart stays.
        let known = registry.shares.get(&share.spread);
        let reserved = known.map_or(Duration::ZERO, |known| known.reserved);
        let share = Share { reserved, ..share };
        let news = registry.shares.get(&share.spread) != Some(&share);
        if news {
            registry.shares.insert(share.spread.clone(), share);
            registry.version += 1;
        }
        news
    }

    /// Reserves the tasks of all shares for so long after the session's end; `None` without shares.
    pub(crate) fn reserve(&self, grace: Duration) -> Option<Reserving<'_>> {
        if self.registry().shares.is_empty() {
            return None;
        }
        let version = self.set_reserved(grace);
        Some(Reserving { spreads: self, version })
    }

    fn set_reserved(&self, grace: Duration) -> u64 {
        let mut registry = self.registry();
        registry.shares.values_mut().for_each(|share| share.reserved = grace);
        registry.version += 1;
        registry.version
    }

    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::Acquire)
    }

    /// Returns all shares, and their version.
    pub(crate) fn shares(&self) -> (u64, Vec<Share>) {
        let registry = self.registry();
        (registry.version, registry.shares.values().cloned().collect())
    }

    /// Notes that the store has that version.
    pub(crate) fn mark_published(&self, engine: &Engine, version: u64) {
        engine.change(&self.published, |known| {
            let news = *known < version;
            *known = version.max(*known);
            news
        });
    }

    /// Waits until the store has that version.
    pub(crate) async fn published(&self, version: u64) {
        // The sender is in self.
        let _ = self.published.subscribe().wait_for(|known| *known >= version).await;
    }

    // ----- news

    fn inboxes(&self) -> Vec<Arc<Inbox<SpreadNews>>> {
        self.registry().inboxes.values().cloned().collect()
    }

    fn add_to_all(&self, change: impl Fn(&mut SpreadNews)) {
        for inbox in self.inboxes() {
            inbox.add(&change);
        }
    }

    fn add(&self, spread: &SpreadName, change: impl FnOnce(&mut SpreadNews)) {
        let inbox = self.registry().inboxes.get(spread).cloned();
        if let Some(inbox) = inbox {
            inbox.add(change);
        }
    }

    pub(crate) fn resync(&self) {
        self.add_to_all(|news| news.resync = true);
    }

    pub(crate) fn task(&self, spread: &SpreadName, key: &Key) {
        self.add(spread, |news| {
            news.tasks.insert(key.clone());
        });
    }

    pub(crate) fn queue(&self, spread: &SpreadName, key: &Key) {
        self.add(spread, |news| {
            news.queues.insert(key.clone());
        });
    }

    pub(crate) fn session(&self, session: SessionId) {
        self.add_to_all(|news| {
            news.sessions.insert(session);
        });
    }

    /// Adds a look at a session by another part of this instance.
    pub(crate) fn saw(&self, session: SessionId, sighting: &SessionSeen) {
        self.add_to_all(|news| {
            // The dead stay dead.
            if !news.sightings.get(&session).is_some_and(SessionSeen::is_dead) {
                news.sightings.insert(session, sighting.clone());
            }
        });
    }
}

impl Engine {
    /// Notes that the task source of a spread, asked then, has failed.
    pub(crate) fn task_source_failed(&self, spread: &SpreadName, asked: Moment, error: &str) {
        self.spreads.failing().insert(spread.clone());
        self.record_trouble(Work::Tasks, asked, false, format!("spread {spread}: {error}"));
    }

    /// Notes that the task source of a spread works, or has ended.
    pub(crate) fn task_source_works(&self, spread: &SpreadName) {
        let all_work = {
            let mut failing = self.spreads.failing();
            failing.remove(spread) && failing.is_empty()
        };
        if all_work {
            self.record_success(Work::Tasks);
        }
    }
}
