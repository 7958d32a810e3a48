//! The runtime on which the tasks of an engine run.

use std::{future::Future, io, panic::AssertUnwindSafe, thread, time::Duration};

use futures::FutureExt;
use tokio::{runtime::Handle, task::JoinHandle};

use crate::words;

/// Rest of work that panicked.
const REST: Duration = Duration::from_millis(100);

#[cfg(tenure_sim)]
pub use gated::Tasks;

/// The program's runtime, or the engine's own; in a simulation behind something that stops its tasks.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    handle: Handle,
    #[cfg(tenure_sim)]
    tasks: Option<std::sync::Arc<dyn Tasks>>,
}

impl Runtime {
    /// Returns the current runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn current() -> Self {
        Self::of(Handle::current())
    }

    /// Returns this runtime: one of ours.
    pub(crate) const fn of(handle: Handle) -> Self {
        Self {
            handle,
            #[cfg(tenure_sim)]
            tasks: None,
        }
    }

    #[track_caller]
    pub(crate) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        #[cfg(tenure_sim)]
        if let Some(tasks) = &self.tasks {
            let spawned = self.handle.spawn(gated::wrap(&**tasks, task));
            tasks.spawned(spawned.abort_handle());
            return spawned;
        }
        self.handle.spawn(task)
    }

    /// Spawns work that goes by what its owner knows, and begins again if it panics: what waits for it would wait for
    /// ever.
    #[track_caller]
    pub(crate) fn spawn_again<F>(&self, mut begin: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn(async move {
            while AssertUnwindSafe(async { begin().await }).catch_unwind().await.is_err() {
                words::error!("work of an instance panicked, it begins again");
                tokio::time::sleep(REST).await;
            }
        });
    }

    /// Runs a call that blocks, on a thread of its own within this runtime: a pool may be full of calls that never end.
    pub(crate) fn spawn_thread(&self, call: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let handle = self.handle.clone();
        let run = move || {
            let _within = handle.enter();
            call();
        };
        thread::Builder::new().name("tenure-job".to_owned()).spawn(run).map(drop)
    }

    /// Runs a call that blocks, on the pool: time that is paused stands still meanwhile.
    pub(crate) fn spawn_blocking(&self, call: impl FnOnce() + Send + 'static) {
        #[cfg(tenure_sim)]
        if let Some(tasks) = &self.tasks {
            tasks.spawn_blocking(&self.handle, Box::new(call));
            return;
        }
        self.handle.spawn_blocking(call);
    }
}

#[cfg(not(tenure_sim))]
impl Runtime {
    /// Returns the task as it is to be spawned elsewhere on this runtime.
    #[expect(clippy::unused_self, reason = "nothing stands between a program and its tasks")]
    pub(crate) fn guard<F: Future>(&self, task: F) -> F {
        task
    }
}

/// Layer that a simulation puts between the tasks and the runtime.
#[cfg(tenure_sim)]
mod gated {
    use std::{
        fmt::Debug,
        future::Future,
        panic::Location,
        pin::Pin,
        sync::{Arc, Mutex},
    };

    use futures::future::{BoxFuture, Either};
    use tokio::{runtime::Handle, task::AbortHandle};

    use super::Runtime;
    use crate::sync::locked;

    /// Stands between the tasks of an engine and the runtime they share with others.
    pub trait Tasks: Debug + Send + Sync {
        /// Wraps a task, so that it is polled only when it may run, with the place where it was spawned.
        fn wrap(
            &self,
            task: BoxFuture<'static, ()>,
            from: &'static Location<'static>,
        ) -> BoxFuture<'static, ()>;

        /// Registers the handle that ends a spawned task.
        fn spawned(&self, task: AbortHandle);

        /// Runs a call that blocks.
        fn spawn_blocking(&self, runtime: &Handle, call: Box<dyn FnOnce() + Send>);
    }

    impl Runtime {
        pub(crate) fn behind(self, tasks: Option<Arc<dyn Tasks>>) -> Self {
            Self { tasks, ..self }
        }

        /// Returns the task as it is to be spawned elsewhere on this runtime.
        #[track_caller]
        pub(crate) fn guard<F>(&self, task: F) -> impl Future<Output = F::Output> + Send + use<F>
        where
            F: Future + Send + 'static,
            F::Output: Send,
        {
            match &self.tasks {
                Some(tasks) => Either::Left(wrap(&**tasks, task)),
                None => Either::Right(task),
            }
        }
    }

    /// Wraps a task. Its output bypasses the wrapper, which knows nothing of outputs.
    #[track_caller]
    pub(super) fn wrap<F>(tasks: &dyn Tasks, task: F) -> Pin<Box<dyn Future<Output = F::Output> + Send>>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let output = Arc::new(Mutex::new(None));
        let slot = output.clone();
        let wrapped =
            tasks.wrap(Box::pin(async move { *locked(&slot) = Some(task.await) }), Location::caller());
        Box::pin(async move {
            wrapped.await;
            locked(&output).take().expect("a task that has ended has an output")
        })
    }
}
