//! The contract in its most readable form: one process, no I/O, nothing fails.

#![allow(clippy::needless_pass_by_value, reason = "the arguments are those of the contract")]

mod line;
mod locks;
mod purge;
mod revoke;
mod runs;
mod schedules;
mod sessions;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::broadcast;

use super::{Answer, Bell, Capabilities, Cursor, Hint, Page, Reach, Store, Topics, hints::resyncs};
use crate::{
    clock::{Clock, SystemClock},
    model::{
        Entry, LockId, LockRecord, Namespace, RunId, RunRecord, ScheduleId, ScheduleRecord, SessionId,
        SessionRecord, StoreTime, Ticket, Waiter,
    },
    store_methods,
    sync::locked,
};

/// The number of hints a slow listener may lag behind before it gets a [resync](Hint::Resync).
const HINTS_KEPT: usize = 4096;

/// A store in the memory of one process, for tests and for engines that share a process.
///
/// Its clones are the same store. **It excludes nobody outside this process.** Its time is the wall
/// clock of the [`Clock`] it was made with, so that tests can turn it.
///
/// ```
/// use tenure::store::{MemoryStore, Reach, Store};
///
/// let store = MemoryStore::default();
/// assert_eq!(store.capabilities().reach, Reach::Process);
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    state: State,
}

/// The state that the clones of a store share. Has the methods of the contract, each done at once.
#[derive(Clone)]
struct State {
    clock: Arc<dyn Clock>,
    records: Arc<Mutex<Records>>,
    bells: broadcast::Sender<Bell>,
}

#[derive(Clone, Default)]
struct Records {
    sessions: BTreeMap<SessionId, SessionRecord>,
    locks: BTreeMap<LockId, LockRecord>,
    waiters: BTreeMap<(LockId, SessionId, Ticket), Waiter>,
    runs: BTreeMap<RunId, RunRecord>,
    schedules: BTreeMap<ScheduleId, ScheduleRecord>,
}

/// The numbers of records a store keeps.
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Sessions, dead or alive.
    pub sessions: usize,
    /// Locks, held or free.
    pub locks: usize,
    /// Places in line.
    pub places: usize,
    /// Entries of ledgers.
    pub runs: usize,
}

impl MemoryStore {
    /// An empty store that runs on that clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: State { clock, records: Arc::default(), bells: broadcast::Sender::new(HINTS_KEPT) } }
    }

    /// Another store with the same records, on that clock. Nobody listens to its hints yet.
    #[cfg(tenure_sim)]
    #[doc(hidden)]
    #[must_use]
    pub fn copied(&self, clock: Arc<dyn Clock>) -> Self {
        let copy = Self::new(clock);
        copy.state.records().clone_from(&self.state.records());
        copy
    }

    /// Deletes a lock's record, as an operator may by hand.
    #[cfg(feature = "testing")]
    pub fn delete_lock(&self, lock: &LockId) {
        if self.state.records().locks.remove(lock).is_some() {
            self.state.ring(Bell::revoked(lock));
        }
    }

    /// Deletes a session's record, as an operator may by hand.
    #[cfg(feature = "testing")]
    pub fn delete_session(&self, session: SessionId) {
        let deleted = self.state.records().sessions.remove(&session);
        if let Some(record) = deleted {
            self.state.ring_of_member(&record);
        }
    }

    /// Counts the records.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn kept(&self) -> Kept {
        let records = self.state.records();
        Kept {
            sessions: records.sessions.len(),
            locks: records.locks.len(),
            places: records.waiters.len(),
            runs: records.runs.len(),
        }
    }

    /// Performs a step when its future is first polled, all at once.
    fn step<T: Send + 'static>(&self, step: impl FnOnce(&State) -> T + Send + 'static) -> Answer<'_, T> {
        let state = self.state.clone();
        async move { Ok(step(&state)) }.boxed()
    }
}

impl State {
    fn records(&self) -> MutexGuard<'_, Records> {
        // No step panics half-way, so what a poisoned lock holds is whole.
        locked(&self.records)
    }

    fn ring(&self, bells: impl IntoIterator<Item = Bell>) {
        for bell in bells {
            // An error only says that nobody listens.
            let _ = self.bells.send(bell);
        }
    }

    /// Tells the members of its spreads of a session.
    fn ring_of_member(&self, record: &SessionRecord) {
        let spreads = record.shares.iter().map(|share| &share.spread);
        self.ring(Bell::member(&record.about.namespace, record.id, spreads));
    }
}

impl Default for MemoryStore {
    /// An empty store that runs on the machine's clocks.
    fn default() -> Self {
        Self::new(Arc::new(SystemClock::new()))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (locks, sessions, waiters) = self.state.records().counts();
        f.debug_struct("MemoryStore")
            .field("locks", &locks)
            .field("sessions", &sessions)
            .field("waiters", &waiters)
            .finish_non_exhaustive()
    }
}

impl Records {
    fn mark(&self, schedule: &ScheduleId) -> Option<StoreTime> {
        self.schedules.get(schedule)?.mark
    }

    /// Earliest instant first.
    fn runs_of(&self, schedule: &ScheduleId) -> Vec<RunRecord> {
        let at = |millis, entry| RunId {
            schedule: schedule.clone(),
            instant: StoreTime::from_millis(millis),
            entry,
        };
        let all = at(i64::MIN, Entry::Tick)..=at(i64::MAX, Entry::Skipped);
        self.runs.range(all).map(|(_, run)| run.clone()).collect()
    }

    /// The dead of a namespace, and when they died.
    fn dead(&self, namespace: &Namespace) -> BTreeMap<SessionId, StoreTime> {
        let ours = self.sessions.values().filter(|session| session.about.namespace == *namespace);
        ours.filter_map(|session| Some((session.id, session.death.as_ref()?.at))).collect()
    }

    fn counts(&self) -> (u64, u64, u64) {
        (self.locks.len() as u64, self.sessions.len() as u64, self.waiters.len() as u64)
    }
}

/// Cuts a page out of records in the order of their places.
fn page<T>(records: impl Iterator<Item = (Vec<u8>, T)>, after: Option<&Cursor>, at_most: usize) -> Page<T> {
    let mut rest = records.skip_while(|(place, _)| after.is_some_and(|after| **place <= *after.place()));
    let mut items = Vec::new();
    let mut last = None;
    for (place, item) in rest.by_ref().take(at_most.max(1)) {
        items.push(item);
        last = Some(place);
    }
    let next = rest.next().and(last).map(Cursor::new);
    Page { items, refused: Vec::new(), next }
}

macro_rules! at_once {
    ($method:ident($($argument:ident: $type:ty),+) -> $answer:ty) => {
        fn $method(&self, $($argument: $type,)+ _: Duration) -> Answer<'_, $answer> {
            self.step(move |state| state.$method($($argument),+))
        }
    };
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("memory", Reach::Process, Some("the process itself"))
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        // Added topics are heard at once.
        let resyncs = resyncs(topics.clone());
        stream::select(resyncs, super::hint_stream(self.state.bells.subscribe(), topics)).boxed()
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        // Nothing here waits, on any runtime.
        self.step(|_| None)
    }

    store_methods!(at_once);
}
