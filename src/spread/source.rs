//! Sources of a spread's tasks: a fixed set, or a closure that is asked.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};

use super::shared::Shared;
use crate::{
    backoff::{Backoff, jittered},
    clock::Moment,
    elect::{Elect, Engine, panic_message},
    model::{Key, LimitError},
    sync::locked,
    words,
};

/// Shortest pause after a source has failed.
const SOONEST: Duration = Duration::from_secs(1);
/// Longest pause.
const LATEST: Duration = Duration::from_secs(60);
/// A source that does not answer for so long is a trouble.
const PATIENCE: Duration = Duration::from_secs(60);

/// Task of a spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task<M = ()> {
    key: Key,
    meta: M,
}

impl<M> Task<M> {
    /// Creates a task of that key, with data for its job.
    ///
    /// # Errors
    /// The key breaks a limit.
    pub fn new(key: impl AsRef<str>, meta: M) -> Result<Self, LimitError> {
        Ok(Self { key: Key::new(key)?, meta })
    }

    /// Key of the task.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// Data for its job. A job that runs keeps what it was started with.
    #[must_use]
    pub const fn meta(&self) -> &M {
        &self.meta
    }
}

type TaskQuery<M> = Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<Task<M>>, String>> + Send + Sync>;

pub(super) enum Source<M> {
    Fixed(BTreeMap<Key, M>),
    Asked { every: Duration, ask: TaskQuery<M> },
}

impl<M> Source<M> {
    /// Interval at which the tasks are asked for, if they are.
    pub(super) const fn every(&self) -> Option<Duration> {
        if let Self::Asked { every, .. } = self { Some(*every) } else { None }
    }

    pub(super) const fn none() -> Self {
        Self::Fixed(BTreeMap::new())
    }
}

/// Tasks of the spread, with the data for their jobs.
pub(crate) struct TaskRegistry<M> {
    tasks: Mutex<BTreeMap<Key, M>>,
    shared: Arc<Shared>,
}

impl<M> fmt::Debug for TaskRegistry<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRegistry").finish_non_exhaustive()
    }
}

impl<M: Clone> TaskRegistry<M> {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { tasks: Mutex::default(), shared }
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<Key, M>> {
        locked(&self.tasks)
    }

    /// Returns a task for its job: the program's code clones its data.
    pub(super) fn task(&self, key: &Key) -> Option<Task<M>> {
        let meta = self.tasks().get(key).cloned()?;
        Some(Task { key: key.clone(), meta })
    }

    // Tasks and keys are changed under one lock, so that the two never differ for long.

    pub(super) fn add(&self, task: Task<M>) {
        let mut tasks = self.tasks();
        tasks.insert(task.key.clone(), task.meta);
        self.shared.change(|state| state.keys.get_or_insert_default().insert(task.key));
    }

    pub(super) fn remove(&self, key: &Key) {
        let mut tasks = self.tasks();
        tasks.remove(key);
        self.shared.change(|state| state.keys.get_or_insert_default().remove(key));
    }

    pub(super) fn replace(&self, tasks: impl IntoIterator<Item = Task<M>>) {
        self.set(tasks.into_iter().map(|task| (task.key, task.meta)).collect());
    }

    fn set(&self, tasks: BTreeMap<Key, M>) {
        let keys = tasks.keys().cloned().collect();
        let mut known = self.tasks();
        *known = tasks;
        self.shared.change(|state| {
            if state.keys.as_ref() != Some(&keys) {
                state.keys = Some(keys);
            }
        });
    }
}

impl<M: Clone + Send + Sync + 'static> Source<M> {
    /// Brings the first tasks. Returns what follows their changes until the spread stops.
    pub(super) fn begin(
        self,
        registry: &Arc<TaskRegistry<M>>,
        elect: &Elect,
    ) -> Option<impl Future<Output = ()> + use<M>> {
        let (every, ask) = match self {
            Self::Fixed(tasks) => {
                registry.set(tasks);
                return None;
            }
            Self::Asked { every, ask } => (every, ask),
        };
        let (stop, weak) = (registry.shared.stop.clone(), Arc::downgrade(elect.engine()));
        // Following the tasks keeps neither the spread nor the engine alive.
        let follow = inquire(every, ask, Arc::downgrade(registry), weak.clone());
        let (engine, spread) = (weak, registry.shared.spread.clone());
        Some(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = follow => {}
            }
            if let Some(engine) = engine.upgrade() {
                engine.task_source_works(&spread);
            }
        })
    }
}

/// Asks for the tasks again and again, also after an error or a panic.
async fn inquire<M: Clone>(
    every: Duration,
    ask: TaskQuery<M>,
    registry: Weak<TaskRegistry<M>>,
    engine: Weak<Engine>,
) {
    let mut rests = Backoff::new(every.min(SOONEST), every.min(LATEST));
    loop {
        let Some(asked) = engine.upgrade().map(|engine| engine.clock.now()) else { return };
        // All of the program's code is called within, also what drops the tasks there were.
        let answer = guarded(async {
            let answer = ask().await;
            let Some(registry) = registry.upgrade() else { return answer.map(drop) };
            answer.map(|tasks| registry.replace(tasks))
        });
        let answer = noticed(answer, asked, &registry, &engine).await;
        let (Some(registry), Some(engine)) = (registry.upgrade(), engine.upgrade()) else { return };
        let rest = match answer {
            Ok(Ok(())) => {
                engine.task_source_works(&registry.shared.spread);
                rests.reset();
                jittered(every, engine.entropy.roll())
            }
            Ok(Err(error)) => {
                let (spread, namespace) = (&registry.shared.spread, engine.config.namespace());
                words::warn!(%spread, %namespace, error, "the task source failed, keeping the current tasks");
                engine.task_source_failed(spread, asked, &error);
                rests.next(engine.entropy.roll())
            }
            Err(panic) => {
                panicked(&engine, &registry, asked, &panic);
                rests.next(engine.entropy.roll())
            }
        };
        drop((registry, engine));
        tokio::time::sleep(rest).await;
    }
}

/// Waits for the answer of a source. For as long as it does not come, that is a trouble.
async fn noticed<M: Clone, T>(
    answer: impl Future<Output = T>,
    asked: Moment,
    registry: &Weak<TaskRegistry<M>>,
    engine: &Weak<Engine>,
) -> T {
    let mut answer = pin!(answer);
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            () = tokio::time::sleep(PATIENCE) => {}
        }
        let (Some(registry), Some(engine)) = (registry.upgrade(), engine.upgrade()) else { continue };
        let waited = engine.clock.now().since(asked).as_secs();
        let error = format!("its task source has not answered for {waited} s");
        engine.task_source_failed(&registry.shared.spread, asked, &error);
    }
}

fn panicked<M>(engine: &Engine, registry: &TaskRegistry<M>, asked: Moment, panic: &str) {
    let (spread, namespace) = (&registry.shared.spread, engine.config.namespace());
    words::error!(%spread, %namespace, panic, "the task source panicked, keeping the current tasks");
    engine.task_source_failed(spread, asked, &format!("panicked: {panic}"));
}

/// Runs the program's code; a panic is an error with its message.
async fn guarded<T>(code: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(code).catch_unwind().await.map_err(|panic| panic_message(&*panic))
}
