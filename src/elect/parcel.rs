//! Parcels on their way to the program's runtime: a granted lock to its caller, a hold to its job.

use std::sync::{Arc, Mutex, Weak};

use super::hold::LeaseCell;
use crate::{model::Loss, sync::locked, words};

/// Something under a lease that the program's runtime is to pick up. Dropped or taken back, the lock goes back: nothing
/// has begun under it.
#[derive(Debug)]
pub(crate) struct Parcel<T>(Mutex<Option<T>>);

impl<T: Send + 'static> Parcel<T> {
    pub(crate) fn of(cell: &LeaseCell, content: T) -> Arc<Self> {
        let parcel = Arc::new(Self(Mutex::new(Some(content))));
        let unclaimed: Weak<dyn Unclaimed> = Arc::downgrade(&(parcel.clone() as Arc<dyn Unclaimed>));
        *locked(&cell.unclaimed) = Some((cell.now(), unclaimed));
        parcel
    }

    /// Picks it up; `None` if it was taken back.
    pub(crate) fn open(&self) -> Option<T> {
        locked(&self.0).take()
    }
}

/// A parcel that is still there.
pub(super) trait Unclaimed: Send + Sync {
    /// Takes it back. Returns what it was, or `None` if it was picked up.
    fn take_back(&self) -> Option<Box<dyn Send>>;
}

impl<T: Send + 'static> Unclaimed for Parcel<T> {
    fn take_back(&self) -> Option<Box<dyn Send>> {
        self.open().map(|content| Box::new(content) as Box<dyn Send>)
    }
}

impl LeaseCell {
    /// Gives the lock back if the program has not picked it up for half of its ttl: its runtime runs nothing.
    pub(crate) fn take_back(&self) {
        let (now, mut unclaimed) = (self.now(), locked(&self.unclaimed));
        let is_late = |(since, _): &mut (_, _)| now.since(*since) >= self.session.times.ttl / 2;
        let Some((_, parcel)) = unclaimed.take_if(is_late) else { return };
        drop(unclaimed);
        let Some(content) = parcel.upgrade().and_then(|parcel| parcel.take_back()) else { return };
        let (lock, holder) = (&self.lock, self.engine.config.holder());
        words::warn!(kind = %lock.kind, key = lock.key.as_str(), namespace = %lock.namespace, term = %self.term, %holder, "the program's runtime does not run, so a granted lock was not picked up: returning it");
        self.mark_picked_up(false);
        self.cancel(&Loss::Probe);
        drop(content);
    }
}
