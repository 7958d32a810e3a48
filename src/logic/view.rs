//! View of a spread from one instance: the members, and the holder of each task.
//!
//! Filled from listings, hints and answers in any order. No holder of a lock is decided here: a view
//! that is wrong costs moves and time, and is mended by the next look.

mod failures;
mod groups;
mod orders;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    clock::Moment,
    logic::{
        digest,
        failing::{Deaths, Failures},
    },
    model::{Holder, Key, SessionId, SpreadName, StoreTime, Term},
    store::{Beat, Death, Drained, LockRecord, LockSeen, SessionRecord, SessionSeen, Share},
};

use failures::Judged;
pub(crate) use failures::takes;
pub(crate) use orders::{Bounds, OwnMember, OwnTask, Resolved, SpreadAction};

/// A task that came less than this ago is not moved on.
const FRESH: Duration = Duration::from_secs(2);
/// Time for which the dead are remembered.
const DEAD_KEPT: Duration = Duration::from_secs(600);
/// A record that cannot be used is looked at again after this.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// A member, as its session's record shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) holder: Holder,
    /// Host it runs on: two may have one name.
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) started: StoreTime,
    /// Version of the plan it computes.
    pub(crate) plan_version: u32,
    pub(crate) share: Share,
    /// Order of an operator to drain.
    pub(crate) drained: Option<Drained>,
}

/// A session, as far as this spread is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerSeen {
    /// Takes part.
    Member(Peer),
    /// Alive or unreadable, and takes no part (any more). Its locks are its own.
    Bystander,
    /// Closed for a restart: until then its tasks wait for the next session of that holder.
    Reserved { holder: Holder, until: Moment },
    /// Dead, which was learned then.
    Dead { since: Moment },
    /// There is no record of it, and none of its death: it counts as alive until it is declared dead.
    Missing,
}

impl PeerSeen {
    const fn is_dead(&self) -> bool {
        matches!(self, Self::Dead { .. } | Self::Reserved { .. })
    }
}

/// Place of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskPlace {
    /// Not known (any more): its record is to be read.
    Unknown,
    /// Free since then.
    Free { since: Moment },
    /// Held by this session.
    Held {
        session: SessionId,
        term: Term,
        /// By the store's clock, if that is known.
        since: Option<StoreTime>,
        settles: Moment,
    },
    /// Closed: without a holder, and not to be taken before then.
    Closed { until: Moment },
    /// Unusable record; it is tried again then.
    Refused { until: Moment },
}

#[derive(Clone, Debug)]
struct Known {
    place: TaskPlace,
    /// The part of the task set to which it belongs.
    part: u16,
    /// Moment at which that was learned: what was read before does not count.
    at: Moment,
    /// Failures in its record when it was read last.
    failures: Option<Box<Failures>>,
}

/// All that is known.
#[derive(Clone, Debug)]
pub(crate) struct SpreadView {
    spread: SpreadName,
    sessions: BTreeMap<SessionId, PeerSeen>,
    /// The latest beat that was seen of each: what was seen before is older.
    beats: BTreeMap<SessionId, Beat>,
    tasks: BTreeMap<Key, Known>,
    /// Holders of tasks that are not known here, and when that was learned.
    foreign: BTreeMap<Key, (SessionId, Term, Moment)>,
    /// Time of the store when something was read last.
    clock: Option<(StoreTime, Moment)>,
    /// Sessions that were seen lately, and how they ended.
    pub(crate) deaths: Deaths,
}

impl SpreadView {
    pub(crate) fn new(spread: SpreadName) -> Self {
        Self {
            spread,
            sessions: BTreeMap::new(),
            beats: BTreeMap::new(),
            tasks: BTreeMap::new(),
            foreign: BTreeMap::new(),
            clock: None,
            deaths: Deaths::default(),
        }
    }

    // ----- what is learned

    /// The tasks there are.
    pub(crate) fn set(&mut self, keys: &BTreeSet<Key>) {
        for (key, known) in std::mem::take(&mut self.tasks) {
            if keys.contains(&key) {
                self.tasks.insert(key, known);
            } else if let TaskPlace::Held { session, term, .. } = known.place {
                self.foreign.insert(key, (session, term, known.at));
            }
        }
        self.foreign.retain(|key, _| !keys.contains(key));
        for key in keys {
            // Whatever is read of it is news.
            let at = Moment::after_start(Duration::ZERO);
            let part = || digest::part(key);
            self.tasks.entry(key.clone()).or_insert_with(|| Known {
                place: TaskPlace::Unknown,
                part: part(),
                at,
                failures: None,
            });
        }
    }

    pub(crate) fn knows(&self, key: &Key) -> bool {
        self.tasks.contains_key(key)
    }

    /// Places a task where it was found now. Returns whether that is news.
    fn place(&mut self, key: &Key, now: Moment, place: TaskPlace) -> bool {
        let Some(known) = self.tasks.get_mut(key) else { return false };
        if let (TaskPlace::Free { .. }, TaskPlace::Free { .. }) = (&known.place, &place) {
            // Free for as long as before; but what was read before this is older.
            known.at = now;
            return false;
        }
        let changed = match (&known.place, &place) {
            (TaskPlace::Held { term, .. }, TaskPlace::Held { term: read, .. }) if read < term => false,
            (TaskPlace::Held { session, term, .. }, TaskPlace::Held { session: other, term: later, .. }) => {
                (session, term) != (other, later)
            }
            (old, new) => old != new,
        };
        if changed {
            (known.place, known.at) = (place, now);
        }
        changed
    }

    /// Records the holder of a task that is not known here. Returns whether that is news.
    fn place_foreign(&mut self, key: &Key, now: Moment, held: Option<(SessionId, Term)>) -> bool {
        let was = self.foreign.get(key).map(|(session, term, _)| (*session, *term));
        match held {
            Some((_, term)) if was.is_some_and(|(_, known)| term < known) => return false,
            Some((session, term)) => _ = self.foreign.insert(key.clone(), (session, term, now)),
            None => _ = self.foreign.remove(key),
        }
        was != held
    }

    /// Records that it has no holder any more.
    pub(crate) fn freed(&mut self, key: &Key, now: Moment) -> bool {
        self.place(key, now, TaskPlace::Free { since: now })
    }

    /// Records a grant to that session just now.
    pub(crate) fn granted(&mut self, key: &Key, session: SessionId, term: Term, now: Moment) -> bool {
        let since = self.store_time(now);
        self.place(key, now, TaskPlace::Held { session, term, since, settles: now + FRESH })
    }

    /// Takes in a record, whose read was sent at `asked`. Returns whether that is news.
    pub(crate) fn read(
        &mut self,
        key: &Key,
        seen: &LockSeen,
        asked: Moment,
        now: Moment,
        store_now: Option<StoreTime>,
    ) -> bool {
        self.set_clock(now, store_now);
        let Some(known) = self.tasks.get(key) else {
            let is_old = self.foreign.get(key).is_some_and(|(.., at)| *at > asked);
            let held = match seen {
                LockSeen::Found(record) => record.holding.as_ref().map(|held| (held.by.session, record.term)),
                LockSeen::Absent | LockSeen::Refused(_) => None,
            };
            return !is_old && self.place_foreign(key, now, held);
        };
        if known.at > asked {
            return false;
        }
        let news = self.tasks.get_mut(key).is_some_and(|known| known.absorb(seen));
        if let (Some(known), LockSeen::Found(LockRecord { term: read, holding: Some(held), .. })) =
            (self.tasks.get_mut(key), seen)
            && let TaskPlace::Held { term, since, .. } = &mut known.place
            && term == read
        {
            // All go by the record's time, not by their own.
            *since = Some(held.acquired_at);
        }
        let place = match seen {
            LockSeen::Found(record) => found(record, now, store_now),
            LockSeen::Absent => TaskPlace::Free { since: now },
            LockSeen::Refused(_) => TaskPlace::Refused { until: now + REFUSED_FOR },
        };
        self.place(key, now, place) || news
    }

    fn set_clock(&mut self, now: Moment, store_now: Option<StoreTime>) {
        self.clock = store_now.map(|store_now| (store_now, now)).or(self.clock);
    }

    /// Counts these tasks as free from now on: no member had room for them, so none has forgotten them.
    pub(crate) fn had_no_room<'a>(&mut self, keys: impl Iterator<Item = &'a Key>, now: Moment) {
        for key in keys {
            if let Some(Known { place: TaskPlace::Free { since }, .. }) = self.tasks.get_mut(key) {
                *since = now;
            }
        }
    }

    /// A hint: the task may have changed hands. Whether it is still free is not known until it is read; a known
    /// holder has it until then.
    pub(crate) fn doubt(&mut self, key: &Key, now: Moment) {
        if self.tasks.get(key).is_some_and(|known| matches!(known.place, TaskPlace::Free { .. })) {
            self.forget_place(key, now);
        }
    }

    /// Forgets the place of a task: a hint or a read may have been wrong.
    pub(crate) fn forget_place(&mut self, key: &Key, now: Moment) {
        self.place(key, now, TaskPlace::Unknown);
    }

    /// A session was seen.
    pub(crate) fn saw(
        &mut self,
        session: SessionId,
        sighting: &SessionSeen,
        now: Moment,
        store_now: Option<StoreTime>,
    ) -> bool {
        self.set_clock(now, store_now);
        if let SessionSeen::Alive(record) = sighting {
            let latest = self.beats.entry(session).or_insert(record.beat);
            if record.beat < *latest {
                return false;
            }
            *latest = record.beat;
        }
        let was = self.sessions.get(&session);
        // The dead stay dead, and what is known of them does not change.
        if was.is_some_and(PeerSeen::is_dead) {
            return false;
        }
        let seen = match sighting {
            SessionSeen::Alive(record) => match self.share(record) {
                Some(share) => PeerSeen::Member(Peer {
                    holder: record.about.holder.clone(),
                    host: record.about.host.clone(),
                    pid: record.about.pid,
                    started: record.started,
                    plan_version: record.about.plan_version,
                    share: share.clone(),
                    drained: record.drained.clone(),
                }),
                None => PeerSeen::Bystander,
            },
            SessionSeen::Refused(_) => PeerSeen::Bystander,
            SessionSeen::Missing => PeerSeen::Missing,
            SessionSeen::Dead(record) => self.died(record, now, store_now),
        };
        if was == Some(&seen) {
            return false;
        }
        // One that takes no part is of interest only for what it holds.
        let matters = |seen: &PeerSeen| *seen != PeerSeen::Bystander;
        let mattered = was.is_some_and(matters);
        let matters_now = matters(&seen);
        self.sessions.insert(session, seen);
        mattered || matters_now
    }

    /// A session is dead, whatever its record says, or whether there is one. Says whether that is news.
    pub(crate) fn mark_dead(&mut self, session: SessionId, now: Moment) -> bool {
        let is_news = !self.sessions.get(&session).is_some_and(PeerSeen::is_dead);
        if is_news {
            self.sessions.insert(session, PeerSeen::Dead { since: now });
        }
        is_news
    }

    fn share<'a>(&self, record: &'a SessionRecord) -> Option<&'a Share> {
        record.shares.iter().find(|share| share.spread == self.spread)
    }

    fn died(&self, record: &SessionRecord, now: Moment, store_now: Option<StoreTime>) -> PeerSeen {
        // One that crashed on its way down is not known to come back.
        let closed = record.death.as_ref().is_some_and(Death::is_own);
        let reserved = self.share(record).filter(|_| closed).map_or(Duration::ZERO, |share| share.reserved);
        // A wait written by the store's clock is never believed beyond its length (R1).
        let gone = match (&record.death, store_now) {
            (Some(death), Some(store_now)) => store_now.since(death.at),
            _ => Duration::ZERO,
        };
        let left = reserved.saturating_sub(gone);
        if left.is_zero() {
            PeerSeen::Dead { since: now }
        } else {
            PeerSeen::Reserved { holder: record.about.holder.clone(), until: now + left }
        }
    }

    /// Forgets sessions that are not needed any more. The dead are remembered for a while: a read that was
    /// sent before their death may still come.
    pub(crate) fn forget(&mut self, now: Moment) {
        let owners: BTreeSet<_> = self.owners().collect();
        self.sessions.retain(|session, seen| match seen {
            PeerSeen::Member(_) | PeerSeen::Reserved { .. } => true,
            PeerSeen::Dead { since } => now.since(*since) < DEAD_KEPT || owners.contains(session),
            PeerSeen::Bystander | PeerSeen::Missing => owners.contains(session),
        });
        let dead = |session: &SessionId| matches!(self.sessions.get(session), Some(PeerSeen::Dead { .. }));
        self.foreign.retain(|_, (session, ..)| !dead(session));
        self.beats.retain(|session, _| self.sessions.contains_key(session));
        if let Some(now) = self.store_time(now) {
            self.deaths.forget(now);
        }
    }

    fn owners(&self) -> impl Iterator<Item = SessionId> {
        self.tasks.values().filter_map(|known| match known.place {
            TaskPlace::Held { session, .. } => Some(session),
            _ => None,
        })
    }

    // ----- what is to be looked at

    /// Holders of tasks that were never seen.
    pub(crate) fn strangers(&self) -> BTreeSet<SessionId> {
        self.owners().filter(|session| !self.sessions.contains_key(session)).collect()
    }

    /// Tasks whose records are to be read.
    pub(crate) fn unknown(&self, now: Moment) -> Vec<Key> {
        let is_unknown = |known: &Known| match known.place {
            TaskPlace::Unknown => true,
            TaskPlace::Refused { until } | TaskPlace::Closed { until } => now >= until,
            TaskPlace::Free { .. } | TaskPlace::Held { .. } => false,
        };
        self.tasks.iter().filter(|(_, known)| is_unknown(known)).map(|(key, _)| key.clone()).collect()
    }

    /// Returns how many tasks each holds that are not known here.
    fn foreign_counts(&self) -> BTreeMap<SessionId, usize> {
        let mut counts = BTreeMap::new();
        for (session, ..) in self.foreign.values() {
            *counts.entry(*session).or_default() += 1;
        }
        counts
    }

    /// Tasks between two places in a listing, both open; of those that are not known here, the held ones.
    pub(crate) fn between(&self, after: Option<&Key>, before: Option<&Key>) -> Vec<Key> {
        use std::ops::Bound::{Excluded, Unbounded};
        // A range that begins behind its end is no range.
        if let (Some(after), Some(before)) = (after, before)
            && after >= before
        {
            return Vec::new();
        }
        let bounds = (after.map_or(Unbounded, Excluded), before.map_or(Unbounded, Excluded));
        let known = self.tasks.range::<Key, _>(bounds).map(|(key, _)| key.clone());
        known.chain(self.foreign.range::<Key, _>(bounds).map(|(key, _)| key.clone())).collect()
    }

    /// Tasks that this session holds.
    pub(crate) fn held_by(&self, session: SessionId) -> impl Iterator<Item = &Key> {
        self.tasks.iter().filter_map(move |(key, known)| match known.place {
            TaskPlace::Held { session: holder, .. } if holder == session => Some(key),
            _ => None,
        })
    }

    /// A task of each holder whose session is missing.
    pub(crate) fn of_the_missing(&self) -> Vec<Key> {
        let missing = |session: &SessionId| self.sessions.get(session) == Some(&PeerSeen::Missing);
        let mut found: BTreeMap<SessionId, Key> = BTreeMap::new();
        for (key, known) in &self.tasks {
            if let TaskPlace::Held { session, .. } = known.place
                && missing(&session)
            {
                found.entry(session).or_insert_with(|| key.clone());
            }
        }
        found.into_values().collect()
    }

    /// Returns the members, by their sessions.
    pub(crate) fn members(&self) -> impl Iterator<Item = (SessionId, &Peer)> {
        self.sessions.iter().filter_map(|(session, seen)| match seen {
            PeerSeen::Member(peer) => Some((*session, peer)),
            _ => None,
        })
    }

    pub(crate) fn session(&self, session: SessionId) -> Option<&PeerSeen> {
        self.sessions.get(&session)
    }

    pub(crate) fn task(&self, key: &Key) -> Option<&TaskPlace> {
        self.tasks.get(key).map(|known| &known.place)
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = (&Key, &TaskPlace)> {
        self.tasks.iter().map(|(key, known)| (key, &known.place))
    }

    /// Returns the sessions that follow this one on the ring of ids, nearest first: members, and others that may hold a
    /// task.
    pub(crate) fn after(&self, me: SessionId) -> Vec<SessionId> {
        let may_hold = |seen: &PeerSeen| matches!(seen, PeerSeen::Member(_) | PeerSeen::Bystander);
        let ids = self.sessions.iter().filter(|(session, seen)| **session != me && may_hold(seen));
        let ids: Vec<_> = ids.map(|(session, _)| *session).collect();
        let first = ids.partition_point(|id| *id < me);
        ids[first..].iter().chain(&ids[..first]).copied().collect()
    }
}

fn found(record: &LockRecord, now: Moment, store_now: Option<StoreTime>) -> TaskPlace {
    match (&record.holding, &record.closed) {
        (Some(held), _) => {
            let age = store_now.map_or(Duration::ZERO, |store_now| store_now.since(held.acquired_at));
            TaskPlace::Held {
                session: held.by.session,
                term: record.term,
                since: Some(held.acquired_at),
                settles: now + FRESH.saturating_sub(age),
            }
        }
        (None, Some(closed)) => {
            let left = store_now.map_or(closed.length, |store_now| closed.left_about(store_now));
            if left.is_zero() {
                TaskPlace::Free { since: now }
            } else {
                // A little late, so that it is open by then.
                TaskPlace::Closed { until: now + left + Duration::from_millis(2) }
            }
        }
        (None, None) => TaskPlace::Free { since: now },
    }
}
