//! Ticks that have failed for good, and the program's callbacks about them.

use std::{fmt, panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use serde::Serialize;
use tokio::{sync::mpsc, task::JoinHandle};

use super::Tick;
use crate::{
    elect::Engine,
    model::{Namespace, Outcome},
    words,
};

/// Failures that may wait for a slow callback. Further ones are left out, and the log says so.
const WAITING: usize = 100;

/// Failure of a tick, or of an order, for good. See [`on_failure`](super::ScheduleBuilder::on_failure).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Failure {
    /// Outcome of its last attempt.
    pub outcome: Outcome,
    /// Last error of the job, if it had any.
    pub error: Option<String>,
    /// Number of attempts, those of other instances included.
    pub attempts: u32,
}

impl fmt::Display for Failure {
    /// `failed after 3 attempts: the disk is full`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.attempts == 1 { "" } else { "s" };
        write!(f, "{} after {} attempt{plural}", self.outcome.as_str(), self.attempts)?;
        self.error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

/// Callback of the program.
pub(super) type OnFailure = Arc<dyn Fn(Tick, Failure) -> BoxFuture<'static, ()> + Send + Sync>;

/// Calls the program about failures, one after the other, beside the ticks: neither a slow callback nor one
/// that panics holds up a run.
#[derive(Debug, Default)]
pub(super) struct FailureCallbacks {
    calls: Option<(mpsc::Sender<FailureCall>, JoinHandle<()>)>,
}

pub(super) type FailureCall = (OnFailure, Tick, Failure);

impl FailureCallbacks {
    pub(super) fn call(&mut self, engine: &Engine, callback: OnFailure, tick: Tick, failure: Failure) {
        let (calls, _) = self.calls.get_or_insert_with(|| {
            let (sender, calls) = mpsc::channel(WAITING);
            (sender, engine.runtime.spawn(call_all(calls, engine.config.namespace().clone())))
        });
        if let Err(error) = calls.try_send((callback, tick, failure)) {
            let (_, tick, _) = error.into_inner();
            let (schedule, namespace) = (tick.schedule().as_str(), engine.config.namespace());
            words::warn!(schedule, %namespace, instant = %tick.scheduled_at(), waiting = WAITING, "on_failure is too slow, skipping the call for this tick");
        }
    }

    /// Waits for all calls. Dropped, they are made all the same, as long as the program's runtime lives.
    pub(super) async fn finish(self) {
        let Some((calls, task)) = self.calls else { return };
        drop(calls);
        // An error says that the runtime ends.
        let _ = task.await;
    }
}

async fn call_all(mut calls: mpsc::Receiver<FailureCall>, namespace: Namespace) {
    while let Some((callback, tick, failure)) = calls.recv().await {
        let name = tick.schedule().clone();
        if AssertUnwindSafe(async { callback(tick, failure).await }).catch_unwind().await.is_err() {
            words::error!(schedule = name.as_str(), %namespace, "the on_failure callback panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_how_often_it_was_tried_and_why() {
        let failure = |attempts, error: Option<&str>| Failure {
            outcome: Outcome::TimedOut,
            error: error.map(str::to_owned),
            attempts,
        };
        assert_eq!(failure(1, None).to_string(), "timed out after 1 attempt");
        assert_eq!(failure(3, Some("no disk")).to_string(), "timed out after 3 attempts: no disk");
    }
}
