//! Instances that take part in one spread, and what the store says of its tasks.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tenure::{
    Elect, ElectConfig, Lease,
    model::{Key, Kind, Term},
    spread::{Spread, SpreadBuilder, SpreadStatus, Task},
    store::{LockSeen, MemoryStore, Store, StoreExt},
    testing::{Counting, Intercept, Intercepted, TestClock},
};
use tenure_sim::Gate;
use tokio::time::Instant;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const SPREAD: &str = "topics";

/// A store and a clock for all, and a registry of what runs.
pub(crate) struct Team {
    pub(crate) clock: Arc<TestClock>,
    pub(crate) memory: MemoryStore,
    pub(crate) registry: Arc<Registry>,
    tasks: Range<usize>,
    seed: Arc<AtomicU64>,
}

/// Registry of the tasks that run, and where. It fails if one runs twice.
#[derive(Default)]
pub(crate) struct Registry {
    running: Mutex<BTreeMap<Key, String>>,
    /// Starts of each task.
    starts: Mutex<BTreeMap<Key, usize>>,
}

/// A task that runs.
pub(crate) struct Running(Arc<Registry>, Key);

impl Registry {
    pub(crate) fn begin(self: &Arc<Self>, key: &Key, holder: &str) -> Running {
        let before = self.running.lock().unwrap().insert(key.clone(), holder.to_owned());
        assert_eq!(before, None, "{key} runs at {holder}, too");
        *self.starts.lock().unwrap().entry(key.clone()).or_default() += 1;
        Running(self.clone(), key.clone())
    }

    pub(crate) fn starts(&self) -> usize {
        self.starts.lock().unwrap().values().sum()
    }

    /// Number of starts of the task that was started most often.
    pub(crate) fn most_starts(&self) -> usize {
        self.starts.lock().unwrap().values().copied().max().unwrap_or(0)
    }

    pub(crate) fn running(&self) -> usize {
        self.running.lock().unwrap().len()
    }

    /// Tasks that run.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.running.lock().unwrap().keys().cloned().collect()
    }

    pub(crate) fn runs_at(&self, key: &str) -> Option<String> {
        self.running.lock().unwrap().get(&Key::new(key).unwrap()).cloned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.lock().unwrap().remove(&self.1);
    }
}

/// An instance, and its part.
pub(crate) struct Player {
    pub(crate) elect: Elect,
    pub(crate) spread: Spread,
    pub(crate) gate: Gate,
    pub(crate) counts: Arc<Intercepted<Counting>>,
}

impl Player {
    /// Ends it as a crash would.
    pub(crate) async fn kill(self) {
        self.gate.kill();
        // Its futures are gone by then.
        tokio::time::sleep(SECOND / 1000).await;
    }

    pub(crate) fn count(&self) -> usize {
        self.spread.share().len()
    }
}

impl Team {
    pub(crate) fn new(tasks: usize) -> Self {
        Self::seeded(tasks, 1)
    }

    pub(crate) fn seeded(tasks: usize, seed: u64) -> Self {
        let clock = Arc::new(TestClock::new());
        let memory = MemoryStore::new(clock.clone());
        Self {
            clock,
            memory,
            registry: Arc::default(),
            tasks: 0..tasks,
            seed: Arc::new(AtomicU64::new(seed)),
        }
    }

    /// Another one on the same store, with the same registry and other tasks.
    pub(crate) fn beside(other: &Self, tasks: usize) -> Self {
        Self::beside_with(other, 0..tasks)
    }

    /// The same, with the tasks of these numbers.
    pub(crate) fn beside_with(other: &Self, tasks: Range<usize>) -> Self {
        let (clock, memory) = (other.clock.clone(), other.memory.clone());
        Self { clock, memory, registry: other.registry.clone(), tasks, seed: other.seed.clone() }
    }

    pub(crate) fn config(holder: &str) -> ElectConfig {
        ElectConfig::new("test", holder).unwrap()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.tasks.clone().map(|task| format!("task-{task:03}")).collect()
    }

    pub(crate) async fn elect(&self, holder: &str) -> (Elect, Gate, Arc<Intercepted<Counting>>) {
        self.elect_on(Arc::new(self.memory.clone()), holder, self.seed.fetch_add(1, Ordering::Relaxed)).await
    }

    pub(crate) async fn elect_on(
        &self,
        store: Arc<dyn Store>,
        holder: &str,
        seed: u64,
    ) -> (Elect, Gate, Arc<Intercepted<Counting>>) {
        let counts = Counting::default().around(store);
        let (store, gate): (Arc<dyn Store>, _) = (counts.clone(), Gate::default());
        let builder = Elect::builder(store, Self::config(holder)).clock(self.clock.clone());
        (builder.tasks(Arc::new(gate.clone())).seed(seed).start().await.unwrap(), gate, counts)
    }

    /// An instance that takes part as it is by default.
    pub(crate) async fn join(&self, holder: &str) -> Player {
        self.join_as(holder, |spread| spread).await
    }

    pub(crate) async fn join_as(
        &self,
        holder: &str,
        set: impl FnOnce(SpreadBuilder) -> SpreadBuilder,
    ) -> Player {
        let (elect, gate, counts) = self.elect(holder).await;
        let spreading = set(elect.spread(SPREAD).tasks(self.keys()));
        let spread = spreading.run(self.job(holder)).unwrap();
        Player { elect, spread, gate, counts }
    }

    /// An instance with a way of its own to the store.
    pub(crate) async fn join_on(&self, store: Arc<dyn Store>, holder: &str, seed: u64) -> Player {
        let (elect, gate, counts) = self.elect_on(store, holder, seed).await;
        let spread = elect.spread(SPREAD).tasks(self.keys()).run(self.job(holder)).unwrap();
        Player { elect, spread, gate, counts }
    }

    /// Runs until it is told to stop, and is never run twice at once.
    pub(crate) fn job(
        &self,
        holder: &str,
    ) -> impl Fn(Task, Lease) -> futures::future::BoxFuture<'static, Result<(), String>>
    + Send
    + Sync
    + 'static
    + use<> {
        let (registry, holder) = (self.registry.clone(), holder.to_owned());
        move |task, lease| {
            let (registry, holder) = (registry.clone(), holder.clone());
            Box::pin(async move {
                let _running = registry.begin(task.key(), &holder);
                lease.cancelled().await;
                Ok(())
            })
        }
    }

    /// Players, named `pod-00` and so on, when they have shared out the tasks.
    pub(crate) async fn of(&self, players: usize) -> Vec<Player> {
        let mut team = Vec::new();
        for player in 0..players {
            team.push(self.join(&format!("pod-{player:02}")).await);
        }
        self.settled(&team).await;
        team
    }

    /// Waits until all have what they are to have, and all agree on that. Answers with how long it took.
    pub(crate) async fn settled(&self, team: &[Player]) -> Duration {
        let begun = Instant::now();
        loop {
            let is_so = |status: &SpreadStatus| status.members.len() == team.len() && status.is_settled();
            for player in team {
                let settled = tokio::time::timeout(SECOND * 120, player.spread.until(is_so)).await;
                assert!(settled.is_ok(), "not settled after two minutes:\n{}", player.spread.status());
            }
            if team.iter().all(|player| is_so(&player.spread.status())) {
                let took = begun.elapsed();
                // Jobs that were just spawned have been polled by then.
                tokio::time::sleep(SECOND / 1000).await;
                return took;
            }
        }
    }

    /// The terms of all tasks that were ever held, and their holders' names.
    pub(crate) async fn terms(&self) -> BTreeMap<Key, (Term, Option<String>)> {
        let kind = Some(Kind::Task(SPREAD.parse().unwrap()));
        let page = self.memory.list_locks("test".parse().unwrap(), kind, None, 100_000, SECOND);
        let records = page.await.unwrap().items.into_iter();
        records
            .map(|record| {
                let holder = record.holding.map(|held| held.by.holder.to_string());
                (record.id.key, (record.term, holder))
            })
            .collect()
    }

    /// Notes in the records of all tasks.
    pub(crate) async fn notes(&self) -> Vec<(Key, String)> {
        let kind = Some(Kind::Task(SPREAD.parse().unwrap()));
        let page = self.memory.list_locks("test".parse().unwrap(), kind, None, 100_000, SECOND);
        let notes = page.await.unwrap().items.into_iter().flat_map(|record| {
            let key = record.id.key;
            record.past.into_iter().filter_map(move |past| Some((key.clone(), past.note?.to_string())))
        });
        notes.collect()
    }

    /// Number of tasks that changed their term.
    pub(crate) async fn moves(&self, before: &BTreeMap<Key, (Term, Option<String>)>) -> usize {
        let after = self.terms().await;
        after.iter().filter(|(key, (term, _))| before.get(*key).is_none_or(|(old, _)| old != term)).count()
    }

    pub(crate) async fn record(&self, key: &str) -> Option<tenure::store::LockRecord> {
        let lock = tenure::model::LockId {
            namespace: "test".parse().unwrap(),
            kind: Kind::Task(SPREAD.parse().unwrap()),
            key: key.parse().unwrap(),
        };
        let seen = self.memory.locks(vec![lock], SECOND).await.unwrap().pop();
        seen.and_then(LockSeen::found)
    }
}

/// Number of tasks of each, sorted.
pub(crate) fn counts(team: &[Player]) -> Vec<usize> {
    let mut counts: Vec<_> = team.iter().map(Player::count).collect();
    counts.sort_unstable();
    counts
}
