//! Memory of a key machine: contenders, the lock that is held, the locks that go back, and the last view of the lock.

use super::{
    rest::Throttle,
    types::{Expect, Handback, Patience},
};
use crate::{
    clock::Moment,
    model::{SessionId, Term},
    store::{Candidate, LockRecord, Ticket, Waiter},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Has not been tried.
    Try,
    /// Lost. The lock may have become free just before it stood in the queue.
    Again,
    /// Waits for a hint, a death, or the next look.
    Waiting,
}

/// Place of a ticket in the store's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueuePlace {
    /// Has none.
    Nowhere,
    /// Requested: it may have a place, also if that was not answered.
    Asked,
    /// Has one.
    Joined,
}

#[derive(Clone, Debug)]
pub(super) struct Contender {
    pub(super) by: Box<Candidate>,
    pub(super) patience: Patience,
    pub(super) step: NextStep,
    pub(super) tries: u32,
    /// Lost at least once: others want this lock too.
    pub(super) contested: bool,
    /// A take of it was not answered.
    pub(super) unconfirmed: bool,
    pub(super) place: QueuePlace,
    /// Moment at which it came.
    pub(super) since: Moment,
    /// Moment at which it joined, or was seen in the queue.
    pub(super) registered: Option<Moment>,
    /// Knowledge from before it came: a successor is handed the lock by a living holder, and the first take of one
    /// that knows of a death names the dead.
    pub(super) expect: Expect,
    /// Moment of the last read of the queue, and the term under which the lock was held then.
    pub(super) queue_read: Option<(Term, Moment)>,
    /// Sessions that stood before it then, and were not known dead.
    pub(super) ahead: Option<Vec<SessionId>>,
}

impl Contender {
    pub(super) fn is_unregistered(&self) -> bool {
        self.patience == Patience::Waits && self.step != NextStep::Try && self.place != QueuePlace::Joined
    }

    pub(super) fn dead(&self) -> Option<SessionId> {
        if let Expect::Dead(session) = self.expect { Some(session) } else { None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldState {
    /// A job runs, or a guard is out.
    Runs,
    /// Something suggests that the lock is no longer ours; a write is to confirm it.
    Suspected,
    /// Lost. The job has been notified; its end is awaited.
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLock {
    pub(super) session: SessionId,
    pub(super) ticket: Ticket,
    pub(super) term: Term,
    pub(super) hold: HeldState,
}

/// A lock that is to be given back.
#[derive(Clone, Debug)]
pub(super) struct Return {
    pub(super) session: SessionId,
    pub(super) ticket: Ticket,
    pub(super) term: Term,
    pub(super) handback: Handback,
    /// Waiters, once they were looked up, and when.
    pub(super) queue: Option<(Moment, Vec<Waiter>)>,
    /// The ticket of this session that is taking the lock over.
    pub(super) heir: Option<Ticket>,
    /// True if these are only the first of them.
    pub(super) is_part: bool,
    /// To look them up was refused once.
    pub(super) asks_again: bool,
    /// Times the store refused to write its record.
    pub(super) refused: u32,
}

/// Events that came while an operation was under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InFlight {
    /// True for the look of a waiter: others may be before it.
    pub(super) polls: bool,
    /// The lock may have become free meanwhile, and the answer may be from before: the lock is looked at again.
    pub(super) stale: bool,
    /// A grant was seen that no ticket here wants, and that the answer may explain.
    pub(super) unexpected_grant: bool,
}

/// Marks of the last operations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastOps {
    /// The last one was about the queue.
    pub(super) is_of_the_queue: bool,
    /// The last write of the lock had no answer.
    pub(super) is_stuck: bool,
    /// A waiter here has inherited the lock, and has not got it since.
    pub(super) has_inherited: bool,
}

/// Latest knowledge of the lock.
///
/// Not an enum, because the fields do not exclude each other: each has its own source, and the next operation depends
/// on how they combine. A hint that the lock is free leaves the record as it was read until a take has been answered:
/// a waiter that is before this instance may have the lock by then.
#[derive(Clone, Debug, Default)]
pub(super) struct LastSeen {
    /// The record that was read last, if it named another holder.
    pub(super) other: Option<Box<LockRecord>>,
    /// A read, a hint or a release here says that the lock is free.
    pub(super) free: bool,
    /// A release here handed it over, or an answer said that a ticket of this session has it: it has a holder, though
    /// no read has shown it yet.
    pub(super) handed_over: bool,
    /// The record could not be read: no ticket joins its queue, for that would be written into it.
    pub(super) refused: bool,
}

/// The last release here.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastRelease {
    pub(super) term: Term,
    pub(super) at: Moment,
    /// The lock went to a waiter.
    pub(super) handed_over: bool,
    /// More instances than that one were in the queue.
    pub(super) others_wait: bool,
}

/// Places in the store's queue that are to be removed.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    /// Tickets that contend no more and may still have a place.
    pub(super) tickets: Vec<(SessionId, Ticket)>,
    /// True if one of these tickets was given up: the lock may be handed to it all the same.
    pub(super) given_up: bool,
    /// Failures in a row.
    pub(super) tries: u32,
    pub(super) rest: Throttle,
}

/// Facts that may have changed since they were last known, and are to be read again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ForcedReads {
    /// The lock. It is held here, and a hint says that it was freed, or only that it was before; or it is waited for, and
    /// a hint says that it was handed to this session.
    pub(super) lock: bool,
    /// The front of the queue, before the next try.
    pub(super) queue: bool,
    /// The lock, and from time to time the place of this instance's first ticket: a failure of the store may have
    /// undone it.
    pub(super) entry: bool,
}
