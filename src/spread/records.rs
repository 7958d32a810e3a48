//! A spread as its records tell, for readers that take no part in it: no plan, and of tasks only those that were ever
//! taken.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Member, SpreadStatus, TaskState, explain::takes_no_more};
use crate::{
    clock::Moment,
    logic::{failing::Failures, view::SpreadView},
    model::{Key, SessionId, SpreadName, StoreTime},
    store::{LockRecord, LockSeen, SessionRecord, SessionSeen, Share},
};

pub(super) fn share_of<'a>(session: &'a SessionRecord, spread: &SpreadName) -> Option<&'a Share> {
    session.shares.iter().find(|share| share.spread == *spread)
}

/// Returns the members that fail, and the members that gave each task up.
fn failing_members<'a>(
    spread: &SpreadName,
    sessions: impl IntoIterator<Item = &'a SessionRecord>,
    locks: &[&LockRecord],
    now: StoreTime,
) -> (BTreeSet<SessionId>, BTreeMap<Key, Vec<SessionId>>) {
    let is_over = |record: &&LockRecord| {
        Failures::of(record).gave_up.iter().all(|one| one.until(now).is_none_or(|until| until <= now))
    };
    if locks.iter().all(is_over) {
        return Default::default();
    }
    let (mut view, at) = (SpreadView::new(spread.clone()), Moment::after_start(Duration::ZERO));
    view.set(&locks.iter().map(|record| record.id.key.clone()).collect());
    let takes_part = |session: &&SessionRecord| session.is_alive() && share_of(session, spread).is_some();
    for session in sessions.into_iter().filter(takes_part) {
        view.saw(session.id, &SessionSeen::of(session.clone()), at, Some(now));
    }
    for record in locks {
        view.read(&record.id.key, &LockSeen::Found((*record).clone()), at, at, Some(now));
    }
    view.failing(at)
}

impl SpreadStatus {
    /// Returns the members that gave up tasks that run well elsewhere: `sessions` of the namespace, `locks` of the spread's
    /// tasks.
    #[must_use]
    pub fn failing<'a>(
        spread: &SpreadName,
        sessions: impl IntoIterator<Item = &'a SessionRecord>,
        locks: &[&LockRecord],
        now: StoreTime,
    ) -> BTreeSet<SessionId> {
        failing_members(spread, sessions, locks, now).0
    }

    /// Returns the status that these records tell: `sessions` of the namespace, `locks` of the spread's tasks. There is
    /// no plan in it, so members have no targets and tasks no next holder, and no task that was never taken.
    #[must_use]
    pub fn of_records(
        spread: SpreadName,
        sessions: &[SessionRecord],
        locks: &[LockRecord],
        now: StoreTime,
    ) -> Self {
        let by_id: BTreeMap<SessionId, &SessionRecord> =
            sessions.iter().map(|session| (session.id, session)).collect();
        let mut counts: BTreeMap<SessionId, usize> = BTreeMap::new();
        let mut known = BTreeMap::new();
        for record in locks {
            let holder = record.holding.as_ref().and_then(|held| by_id.get(&held.by.session).copied());
            let state = TaskState::of_record(record, holder, now);
            if let Some((_, session)) = state.holder() {
                *counts.entry(session).or_default() += 1;
            }
            known.insert(record.id.key.clone(), state);
        }
        let (failing, gave_up) = failing_members(&spread, sessions, &locks.iter().collect::<Vec<_>>(), now);
        let member = |session: &SessionRecord| {
            Some(Member {
                session: session.id,
                holder: session.about.holder.clone(),
                host: session.about.host.clone(),
                pid: session.about.pid,
                share: share_of(session, &spread)?.clone(),
                drained: session.drained.clone(),
                tasks: counts.get(&session.id).copied().unwrap_or(0),
                failing: failing.contains(&session.id),
                target: None,
            })
        };
        let mut members: Vec<_> =
            sessions.iter().filter(|session| session.is_alive()).filter_map(member).collect();
        members.sort_by(|a, b| (&a.holder, a.session).cmp(&(&b.holder, b.session)));
        let silent = |id| sessions.iter().any(|session| session.id == id && session.looks_dead(now));
        let is_full = |member: &Member| takes_no_more(member).is_some() || silent(member.session);
        if members.iter().all(is_full) {
            for record in locks {
                if let Some(state @ TaskState::Moving { from: None, .. }) = known.get_mut(&record.id.key) {
                    let last = record.past.first().filter(|_| record.holding.is_none());
                    let free = last.map(|last| record.closed.map_or(last.to, |rest| rest.until.max(last.to)));
                    let since = free.map_or(Duration::ZERO, |free| now.since(free));
                    *state = TaskState::WaitingForRoom { since };
                }
            }
        }
        let here = BTreeMap::new();
        Self { spread, members, tasks: known, here, planned: false, held_back: None, gave_up }
    }
}

#[cfg(test)]
mod tests;
