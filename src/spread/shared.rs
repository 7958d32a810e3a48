//! State that a spread's handle, its actor and its task source share.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{
    startup::StartupHold,
    worker::{Phase, WorkerHandle},
};
use crate::{
    clock::Moment,
    elect::{Engine, Session},
    logic::{
        failing::Longest,
        view::{OwnMember, OwnTask, PeerSeen, Resolved, SpreadView},
    },
    model::{Key, SCHEDULES, SessionId, SpreadName},
    store::{SessionSeen, Share},
    sync::locked,
};

/// A spread of this instance.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) spread: SpreadName,
    state: Mutex<ActorState>,
    /// Counts the changes.
    pub(super) changed: watch::Sender<u64>,
    wake: Notify,
    pub(super) stop: CancellationToken,
    /// Fires when the actor has ended.
    pub(super) over: CancellationToken,
}

impl Shared {
    pub(super) fn new(spread: SpreadName, share: Share) -> Self {
        Self {
            state: Mutex::new(ActorState {
                view: SpreadView::new(spread.clone()),
                drains: share.draining,
                share,
                keys: None,
                news: true,
                mine: BTreeMap::new(),
                planned: false,
                stays: BTreeMap::new(),
                resolved: Resolved::default(),
                waiting: BTreeMap::new(),
                complete: false,
                startup_hold: StartupHold::default(),
                left_behind: BTreeMap::new(),
            }),
            spread,
            changed: watch::Sender::new(0),
            wake: Notify::new(),
            stop: CancellationToken::new(),
            over: CancellationToken::new(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ActorState> {
        locked(&self.state)
    }

    /// Changes the share or the tasks, and wakes the actor.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut ActorState) -> T) -> T {
        let made = {
            let mut state = self.state();
            state.news = true;
            change(&mut state)
        };
        self.wake.notify_one();
        made
    }

    /// Waits for a [`change`](Self::change).
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Notifies the watchers of the spread.
    pub(super) fn notify(&self) {
        self.changed.send_modify(|changes| *changes += 1);
    }
}

/// Everything known and wanted of a spread.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are about different things")]
pub(super) struct ActorState {
    pub(super) view: SpreadView,
    pub(super) share: Share,
    /// The program has it drained, whatever operators say.
    pub(super) drains: bool,
    /// The set of tasks; `None` until the program has named it.
    pub(super) keys: Option<BTreeSet<Key>>,
    /// The share or the tasks have changed.
    pub(super) news: bool,
    pub(super) mine: BTreeMap<Key, TaskWork>,
    /// The last plan covers all that is known.
    pub(super) planned: bool,
    /// Tasks whose successors did not come, and until when each stays here.
    pub(super) stays: BTreeMap<Key, Moment>,
    pub(super) resolved: Resolved,
    /// Tasks for which no instance has room, and since when.
    pub(super) waiting: BTreeMap<Key, Moment>,
    /// Everything was read at least once.
    pub(super) complete: bool,
    pub(super) startup_hold: StartupHold,
    /// Tasks of the dead: each with the session, and the longest row of deaths of a task that this one left behind.
    pub(super) left_behind: BTreeMap<Key, (SessionId, Longest)>,
}

/// Part of this instance in one task.
#[derive(Debug)]
pub(super) enum TaskWork {
    /// A take is under way since then.
    Asks { since: Moment },
    /// A ticket waits in the queue. The token withdraws it.
    Waits(CancellationToken),
    /// The task is held, and a worker runs its job.
    Has(WorkerHandle),
}

impl ActorState {
    /// Returns whether the last plan covers all that is known and wanted.
    pub(super) const fn is_planned(&self) -> bool {
        self.planned && !self.news
    }

    /// Tasks that this instance holds, and the worker of each.
    pub(super) fn has(&self) -> impl Iterator<Item = (&Key, &WorkerHandle)> {
        self.mine.iter().filter_map(|(key, work)| match work {
            TaskWork::Has(worker) => Some((key, worker)),
            TaskWork::Asks { .. } | TaskWork::Waits(_) => None,
        })
    }

    /// Returns the phase of a task that this instance holds.
    pub(super) fn phase(&self, key: &Key) -> Option<Phase> {
        match self.mine.get(key)? {
            TaskWork::Has(worker) => Some(worker.phase()),
            TaskWork::Asks { .. } | TaskWork::Waits(_) => None,
        }
    }

    /// Learns from a session. Tasks that a dead one had may be granted to a ticket that is in the queue already.
    pub(super) fn learn_of(&mut self, session: SessionId, sighting: &SessionSeen) {
        if let SessionSeen::Alive(record) | SessionSeen::Dead(record) = sighting {
            self.view.deaths.learn(record);
        }
        let was_alive = matches!(
            self.view.session(session),
            Some(PeerSeen::Member(_) | PeerSeen::Bystander | PeerSeen::Missing)
        );
        if sighting.is_dead() && was_alive {
            self.note_left_behind(session);
        }
    }

    /// Notes which tasks a dead session has left behind.
    pub(super) fn note_left_behind(&mut self, session: SessionId) {
        // Of a schedule the ledger counts the attempts.
        if self.share.spread.as_str() == SCHEDULES {
            return;
        }
        let keys: Vec<&Key> = self.view.held_by(session).collect();
        let rows: Vec<_> = keys.iter().map(|key| self.view.deaths_of(key)).collect();
        let longest = Longest::of(&rows);
        self.left_behind.extend(keys.into_iter().map(|key| (key.clone(), (session, longest))));
    }

    /// Describes this instance for the plan, under that session.
    pub(super) fn me(&self, engine: &Engine, session: &Session) -> OwnMember {
        OwnMember {
            session: session.id,
            holder: engine.config.holder().clone(),
            started: session.started(),
            share: self.share.clone(),
        }
    }

    /// Describes this instance's tasks for the plan.
    pub(super) fn mine(&self, now: Moment) -> BTreeMap<Key, OwnTask> {
        let seen = |key: &Key, work: &TaskWork| match work {
            TaskWork::Asks { .. } => OwnTask::Asks,
            TaskWork::Waits(_) => OwnTask::Waits,
            TaskWork::Has(worker) => match worker.phase() {
                Phase::Moving => OwnTask::Gives,
                _ if worker.is_awaited() => OwnTask::Keeps,
                _ if worker.is_leaving() => OwnTask::Gives,
                _ if self.stays.get(key).is_some_and(|until| now < *until) => OwnTask::Keeps,
                _ => OwnTask::Has,
            },
        };
        self.mine.iter().map(|(key, work)| (key.clone(), seen(key, work))).collect()
    }
}
