//! The record of the fleet: messages of its instances, and actions on them.

mod parts;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tenure::clock::Moment;

pub(crate) use self::parts::{Attempt, Change, Death, Freeze, Holding, Instance, RecordKind, State, TickEnd};
use super::message::{InstanceMessage, Under};

/// A task that has run for so long since the last death of a holder moves again.
const WELL: Duration = Duration::from_secs(5 * 60);

/// All that is known.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) begun: Moment,
    pub(crate) instances: Vec<Instance>,
    /// Of each task, as they were heard.
    pub(crate) tasks: Vec<Vec<Holding>>,
    /// Tasks whose last three holders died: each pauses before it runs again.
    pub(crate) resting: BTreeSet<usize>,
    pub(crate) ticks: BTreeMap<i64, Vec<Attempt>>,
    pub(crate) not_run: Vec<String>,
    pub(crate) changes: Vec<Change>,
    /// Time at which the instances were told to close.
    pub(crate) closing: Option<Moment>,
}

impl Record {
    pub(crate) fn new(begun: Moment, tasks: usize) -> Self {
        Self {
            begun,
            instances: Vec::new(),
            tasks: vec![Vec::new(); tasks],
            resting: BTreeSet::new(),
            ticks: BTreeMap::new(),
            not_run: Vec::new(),
            changes: Vec::new(),
            closing: None,
        }
    }

    pub(crate) fn add(&mut self, name: String, pid: u32) {
        self.instances.push(Instance::new(name, pid));
    }

    pub(crate) fn changed(&mut self, at: Moment, what: RecordKind, instance: usize) {
        self.changes.push(Change { at, what, instance, even: None });
    }

    /// Takes in what an instance said.
    pub(crate) fn hear(&mut self, who: usize, at: Moment, said: InstanceMessage) {
        self.note_life(who, at);
        let instance = &mut self.instances[who];
        match said {
            InstanceMessage::Pulse { late } => instance.stalled(at - late, at),
            InstanceMessage::Ready => {
                instance.ready = Some(at);
                if instance.state == State::Starts {
                    instance.state = State::Runs;
                }
            }
            InstanceMessage::Began(under) => self.began(who, at, under),
            InstanceMessage::Worked(Under { task, term, left }) => {
                if let Some(holding) = self.open(who, task, term) {
                    (holding.worked, holding.left) = (at, left);
                }
            }
            InstanceMessage::Ended { task, term } => {
                if let Some(holding) = self.open(who, task, term) {
                    holding.ended = Some(at);
                }
            }
            InstanceMessage::TickBegan { instant, attempt } => {
                let attempt = Attempt { instance: who, number: attempt, began: at, end: None };
                self.ticks.entry(instant).or_default().push(attempt);
            }
            InstanceMessage::TickDone { instant, attempt } => {
                instance.ticks += 1;
                self.end_tick(who, instant, attempt, (at, TickEnd::Done));
            }
            InstanceMessage::TickStopped { instant, attempt } => {
                self.end_tick(who, instant, attempt, (at, TickEnd::Stopped));
            }
            InstanceMessage::NotRun { count, why } => self.not_run.push(format!("{count} not run: {why}")),
            InstanceMessage::Rests { task } => {
                self.resting.insert(task);
            }
            InstanceMessage::Lost { .. } => {
                instance.lost.push(at);
                match instance.freezes.last_mut() {
                    Some(freeze) if freeze.noticed.is_none() => freeze.noticed = Some(at),
                    _ => self.changed(at, RecordKind::Lost, who),
                }
            }
            InstanceMessage::Drained => {
                if let Some((_, end)) = &mut instance.drained {
                    *end = Some(at);
                }
                if instance.state == State::Drains {
                    instance.state = State::Drained;
                }
            }
            InstanceMessage::Closed => instance.state = State::Closes,
            InstanceMessage::Failed { why } => instance.failure = Some(why),
        }
    }

    fn note_life(&mut self, who: usize, at: Moment) {
        let instance = &mut self.instances[who];
        if let Some(before) = instance.heard {
            instance.stalled(before, at);
        }
        instance.heard = Some(instance.heard.map_or(at, |before| before.max(at)));
    }

    fn began(&mut self, who: usize, at: Moment, Under { task, term, left }: Under) {
        if let Some(holdings) = self.tasks.get_mut(task) {
            holdings.push(Holding { instance: who, term, began: at, worked: at, left, ended: None });
        }
    }

    fn open(&mut self, who: usize, task: usize, term: u64) -> Option<&mut Holding> {
        let holdings = self.tasks.get_mut(task)?;
        holdings.iter_mut().rev().find(|it| it.instance == who && it.term == term && it.ended.is_none())
    }

    fn end_tick(&mut self, who: usize, instant: i64, number: u32, end: (Moment, TickEnd)) {
        let attempts = self.ticks.entry(instant).or_default();
        let it = attempts.iter_mut().rev().find(|it| it.instance == who && it.number == number);
        if let Some(attempt) = it {
            attempt.end = Some(end);
        }
    }

    // ----- what is done to them, and by whomever

    /// A process was killed, all that it had said is heard, and it is gone. When it was killed is known if it was by us.
    pub(crate) fn die(&mut self, who: usize, killed: Option<Moment>, gone: Moment) {
        let instance = &mut self.instances[who];
        let heard = instance.heard.unwrap_or(gone);
        let frozen = instance.freezes.last().filter(|freeze| freeze.to.is_none()).map(|freeze| freeze.from);
        instance.death = Some(Death { from: frozen.or(killed).unwrap_or(heard), gone });
        instance.state = State::Killed;
        // The time at which a frozen one was killed is not known more exactly.
        let at = killed.unwrap_or(if frozen.is_some() { gone } else { heard });
        self.changed(at, RecordKind::Killed, who);
    }

    pub(crate) fn freeze(&mut self, who: usize, at: Moment) {
        let instance = &mut self.instances[who];
        instance.freezes.push(Freeze { from: at, to: None, noticed: None });
        instance.state = State::Frozen;
        self.changed(at, RecordKind::Froze, who);
    }

    pub(crate) fn thaw(&mut self, who: usize, at: Moment) {
        let instance = &mut self.instances[who];
        if let Some(freeze) = instance.freezes.last_mut() {
            freeze.to = Some(at);
        }
        instance.state = match (instance.ready, instance.drained) {
            (None, _) => State::Starts,
            (_, Some((_, Some(_)))) => State::Drained,
            (_, Some((_, None))) => State::Drains,
            _ => State::Runs,
        };
        self.changed(at, RecordKind::Thawed, who);
    }

    pub(crate) fn drain(&mut self, who: usize, at: Moment) {
        let instance = &mut self.instances[who];
        instance.drained = Some((at, None));
        instance.state = State::Drains;
        self.changed(at, RecordKind::Drained, who);
    }

    // ----- how it stands

    /// The instance that has each task now: the latest that began it, unless that one's job is over.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Option<usize>> {
        self.owners_at(None)
    }

    /// The instance that had each task at that time, or has it now.
    pub(crate) fn owners_at(&self, at: Option<Moment>) -> impl Iterator<Item = Option<usize>> {
        self.tasks.iter().map(move |holdings| {
            let begun = holdings.iter().filter(|holding| at.is_none_or(|at| holding.began <= at));
            let latest = begun.max_by_key(|holding| holding.began)?;
            let has_it = latest.ended.is_none_or(|ended| at.is_some_and(|at| ended > at));
            has_it.then_some(latest.instance)
        })
    }

    /// Number of tasks that each instance has now.
    pub(crate) fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.instances.len()];
        for owner in self.owners().flatten() {
            counts[owner] += 1;
        }
        counts
    }

    /// Returns whether all tasks run, on instances that take some, and as evenly as whole numbers allow. An instance may
    /// have more for tasks that stay, and others have as many fewer.
    pub(crate) fn is_even(&self, at: Moment) -> bool {
        let takes = |instance: &usize| self.instances[*instance].state.takes();
        let starts = self.instances.iter().any(|instance| instance.state == State::Starts);
        let mut runs = self.owners().enumerate().filter(|(task, _)| !self.resting.contains(task));
        if starts || !runs.all(|(_, owner)| owner.as_ref().is_some_and(takes)) {
            return false;
        }
        let counts = self.counts();
        let takers: Vec<usize> = (0..counts.len()).filter(takes).collect();
        let all: usize = counts.iter().sum();
        let (least, most) = (all / takers.len().max(1), all.div_ceil(takers.len().max(1)));
        let mut stay = vec![0; counts.len()];
        for (task, owner) in self.owners().enumerate().filter_map(|(task, owner)| Some((task, owner?))) {
            stay[owner] += usize::from(self.stays(task, at));
        }
        let over: usize = takers.iter().map(|it| counts[*it].saturating_sub(most)).sum();
        let lacks: usize = takers.iter().map(|it| least.saturating_sub(counts[*it])).sum();
        lacks <= over && takers.iter().all(|it| counts[*it] <= most.max(stay[*it]))
    }

    /// Returns whether a task is not moved to even out the counts: two holders in a row died with it.
    fn stays(&self, task: usize, at: Moment) -> bool {
        let mut holdings: Vec<_> = self.tasks[task].iter().collect();
        holdings.sort_by_key(|holding| holding.began);
        let (mut deaths, mut ran) = (0, Duration::ZERO);
        for holding in holdings {
            let death = self.instances[holding.instance].death.filter(|_| holding.ended.is_none());
            let until = holding.ended.or(death.map(|death| death.from)).unwrap_or(at);
            ran += until.since(holding.began);
            if ran >= WELL {
                (deaths, ran) = (0, Duration::ZERO);
            }
            if death.is_some() {
                (deaths, ran) = (deaths + 1, Duration::ZERO);
            }
        }
        deaths >= 2
    }

    /// Notes that the tasks are even now, for the changes that wait for it. Returns the last of them, if they did.
    pub(crate) fn note_even(&mut self, at: Moment) -> Option<&Change> {
        let waits = self.changes.last().is_some_and(|change| change.even.is_none());
        if !waits || !self.is_even(at) {
            return None;
        }
        let last = self.changes.last_mut()?;
        last.even = Some(at);
        Some(last)
    }

    /// The instance that ran the latest tick.
    pub(crate) fn ticker(&self) -> Option<usize> {
        let attempts = self.ticks.values().next_back()?;
        attempts.last().map(|attempt| attempt.instance)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{super::message::BOOT, *};

    pub(crate) fn at(ms: u64) -> Moment {
        BOOT + Duration::from_millis(ms)
    }

    /// A record of so many instances that are ready, and so many tasks.
    pub(crate) fn fleet(instances: usize, tasks: usize) -> Record {
        let mut record = Record::new(at(0), tasks);
        for number in 1..=instances {
            record.add(format!("demo-{number}"), 1000 + u32::try_from(number).unwrap());
            record.hear(number - 1, at(10), InstanceMessage::Ready);
        }
        record
    }

    pub(crate) const PULSE: InstanceMessage = InstanceMessage::Pulse { late: Duration::ZERO };

    pub(crate) fn under(task: usize, term: u64) -> Under {
        Under { task, term, left: Duration::from_secs(2) }
    }

    #[test]
    fn a_task_belongs_to_the_instance_that_began_it_last() {
        let mut record = fleet(2, 2);
        assert!(!record.is_even(at(100)));
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        record.hear(0, at(20), InstanceMessage::Began(under(1, 1)));
        assert_eq!(record.counts(), [2, 0]);
        assert!(!record.is_even(at(100)));
        // Read in another order than it happened.
        record.hear(1, at(40), InstanceMessage::Began(under(1, 2)));
        record.hear(0, at(30), InstanceMessage::Ended { task: 1, term: 1 });
        assert_eq!(record.counts(), [1, 1]);
        assert!(record.is_even(at(100)));
    }

    #[test]
    fn a_fleet_is_not_even_while_a_drained_frozen_or_killed_instance_has_tasks() {
        let mut record = fleet(2, 2);
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        record.hear(1, at(20), InstanceMessage::Began(under(1, 1)));
        for state in [State::Drains, State::Frozen, State::Killed] {
            record.instances[1].state = state;
            assert!(!record.is_even(at(100)), "{state:?}");
        }
        record.hear(0, at(30), InstanceMessage::Began(under(1, 2)));
        assert!(record.is_even(at(100)));
    }

    #[test]
    fn tasks_that_lost_two_holders_stay_until_they_have_run_for_five_minutes() {
        let mut record = fleet(4, 4);
        for task in 0..4 {
            record.hear(0, at(20), InstanceMessage::Began(under(task, 1)));
        }
        record.die(0, None, at(30));
        for task in 0..4 {
            record.hear(1, at(40), InstanceMessage::Began(under(task, 2)));
        }
        assert!(!record.is_even(at(45)), "one holder died");
        record.die(1, None, at(50));
        for task in 0..4 {
            record.hear(2, at(60), InstanceMessage::Began(under(task, 3)));
        }
        assert!(record.is_even(at(70)), "two holders died");
        assert!(!record.is_even(at(60) + WELL), "they move again");
    }

    #[test]
    fn a_change_is_settled_once_and_by_the_state_after_it() {
        let mut record = fleet(1, 1);
        record.changed(at(15), RecordKind::Started, 0);
        assert!(record.note_even(at(16)).is_none());
        record.hear(0, at(20), InstanceMessage::Began(under(0, 1)));
        assert_eq!(record.note_even(at(20)).unwrap().what, RecordKind::Started);
        assert!(record.note_even(at(21)).is_none());
        assert_eq!(record.changes[0].even, Some(at(20)));
    }

    #[test]
    fn a_loss_is_of_the_freeze_before_it_or_of_the_machine() {
        let mut record = fleet(1, 1);
        let freeze = Freeze { from: at(100), to: Some(at(5000)), noticed: None };
        record.instances[0].freezes.push(freeze);
        record.hear(0, at(5010), InstanceMessage::Lost { why: "expired".to_owned() });
        assert_eq!(record.instances[0].freezes[0].noticed, Some(at(5010)));
        assert!(record.changes.is_empty());
        record.hear(0, at(9000), InstanceMessage::Lost { why: "expired".to_owned() });
        assert_eq!(record.changes[0].what, RecordKind::Lost);
    }

    #[test]
    fn a_freeze_is_not_counted_as_a_stall() {
        let mut record = fleet(1, 1);
        record.instances[0].freezes.push(Freeze { from: at(20), to: Some(at(900)), noticed: None });
        record.hear(0, at(910), InstanceMessage::Pulse { late: Duration::from_millis(400) });
        assert!(record.instances[0].stalls.is_empty());
        record.hear(0, at(1400), PULSE);
        assert_eq!(record.instances[0].stalls, [(at(910), at(1400))]);
    }

    #[test]
    fn a_store_that_does_not_answer_is_a_stall_that_grows() {
        let mut record = fleet(1, 1);
        for ms in (10_u64..4000).step_by(50) {
            let late = Duration::from_millis(ms.saturating_sub(1000));
            record.hear(0, at(ms), InstanceMessage::Pulse { late });
        }
        assert_eq!(record.instances[0].stalls, [(at(1000), at(3960))]);
    }
}
