//! No part grows with the keys ever seen: neither the heap of the process, nor what the store keeps beyond its
//! retention.
//!
//! Four days in paused time, on the memory store, which is on the same heap. `GROWTH_KEYS=1000000` sets how many keys pass
//! in them, 20,000 by default; the bench `growth` does the same to real servers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod load;

use std::{sync::Arc, time::Duration};

use peak_alloc::PeakAlloc;
use tenure::{
    Elect, ElectConfig,
    store::{MemoryStore, Store},
    testing::{Fault, Faulty, Intercept, Operation, TestClock},
};

use self::load::Load;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAYS: usize = 4;
/// Parts of a day: after each an instance dies that holds some of the part's keys.
const PARTS: usize = 24 * 4;
const RETENTION: Duration = HOUR;

/// Measurements at the end of an hour.
#[derive(Clone, Copy, Debug)]
struct Sample {
    heap: usize,
    locks: usize,
    sessions: usize,
    places: usize,
}

fn config(holder: &str) -> ElectConfig {
    ElectConfig::new("test", holder)
        .unwrap()
        .with_refresh_interval(MINUTE)
        .with_refresh_duration(6 * MINUTE)
        .with_retention_locks(RETENTION)
        .with_retention_sessions(RETENTION)
}

async fn instance(clock: &Arc<TestClock>, store: Arc<dyn Store>, holder: &str, seed: usize) -> Elect {
    let builder = Elect::builder(store, config(holder)).clock(clock.clone());
    builder.seed(seed as u64).start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_used_once_leave_nothing_behind() {
    let keys =
        std::env::var("GROWTH_KEYS").map_or(20_000, |keys| keys.parse().expect("GROWTH_KEYS is a number"));
    let clock = Arc::new(TestClock::new());
    let memory = MemoryStore::new(clock.clone());
    let of =
        |holder: &'static str, seed| instance(&clock, Arc::new(memory.clone()), holder, DAYS * PARTS + seed);
    let mut load = Load::new([of("a", 1).await, of("b", 2).await, of("c", 3).await]);
    let mut samples = Vec::new();
    for part in 1..=DAYS * PARTS {
        // A process that dies: nothing it sends arrives any more, and what it had in memory is gone.
        let faulty = Faulty::default().around(Arc::new(memory.clone()));
        let doomed = instance(&clock, faulty.clone(), "doomed", part).await;
        let held = load.pass(keys * part / (DAYS * PARTS) - load.seen(), &doomed).await;
        faulty.intercept().always(Operation::ALL, Fault::Swallowed);
        drop((held, doomed));
        tokio::time::sleep(24 * HOUR / u32::try_from(PARTS).unwrap()).await;
        if part % (PARTS / 24) == 0 {
            let kept = memory.kept();
            samples.push(Sample {
                heap: HEAP.current_usage(),
                locks: kept.locks,
                sessions: kept.sessions,
                places: kept.places,
            });
        }
    }
    load.close().await;

    // The mean of twelve hours: between two purges of all instances there is more or less to purge.
    let mean = |day: usize, what: fn(&Sample) -> usize| {
        let hours = &samples[day * 24 - 12..day * 24];
        hours.iter().map(what).sum::<usize>() / hours.len()
    };
    for (name, what) in [
        ("heap", (|s| s.heap) as fn(&Sample) -> usize),
        ("locks", |s| s.locks),
        ("sessions", |s| s.sessions),
        ("places in the queue", |s| s.places),
    ] {
        let (second, fourth) = (mean(2, what), mean(4, what));
        println!("{keys} keys, {name}: {} on day 1, {second} on day 2, {fourth} on day 4", mean(1, what));
        assert!(fourth <= second + second / 10 + 1, "{name} grows: {second} on day 2, {fourth} on day 4");
    }
}
