//! Listeners on the servers, of an instance that waits for nothing.

use std::time::Duration;

use mongodb::bson::{Bson, doc};
use tokio::time::sleep;

use crate::{
    figures::{figure, measured},
    instances::config,
    waiting::{Instance, Waiting},
    world::World,
};

const LOOKS: usize = 20;
const PACE: Duration = Duration::from_millis(100);
/// Time until what has just started is at rest.
const CALM: Duration = Duration::from_secs(3);

/// Most cursors that are open on all servers at a time, without an instance, with an idle one, and with one that waits.
pub(crate) async fn listeners(world: &World) {
    let nobody = most(world).await;
    let idle = Instance::start(world, config("idle")).await;
    sleep(CALM).await;
    let with_idle = most(world).await;
    idle.close().await;
    // The holder waits for nothing.
    let waiting = Waiting::start(world, 1, |config| config).await;
    sleep(CALM).await;
    let with_waiting = most(world).await;
    waiting.end().await;
    measured("idle_cursors_without", nobody, "");
    measured("waiting_cursors_of_a_holder_and_a_waiter", with_waiting - nobody, "");
    figure("idle_cursors", with_idle - nobody);
}

async fn most(world: &World) -> f64 {
    let mut most = 0;
    for _ in 0..LOOKS {
        most = most.max(open(world).await);
        sleep(PACE).await;
    }
    most as f64
}

/// Cursors that are open, in use or not, but for those by which the members follow each other.
async fn open(world: &World) -> usize {
    let command = doc! {
        "aggregate": 1,
        "pipeline": [
            { "$currentOp": { "allUsers": true, "idleCursors": true } },
            { "$match": {
                "$or": [{ "type": "idleCursor" }, { "op": "getmore" }],
                "ns": { "$ne": "local.oplog.rs" },
            } },
            { "$count": "open" },
        ],
        "cursor": {},
        "$readPreference": { "mode": "secondaryPreferred" },
    };
    let mut sum = 0;
    for node in world.deployment().nodes() {
        let answer = node.ask(command.clone()).await;
        let batch = answer.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        let first = batch.expect("a cursor has a batch").first().and_then(Bson::as_document);
        let open = first.and_then(|count| count.get_i32("open").ok()).unwrap_or(0);
        sum += usize::try_from(open).expect("a number of them");
    }
    sum
}
