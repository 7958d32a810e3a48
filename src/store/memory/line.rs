//! The line before a lock.

use super::State;
use crate::{
    model::{LockId, SessionId, Ticket, Waiter},
    store::{Bell, Line, Wait},
};

impl State {
    pub(super) fn wait(&self, waits: Vec<Wait>) {
        for wait in waits {
            self.wait_for(wait);
        }
    }

    fn wait_for(&self, wait: Wait) {
        let since = self.clock.wall();
        let Wait { lock, by } = wait;
        let place = (lock.clone(), by.session, by.ticket);
        let mut records = self.records();
        if lock.kind.spread().is_none()
            && let Some(record) = records.locks.get_mut(&lock)
        {
            record.wanted |= record.holding.is_some();
        }
        records.waiters.entry(place).or_insert_with(|| {
            self.ring(Bell::line(&lock));
            Waiter { lock, by, since }
        });
    }

    pub(super) fn stop_waiting(&self, waits: Vec<(LockId, SessionId, Ticket)>) {
        let mut records = self.records();
        for place in &waits {
            records.waiters.remove(place);
        }
    }

    pub(super) fn waiters(&self, lock: LockId, at_most: usize) -> Line {
        let records = self.records();
        let mut line: Vec<_> =
            records.waiters.values().filter(|waiter| waiter.lock == lock).cloned().collect();
        line.sort_by_key(|waiter| (waiter.since, waiter.by.session, waiter.by.ticket));
        let whole = line.len() < at_most;
        line.truncate(at_most);
        Line { waiters: line, whole }
    }

    pub(super) fn places(&self, places: Vec<(LockId, SessionId, Ticket)>) -> Vec<bool> {
        let records = self.records();
        places.iter().map(|place| records.waiters.contains_key(place)).collect()
    }
}
