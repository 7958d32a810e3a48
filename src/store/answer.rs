//! What a store answers.

use std::fmt;

use crate::model::{
    LockId, LockRecord, MAX_NUMBER, Nonce, RunRecord, ScheduleId, ScheduleRecord, SessionId, SessionRecord,
    StoreTime, Term, Ticket, Waiter,
};

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Its name, for messages.
    pub name: &'static str,
    /// Who can share it.
    pub reach: Reach,
    /// Whether it gives hints. Without, whoever waits goes by its own pace.
    pub hints: bool,
}

impl Capabilities {
    /// A store of that name and reach.
    #[must_use]
    pub const fn new(name: &'static str, reach: Reach, hints: bool) -> Self {
        Self { name, reach, hints }
    }
}

/// How far a store reaches: nobody beyond it is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// The engines of one process.
    Process,
    /// The processes of one machine.
    Host,
    /// Every machine that reaches it.
    Fleet,
}

/// Why a record is not used. It is left as it is; somebody has to look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It has no layout version: something else wrote it.
    Foreign,
    /// Its layout version is not known to this program: a newer one wrote it. A lock counts as
    /// held, a session as alive.
    Layout {
        /// The version it has.
        found: String,
    },
    /// A field is missing, of the wrong type, or absurd: somebody wrote it by hand.
    Damaged {
        /// Which field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// It has no room for more.
    Full {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => {
                f.write_str("the record has no layout version `v`: it was not written by tenure")
            }
            Self::Layout { found } => {
                write!(f, "the record has layout version {found}, which this version of tenure does not know")
            }
            Self::Damaged { field, problem } => write!(f, "the record's field `{field}` {problem}"),
            Self::Full { what, most } => write!(f, "the record has {most} {what} already, which is the most"),
        }
    }
}

/// A session as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSeen {
    /// Nobody has declared it dead.
    Alive(SessionRecord),
    /// It is dead, for ever.
    Dead(SessionRecord),
    /// There is none of that id. It may never have been opened, or was deleted.
    Missing,
    /// It cannot be read. It counts as alive and is never declared.
    Refused(Refusal),
}

impl SessionSeen {
    /// Whether it is alive and its last beat is this one.
    #[must_use]
    pub fn bears(&self, nonce: Nonce) -> bool {
        matches!(self, Self::Alive(record) if record.nonce == nonce)
    }

    /// Whether it is dead.
    #[must_use]
    pub const fn is_dead(&self) -> bool {
        matches!(self, Self::Dead(_))
    }

    /// The record, alive or dead.
    #[must_use]
    pub const fn record(&self) -> Option<&SessionRecord> {
        match self {
            Self::Alive(record) | Self::Dead(record) => Some(record),
            Self::Missing | Self::Refused(_) => None,
        }
    }

    /// What a record that was read says.
    #[must_use]
    pub fn of(record: SessionRecord) -> Self {
        if record.is_alive() { Self::Alive(record) } else { Self::Dead(record) }
    }
}

/// What a take comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeAnswer {
    /// The caller's ticket holds it, now or since an earlier answer that was lost.
    Taken(LockRecord),
    /// Somebody else does, or a later ticket of the caller's session.
    Held(LockRecord),
    /// Nobody does, and nobody may yet.
    Closed(LockRecord),
    /// The record cannot be used. It counts as held.
    Refused(Refusal),
}

impl TakeAnswer {
    /// What the lock's record means to the ticket that asked for it.
    #[must_use]
    pub fn of(record: LockRecord, session: SessionId, ticket: Ticket) -> Self {
        if record.is_granted_to(session, ticket) {
            Self::Taken(record)
        } else if record.term.get() == MAX_NUMBER {
            let problem = format!("is {MAX_NUMBER}, the largest there is: no larger one can be granted");
            Self::Refused(Refusal::Damaged { field: "term".to_owned(), problem })
        } else if record.holding.is_none() {
            Self::Closed(record)
        } else {
            Self::Held(record)
        }
    }

    /// The lock, if it is the caller's.
    #[must_use]
    pub const fn taken(&self) -> Option<&LockRecord> {
        if let Self::Taken(record) = self { Some(record) } else { None }
    }
}

/// What a release comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseAnswer {
    /// That session does not hold it under that term any more: since this call, or before it.
    Released,
    /// The record cannot be written. It stays as it is.
    Refused(Refusal),
}

/// A lock as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockSeen {
    /// Its record.
    Found(LockRecord),
    /// It has none: nobody ever took it, or it was purged.
    Absent,
    /// Its record cannot be read. It counts as held.
    Refused(Refusal),
}

impl LockSeen {
    /// The record, if there is one.
    #[must_use]
    pub fn found(self) -> Option<LockRecord> {
        if let Self::Found(record) = self { Some(record) } else { None }
    }
}

/// What setting a value comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetAnswer {
    /// It is set.
    Set,
    /// That session does not hold the lock under that term.
    NotHeld,
    /// The record cannot be written.
    Refused(Refusal),
}

/// What a revocation comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevokeAnswer {
    /// The holder is asked, now or since before.
    Asked,
    /// The lock is taken away, or open, now or since before.
    Freed(LockRecord),
    /// There is nobody to ask, the session being dead or missing; or nothing to take away, for the lock
    /// is not held under that term; or nothing to open, for it was granted to somebody else since.
    NotHeld,
    /// The record cannot be written.
    Refused(Refusal),
}

/// What a claim or a finish comes to: the run as it stands afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// The caller's attempt is the one on record.
    Yours(RunRecord),
    /// Another attempt is.
    Others(RunRecord),
    /// Nobody claimed that tick. Only a finish is answered so.
    Absent,
    /// The record cannot be used. The tick counts as claimed.
    Refused(Refusal),
}

impl ClaimAnswer {
    pub(crate) fn of(record: RunRecord, session: SessionId, term: Term, attempt: u32) -> Self {
        if record.is_claimed_by(session, term, attempt) { Self::Yours(record) } else { Self::Others(record) }
    }
}

/// A schedule as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleSeen {
    /// Its record.
    Found(ScheduleRecord),
    /// It has none.
    Absent,
    /// Its record cannot be used.
    Refused(Refusal),
}

/// A lock that a session holds, as the audit lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which lock.
    pub lock: LockId,
    /// Under which term.
    pub term: Term,
    /// Granted to which ticket.
    pub ticket: Ticket,
}

/// A place in a listing, made by the store that goes on from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(Vec<u8>);

impl Cursor {
    /// A place written by a store in whatever way it can read again.
    #[must_use]
    pub const fn new(place: Vec<u8>) -> Self {
        Self(place)
    }

    /// What the store wrote.
    #[must_use]
    pub fn place(&self) -> &[u8] {
        &self.0
    }
}

/// Some records of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// Those that can be read, in order.
    pub items: Vec<T>,
    /// Those that cannot: what they call themselves, and why.
    pub refused: Vec<(String, Refusal)>,
    /// Where to go on; nothing at the end.
    pub next: Option<Cursor>,
}

/// Who stands in line for a lock, as far as was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Those that can be read, longest wait first.
    pub waiters: Vec<Waiter>,
    /// Fewer stand there than were asked for, readable or not: nobody stands behind these.
    pub whole: bool,
}

/// Some runs of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPage {
    /// The runs.
    pub page: Page<RunRecord>,
    /// Runs up to this instant may have been purged.
    pub mark: Option<StoreTime>,
}

/// What one part of a purge removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Locks.
    pub locks: u64,
    /// Locks of the dead that are free now.
    pub freed: u64,
    /// Sessions.
    pub sessions: u64,
    /// Places in line.
    pub waiters: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<Cursor>,
}

/// Something changed. Shortens a wait, decides nothing (R12).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Hints may have been lost before this one: whoever waits looks for itself.
    Resync,
    /// None come at present: the stream ended, or cannot be opened. [`Resync`](Self::Resync) says that it is
    /// open again.
    Failing {
        /// Why not.
        error: String,
        /// Whether somebody has to change something first: a right, a password.
        lasting: bool,
    },
    /// A lock changed hands, or became free.
    Lock {
        /// Which lock.
        lock: LockId,
        /// The whole change, if the hint has it; else whoever is concerned reads the lock.
        change: Option<LockChange>,
    },
    /// The holder of a schedule's lock changed its [value](crate::model::Candidate::value). Those of other locks are
    /// their programs' own, and nobody is told.
    Value {
        /// Which lock.
        lock: LockId,
    },
    /// Somebody began to wait for a lock.
    Queue {
        /// Which lock.
        lock: LockId,
    },
    /// There is news of a session.
    Session {
        /// Which session.
        session: SessionId,
        /// What news.
        news: SessionNews,
    },
    /// A schedule was defined anew, or something is wanted of it.
    Schedule {
        /// Which schedule.
        schedule: ScheduleId,
    },
}

/// What became of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockChange {
    /// It was granted. Kept: no failure can undo it.
    Granted {
        /// To which session.
        session: SessionId,
        /// To which of its tickets.
        ticket: Ticket,
        /// Under which term.
        term: Term,
        /// Since when, by the store's clock: the record's `acquired_at`.
        at: StoreTime,
    },
    /// Nobody holds it.
    Freed,
    /// Nobody holds it, and nobody may take it for a while.
    Closed,
}

/// What became of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionNews {
    /// It was opened.
    Opened,
    /// It was declared dead.
    Died,
    /// Something is asked of it, or its shares changed.
    Changed,
    /// Its record was deleted.
    Deleted,
}
