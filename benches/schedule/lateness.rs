//! Lateness of the ticks of healthy owners.

use std::time::Duration;

use crate::{
    crew::{Config, Crew, Late, SECOND},
    figures::{figure, measured},
    world::World,
};

const INSTANCES: usize = 3;

/// Measures one schedule, every second.
pub(crate) async fn one(world: &World) {
    let late = of(world, "lateness_1", 1, 60).await;
    measured("schedule_lateness_p50", late.p50, "ms");
    figure("schedule_lateness_p99_ms", late.p99);
    measured("schedule_lateness_max", late.max, "ms");
}

/// A hundred that are due at once, every second.
pub(crate) async fn a_hundred(world: &World) {
    let late = of(world, "lateness_100", 100, 30).await;
    measured("schedule_lateness_100_p50", late.p50, "ms");
    figure("schedule_lateness_100_p99_ms", late.p99);
    measured("schedule_lateness_100_max", late.max, "ms");
}

async fn of(world: &World, database: &str, schedules: usize, seconds: u32) -> Late {
    let mut crew = Crew::new(world, database, INSTANCES, Config::Default).await;
    crew.schedules(schedules, "* * * * * *", Duration::ZERO);
    crew.settled(schedules).await;
    tokio::time::sleep(3 * SECOND).await;
    crew.take_runs();
    tokio::time::sleep(SECOND * seconds).await;
    let runs = crew.take_runs();
    let wanted = schedules * usize::try_from(seconds).expect("a minute");
    assert!(runs.len().abs_diff(wanted) <= schedules, "{} of {wanted} ticks", runs.len());
    crew.close().await;
    Late::of(&runs)
}
