//! The promises, and whether they were kept, as far as the record shows.
//!
//! No uncertain event is held against the library: moments are those at which the instances took them, and what a
//! process did without having said so is not assumed.

mod once;
mod shares;
mod takeover;
mod ticks;

use std::time::Duration;

use serde::Serialize;
use tenure::clock::Moment;

use super::record::Record;
pub(crate) use crate::out::count;

/// The outcome of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kept {
    Held,
    Broken,
    /// No event could have broken it.
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
    /// Time until others have the tasks of a process that was killed.
    pub(crate) killed: Duration,
    /// Time until others have the tasks of a process that is frozen.
    pub(crate) frozen: Duration,
    /// Time until a process that goes on has noticed that its session is over.
    pub(crate) notices: Duration,
    /// Time until the tasks are even after a change.
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

/// Returns the delay of a takeover by a machine without a free processor or with a busy disk: a few steps in turn.
fn stalled(record: &Record, from: Moment, to: Moment) -> Duration {
    standstill(record, from, to) * STEPS
}

/// The part of that time for which some instance did not run, or was not answered by the store.
fn standstill(record: &Record, from: Moment, to: Moment) -> Duration {
    let stalls = record.instances.iter().flat_map(|instance| &instance.stalls);
    let mut within: Vec<_> = stalls.map(|(begun, ended)| (*begun.max(&from), *ended.min(&to))).collect();
    within.sort_unstable();
    let (mut all, mut reached) = (Duration::ZERO, from);
    for (begun, ended) in within {
        all += ended.since(begun.max(reached));
        reached = reached.max(ended);
    }
    all
}

/// The moment so long after another, not counting the time for which anything stood still.
fn after(record: &Record, from: Moment, time: Duration) -> Moment {
    let mut to = from + time;
    loop {
        let later = from + time + standstill(record, from, to);
        if later <= to {
            return to;
        }
        to = later;
    }
}

/// Steps of a takeover that wait for the store: a death is declared, locks are taken, jobs begin.
const STEPS: u32 = 3;

/// The longest time for which an instance did not run, or was not answered, if that is worth a word.
pub(crate) fn busy(record: &Record) -> Option<Duration> {
    let stalls = record.instances.iter().flat_map(|instance| &instance.stalls);
    stalls.map(|(from, to)| to.since(*from)).max().filter(|time| *time > Duration::from_millis(300))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::record::tests::{at, fleet};

    #[test]
    fn stalls_of_several_count_once() {
        let mut record = fleet(2, 0);
        record.instances[0].stalls = vec![(at(100), at(400)), (at(1000), at(5000))];
        record.instances[1].stalls = vec![(at(300), at(600))];
        assert_eq!(stalled(&record, at(0), at(1100)), Duration::from_millis(600) * STEPS);
        assert_eq!(stalled(&record, at(350), at(500)), Duration::from_millis(150) * STEPS);
        assert_eq!(stalled(&record, at(700), at(900)), Duration::ZERO);
        assert_eq!(after(&record, at(50), Duration::from_millis(10)), at(60));
        assert_eq!(after(&record, at(350), Duration::from_millis(100)), at(700));
        assert_eq!(after(&record, at(350), Duration::from_millis(500)), at(5100));
        assert_eq!(busy(&record), Some(Duration::from_secs(4)));
        record.instances[0].stalls.clear();
        assert_eq!(busy(&record), None);
    }
}
