//! A calendar from what the store keeps of it, and whether two of them come to the same.

use std::{fmt::Write, time::Duration};

use super::{
    Calendar, CalendarError, RULE,
    expression::{Expression, described},
};
use crate::model::{ScheduleName, StoreTime};

/// Rules of earlier versions for times that the clocks skip: such a timing goes on by the one there is.
const EARLIER_RULES: [&str; 2] = [", skip", ", shift"];

impl Calendar {
    /// The calendar whose [`timing`](Self::timing) that is, of a schedule of that name.
    pub(crate) fn read(timing: &str, name: &ScheduleName) -> Result<Self, CalendarError> {
        let unknown = || CalendarError::of(timing, "was not written by this version");
        let of_now = EARLIER_RULES.iter().fold(timing.to_owned(), |text, rule| text.replacen(rule, RULE, 1));
        let timing = of_now.as_str();
        let (rest, spread) = match timing.split_once(", spread over ") {
            Some((rest, spread)) => {
                (rest, humantime_serde::re::humantime::parse_duration(spread).map_err(|_| unknown())?)
            }
            None => (timing, Duration::ZERO),
        };
        let (expression, zone) = match rest.rsplit_once(" in ") {
            Some((expression, zone)) => (expression, Some(zone.strip_suffix(RULE).unwrap_or(zone))),
            None => (rest, None),
        };
        let calendar = Self::new(expression, zone, spread, name)?;
        if calendar.timing() == timing { Ok(calendar) } else { Err(unknown()) }
    }

    /// Returns whether both have the same instants in (after, to], as far as `at_most` of them say. What is counted
    /// from when it was first stored is like nothing else.
    pub(crate) fn agrees(
        &self,
        other: &Self,
        after: StoreTime,
        to: StoreTime,
        since: StoreTime,
        at_most: usize,
    ) -> bool {
        let is_relative = |calendar: &Self| matches!(calendar.expression, Expression::After(_));
        let ours = self.instants(after, to, since).take(at_most);
        !is_relative(self) && !is_relative(other) && ours.eq(other.instants(after, to, since).take(at_most))
    }

    /// Returns its rules in words. `name` is that of its schedule.
    pub(crate) fn in_words(&self, name: &ScheduleName) -> String {
        let (rest, spread) = self.timing().split_once(", spread over ").unwrap_or((self.timing(), ""));
        let expression = rest.rsplit_once(" in ").map_or(rest, |(expression, _)| expression);
        let mut words = match expression.split_once(' ') {
            Some(("@every", period)) => format!("Every {period}"),
            Some(("@at", instant)) => format!("Once, at {instant}"),
            Some(("@after", delay)) => format!("Once, {delay} after it was first stored"),
            _ => described(expression, name).unwrap_or_else(|| expression.to_owned()),
        };
        if !spread.is_empty() {
            let _ = write!(words, ", later by up to {spread}");
        }
        words
    }

    /// Returns its only instant, if it has but one.
    pub(crate) fn only(&self, since: StoreTime) -> Option<StoreTime> {
        match self.expression {
            Expression::At(_) | Expression::After(_) => self.next(StoreTime::from_millis(0), since),
            Expression::Pattern(_) | Expression::Every { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> ScheduleName {
        "report".parse().unwrap()
    }

    #[test]
    fn a_timing_is_read_as_it_was_written_and_other_text_is_refused() {
        let hour = Duration::from_secs(3600);
        for (expression, zone, spread) in [
            ("0 * * * *", None, Duration::ZERO),
            ("H H(0-5) * * MON", Some("Europe/Berlin"), Duration::ZERO),
            ("30 2 * * *", Some("America/New_York"), 25 * hour),
            ("@daily", Some("UTC"), hour / 2),
            ("@every 90s", None, Duration::ZERO),
            ("@at 2026-11-21T03:00:00Z", None, Duration::ZERO),
            ("@after 10m", None, hour),
        ] {
            let calendar = Calendar::new(expression, zone, spread, &name()).unwrap();
            let read = Calendar::read(calendar.timing(), &name()).unwrap();
            let from = StoreTime::from_millis(1_774_483_200_000);
            assert_eq!(read.first(5, from), calendar.first(5, from), "{expression}");
        }
        for other in ["", "0 * * * *", "0 * * * * in Nowhere", "what"] {
            Calendar::read(other, &name()).unwrap_err();
        }
    }

    #[test]
    fn timings_of_earlier_rules_for_skipped_times_go_on_by_the_one_there_is() {
        let now = "0 3 * * * in Europe/Berlin, vixie, spread over 10m";
        for earlier in [now.replace("vixie", "skip"), now.replace("vixie", "shift")] {
            assert_eq!(Calendar::read(&earlier, &name()).unwrap().timing(), now);
        }
    }

    #[test]
    fn the_same_instants_in_other_words_agree() {
        let of = |expression| Calendar::new(expression, None, Duration::ZERO, &name()).unwrap();
        let at = |hours: i64| StoreTime::from_millis(1_767_225_600_000 + hours * 3_600_000);
        let agree = |one, other, from, to| of(one).agrees(&of(other), at(from), at(to), at(0), 10_000);
        assert!(agree("0 * * * *", "0 0-23 * * *", 0, 24));
        assert!(!agree("0 * * * *", "0,30 * * * *", 0, 1));
        assert!(agree("0 1 * * *", "0 2 * * *", 2, 24), "neither has one in between");
        assert!(!agree("@after 1h", "@at 2026-01-01T01:00:00Z", 2, 24));
    }
}
