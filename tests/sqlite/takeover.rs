//! A holder whose process is gone is replaced at once; one whose process stands still, after its ttl.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tenure::{
    Clock, Elect, ElectConfig, SystemClock,
    store::{StoreExt, sqlite::SqliteStore},
};
use tenure_conformance::LIMIT;

use crate::{
    folder::Folder,
    wait::{until, within},
};

/// The database of a process that holds.
const DATABASE: &str = "TENURE_TEST_SQLITE";
const KEY: &str = "report";
const SECOND: Duration = Duration::from_secs(1);
/// Long enough that nobody takes it for the reason.
const TTL: Duration = Duration::from_secs(60);
/// The ttl of a holder that is to run out of it, and loses nothing if it stands still for a while before.
const SHORT_TTL: Duration = Duration::from_secs(5);

fn patient(holder: &str) -> ElectConfig {
    let config = ElectConfig::new("tests", holder).unwrap();
    config.with_hold_duration(40 * SECOND).with_refresh_interval(5 * SECOND).with_refresh_duration(TTL)
}

fn quick(holder: &str) -> ElectConfig {
    let config = ElectConfig::new("tests", holder).unwrap();
    config.with_hold_duration(4 * SECOND).with_refresh_interval(SECOND / 2).with_refresh_duration(SHORT_TTL)
}

/// A process that holds the key, and is killed with this value.
struct Holder(Child);

impl Holder {
    fn start(database: &PathBuf, config: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "takeover::holds", "--ignored", "--nocapture"])
            .env(DATABASE, database)
            .env("TENURE_TEST_CONFIG", config)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let holder = Self(child);
        assert!(
            out.lines().map_while(Result::ok).any(|line| line == "held"),
            "it ended before it held the key"
        );
        holder
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
#[ignore = "not a test: the process that others start"]
async fn holds() {
    let Ok(database) = std::env::var(DATABASE) else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let config = if std::env::var("TENURE_TEST_CONFIG").unwrap() == "quick" { quick } else { patient };
    let store = SqliteStore::open(database).unwrap();
    let elect = Elect::start(store, config("holder")).await.unwrap();
    let _guard = elect.acquire(KEY).await.unwrap();
    println!("\nheld");
    std::future::pending::<()>().await;
}

/// Waits until a ticket stands in the queue of the key.
async fn until_in_queue(store: &SqliteStore) {
    let lock = tenure::model::LockId {
        namespace: "tests".parse().unwrap(),
        kind: tenure::model::Kind::Lock,
        key: KEY.parse().unwrap(),
    };
    let look = async || {
        let line = store.waiters(lock.clone(), 1, LIMIT).await.unwrap().waiters;
        if line.is_empty() { Err("nobody") } else { Ok(()) }
    };
    until("somebody waits in the queue", look).await;
}

/// Returns the declarers of the dead, as the records name them.
async fn declared_by(store: &SqliteStore) -> Vec<String> {
    let page = store.sessions("tests".parse().unwrap(), None, 1000, LIMIT).await.unwrap();
    page.items.into_iter().filter_map(|record| Some(record.death?.by.to_string())).collect()
}

/// As the store itself says.
const PROVEN: &str = "the SQLite store";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_killed_is_replaced_at_once() {
    let folder = Folder::new();
    let database = folder.database();
    let store = SqliteStore::open(&database).unwrap();
    let elect = Elect::start(store.clone(), patient("heir")).await.unwrap();
    let clock = SystemClock::new();
    let rounds: usize = std::env::var("TENURE_KILLS").map_or(5, |rounds| rounds.parse().unwrap());
    let mut took = Vec::new();
    for _ in 0..rounds {
        let holder = Holder::start(&database, "patient");
        let heir = tokio::spawn({
            let elect = elect.clone();
            async move { elect.acquire(KEY).await }
        });
        until_in_queue(&store).await;
        let killed = clock.now();
        holder.send(Signal::KILL);
        let guard = within("the heir has the key", heir).await.unwrap().unwrap();
        took.push(clock.now().since(killed));
        guard.release().await.unwrap();
    }
    assert_eq!(declared_by(&store).await, vec![PROVEN; rounds], "nobody waits for a ttl");
    took.sort_unstable();
    let (p50, p95) = (took[rounds / 2], took[rounds * 95 / 100]);
    println!("replaced after {p50:.1?}, 95 of 100 within {p95:.1?}");
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_stands_still_is_replaced_after_its_ttl() {
    let folder = Folder::new();
    let database = folder.database();
    let store = SqliteStore::open(&database).unwrap();
    let elect = Elect::start(store.clone(), patient("heir")).await.unwrap();
    let holder = Holder::start(&database, "quick");
    let clock = SystemClock::new();
    let frozen = clock.now();
    holder.send(Signal::STOP);
    let guard = within("its ttl counts", elect.acquire(KEY)).await.unwrap();
    let took = clock.now().since(frozen);
    // Its last beat may be as old as the interval.
    assert!(took + SECOND / 2 >= SHORT_TTL, "only {took:?} after it was frozen");
    assert_eq!(declared_by(&store).await, ["heir"], "nothing proves it");
    guard.release().await.unwrap();
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_of_an_earlier_time_are_found_when_the_file_is_opened() {
    let folder = Folder::new();
    let database = folder.database();
    drop(Holder::start(&database, "patient"));
    let store = SqliteStore::open(&database).unwrap();
    let elect = Elect::start(store.clone(), patient("heir")).await.unwrap();
    let guard = within("nobody waits for a ttl", elect.acquire(KEY)).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(declared_by(&store).await, [PROVEN]);
    let look = async || {
        let files = std::fs::read_dir(folder.path().join("tenure.db-sessions")).unwrap().count();
        if files == 1 { Ok(()) } else { Err(files) }
    };
    until("the file of the dead one is gone", look).await;
    elect.close().await;
}
