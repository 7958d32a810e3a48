//! Cron-style jobs: every tick once per fleet.
//!
//! Schedules are tasks of a spread: each has one owner, which alone looks at the clock. Before it runs a tick
//! it claims the tick in the ledger, under its term: this, and no clock, makes a tick run once. A wrong clock can
//! only change when.
//!
//! ```text
//!   wait until due ──▶ claim (schedule, instant) ──▶ job ──▶ finish: outcome, error
//!        ▲             in the ledger, by term                   │
//!        └──────────────────────────────────────────────────────┘
//! ```
//!
//! Ticks are due by the store's clock, as each instance estimates it from its beats: a host whose clock is
//! wrong fires with the others. When the store's clock jumps by more than a minute, schedules go on by the
//! old time until the new one has held for five minutes.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use tenure::{Elect, ElectConfig, schedule::{Misfire, Timing}, store::MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ElectConfig::new("shop", "pod-1")?;
//! let elect = Elect::start(MemoryStore::default(), config).await?;
//! let tables = Arc::new(["carts", "drafts"]); // a client of yours
//! let nightly = elect
//!     .schedule("cleanup", Timing::new("30 2 * * *").zone("Europe/London"))
//!     .misfire(Misfire::One { window: Duration::from_secs(12 * 60 * 60) })
//!     .timeout(Duration::from_secs(60 * 60))
//!     .run(move |tick, lease| {
//!         let tables = tables.clone(); // called once for each attempt
//!         async move {
//!             println!("{tick}: cleans {tables:?} under term {}", lease.term());
//!             Ok::<_, String>(())
//!         }
//!     })?;
//! println!("next: {:?}", nightly.next(5));
//! # nightly.run_now("the first time").await?;
//! elect.close().await;
//! # Ok(())
//! # }
//! ```

mod driver;
mod failure;
mod handle;
mod metrics;
mod overdue;
mod run;
mod runner;
mod spec;
mod status;
mod subscriptions;
mod tick;
mod timing;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures::FutureExt;

pub use crate::logic::{
    calendar::CalendarError,
    tick::{Misfire, NotRun, OnCrash, Overlap, Retries},
};
pub use failure::Failure;
pub use handle::{Schedule, Schedules};
pub use overdue::Overdue;
pub use status::{ScheduleRules, ScheduleStatus};
pub use tick::Tick;
pub use timing::Timing;

use crate::{
    elect::{Elect, Error, Lease, call_blocking},
    logic::tick::Policies,
    model::{LimitError, ScheduleId, ScheduleName},
};
use failure::OnFailure;
use runner::ScheduleRunner;
use spec::{Body, Keep, ScheduleSpec};

/// Builder of a schedule. Made by [`Elect::schedule`].
#[must_use = "a schedule does nothing until it is run"]
pub struct ScheduleBuilder {
    elect: Elect,
    name: Result<ScheduleName, LimitError>,
    timing: Timing,
    policies: Policies,
    keep: Keep,
    on_failure: Option<OnFailure>,
}

impl fmt::Debug for ScheduleBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleBuilder")
            .field("name", &self.name)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

impl ScheduleBuilder {
    /// Sets the zone of the IANA database whose clocks the expression is read by. Default: UTC.
    pub fn zone(mut self, zone: impl AsRef<str>) -> Self {
        self.timing = self.timing.zone(zone);
        self
    }

    /// Starts later by a part of this, always the same one, which the schedule's name decides. Default: none.
    pub fn spread_over(mut self, spread: Duration) -> Self {
        self.timing = self.timing.spread_over(spread);
        self
    }

    /// Sets what becomes of ticks that could not be run when they were due. Default: the latest is run, if it is no older
    /// than a week.
    pub const fn misfire(mut self, misfire: Misfire) -> Self {
        self.policies.misfire = misfire;
        self
    }

    /// Sets what becomes of a tick that falls due while the run before it is on. Default: it is not run.
    pub const fn overlap(mut self, overlap: Overlap) -> Self {
        self.policies.overlap = overlap;
        self
    }

    /// Sets what becomes of a run whose runner died. Default: it is begun again.
    pub const fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.policies.on_crash = on_crash;
        self
    }

    /// Sets how a job that failed is tried again. Default: not at all.
    pub const fn retries(mut self, retries: Retries) -> Self {
        self.policies.retries = retries;
        self
    }

    /// Limits the time of a job: then it is cancelled, by its lease's [token](Lease::token), and `stop_grace` later
    /// dropped. Default: no limit.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.policies.timeout = Some(timeout);
        self
    }

    /// Sets how much of its history is kept: what is younger than this, and so many entries at least; an hour or
    /// ten entries, or more. Default: `retention.runs` and `retention.run_entries` of the configuration,
    /// which are seven days and 100.
    pub const fn keep_history(mut self, younger_than: Duration, at_least: usize) -> Self {
        self.keep = Keep { younger_than, at_least };
        self
    }

    /// Sets a callback, called once for each tick or order that has failed for good: its last attempt did not succeed, and
    /// there will be no other. It is called in the instance that made this attempt, or that found its runner dead
    /// and may not begin the tick again; give all instances the same callback. A run that is cancelled and will be begun
    /// again elsewhere is no failure, nor is a tick that was [not run](crate::Event::NotRun).
    ///
    /// The failure is on record in the ledger before this is called. Calls come one after the other, beside
    /// the schedule's runs: they hold up none. A hundred wait while one is slow; further ones are left out, and
    /// the log says so. [`Elect::close`] waits for them within `stop_grace`. If the process ends before that,
    /// the callback is not called: what must not be missed is read from the [history](Schedules::history).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tenure::{Elect, schedule::{Failure, Tick}};
    /// # fn example(elect: &Elect, pager: Arc<str>) -> Result<(), tenure::Error> {
    /// let cleanup = elect
    ///     .schedule("cleanup", "@daily")
    ///     .on_failure(move |tick: Tick, failure: Failure| {
    ///         let pager = pager.clone();
    ///         async move { println!("to {pager}: {tick}: {failure}") }
    ///     })
    ///     .run(|_, _| async { Err("the disk is full") })?;
    /// # drop(cleanup);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_failure<F>(mut self, callback: impl Fn(Tick, Failure) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.on_failure = Some(Arc::new(move |tick, failure| callback(tick, failure).boxed()));
        self
    }

    /// Has the schedule run, by one of the instances that have one of this name.
    ///
    /// A job that returns `Ok` has done its work. One that is cancelled before it is through must return an error. It
    /// should return soon after its [token](Lease::token) fires: when `stop_grace` is over it is dropped at its next
    /// `.await`. It should await what it [spawns](Lease::spawn): that ends with the lease, which outlives the run, and
    /// learns only by the token that the run has ended.
    ///
    /// # Errors
    /// The name breaks a limit, the expression or zone is invalid, the expression has no instant, a policy lets
    /// nothing run, this instance has a schedule of this name already, or the engine is closed.
    pub fn run<E, F>(self, job: impl Fn(Tick, Lease) -> F + Send + Sync + 'static) -> Result<Schedule, Error>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let job = Arc::new(job);
        let call = move |tick, lease| {
            let job = job.clone();
            async move { job(tick, lease).await.map_err(|error| error.to_string()) }.boxed()
        };
        self.begin(Body { call: Arc::new(call), blocks: false })
    }

    /// Runs like [`run`](Self::run), with a job that gets a clone of `state` at each call: an `async fn`, or an `async`
    /// closure that captures nothing.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with<S, E, F>(
        self,
        state: S,
        job: impl Fn(S, Tick, Lease) -> F + Send + Sync + 'static,
    ) -> Result<Schedule, Error>
    where
        S: Clone + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        self.run(move |tick, lease| job(state.clone(), tick, lease))
    }

    /// Has it run like [`run`](Self::run), with a job that blocks its thread: each run has a thread of its own.
    ///
    /// The job learns that it is to stop from its [token](Lease::token), by [`is_cancelled`](Lease::is_cancelled). It
    /// cannot be dropped. One that goes on after its `timeout` and `stop_grace` holds up its schedule: the next run begins
    /// when it has returned, and the log says so. One that goes on after its lease is cancelled keeps the schedule here
    /// until it has returned, unless this instance's session ends; its outcome is not on record then, and the next owner
    /// of the schedule begins the tick again, as if its runner had died. A call that goes on after the session has ended
    /// is reported as [overran](crate::Event::Overran).
    ///
    /// A run for which no thread can be started fails, and never begins.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_blocking<E>(
        self,
        job: impl Fn(Tick, Lease) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<Schedule, Error>
    where
        E: fmt::Display + Send + 'static,
    {
        let job = Arc::new(job);
        let call = move |tick, lease: Lease| {
            let job = job.clone();
            let call = move |lease| job(tick, lease).map_err(|error| error.to_string());
            async move { call_blocking(&lease, call).await }.boxed()
        };
        self.begin(Body { call: Arc::new(call), blocks: true })
    }

    fn begin(self, body: Body) -> Result<Schedule, Error> {
        let Self { elect, name, timing, policies, keep, on_failure } = self;
        let name = name?;
        if elect.engine().is_closed() {
            return Err(Error::Closed);
        }
        spec::check(&name, policies, keep)?;
        let id = ScheduleId { namespace: elect.config().namespace().clone(), name: name.clone() };
        let spec = ScheduleSpec { on_failure, ..ScheduleSpec::new(id, timing, policies, keep, body)? };
        let runner = ScheduleRunner::of(&elect);
        let added = spec.id.clone();
        let key = runner.add(spec)?;
        metrics::added(elect.engine(), &added);
        Ok(Schedule::new(elect, runner, key, name))
    }
}

impl Elect {
    /// Schedules a job at the instants of an expression, once per fleet: see [`Timing`] for the expressions, and
    /// [`ScheduleBuilder`] for what else can be set.
    pub fn schedule(&self, name: impl AsRef<str>, timing: impl Into<Timing>) -> ScheduleBuilder {
        ScheduleBuilder {
            elect: self.clone(),
            name: ScheduleName::new(name),
            timing: timing.into(),
            policies: Policies::default(),
            keep: Keep {
                younger_than: self.config().retention_runs(),
                at_least: self.config().retention_run_entries(),
            },
            on_failure: None,
        }
    }
}
