//! What was promised, and whether it was kept, as far as the record shows.
//!
//! Nothing is held against the library that may not have been so: moments are those at which the instances took
//! them, and what a process did without having said so is not assumed.

mod once;
mod shares;
mod takeover;
mod ticks;

use std::time::Duration;

use serde::Serialize;

use super::record::Record;

/// What became of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kept {
    Held,
    Broken,
    /// Nothing happened that could have broken it.
    NotTried,
}

/// A promise, and what was seen of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) promise: String,
    pub(crate) kept: Kept,
    pub(crate) seen: Vec<String>,
    pub(crate) broken: Vec<String>,
}

impl Verdict {
    fn new(promise: impl Into<String>, seen: Vec<String>, broken: Vec<String>) -> Self {
        let kept = match (broken.is_empty(), seen.is_empty()) {
            (false, _) => Kept::Broken,
            (true, false) => Kept::Held,
            (true, true) => Kept::NotTried,
        };
        Self { promise: promise.into(), kept, seen, broken }
    }
}

/// Times within which something has to be so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) ttl: Duration,
    /// Until others have the tasks of a process that was killed.
    pub(crate) killed: Duration,
    /// Until others have the tasks of a process that is frozen.
    pub(crate) frozen: Duration,
    /// Until a process that goes on has noticed that its session is over.
    pub(crate) notices: Duration,
    /// Until the tasks are even after a change.
    pub(crate) even: Duration,
}

/// Judges everything.
pub(crate) fn all(record: &Record, bounds: &Bounds) -> Vec<Verdict> {
    let mut verdicts = vec![
        once::tasks(record),
        takeover::killed(record, bounds),
        takeover::frozen(record, bounds),
        takeover::noticed(record, bounds),
        shares::drained(record),
        shares::even(record, bounds),
        ticks::ticks(record, bounds),
    ];
    let failed = failures(record);
    if !failed.is_empty() {
        verdicts.push(Verdict::new("no instance ends by itself", Vec::new(), failed));
    }
    verdicts
}

/// Number of tasks that the latest change has made suspects of killing their holders.
pub(crate) fn suspects(record: &Record, bounds: &Bounds) -> usize {
    record.changes.last().map_or(0, |change| takeover::suspects(record, bounds, change).len())
}

fn failures(record: &Record) -> Vec<String> {
    let failed = |instance: &super::record::Instance| {
        instance.failure.as_ref().map(|why| format!("{}: {why}", instance.name))
    };
    record.instances.iter().filter_map(failed).collect()
}

/// `0.31 s`.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// `1 task`, `2 tasks`.
pub(crate) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// The longest of stalls that fell into that time: what a machine without a free processor adds to everything.
fn stalled(record: &Record, from: tenure::clock::Moment, to: tenure::clock::Moment) -> Duration {
    let stalls = record.instances.iter().flat_map(|instance| &instance.stalls);
    let within = stalls.filter(|(at, _)| from <= *at && *at <= to);
    within.map(|(_, time)| *time).max().unwrap_or_default()
}
