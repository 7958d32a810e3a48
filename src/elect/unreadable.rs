//! Records in the way of this instance that it cannot read. It can only wait, and say so.

use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::{Mutex, MutexGuard},
};

use super::{Engine, Work};
use crate::{clock::Moment, store::Refusal, sync::locked};

/// Number of polls for which a record counts that is not met again: nothing here waits for it any more, or it was
/// mended.
const KEPT_FOR_POLLS: u32 = 3;

/// Problem with each record, and when it was last met.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Mutex<BTreeMap<String, (String, Moment)>>);

impl Unreadable {
    fn records(&self) -> MutexGuard<'_, BTreeMap<String, (String, Moment)>> {
        locked(&self.0)
    }
}

impl Engine {
    /// Records that a record cannot be read, which something here waits for or cannot give back.
    pub(crate) fn met_unreadable(&self, record: impl Display, refusal: &Refusal) {
        let met = (refusal.to_string(), self.clock.now());
        self.unreadable.records().insert(record.to_string(), met);
        self.look_at_records();
    }

    /// Records whether all records can be read that this instance needs.
    pub(crate) fn look_at_records(&self) {
        let (now, kept) = (self.clock.now(), self.poll().max(self.times.interval) * KEPT_FOR_POLLS);
        let mut records = self.unreadable.records();
        records.retain(|_, (_, met)| now.since(*met) <= kept);
        let many = records.len();
        let first = records.first_key_value().map(|(record, (problem, _))| format!("{record}: {problem}"));
        drop(records);
        match first {
            None => self.record_success(Work::Records),
            Some(first) if many == 1 => self.record_trouble(Work::Records, now, true, first),
            Some(first) => {
                let all = format!("{many} records, the first is {first}");
                self.record_trouble(Work::Records, now, true, all);
            }
        }
    }
}
