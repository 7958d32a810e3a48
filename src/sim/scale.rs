//! A spread of any size without a store: what is planned, and moved, when instances come and go.
//!
//! All instances look at one view here, which knows at once what any of them did: a fleet of 1,000 whose
//! members have one each does not fit into a machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    clock::Moment,
    dice::Dice,
    logic::{
        digest,
        plan::{PLAN_VERSION, PlanMember, PlannedTask, plan},
        view::{Bounds, OwnMember, OwnTask, Resolved, SpreadAction, SpreadView, TaskPlace},
    },
    model::{Holder, Key, Namespace, SessionId, SpreadName, StoreTime, Term, Why},
    store::{About, Death, Nonce, SessionRecord, SessionSeen, Share},
};

/// As the engine bounds them.
const BOUNDS: Bounds = Bounds { gives: 64, waits: 1000 };
/// Time between two events: all that came has settled by then, and all deaths are known.
const CALM: Duration = Duration::from_secs(10);

/// Effects of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Number of tasks that changed hands, each time counted.
    pub moves: usize,
    /// Number of them that were taken: they were free, or held by the dead.
    pub taken: usize,
    /// Number of them that were handed over.
    pub handed: usize,
    /// Number of instances that had something to do.
    pub acting: usize,
    /// Rounds of planning until nothing was left to do, per instance.
    pub rounds: usize,
}

/// The input of the plan alone.
#[derive(Debug)]
pub struct Input<'a> {
    tasks: Vec<PlannedTask<&'a Key, SessionId>>,
    members: Vec<PlanMember<SessionId>>,
}

impl Input<'_> {
    /// Plans, and says how many tasks are to move.
    #[must_use]
    pub fn plan(&self) -> usize {
        plan(&self.tasks, &self.members).moves.len()
    }
}

/// Instances, and the tasks that each has.
#[derive(Debug)]
pub struct LargeFleet {
    view: SpreadView,
    share: Share,
    keys: usize,
    /// Tasks of each of the living, and their state.
    members: BTreeMap<SessionId, BTreeMap<Key, OwnTask>>,
    /// The names of the instances that were restarted.
    names: BTreeMap<SessionId, Holder>,
    dice: Dice,
    term: u64,
    now: Moment,
}

impl LargeFleet {
    /// Makes a fleet with this many tasks, shared out evenly.
    ///
    /// # Panics
    /// There are no members.
    #[must_use]
    pub fn new(members: usize, tasks: usize) -> Self {
        let keys: BTreeSet<Key> =
            (0..tasks).map(|task| Key::new(format!("task-{task:07}")).expect("within the limits")).collect();
        let spread = SpreadName::new("scale").expect("within the limits");
        let mut share = Share::new(spread.clone());
        digest::publish(&mut share, keys.iter(), StoreTime::from_millis(0));
        let now = Moment::after_start(CALM);
        let mut view = SpreadView::new(spread);
        view.set(&keys);
        let mut fleet = Self {
            view,
            share,
            keys: tasks,
            members: BTreeMap::new(),
            names: BTreeMap::new(),
            dice: Dice::new(1),
            term: 0,
            now,
        };
        fleet.join(members);
        let ids: Vec<_> = fleet.members.keys().copied().collect();
        for (key, id) in keys.iter().zip(ids.iter().cycle()) {
            fleet.grant(key, *id);
        }
        fleet.now = fleet.now + CALM;
        fleet
    }

    /// Number of the living.
    #[must_use]
    pub fn members(&self) -> usize {
        self.members.len()
    }

    // ----- what happens

    /// Adds this many members.
    pub fn join(&mut self, how_many: usize) {
        for _ in 0..how_many {
            // Anywhere among the others.
            let id = SessionId::from_u128(u128::from(self.dice.roll()) << 64);
            self.view.saw(id, &SessionSeen::Alive(self.record(id)), self.now, None);
            self.members.insert(id, BTreeMap::new());
        }
    }

    /// Closes this many members: they let go of their tasks, and end.
    pub fn leave(&mut self, how_many: usize) {
        self.end(how_many, true);
    }

    /// Kills this many members: their tasks still name them.
    pub fn crash(&mut self, how_many: usize) {
        self.end(how_many, false);
    }

    fn end(&mut self, how_many: usize, cleanly: bool) {
        for _ in 0..how_many {
            let at = usize::try_from(self.dice.roll() >> 32).unwrap_or(0) % self.members.len();
            let id = *self.members.keys().nth(at).expect("it is below their number");
            let tasks = self.members.remove(&id).unwrap_or_default();
            if cleanly {
                for key in tasks.keys() {
                    self.view.freed(key, self.now);
                }
            }
            let at = StoreTime::from_millis(0);
            let death = Some(Death { at, by: holder(), why: Why::shortened("the end") });
            let record = SessionRecord { death, ..self.record(id) };
            self.view.saw(id, &SessionSeen::Dead(record), self.now, None);
        }
    }

    /// All are closed for a restart at once, and are back under their names: their tasks wait for them.
    pub fn restart(&mut self) {
        for (id, _) in std::mem::take(&mut self.members) {
            let at = StoreTime::from_millis(0);
            let death = Some(Death { at, by: holder(), why: Death::own() });
            let shares = vec![Share { reserved: CALM * 100, ..self.share.clone() }];
            let record = SessionRecord { death, shares, ..self.record(id) };
            self.view.saw(id, &SessionSeen::Dead(record), self.now, None);
            let name = self.holder_of(id);
            let id = SessionId::from_u128(u128::from(self.dice.roll()) << 64);
            self.names.insert(id, name);
            self.view.saw(id, &SessionSeen::Alive(self.record(id)), self.now, None);
            self.members.insert(id, BTreeMap::new());
        }
    }

    fn holder_of(&self, id: SessionId) -> Holder {
        let first = || Holder::new(format!("pod-{id}")).expect("within the limits");
        self.names.get(&id).cloned().unwrap_or_else(first)
    }

    fn record(&self, id: SessionId) -> SessionRecord {
        let namespace = Namespace::new("scale").expect("within the limits");
        let about = About { plan_version: PLAN_VERSION, ..About::new(namespace, self.holder_of(id)) };
        let opened = SessionRecord::opened(id, about, Nonce::new(0), CALM, StoreTime::from_millis(0));
        SessionRecord { shares: vec![self.share.clone()], ..opened }
    }

    fn grant(&mut self, key: &Key, to: SessionId) {
        self.term += 1;
        self.view.granted(key, to, Term::new(self.term), self.now);
        self.members.entry(to).or_default().insert(key.clone(), OwnTask::Has);
    }

    // ----- what comes of it

    /// Smallest number of tasks that must move: those that no live member has, and what any has beyond its part,
    /// if the larger parts are for the members that have most.
    #[must_use]
    pub fn least(&self) -> usize {
        let mut counts: Vec<_> = self.members.values().map(BTreeMap::len).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let (part, larger) = (self.keys / counts.len(), self.keys % counts.len());
        let excess = |(at, count): (usize, &usize)| count.saturating_sub(part + usize::from(at < larger));
        let orphans = self.keys - counts.iter().sum::<usize>();
        orphans + counts.iter().enumerate().map(excess).sum::<usize>()
    }

    /// Difference between the largest number of tasks of an instance and the smallest.
    #[must_use]
    pub fn gap(&self) -> usize {
        let counts = || self.members.values().map(BTreeMap::len);
        counts().max().unwrap_or(0) - counts().min().unwrap_or(0)
    }

    /// Input of the plan alone, in the present state.
    #[must_use]
    pub fn input(&self) -> Input<'_> {
        let task = |(id, place): (_, &TaskPlace)| {
            let (owner, since) = match place {
                TaskPlace::Held { session, term, .. } => (Some(*session), term.get()),
                _ => (None, 0),
            };
            PlannedTask { id, owner, since, settled: true }
        };
        let member = |id: &SessionId| PlanMember {
            id: *id,
            cap: u32::MAX,
            weight: 1,
            draining: false,
            load: 0,
            apart: false,
            failing: false,
            gave_up: 0,
            rank: 0,
        };
        Input {
            tasks: self.view.tasks().map(task).collect(),
            members: self.members.keys().map(member).collect(),
        }
    }

    /// All that one instance works out when something has changed. Says how many orders come of it.
    #[must_use]
    pub fn resolve(&self, member: usize) -> usize {
        let id = self.members.keys().nth(member % self.members.len()).expect("it is below their number");
        self.resolve_for(*id).orders.len()
    }

    fn resolve_for(&self, session: SessionId) -> Resolved {
        let started = StoreTime::from_millis(0);
        let me = OwnMember { session, holder: self.holder_of(session), started, share: self.share.clone() };
        self.view.resolve(&me, &self.members[&session], BOUNDS, self.now)
    }

    /// Lets all members act until nothing is left to do. Members that the plan does not name are asked by
    /// sample: `sample` of them in each round, which must have nothing to do.
    ///
    /// # Panics
    /// A member acts that the plan does not name, or it comes to no end.
    pub fn settle(&mut self, sample: usize) -> Settled {
        let mut settled = Settled::default();
        let mut acted = BTreeSet::new();
        loop {
            let named = self.named();
            let others = self.members.keys().filter(|id| !named.contains(id));
            let every = (self.members.len() / sample.max(1)).max(1);
            for id in others.step_by(every).take(sample) {
                assert_eq!(self.resolve_for(*id).orders, [], "nothing is planned for {id}");
            }
            let orders: Vec<_> = named.iter().map(|id| (*id, self.resolve_for(*id).orders)).collect();
            if orders.iter().all(|(_, orders)| orders.is_empty()) {
                break;
            }
            acted.extend(orders.iter().filter(|(_, orders)| !orders.is_empty()).map(|(id, _)| *id));
            settled.rounds += 1;
            assert!(settled.rounds < 100, "it goes on and on");
            self.perform(&orders, &mut settled);
        }
        settled.moves = settled.taken + settled.handed;
        settled.acting = acted.len();
        self.now = self.now + CALM;
        settled
    }

    /// Returns the members that give, take or wait, by the plan that all have.
    fn named(&self) -> BTreeSet<SessionId> {
        let Some(any) = self.members.keys().next() else { return BTreeSet::new() };
        let successors = self.resolve_for(*any).successors;
        let owner = |key: &Key| match self.view.task(key) {
            Some(TaskPlace::Held { session, .. }) => Some(*session),
            _ => None,
        };
        let both = successors.iter().flat_map(|(key, to)| [owner(key), *to]).flatten();
        both.filter(|id| self.members.contains_key(id)).collect()
    }

    fn perform(&mut self, orders: &[(SessionId, Vec<SpreadAction>)], settled: &mut Settled) {
        let all = || orders.iter().flat_map(|(id, orders)| orders.iter().map(|order| (*id, order)));
        // Waiters are in the queue before anything is given.
        for (id, order) in all() {
            let mine = self.members.entry(id).or_default();
            match order {
                SpreadAction::Wait { key } => {
                    mine.insert(key.clone(), OwnTask::Waits);
                }
                SpreadAction::Withdraw { key } => {
                    mine.remove(key);
                }
                SpreadAction::Take { .. } | SpreadAction::Give { .. } => {}
            }
        }
        for (id, order) in all() {
            match order {
                SpreadAction::Take { key, .. } => {
                    settled.taken += 1;
                    self.grant(key, id);
                }
                SpreadAction::Give { key, to, .. } => {
                    self.members.entry(id).or_default().remove(key);
                    let waits = |to: &SessionId| {
                        self.members.get(to).is_some_and(|mine| mine.get(key) == Some(&OwnTask::Waits))
                    };
                    match to.filter(waits) {
                        Some(to) => {
                            settled.handed += 1;
                            self.grant(key, to);
                        }
                        None => {
                            self.view.freed(key, self.now);
                        }
                    }
                }
                SpreadAction::Wait { .. } | SpreadAction::Withdraw { .. } => {}
            }
        }
    }
}

fn holder() -> Holder {
    Holder::new("pod").expect("within the limits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_moves_as_few_as_can_be() {
        let mut fleet = LargeFleet::new(10, 1000);
        let events: [fn(&mut LargeFleet); 4] =
            [|one| one.join(1), |one| one.leave(1), |one| one.crash(2), |one| one.join(3)];
        for event in events {
            event(&mut fleet);
            let least = fleet.least();
            let settled = fleet.settle(3);
            assert!(least > 0);
            assert_eq!((settled.moves, fleet.least()), (least, 0));
            assert!(fleet.gap() <= 1);
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "how long a plan takes is what is looked at")]
    fn a_plan_after_a_restart_of_all_costs_little_more_than_any_other() {
        let mut fleet = LargeFleet::new(1000, 100_000);
        let timed = |fleet: &LargeFleet| {
            let once = |member: usize| {
                let begun = std::time::Instant::now();
                let orders = fleet.resolve(member * 331);
                (begun.elapsed(), orders)
            };
            (0..3).map(once).min().expect("three times")
        };
        let (calm, orders) = timed(&fleet);
        assert_eq!(orders, 0);
        fleet.restart();
        let (restarted, orders) = timed(&fleet);
        println!("a plan of 100,000 tasks: {calm:?}, all 1,000 back from a restart {restarted:?}");
        assert_eq!(orders, 100, "each takes what was its own");
        assert!(restarted < calm * 8, "{calm:?} before, {restarted:?} then");
    }
}
