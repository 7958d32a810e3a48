//! Actions of an operator: what the records have afterwards, and why an action is not done.

use std::{sync::Arc, time::Duration};

use tenure::{
    model::{Key, Kind, LockId, RunId, SessionId, StoreTime, Term, Why},
    store::{Claim, Instruction, MemoryStore, ReleaseTo, ScheduleSeen, SessionSeen, StoreExt},
    testing::TestClock,
};
use tenure_conformance::{Fixture, LIMIT};
use tenure_look::{NotDone, Operator, Reader};

struct World {
    fixture: Fixture,
    memory: Arc<MemoryStore>,
    operator: Operator,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        let memory = Arc::new(MemoryStore::new(clock.clone()));
        let fixture = Fixture::new(memory.clone());
        let reader = Reader::new(fixture.store().clone(), fixture.namespace().clone()).clock(clock);
        let operator = reader.operator("ann".parse().unwrap());
        Self { fixture, memory, operator }
    }

    /// A schedule with one run on record.
    async fn schedule(&self, name: &str) {
        let id = self.fixture.schedule(name);
        let resume = Instruction::Resume;
        assert!(matches!(self.memory.instruct(id.clone(), resume, LIMIT).await, Ok(ScheduleSeen::Found(_))));
        let session = self.fixture.opened().await.id;
        let holder = self.fixture.about().holder;
        let tick = RunId::tick(id, StoreTime::from_millis(60_000));
        let term = Term::new(1);
        let claim = Claim { run: tick, session, holder, term, attempt: 1, instead_of: None, skipped: None };
        self.memory.claim(claim, LIMIT).await.unwrap();
    }

    async fn seen(&self, name: &str) -> ScheduleSeen {
        self.memory.schedules(vec![self.fixture.schedule(name)], LIMIT).await.unwrap().remove(0)
    }
}

fn why() -> Why {
    Why::new("the disk is full").unwrap()
}

#[tokio::test]
async fn a_pause_an_order_and_a_resume_are_on_record_with_name_and_reason() {
    let world = World::new();
    world.schedule("backup").await;
    let name = "backup".parse().unwrap();
    world.operator.pause(&name, &why()).await.unwrap();
    // The clock stands still: both orders would have the same instant.
    let again = Why::new("once more").unwrap();
    let first = world.operator.run(&name, &why()).await.unwrap();
    let second = world.operator.run(&name, &again).await.unwrap();
    let ScheduleSeen::Found(record) = world.seen("backup").await else { panic!("it is there") };
    let pause = record.pause.as_ref().filter(|pause| pause.is_on()).expect("it is paused");
    assert_eq!((pause.by.as_str(), &pause.why), ("ann", &why()));
    let orders: Vec<_> =
        record.orders.iter().map(|order| (order.at, order.by.as_str(), &order.why)).collect();
    assert_eq!(
        orders,
        [(first, "ann", &why()), (second, "ann", &again)],
        "each order has an instant of its own"
    );
    world.operator.resume(&name, &why()).await.unwrap();
    let ScheduleSeen::Found(record) = world.seen("backup").await else { panic!("it is there") };
    assert!(!record.pause.is_some_and(|pause| pause.is_on()));
}

#[tokio::test]
async fn a_mistyped_schedule_is_not_created() {
    let world = World::new();
    let name = "bakcup".parse().unwrap();
    for not_done in [
        world.operator.pause(&name, &why()).await.unwrap_err(),
        world.operator.resume(&name, &why()).await.unwrap_err(),
        world.operator.run(&name, &why()).await.unwrap_err(),
        world.operator.delete(&name, &why()).await.unwrap_err(),
    ] {
        assert!(matches!(not_done, NotDone::Unknown(_)), "{not_done}");
        assert_eq!(not_done.to_string(), "there is no schedule \"bakcup\"");
    }
    assert_eq!(world.seen("bakcup").await, ScheduleSeen::Absent);
}

#[tokio::test]
async fn a_schedule_is_deleted_with_its_history_once_no_instance_has_it() {
    let world = World::new();
    world.schedule("backup").await;
    let owner = world.fixture.opened().await.id;
    let lock = LockId {
        namespace: world.fixture.namespace().clone(),
        kind: Kind::Schedule,
        key: Key::new("backup").unwrap(),
    };
    let held = world.fixture.held(&lock, owner, 1).await;
    let name = "backup".parse().unwrap();
    let not_done = world.operator.delete(&name, &why()).await.unwrap_err();
    assert!(matches!(&not_done, NotDone::Owned { .. }), "{not_done}");
    assert!(matches!(world.seen("backup").await, ScheduleSeen::Found(_)));
    // A dead owner is none.
    world.fixture.declare_dead(owner).await;
    assert!(world.fixture.record(&lock).await.holding.is_some_and(|holding| holding.by.session == owner));
    assert_eq!(held.term, world.fixture.record(&lock).await.term);
    world.operator.delete(&name, &why()).await.unwrap();
    assert_eq!(world.seen("backup").await, ScheduleSeen::Absent);
    let id = world.fixture.schedule("backup");
    assert!(world.memory.history(id, None, 10, LIMIT).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_deletion_that_was_interrupted_is_finished_by_the_next_one() {
    let world = World::new();
    world.schedule("backup").await;
    let session = world.fixture.opened().await.id;
    let id = world.fixture.schedule("backup");
    assert!(world.memory.delete_schedule(id.clone(), LIMIT).await.unwrap(), "all of it");
    // A run without a record of its schedule, as a deletion leaves it that got no further.
    let holder = world.fixture.about().holder;
    let run = RunId::tick(id.clone(), StoreTime::from_millis(120_000));
    let term = Term::new(1);
    let claim = Claim { run, session, holder, term, attempt: 1, instead_of: None, skipped: None };
    world.memory.claim(claim, LIMIT).await.unwrap();
    let name = "backup".parse().unwrap();
    world.operator.delete(&name, &why()).await.unwrap();
    assert!(world.memory.history(id, None, 10, LIMIT).await.unwrap().items.is_empty());
    assert!(matches!(world.operator.delete(&name, &why()).await, Err(NotDone::Unknown(_))));
}

#[tokio::test]
async fn a_key_that_changed_hands_is_neither_released_nor_taken() {
    let world = World::new();
    let lock = world.fixture.lock("leader");
    let holder = world.fixture.opened().await.id;
    let first = world.fixture.held(&lock, holder, 1).await;
    world.fixture.release(&lock, holder, first.term, ReleaseTo::Free).await;
    let second = world.fixture.held(&lock, holder, 2).await;
    for not_done in [
        world.operator.release(&lock, first.term, &why()).await.unwrap_err(),
        world.operator.force(&lock, first.term, &why()).await.unwrap_err(),
        world.operator.put_back(&lock, first.term, &why()).await.unwrap_err(),
    ] {
        assert!(matches!(not_done, NotDone::Changed(_)), "{not_done}");
    }
    assert!(world.fixture.record(&lock).await.holding.is_some());
    world.operator.release(&lock, second.term, &why()).await.unwrap();
    let SessionSeen::Alive(record) = world.fixture.seen(holder).await else { panic!("it is alive") };
    let asked: Vec<_> = record.requests.iter().map(|request| (&request.lock, request.by.as_str())).collect();
    assert_eq!(asked, [(&lock, "ann")]);
    assert_eq!((record.requests[0].term, &record.requests[0].why), (second.term, &why()));
    world.operator.force(&lock, second.term, &why()).await.unwrap();
    assert!(world.fixture.record(&lock).await.holding.is_none());
}

#[tokio::test]
async fn the_key_of_a_dead_holder_cannot_be_asked_for() {
    let world = World::new();
    let lock = world.fixture.lock("leader");
    let holder = world.fixture.opened().await.id;
    let held = world.fixture.held(&lock, holder, 1).await;
    world.fixture.declare_dead(holder).await;
    let not_done = world.operator.release(&lock, held.term, &why()).await.unwrap_err();
    assert!(matches!(not_done, NotDone::Dead { .. }), "{not_done}");
}

#[tokio::test]
async fn a_task_that_rests_is_open_once_it_is_put_back() {
    let world = World::new();
    let task = world.fixture.task("topics", "orders");
    let holder = world.fixture.opened().await.id;
    let held = world.fixture.held(&task, holder, 1).await;
    let rest = ReleaseTo::ClosedFor(Duration::from_secs(3600));
    world.fixture.release(&task, holder, held.term, rest).await;
    assert!(world.fixture.record(&task).await.closed.is_some());
    world.operator.put_back(&task, held.term, &why()).await.unwrap();
    assert!(world.fixture.record(&task).await.closed.is_none());
}

#[tokio::test]
async fn an_instance_that_has_ended_is_not_asked_to_drain() {
    let world = World::new();
    let session = world.fixture.opened().await.id;
    assert_eq!(world.operator.drain(session, &why()).await.unwrap(), world.fixture.about().holder);
    let drained = async || world.fixture.seen(session).await.record().unwrap().drained.clone();
    assert_eq!(drained().await.map(|order| order.why), Some(why()));
    assert_eq!(world.operator.undrain(session, &why()).await.unwrap(), world.fixture.about().holder);
    assert_eq!(drained().await, None);
    world.fixture.declare_dead(session).await;
    for session in [session, SessionId::from_u128(1)] {
        let not_done = world.operator.drain(session, &why()).await.unwrap_err();
        assert!(matches!(not_done, NotDone::Changed(_)), "{not_done}");
    }
    let another = world.fixture.another().opened().await.id;
    assert!(world.operator.drain(another, &why()).await.is_err(), "it is of another namespace");
}
