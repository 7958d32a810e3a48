//! Requests of an operator to an instance: to give its tasks away, or that it accepts tasks again.
//!
//! Such a request goes the way of revocations, in the session's record. It names no lock: its key encodes the verb and the
//! session, among the tasks of a spread that the instance takes part in, so that the instance listens to it. Requests
//! count in the order in which they come.

use super::{Request, SessionRecord};
use crate::model::{Holder, Key, Kind, LockId, SessionId, StoreTime, Term, Why};

const DRAIN: &str = "tenure.drain";
const UNDRAIN: &str = "tenure.undrain";

impl Request {
    /// Request to give all tasks of its spreads and all its schedules to others, one after the other, and to take none, as
    /// [`Spread::drain`](crate::spread::Spread::drain) does for one spread. It holds until the instance is
    /// [undrained](Self::undrain) or its process ends, also for spreads that it joins later. Locks and campaigns are not
    /// concerned. [`Revocation::Ask`](crate::store::Revocation::Ask) carries it.
    ///
    /// With hints the instance receives it at once, without hints by its next beat; its shares in its session's record then
    /// show that they are draining. `at` tells it from an earlier one: the current time.
    #[must_use]
    pub fn drain(session: &SessionRecord, by: Holder, why: Why, at: StoreTime) -> Self {
        Self::of(session, DRAIN, by, why, at)
    }

    /// Request to accept tasks again after a [drain](Self::drain). A spread that the program drains itself stays drained.
    #[must_use]
    pub fn undrain(session: &SessionRecord, by: Holder, why: Why, at: StoreTime) -> Self {
        Self::of(session, UNDRAIN, by, why, at)
    }

    fn of(session: &SessionRecord, verb: &str, by: Holder, why: Why, at: StoreTime) -> Self {
        let lock = LockId {
            namespace: session.about.namespace.clone(),
            kind: session.shares.first().map_or(Kind::Lock, |share| Kind::of_tasks(&share.spread)),
            key: key(verb, session.id),
        };
        Self { lock, term: Term::first(at), by, why }
    }

    /// Returns true if this asks the session to drain, false if it asks it to accept tasks again; nothing if it is about a
    /// lock.
    pub(crate) fn drains(&self, session: SessionId) -> Option<bool> {
        if self.lock.key == key(DRAIN, session) {
            return Some(true);
        }
        (self.lock.key == key(UNDRAIN, session)).then_some(false)
    }
}

/// A key that no task has by chance.
fn key(verb: &str, session: SessionId) -> Key {
    Key::new(format!("{verb} {session}")).expect("it is a key")
}
