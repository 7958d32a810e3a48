//! Processes whose instance does nothing but beat, and nothing but beat and wait for a key: how often their threads wake.

use std::{
    fs,
    io::{BufRead, BufReader},
    time::Duration,
};

use crate::{
    figures::{figure, measured},
    instances::{quick, start},
    place::{Place, given_store},
};

pub(crate) const BEATS: &str = "idle beats";
pub(crate) const WAITS: &str = "idle waits";
const WATCHED: Duration = Duration::from_secs(20);

/// Beats.
pub(crate) async fn beat() {
    let _elect = start(given_store(), quick("idle")).await;
    println!("started");
    std::future::pending::<()>().await;
}

/// Beats, and waits for one key.
pub(crate) async fn wait() {
    let elect = start(given_store(), quick("idle")).await;
    println!("started");
    elect.acquire("never free").await.map(drop).expect("it ends before this does");
}

/// The wake-ups, a beat: of the store's threads, each of which is a call of the store or something that the kernel told,
/// and of all threads.
pub(crate) async fn processes() {
    let place = Place::new("idle");
    let elect = place.instance("holder").await;
    let guard = elect.acquire("never free").await.expect("the disk works");
    for (purpose, name) in [(BEATS, "sqlite_idle"), (WAITS, "sqlite_waiting")] {
        let mut process = place.process(purpose);
        let mut out = BufReader::new(process.0.stdout.take().expect("it is piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("it writes text");
        assert_eq!(line.trim(), "started");
        // It has begun to wait by then.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = wakes(process.0.id());
        tokio::time::sleep(WATCHED).await;
        let woke = wakes(process.0.id());
        let beats = WATCHED.as_secs_f64() / quick("idle").refresh_interval().as_secs_f64();
        measured(&format!("{name}_wakes_per_beat"), (woke.all - before.all) / beats, "wakes");
        figure(&format!("{name}_calls_per_beat"), (woke.store - before.store) / beats);
    }
    drop(guard);
    elect.close().await;
}

struct Wakes {
    store: f64,
    all: f64,
}

/// Returns the number of voluntary waits of the threads of a process.
fn wakes(pid: u32) -> Wakes {
    let mut wakes = Wakes { store: 0.0, all: 0.0 };
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten() {
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let switches = field("voluntary_ctxt_switches:").and_then(|switches| switches.parse().ok());
        let switches: f64 = switches.unwrap_or_default();
        wakes.all += switches;
        // The keeper is no thread of the store.
        if field("Name:").is_some_and(|name| name.starts_with("tenure-") && name != "tenure-keeper") {
            wakes.store += switches;
        }
    }
    wakes
}
