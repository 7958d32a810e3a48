//! A fleet on the SQLite store of one machine, of which a process is killed every second: whoever waits replaces it at
//! once, as its death is proven. One that is frozen is replaced after its ttl.
//!
//! `TENURE_HOST_SECONDS=180 cargo test -p tenure-sim --all-features --test real host:: -- --nocapture` is the long run.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    process::Signal,
};
use tenure::clock::Moment;
use tokio::time::sleep;

use crate::{
    audit::Audit,
    fleet::{BOUND, Fleet, Plan, Way, now, until},
    holder::{self, FILE, Pace},
    record::Record,
};

const MEMBERS: usize = 8;
const KEYS: usize = 64;
/// Number of tasks they share out.
const TASKS: usize = 16;
/// Time between two kills.
const EVERY: Duration = Duration::from_secs(1);
/// Of a run within the tests.
const SHORT: u64 = 8;
/// A file that a process of the floor has locked.
const FLOOR: &str = "TENURE_TEST_FLOOR";
/// Whoever worked so recently has the key.
const RECENT: Duration = Duration::from_millis(500);

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("tenure-host-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
#[ignore = "not a test: a process that others start"]
fn locks_a_file() {
    let Ok(path) = std::env::var(FLOOR) else { return };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let file = std::fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
    println!("\nasks");
    flock(&file, FlockOperation::LockExclusive).unwrap();
    println!("has {}", now().since(crate::lines::start()).as_nanos());
    loop {
        std::thread::park();
    }
}

/// A process that waits for the lock of a file, and then has it.
struct Contender {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Contender {
    fn start(path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "host::locks_a_file", "--ignored", "--nocapture", "--test-threads=1"])
            .env(FLOOR, path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut contender = Self { child, lines };
        contender.hear("asks");
        contender
    }

    fn hear(&mut self, word: &str) -> String {
        loop {
            let line = self.lines.next().expect("it goes on").unwrap();
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn has_since(&mut self) -> Moment {
        crate::lines::start() + Duration::from_nanos(self.hear("has").parse().unwrap())
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The floor: how long it takes until a lock that a killed process had is another one's.
fn bare_handover(path: &Path) -> Duration {
    let mut first = Contender::start(path);
    first.has_since();
    let mut second = Contender::start(path);
    // Its line comes before it asks.
    std::thread::sleep(Duration::from_millis(5));
    let killed = now();
    drop(first);
    second.has_since().since(killed)
}

fn at(sorted: &[Duration], hundredths: usize) -> Duration {
    sorted[(sorted.len() * hundredths / 100).min(sorted.len() - 1)]
}

fn figure(name: &str, value: f64, goal: f64) {
    let is_ok = if value <= goal { "ok" } else { "short" };
    println!("figure {name} {value:.2} goal {goal:.2} {is_ok}");
}

async fn judged(fleet: &mut Fleet, after: &str) {
    let judged = fleet.judge().await;
    assert!(judged.is_none(), "after {after}: {}", judged.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_on_a_file_keeps_its_promises_when_its_processes_are_killed() {
    let seconds = std::env::var("TENURE_HOST_SECONDS").map_or(SHORT, |seconds| seconds.parse().unwrap());
    let folder = Folder::new();
    let database = folder.0.join("tenure.db");
    let audit = Audit::new(&database).await;
    let plan = Plan {
        seed: 1,
        members: MEMBERS,
        keys: KEYS,
        tasks: TASKS,
        database: "host".to_owned(),
        one_time: true,
        pace: Pace::Patient,
    };
    let ways = vec![Way { uri: format!("{FILE}{}", database.display()), namespace: None }; MEMBERS];
    let mut fleet = Fleet::start(plan, Record::File(audit), ways).await;
    let held = fleet.converges(now(), BOUND).await.expect("every key is held");
    judged(&mut fleet, "the start").await;
    println!("every key held after {held:.1?}");

    let (mut replaced, mut floor) = (Vec::new(), Vec::new());
    let shown = std::env::var_os("TENURE_HOST_SHOWN").is_some();
    for second in 0..seconds {
        let member = usize::try_from(second).unwrap() % MEMBERS;
        let killed = now();
        fleet.kill(member).await;
        // What others have said until then is heard within a moment; who took a key before the kill is no heir.
        let mut times = Vec::new();
        let what = format!("others work at the keys that {member} had");
        until(&what, BOUND, || {
            let keys = fleet.works_at(member, killed).into_iter().filter(|key| *key < KEYS);
            let began: Vec<_> = keys.map(|key| fleet.began_elsewhere(key, member, killed)).collect();
            times = began.iter().flatten().map(|began| began.since(killed)).collect();
            std::future::ready((times.len() == began.len()).then_some(()))
        })
        .await;
        replaced.extend(&times);
        if shown {
            times.sort_unstable();
            println!("{times:.1?}");
        }
        // Not beside it: they would wait for one another's processors.
        floor.push(tokio::task::block_in_place(|| bare_handover(&folder.0.join("floor"))));
        fleet.run(member);
        judged(&mut fleet, "a kill").await;
        sleep((killed + EVERY).since(now())).await;
    }
    replaced.sort_unstable();
    floor.sort_unstable();
    let worst = *replaced.last().expect("somebody had a key");
    println!(
        "{seconds} killed, {} keys replaced after {:.1?} (p50), {:.1?} (p95), {worst:.1?} (worst); a bare lock after \
         {:.2?} (p50), {:.2?} (p95)",
        replaced.len(),
        at(&replaced, 50),
        at(&replaced, 95),
        at(&floor, 50),
        at(&floor, 95)
    );
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    figure("killed_replaced_p50_ms", millis(at(&replaced, 50)), 50.0);
    figure("killed_replaced_p95_to_flock", millis(at(&replaced, 95)) / millis(at(&floor, 95)), 5.0);
    assert!(worst < holder::config(0, Pace::Patient).ttl() / 2, "somebody waited for a ttl: {worst:?}");

    a_frozen_one_is_replaced_after_its_ttl(&mut fleet).await;
    let judged = fleet.end().await;
    assert!(judged.is_none(), "at the end: {}", judged.unwrap());
    println!("{} entries judged, no violation", fleet.court.entries());
}

/// Of the tasks some may rest: one that has died with several processes is taken for the cause, which nobody here could
/// tell from chance.
async fn every_key_is_held(fleet: &Fleet) {
    let since = now();
    until("every key is held", BOUND, || async {
        let missing = fleet.not_held(since).await?;
        missing.iter().all(|key| *key >= KEYS).then_some(())
    })
    .await;
}

async fn a_frozen_one_is_replaced_after_its_ttl(fleet: &mut Fleet) {
    let config = holder::config(0, Pace::Patient);
    every_key_is_held(fleet).await;
    let (member, _) = until("somebody works", BOUND, || async { fleet.busiest(now() - RECENT) }).await;
    fleet.freeze(member).await;
    let frozen = now();
    let mut times = Vec::new();
    until(&format!("others work at the keys that {member} has"), BOUND, || {
        // Its tasks may rest, as above.
        let has = fleet.works_at(member, frozen).into_iter().filter(|key| *key < KEYS);
        let has: Vec<_> = has.collect();
        let began: Vec<_> = has.iter().map(|key| fleet.began_elsewhere(*key, member, frozen)).collect();
        times = began.iter().flatten().map(|began| began.since(frozen)).collect();
        std::future::ready((times.len() == began.len() && !began.is_empty()).then_some(()))
    })
    .await;
    let first = *times.iter().min().expect("it had a key");
    // Its last beat may be as old as the interval.
    assert!(
        first + config.refresh_interval() * 2 >= config.ttl(),
        "replaced {first:.1?} after it was frozen"
    );
    println!("one of {} keys was frozen, and replaced after {first:.1?}", times.len());
    fleet.thaw(member);
    every_key_is_held(fleet).await;
    judged(fleet, "a freeze").await;
}
