//! Processor time of processes, and what else the machine did.

use std::{collections::HashMap, fs};

use crate::measure::{Machine, Since, load};

/// Processor time of each thread of these processes, in microseconds: finer than the 10 ms of `/proc/PID/stat`.
fn threads(pids: &[u32]) -> HashMap<String, f64> {
    let mut threads = HashMap::new();
    for pid in pids {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
        for task in tasks.flatten() {
            let path = task.path();
            let schedstat = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            // Nanoseconds on a processor come first.
            let time = schedstat.split(' ').next().and_then(|time| time.parse::<f64>().ok());
            threads.insert(path.display().to_string(), time.unwrap_or_default() / 1e3);
        }
    }
    threads
}

/// A thread that has ended meanwhile is left out.
fn since(earlier: &HashMap<String, f64>, pids: &[u32]) -> f64 {
    let spent = |(thread, time): (String, f64)| time - earlier.get(&thread).copied().unwrap_or_default();
    threads(pids).into_iter().map(spent).sum()
}

/// Processor time from a moment on.
pub(crate) struct Meter {
    pids: Vec<u32>,
    servers: HashMap<String, f64>,
    client: HashMap<String, f64>,
}

/// Processor time, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) servers: f64,
    /// Of this process.
    pub(crate) client: f64,
}

impl Meter {
    pub(crate) fn start(pids: Vec<u32>) -> Self {
        let (servers, client) = (threads(&pids), threads(&[std::process::id()]));
        Self { pids, servers, client }
    }

    pub(crate) fn stop(&self) -> Spent {
        let client = since(&self.client, &[std::process::id()]);
        Spent { servers: since(&self.servers, &self.pids), client }
    }
}

/// Seconds, and a sentence on load and stolen time since.
pub(crate) fn said_since(machine: &Machine) -> (f64, String) {
    let Since { seconds, busy, steal } = machine.since();
    (seconds, format!("load {}, busy {busy:.0}%, stolen {steal:.1}%", load()))
}

/// Number and name of the processors.
pub(crate) fn processors() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{count} × {}", name.unwrap_or("processor").trim())
}
