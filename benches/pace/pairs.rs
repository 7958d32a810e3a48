//! Acquire and release by 64 instances, each on a key of its own.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::join_all};
use mongodb::{
    Client, Collection,
    bson::{Document, doc},
    options::{Acknowledgment, ClientOptions, ReturnDocument, WriteConcern},
};
use tokio::time::sleep;

use crate::{
    figures::{figure, measured},
    instances::take,
    machine::{Meter, Spent},
    many::{Contestant, TASKS, rate},
    measure::{median, ratio, turn},
    table,
    waiting::{close, instances},
    world::{World, bare, insert},
};

const ROUNDS: usize = 3;
/// Of each contestant in its turn, after one to warm up.
const WINDOWS: usize = 3;
/// Time until what has just started is at rest.
const CALM: Duration = Duration::from_secs(1);

/// A turn: pairs a second, and what a pair cost the servers and this process.
#[derive(Clone, Copy, Debug)]
struct Turn {
    rate: f64,
    server: f64,
    client: f64,
}

/// Two bare majority `findAndModify`; the least that a lock can be, which is one of them to take it and an update of
/// `w: 1` to release it, each with a condition beside the `_id`; and the engine.
pub(crate) async fn of_64(world: &World) {
    let documents = (0..TASKS).map(|task| format!("pairs of 64, {task}"));
    insert(&World::collection(&world.plain, "floor"), documents).await;
    let mut rounds = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        for contestant in turn(round, 3) {
            let turn = match contestant {
                0 => plain(world, bare_pair).await,
                1 => plain(world, least_pair).await,
                _ => engines(world).await,
            };
            rounds[contestant].push(turn);
        }
    }
    let of = |place: usize, what: fn(&Turn) -> f64| rounds[place].iter().map(what).collect::<Vec<_>>();
    let row = |who: &str, place: usize| {
        vec![
            who.to_owned(),
            format!("{:.0}", median(of(place, |turn| turn.rate))),
            format!("{:.0}", median(of(place, |turn| turn.server))),
            format!("{:.0}", median(of(place, |turn| turn.client))),
        ]
    };
    let nodes = world.nodes;
    table::print(
        &format!("{TASKS} instances with one task each, on {nodes}"),
        &["who", "pairs/s", "servers µs a pair", "client µs a pair"],
        &[row("floor2", 0), row("least", 1), row("instances", 2)],
    );
    let rates = ratio(&of(2, |turn| turn.rate), &of(0, |turn| turn.rate));
    measured(&format!("pairs64_rate_ratio_{nodes}"), rates, "times");
    let least = ratio(&of(1, |turn| turn.server), &of(0, |turn| turn.server));
    measured(&format!("pairs64_server_least_ratio_{nodes}"), least, "times");
    let servers = ratio(&of(2, |turn| turn.server), &of(0, |turn| turn.server));
    figure(&format!("pairs64_server_ratio_{nodes}"), servers);
}

async fn measure(world: &World, contestant: Contestant) -> Turn {
    sleep(CALM).await;
    rate(&contestant).await;
    let (meter, mut pairs, mut rates) = (Meter::start(world), 0, Vec::new());
    for _ in 0..WINDOWS {
        let (rate, done) = rate(&contestant).await;
        rates.push(rate);
        pairs += done;
    }
    let Spent { servers, client, .. } = meter.stop();
    Turn { rate: median(rates), server: servers / pairs as f64, client: client / pairs as f64 }
}

async fn engines(world: &World) -> Turn {
    let instances = instances(world, TASKS, |config| config).await;
    let elects: Vec<_> = instances.iter().map(|instance| instance.elect.clone()).collect();
    let contestant: Contestant = Arc::new(move |task| {
        let elect = elects[task].clone();
        async move {
            let guard = take(&elect, &format!("task {task}")).await;
            guard.release().await.expect("the server answers");
        }
        .boxed()
    });
    let turn = measure(world, contestant).await;
    close(instances).await;
    turn
}

async fn plain<F: Future<Output = ()> + Send + 'static>(
    world: &World,
    pair: impl Fn(Collection<Document>, String) -> F + Send + Sync + 'static,
) -> Turn {
    let options = ClientOptions::parse(world.uri()).await.expect("the script prints a valid URI");
    let client = |_| Client::with_options(options.clone()).expect("these options are valid");
    let clients: Vec<Client> = (0..TASKS).map(client).collect();
    let collections: Vec<_> = clients.iter().map(|client| World::collection(client, "floor")).collect();
    let contestant: Contestant =
        Arc::new(move |task| pair(collections[task].clone(), format!("pairs of 64, {task}")).boxed());
    let turn = measure(world, contestant).await;
    join_all(clients.into_iter().map(|client| async move { client.shutdown().await })).await;
    turn
}

async fn bare_pair(collection: Collection<Document>, key: String) {
    bare(&collection, &key).await;
    bare(&collection, &key).await;
}

async fn least_pair(collection: Collection<Document>, key: String) {
    let mine = doc! { "_id": &key, "free": { "$ne": false } };
    let take = collection
        .find_one_and_update(mine, doc! { "$inc": { "n": 1_i64 }, "$set": { "free": false } })
        .return_document(ReturnDocument::After)
        .write_concern(WriteConcern::majority());
    take.await.expect("the server answers").expect("nobody else takes it");
    let mine = doc! { "_id": key, "free": false };
    let first = WriteConcern::builder().w(Acknowledgment::Nodes(1)).build();
    let release = collection.update_one(mine, doc! { "$set": { "free": true } }).write_concern(first);
    assert_eq!(release.await.expect("the server answers").matched_count, 1, "nobody else releases it");
}
