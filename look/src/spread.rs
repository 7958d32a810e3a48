//! A spread, as the records of its members and of its tasks tell.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::Liveness;
use tenure::{
    model::{Key, SessionId, SpreadName, StoreTime},
    spread::{Explanation, Member, SpreadStatus, TaskState},
    store::{LockRecord, LockSeen, Past, SessionRecord},
};

/// A spread in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SpreadSummary {
    /// Name of the spread.
    pub spread: SpreadName,
    /// Members that are not declared dead.
    pub members: usize,
    /// Members that look dead.
    pub silent: usize,
    /// Members that give their tasks away.
    pub draining: usize,
    /// Members that gave up tasks which run well elsewhere.
    pub failing: usize,
    /// Tasks that were ever taken.
    pub tasks: usize,
    /// Tasks that have a holder.
    pub held: usize,
    /// Tasks that rest after failures.
    #[serde(rename = "quarantined")]
    pub resting: usize,
    /// Tasks without a living holder.
    pub orphans: usize,
    /// Number of tasks that its living members know, if one of them says: the largest.
    pub wanted: Option<usize>,
    /// Tasks of these that were never taken.
    pub never_ran: usize,
}

/// A spread, its members and its tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SpreadView {
    /// Name of the spread.
    pub spread: SpreadName,
    /// Members that are not declared dead.
    pub members: Vec<SpreadMember>,
    /// Tasks that were ever taken, by their keys.
    pub tasks: Vec<TaskView>,
    /// Tasks without a living holder.
    pub orphans: Vec<Key>,
    /// Number of tasks that its living members know, if one of them says: the largest.
    pub wanted: Option<usize>,
    /// Tasks of these that were never taken.
    pub never_ran: usize,
}

/// A member of a spread, and its liveness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SpreadMember {
    /// The member.
    #[serde(flatten)]
    pub member: Member,
    /// Liveness of the member.
    pub life: Liveness,
    /// True if nothing is to be expected of the member any more.
    pub looks_dead: bool,
}

/// A task of a spread, and why it is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TaskView {
    /// Key of the task.
    pub key: Key,
    /// State of the task.
    pub state: TaskState,
    /// True if its holder looks dead.
    pub looks_dead: bool,
    /// Since when its holder has it.
    pub since: Option<StoreTime>,
    /// Last holder, and the end of its holding.
    pub last: Option<Past>,
    /// Why it is where it is, the most important sentence first.
    pub why: Vec<String>,
}

impl TaskView {
    /// Returns its state in a word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        if self.looks_dead { "held, dead" } else { self.state.word() }
    }
}

impl SpreadView {
    /// A spread as these records tell: sessions of the namespace, and locks of the spread's tasks. Its tasks are those
    /// `shown`, since most of the work is to say why each is where it is.
    #[must_use]
    pub fn of(
        name: SpreadName,
        sessions: &[SessionRecord],
        locks: &[LockRecord],
        shown: &[LockRecord],
        now: StoreTime,
    ) -> Self {
        let status = SpreadStatus::of_records(name, sessions, locks, now);
        let silent = silent(sessions, now);
        let tasks = shown.iter().filter_map(|record| TaskView::of(record, &status, sessions, now));
        Self { tasks: tasks.collect(), ..Self::without_tasks(&status, &silent) }
    }

    fn without_tasks(status: &SpreadStatus, silent: &BTreeSet<SessionId>) -> Self {
        let member = |member: &Member| {
            let life = if silent.contains(&member.session) { Liveness::Silent } else { Liveness::Alive };
            SpreadMember { looks_dead: life.looks_dead(), life, member: member.clone() }
        };
        Self {
            spread: status.spread.clone(),
            members: status.members.iter().map(member).collect(),
            tasks: Vec::new(),
            orphans: orphans(status, silent),
            wanted: wanted(status, silent),
            never_ran: wanted(status, silent).unwrap_or(0).saturating_sub(status.tasks.len()),
        }
    }
}

impl SpreadSummary {
    /// All spreads that these records name: those of the locks, and those that have members.
    #[must_use]
    pub fn all(
        sessions: &[SessionRecord],
        locks: impl IntoIterator<Item = LockRecord>,
        now: StoreTime,
    ) -> Vec<Self> {
        let mut named: BTreeMap<SpreadName, Vec<LockRecord>> = BTreeMap::new();
        for session in sessions.iter().filter(|session| session.is_alive()) {
            for share in &session.shares {
                named.entry(share.spread.clone()).or_default();
            }
        }
        for record in locks {
            if let Some(spread) = record.id.kind.spread() {
                named.entry(spread).or_default().push(record);
            }
        }
        named.into_iter().map(|(spread, locks)| Self::of(spread, sessions, &locks, now)).collect()
    }

    /// A spread as these records tell: sessions of the namespace, and locks of the spread's tasks.
    #[must_use]
    pub fn of(name: SpreadName, sessions: &[SessionRecord], locks: &[LockRecord], now: StoreTime) -> Self {
        let status = SpreadStatus::of_records(name, sessions, locks, now);
        let silent = silent(sessions, now);
        Self {
            members: status.members.len(),
            silent: status.members.iter().filter(|member| silent.contains(&member.session)).count(),
            draining: status.members.iter().filter(|member| member.share.draining).count(),
            tasks: status.tasks.len(),
            held: status.held(),
            failing: status.members.iter().filter(|member| member.failing).count(),
            resting: status.resting().count(),
            orphans: orphans(&status, &silent).len(),
            wanted: wanted(&status, &silent),
            never_ran: wanted(&status, &silent).unwrap_or(0).saturating_sub(status.tasks.len()),
            spread: status.spread,
        }
    }
}

impl TaskView {
    fn of(
        record: &LockRecord,
        status: &SpreadStatus,
        sessions: &[SessionRecord],
        now: StoreTime,
    ) -> Option<Self> {
        let key = &record.id.key;
        let state = status.tasks.get(key)?.clone();
        let seen = LockSeen::Found(record.clone());
        let why = Explanation::of_records(status, sessions, key.clone(), &seen, now);
        let is_dead = |id| sessions.iter().any(|session| session.id == id && session.looks_dead(now));
        Some(Self {
            looks_dead: record.holding.as_ref().is_some_and(|held| is_dead(held.by.session)),
            since: record.holding.as_ref().map(|held| held.acquired_at),
            last: record.past.first().cloned(),
            why: why.sentences().to_vec(),
            key: key.clone(),
            state,
        })
    }
}

/// The sessions that are not declared dead and look it.
fn silent(sessions: &[SessionRecord], now: StoreTime) -> BTreeSet<SessionId> {
    let silent = sessions.iter().filter(|session| session.is_alive() && session.looks_dead(now));
    silent.map(|session| session.id).collect()
}

fn wanted(status: &SpreadStatus, silent: &BTreeSet<SessionId>) -> Option<usize> {
    let living = status.members.iter().filter(|member| !silent.contains(&member.session));
    living.filter_map(|member| member.share.known).max().map(|known| known as usize)
}

/// Tasks without a holder, and those whose holders look dead. Closed tasks are not among them.
fn orphans(status: &SpreadStatus, silent: &BTreeSet<SessionId>) -> Vec<Key> {
    let is_orphan = |state: &TaskState| match state {
        TaskState::Moving { from: None, .. } | TaskState::WaitingForRoom { .. } => true,
        _ => state.holder().is_some_and(|(_, session)| silent.contains(&session)),
    };
    status.tasks.iter().filter(|(_, state)| is_orphan(state)).map(|(key, _)| key.clone()).collect()
}
