//! Reads of the store that several commands share, page by page, and how they are told.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
    time::Duration,
};

use serde::Serialize;
use tenure::{
    StoreError,
    model::{Kind, LockId, LockRecord, Namespace, SessionId, SessionRecord, StoreTime, Value},
    store::{LockSeen, Refusal, SessionSeen, Store},
};

use crate::{
    common::Common,
    exit::Failure,
    out::one_line,
    place::{For, Place},
    settings::Settings,
    times,
};

/// Time that a person waits for one answer of the store.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// Records of one page.
pub(crate) const PAGE: usize = 1000;

/// A store that is open for looking, and the namespace that is looked at.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) place: Place,
    pub(crate) namespace: Namespace,
    /// The ttl of this machine's settings, for those of which no other is known.
    pub(crate) ttl: Duration,
}

impl Look {
    pub(crate) async fn open(common: &Common) -> Result<Self, Failure> {
        let settings = Settings::of(common)?;
        let place = Place::open(&settings, For::Looking).await?;
        Ok(Self { place, namespace: settings.config.namespace().clone(), ttl: settings.config.ttl() })
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.place.store
    }

    pub(crate) async fn close(self) {
        self.place.close().await;
    }

    /// Reads all sessions of the namespace, dead ones too.
    pub(crate) async fn sessions(&self) -> Result<Found<SessionRecord>, StoreError> {
        let (mut found, mut after) = (Found::default(), None);
        loop {
            let page = self.store().sessions(self.namespace.clone(), after, PAGE, LIMIT).await?;
            found.items.extend(page.items);
            found.refuse(page.refused);
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    /// Reads the locks of one kind, or of all, that are wanted, up to so many.
    pub(crate) async fn locks(
        &self,
        kind: Option<Kind>,
        at_most: usize,
        is_wanted: impl Fn(&LockRecord) -> bool,
    ) -> Result<Found<LockRecord>, StoreError> {
        let (mut found, mut after) = (Found::default(), None);
        loop {
            let page =
                self.store().list_locks(self.namespace.clone(), kind.clone(), after, PAGE, LIMIT).await?;
            found.items.extend(page.items.into_iter().filter(&is_wanted));
            found.refuse(page.refused);
            after = page.next;
            if found.items.len() > at_most {
                found.items.truncate(at_most);
                found.more = true;
                return Ok(found);
            }
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    /// Reads these locks, in their order.
    pub(crate) async fn seen_locks(&self, locks: Vec<LockId>) -> Result<Vec<LockSeen>, StoreError> {
        let mut seen = Vec::with_capacity(locks.len());
        for locks in locks.chunks(PAGE) {
            seen.extend(self.store().locks(locks.to_vec(), LIMIT).await?);
        }
        Ok(seen)
    }

    /// Reads these sessions.
    pub(crate) async fn observe(
        &self,
        sessions: impl IntoIterator<Item = SessionId>,
    ) -> Result<Lives, StoreError> {
        let wanted: BTreeSet<SessionId> = sessions.into_iter().collect();
        let wanted: Vec<_> = wanted.into_iter().collect();
        let mut seen = Vec::new();
        for sessions in wanted.chunks(PAGE) {
            let answers = self.store().observe(sessions.to_vec(), LIMIT).await?;
            seen.extend(sessions.iter().copied().zip(answers));
        }
        Ok(seen.into_iter().collect())
    }
}

/// Now, as far as the store's clock can be known without asking it: no beat was written in the future.
pub(crate) fn now_beside<'a>(sessions: impl IntoIterator<Item = &'a SessionRecord>) -> StoreTime {
    sessions.into_iter().map(|session| session.beat_at).fold(times::now(), StoreTime::max)
}

/// Records that were found.
#[derive(Debug, Serialize)]
pub(crate) struct Found<T> {
    pub(crate) items: Vec<T>,
    pub(crate) refused: Vec<Refused>,
    /// There are others, beyond the limit.
    pub(crate) more: bool,
}

/// A record that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Refused {
    pub(crate) record: String,
    pub(crate) refusal: Refusal,
}

impl<T> Default for Found<T> {
    fn default() -> Self {
        Self { items: Vec::new(), refused: Vec::new(), more: false }
    }
}

impl<T> Found<T> {
    pub(crate) fn refuse(&mut self, refused: Vec<(String, Refusal)>) {
        self.refused.extend(refused.into_iter().map(|(record, refusal)| Refused { record, refusal }));
    }

    /// The same with other items.
    pub(crate) fn map<U>(self, to: impl FnMut(T) -> U) -> Found<U> {
        let Self { items, refused, more } = self;
        Found { items: items.into_iter().map(to).collect(), refused, more }
    }

    /// What is said below a table: what cannot be read, and that there is more.
    pub(crate) fn notes(&self) -> String {
        let mut text = String::new();
        for Refused { record, refusal } in &self.refused {
            let _ = writeln!(text, "{}: {}", one_line(record), one_line(&refusal.to_string()));
        }
        if self.more {
            let _ = writeln!(text, "There are more: --limit shows them.");
        }
        text
    }
}

/// How a session looks to a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Life {
    /// It beats.
    Alive,
    /// Its last beat is older than its ttl.
    Silent,
    /// It is declared dead.
    Dead,
    /// There is no record of it.
    Missing,
    /// Its record cannot be used.
    Unreadable,
}

impl Life {
    pub(crate) fn of(record: &SessionRecord, now: StoreTime) -> Self {
        if !record.is_alive() {
            Self::Dead
        } else if record.looks_dead(now) {
            Self::Silent
        } else {
            Self::Alive
        }
    }

    /// Returns whether nothing is to be expected of it any more.
    pub(crate) const fn looks_dead(self) -> bool {
        matches!(self, Self::Silent | Self::Dead | Self::Missing)
    }

    /// The mark behind a holder's name; nothing if it is well.
    pub(crate) const fn mark(self) -> &'static str {
        match self {
            Self::Alive => "",
            Self::Silent => " (looks dead)",
            Self::Dead => " (dead)",
            Self::Missing => " (no session)",
            Self::Unreadable => " (session unreadable)",
        }
    }
}

/// Sessions as they were found.
#[derive(Debug, Default)]
pub(crate) struct Lives(BTreeMap<SessionId, SessionSeen>);

impl Lives {
    pub(crate) fn record(&self, session: SessionId) -> Option<&SessionRecord> {
        self.0.get(&session).and_then(SessionSeen::record)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &SessionRecord> {
        self.0.values().filter_map(SessionSeen::record)
    }

    pub(crate) fn now(&self) -> StoreTime {
        now_beside(self.records())
    }

    pub(crate) fn life(&self, session: SessionId, now: StoreTime) -> Life {
        match self.0.get(&session) {
            Some(SessionSeen::Alive(record) | SessionSeen::Dead(record)) => Life::of(record, now),
            Some(SessionSeen::Missing) | None => Life::Missing,
            Some(SessionSeen::Refused(_)) => Life::Unreadable,
        }
    }
}

impl FromIterator<(SessionId, SessionSeen)> for Lives {
    fn from_iter<I: IntoIterator<Item = (SessionId, SessionSeen)>>(seen: I) -> Self {
        Self(seen.into_iter().collect())
    }
}

/// A value as its text, or as hexadecimal digits.
pub(crate) fn value(value: &Value) -> String {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => one_line(text),
        Err(_) => value.as_bytes().iter().fold("0x".to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    }
}

/// Why, or who, where it was said.
pub(crate) fn said(text: Option<&impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| one_line(&text.to_string()))
}

#[cfg(test)]
mod tests {
    use tenure::model::{About, Death, Holder, Nonce};

    use super::*;

    fn session() -> SessionRecord {
        let about = About::new(Namespace::new("n").unwrap(), Holder::new("pod-1").unwrap());
        let at = StoreTime::from_millis(1_000_000);
        SessionRecord::opened(SessionId::from_u128(7), about, Nonce::new(1), Duration::from_secs(30), at)
    }

    #[test]
    fn a_session_that_is_silent_for_its_ttl_looks_dead() {
        let mut record = session();
        let beat = record.beat_at;
        assert_eq!(Life::of(&record, beat.plus(Duration::from_secs(30))), Life::Alive);
        assert_eq!(Life::of(&record, beat.plus(Duration::from_millis(30_001))), Life::Silent);
        record.death = Some(Death { at: beat, by: Holder::new("pod-2").unwrap(), why: Death::own() });
        assert_eq!(Life::of(&record, beat), Life::Dead);
        for (life, looks_dead) in [
            (Life::Alive, false),
            (Life::Silent, true),
            (Life::Dead, true),
            (Life::Missing, true),
            (Life::Unreadable, false),
        ] {
            assert_eq!((life.looks_dead(), life.mark().is_empty()), (looks_dead, life == Life::Alive));
        }
        let missing = Lives::default();
        assert_eq!(missing.life(record.id, beat), Life::Missing);
    }

    #[test]
    fn a_clock_that_is_behind_the_beats_is_not_believed() {
        let ahead = times::now().plus(Duration::from_secs(3600));
        let mut record = session();
        record.beat_at = ahead;
        assert_eq!(now_beside([&record]), ahead);
        assert!(now_beside([&session()]) > session().beat_at);
    }

    #[test]
    fn a_value_is_told_in_one_line_whatever_it_is() {
        assert_eq!(value(&Value::new("10.0.0.1:80").unwrap()), "10.0.0.1:80");
        assert_eq!(value(&Value::new("a\u{1b}[2Jb").unwrap()), "a\u{b7}[2Jb");
        assert_eq!(value(&Value::new([0, 255]).unwrap()), "0x00ff");
    }
}
