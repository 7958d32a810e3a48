//! Outcomes of runs that the store has not taken yet: the store was away as they ended, and the lease is over. This
//! instance writes them in the background, and before it reads the schedule's ledger again: a run that it has seen end
//! is not begun again here. A write names its term and attempt: once another instance has settled the run it
//! changes nothing. A failure for good is told once its record is written, as any other.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use super::retry::pauses;
use crate::{
    elect::{Engine, Work},
    model::{Outcome, RunRecord, ScheduleId},
    schedule::{
        Failure, Tick,
        failure::{FailureCall, FailureCallbacks, OnFailure},
    },
    store::{ClaimAnswer, FinishRun, StoreExt},
    sync::locked,
};

/// Time for which a closed instance goes on trying.
const TRIED: Duration = Duration::from_secs(5 * 60);

/// An outcome, and the callback of the program if that is a failure for good.
#[derive(Clone)]
pub(super) struct LateOutcome {
    pub(super) finish: FinishRun,
    pub(super) on_failure: Option<OnFailure>,
}

/// Outcomes that one instance is still to write.
#[derive(Default)]
pub(in crate::schedule) struct Unwritten(Mutex<Vec<LateOutcome>>);

impl fmt::Debug for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().iter().map(|late| &late.finish)).finish()
    }
}

impl Unwritten {
    fn all(&self) -> MutexGuard<'_, Vec<LateOutcome>> {
        locked(&self.0)
    }

    /// Returns the outcomes of a schedule.
    pub(super) fn of(&self, schedule: &ScheduleId) -> Vec<LateOutcome> {
        self.all().iter().filter(|late| late.finish.run.schedule == *schedule).cloned().collect()
    }

    fn forget(&self, finish: &FinishRun) -> bool {
        let mut all = self.all();
        let place = all.iter().position(|late| late.finish == *finish);
        place.map(|place| all.swap_remove(place)).is_some()
    }

    /// Takes in the store's answer. Returns the call of `on_failure` that is due, for the first answer alone.
    pub(super) fn answered(&self, late: &LateOutcome, answer: &ClaimAnswer) -> Option<FailureCall> {
        let LateOutcome { finish, on_failure } = late;
        if !self.forget(finish) {
            return None;
        }
        let (ClaimAnswer::Yours(run), Some(on_failure)) = (answer, on_failure) else { return None };
        let is_failure = finish.last && finish.outcome != Outcome::Succeeded && is_recorded(finish, run);
        let error = finish.error.as_ref().map(|error| error.as_str().to_owned());
        let failure = Failure { outcome: finish.outcome, error, attempts: run.attempt };
        is_failure.then(|| (on_failure.clone(), Tick::of(run), failure))
    }
}

/// Returns whether a run ended as that says, not as another owner has settled it.
pub(super) fn is_recorded(finish: &FinishRun, run: &RunRecord) -> bool {
    let known = run.finish.as_ref();
    known.is_some_and(|known| (known.outcome, &known.error) == (finish.outcome, &finish.error))
}

/// Outcome of one run, until it is written. Dropped before that, it is written later.
pub(super) struct RunOutcome {
    engine: Arc<Engine>,
    unwritten: Arc<Unwritten>,
    late: Option<LateOutcome>,
}

impl RunOutcome {
    pub(super) fn new(engine: &Arc<Engine>, unwritten: &Arc<Unwritten>, late: LateOutcome) -> Self {
        Self { engine: engine.clone(), unwritten: unwritten.clone(), late: Some(late) }
    }

    /// Notes that the store has answered.
    pub(super) fn set_written(mut self) {
        self.late = None;
    }
}

impl Drop for RunOutcome {
    fn drop(&mut self) {
        let Some(late) = self.late.take() else { return };
        self.unwritten.all().push(late.clone());
        let (engine, unwritten) = (Arc::downgrade(&self.engine), self.unwritten.clone());
        self.engine.runtime.spawn(async move { write_late(&engine, &unwritten, &late).await });
    }
}

async fn write_late(engine: &Weak<Engine>, unwritten: &Unwritten, late: &LateOutcome) {
    let mut pauses = pauses();
    let mut tried_until = None;
    while let Some(engine) = engine.upgrade() {
        let now = engine.clock.now();
        if engine.closing.is_cancelled() && now >= *tried_until.get_or_insert(now + TRIED) {
            break;
        }
        let limit = engine.limit();
        let write = engine.store().finish(late.finish.clone(), limit);
        if let Ok(answer) = engine.call(Work::Ledger, limit, write).await {
            if let Some((callback, tick, failure)) = unwritten.answered(late, &answer) {
                FailureCallbacks::default().call(&engine, callback, tick, failure);
            }
            return;
        }
        let pause = pauses.next(engine.entropy.roll());
        drop(engine);
        tokio::time::sleep(pause).await;
    }
    unwritten.forget(&late.finish);
}
