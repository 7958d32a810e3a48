//! Rows in maps.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    ops::{Bound, RangeInclusive},
};

#[cfg(feature = "testing")]
use super::Kept;
use crate::{
    model::{Entry, Kind, LockId, Namespace, RunId, RunRecord, ScheduleId, SessionId, StoreTime, Term},
    store::{
        Held, LockRecord, Queue, ScheduleRecord, SessionRecord, Ticket, Waiter,
        steps::{Change, Listed, Row, Rows},
    },
};

#[derive(Clone, Default)]
pub(super) struct Records {
    sessions: BTreeMap<SessionId, SessionRecord>,
    locks: BTreeMap<LockId, LockRecord>,
    waiters: BTreeMap<(LockId, SessionId, Ticket), Waiter>,
    runs: BTreeMap<RunId, RunRecord>,
    schedules: BTreeMap<ScheduleId, ScheduleRecord>,
}

impl Records {
    pub(super) fn show(&self, f: &mut fmt::DebugStruct<'_, '_>) -> fmt::Result {
        f.field("locks", &self.locks.len())
            .field("sessions", &self.sessions.len())
            .field("waiters", &self.waiters.len())
            .finish_non_exhaustive()
    }

    /// Deletes a lock, and says whether there was one.
    #[cfg(feature = "testing")]
    pub(super) fn take_out(&mut self, lock: &LockId) -> bool {
        self.locks.remove(lock).is_some()
    }

    #[cfg(feature = "testing")]
    pub(super) fn kept(&self) -> Kept {
        Kept {
            sessions: self.sessions.len(),
            locks: self.locks.len(),
            places: self.waiters.len(),
            runs: self.runs.len(),
        }
    }
}

/// Goes on after a place, as far as a listing goes.
fn listed<T>(
    records: impl Iterator<Item = (Vec<u8>, T)>,
    after: Option<&[u8]>,
    at_most: usize,
) -> Vec<Listed<T>> {
    let rest = records.skip_while(|(place, _)| after.is_some_and(|after| **place <= *after));
    rest.take(at_most).map(|(place, record)| Listed { place, record: Ok(record) }).collect()
}

/// Returns the place of a lock in a listing. The zero byte is in no name, and sorts before all that are.
fn place(id: &LockId) -> Vec<u8> {
    format!("{}\0{}\0{}", id.namespace, id.kind, id.key).into_bytes()
}

/// Returns the place of a lock in the audit: latest term first.
fn audit_place(lock: &LockRecord) -> Vec<u8> {
    let mut place = (u64::MAX - lock.term.get()).to_be_bytes().to_vec();
    place.extend(self::place(&lock.id));
    place
}

/// Returns the place of an entry in its history: latest instant first, also before 1970.
fn last_first(id: &RunId) -> Vec<u8> {
    let ascending = id.instant.as_millis().cast_unsigned() ^ (1 << 63);
    let mut place = (!ascending).to_be_bytes().to_vec();
    place.push(!(id.entry as u8));
    place
}

/// All entries of a ledger.
fn ledger(schedule: &ScheduleId) -> RangeInclusive<RunId> {
    let at =
        |millis, entry| RunId { schedule: schedule.clone(), instant: StoreTime::from_millis(millis), entry };
    at(i64::MIN, Entry::Tick)..=at(i64::MAX, Entry::Skipped)
}

impl Rows for Records {
    type Failure = Infallible;

    /// No operation here takes long.
    const AT_ONCE: usize = usize::MAX;

    fn session(&mut self, id: SessionId) -> Result<Row<SessionRecord>, Infallible> {
        Ok(Ok(self.sessions.get(&id).cloned()))
    }

    fn put_session(&mut self, record: &SessionRecord) -> Result<(), Infallible> {
        self.sessions.insert(record.id, record.clone());
        Ok(())
    }

    fn delete_session(&mut self, id: SessionId) -> Result<(), Infallible> {
        self.sessions.remove(&id);
        Ok(())
    }

    /// No presence is given here.
    fn is_gone(&mut self, _: SessionId) -> Result<bool, Infallible> {
        Ok(false)
    }

    fn sessions(
        &mut self,
        namespace: &Namespace,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Result<Vec<Listed<SessionRecord>>, Infallible> {
        let all = self.sessions.values().filter(|session| session.about.namespace == *namespace);
        Ok(listed(all.map(|one| (one.id.to_string().into_bytes(), one.clone())), after, at_most))
    }

    fn the_dead(
        &mut self,
        namespace: &Namespace,
        after: Option<SessionId>,
        at_most: usize,
    ) -> Result<Vec<(SessionId, StoreTime)>, Infallible> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.sessions.range((from, Bound::Unbounded));
        let ours = all.filter(|(_, session)| session.about.namespace == *namespace);
        Ok(ours.filter_map(|(id, session)| Some((*id, session.death.as_ref()?.at))).take(at_most).collect())
    }

    fn lock(&mut self, id: &LockId) -> Result<Row<LockRecord>, Infallible> {
        Ok(Ok(self.locks.get(id).cloned()))
    }

    fn insert_lock(&mut self, record: &LockRecord) -> Result<(), Infallible> {
        self.locks.insert(record.id.clone(), record.clone());
        Ok(())
    }

    fn change_lock<T>(
        &mut self,
        id: &LockId,
        change: impl FnOnce(&mut LockRecord) -> Change<T>,
    ) -> Result<Row<T>, Infallible> {
        // In place: what is kept is as it was.
        let changed = self.locks.get_mut(id).map(change);
        Ok(Ok(changed.map(|(Change::Put(answer) | Change::Keep(answer))| answer)))
    }

    fn delete_lock(&mut self, id: &LockId) -> Result<(), Infallible> {
        self.locks.remove(id);
        Ok(())
    }

    fn locks(
        &mut self,
        namespace: &Namespace,
        kind: Option<&Kind>,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Result<Vec<Listed<LockRecord>>, Infallible> {
        let all = self.locks.values().filter(|lock| lock.id.namespace == *namespace);
        let wanted = all.filter(|lock| kind.is_none_or(|kind| lock.id.kind == *kind));
        Ok(listed(wanted.map(|lock| (place(&lock.id), lock.clone())), after, at_most))
    }

    fn held_by(
        &mut self,
        session: SessionId,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Result<Vec<Listed<Held>>, Infallible> {
        let mut held: Vec<_> = self.locks.values().filter(|lock| lock.is_held_by(session)).collect();
        held.sort_by_cached_key(|lock| audit_place(lock));
        let entries = held.into_iter().filter_map(|lock| {
            let ticket = lock.holding.as_ref()?.by.ticket;
            Some((audit_place(lock), Held { lock: lock.id.clone(), term: lock.term, ticket }))
        });
        Ok(listed(entries, after, at_most))
    }

    fn has_waiter(&mut self, place: &(LockId, SessionId, Ticket)) -> Result<bool, Infallible> {
        Ok(self.waiters.contains_key(place))
    }

    fn put_waiter(&mut self, waiter: &Waiter) -> Result<(), Infallible> {
        let place = (waiter.lock.clone(), waiter.by.session, waiter.by.ticket);
        self.waiters.insert(place, waiter.clone());
        Ok(())
    }

    fn delete_waiter(&mut self, place: &(LockId, SessionId, Ticket)) -> Result<(), Infallible> {
        self.waiters.remove(place);
        Ok(())
    }

    fn queue(&mut self, lock: &LockId, at_most: usize) -> Result<Queue, Infallible> {
        let mut queue: Vec<_> =
            self.waiters.values().filter(|waiter| waiter.lock == *lock).cloned().collect();
        queue.sort_by_key(|waiter| (waiter.since, waiter.by.session, waiter.by.ticket));
        let whole = queue.len() < at_most;
        queue.truncate(at_most);
        Ok(Queue { waiters: queue, whole })
    }

    fn delete_waiters_of(&mut self, session: SessionId, _: usize) -> Result<u64, Infallible> {
        let before = self.waiters.len();
        self.waiters.retain(|(_, waiter, _), _| *waiter != session);
        Ok((before - self.waiters.len()) as u64)
    }

    fn least_term(&mut self) -> Result<Term, Infallible> {
        Ok(Term::new(1))
    }

    fn run(&mut self, id: &RunId) -> Result<Row<RunRecord>, Infallible> {
        Ok(Ok(self.runs.get(id).cloned()))
    }

    fn put_run(&mut self, record: &RunRecord) -> Result<(), Infallible> {
        self.runs.insert(record.id.clone(), record.clone());
        Ok(())
    }

    fn delete_run(&mut self, id: &RunId) -> Result<(), Infallible> {
        self.runs.remove(id);
        Ok(())
    }

    fn runs(
        &mut self,
        schedule: &ScheduleId,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Result<Vec<Listed<RunRecord>>, Infallible> {
        let all = self.runs.range(ledger(schedule)).rev();
        Ok(listed(all.map(|(id, run)| (last_first(id), run.clone())), after, at_most))
    }

    fn old_runs(
        &mut self,
        schedule: &ScheduleId,
        before: StoreTime,
        keep: usize,
        at_most: usize,
    ) -> Result<Vec<RunRecord>, Infallible> {
        let many = self.runs.range(ledger(schedule)).count().saturating_sub(keep);
        let old = self.runs.range(ledger(schedule)).map(|(_, run)| run).take(many);
        Ok(old.filter(|run| run.started < before).take(at_most).cloned().collect())
    }

    fn delete_runs_of(&mut self, schedule: &ScheduleId, _: usize) -> Result<bool, Infallible> {
        let all: Vec<_> = self.runs.range(ledger(schedule)).map(|(id, _)| id.clone()).collect();
        for id in all {
            self.runs.remove(&id);
        }
        Ok(true)
    }

    fn schedule(&mut self, id: &ScheduleId) -> Result<Row<ScheduleRecord>, Infallible> {
        Ok(Ok(self.schedules.get(id).cloned()))
    }

    fn put_schedule(&mut self, record: &ScheduleRecord) -> Result<(), Infallible> {
        self.schedules.insert(record.id.clone(), record.clone());
        Ok(())
    }

    fn delete_schedule(&mut self, id: &ScheduleId) -> Result<(), Infallible> {
        self.schedules.remove(id);
        Ok(())
    }

    fn schedules(
        &mut self,
        namespace: &Namespace,
        after: Option<&[u8]>,
        at_most: usize,
    ) -> Result<Vec<Listed<ScheduleRecord>>, Infallible> {
        let all = self.schedules.values().filter(|record| record.id.namespace == *namespace);
        let places = all.map(|record| (record.id.name.as_str().as_bytes().to_vec(), record.clone()));
        Ok(listed(places, after, at_most))
    }
}
