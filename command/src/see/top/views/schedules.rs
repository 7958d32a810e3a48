//! The schedules: what there is to say of each before all else, when it is next, and how its last runs went.

use tenure::model::{Entry, Outcome, RunRecord};
use tenure_look::{Picture, ScheduleState, ScheduleView, ago, ended, why_ended};

use super::super::list::{Cell, Column, List, Row, Subject, Tone};

const COLUMNS: &[Column] = &[
    Column::new("SCHEDULE", 10, 40, 0),
    Column::new("STATE", 8, 20, 1),
    Column::new("NEXT", 9, 12, 3),
    Column::new("LAST RUNS", ScheduleView::RUNS, ScheduleView::RUNS, 2),
    Column::number("FAILURES", 5),
    Column::new("HOLDER", 8, 40, 4),
    Column::new("LAST", 10, 60, 6),
    Column::new("WHEN", 12, 60, 7),
];

pub(super) fn list(picture: &Picture) -> List {
    let now = picture.now();
    let ttl = picture.ttl();
    let row = |one: ScheduleView| {
        let record = &one.status.record;
        let (word, tone) = standing(&one, one.state(ttl));
        let next = one.next.first().map(|next| ago(*next, now));
        let failures = one.status.failures;
        let owner = one.owner.as_ref().map(|owner| format!("{}{}", owner.holder, owner.life.mark()));
        let (last, tone_of_last) = last(&one, picture);
        let when =
            one.in_words.clone().or_else(|| record.definition.as_ref().map(|one| one.timing.to_string()));
        let zone = one.zone.as_ref().filter(|zone| *zone != "UTC").map(|zone| format!(" ({zone})"));
        let cells = vec![
            Cell::text(&record.id.name),
            Cell::text(word).tone(tone),
            Cell::text(next.unwrap_or_default()),
            Cell::text(runs(&one)),
            Cell::text(failures.to_string()).tone(if failures > 0 { Tone::Bad } else { Tone::Plain }),
            Cell::text(owner.unwrap_or_else(|| "none".to_owned())),
            Cell::text(last).tone(tone_of_last),
            Cell::text(format!("{}{}", when.unwrap_or_default(), zone.unwrap_or_default())),
        ];
        Row { subject: Subject::Schedule(record.id.clone()), cells }
    };
    let rows = picture.schedules(0, picture.schedule_count()).into_iter().map(row).collect();
    List::new(COLUMNS, rows)
}

/// Returns the standing of a schedule in words, and its tone.
fn standing(one: &ScheduleView, standing: ScheduleState) -> (String, Tone) {
    match standing {
        ScheduleState::Overdue { .. } => (standing.to_string(), Tone::Bad),
        ScheduleState::Paused => (standing.to_string(), Tone::Note),
        ScheduleState::Running => (standing.to_string(), Tone::Good),
        // It is no trouble yet: its owner may be on its way to it.
        ScheduleState::Due if one.owner.is_none() => (format!("{standing}, no owner"), Tone::Note),
        ScheduleState::Due | ScheduleState::Waiting | ScheduleState::Unread | ScheduleState::Undefined => {
            (standing.to_string(), Tone::Plain)
        }
    }
}

/// The last runs, a character each, the last one on the right.
fn runs(one: &ScheduleView) -> String {
    let cells: String = one.ledger.runs.iter().rev().map(|run| cell(run, one.is_on(run))).collect();
    format!("{cells:>width$}", width = ScheduleView::RUNS)
}

/// A character for a run.
fn cell(run: &RunRecord, is_on: bool) -> char {
    if run.id.entry == Entry::Skipped {
        return '-';
    }
    match run.finish.as_ref().map(|finish| finish.outcome) {
        None if is_on => '>',
        None => '!',
        Some(Outcome::Succeeded) => '+',
        Some(Outcome::Failed) => 'x',
        Some(Outcome::TimedOut) => 'T',
        Some(Outcome::Abandoned) => 'A',
        Some(Outcome::Cancelled) => 'C',
        Some(Outcome::Displaced) => 'D',
        Some(Outcome::NotBegun) => 'N',
        Some(Outcome::Skipped) => '-',
        Some(_) => '?',
    }
}

/// Returns the outcome and time of the last run, and its tone.
fn last(one: &ScheduleView, picture: &Picture) -> (String, Tone) {
    let Some(run) = &one.status.last else { return (String::new(), Tone::Plain) };
    let is_on = one.is_on(run);
    let outcome = run.finish.as_ref().map(|finish| finish.outcome);
    let tone = match outcome {
        Some(Outcome::Failed | Outcome::TimedOut | Outcome::Abandoned) => Tone::Bad,
        None if !is_on => Tone::Bad,
        _ => Tone::Plain,
    };
    let error = why_ended(run).map(|error| format!(": {error}")).unwrap_or_default();
    (format!("{} {}{error}", ended(run, is_on), ago(run.id.instant, picture.now())), tone)
}
