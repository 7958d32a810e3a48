//! How an engine fares, for a health check.

use std::{fmt, time::Duration};

use super::{
    Engine,
    troubles::{Trouble, Work, chain},
};
use crate::model::{SessionId, StoreTime};

/// How an engine fares.
///
/// Readiness should not depend on leading: an instance that leads nothing is as healthy as one that
/// does, and a rollout that waits for a new instance to lead waits for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// In one word.
    pub status: Status,
    /// The session, if there is a valid one.
    pub session: Option<SessionId>,
    /// How long the session stays valid if no beat is answered any more.
    pub remaining: Duration,
    /// How long ago the last beat was answered.
    pub last_beat: Option<Duration>,
    /// How many locks are held.
    pub held: usize,
    /// How many wait for a lock here.
    pub waiting: usize,
    /// What the store's clock shows, as far as this instance can tell, and by how much it may be off:
    /// schedules go by it. Nothing before the first beat was answered.
    pub store_time: Option<(StoreTime, Duration)>,
    /// What does not work: for want of a right or the like, or for some time already. What has stood longest
    /// comes first.
    pub troubles: Vec<Trouble>,
}

/// How an engine fares, in one word.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Its beats are answered.
    Healthy,
    /// A beat failed, or something else has not worked for some time or will not without help; its session is
    /// valid and its jobs run.
    Degraded {
        /// For how long.
        since: Duration,
        /// What does not work, and what the store said last.
        error: String,
    },
    /// It has no valid session: nothing runs, until it has one again.
    Lost {
        /// What the store said last, if it said anything.
        error: Option<String>,
    },
    /// It is closed.
    Closed,
}

impl Health {
    /// Whether its jobs may run: healthy, or degraded and still valid. What a health check answers by.
    #[must_use]
    pub const fn is_ok(&self) -> bool {
        matches!(self.status, Status::Healthy | Status::Degraded { .. })
    }

    pub(crate) fn of(engine: &Engine) -> Self {
        let now = engine.clock.now();
        let session = engine.current();
        let trouble = engine.troubles().borrow().clone();
        let troubles = engine.troubles.lasting(now);
        let status = match (&session, trouble) {
            _ if engine.is_closed() => Status::Closed,
            (Some(_), None) => match troubles.iter().find(|trouble| trouble.work != Work::Beats) {
                None => Status::Healthy,
                Some(trouble) => Status::Degraded { since: trouble.since, error: trouble.to_string() },
            },
            (Some(_), Some(trouble)) => {
                Status::Degraded { since: now.since(trouble.since), error: chain(&*trouble.error) }
            }
            (None, trouble) => Status::Lost { error: trouble.map(|trouble| chain(&*trouble.error)) },
        };
        Self {
            status,
            remaining: session.as_ref().map_or(Duration::ZERO, |session| session.remaining(now)),
            held: session.as_ref().map_or(0, |session| session.inside()),
            session: session.map(|session| session.id),
            last_beat: engine.last_beat().map(|beat| now.since(beat)),
            waiting: engine.keys.waiting(),
            store_time: engine.store_times.now(now).zip(engine.store_times.uncertainty(now)),
            troubles,
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.status {
            Status::Healthy => write!(f, "healthy, {} held, {} waiting", self.held, self.waiting),
            Status::Degraded { since, error } => {
                write!(f, "degraded for {since:.1?}, {:.1?} left: {error}", self.remaining)
            }
            Status::Lost { error: Some(error) } => write!(f, "lost: {error}"),
            Status::Lost { error: None } => f.write_str("lost"),
            Status::Closed => f.write_str("closed"),
        }
    }
}
