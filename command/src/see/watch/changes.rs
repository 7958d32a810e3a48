//! What changed between two looks. Pure.

mod told;

use std::collections::BTreeMap;

use serde::Serialize;
use tenure::model::{
    Ended, Entry, Holder, Key, LockId, LockRecord, Namespace, Outcome, Past, Pause, RunRecord, ScheduleName,
    ScheduleRecord, SessionId, SessionRecord, StoreTime, Term, Why,
};

use super::{
    super::look::Life,
    snapshot::{Scope, Snapshot},
};
use crate::times;

/// A change, by the time that the records give it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    pub(super) at: StoreTime,
    #[serde(flatten)]
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum What {
    /// The watch has begun.
    Watching {
        namespace: Namespace,
        key: Option<Key>,
        held: usize,
        instances: usize,
    },
    /// Held when the watch began.
    Held {
        lock: LockId,
        holder: Holder,
        session: SessionId,
        term: Term,
    },
    Acquired {
        lock: LockId,
        holder: Holder,
        term: Term,
        who: Option<String>,
        why: Option<Why>,
    },
    /// Its holder gave it up.
    Released {
        lock: LockId,
        holder: Holder,
        term: Term,
        how: Ended,
        note: Option<Why>,
    },
    /// It was taken from its holder; how, if that is known.
    Lost {
        lock: LockId,
        holder: Holder,
        term: Term,
        how: Option<Ended>,
        note: Option<Why>,
    },
    InstanceStarted {
        session: SessionId,
        holder: Holder,
        host: String,
        pid: u32,
        program: String,
    },
    /// Its last beat, which was then, is older than its ttl.
    InstanceSilent {
        session: SessionId,
        holder: Holder,
    },
    /// It beats again.
    InstanceBack {
        session: SessionId,
        holder: Holder,
    },
    InstanceClosed {
        session: SessionId,
        holder: Holder,
    },
    InstanceDied {
        session: SessionId,
        holder: Holder,
        by: Holder,
        why: Why,
    },
    RunStarted {
        schedule: ScheduleName,
        instant: StoreTime,
        entry: Entry,
        holder: Holder,
        attempt: u32,
    },
    RunEnded {
        schedule: ScheduleName,
        instant: StoreTime,
        entry: Entry,
        holder: Holder,
        attempt: u32,
        outcome: Outcome,
        error: Option<Why>,
    },
    NotRun {
        schedule: ScheduleName,
        from: StoreTime,
        instant: StoreTime,
        count: u64,
        why: Why,
    },
    Paused {
        schedule: ScheduleName,
        by: Holder,
        why: Why,
    },
    Resumed {
        schedule: ScheduleName,
    },
}

/// What is told when the watch begins.
pub(super) fn begin(first: &Snapshot, scope: &Scope) -> Vec<Change> {
    let at = first.now.unwrap_or_else(times::now);
    let held = first.locks.values().filter(|record| record.holding.is_some());
    let alive = first.sessions.values().filter(|(_, life)| *life == Life::Alive);
    let (namespace, key) = (scope.namespace.clone(), scope.key.clone());
    let watching = What::Watching { namespace, key, held: held.clone().count(), instances: alive.count() };
    let mut told = vec![Change { at, what: watching }];
    if scope.key.is_some() {
        told.extend(held.filter_map(|record| {
            let held = record.holding.as_ref()?;
            let (lock, holder) = (record.id.clone(), held.by.holder.clone());
            let what = What::Held { lock, holder, session: held.by.session, term: record.term };
            Some(Change { at: held.acquired_at, what })
        }));
    }
    told
}

/// Compares two looks; what happened first comes first.
pub(super) fn changes(old: &Snapshot, new: &Snapshot) -> Vec<Change> {
    let now = new.now.unwrap_or_else(times::now);
    let mut found = Vec::new();
    for (id, record) in &new.locks {
        lock(old.locks.get(id), record, now, &mut found);
    }
    for (id, record) in old.locks.iter().filter(|(id, _)| !new.locks.contains_key(id)) {
        if let Some(held) = &record.holding {
            found.push(Change { at: now, what: lost(id, &held.by.holder, record.term, None, None) });
        }
    }
    for (id, (record, life)) in &new.sessions {
        match old.sessions.get(id) {
            Some((_, was)) => session(Some(*was), record, *life, &mut found),
            None if new.all_sessions => session(None, record, *life, &mut found),
            None => {}
        }
    }
    for (name, record) in &new.schedules {
        schedule(old.schedules.get(name), record, &mut found);
    }
    let mut earliest: BTreeMap<&ScheduleName, StoreTime> = BTreeMap::new();
    for run in old.runs.values() {
        let first = earliest.entry(&run.id.schedule.name).or_insert(run.id.instant);
        *first = (*first).min(run.id.instant);
    }
    for (id, record) in &new.runs {
        // What is before all that was known was beyond the look.
        if earliest.get(&id.schedule.name).is_none_or(|earliest| id.instant >= *earliest) {
            run(old.runs.get(id), record, &mut found);
        }
    }
    found.sort_by_key(|change| change.at);
    found
}

fn lock(old: Option<&LockRecord>, new: &LockRecord, now: StoreTime, found: &mut Vec<Change>) {
    let known = old.map(|old| old.term);
    let was_held = old.is_some_and(|old| old.holding.is_some());
    let is_later = |term: Term| known.is_none_or(|known| term > known);
    let mut has_ended = false;
    for past in new.past.iter().rev() {
        if is_later(past.term) {
            let (lock, holder, who) =
                (new.id.clone(), past.holder.clone(), past.who.as_ref().map(ToString::to_string));
            let what = What::Acquired { lock, holder, term: past.term, who, why: None };
            found.push(Change { at: past.from, what });
        } else if !(was_held && Some(past.term) == known) {
            continue;
        }
        has_ended |= Some(past.term) == known;
        found.push(Change { at: past.to, what: ended(&new.id, past) });
    }
    if let Some(old) =
        old.filter(|old| was_held && !has_ended && (new.holding.is_none() || new.term != old.term))
        && let Some(held) = &old.holding
    {
        found.push(Change { at: now, what: lost(&new.id, &held.by.holder, old.term, None, None) });
    }
    if let Some(held) = new.holding.as_ref().filter(|_| is_later(new.term)) {
        let by = &held.by;
        let what = What::Acquired {
            lock: new.id.clone(),
            holder: by.holder.clone(),
            term: new.term,
            who: by.who.as_ref().map(ToString::to_string),
            why: by.why.clone(),
        };
        found.push(Change { at: held.acquired_at, what });
    }
}

fn ended(lock: &LockId, past: &Past) -> What {
    let Past { holder, term, how, note, .. } = past;
    match how {
        Ended::Released | Ended::HandedOver => What::Released {
            lock: lock.clone(),
            holder: holder.clone(),
            term: *term,
            how: *how,
            note: note.clone(),
        },
        _ => lost(lock, holder, *term, Some(*how), note.clone()),
    }
}

fn lost(lock: &LockId, holder: &Holder, term: Term, how: Option<Ended>, note: Option<Why>) -> What {
    What::Lost { lock: lock.clone(), holder: holder.clone(), term, how, note }
}

fn session(was: Option<Life>, record: &SessionRecord, life: Life, found: &mut Vec<Change>) {
    let (id, holder) = (record.id, record.about.holder.clone());
    if was.is_none() {
        let (host, pid, program) =
            (record.about.host.clone(), record.about.pid, record.about.program.clone());
        let what = What::InstanceStarted { session: id, holder: holder.clone(), host, pid, program };
        found.push(Change { at: record.started, what });
    }
    match (was, life) {
        (Some(Life::Dead), _) => {}
        (_, Life::Dead) => {
            let Some(death) = &record.death else { return };
            let what = if death.is_own() {
                What::InstanceClosed { session: id, holder }
            } else {
                What::InstanceDied { session: id, holder, by: death.by.clone(), why: death.why.clone() }
            };
            found.push(Change { at: death.at, what });
        }
        (Some(Life::Alive) | None, Life::Silent) => {
            found.push(Change { at: record.beat_at, what: What::InstanceSilent { session: id, holder } });
        }
        (Some(Life::Silent), Life::Alive) => {
            found.push(Change { at: record.beat_at, what: What::InstanceBack { session: id, holder } });
        }
        _ => {}
    }
}

fn schedule(old: Option<&ScheduleRecord>, new: &ScheduleRecord, found: &mut Vec<Change>) {
    let pause = |record: &ScheduleRecord| record.pause.clone().filter(Pause::is_on);
    let (was, is) = (old.and_then(pause), pause(new));
    let name = || new.id.name.clone();
    match (was, is) {
        (was, Some(is)) if was.as_ref().map(|was| was.since) != Some(is.since) => {
            found.push(Change {
                at: is.since,
                what: What::Paused { schedule: name(), by: is.by, why: is.why },
            });
        }
        (Some(_), None) => {
            let until = new.pause.as_ref().and_then(|pause| pause.until).unwrap_or_else(times::now);
            found.push(Change { at: until, what: What::Resumed { schedule: name() } });
        }
        _ => {}
    }
}

fn run(old: Option<&RunRecord>, new: &RunRecord, found: &mut Vec<Change>) {
    let (schedule, instant, entry) = (new.id.schedule.name.clone(), new.id.instant, new.id.entry);
    if let Some(skipped) = &new.skipped {
        if old.is_none() {
            let (from, count, why) = (skipped.from, skipped.count, skipped.why.clone());
            let what = What::NotRun { schedule, from, instant, count, why };
            found.push(Change { at: new.started, what });
        }
        return;
    }
    let (holder, attempt) = (new.holder.clone(), new.attempt);
    let is_same = old.is_some_and(|old| old.is_claimed_by(new.session, new.term, attempt));
    if !is_same {
        let what =
            What::RunStarted { schedule: schedule.clone(), instant, entry, holder: holder.clone(), attempt };
        found.push(Change { at: new.started, what });
    }
    let had_ended = is_same && old.is_some_and(|old| old.finish.is_some());
    if let Some(finish) = new.finish.as_ref().filter(|_| !had_ended) {
        let (outcome, error) = (finish.outcome, finish.error.clone());
        let what = What::RunEnded { schedule, instant, entry, holder, attempt, outcome, error };
        found.push(Change { at: finish.at, what });
    }
}

#[cfg(test)]
mod tests;
