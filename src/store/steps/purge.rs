//! The purge: records that are not needed any more go, a part at a time.
//!
//! The ids are gone through in their order, locks first, then the dead, and the answer says from where to go on. A
//! record that has to stay is passed once, and stands in no other's way.

use std::time::Duration;

use super::{Change, Rows, Step};
use crate::{
    model::{Namespace, Retention, SessionId, StoreTime},
    store::{Bell, Closed, Cursor, Ended, LockRecord, Purged, TERM_KEPT},
};

/// The progress of a purge: what it goes on after.
enum Place {
    Locks(Option<Vec<u8>>),
    Dead(Option<SessionId>),
}

const LOCKS: u8 = 1;
const DEAD: u8 = 2;

impl Place {
    /// Reads a cursor. An unreadable one begins anew: a purge may be repeated.
    fn of(cursor: Option<&Cursor>) -> Self {
        match cursor.and_then(|cursor| cursor.place().split_first()) {
            Some((&LOCKS, place)) => Self::Locks(Some(place.to_vec())),
            Some((&DEAD, id)) => {
                Self::Dead(id.try_into().ok().map(u128::from_be_bytes).map(SessionId::from_u128))
            }
            _ => Self::Locks(None),
        }
    }

    fn cursor(self) -> Cursor {
        let (first, rest) = match self {
            Self::Locks(place) => (LOCKS, place.unwrap_or_default()),
            Self::Dead(id) => (DEAD, id.map_or_else(Vec::new, |id| id.as_u128().to_be_bytes().to_vec())),
        };
        Cursor::new([&[first], rest.as_slice()].concat())
    }
}

impl<R: Rows> Step<'_, R> {
    pub(in crate::store) fn purge(
        &mut self,
        namespace: Namespace,
        retention: Retention,
        after: Option<Cursor>,
    ) -> Result<Purged, R::Failure> {
        let mut purged = Purged::default();
        let mut left = R::AT_ONCE;
        let mut place = Place::of(after.as_ref());
        if let Place::Locks(after) = place {
            let next = self.purge_locks(&namespace, retention, after, &mut left, &mut purged)?;
            place = next.map_or(Place::Dead(None), |next| Place::Locks(Some(next)));
        }
        let next = match place {
            Place::Dead(after) => {
                self.purge_the_dead(&namespace, retention, after, &mut left, &mut purged)?
            }
            locks @ Place::Locks(_) => Some(locks),
        };
        purged.next = next.map(Place::cursor);
        Ok(purged)
    }

    /// Deletes the idle ones of the next locks. Answers from where to go on.
    fn purge_locks(
        &mut self,
        namespace: &Namespace,
        retention: Retention,
        after: Option<Vec<u8>>,
        left: &mut usize,
        purged: &mut Purged,
    ) -> Result<Option<Vec<u8>>, R::Failure> {
        let locks = self.rows.locks(namespace, None, after.as_deref(), *left)?;
        let is_full = locks.len() == *left;
        *left -= locks.len();
        let mut last = None;
        for lock in locks {
            last = Some(lock.place);
            if let Ok(record) = lock.record
                && self.is_idle(&record, retention)
            {
                self.rows.delete_lock(&record.id)?;
                purged.locks += 1;
            }
        }
        Ok(last.filter(|_| is_full))
    }

    /// Returns whether a lock may go (R5).
    fn is_idle(&self, record: &LockRecord, retention: Retention) -> bool {
        let now = self.now;
        record.holding.is_none()
            && record.closed.is_none_or(|closed| closed.left(now).is_zero())
            && record.past.first().is_some_and(|last| last.to < now.minus(retention.locks))
            && i64::try_from(record.term.get()).is_ok_and(|term| term < now.minus(TERM_KEPT).as_millis())
    }

    /// Frees what the next of the dead hold, deletes their places in the queue, and the sessions that no lock names
    /// any more. Answers from where to go on.
    fn purge_the_dead(
        &mut self,
        namespace: &Namespace,
        retention: Retention,
        mut after: Option<SessionId>,
        left: &mut usize,
        purged: &mut Purged,
    ) -> Result<Option<Place>, R::Failure> {
        if *left == 0 {
            return Ok(Some(Place::Dead(after)));
        }
        let dead = self.rows.the_dead(namespace, after, *left)?;
        let is_full = dead.len() == *left;
        for (session, died) in dead {
            if *left == 0 {
                return Ok(Some(Place::Dead(after)));
            }
            *left -= 1;
            let places = self.rows.delete_waiters_of(session, (*left).max(1))?;
            purged.waiters += places;
            *left = left.saturating_sub(usize::try_from(places).unwrap_or(usize::MAX));
            let is_abandoned = died < self.now.minus(retention.locks);
            let freed = if is_abandoned { self.free_all_of(session, left)? } else { 0 };
            purged.freed += freed;
            // There may be more that did not fit.
            if *left == 0 && places + freed > 0 {
                return Ok(Some(Place::Dead(after)));
            }
            // An instance that finds a lock of a dead session must find its death.
            if died < self.now.minus(retention.sessions) && self.rows.held_by(session, None, 1)?.is_empty() {
                self.rows.delete_session(session)?;
                purged.sessions += 1;
            }
            after = Some(session);
        }
        Ok(is_full.then_some(Place::Dead(after)))
    }

    /// Frees the locks of a dead session, as far as it may, and says how many.
    fn free_all_of(&mut self, session: SessionId, left: &mut usize) -> Result<u64, R::Failure> {
        let mut freed = 0;
        for held in self.rows.held_by(session, None, (*left).max(1))? {
            *left = left.saturating_sub(1);
            let Ok(held) = held.record else { continue };
            let now = self.now;
            let is_freed = self.rows.change_lock(&held.lock, |lock| {
                if !lock.is_held_by(session) {
                    return Change::Keep(false);
                }
                free_of_the_dead(lock, now);
                Change::Put(true)
            })?;
            if matches!(is_freed, Ok(Some(true))) {
                self.ring(Bell::changed(&held.lock));
                freed += 1;
            }
        }
        Ok(freed)
    }
}

fn free_of_the_dead(lock: &mut LockRecord, now: StoreTime) {
    let delay = lock.holding.as_ref().map_or(Duration::ZERO, |held| held.by.lock_delay);
    lock.end(now, Ended::Died, None);
    lock.closed = (!delay.is_zero()).then(|| Closed::for_length(now, delay));
}
