//! Acquire and release through the engine: by one task, and by 64.

use std::sync::Arc;

use futures::FutureExt;

use crate::{
    figures::{figure, measured},
    instances::take,
    many::{Contestant, TASKS, rate},
    measure::{median, micros, now, ratio, turn},
    world::{World, bare, insert},
};

/// Measures one pair after the other: the engine, the store alone, and the floor.
pub(crate) async fn one_task(world: &World) {
    const ROUNDS: usize = 9;
    const PAIRS: usize = 120;
    const NAMES: [&str; 3] = ["engine", "store", "floor2"];
    let elect = world.instance("one task").await;
    let (session, lock) = (world.open().await, World::lock("one task"));
    let plain = World::collection(&world.plain, "floor");
    insert(&plain, ["one task".to_owned()]).await;
    let mut pairs = [const { Vec::new() }; 3];
    let mut cpu = [0.0; 3];
    for round in 0..=ROUNDS {
        for contestant in turn(round, 3) {
            let mut pair = Vec::new();
            let before = world.cpu();
            for _ in 0..PAIRS {
                let started = now();
                match contestant {
                    0 => take(&elect, "one task").await.release().await.expect("the server answers"),
                    1 => {
                        let term = world.take(&lock, session).await;
                        world.release(&lock, session, term).await;
                    }
                    _ => {
                        bare(&plain, "one task").await;
                        bare(&plain, "one task").await;
                    }
                }
                pair.push(micros(started.elapsed()));
            }
            // The first round is for warming up.
            if round > 0 {
                cpu[contestant] += world.cpu() - before;
                pairs[contestant].push(median(pair));
            }
        }
    }
    for (name, (pair, cpu)) in NAMES.iter().zip(pairs.iter().zip(cpu)) {
        measured(&format!("one_task_{name}_p50"), median(pair.clone()), "µs");
        measured(&format!("one_task_{name}_server_cpu"), cpu / (ROUNDS * PAIRS) as f64, "µs");
    }
    figure("one_task_engine_to_store", ratio(&pairs[0], &pairs[1]));
    figure("one_task_engine_to_floor2", ratio(&pairs[0], &pairs[2]));
    elect.close().await;
}

/// Pairs that 64 tasks of one instance get done, each on a key of its own.
pub(crate) async fn many_tasks(world: &Arc<World>) {
    const ROUNDS: usize = 5;
    const NAMES: [&str; 2] = ["engine", "floor2"];
    let keys: Vec<_> = (0..TASKS).map(|task| format!("task {task}")).collect();
    insert(&World::collection(&world.plain, "floor"), keys).await;
    let elect = world.instance("many tasks").await;
    let engine: Contestant = {
        let elect = elect.clone();
        Arc::new(move |task| {
            let elect = elect.clone();
            async move {
                let guard = take(&elect, &format!("task {task}")).await;
                guard.release().await.expect("the server answers");
            }
            .boxed()
        })
    };
    let floor: Contestant = {
        let collection = World::collection(&world.plain, "floor");
        Arc::new(move |task| {
            let collection = collection.clone();
            async move {
                let key = format!("task {task}");
                bare(&collection, &key).await;
                bare(&collection, &key).await;
            }
            .boxed()
        })
    };
    let contestants = [engine, floor];
    let mut rates = [const { Vec::new() }; 2];
    let mut spent = [(0.0, 0_u64); 2];
    for round in 0..=ROUNDS {
        for contestant in turn(round, 2) {
            let before = world.cpu();
            let (rate, pairs) = rate(&contestants[contestant]).await;
            if round > 0 {
                rates[contestant].push(rate);
                spent[contestant].0 += world.cpu() - before;
                spent[contestant].1 += pairs;
            }
        }
    }
    for (name, (rate, (cpu, pairs))) in NAMES.iter().zip(rates.iter().zip(spent)) {
        measured(&format!("pairs_per_s_64_{name}"), median(rate.clone()), "pairs/s");
        measured(&format!("pairs_64_{name}_server_cpu"), cpu / pairs as f64, "µs");
    }
    figure("pairs_per_s_ratio_64", ratio(&rates[0], &rates[1]));
    elect.close().await;
}
