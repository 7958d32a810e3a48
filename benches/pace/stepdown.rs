//! Hand-overs after the primary has stepped down.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    figures::{figure, measured},
    instances::config,
    measure::median,
    relay::Relay,
    table,
    waiting::{Instance, close},
    world::World,
};

const ROUNDS: usize = 5;
const BEFORE: usize = 30;
/// The hand-overs after a step-down that are looked at.
const AFTER: usize = 6;
/// Time until the other one is back in the queue.
const IN_QUEUE: Duration = Duration::from_millis(20);
/// Time until the members agree on who is what.
const SETTLED: Duration = Duration::from_secs(3);

/// Two instances that hand a lock to each other, before and after.
pub(crate) async fn and_on(world: &World) {
    let instances =
        vec![Instance::start(world, config("first")).await, Instance::start(world, config("second")).await];
    let elects = [0, 1].map(|place: usize| instances[place].elect.clone());
    let mut relay = Relay::start(&elects, 1, "hand over").await;
    let mut before = Vec::new();
    let mut after = vec![Vec::new(); AFTER];
    for _ in 0..ROUNDS {
        for _ in 0..BEFORE {
            before.push(relay.hand_over().await);
            sleep(IN_QUEUE).await;
        }
        world.deployment().step_down().await;
        for after in &mut after {
            after.push(relay.hand_over().await);
            sleep(IN_QUEUE).await;
        }
        world.deployment().wait_for_primary(None).await;
        sleep(SETTLED).await;
    }
    drop(relay);
    close(instances).await;

    let before = median(before);
    let show = |micros: f64| format!("{:.1}", micros / 1e3);
    let mut rows = vec![vec!["before".to_owned(), show(before), String::new()]];
    for (place, after) in after.iter().enumerate() {
        let worst = after.iter().copied().fold(0.0, f64::max);
        rows.push(vec![format!("after, {}", place + 1), show(median(after.clone())), show(worst)]);
    }
    table::print(
        &format!("hand-overs around {ROUNDS} step-downs: ms"),
        &["hand-over", "p50", "worst"],
        &rows,
    );
    measured("stepdown_handover_before_p50", before, "µs");
    measured("stepdown_handover_1_p50", median(after[0].clone()), "µs");
    for place in [1, 2] {
        let ratio = median(after[place].clone()) / before;
        figure(&format!("stepdown_handover_{}_ratio", place + 1), ratio);
    }
}
