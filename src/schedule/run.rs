//! An attempt at a tick: its job, and its cancellation.

use std::{
    future::{Future, pending},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    time::Duration,
};

use futures::FutureExt;

use super::{Tick, spec::Body};
use crate::{
    elect::{Engine, Lease, panic_message},
    model::{Outcome, StoreTime},
    words,
};

/// End of an attempt.
#[derive(Clone, Debug)]
pub(super) struct AttemptEnd {
    pub(super) outcome: Outcome,
    pub(super) error: Option<String>,
}

/// Runs the job of a tick, until it ends, takes too long, or has to make way. It is polled as part of the
/// lease's own job: never after the lease has ended (R9). `begins` is called by the first poll.
pub(super) async fn run(
    engine: &Engine,
    lease: &Lease,
    tick: Tick,
    body: &Body,
    timeout: Option<Duration>,
    displaced: impl Future<Output = ()>,
    begins: impl FnOnce() + Send,
) -> AttemptEnd {
    let own = lease.narrowed();
    // The token fires for what the job has spawned, whatever ends the attempt.
    let stop = own.token().drop_guard();
    let (given, body) = (own.clone(), body.clone());
    // All of the program's code is called within.
    let (blocks, what) = (body.blocks, tick.clone());
    let mut goes_on = false;
    let mut job = Some(Box::pin(
        AssertUnwindSafe(async move {
            begins();
            (body.call)(tick, given).await
        })
        .catch_unwind(),
    ));
    let mut stopping = pin!(until_cancelled(lease, timeout, displaced));
    let mut cancelled = None;
    let result = loop {
        let ended = async {
            match &mut job {
                Some(job) => job.await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            result = ended => break Some(result),
            outcome = &mut stopping, if cancelled.is_none() => {
                cancelled = Some(outcome);
                own.stop();
            }
            // The lease has a grace of its own: the caller that polls this drops it then.
            () = tokio::time::sleep(engine.times.stop_grace), if has_own_grace(cancelled) && !goes_on => {
                if !blocks {
                    break None;
                }
                // Its call cannot be dropped, and the next run must not begin beside it.
                goes_on = true;
                let (schedule, namespace, grace) = (what.schedule().as_str(), &lease.lock().namespace, engine.times.stop_grace);
                words::warn!(schedule, %namespace, instant = %what.scheduled_at(), ?grace, "a blocking run was cancelled and keeps running, its schedule waits for it");
            }
        }
    };
    // A panic while it is dropped counts, too.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(job.take())));
    drop(stop);
    // The job may have seen the token first.
    let cancelled = cancelled.or_else(|| lease.is_cancelled().then_some(Outcome::Cancelled));
    match (dropped, result) {
        (Ok(()), Some(Ok(Ok(())))) => AttemptEnd { outcome: Outcome::Succeeded, error: None },
        (Ok(()), Some(Ok(Err(error)))) => {
            AttemptEnd { outcome: cancelled.unwrap_or(Outcome::Failed), error: Some(error) }
        }
        (Err(panic), _) | (_, Some(Err(panic))) => {
            let message = panic_message(&*panic);
            lease.panicked(&message);
            AttemptEnd {
                outcome: cancelled.unwrap_or(Outcome::Failed),
                error: Some(format!("panicked: {message}")),
            }
        }
        (Ok(()), None) => {
            let error = Some("dropped: it did not stop when cancelled".to_owned());
            AttemptEnd { outcome: cancelled.unwrap_or(Outcome::Cancelled), error }
        }
    }
}

/// Returns whether the grace is counted here: that of a lease is counted by the lease.
const fn has_own_grace(cancelled: Option<Outcome>) -> bool {
    matches!(cancelled, Some(Outcome::TimedOut | Outcome::Displaced))
}

/// Waits until the job is to stop. Returns the outcome of that.
async fn until_cancelled(
    lease: &Lease,
    timeout: Option<Duration>,
    displaced: impl Future<Output = ()>,
) -> Outcome {
    tokio::select! {
        biased;
        () = lease.cancelled() => Outcome::Cancelled,
        () = or_never(timeout.map(tokio::time::sleep)) => Outcome::TimedOut,
        () = displaced => Outcome::Displaced,
    }
}

/// Awaits a future; for ever if there is none.
async fn or_never(future: Option<impl Future<Output = ()>>) {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Waits until the store's clock shows that, by this instance's estimate; for ever if it is `None`.
pub(super) async fn until(engine: &Engine, at: Option<StoreTime>) {
    let Some(at) = at else { return pending().await };
    let mut changes = engine.store_times.changes();
    loop {
        changes.mark_seen();
        let wait = engine.store_times.now(engine.clock.now()).map(|now| at.since(now));
        if wait.is_some_and(|wait| wait.is_zero()) {
            return;
        }
        tokio::select! {
            biased;
            () = changes.changed() => {}
            () = or_never(wait.map(tokio::time::sleep)) => {}
        }
    }
}
