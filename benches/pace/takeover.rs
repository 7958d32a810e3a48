//! Time until a waiter has the lock of a process that was killed.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;

use crate::{
    figures::{figure, measured},
    holder::Holder,
    instances::quick,
    measure::{median, micros, now},
    waiting::Instance,
    world::World,
};

const LANES: u32 = 4;
const ROUNDS: u32 = 3;

/// Kills one holder after the other, at another phase of its beat each.
pub(crate) async fn after_a_kill(world: &World) {
    let mut took = join_all((0..LANES).map(|number| lane(world, number))).await.concat();
    took.sort_by(f64::total_cmp);
    measured("takeover_ttl_ms", micros(quick("any").ttl()) / 1e3, "ms");
    measured("takeover_first_ms", took[0], "ms");
    figure("takeover_p50_ms", median(took.clone()));
    figure("takeover_worst_ms", took[took.len() - 1]);
}

async fn lane(world: &World, number: u32) -> Vec<f64> {
    let (key, mut took) = (format!("taken over {number}"), Vec::new());
    let waiter = Instance::start(world, quick(&format!("waiter {number}"))).await;
    for round in 0..ROUNDS {
        let holder = Holder::start(world.uri(), &key).await;
        let call = {
            let (elect, key) = (waiter.elect.clone(), key.clone());
            tokio::spawn(async move { (elect.acquire(&key).await, now()) })
        };
        waiter.until_in_queue(&World::lock(&key), 1).await;
        // Until it has seen a beat, and for a part of the interval.
        let interval = quick("any").refresh_interval();
        sleep(interval * 2 + interval * (round * LANES + number) / (LANES * ROUNDS)).await;
        let killed = holder.kill();
        let (guard, acquired) = call.await.expect("no call panics");
        took.push(micros(acquired.saturating_duration_since(killed)) / 1e3);
        guard.expect("it is not closed").release().await.expect("the server answers");
        sleep(Duration::from_millis(100)).await;
    }
    waiter.close().await;
    took
}
