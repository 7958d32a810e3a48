//! Groups of members that plan together: no member is planned a task that it is not known to know.
//!
//! While all know the same tasks there is one group, of all. During a deploy the versions share what is the
//! same in the sets of both, and each has its own besides. The groups are planned one after the other, and
//! what a member has or gets in the others counts in each.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{Judged, OwnMember, Peer, SpreadView};
use crate::{
    logic::{
        digest::agree,
        plan::{self, PLAN_VERSION, Plan, PlanMember, PlannedTask},
    },
    model::{Digest, Key, SessionId, SpreadName},
    store::Share,
};

/// Returns whether that one takes part in the plan of that part of my tasks.
pub(super) fn plans_with(me: &OwnMember, peer: &Peer, part: u16) -> bool {
    takes_part(peer) && agree(&me.share, &peer.share, part)
}

/// Returns whether it is planned for. A member that pauses or closes for a restart keeps its tasks, and gets none.
const fn takes_part(peer: &Peer) -> bool {
    !peer.share.paused && peer.share.reserved.is_zero()
}

/// Tasks that are known to the same members.
struct Group<'a> {
    members: Vec<SessionId>,
    tasks: Vec<PlannedTask<&'a Key, SessionId>>,
    /// Number of them each member has.
    has: BTreeMap<SessionId, usize>,
}

/// Plans these tasks, each with its part. `left` is the number of tasks known here that each member has besides.
pub(super) fn plan<'a>(
    view: &SpreadView,
    me: &OwnMember,
    tasks: impl Iterator<Item = (u16, PlannedTask<&'a Key, SessionId>)>,
    left: &BTreeMap<SessionId, usize>,
    judged: &Judged<'a>,
) -> Plan<&'a Key, SessionId> {
    let member = |id: SessionId, share: &Share, version: u32| PlanMember {
        id,
        cap: share.cap,
        weight: share.weight,
        draining: share.draining,
        load: 0,
        apart: version != PLAN_VERSION,
        failing: judged.failing.contains(&id),
        gave_up: judged.just_gave_up.get(&id).copied().unwrap_or(0),
        rank: rank(&view.spread, &[id]),
    };
    let others = view.members().filter(|(id, peer)| *id != me.session && takes_part(peer));
    let (alike, otherwise): (Vec<_>, Vec<_>) =
        others.partition(|(_, peer)| peer.share.digest == me.share.digest);
    let mut alike: BTreeMap<_, _> =
        alike.into_iter().map(|(id, peer)| (id, member(id, &peer.share, peer.plan_version))).collect();
    alike.insert(me.session, member(me.session, &me.share, PLAN_VERSION));
    if otherwise.iter().all(|(_, peer)| peer.share.buckets.is_none()) {
        // All tasks, for the members of the same task set only.
        let (tasks, members): (Vec<_>, Vec<_>) =
            (tasks.map(|(_, task)| task).collect(), alike.into_values().collect());
        return plan::plan_avoiding(&tasks, &members, &judged.gave_up);
    }
    let whole: Vec<_> = alike.keys().copied().collect();
    let mut groups = grouped(me, &whole, &otherwise, tasks);
    let mut members = alike;
    let besides = view.foreign_counts();
    for (id, peer) in otherwise {
        let mut member = member(id, &peer.share, peer.plan_version);
        // Tasks it has that are not known here. A member that knows the same as this instance gives such a task away
        // already.
        member.load = besides.get(&id).copied().unwrap_or(0);
        members.insert(id, member);
    }
    for (id, member) in &mut members {
        member.load += left.get(id).copied().unwrap_or(0);
    }
    groups.sort_by_cached_key(|group| (Reverse(group.members.len()), rank_of(view, &group.members)));
    one_by_one(&groups, &mut members, judged)
}

fn rank_of(view: &SpreadView, members: &[SessionId]) -> u64 {
    rank(&view.spread, members)
}

/// A place in an order that is another in each spread.
fn rank(spread: &SpreadName, sessions: &[SessionId]) -> u64 {
    let mut hash = Digest::default();
    hash.write(spread.as_str().as_bytes());
    hash.write(&[0]);
    for session in sessions {
        hash.write(&session.as_u128().to_be_bytes());
    }
    hash.mixed()
}

/// The tasks by the members that are known to know them.
fn grouped<'a>(
    me: &OwnMember,
    whole: &[SessionId],
    otherwise: &[(SessionId, &Peer)],
    tasks: impl Iterator<Item = (u16, PlannedTask<&'a Key, SessionId>)>,
) -> Vec<Group<'a>> {
    let mut parts: BTreeMap<u16, Vec<_>> = BTreeMap::new();
    for (part, task) in tasks {
        parts.entry(part).or_default().push(task);
    }
    let mut groups: BTreeMap<Vec<SessionId>, Vec<_>> = BTreeMap::new();
    for (part, tasks) in parts {
        let know = otherwise.iter().filter(|(_, peer)| agree(&me.share, &peer.share, part));
        groups.entry(know.map(|(id, _)| *id).collect()).or_default().extend(tasks);
    }
    let group = |(know, tasks): (Vec<SessionId>, Vec<PlannedTask<&'a Key, SessionId>>)| {
        let members: BTreeSet<_> = whole.iter().chain(&know).copied().collect();
        let mut has: BTreeMap<_, usize> = BTreeMap::new();
        for owner in tasks.iter().filter_map(|task| task.owner) {
            *has.entry(owner).or_default() += 1;
        }
        Group { members: members.into_iter().collect(), tasks, has }
    };
    groups.into_iter().map(group).collect()
}

/// Plans the groups in their order. A member's load besides is what it was planned in the groups before; and in the
/// groups that follow what it has, and its part of the tasks without an owner there.
fn one_by_one<'a>(
    groups: &[Group<'a>],
    members: &mut BTreeMap<SessionId, PlanMember<SessionId>>,
    judged: &Judged<'a>,
) -> Plan<&'a Key, SessionId> {
    for group in groups {
        for (owner, has) in &group.has {
            if let Some(member) = members.get_mut(owner) {
                member.load += has;
            }
        }
    }
    // The smallest groups first: the members that know them have no choice.
    let mut expected = Vec::new();
    for group in groups.iter().rev() {
        let orphans: Vec<_> = group.tasks.iter().filter(|task| task.owner.is_none()).copied().collect();
        let targets = plan::plan(&orphans, &group.of(members)).targets;
        for (id, target) in &targets {
            members.entry(*id).and_modify(|member| member.load += target);
        }
        expected.push(targets);
    }
    let mut all = Plan { moves: Vec::new(), waiting: Vec::new(), targets: Vec::new() };
    let mut targets: BTreeMap<_, usize> = BTreeMap::new();
    for group in groups {
        for (id, expected) in expected.pop().into_iter().flatten() {
            let has = group.has.get(&id).copied().unwrap_or(0);
            members.entry(id).and_modify(|member| member.load -= has + expected);
        }
        let plan = plan::plan_avoiding(&group.tasks, &group.of(members), &judged.gave_up);
        for (id, target) in plan.targets {
            members.entry(id).and_modify(|member| member.load += target);
            *targets.entry(id).or_default() += target;
        }
        all.moves.extend(plan.moves);
        all.waiting.extend(plan.waiting);
    }
    all.moves.sort_unstable_by_key(|one| one.task);
    all.waiting.sort_unstable();
    all.targets = targets.into_iter().collect();
    all
}

impl Group<'_> {
    fn of(&self, members: &BTreeMap<SessionId, PlanMember<SessionId>>) -> Vec<PlanMember<SessionId>> {
        self.members.iter().filter_map(|id| members.get(id)).copied().collect()
    }
}
