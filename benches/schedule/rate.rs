//! Ticks a second that one instance runs, beside the rate of bare commands.

use std::time::Duration;

use futures::future::join_all;
use mongodb::{
    Collection,
    bson::{Document, doc},
    options::{ReturnDocument, WriteConcern},
};

use crate::{
    crew::{Config, Crew, Late, SECOND},
    figures::measured,
    measure::now,
    world::{World, bare, insert},
};

const STEPS: [usize; 10] = [250, 500, 750, 900, 1000, 1250, 1500, 2000, 3000, 4000];
const WINDOW: u32 = 10;
/// Largest lateness, in milliseconds.
const BOUND: f64 = 1000.0;
/// As many as the store sends at once.
const TASKS: usize = 64;

/// Schedules that are due every second, more and more of them, while 99 of 100 ticks begin within a second.
pub(crate) async fn one_instance(world: &World) {
    let floors = [floors(world).await];
    let mut crew = Crew::new(world, "rate", 1, Config::Default).await;
    let mut best = 0.0_f64;
    for schedules in STEPS {
        crew.schedules(schedules, "* * * * * *", Duration::ZERO);
        crew.settled(schedules).await;
        tokio::time::sleep(4 * SECOND).await;
        crew.take_runs();
        let (begun, sent, server, own) = (now(), crew.sent(), world.cpu(), own_cpu());
        tokio::time::sleep(SECOND * WINDOW).await;
        let (runs, seconds) = (crew.take_runs(), begun.elapsed().as_secs_f64());
        let ticks = runs.len() as f64;
        let late = Late::of(&runs);
        let rate = ticks / seconds;
        let commands = (crew.sent() - sent) as f64 / ticks;
        let (server, own) = ((world.cpu() - server) / ticks, (own_cpu() - own) / ticks);
        println!(
            "measured rate_of_{schedules} {rate:.0} ticks/s, late p50 {:.0} p99 {:.0} max {:.0} ms, {commands:.2} commands a tick, µs a tick: {own:.0} here, {server:.0} of the servers",
            late.p50, late.p99, late.max
        );
        if late.p99 > BOUND || rate < 0.95 * schedules as f64 {
            break;
        }
        best = best.max(rate);
    }
    crew.close().await;
    let [before, after] = [floors[0], self::floors(world).await];
    let mean = |floor: fn(&Floors) -> f64| f64::midpoint(floor(&before), floor(&after));
    let (update, upsert) = (mean(|floors| floors.update), mean(|floors| floors.upsert));
    measured("rate_sustained", best, "ticks/s");
    measured("rate_floor_two_updates", update, "pairs/s");
    measured("rate_floor_upsert_and_update", upsert, "pairs/s");
    measured("rate_to_two_updates", best / update, "ratio");
    measured("rate_to_upsert_and_update", best / upsert, "ratio");
}

fn own_cpu() -> f64 {
    crate::measure::cpu(&[std::process::id()])
}

/// Bare pairs of majority `findAndModify` a second.
#[derive(Clone, Copy)]
struct Floors {
    /// Both of a document that is there.
    update: f64,
    /// The first one makes it.
    upsert: f64,
}

async fn floors(world: &World) -> Floors {
    let updated = World::collection(&world.no_retry, "rate_updated");
    updated.drop().await.expect("the server answers");
    insert(&updated, (0..TASKS).map(|task| task.to_string())).await;
    let upserted = World::collection(&world.no_retry, "rate_upserted");
    let update = pairs(async |task: usize, _| {
        let key = task.to_string();
        bare(&updated, &key).await;
        bare(&updated, &key).await;
    });
    let update = update.await;
    let round = world.draw();
    let upsert = pairs(async |task: usize, pair| {
        let key = format!("{round} {task} {pair}");
        make(&upserted, &key).await;
        bare(&upserted, &key).await;
    });
    Floors { update, upsert: upsert.await }
}

/// As [`bare`], of one that is not there.
async fn make(collection: &Collection<Document>, key: &str) {
    let change = doc! { "$inc": { "n": 1_i64 }, "$set": { "by": "pod-1" } };
    let done = collection
        .find_one_and_update(doc! { "_id": key }, change)
        .upsert(true)
        .return_document(ReturnDocument::After)
        .write_concern(WriteConcern::majority());
    done.await.expect("the server answers").expect("it is made");
}

/// So many a second.
async fn pairs(pair: impl AsyncFn(usize, u64)) -> f64 {
    let begun = now();
    let end = begun + SECOND * 4;
    let tasks = (0..TASKS).map(async |task| {
        let mut pairs = 0_u64;
        while now() < end {
            pair(task, pairs).await;
            pairs += 1;
        }
        pairs
    });
    let pairs: u64 = join_all(tasks).await.into_iter().sum();
    pairs as f64 / begun.elapsed().as_secs_f64()
}
