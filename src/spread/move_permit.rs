//! Permission to move a task, which its job withholds while it does something that would have to be begun again.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::{model::SessionId, sync::locked};

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
    /// The task is being moved: nothing is begun any more.
    gone: bool,
    /// Successor that waits for the job to be idle. Until it is decided whether the task goes, nothing more is begun.
    successor: Option<SessionId>,
}

/// Held while the job is in the middle of something.
#[derive(Debug)]
pub(crate) struct BusyGuard(MovePermit);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.change(|state| state.busy = false);
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
            let is_decided = state.gone || state.successor.is_none();
            is_decided.then(|| {
                state.busy = !state.gone;
                state.busy
            })
        });
        begun.await.then(|| BusyGuard(self.clone()))
    }

    /// Lets the task go unless its job is busy; then nothing is begun any more. If it cannot go,
    /// [`until_movable`](Self::until_movable) ends when it can. Returns whether it goes.
    pub(super) fn let_go(&self, successor: Option<SessionId>) -> bool {
        self.change(|state| {
            state.gone |= !state.busy;
            state.successor = successor.filter(|_| !state.gone);
            state.gone
        })
    }

    /// Decides that the task stays: its job may begin what is next.
    pub(super) fn stay(&self) {
        self.change(|state| state.successor = None);
    }

    /// Returns whether a successor waits for the job to be idle.
    pub(super) fn is_awaited(&self) -> bool {
        let state = self.state();
        state.busy && state.successor.is_some()
    }

    /// Waits until a task that was to go while its job was busy can be moved. Returns its successor.
    pub(super) async fn until_movable(&self) -> SessionId {
        self.until(|state| state.successor.filter(|_| !state.busy)).await
    }
}
