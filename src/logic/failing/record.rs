//! What a task's record says of failures.

use std::time::Duration;

use super::{DeathRow, Row, name, row};
use crate::model::{Ended, Holder, LockRecord, Past, StoreTime};

/// For so long a member that gave a task up gets it only if no other has room.
pub(super) const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);
/// The same if an operator took the task from it.
const REVOKED: Duration = Duration::from_secs(10 * 60);
/// Most by which a record may lie ahead of the store's clock: beyond it, the clock was set back since.
const AHEAD: Duration = Duration::from_secs(60);
/// A task that has run for so long runs well.
pub(super) const WELL: Duration = Duration::from_secs(60);

/// Failures in a task's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    avoided: Vec<Avoided>,
    /// Times at which a member gave it up.
    pub(crate) given_up: Vec<GivenUp>,
    /// The row of its failures, while it is closed because of them.
    pub(crate) rests: Option<Resting>,
    /// Its last holders, if one of them died.
    pub(crate) past: Vec<Past>,
}

/// A task that is closed for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resting {
    /// Beginning of the row of failures or deaths, by the store's clock.
    pub(crate) since: StoreTime,
    /// Number of these.
    pub(crate) tries: u32,
    /// What is said of the last one.
    pub(crate) error: String,
}

impl Resting {
    /// Returns why a task rests, if its last holder has left it so.
    pub(crate) fn of(past: &[Past]) -> Option<Self> {
        if let Some(Row { since, tries, error, .. }) = Row::latest(past) {
            return Some(Self { since, tries, error });
        }
        let row = DeathRow::latest(past)?;
        Some(Self { since: row.since, tries: row.deaths, error: row.seen() })
    }
}

/// A member that is to get a task only if no other has room.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Avoided {
    /// As a note names it.
    name: String,
    at: StoreTime,
    until: StoreTime,
}

/// A task that a member gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GivenUp {
    pub(crate) by: Holder,
    pub(crate) at: StoreTime,
    /// Beginning of the holding of another member, in which it did not fail as far as the record tells.
    elsewhere: Option<StoreTime>,
}

impl GivenUp {
    /// Moment from which it is the member's fault, as the task has run well elsewhere.
    pub(crate) fn blamed_from(&self) -> Option<StoreTime> {
        self.elsewhere.map(|since| since.plus(WELL))
    }
}

/// Returns whether the clock was set back since then.
pub(super) fn is_ahead(at: StoreTime, now: StoreTime) -> bool {
    at.since(now) > AHEAD
}

impl Failures {
    /// Reads a record. Most say nothing of failures.
    pub(crate) fn of(record: &LockRecord) -> Self {
        let is_closed = record.holding.is_none() && record.closed.is_some();
        Self {
            avoided: avoided(&record.past),
            given_up: given_up(record),
            rests: Resting::of(&record.past).filter(|_| is_closed),
            past: if record.past.iter().any(says_of_deaths) { record.past.clone() } else { Vec::new() },
        }
    }

    /// Names of members that are to get it only if no other has room, and when each had it last: the one first that had
    /// it longest ago.
    pub(crate) fn avoided(&self, now: StoreTime) -> impl Iterator<Item = (&str, StoreTime)> {
        let avoided = self.avoided.iter().filter(move |one| now < one.until && !is_ahead(one.at, now));
        avoided.map(|one| (one.name.as_str(), one.at))
    }

    /// Next time at which one of them is not avoided any more, or is to blame.
    pub(crate) fn next(&self, now: StoreTime) -> Option<StoreTime> {
        let avoided = self.avoided.iter().map(|one| one.until);
        avoided.chain(self.given_up.iter().filter_map(GivenUp::blamed_from)).filter(|at| *at > now).min()
    }
}

fn says_of_deaths(one: &Past) -> bool {
    one.how == Ended::Died || one.note.as_ref().is_some_and(|note| DeathRow::read(note).is_some())
}

fn read(one: &Past) -> Option<Row> {
    one.note.as_ref().and_then(Row::read)
}

/// Of each member the latest time that it had the task counts. The note of the row names more than the record remembers.
fn avoided(past: &[Past]) -> Vec<Avoided> {
    let (mut seen, mut avoided) = (Vec::new(), Vec::new());
    for one in past {
        let (name, at) = (name(&one.holder), one.to);
        // A moment with it says nothing, nor does a death.
        let says_nothing = one.how == Ended::Died || at.since(one.from) < WELL;
        if seen.contains(&name) || one.note.is_none() && one.how != Ended::Forced && says_nothing {
            continue;
        }
        seen.push(name.clone());
        if let Some(row) = read(one) {
            avoided.push(Avoided { name, at, until: at.plus(row.rest(false, at)).plus(REMEMBERED) });
        } else if one.how == Ended::Forced || one.note.as_ref().is_some_and(row::is_revoked) {
            avoided.push(Avoided { name, at, until: at.plus(REVOKED) });
        }
    }
    if let Some((at, row)) = past.iter().find_map(|one| Some((one.to, read(one)?))) {
        let until = at.plus(row.rest(false, at)).plus(REMEMBERED);
        let named = row.by.into_iter().rev().filter(|name| !seen.contains(name));
        avoided.extend(named.map(|name| Avoided { name, at, until }));
    }
    avoided.reverse();
    avoided
}

fn given_up(record: &LockRecord) -> Vec<GivenUp> {
    let mut given_up = Vec::new();
    for (at, one) in record.past.iter().enumerate().filter(|(_, one)| read(one).is_some()) {
        let later = record.past[..at].iter().rev();
        let well = later.filter(|later| {
            read(later).is_none() && later.how != Ended::Died && later.to.since(later.from) >= WELL
        });
        let held = record.holding.as_ref().map(|held| (&held.by.holder, held.acquired_at));
        let mut elsewhere = well.map(|later| (&later.holder, later.from)).chain(held);
        let elsewhere = elsewhere.find(|(holder, _)| **holder != one.holder).map(|(_, since)| since);
        given_up.push(GivenUp { by: one.holder.clone(), at: one.to, elsewhere });
    }
    given_up
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Candidate, Holding, Key, Kind, LockId, SessionId, Term, Ticket, Why};

    const DAY: i64 = 24 * 60 * 60;

    fn at(seconds: i64) -> StoreTime {
        StoreTime::from_millis(1_763_784_813_123 + seconds * 1000)
    }

    fn holder(name: &str) -> Holder {
        name.parse().unwrap()
    }

    fn past(by: &str, from: i64, to: i64, note: Option<Why>) -> Past {
        Past { note, ..Past::new(holder(by), Term::new(7), at(from), at(to), Ended::Released) }
    }

    fn gave_up(by: &str, to: i64) -> Past {
        past(by, to - 20, to, Some(Row::begun(at(0), &holder(by), "no".to_owned()).note()))
    }

    /// Of these holders, the latest first, and one that has it now.
    fn record(past: &[Past], held: Option<(&str, i64)>) -> LockRecord {
        let lock = LockId { namespace: "n".parse().unwrap(), kind: Kind::Lock, key: Key::new("t").unwrap() };
        let by = |name: &str| Candidate::new(SessionId::from_u128(1), Ticket::new(1), WELL, holder(name));
        let holding = held.map(|(name, since)| Holding::new(by(name), at(since)));
        LockRecord { past: past.to_vec(), holding, ..LockRecord::new(lock, Term::new(9)) }
    }

    fn names(past: &[Past], now: i64) -> Vec<String> {
        let failures = Failures::of(&record(past, None));
        failures.avoided(at(now)).map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn a_member_that_gave_it_up_is_avoided_for_a_day_unless_it_had_it_again() {
        let both = [gave_up("b", 120), gave_up("a", 60), past("c", 0, 20, None)];
        assert_eq!(names(&both, 130), ["a", "b"]);
        assert_eq!(names(&both, 60 + 5 + DAY), ["b"]);
        assert_eq!(names(&both, 120 + 10 + DAY), [""; 0], "that is long ago");
        assert_eq!(names(&[past("a", 70, 100, None), gave_up("a", 60)], 110), ["a"], "for a moment only");
        assert_eq!(names(&[past("a", 70, 130, None), gave_up("a", 60)], 140), [""; 0]);
        assert_eq!(names(&[gave_up("a", 60)], 0), ["a"], "clocks differ a little");
        assert_eq!(names(&[gave_up("a", 61)], 0), [""; 0], "the clock was set back");
    }

    #[test]
    fn members_of_the_row_are_avoided_also_if_the_record_has_forgotten_their_holdings() {
        let row = ["a", "b", "c"].map(holder);
        let row = row[1..].iter().fold(Row::begun(at(0), &row[0], "no".to_owned()), |row, by| {
            row.followed_by(by, "no".to_owned())
        });
        let last = past("c", 100, 120, Some(row.note()));
        assert_eq!(names(std::slice::from_ref(&last), 130), ["a", "b", "c"]);
        assert_eq!(names(&[past("b", 121, 181, None), last], 190), ["a", "c"]);
    }

    #[test]
    fn a_member_from_which_an_operator_took_it_is_avoided_for_ten_minutes() {
        let taken = Past { how: Ended::Forced, ..past("a", 0, 10, None) };
        let asked = past("a", 0, 10, Some(row::revoked(&holder("admin"), &Why::new("hot").unwrap())));
        for past in [taken, asked] {
            assert_eq!(names(std::slice::from_ref(&past), 609), ["a"]);
            assert_eq!(names(&[past], 610), [""; 0]);
        }
    }

    #[test]
    fn a_member_is_to_blame_once_the_task_has_run_for_a_minute_elsewhere() {
        let blamed = |past: &[Past], held| {
            let given_up = Failures::of(&record(past, held)).given_up;
            given_up
                .iter()
                .map(|one| one.blamed_from().map(|from| from.since(at(0)).as_secs()))
                .collect::<Vec<_>>()
        };
        assert_eq!(blamed(&[gave_up("a", 60)], None), [None]);
        assert_eq!(blamed(&[gave_up("a", 60)], Some(("b", 70))), [Some(130)]);
        assert_eq!(blamed(&[gave_up("a", 60)], Some(("a", 70))), [None], "it runs well where it failed");
        assert_eq!(blamed(&[gave_up("b", 99), gave_up("a", 60)], Some(("c", 100))), [Some(160), Some(160)]);
        assert_eq!(blamed(&[past("b", 70, 129, None), gave_up("a", 60)], None), [None], "not a minute");
        assert_eq!(blamed(&[past("b", 70, 130, None), gave_up("a", 60)], Some(("a", 140))), [Some(130)]);
    }
}
