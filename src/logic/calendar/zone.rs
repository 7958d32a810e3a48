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

/// The years whose changes tell the rules of a zone: 2026 to 2055.
const RULES_FROM: i64 = 1_767_225_600;
const RULES_TO: i64 = 2_713_910_400;

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
        let first = Transition { at: RULES_FROM, from: 0, to: self.offset(RULES_FROM) };
        let changes = std::iter::successors(Some(first), |last| self.change_after(last.at, last.to));
        let numbers =
            changes.take_while(|change| change.at < RULES_TO).flat_map(|change| [change.at, change.to]);
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

pub(super) fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("instants are of the years 1970 to 5000")
}
