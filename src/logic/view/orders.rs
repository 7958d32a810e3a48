//! Orders of one instance: it plans by its view of the spread, and finds its own part.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Judged, Known, Peer, PeerSeen, SpreadView, TaskPlace,
    groups::{self, plans_with},
};
use crate::{
    clock::Moment,
    logic::plan::{Plan, PlannedTask},
    model::{Digest, Holder, Key, SessionId, StoreTime, Term},
    store::Share,
};

/// Time after which an orphan is forgotten: a member with room takes it, whatever is planned.
const FORGOTTEN: Duration = Duration::from_secs(2);
/// The same for a task that this instance is to get last.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(8);
/// Most forgotten tasks taken at once: the member that was to take them may only be slow.
const MOST_FORGOTTEN: usize = 32;

/// The instance whose view it is.
#[derive(Clone, Debug)]
pub(crate) struct OwnMember {
    pub(crate) session: SessionId,
    pub(crate) holder: Holder,
    /// Opening of its session by the store's clock, as far as that is known.
    pub(crate) started: StoreTime,
    pub(crate) share: Share,
}

/// Relation of this instance to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnTask {
    /// Asks for the lock, and is answered at once.
    Asks,
    /// Waits in the queue for it.
    Waits,
    /// Holds it and works on it.
    Has,
    /// Holds it, and does not give it away now unless it must.
    Keeps,
    /// Is giving it away.
    Gives,
}

/// Action on a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SpreadAction {
    /// Take it: it has no holder, or a dead one.
    Take { key: Key, dead: Option<SessionId> },
    /// Join the queue for it: its holder is to hand it over.
    Wait { key: Key },
    /// Leave the queue.
    Withdraw { key: Key },
    /// Give it away, to that session once it is in the queue; if it must go, in any case.
    Give { key: Key, to: Option<SessionId>, must: bool },
}

/// Result of planning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) orders: Vec<SpreadAction>,
    /// Tasks for which no member has room.
    pub(crate) waiting: BTreeSet<Key>,
    /// Members that fail: they get nothing more while others have room, but for probes.
    pub(crate) failing: BTreeSet<SessionId>,
    /// Members that gave a task up: they get it only if no other has room.
    pub(crate) gave_up: BTreeMap<Key, Vec<SessionId>>,
    /// Number of tasks each member is to have.
    pub(crate) targets: BTreeMap<SessionId, usize>,
    /// Future owners of tasks that another member, or none, has now.
    pub(crate) successors: BTreeMap<Key, Option<SessionId>>,
    /// Moment at which time alone may change the plan.
    pub(crate) next: Option<Moment>,
}

/// The most moves one instance has under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Tasks that it is giving away.
    pub(crate) gives: usize,
    /// Tasks that it waits in the queue of.
    pub(crate) waits: usize,
}

impl SpreadView {
    /// Returns the owner of a task as far as the plan is concerned; `None` if the plan leaves it where it is.
    fn owner(
        &self,
        me: &OwnMember,
        successors: &Successors<'_>,
        mine: Option<&OwnTask>,
        now: Moment,
        known: &Known,
    ) -> Option<Owner> {
        let (place, part) = (&known.place, known.part);
        // A task that this instance has is its own, whatever was read of it.
        if matches!(mine, Some(OwnTask::Has | OwnTask::Keeps | OwnTask::Gives))
            && !matches!(place, TaskPlace::Held { session, .. } if *session == me.session)
        {
            let owner = Owner { session: Some(me.session), settled: false, ..Owner::nobody(now, part) };
            return Some(owner);
        }
        match *place {
            TaskPlace::Unknown | TaskPlace::Refused { .. } => None,
            TaskPlace::Closed { until } => (now >= until).then_some(Owner::nobody(until, part)),
            TaskPlace::Free { since } => Some(Owner::nobody(since, part)),
            TaskPlace::Held { session, term, settles, .. } => {
                let owned = |session| Owner {
                    session: Some(session),
                    dead: None,
                    since: now,
                    term,
                    settled: now >= settles,
                    part,
                };
                if session == me.session {
                    return Some(owned(session));
                }
                match self.sessions.get(&session)? {
                    PeerSeen::Member(peer) => plans_with(me, peer, part).then(|| owned(session)),
                    PeerSeen::Bystander | PeerSeen::Missing => None,
                    PeerSeen::Dead { since } => {
                        Some(Owner { dead: Some(session), ..Owner::nobody(*since, part) })
                    }
                    PeerSeen::Reserved { until, .. } if now >= *until => {
                        Some(Owner { dead: Some(session), ..Owner::nobody(*until, part) })
                    }
                    PeerSeen::Reserved { holder, .. } => {
                        let successor = successors.of(me, holder, part)?;
                        Some(Owner { dead: Some(session), settled: true, ..owned(successor) })
                    }
                }
            }
        }
    }

    /// Returns the members that take over what was reserved for their names.
    fn successors(&self, me: &OwnMember) -> Successors<'_> {
        let mut successors: BTreeMap<Holder, Vec<_>> = BTreeMap::new();
        let is_reserved = |seen: &PeerSeen| matches!(seen, PeerSeen::Reserved { .. });
        if self.sessions.values().any(is_reserved) {
            for (session, peer) in self.members().filter(|(session, _)| *session != me.session) {
                let same = successors.entry(peer.holder.clone()).or_default();
                same.push((peer.started, session, Some(peer)));
            }
            successors.entry(me.holder.clone()).or_default().push((me.started, me.session, None));
        }
        for same in successors.values_mut() {
            same.sort_unstable_by_key(|(started, session, _)| Reverse((*started, *session)));
        }
        Successors(successors)
    }

    /// Keeps these tasks where they are, unless the owner must give all it has or is over its cap.
    fn keep(&self, me: &OwnMember, stays: &BTreeSet<&Key>, owners: &mut [(&Key, Owner)]) {
        if stays.is_empty() {
            return;
        }
        let mut counts: BTreeMap<SessionId, usize> = BTreeMap::new();
        for session in owners.iter().filter_map(|(_, owner)| owner.session) {
            *counts.entry(session).or_default() += 1;
        }
        let must = |session: &SessionId| {
            let share = match self.sessions.get(session) {
                _ if *session == me.session => &me.share,
                Some(PeerSeen::Member(peer)) => &peer.share,
                _ => return false,
            };
            share.draining || share.weight == 0 || counts.get(session) > Some(&(share.cap as usize))
        };
        for (_, owner) in owners.iter_mut().filter(|(key, _)| stays.contains(*key)) {
            owner.settled &= owner.session.as_ref().is_some_and(must);
        }
    }

    /// Plans, and says what this instance does about it.
    pub(crate) fn resolve(
        &self,
        me: &OwnMember,
        mine: &BTreeMap<Key, OwnTask>,
        bounds: Bounds,
        now: Moment,
    ) -> Resolved {
        let successors = self.successors(me);
        // Number of known tasks that are not planned, by the session that has them.
        let mut left: BTreeMap<SessionId, usize> = BTreeMap::new();
        let mut owners: Vec<(&Key, Owner)> = Vec::with_capacity(self.tasks.len());
        for (key, known) in &self.tasks {
            match (self.owner(me, &successors, mine.get(key), now, known), &known.place) {
                // It counts from now on: what else becomes free meanwhile is not all given to the same member.
                (Some(owner), _) if owner.is_nobody() && mine.get(key) == Some(&OwnTask::Asks) => {
                    owners.push((key, Owner { session: Some(me.session), settled: false, ..owner }));
                }
                (Some(owner), _) => owners.push((key, owner)),
                (None, TaskPlace::Held { session, .. }) => *left.entry(*session).or_default() += 1,
                (None, _) => {}
            }
        }
        let judged = self.judge(Some(me), now);
        self.keep(me, &judged.stays, &mut owners);
        let mut resolved = Resolved { gave_up: judged.gave_up(), ..Resolved::default() };
        if me.share.paused {
            resolved.failing = judged.failing;
            resolved.withdraw(mine, &BTreeSet::new());
            return resolved;
        }
        let plan = self.plan(me, &owners, &left, &judged);
        resolved.targets = plan.targets.iter().copied().collect();
        resolved.next = self.next_change(me, mine, &judged, now, &owners, &resolved.targets);
        for (session, target) in &mut resolved.targets {
            *target += left.get(session).copied().unwrap_or(0);
        }
        resolved.successors = plan.moves.iter().map(|one| (one.task.clone(), one.to)).collect();
        resolved.waiting = plan.waiting.iter().map(|key| (*key).clone()).collect();
        resolved.act(me, mine, bounds, &plan, &owners);
        resolved.take_what_is_forgotten(me, mine, &judged, now, &owners);
        resolved.failing = judged.failing;
        // A key that is no task any more goes.
        for (key, what) in mine {
            if matches!(what, OwnTask::Has | OwnTask::Keeps) && !self.tasks.contains_key(key) {
                resolved.orders.push(SpreadAction::Give { key: key.clone(), to: None, must: true });
            }
        }
        resolved
    }

    fn plan<'a>(
        &self,
        me: &OwnMember,
        owners: &[(&'a Key, Owner)],
        left: &BTreeMap<SessionId, usize>,
        judged: &Judged<'a>,
    ) -> Plan<&'a Key, SessionId> {
        let task = |(key, owner): &(&'a Key, Owner)| {
            let task = PlannedTask {
                id: *key,
                owner: owner.session,
                since: owner.term.get(),
                settled: owner.settled,
            };
            (owner.part, task)
        };
        groups::plan(self, me, owners.iter().map(task), left, judged)
    }

    fn next_change(
        &self,
        me: &OwnMember,
        mine: &BTreeMap<Key, OwnTask>,
        judged: &Judged<'_>,
        now: Moment,
        owners: &[(&Key, Owner)],
        targets: &BTreeMap<SessionId, usize>,
    ) -> Option<Moment> {
        let mut counts: BTreeMap<SessionId, usize> = BTreeMap::new();
        for session in owners.iter().filter_map(|(_, owner)| owner.session) {
            *counts.entry(session).or_default() += 1;
        }
        // Only a task of a member that has too many may move once it has settled.
        let has_too_much = |session: &SessionId| counts.get(session) > targets.get(session);
        let settles = self.tasks.values().filter_map(|known| match known.place {
            TaskPlace::Held { session, settles, .. } => Some(settles).filter(|_| has_too_much(&session)),
            TaskPlace::Closed { until } | TaskPlace::Refused { until } => Some(until),
            TaskPlace::Unknown | TaskPlace::Free { .. } => None,
        });
        let reserved = self.sessions.values().filter_map(|seen| match seen {
            PeerSeen::Reserved { until, .. } => Some(*until),
            _ => None,
        });
        let forgotten = owners
            .iter()
            .filter(|(key, owner)| owner.is_nobody() && !mine.contains_key(*key))
            .map(|(key, owner)| forgotten_at(me, key, owner, judged));
        settles.chain(reserved).chain(forgotten).chain(judged.next).filter(|at| *at > now).min()
    }
}

/// Session of a name: its beginning, its id, and what is known of it if it is not this instance.
type Same<'a> = (StoreTime, SessionId, Option<&'a Peer>);

/// Sessions of each name, the latest first.
struct Successors<'a>(BTreeMap<Holder, Vec<Same<'a>>>);

impl Successors<'_> {
    /// The session that takes over a task that was reserved for its holder's name: the latest of that name
    /// that is known to know it.
    fn of(&self, me: &OwnMember, holder: &Holder, part: u16) -> Option<SessionId> {
        let same = self.0.get(holder)?.iter();
        let mut able = same.filter(|(_, _, peer)| peer.is_none_or(|peer| plans_with(me, peer, part)));
        able.next().map(|(_, session, _)| *session)
    }
}

/// Owner of a task, as the plan sees it.
#[derive(Clone, Copy, Debug)]
struct Owner {
    session: Option<SessionId>,
    /// The dead session that the lock's record names.
    dead: Option<SessionId>,
    /// Moment since which it has no owner, if it has none.
    since: Moment,
    term: Term,
    settled: bool,
    /// The part of the task set to which it belongs.
    part: u16,
}

impl Owner {
    const fn nobody(since: Moment, part: u16) -> Self {
        Self { session: None, dead: None, since, term: Term::new(0), settled: true, part }
    }

    const fn is_nobody(&self) -> bool {
        self.session.is_none()
    }
}

impl Resolved {
    /// Leaves every queue but those.
    fn withdraw(&mut self, mine: &BTreeMap<Key, OwnTask>, but: &BTreeSet<&Key>) {
        let stale = mine.iter().filter(|(key, what)| **what == OwnTask::Waits && !but.contains(key));
        self.orders.extend(stale.map(|(key, _)| SpreadAction::Withdraw { key: key.clone() }));
    }

    /// Adds the part of the plan that this instance carries out.
    fn act(
        &mut self,
        me: &OwnMember,
        mine: &BTreeMap<Key, OwnTask>,
        bounds: Bounds,
        plan: &Plan<&Key, SessionId>,
        owners: &[(&Key, Owner)],
    ) {
        let count = |of: OwnTask| mine.values().filter(|what| **what == of).count();
        let mut gives = bounds.gives.saturating_sub(count(OwnTask::Gives));
        let mut waits = bounds.waits.saturating_sub(count(OwnTask::Waits));
        let owner =
            |key: &Key| owners.binary_search_by(|(other, _)| (*other).cmp(key)).map(|at| &owners[at].1);
        let has = count(OwnTask::Has) + count(OwnTask::Keeps) + count(OwnTask::Gives);
        let must = me.share.draining || me.share.weight == 0 || has > me.share.cap as usize;
        let mut awaited = BTreeSet::new();
        for one in &plan.moves {
            let Ok(owner) = owner(one.task) else { continue };
            let key = one.task.clone();
            match (one.from.filter(|_| owner.dead.is_none()), one.to, mine.get(one.task)) {
                (Some(from), to, Some(what)) if from == me.session && gives > 0 => {
                    // Others plan with it as with any: so all look for the same moves.
                    if !(*what == OwnTask::Has || must && *what == OwnTask::Keeps) {
                        continue;
                    }
                    gives -= 1;
                    self.orders.push(SpreadAction::Give { key, to, must });
                }
                (None, Some(to), what) if to == me.session => match what {
                    None => self.orders.push(SpreadAction::Take { key, dead: owner.dead }),
                    // It became free while we were in the queue: the pending ticket takes it.
                    Some(OwnTask::Waits) if owner.dead.is_none() => {
                        awaited.insert(one.task);
                    }
                    Some(_) => {}
                },
                (Some(_), Some(to), what) if to == me.session => {
                    match what {
                        None if waits > 0 => {
                            waits -= 1;
                            self.orders.push(SpreadAction::Wait { key });
                        }
                        _ => {}
                    }
                    awaited.insert(one.task);
                }
                _ => {}
            }
        }
        self.withdraw(mine, &awaited);
        // A task reserved for this instance is its own already, unless the plan has given it to another.
        for (key, owner) in owners {
            let is_own = owner.session == Some(me.session) && owner.dead.is_some();
            if is_own && !mine.contains_key(*key) && !self.successors.contains_key(*key) {
                self.orders.push(SpreadAction::Take { key: (*key).clone(), dead: owner.dead });
            }
        }
    }

    /// Returns how many more tasks this instance may have.
    fn room(&self, me: &OwnMember, mine: &BTreeMap<Key, OwnTask>) -> usize {
        if me.share.draining || me.share.weight == 0 {
            return 0;
        }
        let takes = self.orders.iter().filter(|order| matches!(order, SpreadAction::Take { .. })).count();
        let has = mine.values().filter(|what| **what != OwnTask::Waits).count();
        (me.share.cap as usize).saturating_sub(has + takes)
    }

    /// Takes tasks that the member that was to take them did not. One by one, each a little later, so
    /// that not all try at once.
    fn take_what_is_forgotten(
        &mut self,
        me: &OwnMember,
        mine: &BTreeMap<Key, OwnTask>,
        judged: &Judged<'_>,
        now: Moment,
        owners: &[(&Key, Owner)],
    ) {
        let mut room = self.room(me, mine).min(MOST_FORGOTTEN);
        for (key, owner) in owners {
            if !owner.is_nobody() || mine.contains_key(*key) {
                continue;
            }
            let is_due = now >= forgotten_at(me, key, owner, judged);
            let planned = self.successors.get(*key).is_some_and(|to| *to == Some(me.session));
            if is_due && !planned && room > 0 {
                room -= 1;
                self.orders.push(SpreadAction::Take { key: (*key).clone(), dead: owner.dead });
            }
        }
    }
}

/// Moment from which this instance may take a task whatever is planned: later, if others are to have it first.
fn forgotten_at(me: &OwnMember, key: &Key, owner: &Owner, judged: &Judged<'_>) -> Moment {
    let is_last = judged.avoids(key, me.session) || judged.failing.contains(&me.session);
    let left_for = if is_last { LEFT_TO_OTHERS } else { FORGOTTEN };
    owner.since + left_for + stagger(me.session, key)
}

/// A part of [`FORGOTTEN`] that is another for each instance and task.
fn stagger(session: SessionId, key: &Key) -> Duration {
    let mut hash = Digest::default();
    hash.write(&session.as_u128().to_be_bytes());
    hash.write(key.as_str().as_bytes());
    FORGOTTEN.mul_f64(f64::from(u16::try_from(hash.get() >> 48).unwrap_or(0)) / f64::from(u16::MAX))
}
