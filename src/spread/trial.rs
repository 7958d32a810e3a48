//! Tasks whose holders died with them, one after the other: they run here one by one, each after the one before has
//! run for a while, and the session's record says which.

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
        picture::PeerSeen,
        trial::{self, Deaths, Suspicion},
    },
    model::{Key, Past, SCHEDULES, SessionId, SpreadName, StoreTime, Trial},
    store::{LockSeen, SessionSeen},
    sync::locked,
};

/// The suspects of one spread that this instance has, and what is known of those who died.
#[derive(Debug)]
pub(super) struct Bench {
    spread: SpreadName,
    docket: Mutex<Docket>,
    /// Something has changed that those who wait for their trial may wait for.
    moved: Notify,
}

#[derive(Debug, Default)]
struct Docket {
    deaths: Deaths,
    /// Tasks of the dead, and of those that were quarantined for what they did: who takes one reads its record.
    noted: BTreeSet<Key>,
    /// Whether they wait, or run on trial.
    suspects: BTreeMap<Key, (Suspicion, Stage)>,
    now: Option<TrialSession>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waits,
    Runs,
}

/// A trial that goes on.
#[derive(Debug)]
struct TrialSession {
    trial: Trial,
    length: Duration,
    /// The store has it for certain.
    written: bool,
}

/// A task has a place on the bench, until this is dropped.
#[derive(Debug)]
pub(super) struct TrialSeat {
    bench: Arc<Bench>,
    engine: Arc<Engine>,
    key: Key,
    /// Hears of the end.
    report: mpsc::UnboundedSender<Report>,
}

impl Bench {
    pub(super) fn new(spread: SpreadName) -> Self {
        Self { spread, docket: Mutex::default(), moved: Notify::new() }
    }

    fn docket(&self) -> MutexGuard<'_, Docket> {
        locked(&self.docket)
    }

    /// A session was seen: its death may say something of its tasks.
    pub(super) fn saw(&self, sighting: &SessionSeen) {
        if let SessionSeen::Dead(record) = sighting {
            self.docket().deaths.learn(record, &self.spread);
        }
    }

    pub(super) fn forget(&self, now: Option<StoreTime>) {
        if let Some(now) = now {
            self.docket().deaths.forget(now);
        }
    }

    /// Whoever takes these next takes them from the dead.
    pub(super) fn note<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        // A schedule has its attempts.
        if self.spread.as_str() != SCHEDULES {
            self.docket().noted.extend(keys.cloned());
        }
    }

    /// A task's record was read.
    pub(super) fn read(&self, key: &Key, seen: &LockSeen) {
        if let LockSeen::Found(record) = seen
            && record.past.first().is_some_and(trial::is_of_a_killer)
        {
            self.note([key].into_iter());
        }
    }

    /// Whether that was said of a task, which was granted here.
    pub(super) fn was_noted(&self, key: &Key) -> bool {
        self.docket().noted.remove(key)
    }

    /// What speaks against a task, after those holders.
    pub(super) fn suspicion(&self, key: &Key, past: &[Past]) -> Suspicion {
        trial::suspicion(key, past, &self.docket().deaths)
    }

    /// Whether it waits for its trial, or is on trial: it is not moved meanwhile, for that would begin it anew.
    pub(super) fn holds(&self, key: &Key) -> bool {
        self.docket().suspects.contains_key(key)
    }

    /// All of those.
    pub(super) fn suspects(&self) -> BTreeSet<Key> {
        self.docket().suspects.keys().cloned().collect()
    }

    /// What is to be said of a task, if it has a place here.
    pub(super) fn tells(&self, key: &Key) -> Option<String> {
        let docket = self.docket();
        let (suspicion, stage) = docket.suspects.get(key)?;
        let says = match stage {
            Stage::Waits => "it runs when those before it were tried",
            Stage::Runs => "it is tried alone",
        };
        Some(format!("its last {} holders died with it: {says}", suspicion.holders()))
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
    /// Until it is this one's turn, and the store knows of it; for how long it is tried then.
    pub(super) async fn turn(&self) -> Duration {
        loop {
            let mut moved = std::pin::pin!(self.bench.moved.notified());
            moved.as_mut().enable();
            if let Some(length) = self.is_called() {
                return length;
            }
            moved.await;
        }
    }

    fn is_called(&self) -> Option<Duration> {
        let mut docket = self.bench.docket();
        if docket.now.is_none() {
            let waiting = docket.waiting();
            let trial = trial::next(&waiting)?;
            let most = waiting.iter().filter(|(key, _)| trial.is_of(key)).map(|(_, found)| found);
            let worst = most.copied().max_by_key(|found| found.holders()).unwrap_or_default();
            let length = trial::length(worst, waiting.len(), self.engine.times.ttl);
            docket.now = Some(TrialSession { trial, length, written: false });
            self.write(Some(trial));
        }
        let now = docket.now.as_ref().filter(|now| now.written && now.trial.is_of(&self.key))?;
        let length = now.length;
        if let Some((_, stage)) = docket.suspects.get_mut(&self.key) {
            *stage = Stage::Runs;
        }
        Some(length)
    }

    /// Says in the session's record whom it has on trial. If this process dies before that was written, nobody is
    /// blamed.
    fn write(&self, trial: Option<Trial>) {
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

    /// It runs, and keeps its seat for so long.
    pub(super) fn try_for(self, length: Duration, lease: Lease) {
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
            // Of the next one the record will say so itself.
            if docket.suspects.is_empty() {
                self.write(None);
            }
        }
        drop(docket);
        self.bench.moved.notify_waiters();
        // An error says that the spread has stopped.
        let _ = self.report.send(Report::Tried);
    }
}

impl ActorState {
    /// What the dead say of what they had. Their tasks may be granted to a ticket that stands in line already.
    pub(super) fn learn_of_death(&self, session: SessionId, sighting: &SessionSeen) {
        self.bench.saw(sighting);
        let was_alive = matches!(
            self.view.session(session),
            Some(PeerSeen::Member(_) | PeerSeen::Bystander | PeerSeen::Missing)
        );
        if sighting.is_dead() && was_alive {
            self.bench.note(self.view.held_by(session));
        }
    }
}
