//! A time zone as stretches of constant offset, in whole seconds since 1970. Within a stretch civil time is
//! UTC + offset, one to one; where one begins, civil times are skipped or come twice.

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

    /// The first civil time that the clocks had neither shown nor skipped before `at`.
    pub(super) fn not_reached_before(&self, at: i64) -> i64 {
        let before = at - 1;
        let shown = before + self.offset(before) + 1;
        self.changes_near(before).map(|change| change.at + change.from).fold(shown, i64::max)
    }

    /// The first instant at or after `from` at which the clocks show this civil time or a later one.
    pub(super) fn reached(&self, civil: i64, from: i64) -> i64 {
        let mut at = from.max(civil - NEAR);
        loop {
            let offset = self.offset(at);
            let shown = civil - offset;
            match self.change_after(at, offset) {
                _ if shown <= at => return at,
                Some(change) if change.at <= shown => at = change.at,
                _ => return shown,
            }
        }
    }
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
