//! Trial of a task whose holders died with it, before it runs like any other.

use std::time::Duration;

use super::{Exit, Phase, Worker};
use crate::{
    logic::{quarantine::Quarantine, trial::Suspicion},
    store::LockSeen,
};

/// Rest of a task that killed its processes.
const RESTS: Duration = Duration::from_secs(60 * 60);

impl Worker {
    /// Waits until the task may run; returns the exit if it may not.
    pub(super) async fn stand_trial(&mut self) -> Option<Exit> {
        if !self.may_be_suspect {
            return None;
        }
        let (engine, lock) = (self.engine.clone(), self.lease.lock().clone());
        let seen = self.attend(async move { engine.look(lock).await }).await;
        if self.lease.is_cancelled() {
            return Some(self.exit_on_cancel());
        }
        let suspicion = match seen {
            Ok(LockSeen::Found(record)) => self.bench.suspicion(&self.key, &record.past),
            // Another death would show it.
            _ => Suspicion::default(),
        };
        if suspicion.is_guilty() {
            return Some(self.quarantine_killer(suspicion));
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
                length = seat.called() => Some(length),
            }
        });
        match length.await {
            Some(length) => {
                seat.hold_for(length, self.lease.clone());
                None
            }
            None => Some(self.exit_on_cancel()),
        }
    }

    /// Quarantines a task that killed whoever ran it.
    fn quarantine_killer(&self, suspicion: Suspicion) -> Exit {
        let now = self.store_now(self.engine.clock.now());
        let error = suspicion.verdict();
        let since = suspicion.since.unwrap_or(now);
        self.exit_to_quarantine(Quarantine { since, tries: suspicion.holders(), error }, RESTS)
    }
}
