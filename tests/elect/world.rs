//! Instances that share a store whose calls a test can spoil, on a clock it can turn.

use std::{sync::Arc, time::Duration};

use tenure::{
    Elect, ElectConfig,
    elect::Builder,
    store::{MemoryStore, Store},
    testing::{Faulty, Intercept, Intercepted, TestClock},
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A store, and a clock for all.
pub(crate) struct World {
    pub(crate) clock: Arc<TestClock>,
    pub(crate) memory: MemoryStore,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        Self { memory: MemoryStore::new(clock.clone()), clock }
    }

    pub(crate) fn config(holder: &str) -> ElectConfig {
        ElectConfig::new("test", holder).unwrap()
    }

    /// An engine with default durations, over a store of its own that can be told to fail.
    pub(crate) fn builder(&self, holder: &str) -> (Builder, Arc<Intercepted<Faulty>>) {
        let faulty = Faulty::default().around(Arc::new(self.memory.clone()));
        let store: Arc<dyn Store> = faulty.clone();
        (Elect::builder(store, Self::config(holder)).clock(self.clock.clone()), faulty)
    }

    pub(crate) async fn instance(&self, holder: &str) -> (Elect, Arc<Intercepted<Faulty>>) {
        let (builder, faulty) = self.builder(holder);
        (builder.start().await.unwrap(), faulty)
    }
}
