//! The records that are passed to a store: what its methods are asked to do.

use std::time::Duration;

use crate::{
    model::{
        Holder, LockId, Namespace, Outcome, Rules, RunId, ScheduleId, SessionId, Skipped, SpreadName,
        StoreTime, Term, Value, Why,
    },
    store::{About, Beat, Candidate, Drained, Nonce, Note, Request, RunNow, Share, Topic},
};

/// The age by the store's clock that a term must have before its record may go ([R5](crate::store#rules-of-safety)):
/// a clock that steps back by less than this gives out no term below an earlier one.
pub const TERM_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The most requests a session carries. More are refused until some are heard.
pub const MAX_REQUESTS: usize = 1000;

/// The most sessions that are told of a lock that was released to nobody.
pub const MOST_TOLD: usize = 32;

/// A session to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The id, never used before.
    pub session: SessionId,
    /// A nonce that marks this attempt.
    pub nonce: Nonce,
    /// The instance it belongs to.
    pub about: About,
    /// The time that each beat keeps it alive.
    pub ttl: Duration,
    /// The spreads it takes part in from the start.
    pub shares: Vec<Share>,
    /// The order to drain that its instance follows, given to an earlier session of the same process.
    pub drained: Option<Drained>,
}

/// A beat (a heartbeat of a session) to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeatWrite {
    /// The session that beats.
    pub session: SessionId,
    /// The number of the beat, larger than that of every attempt before.
    pub beat: Beat,
    /// A nonce that marks this attempt.
    pub nonce: Nonce,
    /// Time since which the program's runtime has run no task, if that is long ago.
    pub stalled_since: Option<StoreTime>,
    /// The spreads it takes part in from now on, if that has changed.
    pub shares: Option<Vec<Share>>,
    /// The spreads it took part in until then, and takes part in no more: their members are told.
    pub left: Vec<SpreadName>,
    /// The requests it has heard, by lock and term: they need not be brought again.
    pub heard: Vec<(LockId, Term)>,
}

impl BeatWrite {
    /// A beat that says nothing but that the session lives.
    #[must_use]
    pub const fn new(session: SessionId, beat: Beat, nonce: Nonce) -> Self {
        Self { session, beat, nonce, stalled_since: None, shares: None, left: Vec::new(), heard: Vec::new() }
    }
}

/// A session that is to be declared dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The session.
    pub session: SessionId,
    /// The evidence that it is dead.
    pub ground: Evidence,
    /// The instance or operator that declares it.
    pub by: Holder,
    /// The reason, for the record.
    pub why: Why,
    /// The spreads whose members are told, beside those that the session took part in.
    pub tell: Vec<SpreadName>,
}

/// Evidence that entitles the caller to declare a session dead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// The caller has watched the beat of this nonce for the whole ttl. Has no effect if there has
    /// been another beat.
    Unbeaten {
        /// The nonce of the beat that was watched.
        nonce: Nonce,
    },
    /// The caller has found no such session for the whole ttl that a lock record carries for it.
    /// Inserts a dead one (a tombstone), if it is still absent.
    Missing {
        /// The lock's namespace.
        namespace: Namespace,
        /// The holder's name in the lock record.
        holder: Holder,
        /// The ttl in the lock record.
        ttl: Duration,
    },
    /// The session's [presence](super::Store::presence), which it and its jobs kept as long as they lived, is gone: the
    /// store proves that by itself. Has no effect without that proof, so none on a session that was opened without a
    /// presence, and none in a store that gives none.
    Gone,
    /// An operator says so.
    Operator,
}

/// A lock to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// The lock.
    pub lock: LockId,
    /// The candidate that takes it.
    pub by: Candidate,
}

/// A lock to release. Named by lock, session and term ([R6](crate::store#rules-of-safety)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The lock.
    pub lock: LockId,
    /// The session that holds it.
    pub session: SessionId,
    /// The term it holds it under.
    pub term: Term,
    /// A note for the record about the end.
    pub note: Option<Note>,
    /// The next holder, if any.
    pub then: ReleaseTo,
}

/// The state of a lock after its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseTo {
    /// Any session may take it; those in its queue then, up to [`MOST_TOLD`], are told. It is not
    /// [wanted](crate::store::LockRecord::wanted) any more.
    Free,
    /// Any session may take it, if it is not wanted. If it is, nothing is changed.
    FreeUnlessWanted,
    /// No session may take it for a while (lock-at-least-for).
    ClosedFor(Duration),
    /// The first in the queue holds it, by the same write.
    HandTo(Box<Candidate>),
}

/// A place in the queue to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The lock that is waited for.
    pub lock: LockId,
    /// The candidate that waits.
    pub by: Candidate,
}

/// A value to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetValue {
    /// The lock.
    pub lock: LockId,
    /// The session that holds it.
    pub session: SessionId,
    /// The term it holds it under.
    pub term: Term,
    /// The number of this change, from 1, larger than that of every change before under this term.
    pub number: u64,
    /// The new value; `None` to clear it.
    pub value: Option<Value>,
}

/// A way for an operator to get a lock back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// Asks the session that holds it; the request reaches it with its next beat, or by a hint.
    Ask {
        /// The session on the lock's record.
        session: SessionId,
        /// The request.
        request: Request,
    },
    /// Orders a session to give all its tasks and schedules away and to take none, or takes that order back. Its record
    /// keeps the order. With hints it is followed at once, without them by the next beat.
    Drain {
        /// The session.
        session: SessionId,
        /// The operator and the reason; `None` to take the order back.
        order: Option<(Holder, Why)>,
        /// The topic that it listens to: a spread that it takes part in, if there is one.
        tell: Topic,
    },
    /// Takes it away from a session that may be alive and working: the lock is free at once, and
    /// its holder may go on until it notices. Only its term protects what it writes.
    Force(Request),
    /// Opens a lock that has no holder and that is kept [closed](crate::store::Closed) since its holder of that
    /// term: any session may take it at once.
    Reopen(Request),
}

/// A tick to claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The tick.
    pub run: RunId,
    /// The session that claims it.
    pub session: SessionId,
    /// The claimer's name.
    pub holder: Holder,
    /// The term it owns the schedule under.
    pub term: Term,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The attempt it replaces, by term and number: one that failed, or whose runner died. `None`
    /// for the first.
    pub instead_of: Option<(Term, u32)>,
    /// The ticks that are not run, if this is an entry of such.
    pub skipped: Option<Skipped>,
}

/// A definition to store for a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Define {
    /// The schedule.
    pub schedule: ScheduleId,
    /// The term its owner has it under.
    pub term: Term,
    /// The instants it has.
    pub timing: Rules,
    /// The policies for ticks that are late, overlap, or fail.
    pub policies: Rules,
    /// A timing that comes to the same: if that is the one on record, the new one counts from when that did.
    pub instead_of: Option<Rules>,
}

/// An instruction to a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Instruction {
    /// Run no tick from now on. A schedule that is paused already stays as it is.
    Pause {
        /// The person or program that pauses it.
        by: Holder,
        /// The reason.
        why: Why,
    },
    /// Run its ticks again.
    Resume,
    /// Run it now. At most [`MAX_ORDERS`] may wait.
    Run(RunNow),
    /// Drop the order of that instant: it is in the ledger.
    Ran {
        /// The instant of the order.
        at: StoreTime,
    },
}

/// The most orders that wait for a schedule. More are refused until some are run.
pub const MAX_ORDERS: usize = 100;

/// The most pauses before the last one that a schedule remembers: the earliest is forgotten first.
pub const MAX_PAUSES_BEFORE: usize = 20;

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishRun {
    /// The tick.
    pub run: RunId,
    /// The session that claimed it.
    pub session: SessionId,
    /// The term it holds it under.
    pub term: Term,
    /// The number of the attempt.
    pub attempt: u32,
    /// The outcome.
    pub outcome: Outcome,
    /// The error, if it failed.
    pub error: Option<Why>,
    /// True if no attempt follows.
    pub last: bool,
}
