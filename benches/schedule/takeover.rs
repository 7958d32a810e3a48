//! The owner of a schedule dies.

use std::time::Duration;

use crate::{
    crew::{Config, Crew, Late, SECOND, wall},
    figures::{figure, measured},
    measure::median,
    world::World,
};

const ROUNDS: u32 = 8;

/// Time until a schedule of every second runs again, of whatever phase of the beat and the second it died in.
pub(crate) async fn after_a_kill(world: &World) {
    let mut crew = Crew::new(world, "takeover", 3, Config::Killed).await;
    crew.schedules(1, "* * * * * *", Duration::ZERO);
    crew.settled(1).await;
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let from = wall();
        let owner = crew.run(|run| run.at > from && run.lateness() < SECOND).await.by;
        // At each round in another phase.
        tokio::time::sleep(3 * SECOND + SECOND * round / ROUNDS).await;
        let place = crew.members.iter().position(|member| member.number == owner).expect("it lives");
        let victim = crew.members.remove(place);
        let killed = wall();
        victim.process.kill();
        drop(victim);
        let run = crew.run(|run| run.by != owner && run.at > killed).await;
        took.push(run.at.since(killed).as_secs_f64() * 1e3);
        crew.start(1, Config::Killed).await;
        crew.schedules(1, "* * * * * *", Duration::ZERO);
        crew.settled(1).await;
    }
    let late = Late::of(&crew.take_runs());
    crew.close().await;
    measured("schedule_takeover_ttl", Config::Killed.of("any").ttl().as_secs_f64() * 1e3, "ms");
    measured("schedule_takeover_p50", median(took.clone()), "ms");
    figure("schedule_takeover_worst_ms", took.into_iter().fold(0.0, f64::max));
    measured("schedule_takeover_latest_tick", late.max, "ms");
}
