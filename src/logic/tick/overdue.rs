//! Overdue ticks of schedules that no instance runs: found in the record and the last entries of the
//! ledger.

use std::time::Duration;

use super::is_believable;
use crate::{
    logic::calendar::Calendar,
    model::{Entry, RunRecord, StoreTime},
    store::{Pause, ScheduleRecord},
};

/// State of a schedule that no instance runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unowned {
    /// Has a tick that is due since then, and not in the ledger.
    Overdue(StoreTime),
    /// Had one tick, then, which is dealt with.
    Through(StoreTime),
    /// No tick is due, or that is unknown.
    Well,
}

/// Judges by the last entries of the ledger, last first; `is_all`: there are no others. What is due for no longer
/// than `patience` is on its way.
pub(crate) fn unowned(
    record: &ScheduleRecord,
    runs: &[RunRecord],
    is_all: bool,
    now: StoreTime,
    patience: Duration,
) -> Unowned {
    let Some(definition) = &record.definition else { return Unowned::Well };
    let Ok(calendar) = Calendar::read(definition.timing.as_str(), &record.id.name) else {
        return Unowned::Well;
    };
    if record.pause.as_ref().is_some_and(Pause::is_on) {
        return Unowned::Well;
    }
    let recorded = runs.iter().filter(|run| run.id.entry != Entry::Order).map(|run| run.id.instant);
    let recorded = recorded.filter(|at| is_believable(*at, now)).max();
    if recorded.is_none() && !is_all {
        return Unowned::Well;
    }
    let since = definition.since;
    let only = calendar.only(since);
    if let Some(only) = only
        && recorded.max(record.mark).is_some_and(|recorded| recorded >= only)
    {
        return Unowned::Through(only);
    }
    let until = record.pause.as_ref().and_then(|pause| pause.until);
    let dealt_with = [Some(since), recorded, record.mark, until].into_iter().flatten().max().unwrap_or(since);
    // It may have been past already when it was stored.
    let past = only.filter(|only| *only <= since);
    match past.or_else(|| calendar.next(dealt_with, since)) {
        Some(due) if due.max(since).plus(patience) < now => Unowned::Overdue(due),
        _ => Unowned::Well,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Holder, Namespace, Rules, RunId, ScheduleId, SessionId, Term, Why},
        store::Definition,
    };

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(minutes: i64) -> StoreTime {
        StoreTime::from_millis(1_767_225_600_000 + minutes * 60_000)
    }

    fn record(timing: &str) -> ScheduleRecord {
        let id = ScheduleId { namespace: Namespace::new("n").unwrap(), name: "s".parse().unwrap() };
        let (timing, policies) = (Rules::new(timing).unwrap(), Rules::new("p").unwrap());
        let definition = Definition { timing, policies, since: at(0), term: Term::new(1) };
        ScheduleRecord { definition: Some(definition), ..ScheduleRecord::new(id) }
    }

    fn run(entry: Entry, minutes: i64) -> RunRecord {
        let id = RunId { entry, ..RunId::tick(record("x").id, at(minutes)) };
        let (session, holder) = (SessionId::from_u128(1), Holder::new("a").unwrap());
        RunRecord::new(id, session, holder, Term::new(5), at(minutes))
    }

    #[test]
    fn a_tick_due_longer_than_the_patience_and_not_in_the_ledger_is_overdue() {
        let hourly = record("0 * * * * in UTC");
        let look = |runs: &[RunRecord], minutes| unowned(&hourly, runs, true, at(minutes), MINUTE);
        assert_eq!(look(&[], 59), Unowned::Well);
        assert_eq!(look(&[], 61), Unowned::Well, "somebody may be about to run it");
        assert_eq!(look(&[], 62), Unowned::Overdue(at(60)));
        assert_eq!(look(&[run(Entry::Order, 61)], 62), Unowned::Overdue(at(60)), "an order is no tick");
        assert_eq!(look(&[run(Entry::Tick, 60)], 62), Unowned::Well);
        assert_eq!(look(&[run(Entry::Skipped, 60)], 300), Unowned::Overdue(at(120)), "the first of them");
        assert_eq!(look(&[run(Entry::Tick, 90_000), run(Entry::Tick, 60)], 122), Unowned::Overdue(at(120)));
        let only_orders = unowned(&hourly, &[run(Entry::Order, 70)], false, at(300), MINUTE);
        assert_eq!(only_orders, Unowned::Well, "nobody can tell");
    }

    #[test]
    fn ticks_in_a_pause_below_the_mark_or_of_unknown_timing_are_not_overdue() {
        let mut hourly = record("0 * * * * in UTC");
        let pause =
            |until| Pause { since: at(10), until, by: Holder::new("op").unwrap(), why: Why::shortened("") };
        hourly.pause = Some(pause(None));
        assert_eq!(unowned(&hourly, &[], true, at(300), MINUTE), Unowned::Well);
        hourly.pause = Some(pause(Some(at(200))));
        assert_eq!(unowned(&hourly, &[], true, at(300), MINUTE), Unowned::Overdue(at(240)));
        hourly.pause = None;
        hourly.mark = Some(at(240));
        assert_eq!(unowned(&hourly, &[], true, at(302), MINUTE), Unowned::Overdue(at(300)));
        assert_eq!(unowned(&record("of a later version"), &[], true, at(300), MINUTE), Unowned::Well);
        let unknown = ScheduleRecord::new(hourly.id.clone());
        assert_eq!(unowned(&unknown, &[], true, at(300), MINUTE), Unowned::Well);
    }

    #[test]
    fn a_schedule_of_one_tick_is_through_once_that_tick_has_run() {
        let once = record("@at 2026-01-01T01:00:00Z");
        assert_eq!(unowned(&once, &[], true, at(300), MINUTE), Unowned::Overdue(at(60)));
        let ran = unowned(&once, &[run(Entry::Tick, 60)], true, at(300), MINUTE);
        assert_eq!(ran, Unowned::Through(at(60)));
        let past = record("@at 2025-12-31T23:00:00Z");
        assert_eq!(unowned(&past, &[], true, at(1), MINUTE), Unowned::Well, "it was stored just now");
        assert_eq!(unowned(&past, &[], true, at(2), MINUTE), Unowned::Overdue(at(-60)));
        assert_eq!(unowned(&past, &[run(Entry::Tick, -60)], true, at(2), MINUTE), Unowned::Through(at(-60)));
    }
}
