//! A task that fails again and again: the row of its failures, over all members that had it, as the note of the last
//! one says, which every member reads alike.

use std::time::Duration;

use super::is_ahead;
use crate::{
    model::StoreTime,
    store::{FailureRow, Note, Past},
};

/// A task rests for such a part of the time it has been failing: what is mended is tried again soon, compared to how
/// long it was broken.
const PART: u32 = 12;
/// Rest of a task that another member is to try: all read meanwhile which members gave it up.
const SHORTEST: Duration = Duration::from_secs(1);
/// Longest rest: what an operator mends in the night works before they have gone to bed again.
const LONGEST: Duration = Duration::from_secs(60 * 60);
/// Number of members that give a task up in a row before it rests for longer: one machine may be broken,
/// and a second by chance.
const MEMBERS: usize = 3;
/// A row of failures is over if no member tried for so long, though the task was open.
const FORGOTTEN: Duration = Duration::from_secs(60 * 60);

impl FailureRow {
    /// Returns how long it rests from now on. `others` says whether a member with room is left that did not give it up.
    pub(crate) fn rest(&self, others: bool, now: StoreTime) -> Duration {
        if others && self.by.len() < MEMBERS {
            return SHORTEST;
        }
        (now.since(self.since) / PART).clamp(SHORTEST, LONGEST)
    }

    /// The row that goes on if the task fails for a member that took it at `taken`, latest holder first: it is over if a
    /// holder had the task for longer than `well` and did not give it up. One that began ahead of the clock begins anew:
    /// a rest is a part of its length, which nobody can tell.
    pub(crate) fn of(past: &[Past], taken: StoreTime, now: StoreTime, well: Duration) -> Option<Self> {
        for last in past {
            if let Some(found) = Self::left_by(last) {
                let open = last.to.plus(found.rest(false, last.to));
                let goes_on = taken.since(open) <= FORGOTTEN && !is_ahead(found.since, now);
                return goes_on.then(|| found.clone());
            }
            if last.to.since(last.from) > well {
                return None;
            }
        }
        None
    }

    /// The row that a holder has left, if it gave the task up.
    pub(crate) const fn left_by(holding: &Past) -> Option<&Self> {
        match &holding.note {
            Some(Note::Failing(row)) => Some(row),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Holder, Term},
        store::Ended,
    };

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: i64) -> StoreTime {
        StoreTime::from_millis(1_763_784_813_123 + seconds * 1000)
    }

    fn holder(name: &str) -> Holder {
        name.parse().unwrap()
    }

    fn failed(since: i64, by: &[&str]) -> FailureRow {
        let error = "no route to host";
        let mut by = by.iter().map(|name| holder(name));
        let first = FailureRow::begun(at(since), &by.next().unwrap(), error);
        by.fold(first, |row, name| row.followed_by(&name, error))
    }

    fn past(holder: &str, from: i64, to: i64, note: Option<Note>) -> Past {
        Past { note, ..Past::new(self::holder(holder), Term::new(7), at(from), at(to), Ended::Released) }
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
        let gave_up = |to: i64| past("a", to - 20, to, Some(Note::Failing(failed(0, &["b", "a"]))));
        let row = |past: &[Past], taken: i64| FailureRow::of(past, at(taken), at(taken), well);
        assert_eq!(row(&[], 100), None);
        assert_eq!(row(&[gave_up(60)], 66), Some(failed(0, &["b", "a"])));
        // One that had it for a moment only, and was not to blame.
        assert_eq!(row(&[past("b", 66, 70, None), gave_up(60)], 71), Some(failed(0, &["b", "a"])));
        assert_eq!(row(&[past("b", 66, 97, None), gave_up(60)], 98), None, "it worked");
        assert_eq!(row(&[gave_up(60)], 65 + 3600), Some(failed(0, &["b", "a"])));
        assert_eq!(row(&[gave_up(60)], 66 + 3600), None, "nobody tried for an hour");
        assert_eq!(row(&[gave_up(60)], -60), Some(failed(0, &["b", "a"])), "clocks differ a little");
        assert_eq!(row(&[gave_up(60)], -61), None, "the clock was set back");
    }
}
