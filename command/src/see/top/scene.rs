//! A namespace to look at in tests, the same at every run: by a clock that is turned by hand.

use std::{sync::Arc, time::Duration};

use tenure::{
    Clock,
    model::{
        Entry, Key, Kind, LockId, Namespace, Outcome, Rules, RunId, ScheduleId, SessionId, Skipped,
        SpreadName, StoreTime, Value, Why,
    },
    store::{
        About, Beat, BeatWrite, Candidate, Claim, Declaration, Define, Evidence, FailureRow, FinishRun,
        Instruction, MemoryStore, Nonce, Note, Open, Release, ReleaseTo, Share, Store, StoreExt, Take,
        TakeAnswer, Ticket, Wait,
    },
    testing::TestClock,
};
use tenure_look::{LivePicture, Picture, Reader};

const LIMIT: Duration = Duration::from_secs(1);
pub(super) const TTL: Duration = Duration::from_secs(30);
/// A hostile name: it moves the cursor, turns the writing, and is wide.
pub(super) const HOSTILE: &str = "<script>\u{202e}\u{65e5}\u{672c}\u{8a9e}\u{1f600}</script>";

/// A store of which all times are known.
pub(super) struct Scene {
    store: Arc<MemoryStore>,
    clock: Arc<TestClock>,
    namespace: Namespace,
    nonces: u64,
    terms: std::collections::BTreeMap<LockId, (SessionId, tenure::model::Term)>,
}

impl Scene {
    pub(super) fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let namespace = "shop".parse().unwrap();
        Self { store, clock, namespace, nonces: 0, terms: std::collections::BTreeMap::new() }
    }

    pub(super) fn pictures(&self) -> LivePicture {
        self.pictures_by(self.store.clone())
    }

    /// Pictures by a store around that of the scene.
    pub(super) fn pictures_by(&self, store: Arc<dyn Store>) -> LivePicture {
        LivePicture::new(Reader::new(store, self.namespace.clone()).clock(self.clock.clone()))
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// A picture of which all was read.
    pub(super) async fn picture(&self) -> Arc<Picture> {
        self.pictures().reader().picture().await.unwrap().into()
    }

    pub(super) async fn pass(&self, time: Duration) {
        tokio::time::advance(time).await;
    }

    fn now(&self) -> StoreTime {
        self.clock.wall()
    }

    fn nonce(&mut self) -> Nonce {
        self.nonces += 1;
        Nonce::new(self.nonces)
    }

    fn lock(&self, kind: Kind, key: &str) -> LockId {
        LockId { namespace: self.namespace.clone(), kind, key: Key::new(key).unwrap() }
    }

    fn schedule(&self, name: &str) -> ScheduleId {
        ScheduleId { namespace: self.namespace.clone(), name: name.parse().unwrap() }
    }

    pub(super) async fn open(&mut self, number: u128, holder: &str, shares: Vec<Share>) -> SessionId {
        let mut about = About::new(self.namespace.clone(), holder.parse().unwrap());
        (about.host, about.pid, about.program) =
            ("10.0.0.7".to_owned(), u32::try_from(4_000 + number).unwrap(), "shop 1.4".to_owned());
        let session = SessionId::from_u128(number);
        let open = Open { session, nonce: self.nonce(), about, ttl: TTL, shares, drained: None };
        self.store.open(open, LIMIT).await.unwrap();
        session
    }

    pub(super) async fn beat(&mut self, session: SessionId) {
        let nonce = self.nonce();
        let beat = BeatWrite::new(session, Beat::new(nonce.get()), nonce);
        self.store.beat(beat, LIMIT).await.unwrap();
    }

    async fn die(&self, session: SessionId, by: &str) {
        let (ground, by) = (Evidence::Operator, by.parse().unwrap());
        let declaration =
            Declaration { session, ground, by, why: Why::new("no beat for 30s").unwrap(), tell: Vec::new() };
        self.store.declare(declaration, LIMIT).await.unwrap();
    }

    fn candidate(session: SessionId, holder: &str) -> Candidate {
        Candidate::new(session, Ticket::new(1), TTL, holder.parse().unwrap())
    }

    async fn take(&mut self, lock: LockId, by: Candidate) {
        let session = by.session;
        let dead = self.terms.get(&lock).map(|(session, _)| *session).into_iter().collect();
        let take = Take { lock: lock.clone(), by };
        match self.store.take(vec![take], dead, LIMIT).await.unwrap().pop() {
            Some(TakeAnswer::Taken(record)) => self.terms.insert(lock, (session, record.term)),
            other => panic!("{lock} is free: {other:?}"),
        };
    }

    async fn release(&mut self, lock: &LockId, note: Option<Note>, then: ReleaseTo) {
        let (session, term) = self.terms.remove(lock).unwrap();
        let release = Release { lock: lock.clone(), session, term, note, then };
        self.store.release(vec![release], LIMIT).await.unwrap();
    }

    /// A run of a schedule that its holder claims now.
    async fn run(&self, name: &str, session: SessionId, holder: &str) -> RunId {
        let run = RunId::tick(self.schedule(name), self.now());
        let (_, term) = self.terms[&self.lock(Kind::Schedule, name)];
        let holder = holder.parse().unwrap();
        let claim =
            Claim { run: run.clone(), session, holder, term, attempt: 1, instead_of: None, skipped: None };
        self.store.claim(claim, LIMIT).await.unwrap();
        run
    }

    async fn finish(&self, run: RunId, session: SessionId, error: Option<&str>) {
        let (_, term) = self.terms[&LockId {
            namespace: self.namespace.clone(),
            kind: Kind::Schedule,
            key: Key::new(run.schedule.name.as_str()).unwrap(),
        }];
        let outcome = if error.is_some() { Outcome::Failed } else { Outcome::Succeeded };
        let error = error.map(|error| Why::new(error).unwrap());
        let finish = FinishRun { run, session, term, attempt: 1, outcome, error, last: true };
        self.store.finish(finish, LIMIT).await.unwrap();
    }

    async fn define(&self, name: &str, timing: &str) {
        let (_, term) = self.terms[&self.lock(Kind::Schedule, name)];
        let (timing, policies) = (Rules::new(timing).unwrap(), Rules::new("misfire one").unwrap());
        let define = Define { schedule: self.schedule(name), term, timing, policies, instead_of: None };
        self.store.define(define, LIMIT).await.unwrap();
    }

    /// A fleet in the middle of its day: one has died, one is silent, a task rests and one has no holder, two wait
    /// for a lock, a schedule fails and another one is paused.
    pub(super) async fn fleet() -> Self {
        let mut scene = Self::new();
        let minute = Duration::from_secs(60);
        let topics: SpreadName = "topics".parse().unwrap();
        let tasks = Kind::of_tasks(&topics);
        let (mut capped, mut drained) = (Share::new(topics.clone()), Share::new(topics.clone()));
        (capped.cap, drained.draining) = (9, true);
        let web_1 = scene.open(1, "web-1", vec![capped.clone()]).await;
        let web_2 = scene.open(2, "web-2", vec![capped.clone()]).await;
        let web_3 = scene.open(3, "web-3", vec![capped]).await;
        let web_4 = scene.open(4, "web-4", vec![drained]).await;
        let ops = scene.open(5, HOSTILE, vec![Share::new(Kind::Schedule.spread().unwrap())]).await;
        scene.pass(minute).await;
        for (session, holder, topics) in
            [(web_1, "web-1", 1..=4), (web_2, "web-2", 5..=7), (web_3, "web-3", 8..=10)]
        {
            for topic in topics {
                let lock = scene.lock(tasks.clone(), &format!("topic-{topic:02}"));
                scene.take(lock, Self::candidate(session, holder)).await;
            }
        }
        let mut leader = Self::candidate(web_1, "web-1");
        leader.who = Some("migrator".parse().unwrap());
        leader.why = Some(Why::new("moves the users to the new shards").unwrap());
        leader.value = Some(Value::new("a secret").unwrap());
        let lock = scene.lock(Kind::Lock, "leader");
        scene.take(lock.clone(), leader).await;
        for (session, holder) in [(web_2, "web-2"), (ops, HOSTILE)] {
            scene.pass(Duration::from_secs(1)).await;
            let wait = Wait { lock: lock.clone(), by: Self::candidate(session, holder) };
            scene.store.wait(vec![wait], LIMIT).await.unwrap();
        }
        let lock = scene.lock(Kind::Lock, HOSTILE);
        scene.take(lock, Self::candidate(web_4, "web-4")).await;
        for name in ["nightly", "report"] {
            let lock = scene.lock(Kind::Schedule, name);
            scene.take(lock, Self::candidate(ops, HOSTILE)).await;
        }
        scene.define("nightly", "*/5 * * * * in Europe/Berlin, vixie").await;
        scene.define("report", "0 6 1 * * in UTC").await;
        let (by, why) = ("anna".parse().unwrap(), Why::new("the month is not closed").unwrap());
        let pause = Instruction::Pause { by, why };
        scene.store.instruct(scene.schedule("report"), pause, LIMIT).await.unwrap();
        // Up to five minutes past: a run that went well, ticks that were not run, two that failed, one that is on.
        scene.pass(Duration::from_secs(178)).await;
        for (at, error) in [None, Some("disk full"), Some("disk full")].into_iter().enumerate() {
            scene.pass(minute).await;
            let run = scene.run("nightly", ops, HOSTILE).await;
            if at == 0 {
                let (from, why) = (scene.now(), Why::new("the run before was on").unwrap());
                let entry = Claim {
                    run: RunId {
                        entry: Entry::Skipped,
                        ..RunId::tick(scene.schedule("nightly"), scene.now().plus(minute))
                    },
                    session: ops,
                    holder: HOSTILE.parse().unwrap(),
                    term: scene.terms[&scene.lock(Kind::Schedule, "nightly")].1,
                    attempt: 1,
                    instead_of: None,
                    skipped: Some(Skipped { from, count: 2, why }),
                };
                scene.store.claim(entry, LIMIT).await.unwrap();
            }
            scene.pass(Duration::from_secs(3)).await;
            scene.finish(run, ops, error).await;
            scene.pass(Duration::from_secs(237)).await;
        }
        scene.run("nightly", ops, HOSTILE).await;
        // One fails its task until it rests, one dies, and two take over what it had, but for one.
        let [first, second, third] = ["pod-1", "pod-2", "pod-3"].map(|name| name.parse().unwrap());
        let since = StoreTime::from_millis(1_767_226_200_000);
        let row = FailureRow::begun(since, &first, "no route to host");
        let row = row.followed_by(&second, "no route to host").followed_by(&third, "no route to host");
        let lock = scene.lock(tasks.clone(), "topic-07");
        scene.release(&lock, Some(Note::Failing(row)), ReleaseTo::ClosedFor(10 * minute)).await;
        scene.die(web_3, "web-1").await;
        scene.pass(Duration::from_secs(2)).await;
        for (session, holder, topic) in [(web_1, "web-1", "topic-08"), (web_2, "web-2", "topic-09")] {
            let lock = scene.lock(tasks.clone(), topic);
            scene.take(lock, Self::candidate(session, holder)).await;
        }
        scene.beat(ops).await;
        scene.pass(TTL).await;
        for session in [web_1, web_4] {
            scene.beat(session).await;
        }
        scene.pass(Duration::from_secs(4)).await;
        scene.beat(web_2).await;
        scene
    }
}
