//! A task that is in the middle of something which it had better finish where it is.

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

/// How long a move waits for the end of a run, at first. Then the task is kept until the run has ended, and others
/// go in its place.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before a note in the record that could not be removed is removed again.
const AGAIN: Duration = Duration::from_secs(5);

/// Whether a task may be moved now: its job says when it may not, for it does something that would have to be
/// begun again elsewhere. A task that must go is moved all the same.
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
    /// So many things have come to their end.
    ended: u64,
    /// The task is being moved: nothing is begun any more.
    gone: bool,
    /// An heir waits: the job begins nothing more until it was decided whether the task goes.
    wanted: bool,
}

/// The job is in the middle of something, for as long as there is one of these.
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

    async fn until<T>(&self, mut is_so: impl FnMut(&mut PermitState) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let found = is_so(&mut self.state());
            if let Some(found) = found {
                return found;
            }
            changed.await;
        }
    }

    /// Begins something; nothing if the task is being moved.
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

    /// Whether the task can be moved now; then nothing is begun any more. If it cannot,
    /// [`was_wanted`](Self::was_wanted) ends when it can, and nothing is begun before that is decided.
    pub(super) fn lets_go(&self) -> bool {
        self.change(|state| {
            state.gone |= !state.busy;
            state.wanted = !state.gone;
            state.gone
        })
    }

    /// It is not moved, and may begin what is next.
    fn goes_on(&self) {
        self.change(|state| state.wanted = false);
    }

    /// Until a task can be moved that was wanted while its job was busy.
    async fn was_wanted(&self) {
        self.until(|state| (state.wanted && !state.busy).then_some(())).await;
    }

    /// Until what goes on now has ended, if anything does.
    fn end(&self) -> impl Future<Output = ()> + use<> {
        let (busy, ended) = (self.clone(), self.state().ended);
        async move { busy.until(|state| (!state.busy || state.ended != ended).then_some(())).await }
    }
}

/// What is to be done about a task that was to go while its job was busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermitTurn {
    /// Its run has ended: it goes to that session if it still stands in line.
    Ended(SessionId),
    /// Its run goes on: the record is to say so.
    Kept,
    /// The record says something else than before.
    Said,
}

/// A move that waits for the end of a run.
pub(super) struct Postponed {
    /// To whom, and until when it waits.
    waits: Option<(SessionId, Moment)>,
    /// How long the next one waits: runs that follow one another have an end within it some day.
    patience: Duration,
    /// What says in the record that the task is kept, as long as it is. It answers when the record has changed.
    keeps: Fuse<BoxFuture<'static, ()>>,
    /// The record says so now.
    said: Arc<Notify>,
}

impl Default for Postponed {
    fn default() -> Self {
        Self { waits: None, patience: PATIENCE, keeps: Fuse::terminated(), said: Arc::default() }
    }
}

impl Postponed {
    /// An heir stands in line, and the job is busy.
    pub(super) fn wait(&mut self, heir: SessionId, now: Moment) {
        self.waits = Some((heir, now + self.patience));
    }

    /// The move is made, or not made now.
    pub(super) fn end(&mut self, busy: &MovePermit) {
        self.waits = None;
        busy.goes_on();
    }

    /// Whether the record says that it is kept, or may say so.
    pub(super) fn is_kept(&self) -> bool {
        !self.keeps.is_terminated()
    }

    /// Says in the record that the task is kept, until the run has ended.
    pub(super) fn keep(&mut self, lease: Lease, busy: &MovePermit) {
        self.patience = self.patience.saturating_mul(2);
        let (end, said) = (busy.end(), self.said.clone());
        self.keeps = async move {
            // One that was not answered may have been written. Where the program says something itself nobody is
            // told: others go in its place only when its run has ended.
            if !lease.note(Some(Value::kept())).await.unwrap_or(true) {
                return;
            }
            said.notify_one();
            end.await;
            while lease.note(None).await.is_err_and(|error| !error.is_lost()) {
                tokio::time::sleep(AGAIN).await;
            }
        }
        .boxed()
        .fuse();
    }

    /// What is next to be done. It may be dropped and called again.
    pub(super) async fn turn(&mut self, engine: &Engine, busy: &MovePermit) -> PermitTurn {
        let waits = self.waits;
        let patience = async {
            match waits {
                Some((_, until)) => tokio::time::sleep(until.since(engine.clock.now())).await,
                None => pending().await,
            }
        };
        let ended = async {
            match waits {
                Some((heir, _)) => {
                    busy.was_wanted().await;
                    heir
                }
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            heir = ended => {
                self.waits = None;
                PermitTurn::Ended(heir)
            }
            () = patience => {
                self.waits = None;
                PermitTurn::Kept
            }
            () = self.said.notified() => PermitTurn::Said,
            () = &mut self.keeps, if !self.keeps.is_terminated() => PermitTurn::Said,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn who_is_busy_is_not_moved_and_who_is_moved_begins_nothing() {
        let busy = MovePermit::default();
        assert!(busy.was_wanted().now_or_never().is_none(), "nobody wanted it");
        let guard = busy.begin().now_or_never().flatten();
        assert!(guard.is_some() && !busy.lets_go());
        assert!(busy.was_wanted().now_or_never().is_none(), "it is busy");
        drop(guard);
        assert!(busy.was_wanted().now_or_never().is_some());
        assert!(busy.begin().now_or_never().is_none(), "it is not decided whether it goes");
        busy.goes_on();
        assert!(busy.was_wanted().now_or_never().is_none(), "it stays");
        drop(busy.begin().now_or_never().flatten().expect("it stays"));
        assert!(busy.lets_go());
        assert!(busy.begin().now_or_never().expect("it is decided").is_none());
    }

    #[test]
    fn the_end_of_a_run_is_not_missed_if_the_next_one_is_on_by_then() {
        let busy = MovePermit::default();
        assert!(busy.end().now_or_never().is_some(), "nothing is on");
        let first = busy.begin().now_or_never().flatten();
        let end = busy.end();
        drop(first);
        let _second = busy.begin().now_or_never().flatten().expect("nobody wants it");
        assert!(end.now_or_never().is_some());
        assert!(busy.end().now_or_never().is_none());
    }
}
