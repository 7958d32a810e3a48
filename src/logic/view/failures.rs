//! Failures of tasks, as their records show them: all members read them alike.

use std::{collections::BTreeMap, time::Duration};

use super::{Known, Me, SpreadView, TaskPlace};
use crate::{
    clock::Moment,
    logic::quarantine::{self, Quarantine},
    model::{Holder, Key, LockRecord, SessionId, StoreTime, Term},
    store::LockSeen,
};

/// Failures in a task's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    /// Holders that are to get it last, and until when.
    avoided: Vec<(Holder, Moment)>,
    /// Set while it is closed because it failed too often.
    quarantine: Option<Quarantine>,
}

impl Failures {
    /// Nothing for most tasks: they fail nowhere.
    pub(super) fn of(record: &LockRecord, now: Moment, store_now: Option<StoreTime>) -> Option<Box<Self>> {
        let is_closed = record.holding.is_none() && record.closed.is_some();
        let quarantine = quarantine::latest(&record.past).filter(|_| is_closed);
        let avoided = store_now.map_or_else(Vec::new, |at| quarantine::avoided(&record.past, at));
        let until = |(holder, left): (Holder, Duration)| (holder, now + left);
        let found = Self { avoided: avoided.into_iter().map(until).collect(), quarantine };
        (found != Self::default()).then(|| Box::new(found))
    }

    /// Returns whether both say the same; the same moment is never guessed twice alike.
    fn says(&self, other: &Self) -> bool {
        let who = |one: &Self| one.avoided.iter().map(|(holder, _)| holder.clone()).collect::<Vec<_>>();
        self.quarantine == other.quarantine && who(self) == who(other)
    }
}

impl Known {
    /// Learns what its record says of failures. Says whether that is news.
    pub(super) fn absorb(&mut self, seen: &LockSeen, now: Moment, store_now: Option<StoreTime>) -> bool {
        let read = match seen {
            // What was read is older than what a hint has said.
            LockSeen::Found(record) if self.is_after(record.term) => return false,
            LockSeen::Found(record) => Failures::of(record, now, store_now),
            LockSeen::Absent => None,
            LockSeen::Refused(_) => return false,
        };
        let same = match (self.failures.as_deref(), read.as_deref()) {
            (None, None) => true,
            (Some(known), Some(read)) => known.says(read),
            _ => false,
        };
        if !same {
            self.failures = read;
        }
        !same
    }

    fn avoided(&self, now: Moment) -> Vec<&Holder> {
        let avoided = self.failures.as_deref().map_or(&[][..], |failures| &failures.avoided);
        avoided.iter().filter(|(_, until)| now < *until).map(|(holder, _)| holder).collect()
    }

    fn is_after(&self, read: Term) -> bool {
        matches!(self.place, TaskPlace::Held { term, .. } if read < term)
    }
}

impl SpreadView {
    /// Why a task is closed, if that is because it failed too often.
    pub(crate) fn quarantine(&self, key: &Key) -> Option<(&Quarantine, Moment)> {
        let known = self.tasks.get(key)?;
        let TaskPlace::Closed { until } = known.place else { return None };
        Some((known.failures.as_ref()?.quarantine.as_ref()?, until))
    }

    /// Returns how many tasks are closed because they failed too often.
    pub(crate) fn quarantined(&self, now: Moment) -> usize {
        let is_so = |key: &Key| self.quarantine(key).is_some_and(|(_, until)| now < until);
        self.tasks.keys().filter(|key| is_so(key)).count()
    }

    /// Returns who is to get a task last.
    pub(crate) fn avoided(&self, key: &Key, now: Moment) -> Vec<&Holder> {
        self.tasks.get(key).map_or_else(Vec::new, |known| known.avoided(now))
    }

    /// The same as sessions, of all tasks of which there is something to say.
    pub(super) fn avoid(&self, me: &Me, now: Moment) -> BTreeMap<&Key, Vec<SessionId>> {
        let mut avoid = BTreeMap::new();
        for (key, known) in &self.tasks {
            let names = known.avoided(now);
            if names.is_empty() {
                continue;
            }
            let named = self.members().filter(|(_, peer)| names.contains(&&peer.holder));
            let own = names.contains(&&me.holder).then_some(me.session);
            avoid.insert(key, named.map(|(session, _)| session).chain(own).collect());
        }
        avoid
    }

    /// Next moment at which some of that is over.
    pub(super) fn avoids_until(&self, now: Moment) -> Option<Moment> {
        let failures = self.tasks.values().filter_map(|known| known.failures.as_deref());
        let untils = failures.flat_map(|failures| failures.avoided.iter().map(|(_, until)| *until));
        untils.filter(|until| *until > now).min()
    }
}
