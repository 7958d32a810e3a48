//! Processor time that was spent, and what else the machine did meanwhile.

use std::{collections::HashMap, fs, time::Instant};

use crate::{
    measure::{cpu, load, now},
    world::World,
};

/// Processor time from a moment on.
pub(crate) struct Meter<'a> {
    world: &'a World,
    began: Instant,
    servers: f64,
    client: f64,
    threads: HashMap<String, f64>,
    machine: Machine,
}

/// Costs between two moments; processor time in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) seconds: f64,
    /// Of every mongod of the deployment.
    pub(crate) servers: f64,
    /// Of this process.
    pub(crate) client: f64,
    /// Of the servers' threads that serve a connection: without replication, and what runs by itself.
    pub(crate) connections: f64,
    /// Part of all processors that was busy or stolen, of 1.
    pub(crate) busy: f64,
}

impl Spent {
    pub(crate) fn servers_a_second(self) -> f64 {
        self.servers / self.seconds
    }

    pub(crate) fn connections_a_second(self) -> f64 {
        self.connections / self.seconds
    }

    pub(crate) fn client_a_second(self) -> f64 {
        self.client / self.seconds
    }
}

fn client() -> f64 {
    cpu(&[std::process::id()])
}

impl<'a> Meter<'a> {
    pub(crate) fn start(world: &'a World) -> Self {
        let (threads, machine) = (threads(world), Machine::look());
        Self { world, began: now(), servers: world.cpu(), client: client(), threads, machine }
    }

    pub(crate) fn stop(self) -> Spent {
        let seconds = self.began.elapsed().as_secs_f64();
        let (servers, client) = (self.world.cpu() - self.servers, client() - self.client);
        let machine = Machine::look();
        // One that has ended meanwhile is left out.
        let connections = threads(self.world)
            .into_iter()
            .map(|(thread, time)| time - self.threads.get(&thread).copied().unwrap_or_default())
            .sum();
        Spent { seconds, servers, client, connections, busy: self.machine.busy_until(&machine) }
    }
}

/// Processor time of each thread of the servers that serves a connection, in microseconds.
fn threads(world: &World) -> HashMap<String, f64> {
    let mut threads = HashMap::new();
    for pid in world.pids() {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the server runs");
        for task in tasks.flatten() {
            let path = task.path();
            let read = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
            if read("comm").starts_with("conn") {
                // Nanoseconds on a processor come first.
                let time = read("schedstat").split(' ').next().and_then(|time| time.parse::<f64>().ok());
                threads.insert(path.display().to_string(), time.unwrap_or_default() / 1e3);
            }
        }
    }
    threads
}

/// Times of all processors, from `/proc/stat`, in ticks.
pub(crate) struct Machine {
    began: Instant,
    busy: f64,
    steal: f64,
    all: f64,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let stat = fs::read_to_string("/proc/stat").expect("Linux");
        let line = stat.lines().next().expect("the sum of all processors");
        let ticks: Vec<f64> = line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of these.
        let (all, idle) = (ticks[..8].iter().sum(), ticks[3] + ticks[4]);
        Self { began: now(), busy: all - idle - ticks[7], steal: ticks[7], all }
    }

    fn busy_until(&self, later: &Self) -> f64 {
        (later.busy - self.busy + later.steal - self.steal) / (later.all - self.all).max(1.0)
    }

    /// Says what the machine did since.
    pub(crate) fn print(&self, stage: &str) {
        let later = Self::look();
        let percent = |ticks: f64| ticks / (later.all - self.all).max(1.0) * 100.0;
        println!(
            "machine {stage} seconds {:.0} load {} busy {:.0}% steal {:.1}%",
            self.began.elapsed().as_secs_f64(),
            load(),
            percent(later.busy - self.busy),
            percent(later.steal - self.steal),
        );
    }
}
