//! Instances that share a store whose calls a test can spoil, on a clock it can turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tenure::{
    Elect, ElectConfig,
    elect::Builder,
    store::{MemoryStore, Store},
    testing::{Faulty, Intercept, Intercepted, TestClock},
};

use crate::numbers::namespace;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A store, and a clock for all.
pub(crate) struct World {
    pub(crate) clock: Arc<TestClock>,
    pub(crate) memory: MemoryStore,
    /// The next instance draws its random numbers from this.
    seed: AtomicU64,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        // The same one each time; `TENURE_SEED` is another.
        let seed = std::env::var("TENURE_SEED").map_or(1, |seed| seed.parse().unwrap());
        println!("TENURE_SEED={seed}");
        Self { memory: MemoryStore::new(clock.clone()), clock, seed: AtomicU64::new(seed) }
    }

    pub(crate) fn config(holder: &str) -> ElectConfig {
        ElectConfig::new(namespace(), holder).unwrap()
    }

    /// An engine with default durations, over a store of its own that can be told to fail.
    pub(crate) fn builder(&self, holder: &str) -> (Builder, Arc<Intercepted<Faulty>>) {
        let faulty = Faulty::default().around(Arc::new(self.memory.clone()));
        let store: Arc<dyn Store> = faulty.clone();
        (self.on(store, Self::config(holder)), faulty)
    }

    /// An engine on that store.
    pub(crate) fn on(&self, store: Arc<dyn Store>, config: ElectConfig) -> Builder {
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        Elect::builder(store, config).clock(self.clock.clone()).seed(seed)
    }

    pub(crate) async fn instance(&self, holder: &str) -> (Elect, Arc<Intercepted<Faulty>>) {
        let (builder, faulty) = self.builder(holder);
        (builder.start().await.unwrap(), faulty)
    }
}

/// Leases of two seconds, for tests of threads, which run in real time.
pub(crate) fn short(holder: &str) -> ElectConfig {
    const MS: Duration = Duration::from_millis(1);
    ElectConfig::new("test", holder)
        .unwrap()
        .with_refresh_interval(200 * MS)
        .with_refresh_duration(2000 * MS)
        .with_stop_grace(200 * MS)
        .with_margin(200 * MS)
}
