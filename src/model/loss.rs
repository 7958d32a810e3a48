//! Why a lease is lost.

use std::{fmt, time::Duration};

use serde::Serialize;

use super::{Holder, Why};

/// Why a lease ended, or is about to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Loss {
    /// No beat was answered in time: the store is out of reach, or this process was not running.
    Expired {
        /// Time since the last answered beat was sent, when the job was notified.
        #[serde(rename = "unreachable_for_ms", serialize_with = "crate::model::serial::ms")]
        unreachable_for: Duration,
        /// For how long of that this process did not run at all, at the least: it was stopped, its machine
        /// suspended, or its share of the processor used up. Next to nothing if it ran.
        #[serde(rename = "not_running_for_ms", serialize_with = "crate::model::serial::ms")]
        not_running_for: Duration,
    },
    /// The lock was asked for, or taken away by force.
    Revoked {
        /// Name of the instance or operator that asked.
        by: Holder,
        /// Why.
        why: Why,
    },
    /// The session was declared dead: no instance had seen it beat for its whole ttl, or an operator said so.
    DeclaredDead {
        /// Name of the instance or operator that declared it.
        by: Holder,
        /// Why.
        why: Why,
    },
    /// The record of the lock or of the session is gone, or is not what it was.
    Vanished {
        /// Record that was found instead.
        found: String,
    },
    /// The program gave the lock up: by unlocking, resigning, or stopping a campaign.
    Resigned,
    /// The task goes to another instance: the spread's plan says so.
    Moved,
    /// The engine closes.
    Closed,
    /// The job took longer than its [timeout](crate::elect::KeyRequest::timeout).
    TimedOut {
        /// The timeout.
        #[serde(rename = "after_ms", serialize_with = "crate::model::serial::ms")]
        after: Duration,
    },
    /// The program did not answer: its liveness probe failed, or its runtime did not pick up what it was granted.
    Probe,
}

impl Loss {
    /// The words for the losses that the program did not want.
    pub(crate) const UNWANTED: &[&str] =
        &["expired", "revoked", "declared_dead", "vanished", "timed_out", "probe"];

    /// Returns its name in a word, as in logs and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Expired { .. } => "expired",
            Self::Revoked { .. } => "revoked",
            Self::DeclaredDead { .. } => "declared_dead",
            Self::Vanished { .. } => "vanished",
            Self::Resigned => "resigned",
            Self::Moved => "moved",
            Self::Closed => "closed",
            Self::TimedOut { .. } => "timed_out",
            Self::Probe => "probe",
        }
    }

    /// Returns whether the program itself wanted it.
    #[must_use]
    pub const fn is_wanted(&self) -> bool {
        matches!(self, Self::Resigned | Self::Moved | Self::Closed)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Most of the silence was its own.
            Self::Expired { unreachable_for, not_running_for } if *not_running_for * 2 > *unreachable_for => {
                write!(f, "expired: this process did not run for {not_running_for:.1?}")
            }
            Self::Expired { unreachable_for, .. } => {
                write!(f, "expired: no heartbeat was acknowledged for {unreachable_for:.1?}")
            }
            Self::Revoked { by, why } => write!(f, "revoked by {by}: {why}"),
            Self::DeclaredDead { by, why } => write!(f, "session declared dead by {by}: {why}"),
            Self::Vanished { found } => write!(f, "vanished: {found}"),
            Self::Resigned => f.write_str("resigned"),
            Self::Moved => f.write_str("the task moves to another instance"),
            Self::Closed => f.write_str("the engine is closing"),
            Self::TimedOut { after } => write!(f, "the job took longer than its timeout of {after:?}"),
            Self::Probe => f.write_str("the liveness probe failed"),
        }
    }
}
