//! An instance, as its session's record tells.

use std::{cmp::Ordering, collections::BTreeMap};

use serde::Serialize;

use super::Life;
use crate::model::{Kind, LockRecord, SessionId, SessionRecord, Share, StoreTime};

/// An instance, how it looks, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Instance {
    /// Its session.
    #[serde(flatten)]
    pub record: SessionRecord,
    /// How it looks.
    pub life: Life,
    /// Nothing is to be expected of it any more.
    pub looks_dead: bool,
    /// What it holds, of what was looked at.
    pub held: Held,
}

/// Numbers of what a session holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Plain locks.
    pub locks: usize,
    /// Tasks of spreads.
    pub tasks: usize,
    /// Schedules.
    pub schedules: usize,
}

impl Held {
    /// All together.
    #[must_use]
    pub const fn all(self) -> usize {
        self.locks + self.tasks + self.schedules
    }
}

impl Instance {
    /// An instance as its record tells, with what it was found to hold.
    #[must_use]
    pub fn of(record: SessionRecord, held: Held, now: StoreTime) -> Self {
        let life = Life::of(&record, now);
        Self { record, life, looks_dead: life.looks_dead(), held }
    }

    /// The order of a list: by name, then by age.
    #[must_use]
    pub fn in_order(a: &Self, b: &Self) -> Ordering {
        let key = |one: &Self| (one.record.started, one.record.id);
        a.record.about.holder.cmp(&b.record.about.holder).then_with(|| key(a).cmp(&key(b)))
    }

    /// The age of its last beat in thousandths of its ttl: at a thousand it looks dead.
    #[must_use]
    pub fn beat_age_permille(&self, now: StoreTime) -> u64 {
        let age = now.since(self.record.beat_at).as_millis();
        let ttl = self.record.ttl.as_millis().max(1);
        u64::try_from(age * 1000 / ttl).unwrap_or(u64::MAX)
    }

    /// How it is, in a word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.life {
            Life::Alive if self.is_stalled() => "stalled",
            Life::Alive if self.is_draining() => "draining",
            Life::Alive if self.is_paused() => "paused",
            life => life.as_str(),
        }
    }

    /// Returns whether it holds something while its program's runtime runs no task.
    #[must_use]
    pub const fn is_stalled(&self) -> bool {
        self.record.stalled_since.is_some()
    }

    /// It gives away what it has in every spread that it takes part in.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        all_of(&self.record.shares, |share| share.draining)
    }

    /// It keeps what it has in every spread that it takes part in.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        all_of(&self.record.shares, |share| share.paused)
    }
}

fn all_of(shares: &[Share], is_so: impl Fn(&Share) -> bool) -> bool {
    !shares.is_empty() && shares.iter().all(is_so)
}

/// Counts what each session holds of these.
pub(super) fn count<'a>(held: impl IntoIterator<Item = &'a LockRecord>) -> BTreeMap<SessionId, Held> {
    let mut counts: BTreeMap<SessionId, Held> = BTreeMap::new();
    for record in held {
        let Some(holding) = &record.holding else { continue };
        let count = counts.entry(holding.by.session).or_default();
        match record.id.kind {
            Kind::Schedule => count.schedules += 1,
            Kind::Task(_) => count.tasks += 1,
            Kind::Lock => count.locks += 1,
        }
    }
    counts
}
