//! Schedules that no instance runs: one instance of the namespace looks for them, page by page, and reports them. It
//! also removes schedules that had one tick, and are through for longer than a history is kept.
//!
//! ```text
//!  a page of records ─▶ their locks ─▶ sessions of their holders ─▶ ledgers of those without a live holder
//!  100 a time           one read       one read                     one read, and one of their records
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Weak},
    time::Duration,
};

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{metrics, runner::ScheduleRunner, spec::key_of};
use crate::{
    Event, StoreError,
    backoff::jittered,
    elect::{Engine, Work},
    error::chain,
    logic::tick::{Unowned, unowned},
    model::{Holder, Kind, LockId, ScheduleId, ScheduleName, SessionId, StoreTime},
    store::{LockSeen, ScheduleRecord, ScheduleSeen, SessionRecord, SessionSeen},
    words,
};

/// Records that are looked at together.
const PAGE: usize = 100;
/// Entries of a ledger that are read to find the tick that was dealt with last.
const READ: usize = 20;
/// Interval of looks at all schedules, where there are few pages; else a page has a `poll_interval`.
const ROUND: Duration = Duration::from_secs(60);
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

/// Looks for overdue schedules as long as there is a runner, while its instance is the first member of their spread. An
/// instance that is wrong about that costs or saves a look.
pub(super) async fn look_after(runner: Weak<ScheduleRunner>, engine: Weak<Engine>, stop: CancellationToken) {
    let (mut reported, mut pages) = (BTreeMap::new(), 1);
    loop {
        let Some(strong) = engine.upgrade() else { return };
        let pause = jittered(ROUND.max(strong.poll() * pages), strong.entropy.roll());
        let closing = strong.closing.clone();
        drop(strong);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = closing.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let (Some(engine), Some(spread)) = (engine.upgrade(), runner.upgrade().map(|runner| runner.spread()))
        else {
            return;
        };
        let is_first = spread.is_some_and(|spread| spread.is_first_member());
        let found = if is_first { find(&engine, Work::Schedules).await } else { Ok(Found::default()) };
        let looked = match found {
            Ok(found) => {
                pages = found.pages;
                report(&engine, &mut reported, found.unowned).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = looked {
            words::debug!(error = chain(&error), "could not look for overdue schedules");
        }
    }
}

/// Reports what is overdue now. `reported` are the ticks that were due before, by their schedules.
async fn report(
    engine: &Arc<Engine>,
    reported: &mut BTreeMap<ScheduleName, StoreTime>,
    found: Vec<(ScheduleRecord, Unowned, Freed)>,
) -> Result<(), StoreError> {
    let Some(now) = engine.store_times.now(engine.clock.now()) else { return Ok(()) };
    let before = mem::take(reported);
    let mut through = Vec::new();
    for (record, state, freed) in found {
        let (name, namespace) = (&record.id.name, &record.id.namespace);
        match state {
            Unowned::Overdue(due) => {
                let by = now.since(due);
                metrics::overdue(engine, name, by);
                reported.insert(name.clone(), due);
                if before.get(name) != Some(&due) {
                    words::warn!(schedule = name.as_str(), %namespace, %due, ?by, "a schedule is overdue: no live instance has it");
                    engine.events.send(Event::Overdue { lock: lock_of(&record.id), due, by });
                }
            }
            Unowned::Through(at) => through.push((record, at, freed)),
            Unowned::Well => {}
        }
    }
    for schedule in before.keys().filter(|name| !reported.contains_key(*name)) {
        metrics::overdue(engine, schedule, Duration::ZERO);
    }
    for (record, at, freed) in through {
        remove_if_old(engine, &record, at, freed, now).await?;
    }
    Ok(())
}

fn lock_of(id: &ScheduleId) -> LockId {
    LockId { namespace: id.namespace.clone(), kind: Kind::Schedule, key: key_of(&id.name) }
}

/// Returns whether a session has beaten lately, by the store's clock: a guess, which decides what is reported and by
/// which instance.
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

/// Schedules that no live instance has.
#[derive(Default)]
struct Found {
    unowned: Vec<(ScheduleRecord, Unowned, Freed)>,
    /// Number of pages of schedules that were read.
    pages: u32,
}

/// Finds the schedules of the namespace that no live instance has.
async fn find(engine: &Engine, work: Work) -> Result<Found, StoreError> {
    let mut found = Found::default();
    let Some(now) = engine.store_times.now(engine.clock.now()) else { return Ok(found) };
    let mut after = None;
    loop {
        let (limit, namespace) = (engine.limit(), engine.config.namespace().clone());
        let page = engine.store().list_schedules(namespace, after, PAGE, limit);
        let page = engine.call(work, limit, page).await?;
        found.unowned.extend(unowned_of(engine, page.items, now).await?);
        found.pages += 1;
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

/// Finds all schedules of the namespace that are overdue.
pub(super) async fn all(engine: &Engine) -> Result<Vec<Overdue>, StoreError> {
    let found = find(engine, Work::Requested).await?;
    let Some(now) = engine.store_times.now(engine.clock.now()) else { return Ok(Vec::new()) };
    let overdue = found.unowned.into_iter().filter_map(|(record, state, _)| match state {
        Unowned::Overdue(due) => Some(Overdue { schedule: record.id.name, due, by: now.since(due) }),
        Unowned::Through(_) | Unowned::Well => None,
    });
    Ok(overdue.collect())
}
