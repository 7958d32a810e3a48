//! Failures in a task's record.

use std::time::Duration;

use crate::{
    model::{Holder, StoreTime},
    store::{Ended, FailureRow, LockRecord, Note, PAST_HOLDERS, Past},
};

/// For so long a member that gave a task up gets it only if no other has room.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);
/// The same if an operator took the task from it.
const REVOKED: Duration = Duration::from_secs(10 * 60);
/// Most by which a record may lie ahead of the store's clock: beyond it, the clock was set back since.
const AHEAD: Duration = Duration::from_secs(60);
/// A task that has run for so long runs well.
pub(super) const WELL: Duration = Duration::from_secs(60);

/// Failures in a task's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    /// Members that gave it up, the one first that did so longest ago.
    pub(crate) gave_up: Vec<GaveUp>,
    /// The row of failures or deaths that its last holder has left.
    pub(crate) last: Option<Resting>,
    /// Last holders, if the record shows a death.
    pub(crate) past: Vec<Past>,
}

/// A task that is closed for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resting {
    /// Beginning of the row of failures or deaths, by the store's clock.
    pub(crate) since: StoreTime,
    /// Number of these.
    pub(crate) tries: u32,
    /// The last members that gave it up.
    pub(crate) by: Vec<Holder>,
    /// Error of the last failure, or description of the last death.
    pub(crate) error: String,
}

impl Resting {
    /// Returns why a task rests, if its last holder has left it so.
    pub(crate) fn of(past: &[Past]) -> Option<Self> {
        match past.first()?.note.as_ref()? {
            Note::Failing(FailureRow { since, tries, by, error }) => {
                Some(Self { since: *since, tries: *tries, by: by.clone(), error: error.to_string() })
            }
            Note::Dying(row) => {
                Some(Self { since: row.since, tries: row.deaths, by: Vec::new(), error: row.to_string() })
            }
            _ => None,
        }
    }

    /// Returns whether it still fails as far as is known, for a holder that has had it since then.
    pub(crate) fn lasts(&self, taken: StoreTime, now: StoreTime) -> bool {
        !self.by.is_empty() && now.since(taken) < WELL && !is_ahead(taken, now)
    }
}

/// A member that gave a task up, or from which an operator took it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GaveUp {
    pub(crate) by: Holder,
    pub(crate) at: StoreTime,
    /// First time that it did so, as far as the record remembers; nothing if it does not remember any.
    pub(crate) first: Option<StoreTime>,
    /// End of the time in which others go first.
    until: StoreTime,
    /// True if it gave the task up by itself.
    pub(crate) is_fault: bool,
    /// Beginning of the holding of another member that ran well since then.
    pub(crate) elsewhere: Option<StoreTime>,
    /// Beginning of a holding of its own that ran well since then.
    pub(crate) again: Option<StoreTime>,
    /// True if the task could be its probe: the record would still say that it gave the task up.
    pub(crate) tells: bool,
}

/// Returns whether the clock was set back since then.
pub(crate) fn is_ahead(at: StoreTime, now: StoreTime) -> bool {
    at.since(now) > AHEAD
}

impl GaveUp {
    /// Returns the time until which others go first; nothing if the clock was set back since then.
    pub(crate) fn until(&self, now: StoreTime) -> Option<StoreTime> {
        (!is_ahead(self.at, now)).then_some(self.until)
    }
}

impl Failures {
    /// Reads a record. Most say nothing of failures.
    pub(crate) fn of(record: &LockRecord) -> Self {
        Self {
            gave_up: gave_up(&record.past),
            last: Resting::of(&record.past),
            past: if record.past.iter().any(says_of_deaths) { record.past.clone() } else { Vec::new() },
        }
    }
}

fn says_of_deaths(one: &Past) -> bool {
    one.how == Ended::Died || matches!(one.note, Some(Note::Dying(_)))
}

fn was_taken(one: &Past) -> bool {
    one.how == Ended::Forced || matches!(one.note, Some(Note::Revoked { .. }))
}

fn ran_well(one: &Past) -> bool {
    one.how != Ended::Died && one.to.since(one.from) >= WELL && FailureRow::left_by(one).is_none()
}

/// Of each member its latest holding counts that says something: a moment with the task does not, nor does a death.
/// The note of the row names more members than the record remembers.
fn gave_up(past: &[Past]) -> Vec<GaveUp> {
    let mut all: Vec<GaveUp> = Vec::new();
    for (place, one) in past.iter().enumerate() {
        let (by, at, given) = (&one.holder, one.to, FailureRow::left_by(one).is_some());
        if all.iter().any(|known| known.by == *by) || !given && !was_taken(one) {
            continue;
        }
        let is_own = |other: &&Past| other.holder == one.holder;
        let again = past[..place].iter().filter(is_own).find(|later| ran_well(later)).map(|later| later.from);
        // Whichever of its failures was the first that another did not have.
        let first = past
            .iter()
            .rposition(|other| is_own(&other) && FailureRow::left_by(other).is_some())
            .unwrap_or(place);
        let others = past[..first].iter().rev().filter(|other| !is_own(other));
        let elsewhere = others.filter(|_| given).find(|later| ran_well(later)).map(|later| later.from);
        let until = at.plus(if given { REMEMBERED } else { REVOKED });
        let tells = given && place + 1 < PAST_HOLDERS;
        let first = Some(past[first].to);
        let by = by.clone();
        all.push(GaveUp { by, at, first, until, is_fault: given, elsewhere, again, tells });
    }
    if let Some((at, row)) = past.iter().find_map(|one| Some((one.to, FailureRow::left_by(one)?))) {
        let works = |by: &Holder| past.iter().any(|one| one.holder == *by && ran_well(one));
        let named = row.by.iter().rev().filter(|by| !works(by));
        let named: Vec<_> = named.filter(|by| all.iter().all(|known| known.by != **by)).cloned().collect();
        let until = at.plus(REMEMBERED);
        all.extend(named.into_iter().map(|by| GaveUp {
            by,
            at,
            first: None,
            until,
            is_fault: true,
            elsewhere: None,
            again: None,
            tells: false,
        }));
    }
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Key, Kind, LockId, Term, Why};

    const DAY: i64 = 24 * 60 * 60;

    fn at(seconds: i64) -> StoreTime {
        StoreTime::from_millis(1_763_784_813_123 + seconds * 1000)
    }

    fn holder(name: &str) -> Holder {
        name.parse().unwrap()
    }

    fn past(by: &str, from: i64, to: i64, note: Option<Note>) -> Past {
        Past { note, ..Past::new(holder(by), Term::new(7), at(from), at(to), Ended::Released) }
    }

    fn gave_up(by: &str, to: i64) -> Past {
        past(by, to - 20, to, Some(Note::Failing(FailureRow::begun(at(0), &holder(by), "no"))))
    }

    /// Of these holders, the latest first.
    fn record(past: &[Past]) -> LockRecord {
        let lock = LockId { namespace: "n".parse().unwrap(), kind: Kind::Lock, key: Key::new("t").unwrap() };
        LockRecord { past: past.to_vec(), ..LockRecord::new(lock, Term::new(9)) }
    }

    /// Members that gave it up lately, and did not have it again since.
    fn names(past: &[Past], now: i64) -> Vec<String> {
        let mut gave_up = Failures::of(&record(past)).gave_up;
        gave_up.retain(|one| one.again.is_none() && one.until(at(now)) > Some(at(now)));
        gave_up.into_iter().map(|one| one.by.to_string()).collect()
    }

    #[test]
    fn a_member_that_gave_it_up_is_avoided_for_a_day_unless_it_had_it_again() {
        let both = [gave_up("b", 120), gave_up("a", 60), past("c", 0, 20, None)];
        assert_eq!(names(&both, 130), ["a", "b"]);
        assert_eq!(names(&both, 60 + DAY), ["b"]);
        assert_eq!(names(&both, 120 + DAY), [""; 0], "that is long ago");
        assert_eq!(names(&[past("a", 70, 100, None), gave_up("a", 60)], 110), ["a"], "for a moment only");
        assert_eq!(names(&[past("a", 70, 130, None), gave_up("a", 60)], 140), [""; 0]);
        assert_eq!(names(&[gave_up("a", 60)], 0), ["a"], "clocks differ a little");
        assert_eq!(names(&[gave_up("a", 61)], 0), [""; 0], "the clock was set back");
    }

    #[test]
    fn members_of_the_row_are_avoided_also_if_the_record_has_forgotten_their_holdings() {
        let row = ["a", "b", "c"].map(holder);
        let first = FailureRow::begun(at(0), &row[0], "no");
        let row = row[1..].iter().fold(first, |row, by| row.followed_by(by, "no"));
        let last = past("c", 100, 120, Some(Note::Failing(row)));
        assert_eq!(names(std::slice::from_ref(&last), 130), ["a", "b", "c"]);
        assert_eq!(names(&[past("b", 121, 181, None), last], 190), ["a", "c"]);
    }

    #[test]
    fn a_member_from_which_an_operator_took_it_is_avoided_for_ten_minutes() {
        let taken = Past { how: Ended::Forced, ..past("a", 0, 10, None) };
        let revoked = Note::Revoked { by: holder("admin"), why: Why::new("hot").unwrap() };
        let asked = past("a", 0, 10, Some(revoked));
        for past in [taken, asked] {
            assert_eq!(names(std::slice::from_ref(&past), 609), ["a"]);
            assert_eq!(names(&[past], 610), [""; 0]);
        }
    }

    #[test]
    fn the_record_says_where_the_task_ran_well_after_a_member_gave_it_up() {
        let since = |past: &[Past]| {
            let seconds = |time: Option<StoreTime>| time.map(|time| time.since(at(0)).as_secs());
            let gave_up = Failures::of(&record(past)).gave_up;
            gave_up.iter().map(|one| (seconds(one.elsewhere), seconds(one.again))).collect::<Vec<_>>()
        };
        assert_eq!(since(&[gave_up("a", 60)]), [(None, None)]);
        assert_eq!(since(&[past("b", 70, 129, None), gave_up("a", 60)]), [(None, None)], "not a minute");
        assert_eq!(since(&[past("b", 70, 130, None), gave_up("a", 60)]), [(Some(70), None)]);
        assert_eq!(since(&[past("a", 70, 130, None), gave_up("a", 60)]), [(None, Some(70))]);
        assert_eq!(since(&[gave_up("b", 99), gave_up("a", 60)]), [(None, None), (None, None)]);
        let probed = [gave_up("a", 160), past("b", 70, 130, None), gave_up("a", 60)];
        assert_eq!(since(&probed), [(Some(70), None)], "its failures are one, with the blame of the first");
    }

    #[test]
    fn a_probe_tells_as_long_as_the_record_says_that_the_member_gave_the_task_up() {
        let moved = |from: i64| past("b", from, from + 1, None);
        let tells = |past: &[Past]| Failures::of(&record(past)).gave_up[0].tells;
        assert!(tells(&[moved(90), moved(80), moved(70), gave_up("a", 60)]));
        assert!(!tells(&[moved(100), moved(90), moved(80), moved(70), gave_up("a", 60)]), "the fifth");
        assert!(!tells(&[Past { how: Ended::Forced, ..past("a", 0, 10, None) }]));
    }
}
