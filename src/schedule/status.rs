//! Status of a schedule, from its record and its ledger: for instances that have it, and for callers that only look.

use std::{fmt, time::Duration};

use serde::Serialize;

use super::Overdue;
use crate::{
    logic::{
        calendar::Calendar,
        tick::{Unowned, failures, unowned},
    },
    model::{Entry, RunRecord, StoreTime},
    store::ScheduleRecord,
};

/// Status of a schedule in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ScheduleStatus {
    /// Definition, pause and orders.
    pub record: ScheduleRecord,
    /// Last tick or order in the ledger.
    pub last: Option<RunRecord>,
    /// Number of ticks in a row that failed; those that were purged, or are older than the last twenty entries of the
    /// ledger, are not counted.
    pub failures: u32,
}

/// Rules of a schedule as its owner stored them, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ScheduleRules {
    /// Expression in words, as `At 02:30, on Monday`.
    pub in_words: String,
    /// Time zone of its ticks; nothing if it has none, as `@every`.
    pub zone: Option<String>,
    /// Next ticks.
    pub next: Vec<StoreTime>,
}

impl ScheduleStatus {
    /// Entries of the ledger that a status is made of.
    pub const LOOKED_AT: usize = 20;

    /// Returns the status that the record and the last entries of the ledger tell, the last entry first.
    #[must_use]
    pub fn of(record: ScheduleRecord, runs: Vec<RunRecord>) -> Self {
        let failures = failures(&runs);
        let last = runs.into_iter().find(|run| run.id.entry != Entry::Skipped);
        Self { record, last, failures }
    }

    /// Returns the rules by which its owner stored it; nothing if no instance did, or a later version.
    fn calendar(&self) -> Option<(Calendar, StoreTime)> {
        let definition = self.record.definition.as_ref()?;
        let calendar = Calendar::read(definition.timing.as_str(), &self.record.id.name).ok()?;
        Some((calendar, definition.since))
    }

    /// Returns its first `n` ticks after `after`, by the definition in the store; none if there is no definition, or one
    /// of a version that is not known here. They are told whether or not it is paused.
    #[must_use]
    pub fn next(&self, n: usize, after: StoreTime) -> Vec<StoreTime> {
        self.rules(n, after).map(|rules| rules.next).unwrap_or_default()
    }

    /// Returns the rules with the first `n` ticks after `after`; nothing if there is no definition, or one of a version
    /// that is not known here.
    #[must_use]
    pub fn rules(&self, n: usize, after: StoreTime) -> Option<ScheduleRules> {
        let (calendar, since) = self.calendar()?;
        let next = |after: &StoreTime| calendar.next(*after, since);
        Some(ScheduleRules {
            in_words: calendar.in_words(&self.record.id.name),
            zone: calendar.zone_name().map(ToOwned::to_owned),
            next: std::iter::successors(next(&after.max(since)), next).take(n).collect(),
        })
    }
}

impl Overdue {
    /// Returns the first tick that is due for longer than `patience` and not in the ledger. `runs` are its last entries,
    /// the last one first, at least [`LOOKED_AT`](ScheduleStatus::LOOKED_AT) of them, and `is_all` says that there are no others. Whether
    /// an instance is about to run the tick, the records do not tell.
    #[must_use]
    pub fn of(
        record: &ScheduleRecord,
        runs: &[RunRecord],
        is_all: bool,
        now: StoreTime,
        patience: Duration,
    ) -> Option<Self> {
        match unowned(record, runs, is_all, now, patience) {
            Unowned::Overdue(due) => Some(Self { schedule: record.id.name.clone(), due, by: now.since(due) }),
            Unowned::Through(_) | Unowned::Well => None,
        }
    }
}

impl fmt::Display for ScheduleStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.record.id.name)?;
        match &self.record.definition {
            Some(definition) => write!(f, "{}, {}", definition.timing, definition.policies)?,
            None => f.write_str("it has not run yet")?,
        }
        if let Some(pause) = self.record.pause.as_ref().filter(|pause| pause.is_on()) {
            write!(f, "; paused since {} by {}: {}", pause.since, pause.by, pause.why)?;
        }
        if let Some(last) = &self.last {
            write!(f, "; last {last}")?;
        }
        if self.failures > 0 {
            write!(f, "; {} failures in a row", self.failures)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Finish, Holder, Namespace, Outcome, Rules, RunId, ScheduleId, SessionId, Term},
        store::Definition,
    };

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(minutes: i64) -> StoreTime {
        StoreTime::from_millis(1_767_225_600_000 + minutes * 60_000)
    }

    fn record(timing: &str) -> ScheduleRecord {
        let id = ScheduleId { namespace: Namespace::new("n").unwrap(), name: "s".parse().unwrap() };
        let (timing, policies) = (Rules::new(timing).unwrap(), Rules::new("p").unwrap());
        let definition = Definition::new(timing, policies, at(0), Term::new(1));
        ScheduleRecord { definition: Some(definition), ..ScheduleRecord::new(id) }
    }

    fn run(entry: Entry, minutes: i64, outcome: Option<Outcome>) -> RunRecord {
        let id = RunId { entry, ..RunId::tick(record("x").id, at(minutes)) };
        let (session, holder) = (SessionId::from_u128(1), Holder::new("a").unwrap());
        let run = RunRecord::new(id, session, holder, Term::new(5), at(minutes));
        RunRecord { finish: outcome.map(|outcome| Finish::new(at(minutes), outcome)), ..run }
    }

    #[test]
    fn a_status_tells_the_last_run_and_the_failures_since_one_succeeded() {
        let runs = vec![
            run(Entry::Skipped, 6, Some(Outcome::Skipped)),
            run(Entry::Tick, 5, None),
            run(Entry::Tick, 4, Some(Outcome::Failed)),
            run(Entry::Order, 3, Some(Outcome::TimedOut)),
            run(Entry::Tick, 2, Some(Outcome::Succeeded)),
            run(Entry::Tick, 1, Some(Outcome::Failed)),
        ];
        let status = ScheduleStatus::of(record("0 * * * * in UTC"), runs);
        assert_eq!(status.last.map(|run| run.id.instant), Some(at(5)));
        assert_eq!(status.failures, 2);
    }

    #[test]
    fn ticks_are_those_of_the_definition_in_the_store() {
        let of = |timing| ScheduleStatus::of(record(timing), Vec::new());
        let zone = |status: &ScheduleStatus| status.rules(0, at(0)).and_then(|rules| rules.zone);
        let hourly = of("0 * * * * in UTC");
        assert_eq!(hourly.next(2, at(61)), [at(120), at(180)]);
        assert_eq!(hourly.next(1, at(-600)), [at(60)], "it has no tick before it was defined");
        assert_eq!(zone(&hourly).as_deref(), Some("UTC"));
        assert_eq!(zone(&of("30 2 * * * in Europe/Berlin, vixie")).as_deref(), Some("Europe/Berlin"));
        let once = of("@after 10m");
        assert_eq!((once.next(3, at(5)), zone(&once)), (vec![at(10)], None));
        assert_eq!(once.next(3, at(10)), []);
        assert_eq!(of("of a later version").next(1, at(5)), []);
        let nobodys = ScheduleStatus::of(ScheduleRecord::new(hourly.record.id), Vec::new());
        assert_eq!((nobodys.next(1, at(5)), zone(&nobodys)), (Vec::new(), None));
    }

    #[test]
    fn a_due_tick_missing_from_the_ledger_is_told_with_its_age() {
        let hourly = record("0 * * * * in UTC");
        let of = |runs: &[RunRecord], minutes| Overdue::of(&hourly, runs, true, at(minutes), MINUTE);
        assert_eq!(of(&[], 61), None);
        let overdue = of(&[], 65).unwrap();
        assert_eq!((overdue.due, overdue.by), (at(60), 5 * MINUTE));
        assert_eq!(of(&[run(Entry::Tick, 60, None)], 65), None);
    }
}
