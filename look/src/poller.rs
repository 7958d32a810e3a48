//! Reads for a picture, and their order. Every step is a command or two, whatever the store holds.
//!
//! ```text
//!  first turn  sessions ─▶ schedules, spreads, locks: a page each ─▶ latest grants ─▶ ledgers of a page of schedules
//!  next turns  the same, and ten pages of names and of ledgers each, until all were read
//!  each turn   sessions ─▶ a page of one kind of lock ─▶ latest grants ─▶ ledgers of what was due, and of a few others
//!  a hint      the records that it names
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::Hash,
    time::Duration,
};

use crate::{Area, Ledger, Picture, Reader, Source, picture::SCHEDULES, reader::holder, schedule::on};
use tenure::{
    StoreError,
    clock::Moment,
    model::{Kind, LockId, ScheduleId, ScheduleName, SessionId},
    store::{Cursor, Hint, LockRecord, LockSeen, News, Page, Refusal, ScheduleSeen, SessionSeen, Topic},
};

/// Sessions and tasks that are read at once. Their records are small, and most of them are of interest.
const MANY: usize = 1000;
/// Spreads of which the first picture has tasks; the others come with the turns.
const FIRST_SPREADS: usize = 6;
/// Grants that are looked at: more than there are in a turn at rest.
const GRANTS: usize = 100;
/// Sessions whose grants are looked at in one command: MongoDB merges so many, and no more.
const GRANTED: usize = 200;
/// Waiters of a queue that are read, and queues in one turn.
const WAITERS: usize = 20;
const LINES: usize = 2;
/// Schedules whose ledgers are read in one turn, and those of them that were read before and have no news.
const LEDGERS: usize = 100;
const REST: usize = 10;
/// Pages of names, and of ledgers that were not read yet, in one turn after the first.
const BATCHES: usize = 10;
/// The walk over all records of schedules finds those that have no lock: a page each turn until all were seen once,
/// and so many each so many turns afterwards.
const WALK: usize = 3;
const WALKS: u64 = 4;
/// Spreads to whose hints it listens: each has streams of its own where many share a store.
const TOPICS: usize = 8;
/// Records of one sort that hints have read at once; the others are read later.
const HINTED: usize = 100;
/// Beats are read no more often because of hints.
const BEATS: Duration = Duration::from_secs(1);

/// Reads a namespace, a little at a time.
#[derive(Debug)]
pub(crate) struct Poller {
    reader: Reader,
    picture: Picture,
    sessions: Listing<SessionId>,
    beats_at: Option<Moment>,
    kinds: BTreeMap<Kind, Listing<LockId>>,
    /// Kinds of locks, in the order of their turns.
    order: VecDeque<Kind>,
    records: Listing<ScheduleName>,
    /// All of those records were seen once.
    has_walked: bool,
    /// Schedules by the time since they were read: the first one waits longest.
    waiting: VecDeque<ScheduleName>,
    /// Records that hints name, to be read.
    wanted: Pending,
    turn: u64,
    /// The turn has left ledgers that were not read yet.
    pub(crate) is_behind: bool,
}

/// A listing that is read a page at a time, over and over.
#[derive(Debug)]
struct Listing<K> {
    after: Option<Cursor>,
    found: ListingResult<K>,
}

/// Items that a round has found so far.
#[derive(Debug)]
struct ListingResult<K> {
    /// Items that the picture has; others were beyond its bounds.
    kept: BTreeSet<K>,
    count: usize,
    refused: Vec<(String, Refusal)>,
}

impl<K> Default for ListingResult<K> {
    fn default() -> Self {
        Self { kept: BTreeSet::new(), count: 0, refused: Vec::new() }
    }
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self { after: None, found: ListingResult::default() }
    }
}

impl<K: Ord> Listing<K> {
    /// Takes in a page. Returns what the round has found if it has ended with it: whatever else is known is gone.
    fn absorb_page(
        &mut self,
        found: impl IntoIterator<Item = K>,
        refused: Vec<(String, Refusal)>,
        next: Option<Cursor>,
    ) -> Option<ListingResult<K>> {
        for one in found {
            self.found.kept.insert(one);
            self.found.count += 1;
        }
        self.found.refused.extend(refused);
        self.after = next;
        self.after.is_none().then(|| std::mem::take(&mut self.found))
    }
}

/// Records that hints name, to be read.
#[derive(Debug, Default)]
struct Pending {
    /// The hints have a gap: what has changed may be anywhere.
    resync: bool,
    locks: BTreeSet<LockId>,
    sessions: BTreeSet<SessionId>,
    schedules: BTreeSet<ScheduleName>,
}

impl Pending {
    fn is_nothing(&self) -> bool {
        !self.resync && self.locks.is_empty() && self.sessions.is_empty() && self.schedules.is_empty()
    }
}

impl Poller {
    pub(crate) fn new(reader: Reader) -> Self {
        let now = reader.now();
        Self {
            picture: Picture::new(&reader, now),
            reader,
            sessions: Listing::default(),
            beats_at: None,
            kinds: BTreeMap::new(),
            order: VecDeque::new(),
            records: Listing::default(),
            has_walked: false,
            waiting: VecDeque::new(),
            wanted: Pending::default(),
            turn: 0,
            is_behind: false,
        }
    }

    /// Returns the picture as read so far.
    pub(crate) fn picture(&self) -> Picture {
        self.picture.clone()
    }

    /// Returns whether anything was read yet.
    pub(crate) const fn has_begun(&self) -> bool {
        self.beats_at.is_some()
    }

    /// A turn has ended so: what it could not read is old.
    pub(crate) fn ended(&mut self, error: Option<&StoreError>) {
        let unread = self.picture.unreadable.get(&Area::Sessions).filter(|_| !self.has_begun());
        self.picture.trouble = error.map(ToString::to_string).or_else(|| unread.cloned());
    }

    /// The topics that ring of what is in the picture.
    pub(crate) fn topics(&self) -> BTreeSet<Topic> {
        let namespace = self.reader.namespace();
        let spreads = Kind::Schedule.spread().into_iter().chain(self.picture.spread_names());
        let topic = |spread| Topic::Spread(namespace.clone(), spread);
        in_order(spreads).take(TOPICS).map(topic).collect()
    }

    // ----- when it reads

    /// Reads what may have changed without a hint, and a little of the rest; the first time, what a first screen shows.
    ///
    /// A refusal of the store does not keep it from the rest; a store that does not answer at all ends the turn.
    pub(crate) async fn turn(&mut self) -> Result<(), StoreError> {
        self.is_behind = false;
        let read = self.parts().await;
        self.picture.keep_in_bounds();
        self.count_schedules();
        self.turn += 1;
        read
    }

    async fn parts(&mut self) -> Result<(), StoreError> {
        let read = self.list_sessions().await;
        self.note(Area::Sessions, read)?;
        self.learn_kinds();
        let at_once = if self.turn == 0 { FIRST_SPREADS + 2 } else { 1 };
        for _ in 0..at_once.min(self.order.len()) {
            // Whatever comes of it, the next turn is that of the next one.
            self.order.rotate_left(1);
            if let Some(kind) = self.order.back().cloned() {
                let read = self.list_locks(&kind).await;
                self.note(kind.spread().map_or(Area::Locks, Area::Tasks), read)?;
            }
        }
        let latest = self.grants().await;
        self.wanted.resync = false;
        // No read of the first turn: MongoDB has a command for each record.
        if self.has_walked && self.turn % WALKS == 1 {
            let read = self.walk(WALK).await;
            self.note(Area::Schedules, read)?;
        }
        for _ in 0..if self.turn == 0 || self.has_walked { 0 } else { BATCHES } {
            let read = self.walk(Reader::PAGE).await;
            let is_over = read.is_err() || self.has_walked;
            self.note(Area::Schedules, read)?;
            if is_over {
                break;
            }
        }
        let read = self.ledgers().await;
        self.note(Area::Ledgers, read)?;
        let read = self.queues().await;
        self.note(Area::Waiters, read)?;
        let hinted = self.read_hinted().await;
        self.note(Area::Latest, latest.and(hinted))
    }

    /// Notes whether a part can be read. A store that does not answer at all ends the turn.
    fn note(&mut self, area: Area, read: Result<(), StoreError>) -> Result<(), StoreError> {
        match read {
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => drop(self.picture.unreadable.insert(area, error.to_string())),
            Ok(()) => drop(self.picture.unreadable.remove(&area)),
        }
        Ok(())
    }

    /// Reads everything, a page after the other.
    pub(crate) async fn all(&mut self) -> Result<(), StoreError> {
        self.turn().await?;
        while !self.picture.read.sessions && self.sessions.after.is_some() {
            self.list_sessions().await?;
        }
        self.learn_kinds();
        for kind in self.order.clone() {
            while self.kinds.get(&kind).is_none_or(|round| round.after.is_some()) {
                self.list_locks(&kind).await?;
            }
        }
        loop {
            self.walk(Reader::PAGE).await?;
            if self.records.after.is_none() {
                break;
            }
        }
        while self.waiting.iter().any(|name| self.is_unread(name)) {
            self.ledgers().await?;
        }
        let is_unread = |id: &LockId| id.kind == Kind::Lock && !self.picture.queues.contains_key(id);
        let wanted = self.picture.locks.iter().filter(|(id, record)| record.wanted && is_unread(id));
        for _ in 0..wanted.count().div_ceil(LINES).min(LEDGERS) {
            self.queues().await?;
        }
        self.picture.keep_in_bounds();
        self.count_schedules();
        Ok(())
    }

    // ----- hints

    pub(crate) fn apply_hint(&mut self, hint: Hint) {
        let wanted = &mut self.wanted;
        // Others may share its bucket.
        let namespace = self.reader.namespace();
        match hint {
            Hint::Resync => {
                wanted.resync = true;
                self.picture.deaf = None;
            }
            Hint::Failing { error, .. } => self.picture.deaf = Some(error),
            Hint::News(News::Lock(lock) | News::Handed(lock) | News::Revoked(lock))
                if lock.namespace == *namespace =>
            {
                wanted.locks.insert(lock);
            }
            Hint::News(News::Member(session) | News::Asked(session)) => {
                wanted.sessions.insert(session);
            }
            Hint::News(News::Schedule(schedule)) if schedule.namespace == *namespace => {
                wanted.schedules.insert(schedule.name);
            }
            // A picture shows no waiters of a task. Trouble with sending hints is for the instances that send them.
            _ => {}
        }
    }

    /// Reads what hints name. Returns whether they name anything.
    pub(crate) async fn hinted(&mut self) -> Result<bool, StoreError> {
        if self.wanted.is_nothing() {
            return Ok(false);
        }
        let is_long_ago = |at: Moment| self.reader.moment().since(at) >= BEATS;
        if self.beats_at.is_none_or(is_long_ago) {
            self.list_sessions().await?;
            if std::mem::take(&mut self.wanted.resync) {
                self.grants().await?;
            }
        }
        // Never report a record as newer than now.
        self.picture.now = self.picture.now.max(self.reader.now());
        self.read_hinted().await?;
        self.picture.keep_in_bounds();
        Ok(true)
    }

    /// Reads wanted records; those of a failed read stay wanted.
    async fn read_hinted(&mut self) -> Result<(), StoreError> {
        let locks: Vec<_> = self.wanted.locks.iter().take(MANY).cloned().collect();
        self.read_locks(&locks).await?;
        for lock in &locks {
            self.wanted.locks.remove(lock);
        }
        let sessions: BTreeSet<_> = self.wanted.sessions.iter().take(MANY).copied().collect();
        self.observe(sessions.clone()).await?;
        self.wanted.sessions.retain(|session| !sessions.contains(session));
        let schedules: Vec<_> = self.wanted.schedules.iter().take(HINTED).cloned().collect();
        self.read_schedules(schedules.clone()).await?;
        for schedule in &schedules {
            self.wanted.schedules.remove(schedule);
        }
        Ok(())
    }

    // ----- sessions

    async fn list_sessions(&mut self) -> Result<(), StoreError> {
        let is_first_page = self.sessions.after.is_none();
        let page = self.reader.sessions(self.sessions.after.clone(), MANY).await?;
        let is_all = is_first_page && page.next.is_none();
        let ids: Vec<_> = page.items.iter().map(|record| record.id).collect();
        self.picture.sessions.extend(page.items.into_iter().map(|record| (record.id, record)));
        if let Some(all) = self.sessions.absorb_page(ids, page.refused, page.next) {
            self.picture.sessions.retain(|id, _| all.kept.contains(id));
            self.picture.read.sessions = self.picture.sessions.len() >= all.count;
            self.picture.refuse(Source::Sessions, all.refused);
        }
        if !is_all {
            // Sessions that beat are read each time, wherever the round is.
            let alive = self.picture.sessions().filter(|record| record.is_alive()).map(|record| record.id);
            self.observe(alive.take(MANY).collect()).await?;
        }
        // A clock that was wrong once, theirs or ours, is not believed for ever.
        (self.picture.now, self.picture.clocks) = (self.reader.now(), self.reader.clocks());
        self.beats_at = Some(self.reader.moment());
        Ok(())
    }

    async fn observe(&mut self, sessions: BTreeSet<SessionId>) -> Result<(), StoreError> {
        if sessions.is_empty() {
            return Ok(());
        }
        let lives = self.reader.observe(sessions.iter().copied()).await?;
        for id in sessions {
            match lives.seen(id) {
                Some(SessionSeen::Alive(record) | SessionSeen::Dead(record)) => {
                    // A hint may be of another namespace that shares its bucket.
                    if record.about.namespace == *self.reader.namespace() {
                        self.sessions.found.kept.insert(id);
                        self.picture.sessions.insert(id, record.clone());
                    }
                }
                Some(SessionSeen::Missing) => {
                    self.picture.sessions.remove(&id);
                }
                Some(SessionSeen::Refused(_)) | None => {}
            }
        }
        Ok(())
    }

    // ----- locks

    /// The kinds that may have locks: those of members, also of dead ones, and those of known locks.
    fn learn_kinds(&mut self) {
        let shares = self.picture.sessions().flat_map(|session| &session.shares);
        let tasks = shares.map(|share| Kind::of_tasks(&share.spread));
        let known = self.picture.locks.keys().map(|id| id.kind.clone());
        let kinds: BTreeSet<_> = [Kind::Lock, Kind::Schedule].into_iter().chain(tasks).chain(known).collect();
        self.order.retain(|kind| kinds.contains(kind));
        self.kinds.retain(|kind, _| kinds.contains(kind));
        // Schedules and plain locks first.
        for kind in [Kind::Schedule, Kind::Lock].into_iter().chain(kinds) {
            if !self.order.contains(&kind) {
                self.order.push_back(kind);
            }
        }
    }

    async fn list_locks(&mut self, kind: &Kind) -> Result<(), StoreError> {
        let at_most = if *kind == Kind::Lock { Reader::PAGE } else { MANY };
        let after = self.kinds.get(kind).and_then(|round| round.after.clone());
        let page = self.reader.lock_records(Some(kind.clone()), after, at_most).await?;
        let Page { items, refused, next, .. } = page;
        let round = self.kinds.entry(kind.clone()).or_default();
        if round.found.kept.len() > 2 * MANY {
            let known = &self.picture.locks;
            round.found.kept.retain(|id| known.contains_key(id));
        }
        let ended = round.absorb_page(items.iter().map(|record| record.id.clone()), refused, next);
        self.find(items.iter().filter_map(holder)).await?;
        for record in items {
            self.take_lock(record);
        }
        if let Some(all) = ended {
            self.picture.locks.retain(|id, _| id.kind != *kind || all.kept.contains(id));
            self.picture.refuse(Source::Locks(kind.clone()), all.refused);
            let is_whole = self.picture.locks.keys().filter(|id| id.kind == *kind).count() >= all.count;
            match kind.spread() {
                Some(spread) if is_whole => drop(self.picture.read.spreads.insert(spread)),
                Some(spread) => drop(self.picture.read.spreads.remove(&spread)),
                None => self.picture.read.locks = is_whole,
            }
        }
        Ok(())
    }

    /// Reads sessions that are not known yet: of other pages, or opened since. If they are refused, the list of the
    /// sessions is, too, and says so.
    async fn find(&mut self, sessions: impl Iterator<Item = SessionId>) -> Result<(), StoreError> {
        let unknown = sessions.filter(|session| !self.picture.sessions.contains_key(session)).collect();
        self.observe(unknown).await.or_else(|error| if error.is_retryable() { Err(error) } else { Ok(()) })
    }

    fn take_lock(&mut self, record: LockRecord) {
        if let Some(round) = self.kinds.get_mut(&record.id.kind) {
            round.found.kept.insert(record.id.clone());
        }
        if record.id.kind == Kind::Schedule
            && let Ok(name) = ScheduleName::new(record.id.key.as_str())
        {
            self.note_name(name);
        }
        self.picture.take_lock(record);
    }

    /// Reads the latest grants. A lost lock that should be among them is found by that, too.
    async fn grants(&mut self) -> Result<(), StoreError> {
        let alive = self.picture.sessions().filter(|record| record.is_alive()).map(|record| record.id);
        let alive: Vec<_> = alive.collect();
        // More than can be asked for at once take turns.
        let at = usize::try_from(self.turn).unwrap_or_default() * GRANTED % alive.len().max(1);
        let at = if alive.len() > GRANTED { at } else { 0 };
        let asked: BTreeSet<SessionId> =
            alive.iter().cycle().skip(at).take(GRANTED.min(alive.len())).copied().collect();
        if asked.is_empty() {
            return Ok(());
        }
        let grants = self.reader.latest_grants(asked.iter().copied().collect(), GRANTS).await?;
        let least = grants.last().map(|record| record.term).filter(|_| grants.len() >= GRANTS);
        let found: BTreeSet<_> = grants.iter().map(|record| record.id.clone()).collect();
        let gone = self.picture.locks.values().filter(|record| {
            let is_asked = holder(record).is_some_and(|session| asked.contains(&session));
            is_asked && least.is_none_or(|least| record.term > least) && !found.contains(&record.id)
        });
        let gone: Vec<_> = gone.map(|record| record.id.clone()).take(GRANTS).collect();
        for record in grants {
            self.take_lock(record);
        }
        self.read_locks(&gone).await
    }

    async fn read_locks(&mut self, ids: &[LockId]) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let seen = self.reader.seen_locks(ids).await?;
        let found =
            seen.iter().filter_map(|seen| if let LockSeen::Found(lock) = seen { holder(lock) } else { None });
        self.find(found).await?;
        for (id, seen) in ids.iter().zip(seen) {
            match seen {
                LockSeen::Found(record) => self.take_lock(record),
                // One that cannot be used is told by the listing that comes to it.
                LockSeen::Absent | LockSeen::Refused(_) => self.picture.drop_lock(id),
            }
        }
        Ok(())
    }

    /// Reads some of the queues of plain locks, each in its turn.
    async fn queues(&mut self) -> Result<(), StoreError> {
        let plain = self.picture.locks.values().filter(|record| record.id.kind == Kind::Lock);
        let wanted: Vec<_> = plain.filter(|record| record.wanted).map(|record| record.id.clone()).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let unread = wanted.iter().filter(|id| !self.picture.queues.contains_key(id)).cloned();
        let at = usize::try_from(self.turn).unwrap_or_default() * LINES % wanted.len();
        let others = wanted.iter().cycle().skip(at).take(wanted.len()).cloned();
        let next: Vec<_> = in_order(unread.chain(others)).take(LINES).collect();
        for id in next {
            let queue = self.reader.queue(id.clone(), WAITERS).await?;
            self.find(queue.waiters.iter().map(|waiter| waiter.by.session)).await?;
            self.picture.take_queue(id, queue);
        }
        Ok(())
    }

    // ----- schedules

    fn is_unread(&self, name: &ScheduleName) -> bool {
        self.picture.schedules.get(name).is_none_or(|schedule| schedule.ledger.read_at.is_none())
    }

    /// Notes a schedule to be read, if there is room for it.
    fn note_name(&mut self, name: ScheduleName) {
        let is_known = self.picture.schedules.contains_key(&name) || self.waiting.contains(&name);
        if !is_known && self.waiting.len() < SCHEDULES {
            self.waiting.push_front(name);
        }
    }

    fn count_schedules(&mut self) {
        let unread = self.waiting.iter().filter(|name| self.is_unread(name)).count();
        self.picture.names = self.waiting.len();
        self.picture.read.schedules = self.has_walked && unread == 0 && self.waiting.len() < SCHEDULES;
        self.is_behind &= unread > 0;
    }

    /// Reads ledgers: in the first turn a batch, and then those that were not read yet, a batch after the other.
    async fn ledgers(&mut self) -> Result<(), StoreError> {
        let unread: Vec<_> = self.waiting.iter().filter(|name| self.is_unread(name)).cloned().collect();
        let ids = unread.iter().take(MANY).filter(|name| !self.picture.schedules.contains_key(name));
        let ids: Vec<_> = ids.map(|name| self.id_of(name)).collect();
        if ids.len() > LEDGERS {
            for seen in self.reader.seen_schedules(&ids).await? {
                if let ScheduleSeen::Found(record) = seen {
                    self.picture.take_schedule(record, Ledger::default());
                }
            }
        }
        self.some_ledgers().await?;
        let batches = if self.turn == 0 { 0 } else { BATCHES - 1 };
        for batch in unread.chunks(LEDGERS).take(batches) {
            let still = batch.iter().filter(|name| self.is_unread(name) && self.waiting.contains(name));
            self.read_schedules(still.cloned().collect()).await?;
        }
        self.is_behind = true;
        Ok(())
    }

    /// Reads the ledgers of schedules that had a tick or are in a run, of those that were not read yet, and of a few
    /// others: of each sort those first that wait longest.
    async fn some_ledgers(&mut self) -> Result<(), StoreError> {
        let now = self.picture.now();
        let has_news = |schedule: &super::ScheduleView| {
            schedule.running
                || schedule.due.is_some()
                || !schedule.status.record.orders.is_empty()
                || schedule.next.first().is_some_and(|next| *next <= now)
        };
        let (mut new, mut news, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for name in &self.waiting {
            match self.picture.schedules.get(name) {
                Some(schedule) if schedule.ledger.read_at.is_some() && has_news(schedule) => news.push(name),
                Some(schedule) if schedule.ledger.read_at.is_some() => rest.push(name),
                _ => new.push(name),
            }
        }
        // However many have news, new ones are found, and none is left out.
        let news_and_new = news.iter().take(LEDGERS / 2).chain(&new).chain(news.iter().skip(LEDGERS / 2));
        let names = news_and_new.take(LEDGERS - REST).chain(rest.iter().take(REST));
        let names = names.map(|name| (*name).clone()).collect();
        self.read_schedules(names).await
    }

    fn id_of(&self, name: &ScheduleName) -> ScheduleId {
        ScheduleId { namespace: self.reader.namespace().clone(), name: name.clone() }
    }

    async fn read_schedules(&mut self, names: Vec<ScheduleName>) -> Result<(), StoreError> {
        if names.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = names.iter().map(|name| self.id_of(name)).collect();
        let seen = self.reader.seen_schedules(&ids).await?;
        let ledgers = self.reader.last_runs(&ids, super::ScheduleView::RUNS).await?;
        self.find(ledgers.iter().filter_map(|ledger| on(&ledger.items)).map(|run| run.session)).await?;
        let read: BTreeSet<_> = names.iter().cloned().collect();
        self.waiting.retain(|name| !read.contains(name));
        for (name, (seen, ledger)) in names.into_iter().zip(seen.into_iter().zip(ledgers)) {
            let source = Source::Schedule(name.clone());
            match seen {
                ScheduleSeen::Found(_) if self.waiting.len() >= SCHEDULES => {}
                ScheduleSeen::Found(record) => {
                    self.records.found.kept.insert(name.clone());
                    self.picture.refuse(source, Vec::new());
                    self.picture.take_schedule(record, Ledger::of(ledger, self.picture.now));
                    self.waiting.push_back(name);
                }
                ScheduleSeen::Absent => {
                    self.picture.refuse(source, Vec::new());
                    self.picture.schedules.remove(&name);
                }
                ScheduleSeen::Refused(refusal) => {
                    self.picture.refuse(source, vec![(format!("schedule {name}"), refusal)]);
                    self.picture.schedules.remove(&name);
                }
            }
        }
        Ok(())
    }

    /// Goes over the records of all schedules: one that had no owner for long has no lock any more.
    async fn walk(&mut self, at_most: usize) -> Result<(), StoreError> {
        let page = self.reader.schedule_records(self.records.after.clone(), at_most).await?;
        let names: Vec<_> = page.items.iter().map(|record| record.id.name.clone()).collect();
        for record in page.items {
            self.note_name(record.id.name.clone());
            if self.picture.schedules.len() < SCHEDULES {
                self.picture.take_schedule(record, Ledger::default());
            }
        }
        if let Some(all) = self.records.absorb_page(names, page.refused, page.next) {
            self.picture.refuse(Source::Schedules, all.refused);
            self.has_walked = true;
        }
        Ok(())
    }
}

/// Each once, where it comes first.
fn in_order<T: Clone + Ord + Hash>(items: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    let mut seen = BTreeSet::new();
    items.into_iter().filter(move |item| seen.insert(item.clone()))
}
