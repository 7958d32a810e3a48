//! Instances that share schedules, and what was run.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tenure::{
    Elect, ElectConfig, Lease,
    model::{Entry, Namespace, Outcome, RunRecord, ScheduleId, ScheduleName, StoreTime},
    schedule::{Schedule, ScheduleBuilder, Tick},
    store::{Definition, MemoryStore, Store, StoreExt},
    testing::{Counting, Faulty, Intercept, Intercepted, Rates, TestClock},
};
use tenure_sim::Gate;

use crate::numbers::namespace;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
pub(crate) const NAME: &str = "report";

/// Durations of the members.
#[derive(Clone, Copy)]
enum Pace {
    Usual,
    Short,
    Long,
}

/// A store with a clock of its own, and a registry of what was run.
pub(crate) struct Crew {
    /// The store's clock.
    pub(crate) clock: Arc<TestClock>,
    pub(crate) memory: MemoryStore,
    pub(crate) registry: Arc<Registry>,
    pace: Pace,
    /// No hint reaches any member.
    deaf: bool,
    /// Retention of the history in the configuration, if any.
    kept: Option<(Duration, usize)>,
    seed: AtomicU64,
}

/// A run, as its job saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) instant: StoreTime,
    pub(crate) attempt: u32,
    pub(crate) by: String,
    /// Beginning, by the store's clock.
    pub(crate) at: StoreTime,
}

/// Registry of runs. It fails if a schedule is run twice at once.
#[derive(Default)]
pub(crate) struct Registry {
    runs: Mutex<Vec<Run>>,
    running: Mutex<BTreeMap<ScheduleName, String>>,
}

pub(crate) struct Running(Arc<Registry>, ScheduleName);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.lock().unwrap().remove(&self.1);
    }
}

impl Registry {
    pub(crate) fn begin(self: &Arc<Self>, tick: &Tick, by: &str, at: StoreTime) -> Running {
        let before = self.running.lock().unwrap().insert(tick.schedule().clone(), by.to_owned());
        assert_eq!(before, None, "{tick} runs at {by}, too");
        let run = Run { instant: tick.scheduled_at(), attempt: tick.attempt(), by: by.to_owned(), at };
        self.runs.lock().unwrap().push(run);
        Running(self.clone(), tick.schedule().clone())
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap().clone()
    }

    pub(crate) fn instants(&self) -> Vec<StoreTime> {
        self.runs().into_iter().map(|run| run.instant).collect()
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.running.lock().unwrap().is_empty()
    }
}

/// An instance.
pub(crate) struct Member {
    pub(crate) elect: Elect,
    pub(crate) gate: Gate,
    pub(crate) counts: Arc<Intercepted<Counting>>,
    pub(crate) faulty: Arc<Intercepted<Faulty>>,
    pub(crate) schedule: Option<Schedule>,
}

impl Member {
    /// Ends it as a crash would.
    pub(crate) async fn kill(self) {
        self.gate.kill();
        tokio::time::sleep(SECOND / 1000).await;
    }

    /// By what its schedule goes, as the store says.
    pub(crate) async fn definition(&self) -> Definition {
        let status = self.schedule.as_ref().unwrap().status().await.unwrap().unwrap();
        status.record.definition.unwrap()
    }
}

impl Crew {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        let memory = MemoryStore::new(clock.clone());
        Self {
            clock,
            memory,
            registry: Arc::default(),
            pace: Pace::Usual,
            deaf: false,
            kept: None,
            seed: AtomicU64::new(1),
        }
    }

    /// With durations that make for quick takeovers.
    pub(crate) fn short() -> Self {
        Self { pace: Pace::Short, ..Self::new() }
    }

    /// With beats so rare that days take little computing.
    pub(crate) fn long() -> Self {
        Self { pace: Pace::Long, ..Self::new() }
    }

    /// Without hints.
    pub(crate) fn deaf() -> Self {
        Self { deaf: true, ..Self::new() }
    }

    /// With so much history.
    pub(crate) fn keeping(younger_than: Duration, at_least: usize) -> Self {
        Self { kept: Some((younger_than, at_least)), ..Self::new() }
    }

    /// With chances of its own.
    pub(crate) fn seeded(self, seed: u64) -> Self {
        Self { seed: AtomicU64::new(seed), ..self }
    }

    /// The store's time.
    pub(crate) fn now(&self) -> StoreTime {
        tenure::Clock::wall(&*self.clock)
    }

    fn config(&self, holder: &str) -> ElectConfig {
        let config = ElectConfig::new(namespace(), holder).unwrap();
        let config = match self.kept {
            Some((time, entries)) => config.with_retention_runs(time).with_retention_run_entries(entries),
            None => config,
        };
        match self.pace {
            Pace::Usual => config,
            Pace::Short => config
                .with_hold_duration(2 * SECOND)
                .with_refresh_interval(SECOND / 2)
                .with_refresh_duration(3 * SECOND),
            Pace::Long => config.with_refresh_interval(MINUTE).with_refresh_duration(6 * MINUTE),
        }
    }

    /// An instance whose own wall clock is somewhere else.
    pub(crate) async fn member(&self, holder: &str) -> Member {
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        let clock = TestClock::new();
        let off = Duration::from_secs(seed * 7919 % 300);
        if seed.is_multiple_of(2) {
            clock.step_wall(off);
        } else {
            clock.step_wall_back(off);
        }
        let hint_lost = if self.deaf { 1000 } else { 0 };
        let faulty = Faulty::seeded(seed, Rates { hint_lost, ..Rates::default() });
        let faulty = faulty.around(Arc::new(self.memory.clone()));
        let counts = Counting::default().around(faulty.clone());
        let (store, gate): (Arc<dyn Store>, _) = (counts.clone(), Gate::default());
        let builder = Elect::builder(store, self.config(holder)).clock(Arc::new(clock));
        let elect = builder.tasks(Arc::new(gate.clone())).seed(seed).start().await.unwrap();
        Member { elect, gate, counts, faulty, schedule: None }
    }

    /// An instance with the schedule.
    pub(crate) async fn with(
        &self,
        holder: &str,
        expression: &str,
        set: impl FnOnce(ScheduleBuilder) -> ScheduleBuilder,
    ) -> Member {
        let mut member = self.member(holder).await;
        let schedule = set(member.elect.schedule(NAME, expression)).run(self.job(holder, Duration::ZERO));
        member.schedule = Some(schedule.unwrap());
        member
    }

    /// An instance with the schedule and another job.
    pub(crate) async fn with_job<F>(
        &self,
        holder: &str,
        expression: &str,
        set: impl FnOnce(ScheduleBuilder) -> ScheduleBuilder,
        job: impl Fn(Tick, Lease) -> F + Send + Sync + 'static,
    ) -> Member
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let mut member = self.member(holder).await;
        member.schedule = Some(set(member.elect.schedule(NAME, expression)).run(job).unwrap());
        member
    }

    /// A job that takes so long, and stops when it is told to.
    pub(crate) fn job(
        &self,
        holder: &str,
        takes: Duration,
    ) -> impl Fn(Tick, Lease) -> futures::future::BoxFuture<'static, Result<(), String>> + Send + Sync + 'static
    {
        let (registry, clock, holder) = (self.registry.clone(), self.clock.clone(), holder.to_owned());
        move |tick, lease| {
            let (registry, clock, holder) = (registry.clone(), clock.clone(), holder.clone());
            Box::pin(async move {
                let _running = registry.begin(&tick, &holder, tenure::Clock::wall(&*clock));
                if takes.is_zero() {
                    return Ok(());
                }
                tokio::select! {
                    biased;
                    () = lease.cancelled() => Err("cancelled".to_owned()),
                    () = tokio::time::sleep(takes) => Ok(()),
                }
            })
        }
    }

    pub(crate) fn id(name: &str) -> ScheduleId {
        ScheduleId { namespace: Namespace::new("test").unwrap(), name: ScheduleName::new(name).unwrap() }
    }

    /// The ledger, earliest entry first.
    pub(crate) async fn ledger(&self) -> Vec<RunRecord> {
        let history = self.memory.history(Self::id(NAME), None, usize::MAX, SECOND).await.unwrap();
        let mut runs = history.items;
        runs.reverse();
        runs
    }

    /// The ledger in words: instants since the store's clock began, what they are of, how they ended.
    pub(crate) async fn told(&self) -> Vec<String> {
        self.ledger().await.iter().map(told).collect()
    }

    /// Instants of ticks that succeeded.
    pub(crate) async fn succeeded(&self) -> Vec<StoreTime> {
        let ledger = self.ledger().await;
        let ticks = ledger.iter().filter(|run| run.id.entry == Entry::Tick && run.has_succeeded());
        ticks.map(|run| run.id.instant).collect()
    }
}

/// First instant of the store's clock.
pub(crate) const BEGINNING: StoreTime = StoreTime::from_millis(1_767_225_600_000);

fn told(run: &RunRecord) -> String {
    let since = |at: StoreTime| {
        let text = at.to_string();
        text.trim_start_matches("2026-01-01T").trim_end_matches('Z').to_owned()
    };
    let outcome = run.finish.as_ref().map_or("open", |finish| match finish.outcome {
        Outcome::Skipped => "skipped",
        outcome => outcome.as_str(),
    });
    let at = since(run.id.instant);
    match (&run.skipped, run.id.entry) {
        (Some(skipped), _) => format!("{}-{at} {} {}", since(skipped.from), skipped.count, skipped.why),
        (None, Entry::Order) => format!("{at} ordered {outcome} {}", run.attempt),
        _ => format!("{at} {outcome} {}", run.attempt),
    }
}

/// The time so many seconds after the beginning.
pub(crate) fn at(seconds: u64) -> StoreTime {
    BEGINNING.plus(Duration::from_secs(seconds))
}

/// Whole seconds from one to the other, both included.
pub(crate) fn every_second(from: StoreTime, to: StoreTime) -> Vec<StoreTime> {
    (from.as_millis()..=to.as_millis()).step_by(1000).map(StoreTime::from_millis).collect()
}

/// Lets so much time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
