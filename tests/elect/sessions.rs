//! Writes of an instance to the record of its session, and when it closes it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use tenure::{
    Clock, Elect, Error, Event, Loss,
    clock::Moment,
    elect::{JobEnd, Lease},
    model::{SessionId, StoreTime, Why},
    store::{BeatWrite, MemoryStore, Nonce, Request, Revocation, SessionSeen, Store, StoreExt},
    testing::{Course, Fault, Faulty, Intercept, Operation, Rates, TestClock},
};
use tokio::sync::oneshot;

use crate::elect::world::{SECOND, World};

const LIMIT: Duration = SECOND;

/// A clock that the test turns in time that is not paused.
#[derive(Debug)]
struct Awake(Arc<TestClock>);

impl Clock for Awake {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn wall(&self) -> StoreTime {
        self.0.wall()
    }
}

fn session(elect: &Elect) -> SessionId {
    elect.health().session.expect("there is a valid session")
}

async fn seen(world: &World, session: SessionId) -> SessionSeen {
    world.memory.observe(vec![session], LIMIT).await.unwrap().pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_closing_instance_does_not_close_the_session_of_its_clone() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    drop(elect.acquire("k").await.unwrap());
    let id = session(&elect);
    // The machine was cloned, with this process in it: the copy has beaten for the same session.
    let SessionSeen::Alive(record) = seen(&world, id).await else { panic!("it lives") };
    let beat = BeatWrite::new(id, tenure::store::Beat::new(record.beat.get() + 1), Nonce::new(77));
    assert!(world.memory.beat(beat, LIMIT).await.unwrap().bears(Nonce::new(77)));
    elect.close().await;
    assert!(!seen(&world, id).await.is_dead(), "what runs in the copy is not known here");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_only_its_own_instance_has_beaten_for_is_closed_with_it() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let id = session(&elect);
    tokio::time::sleep(SECOND * 12).await;
    elect.close().await;
    assert!(seen(&world, id).await.is_dead());
}

#[tokio::test(start_paused = true)]
async fn an_operators_request_leaves_the_record_once_it_was_heard() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let guard = elect.acquire("k").await.unwrap();
    let request = Request {
        lock: guard.lease().lock().clone(),
        term: guard.term(),
        by: "operator".parse().unwrap(),
        why: Why::shortened("maintenance"),
    };
    let id = session(&elect);
    world.memory.revoke(Revocation::Ask { session: id, request }, LIMIT).await.unwrap();
    let record = |sighting: &SessionSeen| sighting.record().unwrap().requests.len();
    assert_eq!(record(&seen(&world, id).await), 1);
    guard.lost().await;
    // With the beat that follows at once.
    tokio::time::sleep(SECOND).await;
    assert_eq!(record(&seen(&world, id).await), 0);
}

#[tokio::test(start_paused = true)]
async fn the_past_of_a_lock_that_an_operator_wanted_back_says_by_whom_and_why() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let guard = elect.acquire("k").await.unwrap();
    let (lock, term) = (guard.lease().lock().clone(), guard.term());
    let why = Why::shortened("maintenance");
    let request = Request { lock: lock.clone(), term, by: "operator".parse().unwrap(), why };
    world.memory.revoke(Revocation::Ask { session: session(&elect), request }, LIMIT).await.unwrap();
    guard.lost().await;
    guard.release().await.unwrap();
    let record = world.memory.locks(vec![lock], LIMIT).await.unwrap().remove(0).found().unwrap();
    assert_eq!(record.past[0].note.as_ref().unwrap().to_string(), "revoked by operator: maintenance");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_granted_after_the_close_begins_no_job() {
    let world = World::new();
    let rates = Rates { hint_lost: 1000, ..Rates::default() };
    let faulty = Faulty::seeded(1, rates).around(Arc::new(world.memory.clone()));
    let store: Arc<dyn Store> = faulty.clone();
    let elect = world.on(store, World::config("a")).start().await.unwrap();
    let (other, _) = world.instance("b").await;
    faulty.intercept().next(Operation::Take, Course::PLAIN.answered_after(SECOND));
    let ran = Arc::new(AtomicBool::new(false));
    let lock = tokio::spawn({
        let (elect, ran) = (elect.clone(), ran.clone());
        async move {
            let lock = elect.lock("k", async move |_| {
                ran.store(true, Ordering::Relaxed);
                Ok::<_, String>(())
            });
            lock.await.map(|locked| locked.running().is_some())
        }
    });
    tokio::time::sleep(SECOND / 2).await;
    elect.close().await;
    let answer = lock.await.unwrap();
    assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
    assert!(other.key("k").acquire_within(SECOND).await.unwrap().is_some());
    assert!(!ran.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn closing_tells_what_runs_on_from_what_the_store_did_not_confirm() {
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    let job = elect.lock("returned", async |lease: Lease| {
        lease.cancelled().await;
        Ok::<_, String>(())
    });
    let job = job.await.unwrap().running().unwrap();
    let guard = elect.acquire("out").await.unwrap();
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    let closed = elect.close().await;
    assert_eq!(job.join().await, JobEnd::Finished(()));
    let keys = |locks: &[tenure::model::LockId]| -> Vec<String> {
        locks.iter().map(|lock| lock.key.to_string()).collect()
    };
    assert_eq!(keys(&closed.overran), ["out"]);
    assert_eq!(keys(&closed.unconfirmed), ["returned"]);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_closed_was_not_lost() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let id = session(&elect);
    let mut events = elect.events();
    elect.close().await;
    let mut told = Vec::new();
    while let Some(event) = events.next().await {
        told.push(event);
    }
    assert_eq!(told, [Event::SessionClosed { session: id }]);
}

/// In real time: a program that blocks its runtime cannot be had in paused time. How long it hangs is what the clock
/// says.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_program_that_hangs_loses_one_session_and_opens_the_next_when_it_answers() {
    let (memory, clock) = (MemoryStore::default(), Arc::new(TestClock::new()));
    let config = World::config("a").with_stop_grace(SECOND / 4).with_refresh_interval(SECOND / 4);
    let builder = Elect::builder(memory.clone(), config).clock(Arc::new(Awake(clock.clone()))).seed(1);
    let elect = builder.liveness_probe(SECOND * 4).start().await.unwrap();
    let first = session(&elect);
    let mut events = elect.events();
    // It blocks the only thread on which the program's tasks run.
    let (hangs, begun) = oneshot::channel();
    let (answers, ends) = mpsc::channel::<()>();
    let hung = tokio::spawn(async move {
        hangs.send(()).unwrap();
        ends.recv().unwrap();
    });
    begun.await.unwrap();
    clock.suspend(SECOND * 5);
    // Its opening may be told after the call that waits for it has returned: on another thread.
    let mut lost = events.next().await.unwrap();
    if lost == (Event::SessionOpened { session: first }) {
        lost = events.next().await.unwrap();
    }
    assert!(
        matches!(lost, Event::SessionLost { session, loss: Loss::Probe } if session == first),
        "{lost:?}"
    );
    assert_eq!(format!("{memory:?}"), "MemoryStore { locks: 0, sessions: 1, waiters: 0, .. }", "it hangs");
    answers.send(()).unwrap();
    hung.await.unwrap();
    let opened = events.next().await.unwrap();
    assert!(matches!(opened, Event::SessionOpened { .. }), "{opened:?}");
    assert_eq!(format!("{memory:?}"), "MemoryStore { locks: 0, sessions: 2, waiters: 0, .. }");
    assert!(elect.lock("k", async |_| Ok::<_, String>(())).await.unwrap().running().is_some());
    elect.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_liveness_probe_of_no_time_is_refused_by_its_name() {
    let world = World::new();
    let refused = world.builder("a").0.liveness_probe(Duration::ZERO).start().await.unwrap_err();
    assert_eq!(refused.to_string(), "liveness_probe (0s) must be between 10ms and 30d");
}

#[test]
#[should_panic(expected = "timers are disabled")]
fn an_instance_on_a_runtime_without_timers_says_so_when_it_begins() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _ = runtime.block_on(async { Elect::builder(MemoryStore::default(), World::config("a")).begin() });
}
