//! A keeper whose thread is blocked by the store, or panics: what runs under a lease is told all the same. In real time.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tenure::{
    Clock, Elect, Loss, SystemClock,
    clock::Moment,
    elect::{JobEnd, Status, Work},
    model::StoreTime,
    store::{MemoryStore, Store},
    testing::{Call, Course, Intercept},
};

use crate::{
    elect::world::short,
    wait::{until, within},
};

/// A store whose calls block the thread they are made on, until it is let go.
#[derive(Debug, Default)]
struct Blocking {
    is_held: Mutex<bool>,
    let_go: Condvar,
    blocks: AtomicBool,
}

impl Intercept for Blocking {
    fn decide(&self, _: &Call) -> Course {
        let held = self.is_held.lock().unwrap();
        if *held {
            self.blocks.store(true, Ordering::Relaxed);
        }
        drop(self.let_go.wait_while(held, |held| *held).unwrap());
        Course::PLAIN
    }
}

impl Blocking {
    fn hold(&self, held: bool) {
        *self.is_held.lock().unwrap() = held;
        self.let_go.notify_all();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_blocks_the_keeper_keeps_nobody_from_being_told() {
    let memory = MemoryStore::default();
    let blocking = Blocking::default().around(Arc::new(memory.clone()));
    let first = Elect::start(blocking.clone() as Arc<dyn Store>, short("first")).await.unwrap();
    let second = Elect::start(memory, short("second")).await.unwrap();
    let guard = first.acquire("guard").await.unwrap();
    let job = first.lock("job", async |lease| {
        lease.cancelled().await;
        std::future::pending::<Result<(), String>>().await
    });
    let job = job.await.unwrap().running().expect("the key is free");
    blocking.intercept().hold(true);
    let lost = within("the guard is lost", guard.lost()).await;
    assert!(matches!(lost, Loss::Expired { .. }), "{lost:?}");
    assert!(guard.is_valid(), "there is the grace");
    let end = within("the job is dropped", job.join()).await;
    assert!(matches!(end, JobEnd::Cancelled(Loss::Expired { .. })), "{end:?}");
    let taken = within("another takes over", second.acquire("guard")).await.unwrap();
    assert!(!guard.is_valid());
    assert!(blocking.intercept().blocks.load(Ordering::Relaxed), "its keeper hangs");
    let names_it = async |names: bool| {
        let health = first.health();
        let is_named = health.troubles.iter().any(|trouble| trouble.work == Work::Keeping);
        if is_named == names { Ok(health) } else { Err(health) }
    };
    let health = until("health names the keeper", async || names_it(true).await).await;
    assert!(
        matches!(&health.status, Status::Lost { error: Some(error) } if error.contains("the keeper's thread"))
    );
    blocking.intercept().hold(false);
    drop((guard, taken));
    let again = within("it has another session", first.acquire("guard")).await.unwrap();
    assert!(again.is_valid());
    until("it is over", async || names_it(false).await).await;
    drop(again);
    first.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_is_bounded_though_the_keeper_hangs_and_a_key_is_to_stay_closed() {
    let blocking = Blocking::default().around(Arc::new(MemoryStore::default()));
    let elect = Elect::start(blocking.clone() as Arc<dyn Store>, short("first")).await.unwrap();
    let guard = elect.key("guard").at_least(Duration::from_secs(60)).acquire().await.unwrap();
    blocking.intercept().hold(true);
    let report = within("it closes", elect.close()).await;
    assert_eq!(report.overran, [guard.lease().lock().clone()]);
    blocking.intercept().hold(false);
}

/// A clock that panics on the keeper's thread while it is broken.
#[derive(Debug, Default)]
struct Broken {
    clock: SystemClock,
    breaks: AtomicBool,
    panics: AtomicBool,
}

impl Clock for Broken {
    fn now(&self) -> Moment {
        let is_keepers = std::thread::current().name() == Some("tenure-keeper");
        if is_keepers && self.breaks.load(Ordering::Relaxed) {
            self.panics.store(true, Ordering::Relaxed);
            panic!("on purpose");
        }
        self.clock.now()
    }

    fn wall(&self) -> StoreTime {
        self.clock.wall()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_panics_ends_its_session_and_opens_another() {
    let clock = Arc::new(Broken::default());
    let elect =
        Elect::builder(MemoryStore::default(), short("first")).clock(clock.clone()).start().await.unwrap();
    let guard = elect.acquire("guard").await.unwrap();
    clock.breaks.store(true, Ordering::Relaxed);
    let lost = within("the guard is lost", guard.lost()).await;
    assert!(clock.panics.load(Ordering::Relaxed), "{lost:?}");
    clock.breaks.store(false, Ordering::Relaxed);
    drop(guard);
    for key in ["other", "guard"] {
        let again = within("it has another session", elect.acquire(key)).await.unwrap();
        assert!(again.is_valid());
        drop(again);
    }
    within("it closes", elect.close()).await;
}
