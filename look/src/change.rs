//! Changes between two looks, or before the first one as far as the records remember. Pure.

mod describe;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Liveness;
use tenure::{
    model::{
        Entry, Holder, LockId, Outcome, RunId, RunRecord, ScheduleName, SessionId, StoreTime, Term, Why,
    },
    store::{Ended, LockRecord, Note, Past, Pause, RunNow, ScheduleRecord, SessionRecord},
};

/// Records of one look.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Time of the look; none before the first one.
    pub now: Option<StoreTime>,
    /// Locks, by their names.
    pub locks: BTreeMap<LockId, LockRecord>,
    /// Sessions, and how they look.
    pub sessions: BTreeMap<SessionId, (SessionRecord, Liveness)>,
    /// All sessions of the namespace are in it: one that was not is new.
    pub all_sessions: bool,
    /// Schedules, by their names.
    pub schedules: BTreeMap<ScheduleName, ScheduleRecord>,
    /// Entries of ledgers.
    pub runs: BTreeMap<RunId, RunRecord>,
}

/// A change, by the time that the records give it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Time of the change.
    pub at: StoreTime,
    /// Kind of the change, with its details.
    #[serde(flatten)]
    pub what: ChangeKind,
}

/// Kind of a change, with its details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the fields are those of the records")]
#[non_exhaustive]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ChangeKind {
    /// A key was granted; its previous holder, if the record remembers it.
    Acquired {
        lock: LockId,
        holder: Holder,
        term: Term,
        who: Option<String>,
        why: Option<Why>,
        after: Option<PreviousHolder>,
    },
    /// A holder gave a key up.
    Released { lock: LockId, holder: Holder, term: Term, how: Ended, note: Option<Note> },
    /// A holder lost a key; how, if that is known.
    Lost { lock: LockId, holder: Holder, term: Term, how: Option<Ended>, note: Option<Note> },
    /// An instance has opened a session.
    InstanceStarted { session: SessionId, holder: Holder, host: String, pid: u32, program: String },
    /// An instance fell silent: its last beat, at that time, is older than its ttl.
    InstanceSilent { session: SessionId, holder: Holder },
    /// An instance beats again.
    InstanceBack { session: SessionId, holder: Holder },
    /// An instance has closed its session.
    InstanceClosed { session: SessionId, holder: Holder },
    /// An instance was declared dead.
    InstanceDied { session: SessionId, holder: Holder, by: Holder, why: Why },
    /// An attempt at a run has begun.
    RunStarted { schedule: ScheduleName, instant: StoreTime, entry: Entry, holder: Holder, attempt: u32 },
    /// An attempt at a run has ended.
    RunEnded {
        schedule: ScheduleName,
        instant: StoreTime,
        entry: Entry,
        holder: Holder,
        attempt: u32,
        outcome: Outcome,
        error: Option<Why>,
    },
    /// Ticks were not run.
    NotRun { schedule: ScheduleName, from: StoreTime, instant: StoreTime, count: u64, why: Why },
    /// A schedule is held back.
    Paused { schedule: ScheduleName, by: Holder, why: Why },
    /// A schedule is held back no longer.
    Resumed { schedule: ScheduleName },
    /// An instance follows an order to give its tasks away.
    Drained { session: SessionId, holder: Holder, by: Holder, why: Why },
    /// A run was ordered, and has not begun.
    Ordered { schedule: ScheduleName, by: Holder, why: Why },
}

/// Previous holder of a key that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PreviousHolder {
    /// The last holder's name.
    pub holder: Holder,
    /// End of its holding.
    pub how: Ended,
}

/// Severity of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A run or a task failed, or ticks were not run.
    Failure,
    /// A key was taken from its holder, or its holder died.
    Loss,
    /// A key was granted after its last holder died or lost it by force.
    Takeover,
    /// A key went from one instance to another in order.
    Move,
    /// A person acted.
    Person,
    /// Everything else.
    Other,
}

impl Change {
    /// Returns its severity.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match &self.what {
            ChangeKind::Acquired {
                after: Some(PreviousHolder { how: Ended::Died | Ended::Forced, .. }),
                ..
            } => Severity::Takeover,
            ChangeKind::Acquired { after: Some(PreviousHolder { holder: before, .. }), holder, .. }
                if before != holder =>
            {
                Severity::Move
            }
            ChangeKind::Lost { .. } | ChangeKind::InstanceDied { .. } | ChangeKind::InstanceSilent { .. } => {
                Severity::Loss
            }
            ChangeKind::Released { note: Some(note), .. } => match note {
                Note::Revoked { .. } => Severity::Person,
                Note::Failing(_) | Note::Dying(_) => Severity::Failure,
                _ => Severity::Other,
            },
            ChangeKind::Paused { .. }
            | ChangeKind::Resumed { .. }
            | ChangeKind::Drained { .. }
            | ChangeKind::Ordered { .. }
            | ChangeKind::RunStarted { entry: Entry::Order, .. } => Severity::Person,
            // As it was wanted: held back, the run before was on, or another timing.
            ChangeKind::NotRun { why, .. }
                if matches!(why.as_str(), "paused" | "previous run still active" | "rescheduled") =>
            {
                Severity::Other
            }
            ChangeKind::NotRun { .. }
            | ChangeKind::RunEnded {
                outcome: Outcome::Failed | Outcome::TimedOut | Outcome::Abandoned,
                ..
            } => Severity::Failure,
            _ => Severity::Other,
        }
    }

    /// Returns whether a person did it.
    #[must_use]
    pub fn is_action(&self) -> bool {
        let is_forced = matches!(self.what, ChangeKind::Lost { how: Some(Ended::Forced), .. });
        is_forced || self.severity() == Severity::Person
    }
}

/// Records that remember what has happened.
pub(crate) struct Memory<L, S, C, R> {
    pub(crate) locks: L,
    pub(crate) sessions: S,
    pub(crate) schedules: C,
    pub(crate) runs: R,
}

/// Returns what has happened since then, as far as these records remember; what happened first comes first.
pub(crate) fn since<'a>(
    memory: Memory<
        impl Iterator<Item = &'a LockRecord>,
        impl Iterator<Item = &'a SessionRecord>,
        impl Iterator<Item = &'a ScheduleRecord>,
        impl Iterator<Item = &'a RunRecord>,
    >,
    since: StoreTime,
    now: StoreTime,
) -> Vec<Change> {
    let mut found = Vec::new();
    memory.locks.for_each(|record| lock(None, record, now, &mut found));
    memory.sessions.for_each(|record| session(None, record, Liveness::of(record, now), &mut found));
    for record in memory.schedules {
        schedule(None, record, now, &mut found);
        let Some(pause) = &record.pause else { continue };
        let Some(until) = pause.until else { continue };
        let (schedule, by, why) = (record.id.name.clone(), pause.by.clone(), pause.why.clone());
        found.push(Change { at: until, what: ChangeKind::Resumed { schedule: schedule.clone() } });
        found.push(Change { at: pause.since, what: ChangeKind::Paused { schedule, by, why } });
    }
    memory.runs.for_each(|record| run(None, record, &mut found));
    found.retain(|change| change.at >= since);
    found.sort_by_key(|change| change.at);
    found
}

/// Compares two looks; what happened first comes first.
#[must_use]
pub fn changes(old: &Records, new: &Records) -> Vec<Change> {
    let now = new.now.unwrap_or(StoreTime::from_millis(0));
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
        schedule(old.schedules.get(name), record, now, &mut found);
    }
    let mut earliest: BTreeMap<&ScheduleName, StoreTime> = BTreeMap::new();
    for run in old.runs.values() {
        let first = earliest.entry(&run.id.schedule.name).or_insert(run.id.instant);
        *first = (*first).min(run.id.instant);
    }
    for (id, record) in &new.runs {
        // A run before all known ones was beyond the look.
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
    for (at, past) in new.past.iter().enumerate().rev() {
        if is_later(past.term) {
            let (lock, holder, who) =
                (new.id.clone(), past.holder.clone(), past.who.as_ref().map(ToString::to_string));
            let after = new.past.get(at + 1).map(PreviousHolder::of);
            let what = ChangeKind::Acquired { lock, holder, term: past.term, who, why: None, after };
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
        let what = ChangeKind::Acquired {
            lock: new.id.clone(),
            holder: by.holder.clone(),
            term: new.term,
            who: by.who.as_ref().map(ToString::to_string),
            why: by.why.clone(),
            after: new.past.first().map(PreviousHolder::of),
        };
        found.push(Change { at: held.acquired_at, what });
    }
}

impl PreviousHolder {
    fn of(past: &Past) -> Self {
        Self { holder: past.holder.clone(), how: past.how }
    }
}

fn ended(lock: &LockId, past: &Past) -> ChangeKind {
    let Past { holder, term, how, note, .. } = past;
    match how {
        // To another ticket of its own session, if it is superseded.
        Ended::Released | Ended::HandedOver | Ended::Superseded => ChangeKind::Released {
            lock: lock.clone(),
            holder: holder.clone(),
            term: *term,
            how: *how,
            note: note.clone(),
        },
        _ => lost(lock, holder, *term, Some(*how), note.clone()),
    }
}

fn lost(lock: &LockId, holder: &Holder, term: Term, how: Option<Ended>, note: Option<Note>) -> ChangeKind {
    ChangeKind::Lost { lock: lock.clone(), holder: holder.clone(), term, how, note }
}

fn session(was: Option<Liveness>, record: &SessionRecord, life: Liveness, found: &mut Vec<Change>) {
    let (id, holder) = (record.id, record.about.holder.clone());
    if let Some(order) = record.drained.clone().filter(|_| was.is_none()) {
        let what = ChangeKind::Drained { session: id, holder: holder.clone(), by: order.by, why: order.why };
        found.push(Change { at: order.since, what });
    }
    // A session that was not seen before it was declared dead is not told to have begun then.
    let is_tombstone = record.death.as_ref().is_some_and(|death| death.at == record.started);
    if was.is_none() && !is_tombstone {
        let (host, pid, program) =
            (record.about.host.clone(), record.about.pid, record.about.program.clone());
        let what = ChangeKind::InstanceStarted { session: id, holder: holder.clone(), host, pid, program };
        found.push(Change { at: record.started, what });
    }
    match (was, life) {
        (Some(was), _) if was.has_ended() => {}
        (_, Liveness::Dead | Liveness::Closed) => {
            let Some(death) = &record.death else { return };
            let what = if death.is_own() {
                ChangeKind::InstanceClosed { session: id, holder }
            } else {
                ChangeKind::InstanceDied { session: id, holder, by: death.by.clone(), why: death.why.clone() }
            };
            found.push(Change { at: death.at, what });
        }
        (Some(Liveness::Alive) | None, Liveness::Silent) => {
            found.push(Change {
                at: record.beat_at,
                what: ChangeKind::InstanceSilent { session: id, holder },
            });
        }
        (Some(Liveness::Silent), Liveness::Alive) => {
            found.push(Change { at: record.beat_at, what: ChangeKind::InstanceBack { session: id, holder } });
        }
        _ => {}
    }
}

fn schedule(old: Option<&ScheduleRecord>, new: &ScheduleRecord, now: StoreTime, found: &mut Vec<Change>) {
    let pause = |record: &ScheduleRecord| record.pause.clone().filter(Pause::is_on);
    let (was, is) = (old.and_then(pause), pause(new));
    let name = || new.id.name.clone();
    let known = |order: &&RunNow| old.is_some_and(|old| old.orders.contains(order));
    for order in new.orders.iter().filter(|order| !known(order)) {
        let what = ChangeKind::Ordered { schedule: name(), by: order.by.clone(), why: order.why.clone() };
        found.push(Change { at: order.at, what });
    }
    match (was, is) {
        (was, Some(is)) if was.as_ref().map(|was| was.since) != Some(is.since) => {
            found.push(Change {
                at: is.since,
                what: ChangeKind::Paused { schedule: name(), by: is.by, why: is.why },
            });
        }
        (Some(_), None) => {
            let until = new.pause.as_ref().and_then(|pause| pause.until).unwrap_or(now);
            found.push(Change { at: until, what: ChangeKind::Resumed { schedule: name() } });
        }
        _ => {}
    }
}

fn run(old: Option<&RunRecord>, new: &RunRecord, found: &mut Vec<Change>) {
    let (schedule, instant, entry) = (new.id.schedule.name.clone(), new.id.instant, new.id.entry);
    if let Some(skipped) = &new.skipped {
        if old.is_none() {
            let (from, count, why) = (skipped.from, skipped.count, skipped.why.clone());
            let what = ChangeKind::NotRun { schedule, from, instant, count, why };
            found.push(Change { at: new.started, what });
        }
        return;
    }
    let (holder, attempt) = (new.holder.clone(), new.attempt);
    let is_same = old.is_some_and(|old| old.is_claimed_by(new.session, new.term, attempt));
    if !is_same {
        let what = ChangeKind::RunStarted {
            schedule: schedule.clone(),
            instant,
            entry,
            holder: holder.clone(),
            attempt,
        };
        found.push(Change { at: new.started, what });
    }
    let had_ended = is_same && old.is_some_and(|old| old.finish.is_some());
    if let Some(finish) = new.finish.as_ref().filter(|_| !had_ended) {
        let (outcome, error) = (finish.outcome, finish.error.clone());
        let what = ChangeKind::RunEnded { schedule, instant, entry, holder, attempt, outcome, error };
        found.push(Change { at: finish.at, what });
    }
}

#[cfg(test)]
mod tests;
