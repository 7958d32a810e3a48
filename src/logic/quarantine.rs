//! A task that fails again and again: what its record says of that, how long it rests, and who is to try it last.
//!
//! Quarantine is recorded in the notes of the last holders, which every member reads alike.

use std::{fmt, time::Duration};

use crate::model::{Ended, Holder, Past, StoreTime, Why};

/// A task rests for such a part of the time it has been failing: what is mended is tried again soon, compared to how
/// long it was broken.
const PART: u32 = 12;
/// Not all who fail at once come back at once.
const SHORTEST: Duration = Duration::from_secs(1);
/// Longest rest: what somebody mends in the night works before they have gone to bed again.
const LONGEST: Duration = Duration::from_secs(60 * 60);
/// Time after the next try for which whoever failed a task is the last to get it.
const AVOIDED: Duration = Duration::from_secs(10 * 60);
/// Most by which a record may lie ahead of the store's clock: beyond it, the clock was set back since.
const AHEAD: Duration = Duration::from_secs(60);
/// A row of failures is over if nobody tried for so long, though the task was open.
const FORGOTTEN: Duration = Duration::from_secs(60 * 60);

/// Beginning of the notes that are written here.
const FAILING: &str = "quarantined, failing since ";
const TRIES: &str = ", tries ";
const REVOKED: &str = "revoked by ";

/// A task that failed too often in a row, as its record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quarantine {
    /// Time of the first failure of the row, by the store's clock.
    pub(crate) since: StoreTime,
    /// Number of holders that gave it up since then, one after the other.
    pub(crate) tries: u32,
    /// Last error.
    pub(crate) error: String,
}

impl Quarantine {
    /// Returns how long it rests from then on.
    pub(crate) fn rest(&self, now: StoreTime) -> Duration {
        (now.since(self.since) / PART).clamp(SHORTEST, LONGEST)
    }

    /// Returns what the record says of it.
    pub(crate) fn note(&self) -> Why {
        Why::shortened(&self.to_string())
    }

    /// Returns what a note says; nothing if it is another sort of note, or none that was written here.
    pub(crate) fn read(note: &Why) -> Option<Self> {
        let (since, rest) = note.as_str().strip_prefix(FAILING)?.split_once(TRIES)?;
        let (tries, error) = rest.split_once(": ")?;
        let (since, tries) = (instant(since)?, tries.parse().ok().filter(|tries| *tries > 0)?);
        let read = Self { since, tries, error: error.to_owned() };
        // Only what would be written so: there is one way to say it.
        (read.note() == *note).then_some(read)
    }
}

impl fmt::Display for Quarantine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { since, tries, error } = self;
        write!(f, "{FAILING}{since}{TRIES}{tries}: {error}")
    }
}

/// Reads what [`StoreTime`] shows.
fn instant(text: &str) -> Option<StoreTime> {
    if let Some(millis) = text.strip_suffix(" ms") {
        return millis.parse().ok().map(StoreTime::from_millis);
    }
    text.parse::<jiff::Timestamp>().ok().map(|at| StoreTime::from_millis(at.as_millisecond()))
}

/// Returns what the record is to say of a task that an operator wanted back.
pub(crate) fn revoked(by: &Holder, why: &Why) -> Why {
    Why::shortened(&format!("{REVOKED}{by}: {why}"))
}

/// The row of failures that goes on if the task fails for whoever took it at `taken`, latest holder first: it is
/// over if a holder had the task for longer than `well` and did not give it up.
pub(crate) fn row(past: &[Past], taken: StoreTime, well: Duration) -> Option<Quarantine> {
    for last in past {
        if let Some(found) = last.note.as_ref().and_then(Quarantine::read) {
            let open = last.to.plus(found.rest(last.to));
            return (taken.since(open) <= FORGOTTEN).then_some(found);
        }
        if last.to.since(last.from) > well {
            return None;
        }
    }
    None
}

/// The quarantine that the last holder has left, if it did.
pub(crate) fn latest(past: &[Past]) -> Option<Quarantine> {
    Quarantine::read(past.first()?.note.as_ref()?)
}

/// Those who are to get the task last, and for how long from now: they gave it up lately, or an operator took it
/// from them. Of each the latest time that it had the task counts.
pub(crate) fn avoided(past: &[Past], now: StoreTime) -> Vec<(Holder, Duration)> {
    let mut seen: Vec<&Holder> = Vec::new();
    let mut avoided = Vec::new();
    for one in past {
        if seen.contains(&&one.holder) {
            continue;
        }
        seen.push(&one.holder);
        let note = one.note.as_ref();
        let open = match note.and_then(Quarantine::read) {
            Some(quarantine) => one.to.plus(quarantine.rest(one.to)),
            None if is_revoked(one) => one.to,
            None => continue,
        };
        // How long ago that was nobody knows then, and it must not last until the clock has come so far again.
        let is_ahead = one.to.since(now) > AHEAD;
        let left = open.plus(AVOIDED).since(now);
        if !is_ahead && !left.is_zero() {
            avoided.push((one.holder.clone(), left));
        }
    }
    avoided
}

fn is_revoked(one: &Past) -> bool {
    let note = one.note.as_ref();
    one.how == Ended::Forced || note.is_some_and(|note| note.as_str().starts_with(REVOKED))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Term;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: i64) -> StoreTime {
        StoreTime::from_millis(1_763_784_813_123 + seconds * 1000)
    }

    fn failed(since: i64, tries: u32) -> Quarantine {
        Quarantine { since: at(since), tries, error: "no route to host".to_owned() }
    }

    fn past(holder: &str, from: i64, to: i64, note: Option<Why>) -> Past {
        Past {
            holder: holder.parse().unwrap(),
            who: None,
            term: Term::new(7),
            from: at(from),
            to: at(to),
            how: Ended::Released,
            note,
        }
    }

    proptest! {
        #![proptest_config(crate::seeded::config())]

        #[test]
        fn what_was_written_is_read_as_it_was(
            millis in prop_oneof![any::<i64>(), 0_i64..4_000_000_000_000], tries in 1_u32.., error in ".{0,40}",
        ) {
            let written = Quarantine { since: StoreTime::from_millis(millis), tries, error };
            prop_assert_eq!(Quarantine::read(&written.note()), Some(written));
        }

        #[test]
        fn any_other_note_is_just_a_note(text in ".{0,80}", cut in 0_usize..60, put in any::<char>()) {
            let text = Why::shortened(&text);
            prop_assert_eq!(Quarantine::read(&text), None);
            // A letter of the form that is another one: it says something else, or nothing.
            let whole = failed(0, 3);
            let mut letters: Vec<char> = whole.note().as_str().chars().collect();
            letters[cut] = put;
            let damaged: String = letters.iter().collect();
            let read = Quarantine::read(&Why::shortened(&damaged));
            prop_assert!(read.is_none_or(|read| read.note().as_str() == damaged));
        }
    }

    #[test]
    fn people_can_read_it_and_a_long_error_is_cut() {
        let note = failed(0, 3).note();
        assert_eq!(
            note.as_str(),
            "quarantined, failing since 2025-11-22T04:13:33.123Z, tries 3: no route to host"
        );
        let long = Quarantine { error: "é".repeat(Why::MAX_BYTES), ..failed(0, 3) };
        let read = Quarantine::read(&long.note()).unwrap();
        assert!(read.error.len() > 900 && long.error.starts_with(&read.error));
        for foreign in [
            "",
            "done",
            "gave up: no route to host",
            "quarantined, failing since yesterday, tries 3: no",
            "quarantined, failing since 2025-11-22T04:13:33.123Z, tries 0: no",
            "quarantined, failing since 2025-11-22T04:13:33.123Z, tries +3: no",
            "quarantined, failing since 2025-11-22T05:13:33.123+01:00, tries 3: no",
            "quarantined, failing since 2025-11-22T04:13:33.123Z",
        ] {
            assert_eq!(Quarantine::read(&Why::shortened(foreign)), None, "{foreign}");
        }
    }

    #[test]
    fn it_rests_a_twelfth_of_the_time_it_has_been_failing_within_bounds() {
        for (after, rest) in
            [(0, SECOND), (12, SECOND), (60, SECOND * 5), (600, SECOND * 50), (43_200, HOUR), (864_000, HOUR)]
        {
            assert_eq!(failed(0, 1).rest(at(after)), rest, "{after}");
        }
        assert_eq!(failed(0, 1).rest(at(-5)), SECOND, "a clock that went back");
    }

    #[test]
    fn a_row_of_failures_goes_on_over_holders_until_one_of_them_worked() {
        let well = SECOND * 30;
        let gave_up = |to: i64| past("a", to - 20, to, Some(failed(0, 2).note()));
        let row = |past: &[Past], taken: i64| row(past, at(taken), well);
        assert_eq!(row(&[], 100), None);
        assert_eq!(row(&[gave_up(60)], 66), Some(failed(0, 2)));
        // One that had it for a moment only, and was not to blame.
        assert_eq!(row(&[past("b", 66, 70, None), gave_up(60)], 71), Some(failed(0, 2)));
        assert_eq!(row(&[past("b", 66, 97, None), gave_up(60)], 98), None, "it worked");
        assert_eq!(row(&[gave_up(60)], 65 + 3600), Some(failed(0, 2)));
        assert_eq!(row(&[gave_up(60)], 66 + 3600), None, "nobody tried for an hour");
    }

    #[test]
    fn who_gave_it_up_lately_is_avoided_and_who_had_it_since_then_is_not() {
        let gave_up = |holder: &str, to: i64| past(holder, to - 20, to, Some(failed(0, 2).note()));
        let names = |past: &[Past], now: i64| -> Vec<(String, u64)> {
            avoided(past, at(now)).into_iter().map(|(who, left)| (who.to_string(), left.as_secs())).collect()
        };
        let both = [gave_up("b", 120), gave_up("a", 60), past("c", 0, 20, None)];
        assert_eq!(names(&both, 130), [("b".to_owned(), 600), ("a".to_owned(), 535)]);
        assert_eq!(names(&both, 700), [("b".to_owned(), 30)]);
        assert_eq!(names(&both, 800), [], "that is long ago");
        let well = [past("a", 70, 100, None), gave_up("a", 60)];
        assert_eq!(names(&well, 110), []);
        let taken = Past { how: Ended::Forced, ..past("a", 0, 10, None) };
        assert_eq!(names(&[taken], 20), [("a".to_owned(), 590)]);
        let asked = past("a", 0, 10, Some(revoked(&"admin".parse().unwrap(), &Why::new("hot").unwrap())));
        assert_eq!(names(&[asked], 20), [("a".to_owned(), 590)]);
        assert_eq!(names(&[gave_up("a", 60)], 0), [("a".to_owned(), 665)], "clocks differ a little");
        assert_eq!(names(&[gave_up("a", 61)], 0), [], "the clock was set back");
    }
}
