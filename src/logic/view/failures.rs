//! Failures of tasks and members, as far as the records that were read tell of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Known, OwnMember, Peer, SpreadView, TaskPlace};
use crate::{
    clock::Moment,
    logic::{
        digest::{self, agree},
        failing::{self, Counted, Due, Failures, Fault, ROW_ENDS, Resting, is_ahead},
        plan::GaveUp,
    },
    model::{Holder, Key, SessionId, StoreTime, Term},
    store::{LockSeen, Share},
};

/// A rest that is over so soon is that of a task which another member is to try.
const SOON: Duration = Duration::from_secs(2);

/// Effects of failures on the plan.
#[derive(Debug, Default)]
pub(super) struct Judged<'a> {
    /// Members that are to get a task only if no other has room, the one first that gave it up longest ago.
    pub(super) gave_up: BTreeMap<&'a Key, Vec<GaveUp<SessionId>>>,
    /// Members that fail.
    pub(super) failing: BTreeSet<SessionId>,
    /// Number of tasks that each member gave up a moment ago, and that another is to try now.
    pub(super) just_gave_up: BTreeMap<SessionId, usize>,
    /// Tasks that are not moved to even out the counts: probes, and those with a row of deaths.
    pub(super) stays: BTreeSet<&'a Key>,
    /// Next moment at which this may change.
    pub(super) next: Option<Moment>,
}

impl Judged<'_> {
    /// Returns the members that gave a task up, for callers that keep the answer.
    pub(super) fn gave_up(&self) -> BTreeMap<Key, Vec<SessionId>> {
        let by = |all: &Vec<GaveUp<SessionId>>| all.iter().map(|one| one.by).collect();
        self.gave_up.iter().map(|(key, all)| ((*key).clone(), by(all))).collect()
    }

    pub(super) fn avoids(&self, key: &Key, member: SessionId) -> bool {
        self.gave_up.get(key).is_some_and(|all| all.iter().any(|one| one.by == member))
    }
}

impl Known {
    /// Learns what its record says of failures. Says whether that is news.
    pub(super) fn absorb(&mut self, seen: &LockSeen) -> bool {
        let read = match seen {
            // The record that was read is older than what a hint has said.
            LockSeen::Found(record) if self.is_after(record.term) => return false,
            LockSeen::Found(record) => Some(Failures::of(record)).filter(|read| *read != Failures::default()),
            LockSeen::Absent => None,
            LockSeen::Refused(_) => return false,
        };
        let is_news = self.failures.as_deref() != read.as_ref();
        if is_news {
            self.failures = read.map(Box::new);
        }
        is_news
    }

    fn is_after(&self, read: Term) -> bool {
        matches!(self.place, TaskPlace::Held { term, .. } if read < term)
    }
}

/// Returns whether an instance with this share takes tasks.
pub(crate) fn takes(share: &Share) -> bool {
    !share.draining && !share.paused && share.reserved.is_zero() && share.weight > 0 && share.cap > 0
}

impl SpreadView {
    /// The store's time as it is then, about.
    pub(crate) fn store_time(&self, now: Moment) -> Option<StoreTime> {
        self.clock.map(|(store_time, at)| store_time.plus(now.since(at)))
    }

    /// Returns the failures or deaths that a task's last holder has left.
    pub(crate) fn last_failures(&self, key: &Key) -> Option<&Resting> {
        self.tasks.get(key)?.failures.as_ref()?.last.as_ref()
    }

    /// Returns how many tasks rest.
    pub(crate) fn resting(&self, now: Moment) -> usize {
        let is_closed = |place: &TaskPlace| matches!(place, TaskPlace::Closed { until } if now < *until);
        self.failures().filter(|(_, place, failures)| is_closed(place) && failures.last.is_some()).count()
    }

    /// Returns whether a task rests for so short a time as one does that another member is to try. What fails everywhere
    /// rests for longer, and no member is owed less for that.
    fn opens_soon(&self, key: &Key, now: Moment) -> bool {
        matches!(self.task(key), Some(TaskPlace::Closed { until }) if now < *until && *until < now + SOON)
    }

    /// Returns how many holders of a task died in a row, before the one that has it; none if it runs well there.
    pub(crate) fn deaths_of(&self, key: &Key) -> u32 {
        self.tasks.get(key).and_then(|known| self.row_of(known)).map_or(0, |(counted, _)| counted.row.deaths)
    }

    /// The row of deaths of a task that has a holder, and when it is over.
    fn row_of(&self, known: &Known) -> Option<(Counted, StoreTime)> {
        let TaskPlace::Held { since: Some(since), .. } = known.place else { return None };
        let (failures, (now, _)) = (known.failures.as_deref()?, self.clock?);
        // If the clock was set back, the record says nothing.
        if failures.past.is_empty() || now.since(since) >= ROW_ENDS || is_ahead(since, now) {
            return None;
        }
        let row = self.deaths.of_task(&failures.past)?;
        Some((row, row.lasts_until(since))).filter(|(_, until)| *until > now)
    }

    /// Returns whether another member has room for a task, and is not among these. `targets` are those of the last plan.
    pub(crate) fn others_have_room(
        &self,
        me: &OwnMember,
        key: &Key,
        named: &[Holder],
        targets: &BTreeMap<SessionId, usize>,
    ) -> bool {
        let part = digest::part(key);
        self.members().any(|(session, Peer { holder, share, .. })| {
            let has_room = targets.get(&session).is_none_or(|target| *target < share.cap as usize);
            let may = session != me.session && takes(share) && agree(&me.share, share, part);
            may && has_room && !named.contains(holder)
        })
    }

    /// Returns this instance, if it takes part, and the other members, each with the beginning of its session.
    fn all<'a>(
        &'a self,
        me: Option<&'a OwnMember>,
    ) -> impl Iterator<Item = (SessionId, &'a Holder, StoreTime, &'a Share)> {
        let others = self.members().filter(move |(session, _)| me.is_none_or(|me| *session != me.session));
        let others = others.map(|(session, peer)| (session, &peer.holder, peer.started, &peer.share));
        me.map(|me| (me.session, &me.holder, me.started, &me.share)).into_iter().chain(others)
    }

    /// Returns the members that fail, and those that are to get a task only if no other has room, for one that takes no
    /// part.
    pub(crate) fn failing(&self, now: Moment) -> (BTreeSet<SessionId>, BTreeMap<Key, Vec<SessionId>>) {
        let judged = self.judge(None, now);
        let gave_up = judged.gave_up();
        (judged.failing, gave_up)
    }

    /// Judges by everything that is known. Where all that take tasks fail, none does.
    pub(super) fn judge<'a>(&'a self, me: Option<&'a OwnMember>, now: Moment) -> Judged<'a> {
        let (Some(store_now), true) = (self.store_time(now), self.failures().next().is_some()) else {
            return Judged::default();
        };
        let mut due = Due { now: store_now, next: None };
        let (mut faults, mut avoided) = self.faults(me, &mut due);
        let (mut failing, mut stays) = (BTreeSet::new(), BTreeSet::new());
        let mut has: BTreeMap<SessionId, usize> = BTreeMap::new();
        for (key, known) in &self.tasks {
            if let TaskPlace::Held { session, .. } = known.place {
                *has.entry(session).or_default() += 1;
            }
            let row = self.row_of(known).filter(|(row, _)| row.stays());
            stays.extend(row.filter(|(_, until)| !due.is_over(*until)).map(|_| key));
        }
        let takers: Vec<_> =
            self.all(me).filter(|(.., share)| takes(share)).map(|(session, ..)| session).collect();
        let part = self.tasks.len() / takers.len().max(1);
        for (by, faults) in &mut faults {
            let has = has.get(by).copied().unwrap_or(0);
            let stands = failing::judge(faults, has, part, &mut due);
            failing.extend(Some(*by).filter(|_| stands.failing));
            let gave_up =
                |fault: &Fault<_>| (fault.task, GaveUp { by: *by, probe: stands.probe && fault.tells });
            avoided.extend(faults.iter().map(gave_up));
        }
        if takers.iter().all(|session| failing.contains(session)) {
            failing.clear();
        }
        let mut gave_up: BTreeMap<&Key, Vec<_>> = BTreeMap::new();
        let mut just_gave_up: BTreeMap<SessionId, usize> = BTreeMap::new();
        avoided.sort_by_key(|(place, _)| *place);
        for ((key, _), one) in avoided {
            if self.opens_soon(key, now) {
                *just_gave_up.entry(one.by).or_default() += 1;
            }
            gave_up.entry(key).or_default().push(one);
        }
        let probes = |(key, all): (&&'a Key, &Vec<GaveUp<SessionId>>)| {
            let TaskPlace::Held { session, .. } = self.tasks.get(*key)?.place else { return None };
            let is_one = failing.contains(&session) && all.iter().any(|one| one.by == session);
            is_one.then_some(*key)
        };
        stays.extend(gave_up.iter().filter_map(probes));
        // All that changes within a second is planned at once.
        let next = due.next.map(|at| now + at.since(store_now) + Duration::from_secs(1));
        Judged { gave_up, failing, just_gave_up, stays, next }
    }

    fn failures(&self) -> impl Iterator<Item = (&Key, &TaskPlace, &Failures)> {
        self.tasks.iter().filter_map(|(key, known)| Some((key, &known.place, known.failures.as_deref()?)))
    }

    /// Tasks that each member gave up, and the members that are to get a task later as an operator took it away.
    fn faults(
        &self,
        me: Option<&OwnMember>,
        due: &mut Due,
    ) -> (BTreeMap<SessionId, Vec<Fault<Place<'_>>>>, Avoided<'_>) {
        let mut names: BTreeMap<&Holder, Vec<(SessionId, StoreTime)>> = BTreeMap::new();
        for (session, holder, began, _) in self.all(me) {
            names.entry(holder).or_default().push((session, began));
        }
        let (mut faults, mut avoided) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
        for (key, place, failures) in self.failures() {
            let held = match place {
                TaskPlace::Held { session, since: Some(since), .. } => Some((*session, *since)),
                _ => None,
            };
            for (place, one) in failures.gave_up.iter().enumerate() {
                if one.until(due.now).is_none_or(|until| due.is_over(until)) {
                    continue;
                }
                // One that was started anew may have been mended. If the clock was set back since it began, nobody can tell.
                let counts = |began: StoreTime| one.at >= began || is_ahead(began, due.now);
                let same = names.get(&one.by).into_iter().flatten();
                let same: Vec<_> = same.filter(|(_, began)| counts(*began)).collect();
                for (by, _) in same {
                    let since =
                        |own: bool| held.filter(|(holder, _)| (holder == by) == own).map(|(_, since)| since);
                    let task = (key, place);
                    if one.is_fault {
                        let (elsewhere, again) = (
                            one.elsewhere.or(since(false).filter(|_| one.first.is_some())),
                            one.again.or(since(true)),
                        );
                        let (at, first, tells) = (one.at, one.first.unwrap_or(one.at), one.tells);
                        let fault = Fault { task, at, first, elsewhere, again, tells };
                        faults.entry(*by).or_default().push(fault);
                    } else if one.again.is_none() {
                        avoided.push((task, GaveUp { by: *by, probe: false }));
                    }
                }
            }
        }
        (faults, avoided)
    }
}

/// A task, and a place in the list of members that gave it up.
type Place<'a> = (&'a Key, usize);
type Avoided<'a> = Vec<(Place<'a>, GaveUp<SessionId>)>;
