//! N keyed tasks, spread over the instances that take part.
//!
//! Each instance brings a share: the tasks it knows, how many it may have at most, and its weight. All compute
//! the same plan from the store's records, and each does its own part of it: it gives away the tasks it has too
//! many of, straight to the instances that are to have them, and takes free tasks that are to be its own. No
//! instance takes a task from one that is alive.
//!
//! ```text
//!  hints, looks ──▶ view (logic/view) ────────▶ plan (logic/plan) ──▶ actions ──▶ actor
//!                        ▲                                                       │
//!                        └────────── locks granted, given, lost ◀── workers ◀────┘
//! ```
//!
//! ```
//! use std::sync::Arc;
//! use tenure::{Elect, ElectConfig, store::MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ElectConfig::new("shop", "pod-1")?;
//! let elect = Elect::start(MemoryStore::default(), config).await?;
//! let broker = Arc::new("amqp://broker"); // a client of yours
//! let topics = elect.spread("topics").tasks(["orders", "prices", "stock"]).cap(20).run(move |task, lease| {
//!     let broker = broker.clone(); // called once for each start of a task
//!     async move {
//!         println!("subscribes to {} at {broker}", task.key());
//!         lease.cancelled().await;
//!         Ok::<_, String>(())
//!     }
//! })?;
//! topics.until(|status| status.share().len() == 3).await;
//! elect.close().await;
//! # Ok(())
//! # }
//! ```

mod absorb;
mod act;
mod actor;
mod explain;
mod handle;
mod metrics;
mod move_permit;
mod put_back;
mod reading;
mod records;
mod shared;
mod source;
mod startup;
mod state;
mod view;
mod worker;

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;

pub use explain::Explanation;
pub use handle::Spread;
pub(crate) use move_permit::{BusyGuard, MovePermit};
pub use source::Task;
pub use startup::HeldBack;
pub use state::TaskState;
pub use view::{Member, SpreadStatus};
pub use worker::Phase;
pub(crate) use worker::Start;

use crate::{
    elect::{Elect, Error, Lease, Wants, call_blocking},
    model::{Key, LimitError, SCHEDULES, SpreadName},
    store::Share,
};
use actor::SpreadActor;
use shared::Shared;
use source::{Source, TaskRegistry};
use worker::{Done, JobRules};

/// Failures in a row before a task rests, and another instance tries: the rests between them add up to more
/// than a restart of a dependency takes.
const TRIES: u32 = 5;

/// Shortest rest: with a shorter one an instance would do nothing but begin again.
const SHORTEST_REST: Duration = Duration::from_millis(10);

/// Mistake in the tasks that were given.
enum Slip {
    Limit(LimitError),
    Twice(Key),
}

/// Builder of a spread to take part in. Made by [`Elect::spread`].
#[must_use = "an instance joins the spread when it is run"]
pub struct SpreadBuilder<M = ()> {
    elect: Elect,
    spread: Result<SpreadName, LimitError>,
    source: Result<Source<M>, Slip>,
    cap: u32,
    weight: u32,
    rules: JobRules,
    lock_delay: Duration,
}

impl<M> fmt::Debug for SpreadBuilder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpreadBuilder").field("spread", &self.spread).finish_non_exhaustive()
    }
}

impl SpreadBuilder {
    pub(crate) fn new(elect: Elect, spread: impl AsRef<str>) -> Self {
        Self {
            elect,
            spread: SpreadName::new(spread),
            source: Ok(Source::none()),
            cap: u32::MAX,
            weight: 1,
            rules: JobRules { done: Done::Again(None), tries: TRIES, gives_up_on: |_| false },
            lock_delay: Duration::ZERO,
        }
    }

    /// Sets the tasks, each once. [`Spread`] can add some and remove some: an instance that begins with none takes part,
    /// and gets none until then.
    pub fn tasks<K: AsRef<str>>(self, keys: impl IntoIterator<Item = K>) -> Self {
        self.tasks_with(keys.into_iter().map(|key| (key, ())))
    }

    /// Sets the tasks, each once and with data for its job.
    pub fn tasks_with<K: AsRef<str>, M>(self, tasks: impl IntoIterator<Item = (K, M)>) -> SpreadBuilder<M> {
        let mut known = BTreeMap::new();
        for (key, meta) in tasks {
            match Key::new(key) {
                // Of two, one would be left out, with the data for its job.
                Ok(key) if known.contains_key(&key) => return self.with_source(Err(Slip::Twice(key))),
                Ok(key) => drop(known.insert(key, meta)),
                Err(error) => return self.with_source(Err(Slip::Limit(error))),
            }
        }
        self.with_source(Ok(Source::Fixed(known)))
    }

    /// Asks a closure for the tasks, now and at that interval, which is 10 ms at least. When it fails they stay as they
    /// are, and it is asked again. An answer that does not come for a minute is a trouble in `health()`, and is awaited:
    /// it is asked again only then. What may hang needs a limit of its own.
    ///
    /// The spread is joined with the first answer.
    pub fn tasks_by<M, E, F>(
        self,
        every: Duration,
        ask: impl Fn() -> F + Send + Sync + 'static,
    ) -> SpreadBuilder<M>
    where
        F: Future<Output = Result<Vec<Task<M>>, E>> + Send + 'static,
        E: fmt::Display,
        M: Send + 'static,
    {
        let ask = move || ask().map(|tasks| tasks.map_err(|error| error.to_string())).boxed();
        self.with_source(Ok(Source::Asked { every, ask: Arc::new(ask) }))
    }

    fn with_source<M>(self, source: Result<Source<M>, Slip>) -> SpreadBuilder<M> {
        let Self { elect, spread, cap, weight, rules, lock_delay, .. } = self;
        SpreadBuilder { elect, spread, source, cap, weight, rules, lock_delay }
    }
}

impl<M: Clone + Send + Sync + 'static> SpreadBuilder<M> {
    /// Sets the most tasks this instance may have; with 0 it gets none until [`Spread::set_cap`] allows some. Default:
    /// no limit.
    pub const fn cap(mut self, cap: u32) -> Self {
        self.cap = cap;
        self
    }

    /// Sets this instance's part in proportion to that of the others. Default: 1. With 0 it gets nothing.
    pub const fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the rest of a job that returned `Ok` before it is run again, here and under the same term.
    /// At least 10 ms. Default: `refresh_interval`.
    pub const fn again_after(mut self, rest: Duration) -> Self {
        self.rules.done = Done::Again(Some(rest));
        self
    }

    /// Has a task whose job returned `Ok` never run again, by any instance. The store remembers.
    ///
    /// A job that is cancelled before it is through must return an error, therefore: it is run again elsewhere, and the
    /// error does not count.
    pub const fn done_for_good(mut self) -> Self {
        self.rules.done = Done::ForGood;
        self
    }

    /// Sets how often a job may fail in a row, with rests from a second up to a third of `refresh_duration`, before its task
    /// is given up. Then another instance with room tries in the same way; after three of them, or all that have room, the
    /// task rests for a twelfth of the time it has been failing, from a second up to an hour, and is tried again.
    /// Default: 5.
    pub const fn tries(mut self, tries: u32) -> Self {
        self.rules.tries = tries;
        self
    }

    /// Names the errors, by their texts, after which a task is given up at once, whatever [`tries`](Self::tries) says:
    /// those that will be the same here each time. Default: none.
    pub const fn give_up_on(mut self, predicate: fn(&str) -> bool) -> Self {
        self.rules.gives_up_on = predicate;
        self
    }

    /// Keeps the tasks of this instance, if it dies, closed for so long after its death is declared: time for work
    /// already sent to arrive.
    pub const fn lock_delay(mut self, time: Duration) -> Self {
        self.lock_delay = time;
        self
    }

    /// Takes part: runs the job of each task that falls to this instance, until it goes elsewhere.
    ///
    /// The job should return soon after its [token](Lease::token) fires: when `stop_grace` is over it is
    /// dropped at its next `.await`.
    ///
    /// # Errors
    /// A limit is broken, a task is given twice, a rest is shorter than 10 ms, the instance takes part in this spread
    /// already, or the engine is closed.
    pub fn run<E, F>(
        self,
        job: impl Fn(Task<M>, Lease) -> F + Send + Sync + 'static,
    ) -> Result<Spread<M>, Error>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let spread = self.spread.clone()?;
        if spread.as_str() == SCHEDULES {
            return Err(Error::Reserved(spread));
        }
        let job = Arc::new(job);
        self.begin(move |registry: Arc<TaskRegistry<M>>| {
            Arc::new(move |key, lease, _| {
                let job = job.clone();
                // All of the program's code is called within the guarded poll, or panics there.
                Some(match catch_unwind(AssertUnwindSafe(|| registry.task(key))) {
                    Ok(task) => {
                        let task = task?;
                        async move { job(task, lease).await.map_err(|error| error.to_string()) }.boxed()
                    }
                    Err(panic) => async move { resume_unwind(panic) }.boxed(),
                })
            })
        })
    }

    /// Takes part like [`run`](Self::run), with a job that gets a clone of `state` at each call: an `async fn`, or an
    /// `async` closure that captures nothing.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with<S, E, F>(
        self,
        state: S,
        job: impl Fn(S, Task<M>, Lease) -> F + Send + Sync + 'static,
    ) -> Result<Spread<M>, Error>
    where
        S: Clone + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        self.run(move |task, lease| job(state.clone(), task, lease))
    }

    /// Takes part like [`run`](Self::run), with a job that blocks its thread: each run has a thread of its own.
    ///
    /// The job learns that it is to stop from its [token](Lease::token), by
    /// [`is_cancelled`](Lease::is_cancelled). It cannot be dropped: its task stays here until it has returned, also
    /// if that is after `stop_grace`, and no other instance gets it before, unless this instance's session ends. A call
    /// that goes on after that is reported as [overran](crate::Event::Overran).
    ///
    /// A run for which no thread can be started fails, and never begins.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_blocking<E>(
        self,
        job: impl Fn(Task<M>, Lease) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<Spread<M>, Error>
    where
        E: fmt::Display + Send + 'static,
    {
        let job = Arc::new(job);
        self.run(move |task, lease| {
            let job = job.clone();
            async move {
                let call = move |lease| job(task, lease).map_err(|error| error.to_string());
                call_blocking(&lease, call).await
            }
        })
    }

    /// Takes part, with a function that starts the work on a task.
    pub(crate) fn begin(self, start: impl FnOnce(Arc<TaskRegistry<M>>) -> Start) -> Result<Spread<M>, Error> {
        let Self { elect, spread, source, cap, weight, rules, lock_delay } = self;
        let spread = spread?;
        let source = source.map_err(|slip| match slip {
            Slip::Limit(error) => Error::Limit(error),
            Slip::Twice(key) => Error::Twice { spread: spread.clone(), key },
        })?;
        for (setting, rest) in [("again_after", rules.done.rest()), ("tasks_by", source.every())] {
            if let Some(rest) = rest.filter(|rest| *rest < SHORTEST_REST) {
                return Err(Error::Rest { spread, setting, rest, least: SHORTEST_REST });
            }
        }
        if elect.engine().is_closed() {
            return Err(Error::Closed);
        }
        let inbox = elect.engine().spreads.join(&spread).ok_or_else(|| Error::Joined(spread.clone()))?;
        elect.engine().listen();
        metrics::joined(elect.engine(), &spread);
        let share = Share { cap, weight, ..Share::new(spread.clone()) };
        let shared = Arc::new(Shared::new(spread, share));
        let registry = Arc::new(TaskRegistry::new(shared.clone()));
        let start = start(registry.clone());
        let wants = Wants { lock_delay, ..Wants::default() };
        let actor = SpreadActor::new(elect.clone(), shared.clone(), inbox, start, rules, wants);
        let runtime = elect.engine().runtime.clone();
        let task = runtime.spawn(actor.run());
        if let Some(follow) = source.begin(&registry, &elect) {
            runtime.spawn(follow);
        }
        Ok(Spread::new(elect, shared, registry, task))
    }
}

impl Elect {
    /// Takes part in a spread: N keyed tasks over the instances that join it. See [`SpreadBuilder`].
    pub fn spread(&self, name: impl AsRef<str>) -> SpreadBuilder {
        SpreadBuilder::new(self.clone(), name)
    }
}
