//! The contract in its most readable form: one process, no I/O, nothing fails.

mod revoke;
mod schedules;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::{FutureExt, stream::BoxStream};
use tokio::sync::broadcast;

use super::{
    Answer, BeatWrite, Capabilities, Claim, ClaimAnswer, Cursor, Declaration, Define, Evidence, FinishRun,
    Held, Hint, Instruction, Line, LockChange, LockSeen, Open, Page, Purged, Reach, Release, ReleaseAnswer,
    ReleaseTo, Retention, Revocation, RevokeAnswer, RunPage, ScheduleSeen, SessionNews, SessionSeen,
    SetAnswer, SetValue, Store, TERM_KEPT, Take, TakeAnswer, Wait,
    rules::{TakeVerdict, verdict},
};
use crate::{
    clock::{Clock, SystemClock},
    model::{
        About, Beat, Candidate, Closed, Death, Ended, Entry, Holder, Holding, Kind, LockId, LockRecord,
        Namespace, Nonce, RunId, RunRecord, ScheduleId, ScheduleRecord, SessionId, SessionRecord, StoreTime,
        Term, Ticket, Waiter,
    },
    sync::locked,
};

/// How many hints a slow listener may lag behind before it is told to [resync](Hint::Resync).
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
    clock: Arc<dyn Clock>,
    records: Arc<Mutex<Records>>,
    hints: broadcast::Sender<Hint>,
}

#[derive(Clone, Default)]
struct Records {
    sessions: BTreeMap<SessionId, SessionRecord>,
    locks: BTreeMap<LockId, LockRecord>,
    waiters: BTreeMap<(LockId, SessionId, Ticket), Waiter>,
    runs: BTreeMap<RunId, RunRecord>,
    schedules: BTreeMap<ScheduleId, ScheduleRecord>,
}

/// How many records a store keeps.
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
        Self { clock, records: Arc::default(), hints: broadcast::Sender::new(HINTS_KEPT) }
    }

    /// Another store with the same records, on that clock. Nobody listens to its hints yet.
    #[cfg(tenure_sim)]
    #[doc(hidden)]
    #[must_use]
    pub fn copied(&self, clock: Arc<dyn Clock>) -> Self {
        let records = self.records().clone();
        Self { records: Arc::new(Mutex::new(records)), ..Self::new(clock) }
    }

    /// Deletes a lock's record, as an operator may by hand.
    #[cfg(feature = "testing")]
    pub fn delete_lock(&self, lock: &LockId) {
        if self.records().locks.remove(lock).is_some() {
            self.hint(Hint::Lock { lock: lock.clone(), change: None });
        }
    }

    /// Deletes a session's record, as an operator may by hand.
    #[cfg(feature = "testing")]
    pub fn delete_session(&self, session: SessionId) {
        if self.records().sessions.remove(&session).is_some() {
            self.hint_session(session, SessionNews::Deleted);
        }
    }

    /// How many records there are.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn kept(&self) -> Kept {
        let records = self.records();
        Kept {
            sessions: records.sessions.len(),
            locks: records.locks.len(),
            places: records.waiters.len(),
            runs: records.runs.len(),
        }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        // No step panics half-way, so what a poisoned lock holds is whole.
        locked(&self.records)
    }

    fn hint(&self, hint: Hint) {
        // An error only says that nobody listens.
        let _ = self.hints.send(hint);
    }

    fn hint_session(&self, session: SessionId, news: SessionNews) {
        self.hint(Hint::Session { session, news });
    }

    fn hint_lock(&self, record: &LockRecord) {
        let free = if record.closed.is_some() { LockChange::Closed } else { LockChange::Freed };
        let change = record.holding.as_ref().map_or(free, |held| LockChange::Granted {
            session: held.by.session,
            ticket: held.by.ticket,
            term: record.term,
            at: held.acquired_at,
        });
        self.hint(Hint::Lock { lock: record.id.clone(), change: Some(change) });
    }

    /// Performs a step when its future is first polled, all at once.
    fn step<T: Send + 'static>(&self, step: impl FnOnce(&Self) -> T + Send + 'static) -> Answer<'_, T> {
        let store = self.clone();
        async move { Ok(step(&store)) }.boxed()
    }

    fn open_now(&self, open: Open) -> SessionSeen {
        let now = self.clock.wall();
        let mut records = self.records();
        let record = records.sessions.entry(open.session).or_insert_with(|| {
            self.hint_session(open.session, SessionNews::Opened);
            SessionRecord {
                id: open.session,
                about: open.about,
                started: now,
                beat: Beat::new(0),
                nonce: open.nonce,
                beat_at: now,
                ttl: open.ttl,
                death: None,
                shares: open.shares,
                requests: Vec::new(),
            }
        });
        SessionSeen::of(record.clone())
    }

    fn beat_now(&self, write: BeatWrite) -> SessionSeen {
        let now = self.clock.wall();
        let mut records = self.records();
        let Some(record) = records.sessions.get_mut(&write.session) else { return SessionSeen::Missing };
        if record.is_alive() && write.beat > record.beat {
            record.beat = write.beat;
            record.nonce = write.nonce;
            record.beat_at = now;
            record
                .requests
                .retain(|request| !write.heard.iter().any(|(lock, term)| request.is_about(lock, *term)));
            if let Some(shares) = write.shares
                && shares != record.shares
            {
                record.shares = shares;
                self.hint_session(write.session, SessionNews::Changed);
            }
        }
        SessionSeen::of(record.clone())
    }

    fn declare_now(&self, declaration: Declaration) -> SessionSeen {
        let now = self.clock.wall();
        let mut records = self.records();
        let Declaration { session, ground, by, why } = declaration;
        let death = Death { at: now, by, why };
        let Some(record) = records.sessions.get_mut(&session) else {
            let Evidence::Missing { namespace, holder, ttl } = ground else { return SessionSeen::Missing };
            let tombstone = tombstone(session, namespace, holder, ttl, death);
            records.sessions.insert(session, tombstone.clone());
            self.hint_session(session, SessionNews::Died);
            return SessionSeen::Dead(tombstone);
        };
        let holds = match ground {
            Evidence::Unbeaten { nonce } => record.nonce == nonce,
            Evidence::Missing { .. } => false,
            Evidence::Operator => true,
        };
        if record.is_alive() && holds {
            record.death = Some(death);
            self.hint_session(session, SessionNews::Died);
        }
        SessionSeen::of(record.clone())
    }

    fn take_now(&self, take: Take, dead: &[SessionId]) -> TakeAnswer {
        let now = self.clock.wall();
        let mut records = self.records();
        let Take { lock, by } = take;
        let (session, ticket) = (by.session, by.ticket);
        let Some(record) = records.locks.get_mut(&lock) else {
            let mut record = LockRecord {
                id: lock.clone(),
                term: Term::first(now),
                holding: None,
                closed: None,
                past: Vec::new(),
            };
            record.holding = Some(Holding { by, value_set: 0, acquired_at: now });
            self.hint_lock(&record);
            records.locks.insert(lock, record.clone());
            return TakeAnswer::of(record, session, ticket);
        };
        match verdict(record, &by, dead, now) {
            TakeVerdict::Keep => {}
            TakeVerdict::Grant { term, ended } => {
                if let Some(how) = ended {
                    record.end(now, how, None);
                }
                self.grant(record, by, term, now);
            }
            TakeVerdict::Delay(delay) => {
                record.end(now, Ended::Died, None);
                record.closed = Some(Closed::for_length(now, delay));
                self.hint_lock(record);
            }
        }
        TakeAnswer::of(record.clone(), session, ticket)
    }

    fn grant(&self, record: &mut LockRecord, by: Candidate, term: Term, now: StoreTime) {
        record.term = term;
        record.holding = Some(Holding { by, value_set: 0, acquired_at: now });
        record.closed = None;
        self.hint_lock(record);
    }

    fn release_now(&self, release: Release) -> ReleaseAnswer {
        let now = self.clock.wall();
        let mut records = self.records();
        let held = records.locks.get_mut(&release.lock).filter(|record| {
            record.term == release.term
                && record.holding.as_ref().is_some_and(|held| held.by.session == release.session)
        });
        if let Some(record) = held {
            match release.then {
                ReleaseTo::Free => record.end(now, Ended::Released, release.note),
                ReleaseTo::ClosedFor(length) => {
                    record.end(now, Ended::Released, release.note);
                    record.closed = Some(Closed::for_length(now, length));
                }
                ReleaseTo::HandTo(next) => match record.term.next(now) {
                    Some(term) => {
                        record.end(now, Ended::HandedOver, release.note);
                        record.term = term;
                        record.holding = Some(Holding { by: *next, value_set: 0, acquired_at: now });
                    }
                    None => record.end(now, Ended::Released, release.note),
                },
            }
            self.hint_lock(record);
        }
        ReleaseAnswer::Released
    }

    fn wait_now(&self, wait: Wait) {
        let since = self.clock.wall();
        let Wait { lock, by } = wait;
        let place = (lock.clone(), by.session, by.ticket);
        self.records().waiters.entry(place).or_insert_with(|| {
            self.hint(Hint::Queue { lock: lock.clone() });
            Waiter { lock, by, since }
        });
    }

    fn waiters_now(&self, lock: &LockId, at_most: usize) -> Line {
        let records = self.records();
        let mut line: Vec<_> =
            records.waiters.values().filter(|waiter| waiter.lock == *lock).cloned().collect();
        line.sort_by_key(|waiter| (waiter.since, waiter.by.session, waiter.by.ticket));
        let whole = line.len() < at_most;
        line.truncate(at_most);
        Line { waiters: line, whole }
    }

    fn set_value_now(&self, set: SetValue) -> SetAnswer {
        let mut records = self.records();
        let Some(record) = records.locks.get_mut(&set.lock) else { return SetAnswer::NotHeld };
        match &mut record.holding {
            Some(held) if held.by.session == set.session && record.term == set.term => {
                if set.number > held.value_set {
                    held.by.value = set.value;
                    held.value_set = set.number;
                    if set.lock.kind == Kind::Schedule {
                        self.hint(Hint::Value { lock: set.lock });
                    }
                }
                SetAnswer::Set
            }
            _ => SetAnswer::NotHeld,
        }
    }

    fn purge_now(&self, namespace: &Namespace, retention: Retention) -> Purged {
        let now = self.clock.wall();
        let mut records = self.records();
        let before = records.counts();
        let idle = now.minus(retention.locks);
        let term_gone = now.minus(TERM_KEPT);
        records.locks.retain(|id, record| {
            id.namespace != *namespace
                || record.holding.is_some()
                || record.closed.is_some_and(|closed| !closed.left(now).is_zero())
                || record.past.first().is_none_or(|last| last.to >= idle)
                || i64::try_from(record.term.get()).is_ok_and(|term| term >= term_gone.as_millis())
        });
        let mut dead = records.dead(namespace);
        records.waiters.retain(|(_, session, _), _| !dead.contains_key(session));
        let abandoned = now.minus(retention.locks);
        let mut freed = 0;
        for lock in records.locks.values_mut() {
            let Some(session) = lock.holding.as_ref().map(|held| held.by.session) else { continue };
            match dead.get(&session) {
                Some(died) if *died < abandoned => {
                    self.free_of_the_dead(lock, now);
                    freed += 1;
                }
                // Its death must be there to be seen by whoever wants the lock.
                Some(_) => drop(dead.remove(&session)),
                None => {}
            }
        }
        let buried = now.minus(retention.sessions);
        for (id, _) in dead.into_iter().filter(|(_, died)| *died < buried) {
            records.sessions.remove(&id);
            self.hint_session(id, SessionNews::Deleted);
        }
        let after = records.counts();
        Purged {
            locks: before.0 - after.0,
            freed,
            sessions: before.1 - after.1,
            waiters: before.2 - after.2,
            next: None,
        }
    }

    fn free_of_the_dead(&self, lock: &mut LockRecord, now: StoreTime) {
        let delay = lock.holding.as_ref().map_or(Duration::ZERO, |held| held.by.lock_delay);
        lock.end(now, Ended::Died, None);
        lock.closed = (!delay.is_zero()).then(|| Closed::for_length(now, delay));
        self.hint_lock(lock);
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
        let (locks, sessions, waiters) = self.records().counts();
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

/// The dead session that stands for one that was never seen.
fn tombstone(
    id: SessionId,
    namespace: Namespace,
    holder: Holder,
    ttl: Duration,
    death: Death,
) -> SessionRecord {
    SessionRecord {
        id,
        about: About {
            namespace,
            holder,
            host: String::new(),
            pid: 0,
            program: String::new(),
            plan_version: 0,
        },
        started: death.at,
        beat: Beat::new(0),
        nonce: Nonce::new(0),
        beat_at: death.at,
        ttl,
        death: Some(death),
        shares: Vec::new(),
        requests: Vec::new(),
    }
}

/// Where a lock stands in a listing. The zero byte is in no name, and sorts before all that are.
fn place(id: &LockId) -> Vec<u8> {
    format!("{}\0{}\0{}", id.namespace, id.kind, id.key).into_bytes()
}

/// Where a lock stands in the audit: latest term first.
fn audit_place(lock: &LockRecord) -> Vec<u8> {
    let mut place = (u64::MAX - lock.term.get()).to_be_bytes().to_vec();
    place.extend(self::place(&lock.id));
    place
}

/// Where an entry stands in its history: latest instant first, also before 1970.
fn last_first(id: &RunId) -> Vec<u8> {
    let ascending = id.instant.as_millis().cast_unsigned() ^ (1 << 63);
    let mut place = (!ascending).to_be_bytes().to_vec();
    place.push(!(id.entry as u8));
    place
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

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("memory", Reach::Process, true)
    }

    fn open(&self, open: Open, _: Duration) -> Answer<'_, SessionSeen> {
        self.step(|store| store.open_now(open))
    }

    fn beat(&self, beat: BeatWrite, _: Duration) -> Answer<'_, SessionSeen> {
        self.step(|store| store.beat_now(beat))
    }

    fn observe(&self, sessions: Vec<SessionId>, _: Duration) -> Answer<'_, Vec<SessionSeen>> {
        self.step(move |store| {
            let records = store.records();
            let seen = |id| records.sessions.get(id).cloned().map_or(SessionSeen::Missing, SessionSeen::of);
            sessions.iter().map(seen).collect()
        })
    }

    fn declare(&self, declaration: Declaration, _: Duration) -> Answer<'_, SessionSeen> {
        self.step(|store| store.declare_now(declaration))
    }

    fn sessions(
        &self,
        namespace: Namespace,
        after: Option<Cursor>,
        at_most: usize,
        _: Duration,
    ) -> Answer<'_, Page<SessionRecord>> {
        self.step(move |store| {
            let records = store.records();
            let all = records.sessions.values().filter(|session| session.about.namespace == namespace);
            page(all.map(|s| (s.id.to_string().into_bytes(), s.clone())), after.as_ref(), at_most)
        })
    }

    fn take(&self, takes: Vec<Take>, dead: Vec<SessionId>, _: Duration) -> Answer<'_, Vec<TakeAnswer>> {
        self.step(move |store| takes.into_iter().map(|take| store.take_now(take, &dead)).collect())
    }

    fn release(&self, releases: Vec<Release>, _: Duration) -> Answer<'_, Vec<ReleaseAnswer>> {
        self.step(|store| releases.into_iter().map(|release| store.release_now(release)).collect())
    }

    fn wait(&self, waits: Vec<Wait>, _: Duration) -> Answer<'_, ()> {
        self.step(|store| waits.into_iter().for_each(|wait| store.wait_now(wait)))
    }

    fn stop_waiting(&self, waits: Vec<(LockId, SessionId, Ticket)>, _: Duration) -> Answer<'_, ()> {
        self.step(move |store| {
            let mut records = store.records();
            for place in &waits {
                records.waiters.remove(place);
            }
        })
    }

    fn waiters(&self, lock: LockId, at_most: usize, _: Duration) -> Answer<'_, Line> {
        self.step(move |store| store.waiters_now(&lock, at_most))
    }

    fn places(&self, places: Vec<(LockId, SessionId, Ticket)>, _: Duration) -> Answer<'_, Vec<bool>> {
        self.step(move |store| {
            let records = store.records();
            places.iter().map(|place| records.waiters.contains_key(place)).collect()
        })
    }

    fn set_value(&self, set: SetValue, _: Duration) -> Answer<'_, SetAnswer> {
        self.step(|store| store.set_value_now(set))
    }

    fn locks(&self, locks: Vec<LockId>, _: Duration) -> Answer<'_, Vec<LockSeen>> {
        self.step(move |store| {
            let records = store.records();
            let seen = |id| records.locks.get(id).cloned().map_or(LockSeen::Absent, LockSeen::Found);
            locks.iter().map(seen).collect()
        })
    }

    fn list_locks(
        &self,
        namespace: Namespace,
        kind: Option<Kind>,
        after: Option<Cursor>,
        at_most: usize,
        _: Duration,
    ) -> Answer<'_, Page<LockRecord>> {
        self.step(move |store| {
            let records = store.records();
            let all = records.locks.values().filter(|lock| lock.id.namespace == namespace);
            let wanted = all.filter(|lock| kind.as_ref().is_none_or(|kind| lock.id.kind == *kind));
            page(wanted.map(|lock| (place(&lock.id), lock.clone())), after.as_ref(), at_most)
        })
    }

    fn held_by(
        &self,
        session: SessionId,
        after: Option<Cursor>,
        at_most: usize,
        _: Duration,
    ) -> Answer<'_, Page<Held>> {
        self.step(move |store| {
            let records = store.records();
            let mut held: Vec<_> = records.locks.values().filter(|lock| lock.is_held_by(session)).collect();
            held.sort_by_key(|lock| audit_place(lock));
            let entries = held.into_iter().filter_map(|lock| {
                let ticket = lock.holding.as_ref()?.by.ticket;
                Some((audit_place(lock), Held { lock: lock.id.clone(), term: lock.term, ticket }))
            });
            page(entries, after.as_ref(), at_most)
        })
    }

    fn revoke(&self, revocation: Revocation, _: Duration) -> Answer<'_, RevokeAnswer> {
        self.step(|store| store.revoke_now(revocation))
    }

    fn define(&self, define: Define, _: Duration) -> Answer<'_, ScheduleSeen> {
        self.step(|store| store.define_now(define))
    }

    fn instruct(
        &self,
        schedule: ScheduleId,
        instruction: Instruction,
        _: Duration,
    ) -> Answer<'_, ScheduleSeen> {
        self.step(move |store| store.instruct_now(&schedule, instruction))
    }

    fn list_schedules(
        &self,
        namespace: Namespace,
        after: Option<Cursor>,
        at_most: usize,
        _: Duration,
    ) -> Answer<'_, Page<ScheduleRecord>> {
        self.step(move |store| store.list_schedules_now(&namespace, after.as_ref(), at_most))
    }

    fn delete_schedule(&self, schedule: ScheduleId, _: Duration) -> Answer<'_, bool> {
        self.step(move |store| store.delete_schedule_now(&schedule))
    }

    fn schedules(&self, schedules: Vec<ScheduleId>, _: Duration) -> Answer<'_, Vec<ScheduleSeen>> {
        self.step(move |store| store.schedules_now(&schedules))
    }

    fn claim(&self, claim: Claim, _: Duration) -> Answer<'_, ClaimAnswer> {
        self.step(|store| store.claim_now(claim))
    }

    fn finish(&self, finish: FinishRun, _: Duration) -> Answer<'_, ClaimAnswer> {
        self.step(|store| store.finish_now(finish))
    }

    fn history(
        &self,
        schedule: ScheduleId,
        after: Option<Cursor>,
        at_most: usize,
        _: Duration,
    ) -> Answer<'_, RunPage> {
        self.step(move |store| store.history_now(&schedule, after.as_ref(), at_most))
    }

    fn purge_runs(
        &self,
        schedule: ScheduleId,
        older_than: Duration,
        keep: usize,
        _: Duration,
    ) -> Answer<'_, RunPage> {
        self.step(move |store| store.purge_runs_now(&schedule, older_than, keep))
    }

    /// In one part: nothing here takes long.
    fn purge(
        &self,
        namespace: Namespace,
        retention: Retention,
        _: Option<Cursor>,
        _: Duration,
    ) -> Answer<'_, Purged> {
        self.step(move |store| store.purge_now(&namespace, retention))
    }

    fn hints(&self) -> BoxStream<'static, Hint> {
        super::hint_stream(self.hints.subscribe())
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        // Nothing here waits, on any runtime.
        self.step(|_| None)
    }
}
