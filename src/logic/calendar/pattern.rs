//! The pattern of a cron expression as masks: which seconds, minutes, hours, months, and which days of a
//! month that begins with such a weekday and has so many days. What the fields mean is croner's to say, once.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "parts of dates and of times of a day are small, and not negative"
)]

use croner::{Cron, Weekday};

use super::zone::{DAY, date, days_since_1970};

/// The Gregorian calendar shows a pattern every date it has within 40 years.
const MOST_MONTHS: usize = 41 * 12;

#[derive(Clone, Debug)]
pub(super) struct Pattern {
    seconds: u64,
    minutes: u64,
    hours: u64,
    months: u64,
    /// Days by the length of the month, from 28, and the weekday of its first day, from Sunday.
    days: [[u64; 7]; 4],
    /// Follows the clock: its seconds, minutes or hours begin with `*`.
    pub(super) wildcard: bool,
}

impl Pattern {
    pub(super) fn of(cron: &Cron, wildcard: bool) -> Self {
        let pattern = &cron.pattern;
        // Each is asked for what exists only, so that it has an answer.
        let mask = |all: std::ops::Range<u32>, matches: &dyn Fn(u32) -> bool| {
            all.filter(|value| matches(*value)).fold(0, |mask, value| mask | 1_u64 << value)
        };
        let month_of_length = [(2023, 2, 28), (2024, 2, 29), (2023, 4, 30), (2023, 1, 31)];
        let days = month_of_length.map(|(year, month, length)| {
            std::array::from_fn(|first| {
                mask(1..length + 1, &|day| {
                    let weekday = Weekday::from_days_from_sunday(first as u32 + day - 1);
                    pattern.day_match(year, month, day, weekday).unwrap_or(false)
                })
            })
        });
        Self {
            seconds: mask(0..60, &|second| pattern.second_match(second).unwrap_or(false)),
            minutes: mask(0..60, &|minute| pattern.minute_match(minute).unwrap_or(false)),
            hours: mask(0..24, &|hour| pattern.hour_match(hour).unwrap_or(false)),
            months: mask(1..13, &|month| pattern.month_match(month).unwrap_or(false)),
            days,
            wildcard,
        }
    }

    /// Returns whether it names a time that comes. Every month begins with every weekday in some year, with 28 days
    /// and with 29, too.
    pub(super) fn has_any(&self) -> bool {
        let days = |month: u32| match month {
            2 => [0, 1],
            4 | 6 | 9 | 11 => [2, 2],
            _ => [3, 3],
        };
        let day = (1..13)
            .filter(|month| has(self.months, *month))
            .flat_map(days)
            .any(|length| self.days[length].iter().any(|days| *days != 0));
        day && self.seconds != 0 && self.minutes != 0 && self.hours != 0
    }

    /// The first match at or after a civil time, in seconds since 1970 began there.
    pub(super) fn first(&self, civil: i64) -> Option<i64> {
        let today = civil.div_euclid(DAY);
        let (mut year, mut month, day) = date(today);
        let mut begin = today - i64::from(day) + 1;
        let (mut days, mut length) = self.month(year, month, begin);
        if has(days, day)
            && let Some(time) = self.time(civil.rem_euclid(DAY))
        {
            return Some(today * DAY + time);
        }
        days = days >> day >> 1 << day << 1;
        for _ in 0..MOST_MONTHS {
            if days != 0 {
                return Some((begin + i64::from(days.trailing_zeros()) - 1) * DAY + self.time(0)?);
            }
            begin += length;
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            (days, length) = self.month(year, month, begin);
        }
        None
    }

    /// The days of a month that begins with that day, and how many it has.
    fn month(&self, year: i64, month: u32, begin: i64) -> (u64, i64) {
        let length = match month {
            2 => days_since_1970(year, 3, 1) - begin,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        if !has(self.months, month) {
            return (0, length);
        }
        // 1970 began on a Thursday.
        let first = (begin + 4).rem_euclid(7);
        (self.days[(length - 28) as usize][first as usize], length)
    }

    /// The first time at or after a second of a day.
    fn time(&self, second: i64) -> Option<i64> {
        let (hour, minute, second) =
            ((second / 3600) as u32, (second / 60 % 60) as u32, (second % 60) as u32);
        let first = |mask: u64| Some(mask.trailing_zeros()).filter(|_| mask != 0);
        let rest = |mask: u64, from: u32| first(mask >> from << from);
        let at = |hour: u32, minute: u32, second: u32| i64::from((hour * 60 + minute) * 60 + second);
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = rest(self.seconds, second)
            {
                return Some(at(hour, minute, second));
            }
            if let Some(minute) = rest(self.minutes, minute + 1) {
                return Some(at(hour, minute, first(self.seconds)?));
            }
        }
        Some(at(rest(self.hours, hour + 1)?, first(self.minutes)?, first(self.seconds)?))
    }
}

const fn has(mask: u64, bit: u32) -> bool {
    mask >> bit & 1 == 1
}
