//! The records that are passed to a store: what its methods are asked to do.

use std::time::Duration;

use crate::model::{
    About, Beat, Candidate, Holder, LockId, Namespace, Nonce, Outcome, Request, Rules, RunId, RunNow,
    ScheduleId, SessionId, Share, Skipped, StoreTime, Term, Value, Why,
};

/// How much older than the store's clock a term must be before its record may go (R5): a clock that
/// steps back by less than this finds no term below one it has given out.
pub const TERM_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The most requests a session carries. More are refused until some are heard.
pub const MAX_REQUESTS: usize = 1000;

/// A session to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Its id, never used before.
    pub session: SessionId,
    /// The mark of this attempt.
    pub nonce: Nonce,
    /// Whose it is.
    pub about: About,
    /// How long each beat keeps it alive.
    pub ttl: Duration,
    /// The spreads it takes part in from the start.
    pub shares: Vec<Share>,
}

/// A beat to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeatWrite {
    /// Whose.
    pub session: SessionId,
    /// Its number, larger than that of every attempt before.
    pub beat: Beat,
    /// The mark of this attempt.
    pub nonce: Nonce,
    /// The spreads it takes part in from now on, if that has changed.
    pub shares: Option<Vec<Share>>,
    /// The requests it has heard, by lock and term: they need not be brought again.
    pub heard: Vec<(LockId, Term)>,
}

/// A session that is to be declared dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Which session.
    pub session: SessionId,
    /// On what ground.
    pub ground: Evidence,
    /// By whom.
    pub by: Holder,
    /// Why, for the record.
    pub why: Why,
}

/// What entitles somebody to declare a session dead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// The caller has watched the beat of this nonce for the whole ttl. Does nothing if there has
    /// been another beat.
    Unbeaten {
        /// The mark of the beat that was watched.
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
    /// An operator says so.
    Operator,
}

/// A lock to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// Which lock.
    pub lock: LockId,
    /// For whom.
    pub by: Candidate,
}

/// A lock to release. Named by lock, session and term (R6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Which lock.
    pub lock: LockId,
    /// Who holds it.
    pub session: SessionId,
    /// Under which term.
    pub term: Term,
    /// What the record is to say of the end.
    pub note: Option<Why>,
    /// To whom.
    pub then: ReleaseTo,
}

/// What becomes of a lock that is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseTo {
    /// Anybody may take it.
    Free,
    /// Nobody may take it for a while (lock-at-least-for).
    ClosedFor(Duration),
    /// It goes to the first in line, in the same write.
    HandTo(Box<Candidate>),
}

/// A place in line to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// For which lock.
    pub lock: LockId,
    /// Who waits.
    pub by: Candidate,
}

/// A value to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetValue {
    /// Of which lock.
    pub lock: LockId,
    /// Who holds it.
    pub session: SessionId,
    /// Under which term.
    pub term: Term,
    /// Its number, from 1, larger than that of every change before under this term.
    pub number: u64,
    /// The new value; nothing to clear it.
    pub value: Option<Value>,
}

/// How an operator gets a lock back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// Asks the session that holds it; the request reaches it with its next beat, or by a hint.
    Ask {
        /// The session on the lock's record.
        session: SessionId,
        /// What is asked.
        request: Request,
    },
    /// Takes it away from a session that may be alive and working: the lock is free at once, and
    /// its holder may go on until it notices. Only its term protects what it writes.
    Force(Request),
    /// Opens a lock that nobody holds and that is kept [closed](crate::model::Closed) since its holder of that
    /// term: whoever wants it may take it at once.
    Reopen(Request),
}

/// A tick to claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which tick.
    pub run: RunId,
    /// Who claims it.
    pub session: SessionId,
    /// The claimer's name.
    pub holder: Holder,
    /// The term it owns the schedule under.
    pub term: Term,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The attempt it replaces, by term and number: one that failed, or whose runner died. Nothing
    /// for the first.
    pub instead_of: Option<(Term, u32)>,
    /// The ticks that are not run, if this is an entry of such.
    pub skipped: Option<Skipped>,
}

/// What a schedule is to go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Define {
    /// Which schedule.
    pub schedule: ScheduleId,
    /// The term its owner has it under.
    pub term: Term,
    /// Which instants it has.
    pub timing: Rules,
    /// What is done about ticks that are late, overlap, or fail.
    pub policies: Rules,
    /// A timing that comes to the same: if that is the one on record, the new one counts from when that did.
    pub instead_of: Option<Rules>,
}

/// What is wanted of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Instruction {
    /// Its ticks are not to be run, from now on. One that is held back already stays as it is.
    Pause {
        /// Who wants it.
        by: Holder,
        /// Why.
        why: Why,
    },
    /// Its ticks are run again.
    Resume,
    /// It is to be run now. At most [`MAX_ORDERS`] may wait.
    Run(RunNow),
    /// The order of that instant is in the ledger.
    Ran {
        /// Which.
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
    /// Which tick.
    pub run: RunId,
    /// Who claimed it.
    pub session: SessionId,
    /// Under which term.
    pub term: Term,
    /// Which attempt.
    pub attempt: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// What went wrong.
    pub error: Option<Why>,
    /// No attempt follows.
    pub last: bool,
}

/// How long records are kept that nobody uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Locks that nobody holds; and for how long a lock of the dead is kept for whoever takes it over.
    /// Default 7 days.
    pub locks: Duration,
    /// Sessions that are dead. Default 24 hours.
    pub sessions: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        Self { locks: 7 * day, sessions: day }
    }
}
