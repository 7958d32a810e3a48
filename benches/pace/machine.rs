//! Processor time that was spent, and what else the machine did meanwhile.

use std::{collections::HashMap, fs};

use crate::{
    measure::{Machine, Since, cpu, load},
    world::World,
};

/// Processor time from a moment on.
pub(crate) struct Meter<'a> {
    world: &'a World,
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
        Self { world, servers: world.cpu(), client: client(), threads, machine }
    }

    pub(crate) fn stop(self) -> Spent {
        let Since { seconds, busy, steal } = self.machine.since();
        let (servers, client) = (self.world.cpu() - self.servers, client() - self.client);
        // One that has ended meanwhile is left out.
        let connections = threads(self.world)
            .into_iter()
            .map(|(thread, time)| time - self.threads.get(&thread).copied().unwrap_or_default())
            .sum();
        Spent { seconds, servers, client, connections, busy: (busy + steal) / 100.0 }
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

/// Prints what the machine did since.
pub(crate) fn print(machine: &Machine, stage: &str) {
    let Since { seconds, busy, steal } = machine.since();
    println!("machine {stage} seconds {seconds:.0} load {} busy {busy:.0}% steal {steal:.1}%", load());
}
