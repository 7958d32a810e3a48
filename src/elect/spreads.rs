//! The spreads this instance takes part in: what it brings to each, and who is told of their news.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};

use super::{Engine, Work};
use crate::{
    Applied, StoreError,
    clock::Moment,
    model::{Key, SessionId, Share, SpreadName, Trial},
    store::{LockChange, SessionSeen},
    sync::locked,
};

/// What happened since somebody looked last. Of each task and session the last word only, so that it is
/// never larger than the spread.
#[derive(Debug, Default)]
pub(crate) struct SpreadNews {
    /// Hints may have been lost.
    pub(crate) resync: bool,
    pub(crate) tasks: BTreeMap<Key, Option<LockChange>>,
    /// Tasks that somebody began to wait for.
    pub(crate) lines: BTreeSet<Key>,
    /// Sessions that changed.
    pub(crate) sessions: BTreeSet<SessionId>,
    /// Sessions as somebody else of this instance saw them.
    pub(crate) sightings: BTreeMap<SessionId, SessionSeen>,
}

/// Where the news of one spread arrive.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    news: Mutex<SpreadNews>,
    wake: Notify,
}

impl Inbox {
    fn tell(&self, change: impl FnOnce(&mut SpreadNews)) {
        change(&mut locked(&self.news));
        self.wake.notify_one();
    }

    pub(crate) fn take(&self) -> SpreadNews {
        mem::take(&mut locked(&self.news))
    }

    /// Until there may be news.
    pub(crate) async fn news(&self) {
        self.wake.notified().await;
    }
}

/// Tasks are to be kept for a restart. Dropped, they are not.
pub(crate) struct Reserving<'a> {
    spreads: &'a Spreads,
    version: u64,
}

impl Reserving<'_> {
    /// Once the store has this version, it knows.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// The store knows: tasks are kept when their jobs end.
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

/// All of them.
#[derive(Debug)]
pub(crate) struct Spreads {
    book: Mutex<SpreadRegistry>,
    /// The version of the shares that the store has, for certain.
    published: watch::Sender<u64>,
    /// The instance closes for a restart: what it holds waits for its next session.
    reserved: AtomicBool,
    /// A spread was left.
    left: Notify,
    /// Those whose tasks the program does not say: that it says those of one hides nothing of the others.
    mute: Mutex<BTreeSet<SpreadName>>,
    /// A beat brought a change of its own shares then: the next hint that says so tells nothing new.
    echo: Mutex<Option<Moment>>,
}

/// A hint of a change of one's own is seldom later.
const ECHO: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct SpreadRegistry {
    inboxes: BTreeMap<SpreadName, Arc<Inbox>>,
    shares: BTreeMap<SpreadName, Share>,
    /// Counts the changes of the shares.
    version: u64,
}

impl Default for Spreads {
    fn default() -> Self {
        Self {
            book: Mutex::default(),
            published: watch::Sender::new(0),
            reserved: AtomicBool::new(false),
            left: Notify::new(),
            mute: Mutex::default(),
            echo: Mutex::default(),
        }
    }
}

impl Spreads {
    fn book(&self) -> MutexGuard<'_, SpreadRegistry> {
        locked(&self.book)
    }

    fn mute(&self) -> MutexGuard<'_, BTreeSet<SpreadName>> {
        locked(&self.mute)
    }

    /// Takes part in a spread from now on; nothing if it does already.
    pub(crate) fn join(&self, spread: &SpreadName) -> Option<Arc<Inbox>> {
        let mut book = self.book();
        if book.inboxes.contains_key(spread) {
            return None;
        }
        let inbox = Arc::new(Inbox::default());
        book.inboxes.insert(spread.clone(), inbox.clone());
        Some(inbox)
    }

    /// Takes no part in it any more, and may join it again.
    pub(crate) fn leave(&self, spread: &SpreadName) {
        self.retract(spread);
        self.book().inboxes.remove(spread);
        self.left.notify_waiters();
    }

    /// Until a spread is left, counted from the call.
    pub(crate) fn left(&self) -> impl Future<Output = ()> + '_ {
        self.left.notified()
    }

    /// Takes no part in it any more. What is reserved for a restart stays reserved.
    pub(crate) fn retract(&self, spread: &SpreadName) {
        let mut book = self.book();
        if !self.is_reserved() && book.shares.remove(spread).is_some() {
            book.version += 1;
        }
    }

    /// What it brings. Says whether that is news.
    pub(crate) fn publish(&self, share: Share) -> bool {
        let mut book = self.book();
        // What is reserved for a restart stays so.
        let known = book.shares.get(&share.spread);
        let reserved = known.map_or(Duration::ZERO, |known| known.reserved);
        let share = Share { reserved, trial: known.and_then(|known| known.trial), ..share };
        let news = book.shares.get(&share.spread) != Some(&share);
        if news {
            book.shares.insert(share.spread.clone(), share);
            book.version += 1;
        }
        news
    }

    /// What it tries alone, and with which version the store knows of it; nothing if it takes no part.
    pub(crate) fn set_trial(&self, spread: &SpreadName, trial: Option<Trial>) -> Option<u64> {
        let mut book = self.book();
        let share = book.shares.get_mut(spread)?;
        share.trial = trial;
        book.version += 1;
        Some(book.version)
    }

    /// Says of all shares, if there are any, that their tasks are to wait so long after the session's end.
    pub(crate) fn reserve(&self, grace: Duration) -> Option<Reserving<'_>> {
        if self.book().shares.is_empty() {
            return None;
        }
        let version = self.set_reserved(grace);
        Some(Reserving { spreads: self, version })
    }

    fn set_reserved(&self, grace: Duration) -> u64 {
        let mut book = self.book();
        book.shares.values_mut().for_each(|share| share.reserved = grace);
        book.version += 1;
        book.version
    }

    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::Acquire)
    }

    /// What it brings, and the version of that.
    pub(crate) fn shares(&self) -> (u64, Vec<Share>) {
        let book = self.book();
        (book.version, book.shares.values().cloned().collect())
    }

    /// The store has that version.
    pub(crate) fn is_published(&self, version: u64) {
        self.published.send_if_modified(|known| {
            let news = *known < version;
            *known = version.max(*known);
            news
        });
    }

    /// A beat has changed the shares.
    pub(crate) fn has_changed(&self, now: Moment) {
        *locked(&self.echo) = Some(now);
    }

    /// Whether a hint of a change of this instance's session tells what it did itself.
    pub(crate) fn is_echo(&self, now: Moment) -> bool {
        let changed = locked(&self.echo).take();
        changed.is_some_and(|changed| now.since(changed) < ECHO)
    }

    /// Until the store has that version.
    pub(crate) async fn published(&self, version: u64) {
        // The sender is in self.
        let _ = self.published.subscribe().wait_for(|known| *known >= version).await;
    }

    // ----- news

    fn inboxes(&self) -> Vec<Arc<Inbox>> {
        self.book().inboxes.values().cloned().collect()
    }

    fn tell_all(&self, change: impl Fn(&mut SpreadNews)) {
        for inbox in self.inboxes() {
            inbox.tell(&change);
        }
    }

    fn tell(&self, spread: &SpreadName, change: impl FnOnce(&mut SpreadNews)) {
        let inbox = self.book().inboxes.get(spread).cloned();
        if let Some(inbox) = inbox {
            inbox.tell(change);
        }
    }

    pub(crate) fn resync(&self) {
        self.tell_all(|news| news.resync = true);
    }

    pub(crate) fn task(&self, spread: &SpreadName, key: &Key, change: Option<LockChange>) {
        self.tell(spread, |news| {
            news.tasks.insert(key.clone(), change);
        });
    }

    pub(crate) fn line(&self, spread: &SpreadName, key: &Key) {
        self.tell(spread, |news| {
            news.lines.insert(key.clone());
        });
    }

    pub(crate) fn session(&self, session: SessionId) {
        self.tell_all(|news| {
            news.sessions.insert(session);
        });
    }

    /// Somebody of this instance saw a session.
    pub(crate) fn saw(&self, session: SessionId, sighting: &SessionSeen) {
        self.tell_all(|news| {
            // The dead stay dead.
            if !news.sightings.get(&session).is_some_and(SessionSeen::is_dead) {
                news.sightings.insert(session, sighting.clone());
            }
        });
    }
}

impl Engine {
    /// The program did not say which tasks a spread has; it was asked then.
    pub(crate) fn tasks_not_told(&self, spread: &SpreadName, asked: Moment, error: &str) {
        self.spreads.mute().insert(spread.clone());
        let error = format!("spread {spread}: {error}");
        let error = StoreError::new("the program", "name the tasks", Applied::No, true, error);
        self.fails(Work::Tasks, asked, &error);
    }

    /// It did, or it is not asked any more.
    pub(crate) fn tasks_told(&self, spread: &SpreadName) {
        let all_are = {
            let mut mute = self.spreads.mute();
            mute.remove(spread) && mute.is_empty()
        };
        if all_are {
            self.works(Work::Tasks);
        }
    }
}
