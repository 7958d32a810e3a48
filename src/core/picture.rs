//! What one instance knows of a spread: who takes part, and who holds which task; and what it does about
//! that.
//!
//! Filled from listings, hints and answers in any order. Nothing here decides who holds a lock: a picture
//! that is wrong costs moves and time, and is mended by the next look.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::plan::{self, Member, Plan, Task};
use crate::{
    clock::Moment,
    model::{
        Beat, Death, Holder, Key, LockRecord, SessionId, SessionRecord, Share, SpreadName, StoreTime, Term,
    },
    store::{LockChange, LockSeen, Sighting},
};

/// A task that came less than this ago is not moved on.
const FRESH: Duration = Duration::from_secs(2);
/// Nobody took a task for so long: whoever has room takes it, whatever is planned.
const FORGOTTEN: Duration = Duration::from_secs(2);
/// Who takes what nobody took takes so many at once: whoever was to take them may only be slow.
const MOST_FORGOTTEN: usize = 32;
/// So long the dead are remembered.
const DEAD_KEPT: Duration = Duration::from_secs(600);
/// A record that cannot be used is looked at again after this.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Somebody who takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) holder: Holder,
    /// Where it runs: two may have one name.
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) started: StoreTime,
    pub(crate) share: Share,
}

/// A session, as far as this spread is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It takes part.
    Member(Peer),
    /// It is alive, or cannot be read, and takes no part (any more). What it holds is its own.
    Bystander,
    /// It is closed for a restart: until then its tasks wait for the next session of that holder.
    Reserved { holder: Holder, until: Moment },
    /// It is dead, and this was learned then.
    Dead { since: Moment },
    /// There is no record of it, and none of its death: it counts as alive until it is declared dead.
    Missing,
}

/// Who has a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not known (any more): its record is to be read.
    Unknown,
    /// Nobody, since then.
    Free { since: Moment },
    /// This session.
    Held { session: SessionId, term: Term, settles: Moment },
    /// Nobody, and nobody may take it before.
    Closed { until: Moment },
    /// Its record cannot be used; it is tried again then.
    Refused { until: Moment },
}

#[derive(Clone, Debug)]
struct Known {
    place: Place,
    /// When that was learned: what was read before does not count.
    at: Moment,
}

/// All that is known.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    spread: SpreadName,
    sessions: BTreeMap<SessionId, Seen>,
    /// The latest beat that was seen of each: what was seen before is older.
    beats: BTreeMap<SessionId, Beat>,
    tasks: BTreeMap<Key, Known>,
}

/// Whose picture it is.
#[derive(Clone, Debug)]
pub(crate) struct Me {
    pub(crate) session: SessionId,
    pub(crate) holder: Holder,
    /// When its session was opened, by the store's clock, as far as that is known.
    pub(crate) started: StoreTime,
    pub(crate) share: Share,
}

/// What this instance has to do with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mine {
    /// It asks for the lock, and will be told at once.
    Asks,
    /// It stands in line for it.
    Waits,
    /// It holds it and works on it.
    Has,
    /// It holds it, and does not give it away now unless it must.
    Keeps,
    /// It is giving it away.
    Gives,
}

/// What to do about a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Take it: nobody holds it, or the dead.
    Take { key: Key, dead: Option<SessionId> },
    /// Stand in line for it: its holder is to hand it over.
    Wait { key: Key },
    /// Leave the line.
    Withdraw { key: Key },
    /// Give it away, to that session once it stands in line; if it must go, in any case.
    Give { key: Key, to: Option<SessionId>, must: bool },
}

/// What comes of planning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) orders: Vec<Order>,
    /// Tasks for which nobody has room.
    pub(crate) waiting: BTreeSet<Key>,
    /// How many each member is to have.
    pub(crate) targets: BTreeMap<SessionId, usize>,
    /// Who is to have what somebody else, or nobody, has now.
    pub(crate) heirs: BTreeMap<Key, Option<SessionId>>,
    /// When time alone may change the plan.
    pub(crate) next: Option<Moment>,
}

/// Whether this instance leaves a task to others for a while; one that somebody has for longer than one that
/// is free.
pub(crate) type Shuns<'a> = &'a dyn Fn(&Key, bool) -> bool;

/// The most moves one instance has under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Tasks that it is giving away.
    pub(crate) gives: usize,
    /// Tasks that it stands in line for.
    pub(crate) waits: usize,
}

impl Picture {
    pub(crate) const fn new(spread: SpreadName) -> Self {
        Self { spread, sessions: BTreeMap::new(), beats: BTreeMap::new(), tasks: BTreeMap::new() }
    }

    // ----- what is learned

    /// The tasks there are.
    pub(crate) fn set(&mut self, keys: &BTreeSet<Key>) {
        self.tasks.retain(|key, _| keys.contains(key));
        for key in keys {
            // Whatever is read of it is news.
            let at = Moment::after_start(Duration::ZERO);
            self.tasks.entry(key.clone()).or_insert(Known { place: Place::Unknown, at });
        }
    }

    pub(crate) fn knows(&self, key: &Key) -> bool {
        self.tasks.contains_key(key)
    }

    /// Who has a task, as was learned now. Says whether that is news.
    fn place(&mut self, key: &Key, now: Moment, place: Place) -> bool {
        let Some(known) = self.tasks.get_mut(key) else { return false };
        let changed = match (&known.place, &place) {
            // Free for as long as before; but what was read before this is older.
            (Place::Free { .. }, Place::Free { .. }) => {
                known.at = now;
                return false;
            }
            (Place::Held { session, term, .. }, Place::Held { session: other, term: later, .. }) => {
                if later < term {
                    return false;
                }
                (session, term) != (other, later)
            }
            (old, new) => old != new,
        };
        if changed {
            *known = Known { place, at: now };
        }
        changed
    }

    /// A hint. Says whether something changed.
    pub(crate) fn hinted(&mut self, key: &Key, change: Option<LockChange>, now: Moment) -> bool {
        let place = match change {
            Some(LockChange::Granted { session, term, .. }) => return self.granted(key, session, term, now),
            Some(LockChange::Freed) => Place::Free { since: now },
            Some(LockChange::Closed) | None => Place::Unknown,
        };
        self.place(key, now, place)
    }

    /// It was granted to that session just now.
    pub(crate) fn granted(&mut self, key: &Key, session: SessionId, term: Term, now: Moment) -> bool {
        self.place(key, now, Place::Held { session, term, settles: now + FRESH })
    }

    /// Its record was read, sent for at `asked`.
    pub(crate) fn read(
        &mut self,
        key: &Key,
        seen: &LockSeen,
        asked: Moment,
        now: Moment,
        store_now: Option<StoreTime>,
    ) -> bool {
        if self.tasks.get(key).is_none_or(|known| known.at > asked) {
            return false;
        }
        let place = match seen {
            LockSeen::Found(record) => found(record, now, store_now),
            LockSeen::Absent => Place::Free { since: now },
            LockSeen::Refused(_) => Place::Refused { until: now + REFUSED_FOR },
        };
        self.place(key, now, place)
    }

    /// What a hint or a read said of it may not be so.
    pub(crate) fn doubt(&mut self, key: &Key, now: Moment) {
        self.place(key, now, Place::Unknown);
    }

    /// A session was seen.
    pub(crate) fn saw(
        &mut self,
        session: SessionId,
        sighting: &Sighting,
        now: Moment,
        store_now: Option<StoreTime>,
    ) -> bool {
        if let Sighting::Alive(record) = sighting {
            let latest = self.beats.entry(session).or_insert(record.beat);
            if record.beat < *latest {
                return false;
            }
            *latest = record.beat;
        }
        let was = self.sessions.get(&session);
        let seen = match sighting {
            Sighting::Alive(record) => match self.share(record) {
                Some(share) => Seen::Member(Peer {
                    holder: record.about.holder.clone(),
                    host: record.about.host.clone(),
                    pid: record.about.pid,
                    started: record.started,
                    share: share.clone(),
                }),
                None => Seen::Bystander,
            },
            Sighting::Refused(_) => Seen::Bystander,
            Sighting::Missing => Seen::Missing,
            // What is known of the dead does not change.
            Sighting::Dead(_) if matches!(was, Some(Seen::Dead { .. } | Seen::Reserved { .. })) => {
                return false;
            }
            Sighting::Dead(record) => self.died(record, now, store_now),
        };
        let dead = |seen: Option<&Seen>| matches!(seen, Some(Seen::Dead { .. } | Seen::Reserved { .. }));
        // The dead stay dead; and who takes no part is of interest only to what it holds.
        if was == Some(&seen) || dead(was) && !dead(Some(&seen)) {
            return false;
        }
        self.sessions.insert(session, seen).is_some_and(|was| was != Seen::Bystander)
            || !matches!(self.sessions[&session], Seen::Bystander)
    }

    /// A session is dead, whatever its record says, or whether there is one. Says whether that is news.
    pub(crate) fn knows_dead(&mut self, session: SessionId, now: Moment) -> bool {
        let was = self.sessions.get(&session);
        let is_news = !matches!(was, Some(Seen::Dead { .. } | Seen::Reserved { .. }));
        if is_news {
            self.sessions.insert(session, Seen::Dead { since: now });
        }
        is_news
    }

    fn share<'a>(&self, record: &'a SessionRecord) -> Option<&'a Share> {
        record.shares.iter().find(|share| share.spread == self.spread)
    }

    fn died(&self, record: &SessionRecord, now: Moment, store_now: Option<StoreTime>) -> Seen {
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
            Seen::Dead { since: now }
        } else {
            Seen::Reserved { holder: record.about.holder.clone(), until: now + left }
        }
    }

    /// Forgets sessions that nobody needs to know of. The dead are remembered for a while: a read that was
    /// sent before their death may still come.
    pub(crate) fn forget(&mut self, now: Moment) {
        let owners: BTreeSet<_> = self.owners().collect();
        self.sessions.retain(|session, seen| match seen {
            Seen::Member(_) | Seen::Reserved { .. } => true,
            Seen::Dead { since } => now.since(*since) < DEAD_KEPT || owners.contains(session),
            Seen::Bystander | Seen::Missing => owners.contains(session),
        });
        self.beats.retain(|session, _| self.sessions.contains_key(session));
    }

    fn owners(&self) -> impl Iterator<Item = SessionId> {
        self.tasks.values().filter_map(|known| match known.place {
            Place::Held { session, .. } => Some(session),
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
            Place::Unknown => true,
            Place::Refused { until } | Place::Closed { until } => now >= until,
            Place::Free { .. } | Place::Held { .. } => false,
        };
        self.tasks.iter().filter(|(_, known)| is_unknown(known)).map(|(key, _)| key.clone()).collect()
    }

    /// Tasks between two places in a listing, both open.
    pub(crate) fn between(&self, after: Option<&Key>, before: Option<&Key>) -> Vec<Key> {
        use std::ops::Bound::{Excluded, Unbounded};
        // A range that begins behind its end is no range.
        if let (Some(after), Some(before)) = (after, before)
            && after >= before
        {
            return Vec::new();
        }
        let bounds = (after.map_or(Unbounded, Excluded), before.map_or(Unbounded, Excluded));
        self.tasks.range::<Key, _>(bounds).map(|(key, _)| key.clone()).collect()
    }

    /// Tasks that this session holds.
    pub(crate) fn held_by(&self, session: SessionId) -> impl Iterator<Item = &Key> {
        self.tasks.iter().filter_map(move |(key, known)| match known.place {
            Place::Held { session: holder, .. } if holder == session => Some(key),
            _ => None,
        })
    }

    /// A task of each holder whose session is missing.
    pub(crate) fn of_the_missing(&self) -> Vec<Key> {
        let missing = |session: &SessionId| self.sessions.get(session) == Some(&Seen::Missing);
        let mut found: BTreeMap<SessionId, Key> = BTreeMap::new();
        for (key, known) in &self.tasks {
            if let Place::Held { session, .. } = known.place
                && missing(&session)
            {
                found.entry(session).or_insert_with(|| key.clone());
            }
        }
        found.into_values().collect()
    }

    /// Those who take part, by their sessions.
    pub(crate) fn members(&self) -> impl Iterator<Item = (SessionId, &Peer)> {
        self.sessions.iter().filter_map(|(session, seen)| match seen {
            Seen::Member(peer) => Some((*session, peer)),
            _ => None,
        })
    }

    pub(crate) fn session(&self, session: SessionId) -> Option<&Seen> {
        self.sessions.get(&session)
    }

    pub(crate) fn task(&self, key: &Key) -> Option<&Place> {
        self.tasks.get(key).map(|known| &known.place)
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = (&Key, &Place)> {
        self.tasks.iter().map(|(key, known)| (key, &known.place))
    }

    /// Those on the ring of their ids that come after this one, nearest first: members, and who else may
    /// hold a task.
    pub(crate) fn after(&self, me: SessionId) -> Vec<SessionId> {
        let may_hold = |seen: &Seen| matches!(seen, Seen::Member(_) | Seen::Bystander);
        let ids = self.sessions.iter().filter(|(session, seen)| **session != me && may_hold(seen));
        let ids: Vec<_> = ids.map(|(session, _)| *session).collect();
        let first = ids.partition_point(|id| *id < me);
        ids[first..].iter().chain(&ids[..first]).copied().collect()
    }

    // ----- what is to be done

    /// Whose task it is as far as the plan is concerned; nothing if the plan leaves it where it is.
    fn owner(&self, me: &Me, mine: Option<&Mine>, now: Moment, place: &Place) -> Option<Owner> {
        // What this instance has it has, whatever was read of it.
        if matches!(mine, Some(Mine::Has | Mine::Keeps | Mine::Gives))
            && !matches!(place, Place::Held { session, .. } if *session == me.session)
        {
            let owner = Owner { session: Some(me.session), settled: false, ..Owner::nobody(now) };
            return Some(owner);
        }
        match *place {
            Place::Unknown | Place::Refused { .. } => None,
            Place::Closed { until } => (now >= until).then_some(Owner::nobody(until)),
            Place::Free { since } => Some(Owner::nobody(since)),
            Place::Held { session, term, settles } => {
                let owned = |session| Owner {
                    session: Some(session),
                    dead: None,
                    since: now,
                    term,
                    settled: now >= settles,
                };
                if session == me.session {
                    return Some(owned(session));
                }
                match self.sessions.get(&session)? {
                    Seen::Member(peer) => plans_with(me, peer).then(|| owned(session)),
                    Seen::Bystander | Seen::Missing => None,
                    Seen::Dead { since } => Some(Owner { dead: Some(session), ..Owner::nobody(*since) }),
                    Seen::Reserved { until, .. } if now >= *until => {
                        Some(Owner { dead: Some(session), ..Owner::nobody(*until) })
                    }
                    Seen::Reserved { holder, .. } => {
                        let heir = self.heir_of(me, holder)?;
                        Some(Owner { dead: Some(session), settled: true, ..owned(heir) })
                    }
                }
            }
        }
    }

    /// The session that takes over what was reserved for its holder's name: the latest of that name.
    fn heir_of(&self, me: &Me, holder: &Holder) -> Option<SessionId> {
        let same = self.members().filter(|(session, peer)| {
            *session != me.session && peer.holder == *holder && plans_with(me, peer)
        });
        let same = same.map(|(session, peer)| (peer.started, session));
        let own = (me.holder == *holder).then_some((me.started, me.session));
        same.chain(own).max().map(|(_, session)| session)
    }

    /// Plans, and says what this instance does about it.
    pub(crate) fn resolve(
        &self,
        me: &Me,
        mine: &BTreeMap<Key, Mine>,
        shuns: Shuns<'_>,
        bounds: Bounds,
        now: Moment,
    ) -> Resolved {
        let owners: Vec<(&Key, Owner)> = self
            .tasks
            .iter()
            .filter_map(|(key, known)| Some((key, self.owner(me, mine.get(key), now, &known.place)?)))
            .collect();
        let mut resolved = Resolved::default();
        if me.share.paused {
            resolved.withdraw(mine, &BTreeSet::new());
            return resolved;
        }
        let plan = self.plan(me, &owners);
        resolved.targets = plan.targets.iter().copied().collect();
        resolved.next = self.next_change(me, mine, shuns, now, &owners, &resolved.targets);
        resolved.heirs = plan.moves.iter().map(|one| (one.task.clone(), one.to)).collect();
        resolved.waiting = plan.waiting.iter().map(|key| (*key).clone()).collect();
        resolved.act(me, mine, shuns, bounds, &plan, &owners);
        resolved.take_what_is_forgotten(me, mine, shuns, now, &owners);
        // What is no task any more goes.
        for (key, what) in mine {
            if matches!(what, Mine::Has | Mine::Keeps) && !self.tasks.contains_key(key) {
                resolved.orders.push(Order::Give { key: key.clone(), to: None, must: true });
            }
        }
        resolved
    }

    fn plan<'a>(&self, me: &Me, owners: &[(&'a Key, Owner)]) -> Plan<&'a Key, SessionId> {
        let task = |(key, owner): &(&'a Key, Owner)| Task {
            id: *key,
            owner: owner.session,
            since: owner.term.get(),
            settled: owner.settled,
        };
        let tasks: Vec<_> = owners.iter().map(task).collect();
        let member =
            |id, share: &Share| Member { id, cap: share.cap, weight: share.weight, draining: share.draining };
        let others = self.members().filter(|(id, peer)| *id != me.session && plans_with(me, peer));
        let mut members: Vec<_> = others.map(|(id, peer)| member(id, &peer.share)).collect();
        members.push(member(me.session, &me.share));
        plan::plan(&tasks, &members)
    }

    fn next_change(
        &self,
        me: &Me,
        mine: &BTreeMap<Key, Mine>,
        shuns: Shuns<'_>,
        now: Moment,
        owners: &[(&Key, Owner)],
        targets: &BTreeMap<SessionId, usize>,
    ) -> Option<Moment> {
        let mut counts: BTreeMap<SessionId, usize> = BTreeMap::new();
        for session in owners.iter().filter_map(|(_, owner)| owner.session) {
            *counts.entry(session).or_default() += 1;
        }
        // Only of what somebody has too much something may move once it has settled.
        let has_too_much = |session: &SessionId| counts.get(session) > targets.get(session);
        let settles = self.tasks.values().filter_map(|known| match known.place {
            Place::Held { session, settles, .. } => Some(settles).filter(|_| has_too_much(&session)),
            Place::Closed { until } | Place::Refused { until } => Some(until),
            Place::Unknown | Place::Free { .. } => None,
        });
        let reserved = self.sessions.values().filter_map(|seen| match seen {
            Seen::Reserved { until, .. } => Some(*until),
            _ => None,
        });
        let forgotten = owners
            .iter()
            .filter(|(key, owner)| owner.is_nobody() && !mine.contains_key(*key) && !shuns(key, false))
            .map(|(key, owner)| forgotten_at(me, key, owner));
        settles.chain(reserved).chain(forgotten).filter(|at| *at > now).min()
    }
}

/// Whether that one's plan is about the same tasks as mine: then both come to the same.
fn plans_with(me: &Me, peer: &Peer) -> bool {
    // One that closes for a restart keeps what it has, too, and gets nothing.
    peer.share.digest == me.share.digest && !peer.share.paused && peer.share.reserved.is_zero()
}

fn found(record: &LockRecord, now: Moment, store_now: Option<StoreTime>) -> Place {
    match (&record.holding, &record.closed) {
        (Some(held), _) => {
            let age = store_now.map_or(Duration::ZERO, |store_now| store_now.since(held.acquired_at));
            let settles = now + FRESH.saturating_sub(age);
            Place::Held { session: held.by.session, term: record.term, settles }
        }
        (None, Some(closed)) => {
            let left = store_now.map_or(closed.length, |store_now| closed.left(store_now));
            if left.is_zero() { Place::Free { since: now } } else { Place::Closed { until: now + left } }
        }
        (None, None) => Place::Free { since: now },
    }
}

/// Whose a task is, as the plan sees it.
#[derive(Clone, Copy, Debug)]
struct Owner {
    session: Option<SessionId>,
    /// The dead session that the lock's record names.
    dead: Option<SessionId>,
    /// If it is nobody's: since when.
    since: Moment,
    term: Term,
    settled: bool,
}

impl Owner {
    const fn nobody(since: Moment) -> Self {
        Self { session: None, dead: None, since, term: Term::new(0), settled: true }
    }

    const fn is_nobody(&self) -> bool {
        self.session.is_none()
    }
}

impl Resolved {
    /// Leaves every line but those.
    fn withdraw(&mut self, mine: &BTreeMap<Key, Mine>, but: &BTreeSet<&Key>) {
        let stale = mine.iter().filter(|(key, what)| **what == Mine::Waits && !but.contains(key));
        self.orders.extend(stale.map(|(key, _)| Order::Withdraw { key: key.clone() }));
    }

    /// What of the plan is for this instance to do.
    fn act(
        &mut self,
        me: &Me,
        mine: &BTreeMap<Key, Mine>,
        shuns: Shuns<'_>,
        bounds: Bounds,
        plan: &Plan<&Key, SessionId>,
        owners: &[(&Key, Owner)],
    ) {
        let count = |of: Mine| mine.values().filter(|what| **what == of).count();
        let mut gives = bounds.gives.saturating_sub(count(Mine::Gives));
        let mut waits = bounds.waits.saturating_sub(count(Mine::Waits));
        let owner =
            |key: &Key| owners.binary_search_by(|(other, _)| (*other).cmp(key)).map(|at| &owners[at].1);
        let has = count(Mine::Has) + count(Mine::Keeps) + count(Mine::Gives);
        let must = me.share.draining || me.share.weight == 0 || has > me.share.cap as usize;
        let mut awaited = BTreeSet::new();
        for one in &plan.moves {
            let Ok(owner) = owner(one.task) else { continue };
            let key = one.task.clone();
            match (one.from.filter(|_| owner.dead.is_none()), one.to, mine.get(one.task)) {
                (Some(from), to, Some(what)) if from == me.session && gives > 0 => {
                    // Others plan with it as with any: so all look for the same moves.
                    if !(*what == Mine::Has || must && *what == Mine::Keeps) {
                        continue;
                    }
                    gives -= 1;
                    self.orders.push(Order::Give { key, to, must });
                }
                (None, Some(to), what) if to == me.session && !shuns(one.task, false) => match what {
                    None => self.orders.push(Order::Take { key, dead: owner.dead }),
                    // It became free while we stood in line: the wish that stands takes it.
                    Some(Mine::Waits) if owner.dead.is_none() => {
                        awaited.insert(one.task);
                    }
                    Some(_) => {}
                },
                (Some(_), Some(to), what) if to == me.session && !shuns(one.task, true) => {
                    match what {
                        None if waits > 0 => {
                            waits -= 1;
                            self.orders.push(Order::Wait { key });
                        }
                        _ => {}
                    }
                    awaited.insert(one.task);
                }
                _ => {}
            }
        }
        self.withdraw(mine, &awaited);
        // What was reserved for this instance is its own already, unless the plan has given it to another.
        for (key, owner) in owners {
            let is_own = owner.session == Some(me.session) && owner.dead.is_some();
            if is_own && !mine.contains_key(*key) && !self.heirs.contains_key(*key) {
                self.orders.push(Order::Take { key: (*key).clone(), dead: owner.dead });
            }
        }
    }

    /// How many more tasks this instance may have.
    fn room(&self, me: &Me, mine: &BTreeMap<Key, Mine>) -> usize {
        if me.share.draining || me.share.weight == 0 {
            return 0;
        }
        let takes = self.orders.iter().filter(|order| matches!(order, Order::Take { .. })).count();
        let has = mine.values().filter(|what| **what != Mine::Waits).count();
        (me.share.cap as usize).saturating_sub(has + takes)
    }

    /// Who was to take it does not: it gave it up, or it stands still. One by one, each a little later, so
    /// that not all try at once.
    fn take_what_is_forgotten(
        &mut self,
        me: &Me,
        mine: &BTreeMap<Key, Mine>,
        shuns: Shuns<'_>,
        now: Moment,
        owners: &[(&Key, Owner)],
    ) {
        let mut room = self.room(me, mine).min(MOST_FORGOTTEN);
        for (key, owner) in owners {
            if !owner.is_nobody() || mine.contains_key(*key) || shuns(key, false) {
                continue;
            }
            let is_due = now >= forgotten_at(me, key, owner);
            let planned = self.heirs.get(*key).is_some_and(|to| *to == Some(me.session));
            if is_due && !planned && room > 0 {
                room -= 1;
                self.orders.push(Order::Take { key: (*key).clone(), dead: owner.dead });
            }
        }
    }
}

/// When this instance may take a task whatever is planned.
fn forgotten_at(me: &Me, key: &Key, owner: &Owner) -> Moment {
    owner.since + FORGOTTEN + stagger(me.session, key)
}

/// A part of [`FORGOTTEN`] that is another for each instance and task.
fn stagger(session: SessionId, key: &Key) -> Duration {
    let mut hash = Digest::default();
    hash.write(&session.as_u128().to_be_bytes());
    hash.write(key.as_str().as_bytes());
    FORGOTTEN.mul_f64(f64::from(u16::try_from(hash.0 >> 48).unwrap_or(0)) / f64::from(u16::MAX))
}

/// The digest of a task set: the same for the same keys, on every machine and in every version (64-bit
/// FNV-1a).
pub(crate) fn digest<'a>(keys: impl Iterator<Item = &'a Key>) -> u64 {
    let mut digest = Digest::default();
    for key in keys {
        digest.write(key.as_str().as_bytes());
        // The zero byte is in no key.
        digest.write(&[0]);
    }
    digest.0
}

struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests;
