//! Apparent liveness of sessions, for a person, who cannot watch one for a whole ttl.

use std::collections::BTreeMap;

use serde::Serialize;

use tenure::{
    model::{SessionId, StoreTime},
    store::{SessionRecord, SessionSeen},
};

/// Apparent liveness of a session, for people: it gives no right to anything ([R1](tenure::store#rules-of-safety)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// Beats.
    Alive,
    /// Silent for longer than its ttl.
    Silent,
    /// Declared dead.
    Dead,
    /// Closed by its own instance, with nothing left running.
    Closed,
    /// There is no record of it.
    Missing,
    /// Unusable record.
    Unreadable,
}

impl Liveness {
    /// Returns the apparent liveness of the session of that record.
    #[must_use]
    pub fn of(record: &SessionRecord, now: StoreTime) -> Self {
        match &record.death {
            Some(death) if death.is_own() => Self::Closed,
            Some(_) => Self::Dead,
            None if record.looks_dead(now) => Self::Silent,
            None => Self::Alive,
        }
    }

    /// Returns whether nothing is to be expected of it any more.
    #[must_use]
    pub const fn looks_dead(self) -> bool {
        matches!(self, Self::Silent | Self::Dead | Self::Closed | Self::Missing)
    }

    /// Returns whether its session has ended, in one way or the other.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Dead | Self::Closed)
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Silent => "looks dead",
            Self::Dead => "dead",
            Self::Closed => "closed",
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
        }
    }

    /// The mark behind a holder's name; nothing if it is well.
    #[must_use]
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Alive => "",
            Self::Silent => " (looks dead)",
            Self::Dead => " (dead)",
            Self::Closed => " (closed)",
            Self::Missing => " (no session)",
            Self::Unreadable => " (session unreadable)",
        }
    }
}

/// Sessions as they were found.
#[derive(Clone, Debug, Default)]
pub struct SessionStates(BTreeMap<SessionId, SessionSeen>);

impl SessionStates {
    /// The record of a session, alive or dead.
    #[must_use]
    pub fn record(&self, session: SessionId) -> Option<&SessionRecord> {
        self.0.get(&session).and_then(SessionSeen::record)
    }

    /// The answer of the store for a session that was asked for.
    pub(crate) fn seen(&self, session: SessionId) -> Option<&SessionSeen> {
        self.0.get(&session)
    }

    /// The records that can be read.
    pub fn records(&self) -> impl Iterator<Item = &SessionRecord> + Clone {
        self.0.values().filter_map(SessionSeen::record)
    }

    pub(crate) fn records_mut(&mut self) -> impl Iterator<Item = &mut SessionRecord> {
        self.0.values_mut().filter_map(|seen| match seen {
            SessionSeen::Alive(record) | SessionSeen::Dead(record) => Some(record),
            SessionSeen::Missing | SessionSeen::Refused(_) => None,
        })
    }

    /// Returns the apparent liveness of a session; missing if it was not asked for.
    #[must_use]
    pub fn life(&self, session: SessionId, now: StoreTime) -> Liveness {
        match self.0.get(&session) {
            Some(SessionSeen::Alive(record) | SessionSeen::Dead(record)) => Liveness::of(record, now),
            Some(SessionSeen::Missing) | None => Liveness::Missing,
            Some(SessionSeen::Refused(_)) => Liveness::Unreadable,
        }
    }
}

impl FromIterator<(SessionId, SessionSeen)> for SessionStates {
    fn from_iter<I: IntoIterator<Item = (SessionId, SessionSeen)>>(seen: I) -> Self {
        Self(seen.into_iter().collect())
    }
}

impl FromIterator<SessionRecord> for SessionStates {
    fn from_iter<I: IntoIterator<Item = SessionRecord>>(records: I) -> Self {
        records.into_iter().map(|record| (record.id, SessionSeen::of(record))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tenure::{
        model::{Holder, Namespace, Why},
        store::{About, Death, Nonce},
    };

    fn session() -> SessionRecord {
        let about = About::new(Namespace::new("n").unwrap(), Holder::new("pod-1").unwrap());
        let at = StoreTime::from_millis(1_000_000);
        SessionRecord::opened(SessionId::from_u128(7), about, Nonce::new(1), Duration::from_secs(30), at)
    }

    #[test]
    fn a_session_that_is_silent_for_its_ttl_looks_dead() {
        let mut record = session();
        let beat = record.beat_at;
        assert_eq!(Liveness::of(&record, beat.plus(Duration::from_secs(30))), Liveness::Alive);
        assert_eq!(Liveness::of(&record, beat.plus(Duration::from_millis(30_001))), Liveness::Silent);
        record.death = Some(Death { at: beat, by: Holder::new("pod-2").unwrap(), why: Death::own() });
        assert_eq!(Liveness::of(&record, beat), Liveness::Closed);
        record.death =
            Some(Death { at: beat, by: Holder::new("pod-2").unwrap(), why: Why::shortened("gone") });
        assert_eq!(Liveness::of(&record, beat), Liveness::Dead);
        for (life, looks_dead) in [
            (Liveness::Alive, false),
            (Liveness::Silent, true),
            (Liveness::Dead, true),
            (Liveness::Closed, true),
            (Liveness::Missing, true),
            (Liveness::Unreadable, false),
        ] {
            assert_eq!((life.looks_dead(), life.mark().is_empty()), (looks_dead, life == Liveness::Alive));
        }
        let missing = SessionStates::default();
        assert_eq!(missing.life(record.id, beat), Liveness::Missing);
    }
}
