//! Acquire and release, by one client and by 64 tasks.

use std::sync::Arc;

use futures::FutureExt;
use mongodb::{Client, Collection, bson::Document};
use tenure::{model::SessionId, store::StoreExt};

use crate::{
    figures::{figure, measured},
    group::Group,
    many::{Contestant, TASKS, rate},
    measure::{median, micros, now, ratio, turn},
    world::{LIMIT, World, bare, given_up, granted, insert},
};

/// The latency of one pair after the other.
pub(crate) async fn one_client(world: &World) {
    const ROUNDS: usize = 9;
    const PAIRS: usize = 120;
    const NAMES: [&str; 3] = ["pair", "floor2", "floor2n"];
    let (session, lock) = (world.open().await, World::lock("one client"));
    let plain = World::collection(&world.plain, "floor");
    let no_retry = World::collection(&world.no_retry, "floor");
    insert(&plain, ["one client".to_owned()]).await;

    let mut pairs = [const { Vec::new() }; 3];
    let mut takes = Vec::new();
    let mut cpu = [0.0; 3];
    for round in 0..=ROUNDS {
        for contestant in turn(round, 3) {
            let (mut pair, mut take) = (Vec::new(), Vec::new());
            let before = world.cpu();
            for _ in 0..PAIRS {
                let started = now();
                match contestant {
                    0 => {
                        let term = world.take(&lock, session).await;
                        take.push(micros(started.elapsed()));
                        world.release(&lock, session, term).await;
                    }
                    1 => two(&plain, "one client").await,
                    _ => two(&no_retry, "one client").await,
                }
                pair.push(micros(started.elapsed()));
            }
            // The first round is for warming up.
            if round > 0 {
                cpu[contestant] += world.cpu() - before;
                pairs[contestant].push(median(pair));
                if contestant == 0 {
                    takes.push(median(take));
                }
            }
        }
    }
    let nodes = world.nodes;
    for (name, (pair, cpu)) in NAMES.iter().zip(pairs.iter().zip(cpu)) {
        measured(&format!("{name}_p50_on_{nodes}"), median(pair.clone()), "µs");
        measured(&format!("{name}_server_cpu_on_{nodes}"), cpu / (ROUNDS * PAIRS) as f64, "µs");
    }
    measured(&format!("take_p50_on_{nodes}"), median(takes), "µs");
    measured(&format!("acquire_release_to_floor2n_on_{nodes}"), ratio(&pairs[0], &pairs[2]), "times");
    measured(&format!("acquire_release_cpu_to_floor2n_on_{nodes}"), cpu[0] / cpu[2], "times");
    figure(&format!("acquire_release_ratio_{nodes}"), ratio(&pairs[0], &pairs[1]));
    figure(&format!("acquire_release_cpu_ratio_{nodes}"), cpu[0] / cpu[1]);
}

async fn two(collection: &Collection<Document>, key: &str) {
    bare(collection, key).await;
    bare(collection, key).await;
}

/// Pairs that 64 tasks of one session get done, each on a key of its own.
pub(crate) async fn many_tasks(world: &Arc<World>) {
    const ROUNDS: usize = 5;
    const NAMES: [&str; 4] = ["floor2", "floor2n", "single", "batched"];
    let keys: Vec<_> = (0..TASKS).map(|task| format!("task {task}")).collect();
    insert(&World::collection(&world.plain, "floor"), keys).await;
    let session = world.open().await;
    let contestants = [
        bare_pairs(&world.plain),
        bare_pairs(&world.no_retry),
        single(world, session),
        batched(world, session),
    ];
    let mut rates = [const { Vec::new() }; 4];
    let mut spent = [(0.0, 0_u64); 4];
    for round in 0..=ROUNDS {
        for contestant in turn(round, 4) {
            let before = world.cpu();
            let (rate, pairs) = rate(&contestants[contestant]).await;
            // The first round is for warming up.
            if round > 0 {
                rates[contestant].push(rate);
                spent[contestant].0 += world.cpu() - before;
                spent[contestant].1 += pairs;
            }
        }
    }
    let nodes = world.nodes;
    for (name, (rate, (cpu, pairs))) in NAMES.iter().zip(rates.iter().zip(spent)) {
        measured(&format!("pairs_per_s_64_{name}_on_{nodes}"), median(rate.clone()), "pairs/s");
        measured(&format!("pairs_64_{name}_server_cpu_on_{nodes}"), cpu / pairs as f64, "µs");
    }
    for (name, rate) in NAMES.iter().zip(&rates).skip(2) {
        measured(&format!("pairs_per_s_64_{name}_to_floor2n_on_{nodes}"), ratio(rate, &rates[1]), "times");
        figure(&format!("pairs_per_s_ratio_64_{name}_{nodes}"), ratio(rate, &rates[0]));
    }
}

fn bare_pairs(client: &Client) -> Contestant {
    let collection = World::collection(client, "floor");
    Arc::new(move |task| {
        let collection = collection.clone();
        async move { two(&collection, &format!("task {task}")).await }.boxed()
    })
}

fn single(world: &Arc<World>, session: SessionId) -> Contestant {
    let world = Arc::clone(world);
    Arc::new(move |task| {
        let (world, lock) = (Arc::clone(&world), World::lock(&format!("task {task}")));
        async move {
            let term = world.take(&lock, session).await;
            world.release(&lock, session, term).await;
        }
        .boxed()
    })
}

fn batched(world: &Arc<World>, session: SessionId) -> Contestant {
    let store = world.store.clone();
    let takes = Group::new(move |takes| {
        let store = store.clone();
        async move { store.take(takes, Vec::new(), LIMIT).await.expect("the server answers") }
    });
    let store = world.store.clone();
    let releases = Group::new(move |releases| {
        let store = store.clone();
        async move { store.release(releases, LIMIT).await.expect("the server answers") }
    });
    let world = Arc::clone(world);
    Arc::new(move |task| {
        let (takes, releases) = (Arc::clone(&takes), Arc::clone(&releases));
        let (world, lock) = (Arc::clone(&world), World::lock(&format!("task {task}")));
        async move {
            let term = granted(&takes.send(world.ticket(lock.clone(), session)).await);
            releases.send(given_up(&lock, session, term)).await;
        }
        .boxed()
    })
}
