//! Input and output of a key's machine: operations, answers, outcomes, and the context of a step.

use std::{sync::Arc, time::Duration};

use crate::{
    StoreError,
    clock::Moment,
    logic::watch::{Liveness, Named},
    model::{Holder, Loss, SessionId, StoreTime, Term},
    store::{
        Candidate, LockRecord, LockSeen, Note, Queue, Refusal, ReleaseAnswer, ReleaseTo, TakeAnswer, Ticket,
    },
};

/// An operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Read the lock.
    Look,
    /// Read it as it is now, though a failure of the store may undo that.
    Peek,
    /// Take it for this ticket, naming the sessions known dead.
    Take { by: Box<Candidate>, dead: Vec<SessionId> },
    /// Ask by a write whether this ticket, which runs here, still holds it.
    Confirm { session: SessionId, ticket: Ticket },
    /// Release it, and leave the queue with these tickets, at the same time.
    Release {
        session: SessionId,
        term: Term,
        note: Option<Note>,
        then: ReleaseTo,
        leaving: Vec<(SessionId, Ticket)>,
    },
    /// Read the lock, and whether this ticket is in the queue still.
    Poll { session: SessionId, ticket: Ticket },
    /// Read the first waiters in the queue, and whether those that may be given the lock, and those of that name,
    /// are alive.
    ReadQueue { most: usize, to: Option<Holder> },
    /// Join the queue with these tickets.
    Register(Vec<Candidate>),
    /// Leave the queue with these.
    Leave(Vec<(SessionId, Ticket)>),
    /// Find out about the holder's session.
    Inquire { session: SessionId, named: Named },
}

/// Result of an operation.
#[derive(Clone, Debug)]
pub(crate) enum OpReply {
    Seen(LockSeen),
    /// The place is unknown if it could not be read.
    Polled {
        seen: LockSeen,
        in_queue: Option<bool>,
    },
    Took(TakeAnswer),
    /// With whether the queue was left.
    Released {
        answer: ReleaseAnswer,
        left: bool,
    },
    Queue(Queue),
    Done,
    Known(Liveness),
    Failed(Arc<StoreError>),
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextOp {
    /// Operation to do; then bring the answer.
    Do(Op),
    /// No operation until then, or until an event.
    At(Moment),
    /// No operation until an event.
    Idle,
}

/// Output of the machine for its caller.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    /// Outcome of this ticket, which is pending no more.
    Verdict(Ticket, TicketOutcome),
    /// Watch this session: it holds the lock, or is before us in the queue.
    Watch(SessionId, Option<Named>),
    /// The lease of this ticket is lost, although its session lives.
    Lost(Ticket, Loss),
    /// The lock of this ticket is released, or was gone.
    Returned(Ticket),
    /// The lock was taken from this session, which is dead.
    TookOver(SessionId),
    /// The lock's record cannot be used, and something here waits for it or is to release it.
    Refused(Refusal),
}

/// Outcome of a ticket.
#[derive(Clone, Debug)]
pub(crate) enum TicketOutcome {
    /// Holds the lock.
    Granted { term: Term, since: StoreTime },
    /// Held by another.
    Held(Box<LockRecord>, Liveness),
    /// Held by this instance for another ticket, or awaited by it.
    Here,
    /// Closed: without a holder, and not to be taken yet.
    Closed(Box<LockRecord>),
    /// The record cannot be used.
    Refused(Refusal),
    /// The store did not answer.
    Failed(Arc<StoreError>),
    /// Void, for its session ended first.
    SessionOver,
}

/// State of a lock, as its last answers have it.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    /// Held, here or elsewhere.
    Held,
    /// The store does not answer.
    Failing(Arc<StoreError>),
    /// No answer yet; or it is free, or closed.
    Unknown,
}

/// Patience of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Answered at once.
    Once,
    /// Waits until it is granted or given up.
    Waits,
}

/// Prior knowledge of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// No knowledge: it may be free.
    Nothing,
    /// Held by a living session: a take would lose.
    Held,
    /// The one on its record is dead.
    Dead(SessionId),
}

/// Mode of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitMode {
    pub(crate) patience: Patience,
    pub(crate) expect: Expect,
}

impl WaitMode {
    /// Answered at once, with nothing known.
    pub(crate) const ONCE: Self = Self { patience: Patience::Once, expect: Expect::Nothing };
    /// Waits until it is granted, with nothing known.
    pub(crate) const WAITS: Self = Self { patience: Patience::Waits, expect: Expect::Nothing };
    /// Waits until it is handed over by a living holder.
    pub(crate) const SUCCESSOR: Self = Self { patience: Patience::Waits, expect: Expect::Held };

    /// Answered at once; the record may name that dead session.
    pub(crate) const fn once(dead: Option<SessionId>) -> Self {
        let expect = match dead {
            Some(dead) => Expect::Dead(dead),
            None => Expect::Nothing,
        };
        Self { patience: Patience::Once, expect }
    }
}

/// Terms on which a job gives its lock back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handback {
    /// Leave the record as it is: it is freed by the death of the session, which is near.
    pub(crate) keep: bool,
    /// Keep the key closed for so long.
    pub(crate) closed_for: Duration,
    /// To this ticket, which was seen in the queue.
    pub(crate) successor: Option<Box<Candidate>>,
    /// To no waiter, but the waiters are told.
    pub(crate) offered: bool,
    /// To a waiter of this name, if there is one.
    pub(crate) to: Option<Holder>,
    /// Note on the end, for the record.
    pub(crate) note: Option<Note>,
}

/// Surroundings of the key as a step is taken.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) now: Moment,
    /// The session that is valid now, if there is one.
    pub(crate) current: Option<SessionId>,
    /// Liveness of other sessions, as far as it is known.
    pub(crate) known: &'a dyn Fn(SessionId) -> Option<Liveness>,
    /// True for another session that was seen to beat, and whose next beat is not due yet.
    pub(crate) beats: &'a dyn Fn(SessionId) -> bool,
    /// The store's time, as far as it can be guessed.
    pub(crate) store_now: Option<StoreTime>,
    /// Any random number.
    pub(crate) roll: u64,
}

impl Op {
    /// Returns whether it has to do with the queue alone, which decides nothing.
    pub(super) const fn is_of_the_queue(&self) -> bool {
        matches!(self, Self::Register(_) | Self::Leave(_) | Self::ReadQueue { .. })
    }
}
