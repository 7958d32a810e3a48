//! A fleet on the SQLite store of one machine, whose processes are killed: waiters replace them at once, as their
//! deaths are proven. One that is frozen is replaced after its ttl.
//!
//! `TENURE_HOST_SECONDS=180 cargo test -p tenure-sim --all-features --test real host:: -- --nocapture` is the long run,
//! which kills one every second and measures.

use std::{
    io::{BufRead, BufReader},
    path::Path,
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
    audit::{Audit, Folder},
    court::PROVEN,
    fleet::{Fleet, Plan, Way, now},
    holder::{FILE, Pace},
    record::Record,
    support::wait::until,
};

const MEMBERS: usize = 8;
const KEYS: usize = 64;
/// Number of tasks they share out.
const TASKS: usize = 16;
/// Time between two kills.
const EVERY: Duration = Duration::from_secs(1);
/// Number of kills within the tests.
const FEW: u64 = 3;
/// A file that a process of the floor has locked.
const FLOOR: &str = "TENURE_TEST_FLOOR";
/// A member that worked so recently has the key.
const RECENT: Duration = Duration::from_millis(500);

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

/// Of locks: a task may rest that has died with several processes, and is taken for the cause, which could not be
/// told from chance here.
fn locks_of(keys: Vec<usize>) -> Vec<usize> {
    keys.into_iter().filter(|key| *key < KEYS).collect()
}

/// Waits until others work at the locks that a member had at that moment. Answers with when each of them began.
async fn replaced(fleet: &Fleet, member: usize, moment: Moment) -> Vec<Moment> {
    until(&format!("others work at the locks that {member} had"), async || {
        // Messages of others until then are heard within a moment; a process that took a lock before that is no heir.
        let had = locks_of(fleet.works_at(member, moment));
        let began = had.iter().filter_map(|key| fleet.began_elsewhere(*key, member, moment));
        let began: Vec<_> = began.collect();
        if began.len() == had.len() { Ok(began) } else { Err(had) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_on_a_file_keeps_its_promises_when_its_processes_are_killed() {
    let seconds = std::env::var("TENURE_HOST_SECONDS").ok().map(|seconds| seconds.parse().unwrap());
    let folder = Folder::new("host");
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
        ills: Vec::new(),
        with_guards: false,
    };
    let ways = vec![Way { uri: format!("{FILE}{}", database.display()), namespace: None }; MEMBERS];
    let mut fleet = Fleet::start(plan, Record::File(audit), ways).await;
    let held = fleet.converges(now()).await.expect("every key is held");
    println!("every key held after {held:.1?}");

    let (mut waits, mut floor, mut killed_sessions) = (Vec::new(), Vec::new(), Vec::new());
    let shown = std::env::var_os("TENURE_HOST_SHOWN").is_some();
    for kill in 0..seconds.unwrap_or(FEW) {
        let member = usize::try_from(kill).unwrap() % MEMBERS;
        killed_sessions.extend(fleet.session(member));
        let killed = now();
        fleet.kill(member).await;
        let began = replaced(&fleet, member, killed).await;
        let mut times: Vec<_> = began.iter().map(|began| began.since(killed)).collect();
        waits.extend(&times);
        if shown {
            times.sort_unstable();
            println!("{times:.1?}");
        }
        if seconds.is_some() {
            // Not beside it: they would wait for one another's processors.
            floor.push(tokio::task::block_in_place(|| bare_handover(&folder.0.join("floor"))));
        }
        fleet.run(member);
        judged(&mut fleet, "a kill").await;
        if seconds.is_some() {
            sleep((killed + EVERY).since(now())).await;
        }
    }
    if seconds.is_some() {
        tell(waits, floor);
    }
    a_frozen_one_is_replaced_after_its_ttl(&mut fleet).await;
    let judged = fleet.end().await;
    assert!(judged.is_none(), "at the end: {}", judged.unwrap());
    for session in killed_sessions {
        // A session that its own instance had given up may be declared by any other.
        let ground = fleet.court.ground(session).filter(|_| !fleet.court.is_given_up(session));
        assert!(ground.is_none_or(|ground| ground == PROVEN), "somebody waited for a ttl: {ground:?}");
    }
    println!("{} entries judged, no violation", fleet.court.entries());
}

/// Prints how long locks had no holder, beside how long the kernel takes.
fn tell(mut waits: Vec<Duration>, mut floor: Vec<Duration>) {
    waits.sort_unstable();
    floor.sort_unstable();
    println!(
        "{} killed, {} keys replaced after {:.1?} (p50), {:.1?} (p95), {:.1?} (worst); a bare lock after \
         {:.2?} (p50), {:.2?} (p95)",
        floor.len(),
        waits.len(),
        at(&waits, 50),
        at(&waits, 95),
        at(&waits, 100),
        at(&floor, 50),
        at(&floor, 95)
    );
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    figure("killed_replaced_p50_ms", millis(at(&waits, 50)), 50.0);
    figure("killed_replaced_p95_to_flock", millis(at(&waits, 95)) / millis(at(&floor, 95)), 5.0);
}

/// A frozen holder is replaced after its ttl. The wait of the others is judged by the court, from its last beat.
async fn a_frozen_one_is_replaced_after_its_ttl(fleet: &mut Fleet) {
    fleet.converges(now()).await.expect("every key is held");
    let (member, first) = loop {
        let (member, _) = fleet.until_busiest(RECENT).await;
        fleet.freeze_between_writes(member).await;
        let frozen = now();
        let began = replaced(fleet, member, frozen).await;
        if let Some(first) = began.iter().min() {
            println!("one of {} locks was frozen", began.len());
            break (member, first.since(frozen));
        }
        fleet.thaw(member);
    };
    let session = fleet.session(member).expect("it had locks");
    println!("replaced {first:.1?} after it was frozen");
    fleet.thaw(member);
    fleet.converges(now()).await.expect("every key is held");
    judged(fleet, "a freeze").await;
    let ground = fleet.court.ground(session);
    assert!(ground.is_some_and(|ground| ground != PROVEN), "it stood still, and was alive: {ground:?}");
}
