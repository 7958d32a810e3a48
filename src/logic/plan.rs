//! The plan: which member gets which tasks. Pure, and the same for every instance that plans.
//!
//! In this order: every task has an owner if the caps allow, no task goes to a member that gave it up while another
//! has room, each count is within one of its quota, and as few tasks move as can be. Evenness yields: a member is owed
//! nothing for what it gave up. Moves that have been made change nothing of those that are left, so that instances may
//! act on them one by one, each for itself.

mod draft;
mod quota;
#[cfg(test)]
mod tests;

use std::{cmp::Ordering, collections::BTreeMap};

use draft::Draft;

/// Members of another version plan in another way.
pub(crate) const PLAN_VERSION: u32 = 3;

/// A task and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedTask<T, M> {
    /// The task.
    pub(crate) id: T,
    /// Owner; one that is not among the members does not count.
    pub(crate) owner: Option<M>,
    /// Since when, by any number that grows: what came last is given away first, so that what others lent
    /// for the time of a restart goes back, and the rest stays.
    pub(crate) since: u64,
    /// True if its owner may be asked to give it away. Not so soon after it came, lest it wander.
    pub(crate) settled: bool,
}

/// A member that may own tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanMember<M> {
    /// Session of the member.
    pub(crate) id: M,
    /// The most tasks it may own.
    pub(crate) cap: u32,
    /// Part of the tasks, in proportion to the others' weights. With zero it gets none.
    pub(crate) weight: u32,
    /// Gives its tasks away and gets no new ones.
    pub(crate) draining: bool,
    /// Number of other tasks it has, not planned here: they count as if they were.
    pub(crate) load: usize,
    /// Plans in another way: no task that has an owner is moved to it or from it. Of the tasks without an owner it
    /// gets its part.
    pub(crate) apart: bool,
    /// Keeps what it has, and gets no more while others have room, but a probe.
    pub(crate) failing: bool,
    /// Number of tasks that it gave up a moment ago, and that are not planned yet: it is owed none for them.
    pub(crate) gave_up: usize,
    /// Rank among its equals. Not by its id, or the same would get the odd task of every plan.
    pub(crate) rank: u64,
}

impl<M> PlanMember<M> {
    /// Returns whether it may get one more task than so many.
    fn has_room(&self, has: usize) -> bool {
        let gets = !self.draining && self.weight > 0 && !self.apart;
        gets && self.level(has) < u128::from(self.cap)
    }

    fn level(&self, has: usize) -> u128 {
        (has + self.load) as u128
    }

    /// Order in which it and another get what no member lacks, with so many tasks each: members that fail last, then
    /// the emptiest first.
    fn order(&self, has: usize, other: &Self, others: usize) -> Ordering {
        let (one, another) =
            (self.level(has) * u128::from(other.weight), other.level(others) * u128::from(self.weight));
        self.failing.cmp(&other.failing).then(one.cmp(&another))
    }
}

/// A member that gave a task up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GaveUp<M> {
    pub(crate) by: M,
    /// True if it may have the task as a probe now, if it is failing.
    pub(crate) probe: bool,
}

/// Moves to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan<T, M> {
    /// Moves, by task.
    pub(crate) moves: Vec<Move<T, M>>,
    /// Tasks for which no member has room, in their order.
    pub(crate) waiting: Vec<T>,
    /// Number of tasks each member is to own, by member.
    pub(crate) targets: Vec<(M, usize)>,
}

/// A task that changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move<T, M> {
    /// Task to move.
    pub(crate) task: T,
    /// Member that owns it, if one does.
    pub(crate) from: Option<M>,
    /// Member that gets it; none if no member has room, and its owner may not keep it.
    pub(crate) to: Option<M>,
}

/// Plans where no member gave anything up. The order of tasks and members does not matter; of each there is one.
pub(crate) fn plan<T: Ord + Copy, M: Ord + Copy>(
    tasks: &[PlannedTask<T, M>],
    members: &[PlanMember<M>],
) -> Plan<T, M> {
    plan_avoiding(tasks, members, &BTreeMap::new())
}

/// Plans where these members gave these tasks up, the one first that did so longest ago.
pub(crate) fn plan_avoiding<T: Ord + Copy, M: Ord + Copy>(
    tasks: &[PlannedTask<T, M>],
    members: &[PlanMember<M>],
    gave_up: &BTreeMap<T, Vec<GaveUp<M>>>,
) -> Plan<T, M> {
    let mut draft = Draft::new(tasks, members, gave_up);
    let parts = draft.parts();
    draft.place_orphans(&draft.targets(&draft.limits()));
    let mut targets = draft.yielding(&parts);
    draft.even_out(&targets);
    draft.probe(&mut targets);
    draft.into_plan(&targets)
}
