//! Thousands of schedules of which almost none is due.

use std::time::Duration;

use crate::{
    crew::{Config, Crew, SECOND},
    figures::measured,
    measure::{cpu, median, now},
    world::World,
};

const INSTANCES: usize = 10;
const ROUNDS: usize = 2;
/// Time until those that have just started are at rest.
const CALM: Duration = Duration::from_secs(15);
/// Time until no instance watches those any more from whom it got its part: three ttl.
const CALM_AFTER_MOVES: Duration = Duration::from_secs(90);
const WINDOW: Duration = Duration::from_secs(20);

/// Spending of all instances.
struct Spent {
    /// Seconds of processor time a minute, here and of the servers.
    cpu: f64,
    servers: f64,
    /// Commands a second.
    commands: f64,
    ticks: usize,
}

async fn spent(world: &World, crew: &Crew, calm: Duration) -> Spent {
    tokio::time::sleep(calm).await;
    crew.take_runs();
    let own = || cpu(&[std::process::id()]);
    let (begun, here, servers, sent) = (now(), own(), world.cpu(), crew.sent());
    tokio::time::sleep(WINDOW).await;
    let seconds = begun.elapsed().as_secs_f64();
    let a_minute = |micros: f64| micros / 1e6 * 60.0 / seconds;
    Spent {
        cpu: a_minute(own() - here),
        servers: a_minute(world.cpu() - servers),
        commands: (crew.sent() - sent) as f64 / seconds,
        ticks: crew.take_runs().len(),
    }
}

/// Without any and with so many, in turns.
pub(crate) async fn with_and_without(world: &World, schedules: usize) {
    let measured = |name: &str, value: f64, unit: &str| {
        measured(&format!("idle_{schedules}_{name}"), value, unit);
    };
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let (mut added, mut balanced, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut crew =
            Crew::new(world, &format!("idle_{schedules}_{round}"), INSTANCES, Config::Default).await;
        without.push(spent(world, &crew, CALM).await);
        let (before, begun) = (resident(), now());
        // At another time of the day each.
        crew.schedules(schedules, "@daily", Duration::from_secs(24 * 60 * 60));
        added.push(begun.elapsed().as_secs_f64());
        let begun = now();
        if !crew.settles(schedules).await {
            measured("not_balanced_within", begun.elapsed().as_secs_f64(), "s");
            return crew.close().await;
        }
        balanced.push(begun.elapsed().as_secs_f64());
        with.push(spent(world, &crew, CALM_AFTER_MOVES).await);
        memory.push(resident() - before);
        crew.close().await;
        tokio::time::sleep(2 * SECOND).await;
    }
    let of = |spent: &[Spent], what: fn(&Spent) -> f64| median(spent.iter().map(what).collect());
    measured("cpu_s_a_minute_without", of(&without, |spent| spent.cpu), "s");
    measured("cpu_s_a_minute_with", of(&with, |spent| spent.cpu), "s");
    measured("cpu_s_a_minute_more", of(&with, |spent| spent.cpu) - of(&without, |spent| spent.cpu), "s");
    measured("servers_cpu_s_a_minute_without", of(&without, |spent| spent.servers), "s");
    measured("servers_cpu_s_a_minute_with", of(&with, |spent| spent.servers), "s");
    measured("ticks_meanwhile", with.iter().map(|spent| spent.ticks).sum::<usize>() as f64, "ticks");
    measured("commands_without", of(&without, |spent| spent.commands), "commands/s");
    measured("commands_with", of(&with, |spent| spent.commands), "commands/s");
    // The first round: what it left behind, the second one uses again.
    measured("memory_per_schedule_all_instances", memory[0] / schedules as f64, "bytes");
    measured("memory_per_schedule_and_instance", memory[0] / (schedules * INSTANCES) as f64, "bytes");
    measured("added_after", median(added), "s");
    measured("balanced_after", median(balanced), "s");
}

/// The memory of this process that is in use.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is there");
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kilobytes * 1024.0
}
