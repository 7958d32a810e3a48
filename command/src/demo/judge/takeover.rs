//! Who dies or is frozen is replaced in time, and who was frozen notices it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tenure::clock::Moment;

use super::{Bounds, Verdict, count, seconds, stalled};
use crate::demo::record::{Change, Record, What};

pub(super) fn killed(record: &Record, bounds: &Bounds) -> Verdict {
    judge(
        record,
        bounds,
        What::Killed,
        format!("the tasks of a process that is killed run elsewhere within {}", seconds(bounds.killed)),
    )
}

pub(super) fn frozen(record: &Record, bounds: &Bounds) -> Verdict {
    judge(
        record,
        bounds,
        What::Froze,
        format!("those of one that is frozen, once its lease is over: within {}", seconds(bounds.frozen)),
    )
}

fn judge(record: &Record, bounds: &Bounds, what: What, promise: String) -> Verdict {
    let (mut seen, mut broken) = (Vec::new(), Vec::new());
    for change in record.changes.iter().filter(|change| change.what == what) {
        let name = &record.instances[change.instance].name;
        let suspects = suspects(record, bounds, change);
        let (mut times, mut trials) = (Vec::new(), Vec::new());
        for task in left_behind(record, bounds, change).filter(|task| !record.resting.contains(task)) {
            let next = next_start(record, task, change);
            let until = next.or(record.closing).unwrap_or(change.at);
            let time = until.since(change.at);
            let trial = suspects.get(&task).copied();
            if next.is_some() {
                if trial.is_some() { trials.push(time) } else { times.push(time) }
            }
            let allowed = allowed(record, bounds, change, until) + trial.unwrap_or_default();
            // One that went on in time has them still.
            let goes_on = what == What::Froze && was_thawed_before(record, change, until);
            if time > allowed && !goes_on {
                broken.push(match next {
                    Some(_) => format!("task-{task:02} of {name} ran elsewhere after {}", seconds(time)),
                    None => format!("task-{task:02} of {name} ran nowhere for {}", seconds(time)),
                });
            }
        }
        times.sort_unstable();
        if let Some(slowest) = times.last() {
            let (tasks, half) = (count(times.len(), "task"), seconds(times[times.len() / 2]));
            seen.push(format!("{name}: {tasks} taken over, median {half}, slowest {}", seconds(*slowest)));
        }
        if let Some(slowest) = trials.iter().max() {
            let (tasks, slowest) = (count(trials.len(), "task"), seconds(*slowest));
            seen.push(format!(
                "{name}: {tasks} that lost a second holder and might be what kills: one by one, slowest {slowest}"
            ));
        }
    }
    Verdict::new(promise, seen, broken)
}

/// Tasks that have lost two holders or more, one after the other. They may be what kills their holders, so each runs
/// alone for a third of a ttl at first, twice as long for each further death, and all of them within ten ttls. With
/// the time that this may take.
pub(super) fn suspects(record: &Record, bounds: &Bounds, change: &Change) -> BTreeMap<usize, Duration> {
    let all_within = bounds.ttl * 10;
    let earlier = || record.changes.iter().filter(|it| it.what.takes_away() && it.at <= change.at);
    let mut deaths: BTreeMap<usize, u32> = BTreeMap::new();
    for task in earlier().flat_map(|it| left_behind(record, bounds, it)) {
        *deaths.entry(task).or_default() += 1;
    }
    // Those of a death before may still be on trial.
    let on_trial = earlier().filter(|it| change.at.since(it.at) <= all_within);
    let on_trial: BTreeSet<usize> =
        on_trial.flat_map(|it| left_behind(record, bounds, it)).filter(|it| deaths[it] > 1).collect();
    let most = on_trial.iter().map(|task| deaths[task]).max().unwrap_or_default();
    let one = bounds.ttl / 3 * (1 << most.saturating_sub(2).min(8));
    let number = u32::try_from(on_trial.len()).unwrap_or(u32::MAX);
    let time = all_within.min(one.saturating_mul(number));
    left_behind(record, bounds, change)
        .filter(|task| on_trial.contains(task))
        .map(|task| (task, time))
        .collect()
}

/// Tasks that the instance had then, as far as it has said. Of one that has lost its session: those that it had before,
/// for it stopped their jobs in time, and could not give their locks back.
fn left_behind(record: &Record, bounds: &Bounds, change: &Change) -> impl Iterator<Item = usize> {
    let since = if change.what == What::Lost { change.at - bounds.ttl } else { change.at };
    let has = move |task: &usize| {
        let latest = record.tasks[*task].iter().filter(|it| it.began <= change.at).max_by_key(|it| it.began);
        latest.is_some_and(|it| it.instance == change.instance && it.ended.is_none_or(|ended| ended > since))
    };
    (0..record.tasks.len()).filter(has)
}

fn next_start(record: &Record, task: usize, change: &Change) -> Option<Moment> {
    let later = record.tasks[task].iter().filter(|it| it.began > change.at && it.instance != change.instance);
    later.map(|it| it.began).min()
}

/// The bound, and what others who died or froze meanwhile add to it: the tasks may have been on their way to them.
fn allowed(record: &Record, bounds: &Bounds, change: &Change, until: Moment) -> Duration {
    let bound = |change: &Change| match change.what {
        What::Killed => bounds.killed,
        What::Froze | What::Lost => bounds.frozen,
        // Whoever joins or goes on makes a new plan, a second at the most.
        _ => Duration::from_secs(1),
    };
    let meanwhile = record
        .changes
        .iter()
        .filter(|other| other.instance != change.instance && change.at < other.at && other.at < until);
    bound(change) + meanwhile.map(bound).sum::<Duration>() + stalled(record, change.at, until)
}

fn was_thawed_before(record: &Record, change: &Change, until: Moment) -> bool {
    let mut freezes = record.instances[change.instance].freezes.iter();
    let freeze = freezes.find(|freeze| freeze.from == change.at);
    freeze.is_some_and(|freeze| freeze.noticed.is_none() && freeze.to.is_some_and(|to| to < until))
}

/// Whoever goes on after its lease has ended learns it at once.
pub(super) fn noticed(record: &Record, bounds: &Bounds) -> Verdict {
    let (mut seen, mut broken) = (Vec::new(), Vec::new());
    for instance in &record.instances {
        for freeze in &instance.freezes {
            let Some(to) = freeze.to.filter(|to| to.since(freeze.from) > bounds.ttl) else { continue };
            let until = freeze.noticed.or(instance.death.map(|death| death.gone)).or(record.closing);
            let time = until.unwrap_or(to).since(to);
            if freeze.noticed.is_some() {
                let frozen = seconds(to.since(freeze.from));
                seen.push(format!(
                    "{}, frozen for {frozen}, noticed it after {}",
                    instance.name,
                    seconds(time)
                ));
            }
            if time > bounds.notices + stalled(record, to, to + time) {
                let how = if freeze.noticed.is_some() { "noticed after" } else { "had not noticed after" };
                broken.push(format!("{} {how} {} that its lease was over", instance.name, seconds(time)));
            }
        }
    }
    Verdict::new("a process that goes on after its lease has ended notices, and stops its jobs", seen, broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{
        judge::Kept,
        record::{
            Freeze,
            tests::{PULSE, at, fleet, under},
        },
        said::Said,
    };

    const BOUNDS: Bounds = Bounds {
        ttl: Duration::from_secs(3),
        killed: Duration::from_secs(1),
        frozen: Duration::from_secs(5),
        notices: Duration::from_secs(1),
        even: Duration::from_secs(15),
    };

    fn killed_at(record: &mut Record, instance: usize, ms: u64) {
        record.die(instance, Some(at(ms)), at(ms + 5));
    }

    #[test]
    fn the_time_is_from_the_kill_to_the_next_start() {
        let mut record = fleet(2, 3);
        for task in 0..2 {
            record.hear(0, at(20), Said::Began(under(task, 1)));
        }
        record.hear(1, at(20), Said::Began(under(2, 1)));
        killed_at(&mut record, 0, 1000);
        record.hear(1, at(1300), Said::Began(under(0, 2)));
        record.hear(1, at(1500), Said::Began(under(1, 2)));
        let verdict = killed(&record, &BOUNDS);
        assert_eq!(verdict.kept, Kept::Held);
        assert_eq!(verdict.seen, ["demo-1: 2 tasks taken over, median 0.50 s, slowest 0.50 s"]);
    }

    #[test]
    fn one_that_comes_too_late_or_never_is_told() {
        let mut record = fleet(2, 2);
        record.hear(0, at(20), Said::Began(under(0, 1)));
        record.hear(0, at(20), Said::Began(under(1, 1)));
        killed_at(&mut record, 0, 1000);
        for ms in (20..5000).step_by(50) {
            record.hear(1, at(ms), PULSE);
        }
        record.hear(1, at(2200), Said::Began(under(0, 2)));
        record.closing = Some(at(5000));
        let verdict = killed(&record, &BOUNDS);
        assert_eq!(
            verdict.broken,
            ["task-00 of demo-1 ran elsewhere after 1.20 s", "task-01 of demo-1 ran nowhere for 4.00 s"]
        );
    }

    #[test]
    fn another_death_meanwhile_adds_its_bound() {
        let mut record = fleet(3, 1);
        record.hear(0, at(20), Said::Began(under(0, 1)));
        killed_at(&mut record, 0, 1000);
        killed_at(&mut record, 1, 1100);
        record.hear(2, at(2900), Said::Began(under(0, 2)));
        assert_eq!(killed(&record, &BOUNDS).kept, Kept::Held);
    }

    #[test]
    fn what_loses_a_second_holder_is_tried_alone() {
        let mut record = fleet(3, 2);
        record.hear(0, at(20), Said::Began(under(0, 1)));
        record.hear(1, at(20), Said::Began(under(1, 1)));
        killed_at(&mut record, 0, 1000);
        record.hear(1, at(1300), Said::Began(under(0, 2)));
        killed_at(&mut record, 1, 2000);
        for ms in (20..5000).step_by(50) {
            record.hear(2, at(ms), PULSE);
        }
        record.hear(2, at(2300), Said::Began(under(1, 2)));
        record.hear(2, at(3900), Said::Began(under(0, 3)));
        let verdict = killed(&record, &BOUNDS);
        assert_eq!(verdict.kept, Kept::Held);
        assert_eq!(
            verdict.seen[1..],
            [
                "demo-2: 1 task taken over, median 0.30 s, slowest 0.30 s",
                "demo-2: 1 task that lost a second holder and might be what kills: one by one, slowest 1.90 s"
            ]
        );
        record.tasks[0].last_mut().unwrap().began = at(4100);
        assert_eq!(killed(&record, &BOUNDS).broken, ["task-00 of demo-2 ran elsewhere after 2.10 s"]);
        record.resting.insert(0);
        assert_eq!(killed(&record, &BOUNDS).kept, Kept::Held);
    }

    #[test]
    fn a_session_that_was_lost_is_a_holder_that_was() {
        let mut record = fleet(2, 1);
        record.hear(0, at(20), Said::Began(under(0, 1)));
        record.hear(0, at(2200), Said::Ended { task: 0, term: 1 });
        record.hear(0, at(2700), Said::Lost { why: "expired".to_owned() });
        record.hear(1, at(3000), Said::Began(under(0, 2)));
        assert!(suspects(&record, &BOUNDS, record.changes.last().unwrap()).is_empty());
        killed_at(&mut record, 1, 4000);
        assert_eq!(suspects(&record, &BOUNDS, record.changes.last().unwrap())[&0], BOUNDS.ttl / 3);
    }

    #[test]
    fn what_was_given_away_before_is_not_taken_over() {
        let mut record = fleet(2, 1);
        record.hear(0, at(20), Said::Began(under(0, 1)));
        record.hear(0, at(900), Said::Ended { task: 0, term: 1 });
        killed_at(&mut record, 0, 1000);
        record.closing = Some(at(9000));
        assert_eq!(killed(&record, &BOUNDS).kept, Kept::NotTried);
    }

    #[test]
    fn a_short_freeze_takes_nothing_over() {
        let mut record = fleet(2, 1);
        record.hear(0, at(20), Said::Began(under(0, 1)));
        let freeze = Freeze { from: at(100), to: Some(at(1100)), noticed: None };
        record.instances[0].freezes.push(freeze);
        record.changed(at(100), What::Froze, 0);
        record.closing = Some(at(20_000));
        assert_eq!(frozen(&record, &BOUNDS).kept, Kept::NotTried);
        assert_eq!(noticed(&record, &BOUNDS).kept, Kept::NotTried);
    }

    #[test]
    fn who_does_not_notice_is_told() {
        let mut record = fleet(1, 1);
        let freeze = Freeze { from: at(100), to: Some(at(6000)), noticed: None };
        record.instances[0].freezes.push(freeze);
        record.closing = Some(at(20_000));
        assert_eq!(
            noticed(&record, &BOUNDS).broken,
            ["demo-1 had not noticed after 14.00 s that its lease was over"]
        );
        record.instances[0].freezes[0].noticed = Some(at(6030));
        assert_eq!(noticed(&record, &BOUNDS).seen, ["demo-1, frozen for 5.90 s, noticed it after 0.03 s"]);
    }
}
