//! Sums of what is counted, and the thread that brings them to the recorder (feature `metrics`). A recorder may block
//! or panic as a log may; it gets the sums when it takes them, so that nothing counted is lost.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::{Condvar, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use metrics::{Key, Label, Level, Metadata, with_recorder};

use super::{
    Kind, Unit,
    pace::{Pace, Voice},
};
use crate::sync::{OwnThread, caught, locked};

/// Most values of histograms that wait for the recorder.
const MOST: usize = 8192;
/// Values of each histogram that wait in any case: a busy one takes no room from the others.
const FEW: usize = 64;

/// Time between two visits at the recorder.
const REST: Duration = Duration::from_millis(100);

static METADATA: Metadata<'_> = Metadata::new("tenure", Level::INFO, Some("tenure"));

/// A value, by name and labels.
#[derive(Clone, Copy, Debug)]
enum Sum {
    Counter(u64),
    Gauge(f64),
}

/// A change that the recorder is to receive.
enum Change {
    Sum(Key, Sum),
    Value(Key, f64),
    Help(Kind, &'static str, Unit, &'static str),
}

/// Values of histograms that wait for the recorder. Further ones are not recorded.
#[derive(Default)]
struct Values {
    all: HashMap<Key, Vec<f64>>,
    count: usize,
}

impl Values {
    fn add(&mut self, key: Key, value: f64) {
        let values = self.all.entry(key).or_default();
        if self.count < MOST || values.len() < FEW {
            values.push(value);
            self.count += 1;
        }
    }

    fn take(&mut self) -> impl Iterator<Item = (Key, f64)> + use<> {
        let all = mem::take(self).all.into_iter();
        all.flat_map(|(key, values)| values.into_iter().map(move |value| (key.clone(), value)))
    }
}

struct Sums {
    /// All of them, since the process began.
    all: HashMap<Key, Sum>,
    /// Keys whose sums the recorder does not have as they are now.
    changed: BTreeSet<Key>,
    /// Keys at which the recorder panicked: it gets them with the next change.
    refused: BTreeSet<Key>,
    values: Values,
    help: Vec<(Kind, &'static str, Unit, &'static str)>,
    pace: Pace,
    thread: OwnThread,
    is_idle: bool,
    /// True if a caller waits until the recorder has all of it.
    is_awaited: bool,
}

static SUMS: LazyLock<Mutex<Sums>> = LazyLock::new(|| {
    Mutex::new(Sums {
        all: HashMap::new(),
        changed: BTreeSet::new(),
        refused: BTreeSet::new(),
        values: Values::default(),
        help: Vec::new(),
        pace: Pace::NEW,
        thread: OwnThread::NONE,
        is_idle: false,
        is_awaited: false,
    })
});
static NEWS: Condvar = Condvar::new();
static DONE: Condvar = Condvar::new();

fn key<const N: usize>(name: &'static str, labels: [(&'static str, &str); N]) -> Key {
    let labels = labels.map(|(name, value)| Label::new(name, value.to_owned()));
    Key::from_parts(name, labels.to_vec())
}

fn change(step: impl FnOnce(&mut Sums)) {
    let mut sums = locked(&SUMS);
    let refused = mem::take(&mut sums.refused);
    sums.changed.extend(refused);
    step(&mut sums);
    // If there is none to be had, the next change tries again.
    if let Ok(true) = sums.thread.begin("tenure-numbers", bring_all) {
        // A fork may have come while a change was under way.
        (sums.pace, sums.is_idle) = (Pace::NEW, false);
    }
    if mem::take(&mut sums.is_idle) {
        NEWS.notify_one();
    }
}

fn sum(key: Key, new: Sum, step: impl FnOnce(&mut Sum)) {
    change(|sums| {
        let sum = sums.all.entry(key.clone()).or_insert(new);
        step(sum);
        sums.changed.insert(key);
    });
}

/// Adds to a counter. Adding nothing makes it known.
pub(crate) fn count<const N: usize>(name: &'static str, labels: [(&'static str, &str); N], more: u64) {
    sum(key(name, labels), Sum::Counter(0), |sum| {
        if let Sum::Counter(sum) = sum {
            *sum += more;
        }
    });
}

/// Adds to a gauge. Adding nothing makes it known.
pub(crate) fn add<const N: usize>(name: &'static str, labels: [(&'static str, &str); N], more: f64) {
    sum(key(name, labels), Sum::Gauge(0.0), |sum| {
        if let Sum::Gauge(sum) = sum {
            *sum += more;
        }
    });
}

/// Sets a gauge.
pub(crate) fn set<const N: usize>(name: &'static str, labels: [(&'static str, &str); N], value: f64) {
    sum(key(name, labels), Sum::Gauge(value), |sum| *sum = Sum::Gauge(value));
}

/// Records a value in a histogram.
pub(crate) fn record<const N: usize>(name: &'static str, labels: [(&'static str, &str); N], value: f64) {
    let key = key(name, labels);
    change(|sums| sums.values.add(key, value));
}

pub(crate) fn describe(kind: Kind, name: &'static str, unit: Unit, says: &'static str) {
    change(|sums| sums.help.push((kind, name, unit, says)));
}

/// Returns what keeps the recorder from taking numbers, if something does.
pub(super) fn voice() -> Option<Voice> {
    locked(&SUMS).pace.voice()
}

/// Waits until the recorder has all of it.
#[cfg(any(test, feature = "testing"))]
pub(super) fn flush() {
    let mut sums = locked(&SUMS);
    while sums.thread.runs() && !sums.is_idle {
        sums.is_awaited = true;
        NEWS.notify_one();
        sums = DONE.wait(sums).unwrap_or_else(PoisonError::into_inner);
    }
}

/// The thread of the numbers: the only one that runs code of the recorder.
fn bring_all() {
    loop {
        for change in next() {
            locked(&SUMS).pace.begun();
            let is_taken = caught(|| bring(&change));
            locked(&SUMS).brought(change, is_taken);
        }
        // Counts that come meanwhile are brought together.
        drop(NEWS.wait_timeout_while(locked(&SUMS), REST, |sums| !sums.is_awaited));
    }
}

impl Sums {
    fn brought(&mut self, change: Change, is_taken: bool) {
        self.pace.returned(is_taken);
        match change {
            Change::Sum(key, _) if !is_taken => drop(self.refused.insert(key)),
            // A gauge of 0 is kept by the recorder: a process may count under any number of keys.
            Change::Sum(key, Sum::Gauge(0.0)) if !self.changed.contains(&key) => drop(self.all.remove(&key)),
            Change::Sum(..) | Change::Value(..) | Change::Help(..) => {}
        }
    }
}

/// Waits for changes, and takes them.
fn next() -> Vec<Change> {
    let mut sums = locked(&SUMS);
    loop {
        let Sums { all, changed, values, help, is_idle, is_awaited, .. } = &mut *sums;
        let help =
            mem::take(help).into_iter().map(|(kind, name, unit, says)| Change::Help(kind, name, unit, says));
        let changed = mem::take(changed).into_iter().filter_map(|key| {
            let sum = all.get(&key).copied()?;
            Some(Change::Sum(key, sum))
        });
        let values = values.take().map(|(key, value)| Change::Value(key, value));
        let changes: Vec<_> = help.chain(changed).chain(values).collect();
        if !changes.is_empty() {
            return changes;
        }
        (*is_idle, *is_awaited) = (true, false);
        DONE.notify_all();
        sums = NEWS.wait(sums).unwrap_or_else(PoisonError::into_inner);
    }
}

fn bring(change: &Change) {
    with_recorder(|recorder| match change {
        Change::Sum(key, Sum::Counter(sum)) => recorder.register_counter(key, &METADATA).absolute(*sum),
        Change::Sum(key, Sum::Gauge(sum)) => recorder.register_gauge(key, &METADATA).set(*sum),
        Change::Value(key, value) => recorder.register_histogram(key, &METADATA).record(*value),
        Change::Help(kind, name, unit, says) => {
            let unit = match unit {
                Unit::Seconds => metrics::Unit::Seconds,
                Unit::Count => metrics::Unit::Count,
            };
            let (name, unit, says) = ((*name).into(), Some(unit), (*says).into());
            match kind {
                Kind::Counter => recorder.describe_counter(name, unit, says),
                Kind::Gauge => recorder.describe_gauge(name, unit, says),
                Kind::Histogram => recorder.describe_histogram(name, unit, says),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_histogram_takes_no_room_from_the_others() {
        let mut values = Values::default();
        (0..10_000).for_each(|_| values.add(key("busy", []), 1.0));
        (0..100).for_each(|_| values.add(key("other", []), 2.0));
        let taken: Vec<_> = values.take().collect();
        let of = |name| taken.iter().filter(|(key, _)| key.name() == name).count();
        assert_eq!((of("busy"), of("other")), (MOST, FEW));
        assert_eq!(values.take().count(), 0);
    }
}
