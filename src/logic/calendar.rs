//! Instants of a schedule, from its expression. Pure, and the same on every machine: time zones are those of the
//! bundled database, and what is spread is spread by the schedule's name.
//!
//! ```text
//!  text ──▶ expression ──▶ fields (names, H) ──▶ pattern (searched by croner, in civil time)
//!                                                     │
//!           zone (stretches of constant offset) ──▶ search ──▶ instants, + spread
//! ```

mod error;
mod expression;
mod fields;
mod pattern;
mod reading;
mod search;
mod stable;
#[cfg(test)]
mod tests;
mod zone;

use std::{fmt::Write, time::Duration};

pub use error::CalendarError;

use self::{
    expression::Expression,
    zone::{DAY, Zone},
};
use crate::model::{ScheduleName, StoreTime};

/// The first instant there may be, in seconds since 1970.
const FIRST: i64 = 0;
/// The last one, before the year 5000: croner looks no further.
const LAST: i64 = 95_617_583_999;
/// A spread or a period is no longer: 366 days.
const LONGEST: u64 = 366 * DAY as u64;

/// The rule for times that a change of the clocks skips, as it stands behind the zone of what is stored.
const RULE: &str = ", vixie";

/// The instants of one schedule: whole seconds, strictly increasing.
#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    expression: Expression,
    zone: Zone,
    /// Seconds by which everything is later: this schedule's part of the spread.
    phase: i64,
    timing: String,
}

impl Calendar {
    /// Reads an expression. Without a `zone` it is read in UTC. `spread`: start times are delayed by a
    /// stable part of it, by the schedule's name.
    pub(crate) fn new(
        expression: &str,
        zone: Option<&str>,
        spread: Duration,
        name: &ScheduleName,
    ) -> Result<Self, CalendarError> {
        let zone = zone.map_or_else(|| Ok(Zone::utc()), Zone::named)?;
        let spread = checked_spread(spread)?;
        let (expression, mut timing) = Expression::read(expression, &zone, name)?;
        if let Expression::Pattern(_) = expression {
            let _ = write!(timing, " in {}", zone.name());
            if !zone.is_utc() {
                timing.push_str(RULE);
            }
        }
        if spread > 0 {
            let _ = write!(timing, ", spread over {}", expression::in_words(spread));
        }
        let phase = stable::below(name, "spread", spread.max(1)) as i64;
        Ok(Self { expression, zone, phase, timing })
    }

    /// The first `n` instants after that; `@after` counts from there.
    pub(crate) fn first(&self, n: usize, after: StoreTime) -> Vec<StoreTime> {
        self.instants(after, StoreTime::from_millis(i64::MAX), after).take(n).collect()
    }

    /// The first instant after `after`. `since`: when this timing was first stored, by which `@after` counts.
    pub(crate) fn next(&self, after: StoreTime, since: StoreTime) -> Option<StoreTime> {
        let from = (after.as_millis().div_euclid(1000) + 1).saturating_sub(self.phase).max(FIRST);
        if from > LAST {
            return None;
        }
        let found = match &self.expression {
            Expression::Pattern(pattern) => search::next(pattern, &self.zone, from),
            Expression::Every { period, shift } => {
                Some(shift + (from - shift + period - 1).div_euclid(*period) * period)
            }
            Expression::At(at) => Some(*at),
            Expression::After(delay) => {
                let since = since.as_millis();
                // Up to a whole second.
                Some(since.div_euclid(1000) + i64::from(since.rem_euclid(1000) > 0) + delay)
            }
        };
        let at = found.filter(|at| (from..=LAST).contains(at))?;
        Some(StoreTime::from_millis((at + self.phase) * 1000))
    }

    /// The latest instants in (after, to], at most so many, earliest first.
    pub(crate) fn latest(
        &self,
        after: StoreTime,
        to: StoreTime,
        since: StoreTime,
        at_most: usize,
    ) -> Vec<StoreTime> {
        // The range that has instants at all, so that no step is too short for what lies between.
        let after = after.max(StoreTime::from_millis(FIRST * 1000 - 1));
        let to = to.min(StoreTime::from_millis((LAST + LONGEST as i64) * 1000));
        let enough = |begin| self.count(begin, to, since, at_most) >= at_most;
        // Back by doubling steps until there are enough; then forward by halves as long as there still
        // are. Each look counts no further than it must.
        let second = Duration::from_secs(1);
        let (mut begin, mut short, mut step) = (to, to, second);
        while !enough(begin) {
            if begin <= after {
                return self.instants(after, to, since).collect();
            }
            short = begin;
            begin = to.minus(step).max(after);
            step *= 2;
        }
        // Within a second there is but one.
        while short.since(begin) > second {
            let middle = begin.plus(short.since(begin) / 2);
            if enough(middle) {
                begin = middle;
            } else {
                short = middle;
            }
        }
        self.instants(begin, to, since).take(at_most).collect()
    }

    /// Returns how many instants there are in (after, to], counted no further than `at_most`.
    pub(crate) fn count(&self, after: StoreTime, to: StoreTime, since: StoreTime, at_most: usize) -> usize {
        self.instants(after, to, since).take(at_most).count()
    }

    /// Returns its rules in one line: of one schedule, equal lines have equal instants.
    pub(crate) fn timing(&self) -> &str {
        &self.timing
    }

    /// The name of its zone; nothing if it goes by none.
    pub(crate) fn zone_name(&self) -> Option<&str> {
        matches!(self.expression, Expression::Pattern(_)).then(|| self.zone.name())
    }

    /// The rules of its zone, in words that are the same wherever they are the same; nothing if it goes by none.
    pub(crate) fn zone_rules(&self) -> Option<String> {
        let goes_by_a_zone = matches!(self.expression, Expression::Pattern(_)) && !self.zone.is_utc();
        goes_by_a_zone.then(|| format!("{ZONE_RULES}{:08x}", self.zone.rules()))
    }

    fn instants(
        &self,
        after: StoreTime,
        to: StoreTime,
        since: StoreTime,
    ) -> impl Iterator<Item = StoreTime> + '_ {
        let next = move |after: &StoreTime| self.next(*after, since);
        std::iter::successors(next(&after), next).take_while(move |at| *at <= to)
    }
}

const ZONE_RULES: &str = ", zone rules ";

/// The rules of a zone that are named at the end of what a schedule goes by.
pub(crate) fn zone_rules_in(text: &str) -> Option<&str> {
    text.rsplit_once(ZONE_RULES).map(|(_, rules)| rules)
}

fn checked_spread(spread: Duration) -> Result<u64, CalendarError> {
    let seconds = spread.as_secs();
    if spread.subsec_nanos() > 0 {
        return Err(CalendarError::new(format!("the spread ({spread:?}) must be whole seconds")));
    }
    if seconds > LONGEST {
        let spread = expression::in_words(seconds);
        return Err(CalendarError::new(format!("the spread ({spread}) must be at most 366d")));
    }
    Ok(seconds)
}
