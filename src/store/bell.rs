//! Bells: the listeners that are told of a change, and the news. They decide nothing (R12): a listener that hears one
//! looks.

use std::{collections::BTreeSet, fmt};

use tokio::sync::watch;

use super::{Release, ReleaseTo, Waiter};
use crate::{
    model::{LockId, Namespace, ScheduleId, SessionId, SpreadName, schedules},
    store::{Death, SessionRecord},
};

/// The listeners that are notified of a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// A session: of locks that it waits for, and of what operators ask of it.
    Session(SessionId),
    /// The members of a spread: of its tasks, their queues, and its members. Schedules are tasks of a spread of their
    /// own.
    Spread(Namespace, SpreadName),
}

/// The topics of a listener; they may change at any time.
pub type Topics = watch::Receiver<BTreeSet<Topic>>;

/// A change, as far as it is told: where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum News {
    /// A lock was granted, or became free.
    Lock(LockId),
    /// A lock was handed over to this session.
    Handed(LockId),
    /// A lock was taken from its holder by an operator, or its record was deleted.
    Revoked(LockId),
    /// A session began to wait for a lock.
    Queue(LockId),
    /// A session opened, changed what it takes part in, or died.
    Member(SessionId),
    /// An operator asks something of a session, or has declared it dead: its next beat tells.
    Asked(SessionId),
    /// A schedule was defined anew, or something is wanted of it.
    Schedule(ScheduleId),
}

/// News for the listeners it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bell {
    /// The listeners that are notified.
    pub(crate) to: Topic,
    pub(crate) news: News,
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(session) => write!(f, "session {session}"),
            Self::Spread(namespace, spread) => write!(f, "spread {namespace}/{spread}"),
        }
    }
}

impl Bell {
    /// Returns whether a listener to these topics is told.
    pub(crate) fn concerns(&self, topics: &BTreeSet<Topic>) -> bool {
        topics.contains(&self.to)
    }
}

/// The bells that changes ring. What concerns a single user of a key rings none.
impl Bell {
    fn of_lock(lock: &LockId, news: fn(LockId) -> News) -> Option<Self> {
        let spread = lock.kind.spread()?;
        Some(Self { to: Topic::Spread(lock.namespace.clone(), spread), news: news(lock.clone()) })
    }

    /// A lock was granted to the session that took it, closed, or opened, or its value changed.
    pub(crate) fn changed(lock: &LockId) -> Option<Self> {
        Self::of_lock(lock, News::Lock)
    }

    /// A session waits for a lock.
    pub(crate) fn queue(lock: &LockId) -> Option<Self> {
        Self::of_lock(lock, News::Queue)
    }

    /// A lock was taken away from its holder.
    pub(crate) fn revoked(lock: &LockId) -> Option<Self> {
        Self::of_lock(lock, News::Revoked)
    }

    /// A lock was released.
    pub(crate) fn released(release: &Release) -> Vec<Self> {
        let lock = &release.lock;
        if let Some(bell) = Self::changed(lock) {
            return vec![bell];
        }
        match &release.then {
            ReleaseTo::HandTo(next) => {
                vec![Self { to: Topic::Session(next.session), news: News::Handed(lock.clone()) }]
            }
            // The store reads the queue after such a release; a waiter knows how long it is closed.
            ReleaseTo::Free | ReleaseTo::FreeUnlessWanted | ReleaseTo::ClosedFor(_) => Vec::new(),
        }
    }

    /// A lock became free, and these wait for it: each session is told once.
    pub(crate) fn freed<'a>(waiters: impl IntoIterator<Item = &'a Waiter>) -> Vec<Self> {
        let mut told = BTreeSet::new();
        let waiters = waiters.into_iter().filter(|waiter| told.insert(waiter.by.session));
        let bell = |waiter: &Waiter| Self {
            to: Topic::Session(waiter.by.session),
            news: News::Lock(waiter.lock.clone()),
        };
        waiters.map(bell).collect()
    }

    /// A session takes part in these spreads, or does so no more.
    pub(crate) fn member<'a>(
        namespace: &Namespace,
        session: SessionId,
        spreads: impl IntoIterator<Item = &'a SpreadName>,
    ) -> Vec<Self> {
        let topic = |spread: &SpreadName| Topic::Spread(namespace.clone(), spread.clone());
        let bell = |spread| Self { to: topic(spread), news: News::Member(session) };
        spreads.into_iter().map(bell).collect()
    }

    /// A session was declared dead: the members of its spreads and of those are told, and itself, which may live, unless it has
    /// closed itself.
    pub(crate) fn died(record: &SessionRecord, tell: &[SpreadName]) -> Vec<Self> {
        let (namespace, session) = (&record.about.namespace, record.id);
        let spreads: BTreeSet<_> = record.shares.iter().map(|share| &share.spread).chain(tell).collect();
        let mut bells = Self::member(namespace, session, spreads);
        if record.death.as_ref().is_some_and(Death::is_own) {
            return bells;
        }
        let itself = bells.iter().map(|bell| bell.to.clone()).chain([Topic::Session(session)]);
        let itself: Vec<_> = itself.map(|to| Self { to, news: News::Asked(session) }).collect();
        bells.extend(itself);
        bells
    }

    /// The holder of a lock was proven dead: the members of its spread are told, or the first in its queue, which
    /// look at that session.
    pub(crate) fn bereft(lock: &LockId, dead: SessionId, queue: &[SessionId]) -> Vec<Self> {
        let news = News::Member(dead);
        match Self::changed(lock) {
            Some(bell) => vec![Self { news, ..bell }],
            None => {
                queue.iter().map(|first| Self { to: Topic::Session(*first), news: news.clone() }).collect()
            }
        }
    }

    /// An operator asks a session for a lock.
    pub(crate) fn asked(session: SessionId, lock: &LockId) -> Self {
        let spread = lock.kind.spread().map(|spread| Topic::Spread(lock.namespace.clone(), spread));
        Self { to: spread.unwrap_or(Topic::Session(session)), news: News::Asked(session) }
    }

    /// An operator gives a session an order.
    pub(crate) fn ordered(session: SessionId, to: &Topic) -> Self {
        Self { to: to.clone(), news: News::Asked(session) }
    }

    /// A schedule was defined, or something is wanted of it.
    pub(crate) fn schedule(schedule: &ScheduleId) -> Self {
        let to = Topic::Spread(schedule.namespace.clone(), schedules());
        Self { to, news: News::Schedule(schedule.clone()) }
    }
}
