//! Turns of many on one key: 32 tasks of one instance, and 32 instances.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use mongodb::options::WriteConcern;
use tenure::Elect;
use tokio::time::sleep;

use crate::{
    events::WriteAndEvent,
    figures::{figure, measured},
    machine::{Meter, Spent},
    measure::{median, micros, now, ratio, turn},
    table,
    waiting::{close, instances},
    world::{World, bare, insert},
};

const TAKERS: usize = 32;
const ROUNDS: usize = 3;
/// Time to warm up, and time that counts.
const CALM: Duration = Duration::from_secs(2);
const WINDOW: Duration = Duration::from_secs(6);

/// A round: turns a second, the taker with the fewest to the one with the most, what a turn cost the servers.
#[derive(Clone, Copy, Debug)]
struct Turns {
    rate: f64,
    least_to_most: f64,
    server: f64,
}

pub(crate) async fn of_32(world: &World) {
    insert(&World::collection(&world.no_retry, "floor"), ["one by one".to_owned()]).await;
    let mut rounds = [const { Vec::new() }; 2];
    let (mut writes, mut events) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for contestant in turn(round, 4) {
            match contestant {
                0 => writes.push(1e6 / write(world).await),
                1 => events.push(1e6 / event(world).await),
                2 => rounds[0].push(turns(world, 1).await),
                _ => rounds[1].push(turns(world, TAKERS).await),
            }
        }
    }
    let of = |place: usize, what: fn(&Turns) -> f64| rounds[place].iter().map(what).collect::<Vec<_>>();
    let row = |who: &str, place: usize| {
        let of = |what| median(of(place, what));
        let (rate, least, server) = (of(|one| one.rate), of(|one| one.least_to_most), of(|one| one.server));
        vec![who.to_owned(), format!("{rate:.0}"), format!("{least:.2}"), format!("{server:.0}")]
    };
    let floor = |who: &str, rates: &[f64]| {
        vec![who.to_owned(), format!("{:.0}", median(rates.to_vec())), String::new(), String::new()]
    };
    let nodes = world.nodes;
    table::print(
        &format!("turns of {TAKERS} on one key, on {nodes}"),
        &["who", "turns/s", "least/most", "servers µs a turn"],
        &[
            floor("majority writes, one by one", &writes),
            floor("writes and their majority events", &events),
            row("tasks of one instance", 0),
            row("instances", 1),
        ],
    );
    figure(&format!("turns32_tasks_ratio_{nodes}"), ratio(&of(0, |one| one.rate), &writes));
    figure(&format!("turns32_instances_ratio_{nodes}"), ratio(&of(1, |one| one.rate), &events));
    figure(&format!("turns32_instances_least_{nodes}"), median(of(1, |one| one.least_to_most)));
    measured(&format!("turns32_instances_server_{nodes}"), median(of(1, |one| one.server)), "µs");
}

/// The median of a bare majority write.
async fn write(world: &World) -> f64 {
    let collection = World::collection(&world.no_retry, "floor");
    let mut times = Vec::new();
    for _ in 0..200 {
        let started = now();
        bare(&collection, "one by one").await;
        times.push(micros(started.elapsed()));
    }
    median(times)
}

/// The median of a majority write and its event.
async fn event(world: &World) -> f64 {
    let mut floor = WriteAndEvent::open(world, WriteConcern::majority()).await;
    let mut times = Vec::new();
    for _ in 0..200 {
        times.push(floor.once().await);
    }
    median(times)
}

/// As many takers in so many instances.
async fn turns(world: &World, number: usize) -> Turns {
    let instances = instances(world, number, |config| config).await;
    let key = format!("turns {}", world.draw());
    let over = Arc::new(AtomicBool::new(false));
    let counted = Arc::new(AtomicBool::new(false));
    let taker = |taker: usize| {
        let elect: Elect = instances[taker % number].elect.clone();
        let (key, over, counted) = (key.clone(), Arc::clone(&over), Arc::clone(&counted));
        tokio::spawn(async move {
            let mut turns = 0_u64;
            while !over.load(Ordering::Relaxed) {
                let guard = elect.acquire(&key).await.expect("the server answers");
                guard.release().await.expect("the server answers");
                turns += u64::from(counted.load(Ordering::Relaxed));
            }
            turns
        })
    };
    let takers: Vec<_> = (0..TAKERS).map(taker).collect();
    sleep(CALM).await;
    counted.store(true, Ordering::Relaxed);
    let meter = Meter::start(world);
    sleep(WINDOW).await;
    over.store(true, Ordering::Relaxed);
    let Spent { seconds, servers, .. } = meter.stop();
    let turns: Vec<u64> =
        join_all(takers).await.into_iter().map(|turns| turns.expect("no task panics")).collect();
    close(instances).await;
    let all: u64 = turns.iter().sum();
    let (least, most) = (turns.iter().min().copied().unwrap_or(0), turns.iter().max().copied().unwrap_or(1));
    Turns {
        rate: all as f64 / seconds,
        least_to_most: least as f64 / most.max(1) as f64,
        server: servers / all.max(1) as f64,
    }
}
