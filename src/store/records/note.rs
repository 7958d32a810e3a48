//! Notes on the ends of holdings: stores keep them as fields, every member of a spread reads them alike, and people
//! read them as sentences.

use std::fmt;

use serde::Serialize;

use crate::model::{Holder, StoreTime, Why};

/// Most members that a row of failures names.
const NAMES: usize = 8;

/// Note on the end of a holding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Note {
    /// The task is done for good.
    Done,
    /// The holder gave the task up after a failure.
    Failing(FailureRow),
    /// The holder left the task resting, since those before it died.
    Dying(DeathRow),
    /// An operator wanted the key back.
    Revoked {
        /// The operator.
        by: Holder,
        /// The reason.
        why: Why,
    },
}

/// Failures of a task in a row, over all members that had it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FailureRow {
    /// Time of the first failure of the row, by the store's clock.
    pub since: StoreTime,
    /// Number of times it was given up since then.
    pub tries: u32,
    /// Members that gave it up, the last one last. Only the last eight are remembered.
    pub by: Vec<Holder>,
    /// Last error.
    pub error: Why,
}

/// Deaths of a task's holders in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DeathRow {
    /// Number of deaths.
    pub deaths: u32,
    /// End of the first of these holders, by the store's clock.
    pub since: StoreTime,
}

impl FailureRow {
    /// Begins with the first member that gives it up.
    #[must_use]
    pub fn begun(since: StoreTime, by: &Holder, error: &str) -> Self {
        Self { since, tries: 1, by: vec![by.clone()], error: Why::shortened(error) }
    }

    /// Goes on with another one.
    #[must_use]
    pub fn followed_by(mut self, by: &Holder, error: &str) -> Self {
        self.by.retain(|name| name != by);
        self.by.push(by.clone());
        self.by.drain(..self.by.len().saturating_sub(NAMES));
        Self { tries: self.tries.saturating_add(1), error: Why::shortened(error), ..self }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Failing(row) => row.fmt(f),
            Self::Dying(row) => row.fmt(f),
            Self::Revoked { by, why } => write!(f, "revoked by {by}: {why}"),
        }
    }
}

impl fmt::Display for FailureRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { since, tries, by, error } = self;
        let by: Vec<_> = by.iter().map(Holder::as_str).collect();
        let times = if *tries == 1 { "once".to_owned() } else { format!("{tries} times") };
        write!(f, "failing since {since}, given up {times} by {}: {error}", by.join(", "))
    }
}

impl fmt::Display for DeathRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its last {} holders died while they had it, since {}", self.deaths, self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(by: &[&str]) -> FailureRow {
        let since = StoreTime::from_millis(1_763_784_813_123);
        let mut by = by.iter().map(|name| name.parse::<Holder>().unwrap());
        let first = FailureRow::begun(since, &by.next().unwrap(), "no route to host");
        by.fold(first, |row, name| row.followed_by(&name, "no route to host"))
    }

    #[test]
    fn people_read_notes_as_sentences() {
        let since = failed(&["a"]).since;
        for (note, says) in [
            (
                Note::Failing(failed(&["pod-1", "pod-2", "pod-1"])),
                "failing since 2025-11-22T04:13:33.123Z, given up 3 times by pod-2, pod-1: no route to host",
            ),
            (
                Note::Failing(failed(&["pod-1"])),
                "failing since 2025-11-22T04:13:33.123Z, given up once by pod-1: no route to host",
            ),
            (
                Note::Dying(DeathRow { deaths: 3, since }),
                "its last 3 holders died while they had it, since 2025-11-22T04:13:33.123Z",
            ),
            (
                Note::Revoked { by: "ops".parse().unwrap(), why: Why::new("hot").unwrap() },
                "revoked by ops: hot",
            ),
            (Note::Done, "done"),
        ] {
            assert_eq!(note.to_string(), says);
        }
    }

    #[test]
    fn the_last_eight_members_are_named_and_a_long_error_is_cut() {
        let names: Vec<String> = (0..12).map(|number| format!("pod-{number}")).collect();
        let row = failed(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(row.tries, 12);
        assert_eq!(row.by.iter().map(Holder::as_str).collect::<Vec<_>>(), names[4..]);
        let long = row.followed_by(&"a".parse().unwrap(), &"é".repeat(Why::MAX_BYTES));
        assert!(long.error.as_str().len() <= Why::MAX_BYTES);
    }
}
