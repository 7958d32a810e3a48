//! Time until the other instance has the lock.

use std::time::Duration;

use mongodb::options::WriteConcern;
use tokio::time::sleep;

use crate::{
    events::WriteAndEvent,
    figures::{figure, measured},
    instances::config,
    measure::median,
    relay::Relay,
    table,
    waiting::{Instance, close},
    world::World,
};

const HANDOVERS: usize = 220;

/// Two instances that hand a lock to each other, beside a write and its majority event. The write is of w:1; on one node
/// of a majority, as that of w:1 would wait there for the journal's next tick, up to 100 ms.
pub(crate) async fn back_and_forth(world: &World) {
    let start = |holder| Instance::start(world, config(holder));
    let instances = vec![start("first").await, start("second").await];
    let elects = [0, 1].map(|place: usize| instances[place].elect.clone());
    let mut relay = Relay::start(&elects, 1, "hand over").await;
    let concern = if world.nodes == 1 { WriteConcern::majority() } else { WriteConcern::nodes(1) };
    let mut floor = WriteAndEvent::open(world, concern).await;
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for round in 0..=HANDOVERS {
        let (event, handed) = (floor.once().await, relay.hand_over().await);
        // The first round is for warming up.
        if round > 0 {
            floors.push(event);
            ours.push(handed);
        }
        // So that the other one is back in the queue.
        sleep(Duration::from_millis(20)).await;
    }
    drop((relay, floor));
    close(instances).await;
    told(world.nodes, &ours, &floors);
}

fn told(nodes: usize, ours: &[f64], floors: &[f64]) {
    let row = |who: &str, times: &[f64]| {
        let mut times = times.to_vec();
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| format!("{:.2}", times[(times.len() - 1) * percent / 100] / 1e3);
        vec![who.to_owned(), at(50), at(90), at(99)]
    };
    table::print(
        &format!("handover, {} times, on {nodes}: ms", ours.len()),
        &["what", "p50", "p90", "p99"],
        &[row("write and its event", floors), row("hand-over", ours)],
    );
    let (ours, floor) = (median(ours.to_vec()), median(floors.to_vec()));
    measured(&format!("handover_p50_on_{nodes}"), ours, "µs");
    measured(&format!("handover_floor_p50_on_{nodes}"), floor, "µs");
    figure(&format!("handover_event_p50_ratio_{nodes}"), ours / floor);
}
