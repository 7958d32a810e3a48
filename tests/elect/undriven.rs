//! Programs whose runtime runs nothing at present: what they gave up goes back all the same (R15). In real time.

use std::{sync::mpsc, time::Duration};

use tenure::{
    Elect, ElectConfig, Loss,
    elect::{JobEnd, Status},
    store::{MemoryStore, SessionRecord, StoreExt},
};
use tokio::runtime::{Builder, Runtime};

use crate::wait::{until_blocking, within};

const MS: Duration = Duration::from_millis(1);
/// A ttl under which no session is declared dead while a test runs.
const LONG: Duration = Duration::from_secs(600);

/// With a long ttl nobody declares the instance dead: a key is free only if it was given back. A short one is for locks
/// that nobody picks up.
fn config(holder: &str, ttl: Duration) -> ElectConfig {
    let interval = 100 * MS;
    ElectConfig::new("test", holder).unwrap().with_refresh_interval(interval).with_refresh_duration(ttl)
}

/// A runtime that runs only within `block_on`, as in a program that is not async.
fn now_and_then() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// An instance whose runtime is driven, in the same place.
struct Other {
    runtime: Runtime,
    elect: Elect,
}

impl Other {
    fn start(store: &MemoryStore) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let elect = runtime.block_on(Elect::start(store.clone(), config("other", LONG))).unwrap();
        Self { runtime, elect }
    }

    /// Gets the key, which somebody has to give back.
    fn gets(&self, key: &str) {
        let guard = self.runtime.block_on(within("the other gets the key", self.elect.acquire(key))).unwrap();
        drop(guard);
    }
}

fn instance(runtime: &Runtime, store: &MemoryStore, ttl: Duration) -> Elect {
    runtime.block_on(Elect::start(store.clone(), config("idle", ttl))).unwrap()
}

#[test]
fn a_guard_that_is_dropped_outside_of_its_runtime_goes_back() {
    let (store, runtime) = (MemoryStore::default(), now_and_then());
    let (elect, other) = (instance(&runtime, &store, LONG), Other::start(&store));
    let guard = runtime.block_on(elect.acquire("k")).unwrap();
    drop(guard);
    other.gets("k");
    // As the last thing that its runtime does.
    let guard = runtime.block_on(elect.acquire("k")).unwrap();
    runtime.block_on(async move { drop(guard) });
    other.gets("k");
}

#[test]
fn a_guard_goes_back_while_all_workers_of_the_runtime_compute() {
    let store = MemoryStore::default();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let (elect, other) = (instance(&runtime, &store, LONG), Other::start(&store));
    let guard = runtime.block_on(elect.acquire("k")).unwrap();
    let (begun, begins) = mpsc::channel();
    let ends: Vec<_> = (0..2)
        .map(|_| {
            let ((end, ends), begun) = (mpsc::channel::<()>(), begun.clone());
            runtime.spawn(async move {
                begun.send(()).unwrap();
                // An error says that the test is over.
                let _ = ends.recv();
            });
            end
        })
        .collect();
    for _ in &ends {
        begins.recv().unwrap();
    }
    drop(guard);
    other.gets("k");
}

#[test]
fn an_instance_whose_last_handle_is_dropped_outside_of_its_runtime_is_closed() {
    let (store, runtime) = (MemoryStore::default(), now_and_then());
    let (elect, other) = (instance(&runtime, &store, LONG), Other::start(&store));
    let guard = runtime.block_on(elect.acquire("k")).unwrap();
    drop((guard, elect));
    other.gets("k");
    until_blocking("its session is closed", || {
        let sessions = store.sessions("test".parse().unwrap(), None, 10, 1000 * MS);
        let mut sessions = other.runtime.block_on(sessions).unwrap().items;
        sessions.retain(SessionRecord::is_alive);
        if sessions.len() == 1 { Ok(()) } else { Err(sessions) }
    });
}

/// The caller was in the queue when it gave up, and its runtime stops then.
#[test]
fn a_caller_that_gave_up_waiting_is_handed_nothing() {
    let (store, runtime) = (MemoryStore::default(), now_and_then());
    let (elect, other) = (instance(&runtime, &store, LONG), Other::start(&store));
    let held = other.runtime.block_on(other.elect.acquire("k")).unwrap();
    let waited = runtime.block_on(elect.key("k").acquire_within(100 * MS)).unwrap();
    assert!(waited.is_none());
    drop(held);
    other.gets("k");
    assert_eq!(elect.health().waiting, 0);
}

#[test]
fn a_lock_that_nobody_picks_up_goes_back_within_a_ttl() {
    let (store, runtime) = (MemoryStore::default(), now_and_then());
    let (elect, other) = (instance(&runtime, &store, 4000 * MS), Other::start(&store));
    let held = other.runtime.block_on(other.elect.acquire("k")).unwrap();
    let waiter = elect.clone();
    // It is polled for a while, and then no more.
    let waits = runtime.spawn(async move { waiter.acquire("k").await });
    runtime.block_on(async {
        while elect.health().waiting == 0 {
            tokio::time::sleep(MS).await;
        }
    });
    drop(held);
    until_blocking("it is handed the lock", || {
        if elect.health().held == 1 { Ok(()) } else { Err(elect.health().to_string()) }
    });
    other.gets("k");
    assert_eq!(elect.health().status, Status::Healthy);
    // Polled again, it still wants the lock, and gets it.
    let guard = runtime.block_on(within("it gets the lock", waits)).unwrap().unwrap();
    assert!(guard.is_valid());
}

#[test]
fn a_job_that_never_begins_keeps_no_key() {
    let (store, runtime) = (MemoryStore::default(), now_and_then());
    let (elect, other) = (instance(&runtime, &store, 4000 * MS), Other::start(&store));
    let job = runtime
        .block_on(elect.lock("k", async |_| -> Result<(), String> { panic!("it begins all the same") }));
    let job = job.unwrap().running().expect("the key is free");
    other.gets("k");
    assert!(job.lease().is_cancelled());
    let end = runtime.block_on(job.join());
    assert!(matches!(end, JobEnd::Cancelled(Loss::Probe)), "{end:?}");
}
