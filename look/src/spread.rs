//! A spread, as the records of its members and of its tasks tell.

use std::collections::BTreeMap;

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
    /// Tasks without a living holder, but for tasks that were taken off the list.
    pub orphans: usize,
    /// Number of tasks in the largest list of its living members, of members that do not drain if there are any.
    pub wanted: Option<usize>,
    /// Tasks of that list that were never taken, at least so many; none unless all was read.
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
    /// Tasks without a living holder, but for tasks that were taken off the list.
    pub orphans: Vec<Key>,
    /// Number of tasks in the largest list of its living members, of members that do not drain if there are any.
    pub wanted: Option<usize>,
    /// Tasks of that list that were never taken, at least so many; none unless all was read.
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

/// A spread, its records, and the tasks of it that run nowhere: one judgement for all that show or judge it.
#[derive(Debug)]
pub(crate) struct Judged<'a> {
    pub(crate) status: SpreadStatus,
    records: &'a [SessionRecord],
    pub(crate) sessions: BTreeMap<SessionId, &'a SessionRecord>,
    pub(crate) locks: &'a [LockRecord],
    pub(crate) now: StoreTime,
    /// All tasks and sessions are among the records, so a session that is not is dead.
    is_whole: bool,
    pub(crate) wanted: Option<usize>,
    /// Time since which the largest list is as it is.
    pub(crate) listed: Option<StoreTime>,
    /// Tasks without a living holder, the first that lost one first.
    pub(crate) orphans: Vec<&'a LockRecord>,
    pub(crate) never_ran: usize,
}

impl<'a> Judged<'a> {
    pub(crate) fn of(
        name: SpreadName,
        records: &'a [SessionRecord],
        locks: &'a [LockRecord],
        is_whole: bool,
        now: StoreTime,
    ) -> Self {
        let status = SpreadStatus::of_records(name, records, locks, now);
        let sessions = records.iter().map(|session| (session.id, session)).collect();
        let (wanted, listed, orphans, tasks) = (None, None, Vec::new(), status.tasks.len());
        let mut judged =
            Self { status, records, sessions, locks, now, is_whole, wanted, listed, orphans, never_ran: 0 };
        let list = judged.living().max_by_key(|one| (!one.share.draining, one.share.known));
        let (known, digest) = list.map(|one| (one.share.known, one.share.digest)).unwrap_or_default();
        let alike = judged.living().filter(|one| one.share.digest == digest);
        judged.listed = alike.filter_map(|one| one.share.known_since).min();
        judged.wanted = known.map(|known| known as usize);
        let wanted = judged.wanted.unwrap_or(tasks);
        judged.never_ran = if is_whole { wanted.saturating_sub(tasks) } else { 0 };
        let is_idle = |one: &&LockRecord| judged.is_done(one) || judged.is_orphan(one);
        let mut idle: Vec<_> = locks.iter().filter(is_idle).collect();
        idle.sort_by_key(|one| judged.left(one));
        // The oldest are the ones that were taken off the list: records do not tell them apart.
        let mut listed = idle.split_off(tasks.saturating_sub(wanted).min(idle.len()));
        listed.retain(|one| !judged.is_done(one));
        judged.orphans = listed;
        judged
    }

    /// Members of which something is to be expected.
    pub(crate) fn living(&self) -> impl Iterator<Item = &Member> {
        self.status.members.iter().filter(|member| !self.looks_dead(member.session))
    }

    pub(crate) fn looks_dead(&self, session: SessionId) -> bool {
        self.sessions.get(&session).map_or(self.is_whole, |record| record.looks_dead(self.now))
    }

    /// Closed tasks are no orphans.
    fn is_orphan(&self, record: &LockRecord) -> bool {
        match self.status.tasks.get(&record.id.key) {
            Some(TaskState::Moving { from: None, .. } | TaskState::WaitingForRoom { .. }) => true,
            state => state.and_then(TaskState::holder).is_some_and(|(_, session)| self.looks_dead(session)),
        }
    }

    fn is_done(&self, record: &LockRecord) -> bool {
        matches!(self.status.tasks.get(&record.id.key), Some(TaskState::Done))
    }

    /// Time at which a task lost its holder, or its rest ended, if that is on record.
    pub(crate) fn left(&self, record: &LockRecord) -> Option<StoreTime> {
        let Some(held) = &record.holding else {
            let past = record.past.first()?;
            // Done, it is closed for ever.
            let rest = record.closed.filter(|_| !self.is_done(record));
            return Some(rest.map_or(past.to, |rest| rest.until.max(past.to)));
        };
        let Some(session) = self.sessions.get(&held.by.session) else { return Some(held.acquired_at) };
        Some(session.death.as_ref().map_or(session.beat_at, |death| death.at))
    }

    /// The spread with the tasks `shown`, since most of the work is to say why each is where it is.
    pub(crate) fn view(&self, shown: &[LockRecord]) -> SpreadView {
        let member = |member: &Member| {
            let looks_dead = self.looks_dead(member.session);
            let life = if looks_dead { Liveness::Silent } else { Liveness::Alive };
            SpreadMember { looks_dead, life, member: member.clone() }
        };
        let mut orphans: Vec<_> = self.orphans.iter().map(|record| record.id.key.clone()).collect();
        orphans.sort_unstable();
        SpreadView {
            spread: self.status.spread.clone(),
            members: self.status.members.iter().map(member).collect(),
            tasks: shown.iter().filter_map(|record| self.task(record)).collect(),
            orphans,
            wanted: self.wanted,
            never_ran: self.never_ran,
        }
    }

    fn task(&self, record: &LockRecord) -> Option<TaskView> {
        let key = record.id.key.clone();
        let state = self.status.tasks.get(&key)?.clone();
        let seen = LockSeen::Found(record.clone());
        let why = Explanation::of_records(&self.status, self.records, key.clone(), &seen, self.now);
        Some(TaskView {
            looks_dead: record.holding.as_ref().is_some_and(|held| self.looks_dead(held.by.session)),
            since: record.holding.as_ref().map(|held| held.acquired_at),
            last: record.past.first().cloned(),
            why: why.sentences().to_vec(),
            key,
            state,
        })
    }
}

impl SpreadView {
    /// A spread as these records tell: the locks of its tasks, and the sessions of the namespace, read after the locks.
    /// `is_whole` if all of them could be read.
    #[must_use]
    pub fn of(
        name: SpreadName,
        sessions: &[SessionRecord],
        locks: &[LockRecord],
        is_whole: bool,
        now: StoreTime,
    ) -> Self {
        Judged::of(name, sessions, locks, is_whole, now).view(locks)
    }
}

impl SpreadSummary {
    pub(crate) fn of(spread: &Judged<'_>) -> Self {
        let members = &spread.status.members;
        let count = |is: &dyn Fn(&Member) -> bool| members.iter().filter(|member| is(member)).count();
        Self {
            spread: spread.status.spread.clone(),
            members: members.len(),
            silent: count(&|member| spread.looks_dead(member.session)),
            draining: count(&|member| member.share.draining),
            failing: count(&|member| member.failing),
            tasks: spread.status.tasks.len(),
            held: spread.status.held(),
            resting: spread.status.resting().count(),
            orphans: spread.orphans.len(),
            wanted: spread.wanted,
            never_ran: spread.never_ran,
        }
    }

    /// All spreads that these records name: those of the locks, and those that have members. The sessions were read
    /// after the locks; `is_whole` if all could be read.
    #[must_use]
    pub fn all(
        sessions: &[SessionRecord],
        locks: impl IntoIterator<Item = LockRecord>,
        is_whole: bool,
        now: StoreTime,
    ) -> Vec<Self> {
        let of = |(name, locks): (_, Vec<_>)| Self::of(&Judged::of(name, sessions, &locks, is_whole, now));
        by_name(sessions, locks).into_iter().map(of).collect()
    }
}

/// Returns the spreads that these records name, and the locks of each.
pub(crate) fn by_name(
    sessions: &[SessionRecord],
    locks: impl IntoIterator<Item = LockRecord>,
) -> BTreeMap<SpreadName, Vec<LockRecord>> {
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
    named
}
