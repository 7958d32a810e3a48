//! A task that fails again and again: the row of its failures, over all members that had it, as the note of the last
//! one says, which every member reads alike.

use std::{fmt, time::Duration};

use crate::model::{Digest, Holder, Past, StoreTime, Why};

/// A task rests for such a part of the time it has been failing: what is mended is tried again soon, compared to how
/// long it was broken.
const PART: u32 = 12;
/// Rest of a task that another member is to try: all read meanwhile which members gave it up.
const SHORTEST: Duration = Duration::from_secs(1);
/// Longest rest: what somebody mends in the night works before they have gone to bed again.
const LONGEST: Duration = Duration::from_secs(60 * 60);
/// So many members give a task up in a row before it rests for longer.
const MEMBERS: usize = 3;
/// Most members that a note names.
const NAMES: usize = 8;
/// Most bytes of a name in a note.
const NAME: usize = 48;
/// A row of failures is over if nobody tried for so long, though the task was open.
const FORGOTTEN: Duration = Duration::from_secs(60 * 60);

/// Beginning of the notes that are written here.
const FAILING: &str = "failing since ";
const GIVEN_UP: &str = ", given up ";
const BY: &str = " by ";
const REVOKED: &str = "revoked by ";

/// Failures of a task in a row, as its record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Time of the first failure of the row, by the store's clock.
    pub(crate) since: StoreTime,
    /// Number of times it was given up since then.
    pub(crate) tries: u32,
    /// Members that gave it up, the last one last, [as a note names them](name). Only the last eight are remembered.
    pub(crate) by: Vec<String>,
    /// Last error.
    pub(crate) error: String,
}

impl Row {
    /// Begins with the first member that gives it up.
    pub(crate) fn begun(since: StoreTime, by: &Holder, error: String) -> Self {
        Self { since, tries: 1, by: vec![name(by)], error }
    }

    /// Goes on with another one.
    pub(crate) fn followed_by(mut self, by: &Holder, error: String) -> Self {
        let last = name(by);
        self.by.retain(|name| *name != last);
        self.by.push(last);
        self.by.drain(..self.by.len().saturating_sub(NAMES));
        Self { tries: self.tries.saturating_add(1), error, ..self }
    }

    /// Returns how long it rests from now on. `others` says whether a member with room is left that did not give it up.
    pub(crate) fn rest(&self, others: bool, now: StoreTime) -> Duration {
        if others && self.by.len() < MEMBERS {
            return SHORTEST;
        }
        (now.since(self.since) / PART).clamp(SHORTEST, LONGEST)
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

    /// The row that goes on if the task fails for a member that took it at `taken`, latest holder first: it is over if a
    /// holder had the task for longer than `well` and did not give it up.
    pub(crate) fn of(past: &[Past], taken: StoreTime, well: Duration) -> Option<Self> {
        for last in past {
            if let Some(found) = last.note.as_ref().and_then(Self::read) {
                let open = last.to.plus(found.rest(false, last.to));
                return (taken.since(open) <= FORGOTTEN).then_some(found);
            }
            if last.to.since(last.from) > well {
                return None;
            }
        }
        None
    }

    /// The row that the last holder has left, if it gave the task up.
    pub(crate) fn latest(past: &[Past]) -> Option<Self> {
        Self::read(past.first()?.note.as_ref()?)
    }
}

impl fmt::Display for Row {
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
pub(crate) fn name(holder: &Holder) -> String {
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
pub(super) fn instant(text: &str) -> Option<StoreTime> {
    if let Some(millis) = text.strip_suffix(" ms") {
        return millis.parse().ok().map(StoreTime::from_millis);
    }
    text.parse::<jiff::Timestamp>().ok().map(|at| StoreTime::from_millis(at.as_millisecond()))
}

/// Returns what the record is to say of a task that an operator wanted back.
pub(crate) fn revoked(by: &Holder, why: &Why) -> Why {
    Why::shortened(&format!("{REVOKED}{by}: {why}"))
}

/// Returns whether an operator took the task away.
pub(super) fn is_revoked(note: &Why) -> bool {
    note.as_str().starts_with(REVOKED)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Ended, Term};

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: i64) -> StoreTime {
        StoreTime::from_millis(1_763_784_813_123 + seconds * 1000)
    }

    fn holder(name: &str) -> Holder {
        name.parse().unwrap()
    }

    fn failed(since: i64, by: &[&str]) -> Row {
        let error = || "no route to host".to_owned();
        let mut by = by.iter().map(|name| holder(name));
        let first = Row::begun(at(since), &by.next().unwrap(), error());
        by.fold(first, |row, name| row.followed_by(&name, error()))
    }

    fn past(holder: &str, from: i64, to: i64, note: Option<Why>) -> Past {
        Past { note, ..Past::new(self::holder(holder), Term::new(7), at(from), at(to), Ended::Released) }
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
            let row = Row::begun(StoreTime::from_millis(millis), &first, error.clone());
            let row = names.fold(row, |row, name| row.followed_by(&name, error.clone()));
            prop_assert_eq!(Row::read(&row.note()), Some(row));
        }

        #[test]
        fn any_other_note_is_just_a_note(text in ".{0,80}", cut in 0_usize..60, put in any::<char>()) {
            let text = Why::shortened(&text);
            prop_assert_eq!(Row::read(&text), None);
            // A letter of the form that is another one: it says something else, or nothing.
            let whole = failed(0, &["a", "b"]);
            let mut letters: Vec<char> = whole.note().as_str().chars().collect();
            letters[cut] = put;
            let damaged: String = letters.iter().collect();
            let read = Row::read(&Why::shortened(&damaged));
            prop_assert!(read.is_none_or(|read| read.note().as_str() == damaged));
        }
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
        let long = Row { error: "é".repeat(Why::MAX_BYTES), ..failed(0, &["a"]) };
        let read = Row::read(&long.note()).unwrap();
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
            assert_eq!(Row::read(&Why::shortened(foreign)), None, "{foreign}");
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
        assert_ne!(name(&holder(&long("a"))), name(&holder(&long("b"))));
        let eight: Vec<String> = (0..8).map(|number| long(&number.to_string())).collect();
        let row = failed(0, &eight.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(Row::read(&row.note()), Some(row), "eight long names leave room for the error");
    }

    #[test]
    fn a_task_rests_for_long_once_three_gave_it_up_or_no_other_has_room() {
        for (others, by, after, rest) in [
            (true, &["a"][..], 600, SECOND),
            (true, &["a", "b", "a"], 600, SECOND),
            (true, &["a", "b", "c"], 600, SECOND * 50),
            (false, &["a"], 600, SECOND * 50),
            (false, &["a"], 0, SECOND),
            (false, &["a"], 12, SECOND),
            (false, &["a"], 60, SECOND * 5),
            (false, &["a"], 43_200, HOUR),
            (false, &["a"], 864_000, HOUR),
            (false, &["a"], -5, SECOND),
        ] {
            assert_eq!(failed(0, by).rest(others, at(after)), rest, "{by:?} after {after}");
        }
    }

    #[test]
    fn a_row_of_failures_goes_on_over_holders_until_one_of_them_worked() {
        let well = SECOND * 30;
        let gave_up = |to: i64| past("a", to - 20, to, Some(failed(0, &["b", "a"]).note()));
        let row = |past: &[Past], taken: i64| Row::of(past, at(taken), well);
        assert_eq!(row(&[], 100), None);
        assert_eq!(row(&[gave_up(60)], 66), Some(failed(0, &["b", "a"])));
        // One that had it for a moment only, and was not to blame.
        assert_eq!(row(&[past("b", 66, 70, None), gave_up(60)], 71), Some(failed(0, &["b", "a"])));
        assert_eq!(row(&[past("b", 66, 97, None), gave_up(60)], 98), None, "it worked");
        assert_eq!(row(&[gave_up(60)], 65 + 3600), Some(failed(0, &["b", "a"])));
        assert_eq!(row(&[gave_up(60)], 66 + 3600), None, "nobody tried for an hour");
    }
}
