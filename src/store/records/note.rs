//! Notes of tasks that fail or whose processes die. The engine writes them into the record of the task's last holding,
//! every member reads them alike, and people read them as sentences: their format is part of what is stored.

use std::{fmt, time::Duration};

use super::{Request, session::signed};
use crate::model::{Digest, Holder, StoreTime, Why};

/// Most members that a note names.
const NAMES: usize = 8;
/// Most bytes of a name in a note.
const NAME: usize = 48;
/// Beginning of the notes that are written here.
const FAILING: &str = "failing since ";
const GIVEN_UP: &str = ", given up ";
const BY: &str = " by ";
const REVOKED: &str = "revoked by ";

/// The note of a task that pauses.
const ITS_LAST: &str = "its last ";
const DIED: &str = " holders died while they had it, since ";

/// Note of a task, read from the record of its last holding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskNote {
    /// The holder gave it up after a failure.
    GivenUp {
        /// Number of failures in a row, over all holders.
        tries: u32,
        /// Last error.
        error: String,
        /// Time of the first of these failures.
        since: StoreTime,
    },
    /// The holders died.
    Died {
        /// Number of deaths in a row.
        deaths: u32,
    },
    /// An operator wanted it back, also of a plain lock.
    Revoked {
        /// The operator.
        by: Holder,
        /// Why.
        why: Why,
    },
}

impl TaskNote {
    /// Returns the meaning of a note; nothing if the engine did not write it.
    #[must_use]
    pub fn read(note: &Why) -> Option<Self> {
        let given_up =
            |row: FailureRow| Self::GivenUp { tries: row.tries, error: row.error, since: row.since };
        let died = |row: DeathRow| Self::Died { deaths: row.deaths };
        let signed = || Request::read_note(&Why::shortened(note.as_str().strip_prefix(REVOKED)?));
        let row = FailureRow::read(note).map(given_up).or_else(|| DeathRow::read(note).map(died));
        row.or_else(|| signed().map(|(by, why)| Self::Revoked { by, why }))
    }
}

/// Failures of a task in a row, as its record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailureRow {
    /// Time of the first failure of the row, by the store's clock.
    pub(crate) since: StoreTime,
    /// Number of times it was given up since then.
    pub(crate) tries: u32,
    /// Members that gave it up, the last one last, [as a note names them](name_in_note). Only the last eight are
    /// remembered.
    pub(crate) by: Vec<String>,
    /// Last error.
    pub(crate) error: String,
}

impl FailureRow {
    /// Begins with the first member that gives it up.
    pub(crate) fn begun(since: StoreTime, by: &Holder, error: String) -> Self {
        Self { since, tries: 1, by: vec![name_in_note(by)], error }
    }

    /// Goes on with another one.
    pub(crate) fn followed_by(mut self, by: &Holder, error: String) -> Self {
        let last = name_in_note(by);
        self.by.retain(|name| *name != last);
        self.by.push(last);
        self.by.drain(..self.by.len().saturating_sub(NAMES));
        Self { tries: self.tries.saturating_add(1), error, ..self }
    }

    /// Returns what the record says of it.
    pub(crate) fn note(&self) -> Why {
        Why::shortened(&self.to_string())
    }

    /// Returns what a note says; nothing if it is another sort of note, or none that was written here.
    pub(crate) fn read(note: &Why) -> Option<Self> {
        let (since, rest) = note.as_str().strip_prefix(FAILING)?.split_once(GIVEN_UP)?;
        let (given_up, error) = rest.split_once(": ")?;
        let (tries, by) = given_up.split_once(BY)?;
        let tries = match tries.strip_suffix(" times") {
            Some(times) => times.parse().ok().filter(|times| *times > 1)?,
            None => 1,
        };
        let by = by.split(", ").map(str::to_owned).collect();
        let read = Self { since: instant(since)?, tries, by, error: error.to_owned() };
        // Only what would be written so: there is one way to say it.
        (read.note() == *note).then_some(read)
    }
}

impl fmt::Display for FailureRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { since, tries, by, error } = self;
        write!(f, "{FAILING}{since}{GIVEN_UP}")?;
        match tries {
            1 => write!(f, "once{BY}{}: {error}", by.join(", ")),
            tries => write!(f, "{tries} times{BY}{}: {error}", by.join(", ")),
        }
    }
}

/// Returns how a note names a member: by its whole name, or by a part of it and a digest if the name is long or has
/// marks that a note has between names.
pub(crate) fn name_in_note(holder: &Holder) -> String {
    let whole = holder.as_str();
    if whole.len() <= NAME && !whole.contains([',', ':']) && !whole.contains(BY) {
        return whole.to_owned();
    }
    let mut digest = Digest::default();
    digest.write(whole.as_bytes());
    let plain = whole.chars().map(|char| if matches!(char, ',' | ':' | ' ') { '_' } else { char });
    let part: String = plain.take(8).collect();
    format!("{part}~{:016x}", digest.mixed())
}

/// Reads what [`StoreTime`] shows.
fn instant(text: &str) -> Option<StoreTime> {
    if let Some(millis) = text.strip_suffix(" ms") {
        return millis.parse().ok().map(StoreTime::from_millis);
    }
    text.parse::<jiff::Timestamp>().ok().map(|at| StoreTime::from_millis(at.as_millisecond()))
}

/// Deaths of a task's holders in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeathRow {
    pub(crate) deaths: u32,
    /// End of the first of them, by the store's clock.
    pub(crate) since: StoreTime,
    /// For so long it has run since the last of them.
    pub(crate) ran: Duration,
}

impl DeathRow {
    /// Returns what was seen.
    pub(crate) fn seen(self) -> String {
        format!("{ITS_LAST}{}{DIED}{}", self.deaths, self.since)
    }

    /// Reads the note of a task that paused.
    pub(crate) fn read(note: &Why) -> Option<Self> {
        let (deaths, since) = note.as_str().strip_prefix(ITS_LAST)?.split_once(DIED)?;
        let read = Self { deaths: deaths.parse().ok()?, since: instant(since)?, ran: Duration::ZERO };
        (read.seen() == note.as_str()).then_some(read)
    }
}

/// Returns what the record is to say of a task that an operator wanted back.
pub(crate) fn revoked(by: &Holder, why: &Why) -> Why {
    Why::shortened(&format!("{REVOKED}{}", signed(by, why)))
}

/// Returns whether an operator took the task away.
pub(crate) fn is_revoked(note: &Why) -> bool {
    note.as_str().starts_with(REVOKED)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> StoreTime {
        StoreTime::from_millis(1_763_784_813_123 + seconds * 1000)
    }

    fn holder(name: &str) -> Holder {
        name.parse().unwrap()
    }

    fn failed(since: i64, by: &[&str]) -> FailureRow {
        let error = || "no route to host".to_owned();
        let mut by = by.iter().map(|name| holder(name));
        let first = FailureRow::begun(at(since), &by.next().unwrap(), error());
        by.fold(first, |row, name| row.followed_by(&name, error()))
    }

    proptest! {
        #![proptest_config(crate::tests::seeded::config())]

        #[test]
        fn a_row_is_read_as_it_was_written(
            millis in prop_oneof![any::<i64>(), 0_i64..4_000_000_000_000],
            names in prop::collection::vec("[^\\p{Cc}]{1,60}", 1..12),
            error in ".{0,40}",
        ) {
            let mut names = names.iter().filter_map(|name| name.parse::<Holder>().ok());
            let Some(first) = names.next() else { return Ok(()) };
            let row = FailureRow::begun(StoreTime::from_millis(millis), &first, error.clone());
            let row = names.fold(row, |row, name| row.followed_by(&name, error.clone()));
            prop_assert_eq!(FailureRow::read(&row.note()), Some(row));
        }

        #[test]
        fn any_other_note_is_just_a_note(text in ".{0,80}", cut in 0_usize..60, put in any::<char>()) {
            let text = Why::shortened(&text);
            prop_assert_eq!(FailureRow::read(&text), None);
            // A letter of the form that is another one: it says something else, or nothing.
            let whole = failed(0, &["a", "b"]);
            let mut letters: Vec<char> = whole.note().as_str().chars().collect();
            letters[cut] = put;
            let damaged: String = letters.iter().collect();
            let read = FailureRow::read(&Why::shortened(&damaged));
            prop_assert!(read.is_none_or(|read| read.note().as_str() == damaged));
        }
    }

    #[test]
    fn the_note_of_deaths_is_read_with_their_number() {
        let row = DeathRow { deaths: 3, since: at(0), ran: Duration::ZERO };
        let note = Why::shortened(&row.seen());
        assert_eq!(TaskNote::read(&note), Some(TaskNote::Died { deaths: 3 }));
        assert_eq!(TaskNote::read(&Why::shortened("done")), None);
    }

    #[test]
    fn people_can_read_a_note_and_a_long_error_is_cut() {
        assert_eq!(
            failed(0, &["pod-1", "pod-2", "pod-1"]).note().as_str(),
            "failing since 2025-11-22T04:13:33.123Z, given up 3 times by pod-2, pod-1: no route to host"
        );
        assert_eq!(
            failed(0, &["pod-1"]).note().as_str(),
            "failing since 2025-11-22T04:13:33.123Z, given up once by pod-1: no route to host"
        );
        let long = FailureRow { error: "é".repeat(Why::MAX_BYTES), ..failed(0, &["a"]) };
        let read = FailureRow::read(&long.note()).unwrap();
        assert!(read.error.len() > 900 && long.error.starts_with(&read.error));
        for foreign in [
            "",
            "done",
            "failing since yesterday, given up once by a: no",
            "failing since 2025-11-22T04:13:33.123Z, given up 1 times by a: no",
            "failing since 2025-11-22T04:13:33.123Z, given up +3 times by a: no",
            "failing since 2025-11-22T05:13:33.123+01:00, given up once by a: no",
            "failing since 2025-11-22T04:13:33.123Z, given up once by a",
        ] {
            assert_eq!(FailureRow::read(&Why::shortened(foreign)), None, "{foreign}");
        }
    }

    #[test]
    fn the_last_eight_members_are_named_and_long_names_are_shortened() {
        let names: Vec<String> = (0..12).map(|number| format!("pod-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let row = failed(0, &names);
        assert_eq!(
            (row.tries, &row.by[..]),
            (12, &names[4..].iter().map(ToString::to_string).collect::<Vec<_>>()[..])
        );
        let long = |end: &str| format!("{}{end}", "é".repeat(60));
        assert_ne!(name_in_note(&holder(&long("a"))), name_in_note(&holder(&long("b"))));
        let eight: Vec<String> = (0..8).map(|number| long(&number.to_string())).collect();
        let row = failed(0, &eight.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(FailureRow::read(&row.note()), Some(row), "eight long names leave room for the error");
    }
}
