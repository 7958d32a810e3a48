//! The keeper has a thread of its own: in real time, for a job that blocks blocks its runtime.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use tenure::{
    Elect, ElectConfig, Lease,
    store::{MemoryStore, Store},
};
use tokio::runtime::{Builder, Runtime};

const MS: Duration = Duration::from_millis(1);

fn config(holder: &str) -> ElectConfig {
    ElectConfig::new("fleet", holder)
        .unwrap()
        .with_hold_duration(300 * MS)
        .with_refresh_interval(100 * MS)
        .with_refresh_duration(500 * MS)
        .with_stop_grace(50 * MS)
        .with_margin(100 * MS)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Facts at the moment when somebody else was granted the key of a job that blocks: whether the job was still
/// inside its poll, and had been told to stop. Nothing if nobody was granted it.
fn a_job_blocks(own_thread: bool) -> Option<(bool, bool)> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (tell, told) = mpsc::channel::<Lease>();
    let (done, returned) = mpsc::channel();
    let holder = thread::spawn({
        let store = store.clone();
        move || {
            runtime().block_on(async move {
                let elect = Elect::builder(store, config("blocks")).keeper_thread(own_thread);
                let elect = elect.start().await.unwrap();
                let job = elect.lock("k", async move |lease| {
                    tell.send(lease).unwrap();
                    // Longer than its ttl.
                    thread::sleep(1500 * MS);
                    done.send(()).unwrap();
                    Ok::<_, String>(())
                });
                job.await.unwrap().running().unwrap().join().await;
                elect.close().await;
            });
        }
    });
    let lease = told.recv().unwrap();
    let found = runtime().block_on(async {
        let elect = Elect::builder(store, config("waits")).start().await.unwrap();
        let guard = elect.key("k").acquire_within(1200 * MS).await.unwrap();
        let found = guard.is_some().then(|| (returned.try_recv().is_err(), lease.is_cancelled()));
        drop(guard);
        elect.close().await;
        found
    });
    holder.join().unwrap();
    found
}

#[test]
fn a_job_that_blocks_its_runtime_keeps_its_lock_for_the_keeper_has_its_own_thread() {
    assert_eq!(a_job_blocks(true), None);
}

#[test]
fn a_keeper_on_the_runtime_of_a_job_that_blocks_loses_the_lock_and_tells_nobody() {
    assert_eq!(a_job_blocks(false), Some((true, false)));
}
