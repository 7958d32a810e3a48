//! A caller's own look: what waits does not rely on being woken alone.
//!
//! Its waker stands in a list of wakers, and one of those may block (R14). So in a task of tokio's it looks again at
//! times, by a timer of its own runtime.

use std::{future::poll_fn, task::Poll, time::Duration};

/// Is ready when a poll finds that this is so.
pub(super) async fn is_so(is: impl Fn() -> bool) {
    poll_fn(|_| if is() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Returns whether the caller is a task of tokio's. Only then is its waker, with which a timer would be registered,
/// tokio's as well: that of another may block, and with it all timers of that runtime.
pub(super) fn is_in_a_task() -> bool {
    tokio::task::try_id().is_some()
}

/// Sleeps in a task of tokio's. Elsewhere it is for others to wake the caller.
pub(super) async fn sleep(time: Duration) {
    if is_in_a_task() {
        tokio::time::sleep(time).await;
    } else {
        std::future::pending::<()>().await;
    }
}
