//! The plan: who gets which tasks. Pure, and the same for everybody who plans.
//!
//! In this order: every task has an owner if the caps allow, each count is within one of its quota, and as
//! few tasks move as can be. Moves that have been made change nothing of those that are left, so that
//! instances may act on them one by one, each for itself.

mod avoid;
mod quota;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

pub(crate) use avoid::avoid;

/// Members of another version plan in another way.
pub(crate) const PLAN_VERSION: u32 = 2;

/// A task, and who has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedTask<T, M> {
    /// The task.
    pub(crate) id: T,
    /// Owner; one that is not among the members does not count.
    pub(crate) owner: Option<M>,
    /// Since when, by any number that grows: what came last is given away first, so that what others lent
    /// for the time of a restart goes back, and the rest stays.
    pub(crate) since: u64,
    /// Its owner may be asked to give it away. Not so soon after it came, lest it wander.
    pub(crate) settled: bool,
}

/// One who may own tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanMember<M> {
    /// Session of the member.
    pub(crate) id: M,
    /// The most tasks it may own.
    pub(crate) cap: u32,
    /// Its part in proportion to the others'. With nothing here it gets nothing.
    pub(crate) weight: u32,
    /// Gives its tasks away and gets no new ones.
    pub(crate) draining: bool,
    /// Number of other tasks it has, not planned here: they count as if they were.
    pub(crate) load: usize,
    /// Plans in another way: nothing that somebody has is moved to it or from it. Of what nobody has it
    /// gets its part.
    pub(crate) apart: bool,
    /// Rank among its equals. Not by its id, or the same would get the odd task of every plan.
    pub(crate) rank: u64,
}

/// Moves to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan<T, M> {
    /// Moves, by task.
    pub(crate) moves: Vec<Move<T, M>>,
    /// Tasks for which nobody has room, in their order.
    pub(crate) waiting: Vec<T>,
    /// Number of tasks each member is to own, by member.
    pub(crate) targets: Vec<(M, usize)>,
}

/// A task that changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move<T, M> {
    /// Task to move.
    pub(crate) task: T,
    /// From whom, if anybody owns it.
    pub(crate) from: Option<M>,
    /// To whom; to nobody if nobody has room, and its owner may not keep it.
    pub(crate) to: Option<M>,
}

/// Plans. The order of tasks and members does not matter; of each there is one.
pub(crate) fn plan<T: Ord + Copy, M: Ord + Copy>(
    tasks: &[PlannedTask<T, M>],
    members: &[PlanMember<M>],
) -> Plan<T, M> {
    let mut members = members.to_vec();
    members.sort_unstable_by_key(|member| (member.rank, member.id));
    let mut tasks = tasks.to_vec();
    tasks.sort_unstable_by_key(|task| task.id);
    let mut places: Vec<(M, usize)> =
        members.iter().enumerate().map(|(at, member)| (member.id, at)).collect();
    places.sort_unstable();

    let place = |owner: M| places.binary_search_by_key(&owner, |(id, _)| *id).ok().map(|at| places[at].1);
    let owners: Vec<Option<usize>> = tasks.iter().map(|task| task.owner.and_then(place)).collect();
    let mut counts = vec![0; members.len()];
    for owner in owners.iter().flatten() {
        counts[*owner] += 1;
    }
    let orphans = owners.iter().filter(|owner| owner.is_none()).count();
    let targets = quota::targets(tasks.len(), orphans, &members, &counts);

    let free = free(&tasks, &owners, &counts, &targets);
    // Orphans come first: so those get nothing else to whom nothing may be moved.
    let (apart, others): (Vec<usize>, Vec<usize>) = (0..members.len()).partition(|at| members[*at].apart);
    let mut room = Vec::new();
    for at in apart.into_iter().chain(others) {
        room.extend(std::iter::repeat_n(at, targets[at].saturating_sub(counts[at])));
    }
    let by_member = places.iter().map(|(id, at)| (*id, targets[*at])).collect();
    assign(&tasks, &owners, &free, &room, &members, by_member)
}

/// Returns what has no owner, and what came last to whoever has too many. What is given away then does not depend
/// on what was given before.
fn free<T, M>(
    tasks: &[PlannedTask<T, M>],
    owners: &[Option<usize>],
    counts: &[usize],
    targets: &[usize],
) -> Vec<bool> {
    let mut free: Vec<bool> = owners.iter().map(Option::is_none).collect();
    let excess = |owner: usize| counts[owner].saturating_sub(targets[owner]);
    let mut movable = vec![Vec::new(); counts.len()];
    for (at, task) in tasks.iter().enumerate() {
        if let Some(owner) = owners[at].filter(|owner| excess(*owner) > 0 && task.settled) {
            movable[owner].push(at);
        }
    }
    for (owner, mut movable) in movable.into_iter().enumerate() {
        movable.sort_unstable_by_key(|at| Reverse((tasks[*at].since, *at)));
        for at in movable.into_iter().take(excess(owner)) {
            free[at] = true;
        }
    }
    free
}

/// Assigns the free tasks, in their order, to members with room, in theirs; those that nobody owned come first.
fn assign<T: Ord + Copy, M: Ord + Copy>(
    tasks: &[PlannedTask<T, M>],
    owners: &[Option<usize>],
    free: &[bool],
    room: &[usize],
    members: &[PlanMember<M>],
    targets: Vec<(M, usize)>,
) -> Plan<T, M> {
    let (mut moves, mut waiting) = (Vec::new(), Vec::new());
    let free = || (0..tasks.len()).filter(|at| free[*at]);
    let orphans = free().filter(|at| owners[*at].is_none());
    let given = free().filter(|at| owners[*at].is_some());
    let mut room = room.iter();
    for at in orphans.chain(given) {
        let task = tasks[at].id;
        let from = owners[at].map(|owner| members[owner].id);
        let to = room.next().map(|successor| members[*successor].id);
        if to.is_none() {
            waiting.push(task);
        }
        if from.is_some() || to.is_some() {
            moves.push(Move { task, from, to });
        }
    }
    moves.sort_unstable_by_key(|one| one.task);
    waiting.sort_unstable();
    Plan { moves, waiting, targets }
}
