//! The contract in its most readable form: one process, no I/O, nothing fails.

mod rows;

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::broadcast;

use self::rows::Records;
#[cfg(feature = "testing")]
use super::steps::Rows;
use super::{Answer, Bell, Capabilities, Hint, Op, Reach, Reply, Store, Topics, hints::resyncs, steps::Step};
#[cfg(feature = "testing")]
use crate::model::{LockId, SessionId};
use crate::{
    clock::{Clock, SystemClock},
    sync::locked,
};

/// The number of hints a slow listener may lag behind before it gets a [resync](Hint::Resync).
const HINTS_KEPT: usize = 4096;

/// A store in the memory of one process, for tests and for engines that share a process.
///
/// Clones are the same store. **It excludes no other process.** Its time is the wall
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

/// The state that the clones of a store share.
#[derive(Clone)]
struct State {
    clock: Arc<dyn Clock>,
    records: Arc<Mutex<Records>>,
    bells: broadcast::Sender<Bell>,
}

/// The numbers of records a store keeps.
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Sessions, dead or alive.
    pub sessions: usize,
    /// Locks, held or free.
    pub locks: usize,
    /// Places in the queue.
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

    /// Another store with the same records, on that clock. Its hints have no listener yet.
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
        if self.state.records().take_out(lock) {
            self.state.ring(Bell::revoked(lock));
        }
    }

    /// Deletes a session's record, as an operator may by hand.
    #[cfg(feature = "testing")]
    pub fn delete_session(&self, session: SessionId) {
        let mut records = self.state.records();
        let Ok(Ok(deleted)) = records.session(session) else { return };
        let Ok(()) = records.delete_session(session);
        drop(records);
        if let Some(record) = deleted {
            let spreads = record.shares.iter().map(|share| &share.spread);
            self.state.ring(Bell::member(&record.about.namespace, record.id, spreads));
        }
    }

    /// Counts the records.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn kept(&self) -> Kept {
        self.state.records().kept()
    }

    /// Performs a step when its future is first polled, all at once.
    fn step<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Step<'_, Records>) -> Result<T, Infallible> + Send + 'static,
    ) -> Answer<'_, T> {
        async move { Ok(self.state.step(step)) }.boxed()
    }
}

impl State {
    fn records(&self) -> MutexGuard<'_, Records> {
        // No step panics half-way, so what a poisoned lock holds is whole.
        locked(&self.records)
    }

    fn step<T>(&self, step: impl FnOnce(&mut Step<'_, Records>) -> Result<T, Infallible>) -> T {
        let mut records = self.records();
        let mut steps = Step::new(&mut *records, self.clock.wall());
        let Ok(answer) = step(&mut steps);
        // While no other caller can change anything: bells are heard in the order of the changes.
        self.ring(steps.into_bells());
        answer
    }

    fn ring(&self, bells: impl IntoIterator<Item = Bell>) {
        for bell in bells {
            // An error only says that there is no listener.
            let _ = self.bells.send(bell);
        }
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
        self.state.records().show(&mut f.debug_struct("MemoryStore"))
    }
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("memory", Reach::Process, Some("the process itself"))
    }

    fn call(&self, op: Op, _: Duration) -> Answer<'_, Reply> {
        self.step(move |step| step.carry_out(op))
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        // Added topics are heard at once.
        let resyncs = resyncs(topics.clone());
        stream::select(resyncs, super::hint_stream(self.state.bells.subscribe(), topics)).boxed()
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        // No operation here waits, on any runtime.
        self.step(|_| Ok(None))
    }
}
