//! Holders of keys, as seen from outside.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, Weak},
};

use serde::Serialize;
use tokio::sync::{Notify, watch};

use super::{Engine, Error, Event, Work, wakes::Waking};
use crate::{
    backoff::jittered,
    error::chain,
    logic::watch::Liveness,
    model::{Holder, LockId, SessionId, StoreTime, Term, Value, Who, Why},
    store::{LockRecord, LockSeen, StoreExt},
    sync::locked,
    words,
};

/// Holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeldBy {
    /// Lock that is held.
    pub lock: LockId,
    /// Name of the instance.
    pub holder: Holder,
    /// Part of the program.
    pub who: Option<Who>,
    /// Purpose for which it holds the lock.
    pub why: Option<Why>,
    /// Bytes for others to read.
    pub value: Option<Value>,
    /// Fencing number of the holder.
    pub term: Term,
    /// Time of its acquisition, by the store's clock.
    pub since: StoreTime,
    /// Session that holds it.
    pub session: SessionId,
    /// Set if an expected heartbeat of the holder was not seen: it may have died. It is watched, and declared
    /// dead when its whole ttl has passed.
    pub stale: bool,
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} holds {} under term {}", self.holder, self.lock, self.term)?;
        if let Some(why) = &self.why {
            write!(f, ", for {why}")?;
        }
        if self.stale { f.write_str(", but has stopped beating") } else { Ok(()) }
    }
}

impl HeldBy {
    /// Returns `None` if no instance holds the lock.
    pub(crate) fn of(record: LockRecord, liveness: Option<Liveness>) -> Option<Self> {
        let held = record.holding?;
        Some(Self {
            lock: record.id,
            holder: held.by.holder,
            who: held.by.who,
            why: held.by.why,
            value: held.by.value,
            term: record.term,
            since: held.acquired_at,
            session: held.by.session,
            stale: matches!(liveness, Some(Liveness::Overdue | Liveness::Dead)),
        })
    }
}

/// Follows the holder of a key, without contending for it: a change is noticed within a `poll_interval`. On MongoDB it
/// reads what a majority has: on a set of one node that may be the holder of 100 ms ago.
///
/// Clones follow the same key, at the cost of one.
#[derive(Clone, Debug)]
pub struct LeaderWatch {
    leader: watch::Receiver<Option<HeldBy>>,
    // The follower ends when no watch is left.
    _watched: Arc<WatchedKey>,
}

impl LeaderWatch {
    /// Returns the holder of the key, as last seen.
    #[must_use]
    pub fn current(&self) -> Option<HeldBy> {
        self.leader.borrow().clone()
    }

    /// Waits until there is another holder, or none, or the same one has a new term or a new
    /// [value](super::Lease::set_value), and returns it. The first call returns as soon as the key was read.
    ///
    /// # Errors
    /// The engine has ended.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn changed(&mut self) -> Result<Option<HeldBy>, Error> {
        self.leader.changed().await.map_err(|_| Error::Closed)?;
        Ok(self.leader.borrow_and_update().clone())
    }
}

#[derive(Debug)]
struct WatchedKey {
    leader: watch::Receiver<Option<HeldBy>>,
    hint: Notify,
}

/// Watched keys.
#[derive(Debug, Default)]
pub(crate) struct Leaders {
    registry: Mutex<BTreeMap<LockId, Weak<WatchedKey>>>,
}

impl Leaders {
    fn registry(&self) -> MutexGuard<'_, BTreeMap<LockId, Weak<WatchedKey>>> {
        locked(&self.registry)
    }

    pub(crate) fn watch(&self, engine: &Arc<Engine>, lock: &LockId) -> LeaderWatch {
        let mut registry = self.registry();
        registry.retain(|_, watched| watched.strong_count() > 0);
        let watched = registry.get(lock).and_then(Weak::upgrade).unwrap_or_else(|| {
            let (sender, leader) = watch::channel(None);
            let watched = Arc::new(WatchedKey { leader, hint: Notify::new() });
            registry.insert(lock.clone(), Arc::downgrade(&watched));
            engine.work.spawn(follow(
                Arc::downgrade(engine),
                lock.clone(),
                Arc::downgrade(&watched),
                Leads { sender: Some(Arc::new(sender)), waking: engine.waking() },
            ));
            watched
        });
        LeaderWatch { leader: watched.leader.clone(), _watched: watched }
    }

    pub(crate) fn hint(&self, lock: &LockId) {
        if let Some(watched) = self.registry().get(lock).and_then(Weak::upgrade) {
            watched.hint.notify_one();
        }
    }

    pub(crate) fn resync(&self) {
        for watched in self.registry().values().filter_map(Weak::upgrade) {
            watched.hint.notify_one();
        }
    }
}

/// The sender of a watched key. Its end wakes callers, too, so it ends where they are woken.
struct Leads {
    sender: Option<Arc<watch::Sender<Option<HeldBy>>>>,
    waking: Waking,
}

impl Drop for Leads {
    fn drop(&mut self) {
        let sender = self.sender.take();
        self.waking.wake(move || drop(sender));
    }
}

async fn follow(engine: Weak<Engine>, lock: LockId, watched: Weak<WatchedKey>, leads: Leads) {
    let mut first = true;
    loop {
        let (Some(engine), Some(watched)) = (engine.upgrade(), watched.upgrade()) else { return };
        let limit = engine.limit();
        match engine.call(Work::Reads, limit, engine.store().locks(vec![lock.clone()], limit)).await {
            Ok(seen) => {
                let record = seen.into_iter().next().and_then(LockSeen::found);
                let session =
                    record.as_ref().and_then(|record| record.holding.as_ref()).map(|held| held.by.session);
                let liveness = session.and_then(|session| engine.watcher.known(session));
                let leader = record.and_then(|record| HeldBy::of(record, liveness));
                publish(&engine, &lock, &leads, leader, first);
                first = false;
            }
            Err(error) => {
                let (LockId { kind, key, namespace }, error) = (&lock, chain(&error));
                words::debug!(%kind, key = key.as_str(), %namespace, error, "could not read who holds the key");
            }
        }
        let wait = jittered(engine.poll(), engine.entropy.roll());
        let closing = engine.closing.clone();
        drop(engine);
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            () = watched.hint.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn publish(engine: &Engine, lock: &LockId, leads: &Leads, leader: Option<HeldBy>, first: bool) {
    let Some(sender) = &leads.sender else { return };
    let mut news = false;
    engine.change(sender, |known| {
        let said = |held: &HeldBy| held.value.clone();
        let has_said = known.as_ref().and_then(said) != leader.as_ref().and_then(said);
        news = known.as_ref().map(|known| known.term) != leader.as_ref().map(|leader| leader.term);
        known.clone_from(&leader);
        news || has_said || first
    });
    if news {
        engine.events.send(Event::NewLeader { lock: lock.clone(), leader });
    }
}
