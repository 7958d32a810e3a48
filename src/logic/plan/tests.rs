//! The plan against an optimum that is found in another way, and against the vectors that catch others.

use std::cmp::Reverse;

use proptest::prelude::*;

use super::*;

fn member(id: u32) -> PlanMember<u32> {
    PlanMember {
        id,
        cap: u32::MAX,
        weight: 1,
        draining: false,
        load: 0,
        apart: false,
        failing: false,
        gave_up: 0,
        rank: 0,
    }
}

fn task(id: u32, owner: Option<u32>) -> PlannedTask<u32, u32> {
    PlannedTask { id, owner, since: 0, settled: true }
}

/// Tasks and their owners once the moves are made.
fn made(tasks: &[PlannedTask<u32, u32>], plan: &Plan<u32, u32>) -> Vec<PlannedTask<u32, u32>> {
    let after = |old: &PlannedTask<u32, u32>| {
        let to = plan.moves.iter().find(|one| one.task == old.id).map(|one| one.to);
        PlannedTask { owner: to.unwrap_or(old.owner), ..*old }
    };
    tasks.iter().map(after).collect()
}

fn count_of(tasks: &[PlannedTask<u32, u32>], id: u32) -> usize {
    tasks.iter().filter(|task| task.owner == Some(id)).count()
}

/// Returns so many tasks, spread evenly over so many members.
fn balanced(tasks: u32, members: u32) -> (Vec<PlannedTask<u32, u32>>, Vec<PlanMember<u32>>) {
    let all: Vec<_> = (0..tasks).map(|id| task(id, None)).collect();
    let members: Vec<_> = (0..members).map(member).collect();
    let all = made(&all, &plan(&all, &members));
    (all, members)
}

/// Number of tasks that change hands when members join.
fn moves_of_a_join(tasks: u32, from: u32, to: u32) -> usize {
    let (tasks, mut members) = balanced(tasks, from);
    members.extend((from..to).map(member));
    let plan = plan(&tasks, &members);
    let after = made(&tasks, &plan);
    let counts: Vec<_> = members.iter().map(|member| count_of(&after, member.id)).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= 1, "{counts:?}");
    assert!(plan.moves.iter().all(|one| one.to.is_some_and(|to| to >= from)), "only those who join get any");
    plan.moves.len()
}

#[test]
fn a_join_moves_as_few_as_can_be() {
    for (tasks, from, to, moves) in [
        (100, 10, 11, 9),
        (100, 10, 15, 30),
        (100, 7, 8, 12),
        (1000, 20, 21, 47),
        (12, 3, 4, 3),
        (2, 2, 5, 0),
    ] {
        assert_eq!(moves_of_a_join(tasks, from, to), moves, "{tasks} tasks, {from} to {to} members");
    }
}

#[test]
fn a_newcomer_gets_its_part_also_when_the_others_have_theirs_exactly() {
    // 10 each for 10 members: a member that rounds up finds nothing to give to the eleventh.
    assert_eq!(moves_of_a_join(100, 10, 11), 9);
    assert_eq!(moves_of_a_join(30, 3, 4), 7);
}

#[test]
fn a_leaving_member_moves_only_its_own_tasks() {
    let (tasks, members) = balanced(100, 10);
    let plan = plan(&tasks, &members[1..]);
    assert_eq!(plan.moves.len(), 10);
    assert!(plan.moves.iter().all(|one| one.from.is_none()), "whoever is no member owns nothing");
}

#[test]
fn a_draining_member_gives_all_its_tasks_and_gets_none() {
    let (tasks, mut members) = balanced(100, 10);
    members[3].draining = true;
    let plan = plan(&tasks, &members);
    assert_eq!(plan.moves.len(), 10);
    assert!(plan.moves.iter().all(|one| one.from == Some(3) && one.to != Some(3) && one.to.is_some()));
    assert_eq!(plan.targets[3], (3, 0));
}

#[test]
fn caps_are_kept_and_what_nobody_has_room_for_waits() {
    let tasks: Vec<_> = (0..100).map(|id| task(id, None)).collect();
    let mut members: Vec<_> = (0..10).map(member).collect();
    for member in &mut members {
        member.cap = 9;
    }
    let first = plan(&tasks, &members);
    assert_eq!((first.moves.len(), first.waiting.len()), (90, 10));
    let after = made(&tasks, &first);
    let again = plan(&after, &members);
    assert_eq!((again.moves, again.waiting), (vec![], first.waiting), "those who wait go on waiting");
    // A cap that is lowered is kept, though no other member has room.
    members[0].cap = 5;
    let less = plan(&after, &members);
    assert_eq!(less.moves.len(), 4);
    assert!(less.moves.iter().all(|one| one.from == Some(0) && one.to.is_none()));
    assert_eq!(less.waiting.len(), 14);
}

#[test]
fn weights_are_shares_and_what_a_cap_cuts_off_goes_to_the_others() {
    let tasks: Vec<_> = (0..100).map(|id| task(id, None)).collect();
    let mut members: Vec<_> = (0..3).map(member).collect();
    (members[0].weight, members[1].weight) = (3, 1);
    let counts = |members: &[PlanMember<u32>]| {
        plan(&tasks, members).targets.iter().map(|(_, count)| *count).collect::<Vec<_>>()
    };
    assert_eq!(counts(&members), [60, 20, 20]);
    members[0].cap = 40;
    assert_eq!(counts(&members), [40, 30, 30]);
    members[1].weight = 0;
    assert_eq!(counts(&members), [40, 0, 60], "without weight, nothing");
}

#[test]
fn unsettled_tasks_are_not_moved_on() {
    let (mut tasks, mut members) = balanced(10, 1);
    members.push(member(1));
    for task in &mut tasks[2..] {
        task.settled = false;
    }
    let plan = plan(&tasks, &members);
    assert_eq!(plan.moves.iter().map(|one| one.task).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(plan.targets, [(0, 5), (1, 5)], "where it is going stays");
}

#[test]
fn moves_that_were_made_change_nothing_of_those_that_are_left() {
    let (tasks, mut members) = balanced(50, 4);
    members.extend((4..7).map(member));
    members[1].draining = true;
    let whole = plan(&tasks, &members);
    for skip in 0..3 {
        let some = whole.moves.iter().skip(skip).step_by(3).copied().collect::<Vec<_>>();
        let partly = Plan { moves: some.clone(), ..whole.clone() };
        let rest = plan(&made(&tasks, &partly), &members);
        let expected: Vec<_> = whole.moves.iter().filter(|one| !some.contains(one)).copied().collect();
        assert_eq!(rest.moves, expected);
    }
}

#[test]
fn tasks_that_came_last_are_given_first() {
    let (mut tasks, mut members) = balanced(10, 1);
    members.push(member(1));
    for (task, since) in tasks.iter_mut().zip([5, 1, 9, 2, 8, 3, 7, 4, 6, 0]) {
        task.since = since;
    }
    let given: Vec<_> =
        plan(&tasks, &members).moves.iter().map(|one| tasks[one.task as usize].since).collect();
    assert_eq!(given, [5, 9, 8, 7, 6], "in the order of their names, those that came after the other five");
}

#[test]
fn other_load_of_a_member_counts_as_tasks_of_this_plan() {
    let tasks: Vec<_> = (0..12).map(|id| task(id, None)).collect();
    let mut members: Vec<_> = (0..3).map(member).collect();
    let counts = |members: &[PlanMember<u32>]| {
        plan(&tasks, members).targets.iter().map(|(_, count)| *count).collect::<Vec<_>>()
    };
    members[0].load = 3;
    assert_eq!(counts(&members), [2, 5, 5]);
    members[1].load = 20;
    assert_eq!(counts(&members), [5, 0, 7], "it has more than its part, and the others share what is left");
    members[2].weight = 2;
    assert_eq!(counts(&members), [2, 0, 10]);
    members[2].cap = 4;
    assert_eq!(counts(&members), [8, 0, 4]);
    (members[0].cap, members[1].cap) = (4, 20);
    let planned = plan(&tasks, &members);
    assert_eq!((planned.moves.len(), planned.waiting.len()), (5, 7), "its cap is for all that it has");
}

#[test]
fn a_member_of_another_plan_exchanges_no_tasks_and_gets_its_part_of_the_free_ones() {
    let (mut tasks, mut members) = balanced(30, 2);
    members.push(PlanMember { apart: true, ..member(2) });
    let first = plan(&tasks, &members);
    assert_eq!((first.moves, first.targets), (vec![], vec![(0, 15), (1, 15), (2, 0)]), "nothing is free");
    tasks.extend((30..36).map(|id| task(id, None)));
    let lacks = plan(&tasks, &members);
    assert!(lacks.moves.len() == 6 && lacks.moves.iter().all(|one| one.to == Some(2)), "{lacks:?}");
    // It has more than its part: that is its own, and what is left is shared by the others.
    for task in &mut tasks[..34] {
        task.owner = Some(2);
    }
    let keeps = plan(&tasks, &members);
    assert_eq!(keeps.targets, [(0, 1), (1, 1), (2, 34)]);
    assert!(keeps.moves.iter().all(|one| one.from.is_none()), "{keeps:?}");
}

// ----- against every way there is

#[derive(Clone, Debug)]
struct SmallFleet {
    tasks: Vec<PlannedTask<u32, u32>>,
    members: Vec<PlanMember<u32>>,
}

/// Small enough to try everything. Owners may be gone.
fn fleets() -> impl Strategy<Value = SmallFleet> {
    let load = prop_oneof![Just(0_usize), 0_usize..5];
    let member = (0_u32..7, 0_u32..4, prop::bool::weighted(0.2), load, 0_u64..3);
    let members = prop::collection::vec(member, 1..4);
    (members, prop::collection::vec(prop::option::of(0_u32..4), 0..6)).prop_map(|(members, owners)| {
        let member =
            |(id, (cap, weight, draining, load, rank)): (usize, (u32, u32, bool, usize, u64))| PlanMember {
                id: u32::try_from(id).unwrap(),
                cap,
                weight,
                draining,
                load,
                apart: false,
                failing: false,
                gave_up: 0,
                rank,
            };
        let members = members.into_iter().enumerate().map(member).collect();
        let task = |(id, owner): (usize, Option<u32>)| PlannedTask {
            since: id as u64 * 7 % 5,
            ..task(u32::try_from(id).unwrap(), owner)
        };
        SmallFleet { members, tasks: owners.into_iter().enumerate().map(task).collect() }
    })
}

/// Largest and planned count of each member, found by giving away thousandths of tasks one by one.
fn quotas(fleet: &SmallFleet) -> Vec<f64> {
    let bounds = |member: &PlanMember<u32>| {
        let least = member.load as f64;
        let gets = !member.draining && member.weight > 0;
        if gets { (least, f64::from(member.cap).max(least)) } else { (0.0, 0.0) }
    };
    let least: f64 = fleet.members.iter().map(|member| bounds(member).0).sum();
    let most: f64 = fleet.members.iter().map(|member| bounds(member).1).sum();
    let total = most.min(least + fleet.tasks.len() as f64);
    // The level at which all the shares together are the tasks, by halving.
    let shares = |level: f64| -> Vec<f64> {
        let share = |member: &PlanMember<u32>| {
            let (least, most) = bounds(member);
            (level * f64::from(member.weight)).clamp(least, most)
        };
        fleet.members.iter().map(share).collect()
    };
    let (mut low, mut high) = (0.0, 1000.0);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if shares(middle).iter().sum::<f64>() < total { low = middle } else { high = middle }
    }
    shares(high).into_iter().zip(&fleet.members).map(|(share, member)| share - bounds(member).0).collect()
}

/// The best of all ways to own these tasks: how many have an owner, and how many moved.
fn best(fleet: &SmallFleet) -> (usize, usize) {
    let quotas = quotas(fleet);
    let ways = fleet.members.len() + 1;
    let mut best: Option<(usize, Reverse<usize>)> = None;
    for way in 0..ways.pow(u32::try_from(fleet.tasks.len()).unwrap()) {
        let mut counts = vec![0_usize; fleet.members.len()];
        let (mut rest, mut owned, mut moved) = (way, 0, 0);
        for task in &fleet.tasks {
            let to = rest % ways;
            rest /= ways;
            if to < fleet.members.len() {
                counts[to] += 1;
                owned += 1;
            }
            let from = task.owner.filter(|owner| (*owner as usize) < fleet.members.len());
            moved += usize::from(from.is_some_and(|from| from as usize != to));
        }
        let within = counts.iter().zip(&quotas).all(|(count, quota)| (*count as f64 - quota).abs() < 0.9999);
        let room = |member: &PlanMember<u32>| (member.cap as usize).saturating_sub(member.load);
        let capped = counts.iter().zip(&fleet.members).all(|(count, member)| *count <= room(member));
        if within && capped {
            best = best.max(Some((owned, Reverse(moved))));
        }
    }
    let (owned, Reverse(moved)) = best.expect("there is a way");
    (owned, moved)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..crate::tests::seeded::config() })]

    #[test]
    fn no_other_way_owns_more_or_moves_less(fleet in fleets()) {
        let SmallFleet { tasks, members } = &fleet;
        let planned = plan(tasks, members);
        let after = made(tasks, &planned);
        let quotas = quotas(&fleet);
        for ((member, target), quota) in members.iter().zip(&planned.targets).zip(quotas) {
            let count = count_of(&after, member.id);
            prop_assert_eq!((member.id, count), *target);
            prop_assert!(count <= (member.cap as usize).saturating_sub(member.load));
            prop_assert!((count as f64 - quota).abs() < 0.9999, "{} of {}", count, quota);
        }
        let owned = after.iter().filter(|task| members.iter().any(|member| Some(member.id) == task.owner));
        let moved = planned.moves.iter().filter(|one| one.from.is_some()).count();
        prop_assert_eq!((owned.count(), moved), best(&fleet));
        prop_assert_eq!(plan(&after, members).moves, vec![], "nothing changed");
    }

    #[test]
    fn moves_that_were_made_change_nothing_of_the_others_whoever_has_what(
        fleet in fleets(), apart in prop::collection::vec(any::<bool>(), 4), some in prop::collection::vec(any::<bool>(), 6)
    ) {
        let SmallFleet { tasks, mut members } = fleet;
        for (member, apart) in members.iter_mut().zip(apart) {
            member.apart = apart;
        }
        let is_apart = |id: Option<u32>| members.iter().any(|member| member.apart && Some(member.id) == id);
        let whole = plan(&tasks, &members);
        for one in &whole.moves {
            prop_assert!(!is_apart(one.from) && (!is_apart(one.to) || one.from.is_none()), "{:?}", one);
        }
        let moves = || whole.moves.iter().copied().zip(some.iter().copied());
        // A task given back for want of room is an orphan, and orphans come first.
        let made_before = |one: &Move<u32, u32>, made: bool| made && one.to.is_some();
        let first = moves().filter(|(one, made)| made_before(one, *made)).map(|(one, _)| one).collect();
        let rest = plan(&made(&tasks, &Plan { moves: first, ..whole.clone() }), &members);
        let left: Vec<_> = moves().filter(|(one, made)| !made_before(one, *made)).map(|(one, _)| one).collect();
        prop_assert_eq!(rest, Plan { moves: left, ..whole });
    }

    /// Orphans, and what each member has beyond its part, if the members that have most get the larger parts.
    #[test]
    fn large_fleets_move_as_few_as_arithmetic_says(
        counts in prop::collection::vec(0_u32..40, 1..40), newcomers in 0_u32..10, orphans in 0_u32..60
    ) {
        let mut tasks = Vec::new();
        for (owner, count) in (0_u32..).zip(&counts) {
            for _ in 0..*count {
                tasks.push(task(u32::try_from(tasks.len()).unwrap(), Some(owner)));
            }
        }
        for _ in 0..orphans {
            tasks.push(task(u32::try_from(tasks.len()).unwrap(), None));
        }
        let members: Vec<_> = (0..u32::try_from(counts.len()).unwrap() + newcomers).map(member).collect();
        let mut held: Vec<_> = counts.iter().map(|count| *count as usize).collect();
        held.resize(members.len(), 0);
        held.sort_unstable_by(|a, b| b.cmp(a));
        let (floor, larger) = (tasks.len() / members.len(), tasks.len() % members.len());
        let beyond = |(place, count): (usize, &usize)| count.saturating_sub(floor + usize::from(place < larger));
        let least = orphans as usize + held.iter().enumerate().map(beyond).sum::<usize>();
        prop_assert_eq!(plan(&tasks, &members).moves.len(), least);
    }

    #[test]
    fn the_order_in_which_it_is_told_does_not_matter(
        fleet in fleets(), swaps in prop::collection::vec((0_usize..8, 0_usize..8), 0..8)
    ) {
        let mut mixed = fleet.clone();
        for (one, other) in swaps {
            if let (Some(one), Some(other)) = (one.checked_rem(mixed.tasks.len()), other.checked_rem(mixed.tasks.len())) {
                mixed.tasks.swap(one, other);
            }
            let members = mixed.members.len();
            mixed.members.swap(one % members, other % members);
        }
        prop_assert_eq!(plan(&mixed.tasks, &mixed.members), plan(&fleet.tasks, &fleet.members));
    }
}

mod yielding;
