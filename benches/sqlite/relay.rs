//! A key that two processes hand to and fro.

use std::{
    io::{BufRead, BufReader},
    time::Duration,
};

use tenure::{Clock, SystemClock};
use tokio::task::spawn_blocking;

use crate::{
    figures::{figure, measured},
    instances::{config, start},
    measure::median,
    place::{Place, given_store},
};

pub(crate) const RUNNER: &str = "relay";
const TURNS: usize = 400;
/// Held for so long, so that the other one waits in the queue by then.
const HELD: Duration = Duration::from_millis(10);

/// Holds the key again and again, and says when it began and when it ended.
pub(crate) async fn run() {
    let elect = start(given_store(), config(&format!("runner {}", std::process::id()))).await;
    let clock = SystemClock::new();
    let nanos = || clock.now().since(tenure::clock::Moment::after_start(Duration::ZERO)).as_nanos();
    loop {
        let guard = elect.acquire("the baton").await.expect("the disk works");
        let began = nanos();
        tokio::time::sleep(HELD).await;
        let ended = nanos();
        println!("{began} {ended}");
        guard.release().await.expect("the disk works");
    }
}

pub(crate) async fn between_two_processes() {
    let place = Place::new("handover");
    let mut runners = [place.process(RUNNER), place.process(RUNNER)];
    let (turns, mut told) = tokio::sync::mpsc::unbounded_channel();
    for (number, runner) in runners.iter_mut().enumerate() {
        let out = BufReader::new(runner.0.stdout.take().expect("it is piped"));
        let turns = turns.clone();
        spawn_blocking(move || {
            for line in out.lines().map_while(Result::ok) {
                let turn = line.split_once(' ').and_then(|(began, ended)| {
                    Some((began.parse::<u64>().ok()?, ended.parse::<u64>().ok()?))
                });
                let turn = turn.expect("two numbers");
                if turns.send((turn, number)).is_err() {
                    return;
                }
            }
        });
    }
    drop(turns);
    let mut all = Vec::new();
    while all.len() < TURNS {
        all.push(told.recv().await.expect("they go on until they are killed"));
    }
    drop(runners);
    all.sort_unstable();
    let took = all.windows(2).filter(|two| two[0].1 != two[1].1).map(|two| {
        let (((_, ended), _), ((began, _), _)) = (two[0], two[1]);
        assert!(began >= ended, "two held the key at once");
        (began - ended) as f64 / 1000.0
    });
    let mut took: Vec<f64> = took.collect();
    assert!(took.len() > TURNS / 2, "only {} turns were handed over", took.len());
    took.sort_by(f64::total_cmp);
    measured("sqlite_handover_p95", took[took.len() * 95 / 100], "µs");
    figure("sqlite_handover_p50_ms", median(took) / 1000.0);
}
