//! Dead and frozen instances are replaced in time, and frozen ones notice the end of their lease.

use std::time::Duration;

use tenure::clock::Moment;

use super::{Bounds, Verdict, count, seconds, stalled};
use crate::demo::record::{Change, Record, RecordKind};

pub(super) fn killed(record: &Record, bounds: &Bounds) -> Verdict {
    judge(
        record,
        bounds,
        RecordKind::Killed,
        format!("the tasks of a process that is killed run elsewhere within {}", seconds(bounds.killed)),
    )
}

pub(super) fn frozen(record: &Record, bounds: &Bounds) -> Verdict {
    judge(
        record,
        bounds,
        RecordKind::Froze,
        format!(
            "tasks of a frozen process move after its lease expires, within {} of the freeze",
            seconds(bounds.frozen)
        ),
    )
}

fn judge(record: &Record, bounds: &Bounds, what: RecordKind, promise: String) -> Verdict {
    let (mut seen, mut broken) = (Vec::new(), Vec::new());
    for change in record.changes.iter().filter(|change| change.what == what) {
        let name = &record.instances[change.instance].name;
        let mut times = Vec::new();
        for task in left_behind(record, bounds, change).filter(|task| !record.resting.contains(task)) {
            let next = next_start(record, task, change);
            let until = next.or(record.closing).unwrap_or(change.at);
            let time = until.since(change.at);
            if next.is_some() {
                times.push(time);
            }
            let allowed = allowed(record, bounds, change, until);
            // One that went on in time has them still.
            let goes_on = what == RecordKind::Froze && was_thawed_before(record, change, until);
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
    }
    Verdict::new(promise, seen, broken)
}

/// Tasks that the instance had then, as far as it has said. Of one that has lost its session: those that it had before,
/// for it stopped their jobs in time, and could not give their locks back.
fn left_behind(record: &Record, bounds: &Bounds, change: &Change) -> impl Iterator<Item = usize> {
    let since = if change.what == RecordKind::Lost { change.at - bounds.ttl } else { change.at };
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

/// The bound, and the time that others add to it that died or froze meanwhile: the tasks may have been on their way
/// to them.
fn allowed(record: &Record, bounds: &Bounds, change: &Change, until: Moment) -> Duration {
    let bound = |change: &Change| match change.what {
        RecordKind::Killed => bounds.killed,
        RecordKind::Froze | RecordKind::Lost => bounds.frozen,
        // An instance that joins or goes on makes a new plan, a second at the most.
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

/// Judges whether a process that goes on after the end of its lease notices that at once.
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
    Verdict::new(
        "a process that resumes after its lease has ended notices it, and stops its jobs",
        seen,
        broken,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{
        judge::Kept,
        message::InstanceMessage,
        record::{
            Freeze,
            tests::{PULSE, at, fleet, under},
        },
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
            record.hear(0, at(20), InstanceMessage::Began(under(task, 1)));
        }
        record.hear(1, at(20), InstanceMessage::Began(under(2, 1)));
        killed_at(&mut record, 0, 1000);
        record.hear(1, at(1300), InstanceMessage::Began(under(0, 2)));
        record.hear(1, at(1500), InstanceMessage::Began(under(1, 2)));
        let verdict = killed(&record, &BOUNDS);
        assert_eq!(verdict.kept, Kept::Held);
        assert_eq!(verdict.seen, ["demo-1: 2 tasks taken over, median 0.50 s, slowest 0.50 s"]);
    }

    #[test]
    fn a_takeover_that_is_late_or_never_happens_is_reported() {
        let mut record = fleet(2, 2);
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        record.hear(0, at(20), InstanceMessage::Began(under(1, 1)));
        killed_at(&mut record, 0, 1000);
        for ms in (20..5000).step_by(50) {
            record.hear(1, at(ms), PULSE);
        }
        record.hear(1, at(2200), InstanceMessage::Began(under(0, 2)));
        record.closing = Some(at(5000));
        let verdict = killed(&record, &BOUNDS);
        assert_eq!(
            verdict.broken,
            ["task-00 of demo-1 ran elsewhere after 1.20 s", "task-01 of demo-1 ran nowhere for 4.00 s"]
        );
    }

    #[test]
    fn a_second_death_meanwhile_extends_the_bound_of_a_takeover() {
        let mut record = fleet(3, 1);
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        killed_at(&mut record, 0, 1000);
        killed_at(&mut record, 1, 1100);
        record.hear(2, at(2900), InstanceMessage::Began(under(0, 2)));
        assert_eq!(killed(&record, &BOUNDS).kept, Kept::Held);
    }

    #[test]
    fn a_task_that_pauses_after_deaths_is_not_awaited() {
        let mut record = fleet(2, 1);
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        killed_at(&mut record, 0, 1000);
        for ms in (20..5000).step_by(50) {
            record.hear(1, at(ms), PULSE);
        }
        record.closing = Some(at(5000));
        assert_eq!(killed(&record, &BOUNDS).broken, ["task-00 of demo-1 ran nowhere for 4.00 s"]);
        record.hear(1, at(1300), InstanceMessage::Rests { task: 0 });
        assert_eq!(killed(&record, &BOUNDS).broken, [""; 0]);
    }

    #[test]
    fn a_task_that_was_given_away_before_the_kill_needs_no_takeover() {
        let mut record = fleet(2, 1);
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        record.hear(0, at(900), InstanceMessage::Ended { task: 0, term: 1 });
        killed_at(&mut record, 0, 1000);
        record.closing = Some(at(9000));
        assert_eq!(killed(&record, &BOUNDS).kept, Kept::NotTried);
    }

    #[test]
    fn a_short_freeze_takes_nothing_over() {
        let mut record = fleet(2, 1);
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        let freeze = Freeze { from: at(100), to: Some(at(1100)), noticed: None };
        record.instances[0].freezes.push(freeze);
        record.changed(at(100), RecordKind::Froze, 0);
        record.closing = Some(at(20_000));
        assert_eq!(frozen(&record, &BOUNDS).kept, Kept::NotTried);
        assert_eq!(noticed(&record, &BOUNDS).kept, Kept::NotTried);
    }

    #[test]
    fn an_instance_that_does_not_notice_the_end_of_its_lease_is_reported() {
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
