//! Drained instances end with no tasks, and the tasks are even after each change.

use std::collections::BTreeMap;

use tenure::clock::Moment;

use super::{Bounds, Verdict, count, seconds};
use crate::demo::record::{Change, Record, RecordKind};

pub(super) fn drained(record: &Record) -> Verdict {
    let (mut seen, mut broken) = (Vec::new(), Vec::new());
    for (index, instance) in record.instances.iter().enumerate() {
        let Some((told, done)) = instance.drained else { continue };
        let holdings = || record.tasks.iter().flatten().filter(|holding| holding.instance == index);
        let Some(done) = done else {
            // Not judged: an instance that died or was frozen meanwhile, and any before the fleet was told to close.
            if instance.death.is_none() && record.closing.is_some() && instance.freezes.is_empty() {
                broken.push(format!("{} was not done before the end", instance.name));
            }
            continue;
        };
        let left =
            holdings().filter(|it| it.began <= done && it.ended.is_none_or(|ended| ended > done)).count();
        let new = holdings().filter(|it| it.began > done).count();
        for (number, what) in [(left, "had still"), (new, "began, later,")] {
            if number > 0 {
                broken.push(format!("{} {what} {}", instance.name, count(number, "task")));
            }
        }
        let had =
            holdings().filter(|it| it.began <= told && it.ended.is_none_or(|ended| ended > told)).count();
        seen.push(format!(
            "{}: {} given away in {}",
            instance.name,
            count(had, "task"),
            seconds(done.since(told))
        ));
    }
    Verdict::new("an instance that is drained ends with none", seen, broken)
}

pub(super) fn even(record: &Record, bounds: &Bounds) -> Verdict {
    let (mut seen, mut broken) = (Vec::new(), Vec::new());
    let mut times = Vec::new();
    for (index, change) in record.changes.iter().enumerate() {
        if let Some(even) = change.even {
            times.push(format!("{} {}", word(change.what), seconds(even.since(change.at))));
            continue;
        }
        // A change that was overtaken by another was given no time.
        let until = record.changes.get(index + 1).map(|next| next.at).or(record.closing);
        if let Some(until) = until.filter(|until| until.since(change.at) >= bounds.even) {
            broken.push(uneven(record, change, until, bounds));
        }
    }
    if !times.is_empty() {
        seen.push(format!("after each change to within one task: {}", times.join(", ")));
    }
    Verdict::new("all tasks run, spread evenly over the instances that take them", seen, broken)
}

fn word(what: RecordKind) -> &'static str {
    match what {
        RecordKind::Started => "start",
        RecordKind::Killed => "kill",
        RecordKind::Froze => "freeze",
        RecordKind::Thawed => "thaw",
        RecordKind::Drained => "drain",
        RecordKind::Joined => "join",
        RecordKind::Lost => "loss",
    }
}

fn uneven(record: &Record, change: &Change, until: Moment, bounds: &Bounds) -> String {
    let name = &record.instances[change.instance].name;
    format!(
        "not within {} after the {} of {name}: {}",
        seconds(bounds.even),
        word(change.what),
        shares(record, until)
    )
}

/// The number of tasks of each instance that had some at that time, and of tasks that did not run.
fn shares(record: &Record, at: Moment) -> String {
    let mut counts = BTreeMap::<usize, usize>::new();
    let mut without = 0;
    for owner in record.owners_at(Some(at)) {
        match owner {
            Some(owner) => *counts.entry(owner).or_default() += 1,
            None => without += 1,
        }
    }
    let mut parts: Vec<_> =
        counts.iter().map(|(index, tasks)| format!("{} {tasks}", record.instances[*index].name)).collect();
    if without > 0 {
        parts.push(format!("{} not running", count(without, "task")));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::demo::{
        judge::Kept,
        message::InstanceMessage,
        record::tests::{at, fleet, under},
    };

    const BOUNDS: Bounds = Bounds {
        ttl: Duration::from_secs(3),
        killed: Duration::from_secs(1),
        frozen: Duration::from_secs(5),
        notices: Duration::from_secs(1),
        even: Duration::from_secs(15),
    };

    #[test]
    fn a_drained_instance_has_nothing_and_gets_nothing() {
        let mut record = fleet(1, 2);
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        record.instances[0].drained = Some((at(100), None));
        record.hear(0, at(150), InstanceMessage::Ended { task: 0, term: 1 });
        record.hear(0, at(200), InstanceMessage::Drained);
        assert_eq!(drained(&record).seen, ["demo-1: 1 task given away in 0.10 s"]);
        assert_eq!(drained(&record).kept, Kept::Held);
        record.hear(0, at(300), InstanceMessage::Began(under(1, 1)));
        assert_eq!(drained(&record).broken, ["demo-1 began, later, 1 task"]);
    }

    #[test]
    fn a_drain_that_never_ends_breaks_the_promise() {
        let mut record = fleet(1, 1);
        record.instances[0].drained = Some((at(100), None));
        assert_eq!(drained(&record).kept, Kept::NotTried);
        record.closing = Some(at(9000));
        assert_eq!(drained(&record).kept, Kept::Broken);
    }

    #[test]
    fn a_change_has_its_time_unless_another_follows() {
        let mut record = fleet(1, 1);
        record.changed(at(0), RecordKind::Started, 0);
        record.changed(at(2000), RecordKind::Joined, 0);
        record.closing = Some(at(16_000));
        assert_eq!(even(&record, &BOUNDS).kept, Kept::NotTried);
        record.closing = Some(at(18_000));
        assert_eq!(
            even(&record, &BOUNDS).broken,
            ["not within 15.00 s after the join of demo-1: 1 task not running"]
        );
        record.changes[1].even = Some(at(2500));
        assert_eq!(even(&record, &BOUNDS).seen, ["after each change to within one task: join 0.50 s"]);
    }
}
