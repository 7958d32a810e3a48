//! Ten thousand schedules of which almost none is due.

use std::time::Duration;

use crate::{
    crew::{Config, Crew, SECOND},
    figures::measured,
    measure::{cpu, median, now},
    world::World,
};

const INSTANCES: usize = 10;
const SCHEDULES: usize = 10_000;
const ROUNDS: usize = 2;
/// Until those that come together watch each other no more.
const CALM: Duration = Duration::from_secs(20);
const WINDOW: Duration = Duration::from_secs(30);

/// What all instances spend.
struct Spent {
    /// Seconds of processor time a minute, here and of the servers.
    cpu: f64,
    servers: f64,
    /// Commands a second.
    commands: f64,
    ticks: usize,
}

async fn spent(world: &World, crew: &Crew) -> Spent {
    tokio::time::sleep(CALM).await;
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

/// Without any and with ten thousand, in turns.
pub(crate) async fn ten_thousand(world: &World) {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let (mut added, mut balanced, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut crew = Crew::new(world, &format!("idle_{round}"), INSTANCES, Config::Default).await;
        without.push(spent(world, &crew).await);
        let (before, begun) = (resident(), now());
        // At another time of the day each.
        crew.schedules(SCHEDULES, "@daily", Duration::from_secs(24 * 60 * 60));
        added.push(begun.elapsed().as_secs_f64());
        let begun = now();
        crew.settled(SCHEDULES).await;
        balanced.push(begun.elapsed().as_secs_f64());
        with.push(spent(world, &crew).await);
        memory.push(resident() - before);
        crew.close().await;
        tokio::time::sleep(2 * SECOND).await;
    }
    let of = |spent: &[Spent], what: fn(&Spent) -> f64| median(spent.iter().map(what).collect());
    measured("idle_cpu_s_a_minute_without", of(&without, |spent| spent.cpu), "s");
    measured("idle_cpu_s_a_minute_with", of(&with, |spent| spent.cpu), "s");
    measured("idle_cpu_s_a_minute_more", of(&with, |spent| spent.cpu) - of(&without, |spent| spent.cpu), "s");
    measured("idle_servers_cpu_s_a_minute_without", of(&without, |spent| spent.servers), "s");
    measured("idle_servers_cpu_s_a_minute_with", of(&with, |spent| spent.servers), "s");
    measured("idle_ticks_meanwhile", with.iter().map(|spent| spent.ticks).sum::<usize>() as f64, "ticks");
    measured("idle_commands_without", of(&without, |spent| spent.commands), "commands/s");
    measured("idle_commands_with", of(&with, |spent| spent.commands), "commands/s");
    // The first round: what it left behind, the second one uses again.
    measured("idle_memory_per_schedule_all_instances", memory[0] / SCHEDULES as f64, "bytes");
    measured("idle_memory_per_schedule_and_instance", memory[0] / (SCHEDULES * INSTANCES) as f64, "bytes");
    measured("idle_added_after", median(added), "s");
    measured("idle_balanced_after", median(balanced), "s");
}

/// The memory of this process that is in use.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is there");
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kilobytes * 1024.0
}
