//! A member that fails: tasks that it gave up run well elsewhere.

use std::time::Duration;

use super::record::{REMEMBERED, WELL, is_ahead};
use crate::model::StoreTime;

/// So many tasks given up make a failing member, or so large a part of those it was to run if that is more.
const TASKS: usize = 3;
const PART: usize = 4;
/// Within this time.
const WITHIN: Duration = Duration::from_secs(10 * 60);
/// Pause before a probe: as long as the member has been failing, but no shorter and no longer than these.
const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(10 * 60);

/// What the records tell of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conduct {
    /// Times at which it gave up a task, and from when on that is its fault.
    pub(crate) given_up: Vec<(StoreTime, Option<StoreTime>)>,
    /// Number of tasks it has.
    pub(crate) has: usize,
    /// Since when it has those of them that it gave up at some time.
    pub(crate) probes: Vec<StoreTime>,
}

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Like the others.
    Well {
        /// It failed before, and one of those tasks runs well there since then: it is owed its part again.
        proved: Option<StoreTime>,
    },
    /// It keeps what it has, and gets nothing more while others have room, but now and then a task that it gave up.
    Failing {
        since: StoreTime,
        /// A probe is due.
        probe: bool,
        /// Next time at which this may change.
        next: StoreTime,
    },
}

impl Conduct {
    pub(crate) fn judge(mut self, now: StoreTime) -> Standing {
        self.given_up.retain(|(at, _)| now.since(*at) < REMEMBERED && !is_ahead(*at, now));
        self.given_up.sort_unstable();
        let mut proved = None;
        loop {
            let Some((since, reached)) = self.failed(now) else { return Standing::Well { proved } };
            let well = |since: &&StoreTime| **since > reached && now.since(**since) >= WELL;
            let Some(proof) = self.probes.iter().filter(well).max().copied() else {
                return self.failing(since, now);
            };
            self.given_up.retain(|(at, _)| *at > proof);
            proved = Some(proof);
        }
    }

    /// The first and the last of so many faults that it is failing.
    fn failed(&self, now: StoreTime) -> Option<(StoreTime, StoreTime)> {
        let blamed = |from: Option<StoreTime>| from.is_some_and(|from| now >= from);
        (0..self.given_up.len()).find_map(|first| {
            let since = self.given_up[first].0;
            let within = self.given_up[first..].iter().take_while(|(at, _)| at.since(since) <= WITHIN);
            let enough = TASKS.max((self.has + within.clone().count()).div_ceil(PART));
            let mut faults = within.filter(|(_, from)| blamed(*from));
            faults.nth(enough - 1).map(|(at, _)| (since, *at))
        })
    }

    fn failing(&self, since: StoreTime, now: StoreTime) -> Standing {
        let last = self.given_up.last().map_or(since, |(at, _)| *at);
        // One probe at a time: a task that it has taken since then is one.
        if let Some(began) = self.probes.iter().filter(|since| **since > last).max() {
            return Standing::Failing { since, probe: false, next: began.plus(WELL) };
        }
        let next = last.plus(last.since(since).clamp(SHORTEST, LONGEST));
        Standing::Failing { since, probe: now >= next, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60;

    fn at(seconds: i64) -> StoreTime {
        StoreTime::from_millis(1_763_784_813_123 + seconds * 1000)
    }

    /// A member that gave up tasks at these times, which run well elsewhere, and has some of them since those.
    fn standing(given_up: &[i64], probes: &[i64], now: i64) -> Standing {
        let given_up = given_up.iter().map(|gave| (at(*gave), Some(at(gave + 61)))).collect();
        let probes: Vec<_> = probes.iter().map(|since| at(*since)).collect();
        Conduct { given_up, has: probes.len(), probes }.judge(at(now))
    }

    fn is_failing(standing: Standing) -> bool {
        matches!(standing, Standing::Failing { .. })
    }

    #[test]
    fn three_tasks_that_run_well_elsewhere_make_a_failing_member() {
        assert!(!is_failing(standing(&[0, 1, 2], &[], 30)), "nobody knows yet whose fault it is");
        assert!(is_failing(standing(&[0, 1, 2], &[], 70)));
        assert!(!is_failing(standing(&[0, 1], &[], 70)), "two are too few");
        assert!(!is_failing(standing(&[0, 5 * MINUTE, 11 * MINUTE], &[], 13 * MINUTE)), "not within 10 min");
        assert!(is_failing(standing(&[0, 5 * MINUTE, 9 * MINUTE], &[], 13 * MINUTE)));
        assert!(is_failing(standing(&[0, 1, 2], &[], 23 * 60 * MINUTE)));
        assert!(!is_failing(standing(&[0, 1, 2], &[], 25 * 60 * MINUTE)), "after a day it is forgotten");
        let twenty = [-100; 20];
        assert!(!is_failing(standing(&[0, 1, 2], &twenty, 70)), "less than a quarter");
        assert!(is_failing(standing(&[0, 1, 2, 3, 4, 5, 6], &twenty, 70)));
        let nowhere = Conduct { given_up: vec![(at(0), None); 10], has: 0, probes: vec![] };
        assert!(!is_failing(nowhere.judge(at(600))), "they fail everywhere");
    }

    #[test]
    fn a_probe_is_due_after_pauses_that_grow_and_one_that_runs_for_a_minute_ends_it() {
        let failing = |since, probe, next| Standing::Failing { since: at(since), probe, next: at(next) };
        assert_eq!(standing(&[0, 1, 2], &[-100], 63), failing(0, true, 62));
        assert_eq!(standing(&[0, 1, 2], &[-100, 64], 70), failing(0, false, 124), "one at a time");
        // The probe failed.
        assert_eq!(standing(&[0, 1, 2, 90], &[-100], 100), failing(0, false, 180));
        assert_eq!(standing(&[0, 1, 2, 90], &[-100], 181), failing(0, true, 180));
        assert_eq!(standing(&[0, 1, 2, 90, 200, 420], &[], 430), failing(0, false, 840));
        assert_eq!(
            standing(&[0, 1, 2, 90, 200, 420, 900], &[], 910),
            failing(0, false, 1500),
            "10 min at most"
        );
        assert_eq!(standing(&[0, 1, 2], &[-100, 64], 124), Standing::Well { proved: Some(at(64)) });
        assert_eq!(
            standing(&[0, 1, 2], &[-100], 200),
            failing(0, true, 62),
            "what it has had proves nothing"
        );
        assert!(is_failing(standing(&[0, 1, 2, 200, 201, 202], &[64], 300)), "and again");
    }

    #[test]
    fn a_clock_that_was_set_back_blames_nobody() {
        assert!(!is_failing(standing(&[500, 501, 502], &[], 100)));
    }
}
