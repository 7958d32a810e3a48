//! The script: actions on the fleet, each at its time, and not before the tasks are even again.

use std::time::Duration;

use tenure::clock::Moment;

use super::record::{Record, State};

/// An action on the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Kill(usize),
    Freeze(usize),
    Thaw(usize),
    Drain(usize),
    Join,
    /// Another one starts, as too few are left: some are killed from outside.
    Replace,
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Kill,
    Freeze,
    Thaw,
    Drain,
    Join,
    Close,
}

/// Time of each step, in hundredths of the whole time.
const STEPS: [(Step, u32); 6] = [
    (Step::Kill, 14),
    (Step::Freeze, 27),
    (Step::Thaw, 50),
    (Step::Drain, 62),
    (Step::Join, 75),
    (Step::Close, 93),
];

/// Fewer than so many that take tasks are not enough for the rest of the script.
const FEWEST: usize = 2;
/// Processes that are started in all, whatever kills them.
const MOST: usize = 30;

#[derive(Debug)]
pub(crate) struct Script {
    begun: Moment,
    time: Duration,
    /// Time after a change after which the next step is taken, whether the tasks are even or not.
    patience: Duration,
    next: usize,
    frozen: Option<usize>,
}

impl Script {
    pub(crate) const fn new(begun: Moment, time: Duration, patience: Duration) -> Self {
        Self { begun, time, patience, next: 0, frozen: None }
    }

    /// Returns the action that is due now. It has been done when this is called again.
    pub(crate) fn next(&mut self, record: &Record, now: Moment) -> Option<Act> {
        if record.closing.is_some() {
            return None;
        }
        let takes = |instance: usize| matches!(record.instances[instance].state, State::Runs | State::Starts);
        let all = || 0..record.instances.len();
        if all().filter(|it| takes(*it)).count() < FEWEST && record.instances.len() < MOST {
            return Some(Act::Replace);
        }
        let (step, hundredths) = STEPS.get(self.next)?;
        let is_time = now >= self.begun + self.time * *hundredths / 100;
        if !is_time || !self.is_settled(record, now) {
            return None;
        }
        self.next += 1;
        let runs: Vec<usize> = all()
            .filter(|it| record.instances[*it].state == State::Runs && record.instances[*it].ready.is_some())
            .collect();
        match step {
            // The instance that runs the schedule is the most missed.
            Step::Kill => whom(&runs, record.ticker()).map(Act::Kill),
            Step::Freeze => {
                self.frozen = whom(&runs, record.ticker());
                self.frozen.map(Act::Freeze)
            }
            Step::Thaw => {
                self.frozen.filter(|it| record.instances[*it].state == State::Frozen).map(Act::Thaw)
            }
            Step::Drain => {
                whom(&runs, runs.iter().copied().find(|it| Some(*it) != self.frozen)).map(Act::Drain)
            }
            Step::Join => Some(Act::Join),
            Step::Close => Some(Act::Close),
        }
    }

    /// The tasks are even after the latest change, or have been given time enough.
    fn is_settled(&self, record: &Record, now: Moment) -> bool {
        let Some(last) = record.changes.last() else { return false };
        last.even.is_some() || now.since(last.at) >= self.patience
    }
}

/// The one that is wanted, if it is there, and else any.
fn whom(there: &[usize], wanted: Option<usize>) -> Option<usize> {
    wanted.filter(|it| there.contains(it)).or_else(|| there.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{
        message::InstanceMessage,
        record::{
            RecordKind,
            tests::{at, fleet},
        },
    };

    const PATIENCE: Duration = Duration::from_secs(15);

    fn script() -> Script {
        Script::new(at(0), Duration::from_secs(20), PATIENCE)
    }

    #[test]
    fn a_step_waits_for_its_time_and_for_the_tasks() {
        let (mut script, mut record) = (script(), fleet(3, 0));
        record.changed(at(0), RecordKind::Started, 0);
        assert_eq!(script.next(&record, at(3000)), None, "the tasks are not even");
        record.changes[0].even = Some(at(500));
        assert_eq!(script.next(&record, at(2000)), None, "it is too early");
        assert_eq!(script.next(&record, at(3000)), Some(Act::Kill(0)));
    }

    #[test]
    fn patience_has_an_end() {
        let (mut script, mut record) = (script(), fleet(3, 0));
        record.changed(at(0), RecordKind::Started, 0);
        assert_eq!(script.next(&record, at(15_000)), Some(Act::Kill(0)));
    }

    #[test]
    fn the_script_kills_the_instance_that_ticks_and_drains_another_than_it_froze() {
        let (mut script, mut record) = (script(), fleet(4, 0));
        record.changed(at(0), RecordKind::Started, 0);
        record.changes[0].even = Some(at(500));
        record.hear(2, at(1000), InstanceMessage::TickBegan { instant: 0, attempt: 1 });
        assert_eq!(script.next(&record, at(20_000)), Some(Act::Kill(2)));
        record.instances[2].state = State::Killed;
        assert_eq!(script.next(&record, at(20_000)), Some(Act::Freeze(0)));
        record.instances[0].state = State::Frozen;
        assert_eq!(script.next(&record, at(20_000)), Some(Act::Thaw(0)));
        record.instances[0].state = State::Runs;
        assert_eq!(script.next(&record, at(20_000)), Some(Act::Drain(1)));
        assert_eq!(script.next(&record, at(20_000)), Some(Act::Join));
        assert_eq!(script.next(&record, at(20_000)), Some(Act::Close));
        assert_eq!(script.next(&record, at(20_000)), None);
    }

    #[test]
    fn an_instance_that_was_killed_from_outside_is_replaced_and_not_thawed() {
        let (mut script, mut record) = (script(), fleet(3, 0));
        record.changed(at(0), RecordKind::Started, 0);
        record.changes[0].even = Some(at(500));
        script.next = 2;
        script.frozen = Some(0);
        record.instances[0].state = State::Killed;
        assert_eq!(script.next(&record, at(20_000)), None, "there is nobody to thaw");
        record.instances[1].state = State::Killed;
        assert_eq!(script.next(&record, at(20_000)), Some(Act::Replace));
        record.add("demo-4".to_owned(), 1);
        assert_eq!(script.next(&record, at(20_000)), Some(Act::Drain(2)));
    }
}
