//! Ten instances are restarted, one after the other.

use std::time::Duration;

use tenure::clock::Moment;

use crate::{
    figures::{figure, measured},
    fleet::{Fleet, World, millis, name},
    joins::worst,
    measure::median,
    member::now,
};

const MEMBERS: usize = 10;
const TASKS: usize = 100;
const GRACE: Duration = Duration::from_secs(60);

pub(crate) async fn with_grace(world: &World) {
    let mut fleet = Fleet::of(world, "grace", MEMBERS, TASKS, false).await;
    let before = fleet.view.places().await;
    let begun = now();
    let (mut closing, mut away) = (Vec::new(), Vec::new());
    for number in 0..MEMBERS {
        let (closes, closed) = fleet.close(&name(number), Some(GRACE)).await;
        closing.push(millis(closed.since(closes)));
        fleet.start(&name(number)).await;
        fleet.join(&name(number)).await;
        let (back, _) = fleet.settled().await;
        away.push(millis(back.since(closes)));
    }
    let changes = fleet.changes(&before, begun, Duration::from_secs(4)).await;
    let is_elsewhere = |(key, place): &(&String, &crate::view::Place)| {
        before.get(*key).is_none_or(|was| was.holder != place.holder)
    };
    let elsewhere = changes.after.iter().filter(is_elsewhere).count();
    measured("restart_with_grace_close_p50", median(closing.clone()), "ms");
    measured("restart_with_grace_close_worst", worst(&closing), "ms");
    measured("restart_with_grace_away_p50", median(away.clone()), "ms");
    measured("restart_with_grace_away_worst", worst(&away), "ms");
    measured("restart_with_grace_grants", changes.grants() as f64, "grants");
    measured("restart_with_grace_jobs_started", changes.began.len() as f64, "jobs");
    figure("restart_with_grace_net_moves", elsewhere as f64);
    figure("restart_with_grace_terms_per_task", changes.most() as f64);
}

pub(crate) async fn without(world: &World) {
    let mut fleet = Fleet::of(world, "plain", MEMBERS, TASKS, false).await;
    let before = fleet.view.places().await;
    let begun: Moment = now();
    let mut closing = Vec::new();
    // Until what came may be moved on.
    let calm = Duration::from_millis(2500);
    for number in 0..MEMBERS {
        let (closes, closed) = fleet.close(&name(number), None).await;
        closing.push(millis(closed.since(closes)));
        fleet.settled().await;
        tokio::time::sleep(calm).await;
        fleet.start(&name(number)).await;
        fleet.join(&name(number)).await;
        fleet.settled().await;
        tokio::time::sleep(calm).await;
    }
    let changes = fleet.changes(&before, begun, Duration::from_secs(4)).await;
    measured("restart_close_p50", median(closing.clone()), "ms");
    measured("restart_close_worst", worst(&closing), "ms");
    measured("restart_moves", changes.grants() as f64, "moves");
    measured("restart_moves_of_one_task_worst", changes.most() as f64, "moves");
    figure("restart_moves_per_task", changes.grants() as f64 / TASKS as f64);
}
