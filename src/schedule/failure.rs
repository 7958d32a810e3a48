//! Ticks that have failed for good, and who is told of them.

use std::{fmt, panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use tokio::{sync::mpsc, task::JoinHandle};

use super::Tick;
use crate::{
    elect::Engine,
    model::{Namespace, Outcome},
};

/// How many failures may wait for a callback that is slow. More are left out, and the log says so.
const WAITING: usize = 100;

/// Why a tick, or an order, has failed for good. See [`on_failure`](super::ScheduleBuilder::on_failure).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// How its last attempt ended.
    pub outcome: Outcome,
    /// What the job said last, if it said anything.
    pub error: Option<String>,
    /// How many attempts there were, those of other instances included.
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

/// What the program does about it.
pub(super) type OnFailure = Arc<dyn Fn(Tick, Failure) -> BoxFuture<'static, ()> + Send + Sync>;

/// Calls the program about failures, one after the other, beside the ticks: neither a slow callback nor one
/// that panics holds up a run.
#[derive(Debug, Default)]
pub(super) struct Teller {
    calls: Option<(mpsc::Sender<FailureCall>, JoinHandle<()>)>,
}

type FailureCall = (OnFailure, Tick, Failure);

impl Teller {
    pub(super) fn tell(&mut self, engine: &Engine, callback: OnFailure, tick: Tick, failure: Failure) {
        let (calls, _) = self.calls.get_or_insert_with(|| {
            let (sender, calls) = mpsc::channel(WAITING);
            (sender, engine.runtime.spawn(call(calls, engine.config.namespace().clone())))
        });
        if let Err(error) = calls.try_send((callback, tick, failure)) {
            let (_, tick, _) = error.into_inner();
            let (schedule, namespace) = (tick.schedule().as_str(), engine.config.namespace());
            tracing::warn!(schedule, %namespace, instant = %tick.instant(), waiting = WAITING, "on_failure is too slow: it is not called for this tick");
        }
    }

    /// Until everything was told. What is not by then is told all the same, as long as the program's runtime
    /// lives.
    pub(super) async fn finish(self) {
        let Some((calls, told)) = self.calls else { return };
        drop(calls);
        // An error says that the runtime ends.
        let _ = told.await;
    }
}

async fn call(mut calls: mpsc::Receiver<FailureCall>, namespace: Namespace) {
    while let Some((callback, tick, failure)) = calls.recv().await {
        let name = tick.schedule().clone();
        if AssertUnwindSafe(async { callback(tick, failure).await }).catch_unwind().await.is_err() {
            tracing::error!(schedule = name.as_str(), %namespace, "the callback on_failure panicked");
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
