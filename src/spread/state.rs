//! States of a task, and the one word for each.

use std::time::Duration;

use serde::Serialize;

use crate::{
    logic::failing::Resting,
    model::{Holder, Kind, SessionId, StoreTime, Term},
    store::{Death, Holding, LockRecord, SessionRecord},
};

/// State of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TaskState {
    /// An instance has it and runs its job.
    Running {
        /// Name of its holder, if that is known.
        holder: Option<Holder>,
        /// Session of its holder.
        session: SessionId,
        /// Term under which it is held.
        term: Term,
    },
    /// An instance has it, and its job fails.
    Failing {
        /// Name of its holder, if that is known.
        holder: Option<Holder>,
        /// Session of its holder.
        session: SessionId,
        /// Term under which it is held.
        term: Term,
        /// Failures in a row, if this instance has it; or else the number of times that it was given up, for a holder that
        /// has had it for less than a minute.
        times: u32,
        /// After so many failures this instance gives it up; nothing if another one has it.
        of: Option<u32>,
        /// Last error.
        error: String,
    },
    /// Resting after too many failures in a row, or as its last holders died, until its rest is over or it is
    /// [put back](super::Spread::put_back).
    Resting {
        /// Time of the first of the failures in a row, by the store's clock.
        since: StoreTime,
        /// Number of times it was given up since then.
        tries: u32,
        /// The last members that gave it up.
        by: Vec<Holder>,
        /// Last error.
        error: String,
        /// Rest that is left.
        #[serde(rename = "left_ms", serialize_with = "crate::model::serial::ms")]
        until: Duration,
    },
    /// Waiting, as no instance has room for it.
    WaitingForRoom {
        /// Time for which it has waited.
        #[serde(rename = "for_ms", serialize_with = "crate::model::serial::ms")]
        since: Duration,
    },
    /// On its way to an instance.
    Moving {
        /// Holder of the task, if it is closed for a restart: the task waits for the next instance of that name.
        from: Option<Holder>,
        /// Holder that is to take it, if that is known.
        to: Option<Holder>,
    },
    /// Done, or kept closed after its last holder.
    Done,
    /// Not to be had, as its record cannot be used.
    Unreadable,
    /// Not known yet.
    Unknown,
}

impl TaskState {
    /// The words for all states.
    pub const WORDS: [&str; 8] =
        ["running", "failing", "resting", "waiting for room", "moving", "done", "unreadable", "unknown"];

    /// Returns the word for it.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Running { .. } => "running",
            Self::Failing { .. } => "failing",
            Self::Resting { .. } => "resting",
            Self::WaitingForRoom { .. } => "waiting for room",
            Self::Moving { .. } => "moving",
            Self::Done => "done",
            Self::Unreadable => "unreadable",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the name of the instance that has it, if that is known, and its session.
    #[must_use]
    pub const fn holder(&self) -> Option<(Option<&Holder>, SessionId)> {
        match self {
            Self::Running { holder, session, .. } | Self::Failing { holder, session, .. } => {
                Some((holder.as_ref(), *session))
            }
            _ => None,
        }
    }

    /// Returns the name of the instance that has it, or else the id of its session.
    #[must_use]
    pub fn holder_name(&self) -> Option<String> {
        let (holder, session) = self.holder()?;
        Some(holder.map_or_else(|| session.to_string(), ToString::to_string))
    }

    /// Returns the state that the task's record tells, with that of its holder's session if there is one.
    #[must_use]
    pub fn of_record(record: &LockRecord, holder: Option<&SessionRecord>, now: StoreTime) -> Self {
        let last = Resting::of(&record.past);
        if let Some(Holding { by, acquired_at, .. }) = &record.holding {
            return match holder.filter(|session| !session.is_alive()) {
                Some(dead) if is_reserved(dead, &record.id.kind, now) => Self::restarting(by.holder.clone()),
                Some(_) => Self::Moving { from: None, to: None },
                None => {
                    let last = last.filter(|last| last.lasts(*acquired_at, now));
                    Self::held(Some(by.holder.clone()), by.session, record.term, last.as_ref())
                }
            };
        }
        let left = record.closed.map(|closed| closed.left_about(now)).unwrap_or_default();
        match last {
            _ if left.is_zero() => Self::Moving { from: None, to: None },
            Some(last) => Self::resting(&last, left),
            None => Self::Done,
        }
    }

    /// Held, while the failures of earlier holders may last.
    pub(super) fn held(
        holder: Option<Holder>,
        session: SessionId,
        term: Term,
        last: Option<&Resting>,
    ) -> Self {
        match last.cloned() {
            None => Self::Running { holder, session, term },
            Some(Resting { tries, error, .. }) => {
                Self::Failing { holder, session, term, times: tries, of: None, error }
            }
        }
    }

    pub(super) fn resting(last: &Resting, until: Duration) -> Self {
        let Resting { since, tries, by, error } = last.clone();
        Self::Resting { since, tries, by, error, until }
    }

    pub(super) fn restarting(holder: Holder) -> Self {
        Self::Moving { from: Some(holder.clone()), to: Some(holder) }
    }
}

/// Returns whether the tasks of a closed session still wait for the next one of its holder.
fn is_reserved(dead: &SessionRecord, kind: &Kind, now: StoreTime) -> bool {
    let Some(death) = dead.death.as_ref().filter(|death| Death::is_own(death)) else { return false };
    let share = kind.spread().and_then(|spread| super::records::share_of(dead, &spread).cloned());
    share.is_some_and(|share| now.since(death.at) < share.reserved)
}
