use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use tokio::sync::watch;

use tenure::{
    StoreError,
    model::{
        Holder, Key, Kind, LockId, MAX_NUMBER, Namespace, ScheduleId, ScheduleName, SessionId, SpreadName,
        Term, Value, Who, Why,
    },
    store::{
        About, Beat, BeatWrite, Candidate, Cursor, Declaration, Evidence, LockRecord, LockSeen, Nonce, Open,
        Page, Release, ReleaseTo, SessionRecord, SessionSeen, SetAnswer, SetValue, Store, StoreExt, Take,
        TakeAnswer, Ticket, Topic, Topics,
    },
};

/// Time a property waits for an answer: long enough for a store on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(30);

/// A ttl that is not over before the test is.
pub const TTL: Duration = Duration::from_secs(60);

/// A store, and a corner of it without other users.
///
/// Each fixture has a namespace of its own, and draws sessions and nonces that no other draws, so that
/// any number of properties can be checked against one store at the same time. What it leaves
/// behind does no harm.
///
/// ```
/// use std::sync::Arc;
/// use tenure::store::MemoryStore;
/// use tenure_conformance::Fixture;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let fixture = Fixture::new(Arc::new(MemoryStore::default()));
/// let lock = fixture.lock("nightly report");
/// let mine = fixture.candidate(fixture.session(), 1);
/// let record = fixture.taken(&lock, &mine).await;
/// assert!(record.is_granted_to(mine.session, mine.ticket));
/// # }
/// ```
#[derive(Debug)]
pub struct Fixture {
    store: Arc<dyn Store>,
    namespace: Namespace,
    random: RandomState,
    drawn: AtomicU64,
}

impl Fixture {
    /// A corner of that store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        let random = RandomState::new();
        let namespace = name(Namespace::new(format!("conformance-{:016x}", random.hash_one("namespace"))));
        Self { store, namespace, random, drawn: AtomicU64::new(0) }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The namespace that is this fixture's own.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A second corner of the same store.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::new(Arc::clone(&self.store))
    }

    fn draw(&self) -> u64 {
        self.random.hash_one(self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    /// A session that was never used.
    #[must_use]
    pub fn session(&self) -> SessionId {
        SessionId::from_u128((u128::from(self.draw()) << 64) | u128::from(self.draw()))
    }

    /// A nonce that was never used.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        Nonce::new(self.draw() & MAX_NUMBER)
    }

    /// A lock of this namespace.
    #[must_use]
    pub fn lock(&self, key: &str) -> LockId {
        self.lock_of(Kind::Lock, key)
    }

    /// A task of a spread of this namespace.
    #[must_use]
    pub fn task(&self, spread: &str, key: &str) -> LockId {
        self.lock_of(Kind::Task(name(SpreadName::new(spread))), key)
    }

    /// The topic of a spread of this namespace.
    #[must_use]
    pub fn topic(&self, spread: &str) -> Topic {
        Topic::Spread(self.namespace.clone(), name(SpreadName::new(spread)))
    }

    /// Topics of a listener that stays with them: that of a spread of this namespace.
    #[must_use]
    pub fn topics(&self, spread: &str) -> Topics {
        watch::channel([self.topic(spread)].into()).1
    }

    /// A lock of any kind of this namespace.
    #[must_use]
    pub fn lock_of(&self, kind: Kind, key: &str) -> LockId {
        LockId { namespace: self.namespace.clone(), kind, key: name(Key::new(key)) }
    }

    /// A schedule of this namespace.
    #[must_use]
    pub fn schedule(&self, schedule: &str) -> ScheduleId {
        ScheduleId { namespace: self.namespace.clone(), name: name(ScheduleName::new(schedule)) }
    }

    /// An instance of this namespace.
    #[must_use]
    pub fn about(&self) -> About {
        with!(
            About::new(self.namespace.clone(), holder("pod-1"));
            host: "host-1".to_owned(),
            pid: 4711,
            program: "conformance 1.0".to_owned(),
            plan_version: 1,
        )
    }

    /// A session to open: fresh, with a ttl of a minute, no shares, not judged by the store's clock.
    #[must_use]
    pub fn opening(&self) -> Open {
        Open {
            session: self.session(),
            nonce: self.nonce(),
            about: self.about(),
            ttl: TTL,
            shares: Vec::new(),
            drained: None,
        }
    }

    /// A beat of that number under a fresh nonce, which changes nothing else.
    #[must_use]
    pub fn beat(&self, session: SessionId, number: u64) -> BeatWrite {
        BeatWrite::new(session, Beat::new(number), self.nonce())
    }

    /// A candidate for a lock that gives nothing but its name.
    #[must_use]
    pub fn candidate(&self, session: SessionId, ticket: u64) -> Candidate {
        Candidate::new(session, Ticket::new(ticket), TTL, holder("pod-1"))
    }

    /// A candidate that gives all there is to give.
    #[must_use]
    pub fn talkative(&self, session: SessionId, ticket: u64) -> Candidate {
        with!(
            self.candidate(session, ticket);
            ttl: Duration::from_millis(61_234),
            holder: holder("pod-2"),
            who: Some(name(Who::new("the reporter"))),
            why: Some(why("month's end")),
            value: Some(value(b"page \x00 7 \xff")),
            lock_delay: Duration::from_millis(1),
        )
    }

    /// Opens a session.
    pub async fn open(&self, open: &Open) -> SessionSeen {
        sure(self.store.open(open.clone(), LIMIT)).await
    }

    /// A fresh session, opened and alive.
    pub async fn opened(&self) -> SessionRecord {
        match self.open(&self.opening()).await {
            SessionSeen::Alive(record) => record,
            other => panic!("opening a session of a new id must find it alive, not {other:?}"),
        }
    }

    /// A fresh session, opened and declared dead by an operator.
    pub async fn dead_session(&self) -> SessionId {
        let session = self.opened().await.id;
        self.declare_dead(session).await;
        session
    }

    /// Writes a beat.
    pub async fn send(&self, beat: &BeatWrite) -> SessionSeen {
        sure(self.store.beat(beat.clone(), LIMIT)).await
    }

    /// Observes a session.
    pub async fn seen(&self, session: SessionId) -> SessionSeen {
        let mut seen = sure(self.store.observe(vec![session], LIMIT)).await;
        assert_eq!(seen.len(), 1, "observing one session must answer with one sighting");
        seen.remove(0)
    }

    /// Declares a session dead on that ground, by "the watcher".
    pub async fn declare(&self, session: SessionId, ground: Evidence) -> SessionSeen {
        let declaration = Declaration {
            session,
            ground,
            by: holder("the watcher"),
            why: why("no beat seen"),
            tell: Vec::new(),
        };
        sure(self.store.declare(declaration, LIMIT)).await
    }

    /// An operator declares a session dead.
    pub async fn declare_dead(&self, session: SessionId) -> SessionRecord {
        match self.declare(session, Evidence::Operator).await {
            SessionSeen::Dead(record) => record,
            other => panic!("an operator's word must end a session that was opened, not leave it {other:?}"),
        }
    }

    /// Takes locks in one batch.
    pub async fn take_all(&self, takes: Vec<Take>, dead: &[SessionId]) -> Vec<TakeAnswer> {
        let asked = takes.len();
        let answers = sure(self.store.take(takes, dead.to_vec(), LIMIT)).await;
        assert_eq!(answers.len(), asked, "a batch of takes must be answered key by key");
        answers
    }

    /// Takes one lock, naming sessions known to be dead.
    pub async fn take_over(&self, lock: &LockId, by: &Candidate, dead: &[SessionId]) -> TakeAnswer {
        let take = Take { lock: lock.clone(), by: by.clone() };
        self.take_all(vec![take], dead).await.remove(0)
    }

    /// Takes one lock.
    pub async fn take(&self, lock: &LockId, by: &Candidate) -> TakeAnswer {
        self.take_over(lock, by, &[]).await
    }

    /// Takes one lock that must be granted.
    pub async fn taken(&self, lock: &LockId, by: &Candidate) -> LockRecord {
        granted(self.take(lock, by).await)
    }

    /// Takes one lock for a ticket of a session that says nothing but its name.
    pub async fn held(&self, lock: &LockId, session: SessionId, ticket: u64) -> LockRecord {
        self.taken(lock, &self.candidate(session, ticket)).await
    }

    /// Releases one lock.
    pub async fn release(&self, lock: &LockId, session: SessionId, term: Term, then: ReleaseTo) {
        let release = Release { lock: lock.clone(), session, term, note: None, then };
        self.release_as(release).await;
    }

    /// Releases one lock in all detail.
    pub async fn release_as(&self, release: Release) {
        let answers = sure(self.store.release(vec![release], LIMIT)).await;
        let expected = [tenure::store::ReleaseAnswer::Released];
        assert_eq!(answers, expected, "a release of a record that is whole must answer `Released`");
        self.settle().await;
    }

    /// Sees to it that reads from here on see every release that was answered: a write that decides
    /// something keeps what was written before it, also if it changes nothing.
    pub async fn settle(&self) {
        let nobody = self.declare(self.session(), Evidence::Operator).await;
        assert_eq!(nobody, SessionSeen::Missing, "a session nobody opened is missing");
    }

    /// Frees a lock and returns its record.
    pub async fn freed(&self, record: &LockRecord) -> LockRecord {
        let held = record.holding.as_ref().expect("only a lock in somebody's hand is released");
        self.release(&record.id, held.by.session, record.term, ReleaseTo::Free).await;
        let freed = self.record(&record.id).await;
        assert_eq!(freed.holding, None, "after its holder's release nobody holds a lock");
        freed
    }

    /// Reads one lock.
    pub async fn look(&self, lock: &LockId) -> LockSeen {
        let mut seen = sure(self.store.locks(vec![lock.clone()], LIMIT)).await;
        assert_eq!(seen.len(), 1, "reading one lock must answer with one");
        seen.remove(0)
    }

    /// Reads one lock that must be there.
    pub async fn record(&self, lock: &LockId) -> LockRecord {
        match self.look(lock).await {
            LockSeen::Found(record) => record,
            other => panic!("{lock} must have a record, but was {other:?}"),
        }
    }

    /// Sets a value.
    pub async fn set(
        &self,
        lock: &LockId,
        session: SessionId,
        term: Term,
        value: Option<Value>,
    ) -> SetAnswer {
        // Each change is later than the one before.
        let number = self.drawn.fetch_add(1, Ordering::Relaxed) + 1;
        let set = SetValue { lock: lock.clone(), session, term, number, value };
        sure(self.store.set_value(set, LIMIT)).await
    }
}

/// The answer of a store that did not fail.
pub(crate) async fn sure<T>(answer: impl Future<Output = Result<T, StoreError>>) -> T {
    answer.await.unwrap_or_else(|error| panic!("the store must answer here, but {error}"))
}

/// The record of a take that must be granted.
#[track_caller]
pub(crate) fn granted(answer: TakeAnswer) -> LockRecord {
    match answer {
        TakeAnswer::Taken(record) => record,
        other => panic!("the lock must be granted here, but the answer was {other:?}"),
    }
}

/// A name within its limits.
#[track_caller]
pub(crate) fn name<T, E: std::fmt::Display>(name: Result<T, E>) -> T {
    name.unwrap_or_else(|error| panic!("names used in a property are within the limits, but {error}"))
}

pub(crate) fn holder(text: &str) -> Holder {
    name(Holder::new(text))
}

pub(crate) fn why(text: &str) -> Why {
    name(Why::new(text))
}

pub(crate) fn value(bytes: &[u8]) -> Value {
    name(Value::new(bytes))
}

/// All items of a listing, got page by page. `fetch` answers with the page after a cursor.
pub(crate) async fn all_pages<T>(
    at_most: usize,
    mut fetch: impl AsyncFnMut(Option<Cursor>) -> Page<T>,
) -> Vec<T> {
    let mut items = Vec::new();
    let mut after = None;
    for _ in 0..10_000 {
        let Page { items: more, refused, next, .. } = fetch(after).await;
        assert_eq!(refused, [], "nothing in a namespace that only the suite writes to may be refused");
        assert!(more.len() <= at_most, "a page must hold at most {at_most} items, not {}", more.len());
        items.extend(more);
        let Some(next) = next else { return items };
        after = Some(next);
    }
    panic!("a listing must come to an end");
}

/// Tries until there is an answer, for as long as a busy server may need.
pub(crate) async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    for turn in 0..600_u64 {
        if let Some(answer) = attempt().await {
            return answer;
        }
        // The store's clock has to go on: longer and longer, up to 50 ms.
        tokio::time::sleep(Duration::from_millis((turn + 1).min(50))).await;
    }
    panic!("it must come about in the end that {what}");
}

/// Results of many tasks that start at the same moment.
pub(crate) async fn race<T, F>(tasks: usize, mut task: impl FnMut(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let start = Arc::new(tokio::sync::Barrier::new(tasks));
    let started: Vec<_> = (0..tasks)
        .map(|number| {
            let (start, task) = (Arc::clone(&start), task(number));
            tokio::spawn(async move {
                start.wait().await;
                task.await
            })
        })
        .collect();
    let done = started.into_iter().map(|task| task.map(|done| done.expect("no task of a race may panic")));
    futures::future::join_all(done).await
}
