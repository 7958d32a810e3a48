//! Tasks that failed at somebody lately go to others first.
//!
//! Applied to a plan that was made without regard to that, so that whatever such a plan promises stays true:
//! who has how many does not change, but for a remainder that somebody else may have as well.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{Move, Plan, PlanMember, PlannedTask};

/// Changes a plan so that tasks go to those who are to avoid them only where nobody else has room. In this order:
///
/// - Two that are to move change their successors.
/// - Of what somebody has too much another task goes. If each of its tasks is to be avoided by the successor, none goes,
///   where more failed there than elsewhere; unless it must.
/// - What nobody has goes to one with one task less to own, and the same right to one more.
/// - What nobody has goes to one who failed nothing lately, and gives another task in its place.
pub(crate) fn avoid<T: Ord + Copy, M: Ord + Copy>(
    plan: &mut Plan<T, M>,
    tasks: &[PlannedTask<T, M>],
    members: &[PlanMember<M>],
    avoid: &BTreeMap<T, Vec<M>>,
) {
    let is_avoided = |one: &Move<T, M>| one.to.is_some_and(|to| avoids(avoid, one.task, to));
    if !plan.moves.iter().any(is_avoided) {
        return;
    }
    let mut around = AvoidPass::new(plan, tasks, members, avoid);
    let mut kept = BTreeSet::new();
    for at in 0..around.plan.moves.len() {
        let one = around.plan.moves[at];
        let Some(successor) = one.to.filter(|successor| avoids(avoid, one.task, *successor)) else {
            continue;
        };
        if around.swaps(at, successor) {
            continue;
        }
        match one.from {
            Some(owner) => match around.another_of(owner, successor) {
                Some(other) => around.moves_instead(at, other),
                None if around.must_give(owner) => {}
                None if !around.is_at_fault(successor) => {}
                None => drop(kept.insert(one.task)),
            },
            None => {
                let _ = around.move_to_one_with_less(at, successor) || around.exchange(at, successor);
            }
        }
    }
    plan.moves.retain(|one| !kept.contains(&one.task));
    plan.moves.sort_unstable_by_key(|one| one.task);
}

fn avoids<T: Ord + Copy, M: Ord + Copy>(avoid: &BTreeMap<T, Vec<M>>, task: T, member: M) -> bool {
    avoid.get(&task).is_some_and(|avoided| avoided.contains(&member))
}

/// Counts the tasks that avoid each of those who failed anything lately.
fn faults<T, M: Ord + Copy>(avoid: &BTreeMap<T, Vec<M>>) -> BTreeMap<M, usize> {
    let mut faults = BTreeMap::new();
    for avoided in avoid.values() {
        for member in avoided.iter().copied().collect::<BTreeSet<M>>() {
            *faults.entry(member).or_default() += 1;
        }
    }
    faults
}

struct AvoidPass<'a, T, M> {
    plan: &'a mut Plan<T, M>,
    members: BTreeMap<M, PlanMember<M>>,
    /// Tasks of each that may be moved, latest first.
    has: BTreeMap<M, Vec<T>>,
    counts: BTreeMap<M, usize>,
    moving: BTreeSet<T>,
    avoid: &'a BTreeMap<T, Vec<M>>,
    /// Number of tasks that avoid each of those who failed anything lately.
    faults: BTreeMap<M, usize>,
    /// Median number of tasks that avoid a member.
    usual: usize,
}

impl<'a, T: Ord + Copy, M: Ord + Copy> AvoidPass<'a, T, M> {
    fn new(
        plan: &'a mut Plan<T, M>,
        tasks: &[PlannedTask<T, M>],
        members: &[PlanMember<M>],
        avoid: &'a BTreeMap<T, Vec<M>>,
    ) -> Self {
        let members: BTreeMap<M, PlanMember<M>> = members.iter().map(|member| (member.id, *member)).collect();
        let mut owned: Vec<_> = tasks.iter().filter(|task| task.owner.is_some()).collect();
        owned.sort_unstable_by_key(|task| Reverse((task.since, task.id)));
        let (mut has, mut counts) = (BTreeMap::<M, Vec<T>>::new(), BTreeMap::new());
        for task in owned {
            let Some(owner) = task.owner.filter(|owner| members.contains_key(owner)) else { continue };
            *counts.entry(owner).or_default() += 1;
            if task.settled {
                has.entry(owner).or_default().push(task.id);
            }
        }
        let moving = plan.moves.iter().map(|one| one.task).collect();
        let faults = faults(avoid);
        let mut each: Vec<usize> =
            members.keys().map(|member| faults.get(member).copied().unwrap_or(0)).collect();
        each.sort_unstable();
        let usual = each.get(each.len().saturating_sub(1) / 2).copied().unwrap_or(0);
        Self { plan, members, has, counts, moving, avoid, faults, usual }
    }

    /// Returns whether more tasks failed there than elsewhere. What all need may have been away, and then the fault is
    /// nobody's.
    fn is_at_fault(&self, member: M) -> bool {
        self.faults.get(&member).is_some_and(|faults| *faults > 2 * self.usual + 1)
    }

    fn avoids(&self, task: T, member: M) -> bool {
        avoids(self.avoid, task, member)
    }

    fn is_apart(&self, member: M) -> bool {
        self.members.get(&member).is_some_and(|member| member.apart)
    }

    /// Another one that moves gets this successor, and this one that one's.
    fn swaps(&mut self, at: usize, successor: M) -> bool {
        let one = self.plan.moves[at];
        // Nothing that somebody has goes to one that plans otherwise.
        let may = |from: Option<M>, to: M| from.is_none() || !self.is_apart(to);
        let fits = |other: &Move<T, M>| {
            other.from != Some(successor)
                && may(other.from, successor)
                && other.to.is_none_or(|to| may(one.from, to))
                && other.to != Some(successor)
                && other.to.is_some_and(|to| Some(to) != one.from && !self.avoids(one.task, to))
                && !self.avoids(other.task, successor)
        };
        let Some(with) = self.plan.moves.iter().position(fits) else { return false };
        self.plan.moves[at].to = self.plan.moves[with].to;
        self.plan.moves[with].to = Some(successor);
        true
    }

    /// The latest task of that owner that stays, and that the successor may have.
    fn another_of(&self, owner: M, successor: M) -> Option<T> {
        let may_go = |task: &&T| !self.moving.contains(*task) && !self.avoids(**task, successor);
        self.has.get(&owner)?.iter().find(may_go).copied()
    }

    fn moves_instead(&mut self, at: usize, task: T) {
        self.moving.remove(&self.plan.moves[at].task);
        self.moving.insert(task);
        self.plan.moves[at].task = task;
    }

    fn count(&self, member: M) -> usize {
        self.counts.get(&member).copied().unwrap_or(0)
    }

    fn must_give(&self, owner: M) -> bool {
        let count = self.count(owner);
        let keeps = |owner: &PlanMember<M>| {
            !owner.draining && owner.weight > 0 && count + owner.load <= owner.cap as usize
        };
        !self.members.get(&owner).is_some_and(keeps)
    }

    fn target(&self, member: M) -> usize {
        self.plan.targets.iter().find(|(id, _)| *id == member).map_or(0, |(_, target)| *target)
    }

    /// One of the same weight that is to own one less could own one more as well.
    fn move_to_one_with_less(&mut self, at: usize, successor: M) -> bool {
        let task = self.plan.moves[at].task;
        let Some(PlanMember { weight, load, apart: false, .. }) = self.members.get(&successor).copied()
        else {
            return false;
        };
        let whole = self.target(successor) + load;
        let could = |other: &&PlanMember<M>| {
            other.weight == weight
                && !other.draining
                && !other.apart
                && other.cap as usize >= whole
                && self.target(other.id) + other.load + 1 == whole
                && !self.avoids(task, other.id)
        };
        let Some(other) = self.members.values().find(could).map(|other| other.id) else { return false };
        self.plan.moves[at].to = Some(other);
        for (id, target) in &mut self.plan.targets {
            if *id == other {
                *target += 1;
            } else if *id == successor {
                *target -= 1;
            }
        }
        true
    }

    /// Somebody takes it, and gives what the successor may have.
    fn exchange(&mut self, at: usize, successor: M) -> bool {
        if self.is_apart(successor) {
            return false;
        }
        let could = |other: &&PlanMember<M>| {
            other.id != successor
                && !other.apart
                && !self.faults.contains_key(&other.id)
                && !other.draining
                && other.weight > 0
                && self.target(other.id) + other.load < other.cap as usize
        };
        // Who has most is not who came to take a part.
        let mut could: Vec<M> = self.members.values().filter(could).map(|other| other.id).collect();
        could.sort_by_key(|other| (Reverse(self.count(*other)), *other));
        let given = could.into_iter().find_map(|other| Some((other, self.another_of(other, successor)?)));
        let Some((other, task)) = given else { return false };
        self.moving.insert(task);
        self.plan.moves[at].to = Some(other);
        self.plan.moves.push(Move { task, from: Some(other), to: Some(successor) });
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::plan, *};

    type OneTask = PlannedTask<u32, u32>;

    fn member(id: u32) -> PlanMember<u32> {
        PlanMember { id, cap: u32::MAX, weight: 1, draining: false, load: 0, apart: false, rank: 0 }
    }

    fn task(id: u32, owner: Option<u32>) -> OneTask {
        PlannedTask { id, owner, since: u64::from(id), settled: true }
    }

    fn planned(
        tasks: &[OneTask],
        members: &[PlanMember<u32>],
        avoided: &BTreeMap<u32, Vec<u32>>,
    ) -> Plan<u32, u32> {
        let mut made = plan(tasks, members);
        avoid(&mut made, tasks, members, avoided);
        made
    }

    fn made(tasks: &[OneTask], moves: &[Move<u32, u32>]) -> Vec<OneTask> {
        let successor = |task: &OneTask| moves.iter().find(|one| one.task == task.id).map(|one| one.to);
        tasks
            .iter()
            .map(|task| PlannedTask { owner: successor(task).unwrap_or(task.owner), ..*task })
            .collect()
    }

    fn owner_after(tasks: &[OneTask], members: u32, avoided: &[(u32, &[u32])], id: u32) -> Option<u32> {
        let members: Vec<_> = (0..members).map(member).collect();
        let avoided = avoided.iter().map(|(task, who)| (*task, who.to_vec())).collect();
        let moves = planned(tasks, &members, &avoided).moves;
        made(tasks, &moves).into_iter().find(|task| task.id == id)?.owner
    }

    #[test]
    fn what_failed_at_one_goes_to_another_in_whatever_way_there_is() {
        // Alone, it has it.
        assert_eq!(owner_after(&[task(0, None)], 1, &[(0, &[0])], 0), Some(0));
        // A remainder that either of two may have.
        for avoided in [0, 1] {
            assert_eq!(owner_after(&[task(0, None)], 2, &[(0, &[avoided])], 0), Some(1 - avoided));
        }
        // Two that nobody has change their successors.
        let two = [task(0, None), task(1, None)];
        for avoided in [0, 1] {
            assert_eq!(owner_after(&two, 2, &[(0, &[avoided])], 0), Some(1 - avoided));
        }
        // There is room only where it failed: one that works goes there in exchange, the latest.
        let full = [task(0, None), task(1, Some(0)), task(2, Some(1)), task(3, Some(1))];
        assert_eq!(owner_after(&full, 2, &[(0, &[0])], 0), Some(1));
        assert_eq!(owner_after(&full, 2, &[(0, &[0])], 3), Some(0));
        // Not with one where something else has failed: it would be passed on and on.
        assert_eq!(owner_after(&full, 2, &[(0, &[0]), (2, &[1])], 0), Some(0));
        // Nobody is left who has not failed it.
        assert_eq!(owner_after(&full, 2, &[(0, &[0, 1])], 0), Some(0));
    }

    #[test]
    fn what_works_is_not_moved_to_where_it_failed() {
        let three = [task(0, Some(0)), task(1, Some(0)), task(2, Some(0)), task(3, Some(0))];
        let members = [member(0), member(1)];
        // Tasks 3 and 2 would go.
        let moved = |avoided: &[u32], members: &[PlanMember<u32>]| -> Vec<u32> {
            let avoided = avoided.iter().map(|task| (*task, vec![1])).collect();
            planned(&three, members, &avoided).moves.iter().map(|one| one.task).collect()
        };
        assert_eq!(moved(&[], &members), [2, 3]);
        assert_eq!(moved(&[3], &members), [1, 2]);
        assert_eq!(moved(&[3, 2, 1], &members), [0]);
        assert_eq!(moved(&[0, 1, 2, 3], &members), [0_u32; 0]);
        let drains = [PlanMember { draining: true, ..member(0) }, member(1)];
        assert_eq!(moved(&[0, 1, 2, 3], &drains), [0, 1, 2, 3], "it must go");
    }

    #[test]
    fn what_failed_everywhere_hinders_no_balance() {
        let four = [task(0, Some(0)), task(1, Some(0)), task(2, Some(0)), task(3, Some(0))];
        let avoided = BTreeMap::from([0, 1, 2, 3].map(|task| (task, vec![0, 1])));
        let moves = planned(&four, &[member(0), member(1)], &avoided).moves;
        assert_eq!(moves.len(), 2, "{moves:?}");
    }

    type AvoidingFleet = (Vec<OneTask>, Vec<PlanMember<u32>>, BTreeMap<u32, Vec<u32>>);

    fn fleets() -> impl Strategy<Value = AvoidingFleet> {
        let members = prop::collection::vec(
            (prop_oneof![Just(u32::MAX), 0..8_u32], 1..3_u32, prop::bool::weighted(0.1)),
            1..6,
        );
        let tasks =
            prop::collection::vec((prop::option::of(0..6_u32), 0..50_u64, prop::bool::weighted(0.8)), 0..24);
        let avoided = prop::collection::btree_map(0..24_u32, prop::collection::vec(0..6_u32, 1..4), 0..6);
        (members, tasks, avoided).prop_map(|(members, tasks, avoided)| {
            let members = (0..).zip(members).map(|(id, (cap, weight, draining))| PlanMember {
                cap,
                weight,
                draining,
                ..member(id)
            });
            let tasks = (0..).zip(tasks).map(|(id, (owner, since, settled))| PlannedTask {
                id,
                owner,
                since,
                settled,
            });
            (tasks.collect(), members.collect(), avoided)
        })
    }

    fn counts(tasks: &[OneTask], members: &[PlanMember<u32>]) -> Vec<usize> {
        members
            .iter()
            .map(|member| tasks.iter().filter(|task| task.owner == Some(member.id)).count())
            .collect()
    }

    fn sorted(mut targets: Vec<(u32, usize)>) -> Vec<usize> {
        targets.sort_unstable();
        let mut sorted: Vec<_> = targets.into_iter().map(|(_, target)| target).collect();
        sorted.sort_unstable();
        sorted
    }

    proptest! {
        #![proptest_config(crate::seeded::config())]

        #[test]
        fn a_plan_keeps_what_it_promises((tasks, members, avoided) in fleets()) {
            let before = plan(&tasks, &members);
            let after = planned(&tasks, &members, &avoided);
            prop_assert_eq!(planned(&tasks, &members, &BTreeMap::new()), before.clone());
            prop_assert_eq!(&after.waiting, &before.waiting, "nobody waits because of it");
            prop_assert_eq!(sorted(after.targets.clone()), sorted(before.targets.clone()));
            for (member, (id, target)) in members.iter().zip(&after.targets) {
                prop_assert_eq!(member.id, *id);
                prop_assert!(*target <= member.cap as usize, "a cap is kept");
            }
            let unique: BTreeSet<_> = after.moves.iter().map(|one| one.task).collect();
            prop_assert_eq!(unique.len(), after.moves.len());
            for one in &after.moves {
                let task = &tasks[one.task as usize];
                let owner = task.owner.filter(|owner| (*owner as usize) < members.len());
                prop_assert_eq!(one.from, owner);
                prop_assert!(one.to != one.from);
                prop_assert!(owner.is_none() || task.settled, "what came just now stays");
            }
            // One more move for each that nobody has, at the most.
            let orphans = before.moves.iter().filter(|one| one.from.is_none()).count();
            prop_assert!(after.moves.len() <= before.moves.len() + orphans);
        }

        #[test]
        fn all_have_what_they_are_to_have_where_nothing_is_kept((tasks, members, avoided) in fleets()) {
            let is_orphan = |task: &u32| {
                let owner = tasks.get(*task as usize).and_then(|task| task.owner);
                owner.is_none_or(|owner| owner as usize >= members.len())
            };
            let avoided = avoided.into_iter().filter(|(task, _)| is_orphan(task)).collect();
            let (before, after) = (plan(&tasks, &members), planned(&tasks, &members, &avoided));
            let had = counts(&made(&tasks, &before.moves), &members);
            let has = counts(&made(&tasks, &after.moves), &members);
            for (at, ((_, was), (_, target))) in before.targets.iter().zip(&after.targets).enumerate() {
                prop_assert_eq!(has[at] + was, had[at] + target);
            }
        }

        #[test]
        fn the_order_in_which_it_is_told_does_not_matter((tasks, members, avoided) in fleets()) {
            let whole = planned(&tasks, &members, &avoided);
            let (mut tasks, mut members) = (tasks, members);
            tasks.reverse();
            members.reverse();
            prop_assert_eq!(planned(&tasks, &members, &avoided), whole);
        }

        /// Each does its part when it likes; whatever came first, it comes to an end.
        #[test]
        fn moves_come_to_an_end_in_any_order((tasks, members, avoided) in fleets(), seed in any::<u64>()) {
            let (mut tasks, mut seed, mut moves) = (tasks, seed, 0);
            loop {
                let plan = planned(&tasks, &members, &avoided);
                let at = usize::try_from(seed % plan.moves.len().max(1) as u64).unwrap();
                let Some(one) = plan.moves.get(at) else { break };
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                tasks = made(&tasks, std::slice::from_ref(one));
                moves += 1;
                prop_assert!(moves <= 80, "{:?}", plan.moves);
            }
        }
    }
}
