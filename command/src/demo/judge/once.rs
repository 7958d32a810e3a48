//! A task runs in one place at a time.

use tenure::clock::Moment;

use super::{Verdict, count};
use crate::demo::record::{Holding, Record};

pub(super) fn tasks(record: &Record) -> Verdict {
    let mut broken = Vec::new();
    let mut starts = 0;
    for (task, holdings) in record.tasks.iter().enumerate() {
        let mut holdings: Vec<&Holding> = holdings.iter().collect();
        holdings.sort_by_key(|holding| holding.began);
        starts += holdings.len();
        for (index, before) in holdings.iter().enumerate() {
            for after in &holdings[index + 1..] {
                broken.extend(overlap(record, task, before, after));
            }
            if let Some(after) = holdings.get(index + 1) {
                broken.extend(older_term(record, task, before, after));
            }
        }
    }
    let seen = if starts == 0 {
        Vec::new()
    } else {
        let (tasks, starts) = (count(record.tasks.len(), "task"), count(starts, "start"));
        let by = count(record.instances.len(), "instance");
        let overlaps = if broken.is_empty() { ", never two at once, each under a larger term" } else { "" };
        vec![format!("{tasks}, {starts} by {by}{overlaps}")]
    };
    Verdict::new("a task runs in one place at a time", seen, broken)
}

/// The moment until which a job worked, or may well have: one whose process was killed did so until it was killed, as
/// it had not said that it was over, and as long as its lease allowed.
///
/// No other instance may begin while its lease is valid, unless it has given it up, and it says so before it does; or
/// its process is gone, and it was not before the kill.
pub(super) fn end(record: &Record, holding: &Holding) -> Moment {
    let death = record.instances[holding.instance].death;
    match (holding.ended, death) {
        (None, Some(death)) => holding.worked.max(death.from.min(holding.worked + holding.left)),
        _ => holding.worked,
    }
}

fn overlap(record: &Record, task: usize, before: &Holding, after: &Holding) -> Option<String> {
    let by = end(record, before).since(after.began);
    if by.is_zero() {
        return None;
    }
    let name = |holding: &Holding| &record.instances[holding.instance].name;
    Some(format!("task-{task:02} ran at {} for {by:?} after it had begun at {}", name(before), name(after)))
}

fn older_term(record: &Record, task: usize, before: &Holding, after: &Holding) -> Option<String> {
    let same = before.instance == after.instance && before.term == after.term;
    if same || after.term > before.term {
        return None;
    }
    let name = &record.instances[after.instance].name;
    Some(format!(
        "task-{task:02} began at {name} under term {}, and term {} was before",
        after.term, before.term
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{
        judge::Kept,
        message::InstanceMessage,
        record::{
            Death,
            tests::{at, fleet, under},
        },
    };

    #[test]
    fn runs_one_after_the_other_do_not_overlap() {
        let mut record = fleet(2, 1);
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        record.hear(0, at(50), InstanceMessage::Worked(under(0, 1)));
        record.hear(1, at(60), InstanceMessage::Began(under(0, 2)));
        // Its line comes late, and is of no work.
        record.hear(0, at(70), InstanceMessage::Ended { task: 0, term: 1 });
        assert_eq!(tasks(&record).kept, Kept::Held);
    }

    #[test]
    fn work_after_another_instance_has_begun_is_an_overlap() {
        let mut record = fleet(2, 1);
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        record.hear(1, at(60), InstanceMessage::Began(under(0, 2)));
        record.hear(0, at(61), InstanceMessage::Worked(under(0, 1)));
        let verdict = tasks(&record);
        assert_eq!(verdict.kept, Kept::Broken);
        assert_eq!(verdict.broken, ["task-00 ran at demo-1 for 1ms after it had begun at demo-2"]);
    }

    #[test]
    fn a_killed_instance_counts_as_working_until_its_death_or_the_end_of_its_lease() {
        let mut record = fleet(2, 1);
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        record.hear(1, at(60), InstanceMessage::Began(under(0, 2)));
        record.instances[0].death = Some(Death { from: at(70), gone: at(75) });
        assert_eq!(tasks(&record).kept, Kept::Broken);
        // It said that it had given it away.
        record.tasks[0][0].ended = Some(at(55));
        assert_eq!(tasks(&record).kept, Kept::Held);
        // It was frozen, its lease ran out, and then it was killed.
        record.tasks[0][0].ended = None;
        record.tasks[0][0].left = at(50).since(at(20));
        assert_eq!(tasks(&record).kept, Kept::Held);
    }

    #[test]
    fn a_term_that_is_no_larger_is_told() {
        let mut record = fleet(2, 1);
        record.hear(0, at(20), InstanceMessage::Began(under(0, 5)));
        record.hear(0, at(30), InstanceMessage::Ended { task: 0, term: 5 });
        record.hear(0, at(35), InstanceMessage::Began(under(0, 5)));
        record.hear(0, at(40), InstanceMessage::Ended { task: 0, term: 5 });
        assert_eq!(tasks(&record).kept, Kept::Held);
        record.hear(1, at(60), InstanceMessage::Began(under(0, 5)));
        let verdict = tasks(&record);
        assert_eq!(verdict.broken, ["task-00 began at demo-2 under term 5, and term 5 was before"]);
    }
}
