//! Status of a spread, for people.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use serde::Serialize;

use super::{
    HeldBack, Phase, TaskState,
    shared::{ActorState, Shared},
};
use crate::{
    clock::Moment,
    elect::Engine,
    logic::{
        plan::PLAN_VERSION,
        view::{Peer, PeerSeen, TaskPlace},
    },
    model::{Holder, Key, SessionId, SpreadName},
    store::{Drained, Share},
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
    /// Order of an operator to drain it.
    pub drained: Option<Drained>,
    /// Number of tasks it has.
    pub tasks: usize,
    /// Tasks that it gave up run well elsewhere: it gets no more of them while others have room, but for probes.
    pub failing: bool,
    /// Number of tasks the plan wants it to have; `None` if it is not known to know any of these tasks, or is paused.
    pub target: Option<usize>,
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
    /// Set while this instance takes no part, as earlier processes of its name died young.
    pub held_back: Option<HeldBack>,
    /// Members that gave a task up.
    #[serde(skip)]
    pub(crate) gave_up: BTreeMap<Key, Vec<SessionId>>,
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
            TaskState::WaitingForRoom { since } => Some((key, *since)),
            _ => None,
        })
    }

    /// Returns the tasks that rest after too many failures.
    pub fn resting(&self) -> impl Iterator<Item = &Key> {
        let is_listed = |state: &TaskState| matches!(state, TaskState::Resting { .. });
        self.tasks.iter().filter(move |(_, state)| is_listed(state)).map(|(key, _)| key)
    }

    /// Returns the number of tasks that an instance has.
    #[must_use]
    pub fn held(&self) -> usize {
        self.tasks.values().filter(|state| state.holder().is_some()).count()
    }

    /// Returns whether every task that can be had is where the plan wants it. For the moment between news and the plan
    /// that takes it in it is false as well: [`until`](super::Spread::until) waits for it.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let on_target = |member: &Member| member.target.is_none_or(|target| target == member.tasks);
        // A task that is free or unknown may end up anywhere.
        let is_free =
            |state: &TaskState| matches!(state, TaskState::Moving { from: None, .. } | TaskState::Unknown);
        self.planned
            && self.members.iter().all(on_target)
            && !self.tasks.values().any(is_free)
            && !self.here.values().any(|phase| *phase == Phase::Moving)
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
        let held_back = state.startup_hold.held_back(now);
        let own_member = own.iter().filter(|_| held_back.is_none()).map(|me| {
            let peer = Peer {
                holder: me.holder.clone(),
                host: engine.host.clone(),
                pid: std::process::id(),
                started: me.started,
                plan_version: PLAN_VERSION,
                share: me.share.clone(),
                drained: engine.drained.borrow().clone(),
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
            let task = task(&state, key, place, &name, now);
            if let Some((_, session)) = task.holder() {
                *counts.entry(session).or_default() += 1;
            }
            tasks.insert(key.clone(), task);
        }
        let mut members: Vec<_> = all
            .into_iter()
            .map(|(session, Peer { holder, host, pid, share, drained, .. })| Member {
                session,
                holder,
                host,
                pid,
                share,
                drained,
                tasks: counts.get(&session).copied().unwrap_or(0),
                failing: state.resolved.failing.contains(&session),
                target: state.resolved.targets.get(&session).copied(),
            })
            .collect();
        members.sort_by(|a, b| (&a.holder, a.session).cmp(&(&b.holder, b.session)));
        let here = state.has().map(|(key, worker)| (key.clone(), worker.phase())).collect();
        let planned = own.is_some() && state.is_planned();
        let gave_up = state.resolved.gave_up.clone();
        Self { spread: shared.spread.clone(), members, tasks, here, planned, held_back, gave_up }
    }
}

/// State of a task, as this instance knows it.
fn task(
    state: &ActorState,
    key: &Key,
    place: &TaskPlace,
    name: &impl Fn(SessionId) -> Option<Holder>,
    now: Moment,
) -> TaskState {
    let unowned = || {
        if let Some(since) = state.waiting.get(key) {
            return TaskState::WaitingForRoom { since: now.since(*since) };
        }
        let to = state.resolved.successors.get(key).copied().flatten().and_then(name);
        TaskState::Moving { from: None, to }
    };
    let last = state.view.last_failures(key);
    match *place {
        TaskPlace::Unknown => TaskState::Unknown,
        TaskPlace::Refused { .. } => TaskState::Unreadable,
        TaskPlace::Closed { until } => {
            last.map_or(TaskState::Done, |last| TaskState::resting(last, until.since(now)))
        }
        TaskPlace::Free { .. } => unowned(),
        TaskPlace::Held { session, term, since, .. } => match state.view.session(session) {
            Some(PeerSeen::Reserved { holder, until }) if now < *until => {
                TaskState::restarting(holder.clone())
            }
            Some(PeerSeen::Dead { .. } | PeerSeen::Reserved { .. }) => unowned(),
            _ => {
                let holder = name(session);
                if let Some(Phase::Failing { times, of, error }) = state.phase(key) {
                    return TaskState::Failing { holder, session, term, times, of: Some(of), error };
                }
                let times = since.zip(state.view.store_time(now));
                let last = last.zip(times).filter(|(last, (since, now))| last.lasts(*since, *now));
                TaskState::held(holder, session, term, last.map(|(last, _)| last))
            }
        },
    }
}

impl fmt::Display for SpreadStatus {
    /// A line a member, and one that counts the tasks.
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
        for word in TaskState::WORDS.iter().filter(|word| **word != "running") {
            let count = self.tasks.values().filter(|state| state.word() == *word).count();
            if count > 0 {
                write!(f, ", {count} {word}")?;
            }
        }
        Ok(())
    }
}

/// Formats a number of tasks.
pub(super) fn tasks(count: usize) -> String {
    if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") }
}
