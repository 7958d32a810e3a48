//! Budget of events: how often each may happen, which makes the space of states finite.
//!
//! No order is cut at random. Within its budget every order of events is gone through.

use crate::model::world::Time;

#[expect(clippy::struct_excessive_bools, reason = "each is one thing that may happen, or not")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) instances: u8,
    /// Maximum number of sessions. The initial ones are open.
    pub(crate) sessions: u8,
    /// Number of instances, the last ones, whose sessions' beats are always answered, and are not modelled.
    pub(crate) steady: u8,
    /// The first one's job runs at the beginning, and the others' tickets stand.
    pub(crate) begun: bool,
    /// Time that passes.
    pub(crate) ticks: Time,
    pub(crate) ttl: Time,
    pub(crate) margin: Time,
    /// A single clock may run ahead.
    pub(crate) drift: bool,
    /// Openings and beats of a session, the first opening included.
    pub(crate) attempts: u8,
    /// Tickets of a session.
    pub(crate) tickets: u8,
    pub(crate) gives_up: bool,
    pub(crate) queue: bool,
    pub(crate) audit: bool,
    /// An instance closes a session that is over.
    pub(crate) closes: bool,
    pub(crate) failovers: u8,
    /// A primary that was replaced may still be asked.
    pub(crate) two_primaries: bool,
    /// Requests that are not answered in time: late, or lost, or only their answer is.
    pub(crate) timeouts: u8,
    /// Requests that arrive twice.
    pub(crate) doubles: u8,
    /// Session records deleted by hand.
    pub(crate) deletions: u8,
    /// Sessions given up before their end.
    pub(crate) abandons: u8,
    pub(crate) cancels: u8,
    /// Locks that are confirmed, for whatever reason.
    pub(crate) expirations: u8,
    /// Requests on their way at once.
    pub(crate) room: usize,
}

impl Budget {
    /// Two instances that want the lock once, and nothing goes wrong.
    pub(crate) const CALM: Self = Self {
        instances: 2,
        sessions: 2,
        steady: 0,
        begun: false,
        ticks: 0,
        ttl: 3,
        margin: 1,
        drift: false,
        attempts: 1,
        tickets: 1,
        gives_up: false,
        queue: false,
        audit: false,
        closes: false,
        failovers: 0,
        two_primaries: false,
        timeouts: 0,
        doubles: 0,
        deletions: 0,
        abandons: 0,
        cancels: 0,
        expirations: 0,
        room: 3,
    };
}
