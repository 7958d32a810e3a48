//! The stores a fleet's calls go through.
//!
//! ```text
//!  engine ─ Wire ─ Intercepted<FaultInjector> ─ (Deposed) ─ Way ─ Replicas ─ Ledger ─ MemoryStore
//!           what     what is lost, late,     a store    to a   what a     what the majority
//!           it hears doubled                 gone wrong primary majority has  has applied
//! ```

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

use super::{Dice, EventKind, History, Life, Replicas, TickId, key_of, schedule_of};
use tenure::{
    clock::Clock,
    model::{LockId, Namespace, ScheduleId, SessionId, StoreTime, Term, Why},
    store::{
        Answer, BeatWrite, Capabilities, Claim, ClaimAnswer, Cursor, Death, Declaration, Define, Evidence,
        FinishRun, Held, Hint, Instruction, LockRecord, LockSeen, Nonce, Open, Page, Presence, Release,
        ReleaseAnswer, RunPage, ScheduleSeen, SessionRecord, SessionSeen, Store, Take, TakeAnswer, Ticket,
        Topics, Wait,
    },
    testing::{Call, Course, Faulty, Intercept, Operation, Rates},
};

/// Passes the rest of the contract on.
macro_rules! pass_on_what_nobody_judges {
    ($to:ident: $($more:ident)*) => {
        fn capabilities(&self) -> Capabilities {
            self.$to.capabilities()
        }

        fn presence(&self, session: SessionId) -> Answer<'_, Option<Presence>> {
            self.$to.presence(session)
        }

        tenure::store_methods! {
            to $to:
            sessions waiters places list_locks latest_grants schedules list_schedules delete_schedule
            history last_runs purge
            $($more)*
        }
    };
}

macro_rules! nothing_dedicated {
    () => {
        fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
            async { Ok(None) }.boxed()
        }
    };
}

// After the macros that it uses.
mod wire;
pub use wire::{Recording, Wire};

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

    /// An instance declares a session dead, or the harness does.
    pub(super) fn declare_by(
        &self,
        by: Option<Life>,
        declaration: Declaration,
        limit: Duration,
    ) -> Answer<'_, SessionSeen> {
        async move {
            let ground = match &declaration.ground {
                Evidence::Unbeaten { .. } => "unbeaten",
                Evidence::Missing { .. } => "missing",
                Evidence::Operator => "operator",
                _ => "new",
            };
            let sighting = self.store.declare(declaration, limit).await?;
            self.session(&sighting, ground, by);
            Ok(sighting)
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
    fn open(&self, open: Open, limit: Duration) -> Answer<'_, SessionSeen> {
        async move {
            let sighting = self.store.open(open, limit).await?;
            self.session(&sighting, "", None);
            Ok(sighting)
        }
        .boxed()
    }

    fn beat(&self, beat: BeatWrite, limit: Duration) -> Answer<'_, SessionSeen> {
        async move {
            let sighting = self.store.beat(beat, limit).await?;
            self.session(&sighting, "", None);
            Ok(sighting)
        }
        .boxed()
    }

    fn declare(&self, declaration: Declaration, limit: Duration) -> Answer<'_, SessionSeen> {
        self.declare_by(None, declaration, limit)
    }

    fn take(&self, takes: Vec<Take>, dead: Vec<SessionId>, limit: Duration) -> Answer<'_, Vec<TakeAnswer>> {
        async move {
            let locks = takes.iter().map(|take| take.lock.clone()).collect();
            let answers = self.store.take(takes, dead, limit).await?;
            self.locks_changed(locks).await;
            Ok(answers)
        }
        .boxed()
    }

    fn release(&self, releases: Vec<Release>, limit: Duration) -> Answer<'_, Vec<ReleaseAnswer>> {
        async move {
            let locks = releases.iter().map(|release| release.lock.clone()).collect();
            let answers = self.store.release(releases, limit).await?;
            self.locks_changed(locks).await;
            Ok(answers)
        }
        .boxed()
    }

    fn wait(&self, waits: Vec<Wait>, limit: Duration) -> Answer<'_, ()> {
        async move {
            let places: Vec<_> =
                waits.iter().map(|wait| (key_of(&wait.lock.key), wait.by.session, wait.by.ticket)).collect();
            self.store.wait(waits, limit).await?;
            for (key, session, ticket) in places {
                if let Some(key) = key {
                    self.history.record(EventKind::Stands { key, session, ticket });
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn define(&self, define: Define, limit: Duration) -> Answer<'_, ScheduleSeen> {
        async move {
            let seen = self.store.define(define, limit).await?;
            self.schedule(&seen);
            Ok(seen)
        }
        .boxed()
    }

    fn instruct(
        &self,
        schedule: ScheduleId,
        instruction: Instruction,
        limit: Duration,
    ) -> Answer<'_, ScheduleSeen> {
        async move {
            let seen = self.store.instruct(schedule, instruction, limit).await?;
            self.schedule(&seen);
            Ok(seen)
        }
        .boxed()
    }

    fn claim(&self, claim: Claim, limit: Duration) -> Answer<'_, ClaimAnswer> {
        async move {
            let answer = self.store.claim(claim, limit).await?;
            self.run(&answer);
            Ok(answer)
        }
        .boxed()
    }

    fn finish(&self, finish: FinishRun, limit: Duration) -> Answer<'_, ClaimAnswer> {
        async move {
            let answer = self.store.finish(finish, limit).await?;
            self.run(&answer);
            Ok(answer)
        }
        .boxed()
    }

    fn purge_runs(
        &self,
        schedule: ScheduleId,
        older_than: Duration,
        keep: usize,
        limit: Duration,
    ) -> Answer<'_, RunPage> {
        async move {
            let number = schedule_of(schedule.name.as_str());
            let page = self.store.purge_runs(schedule, older_than, keep, limit).await?;
            if let (Some(schedule), Some(mark), false) = (number, page.mark, page.items.is_empty()) {
                self.history.record(EventKind::Purged { schedule, mark });
            }
            Ok(page)
        }
        .boxed()
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics)
    }

    nothing_dedicated!();

    pass_on_what_nobody_judges! {
        store:
        stop_waiting observe locks set_value held_by revoke
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

    fn show(&self, mut record: LockRecord) -> LockRecord {
        record.term = first_shown(&self.shown, &record.id, record.term);
        record
    }
}

fn first_shown(shown: &Mutex<BTreeMap<LockId, Term>>, lock: &LockId, term: Term) -> Term {
    *shown.lock().unwrap_or_else(PoisonError::into_inner).entry(lock.clone()).or_insert(term)
}

impl Store for TermsKept {
    fn take(&self, takes: Vec<Take>, dead: Vec<SessionId>, limit: Duration) -> Answer<'_, Vec<TakeAnswer>> {
        async move {
            let answers = self.store.take(takes, dead, limit).await?;
            let show = |answer| match answer {
                TakeAnswer::Taken(record) => TakeAnswer::Taken(self.show(record)),
                TakeAnswer::Held(record) => TakeAnswer::Held(self.show(record)),
                TakeAnswer::Closed(record) => TakeAnswer::Closed(self.show(record)),
                refused @ TakeAnswer::Refused(_) => refused,
            };
            Ok(answers.into_iter().map(show).collect())
        }
        .boxed()
    }

    fn locks(&self, locks: Vec<LockId>, limit: Duration) -> Answer<'_, Vec<LockSeen>> {
        async move {
            let seen = self.store.locks(locks, limit).await?;
            let show = |seen| match seen {
                LockSeen::Found(record) => LockSeen::Found(self.show(record)),
                other => other,
            };
            Ok(seen.into_iter().map(show).collect())
        }
        .boxed()
    }

    fn release(&self, mut releases: Vec<Release>, limit: Duration) -> Answer<'_, Vec<ReleaseAnswer>> {
        async move {
            // It knows its own terms.
            for release in &mut releases {
                let seen = self.store.locks(vec![release.lock.clone()], limit).await?;
                if let [LockSeen::Found(record)] = &seen[..] {
                    release.term = record.term;
                }
            }
            self.store.release(releases, limit).await
        }
        .boxed()
    }

    fn held_by(
        &self,
        session: SessionId,
        after: Option<Cursor>,
        at_most: usize,
        limit: Duration,
    ) -> Answer<'_, Page<Held>> {
        async move {
            let mut page = self.store.held_by(session, after, at_most, limit).await?;
            for held in &mut page.items {
                held.term = first_shown(&self.shown, &held.lock, held.term);
            }
            Ok(page)
        }
        .boxed()
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics)
    }

    nothing_dedicated!();

    pass_on_what_nobody_judges! {
        store:
        define instruct claim finish purge_runs wait stop_waiting open beat observe declare
        set_value revoke
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
}

impl Store for Deposed {
    fn observe(&self, sessions: Vec<SessionId>, limit: Duration) -> Answer<'_, Vec<SessionSeen>> {
        async move {
            let mut seen = self.store.observe(sessions, limit).await?;
            if let Some(view) = &mut *self.view() {
                for seen in &mut seen {
                    if let Some(record) = seen.record() {
                        let record = view.entry(record.id).or_insert_with(|| record.clone());
                        *seen = SessionSeen::of(record.clone());
                    }
                }
            }
            Ok(seen)
        }
        .boxed()
    }

    fn declare(&self, declaration: Declaration, limit: Duration) -> Answer<'_, SessionSeen> {
        async move {
            if let (Some(view), Evidence::Unbeaten { nonce }) = (&mut *self.view(), &declaration.ground)
                && let Some(record) = view.get_mut(&declaration.session)
            {
                if record.is_alive() && record.nonce == *nonce {
                    let (by, why) = (declaration.by, Why::shortened("at a deposed primary"));
                    record.death = Some(Death { at: self.clock.wall(), by, why });
                }
                return Ok(SessionSeen::of(record.clone()));
            }
            self.store.declare(declaration, limit).await
        }
        .boxed()
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics)
    }

    nothing_dedicated!();

    pass_on_what_nobody_judges! {
        store:
        define instruct claim finish purge_runs wait stop_waiting open beat take release locks
        set_value held_by revoke
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
