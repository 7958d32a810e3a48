//! How an engine fares, for a health check.

use std::{fmt, time::Duration};

use super::Engine;
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
}

/// How an engine fares, in one word.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Its beats are answered.
    Healthy,
    /// A beat failed, but its session is valid and its jobs run.
    Degraded {
        /// How long the store has not answered.
        since: Duration,
        /// What it said last.
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
        let status = match (&session, trouble) {
            _ if engine.is_closed() => Status::Closed,
            (Some(_), None) => Status::Healthy,
            (Some(_), Some(trouble)) => {
                Status::Degraded { since: now.since(trouble.since), error: told(&*trouble.error) }
            }
            (None, trouble) => Status::Lost { error: trouble.map(|trouble| told(&*trouble.error)) },
        };
        Self {
            status,
            remaining: session.as_ref().map_or(Duration::ZERO, |session| session.remaining(now)),
            held: session.as_ref().map_or(0, |session| session.inside()),
            session: session.map(|session| session.id),
            last_beat: engine.last_beat().map(|beat| now.since(beat)),
            waiting: engine.keys.waiting(),
            store_time: engine.store_times.now(now).zip(engine.store_times.uncertainty(now)),
        }
    }
}

/// An error with its causes, in one line.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
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
