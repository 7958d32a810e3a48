//! Acquire and release, by one task and by 64.

use std::sync::Arc;

use futures::FutureExt;

use crate::{
    figures::{figure, measured},
    floor::{Floor, Sync},
    instances::take,
    many::{Contestant, rate},
    measure::{median, micros, now, ratio, turn},
    place::Place,
};

/// Measures one pair after the other: by the engine, and two bare transactions.
pub(crate) async fn one_task() {
    const ROUNDS: usize = 9;
    const PAIRS: usize = 60;
    let place = Place::new("one-task");
    let elect = place.instance("one task").await;
    let mut floor = Floor::open(&place.floor(), Sync::Full);
    let asked = Floor::open(&place.floor(), Sync::Full).on_a_thread();
    let mut pairs = [const { Vec::new() }; 3];
    for round in 0..=ROUNDS {
        for contestant in turn(round, 3) {
            let mut pair = Vec::new();
            for _ in 0..PAIRS {
                let started = now();
                match contestant {
                    0 => take(&elect, "one task").await.release().await.expect("the disk works"),
                    1 => tokio::task::block_in_place(|| floor.pair()),
                    _ => {
                        asked().await;
                        asked().await;
                    }
                }
                pair.push(micros(started.elapsed()));
            }
            // The first round is for warming up.
            if round > 0 {
                pairs[contestant].push(median(pair));
            }
        }
    }
    measured("sqlite_pair_p50", median(pairs[0].clone()), "µs");
    measured("sqlite_floor2_p50", median(pairs[1].clone()), "µs");
    measured("sqlite_floor2_on_a_thread_p50", median(pairs[2].clone()), "µs");
    measured("sqlite_pair_to_thread_p50_ratio", ratio(&pairs[0], &pairs[2]), "times");
    figure("sqlite_pair_p50_ratio", ratio(&pairs[0], &pairs[1]));
    elect.close().await;
}

/// 64 tasks of one instance, each with a key of its own, beside one bare pair after the other: there is one writer at a
/// time, so that more clients of the floor are no quicker.
pub(crate) async fn by_64() {
    const ROUNDS: usize = 5;
    let place = Place::new("64-tasks");
    let elect = place.instance("64 tasks").await;
    let mut floor = Floor::open(&place.floor(), Sync::Full);
    let contestant: Contestant = {
        let elect = elect.clone();
        Arc::new(move |task| {
            let elect = elect.clone();
            async move {
                take(&elect, &format!("task {task}")).await.release().await.expect("the disk works");
            }
            .boxed()
        })
    };
    let mut rates = [const { Vec::new() }; 2];
    for round in 0..=ROUNDS {
        for turn in turn(round, 2) {
            let rate = if turn == 0 {
                rate(&contestant).await.0
            } else {
                tokio::task::block_in_place(|| floor_rate(&mut floor))
            };
            if round > 0 {
                rates[turn].push(rate);
            }
        }
    }
    measured("sqlite_64_tasks_pairs_per_s", median(rates[0].clone()), "pairs/s");
    measured("sqlite_floor2_pairs_per_s", median(rates[1].clone()), "pairs/s");
    figure("sqlite_64_tasks_rate_ratio", ratio(&rates[0], &rates[1]));
    elect.close().await;
}

fn floor_rate(floor: &mut Floor) -> f64 {
    const PAIRS: u32 = 100;
    let started = now();
    for _ in 0..PAIRS {
        floor.pair();
    }
    f64::from(PAIRS) / started.elapsed().as_secs_f64()
}
