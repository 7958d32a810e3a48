//! Schedules that no instance runs: one instance of the namespace looks for them, page by page, and reports them. It
//! also removes schedules that had one tick, and are through for longer than a history is kept; so does one that had a
//! schedule and has none any more, for whichever had such a one lets go of it.
//!
//! ```text
//!  a page of records ─▶ their locks ─▶ sessions of their holders ─▶ ledgers of those without a live holder
//!  100 each poll        one read       one read                     one read, and one of their records
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use serde::Serialize;

use super::{metrics, runner::ScheduleRunner, spec::key_of};
use crate::{
    Event, StoreError,
    backoff::jittered,
    elect::{Engine, Work},
    error::chain,
    logic::tick::{Unowned, unowned},
    model::{Holder, Kind, LockId, SCHEDULES, ScheduleId, ScheduleName, SessionId, StoreTime},
    store::{Cursor, LockSeen, ScheduleRecord, ScheduleSeen, SessionRecord, SessionSeen, StoreExt},
    words,
};

/// Records that are looked at each `poll_interval`.
const PAGE: usize = 100;
/// Entries of a ledger that are read to find the tick that was dealt with last.
const READ: usize = 20;
/// Interval of looks at all schedules, where there are no more than a page; and of an instance's checks whether it is
/// the one that looks.
const ROUND: Duration = Duration::from_secs(60);
/// Sessions that a check reads at once, and its most reads.
const SESSIONS: usize = 100;
const PAGES: usize = 10;
/// Time, besides two ttls, for which an overdue schedule may be on its way to its next owner.
const PATIENCE: Duration = Duration::from_secs(60);

/// Schedule with a tick that is due, and that no instance runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Overdue {
    /// Name of the schedule.
    pub schedule: ScheduleName,
    /// First of its ticks that are due and not in the ledger.
    pub due: StoreTime,
    /// Time for which that tick is due.
    #[serde(rename = "by_ms", serialize_with = "crate::model::serial::ms")]
    pub by: Duration,
}

/// Looks for overdue schedules, for as long as the engine lives: what had one tick is removed long after its instance has
/// let go of it.
pub(super) async fn look_after(engine: Weak<Engine>) {
    let mut look = Look::default();
    loop {
        let Some(strong) = engine.upgrade() else { return };
        // In the middle of a round it goes on at once; schedules that are reported have been due for longer than a round
        // takes.
        let pause = if look.after.is_some() { strong.poll() } else { ROUND.max(strong.poll()) };
        let pause = jittered(pause, strong.entropy.roll());
        let closing = strong.closing.clone();
        drop(strong);
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let Some(strong) = engine.upgrade() else { return };
        if let Err(error) = look.on(&strong).await {
            words::debug!(error = chain(&error), "could not look for overdue schedules");
        }
    }
}

/// Look of one instance at all schedules, a page at a time.
#[derive(Default)]
struct Look {
    /// True while it is this instance that looks, and until when that is known.
    turn: Option<(bool, crate::clock::Moment)>,
    after: Option<Cursor>,
    /// Schedules that were reported, and the tick that was due.
    reported: BTreeMap<ScheduleName, StoreTime>,
    /// Schedules that this round has seen.
    seen: BTreeSet<ScheduleName>,
}

impl Look {
    async fn on(&mut self, engine: &Arc<Engine>) -> Result<(), StoreError> {
        let Some(now) = engine.store_times.now(engine.clock.now()) else { return Ok(()) };
        if !self.check_turn(engine).await? {
            for (schedule, _) in std::mem::take(&mut self.reported) {
                metrics::overdue(engine, &schedule, Duration::ZERO);
            }
            self.after = None;
            self.seen.clear();
            return Ok(());
        }
        let (limit, namespace) = (engine.limit(), engine.config.namespace().clone());
        let page = engine.store().list_schedules(namespace, self.after.clone(), PAGE, limit);
        let page = engine.call(Work::Schedules, limit, page).await?;
        let names: Vec<_> = page.items.iter().map(|record| record.id.name.clone()).collect();
        let found = unowned_of(engine, page.items, now).await?;
        // An instance that has none any more only removes.
        let reports = ScheduleRunner::known(engine).is_some();
        for name in &names {
            let due = found.iter().find(|(record, ..)| record.id.name == *name);
            match due {
                Some((record, Unowned::Overdue(due), _)) if reports => self.report(engine, record, *due, now),
                other => {
                    if self.reported.remove(name).is_some() {
                        metrics::overdue(engine, name, Duration::ZERO);
                    }
                    if let Some((record, Unowned::Through(at), freed)) = other {
                        remove_if_old(engine, record, *at, *freed, now).await?;
                    }
                }
            }
        }
        self.seen.extend(names);
        self.after = page.next;
        if self.after.is_none() {
            // A schedule that is gone is overdue no more.
            let seen = std::mem::take(&mut self.seen);
            for schedule in self.reported.keys().filter(|name| !seen.contains(*name)) {
                metrics::overdue(engine, schedule, Duration::ZERO);
            }
            self.reported.retain(|name, _| seen.contains(name));
        }
        Ok(())
    }

    fn report(&mut self, engine: &Engine, record: &ScheduleRecord, due: StoreTime, now: StoreTime) {
        let (name, by) = (&record.id.name, now.since(due));
        metrics::overdue(engine, name, by);
        if self.reported.insert(name.clone(), due) != Some(due) {
            words::warn!(schedule = name.as_str(), namespace = %record.id.namespace, %due, ?by, "a schedule is overdue: no live instance has it");
            engine.events.send(Event::Overdue { lock: lock_of(&record.id), due, by });
        }
    }

    /// Checks whether this instance is the one that looks: it has the smallest session id of the instances that
    /// have schedules and beat. An instance that is wrong about that costs or saves a look.
    async fn check_turn(&mut self, engine: &Engine) -> Result<bool, StoreError> {
        let moment = engine.clock.now();
        if let Some((is_ours, until)) = self.turn
            && moment < until
        {
            return Ok(is_ours);
        }
        let Some(own) = engine.session.borrow().as_ref().map(|session| session.id) else { return Ok(false) };
        let is_ours = is_first(engine, own).await?;
        self.turn = Some((is_ours, moment + jittered(ROUND, engine.entropy.roll())));
        Ok(is_ours)
    }
}

async fn is_first(engine: &Engine, own: SessionId) -> Result<bool, StoreError> {
    let mut after = None;
    for _ in 0..PAGES {
        let limit = engine.limit();
        let page = engine.store().sessions(engine.config.namespace().clone(), after, SESSIONS, limit);
        let page = engine.call(Work::Watching, limit, page).await?;
        let first = page.items.iter().find(|session| has_schedules(session) && beats(engine, session));
        if let Some(first) = first {
            return Ok(first.id >= own);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    // Better one too many.
    Ok(true)
}

fn lock_of(id: &ScheduleId) -> LockId {
    LockId { namespace: id.namespace.clone(), kind: Kind::Schedule, key: key_of(&id.name) }
}

fn has_schedules(session: &SessionRecord) -> bool {
    session.shares.iter().any(|share| share.spread.as_str() == SCHEDULES)
}

/// Returns whether a session has beaten lately, by the store's clock: a guess, which decides what is reported, by which
/// instance, and whether a schedule may be deleted.
fn beats(engine: &Engine, session: &SessionRecord) -> bool {
    let is_late = |now: StoreTime| session.beat_at.plus(session.ttl * 2) < now;
    session.is_alive() && !engine.store_now().is_some_and(is_late)
}

/// Time at which a schedule's lock was given back last; `None` if there is no record of that any more.
type Freed = Option<StoreTime>;

/// Finds the schedules that no live instance has, and their state.
async fn unowned_of(
    engine: &Engine,
    records: Vec<ScheduleRecord>,
    now: StoreTime,
) -> Result<Vec<(ScheduleRecord, Unowned, Freed)>, StoreError> {
    let limit = engine.limit();
    let locks = records.iter().map(|record| lock_of(&record.id)).collect();
    let locks = engine.call(Work::Schedules, limit, engine.store().locks(locks, limit)).await?;
    let holders = locks.iter().filter_map(|seen| match seen {
        LockSeen::Found(record) => record.holding.as_ref().map(|held| held.by.session),
        LockSeen::Absent | LockSeen::Refused(_) => None,
    });
    let holders: BTreeSet<_> = holders.collect();
    let alive = alive_of(engine, holders.into_iter().collect()).await?;
    let mut nobodys = Vec::new();
    for (record, lock) in records.into_iter().zip(locks) {
        let freed = match lock {
            LockSeen::Found(lock) => match &lock.holding {
                Some(held) if alive.contains(&held.by.session) => continue,
                Some(held) => Some(held.acquired_at.max(now)),
                None => lock.past.first().map(|last| last.to),
            },
            LockSeen::Absent => None,
            LockSeen::Refused(_) => continue,
        };
        nobodys.push((record.id, freed));
    }
    if nobodys.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, freed): (Vec<_>, Vec<_>) = nobodys.into_iter().unzip();
    let limit = engine.limit();
    let ledgers = engine.store().last_runs(ids.clone(), READ, limit);
    let ledgers = engine.call(Work::Schedules, limit, ledgers).await?;
    // After the runs: a purge between the two raises the mark over what it removes.
    let limit = engine.limit();
    let records = engine.call(Work::Schedules, limit, engine.store().schedules(ids, limit)).await?;
    let patience = PATIENCE + engine.times.ttl * 2;
    let mut found = Vec::new();
    for ((seen, ledger), freed) in records.into_iter().zip(ledgers).zip(freed) {
        let ScheduleSeen::Found(record) = seen else { continue };
        let state = unowned(&record, &ledger.items, ledger.next.is_none(), now, patience);
        found.push((record, state, freed));
    }
    Ok(found)
}

async fn alive_of(engine: &Engine, sessions: Vec<SessionId>) -> Result<BTreeSet<SessionId>, StoreError> {
    if sessions.is_empty() {
        return Ok(BTreeSet::new());
    }
    let limit = engine.limit();
    let seen = engine.call(Work::Watching, limit, engine.store().observe(sessions, limit)).await?;
    let alive = seen.iter().filter_map(SessionSeen::record).filter(|session| beats(engine, session));
    Ok(alive.map(|session| session.id).collect())
}

/// Returns the holder of a lock, if it is alive.
pub(super) async fn holder_of(engine: &Engine, lock: LockId) -> Result<Option<Holder>, StoreError> {
    let limit = engine.limit();
    let seen = engine.call(Work::Requested, limit, engine.store().locks(vec![lock], limit)).await?;
    let Some(held) = seen.into_iter().find_map(LockSeen::found).and_then(|record| record.holding) else {
        return Ok(None);
    };
    let alive = alive_of(engine, vec![held.by.session]).await?;
    Ok(alive.contains(&held.by.session).then_some(held.by.holder))
}

/// Removes a schedule that had one tick, has dealt with it, and had no owner for longer than a history is kept.
async fn remove_if_old(
    engine: &Arc<Engine>,
    record: &ScheduleRecord,
    at: StoreTime,
    freed: Freed,
    now: StoreTime,
) -> Result<(), StoreError> {
    let kept = engine.config.retention_runs();
    let is_old = at.plus(kept) < now && freed.is_none_or(|freed| freed.plus(kept) < now);
    let has_it =
        ScheduleRunner::known(engine).is_some_and(|runner| runner.spec(&key_of(&record.id.name)).is_some());
    if !is_old || has_it || !record.orders.is_empty() {
        return Ok(());
    }
    delete(engine, &record.id, Work::History).await?;
    words::debug!(schedule = record.id.name.as_str(), namespace = %record.id.namespace, "removed a one-time schedule that is done");
    Ok(())
}

/// Deletes all of a schedule.
pub(super) async fn delete(engine: &Engine, id: &ScheduleId, work: Work) -> Result<(), StoreError> {
    loop {
        let limit = engine.limit();
        if engine.call(work, limit, engine.store().delete_schedule(id.clone(), limit)).await? {
            return Ok(());
        }
    }
}

/// Finds all schedules of the namespace that are overdue.
pub(super) async fn all(engine: &Engine) -> Result<Vec<Overdue>, StoreError> {
    let Some(now) = engine.store_times.now(engine.clock.now()) else { return Ok(Vec::new()) };
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (limit, namespace) = (engine.limit(), engine.config.namespace().clone());
        let page = engine.store().list_schedules(namespace, after, PAGE, limit);
        let page = engine.call(Work::Requested, limit, page).await?;
        for (record, unowned_state, _) in unowned_of(engine, page.items, now).await? {
            if let Unowned::Overdue(due) = unowned_state {
                all.push(Overdue { schedule: record.id.name, due, by: now.since(due) });
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}
