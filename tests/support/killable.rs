//! An instance that can be killed within a process that lives on: its tasks end at once, and nothing is given back.

use std::{
    panic::Location,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use tenure::sim::Tasks;
use tokio::{runtime::Handle, task::AbortHandle};

#[derive(Clone, Debug, Default)]
pub(crate) struct Killable(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    is_dead: bool,
    tasks: Vec<AbortHandle>,
}

impl Killable {
    pub(crate) fn kill(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_dead = true;
        for task in state.tasks.drain(..) {
            task.abort();
        }
    }
}

impl Tasks for Killable {
    fn wrap(&self, task: BoxFuture<'static, ()>, _: &'static Location<'static>) -> BoxFuture<'static, ()> {
        task
    }

    fn spawned(&self, task: AbortHandle) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_dead {
            task.abort();
            return;
        }
        state.tasks.retain(|task| !task.is_finished());
        state.tasks.push(task);
    }

    fn spawn_blocking(&self, runtime: &Handle, call: Box<dyn FnOnce() + Send>) {
        runtime.spawn_blocking(call);
    }
}
