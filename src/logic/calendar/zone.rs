//! A time zone as stretches of constant offset, in whole seconds since 1970. Within a stretch civil time is
//! UTC + offset, one to one; what is skipped or comes twice is decided where one begins.

use std::sync::LazyLock;

use jiff::{
    Timestamp,
    tz::{TimeZone, TimeZoneDatabase},
};

use super::{CalendarError, LAST, error::shown, stable};

pub(super) const DAY: i64 = 86_400;

/// More than two offsets of one zone are ever apart. What is further away does not read the same civil time.
pub(super) const NEAR: i64 = 3 * DAY;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

#[derive(Clone, Debug)]
pub(super) struct Zone(TimeZone);

/// Change from one offset to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transition {
    /// The first instant of the new offset.
    pub(super) at: i64,
    /// The old offset.
    pub(super) from: i64,
    /// The new one.
    pub(super) to: i64,
}

impl Transition {
    /// Returns whether it skips civil times: those from `at + from` to before `at + to`.
    pub(super) const fn is_gap(&self) -> bool {
        self.to > self.from
    }
}

impl Zone {
    pub(super) const fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    pub(super) fn named(name: &str) -> Result<Self, CalendarError> {
        let known = ZONES.get(name.trim()).ok().filter(|zone| !zone.is_unknown());
        known.map(Self).ok_or_else(|| {
            let name = shown(name);
            CalendarError::new(format!(
                "the zone {name} is not one of the IANA database, such as \"Europe/London\""
            ))
        })
    }

    /// As the database spells it.
    pub(super) fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    pub(super) fn is_utc(&self) -> bool {
        self.0 == TimeZone::UTC
    }

    pub(super) fn offset(&self, at: i64) -> i64 {
        i64::from(self.0.to_offset(timestamp(at)).seconds())
    }

    /// The next change after `at`, where the offset is `from`. Transitions that only change a name are none.
    pub(super) fn change_after(&self, at: i64, from: i64) -> Option<Transition> {
        let next = self.0.following(timestamp(at)).map(|next| Transition {
            at: next.timestamp().as_second(),
            from,
            to: i64::from(next.offset().seconds()),
        });
        next.take_while(|change| change.at <= LAST).find(|change| change.to != from)
    }

    /// A number for what the clocks of this zone do in the years that matter: builds that know the same rules have the
    /// same, and those with another database another, if it has changed this zone.
    pub(super) fn rules(&self) -> u64 {
        let (begin, end) = (days_since_1970(2026, 1, 1) * DAY, days_since_1970(2056, 1, 1) * DAY);
        let first = Transition { at: begin, from: 0, to: self.offset(begin) };
        let changes = std::iter::successors(Some(first), |last| self.change_after(last.at, last.to));
        let numbers = changes.take_while(|change| change.at < end).flat_map(|change| [change.at, change.to]);
        stable::fold(numbers.flat_map(i64::to_be_bytes))
    }

    /// The changes at `at` and shortly before, the earliest first. Found forwards: backwards, jiff 0.2.43
    /// passes over a zone's last transition if the rule it goes by ever since has another (Metlakatla in
    /// 2019).
    pub(super) fn changes_near(&self, at: i64) -> impl Iterator<Item = Transition> + '_ {
        let begin = at - NEAR;
        let first = self.change_after(begin, self.offset(begin));
        let changes = std::iter::successors(first, |last| self.change_after(last.at, last.to));
        changes.take_while(move |change| change.at <= at)
    }

    /// Returns whether the clocks had shown this civil time before `at`. If so, until which civil time they then went
    /// on: all between was shown, too.
    pub(super) fn shown_before(&self, civil: i64, at: i64) -> Option<i64> {
        let mut began = at - NEAR;
        for change in self.changes_near(at) {
            if (began..change.at).contains(&(civil - change.from)) {
                return Some(change.at + change.from);
            }
            began = change.at;
        }
        None
    }

    /// Finds where the clocks first show this civil time, or what they show instead if they skip it.
    pub(super) fn place(&self, civil: i64) -> Place {
        let mut at = civil - NEAR;
        let mut by = None;
        loop {
            let offset = self.offset(at);
            let end = self.change_after(at, offset).map_or(i64::MAX, |change| change.at);
            let reading = civil - offset;
            if (at..end).contains(&reading) {
                return Place::Shown { at: reading, until: end.saturating_add(offset) };
            }
            if reading < at {
                by = by.or(Some(at));
            }
            match by {
                // Not before all that is near was seen: clocks that are put back soon show it after all.
                Some(by) if end > civil + NEAR => return Place::Skipped { by },
                _ => at = end,
            }
        }
    }
}

/// Place of a civil time in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Shown, first at `at`, and the clocks go on to `until`.
    Shown { at: i64, until: i64 },
    /// In a gap, first in the one that ends with this instant.
    Skipped { by: i64 },
}

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("instants are of the years 1970 to 9000")
}

/// The day so many days after 1970 began, as year, month and day. Civil calendars repeat after 400 years, and
/// are simplest when years begin in March.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a month and a day of it are small, and not negative"
)]
pub(super) const fn date(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month as u32, day as u32)
}

/// Returns how many days after 1970 began.
pub(super) const fn days_since_1970(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = (month as i64 + 9) % 12;
    let of_year = (153 * march_month + 2) / 5 + day as i64 - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * 146_097 + of_era - 719_468
}
