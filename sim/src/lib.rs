//! Whole fleets, simulated: real engines on one store, a clock and a way to the store for each, and all
//! that can go wrong; judged from outside.
//!
//! A fleet runs on a tokio runtime of one thread whose time is paused. Everything is decided by one seed:
//! the same seed is the same [history](History), to the last poll. What happened is written by the store
//! (as applied), on the wire and by the programs, never by the engine; each [invariant](invariants) is
//! a small checker that reads it, and a [`Violation`] tells the seed and the story.
//!
//! ```no_run
//! use tenure_sim::{Plan, simulate};
//!
//! # fn example() -> Result<(), tenure_sim::Violation> {
//! let summary = simulate(42, &Plan::default())?;
//! println!("{} entries in {:?}", summary.entries, summary.time);
//! # Ok(())
//! # }
//! ```
//!
//! [`play`] runs a script instead of chance: for a case that chance would find too seldom.

#[cfg(not(tenure_sim))]
compile_error!(
    "the simulator needs an engine that can be broken on purpose: build it within tenure's repository, whose \
     .cargo/config.toml sets `--cfg tenure_sim`, and leave RUSTFLAGS unset"
);

mod clocks;
mod gate;
mod history;
mod instance;
pub mod invariants;
mod nemesis;
mod plan;
mod programs;
mod registry;
mod replicas;
mod schedules;
mod sharing;
mod shorten;
mod stores;
mod sum;
mod watched;

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

pub use clocks::{Drifting, Reference};
pub use gate::{Gate, Gated, block_for};
pub use history::{Entry, EventKind, History, Life, Reported, TickId, Violation, WorkKind};
pub use instance::Instance;
pub use plan::{Paces, Plan, Trouble};
pub use programs::JobBehaviour;
pub use registry::{Durations, Grant, Lease, Member, Registry, Session};
pub use schedules::{Habits, tick_id};
pub use shorten::{in_paused_time, shorten, simulate};
pub use stores::{Deviation, FaultInjector, Recording, Wire};
pub use sum::Sum;
pub use tenure::sim::Dice;
pub use watched::{Ended, Watched, Witness};

use invariants::{Census, Stage, StoreLedger};
use replicas::Replicas;
use stores::{Common, Tally};
use tenure::{
    ElectConfig,
    clock::Clock,
    model::{Key, Kind, LockId, ScheduleId, ScheduleName, SessionId, Term},
    store::{Ended as HowEnded, LockRecord, Note, StoreExt},
    testing::TestClock,
};

const SECOND: Duration = Duration::from_secs(1);

/// Of these cases of a test the first few, which are enough for each change; all of them with `SIM=whole`.
#[must_use]
pub fn cases<T>(all: &[T], few: usize) -> &[T] {
    if is_whole() { all } else { &all[..few] }
}

/// Returns whether the tests are to run all they have.
#[must_use]
pub fn is_whole() -> bool {
    std::env::var("SIM").is_ok_and(|what| what == "whole")
}

/// Summary of a run that violated nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The same for the same history.
    pub hash: u64,
    /// Number of events.
    pub entries: u64,
    /// Number of calls to the store.
    pub operations: u64,
    /// Number of faults: one by one, and with single calls.
    pub faults: u64,
    /// Number of grants.
    pub grants: u64,
    /// Number of them in the write that released the lock.
    pub hand_overs: u64,
    /// Number of them from a holder whose session was dead.
    pub takeovers: u64,
    /// Number of leases that were lost.
    pub losses: u64,
    /// For how long it ran, by the reference.
    pub time: Duration,
}

/// Runs a fleet by chance: programs and troubles, then quiet, in which everything must settle, then the
/// close of all.
///
/// # Errors
/// The first [`Violation`].
///
/// # Panics
/// On a runtime whose time is not paused it takes as long as it says; outside of one it panics.
pub async fn run(seed: u64, plan: Plan) -> Result<Summary, Violation> {
    play(seed, plan, async |fleet: Fleet| {
        for member in 0..fleet.plan().instances {
            fleet.start(member);
        }
        for _ in 0..fleet.plan().rounds {
            fleet.stir();
            fleet.run_programs();
            nemesis::rage(&fleet).await;
            fleet.settle().await;
        }
        fleet.close_all().await;
    })
    .await
}

/// Runs a fleet by a script. Nothing is started, and nothing goes wrong but what the script says and
/// what the [`Plan`] has by chance.
///
/// # Errors
/// The first [`Violation`]; the script is then dropped.
pub async fn play<F>(seed: u64, plan: Plan, script: impl FnOnce(Fleet) -> F) -> Result<Summary, Violation>
where
    F: Future<Output = ()>,
{
    let fleet = Fleet::new(seed, plan);
    let history = fleet.history().clone();
    let script = script(fleet.clone());
    tokio::select! {
        biased;
        () = history.violated_once() => {}
        () = script => {}
    }
    fleet.look_for_panics();
    let summary = fleet.summary();
    fleet.end().await;
    history.violation().map_or(Ok(summary), Err)
}

/// A fleet that runs. Clones are the same fleet.
#[derive(Clone, Debug)]
pub struct Fleet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    plan: Plan,
    history: History,
    reference: Reference,
    dice: Mutex<Dice>,
    store_clock: Arc<TestClock>,
    common: Common,
    slots: Vec<Mutex<Slot>>,
    /// Resources that the locks are for.
    resources: Mutex<BTreeMap<usize, u64>>,
    tags: AtomicU64,
    troubles: AtomicU64,
    tally: Arc<Tally>,
    /// Number of times that the dependency of the tasks' jobs was taken away and has not come back; and the token
    /// that fires when it is away.
    away: Mutex<(u32, CancellationToken)>,
    /// The task that kills the process it runs in.
    killer: Option<usize>,
    /// Fires when the programs are to end.
    enough: Mutex<CancellationToken>,
}

#[derive(Debug)]
struct Slot {
    lives: u32,
    gains: i32,
    running: Option<Instance>,
    /// Of all its lives.
    gates: Vec<Gate>,
    /// Gates of the lives that were closed in time.
    closed: Vec<(Life, Gate)>,
    /// A trouble of this instance goes on.
    troubled: bool,
}

impl Fleet {
    fn new(seed: u64, plan: Plan) -> Self {
        let mut dice = Dice::new(seed);
        let reference = Reference::start();
        let store_clock = Arc::new(TestClock::new());
        let durations = (0..plan.instances).map(|member| Durations::of(&config(&plan, member)));
        let habits = (0..plan.schedules).map(|schedule| Habits::of(&plan, schedule)).collect();
        let history =
            History::new(seed, reference, Registry::new(durations.collect()).with_schedules(habits));
        history.record(EventKind::StoreClock { shows: store_clock.wall() });
        let replicas = Replicas::new(store_clock.clone(), history.clone(), plan.deviation, dice.split(7));
        let slots = (0..plan.instances).map(|member| {
            let drift = u64::from(plan.drift());
            let gains = i32::try_from(dice.below(2 * drift + 1)).unwrap_or(0);
            // The first one goes right, so that moments fall together.
            let gains = if member == 0 { 0 } else { gains - i32::try_from(drift).unwrap_or(0) };
            Mutex::new(Slot {
                lives: 0,
                gains,
                running: None,
                gates: Vec::new(),
                closed: Vec::new(),
                troubled: false,
            })
        });
        let slots = slots.collect();
        let killer = (plan.has(Trouble::Killers) && plan.tasks > 0).then(|| dice.place(plan.tasks));
        Self(Arc::new(Shared {
            plan,
            history,
            reference,
            dice: Mutex::new(dice),
            store_clock,
            common: Common { replicas, deleted: Arc::default() },
            tally: Arc::default(),
            slots,
            resources: Mutex::default(),
            tags: AtomicU64::new(0),
            troubles: AtomicU64::new(0),
            away: Mutex::default(),
            killer,
            enough: Mutex::default(),
        }))
    }

    /// Plan it is made of.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.0.plan
    }

    /// History of the fleet.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.0.history
    }

    /// The clock of the store, to be turned.
    #[must_use]
    pub fn store_clock(&self) -> &TestClock {
        &self.0.store_clock
    }

    /// Dice of one's own.
    #[must_use]
    pub fn dice(&self) -> Dice {
        self.0.dice.lock().unwrap_or_else(PoisonError::into_inner).split(1)
    }

    fn slot(&self, member: usize) -> MutexGuard<'_, Slot> {
        self.0.slots[member].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The instance in that place, if it runs.
    #[must_use]
    pub fn instance(&self, member: usize) -> Option<Instance> {
        self.slot(member).running.clone()
    }

    /// All that run.
    #[must_use]
    pub fn instances(&self) -> Vec<Instance> {
        (0..self.0.plan.instances).filter_map(|member| self.instance(member)).collect()
    }

    /// A unique name, for a ticket.
    #[must_use]
    pub fn tag(&self, life: Life) -> String {
        format!("{life}-{}", self.0.tags.fetch_add(1, Ordering::Relaxed))
    }

    /// Records a fault.
    pub fn trouble(&self, what: impl Into<String>) {
        self.0.troubles.fetch_add(1, Ordering::Relaxed);
        self.0.history.record(EventKind::Fault(what.into()));
    }

    /// Takes the dependency of the tasks' jobs away, or brings it back.
    fn take_away(&self, away: bool) {
        let mut now = self.0.away.lock().unwrap_or_else(PoisonError::into_inner);
        now.0 = if away { now.0 + 1 } else { now.0 - 1 };
        if away {
            now.1.cancel();
        } else if now.0 == 0 {
            now.1 = CancellationToken::new();
        }
    }

    /// The task that kills the process it runs in.
    fn killer(&self) -> Option<usize> {
        self.0.killer
    }

    /// Fires when what the jobs of tasks need is away.
    fn is_away(&self) -> CancellationToken {
        self.0.away.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// A job kills the process it runs in, which starts again before long. Not while anything else ends it, or in
    /// quiet.
    fn is_killed(&self, life: Life, task: usize, again: Duration) {
        let member = life.member;
        if self.enough().is_cancelled() || std::mem::replace(&mut self.slot(member).troubled, true) {
            return;
        }
        let fleet = self.clone();
        // It outlives what it kills.
        tokio::spawn(async move {
            if fleet.instance(member).is_some_and(|instance| instance.life() == life) {
                fleet.trouble(format!("task {task} kills {life}, which starts again after {again:?}"));
                fleet.crash(member);
                let enough = fleet.enough();
                tokio::select! {
                    biased;
                    // All that do not run are started then.
                    () = enough.cancelled() => {}
                    () = tokio::time::sleep(again) => programs::run_some(&fleet.start(member)),
                }
            }
            fleet.slot(member).troubled = false;
        });
    }

    /// Starts the instance in that place, under its name.
    ///
    /// # Panics
    /// If one runs there.
    #[expect(clippy::must_use_candidate, reason = "the fleet keeps it")]
    pub fn start(&self, member: usize) -> Instance {
        let (life, gains) = {
            let mut slot = self.slot(member);
            assert!(slot.running.is_none(), "instance {member} runs already");
            slot.lives += 1;
            (Life { member, number: slot.lives }, slot.gains)
        };
        let mut dice = self.dice();
        // Boot clocks begin anywhere; the first one's with whole milliseconds.
        let ahead = dice.up_to(1_000_000 * SECOND);
        let clock = Arc::new(Drifting::new(self.0.reference, gains, ahead));
        let instance = Instance::start(self, life, clock, config(&self.0.plan, member), &mut dice);
        schedules::run_all(&instance);
        let mut slot = self.slot(member);
        slot.running = Some(instance.clone());
        slot.gates.push(instance.gate().clone());
        drop(slot);
        instance
    }

    /// Ends an instance without closing it: none of its tasks is polled again.
    pub fn crash(&self, member: usize) {
        if let Some(instance) = self.slot(member).running.take() {
            instance.record(EventKind::Crashed);
            instance.gate().kill();
        }
    }

    /// Closes an instance.
    pub async fn close(&self, member: usize) {
        self.close_for_restart(member, Duration::ZERO).await;
    }

    /// Closes an instance, and keeps its tasks for so long.
    pub async fn close_for_restart(&self, member: usize, grace: Duration) {
        let running = self.slot(member).running.clone();
        let Some(instance) = running else { return };
        instance.record(EventKind::Closes);
        let elect = instance.elect();
        let closed = if grace.is_zero() { elect.close().await } else { elect.close_for_restart(grace).await };
        let (overran, life, gate) = (closed.overran.len(), instance.life(), instance.gate().clone());
        instance.record(EventKind::Closed { overran });
        instance.ends();
        let mut slot = self.slot(member);
        slot.running = None;
        if overran == 0 {
            slot.closed.push((life, gate));
        }
    }

    /// Runs programs in all instances, drawn by chance, until [`settle`](Self::settle).
    pub fn run_programs(&self) {
        for instance in self.instances() {
            programs::run_some(&instance);
        }
    }

    /// Things go wrong again.
    pub fn stir(&self) {
        *self.enough_now() = CancellationToken::new();
        self.0.history.record(EventKind::Stirred);
        for instance in self.instances() {
            instance.weather().calm(false);
        }
    }

    /// Ends all faults. Every instance contends for every key, and before long each key is held: that is judged.
    pub async fn settle(&self) {
        self.enough().cancel();
        self.0.common.replicas.stall(false);
        self.0.common.replicas.one_primary();
        for member in 0..self.0.plan.instances {
            if self.instance(member).is_none() {
                self.start(member);
            }
        }
        for instance in self.instances() {
            instance.thaw(&mut self.dice(), 0).await;
            instance.weather().calm(true);
            instance.depose(false);
        }
        self.0.history.record(EventKind::Calm);
        let mut campaigns = Vec::new();
        for instance in self.instances() {
            for key in 0..self.0.plan.keys {
                campaigns.extend(programs::stand(&instance, key));
            }
        }
        let spreads = CancellationToken::new();
        for instance in self.instances().iter().filter(|_| self.0.plan.tasks > 0) {
            instance.gate().spawn(sharing::share(instance.clone(), spreads.clone()));
        }
        // Ticks that are due meanwhile are judged: each schedule has a tick of its own by then.
        let periods = (0..self.0.plan.schedules).map(|schedule| Habits::of(&self.0.plan, schedule).every);
        let rest = (self.longest_ttl() * 2).max(periods.max().unwrap_or_default()) + 15 * SECOND;
        tokio::join!(self.rest(rest), schedules::let_go_on(self));
        let census = self.census(true).await;
        self.0.history.judge(&Stage::Settled(census));
        spreads.cancel();
        for campaign in campaigns {
            campaign.stop().await;
        }
    }

    /// Waits for `rest` after the last wait that is long on purpose has ended; one that does not end is judged as it is.
    async fn rest(&self, rest: Duration) {
        // An instance that failed a task gets it last for so long.
        let most = (self.longest_ttl() * 30).max(15 * 60 * SECOND);
        let (mut left, mut rested) = (rest, Duration::ZERO);
        while !left.is_zero() {
            let step = left.min(SECOND);
            tokio::time::sleep(step).await;
            rested += step;
            left -= step;
            if rested < most && self.instances().iter().any(Instance::is_unsettled) {
                self.0.history.record(EventKind::Calm);
                left = rest;
            }
        }
    }

    /// Closes all instances; of instances that had closed in time nothing must be left.
    pub async fn close_all(&self) {
        for member in 0..self.0.plan.instances {
            self.close(member).await;
        }
        // Longer than the last handle of an engine waits for what is on its way.
        tokio::time::sleep(self.longest_ttl().max(6 * SECOND)).await;
        let census = self.census(false).await;
        self.0.history.judge(&Stage::Closed(census));
        self.look_for_panics();
    }

    fn longest_ttl(&self) -> Duration {
        let ttls = (0..self.0.plan.instances).map(|member| config(&self.0.plan, member).ttl());
        ttls.max().unwrap_or_default()
    }

    /// Counts the contents of the store and of the instances.
    pub async fn census(&self, all_stand: bool) -> Census {
        let Some(namespace) = NAMESPACE.parse().ok() else { return Census::default() };
        let common = &self.0.common;
        let locks = common.locks(&namespace).await;
        let held = locks
            .iter()
            .filter_map(|lock| Some((key_of(&lock.id.key)?, lock.term, lock.holding.as_ref()?.by.session)));
        let held: Vec<(usize, Term, SessionId)> = held.collect();
        let gave_up = locks.iter().flat_map(gave_up).collect();
        let alive = common.sessions(&namespace).await;
        let alive = alive.iter().filter(|session| session.is_alive()).map(|session| session.id).collect();
        let mut waiters = Vec::new();
        for key in self.0.plan.all_locks() {
            let queue =
                common.replicas.majority().waiters(lock_id(key), 10_000, SECOND).await.unwrap_or_default();
            waiters.extend(queue.waiters.iter().map(|waiter| (key, waiter.by.session, waiter.by.ticket)));
        }
        let mut lives = Vec::new();
        for member in 0..self.0.plan.instances {
            lives.extend(self.slot(member).closed.iter().map(|(life, gate)| (*life, gate.inside())));
        }
        let wanted = if all_stand { self.0.plan.locks().collect() } else { Vec::new() };
        let ledgers = self.ledgers().await;
        Census { wanted, held, gave_up, alive, waiters, lives, ledgers, store_shows: Some(self.store_now()) }
    }

    /// Ledgers of all schedules.
    async fn ledgers(&self) -> BTreeMap<usize, StoreLedger> {
        let mut ledgers = BTreeMap::new();
        for schedule in 0..self.0.plan.schedules {
            let majority = self.0.common.replicas.majority();
            let Ok(runs) = majority.history(schedule_id(schedule), None, usize::MAX, SECOND).await else {
                continue;
            };
            let entries = runs.items.into_iter().map(|run| {
                let tick = TickId { schedule, instant: run.id.instant, entry: run.id.entry };
                (tick, run.attempt)
            });
            ledgers.insert(schedule, StoreLedger { entries: entries.collect(), mark: runs.mark });
        }
        ledgers
    }

    fn look_for_panics(&self) {
        for member in 0..self.0.plan.instances {
            let slot = self.slot(member);
            for gate in &slot.gates {
                if let Some(said) = gate.panics().first() {
                    self.0
                        .history
                        .violate("no panic", format!("a task of instance {member} panicked: {said}"));
                }
            }
        }
    }

    fn summary(&self) -> Summary {
        let (history, tally) = (self.history(), &self.0.tally);
        let troubles = self.0.troubles.load(Ordering::Relaxed);
        let counts = history.registry(Registry::counts);
        Summary {
            hash: history.hash(),
            entries: history.entries(),
            operations: tally.operations.load(Ordering::Relaxed),
            faults: troubles + tally.faults.load(Ordering::Relaxed),
            grants: counts.grants,
            hand_overs: counts.hand_overs,
            takeovers: counts.takeovers,
            losses: counts.losses,
            time: history.now(),
        }
    }

    /// Lets go of everything, so that no thread is left.
    async fn end(&self) {
        self.enough().cancel();
        for member in 0..self.0.plan.instances {
            self.crash(member);
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    fn resources(&self) -> MutexGuard<'_, BTreeMap<usize, u64>> {
        self.0.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enough_now(&self) -> MutexGuard<'_, CancellationToken> {
        self.0.enough.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fires when the programs of this round are to end.
    fn enough(&self) -> CancellationToken {
        self.enough_now().clone()
    }

    /// The store's clock.
    fn store_now(&self) -> tenure::model::StoreTime {
        self.0.store_clock.wall()
    }
}

const NAMESPACE: &str = "fleet";

/// Id of the lock of that number.
///
/// # Panics
/// Never: a number is a name.
#[must_use]
pub fn lock_id(key: usize) -> LockId {
    let namespace = NAMESPACE.parse().expect("it is a name");
    let (kind, name) = if let Some(schedule) = key.checked_sub(FIRST_SCHEDULE) {
        (Kind::Schedule, schedule_name(schedule))
    } else if let Some(task) = key.checked_sub(FIRST_TASK) {
        (Kind::Task(SPREAD.parse().expect("it is a name")), task_name(task))
    } else {
        (Kind::Lock, format!("k{key}"))
    };
    LockId { namespace, kind, key: name.parse().expect("it is a name") }
}

/// Number of the spread's first task, among all locks.
pub const FIRST_TASK: usize = 1000;
/// The spread they are tasks of.
pub const SPREAD: &str = "work";

/// Name of a task.
#[must_use]
pub fn task_name(task: usize) -> String {
    format!("t{task}")
}

/// Number of the first schedule, among all locks.
pub const FIRST_SCHEDULE: usize = 2000;

/// Name of a schedule.
#[must_use]
pub fn schedule_name(schedule: usize) -> String {
    format!("s{schedule}")
}

/// The number of a schedule, by its name.
#[must_use]
pub fn schedule_of(name: &str) -> Option<usize> {
    name.strip_prefix('s')?.parse().ok()
}

/// The number of a lock, by its key.
#[must_use]
pub fn number_of(key: &str) -> Option<usize> {
    let (first, number) = (key.chars().next()?, key.get(1..)?.parse::<usize>().ok()?);
    match first {
        'k' => Some(number),
        't' => number.checked_add(FIRST_TASK),
        's' => number.checked_add(FIRST_SCHEDULE),
        _ => None,
    }
}

/// Returns whether a lock is a task of the spread.
const fn is_task(key: usize) -> bool {
    FIRST_TASK <= key && key < FIRST_SCHEDULE
}

/// Id of a schedule in the store.
fn schedule_id(schedule: usize) -> ScheduleId {
    let namespace = NAMESPACE.parse().expect("it is a name");
    ScheduleId { namespace, name: ScheduleName::new(schedule_name(schedule)).expect("it is a name") }
}

fn key_of(key: &Key) -> Option<usize> {
    number_of(key.as_str())
}

/// Members that gave up a task, or lost it to an operator, by their numbers.
fn gave_up(lock: &LockRecord) -> Vec<(usize, usize)> {
    let Some(key) = key_of(&lock.id.key).filter(|key| is_task(*key)) else { return Vec::new() };
    let mut by = Vec::new();
    for past in &lock.past {
        match &past.note {
            Some(Note::Failing(row)) => by.extend(row.by.iter().map(AsRef::as_ref)),
            Some(Note::Revoked { .. }) => by.push(past.holder.as_str()),
            _ if past.how == HowEnded::Forced => by.push(past.holder.as_str()),
            _ => {}
        }
    }
    by.into_iter().filter_map(|name| Some((key, name.strip_prefix("pod-")?.parse().ok()?))).collect()
}

fn config(plan: &Plan, member: usize) -> ElectConfig {
    let config = ElectConfig::new(NAMESPACE, format!("pod-{member}")).expect("these are names");
    if plan.paces.is_short(member) {
        config
            .with_hold_duration(2 * SECOND)
            .with_refresh_interval(SECOND / 2)
            .with_refresh_duration(3 * SECOND)
    } else {
        config
    }
}
