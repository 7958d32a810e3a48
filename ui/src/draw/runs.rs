//! The last runs of a schedule as a row of cells, the latest one on the right.

use maud::{Markup, html};
use tenure::model::{Entry, Outcome, RunRecord};
use tenure_look::{ScheduleView, ended, one_line, why_ended};

use crate::address::Base;

/// Returns the outcome of a ledger entry, as a class and a letter.
pub(crate) fn how(run: &RunRecord, is_on: bool) -> (&'static str, &'static str) {
    if run.id.entry == Entry::Skipped {
        return ("skipped", "·");
    }
    match run.finish.as_ref().map(|finish| finish.outcome) {
        None if is_on => ("on", "▶"),
        None => ("dead", "†"),
        Some(Outcome::Succeeded) => ("ok", "✓"),
        Some(Outcome::Failed) => ("failed", "✗"),
        Some(Outcome::TimedOut) => ("failed", "T"),
        Some(Outcome::Abandoned) => ("failed", "A"),
        Some(Outcome::Cancelled) => ("stopped", "C"),
        Some(Outcome::Displaced) => ("stopped", "D"),
        Some(Outcome::NotBegun) => ("stopped", "N"),
        Some(Outcome::Skipped) => ("skipped", "·"),
        Some(_) => ("stopped", "?"),
    }
}

/// The name of an entry in an address.
pub(crate) fn entry(run: &RunRecord) -> String {
    format!("{}/{}", run.id.instant, run.id.entry.as_str())
}

pub(crate) fn link_to_run(base: &Base, run: &RunRecord, after: Option<&str>) -> String {
    let (schedule, entry) = (run.id.schedule.name.as_str(), entry(run));
    let mut query = vec![("name", schedule), ("run", entry.as_str())];
    query.extend(after.map(|after| ("after", after)));
    base.link("/schedule", &query)
}

/// The cells.
pub(crate) fn cells(base: &Base, schedule: &ScheduleView) -> Markup {
    let runs = &schedule.ledger.runs;
    html! {
        @if runs.is_empty() { span.quiet { @if schedule.ledger.read_at.is_some() { "no run yet" } @else { "-" } } } @else {
            ol.runs {
                @for run in runs.iter().rev() {
                    @let is_on = schedule.is_on(run);
                    @let ((class, letter), says) = (how(run, is_on), told(run, is_on));
                    li class=(class) { a href=(link_to_run(base, run, None)) title=(says) aria-label=(says) { (letter) } }
                }
            }
        }
    }
}

fn told(run: &RunRecord, is_on: bool) -> String {
    let why = why_ended(run).map(|why| format!(": {}", one_line(why.as_str()))).unwrap_or_default();
    format!("{} {}{why}", run.id.instant, ended(run, is_on))
}
