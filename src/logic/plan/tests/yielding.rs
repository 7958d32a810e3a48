//! Plans around members that gave tasks up, or fail.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{super::plan_avoiding, *};

type Avoided = BTreeMap<u32, Vec<GaveUp<u32>>>;

fn gave_up(by: u32) -> GaveUp<u32> {
    GaveUp { by, probe: true }
}

fn avoided(of: &[(u32, &[u32])]) -> Avoided {
    of.iter().map(|(task, by)| (*task, by.iter().copied().map(gave_up).collect())).collect()
}

/// Owners after the plan, and how many tasks moved that had an owner.
fn planned(
    tasks: &[PlannedTask<u32, u32>],
    members: &[PlanMember<u32>],
    avoid: &[(u32, &[u32])],
) -> (Vec<Option<u32>>, usize) {
    let plan = plan_avoiding(tasks, members, &avoided(avoid));
    let owners = made(tasks, &plan).iter().map(|task| task.owner).collect();
    (owners, plan.moves.iter().filter(|one| one.from.is_some()).count())
}

fn members<const N: usize>(count: u32, change: [(usize, PlanMember<u32>); N]) -> Vec<PlanMember<u32>> {
    let mut members: Vec<_> = (0..count).map(member).collect();
    for (at, changed) in change {
        members[at] = changed;
    }
    members
}

fn failing(id: u32) -> PlanMember<u32> {
    PlanMember { failing: true, ..member(id) }
}

#[test]
fn a_task_that_a_member_gave_up_goes_to_another_with_room_and_nothing_moves_for_it() {
    let one = [task(0, None)];
    assert_eq!(planned(&one, &members(1, []), &[(0, &[0])]), (vec![Some(0)], 0), "alone, it has it");
    for by in [0, 1] {
        assert_eq!(planned(&one, &members(2, []), &[(0, &[by])]).0, [Some(1 - by)]);
    }
    // Two without an owner.
    let two = [task(0, None), task(1, None)];
    assert_eq!(planned(&two, &members(2, []), &[(0, &[0]), (1, &[1])]).0, [Some(1), Some(0)]);
    // Both go to the only one that gave up neither, and stay there.
    let (owners, _) = planned(&two, &members(2, []), &[(0, &[0]), (1, &[0])]);
    assert_eq!(owners, [Some(1), Some(1)]);
    let held = [task(0, Some(1)), task(1, Some(1))];
    assert_eq!(planned(&held, &members(2, []), &[(0, &[0]), (1, &[0])]).1, 0);
    // The other is full: it goes where it failed.
    let full = members(2, [(1, PlanMember { cap: 1, ..member(1) })]);
    assert_eq!(planned(&[task(0, None), task(1, Some(1))], &full, &[(0, &[0])]).0, [Some(0), Some(1)]);
    // All gave it up: every member may have it again.
    assert_eq!(planned(&one, &members(2, []), &[(0, &[0, 1])]).0, [Some(0)]);
}

#[test]
fn a_member_is_owed_nothing_for_what_it_gave_up_and_the_rest_as_before() {
    // One has nothing, as it gave up all that it had; the others have 15 each.
    let tasks: Vec<_> = (0..30).map(|id| task(id, Some(1 + id % 2))).collect();
    let of_it: Vec<(u32, &[u32])> = (0..10).map(|id| (id, &[0][..])).collect();
    assert_eq!(planned(&tasks, &members(3, []), &of_it).1, 0);
    // It gave up four: six are moved to it, and none of those four.
    let (owners, moved) = planned(&tasks, &members(3, []), &of_it[..4]);
    assert_eq!((moved, owners.iter().filter(|owner| **owner == Some(0)).count()), (6, 6));
    assert!(owners[..4].iter().all(|owner| *owner != Some(0)), "{owners:?}");
    // A new task that it did not give up is its own.
    let mut more = tasks;
    more.push(task(30, None));
    let (owners, moved) = planned(&more, &members(3, []), &of_it);
    assert_eq!((owners[30], moved), (Some(0), 0));
}

#[test]
fn tasks_given_up_a_moment_ago_move_nothing_between_the_others() {
    // Its part is 10 of 30: some it has, some it gave up just now, some are still on their way from the others.
    for (gave_up, ours, theirs) in
        (0..=10).flat_map(|at| (0..=5).flat_map(move |a| (0..=5).map(move |b| (at, a, b))))
    {
        let Some(has) = (10_u32).checked_sub(u32::try_from(gave_up).unwrap() + ours + theirs) else {
            continue;
        };
        for ranks in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let at = |id: u32| PlanMember { rank: ranks[id as usize], ..member(id) };
            let members = [PlanMember { gave_up, ..at(0) }, at(1), at(2)];
            let counts = [(0, has), (1, 10 + ours), (2, 10 + theirs)];
            let owners = counts.iter().flat_map(|(owner, count)| (0..*count).map(|_| *owner));
            let tasks: Vec<_> = (0..).zip(owners).map(|(id, owner)| task(id, Some(owner))).collect();
            let plan = plan_avoiding(&tasks, &members, &avoided(&[]));
            let given = |from: u32| plan.moves.iter().filter(|one| one.from == Some(from)).count();
            let is_expected = given(1) == ours as usize && given(2) == theirs as usize;
            assert!(
                is_expected && plan.moves.iter().all(|one| one.to == Some(0)),
                "{counts:?} {ranks:?}: {plan:?}"
            );
        }
    }
}

#[test]
fn tasks_that_two_members_gave_up_a_moment_ago_are_counted_once() {
    // Ten of thirty rest, and both gave up all of them; the third one runs most of the others.
    let members =
        [PlanMember { gave_up: 10, ..member(0) }, PlanMember { gave_up: 10, ..member(1) }, member(2)];
    let owners =
        [(0, 2), (1, 2), (2, 16)].into_iter().flat_map(|(owner, count)| (0..count).map(move |_| owner));
    let tasks: Vec<_> = (0..).zip(owners).map(|(id, owner)| task(id, Some(owner))).collect();
    assert_eq!(plan_avoiding(&tasks, &members, &avoided(&[])).moves, []);
}

#[test]
fn a_draining_member_gives_to_members_that_did_not_give_the_task_up() {
    let drains = members(3, [(0, PlanMember { draining: true, ..member(0) })]);
    let tasks = [task(0, Some(0)), task(1, Some(0)), task(2, Some(1)), task(3, Some(1)), task(4, Some(1))];
    let (owners, moved) = planned(&tasks, &drains, &[(0, &[2]), (1, &[2])]);
    assert_eq!((&owners[..2], moved), (&[Some(1), Some(1)][..], 2));
}

#[test]
fn a_failing_member_keeps_what_it_has_and_gets_a_probe_of_what_it_gave_up_or_what_no_other_has_room_for() {
    let tasks: Vec<_> = (0..9).map(|id| task(id, [Some(0), None, Some(1)][id as usize % 3])).collect();
    let count = |owners: &[Option<u32>], id| owners.iter().filter(|owner| **owner == Some(id)).count();
    let (owners, moved) = planned(&tasks, &members(2, [(0, failing(0))]), &[]);
    assert_eq!((count(&owners, 0), count(&owners, 1), moved), (3, 6, 0));
    let held: Vec<_> = (0..9)
        .map(|id| PlannedTask { since: 9 - u64::from(id), ..task(id, Some(u32::from(id > 1))) })
        .collect();
    let five: Vec<(u32, &[u32])> = (2..7).map(|id| (id, &[0][..])).collect();
    assert_eq!(planned(&held, &members(2, [(0, failing(0))]), &[]).1, 0);
    let (owners, moved) = planned(&held, &members(2, [(0, failing(0))]), &five);
    assert_eq!((moved, owners[6]), (1, Some(0)), "what has been there for longest");
    let has_its_part: Vec<_> =
        held.iter().map(|held| PlannedTask { owner: Some(held.id % 2), ..*held }).collect();
    assert_eq!(planned(&has_its_part, &members(2, [(0, failing(0))]), &five).1, 0);
    let mut pausing = avoided(&five);
    for one in pausing.values_mut().flatten() {
        one.probe = false;
    }
    assert_eq!(plan_avoiding(&held, &members(2, [(0, failing(0))]), &pausing).moves, []);
    let full = members(2, [(0, failing(0)), (1, PlanMember { cap: 4, ..member(1) })]);
    let (owners, moved) = planned(&tasks, &full, &[]);
    assert_eq!((count(&owners, 0), count(&owners, 1), moved), (5, 4, 0));
    // It gave the task up, and the other is full.
    let (owners, _) = planned(&tasks, &full, &[(1, &[0]), (4, &[0]), (7, &[0])]);
    assert_eq!((count(&owners, 0), count(&owners, 1)), (5, 4));
}

#[derive(Clone, Debug)]
struct YieldingFleet {
    tasks: Vec<PlannedTask<u32, u32>>,
    members: Vec<PlanMember<u32>>,
    avoid: Avoided,
}

fn yielding_fleets() -> impl Strategy<Value = YieldingFleet> {
    let cap = prop_oneof![Just(u32::MAX), 0..8_u32];
    let draining_or_failing = (prop::bool::weighted(0.1), prop::bool::weighted(0.3));
    let members = prop::collection::vec((cap, 1..3_u32, draining_or_failing), 1..6);
    let tasks =
        prop::collection::vec((prop::option::of(0..6_u32), 0..50_u64, prop::bool::weighted(0.8)), 0..24);
    let one = (0..6_u32, any::<bool>()).prop_map(|(by, probe)| GaveUp { by, probe });
    let avoid = prop::collection::btree_map(0..24_u32, prop::collection::vec(one, 1..4), 0..10);
    (members, tasks, avoid).prop_map(|(members, tasks, avoid)| {
        let members = (0..).zip(members).map(|(id, (cap, weight, (draining, failing)))| PlanMember {
            cap,
            weight,
            draining,
            failing,
            ..member(id)
        });
        let tasks =
            (0..).zip(tasks).map(|(id, (owner, since, settled))| PlannedTask { id, owner, since, settled });
        YieldingFleet { tasks: tasks.collect(), members: members.collect(), avoid }
    })
}

impl YieldingFleet {
    fn plan(&self) -> Plan<u32, u32> {
        plan_avoiding(&self.tasks, &self.members, &self.avoid)
    }

    fn avoids(&self, task: u32, member: u32) -> bool {
        self.avoid.get(&task).is_some_and(|avoided| avoided.iter().any(|one| one.by == member))
    }

    fn probes(&self, task: u32, member: u32) -> bool {
        let probe = |all: &Vec<GaveUp<u32>>| all.iter().any(|one| one.by == member && one.probe);
        self.members[member as usize].failing && self.avoid.get(&task).is_some_and(probe)
    }

    fn owner(&self, task: &PlannedTask<u32, u32>) -> Option<u32> {
        task.owner.filter(|owner| (*owner as usize) < self.members.len())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..crate::tests::seeded::config() })]

    #[test]
    fn a_task_is_not_given_to_a_member_that_gave_it_up_while_another_has_room(fleet in yielding_fleets()) {
        let plan = fleet.plan();
        let after = made(&fleet.tasks, &plan);
        for one in &plan.moves {
            let before = &fleet.tasks[one.task as usize];
            prop_assert_eq!(one.from, fleet.owner(before));
            prop_assert!(one.to != one.from);
            prop_assert!(one.from.is_none() || before.settled, "what came just now stays");
            let is_probe = |to: &u32| one.from.is_some() && fleet.probes(one.task, *to);
            let Some(to) = one.to.filter(|to| fleet.avoids(one.task, *to) && !is_probe(to)) else { continue };
            for other in fleet.members.iter().filter(|other| !other.draining && !fleet.avoids(one.task, other.id)) {
                let has = count_of(&after, other.id);
                prop_assert!(has >= other.cap as usize, "{:?} has room for {:?}, not {}", other, one, to);
            }
        }
        for member in &fleet.members {
            let (had, has) = (count_of(&fleet.tasks, member.id), count_of(&after, member.id));
            prop_assert!(has <= (member.cap as usize).max(had), "a cap is kept");
        }
    }

    #[test]
    fn no_task_waits_because_it_was_given_up(fleet in yielding_fleets()) {
        let plain: Vec<_> = fleet.members.iter().map(|member| PlanMember { failing: false, ..*member }).collect();
        prop_assert_eq!(fleet.plan().waiting.len(), plan(&fleet.tasks, &plain).waiting.len());
    }

    /// Each does its part when it likes; whatever came first, it comes to an end, and no task goes to and fro.
    #[test]
    fn moves_come_to_an_end_in_any_order(mut fleet in yielding_fleets(), mut seed in any::<u64>()) {
        let mut moved = BTreeMap::new();
        loop {
            let plan = fleet.plan();
            let at = usize::try_from(seed % plan.moves.len().max(1) as u64).unwrap();
            let Some(one) = plan.moves.get(at).copied() else { break };
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // A probe is one task at a time, and then the next in a while.
            if let Some(probed) = one.to.filter(|to| one.from.is_some() && fleet.probes(one.task, *to)) {
                for gave_up in fleet.avoid.values_mut().flatten().filter(|gave_up| gave_up.by == probed) {
                    gave_up.probe = false;
                }
            }
            fleet.tasks = made(&fleet.tasks, &Plan { moves: vec![one], ..plan });
            *moved.entry(one.task).or_insert(0) += 1;
            prop_assert!(moved[&one.task] <= 3, "{:?} moves again", one);
        }
    }

    #[test]
    fn the_order_in_which_it_is_told_does_not_matter_either(fleet in yielding_fleets()) {
        let mut mixed = fleet.clone();
        mixed.tasks.reverse();
        mixed.members.reverse();
        prop_assert_eq!(plan_avoiding(&mixed.tasks, &mixed.members, &fleet.avoid), fleet.plan());
    }
}
