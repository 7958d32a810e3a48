//! The stores a fleet's calls go through.
//!
//! ```text
//!  engine ─ Wire ─ Intercepted<FaultInjector> ─ (Deposed) ─ Way ─ Replicas ─ Ledger ─ MemoryStore
//!           what     what is lost, late,     a store    to a   what a     what the majority
//!           it hears doubled                 gone wrong primary majority has  has applied
//! ```

mod wire;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, stream::BoxStream};

pub use wire::{Recording, Wire};

use super::{Dice, EventKind, History, Life, Replicas, TickId, key_of, schedule_of};
use tenure::{
    clock::Clock,
    model::{LockId, Namespace, SessionId, StoreTime, Term, Why},
    store::{
        Answer, Capabilities, ClaimAnswer, Death, Declaration, Evidence, Hint, LockRecord, LockSeen, Nonce,
        Op, Release, Reply, ScheduleSeen, SessionRecord, SessionSeen, Store, StoreExt, TakeAnswer, Ticket,
        Topics,
    },
    testing::{Call, Course, Faulty, Intercept, Operation, Rates},
};

/// Writes into the history what the store has applied.
#[derive(Debug)]
pub(super) struct Ledger {
    store: Arc<dyn Store>,
    history: History,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    sessions: BTreeMap<SessionId, (Nonce, u64, bool)>,
    locks: BTreeMap<LockId, (Term, Option<(SessionId, Ticket)>)>,
    /// Since when it has its timing, and since when it is held back.
    schedules: BTreeMap<usize, (Option<StoreTime>, Option<StoreTime>)>,
    runs: BTreeMap<TickId, (Term, u32, Option<&'static str>)>,
}

const AT_ONCE: Duration = Duration::from_secs(1);

impl Ledger {
    pub(super) fn new(store: Arc<dyn Store>, history: History) -> Self {
        Self { store, history, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self, sighting: &SessionSeen, ground: &'static str, by: Option<Life>) {
        let Some(record) = sighting.record() else { return };
        let now = (record.nonce, record.beat.get(), record.is_alive());
        let before = self.known().sessions.insert(record.id, now);
        let session = record.id;
        if before.is_none() {
            // A tombstone was never opened.
            if now.2 {
                self.history.record(EventKind::Opened { session, ttl: record.ttl });
            }
        } else if before.is_some_and(|(nonce, beat, _)| nonce != now.0 || beat != now.1) {
            self.history.record(EventKind::Beaten { session });
        }
        if !now.2 && before.is_none_or(|(.., alive)| alive) {
            self.history.record(EventKind::Died { session, ground, by });
        }
    }

    /// Notes what a schedule's record says now.
    fn schedule(&self, seen: &ScheduleSeen) {
        let ScheduleSeen::Found(record) = seen else { return };
        let Some(schedule) = schedule_of(record.id.name.as_str()) else { return };
        let since = record.definition.as_ref().map(|definition| definition.since);
        let paused = record.pause.as_ref().filter(|pause| pause.is_on()).map(|pause| pause.since);
        let before = self.known().schedules.insert(schedule, (since, paused)).unwrap_or_default();
        if let Some(since) = since.filter(|_| before.0 != since) {
            self.history.record(EventKind::Scheduled { schedule, since });
        }
        if paused.is_some() && before.1 != paused {
            self.history.record(EventKind::Paused { schedule });
        }
    }

    /// Notes what an entry of a ledger says now.
    fn run(&self, answer: &ClaimAnswer) {
        let (ClaimAnswer::Yours(run) | ClaimAnswer::Others(run)) = answer else { return };
        let Some(schedule) = schedule_of(run.id.schedule.name.as_str()) else { return };
        let tick = TickId { schedule, instant: run.id.instant, entry: run.id.entry };
        let (attempt, term, session) = (run.attempt, run.term, run.session);
        let outcome = run.finish.as_ref().map(|finish| finish.outcome.as_str());
        let before = self.known().runs.insert(tick, (term, attempt, outcome));
        if before.is_none_or(|(before, number, _)| before != term || number != attempt) {
            let from = run.skipped.as_ref().map(|skipped| skipped.from);
            self.history.record(EventKind::Claimed { tick, attempt, term, session, from });
        }
        if let Some(outcome) = outcome
            && before != Some((term, attempt, Some(outcome)))
        {
            self.history.record(EventKind::Finished { tick, attempt, outcome });
        }
    }

    /// Looks at these locks; no other call can come in between.
    async fn locks_changed(&self, mut locks: Vec<LockId>) {
        locks.sort();
        locks.dedup();
        let Ok(seen) = self.store.locks(locks.clone(), AT_ONCE).await else { return };
        for (lock, seen) in locks.into_iter().zip(seen) {
            let (Some(record), Some(key)) = (seen.found(), key_of(&lock.key)) else { continue };
            let holder = record.holding.as_ref().map(|held| (held.by.session, held.by.ticket));
            let now = (record.term, holder);
            let before = self.known().locks.insert(lock, now);
            if before == Some(now) {
                continue;
            }
            let term = record.term;
            self.history.record(match record.holding {
                Some(held) => {
                    let tag = held.by.who.map_or_else(String::new, |who| who.as_str().to_owned());
                    EventKind::Granted { key, term, session: held.by.session, ticket: held.by.ticket, tag }
                }
                None => EventKind::Freed { key, term },
            });
        }
    }

    /// Performs an operation, for an instance or for the harness, and notes what it has changed.
    pub(super) fn call_by(&self, by: Option<Life>, op: Op, limit: Duration) -> Answer<'_, Reply> {
        async move {
            let reply = self.store.call(op.clone(), limit).await?;
            match (op, &reply) {
                (_, Reply::Open(seen) | Reply::Beat(seen)) => self.session(seen, "", None),
                (Op::Declare(declaration), Reply::Declare(seen)) => {
                    let ground = match &declaration.ground {
                        Evidence::Unbeaten { .. } => "unbeaten",
                        Evidence::Missing { .. } => "missing",
                        Evidence::Operator => "operator",
                        _ => "new",
                    };
                    self.session(seen, ground, by);
                }
                (Op::Take(takes, _), _) => {
                    self.locks_changed(takes.into_iter().map(|take| take.lock).collect()).await;
                }
                (Op::Release(releases), _) => {
                    self.locks_changed(releases.into_iter().map(|release| release.lock).collect()).await;
                }
                (Op::Wait(waits), _) => {
                    for wait in waits {
                        if let Some(key) = key_of(&wait.lock.key) {
                            let (session, ticket) = (wait.by.session, wait.by.ticket);
                            self.history.record(EventKind::Stands { key, session, ticket });
                        }
                    }
                }
                (_, Reply::Define(seen) | Reply::Instruct(seen)) => self.schedule(seen),
                (_, Reply::Claim(answer) | Reply::Finish(answer)) => self.run(answer),
                (Op::PurgeRuns(schedule, ..), Reply::PurgeRuns(page)) => {
                    let schedule = schedule_of(schedule.name.as_str());
                    if let (Some(schedule), Some(mark), false) = (schedule, page.mark, page.items.is_empty())
                    {
                        self.history.record(EventKind::Purged { schedule, mark });
                    }
                }
                _ => {}
            }
            Ok(reply)
        }
        .boxed()
    }

    /// A primary has applied these releases.
    pub(super) fn given_back(&self, releases: &[Release]) {
        for release in releases {
            if let Some(key) = key_of(&release.lock.key) {
                self.history.record(EventKind::GivenBack { key, term: release.term });
            }
        }
    }

    /// A primary has taken these out of their queues.
    pub(super) fn left(&self, waits: &[(LockId, SessionId, Ticket)]) {
        for (lock, session, ticket) in waits {
            if let Some(key) = key_of(&lock.key) {
                self.history.record(EventKind::Leaves { key, session: *session, ticket: *ticket });
            }
        }
    }

    /// Forgets a lock that was deleted by hand.
    pub(super) fn forget_lock(&self, lock: &LockId, key: usize) {
        self.known().locks.remove(lock);
        self.history.record(EventKind::LockDeleted { key });
    }

    /// Records that an operator took a lock away by force. Its holder may work on for a while.
    pub(super) fn forced(&self, key: usize) {
        self.history.record(EventKind::Forced { key });
    }

    /// Forgets a session that was deleted by hand.
    pub(super) fn forget_session(&self, session: SessionId) {
        self.known().sessions.remove(&session);
        self.history.record(EventKind::SessionDeleted { session });
    }
}

impl Store for Ledger {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply> {
        self.call_by(None, op, limit)
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics)
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        async { Ok(None) }.boxed()
    }
}

/// Faults of one instance's calls: what a script says, else chance, until it is calm; and always a short way
/// there and back.
#[derive(Debug)]
pub struct FaultInjector {
    script: Faulty,
    chance: Faulty,
    calm: AtomicBool,
    ways: Mutex<Dice>,
    longest_way: Duration,
    tally: Arc<Tally>,
}

/// Counts of the calls of all instances.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) operations: AtomicU64,
    /// Calls that something went wrong with.
    pub(super) faults: AtomicU64,
}

impl FaultInjector {
    pub(super) fn new(mut dice: Dice, rates: Rates, longest_way: Duration, tally: Arc<Tally>) -> Self {
        Self {
            script: Faulty::default(),
            chance: Faulty::seeded(dice.roll(), rates),
            calm: AtomicBool::new(false),
            ways: Mutex::new(dice),
            longest_way,
            tally,
        }
    }

    /// Script, which comes before chance.
    #[must_use]
    pub const fn script(&self) -> &Faulty {
        &self.script
    }

    /// Ends faults by chance, except with hints; or lets them happen again.
    pub fn calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::Relaxed);
        self.script.heal();
    }
}

impl Intercept for FaultInjector {
    fn decide(&self, call: &Call) -> Course {
        let by_chance = self.chance.decide(call);
        let scripted = self.script.decide(call);
        let course = if scripted != Course::PLAIN {
            scripted
        } else if self.calm.load(Ordering::Relaxed) {
            Course::PLAIN
        } else {
            by_chance
        };
        self.tally.operations.fetch_add(1, Ordering::Relaxed);
        if course != Course::PLAIN {
            self.tally.faults.fetch_add(1, Ordering::Relaxed);
        }
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        // Half of them take no time at all: then what happens at one moment happens in one order or another.
        if ways.percent(50) {
            return course;
        }
        let (there, back) = (ways.up_to(self.longest_way), ways.up_to(self.longest_way));
        course.late_by(course.before + there).answered_after(course.after + back)
    }

    fn hints(&self, hints: BoxStream<'static, Hint>) -> BoxStream<'static, Hint> {
        self.chance.hints(hints)
    }
}

/// A store that breaks the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Deviation {
    /// R5: a grant keeps the term of the one before.
    TermsKept,
    /// R11: sessions are read, and declared dead, at a deposed primary: what others wrote since then is
    /// not seen there, and what is written there is rolled back.
    DeposedPrimary,
}

/// Grants keep the term of the one before.
#[derive(Debug)]
pub(super) struct TermsKept {
    store: Arc<dyn Store>,
    shown: Arc<Mutex<BTreeMap<LockId, Term>>>,
}

impl TermsKept {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, shown: Arc::default() }
    }

    fn show(&self, lock: &LockId, term: &mut Term) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *term = *shown.entry(lock.clone()).or_insert(*term);
    }
}

impl Store for TermsKept {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn call(&self, mut op: Op, limit: Duration) -> Answer<'_, Reply> {
        async move {
            if let Op::Release(releases) = &mut op {
                // It knows its own terms.
                for release in releases {
                    let seen = self.store.locks(vec![release.lock.clone()], limit).await?;
                    if let [LockSeen::Found(record)] = &seen[..] {
                        release.term = record.term;
                    }
                }
            }
            let mut reply = self.store.call(op, limit).await?;
            match &mut reply {
                Reply::Take(answers) => {
                    for answer in answers {
                        if let TakeAnswer::Taken(record)
                        | TakeAnswer::Held(record)
                        | TakeAnswer::Closed(record) = answer
                        {
                            self.show(&record.id, &mut record.term);
                        }
                    }
                }
                Reply::Locks(seen) => {
                    for seen in seen {
                        if let LockSeen::Found(record) = seen {
                            self.show(&record.id, &mut record.term);
                        }
                    }
                }
                Reply::HeldBy(page) => {
                    for held in &mut page.items {
                        self.show(&held.lock, &mut held.term);
                    }
                }
                _ => {}
            }
            Ok(reply)
        }
        .boxed()
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics)
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        async { Ok(None) }.boxed()
    }
}

/// The way to the store of one instance, which may lead to a deposed primary for a while.
pub(super) struct Deposed {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Sessions as that primary has them: those that were read since it was deposed.
    view: Mutex<Option<BTreeMap<SessionId, SessionRecord>>>,
}

impl fmt::Debug for Deposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deposed").finish_non_exhaustive()
    }
}

impl Deposed {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, view: Mutex::default() }
    }

    fn view(&self) -> MutexGuard<'_, Option<BTreeMap<SessionId, SessionRecord>>> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the instance talks to a primary that is deposed, or to the real one again.
    pub(super) fn depose(&self, deposed: bool) {
        *self.view() = deposed.then(BTreeMap::new);
    }

    /// The answer of a deposed primary to a declaration whose session it has seen.
    fn declared(&self, declaration: &Declaration) -> Option<SessionSeen> {
        let mut view = self.view();
        let Evidence::Unbeaten { nonce } = &declaration.ground else { return None };
        let record = view.as_mut()?.get_mut(&declaration.session)?;
        if record.is_alive() && record.nonce == *nonce {
            let (by, why) = (declaration.by.clone(), Why::shortened("at a deposed primary"));
            record.death = Some(Death { at: self.clock.wall(), by, why });
        }
        Some(SessionSeen::of(record.clone()))
    }
}

impl Store for Deposed {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply> {
        async move {
            if let Op::Declare(declaration) = &op
                && let Some(seen) = self.declared(declaration)
            {
                return Ok(Reply::Declare(seen));
            }
            let mut reply = self.store.call(op, limit).await?;
            if let (Reply::Observe(seen), Some(view)) = (&mut reply, &mut *self.view()) {
                for seen in seen {
                    if let Some(record) = seen.record() {
                        let record = view.entry(record.id).or_insert_with(|| record.clone());
                        *seen = SessionSeen::of(record.clone());
                    }
                }
            }
            Ok(reply)
        }
        .boxed()
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics)
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        async { Ok(None) }.boxed()
    }
}

/// The operations a part of which may be out of reach for a while.
pub(super) const GROUPS: [&[Operation]; 6] = [
    Operation::ALL,
    &[Operation::Open, Operation::Beat],
    &[Operation::Observe],
    &[Operation::Take],
    &[Operation::Release],
    &[Operation::Locks, Operation::Waiters, Operation::HeldBy],
];

/// The store that all instances share.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) replicas: Replicas,
    /// The largest term that was deleted by hand: the clock is not set back before it.
    pub(super) deleted: Arc<Mutex<i64>>,
}

impl Common {
    /// The record of a lock at the primary, if it has one.
    pub(super) async fn record(&self, lock: &LockId) -> Option<LockRecord> {
        let seen = self.replicas.primary().locks(vec![lock.clone()], AT_ONCE).await.ok()?;
        seen.into_iter().next()?.found()
    }

    /// All sessions there are.
    pub(super) async fn sessions(&self, namespace: &Namespace) -> Vec<SessionRecord> {
        let page = self.replicas.majority().sessions(namespace.clone(), None, 10_000, AT_ONCE).await;
        page.map(|page| page.items).unwrap_or_default()
    }

    /// All locks there are.
    pub(super) async fn locks(&self, namespace: &Namespace) -> Vec<LockRecord> {
        let locks = self.replicas.majority();
        let page = locks.list_locks(namespace.clone(), None, None, 10_000, AT_ONCE).await;
        page.map(|page| page.items).unwrap_or_default()
    }

    /// Deletes a lock by hand, unless the store's clock stands before its term.
    pub(super) async fn delete_lock(&self, lock: &LockId, now: StoreTime) {
        let Some(record) = self.record(lock).await else { return };
        let term = i64::try_from(record.term.get()).unwrap_or(i64::MAX);
        if let Some(key) = key_of(&lock.key)
            && now.as_millis() > term
        {
            let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
            *deleted = (*deleted).max(term);
            drop(deleted);
            let (lock, gone) = (lock.clone(), lock.clone());
            self.replicas.by_hand(
                move |memory| memory.delete_lock(&lock),
                move |ledger| ledger.forget_lock(&gone, key),
            );
        }
    }

    /// Deletes a session by hand.
    pub(super) fn delete_session(&self, session: SessionId) {
        self.replicas.by_hand(
            move |memory| memory.delete_session(session),
            move |ledger| ledger.forget_session(session),
        );
    }
}
