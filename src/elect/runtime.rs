//! Where the tasks of an engine run.

use std::future::Future;

use tokio::{runtime::Handle, task::JoinHandle};

#[cfg(feature = "testing")]
use crate::testing::fleet::Gate;

/// The program's runtime; in a simulation behind a gate that can be shut.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    handle: Handle,
    #[cfg(feature = "testing")]
    gate: Option<Gate>,
}

impl Runtime {
    /// The runtime this is called on.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn current() -> Self {
        Self {
            handle: Handle::current(),
            #[cfg(feature = "testing")]
            gate: None,
        }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn behind(self, gate: Option<Gate>) -> Self {
        Self { gate, ..self }
    }

    #[track_caller]
    pub(crate) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        #[cfg(feature = "testing")]
        if let Some(gate) = &self.gate {
            return gate.spawn_on(&self.handle, task);
        }
        self.handle.spawn(task)
    }

    /// The same task, for whoever spawns it elsewhere on this runtime.
    #[cfg(feature = "testing")]
    pub(crate) fn guard<F: Future>(&self, task: F) -> impl Future<Output = F::Output> + use<F> {
        let gate = self.gate.clone();
        async move {
            match gate {
                Some(gate) => gate.wrap(task).await,
                None => task.await,
            }
        }
    }

    #[cfg(not(feature = "testing"))]
    #[expect(clippy::unused_self, reason = "nothing stands between a program and its tasks")]
    pub(crate) fn guard<F: Future>(&self, task: F) -> F {
        task
    }

    pub(crate) fn spawn_blocking(&self, call: impl FnOnce() + Send + 'static) {
        #[cfg(feature = "testing")]
        if let Some(gate) = &self.gate {
            gate.run_blocking(&self.handle, call);
            return;
        }
        self.handle.spawn_blocking(call);
    }
}
