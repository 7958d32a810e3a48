//! A plan in the making: first the tasks without an owner, then those that move.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{GaveUp, Move, Plan, PlanMember, PlannedTask, quota};

/// Tasks by their ids and members by their ranks, each named by its place.
pub(super) struct Draft<T, M> {
    tasks: Vec<PlannedTask<T, M>>,
    members: Vec<PlanMember<M>>,
    owners: Vec<Option<usize>>,
    /// Future owners of the tasks that get one.
    successors: Vec<Option<usize>>,
    /// Number of tasks of each member, with those it gets.
    counts: Vec<usize>,
    /// Members that gave a task up, the one first that did so longest ago.
    avoided: BTreeMap<usize, Vec<GaveUp<usize>>>,
    /// Tasks that their owners may not keep, and for which no member has room.
    homeless: BTreeSet<usize>,
}

impl<T: Ord + Copy, M: Ord + Copy> Draft<T, M> {
    pub(super) fn new(
        tasks: &[PlannedTask<T, M>],
        members: &[PlanMember<M>],
        gave_up: &BTreeMap<T, Vec<GaveUp<M>>>,
    ) -> Self {
        let mut members = members.to_vec();
        members.sort_unstable_by_key(|member| (member.rank, member.id));
        let mut tasks = tasks.to_vec();
        tasks.sort_unstable_by_key(|task| task.id);
        let places: BTreeMap<M, usize> =
            members.iter().enumerate().map(|(at, member)| (member.id, at)).collect();
        let owners: Vec<Option<usize>> = tasks.iter().map(|task| places.get(&task.owner?).copied()).collect();
        let mut counts = vec![0; members.len()];
        for owner in owners.iter().flatten() {
            counts[*owner] += 1;
        }
        let mut avoided = BTreeMap::new();
        for (task, all) in gave_up {
            if let Ok(at) = tasks.binary_search_by_key(task, |task| task.id) {
                let place = |one: &GaveUp<M>| Some(GaveUp { by: *places.get(&one.by)?, probe: one.probe });
                avoided.insert(at, all.iter().filter_map(place).collect());
            }
        }
        let successors = vec![None; tasks.len()];
        Self { tasks, members, owners, successors, counts, avoided, homeless: BTreeSet::new() }
    }

    /// The most tasks each may have, while others have room.
    pub(super) fn limits(&self) -> Vec<usize> {
        let limits = self.members.iter().zip(&self.counts);
        limits.map(|(member, count)| if member.failing { *count } else { usize::MAX }).collect()
    }

    /// Number of tasks each is to have, within these limits while others have room.
    pub(super) fn targets(&self, limits: &[usize]) -> Vec<usize> {
        self.targets_with(0, limits)
    }

    /// Number of tasks each is to have once the tasks that rest for a moment run again.
    pub(super) fn parts(&self) -> Vec<usize> {
        // Several may have given the same one up: these are at least so many.
        let resting = self.members.iter().map(|member| member.gave_up).max().unwrap_or(0);
        self.targets_with(resting, &self.limits())
    }

    fn targets_with(&self, more: usize, limits: &[usize]) -> Vec<usize> {
        let orphans = (0..self.tasks.len()).filter(|at| self.owner(*at).is_none()).count();
        quota::targets(self.tasks.len() + more, orphans + more, &self.members, &self.counts, limits)
    }

    fn owner(&self, task: usize) -> Option<usize> {
        self.successors[task].or(self.owners[task])
    }

    fn avoids(&self, task: usize, member: usize) -> bool {
        self.avoided.get(&task).is_some_and(|avoided| avoided.iter().any(|one| one.by == member))
    }

    fn gives_to(&mut self, task: usize, successor: usize) {
        if let Some(owner) = self.owners[task] {
            self.counts[owner] -= 1;
        }
        self.counts[successor] += 1;
        self.successors[task] = Some(successor);
    }

    /// Number of tasks each gave up that another has or is to try in a moment.
    fn given_up(&self) -> Vec<usize> {
        let mut given: Vec<_> = self.members.iter().map(|member| member.gave_up).collect();
        for (task, all) in &self.avoided {
            let Some(owner) = self.owner(*task) else { continue };
            for one in all.iter().filter(|one| one.by != owner) {
                given[one.by] += 1;
            }
        }
        given
    }

    /// Gives the tasks without an owner to members that lack some. A task that these gave up goes to the emptiest
    /// other member with room; only where there is none to a member that gave it up, the one first that did so
    /// longest ago.
    pub(super) fn place_orphans(&mut self, targets: &[usize]) {
        let mut lacks = Lacks::new(self, targets);
        let mut orphans: Vec<_> = (0..self.tasks.len()).filter(|at| self.owners[*at].is_none()).collect();
        orphans.sort_by_key(|task| (Reverse(self.avoided.contains_key(task)), *task));
        for task in orphans {
            let fit = lacks.take(|member| !self.avoids(task, member));
            let successor = fit.or_else(|| self.any_with_room(task, &mut lacks));
            if let Some(successor) = successor {
                self.gives_to(task, successor);
            }
        }
    }

    /// A member for a task that no other lacks: the emptiest with room, or the one that gave it up longest ago.
    fn any_with_room(&self, task: usize, lacks: &mut Lacks) -> Option<usize> {
        let gave_up = || {
            let with_room = self.avoided.get(&task)?.iter().map(|one| one.by).filter(|by| self.has_room(*by));
            with_room.min_by_key(|by| self.members[*by].failing)
        };
        let Some(member) = self.emptiest(task).or_else(gave_up) else { return lacks.take(|_| true) };
        lacks.take(|lacking| lacking == member);
        Some(member)
    }

    fn has_room(&self, member: usize) -> bool {
        self.members[member].has_room(self.counts[member])
    }

    /// The emptiest member with room that did not give the task up; one that fails only if there is no other.
    fn emptiest(&self, task: usize) -> Option<usize> {
        let fits = |at: &usize| self.has_room(*at) && !self.avoids(task, *at);
        let member = |at: usize| (&self.members[at], self.counts[at]);
        (0..self.members.len()).filter(fits).min_by(|a, b| {
            let ((one, has), (other, others)) = (member(*a), member(*b));
            one.order(has, other, others)
        })
    }

    /// Number of tasks each is to have, where a member is owed none of its part for those it gave up: nothing that runs is
    /// stopped to make up for them.
    pub(super) fn yielding(&self, parts: &[usize]) -> Vec<usize> {
        let given = self.given_up();
        if given.iter().all(|given| *given == 0) {
            return parts.to_vec();
        }
        let owed = |(at, limit): (usize, usize)| match given[at] {
            0 => limit,
            given => limit.min(parts[at].saturating_sub(given)).max(self.counts[at]),
        };
        let limits: Vec<_> = self.limits().into_iter().enumerate().map(owed).collect();
        self.targets(&limits)
    }

    /// Moves to each failing member that is to be probed, and has less than its part, one of the tasks that it gave up: the
    /// one that has been where it is for longest.
    pub(super) fn probe(&mut self, targets: &mut [usize]) {
        if !self.members.iter().any(|member| member.failing) {
            return;
        }
        let parts = self.targets(&vec![usize::MAX; self.members.len()]);
        for (member, part) in parts.into_iter().enumerate() {
            if !self.members[member].failing || self.counts[member] >= part || !self.has_room(member) {
                continue;
            }
            let may_go = |task: &usize| {
                let runs = self.owners[*task].is_some_and(|owner| owner != member);
                let stays = self.successors[*task].is_none() && !self.homeless.contains(task);
                runs && stays && self.tasks[*task].settled
            };
            let probes = |all: &[GaveUp<usize>]| all.iter().any(|one| one.by == member && one.probe);
            let tasks = self.avoided.iter().filter(|(_, all)| probes(all)).map(|(task, _)| *task);
            if let Some(task) = tasks.filter(may_go).min_by_key(|task| (self.tasks[*task].since, *task))
                && let Some(owner) = self.owners[task]
            {
                targets[owner] = targets[owner].saturating_sub(1);
                targets[member] += 1;
                self.gives_to(task, member);
            }
        }
    }

    /// Moves what is too much, what came last first, to members that lack some. Another task goes in the place of one
    /// that they all gave up, or none; but one that must go, goes to the emptiest other, or to none.
    pub(super) fn even_out(&mut self, targets: &[usize]) {
        let mut lacks = Lacks::new(self, targets);
        let mut spare = self.movable(targets);
        let mut given = Vec::new();
        for (owner, tasks) in spare.iter_mut().enumerate() {
            let excess = self.counts[owner].saturating_sub(targets[owner]).min(tasks.len());
            given.extend(tasks.drain(..excess));
        }
        // In the order in which they become too many: a plan by fewer tasks gives the first to the same members.
        given.sort_unstable_by_key(|task| {
            Reverse((self.avoided.contains_key(task), self.tasks[*task].since, *task))
        });
        for task in given {
            let Some(owner) = self.owners[task] else { continue };
            if let Some(successor) = lacks.take(|member| !self.avoids(task, member)) {
                self.gives_to(task, successor);
            } else if self.must_give(owner) {
                match self.any_with_room(task, &mut lacks) {
                    Some(successor) => self.gives_to(task, successor),
                    None => _ = self.homeless.insert(task),
                }
            } else {
                let fits = |other: &usize| lacks.any(|member| !self.avoids(*other, member));
                if let Some(other) = spare[owner].iter().position(fits).map(|at| spare[owner].remove(at))
                    && let Some(successor) = lacks.take(|member| !self.avoids(other, member))
                {
                    self.gives_to(other, successor);
                }
            }
        }
    }

    /// Tasks that the members with too many may give, what came last first: so what is given away does not depend on
    /// what was given before.
    fn movable(&self, targets: &[usize]) -> Vec<Vec<usize>> {
        let mut movable = vec![Vec::new(); self.members.len()];
        for (at, task) in self.tasks.iter().enumerate() {
            if let Some(owner) = self.owners[at].filter(|owner| self.counts[*owner] > targets[*owner])
                && task.settled
            {
                movable[owner].push(at);
            }
        }
        for tasks in &mut movable {
            tasks.sort_unstable_by_key(|at| Reverse((self.tasks[*at].since, *at)));
        }
        movable
    }

    fn must_give(&self, owner: usize) -> bool {
        let (member, count) = (&self.members[owner], self.counts[owner]);
        member.draining || member.weight == 0 || count + member.load > member.cap as usize
    }

    pub(super) fn into_plan(self, targets: &[usize]) -> Plan<T, M> {
        let (mut moves, mut waiting) = (Vec::new(), Vec::new());
        for (at, task) in self.tasks.iter().enumerate() {
            let from = self.owners[at].map(|owner| self.members[owner].id);
            let to = self.successors[at].map(|successor| self.members[successor].id);
            let is_homeless = self.homeless.contains(&at);
            if to.is_some() || is_homeless {
                moves.push(Move { task: task.id, from, to });
            }
            if to.is_none() && (from.is_none() || is_homeless) {
                waiting.push(task.id);
            }
        }
        let mut targets: Vec<_> =
            self.members.iter().zip(targets).map(|(member, target)| (member.id, *target)).collect();
        targets.sort_unstable();
        Plan { moves, waiting, targets }
    }
}

/// Members that lack tasks, in the order in which they get some, and how many each.
struct Lacks(Vec<(usize, usize)>);

impl Lacks {
    /// Puts members first to whom nothing may be moved: they get only orphans.
    fn new<T: Ord + Copy, M: Ord + Copy>(draft: &Draft<T, M>, targets: &[usize]) -> Self {
        let given = draft.given_up();
        let mut order: Vec<_> = (0..targets.len()).collect();
        order.sort_by_key(|at| (!draft.members[*at].apart, given[*at] == 0));
        let lacks = |at: usize| (at, targets[at].saturating_sub(draft.counts[at]));
        Self(order.into_iter().map(lacks).filter(|(_, lacks)| *lacks > 0).collect())
    }

    fn any(&self, fits: impl Fn(usize) -> bool) -> bool {
        self.0.iter().any(|(member, _)| fits(*member))
    }

    /// The first that fits, which lacks one less from then on.
    fn take(&mut self, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let at = self.0.iter().position(|(member, _)| fits(*member))?;
        let (member, lacks) = &mut self.0[at];
        *lacks -= 1;
        let taken = *member;
        if self.0[at].1 == 0 {
            self.0.remove(at);
        }
        Some(taken)
    }
}
