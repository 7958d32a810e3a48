//! The keeper has a thread of its own: in real time, for a job that blocks blocks its runtime.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use tenure::{
    Elect, ElectConfig, Lease,
    store::{MemoryStore, Store},
    testing::{Counting, Intercept, Intercepted, Operation},
};
use tokio::runtime::{Builder, Runtime};

use crate::wait::until_blocking;

const MS: Duration = Duration::from_millis(1);

/// Beats often, and is not thought dead before the machine has stood still for long.
fn long(holder: &str) -> ElectConfig {
    ElectConfig::new("fleet", holder)
        .unwrap()
        .with_refresh_interval(100 * MS)
        .with_refresh_duration(30_000 * MS)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// A job that blocks its runtime within one poll.
struct Blocked {
    store: Arc<Intercepted<Counting>>,
    lease: Lease,
    enough: Arc<AtomicBool>,
    holder: thread::JoinHandle<()>,
}

impl Blocked {
    fn start(config: ElectConfig) -> Self {
        let store = Counting::default().around(Arc::new(MemoryStore::default()));
        let (tell, told) = mpsc::channel::<Lease>();
        let enough = Arc::<AtomicBool>::default();
        let (its_store, [ends, ended]): (Arc<dyn Store>, _) =
            (store.clone(), [enough.clone(), enough.clone()]);
        let job = move |lease: Lease| {
            let (tell, enough) = (tell.clone(), ends.clone());
            async move {
                let _ = tell.send(lease);
                while !enough.load(Ordering::Relaxed) {
                    thread::sleep(MS);
                }
                Ok::<_, String>(())
            }
        };
        let holder = thread::spawn(move || {
            runtime().block_on(async move {
                let elect = Elect::start(its_store, config).await.unwrap();
                let campaign = elect.campaign("k").run(job).unwrap();
                while !ended.load(Ordering::Relaxed) {
                    tokio::time::sleep(MS).await;
                }
                drop(campaign);
                elect.close().await;
            });
        });
        let lease = told.recv().unwrap();
        Self { store, lease, enough, holder }
    }

    /// Asks for the key, and says whether the job had been told to stop when another instance was granted it.
    fn another(&self, within: Duration) -> Option<bool> {
        runtime().block_on(async {
            let elect = Elect::builder(self.store.clone() as Arc<dyn Store>, long("waits"));
            let elect = elect.start().await.unwrap();
            let guard = elect.key("k").acquire_within(within).await.unwrap();
            let was_told = guard.is_some().then(|| self.lease.is_cancelled());
            drop(guard);
            elect.close().await;
            was_told
        })
    }

    fn end(self) {
        self.enough.store(true, Ordering::Relaxed);
        self.holder.join().unwrap();
    }
}

#[test]
fn a_job_that_blocks_its_runtime_keeps_its_lock_for_the_keeper_has_its_own_thread() {
    let blocked = Blocked::start(long("blocks"));
    let beats = || blocked.store.intercept().counts().calls(Operation::Beat);
    let before = beats();
    until_blocking("the session beats", || if beats() >= before + 5 { Ok(()) } else { Err(beats()) });
    assert_eq!(blocked.another(100 * MS), None);
    assert!(!blocked.lease.is_cancelled());
    blocked.end();
}
