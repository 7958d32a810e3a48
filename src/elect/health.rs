//! Health of an instance, for a health check.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer};

use super::{Engine, Work, troubles::Trouble};
use crate::{
    error::chain,
    model::{SessionId, StoreTime, serial::ms},
};

/// Health of an instance.
///
/// Readiness should not depend on leading: an instance that leads nothing is as healthy as one that
/// does, and a rollout that waits for a new instance to lead waits for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// Status in one word.
    pub status: Status,
    /// The session, if there is a valid one.
    pub session: Option<SessionId>,
    /// Time for which the session stays valid if no further heartbeat is acknowledged.
    #[serde(rename = "remaining_ms", serialize_with = "crate::model::serial::ms")]
    pub remaining: Duration,
    /// Time since the last acknowledged heartbeat was answered.
    #[serde(rename = "last_beat_ms", serialize_with = "crate::model::serial::ms_if_any")]
    pub last_beat: Option<Duration>,
    /// Time since a heartbeat was last answered, or failed: a keeper that works tries one in each interval, also while
    /// the store is away.
    #[serde(rename = "last_attempt_ms", serialize_with = "crate::model::serial::ms_if_any")]
    pub last_attempt: Option<Duration>,
    /// Number of locks held here.
    pub held: usize,
    /// Number of requests that wait for a lock here.
    pub waiting: usize,
    /// The way hints come, if they do: `"bells"`, say. Without them, waiters poll.
    pub hints: Option<&'static str>,
    /// Estimate of the store's clock, by which schedules run, and its possible error. `None` before the first
    /// heartbeat was answered.
    #[serde(serialize_with = "store_time")]
    pub store_time: Option<(StoreTime, Duration)>,
    /// Kinds of work that fail and need an operator to change something, or have failed for some time. The
    /// longest comes first.
    pub troubles: Vec<Trouble>,
}

/// `{"at": .., "off_by_ms": ..}`.
#[expect(clippy::ref_option, reason = "serde passes references")]
fn store_time<S: Serializer>(time: &Option<(StoreTime, Duration)>, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct AtMost {
        at: StoreTime,
        #[serde(rename = "off_by_ms", serialize_with = "ms")]
        off_by: Duration,
    }

    time.map(|(at, off_by)| AtMost { at, off_by }).serialize(to)
}

/// Status of an instance, in one word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Status {
    /// Heartbeats are acknowledged.
    Healthy,
    /// A heartbeat failed, or other work has failed for some time or will fail until an operator helps. The
    /// session is valid and jobs run.
    Degraded {
        /// Time since the first failure.
        #[serde(rename = "for_ms", serialize_with = "crate::model::serial::ms")]
        since: Duration,
        /// Work that fails, and the last error.
        error: String,
    },
    /// There is no valid session: nothing runs until there is one again.
    Lost {
        /// Last error of the store, if there was one.
        error: Option<String>,
    },
    /// The instance is closed.
    Closed,
}

impl Health {
    /// Returns whether jobs may run: healthy, or degraded and still valid. A health check answers by it.
    #[must_use]
    pub const fn is_ok(&self) -> bool {
        matches!(self.status, Status::Healthy | Status::Degraded { .. })
    }

    pub(crate) fn of(engine: &Engine) -> Self {
        engine.look_at_words();
        engine.look_at_program();
        engine.look_at_keeper();
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
            (None, trouble) => {
                // A keeper that hangs has not heard from the store since.
                let hangs = troubles.iter().find(|trouble| trouble.work == Work::Keeping);
                let of_the_store = || trouble.map(|trouble| chain(&*trouble.error));
                Status::Lost { error: hangs.map(ToString::to_string).or_else(of_the_store) }
            }
        };
        Self {
            status,
            remaining: session.as_ref().map_or(Duration::ZERO, |session| session.remaining(now)),
            held: session.as_ref().map_or(0, |session| session.inside()),
            session: session.map(|session| session.id),
            last_beat: engine.last_beat().map(|beat| now.since(beat)),
            last_attempt: engine.last_attempt().map(|attempt| now.since(attempt)),
            waiting: engine.keys.waiting(),
            hints: engine.hints(),
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
