//! A member that fails: tasks that it gave up run well elsewhere.

use std::time::Duration;

use super::record::WELL;
use crate::model::StoreTime;

/// Number of tasks given up that make a failing member, or so large a part of those it was to run if that is more, or
/// all of them.
const TASKS: usize = 3;
const PART: usize = 4;
/// Each of them so soon after the one before: longer than the time between two probes, or they would be forgotten.
const WITHIN: Duration = Duration::from_secs(20 * 60);
/// For so long after the last of them, if no probe tells.
const LASTS: Duration = Duration::from_secs(60 * 60);
/// Pause before a probe: as long as the member has been failing, but no shorter and no longer than these.
const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(10 * 60);

/// A time, and the next one at which something changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) now: StoreTime,
    pub(crate) next: Option<StoreTime>,
}

impl Due {
    /// Returns whether that time has come.
    pub(crate) fn is_over(&mut self, at: StoreTime) -> bool {
        let is_over = at <= self.now;
        if !is_over {
            self.next = Some(self.next.map_or(at, |next| next.min(at)));
        }
        is_over
    }
}

/// A task that a member gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault<T> {
    pub(crate) task: T,
    pub(crate) at: StoreTime,
    /// First time that it did so, as far as the record remembers.
    pub(crate) first: StoreTime,
    /// Since when it has run elsewhere.
    pub(crate) elsewhere: Option<StoreTime>,
    /// Since when the member has it again.
    pub(crate) again: Option<StoreTime>,
    /// True if it may be the member's probe.
    pub(crate) tells: bool,
}

/// Standing of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stands {
    /// True if it keeps its tasks, and gets no more while others have room, but now and then a probe.
    pub(crate) failing: bool,
    /// A probe is due.
    pub(crate) probe: bool,
}

/// Judges a member that has so many tasks, of which so many are its part, and forgets the faults before one of those that
/// it gave up ran well there again.
pub(crate) fn judge<T>(faults: &mut Vec<Fault<T>>, has: usize, part: usize, due: &mut Due) -> Stands {
    let again: Vec<_> = faults.iter().filter_map(|fault| fault.again).collect();
    let proofs: Vec<_> = again.iter().copied().filter(|since| due.is_over(since.plus(WELL))).collect();
    if let Some(proof) = proofs.iter().max() {
        // A fault within that minute is of the cause that has ended by now.
        faults.retain(|fault| fault.at > proof.plus(WELL));
    }
    faults.sort_by_key(|fault| fault.at);
    let Some(since) = failing_since(faults, has, part, due) else { return Stands::default() };
    let last = faults.last().map_or(since, |fault| fault.at);
    // One at a time.
    let probe =
        again.len() == proofs.len() && due.is_over(last.plus(last.since(since).clamp(SHORTEST, LONGEST)));
    Stands { failing: true, probe }
}

fn failing_since<T>(faults: &[Fault<T>], has: usize, part: usize, due: &mut Due) -> Option<StoreTime> {
    let rows = faults.chunk_by(|one, next| next.at.since(one.at) <= WITHIN);
    let mut failed = rows.filter(|row| {
        let blamed = row.iter().filter_map(|fault| fault.elsewhere);
        let blamed = blamed.filter(|since| due.is_over(since.plus(WELL))).count();
        let own = part.max(has + row.len());
        let last = row[row.len() - 1].at;
        blamed >= TASKS.max(own.div_ceil(PART)).min(own) && !due.is_over(last.plus(LASTS))
    });
    failed.next()?.iter().map(|fault| fault.first).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60;

    fn at(seconds: i64) -> StoreTime {
        StoreTime::from_millis(1_763_784_813_123 + seconds * 1000)
    }

    /// A fault at that time of a task that runs elsewhere a second later.
    fn fault(gave_up: i64) -> Fault<i64> {
        let elsewhere = Some(at(gave_up + 1));
        Fault { task: gave_up, at: at(gave_up), first: at(gave_up), elsewhere, again: None, tells: true }
    }

    fn again(fault: Fault<i64>, since: i64) -> Fault<i64> {
        Fault { again: Some(at(since)), ..fault }
    }

    /// Returns whether a member that has so many tasks is failing, whether a probe is due, and when that may change.
    fn judged(faults: &[Fault<i64>], has: usize, now: i64) -> (bool, bool, Option<i64>) {
        let mut due = Due { now: at(now), next: None };
        let Stands { failing, probe } = judge(&mut faults.to_vec(), has, 0, &mut due);
        let next = due.next.map(|next| i64::try_from(next.since(at(0)).as_secs()).unwrap());
        (failing, probe, next)
    }

    fn gave_up(times: &[i64]) -> Vec<Fault<i64>> {
        times.iter().copied().map(fault).collect()
    }

    #[test]
    fn three_tasks_that_run_well_elsewhere_make_a_failing_member() {
        let is_failing = |faults: &[i64], has, now| judged(&gave_up(faults), has, now).0;
        assert_eq!(
            judged(&gave_up(&[0, 1, 2]), 0, 30),
            (false, false, Some(61)),
            "nobody knows whose fault it is"
        );
        assert!(is_failing(&[0, 1, 2], 0, 70));
        assert!(!is_failing(&[0, 1], 1, 70), "two are too few");
        assert!(is_failing(&[0, 1], 0, 70), "all that it had");
        assert!(!is_failing(&[], 0, 70));
        let mut due = Due { now: at(70), next: None };
        assert!(!judge(&mut gave_up(&[0, 1]), 0, 3, &mut due).failing, "it has drained: three are its part");
        assert!(is_failing(&[0, 20 * MINUTE, 40 * MINUTE], 3, 50 * MINUTE));
        assert!(!is_failing(&[0, 20 * MINUTE, 41 * MINUTE], 3, 50 * MINUTE), "too long apart");
        assert!(!is_failing(&[0, 1, 2], 20, 70), "less than a quarter");
        assert!(is_failing(&[0, 1, 2, 3, 4, 5, 6], 20, 70));
        let nowhere = gave_up(&[0; 10]).into_iter().map(|fault| Fault { elsewhere: None, ..fault });
        assert_eq!(
            judged(&nowhere.collect::<Vec<_>>(), 0, 600),
            (false, false, None),
            "they fail everywhere"
        );
    }

    #[test]
    fn a_probe_is_due_after_pauses_that_grow() {
        assert_eq!(judged(&gave_up(&[0, 1, 2]), 1, 63), (true, true, Some(3602)));
        assert_eq!(judged(&gave_up(&[0, 1, 2]), 1, 3602), (false, false, None), "no probe told");
        for (faults, now, next) in [
            (&[0, 1, 2, 90][..], 155, Some(180)),
            (&[0, 1, 2, 90, 200, 420], 500, Some(840)),
            (&[0, 1, 2, 90, 200, 420, 900], 1000, Some(1500)),
        ] {
            assert_eq!(judged(&gave_up(faults), 1, now), (true, false, next), "{faults:?}");
            let (failing, probe, _) = judged(&gave_up(faults), 1, next.unwrap());
            assert!(failing && probe, "{faults:?}");
        }
    }

    #[test]
    fn a_probe_that_runs_for_a_minute_ends_it() {
        let mut faults = gave_up(&[0, 1, 2]);
        faults[1] = again(faults[1], 64);
        assert_eq!(judged(&faults, 1, 70), (true, false, Some(124)), "one at a time");
        assert_eq!(judged(&faults, 1, 124), (false, false, None));
        let meanwhile = [&faults[..], &gave_up(&[100, 101, 102])].concat();
        assert!(
            judged(&meanwhile, 1, 123).0 && !judged(&meanwhile, 1, 170).0,
            "the minute counts as a whole"
        );
        faults.extend(gave_up(&[200, 201, 202]));
        assert!(judged(&faults, 1, 300).0, "and again");
    }

    /// Probes that fail go round the tasks that it gave up. Each record has the last time, and the one two probes before.
    #[test]
    fn a_member_whose_probes_fail_is_failing_until_one_does_not_and_is_probed_ever_less() {
        for tasks in [1, 2, 3] {
            let mut faults = gave_up(&[0, 1, 2][..tasks]);
            let (mut now, mut pause) = (70, 0);
            let mut times: Vec<Vec<i64>> =
                (0..tasks).map(|task| vec![i64::try_from(task).unwrap()]).collect();
            for _ in 0..60 {
                let begun = now;
                while !judged(&faults, 0, now).1 {
                    assert!(judged(&faults, 0, now).0, "after {now} s");
                    now += 1;
                }
                pause = now - begun;
                let oldest = (0..tasks).min_by_key(|task| times[*task].last().copied()).unwrap();
                times[oldest].push(now + 5);
                let first = times[oldest][times[oldest].len().saturating_sub(3)];
                let fault =
                    faults.iter_mut().find(|fault| fault.task == i64::try_from(oldest).unwrap()).unwrap();
                (fault.at, fault.first) = (at(now + 5), at(first));
                now += 6;
            }
            assert!(pause >= 590, "{tasks} tasks: {pause} s at last");
        }
    }
}
