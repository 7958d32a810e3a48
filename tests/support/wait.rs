//! Waiting with one limit: the awaited event comes, or the test says what it saw last.
//!
//! For real time only. Where tokio's time is paused, a test sleeps for as long as it likes.

#![allow(dead_code, reason = "each test binary uses its part of the support")]
#![allow(clippy::disallowed_methods, reason = "the limit counts by the machine's clock")]

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

/// Limit of every wait. It judges no speed: it ends a test that would hang, on the slowest machine there is.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// Time between two looks.
const PACE: Duration = Duration::from_millis(5);

/// Looks until the answer is `Ok`. An `Err` is what there is instead.
pub(crate) async fn until<T, S: Debug>(what: &str, mut look: impl AsyncFnMut() -> Result<T, S>) -> T {
    let begun = Instant::now();
    loop {
        match within(what, look()).await {
            Ok(found) => return found,
            Err(seen) => {
                assert!(begun.elapsed() < LIMIT, "not within {LIMIT:?}: {what}; seen last: {seen:#?}");
            }
        }
        tokio::time::sleep(PACE).await;
    }
}

/// Looks until the answer is `Ok`, in a test without a runtime. An `Err` is what there is instead.
pub(crate) fn until_blocking<T, S: Debug>(what: &str, mut look: impl FnMut() -> Result<T, S>) -> T {
    let begun = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => {
                assert!(begun.elapsed() < LIMIT, "not within {LIMIT:?}: {what}; seen last: {seen:#?}");
            }
        }
        std::thread::sleep(PACE);
    }
}

/// Waits for a future.
pub(crate) async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(LIMIT, wait).await;
    waited.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"))
}
