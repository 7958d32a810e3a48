//! The session: an instance's one lease on life, and the fleet's list of members.

use std::{fmt, sync::Arc, time::Duration};

use serde::Serialize;

use super::{Beat, Nonce, Note};
use crate::model::{Digest, Holder, LockId, Namespace, SessionId, SpreadName, StoreTime, Term, Why};

/// Identity of an instance. Written when its session opens, and never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct About {
    /// Set of programs it shares keys with.
    pub namespace: Namespace,
    /// The name people know it by.
    pub holder: Holder,
    /// The machine it runs on.
    pub host: String,
    /// Process of the instance on that machine.
    pub pid: u32,
    /// The program and its version, as the program names itself.
    pub program: String,
    /// Version of the spread's plan that it computes.
    pub plan_version: u32,
}

impl About {
    /// An instance of which only the name is known.
    #[must_use]
    pub const fn new(namespace: Namespace, holder: Holder) -> Self {
        Self { namespace, holder, host: String::new(), pid: 0, program: String::new(), plan_version: 0 }
    }
}

/// Session as the store has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SessionRecord {
    /// Id of the session.
    pub id: SessionId,
    /// Instance the session belongs to.
    pub about: About,
    /// Time of its opening.
    pub started: StoreTime,
    /// Number of beats so far. The opening is beat 0.
    pub beat: Beat,
    /// The mark of the attempt that wrote the last beat.
    pub nonce: Nonce,
    /// Time of the last beat that was written.
    pub beat_at: StoreTime,
    /// Time since which the program's runtime had run no task when that beat was sent: its jobs stand still, and keep
    /// their keys. None if it had run one a moment before.
    pub stalled_since: Option<StoreTime>,
    /// Time for which each beat keeps it alive: an instance that wants to declare it dead must have seen no other
    /// beat for so long, by a clock of its own. Fixed for life ([R2](crate::store#rules-of-safety)).
    #[serde(rename = "ttl_ms", serialize_with = "crate::model::serial::ms")]
    pub ttl: Duration,
    /// Dead, and since when and why; nothing while it is alive. Never taken back.
    pub death: Option<Death>,
    /// The spreads it takes part in.
    pub shares: Vec<Share>,
    /// Order of an operator to give all tasks and schedules away and to take none, until it is taken back. Locks and
    /// campaigns are not concerned.
    pub drained: Option<Drained>,
    /// Requests of operators, until a beat acknowledges them.
    pub requests: Vec<Request>,
}

impl SessionRecord {
    /// A session that was opened then, and takes part in no spread.
    #[must_use]
    pub const fn opened(id: SessionId, about: About, nonce: Nonce, ttl: Duration, at: StoreTime) -> Self {
        Self {
            id,
            about,
            started: at,
            beat: Beat::new(0),
            nonce,
            beat_at: at,
            stalled_since: None,
            ttl,
            death: None,
            shares: Vec::new(),
            drained: None,
            requests: Vec::new(),
        }
    }

    /// Returns whether it carries this request, or one for the same thing.
    #[must_use]
    pub fn has_request(&self, request: &Request) -> bool {
        self.requests.iter().any(|known| known.is_about(&request.lock, request.term))
    }

    /// Returns whether it was not declared dead. It may have stopped beating long ago.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        self.death.is_none()
    }

    /// Returns whether it is dead, or its last beat is older than its ttl by that reading of a clock which is about the
    /// store's. A guess, for people: it entitles no instance to anything ([R1](crate::store#rules-of-safety)).
    #[must_use]
    pub fn looks_dead(&self, now: StoreTime) -> bool {
        self.death.is_some() || self.beat_at.plus(self.ttl) < now
    }
}

/// Death of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Death {
    /// Time of the declaration.
    pub at: StoreTime,
    /// Declarer: the holder's name of the instance that saw no beat, of the instance itself when it
    /// closed, or of an operator.
    pub by: Holder,
    /// Why.
    pub why: Why,
}

/// Why a session is dead that its own instance has closed.
const CLOSED: &str = "closed by its own instance";

impl Death {
    /// Returns what the record says of a session that its own instance closes.
    #[must_use]
    pub fn own() -> Why {
        Why::shortened(CLOSED)
    }

    /// Returns whether its own instance has closed it, with nothing left running.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.why.as_str() == CLOSED
    }
}

/// Contribution of one instance to one spread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Share {
    /// Name of the spread.
    pub spread: SpreadName,
    /// The most tasks it may get.
    #[serde(serialize_with = "crate::model::serial::cap")]
    pub cap: u32,
    /// Part of the tasks, in proportion to the others' weights.
    pub weight: u32,
    /// Gives its tasks away and gets no new ones.
    pub draining: bool,
    /// Keeps what it has, and neither gives nor gets: an operator looks into something.
    pub paused: bool,
    /// Time for which the tasks of this session, once it is closed, wait for another session of the same holder:
    /// a restart. Zero if they need not.
    #[serde(rename = "reserved_ms", serialize_with = "crate::model::serial::ms")]
    pub reserved: Duration,
    /// The digest of the task set it knows: members with equal digests know the same tasks.
    #[serde(serialize_with = "crate::model::serial::digest")]
    pub digest: u64,
    /// The digests of its parts: what members with different sets both know. An earlier version says nothing
    /// of them.
    #[serde(skip)]
    pub buckets: Option<Buckets>,
    /// Number of tasks in that set. An earlier version does not say.
    pub known: Option<u32>,
    /// Time since which it knows that set. An earlier version does not say.
    pub known_since: Option<StoreTime>,
}

/// Order of an operator to drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drained {
    /// The operator.
    pub by: Holder,
    /// Time of the order, by the store's clock.
    pub since: StoreTime,
    /// Why.
    pub why: Why,
}

impl Share {
    /// A plain share: no limit, a weight of one, and no tasks known.
    #[must_use]
    pub const fn new(spread: SpreadName) -> Self {
        Self {
            spread,
            cap: u32::MAX,
            weight: 1,
            draining: false,
            paused: false,
            reserved: Duration::ZERO,
            digest: 0,
            buckets: None,
            known: None,
            known_since: None,
        }
    }
}

/// A digest for each part of a task set: a task belongs to one of 1024 parts, by its key.
///
/// Two members with the same digest of a part know the same tasks of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Buckets(Arc<[u8; Self::COUNT]>);

impl Buckets {
    /// Number of parts: with a byte for each, 1 KiB in a record, however large the set.
    pub const COUNT: usize = 1024;

    /// Of these digests, in the order of the parts.
    #[must_use]
    pub fn new(digests: [u8; Self::COUNT]) -> Self {
        Self(Arc::new(digests))
    }

    /// The digest of a part.
    ///
    /// # Panics
    /// There are fewer [parts](Self::COUNT).
    #[must_use]
    pub fn digest(&self, part: u16) -> u8 {
        self.0[usize::from(part)]
    }

    /// As they are stored.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    /// Returns what [`to_bytes`](Self::to_bytes) made; nothing if there is not a byte for each part.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::new)
    }
}

impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A thousand bytes tell a reader nothing.
        let mut all = Digest::default();
        all.write(&self.to_bytes());
        write!(f, "Buckets({:016x})", all.get())
    }
}

/// An operator asks a holder to give a lock back.
///
/// Known by lock and term: asking twice is asking once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Name of the lock.
    pub lock: LockId,
    /// Under which term: a lock that has changed hands since is not meant.
    pub term: Term,
    /// Operator or instance that asks.
    pub by: Holder,
    /// Why.
    pub why: Why,
}

impl Request {
    /// Returns the note that the record keeps of a lock that was taken away.
    #[must_use]
    pub fn note(&self) -> Note {
        Note::Revoked { by: self.by.clone(), why: self.why.clone() }
    }

    /// Returns whether the two ask for the same thing.
    #[must_use]
    pub fn is_about(&self, lock: &LockId, term: Term) -> bool {
        self.lock == *lock && self.term == term
    }
}
