//! Reports of what happens to leases: a log line, a count and an event for each.

use std::time::Duration;

use super::{Engine, Event, hold::LeaseCell, metrics, tallies::Note};
use crate::{
    model::{LockId, Loss, SessionId},
    words,
};

impl Engine {
    pub(crate) fn lease_granted(&self, lease: &LeaseCell) {
        let (LockId { kind, key, namespace }, holder) = (&lease.lock, self.config.holder());
        let (term, session) = (lease.term, lease.session.id);
        if self.tallies.note(&lease.lock, Note::Acquired, None) {
            words::debug!(%kind, key = key.as_str(), %namespace, %term, %session, %holder, "acquired a task");
        } else {
            words::info!(%kind, key = key.as_str(), %namespace, %term, %session, %holder, "acquired");
        }
        metrics::acquired(self, lease);
        self.events.send(Event::Acquired { lock: lease.lock.clone(), term: lease.term });
    }

    pub(crate) fn lease_lost(&self, lease: &LeaseCell, loss: &Loss) {
        let (LockId { kind, key, namespace }, holder) = (&lease.lock, self.config.holder());
        let (lock, term) = (lease.lock.clone(), lease.term);
        if loss.is_wanted() {
            words::debug!(%kind, key = key.as_str(), %namespace, %term, %loss, "stopping on request");
            return;
        }
        if self.tallies.note(&lease.lock, Note::Lost, Some(loss.to_string())) {
            words::debug!(%kind, key = key.as_str(), %namespace, %term, %holder, %loss, "lost a task");
        } else {
            words::warn!(%kind, key = key.as_str(), %namespace, %term, %holder, %loss, "lost");
        }
        metrics::lost(self, loss);
        self.events.send(Event::Lost { lock, term, loss: loss.clone() });
    }

    pub(crate) fn lease_returned(&self, lease: &LeaseCell, lost: bool) {
        metrics::returned(self, lease);
        if !lost {
            let (LockId { kind, key, namespace }, holder) = (&lease.lock, self.config.holder());
            let term = lease.term;
            if self.tallies.note(&lease.lock, Note::Released, None) {
                words::debug!(%kind, key = key.as_str(), %namespace, %term, %holder, "released a task");
            } else {
                words::info!(%kind, key = key.as_str(), %namespace, %term, %holder, "released");
            }
            self.events.send(Event::Released { lock: lease.lock.clone(), term: lease.term });
        }
    }

    pub(crate) fn overran(&self, lease: &LeaseCell, by: Duration) {
        metrics::overran(self);
        self.events.send(Event::Overran { lock: lease.lock.clone(), term: lease.term, by });
    }

    pub(crate) fn panicked(&self, lease: &LeaseCell, message: &str) {
        let (lock, term) = (lease.lock.clone(), lease.term);
        let LockId { kind, key, namespace } = &lease.lock;
        words::error!(%kind, key = key.as_str(), %namespace, %term, panic = message, "a job panicked");
        self.events.send(Event::Panicked { lock, term, message: message.to_owned() });
    }

    /// Reports a lock that was taken over from a dead session.
    pub(crate) fn lock_taken_over(&self, lock: &LockId, session: SessionId) {
        let Some(silent) = self.watcher.silent_for(session, self.clock.now()) else { return };
        let (from, LockId { kind, key, namespace }) = (self.watcher.name(session), lock);
        let holder = self.config.holder();
        if self.tallies.note(lock, Note::TookOver, Some(from.clone())) {
            words::debug!(%kind, key = key.as_str(), %namespace, %holder, from, %session, ?silent, "took over a task from a dead session");
        } else {
            words::info!(%kind, key = key.as_str(), %namespace, %holder, from, %session, ?silent, "took over from a dead session");
        }
        metrics::taken_over(self, silent);
    }
}
