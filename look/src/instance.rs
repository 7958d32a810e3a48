//! An instance, as its session's record tells.

use std::{cmp::Ordering, collections::BTreeMap};

use serde::Serialize;

use crate::{ClockAhead, Liveness};
use tenure::{
    model::{Kind, SessionId, SpreadName, StoreTime},
    spread::SpreadStatus,
    store::{LockRecord, SessionRecord, Share},
};

/// An instance, its liveness, and the keys that it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Instance {
    /// Record of its session.
    #[serde(flatten)]
    pub record: SessionRecord,
    /// Liveness of the instance.
    pub life: Liveness,
    /// True if nothing is to be expected of the instance any more.
    pub looks_dead: bool,
    /// Numbers of the keys it holds, among those that were read.
    pub held: HeldCounts,
    /// Spreads of which it gave up tasks that run well elsewhere.
    pub failing: Vec<SpreadName>,
    /// Milliseconds by which its clock is ahead of the other instances', if that was seen.
    pub clock_ahead_ms: Option<i64>,
}

/// Numbers of keys that a session holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeldCounts {
    /// Plain locks.
    pub locks: usize,
    /// Tasks of spreads.
    pub tasks: usize,
    /// Schedules.
    pub schedules: usize,
}

impl HeldCounts {
    /// All together.
    #[must_use]
    pub const fn all(self) -> usize {
        self.locks + self.tasks + self.schedules
    }
}

impl Instance {
    /// An instance as its record tells, with what it was found to hold.
    #[must_use]
    pub fn of(record: SessionRecord, held: HeldCounts, failing: Vec<SpreadName>, now: StoreTime) -> Self {
        let life = Liveness::of(&record, now);
        Self { record, life, looks_dead: life.looks_dead(), held, failing, clock_ahead_ms: None }
    }

    /// The same with what is known of its clock.
    #[must_use]
    pub(crate) fn beside(mut self, clocks: &[ClockAhead]) -> Self {
        let is_own = |clock: &&ClockAhead| matches!(&clock.instance, Some((id, _)) if *id == self.record.id);
        self.clock_ahead_ms = clocks.iter().find(is_own).map(|clock| clock.ahead_ms);
        self
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

    /// Returns its state in a word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.life {
            Liveness::Alive if self.is_stalled() => "stalled",
            Liveness::Alive if !self.failing.is_empty() => "failing",
            Liveness::Alive if self.is_draining() => "draining",
            Liveness::Alive if self.is_paused() => "paused",
            life => life.as_str(),
        }
    }

    /// Returns whether nothing is to be said of it.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.word() == Liveness::Alive.as_str()
    }

    /// Returns whether it holds something while its program's runtime runs no task.
    #[must_use]
    pub const fn is_stalled(&self) -> bool {
        self.record.stalled_since.is_some()
    }

    /// Returns whether it is draining in every spread that it takes part in.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        all_of(&self.record.shares, |share| share.draining)
    }

    /// Returns whether it is paused in every spread that it takes part in.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        all_of(&self.record.shares, |share| share.paused)
    }
}

fn all_of(shares: &[Share], is_so: impl Fn(&Share) -> bool) -> bool {
    !shares.is_empty() && shares.iter().all(is_so)
}

/// The spreads in which each session fails.
pub(crate) fn failing<'a>(
    sessions: impl Iterator<Item = &'a SessionRecord>,
    locks: impl IntoIterator<Item = &'a LockRecord>,
    now: StoreTime,
) -> BTreeMap<SessionId, Vec<SpreadName>> {
    let mut spreads: BTreeMap<SpreadName, Vec<&LockRecord>> = BTreeMap::new();
    for record in locks {
        if let Some(spread) = record.id.kind.spread() {
            spreads.entry(spread).or_default().push(record);
        }
    }
    let sessions: Vec<_> = sessions.collect();
    let mut failing: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (spread, locks) in spreads {
        for session in SpreadStatus::failing(&spread, sessions.iter().copied(), &locks, now) {
            failing.entry(session).or_default().push(spread.clone());
        }
    }
    failing
}

/// Counts what each session holds of these.
pub(crate) fn count<'a>(held: impl IntoIterator<Item = &'a LockRecord>) -> BTreeMap<SessionId, HeldCounts> {
    let mut counts: BTreeMap<SessionId, HeldCounts> = BTreeMap::new();
    for record in held {
        let Some(holding) = &record.holding else { continue };
        let count = counts.entry(holding.by.session).or_default();
        match record.id.kind {
            Kind::Schedule => count.schedules += 1,
            Kind::Task(_) => count.tasks += 1,
            // A kind of a later version is held as a lock is.
            _ => count.locks += 1,
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tenure::{
        model::{LockId, Term},
        store::{About, Candidate, Ended, FailureRow, Holding, Nonce, Note, Past, Ticket},
    };

    fn at(seconds: i64) -> StoreTime {
        StoreTime::from_millis(1_763_784_813_000 + seconds * 1000)
    }

    #[test]
    fn an_instance_is_failing_in_the_spreads_whose_tasks_run_well_where_it_does_not_have_them() {
        let (spread, other): (SpreadName, SpreadName) = ("mail".parse().unwrap(), "rest".parse().unwrap());
        let sessions: Vec<_> = (1..3)
            .map(|number| {
                let about = About::new("n".parse().unwrap(), format!("pod-{number}").parse().unwrap());
                let (id, ttl) = (SessionId::from_u128(number), Duration::from_secs(30));
                let mut record = SessionRecord::opened(id, about, Nonce::new(1), ttl, at(0));
                record.shares = [&spread, &other].map(|spread| Share::new(spread.clone())).to_vec();
                record
            })
            .collect();
        // The first one gave up three tasks, which the second one has had since then; of the other spread one of two.
        let (one, two) = (&sessions[0], &sessions[1]);
        let mut past = Past::new(one.about.holder.clone(), Term::new(7), at(5), at(10), Ended::Released);
        past.note = Some(Note::Failing(FailureRow::begun(at(5), &one.about.holder, "no such file")));
        let lock = |key: usize| {
            let kind = Kind::of_tasks(if key < 3 { &spread } else { &other });
            let id = LockId { namespace: "n".parse().unwrap(), kind, key: key.to_string().parse().unwrap() };
            let mut by = Candidate::new(two.id, Ticket::new(1), two.ttl, two.about.holder.clone());
            let mut record = LockRecord::new(id, Term::new(8));
            if key == 4 {
                by.session = one.id;
            } else {
                record.past = vec![past.clone()];
            }
            record.holding = Some(Holding::new(by, at(11)));
            record
        };
        let locks: Vec<_> = (0..5).map(lock).collect();
        assert_eq!(failing(sessions.iter(), &locks, at(70)), BTreeMap::new(), "not a minute");
        assert_eq!(
            failing(sessions.iter(), &locks, at(71)),
            BTreeMap::from([(one.id, vec![spread.clone()])])
        );
        let word = |failing| Instance::of(one.clone(), HeldCounts::default(), failing, at(1)).word();
        assert_eq!((word(vec![spread]), word(Vec::new())), ("failing", "alive"));
    }
}
