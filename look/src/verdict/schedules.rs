//! Schedules that are overdue, fail, are paused, or that nobody has.

use super::{Found, Grade, Limits, Subject, Trouble, command, count, others};
use crate::{
    Picture, ScheduleView, ago, length, one_line,
    schedule::{lock_of, on},
};
use tenure::model::{Kind, Outcome, RunRecord, ScheduleName, StoreTime};

/// Without the name: the command deletes, and is to be typed with thought.
const UNOWNED: &str = "; start an instance that has it (tenure forget is for one that no code has any more)";
/// Ticks of a pause are counted up to here.
const TICKS: usize = 100;

impl Found<'_> {
    pub(super) fn schedules(&mut self, picture: &Picture, limits: &Limits) {
        let is_whole = Kind::Schedule.spread().is_some_and(|all| picture.read.spreads.contains(&all));
        for view in picture.troubled() {
            let is_read = is_whole || picture.lock(&lock_of(&view.status.record.id)).is_some();
            self.schedule(&view, is_read, limits);
        }
    }

    /// Judges a schedule by its own records. Without a read of its lock nobody knows its owner.
    pub(super) fn schedule(&mut self, view: &ScheduleView, is_read: bool, limits: &Limits) {
        let (record, now, patience) = (&view.status.record, self.now, view.patience(self.ttl));
        let name = &record.id.name;
        let owner = view.owner.as_ref().filter(|owner| !owner.looks_dead);
        let of_whom = match &view.owner {
            None if !is_read => "with an owner that was not read yet".to_owned(),
            None => "without an owner".to_owned(),
            Some(owner) => format!("owned by {}{}", owner.holder, owner.life.mark()),
        };
        let defined = record.definition.as_ref().map(|definition| definition.since);
        let is_unowned = is_read && owner.is_none();
        let lost = on(&view.ledger.runs).filter(|_| !view.running && is_unowned);
        let since = view.had.max(defined).max(lost.map(|run| run.started));
        let grade = self.lasting(since, patience);
        let advice = if is_unowned && grade > Grade::Passing { UNOWNED } else { "" };
        if let Some(pause) = record.pause.as_ref().filter(|_| view.paused) {
            let missed = view.status.next(TICKS, pause.since).iter().filter(|tick| **tick <= now).count();
            let more = if missed == TICKS { " or more" } else { "" };
            let missed = format!(", {}{more} not run since", count(missed, "tick"));
            let missed = if missed.starts_with(", 0") { "" } else { &missed };
            let says = format!("was paused {} by {}: {}{missed}", ago(pause.since, now), pause.by, pause.why);
            self.schedule_is(name, (Grade::Warning, "paused"), Some(pause.since), &says, "resume");
        } else if defined.is_none() {
            let says = "was never run by any instance".to_owned();
            self.schedule_is(name, (Grade::Warning, "never_run"), None, &says, "history");
        } else if let Some(run) = lost {
            let (at, who) = (ago(run.id.instant, now), &run.holder);
            let says =
                format!("lost its run of {at} with {who}, no other repeats it, and it is {of_whom}{advice}");
            self.schedule_is(name, (grade, "lost_run"), since, &says, "history");
        } else if is_unowned && view.due.is_none() && !view.next.is_empty() {
            let says = format!("is {of_whom}: its next tick will not be run{advice}");
            self.schedule_is(name, (grade, "nobody"), since, &says, "history");
        }
        if let Some(first) = view.ledger.refused.first() {
            let number = view.ledger.refused.len();
            let says = format!("has entries that cannot be read: {}{}", first.refusal, others(number - 1));
            let told = self.schedule_is(name, (Grade::Critical, "refused"), None, &says, "history");
            (told.number, told.detail) = (number, "ledger".to_owned());
        }
        if let Some(due) = view.due.filter(|due| now.since(*due) > patience.min(limits.overdue)) {
            let by = now.since(due);
            let grade = if by > limits.overdue { Grade::Critical } else { Grade::Warning };
            let says = format!("is overdue by {}, {of_whom}{advice}", length(by));
            self.schedule_is(name, (grade, "overdue"), Some(due), &says, "history");
        }
        if let Some(order) = record
            .orders
            .first()
            .filter(|order| now.since(order.at) > patience && on(&view.ledger.runs).is_none())
        {
            let says = format!("was ordered to run by {}, and does not, {of_whom}", order.by);
            self.schedule_is(name, (Grade::Warning, "order"), Some(order.at), &says, "history");
        }
        let failures = view.status.failures;
        if failures > 0 {
            let failed = view.ledger.runs.iter().filter(|run| has_failed(run));
            let since = failed.take(failures as usize).last().map(|run| run.id.instant);
            let end = view.status.last.as_ref().and_then(|last| last.finish.as_ref());
            let error = end.and_then(|end| end.error.as_ref()).map(|error| one_line(&format!(": {error}")));
            let is_least = failures as usize >= ScheduleView::RUNS && !view.ledger.is_all;
            let times = match failures {
                1 => "once".to_owned(),
                _ if is_least => format!("at least {failures} times in a row"),
                _ => format!("{failures} times in a row"),
            };
            let grade = if failures >= limits.failures { Grade::Critical } else { Grade::Warning };
            let error = error.unwrap_or_default();
            let says = format!("has failed {times}{error}");
            self.schedule_is(name, (grade, "failures"), since, &says, "history").detail = error;
        }
    }

    fn schedule_is(
        &mut self,
        name: &ScheduleName,
        grade: (Grade, &'static str),
        since: Option<StoreTime>,
        says: &str,
        verb: &str,
    ) -> &mut Trouble {
        let about = Subject::Schedule { schedule: name.clone() };
        self.tell(grade, about, since, &format!("{name} {says}"), &command(&[verb], name.as_str()))
    }
}

fn has_failed(run: &RunRecord) -> bool {
    let outcome = run.finish.as_ref().map(|end| end.outcome);
    matches!(outcome, Some(Outcome::Failed | Outcome::TimedOut | Outcome::Abandoned))
}

/// Returns when a run failed last.
pub(super) fn last_failure(picture: &Picture) -> Option<StoreTime> {
    let runs = picture.schedules.values().flat_map(|view| &view.ledger.runs).filter(|run| has_failed(run));
    runs.filter_map(|run| Some(run.finish.as_ref()?.at)).max()
}
