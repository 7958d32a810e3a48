//! The ticks of the schedule that all processes have: what they say they ran, and what the ledger says.

use std::collections::BTreeMap;

use mongodb::bson::Document;

/// The schedule: by the second. The judges know the lock of this name, too.
pub(crate) const PULSE: &str = "s0";
const PERIOD: i64 = 1000;

/// Ticks by the messages of the processes.
#[derive(Debug, Default)]
pub(crate) struct Ticks {
    /// The attempts at each tick that began, by its instant.
    begun: BTreeMap<i64, Vec<u32>>,
}

/// An entry of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    from: i64,
    to: i64,
    is_skipped: bool,
    attempt: u32,
}

impl Entry {
    /// Of one tick, or with `from` of all those from that one on which were skipped.
    pub(crate) const fn new(at: i64, from: Option<i64>, attempt: u32) -> Self {
        let (from, is_skipped) = match from {
            Some(from) => (from, true),
            None => (at, false),
        };
        Self { from, to: at, is_skipped, attempt }
    }

    /// The entry in a document of the ledger; nothing if it is the schedule's own record.
    pub(crate) fn read(document: &Document) -> Option<Self> {
        let id = document.get_document("_id").ok()?;
        let at = |document: &Document, field| Some(document.get_datetime(field).ok()?.timestamp_millis());
        let to = at(id, "at")?;
        let skipped = document.get_document("skipped").ok();
        let from = skipped.map(|skipped| at(skipped, "from").unwrap_or(to));
        let attempt = u32::try_from(document.get_i64("attempt").ok()?).ok()?;
        Some(Self::new(to, from, attempt))
    }
}

impl Ticks {
    /// An attempt begins; says what is wrong with that. Reported in the order of time.
    pub(crate) fn begins(&mut self, instant: i64, attempt: u32) -> Option<String> {
        let begun = self.begun.entry(instant).or_default();
        let last = begun.last().copied();
        begun.push(attempt);
        let last = last.filter(|last| *last >= attempt)?;
        Some(format!("attempt {attempt} at the tick of {instant} began after attempt {last}"))
    }

    pub(crate) fn begun(&self) -> usize {
        self.begun.len()
    }

    /// Judges the whole ledger: what was run is there; and if all went by one time, every second from the first
    /// to the last, as a run or as one that was skipped.
    pub(crate) fn judge(&self, mut ledger: Vec<Entry>, one_time: bool) -> Option<String> {
        ledger.sort_by_key(|entry| (entry.from, entry.to));
        let mut covered: Option<i64> = None;
        for entry in &ledger {
            if let Some(covered) = covered.filter(|covered| one_time && entry.from > covered + PERIOD) {
                return Some(format!("nothing is known of the ticks between {covered} and {}", entry.from));
            }
            covered = covered.max(Some(entry.to));
        }
        let runs: BTreeMap<i64, u32> =
            ledger.iter().filter(|entry| !entry.is_skipped).map(|entry| (entry.to, entry.attempt)).collect();
        self.begun.iter().find_map(|(instant, attempts)| {
            let last = attempts.last().copied().unwrap_or(0);
            match runs.get(instant) {
                Some(attempt) if *attempt >= last => None,
                Some(attempt) => {
                    Some(format!("attempt {last} at the tick of {instant} was run, the ledger has {attempt}"))
                }
                None => Some(format!("the tick of {instant} was run, and is not in the ledger")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(second: i64, attempt: u32) -> Entry {
        Entry { from: second * 1000, to: second * 1000, is_skipped: false, attempt }
    }

    fn skipped(from: i64, to: i64) -> Entry {
        Entry { from: from * 1000, to: to * 1000, is_skipped: true, attempt: 1 }
    }

    #[test]
    fn a_tick_that_begins_twice_is_noticed() {
        let mut ticks = Ticks::default();
        assert_eq!(ticks.begins(1000, 1), None);
        assert_eq!(ticks.begins(2000, 1), None);
        assert_eq!(ticks.begins(1000, 2), None, "the instance that ran it died");
        assert!(ticks.begins(1000, 2).unwrap().contains("began after attempt 2"));
        assert!(ticks.begins(2000, 1).is_some());
    }

    #[test]
    fn a_ledger_that_misses_something_is_noticed() {
        let mut ticks = Ticks::default();
        ticks.begins(1000, 1);
        ticks.begins(5000, 1);
        ticks.begins(5000, 2);
        let whole = vec![run(1, 1), skipped(2, 4), run(3, 1), run(5, 2), run(6, 1)];
        assert_eq!(ticks.judge(whole.clone(), true), None, "one may stand where others were skipped");
        let without = |at: usize| {
            let mut ledger = whole.clone();
            ledger.remove(at);
            ticks.judge(ledger, true)
        };
        assert!(without(1).unwrap().contains("between 1000 and 3000"));
        assert!(without(0).unwrap().contains("1000 was run, and is not"));
        assert_eq!(without(2), None);
        assert_eq!(ticks.judge(vec![run(1, 1), run(5, 2)], false), None, "another clock came in between");
        let older = vec![run(1, 1), skipped(2, 4), run(5, 1)];
        assert!(ticks.judge(older, true).unwrap().contains("the ledger has 1"));
    }
}
