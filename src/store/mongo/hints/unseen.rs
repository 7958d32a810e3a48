//! Changes that a bell told of and no read has seen yet.

use std::sync::Mutex;

use bson::Timestamp;

use crate::sync::locked;

/// The latest time that a bell told of, until a read has seen it. A bell may come before what it tells of has
/// reached a majority: a read then would find nothing new.
#[derive(Default)]
pub(crate) struct Unseen(Mutex<Option<Timestamp>>);

impl Unseen {
    pub(crate) fn note(&self, at: Option<Timestamp>) {
        let mut latest = locked(&self.0);
        *latest = (*latest).max(at);
    }

    pub(crate) fn get(&self) -> Option<Timestamp> {
        *locked(&self.0)
    }

    /// Forgets a time up to this one: what was read by then is seen by every later read, too.
    pub(crate) fn forget(&self, at: Timestamp) {
        let mut latest = locked(&self.0);
        *latest = latest.filter(|latest| *latest > at);
    }
}
