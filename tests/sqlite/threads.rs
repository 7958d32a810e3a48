//! Programs whose pool for blocking calls is full, and such as can start no thread.

use std::{
    os::unix::process::ExitStatusExt,
    path::Path,
    process::Command,
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tenure::{
    Elect, ElectConfig, Lease,
    elect::{CloseReport, Error, StartError, Unlocked},
    schedule::Timing,
    spread::Task,
    store::sqlite::SqliteStore,
};

use crate::{
    folder::Folder,
    wait::{LIMIT, until, within},
};

const MS: Duration = Duration::from_millis(1);
const DATABASE: &str = "TENURE_TEST_DATABASE";
const MIB: u64 = 1024 * 1024;

fn config(holder: &str) -> ElectConfig {
    let config = ElectConfig::new("tests", holder).unwrap();
    config.with_refresh_interval(100 * MS).with_refresh_duration(3000 * MS)
}

#[test]
fn blocking_jobs_begin_and_a_store_closes_while_the_pool_for_blocking_calls_is_full() {
    let folder = Folder::new();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (free, is_freed) = mpsc::channel::<()>();
    runtime.spawn_blocking(move || is_freed.recv());
    runtime.block_on(async {
        let store = folder.open();
        let elect = Elect::start(store.clone(), config("full")).await.unwrap();
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let tell = begun.clone();
        let job = move |lease: Lease| {
            tell.send("lock".to_owned()).unwrap();
            while !lease.is_cancelled() {
                std::thread::sleep(MS);
            }
            // Within the runtime, as on its pool.
            tokio::runtime::Handle::current().block_on(tokio::task::yield_now());
            Ok::<_, String>(())
        };
        let job = elect.key("k").lock_blocking(job).await.unwrap().running().unwrap();
        let tell = begun.clone();
        let work = move |task: Task, _: Lease| {
            tell.send(task.key().to_string()).unwrap();
            Ok::<_, String>(())
        };
        let spread = elect.spread("s").tasks(["a", "b"]).run_blocking(work).unwrap();
        let tick = move |_, _| {
            begun.send("tick".to_owned()).unwrap();
            Ok::<_, String>(())
        };
        let schedule = elect.schedule("t", Timing::new("* * * * * *")).run_blocking(tick).unwrap();
        let mut missing = vec!["a", "b", "lock", "tick"];
        while !missing.is_empty() {
            let began = within("all begin", begins.recv()).await.unwrap();
            missing.retain(|name| *name != began);
        }
        assert_eq!(elect.unlock("k").await.unwrap(), Unlocked::Released);
        within("the job ends", job.join()).await;
        drop((spread, schedule));
        assert_eq!(within("it closes", elect.close()).await, CloseReport::default());
        within("the store closes", store.close()).await;
    });
    drop(free);
}

/// The part without threads is a process of its own: the limit is one of a process.
#[test]
fn calls_that_cannot_start_a_thread_say_so_and_work_goes_on_once_there_are_threads() {
    if let Some(database) = std::env::var_os(DATABASE) {
        return without_threads(Path::new(&database));
    }
    let folder = Folder::new();
    let name = "threads::calls_that_cannot_start_a_thread_say_so_and_work_goes_on_once_there_are_threads";
    let again = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(DATABASE, folder.database())
        // Each thread needs a stack of its own, also where another has ended.
        .env("GLIBC_TUNABLES", "glibc.pthread.stack_cache_size=0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success(), "signal {:?}\n{said}", again.status.signal());
    assert!(!said.contains("panicked at"), "{said}");
}

fn without_threads(database: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(database).unwrap();
        let elect = Elect::start(store.clone(), config("first")).await.unwrap();

        let limit = Space::left(MIB);
        let (begun, begins) = mpsc::channel();
        let job = elect.key("k").lock_blocking(move |_| {
            begun.send(()).unwrap();
            Ok::<_, String>(())
        });
        let refused = job.await.unwrap_err();
        assert!(matches!(refused, Error::Thread(_)) && refused.is_retryable(), "{refused}");
        let began = begins.recv_timeout(LIMIT);
        assert_eq!(began, Err(RecvTimeoutError::Disconnected), "it never begins");
        drop(within("the key went back", elect.acquire("k")).await.unwrap());
        let refused = Elect::builder(store.clone(), config("second")).begin().unwrap_err();
        assert!(matches!(refused, StartError::Thread(_)), "{refused}");
        let (tell, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let work = move |_: Task, _: Lease| {
            tell.send(()).unwrap();
            Ok::<_, String>(())
        };
        let _spread = elect.spread("s").tasks(["a"]).run_blocking(work).unwrap();
        until(
            "the task is taken",
            async || {
                if elect.health().held == 1 { Ok(()) } else { Err(elect.health()) }
            },
        )
        .await;
        assert!(begins.try_recv().is_err());
        drop(limit);
        within("the task is worked on", begins.recv()).await.unwrap();

        // The keeper's thread can be started, and those of its connections cannot.
        let limit = Space::left(3 * MIB);
        let mute = Elect::builder(store.clone(), config("third")).begin().unwrap();
        until("it says so", async || {
            let said = mute.health().to_string();
            if said.contains("no thread could be started") { Ok(()) } else { Err(said) }
        })
        .await;
        drop(limit);
        drop(within("it lives", mute.acquire("k")).await.unwrap());
        mute.close().await;
        elect.close().await;
        store.close().await;
    });
}

/// A limit of the space of this process, which a stack of 2 MiB needs.
struct Space(Rlimit);

impl Space {
    fn left(bytes: u64) -> Self {
        let before = getrlimit(Resource::As);
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        let page = u64::try_from(rustix::param::page_size()).unwrap();
        let limit = Rlimit { current: Some(pages * page + bytes), maximum: before.maximum };
        setrlimit(Resource::As, limit).unwrap();
        Self(before)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        setrlimit(Resource::As, self.0).unwrap();
    }
}
