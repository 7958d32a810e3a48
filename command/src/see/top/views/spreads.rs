//! The spreads: members, tasks, resting tasks, and tasks without a holder that wait to be taken.

use tenure::model::SpreadName;
use tenure_look::{Picture, SpreadSummary};

use super::super::{
    list::{Cell, Column, List, Row, Subject, Tone},
    text::permille,
};
use crate::see::spreads::notes;

const COLUMNS: &[Column] = &[
    Column::new("SPREAD", 16, 40, 0),
    Column::number("MEMBERS", 3),
    Column::number("TASKS", 2),
    Column::new("HELD", 10, 40, 1),
    Column::number("RESTING", 5),
    Column::number("ORPHANS", 4),
    Column::new("NOTE", 12, 120, 6),
];

/// Orphans that are named.
const NAMED: usize = 8;

pub(super) fn list(picture: &Picture) -> List {
    let row = |one: SpreadSummary| {
        let some_is = |count: usize, tone: Tone| if count > 0 { tone } else { Tone::Plain };
        let cells = vec![
            Cell::text(&one.spread),
            Cell::text(one.members.to_string()).tone(some_is(one.silent, Tone::Bad)),
            Cell::text(one.tasks.to_string()),
            Cell::text(one.held.to_string()).bar(permille(one.held, one.tasks)),
            Cell::text(one.resting.to_string()).tone(some_is(one.resting, Tone::Note)),
            Cell::text(one.orphans.to_string()).tone(some_is(one.orphans, Tone::Bad)),
            Cell::text(note(&one, picture)),
        ];
        Row { subject: Subject::Spread(one.spread), cells }
    };
    List::new(COLUMNS, picture.spreads().into_iter().map(row).collect())
}

/// Counts the members that are not well, and names the tasks that wait for an instance.
fn note(one: &SpreadSummary, picture: &Picture) -> String {
    let mut notes = notes(one);
    if one.orphans > 0 {
        notes.push(format!("orphans: {}", orphans(&one.spread, picture)));
    }
    notes.join(", ")
}

fn orphans(name: &SpreadName, picture: &Picture) -> String {
    let orphans = picture.spread(name, 0, 0).map(|spread| spread.orphans).unwrap_or_default();
    let mut named: Vec<_> = orphans.iter().take(NAMED).map(ToString::to_string).collect();
    if orphans.len() > NAMED {
        named.push("\u{2026}".to_owned());
    }
    named.join(", ")
}
