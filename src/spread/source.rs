//! Where the tasks come from.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture};

use super::shell::Shared;
use crate::{
    core::backoff::{Backoff, jittered},
    elect::{Elect, Engine},
    model::{Key, LimitError},
};

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

type Ask<M> = Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<Task<M>>, String>> + Send + Sync>;

pub(super) enum Source<M> {
    Fixed(BTreeMap<Key, M>),
    Stream(Pin<Box<dyn Stream<Item = Change<M>> + Send>>),
    Asked { every: Duration, ask: Ask<M> },
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
pub(crate) struct Book<M> {
    tasks: Mutex<BTreeMap<Key, M>>,
    shared: Arc<Shared>,
}

impl<M> fmt::Debug for Book<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book").finish_non_exhaustive()
    }
}

impl<M: Clone> Book<M> {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { tasks: Mutex::default(), shared }
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<Key, M>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
        book: &Arc<Book<M>>,
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
            Self::Stream(mut changes) => async move {
                while let Some(change) = changes.next().await {
                    let Some(book) = weak.upgrade() else { return };
                    book.apply(change);
                }
            }
            .boxed(),
            Self::Asked { every, ask } => {
                let (engine, spread) = (Arc::downgrade(elect.engine()), book.shared.spread.clone());
                async move {
                    let mut rests = Backoff::new(every.min(Duration::from_secs(1)), every);
                    loop {
                        let answer = ask().await;
                        let (Some(book), Some(engine)) = (weak.upgrade(), engine.upgrade()) else { return };
                        let rest = match answer {
                            Ok(tasks) => {
                                book.apply(Change::Replace(tasks));
                                rests.reset();
                                jittered(every, roll(&engine))
                            }
                            Err(error) => {
                                tracing::warn!(%spread, namespace = %engine.config.namespace(), error, "the tasks of a spread were not told, they stay as they were");
                                rests.next(roll(&engine))
                            }
                        };
                        drop((book, engine));
                        tokio::time::sleep(rest).await;
                    }
                }
                .boxed()
            }
        };
        Some(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = follow => {}
            }
        })
    }
}

fn roll(engine: &Engine) -> u64 {
    engine.entropy.roll()
}
