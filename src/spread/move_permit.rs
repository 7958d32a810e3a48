//! Permission to move a task, which its job withholds while it does something that would have to be begun again.

use std::{
    future::{Future, pending},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Fuse, FusedFuture},
};
use tokio::sync::Notify;

use crate::{
    clock::Moment,
    elect::{Engine, Lease},
    model::{SessionId, Value},
    sync::locked,
};

/// Time for which a move waits for the end of a run, at first. Then the task is kept until the run has ended, and
/// others go in its place.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before a note in the record that could not be removed is removed again.
const AGAIN: Duration = Duration::from_secs(5);

/// Permission to move a task. A task that must go is moved without it.
#[derive(Clone, Debug, Default)]
pub(crate) struct MovePermit(Arc<SharedPermit>);

#[derive(Debug, Default)]
struct SharedPermit {
    state: Mutex<PermitState>,
    /// The state has changed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct PermitState {
    /// The job is in the middle of something.
    busy: bool,
    /// Counts what has come to its end.
    ended: u64,
    /// The task is being moved: nothing is begun any more.
    gone: bool,
    /// A successor waits: the job begins nothing more until it is decided whether the task goes.
    wanted: bool,
}

/// Held while the job is in the middle of something.
#[derive(Debug)]
pub(crate) struct BusyGuard(MovePermit);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.busy = false;
            state.ended += 1;
        });
    }
}

impl MovePermit {
    fn state(&self) -> MutexGuard<'_, PermitState> {
        locked(&self.0.state)
    }

    fn change<T>(&self, change: impl FnOnce(&mut PermitState) -> T) -> T {
        let made = change(&mut self.state());
        self.0.changed.notify_waiters();
        made
    }

    async fn until<T>(&self, mut find: impl FnMut(&mut PermitState) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let found = find(&mut self.state());
            if let Some(found) = found {
                return found;
            }
            changed.await;
        }
    }

    /// Begins something; `None` if the task is being moved.
    pub(crate) async fn begin(&self) -> Option<BusyGuard> {
        let begun = self.until(|state| {
            let is_decided = state.gone || !state.wanted;
            is_decided.then(|| {
                state.busy = !state.gone;
                state.busy
            })
        });
        begun.await.then(|| BusyGuard(self.clone()))
    }

    /// Lets the task go unless its job is busy; then nothing is begun any more. A task that cannot go is wanted:
    /// [`until_movable`](Self::until_movable) ends when it can, and nothing is begun before that is decided. Returns
    /// whether it goes.
    pub(super) fn let_go(&self) -> bool {
        self.change(|state| {
            state.gone |= !state.busy;
            state.wanted = !state.gone;
            state.gone
        })
    }

    /// Decides that the task stays: its job may begin what is next.
    fn stay(&self) {
        self.change(|state| state.wanted = false);
    }

    /// Waits until a task that was wanted while its job was busy can be moved.
    async fn until_movable(&self) {
        self.until(|state| (state.wanted && !state.busy).then_some(())).await;
    }

    /// Waits until what goes on at the call has ended, if anything does.
    fn until_idle(&self) -> impl Future<Output = ()> + use<> {
        let (permit, ended) = (self.clone(), self.state().ended);
        async move { permit.until(|state| (!state.busy || state.ended != ended).then_some(())).await }
    }
}

/// Next step for a task that was to go while its job was busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermitTurn {
    /// The run has ended: the task goes to that session if it is still in the queue.
    Ended(SessionId),
    /// The run goes on: the record is to say so.
    Kept,
    /// The record has changed.
    Noted,
}

/// Move that waits for the end of a run.
pub(super) struct Postponed {
    /// The successor, and until when the move waits.
    waits: Option<(SessionId, Moment)>,
    /// Time for which the next one waits. It grows, so that some run ends within it.
    patience: Duration,
    /// Keeps a note in the record while the task is kept. Ends when the note is removed.
    keeping: Fuse<BoxFuture<'static, ()>>,
    /// Notifies once the note is written.
    noted: Arc<Notify>,
}

impl Default for Postponed {
    fn default() -> Self {
        Self { waits: None, patience: PATIENCE, keeping: Fuse::terminated(), noted: Arc::default() }
    }
}

impl Postponed {
    /// Begins to wait: a successor is in the queue, and the job is busy.
    pub(super) fn wait(&mut self, successor: SessionId, now: Moment) {
        self.waits = Some((successor, now + self.patience));
    }

    /// Ends the wait: the move is made, or not made now.
    pub(super) fn end(&mut self, permit: &MovePermit) {
        self.waits = None;
        permit.stay();
    }

    /// Returns whether the record says that the task is kept, or may say so.
    pub(super) fn is_kept(&self) -> bool {
        !self.keeping.is_terminated()
    }

    /// Notes in the record that the task is kept, until the run has ended.
    pub(super) fn keep(&mut self, lease: Lease, permit: &MovePermit) {
        self.patience = self.patience.saturating_mul(2);
        let (idle, noted) = (permit.until_idle(), self.noted.clone());
        self.keeping = async move {
            // A note that was not answered may have been written. Where the program has set a value itself there is
            // no note: others go in its place only when its run has ended.
            if !lease.note(Some(Value::kept())).await.unwrap_or(true) {
                return;
            }
            noted.notify_one();
            idle.await;
            while lease.note(None).await.is_err_and(|error| !error.is_lost()) {
                tokio::time::sleep(AGAIN).await;
            }
        }
        .boxed()
        .fuse();
    }

    /// Waits for the next step.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub(super) async fn turn(&mut self, engine: &Engine, permit: &MovePermit) -> PermitTurn {
        let waits = self.waits;
        let patience = async {
            match waits {
                Some((_, until)) => tokio::time::sleep(until.since(engine.clock.now())).await,
                None => pending().await,
            }
        };
        let ended = async {
            match waits {
                Some((successor, _)) => {
                    permit.until_movable().await;
                    successor
                }
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            successor = ended => {
                self.waits = None;
                PermitTurn::Ended(successor)
            }
            () = patience => {
                self.waits = None;
                PermitTurn::Kept
            }
            () = self.noted.notified() => PermitTurn::Noted,
            () = &mut self.keeping, if !self.keeping.is_terminated() => PermitTurn::Noted,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_busy_task_is_not_moved_and_a_moved_task_begins_no_run() {
        let permit = MovePermit::default();
        assert!(permit.until_movable().now_or_never().is_none(), "nobody wanted it");
        let guard = permit.begin().now_or_never().flatten();
        assert!(guard.is_some() && !permit.let_go());
        assert!(permit.until_movable().now_or_never().is_none(), "it is busy");
        drop(guard);
        assert!(permit.until_movable().now_or_never().is_some());
        assert!(permit.begin().now_or_never().is_none(), "it is not decided whether it goes");
        permit.stay();
        assert!(permit.until_movable().now_or_never().is_none(), "it stays");
        drop(permit.begin().now_or_never().flatten().expect("it stays"));
        assert!(permit.let_go());
        assert!(permit.begin().now_or_never().expect("it is decided").is_none());
    }

    #[test]
    fn the_end_of_a_run_is_not_missed_if_the_next_one_is_on_by_then() {
        let permit = MovePermit::default();
        assert!(permit.until_idle().now_or_never().is_some(), "nothing is on");
        let first = permit.begin().now_or_never().flatten();
        let end = permit.until_idle();
        drop(first);
        let _second = permit.begin().now_or_never().flatten().expect("nobody wants it");
        assert!(end.now_or_never().is_some());
        assert!(permit.until_idle().now_or_never().is_none());
    }
}
