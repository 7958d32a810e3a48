//! A process whose instance does nothing but beat: how often its threads wake.

use std::{
    fs,
    io::{BufRead, BufReader},
    time::Duration,
};

use crate::{
    figures::figure,
    place::{Place, given_store, quick, start},
};

pub(crate) const ONE: &str = "idle";
const WATCHED: Duration = Duration::from_secs(20);

/// Beats, and waits for one key.
pub(crate) async fn wait() {
    let elect = start(given_store(), quick("idle")).await;
    println!("started");
    elect.acquire("never free").await.map(drop).expect("it ends before this does");
}

/// The wake-ups of all threads, a beat.
pub(crate) async fn process() {
    let place = Place::new("idle");
    let elect = place.instance("holder").await;
    let guard = elect.acquire("never free").await.expect("the disk works");
    let mut process = place.process(ONE);
    let mut out = BufReader::new(process.0.stdout.take().expect("it is piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("it writes text");
    assert_eq!(line.trim(), "started");
    // It has begun to wait by then.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = wakes(process.0.id());
    tokio::time::sleep(WATCHED).await;
    let woke = wakes(process.0.id()) - before;
    let beats = WATCHED.as_secs_f64() / quick("idle").refresh_interval().as_secs_f64();
    figure("sqlite_idle_wakes_per_beat", woke / beats);
    drop(process);
    drop(guard);
    elect.close().await;
}

/// How often the threads of a process have waited for something of their own accord.
fn wakes(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let switches = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<f64>().ok()
    };
    tasks.flatten().filter_map(|task| switches(fs::read_to_string(task.path().join("status")).ok()?)).sum()
}
