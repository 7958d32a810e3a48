//! Answers of a store.

use std::fmt;

use serde::{Serialize, Serializer};

use super::News;
use crate::{
    model::{LockId, MAX_NUMBER, RunRecord, SessionId, StoreTime, Term, serial::Hex},
    store::{LockRecord, Nonce, ScheduleRecord, SessionRecord, Ticket, Waiter},
};

/// The capabilities of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The name of the store, for messages.
    pub name: &'static str,
    /// The largest group of instances that can share it.
    pub reach: Reach,
    /// The way its hints come, for messages: `"bells"`, say. Without one there are none, and waiters poll.
    pub hints: Option<&'static str>,
}

impl Capabilities {
    /// A store of that name and reach.
    #[must_use]
    pub const fn new(name: &'static str, reach: Reach, hints: Option<&'static str>) -> Self {
        Self { name, reach, hints }
    }
}

/// The reach of a store: it excludes no process beyond it.
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

/// Why a record is not used. It is left as it is; an operator has to look at it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Refusal {
    /// The record has no layout version: something else wrote it.
    Foreign,
    /// The layout version is not known to this program: a newer one wrote the record. A lock counts as held, a session
    /// as alive.
    Layout {
        /// The version it has.
        found: String,
    },
    /// A field is missing, of the wrong type, or absurd: it was written by hand.
    Damaged {
        /// The field.
        field: String,
        /// The problem with it.
        problem: String,
    },
    /// The record has no room for more.
    Full {
        /// The kind of entries.
        what: &'static str,
        /// The number there may be.
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
            Self::Full { what, most } => {
                write!(f, "{most} {what} wait already, the maximum: try again once some are done")
            }
        }
    }
}

/// A session as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSeen {
    /// The session has not been declared dead.
    Alive(SessionRecord),
    /// The session is dead, for ever.
    Dead(SessionRecord),
    /// There is none of that id. It may never have been opened, or was deleted.
    Missing,
    /// The record cannot be read. The session counts as alive and is never declared dead.
    Refused(Refusal),
}

impl SessionSeen {
    /// Returns whether the session is alive and its last beat has this nonce.
    #[must_use]
    pub fn bears(&self, nonce: Nonce) -> bool {
        matches!(self, Self::Alive(record) if record.nonce == nonce)
    }

    /// Returns whether the session is dead.
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

    /// Returns what a record that was read says.
    #[must_use]
    pub fn of(record: SessionRecord) -> Self {
        if record.is_alive() { Self::Alive(record) } else { Self::Dead(record) }
    }
}

/// The result of a take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeAnswer {
    /// The caller's ticket holds it, now or since an earlier answer that was lost.
    Taken(LockRecord),
    /// Another session holds it, or a later ticket of the caller's session does.
    Held(LockRecord),
    /// No session holds it, and none may yet.
    Closed(LockRecord),
    /// The record cannot be used. It counts as held.
    Refused(Refusal),
}

impl TakeAnswer {
    /// Returns what the lock's record means to the ticket that asked for it.
    #[must_use]
    pub fn of(record: LockRecord, session: SessionId, ticket: Ticket) -> Self {
        if record.is_granted_to(session, ticket) {
            Self::Taken(record)
        } else if record.term.get() == MAX_NUMBER {
            let problem = format!("is {MAX_NUMBER}, the maximum: no larger one can be granted");
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

/// The result of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseAnswer {
    /// The session does not hold the lock under that term any more: since this call, or before it.
    Released,
    /// The session holds it still, for a waiter wants it:
    /// [`FreeUnlessWanted`](super::ReleaseTo::FreeUnlessWanted).
    Wanted,
    /// The record cannot be written. It stays as it is.
    Refused(Refusal),
}

/// A lock as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockSeen {
    /// The lock's record.
    Found(LockRecord),
    /// There is no record: the lock was never taken, or its record was purged.
    Absent,
    /// The record cannot be read. The lock counts as held.
    Refused(Refusal),
}

impl LockSeen {
    /// The record, if there is one.
    #[must_use]
    pub fn found(self) -> Option<LockRecord> {
        if let Self::Found(record) = self { Some(record) } else { None }
    }
}

/// The result of setting a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetAnswer {
    /// The value is set.
    Set,
    /// The session does not hold the lock under that term.
    NotHeld,
    /// The record cannot be written.
    Refused(Refusal),
}

/// The result of a revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevokeAnswer {
    /// The holder is asked, now or since before.
    Asked,
    /// The lock is taken away, or open, now or since before.
    Freed(LockRecord),
    /// There is no session to ask, for it is dead or missing; or nothing to take away, for the lock
    /// is not held under that term; or nothing to open, for it was granted again since.
    NotHeld,
    /// The record cannot be written.
    Refused(Refusal),
}

/// The result of a claim or a finish: the run as it is afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// The caller's attempt is the one on record.
    Yours(RunRecord),
    /// Another attempt is.
    Others(RunRecord),
    /// No attempt claimed that tick. Only a finish is answered so.
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
    /// The schedule's record.
    Found(ScheduleRecord),
    /// There is no record.
    Absent,
    /// The record cannot be used.
    Refused(Refusal),
}

/// A lock that a session holds, as the audit lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The lock.
    pub lock: LockId,
    /// The term it is held under.
    pub term: Term,
    /// The ticket it was granted to.
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

    /// The bytes that the store wrote.
    #[must_use]
    pub fn place(&self) -> &[u8] {
        &self.0
    }

    /// The place as hexadecimal digits, which [`from_hex`](Self::from_hex) reads again.
    #[must_use]
    pub fn to_hex(&self) -> String {
        Hex(&self.0).to_string()
    }

    /// The place that was serialized as these hexadecimal digits; `None` if they are no such digits.
    #[must_use]
    pub fn from_hex(digits: impl AsRef<str>) -> Option<Self> {
        let (pairs, rest) = digits.as_ref().as_bytes().as_chunks::<2>();
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
        if rest.is_empty() { pairs.iter().map(byte).collect::<Option<_>>().map(Self) } else { None }
    }
}

/// Hexadecimal digits, which [`from_hex`](Self::from_hex) reads again.
impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Hex(&self.0).serialize(to)
    }
}

/// Records that cannot be used: `{"record": .., "refusal": ..}` each.
pub(crate) fn refused<S: Serializer>(refused: &[(String, Refusal)], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Refused<'a> {
        record: &'a str,
        refusal: &'a Refusal,
    }

    to.collect_seq(refused.iter().map(|(record, refusal)| Refused { record, refusal }))
}

/// Some records of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Page<T> {
    /// The records that can be read, in order.
    pub items: Vec<T>,
    /// The records that cannot, by what they call themselves, each with the reason.
    #[serde(serialize_with = "refused")]
    pub refused: Vec<(String, Refusal)>,
    /// The place to go on from; `None` at the end.
    pub next: Option<Cursor>,
}

/// The records that can be read, in order; not those that were [refused](Self::refused), and not the next page.
impl<T> IntoIterator for Page<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<T> Page<T> {
    /// A page of records all of which can be read.
    #[must_use]
    pub const fn new(items: Vec<T>, next: Option<Cursor>) -> Self {
        Self { items, refused: Vec::new(), next }
    }

    /// The same with other items.
    #[must_use]
    pub fn map<U>(self, to: impl FnMut(T) -> U) -> Page<U> {
        let Self { items, refused, next } = self;
        Page { items: items.into_iter().map(to).collect(), refused, next }
    }
}

/// The queue for a lock, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Queue {
    /// The waiters that can be read, longest wait first.
    pub waiters: Vec<Waiter>,
    /// Fewer are there than were asked for, readable or not: no waiter is behind these.
    pub whole: bool,
}

impl Queue {
    /// A queue, as far as it was read.
    #[must_use]
    pub const fn new(waiters: Vec<Waiter>, whole: bool) -> Self {
        Self { waiters, whole }
    }
}

/// Some runs of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunPage {
    /// The runs that can be read, the last one first.
    pub items: Vec<RunRecord>,
    /// The entries that cannot, by what they call themselves, each with the reason.
    #[serde(serialize_with = "refused")]
    pub refused: Vec<(String, Refusal)>,
    /// The place to go on from; `None` at the end.
    pub next: Option<Cursor>,
    /// Runs up to this instant may have been purged.
    pub mark: Option<StoreTime>,
}

/// The runs of this page that can be read, the last one first.
impl IntoIterator for RunPage {
    type Item = RunRecord;
    type IntoIter = std::vec::IntoIter<RunRecord>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl From<RunPage> for Page<RunRecord> {
    fn from(RunPage { items, refused, next, .. }: RunPage) -> Self {
        Self { items, refused, next }
    }
}

impl RunPage {
    /// Some runs, and the instant up to which others may have been purged.
    #[must_use]
    pub fn new(page: Page<RunRecord>, mark: Option<StoreTime>) -> Self {
        let Page { items, refused, next } = page;
        Self { items, refused, next, mark }
    }
}

/// The numbers of records that one part of a purge removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Purged {
    /// Locks.
    pub locks: u64,
    /// Locks of the dead that are free now.
    pub freed: u64,
    /// Sessions.
    pub sessions: u64,
    /// Places in the queue.
    pub waiters: u64,
    /// The place to go on from; `None` at the end.
    pub next: Option<Cursor>,
}

/// Something changed. Shortens a wait, decides nothing ([R12](crate::store#rules-of-safety)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Hints may have been lost before this one: a waiter looks for itself.
    Resync,
    /// None come at present: the stream ended, or cannot be opened. [`Resync`](Self::Resync) says that it is
    /// open again.
    Failing {
        /// The reason.
        error: String,
        /// True if an operator has to change something first: a right, a password.
        lasting: bool,
    },
    /// Something changed that concerns this listener.
    News(News),
    /// Hints of this store's own changes cannot be sent at present: others look for themselves.
    Unsent {
        /// The reason.
        error: String,
        /// True if an operator has to change something first: a right, a password.
        lasting: bool,
    },
    /// Hints of this store's own changes can be sent again.
    SentAgain,
}
