//! Cost of instances that wait and to whom nothing happens.

use std::time::Duration;

use futures::future::join_all;
use mongodb::{
    Client,
    bson::doc,
    options::{ClientOptions, WriteConcern},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};

use crate::{
    figures::{figure, measured},
    machine::{Meter, Spent},
    measure::{median, now, ratio, turn},
    table,
    waiting::Waiting,
    world::{World, insert},
};

const INSTANCES: usize = 100;
const ROUNDS: usize = 3;
/// Time until instances that have just started are at rest.
const CALM: Duration = Duration::from_secs(6);
const CALM_OF_CLIENTS: Duration = Duration::from_secs(1);
/// The intervals at which instances beat, and for how long that is looked at.
const INTERVALS: [(Duration, Duration); 2] = [
    (Duration::from_secs(1), Duration::from_secs(6)),
    // The default.
    (Duration::from_secs(5), Duration::from_secs(10)),
];

/// Instances that wait, beside clients that do nothing but one write an interval.
pub(crate) async fn waiters(world: &World) {
    let documents = (0..INSTANCES).map(|number| format!("rest {number}"));
    insert(&World::collection(&world.plain, "floor"), documents).await;
    for (interval, window) in INTERVALS {
        every(world, interval, window).await;
    }
}

async fn every(world: &World, interval: Duration, window: Duration) {
    let mut rounds = [const { Vec::new() }; 2];
    let idle = spent(world, CALM_OF_CLIENTS * 2).await.servers_a_second();
    for round in 0..ROUNDS {
        for contestant in turn(round, 2) {
            if contestant == 0 {
                let floor = Floor::start(world, interval).await;
                sleep(interval.max(CALM_OF_CLIENTS)).await;
                rounds[0].push(spent(world, window).await);
                floor.end().await;
            } else {
                let waiting =
                    Waiting::start(world, INSTANCES, |config| config.with_refresh_interval(interval)).await;
                sleep(CALM).await;
                rounds[1].push(spent(world, window).await);
                waiting.end().await;
            }
        }
    }
    let (nodes, seconds) = (world.nodes, interval.as_secs());
    let servers = rounds
        .each_ref()
        .map(|rounds| rounds.iter().map(|spent| spent.servers_a_second()).collect::<Vec<_>>());
    let client = rounds
        .each_ref()
        .map(|rounds| rounds.iter().map(|spent| spent.client_a_second()).collect::<Vec<_>>());
    let row = |who: &str, place: usize| {
        let beats = INSTANCES as f64 / interval.as_secs_f64();
        let servers = median(servers[place].clone());
        vec![
            who.to_owned(),
            format!("{:.1}", servers / 1e3),
            format!("{:.0}", servers / beats),
            format!("{:.1}", median(client[place].clone()) / 1e3),
        ]
    };
    table::print(
        &format!("{INSTANCES} that wait, an interval of {seconds} s, on {nodes}"),
        &["who", "servers ms/s", "µs a beat", "client ms/s"],
        &[row("one updateOne an interval", 0), row("instances", 1)],
    );
    measured(&format!("rest_{seconds}s_servers_with_nobody_on_{nodes}"), idle / 1e3, "ms/s");
    figure(&format!("rest_{seconds}s_server_ratio_{nodes}"), ratio(&servers[1], &servers[0]));
}

async fn spent(world: &World, window: Duration) -> Spent {
    let meter = Meter::start(world);
    sleep(window).await;
    meter.stop()
}

/// Plain clients as the driver makes them, each of which writes its document once an interval.
struct Floor {
    clients: Vec<Client>,
    writers: Vec<JoinHandle<()>>,
}

impl Floor {
    async fn start(world: &World, interval: Duration) -> Self {
        let options = ClientOptions::parse(world.uri()).await.expect("the script prints a valid URI");
        let client = |_| Client::with_options(options.clone()).expect("these options are valid");
        let clients: Vec<Client> = (0..INSTANCES).map(client).collect();
        let began = Instant::from_std(now());
        let writers = clients.iter().enumerate().map(|(number, client)| {
            let collection = World::collection(client, "floor");
            // Each in another phase.
            let first = began + interval.mul_f64(number as f64 / INSTANCES as f64);
            tokio::spawn(async move {
                let mut beat = interval_at(first, interval);
                beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let id = doc! { "_id": format!("rest {number}") };
                let change = doc! { "$inc": { "n": 1_i64 }, "$set": { "by": "pod-1" } };
                loop {
                    beat.tick().await;
                    let update = collection.update_one(id.clone(), change.clone());
                    update.write_concern(WriteConcern::majority()).await.expect("the server answers");
                }
            })
        });
        let writers = writers.collect();
        Self { clients, writers }
    }

    async fn end(self) {
        for writer in &self.writers {
            writer.abort();
        }
        // An error says that it was aborted.
        join_all(self.writers).await;
        join_all(self.clients.into_iter().map(|client| async move { client.shutdown().await })).await;
    }
}
