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
    store::{Store, sqlite::SqliteStore},
};
use tokio::time::timeout;

use crate::folder::Folder;

/// The database of a process that holds.
const DATABASE: &str = "TENURE_TEST_SQLITE";
const KEY: &str = "report";
const SECOND: Duration = Duration::from_secs(1);
/// For what takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough that nobody takes it for the reason.
const TTL: Duration = Duration::from_secs(60);

fn patient(holder: &str) -> ElectConfig {
    let config = ElectConfig::new("tests", holder).unwrap();
    config.with_hold_duration(40 * SECOND).with_refresh_interval(5 * SECOND).with_refresh_duration(TTL)
}

fn quick(holder: &str) -> ElectConfig {
    let config = ElectConfig::new("tests", holder).unwrap();
    config.with_hold_duration(2 * SECOND).with_refresh_interval(SECOND / 2).with_refresh_duration(3 * SECOND)
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

/// Until somebody waits in line for the key.
async fn until_in_line(store: &SqliteStore) {
    let lock = tenure::model::LockId {
        namespace: "tests".parse().unwrap(),
        kind: tenure::model::Kind::Lock,
        key: KEY.parse().unwrap(),
    };
    let in_line = async {
        while store.waiters(lock.clone(), 1, PATIENCE).await.unwrap().waiters.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, in_line).await.expect("somebody waits in line");
}

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
        until_in_line(&store).await;
        let killed = clock.now();
        holder.send(Signal::KILL);
        let guard = timeout(PATIENCE, heir).await.expect("nobody waits for a ttl").unwrap().unwrap();
        took.push(clock.now().since(killed));
        guard.release().await.unwrap();
    }
    took.sort_unstable();
    let (p50, p95) = (took[rounds / 2], took[rounds * 95 / 100]);
    println!("replaced after {p50:.1?}, 95 of 100 within {p95:.1?}");
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_stands_still_is_replaced_after_its_ttl() {
    let folder = Folder::new();
    let database = folder.database();
    let elect = Elect::start(SqliteStore::open(&database).unwrap(), quick("heir")).await.unwrap();
    let holder = Holder::start(&database, "quick");
    let clock = SystemClock::new();
    let frozen = clock.now();
    holder.send(Signal::STOP);
    let guard = timeout(PATIENCE, elect.acquire(KEY)).await.expect("its ttl counts").unwrap();
    let took = clock.now().since(frozen);
    // Its last beat may be as old as the interval.
    assert!(took + SECOND / 2 >= 3 * SECOND, "only {took:?} after it was frozen");
    guard.release().await.unwrap();
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_of_an_earlier_time_are_found_when_the_file_is_opened() {
    let folder = Folder::new();
    let database = folder.database();
    drop(Holder::start(&database, "patient"));
    let elect = Elect::start(SqliteStore::open(&database).unwrap(), patient("heir")).await.unwrap();
    let guard = timeout(PATIENCE, elect.acquire(KEY)).await.expect("nobody waits for a ttl").unwrap();
    guard.release().await.unwrap();
    let files = std::fs::read_dir(folder.path().join("tenure.db-sessions")).unwrap().count();
    assert_eq!(files, 1, "that of the dead one is gone");
    elect.close().await;
}
