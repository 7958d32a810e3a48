//! Reads of a namespace, each of which is bounded: one command for a page, whatever the store holds. What reads all
//! pages says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    ClockAhead, HeldCounts, Instance, KeyDetails, Ledger, Lock, Operator, Picture, ScheduleView,
    SessionStates, instance, poller::Poller, schedule,
};
use tenure::{
    Clock, StoreError, SystemClock,
    clock::Moment,
    model::{Holder, Kind, LockId, Namespace, RunRecord, ScheduleId, SessionId, StoreTime},
    store::{
        Beats, Cursor, LockRecord, LockSeen, Page, Queue, Refusal, RunPage, ScheduleRecord, ScheduleSeen,
        SessionRecord, SessionSeen, Store, StoreExt,
    },
};

/// Time that a person waits for one answer of the store.
const LIMIT: Duration = Duration::from_secs(10);
/// Waiters of a key that are read.
const WAITERS: usize = 100;
/// Ids that are asked for at once.
const AT_ONCE: usize = 1000;
/// Ledgers that are asked for at once.
const LEDGERS_AT_ONCE: usize = 100;
/// Time between two looks at sessions of which one was not enough.
const AGAIN: Duration = Duration::from_millis(250);

/// A namespace of a store, to look at. It opens no session and changes nothing.
#[derive(Clone, Debug)]
pub struct Reader {
    store: Arc<dyn Store>,
    namespace: Namespace,
    clock: Arc<dyn Clock>,
    /// Shared by all that look through it.
    beats: Arc<Mutex<Beats>>,
    pub(crate) program: Arc<str>,
}

impl Reader {
    /// Records of a page.
    pub const PAGE: usize = 100;

    /// Looks at that namespace of a store.
    #[must_use]
    pub fn new(store: impl Into<Arc<dyn Store>>, namespace: Namespace) -> Self {
        let clock = Arc::new(SystemClock::new());
        Self { store: store.into(), namespace, clock, beats: Arc::default(), program: Arc::from("tenure") }
    }

    /// The same with that beginning of the commands that it advises: the program, and options that name the store.
    #[must_use]
    pub fn program(self, program: &str) -> Self {
        Self { program: program.into(), ..self }
    }

    /// The same by another clock: its wall clock is compared with the times of records.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// An operator of that name, on the same namespace and by the same clock.
    #[must_use]
    pub fn operator(&self, by: Holder) -> Operator {
        Operator::new(self.store.clone(), self.namespace.clone(), by).by_clock(self.clock.clone())
    }

    /// The store that is looked at.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The namespace that is looked at.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Now by the fleet's clock: this machine's, corrected by most of the beats that were seen to change.
    #[must_use]
    pub fn now(&self) -> StoreTime {
        self.beats().now(self.clock.wall())
    }

    /// The clocks that were found to differ.
    #[must_use]
    pub fn clocks(&self) -> Vec<ClockAhead> {
        self.beats().clocks()
    }

    fn beats(&self) -> MutexGuard<'_, Beats> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment by the clock that it looks by.
    pub(crate) fn moment(&self) -> Moment {
        self.clock.now()
    }

    /// Reads a page of the sessions, dead ones too, in the order of their ids. Where clocks alone speak against one of
    /// them, it waits for a beat, for six seconds at most; beats are dated by [`now`](Self::now).
    ///
    /// # Errors
    ///
    /// If the store does not answer; so it is with all reads.
    pub async fn sessions(
        &self,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Result<Page<SessionRecord>, StoreError> {
        let asked = self.moment();
        let mut page = self.store.sessions(self.namespace.clone(), after, at_most, LIMIT).await?;
        if let Some(wait) = self.take(page.items.iter(), asked) {
            let ids = page.items.iter().map(|record| record.id).collect();
            let states = self.look_again(ids, wait).await?;
            for record in &mut page.items {
                if let Some(seen) = states.record(record.id) {
                    *record = seen.clone();
                }
            }
        }
        self.correct(page.items.iter_mut());
        Ok(page)
    }

    /// Reads a page of the records of locks, of one kind or of all, in the order of kind and key.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn lock_records(
        &self,
        kind: Option<Kind>,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Result<Page<LockRecord>, StoreError> {
        self.store.list_locks(self.namespace.clone(), kind, after, at_most, LIMIT).await
    }

    /// Reads a page of locks, with the life of their holders.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn locks(
        &self,
        kind: Option<Kind>,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Result<Page<Lock>, StoreError> {
        let page = self.lock_records(kind, after, at_most).await?;
        let lives = self.observe_if_allowed(page.items.iter().filter_map(holder)).await?;
        let now = self.now();
        Ok(page.map(|record| Lock::of(record, &lives, now)))
    }

    /// Reads a page of what a session holds, the latest grant first.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn held_by(
        &self,
        session: SessionId,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Result<Page<tenure::store::Held>, StoreError> {
        self.store.held_by(session, after, at_most, LIMIT).await
    }

    /// Reads these locks, in their order.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn seen_locks(&self, locks: &[LockId]) -> Result<Vec<LockSeen>, StoreError> {
        let mut seen = Vec::with_capacity(locks.len());
        for locks in locks.chunks(AT_ONCE) {
            seen.extend(self.store.locks(locks.to_vec(), LIMIT).await?);
        }
        Ok(seen)
    }

    /// Reads these sessions, as [`sessions`](Self::sessions) does.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn observe(
        &self,
        sessions: impl IntoIterator<Item = SessionId>,
    ) -> Result<SessionStates, StoreError> {
        let wanted: BTreeSet<SessionId> = sessions.into_iter().collect();
        let mut states = self.look_again(wanted.into_iter().collect(), Duration::ZERO).await?;
        self.correct(states.records_mut());
        Ok(states)
    }

    /// Reads sessions after that time, and again until clocks alone speak against none of them, or it waited long enough.
    async fn look_again(
        &self,
        wanted: Vec<SessionId>,
        mut wait: Duration,
    ) -> Result<SessionStates, StoreError> {
        loop {
            if !wait.is_zero() {
                tokio::time::sleep(wait.min(AGAIN)).await;
            }
            let (asked, mut seen) = (self.moment(), Vec::with_capacity(wanted.len()));
            for sessions in wanted.chunks(AT_ONCE) {
                let answers = self.store.observe(sessions.to_vec(), LIMIT).await?;
                seen.extend(sessions.iter().copied().zip(answers));
            }
            let states: SessionStates = seen.into_iter().collect();
            match self.take(states.records(), asked) {
                Some(left) => wait = left,
                None => return Ok(states),
            }
        }
    }

    fn take<'a>(
        &self,
        records: impl Iterator<Item = &'a SessionRecord> + Clone,
        asked: Moment,
    ) -> Option<Duration> {
        self.beats().take(records, asked, self.moment(), self.clock.wall())
    }

    fn correct<'a>(&self, records: impl Iterator<Item = &'a mut SessionRecord>) {
        let (beats, moment, wall) = (self.beats(), self.moment(), self.clock.wall());
        records.for_each(|record| beats.correct(record, moment, wall));
    }

    /// Reads these sessions. All are unreadable if the store refuses to read any.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn observe_if_allowed(
        &self,
        sessions: impl IntoIterator<Item = SessionId> + Clone,
    ) -> Result<SessionStates, StoreError> {
        match self.observe(sessions.clone()).await {
            Err(error) if !error.is_retryable() => {
                let refusal = Refusal::Damaged { field: "session".to_owned(), problem: error.to_string() };
                let refused = |session| (session, SessionSeen::Refused(refusal.clone()));
                Ok(sessions.into_iter().map(refused).collect())
            }
            lives => lives,
        }
    }

    /// Reads all that is known of one key: its record, its holder's session, and its waiters.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn key(&self, id: LockId) -> Result<KeyDetails, StoreError> {
        let seen = self.seen_locks(std::slice::from_ref(&id)).await?.pop().unwrap_or(LockSeen::Absent);
        let (queue, waiters_unreadable) = match self.queue(id.clone(), WAITERS).await {
            Err(error) if !error.is_retryable() => (Queue::default(), Some(error.to_string())),
            queue => (queue?, None),
        };
        let session = if let LockSeen::Found(record) = &seen { holder(record) } else { None };
        let waiters = queue.waiters.iter().map(|waiter| waiter.by.session);
        let lives = self.observe_if_allowed(session.into_iter().chain(waiters)).await?;
        let now = self.now();
        Ok(KeyDetails { waiters_unreadable, ..KeyDetails::of(id, seen, queue, &lives, now) })
    }

    /// Reads the first waiters of a lock.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn queue(&self, id: LockId, at_most: usize) -> Result<tenure::store::Queue, StoreError> {
        // One more than is shown tells whether there are others.
        let mut queue = self.store.waiters(id, at_most + 1, LIMIT).await?;
        queue.waiters.truncate(at_most);
        Ok(queue)
    }

    /// Reads the locks that these sessions were granted last, the latest grant first.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn latest_grants(
        &self,
        sessions: Vec<SessionId>,
        at_most: usize,
    ) -> Result<Vec<LockRecord>, StoreError> {
        self.store.latest_grants(sessions, at_most, LIMIT).await
    }

    // ----- schedules

    /// Reads these schedules' records, in their order.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn seen_schedules(&self, ids: &[ScheduleId]) -> Result<Vec<ScheduleSeen>, StoreError> {
        let mut seen = Vec::with_capacity(ids.len());
        for ids in ids.chunks(AT_ONCE) {
            seen.extend(self.store.schedules(ids.to_vec(), LIMIT).await?);
        }
        Ok(seen)
    }

    /// Reads a page of the records of schedules, in the order of their names. MongoDB has a command for each, so this
    /// is no read of the first screen.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn schedule_records(
        &self,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Result<Page<ScheduleRecord>, StoreError> {
        self.store.list_schedules(self.namespace.clone(), after, at_most, LIMIT).await
    }

    /// Reads the last entries of these ledgers, the last one first.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn last_runs(
        &self,
        ids: &[ScheduleId],
        at_most: usize,
    ) -> Result<Vec<Page<RunRecord>>, StoreError> {
        let mut pages = Vec::with_capacity(ids.len());
        for ids in ids.chunks(LEDGERS_AT_ONCE) {
            pages.extend(self.store.last_runs(ids.to_vec(), at_most, LIMIT).await?);
        }
        Ok(pages)
    }

    /// Reads a page of a ledger, the last entry first.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn history(
        &self,
        schedule: ScheduleId,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Result<RunPage, StoreError> {
        self.store.history(schedule, after, at_most, LIMIT).await
    }

    /// Reads what belongs to these records of schedules: ledgers, locks, and the sessions of their owners.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn schedules_of(
        &self,
        records: Vec<ScheduleRecord>,
    ) -> Result<(Vec<ScheduleView>, StoreTime), StoreError> {
        let ids: Vec<_> = records.iter().map(|record| record.id.clone()).collect();
        let ledgers = self.last_runs(&ids, ScheduleView::RUNS).await?;
        let locks = self.seen_locks(&ids.iter().map(schedule::lock_of).collect::<Vec<_>>()).await?;
        let locks: Vec<_> = locks.into_iter().map(LockSeen::found).collect();
        let holders = locks.iter().flatten().filter_map(holder);
        let runners = ledgers.iter().filter_map(|ledger| schedule::on(&ledger.items)).map(|run| run.session);
        let lives = self.observe(holders.chain(runners)).await?;
        let now = self.now();
        let both = ledgers.into_iter().zip(locks);
        let looks = records.into_iter().zip(both).map(|(record, (ledger, lock))| {
            ScheduleView::of(record, Ledger::of(ledger, now), lock.as_ref(), &lives, now)
        });
        Ok((looks.collect(), now))
    }

    /// Reads the namespace, as far as a picture has room for it: a page after the other, as many as there are.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn picture(&self) -> Result<Picture, StoreError> {
        let mut poller = Poller::new(self.clone());
        poller.all().await?;
        Ok(poller.picture())
    }

    /// Reads all instances, and counts what each holds: a page after the other, as many as there are.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn all_instances(&self) -> Result<(Page<Instance>, StoreTime), StoreError> {
        let sessions = all(async |after| self.sessions(after, AT_ONCE).await).await?;
        let locks = all(async |after| self.lock_records(None, after, AT_ONCE).await).await?;
        let (now, clocks) = (self.now(), self.clocks());
        let mut held: BTreeMap<SessionId, HeldCounts> = instance::count(&locks.items);
        let mut failing = instance::failing(sessions.items.iter(), &locks.items, now);
        let mut page = sessions.map(|record| {
            let held = held.remove(&record.id).unwrap_or_default();
            let failing = failing.remove(&record.id).unwrap_or_default();
            Instance::of(record, held, failing, now).beside(&clocks)
        });
        page.items.sort_by(Instance::in_order);
        Ok((page, now))
    }
}

/// Reads all pages of a listing.
pub(crate) async fn all<T>(
    mut read: impl AsyncFnMut(Option<Cursor>) -> Result<Page<T>, StoreError>,
) -> Result<Page<T>, StoreError> {
    let mut whole = Page::new(Vec::new(), None);
    let mut after = None;
    loop {
        let page = read(after).await?;
        whole.items.extend(page.items);
        whole.refused.extend(page.refused);
        after = page.next;
        if after.is_none() {
            return Ok(whole);
        }
    }
}

/// The session that holds a lock.
pub(crate) fn holder(record: &LockRecord) -> Option<SessionId> {
    record.holding.as_ref().map(|held| held.by.session)
}
