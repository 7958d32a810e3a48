//! Outcomes of runs that the store has not taken yet: the store was away as they ended, and the lease is over. This
//! instance writes them in the background, and before it reads the schedule's ledger again: a run that it has seen end
//! is not begun again here. A write names its term and attempt: once somebody else has settled the run it changes
//! nothing.

use std::{
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use super::retry::pauses;
use crate::{
    elect::{Engine, Work},
    model::ScheduleId,
    store::FinishRun,
    sync::locked,
};

/// Time for which a closed instance goes on trying.
const TRIED: Duration = Duration::from_secs(5 * 60);

/// Outcomes that one instance is still to write.
#[derive(Debug, Default)]
pub(in crate::schedule) struct Unwritten(Mutex<Vec<FinishRun>>);

impl Unwritten {
    fn all(&self) -> MutexGuard<'_, Vec<FinishRun>> {
        locked(&self.0)
    }

    /// Returns the outcomes of a schedule.
    pub(super) fn of(&self, schedule: &ScheduleId) -> Vec<FinishRun> {
        self.all().iter().filter(|finish| finish.run.schedule == *schedule).cloned().collect()
    }

    pub(super) fn written(&self, finish: &FinishRun) {
        self.all().retain(|other| other != finish);
    }
}

/// Outcome of one run, until it is written. Dropped before that, it is written later.
#[derive(Debug)]
pub(super) struct RunOutcome {
    engine: Arc<Engine>,
    unwritten: Arc<Unwritten>,
    finish: Option<FinishRun>,
}

impl RunOutcome {
    pub(super) fn new(engine: &Arc<Engine>, unwritten: &Arc<Unwritten>, finish: FinishRun) -> Self {
        Self { engine: engine.clone(), unwritten: unwritten.clone(), finish: Some(finish) }
    }

    /// Notes that the store has answered.
    pub(super) fn set_written(mut self) {
        self.finish = None;
    }
}

impl Drop for RunOutcome {
    fn drop(&mut self) {
        let Some(finish) = self.finish.take() else { return };
        self.unwritten.all().push(finish.clone());
        let (engine, unwritten) = (Arc::downgrade(&self.engine), self.unwritten.clone());
        self.engine.runtime.spawn(async move { write_late(&engine, &unwritten, &finish).await });
    }
}

async fn write_late(engine: &Weak<Engine>, unwritten: &Unwritten, finish: &FinishRun) {
    let mut pauses = pauses();
    let mut tried_until = None;
    while let Some(engine) = engine.upgrade() {
        let now = engine.clock.now();
        if engine.closing.is_cancelled() && now >= *tried_until.get_or_insert(now + TRIED) {
            break;
        }
        let limit = engine.limit();
        let write = engine.store().finish(finish.clone(), limit);
        if engine.call(Work::Ledger, limit, write).await.is_ok() {
            break;
        }
        let pause = pauses.next(engine.entropy.roll());
        drop(engine);
        tokio::time::sleep(pause).await;
    }
    unwritten.written(finish);
}
