//! The purge: what nobody needs any more goes.

use std::time::Duration;

use super::State;
use crate::{
    model::{Closed, Ended, LockRecord, Namespace, StoreTime},
    store::{Bell, Cursor, Purged, Retention, TERM_KEPT},
};

impl State {
    /// In one part: nothing here takes long.
    pub(super) fn purge(&self, namespace: Namespace, retention: Retention, _: Option<Cursor>) -> Purged {
        let now = self.clock.wall();
        let mut records = self.records();
        let before = records.counts();
        let idle = now.minus(retention.locks);
        let term_gone = now.minus(TERM_KEPT);
        records.locks.retain(|id, record| {
            id.namespace != namespace
                || record.holding.is_some()
                || record.closed.is_some_and(|closed| !closed.left(now).is_zero())
                || record.past.first().is_none_or(|last| last.to >= idle)
                || i64::try_from(record.term.get()).is_ok_and(|term| term >= term_gone.as_millis())
        });
        let mut dead = records.dead(&namespace);
        records.waiters.retain(|(_, session, _), _| !dead.contains_key(session));
        let abandoned = now.minus(retention.locks);
        let mut freed = 0;
        for lock in records.locks.values_mut() {
            let Some(session) = lock.holding.as_ref().map(|held| held.by.session) else { continue };
            match dead.get(&session) {
                Some(died) if *died < abandoned => {
                    self.free_of_the_dead(lock, now);
                    freed += 1;
                }
                // Its death must be there to be seen by whoever wants the lock.
                Some(_) => drop(dead.remove(&session)),
                None => {}
            }
        }
        let long_dead = now.minus(retention.sessions);
        for (id, _) in dead.into_iter().filter(|(_, died)| *died < long_dead) {
            records.sessions.remove(&id);
        }
        let after = records.counts();
        Purged {
            locks: before.0 - after.0,
            freed,
            sessions: before.1 - after.1,
            waiters: before.2 - after.2,
            next: None,
        }
    }

    fn free_of_the_dead(&self, lock: &mut LockRecord, now: StoreTime) {
        let delay = lock.holding.as_ref().map_or(Duration::ZERO, |held| held.by.lock_delay);
        lock.end(now, Ended::Died, None);
        lock.closed = (!delay.is_zero()).then(|| Closed::for_length(now, delay));
        self.ring(Bell::changed(&lock.id));
    }
}
