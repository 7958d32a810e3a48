//! A picture that is kept up: what it costs, that it follows, that it forgets, and what it says when it cannot see.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::join_all, stream, stream::BoxStream};
use tenure::{
    Clock,
    model::{Key, Kind, LockId, Namespace, Outcome, Rules, RunId, ScheduleId, SessionId, Value, Why},
    store::{
        Answer, Capabilities, Claim, Define, FinishRun, Hint, Instruction, LockRecord, MemoryStore, News, Op,
        Refusal, ReleaseTo, Reply, Share, Store, StoreExt, Topics,
    },
    testing::{Call, Counting, Course, Fault, Faulty, Intercept, Intercepted, Operation, Slow, TestClock},
};
use tenure_conformance::{Fixture, LIMIT, TTL};
use tenure_look::{LivePicture, Picture, Reader, ScheduleState, SpreadSummary};
use tokio::time::{advance, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
/// Time between two turns.
const TURN: Duration = Duration::from_secs(5);

/// A namespace, by a clock that follows the test's, and a store whose calls are counted on their way to it.
struct World {
    fixture: Fixture,
    counted: Arc<Intercepted<Counting>>,
    clock: Arc<TestClock>,
    memory: Arc<MemoryStore>,
}

impl World {
    fn new() -> Self {
        Self::with(|memory| memory)
    }

    /// The reader has a store around that of the others.
    fn with(around: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>) -> Self {
        let clock = Arc::new(TestClock::new());
        let memory = Arc::new(MemoryStore::new(clock.clone()));
        let fixture = Fixture::new(memory.clone());
        let counted = Counting::default().around(around(memory.clone()));
        Self { fixture, counted, clock, memory }
    }

    fn pictures(&self) -> LivePicture {
        self.pictures_by(self.counted.clone())
    }

    fn pictures_by(&self, store: Arc<dyn Store>) -> LivePicture {
        let look = Reader::new(store, self.fixture.namespace().clone());
        LivePicture::new(look.clock(self.clock.clone()))
    }

    fn calls(&self) -> u64 {
        self.counted.intercept().counts().total()
    }

    fn of(&self, operation: Operation) -> u64 {
        self.counted.intercept().counts().calls(operation)
    }

    /// A session that takes part in these spreads.
    async fn member(&self, spreads: &[&str]) -> SessionId {
        let mut open = self.fixture.opening();
        open.shares = spreads.iter().map(|spread| Share::new(spread.parse().unwrap())).collect();
        let session = open.session;
        self.fixture.open(&open).await;
        session
    }

    async fn tasks(&self, spread: &str, keys: std::ops::Range<usize>, by: SessionId) {
        for key in keys {
            self.fixture.held(&self.fixture.task(spread, &format!("task-{key:04}")), by, 1).await;
        }
    }

    async fn schedule(&self, name: &str, owner: SessionId) -> LockRecord {
        let lock = self.fixture.lock_of(Kind::Schedule, name);
        let record = self.fixture.held(&lock, owner, 1).await;
        let (timing, policies) = (Rules::new("* * * * * in UTC").unwrap(), Rules::new("p").unwrap());
        let schedule = self.fixture.schedule(name);
        let define = Define { schedule, term: record.term, timing, policies, instead_of: None };
        self.memory.define(define, LIMIT).await.unwrap();
        record
    }

    async fn ran(&self, lock: &LockRecord, schedule: ScheduleId) {
        let session = lock.holding.as_ref().unwrap().by.session;
        let (run, term) = (RunId::tick(schedule, self.clock.wall()), lock.term);
        let holder = "pod-1".parse().unwrap();
        let claim =
            Claim { run: run.clone(), session, holder, term, attempt: 1, instead_of: None, skipped: None };
        self.memory.claim(claim, LIMIT).await.unwrap();
        let outcome = Outcome::Succeeded;
        let finish = FinishRun { run, session, term, attempt: 1, outcome, error: None, last: true };
        self.memory.finish(finish, LIMIT).await.unwrap();
    }

    async fn beat(&self, session: SessionId, number: u64) {
        self.fixture.send(&self.fixture.beat(session, number)).await;
    }
}

fn held(picture: &Picture, spread: &str) -> (usize, usize) {
    let summary = picture.spreads().into_iter().find(|one| one.spread.as_str() == spread);
    summary.map_or((0, 0), |one| (one.held, one.orphans))
}

/// The next picture that is so, within that time.
async fn until(
    followed: &mut tenure_look::Subscription,
    within: Duration,
    is_so: impl Fn(&Picture) -> bool,
) -> Arc<Picture> {
    let found = async {
        loop {
            let picture = followed.next().await.unwrap();
            if is_so(&picture) {
                return picture;
            }
        }
    };
    timeout(within, found).await.expect("it is seen in time")
}

#[tokio::test(start_paused = true)]
async fn the_store_is_not_read_while_nobody_looks() {
    let world = World::new();
    let pictures = world.pictures();
    sleep(10 * TURN).await;
    assert_eq!(world.calls(), 0);
    pictures.get().await.unwrap();
    assert!(world.calls() > 0);
    let followed = pictures.follow();
    sleep(300 * SECOND).await;
    let before = world.calls();
    sleep(60 * SECOND).await;
    assert!(world.calls() > before, "somebody looks");
    drop(followed);
    // For two minutes a follower may come back.
    sleep(130 * SECOND).await;
    let before = world.calls();
    sleep(3600 * SECOND).await;
    assert_eq!(world.calls(), before);
    // If no follower can come back, none is waited for.
    pictures.get().await.unwrap();
    drop(pictures);
    sleep(2 * TURN).await;
    let before = world.calls();
    sleep(60 * SECOND).await;
    assert_eq!(world.calls(), before);
}

#[tokio::test(start_paused = true)]
async fn however_many_look_a_turn_costs_the_same_few_calls() {
    let world = World::new();
    let one = world.member(&["a", "b"]).await;
    world.tasks("a", 0..300, one).await;
    world.tasks("b", 0..300, one).await;
    for schedule in 0..150 {
        world.schedule(&format!("job-{schedule:03}"), one).await;
    }
    let pictures = world.pictures();
    pictures.get().await.unwrap();
    assert!(world.calls() <= 20, "{} for the first picture", world.calls());
    let followed: Vec<_> = (0..10).map(|_| pictures.follow()).collect();
    sleep(20 * TURN).await;
    let before = world.calls();
    sleep(20 * TURN).await;
    let turn = (world.calls() - before) / 20;
    assert!(turn <= 7, "{turn} calls a turn");
    drop(followed);
}

#[tokio::test(start_paused = true)]
async fn a_picture_asked_for_after_a_pause_is_up_to_date() {
    let world = World::new();
    let spreads = ["a", "b", "c"];
    let old = world.member(&spreads).await;
    for spread in spreads {
        world.tasks(spread, 0..200, old).await;
    }
    let pictures = world.pictures();
    assert_eq!(held(&pictures.get().await.unwrap(), "c"), (200, 0));
    sleep(2 * 3600 * SECOND).await;
    world.fixture.declare_dead(old).await;
    let new = world.member(&spreads).await;
    for spread in spreads {
        for key in 0..200 {
            let task = world.fixture.task(spread, &format!("task-{key:04}"));
            world.fixture.take_over(&task, &world.fixture.candidate(new, 1), &[old]).await;
        }
    }
    let before = world.calls();
    let picture = pictures.get().await.unwrap();
    for spread in spreads {
        assert_eq!(held(&picture, spread), (200, 0), "{spread}");
    }
    assert!(world.calls() - before <= 20);
}

#[tokio::test(start_paused = true)]
async fn an_old_picture_is_not_shown_as_if_it_were_new() {
    let world = World::new();
    let faulty = Faulty::default().around(world.memory.clone());
    let pictures = world.pictures_by(faulty.clone());
    world.fixture.opened().await;
    pictures.get().await.unwrap();
    sleep(2 * 3600 * SECOND).await;
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    let unread = pictures.get().await.unwrap_err();
    assert!(unread.to_string().contains("list sessions"), "{unread}");
    // Nor is a picture with nothing in it, to followers.
    let mut followed = pictures.follow();
    for _ in 0..3 {
        assert_eq!(followed.next().await.unwrap_err(), unread);
    }
    faulty.intercept().heal();
    sleep(4 * TURN).await;
    assert!(pictures.get().await.unwrap().trouble().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_move_is_seen_by_its_hint() {
    let world = World::new();
    let (one, other) = (world.member(&["a"]).await, world.member(&["a"]).await);
    world.tasks("a", 0..50, one).await;
    let pictures = world.pictures();
    let mut followed = pictures.follow();
    until(&mut followed, TURN, |picture| held(picture, "a").0 == 50).await;
    sleep(SECOND).await;
    let task = world.fixture.task("a", "task-0007");
    let record = world.fixture.record(&task).await;
    world.fixture.release(&task, one, record.term, ReleaseTo::Free).await;
    world.fixture.held(&task, other, 1).await;
    let has_moved = |picture: &Picture| {
        let holding = picture.lock(&task).and_then(|record| record.holding.clone());
        holding.is_some_and(|held| held.by.session == other)
    };
    until(&mut followed, SECOND, has_moved).await;
}

#[tokio::test(start_paused = true)]
async fn a_noticed_change_of_a_schedule_is_read_at_once() {
    let world = World::new();
    let owner = world.member(&["tenure.schedules"]).await;
    world.schedule("nightly", owner).await;
    let pictures = world.pictures();
    pictures.get().await.unwrap();
    let schedule = world.fixture.schedule("nightly");
    let pause = Instruction::Pause { by: "ops".parse().unwrap(), why: Why::new("repairs").unwrap() };
    world.memory.instruct(schedule.clone(), pause, LIMIT).await.unwrap();
    let mut followed = pictures.follow();
    followed.next().await.unwrap();
    pictures.notice(News::Schedule(schedule.clone()));
    until(&mut followed, SECOND, |picture| picture.schedule(&schedule.name).unwrap().paused).await;
}

#[tokio::test(start_paused = true)]
async fn no_schedule_is_left_out_however_many_are_due() {
    let world = World::new();
    let owner = world.member(&[]).await;
    let mut last = None;
    for schedule in 0..250 {
        last = Some(world.schedule(&format!("job-{schedule:03}"), owner).await);
    }
    let pictures = world.pictures();
    let mut followed = pictures.follow();
    followed.next().await.unwrap();
    sleep(5 * 60 * SECOND).await;
    let overdue = |picture: &Picture| {
        let all = picture.schedules(0, 1000);
        all.iter().filter(|one| matches!(one.state(SECOND), ScheduleState::Overdue { .. })).count()
    };
    let picture = pictures.get().await.unwrap();
    assert_eq!(overdue(&picture), 250);
    // The last one by its name is not forgotten over those before it.
    let name = world.fixture.schedule("job-249");
    world.ran(&last.unwrap(), name.clone()).await;
    let is_well = |picture: &Picture| {
        let one = picture.schedule(&name.name).unwrap();
        !matches!(one.state(SECOND), ScheduleState::Overdue { .. })
    };
    let before = world.of(Operation::LastRuns);
    until(&mut followed, 5 * TURN, is_well).await;
    assert!(world.of(Operation::LastRuns) - before <= 6);
}

#[tokio::test(start_paused = true)]
async fn schedules_that_nobody_has_are_found_within_a_minute() {
    let world = World::new();
    let owner = world.member(&[]).await;
    for schedule in 0..700 {
        let lock = world.schedule(&format!("job-{schedule:03}"), owner).await;
        world.memory.delete_lock(&lock.id);
    }
    let pictures = world.pictures();
    let mut followed = pictures.follow();
    until(&mut followed, 60 * SECOND, |picture| picture.schedule_count() == 700).await;
}

#[tokio::test(start_paused = true)]
async fn many_schedules_are_named_at_once_and_read_within_fifteen_seconds() {
    let world = World::new();
    let owner = world.member(&["tenure.schedules"]).await;
    for schedule in 0..2_000 {
        let lock = world.schedule(&format!("job-{schedule:04}"), owner).await;
        // A tenth of them has no owner any more.
        if schedule % 10 == 0 {
            world.memory.delete_lock(&lock.id);
        }
    }
    let pictures = world.pictures();
    let mut followed = pictures.follow();
    let first = followed.next().await.unwrap();
    assert!(!first.read().schedules);
    let (read, known) = first.schedules_read();
    assert!(read <= 100 && known >= 1_000 && first.schedule_count() == known, "{read} of {known}");
    let unread = first.schedules(0, 2_000).into_iter().filter(|one| one.state(TTL) == ScheduleState::Unread);
    assert_eq!(unread.count(), known - read);
    let whole = until(&mut followed, 15 * SECOND, |picture| picture.read().schedules).await;
    assert_eq!((whole.schedules_read(), whole.schedule_count()), ((2_000, 2_000), 2_000));
}

#[tokio::test(start_paused = true)]
async fn a_beat_from_the_future_leaves_with_its_record() {
    let world = World::new();
    let day = Duration::from_secs(24 * 3600);
    world.clock.step_wall(day);
    let ahead = world.fixture.opened().await.id;
    world.fixture.declare_dead(ahead).await;
    world.clock.step_wall_back(day);
    let one = world.fixture.opened().await.id;
    let picture = world.pictures().get().await.unwrap();
    let life = |picture: &Picture, session| picture.instance(session).unwrap().life.as_str();
    assert_eq!(life(&picture, one), "alive");
    assert!(picture.now().since(world.clock.wall()) < TTL);
    // The reader had a clock that was ahead, and has a right one now.
    let pictures = world.pictures();
    let mut followed = pictures.follow();
    world.clock.step_wall(day);
    assert_eq!(life(&followed.next().await.unwrap(), one), "looks dead");
    world.clock.step_wall_back(day);
    world.beat(one, 2).await;
    until(&mut followed, 2 * TURN, |picture| life(picture, one) == "alive").await;
}

#[tokio::test(start_paused = true)]
async fn a_hint_makes_nobody_look_dead() {
    let world = World::new();
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let mut open = world.fixture.opening();
        (open.ttl, open.shares) = (3 * SECOND, vec![Share::new("a".parse().unwrap())]);
        world.fixture.open(&open).await;
        sessions.push(open.session);
    }
    let pictures = world.pictures();
    let mut followed = pictures.follow();
    followed.next().await.unwrap();
    for second in 1..=14 {
        sleep(SECOND).await;
        for session in &sessions {
            world.beat(*session, second + 1).await;
        }
        let task = world.fixture.task("a", &format!("task-{second}"));
        world.fixture.held(&task, sessions[0], 1).await;
        let picture = until(&mut followed, SECOND, |picture| picture.lock(&task).is_some()).await;
        assert!(picture.instances().iter().all(|one| !one.looks_dead), "after {second} s");
        assert_eq!(held(&picture, "a").1, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn many_who_ask_a_slow_store_cost_one_read() {
    let world = World::with(|memory| Slow { before: Duration::ZERO, after: 3 * SECOND }.around(memory));
    let pictures = world.pictures();
    let all = join_all((0..20).map(|_| pictures.get())).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(world.of(Operation::Sessions), 1);
    // Followers that come and go cost no more than one that stays.
    let before = world.calls();
    for _ in 0..50 {
        drop(pictures.follow());
        pictures.get().await.unwrap();
    }
    assert!(world.calls() - before <= 20, "{}", world.calls() - before);
}

#[tokio::test(start_paused = true)]
async fn everybody_gets_a_picture_whoever_comes_and_goes() {
    let world = World::new();
    let pictures = world.pictures();
    for round in 0..1000 {
        let mut followed = pictures.follow();
        if round % 7 == 0 {
            drop(followed);
            advance(Duration::from_secs(119 + round % 4)).await;
            followed = pictures.follow();
        }
        timeout(TURN, followed.next()).await.expect("there is one").unwrap();
        timeout(TURN, pictures.get()).await.expect("there is one").unwrap();
    }
}

/// Hints as a script has them, in place of those of the store.
#[derive(Debug)]
struct Storm(Vec<Hint>);

impl Intercept for Storm {
    fn decide(&self, _: &Call) -> Course {
        Course::PLAIN
    }

    fn hints(&self, _: BoxStream<'static, Hint>) -> BoxStream<'static, Hint> {
        let each = |hint| async move {
            sleep(Duration::from_millis(1)).await;
            hint
        };
        stream::iter(self.0.clone()).then(each).chain(stream::pending()).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_hints_costs_what_a_few_turns_do() {
    let world = World::new();
    let namespace = world.fixture.namespace();
    let schedule = |number: usize| {
        let name = format!("job-{number:04}").parse().unwrap();
        Hint::News(News::Schedule(ScheduleId { namespace: namespace.clone(), name }))
    };
    let storm = (0..5000).flat_map(|number| [Hint::Resync, schedule(number)]).collect();
    let counted = Counting::default().around(Storm(storm).around(world.memory.clone()));
    let pictures = world.pictures_by(counted.clone());
    let _followed = pictures.follow();
    sleep(10 * SECOND).await;
    let counts = counted.intercept().counts();
    assert!(
        counts.calls(Operation::Sessions) <= 14,
        "{} times all sessions",
        counts.calls(Operation::Sessions)
    );
    let ledgers = counts.keys(Operation::LastRuns);
    assert!((100..=52 * 100).contains(&ledgers), "{ledgers} ledgers");
}

#[tokio::test(start_paused = true)]
async fn hints_of_another_namespace_cost_nothing() {
    let namespace: Namespace = "other".parse().unwrap();
    let schedule = News::Schedule(ScheduleId { namespace: namespace.clone(), name: "job".parse().unwrap() });
    let task = LockId { namespace, kind: Kind::Lock, key: Key::new("leader").unwrap() };
    let hints = [schedule, News::Lock(task)].map(Hint::News).to_vec();
    let world = World::with(|memory| Storm(hints).around(memory));
    let pictures = world.pictures();
    let mut followed = pictures.follow();
    followed.next().await.unwrap();
    sleep(3 * SECOND).await;
    assert_eq!((world.of(Operation::LastRuns), world.of(Operation::Locks)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn missing_hints_are_told_and_cost_nothing() {
    let silence = vec![Hint::Failing { lasting: true, error: "no right to tail".to_owned() }; 500];
    let world = World::with(|memory| Storm(silence).around(memory));
    let pictures = world.pictures();
    let mut followed = pictures.follow();
    followed.next().await.unwrap();
    let before = world.calls();
    sleep(4 * SECOND).await;
    assert_eq!(world.calls(), before);
    let picture = until(&mut followed, 2 * TURN, |picture| picture.deaf().is_some()).await;
    assert_eq!(picture.deaf(), Some("no right to tail"));
}

#[tokio::test(start_paused = true)]
async fn a_round_goes_on_after_an_error_and_forgets_what_is_gone() {
    let world = World::new();
    let faulty = Faulty::default().around(world.memory.clone());
    let session = world.fixture.opened().await.id;
    for key in 0..250 {
        world.fixture.held(&world.fixture.lock(&format!("key-{key:03}")), session, 1).await;
    }
    let pictures = world.pictures_by(faulty.clone());
    let mut followed = pictures.follow();
    for turn in 0..18 {
        followed.next().await.unwrap();
        if turn % 3 == 0 {
            faulty.intercept().next(Operation::ListLocks, Fault::RequestLost);
        }
    }
    assert!(pictures.get().await.unwrap().read().locks);
    for key in 0..10 {
        world.memory.delete_lock(&world.fixture.lock(&format!("key-{:03}", key * 7)));
    }
    let is_gone = |picture: &Picture| picture.locks_of(&Kind::Lock).len() == 240;
    until(&mut followed, 20 * TURN, is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn locks_beyond_the_room_are_told_as_not_read() {
    let world = World::new();
    let session = world.fixture.opened().await.id;
    for key in 0..1_200 {
        world.fixture.held(&world.fixture.lock(&format!("key-{key:04}")), session, 1).await;
    }
    let pictures = world.pictures();
    let mut followed = pictures.follow();
    for _ in 0..60 {
        let picture = followed.next().await.unwrap();
        assert!(!picture.read().locks && picture.locks_of(&Kind::Lock).len() <= 1_000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_refused_is_told_as_that_part_and_the_rest_is_read() {
    let world = World::new();
    let faulty = Faulty::default().around(world.memory.clone());
    let counted = Counting::default().around(faulty.clone());
    let owner = world.member(&["a"]).await;
    world.schedule("nightly", owner).await;
    faulty.intercept().always(&[Operation::LastRuns], Fault::Forbidden);
    let pictures = world.pictures_by(counted.clone());
    let mut followed = pictures.follow();
    for task in 0..5 {
        let picture = followed.next().await.unwrap();
        let unreadable: Vec<_> =
            picture.unreadable().iter().map(|(area, why)| format!("{area}: {why}")).collect();
        assert!(unreadable.len() == 1 && unreadable[0].starts_with("ledgers: "), "{unreadable:?}");
        assert!(picture.trouble().is_none() && !picture.read().schedules);
        let task = world.fixture.task("a", &format!("task-{task}"));
        world.fixture.held(&task, owner, 1).await;
        until(&mut followed, 2 * TURN, |picture| {
            picture.lock(&task).is_some() && !picture.unreadable().is_empty()
        })
        .await;
    }
    faulty.intercept().heal();
    until(&mut followed, 2 * TURN, |picture| picture.unreadable().is_empty()).await;
    // A store that does not answer at all is asked once a turn.
    faulty.intercept().always(Operation::ALL, Fault::Refused);
    until(&mut followed, 2 * TURN, |picture| picture.trouble().is_some()).await;
    let calls = || counted.intercept().counts().total();
    let before = calls();
    sleep(10 * TURN).await;
    assert!(calls() - before <= 11, "{} calls in ten turns", calls() - before);
    // The read that answers last does not keep the rest from being seen by a follower that comes now.
    faulty.intercept().heal();
    faulty.intercept().always(&[Operation::LatestGrants], Fault::RequestLost);
    drop(followed);
    sleep(200 * SECOND).await;
    let picture = pictures.get().await.unwrap();
    assert!(picture.trouble().is_some() && held(&picture, "a").0 == 5, "{picture:?}");
}

#[tokio::test(start_paused = true)]
async fn a_value_is_in_no_picture() {
    let world = World::new();
    let session = world.fixture.opened().await.id;
    let secret = |session: SessionId| {
        let mut candidate = world.fixture.candidate(session, 1);
        candidate.value = Some(Value::new("a secret").unwrap());
        candidate
    };
    let lock = world.fixture.lock("leader");
    world.fixture.taken(&lock, &secret(session)).await;
    let other = world.fixture.opened().await.id;
    let wait = tenure::store::Wait { lock: lock.clone(), by: secret(other) };
    world.memory.wait(vec![wait], LIMIT).await.unwrap();
    let pictures = world.pictures();
    let picture = pictures.get().await.unwrap();
    assert_eq!(picture.queues().len(), 1);
    let all = format!("{picture:?} {}", serde_json::to_string(&picture.overview()).unwrap());
    assert!(!all.contains("a secret") && !all.contains("97, 32, 115"), "{all}");
    // A read of the lock itself has it.
    let look = pictures.reader().key(lock).await.unwrap();
    assert!(look.record.unwrap().holding.unwrap().by.value.is_some());
}

/// A store that cannot use one of its locks until it is mended.
#[derive(Debug)]
struct Damaged {
    store: Arc<dyn Store>,
    of: Kind,
    is_mended: std::sync::atomic::AtomicBool,
}

impl Store for Damaged {
    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply> {
        let is_damaged = matches!(&op, Op::ListLocks(_, Some(kind), ..) if *kind == self.of);
        let answer = self.store.call(op, limit);
        Box::pin(async move {
            let mut reply = answer.await?;
            if let Reply::ListLocks(page) = &mut reply
                && is_damaged
                && !self.is_mended.load(std::sync::atomic::Ordering::Relaxed)
            {
                page.refused.push(("lock of a later version".to_owned(), Refusal::Foreign));
            }
            Ok(reply)
        })
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        self.store.dedicated()
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_is_told_until_it_is_mended() {
    let world = World::new();
    world.fixture.opened().await;
    let damaged = Arc::new(Damaged { store: world.memory.clone(), of: Kind::Lock, is_mended: false.into() });
    let pictures = world.pictures_by(damaged.clone());
    let mut followed = pictures.follow();
    for _ in 0..6 {
        assert_eq!(followed.next().await.unwrap().refused().len(), 1);
    }
    damaged.is_mended.store(true, std::sync::atomic::Ordering::Relaxed);
    until(&mut followed, 4 * TURN, |picture| picture.refused().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_spread_with_a_damaged_record_is_not_read_whole() {
    let world = World::new();
    world.member(&["a"]).await;
    let damaged = Damaged {
        store: world.memory.clone(),
        of: Kind::of_tasks(&"a".parse().unwrap()),
        is_mended: false.into(),
    };
    let unread = async |damaged: &Arc<Damaged>| {
        let picture = world.pictures_by(damaged.clone()).reader().picture().await.unwrap();
        picture.unread(&"a".parse().unwrap())
    };
    let damaged = Arc::new(damaged);
    let why = unread(&damaged).await.unwrap();
    assert!(why.starts_with("lock of a later version: "), "{why}");
    damaged.is_mended.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(unread(&damaged).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_spread_is_read_whole_though_there_is_no_room_for_all_that_died() {
    let world = World::new();
    for _ in 0..2_000 {
        let short = world.member(&[]).await;
        world.fixture.declare_dead(short).await;
    }
    let one = world.member(&["a"]).await;
    world.tasks("a", 0..1, one).await;
    let picture = world.pictures().reader().picture().await.unwrap();
    assert_eq!((picture.unread(&"a".parse().unwrap()), held(&picture, "a")), (None, (1, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_session_without_a_record_is_dead_only_if_all_records_could_be_read() {
    let world = World::new();
    let one = world.member(&["a"]).await;
    let record = world.fixture.held(&world.fixture.task("a", "task-0"), one, 1).await;
    let orphans =
        |is_whole| SpreadSummary::all(&[], [record.clone()], is_whole, world.clock.wall()).remove(0).orphans;
    assert_eq!((orphans(false), orphans(true)), (0, 1));
}

/// A store that takes its time to list locks.
#[derive(Debug)]
struct SlowLists;

impl Intercept for SlowLists {
    fn decide(&self, call: &Call) -> Course {
        let is_list = call.operation == Operation::ListLocks;
        Course::PLAIN.late_by(if is_list { SECOND } else { Duration::ZERO })
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_started_while_a_picture_is_read_has_its_tasks() {
    let world = World::with(|memory| SlowLists.around(memory));
    let one = world.member(&["a"]).await;
    world.tasks("a", 0..1, one).await;
    let reader = world.pictures().reader().clone();
    let reading = tokio::spawn(async move { reader.picture().await.unwrap() });
    sleep(SECOND / 2).await;
    let other = world.member(&["a"]).await;
    world.tasks("a", 1..2, other).await;
    let picture = reading.await.unwrap();
    assert_eq!(held(&picture, "a"), (2, 0));
    assert!(picture.instance(other).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_schedule_whose_lock_was_not_read_yet_is_not_told_to_have_no_owner() {
    let world = World::new();
    let mut open = world.fixture.opening();
    open.ttl = 3600 * SECOND;
    let spread = |number: usize| Share::new(format!("spread-{number:02}").parse().unwrap());
    open.shares = (0..12).map(spread).collect();
    let owner = open.session;
    world.fixture.open(&open).await;
    for schedule in 0..1_200 {
        world.schedule(&format!("job-{schedule:04}"), owner).await;
    }
    let pictures = world.pictures();
    let mut followed = pictures.follow();
    let schedules = Kind::Schedule.spread().unwrap();
    let were_unread = std::cell::Cell::new(false);
    let is_all = |picture: &Picture| {
        let is_read = picture.read().spreads.contains(&schedules);
        were_unread.set(were_unread.get() || picture.schedule_count() == 1_200 && !is_read);
        let sorts: Vec<_> = picture.verdict().troubles.iter().map(|one| one.sort).collect();
        assert!(!sorts.contains(&"nobody"), "{sorts:?}");
        assert!(is_read || picture.verdict().unread.contains(&"not all tasks were read".to_owned()));
        is_read && picture.read().schedules
    };
    until(&mut followed, 30 * TURN, is_all).await;
    assert!(were_unread.get());
}

/// A picture that is read whole at once, for a caller that prints it.
#[tokio::test(start_paused = true)]
async fn all_of_it_is_read_a_page_after_the_other() {
    let world = World::new();
    let session = world.member(&["a"]).await;
    world.tasks("a", 0..1_100, session).await;
    for key in 0..350 {
        world.fixture.held(&world.fixture.lock(&format!("key-{key:03}")), session, 1).await;
    }
    for schedule in 0..230 {
        world.schedule(&format!("job-{schedule:03}"), session).await;
    }
    let picture = world.pictures().reader().picture().await.unwrap();
    let read = picture.read();
    assert!(read.sessions && read.locks && read.schedules && read.spreads.contains(&"a".parse().unwrap()));
    assert_eq!((held(&picture, "a"), picture.locks_of(&Kind::Lock).len()), ((1_100, 0), 350));
    assert_eq!(picture.schedule_count(), 230);
    let key = LockId { key: Key::new("key-007").unwrap(), ..world.fixture.lock("any") };
    assert!(picture.lock(&key).is_some());
}
