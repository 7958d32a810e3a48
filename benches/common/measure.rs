//! Rounds, medians, clocks, and what the machine did.

use std::time::{Duration, Instant};

#[allow(clippy::disallowed_methods, reason = "how long things take is what this measures")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// In microseconds, as everything in here.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty(), "a median of nothing");
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// The median of the rounds' ratios.
pub(crate) fn ratio(ours: &[f64], floor: &[f64]) -> f64 {
    median(ours.iter().zip(floor).map(|(ours, floor)| ours / floor).collect())
}

pub(crate) fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

/// The order of so many contestants in a round: rotated, and every other round reversed.
pub(crate) fn turn(round: usize, contestants: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..contestants).map(|place| (place + round) % contestants).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// CPU time of these processes so far, in microseconds.
pub(crate) fn cpu(pids: &[u32]) -> f64 {
    // USER_HZ, which is 100 on every Linux there is.
    const TICK: f64 = 10_000.0;
    let one = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the server runs");
        let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
        let field = |place: usize| fields.split_whitespace().nth(place)?.parse::<f64>().ok();
        let (user, system) = (field(11).expect("utime"), field(12).expect("stime"));
        (user + system) * TICK
    };
    pids.iter().map(one).sum()
}

/// Bytes of this process in memory.
pub(crate) fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: f64 =
        status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096.0
}

/// Times of all processors at a moment, from `/proc/stat`, in ticks.
pub(crate) struct Machine {
    at: Instant,
    busy: f64,
    steal: f64,
    all: f64,
}

/// Times of all processors between two moments.
pub(crate) struct Since {
    pub(crate) seconds: f64,
    /// In percent, as the next: without what was stolen.
    pub(crate) busy: f64,
    pub(crate) steal: f64,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").expect("Linux");
        let line = stat.lines().next().expect("the sum of all processors");
        let ticks: Vec<f64> = line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of these.
        let (all, idle) = (ticks[..8].iter().sum(), ticks[3] + ticks[4]);
        Self { at: now(), busy: all - idle - ticks[7], steal: ticks[7], all }
    }

    pub(crate) fn since(&self) -> Since {
        let later = Self::look();
        let percent = |ticks: f64| ticks / (later.all - self.all).max(1.0) * 100.0;
        Since {
            seconds: (later.at - self.at).as_secs_f64(),
            busy: percent(later.busy - self.busy),
            steal: percent(later.steal - self.steal),
        }
    }
}
