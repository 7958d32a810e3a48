//! Time until the next in the queue has the lock.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use mongodb::options::WriteConcern;
use tenure::Elect;
use tokio::time::sleep;

use crate::{
    events::WriteAndEvent,
    figures::{figure, measured},
    measure::median,
    relay::Relay,
    world::World,
};

const ROUNDS: usize = 200;

/// Two instances that hand a lock to each other.
pub(crate) async fn one_waiter(world: &World) {
    let instances = [world.instance("first").await, world.instance("second").await];
    let relay = Relay::start(&instances, 1, "hand over").await;
    let (ours, floor) = beside_the_floor(world, relay).await;
    measured("handover_p50", ours, "µs");
    measured("write_and_event_p50", floor, "µs");
    figure("handover_p50_ratio", ours / floor);
    join_all(instances.iter().map(Elect::close)).await;
}

/// The same with 100 waiters, ten in each of ten instances.
pub(crate) async fn many_waiters(world: &Arc<World>) {
    let starts = (0..10).map(|number| async move { world.instance(&format!("of ten {number}")).await });
    let instances = join_all(starts).await;
    let relay = Relay::start(&instances, 10, "hand on").await;
    // Until all stand in the queue.
    sleep(Duration::from_secs(2)).await;
    let (ours, floor) = beside_the_floor(world, relay).await;
    measured("handover_100_waiters_p50", ours, "µs");
    figure("handover_100_waiters_p50_ratio", ours / floor);
    join_all(instances.iter().map(Elect::close)).await;
}

/// Medians of the relay and of a majority write with its event, in turns.
async fn beside_the_floor(world: &World, mut relay: Relay) -> (f64, f64) {
    let mut floor = WriteAndEvent::open(world, WriteConcern::majority()).await;
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        floors.push(floor.once().await);
        let took = relay.hand_over().await;
        if round > 0 {
            ours.push(took);
        }
        // So that the other one is back in the queue.
        sleep(Duration::from_millis(20)).await;
    }
    (median(ours), median(floors))
}
