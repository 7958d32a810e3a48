//! Where the tasks come from.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture};

use super::shared::Shared;
use crate::{
    clock::Moment,
    elect::{Elect, Engine, panic_message},
    logic::backoff::{Backoff, jittered},
    model::{Key, LimitError},
    sync::locked,
};

/// Who has failed to tell the tasks is asked again after so long at first,
const SOONEST: Duration = Duration::from_secs(1);
/// and after so long at most.
const LATEST: Duration = Duration::from_secs(60);

/// A task of a spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task<M = ()> {
    key: Key,
    meta: M,
}

impl<M> Task<M> {
    /// A task of that key, with what its job is to know of it.
    ///
    /// # Errors
    /// The key breaks a limit.
    pub fn new(key: impl AsRef<str>, meta: M) -> Result<Self, LimitError> {
        Ok(Self { key: Key::new(key)?, meta })
    }

    /// Its key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// What its job is to know of it. A job that runs keeps what it was started with.
    #[must_use]
    pub const fn meta(&self) -> &M {
        &self.meta
    }
}

/// A change of the tasks there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<M = ()> {
    /// There is this one, too, or in place of the one of the same key.
    Add(Task<M>),
    /// There is no task of this key any more.
    Remove(Key),
    /// There are these, and no others.
    Replace(Vec<Task<M>>),
}

type TaskQuery<M> = Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<Task<M>>, String>> + Send + Sync>;

pub(super) enum Source<M> {
    Fixed(BTreeMap<Key, M>),
    Stream(Pin<Box<dyn Stream<Item = Change<M>> + Send>>),
    Asked { every: Duration, ask: TaskQuery<M> },
}

impl<M> Source<M> {
    /// How often they are asked for, if they are.
    pub(super) const fn every(&self) -> Option<Duration> {
        if let Self::Asked { every, .. } = self { Some(*every) } else { None }
    }

    pub(super) const fn none() -> Self {
        Self::Fixed(BTreeMap::new())
    }
}

/// The tasks there are, and what is known of each.
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

    /// A task as its job gets it: the program's code clones what is known of it.
    pub(super) fn task(&self, key: &Key) -> Option<Task<M>> {
        let meta = self.tasks().get(key).cloned()?;
        Some(Task { key: key.clone(), meta })
    }

    pub(super) fn apply(&self, change: Change<M>) {
        match change {
            // Under one lock, so that the two never differ for long.
            Change::Add(task) => {
                let mut tasks = self.tasks();
                tasks.insert(task.key.clone(), task.meta);
                self.shared.change(|state| state.keys.get_or_insert_default().insert(task.key));
            }
            Change::Remove(key) => {
                let mut tasks = self.tasks();
                tasks.remove(&key);
                self.shared.change(|state| state.keys.get_or_insert_default().remove(&key));
            }
            Change::Replace(tasks) => {
                self.replace(tasks.into_iter().map(|task| (task.key, task.meta)).collect());
            }
        }
    }

    fn replace(&self, tasks: BTreeMap<Key, M>) {
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
    /// Brings the tasks; what is left to do goes on until the spread stops.
    pub(super) fn begin(
        self,
        book: &Arc<TaskRegistry<M>>,
        elect: &Elect,
    ) -> Option<impl Future<Output = ()> + use<M>> {
        let stop = book.shared.stop.clone();
        // Who follows the tasks keeps neither the spread nor the engine.
        let weak = Arc::downgrade(book);
        let follow = match self {
            Self::Fixed(tasks) => {
                book.replace(tasks);
                return None;
            }
            Self::Stream(changes) => listen(changes, weak, Arc::downgrade(elect.engine())).boxed(),
            Self::Asked { every, ask } => inquire(every, ask, weak, Arc::downgrade(elect.engine())).boxed(),
        };
        let (engine, spread) = (Arc::downgrade(elect.engine()), book.shared.spread.clone());
        Some(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = follow => {}
            }
            if let Some(engine) = engine.upgrade() {
                engine.tasks_told(&spread);
            }
        })
    }
}

/// Asks for the tasks again and again. What fails, and what panics, is asked again.
async fn inquire<M: Clone>(
    every: Duration,
    ask: TaskQuery<M>,
    book: Weak<TaskRegistry<M>>,
    engine: Weak<Engine>,
) {
    let mut rests = Backoff::new(every.min(SOONEST), every.min(LATEST));
    loop {
        let Some(asked) = engine.upgrade().map(|engine| engine.clock.now()) else { return };
        // All of the program's code is called within, also what drops the tasks there were.
        let answer = guarded(async {
            let answer = ask().await;
            let Some(book) = book.upgrade() else { return answer.map(drop) };
            answer.map(|tasks| book.apply(Change::Replace(tasks)))
        })
        .await;
        let (Some(book), Some(engine)) = (book.upgrade(), engine.upgrade()) else { return };
        let rest = match answer {
            Ok(Ok(())) => {
                engine.tasks_told(&book.shared.spread);
                rests.reset();
                jittered(every, engine.entropy.roll())
            }
            Ok(Err(error)) => {
                let (spread, namespace) = (&book.shared.spread, engine.config.namespace());
                tracing::warn!(%spread, %namespace, error, "the tasks of a spread were not told, they stay as they were");
                engine.tasks_not_told(spread, asked, &error);
                rests.next(engine.entropy.roll())
            }
            Err(panic) => {
                panicked(&engine, &book, asked, &panic);
                rests.next(engine.entropy.roll())
            }
        };
        drop((book, engine));
        tokio::time::sleep(rest).await;
    }
}

/// Follows what a stream says. One that has panicked may be broken: that is told once, and it is polled again, ever
/// more seldom, until it says that it has ended.
async fn listen<M: Clone>(
    mut changes: Pin<Box<dyn Stream<Item = Change<M>> + Send>>,
    book: Weak<TaskRegistry<M>>,
    engine: Weak<Engine>,
) {
    let mut rests = Backoff::new(SOONEST, LATEST);
    loop {
        let change = guarded(async {
            let change = changes.next().await?;
            book.upgrade().map(|book| book.apply(change))
        });
        let change = change.await;
        let (Some(book), Some(engine)) = (book.upgrade(), engine.upgrade()) else { return };
        let rest = match change {
            Ok(None) => return,
            Ok(Some(())) => {
                engine.tasks_told(&book.shared.spread);
                rests.reset();
                continue;
            }
            Err(panic) if rests.is_fresh() => {
                panicked(&engine, &book, engine.clock.now(), &panic);
                rests.next(engine.entropy.roll())
            }
            Err(panic) => {
                engine.tasks_not_told(&book.shared.spread, engine.clock.now(), &panic);
                rests.next(engine.entropy.roll())
            }
        };
        drop((book, engine));
        tokio::time::sleep(rest).await;
    }
}

fn panicked<M>(engine: &Engine, book: &TaskRegistry<M>, asked: Moment, panic: &str) {
    let (spread, namespace) = (&book.shared.spread, engine.config.namespace());
    tracing::error!(%spread, %namespace, panic, "what tells the tasks of a spread panicked, they stay as they were");
    engine.tasks_not_told(spread, asked, &format!("panicked: {panic}"));
}

/// The program's code; what it said if it panicked.
async fn guarded<T>(code: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(code).catch_unwind().await.map_err(|panic| panic_message(&*panic))
}
