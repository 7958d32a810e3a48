//! Trials of tasks whose holders died with them, one after the other. They run here one by one, each after the one
//! before has run for a while, and the session's record says which.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::sync::{Notify, mpsc};

use super::{shared::ActorState, worker::Report};
use crate::{
    elect::{Engine, Lease, Note},
    logic::{
        trial::{self, Deaths, Suspicion},
        view::PeerSeen,
    },
    model::{Key, Past, SCHEDULES, SessionId, SpreadName, StoreTime, Trial},
    store::{LockSeen, SessionSeen},
    sync::locked,
};

/// Suspects of one spread that this instance holds, and what is known of the dead.
#[derive(Debug)]
pub(super) struct Bench {
    spread: SpreadName,
    docket: Mutex<Docket>,
    /// Notifies those who wait for their trial.
    moved: Notify,
}

#[derive(Debug, Default)]
struct Docket {
    deaths: Deaths,
    /// Tasks of the dead, and tasks that were quarantined for deaths: who takes one reads its record.
    noted: BTreeSet<Key>,
    /// Suspects that wait, or run on trial.
    suspects: BTreeMap<Key, (Suspicion, Stage)>,
    now: Option<TrialSession>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waits,
    Runs,
}

/// Trial that goes on.
#[derive(Debug)]
struct TrialSession {
    trial: Trial,
    length: Duration,
    /// The store has it for certain.
    written: bool,
}

/// Place of a task on the bench, until this is dropped.
#[derive(Debug)]
pub(super) struct TrialSeat {
    bench: Arc<Bench>,
    engine: Arc<Engine>,
    key: Key,
    /// Receives the end.
    report: mpsc::UnboundedSender<Report>,
}

impl Bench {
    pub(super) fn new(spread: SpreadName) -> Self {
        Self { spread, docket: Mutex::default(), moved: Notify::new() }
    }

    fn docket(&self) -> MutexGuard<'_, Docket> {
        locked(&self.docket)
    }

    /// Learns from a session: its death may say something of its tasks.
    pub(super) fn learn(&self, sighting: &SessionSeen) {
        if let SessionSeen::Dead(record) = sighting {
            self.docket().deaths.learn(record, &self.spread);
        }
    }

    pub(super) fn forget(&self, now: Option<StoreTime>) {
        if let Some(now) = now {
            self.docket().deaths.forget(now);
        }
    }

    /// Notes that whoever takes these next takes them from the dead.
    pub(super) fn note<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        // Of a schedule the ledger counts the attempts.
        if self.spread.as_str() != SCHEDULES {
            self.docket().noted.extend(keys.cloned());
        }
    }

    /// Learns from a task's record.
    pub(super) fn learn_record(&self, key: &Key, seen: &LockSeen) {
        if let LockSeen::Found(record) = seen
            && record.past.first().is_some_and(trial::is_of_a_killer)
        {
            self.note([key].into_iter());
        }
    }

    /// Takes the note of a task that was granted here. Returns whether there was one.
    pub(super) fn take_note(&self, key: &Key) -> bool {
        self.docket().noted.remove(key)
    }

    /// Weighs what speaks against a task, after those holders.
    pub(super) fn suspicion(&self, key: &Key, past: &[Past]) -> Suspicion {
        trial::suspicion(key, past, &self.docket().deaths)
    }

    /// Returns whether a task waits for its trial, or is on trial. Moved meanwhile, it would be tried again.
    pub(super) fn holds(&self, key: &Key) -> bool {
        self.docket().suspects.contains_key(key)
    }

    /// Returns all tasks that wait for their trial, or are on trial.
    pub(super) fn suspects(&self) -> BTreeSet<Key> {
        self.docket().suspects.keys().cloned().collect()
    }

    /// Explains why a task waits for its trial, or is on trial.
    pub(super) fn explain(&self, key: &Key) -> Option<String> {
        let docket = self.docket();
        let (suspicion, stage) = docket.suspects.get(key)?;
        let says = match stage {
            Stage::Waits => "it runs once those before it have been tried",
            Stage::Runs => "it runs alone now",
        };
        Some(format!("its last {} holders died while running it: {says}", suspicion.holders()))
    }

    pub(super) fn seat(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        lease: &Lease,
        suspicion: Suspicion,
        report: mpsc::UnboundedSender<Report>,
    ) -> TrialSeat {
        let key = lease.key().clone();
        engine.tallies.note(lease.lock(), Note::Suspected, None);
        self.docket().suspects.insert(key.clone(), (suspicion, Stage::Waits));
        TrialSeat { bench: self.clone(), engine: engine.clone(), key, report }
    }
}

impl Docket {
    fn waiting(&self) -> BTreeMap<Key, Suspicion> {
        let waiting = self.suspects.iter().filter(|(_, (_, stage))| *stage == Stage::Waits);
        waiting.map(|(key, (suspicion, _))| (key.clone(), *suspicion)).collect()
    }

    fn is_over(&self) -> bool {
        self.now.as_ref().is_some_and(|now| !self.suspects.keys().any(|key| now.trial.is_of(key)))
    }
}

impl TrialSeat {
    /// Waits until this task is called, and the store knows of it. Returns the length of its trial.
    pub(super) async fn called(&self) -> Duration {
        loop {
            let mut moved = std::pin::pin!(self.bench.moved.notified());
            moved.as_mut().enable();
            if let Some(length) = self.call_up() {
                return length;
            }
            moved.await;
        }
    }

    /// Calls up the next trial, if none goes on. Returns the length of this task's, if it may begin.
    fn call_up(&self) -> Option<Duration> {
        let mut docket = self.bench.docket();
        if docket.now.is_none() {
            let waiting = docket.waiting();
            let trial = trial::next(&waiting)?;
            let most = waiting.iter().filter(|(key, _)| trial.is_of(key)).map(|(_, found)| found);
            let worst = most.copied().max_by_key(|found| found.holders()).unwrap_or_default();
            let length = trial::length(worst, waiting.len(), self.engine.times.ttl);
            docket.now = Some(TrialSession { trial, length, written: false });
            self.publish(Some(trial));
        }
        let now = docket.now.as_ref().filter(|now| now.written && now.trial.is_of(&self.key))?;
        let length = now.length;
        if let Some((_, stage)) = docket.suspects.get_mut(&self.key) {
            *stage = Stage::Runs;
        }
        Some(length)
    }

    /// Writes into the session's record which tasks are on trial. If this process dies before that is written, none
    /// is blamed.
    fn publish(&self, trial: Option<Trial>) {
        let Some(version) = self.engine.spreads.set_trial(&self.bench.spread, trial) else { return };
        self.engine.hurry();
        if trial.is_none() {
            return;
        }
        let (bench, engine) = (self.bench.clone(), self.engine.clone());
        self.engine.runtime.spawn(async move {
            tokio::select! {
                biased;
                () = engine.closing.cancelled() => return,
                () = engine.spreads.published(version) => {}
            }
            if let Some(now) = bench.docket().now.as_mut().filter(|now| Some(now.trial) == trial) {
                now.written = true;
            }
            bench.moved.notify_waiters();
        });
    }

    /// Keeps the seat for so long, while the task runs.
    pub(super) fn hold_for(self, length: Duration, lease: Lease) {
        let runtime = self.engine.runtime.clone();
        runtime.spawn(async move {
            tokio::select! {
                biased;
                () = lease.cancelled() => {}
                () = tokio::time::sleep(length) => {}
            }
            drop(self);
        });
    }
}

impl Drop for TrialSeat {
    fn drop(&mut self) {
        let mut docket = self.bench.docket();
        docket.suspects.remove(&self.key);
        if docket.is_over() {
            docket.now = None;
            // The next trial will be published in its place.
            if docket.suspects.is_empty() {
                self.publish(None);
            }
        }
        drop(docket);
        self.bench.moved.notify_waiters();
        // An error says that the spread has stopped.
        let _ = self.report.send(Report::Tried);
    }
}

impl ActorState {
    /// Learns from a death what was held then. Those tasks may be granted to a ticket that is in line already.
    pub(super) fn learn_of_death(&self, session: SessionId, sighting: &SessionSeen) {
        self.bench.learn(sighting);
        let was_alive = matches!(
            self.view.session(session),
            Some(PeerSeen::Member(_) | PeerSeen::Bystander | PeerSeen::Missing)
        );
        if sighting.is_dead() && was_alive {
            self.bench.note(self.view.held_by(session));
        }
    }
}
