//! Failures of tasks and members, as far as the records that were read tell of them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Known, Me, Peer, PeerSeen, SpreadView, TaskPlace};
use crate::{
    clock::Moment,
    logic::{
        digest::{self, agree},
        failing::{Conduct, Failures, Resting, Standing, name},
        plan::{Fails, GaveUp},
    },
    model::{Holder, Key, Past, SessionId, Share, StoreTime, Term},
    store::LockSeen,
};

/// What failures mean for the plan.
#[derive(Debug, Default)]
pub(super) struct Judged<'a> {
    /// Members that are to get a task only if no other has room, the one first that gave it up longest ago.
    pub(super) gave_up: BTreeMap<&'a Key, Vec<GaveUp<SessionId>>>,
    /// Members that fail, or did.
    standings: BTreeMap<SessionId, Standing>,
    /// Next moment at which this may change.
    pub(super) next: Option<Moment>,
}

impl Judged<'_> {
    pub(super) fn avoids(&self, key: &Key, member: SessionId) -> bool {
        self.gave_up.get(key).is_some_and(|all| all.iter().any(|one| one.by == member))
    }

    pub(super) fn failing(&self) -> impl Iterator<Item = SessionId> {
        self.standings.keys().copied().filter(|member| self.fails(*member) != Fails::No)
    }

    pub(super) fn fails(&self, member: SessionId) -> Fails {
        match self.standings.get(&member) {
            Some(Standing::Failing { probe: true, .. }) => Fails::Probed,
            Some(Standing::Failing { .. }) => Fails::Yes,
            Some(Standing::Well { .. }) | None => Fails::No,
        }
    }
}

impl Known {
    /// Learns what its record says of failures. Says whether that is news.
    pub(super) fn absorb(&mut self, seen: &LockSeen) -> bool {
        let read = match seen {
            // What was read is older than what a hint has said.
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
    pub(super) fn store_time(&self, now: Moment) -> Option<StoreTime> {
        self.clock.map(|(store_time, at)| store_time.plus(now.since(at)))
    }

    /// Why a task is closed, if that is because it failed too often.
    pub(crate) fn quarantine(&self, key: &Key) -> Option<(&Resting, Moment)> {
        let known = self.tasks.get(key)?;
        let TaskPlace::Closed { until } = known.place else { return None };
        Some((known.failures.as_ref()?.rests.as_ref()?, until))
    }

    /// Returns how many tasks are closed because they failed too often.
    pub(crate) fn quarantined(&self, now: Moment) -> usize {
        let is_so = |key: &Key| self.quarantine(key).is_some_and(|(_, until)| now < until);
        self.tasks.keys().filter(|key| is_so(key)).count()
    }

    /// Returns its last holders, if one of them died.
    pub(crate) fn past(&self, key: &Key) -> &[Past] {
        let failures = self.tasks.get(key).and_then(|known| known.failures.as_deref());
        failures.map_or(&[], |failures| &failures.past)
    }

    /// Returns the names of members that are to get a task only if no other has room.
    pub(crate) fn avoided(&self, key: &Key, now: Moment) -> Vec<&str> {
        let failures = self.tasks.get(key).and_then(|known| known.failures.as_deref());
        let (Some(failures), Some(now)) = (failures, self.store_time(now)) else { return Vec::new() };
        failures.avoided(now).map(|(name, _)| name).collect()
    }

    /// Returns whether another member has room for a task, and is not among these. `targets` are those of the last plan.
    pub(crate) fn others_have_room(
        &self,
        me: &Me,
        key: &Key,
        named: &[String],
        targets: &BTreeMap<SessionId, usize>,
    ) -> bool {
        let part = digest::part(key);
        self.members().any(|(session, Peer { holder, share, .. })| {
            let has_room = targets.get(&session).is_none_or(|target| *target < share.cap as usize);
            let may = session != me.session && takes(share) && agree(&me.share, share, part);
            may && has_room && !named.contains(&name(holder))
        })
    }

    /// This instance, if it takes part, and the others that do.
    fn all<'a>(&'a self, me: Option<&'a Me>) -> impl Iterator<Item = (SessionId, &'a Holder, &'a Share)> {
        let others = self.members().filter(move |(session, _)| me.is_none_or(|me| *session != me.session));
        let others = others.map(|(session, peer)| (session, &peer.holder, &peer.share));
        me.map(|me| (me.session, &me.holder, &me.share)).into_iter().chain(others)
    }

    /// Returns the members that fail, for one that takes no part.
    pub(crate) fn failing(&self, now: Moment) -> BTreeSet<SessionId> {
        self.judge(None, now).failing().collect()
    }

    /// Beginning of a member's session.
    fn began(&self, me: Option<&Me>, session: SessionId) -> StoreTime {
        match (me, self.sessions.get(&session)) {
            (Some(me), _) if me.session == session => me.started,
            (_, Some(PeerSeen::Member(peer))) => peer.started,
            _ => StoreTime::from_millis(0),
        }
    }

    /// Judges by everything that is known.
    pub(super) fn judge(&self, me: Option<&Me>, now: Moment) -> Judged<'_> {
        let failed = || self.tasks.iter().filter_map(|(key, known)| Some((key, known.failures.as_deref()?)));
        let (Some(store_now), Some(_)) = (self.store_time(now), failed().next()) else {
            return Judged::default();
        };
        let standings = self.standings(me, store_now, failed().map(|(_, failures)| failures));
        let mut names: BTreeMap<String, Vec<SessionId>> = BTreeMap::new();
        for (session, holder, _) in self.all(me) {
            names.entry(name(holder)).or_default().push(session);
        }
        let proved = |session: &SessionId| match standings.get(session) {
            Some(Standing::Well { proved }) => *proved,
            _ => None,
        };
        let mut gave_up = BTreeMap::new();
        for (key, failures) in failed() {
            let all = failures.avoided(store_now).flat_map(|(name, at)| {
                // One that was started anew may have been mended.
                let counts = move |by: &SessionId| {
                    at >= self.began(me, *by) && proved(by).is_none_or(|proved| at > proved)
                };
                let named = names.get(name).into_iter().flatten();
                named.map(move |by| GaveUp { by: *by, counts: counts(by) })
            });
            let all: Vec<_> = all.collect();
            if !all.is_empty() {
                gave_up.insert(key, all);
            }
        }
        let changes = standings.values().filter_map(|standing| match standing {
            Standing::Failing { next, .. } => Some(*next),
            Standing::Well { .. } => None,
        });
        let next = failed().filter_map(|(_, failures)| failures.next(store_now)).chain(changes);
        let next = next.filter(|at| *at > store_now).min().map(|at| now + at.since(store_now));
        Judged { gave_up, standings, next }
    }

    /// How those members stand that gave up tasks. Where all that take tasks fail, none does.
    fn standings<'a>(
        &self,
        me: Option<&Me>,
        now: StoreTime,
        failures: impl Iterator<Item = &'a Failures>,
    ) -> BTreeMap<SessionId, Standing> {
        let mut given_up: BTreeMap<&Holder, Vec<_>> = BTreeMap::new();
        for one in failures.flat_map(|failures| &failures.given_up) {
            given_up.entry(&one.by).or_default().push((one.at, one.blamed_from()));
        }
        let mut conducts: BTreeMap<SessionId, (&Holder, Conduct)> = BTreeMap::new();
        for (session, holder, _) in self.all(me) {
            if let Some(given_up) = given_up.get(holder) {
                // One that was started anew may have been mended.
                let began = self.began(me, session);
                let given_up: Vec<_> = given_up.iter().copied().filter(|(at, _)| *at >= began).collect();
                conducts.insert(session, (holder, Conduct { given_up, ..Conduct::default() }));
            }
        }
        for known in self.tasks.values() {
            let TaskPlace::Held { session, since, .. } = known.place else { continue };
            let Some((holder, conduct)) = conducts.get_mut(&session) else { continue };
            conduct.has += 1;
            let failures = known.failures.as_deref();
            let gave_up = failures.is_some_and(|all| all.given_up.iter().any(|one| one.by == **holder));
            conduct.probes.extend(since.filter(|_| gave_up));
        }
        let mut standings: BTreeMap<_, _> =
            conducts.into_iter().map(|(session, (_, conduct))| (session, conduct.judge(now))).collect();
        let fails = |session: &SessionId| matches!(standings.get(session), Some(Standing::Failing { .. }));
        let takers: BTreeSet<_> =
            self.all(me).filter(|(_, _, share)| takes(share)).map(|(session, ..)| session).collect();
        if takers.iter().all(fails) {
            standings.clear();
        }
        standings
    }
}
