//! Changes within the last hour, as far as records remember, the latest first.

use tenure_look::{Group, Picture, Severity};

use super::super::list::{Cell, Column, List, Row, Subject, Tone};
use crate::times;

const COLUMNS: &[Column] = &[
    Column::new("TIME", 8, 8, 1),
    Column::new("SORT", 8, 8, 2),
    Column::new("WHAT", 8, 10, 3),
    Column::new("CHANGE", 20, 240, 0),
];

pub(super) fn list(picture: &Picture) -> List {
    let row = |group: &Group| {
        let (word, sentence) = group.describe();
        let (sort, tone) = match group.change.severity() {
            Severity::Failure => ("failure", Tone::Bad),
            Severity::Loss => ("loss", Tone::Bad),
            Severity::Takeover => ("takeover", Tone::Note),
            Severity::Move => ("move", Tone::Plain),
            Severity::Person => ("person", Tone::Note),
            Severity::Other => ("", Tone::Plain),
        };
        let cells = vec![
            Cell::text(times::clock(group.change.at)),
            Cell::text(sort).tone(tone),
            Cell::text(word),
            Cell::text(sentence.trim_end()),
        ];
        Row { subject: subject(group), cells }
    };
    let rows = Group::all(picture.changes()).iter().map(row).collect();
    List::new(COLUMNS, rows)
}

/// A group may grow by what happened before: it is named by what happened last.
pub(in super::super) fn subject(group: &Group) -> Subject {
    let (word, sentence) = group.change.describe();
    Subject::Change(format!("{} {word} {sentence}", group.change.at))
}
