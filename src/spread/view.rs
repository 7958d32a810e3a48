//! Status of a spread, for people.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use serde::Serialize;

use super::{HeldBack, Phase, shared::Shared};
use crate::{
    clock::Moment,
    elect::Engine,
    logic::{
        digest,
        failing::{ITS_LAST, Resting},
        plan::PLAN_VERSION,
        view::{Peer, PeerSeen, SpreadView, TaskPlace},
    },
    model::{Holder, Key, LockRecord, SessionId, Share, SpreadName, StoreTime, Term},
    store::LockSeen,
};

/// Instance that takes part in a spread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Member {
    /// Session of the instance.
    pub session: SessionId,
    /// Name that people know it by.
    pub holder: Holder,
    /// Machine that it runs on.
    pub host: String,
    /// Process on that machine.
    pub pid: u32,
    /// Share that it brings.
    pub share: Share,
    /// Number of tasks it has.
    pub tasks: usize,
    /// Tasks that it gave up run well elsewhere: it gets no more of them while others have room, but for probes.
    pub failing: bool,
    /// Number of tasks the plan wants it to have; `None` if it is not known to know any of these tasks, or is paused.
    pub target: Option<usize>,
}

/// State of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TaskState {
    /// Not known yet.
    Unknown,
    /// Held by an instance.
    Held {
        /// Name of its holder, if that is known.
        holder: Option<Holder>,
        /// Session of its holder.
        session: SessionId,
        /// Term under which it is held.
        term: Term,
    },
    /// Reserved: its holder is closed for a restart, and it waits for the next instance of that name.
    Reserved {
        /// Name of the holder.
        holder: Holder,
    },
    /// Free, and to be taken.
    Free {
        /// Holder that is to take it, if that is known.
        next: Option<Holder>,
    },
    /// Waiting, as no instance has room for it.
    Waiting {
        /// Time for which it has waited.
        #[serde(rename = "for_ms", serialize_with = "crate::model::serial::ms")]
        since: Duration,
    },
    /// Resting after too many failures in a row, until its rest is over or it is
    /// [put back](super::Spread::put_back).
    Quarantined {
        /// Time of the first of the failures in a row, by the store's clock.
        since: StoreTime,
        /// Number of instances that gave it up since then, one after the other.
        tries: u32,
        /// Last error.
        error: String,
        /// Rest that is left.
        #[serde(rename = "left_ms", serialize_with = "crate::model::serial::ms")]
        until: Duration,
    },
    /// Done, or kept closed after its last holder.
    Closed,
    /// Not to be had, as its record cannot be used.
    Refused,
}

/// Spread as one instance knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SpreadStatus {
    /// Name of the spread.
    pub spread: SpreadName,
    /// Instances that take part, by their names.
    pub members: Vec<Member>,
    /// All tasks of the set this instance knows.
    pub tasks: BTreeMap<Key, TaskState>,
    /// Tasks that run here, and their phases.
    pub here: BTreeMap<Key, Phase>,
    /// True if the plan covers all that is known: nothing has changed since, and everything was read.
    pub planned: bool,
    /// Set while this instance takes no part, as those before it that had its name died young.
    pub held_back: Option<HeldBack>,
}

impl SpreadStatus {
    /// Returns the tasks that run here.
    #[must_use]
    pub fn share(&self) -> BTreeSet<&Key> {
        self.here.keys().collect()
    }

    /// Returns the tasks that no instance has room for, and for how long.
    pub fn waiting(&self) -> impl Iterator<Item = (&Key, Duration)> {
        self.tasks.iter().filter_map(|(key, state)| match state {
            TaskState::Waiting { since } => Some((key, *since)),
            _ => None,
        })
    }

    /// Returns the tasks that rest after too many failures.
    pub fn quarantined(&self) -> impl Iterator<Item = &Key> {
        let is_so = |state: &TaskState| matches!(state, TaskState::Quarantined { .. });
        self.tasks.iter().filter(move |(_, state)| is_so(state)).map(|(key, _)| key)
    }

    /// Returns the number of tasks that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.tasks.values().filter(|state| matches!(state, TaskState::Held { .. })).count()
    }

    /// Returns whether every task that can be had is where the plan wants it.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let on_target = |member: &Member| member.target.is_none_or(|target| target == member.tasks);
        // A task that is free or unknown may end up anywhere.
        let is_free = |state: &TaskState| matches!(state, TaskState::Free { .. } | TaskState::Unknown);
        self.planned
            && self.members.iter().all(on_target)
            && !self.tasks.values().any(is_free)
            && !self.here.values().any(|phase| *phase == Phase::Leaving)
    }

    /// Returns the name of a member: its holder's, with the place where it runs if others have the same.
    pub(super) fn name_of(&self, member: &Member) -> String {
        let Member { holder, host, pid, session, .. } = member;
        let mut same = self.members.iter().filter(|other| other.holder == *holder);
        match same.find(|other| other.session != *session) {
            None => holder.to_string(),
            Some(other) if (&other.host, other.pid) == (host, *pid) => {
                format!("{holder} (session {session})")
            }
            Some(_) => format!("{holder} (pid {pid} on {host})"),
        }
    }

    /// Returns the name of the member with that session, if it takes part.
    pub(super) fn name_of_session(&self, session: SessionId) -> Option<String> {
        self.members.iter().find(|member| member.session == session).map(|member| self.name_of(member))
    }

    pub(super) fn of(engine: &Engine, shared: &Shared) -> Self {
        let now = engine.clock.now();
        let state = shared.state();
        let own = engine.current().map(|session| state.me(engine, &session));
        let held_back = state.youth.held_back(now);
        let own_member = own.iter().filter(|_| held_back.is_none()).map(|me| {
            let peer = Peer {
                holder: me.holder.clone(),
                host: engine.host.clone(),
                pid: std::process::id(),
                started: me.started,
                plan_version: PLAN_VERSION,
                share: me.share.clone(),
            };
            (me.session, peer)
        });
        let others = state
            .view
            .members()
            .filter(|(session, _)| own.as_ref().is_none_or(|me| me.session != *session))
            .map(|(session, peer)| (session, peer.clone()));
        let all: BTreeMap<SessionId, Peer> = own_member.chain(others).collect();
        let mut counts: BTreeMap<SessionId, usize> = BTreeMap::new();
        let name = |session: SessionId| all.get(&session).map(|peer| peer.holder.clone());
        let mut tasks = BTreeMap::new();
        for (key, place) in state.view.tasks() {
            let next = || state.resolved.successors.get(key).copied().flatten().and_then(name);
            let unowned = || match state.waiting.get(key) {
                Some(since) => TaskState::Waiting { since: now.since(*since) },
                None => TaskState::Free { next: next() },
            };
            let task = match place {
                TaskPlace::Unknown => TaskState::Unknown,
                TaskPlace::Refused { .. } => TaskState::Refused,
                TaskPlace::Closed { .. } => match state.view.quarantine(key) {
                    Some((Resting { since, tries, error }, until)) => {
                        let (since, tries, error) = (*since, *tries, error.clone());
                        TaskState::Quarantined { since, tries, error, until: until.since(now) }
                    }
                    None => TaskState::Closed,
                },
                TaskPlace::Free { .. } => unowned(),
                TaskPlace::Held { session, term, .. } => match state.view.session(*session) {
                    Some(PeerSeen::Reserved { holder, until }) if now < *until => {
                        TaskState::Reserved { holder: holder.clone() }
                    }
                    Some(PeerSeen::Dead { .. } | PeerSeen::Reserved { .. }) => unowned(),
                    _ => {
                        *counts.entry(*session).or_default() += 1;
                        TaskState::Held { holder: name(*session), session: *session, term: *term }
                    }
                },
            };
            tasks.insert(key.clone(), task);
        }
        let mut members: Vec<_> = all
            .into_iter()
            .map(|(session, Peer { holder, host, pid, share, .. })| Member {
                session,
                holder,
                host,
                pid,
                share,
                tasks: counts.get(&session).copied().unwrap_or(0),
                failing: state.resolved.failing.contains(&session),
                target: state.resolved.targets.get(&session).copied(),
            })
            .collect();
        members.sort_by(|a, b| (&a.holder, a.session).cmp(&(&b.holder, b.session)));
        let here = state.has().map(|(key, worker)| (key.clone(), worker.phase())).collect();
        let planned = own.is_some() && state.is_planned();
        Self { spread: shared.spread.clone(), members, tasks, here, planned, held_back }
    }
}

impl fmt::Display for SpreadStatus {
    /// A line a member, and one for what nobody has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for member in &self.members {
            let share = &member.share;
            write!(f, "{}: {}", self.name_of(member), tasks(member.tasks))?;
            if share.draining {
                write!(f, ", draining")?;
            }
            if share.paused {
                write!(f, ", paused")?;
            }
            if member.failing {
                write!(f, ", failing")?;
            }
            writeln!(f)?;
        }
        write!(f, "{} of {} held", self.held(), tasks(self.tasks.len()))?;
        if let Some(held_back) = self.held_back {
            write!(f, ", {held_back}")?;
        }
        let count = |is_so: fn(&TaskState) -> bool| self.tasks.values().filter(|state| is_so(state)).count();
        for (count, are) in [
            (count(|state| matches!(state, TaskState::Waiting { .. })), "waiting for capacity"),
            (count(|state| matches!(state, TaskState::Reserved { .. })), "reserved for a restart"),
            (count(|state| matches!(state, TaskState::Quarantined { .. })), "quarantined"),
            (count(|state| matches!(state, TaskState::Closed)), "done or closed"),
            (count(|state| matches!(state, TaskState::Refused)), "unusable"),
        ] {
            if count > 0 {
                write!(f, ", {count} {are}")?;
            }
        }
        Ok(())
    }
}

/// Formats a number of tasks.
pub(super) fn tasks(count: usize) -> String {
    if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") }
}

/// Explanation of why a task is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub(crate) key: Key,
    #[serde(rename = "sentences")]
    pub(crate) says: Vec<String>,
}

impl Explanation {
    /// Returns one sentence a fact, the most important one first.
    #[must_use]
    pub fn sentences(&self) -> &[String] {
        &self.says
    }

    pub(super) fn of(engine: &Engine, shared: &Shared, key: Key, seen: &LockSeen) -> Self {
        let status = SpreadStatus::of(engine, shared);
        let now = engine.clock.now();
        let state = shared.state();
        let mut says: Vec<_> = status.held_back.iter().map(ToString::to_string).collect();
        match status.tasks.get(&key) {
            None => says.push("it is not in the task set that this instance knows".to_owned()),
            Some(TaskState::Unknown) => says.push("this instance has not read its record yet".to_owned()),
            Some(TaskState::Held { holder, session, term }) => {
                let name = status.name_of_session(*session);
                let name = name.or_else(|| holder.as_ref().map(ToString::to_string));
                let name = name.unwrap_or_else(|| session.to_string());
                says.push(format!("{name} has it, under term {term}"));
                let member = status.members.iter().find(|member| member.session == *session);
                says.extend(
                    member.map(|member| why_there(&name, member, &state.share, now, &state.view, &key)),
                );
                if let Some(to) = state.resolved.successors.get(&key).filter(|to| **to != Some(*session)) {
                    let successor = to.and_then(|to| status.name_of_session(to));
                    says.push(match successor {
                        Some(successor) => format!("it will move to {successor}"),
                        None => "it will be released, although no instance has capacity for it".to_owned(),
                    });
                }
            }
            Some(TaskState::Reserved { holder }) => {
                says.push(format!("it is reserved for {holder}, which is restarting"));
            }
            Some(TaskState::Free { next: Some(next) }) => {
                let successor = state.resolved.successors.get(&key).copied().flatten();
                let name = successor.and_then(|successor| status.name_of_session(successor));
                let next = name.unwrap_or(next.to_string());
                says.push(format!("no instance has it, {next} will take it"));
            }
            Some(TaskState::Free { next: None }) => {
                says.push("no instance has it, and none will take it yet".to_owned());
            }
            Some(TaskState::Waiting { since }) => {
                says.push(format!("no instance has had capacity for it for {since:.1?}"));
                says.extend(
                    status
                        .members
                        .iter()
                        .map(|member| why_not(&status.name_of(member), member, &state.share, &key)),
                );
            }
            Some(TaskState::Quarantined { since, tries, error, until }) => {
                says.push(failing(*since, *tries, error, *until));
            }
            Some(TaskState::Closed) => says.push("no instance may take it now".to_owned()),
            Some(TaskState::Refused) => says.push("its record cannot be used".to_owned()),
        }
        let avoided = state.view.avoided(&key, now);
        if !avoided.is_empty() {
            says.push(format!(
                "other instances are preferred to {}, where it failed or was revoked",
                avoided.join(", ")
            ));
        }
        match status.here.get(&key) {
            Some(Phase::Failed { times, error }) => {
                says.push(format!("its job failed {times} times in a row: {error}"));
            }
            Some(Phase::Resting) => says.push("its job returned and will run again after a rest".to_owned()),
            Some(Phase::Leaving) => says.push("its job is stopping".to_owned()),
            Some(Phase::Running) | None => {}
        }
        match seen {
            LockSeen::Found(record) => says.extend(recorded(record)),
            LockSeen::Absent => says.push("no instance has ever taken it".to_owned()),
            LockSeen::Refused(refusal) => says.push(refusal.to_string()),
        }
        Self { key, says }
    }
}

/// Explains that a task rests.
pub(super) fn failing(since: StoreTime, tries: u32, error: &str, until: Duration) -> String {
    if error.starts_with(ITS_LAST) {
        return format!("{error}: it will start in {until:.1?}");
    }
    let times = if tries == 1 { "once".to_owned() } else { format!("{tries} times") };
    format!(
        "it has been failing since {since}, was given up {times}, and will be retried in {until:.1?}: {error}"
    )
}

/// Explains why a member does not take a task that no instance has room for.
fn why_not(holder: &str, member: &Member, own: &Share, key: &Key) -> String {
    match &member.share {
        Share { draining: true, .. } => format!("{holder} drains"),
        Share { paused: true, .. } => format!("{holder} is paused"),
        Share { weight: 0, .. } => format!("{holder} has a weight of 0"),
        Share { reserved, .. } if !reserved.is_zero() => format!("{holder} is closing for a restart"),
        share if !digest::agree(share, own, digest::part(key)) => {
            format!("{holder} may not know it: it has another set of tasks")
        }
        Share { cap, .. } => format!("{holder} has {} and a cap of {cap}", tasks(member.tasks)),
    }
}

fn why_there(
    holder: &str,
    member: &Member,
    own: &Share,
    now: Moment,
    view: &SpreadView,
    key: &Key,
) -> String {
    let has = format!("{holder} has {}", tasks(member.tasks));
    match member.target {
        _ if member.share.paused => format!("{holder} is paused, and keeps what it has"),
        _ if !digest::agree(&member.share, own, digest::part(key)) => {
            format!("{holder} has another set of tasks, which may include this one, and keeps it")
        }
        Some(target) if member.tasks > target => match view.task(key) {
            Some(TaskPlace::Held { settles, .. }) if now < *settles => {
                format!("{has} and a target of {target}; this one has just arrived and stays for a moment")
            }
            _ => format!("{has} and a target of {target}"),
        },
        Some(target) => format!("{has} and a target of {target}"),
        None => format!("{has} and is not in a plan yet"),
    }
}

/// Explains what the record says, besides what is known here.
pub(super) fn recorded(record: &LockRecord) -> Option<String> {
    record.past.first().map(|last| {
        let note = last.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        format!("previously {} had it under term {}, {}{note}", last.holder, last.term, last.how.as_str())
    })
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.key, self.says.join("; "))
    }
}
