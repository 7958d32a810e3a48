//! Calls of a driver that are made again until the store answers.

use std::{fmt, time::Duration};

use super::Driver;
use crate::{StoreError, backoff::Backoff, elect::Work, words};

/// Pause before a call that failed is made again, at first.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause between two calls.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A store that does not answer for so long is logged.
const WORTH_LOGGING: Duration = Duration::from_secs(10);

/// Pauses between calls that fail.
pub(super) const fn pauses() -> Backoff {
    Backoff::new(FIRST_PAUSE, LONGEST_PAUSE)
}

impl Driver {
    /// Makes a call until it is answered; `None` if the lease is cancelled before.
    pub(super) async fn retry_or_cancelled<T, F>(
        &self,
        work: Work,
        mut call: impl FnMut(Duration) -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let lease = self.lease.clone();
        tokio::select! {
            biased;
            () = lease.cancelled() => None,
            answer = self.retry_forever(work, &mut call) => Some(answer),
        }
    }

    /// Makes a call until it is answered, for as long as this is polled: also within the grace.
    pub(super) async fn retry_forever<T, F>(&self, work: Work, call: &mut impl FnMut(Duration) -> F) -> T
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let engine = &self.engine;
        self.until_ok(|| {
            let limit = engine.limit();
            engine.call(work, limit, call(limit))
        })
        .await
    }

    /// Repeats what fails, with pauses.
    pub(super) async fn until_ok<T, E, F>(&self, mut call: impl FnMut() -> F) -> T
    where
        E: fmt::Display,
        F: Future<Output = Result<T, E>>,
    {
        let mut pauses = pauses();
        let (begun, mut is_logged) = (self.engine.clock.now(), false);
        loop {
            match call().await {
                Ok(answer) => {
                    if is_logged {
                        words::debug!(schedule = self.spec.id.name.as_str(), namespace = %self.spec.id.namespace, "the store answered, the schedule continues");
                    }
                    return answer;
                }
                Err(error) => {
                    if !is_logged && self.engine.clock.now().since(begun) >= WORTH_LOGGING {
                        is_logged = true;
                        words::debug!(schedule = self.spec.id.name.as_str(), namespace = %self.spec.id.namespace, %error, "the schedule is waiting for the store");
                    }
                    tokio::time::sleep(pauses.next(self.engine.entropy.roll())).await;
                }
            }
        }
    }
}
