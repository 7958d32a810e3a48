//! Who gets which tasks: pure, and the same for everybody who plans.
//!
//! In this order: every task has an owner if the caps allow, each count is within one of its quota, and as
//! few tasks move as can be. Moves that have been made change nothing of those that are left, so that
//! instances may act on them one by one, each for itself.

mod avoid;
#[cfg(test)]
mod tests;

pub(crate) use avoid::avoid;

use std::cmp::{Ordering, Reverse};

/// A task, and who has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task<T, M> {
    /// Which task.
    pub(crate) id: T,
    /// Who owns it; whoever is not among the members does not.
    pub(crate) owner: Option<M>,
    /// Since when, by any number that grows: what came last is given away first, so that what others lent
    /// for the time of a restart goes back, and the rest stays.
    pub(crate) since: u64,
    /// Its owner may be asked to give it away. Not so soon after it came, lest it wander.
    pub(crate) settled: bool,
}

/// One who may own tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member<M> {
    /// Who.
    pub(crate) id: M,
    /// The most tasks it may own.
    pub(crate) cap: u32,
    /// Its part in proportion to the others'. With nothing here it gets nothing.
    pub(crate) weight: u32,
    /// It gives its tasks away and gets no new ones.
    pub(crate) draining: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan<T, M> {
    /// Who gets what, by task.
    pub(crate) moves: Vec<Move<T, M>>,
    /// Tasks for which nobody has room, in their order.
    pub(crate) waiting: Vec<T>,
    /// How many tasks each member is to own, by member.
    pub(crate) targets: Vec<(M, usize)>,
}

/// A task that changes hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move<T, M> {
    /// Which.
    pub(crate) task: T,
    /// From whom, if anybody owns it.
    pub(crate) from: Option<M>,
    /// To whom; to nobody if nobody has room, and its owner may not keep it.
    pub(crate) to: Option<M>,
}

/// Plans. The order of tasks and members does not matter; of each there is one.
pub(crate) fn plan<T: Ord + Copy, M: Ord + Copy>(tasks: &[Task<T, M>], members: &[Member<M>]) -> Plan<T, M> {
    let mut members = members.to_vec();
    members.sort_unstable_by_key(|member| member.id);
    let mut tasks = tasks.to_vec();
    tasks.sort_unstable_by_key(|task| task.id);

    let place = |owner: M| members.binary_search_by_key(&owner, |member| member.id).ok();
    let owners: Vec<Option<usize>> = tasks.iter().map(|task| task.owner.and_then(place)).collect();
    let mut counts = vec![0; members.len()];
    for owner in owners.iter().flatten() {
        counts[*owner] += 1;
    }
    let targets = targets(tasks.len(), &members, &counts);

    let free = free(&tasks, &owners, &counts, &targets);
    let mut room = Vec::new();
    for (at, (count, target)) in counts.iter().zip(&targets).enumerate() {
        room.extend(std::iter::repeat_n(at, target.saturating_sub(*count)));
    }
    assign(&tasks, &owners, &free, &room, &members, targets)
}

/// What has no owner, and what came last to whoever has too many. What is given away then does not depend
/// on what was given before.
fn free<T, M>(
    tasks: &[Task<T, M>],
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

/// What is free goes, in its order, to whoever has room, in theirs; what nobody owned comes first.
fn assign<T: Ord + Copy, M: Ord + Copy>(
    tasks: &[Task<T, M>],
    owners: &[Option<usize>],
    free: &[bool],
    room: &[usize],
    members: &[Member<M>],
    targets: Vec<usize>,
) -> Plan<T, M> {
    let (mut moves, mut waiting) = (Vec::new(), Vec::new());
    let free = || (0..tasks.len()).filter(|at| free[*at]);
    let orphans = free().filter(|at| owners[*at].is_none());
    let given = free().filter(|at| owners[*at].is_some());
    let mut room = room.iter();
    for at in orphans.chain(given) {
        let task = tasks[at].id;
        let from = owners[at].map(|owner| members[owner].id);
        let to = room.next().map(|heir| members[*heir].id);
        if to.is_none() {
            waiting.push(task);
        }
        if from.is_some() || to.is_some() {
            moves.push(Move { task, from, to });
        }
    }
    moves.sort_unstable_by_key(|one| one.task);
    waiting.sort_unstable();
    let targets = members.iter().map(|member| member.id).zip(targets).collect();
    Plan { moves, waiting, targets }
}

/// How many tasks each member is to own: quotas in proportion to the weights, as far as the caps allow,
/// and the rest of the division to those who have them already, then by the largest fraction, then to
/// whoever owns more.
fn targets<M: Ord>(tasks: usize, members: &[Member<M>], counts: &[usize]) -> Vec<usize> {
    let cap = |at: usize| {
        let member: &Member<M> = &members[at];
        let gets = !member.draining && member.weight > 0;
        if gets { u128::from(member.cap) } else { 0 }
    };
    let weight = |at: usize| u128::from(members[at].weight);
    let mut targets = vec![0; members.len()];
    let mut open: Vec<usize> = (0..members.len()).filter(|at| cap(*at) > 0).collect();
    // Those whose cap is lowest for their weight are full first.
    let by_cap = |a: &usize, b: &usize| (cap(*a) * weight(*b)).cmp(&(cap(*b) * weight(*a))).then(a.cmp(b));
    open.sort_unstable_by(by_cap);
    let mut rest = tasks as u128;
    let mut weights: u128 = open.iter().map(|at| weight(*at)).sum();
    let full = open.iter().take_while(|at| {
        let is_full = cap(**at) * weights <= rest * weight(**at);
        if is_full {
            targets[**at] = count(cap(**at));
            rest -= cap(**at);
            weights -= weight(**at);
        }
        is_full
    });
    let full = full.count();
    let mut left = count(rest);
    let mut fractions = Vec::new();
    for at in open.drain(..).skip(full) {
        let share = rest * weight(at);
        targets[at] = count(share / weights);
        left -= targets[at];
        if !share.is_multiple_of(weights) {
            fractions.push((at, share % weights));
        }
    }
    let first = |(at, fraction): &(usize, u128)| {
        (Reverse(counts[*at] > targets[*at]), Reverse(*fraction), Reverse(counts[*at]), *at)
    };
    fractions.sort_unstable_by(|a, b| -> Ordering { first(a).cmp(&first(b)) });
    for (at, _) in fractions.into_iter().take(left) {
        targets[at] += 1;
    }
    targets
}

fn count(of: u128) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}
