//! Records of a namespace that were read so far, and the views made of them. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde::{Serialize, Serializer};

use crate::{
    Change, ChangeKind, ClockAhead, Group, HeldCounts, Instance, Ledger, Limits, Liveness, Lock,
    ScheduleView, SessionStates, Severity, SpreadSummary, SpreadView, Verdict, change, instance,
    lock::lives_of,
    reader::{Reader, holder},
    schedule::{self, lock_of},
    spread::{self, Judged},
    verdict,
};
use tenure::{
    model::{Kind, LockId, Namespace, ScheduleName, SessionId, SpreadName, StoreTime},
    store::{LockRecord, Queue, Refusal, ScheduleRecord, SessionRecord},
};

/// Length of the history that is shown.
pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);
/// Most that is kept of each sort: beyond that, the oldest goes.
const SESSIONS: usize = 2_000;
const LOCKS: usize = 1_000;
const TASKS: usize = 20_000;
pub(crate) const SCHEDULES: usize = 5_000;
pub(crate) const REFUSED: usize = 100;
/// Most that an overview shows of each sort.
const SHOWN: usize = 100;
const SHOWN_CHANGES: usize = 20;

/// A namespace, as far as it was read.
#[derive(Clone, Debug)]
pub struct Picture {
    namespace: Namespace,
    /// Begins the commands that are advised.
    pub(crate) program: Arc<str>,
    pub(crate) now: StoreTime,
    pub(crate) clocks: Vec<ClockAhead>,
    pub(crate) sessions: BTreeMap<SessionId, SessionRecord>,
    /// Shared with the pictures before, as far as nothing has changed.
    pub(crate) locks: BTreeMap<LockId, Arc<LockRecord>>,
    pub(crate) schedules: BTreeMap<ScheduleName, Arc<ScheduleView>>,
    /// Number of schedules whose names are known.
    pub(crate) names: usize,
    /// Waiters for plain locks.
    pub(crate) queues: BTreeMap<LockId, Queue>,
    /// Records that could not be read, until their source was read again.
    pub(crate) refused: BTreeMap<Source, Vec<(String, Refusal)>>,
    pub(crate) read: Coverage,
    pub(crate) unreadable: BTreeMap<Area, String>,
    pub(crate) trouble: Option<String>,
    pub(crate) deaf: Option<String>,
    /// Changes of the last hour, computed at the first use: every screen needs them.
    changes: OnceLock<Vec<Change>>,
    verdict: OnceLock<Verdict>,
}

/// Source of a record that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Sessions,
    Locks(Kind),
    Schedules,
    Schedule(ScheduleName),
}

impl Source {
    /// The words of the command that lists these records, and those that cannot be used.
    pub(crate) fn listing(&self) -> String {
        match self {
            Self::Sessions => "instances --all".to_owned(),
            Self::Locks(kind) => match kind.spread().filter(|_| *kind != Kind::Schedule) {
                Some(spread) => verdict::command(&["spreads"], spread.as_str()),
                None => "ls".to_owned(),
            },
            Self::Schedules | Self::Schedule(_) => "schedules".to_owned(),
        }
    }
}

/// Part of a namespace that is read by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Area {
    /// The sessions.
    Sessions,
    /// The plain locks.
    Locks,
    /// The latest grants, and records that hints name.
    Latest,
    /// The tasks of a spread; the schedules are those of `tenure.schedules`.
    Tasks(SpreadName),
    /// The records of the schedules.
    Schedules,
    /// The ledgers.
    Ledgers,
    /// The waiters for plain locks.
    Waiters,
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sessions => f.write_str("sessions"),
            Self::Locks => f.write_str("locks"),
            Self::Latest => f.write_str("latest changes"),
            Self::Tasks(spread) => write!(f, "tasks of {spread}"),
            Self::Schedules => f.write_str("schedules"),
            Self::Ledgers => f.write_str("ledgers"),
            Self::Waiters => f.write_str("waiters"),
        }
    }
}

impl Serialize for Area {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Parts of the namespace that were read whole at least once, and are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Coverage {
    /// All sessions.
    pub sessions: bool,
    /// All plain locks.
    pub locks: bool,
    /// The spreads all of whose tasks were read; the schedules are those of `tenure.schedules`.
    pub spreads: BTreeSet<SpreadName>,
    /// All schedules, also those without an owner, and the ledgers of all.
    pub schedules: bool,
}

/// A namespace at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Overview {
    /// The namespace.
    pub namespace: Namespace,
    /// Time of the look, by the store's clock.
    pub now: StoreTime,
    /// Troubles, the worst first.
    pub verdict: Verdict,
    /// The store does not answer, and why: what is shown is old.
    pub trouble: Option<String>,
    /// Parts that the store refuses to read, and why.
    pub unreadable: BTreeMap<Area, String>,
    /// No hints come, and why: what changes is seen later.
    pub deaf: Option<String>,
    /// Instances, and those that ended within the last hour: a hundred of them, the well ones last.
    pub instances: Vec<Instance>,
    /// Spreads in numbers.
    pub spreads: Vec<SpreadSummary>,
    /// The last takeovers, losses, moves and failures: deaths first, and else the last one.
    pub changes: Vec<Group>,
    /// Records that cannot be used.
    pub refused: Vec<Refused>,
    /// Parts that were read whole.
    pub read: Coverage,
}

/// A lock, and its waiters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockQueue {
    /// The lock.
    pub lock: Lock,
    /// Waiters, the longest wait first.
    pub queue: Queue,
    /// Liveness of each of them.
    pub lives: Vec<Liveness>,
}

/// A record that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Name that the record gives itself.
    pub record: String,
    /// The reason.
    pub refusal: Refusal,
}

impl From<(String, Refusal)> for Refused {
    fn from((record, refusal): (String, Refusal)) -> Self {
        Self { record, refusal }
    }
}

impl Picture {
    pub(crate) fn new(reader: &Reader, now: StoreTime) -> Self {
        Self {
            namespace: reader.namespace().clone(),
            program: reader.program.clone(),
            now,
            clocks: Vec::new(),
            sessions: BTreeMap::new(),
            locks: BTreeMap::new(),
            schedules: BTreeMap::new(),
            names: 0,
            queues: BTreeMap::new(),
            refused: BTreeMap::new(),
            read: Coverage::default(),
            unreadable: BTreeMap::new(),
            trouble: None,
            deaf: None,
            changes: OnceLock::new(),
            verdict: OnceLock::new(),
        }
    }

    /// Time of the last read, by the clock that most beats are stamped by.
    #[must_use]
    pub const fn now(&self) -> StoreTime {
        self.now
    }

    /// The clocks that were found to differ.
    #[must_use]
    pub fn clock_ahead(&self) -> &[ClockAhead] {
        &self.clocks
    }

    /// The namespace.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns the command of these words, on that name if there is one, as it is typed.
    #[must_use]
    pub fn command(&self, words: &[&str], name: &str) -> String {
        format!("{} {}", self.program, verdict::command(words, name))
    }

    /// Why the store does not answer, if it does not: what is shown is old.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Parts that the store refuses to read, and why: of them, what is shown is old, and the rest is fresh.
    #[must_use]
    pub const fn unreadable(&self) -> &BTreeMap<Area, String> {
        &self.unreadable
    }

    /// Why no hints come, if none do: what changes is seen later.
    #[must_use]
    pub fn deaf(&self) -> Option<&str> {
        self.deaf.as_deref()
    }

    /// Returns the parts that were read whole.
    #[must_use]
    pub const fn read(&self) -> &Coverage {
        &self.read
    }

    /// The records that cannot be used, among them entries of ledgers.
    #[must_use]
    pub fn refused(&self) -> Vec<Refused> {
        let entries = self.schedules.values().flat_map(|one| one.ledger.refused.iter().cloned());
        let records = self.refused.values().flatten().cloned().map(Refused::from);
        records.chain(entries).take(REFUSED).collect()
    }

    // ----- what it takes in

    /// Takes in what cannot be used there, in place of what could not before.
    pub(crate) fn refuse(&mut self, source: Source, mut refused: Vec<(String, Refusal)>) {
        refused.truncate(REFUSED);
        if refused.is_empty() {
            self.refused.remove(&source);
        } else {
            self.refused.insert(source, refused);
        }
    }

    /// Takes in a lock without its value, which may be a secret: a reader of the value reads the lock.
    pub(crate) fn take_lock(&mut self, mut record: LockRecord) {
        if let Some(held) = &mut record.holding {
            held.by.value = None;
        }
        if !record.wanted {
            self.queues.remove(&record.id);
        }
        self.locks.insert(record.id.clone(), Arc::new(record));
    }

    /// Takes in the waiters of a lock, also without their values.
    pub(crate) fn take_queue(&mut self, id: LockId, mut queue: Queue) {
        queue.waiters.iter_mut().for_each(|waiter| waiter.by.value = None);
        self.queues.insert(id, queue);
    }

    pub(crate) fn drop_lock(&mut self, id: &LockId) {
        self.locks.remove(id);
        self.queues.remove(id);
    }

    /// Takes in a schedule, and the end of its ledger; an empty one that was not read replaces none that was.
    pub(crate) fn take_schedule(&mut self, record: ScheduleRecord, ledger: Ledger) {
        let name = record.id.name.clone();
        if ledger.read_at.is_none() && self.schedules.contains_key(&name) {
            return;
        }
        let runner = schedule::on(&ledger.runs).and_then(|run| self.sessions.get(&run.session)).cloned();
        let lives: SessionStates = runner.into_iter().collect();
        self.schedules.insert(name, Arc::new(ScheduleView::of(record, ledger, None, &lives, self.now)));
    }

    /// Drops what is beyond the bounds: of each sort what is oldest.
    pub(crate) fn keep_in_bounds(&mut self) {
        if self.sessions.len() > SESSIONS {
            // The dead go first: without them all that live are known.
            self.read.sessions &= self.sessions.values().filter(|one| one.is_alive()).count() <= SESSIONS;
            let age = |record: &SessionRecord| (record.is_alive(), record.beat_at);
            retain_latest(&mut self.sessions, SESSIONS, age);
        }
        let plain = |id: &LockId| id.kind == Kind::Lock;
        let count = self.locks.keys().filter(|id| plain(id)).count();
        let is_full = count > LOCKS;
        if is_full || self.locks.len() - count > TASKS {
            self.read.locks &= !is_full;
            let (mut locks, mut tasks) = std::mem::take(&mut self.locks)
                .into_iter()
                .partition::<BTreeMap<_, _>, _>(|(id, _)| plain(id));
            retain_latest(&mut locks, LOCKS, |record| changed_at(record));
            if tasks.len() > TASKS {
                self.read.spreads.clear();
            }
            retain_latest(&mut tasks, TASKS, |record| changed_at(record));
            self.locks = locks;
            self.locks.append(&mut tasks);
        }
        let locks = &self.locks;
        self.queues.retain(|id, _| locks.contains_key(id));
    }

    // ----- what it comes to

    /// The sessions, alive or dead.
    pub fn sessions(&self) -> impl Iterator<Item = &SessionRecord> {
        self.sessions.values()
    }

    /// Instances that have not ended, by their names, and behind them those that ended within the last hour.
    #[must_use]
    pub fn instances(&self) -> Vec<Instance> {
        let held = instance::count(self.records_of_locks());
        let mut failing = instance::failing(self.sessions.values(), self.records_of_locks(), self.now);
        let since = self.now.minus(HOUR);
        let is_told = |record: &&SessionRecord| record.death.as_ref().is_none_or(|death| death.at > since);
        let mut instances: Vec<_> = self
            .sessions
            .values()
            .filter(is_told)
            .map(|record| {
                let held: HeldCounts = held.get(&record.id).copied().unwrap_or_default();
                let failing = failing.remove(&record.id).unwrap_or_default();
                Instance::of(record.clone(), held, failing, self.now).beside(&self.clocks)
            })
            .collect();
        instances.sort_by(|a, b| {
            a.life.has_ended().cmp(&b.life.has_ended()).then_with(|| Instance::in_order(a, b))
        });
        instances
    }

    /// Returns an instance, if its session is known.
    #[must_use]
    pub fn instance(&self, session: SessionId) -> Option<Instance> {
        let record = self.sessions.get(&session)?;
        let held = instance::count(self.records_of_locks()).remove(&session).unwrap_or_default();
        let takes_part = |lock: &&LockRecord| {
            lock.id
                .kind
                .spread()
                .is_some_and(|spread| record.shares.iter().any(|share| share.spread == spread))
        };
        let locks = self.records_of_locks().filter(takes_part);
        let mut failing = instance::failing(self.sessions.values(), locks, self.now);
        let failing = failing.remove(&session).unwrap_or_default();
        Some(Instance::of(record.clone(), held, failing, self.now).beside(&self.clocks))
    }

    /// The spreads that have members or tasks; among them that of the schedules.
    #[must_use]
    pub fn spread_names(&self) -> BTreeSet<SpreadName> {
        let tasks = self.locks.keys().filter_map(|id| id.kind.spread());
        let alive = self.sessions.values().filter(|session| session.is_alive());
        let shares = alive.flat_map(|session| session.shares.iter().map(|share| share.spread.clone()));
        tasks.chain(shares).collect()
    }

    /// The spreads in numbers.
    #[must_use]
    pub fn spreads(&self) -> Vec<SpreadSummary> {
        self.judge_spreads(SpreadSummary::of)
    }

    /// Judges each spread, among them that of the schedules.
    pub(crate) fn judge_spreads<T>(&self, mut of: impl FnMut(&Judged<'_>) -> T) -> Vec<T> {
        let sessions: Vec<_> = self.sessions.values().cloned().collect();
        let named = spread::by_name(&sessions, self.records_of_locks().cloned());
        let judged = named.into_iter().map(|(name, locks)| {
            let is_whole = self.unread(&name).is_none();
            of(&Judged::of(name, &sessions, &locks, is_whole, self.now))
        });
        judged.collect()
    }

    /// Says why a spread cannot be judged: not all of its tasks and of the sessions were read.
    #[must_use]
    pub fn unread(&self, name: &SpreadName) -> Option<String> {
        let refused = [Source::Sessions, Source::Locks(Kind::of_tasks(name))];
        let refused = refused.iter().find_map(|source| self.refused.get(source)?.first());
        let unreadable = [Area::Sessions, Area::Tasks(name.clone())];
        let unreadable = unreadable
            .iter()
            .find_map(|area| Some(format!("the {area} cannot be read: {}", self.unreadable.get(area)?)));
        let is_read = self.read.sessions && self.read.spreads.contains(name);
        let unread = (!is_read).then(|| format!("not all tasks of {name} and all sessions were read"));
        refused.map(|(record, refusal)| format!("{record}: {refusal}")).or(unreadable).or(unread)
    }

    /// A spread, with so many of its tasks from there on; none if it has neither members nor tasks.
    #[must_use]
    pub fn spread(&self, name: &SpreadName, from: usize, at_most: usize) -> Option<SpreadView> {
        let locks = self.locks_of(&Kind::of_tasks(name));
        let shown = locks.get(from..).unwrap_or_default();
        let spread = self.spread_of(name.clone(), &locks, &shown[..shown.len().min(at_most)]);
        let is_known = !spread.members.is_empty() || !locks.is_empty();
        is_known.then_some(spread)
    }

    fn spread_of(&self, name: SpreadName, locks: &[LockRecord], shown: &[LockRecord]) -> SpreadView {
        let (sessions, is_whole) =
            (self.sessions.values().cloned().collect::<Vec<_>>(), self.unread(&name).is_none());
        Judged::of(name, &sessions, locks, is_whole, self.now).view(shown)
    }

    /// The number of tasks of a spread that are known.
    #[must_use]
    pub fn task_count(&self, name: &SpreadName) -> usize {
        let kind = Kind::of_tasks(name);
        self.locks.keys().filter(|id| id.kind == kind).count()
    }

    /// Says why a task is where its record says; of other keys there is nothing to say.
    #[must_use]
    pub fn reasons(&self, record: &LockRecord) -> Vec<String> {
        let Some(name) = record.id.kind.spread() else { return Vec::new() };
        let spread = self.spread_of(name, &self.locks_of(&record.id.kind), std::slice::from_ref(record));
        spread.tasks.into_iter().next().map(|task| task.why).unwrap_or_default()
    }

    /// A lock, if it is known.
    #[must_use]
    pub fn lock(&self, id: &LockId) -> Option<&LockRecord> {
        self.locks.get(id).map(|record| &**record)
    }

    /// The locks of one kind that are known, by their keys.
    #[must_use]
    pub fn locks_of(&self, kind: &Kind) -> Vec<LockRecord> {
        self.records_of_locks().filter(|record| record.id.kind == *kind).cloned().collect()
    }

    fn records_of_locks(&self) -> impl Iterator<Item = &LockRecord> {
        self.locks.values().map(|record| &**record)
    }

    /// The plain locks that are known, by their keys, and how their holders look.
    #[must_use]
    pub fn locks(&self) -> Vec<Lock> {
        let lives = self.lives();
        self.locks_of(&Kind::Lock).into_iter().map(|record| Lock::of(record, &lives, self.now)).collect()
    }

    /// Returns the queues of plain locks, but for empty ones.
    #[must_use]
    pub fn queues(&self) -> Vec<LockQueue> {
        let lives = self.lives();
        let queue = |(id, queue): (&LockId, &Queue)| {
            let record = LockRecord::clone(self.locks.get(id)?);
            let lock = Lock::of(record, &lives, self.now);
            let of_waiters = lives_of(queue, &lives, self.now);
            (!queue.waiters.is_empty()).then(|| LockQueue { lock, queue: queue.clone(), lives: of_waiters })
        };
        self.queues.iter().filter_map(queue).collect()
    }

    pub(crate) fn lives(&self) -> SessionStates {
        self.sessions.values().cloned().collect()
    }

    /// A schedule, if it is known.
    #[must_use]
    pub fn schedule(&self, name: &ScheduleName) -> Option<ScheduleView> {
        self.schedules.get(name).map(|schedule| self.as_of_now(schedule, &self.lives()))
    }

    /// The schedules that are known, by their names: so many after that one.
    #[must_use]
    pub fn schedules(&self, from: usize, at_most: usize) -> Vec<ScheduleView> {
        let lives = self.lives();
        self.schedules.values().skip(from).take(at_most).map(|one| self.as_of_now(one, &lives)).collect()
    }

    /// The number of schedules that are known.
    #[must_use]
    pub fn schedule_count(&self) -> usize {
        self.schedules.len()
    }

    /// Returns the number of schedules whose ledgers were read, and of those whose names are known.
    #[must_use]
    pub fn schedules_read(&self) -> (usize, usize) {
        let read = self.schedules.values().filter(|one| one.ledger.read_at.is_some()).count();
        (read, self.names.max(self.schedules.len()))
    }

    /// A schedule was read some time ago: its owner, and what is due, are as of now.
    fn as_of_now(&self, schedule: &ScheduleView, lives: &SessionStates) -> ScheduleView {
        let record = schedule.status.record.clone();
        let lock = self.locks.get(&lock_of(&record.id)).map(|record| &**record);
        ScheduleView::of(record, schedule.ledger.clone(), lock, lives, self.now)
    }

    /// Returns the longest ttl of the sessions that are not declared dead; a minute if there are none.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        let alive = self.sessions.values().filter(|session| session.is_alive());
        alive.map(|session| session.ttl).max().unwrap_or(Duration::from_secs(60))
    }

    /// Returns the changes of the last hour, as far as records remember, the last one first.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        self.changes.get_or_init(|| self.changes_since(self.now.minus(HOUR)))
    }

    /// Returns the changes since then, as far as records remember them, the last one first.
    #[must_use]
    pub fn changes_since(&self, since: StoreTime) -> Vec<Change> {
        let runs = self.schedules.values().flat_map(|schedule| &schedule.ledger.runs);
        let memory = change::Memory {
            locks: self.records_of_locks().filter(|record| changed_at(record).1 >= since),
            sessions: self.sessions.values(),
            schedules: self.schedules.values().map(|schedule| &schedule.status.record),
            runs: runs.filter(|run| run.finish.as_ref().map_or(run.started, |end| end.at) >= since),
        };
        let mut changes = change::since(memory, since, self.now);
        changes.reverse();
        changes
    }

    /// Judges the namespace by the usual limits.
    pub fn verdict(&self) -> &Verdict {
        self.verdict.get_or_init(|| self.verdict_by(&Limits::default()))
    }

    /// The schedules that may need attention, by what was read of them.
    #[must_use]
    pub fn troubled(&self) -> Vec<ScheduleView> {
        let lives = self.lives();
        let is_had =
            |lock: &LockRecord| holder(lock).is_some_and(|id| !lives.life(id, self.now).looks_dead());
        let may_be = |schedule: &&Arc<ScheduleView>| {
            let record = &schedule.status.record;
            let is_past = schedule.next.first().is_some_and(|next| *next <= self.now);
            let is_odd = schedule.paused || schedule.due.is_some() || schedule.status.failures > 0 || is_past;
            let is_new = record.definition.is_none() || !record.orders.is_empty();
            let is_refused = !schedule.ledger.refused.is_empty();
            is_odd
                || is_new
                || is_refused
                || !self.locks.get(&lock_of(&record.id)).is_some_and(|lock| is_had(lock))
        };
        self.schedules.values().filter(may_be).map(|one| self.as_of_now(one, &lives)).collect()
    }

    /// The namespace at a glance.
    #[must_use]
    pub fn overview(&self) -> Overview {
        let mut instances = self.instances();
        instances.sort_by_key(|one| (one.is_well(), one.life == Liveness::Closed));
        instances.truncate(SHOWN);
        let changes = self.changes();
        let mut changes = Group::all(changes.iter().filter(|change| change.severity() != Severity::Other));
        changes.sort_by_key(|group| !matches!(group.change.what, ChangeKind::InstanceDied { .. }));
        changes.truncate(SHOWN_CHANGES);
        Overview {
            namespace: self.namespace.clone(),
            now: self.now,
            verdict: self.verdict().clone(),
            trouble: self.trouble.clone(),
            unreadable: self.unreadable.clone(),
            deaf: self.deaf.clone(),
            instances,
            spreads: self.spreads(),
            changes,
            refused: self.refused(),
            read: self.read.clone(),
        }
    }
}

/// The last time at which a lock changed hands.
fn changed_at(record: &LockRecord) -> (bool, StoreTime) {
    let acquired = record.holding.as_ref().map(|held| held.acquired_at);
    let ended = record.past.first().map(|past| past.to);
    let at = acquired.max(ended).unwrap_or(StoreTime::from_millis(0));
    (holder(record).is_some() && record.wanted, at)
}

fn retain_latest<K: Ord + Clone, V, A: Ord>(map: &mut BTreeMap<K, V>, most: usize, age: impl Fn(&V) -> A) {
    if map.len() <= most {
        return;
    }
    let mut keys: Vec<_> = map.iter().map(|(key, value)| (age(value), key.clone())).collect();
    keys.sort_unstable_by(|a, b| b.cmp(a));
    for (_, key) in keys.drain(most..) {
        map.remove(&key);
    }
}
