//! Quotas: how many tasks each member is to own.

use std::cmp::Reverse;

use super::PlanMember;

/// Quotas in proportion to the weights, what each member has besides counted in, as far as the caps allow, and these
/// limits while others have room. Members that plan otherwise keep what they have, and get of the orphans only.
pub(super) fn targets<M>(
    tasks: usize,
    orphans: usize,
    members: &[PlanMember<M>],
    counts: &[usize],
    limits: &[usize],
) -> Vec<usize> {
    let mut targets = within(tasks, orphans, members, counts, limits);
    // Others are full: members with a limit get the rest, on top of what they have.
    for _ in targets.iter().sum::<usize>()..tasks {
        let fits = |at: &usize| limits[*at] < usize::MAX && members[*at].has_room(targets[*at]);
        let lower = |a: &usize, b: &usize| members[*a].order(targets[*a], &members[*b], targets[*b]);
        let Some(at) = (0..members.len()).filter(fits).min_by(lower) else { break };
        targets[at] += 1;
    }
    targets
}

fn within<M>(
    tasks: usize,
    orphans: usize,
    members: &[PlanMember<M>],
    counts: &[usize],
    limits: &[usize],
) -> Vec<usize> {
    let everybody: Vec<usize> = (0..members.len()).collect();
    let (apart, others): (Vec<usize>, Vec<usize>) = everybody.iter().partition(|at| members[**at].apart);
    let mut targets = vec![0; members.len()];
    let mut quotas = Quotas { members, counts, limits, targets: &mut targets };
    if apart.is_empty() {
        quotas.fill(tasks, &everybody);
        return targets;
    }
    quotas.fill_or_keep(tasks, everybody);
    let has: usize = apart.iter().map(|at| counts[*at]).sum();
    let lacks = apart.iter().map(|at| quotas.targets[*at]).sum::<usize>() - has;
    if lacks > orphans {
        quotas.fill_or_keep(has + orphans, apart);
        quotas.fill(tasks - has - orphans, &others);
    }
    targets
}

struct Quotas<'a, M> {
    members: &'a [PlanMember<M>],
    counts: &'a [usize],
    limits: &'a [usize],
    targets: &'a mut [usize],
}

/// Number of tasks a member may own, everything counted in.
struct Quota {
    at: usize,
    least: u128,
    most: u128,
    weight: u128,
}

impl<M> Quotas<'_, M> {
    /// Shares out among these; no member apart gets less than it has.
    fn fill_or_keep(&mut self, mut tasks: usize, mut who: Vec<usize>) {
        loop {
            self.fill(tasks, &who);
            let keeps = |at: usize| self.members[at].apart && self.targets[at] < self.counts[at];
            let keep: Vec<usize> = who.iter().copied().filter(|at| keeps(*at)).collect();
            if keep.is_empty() {
                return;
            }
            for at in &keep {
                self.targets[*at] = self.counts[*at];
                tasks = tasks.saturating_sub(self.counts[*at]);
            }
            who.retain(|at| !keep.contains(at));
        }
    }

    fn part(&self, at: usize) -> Option<Quota> {
        let member = &self.members[at];
        let least = member.load as u128;
        let most = u128::from(member.cap).min(least + self.limits[at] as u128);
        let gets = !member.draining && member.weight > 0 && most > least;
        gets.then_some(Quota { at, least, most, weight: u128::from(member.weight) })
    }

    /// Up to one level, in proportion to the weights; and the rest of the division to the members that have it
    /// already, then by the largest fraction, then by rank. Not by the number of tasks: each move would change that.
    fn fill(&mut self, tasks: usize, who: &[usize]) {
        for at in who {
            self.targets[*at] = 0;
        }
        let parts: Vec<Quota> = who.iter().filter_map(|at| self.part(*at)).collect();
        let total = tasks as u128 + parts.iter().map(|part| part.least).sum::<u128>();
        let (height, width) = level(&parts, total);
        let mut left = tasks;
        let mut fractions = Vec::new();
        for Quota { at, least, most, weight } in parts {
            let share = height * weight;
            let whole = if share >= most * width { most } else { (share / width).max(least) };
            let target = usize::try_from(whole - least).unwrap_or(usize::MAX);
            self.targets[at] = target;
            left = left.saturating_sub(target);
            if share > least * width && share < most * width && !share.is_multiple_of(width) {
                fractions.push((at, share % width));
            }
        }
        let first = |(at, fraction): &(usize, u128)| {
            (Reverse(self.counts[*at] > self.targets[*at]), Reverse(*fraction), *at)
        };
        fractions.sort_unstable_by_key(first);
        for (at, _) in fractions.into_iter().take(left) {
            self.targets[at] += 1;
        }
    }
}

/// The level to which all members below it rise, as a fraction: with it they have `total` together, or all
/// that they may.
fn level(parts: &[Quota], total: u128) -> (u128, u128) {
    // At some level each begins to rise, and at another it is full.
    let rising = parts.iter().filter(|part| part.least > 0).map(|part| (part.least, part, true));
    let full = parts.iter().map(|part| (part.most, part, false));
    let mut bounds: Vec<_> = rising.chain(full).collect();
    bounds.sort_unstable_by(|(a, one, _), (b, other, _)| (a * other.weight).cmp(&(b * one.weight)));
    let mut fixed: u128 = parts.iter().map(|part| part.least).sum();
    let mut rise: u128 = parts.iter().filter(|part| part.least == 0).map(|part| part.weight).sum();
    let mut last = (0, 1);
    for (bound, part, rises) in bounds {
        if fixed * part.weight + rise * bound >= total * part.weight {
            return if rise > 0 { (total - fixed, rise) } else { last };
        }
        last = (bound, part.weight);
        if rises {
            (fixed, rise) = (fixed - bound, rise + part.weight);
        } else {
            (fixed, rise) = (fixed + bound, rise - part.weight);
        }
    }
    last
}
