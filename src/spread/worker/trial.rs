//! A task whose holders died with it: it is tried before it runs like any other.

use std::time::Duration;

use super::{Exit, Phase, TaskEnd, Worker};
use crate::{
    Event,
    elect::Note,
    logic::{key::Handback, quarantine::Quarantine, trial::Suspicion},
    store::LockSeen,
};

/// How long a task rests that killed its process.
const RESTS: Duration = Duration::from_secs(60 * 60);

impl Worker {
    /// Until it may run; or how it ends, if it may not.
    pub(super) async fn stands_trial(&mut self) -> Option<Exit> {
        if !self.noted {
            return None;
        }
        let (engine, lock) = (self.engine.clone(), self.lease.lock().clone());
        let seen = self.attend(async move { engine.look(lock).await }).await;
        if self.lease.is_cancelled() {
            return Some(self.told_to_go());
        }
        let suspicion = match seen {
            Ok(LockSeen::Found(record)) => self.bench.suspicion(&self.key, &record.past),
            // The next death would tell more.
            _ => Suspicion::default(),
        };
        if suspicion.is_guilty() {
            return Some(self.killed(suspicion));
        }
        if !suspicion.is_suspect() {
            return None;
        }
        self.set_phase(Phase::Suspect { deaths: suspicion.holders() });
        let seat = self.bench.seat(&self.engine, &self.lease, suspicion, self.report.clone());
        let lease = self.lease.clone();
        let length = self.attend(async {
            tokio::select! {
                biased;
                () = lease.cancelled() => None,
                length = seat.turn() => Some(length),
            }
        });
        match length.await {
            Some(length) => {
                seat.try_for(length, self.lease.clone());
                None
            }
            None => Some(self.told_to_go()),
        }
    }

    /// It is not run for a while, by anybody: whoever did died of it.
    fn killed(&self, suspicion: Suspicion) -> Exit {
        let now = self.store_now(self.engine.clock.now());
        let error = suspicion.verdict();
        let quarantine =
            Quarantine { since: suspicion.since.unwrap_or(now), tries: suspicion.holders(), error };
        let parting = Handback { note: Some(quarantine.note()), closed_for: RESTS, ..Handback::default() };
        let (lock, term) = (self.lease.lock().clone(), self.lease.term());
        let Quarantine { since, tries, error } = quarantine;
        self.engine.tallies.note(&lock, Note::Quarantined, Some(error.clone()));
        tracing::debug!(kind = %lock.kind, key = lock.key.as_str(), namespace = %lock.namespace, %term, error, %since, tries, rest = ?RESTS, "a task is quarantined");
        self.engine.events.tell(Event::Quarantined { lock, term, since, tries, error, rest: RESTS });
        (TaskEnd::Quarantined, parting)
    }
}
