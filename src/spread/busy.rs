//! A task that is in the middle of something which it had better finish where it is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Whether a task may be moved now: its job says when it may not, for it does something that would have to be
/// begun again elsewhere. A task that must go is moved all the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    /// The job has come to an end of something.
    idle: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The job is in the middle of something.
    busy: bool,
    /// The task is being moved: nothing is begun any more.
    gone: bool,
    /// Somebody wanted to move it while the job was busy.
    wanted: bool,
}

/// The job is in the middle of something, for as long as there is one of these.
#[derive(Debug)]
pub(crate) struct BusyGuard(Busy);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.state().busy = false;
        self.0.0.idle.notify_waiters();
    }
}

impl Busy {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins something; nothing if the task is being moved.
    pub(crate) fn begin(&self) -> Option<BusyGuard> {
        let mut state = self.state();
        state.busy = !state.gone;
        state.busy.then(|| BusyGuard(self.clone()))
    }

    /// Whether the task can be moved now; then nothing is begun any more. If it cannot,
    /// [`was_wanted`](Self::was_wanted) ends when it can.
    pub(super) fn lets_go(&self) -> bool {
        let mut state = self.state();
        state.gone |= !state.busy;
        state.wanted |= state.busy;
        state.gone
    }

    /// Until a task can be moved that somebody wanted to move before.
    pub(super) async fn was_wanted(&self) {
        loop {
            let mut idle = std::pin::pin!(self.0.idle.notified());
            idle.as_mut().enable();
            {
                let mut state = self.state();
                if state.wanted && !state.busy {
                    state.wanted = false;
                    return;
                }
            }
            idle.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn who_is_busy_is_not_moved_and_who_is_moved_begins_nothing() {
        let busy = Busy::default();
        assert!(busy.was_wanted().now_or_never().is_none(), "nobody wanted it");
        let guard = busy.begin();
        assert!(guard.is_some() && !busy.lets_go());
        assert!(busy.was_wanted().now_or_never().is_none(), "it is busy");
        drop(guard);
        assert!(busy.was_wanted().now_or_never().is_some());
        assert!(busy.was_wanted().now_or_never().is_none(), "it was told once");
        drop(busy.begin().expect("it may go on meanwhile"));
        assert!(busy.lets_go() && busy.begin().is_none());
    }
}
