//! Instances that wait for one key, which another one holds.

use std::time::Duration;

use futures::{StreamExt, future::join_all, stream};
use tenure::{
    Elect, ElectConfig, Guard,
    model::LockId,
    store::{StoreExt, mongo::MongoStore},
};
use tokio::task::JoinHandle;

use crate::{
    instances::{config, start, take},
    world::{LIMIT, World},
};

/// Instances that are started at a time.
const AT_A_TIME: usize = 8;

/// An instance, and the store it is over.
pub(crate) struct Instance {
    pub(crate) elect: Elect,
    pub(crate) store: MongoStore,
}

impl Instance {
    pub(crate) async fn start(world: &World, config: ElectConfig) -> Self {
        let store = world.for_engine().await;
        let elect = start(store.clone(), config).await;
        Self { elect, store }
    }

    /// Waits until so many are in the queue.
    pub(crate) async fn until_in_queue(&self, lock: &LockId, waiters: usize) {
        loop {
            let queue = self.store.waiters(lock.clone(), waiters, LIMIT).await;
            if queue.expect("the server answers").waiters.len() >= waiters {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Leaves no connection behind.
    pub(crate) async fn close(self) {
        self.elect.close().await;
        self.store.close().await;
    }
}

/// So many instances, as this configures each.
pub(crate) async fn instances(
    world: &World,
    number: usize,
    configured: impl Fn(ElectConfig) -> ElectConfig,
) -> Vec<Instance> {
    let configs: Vec<_> = (0..number).map(|number| configured(config(&format!("pod-{number:03}")))).collect();
    let starts = configs.into_iter().map(|config| Instance::start(world, config));
    stream::iter(starts).buffer_unordered(AT_A_TIME).collect().await
}

/// Closes all of them at once.
pub(crate) async fn close(instances: Vec<Instance>) {
    join_all(instances.into_iter().map(Instance::close)).await;
}

/// Instances that stand in the queue.
pub(crate) struct Waiting {
    holder: Instance,
    guard: Guard,
    waiters: Vec<Instance>,
    calls: Vec<JoinHandle<()>>,
}

impl Waiting {
    /// Starts a holder and so many waiters, and waits until all of them are in the queue.
    pub(crate) async fn start(
        world: &World,
        number: usize,
        configured: impl Fn(ElectConfig) -> ElectConfig,
    ) -> Self {
        let key = format!("held {}", world.draw());
        let holder = Instance::start(world, configured(config("holder"))).await;
        let guard = take(&holder.elect, &key).await;
        let waiters = instances(world, number, configured).await;
        let wait = |instance: &Instance| {
            let (elect, key) = (instance.elect.clone(), key.clone());
            tokio::spawn(async move {
                let acquired = elect.acquire(&key).await;
                panic!("the holder keeps it, but somebody was told {acquired:?}");
            })
        };
        let calls = waiters.iter().map(wait).collect();
        let waiting = Self { holder, guard, waiters, calls };
        waiting.holder.until_in_queue(&World::lock(&key), number).await;
        waiting
    }

    pub(crate) async fn end(self) {
        for call in &self.calls {
            call.abort();
        }
        // An error says that it was aborted.
        join_all(self.calls).await;
        close(self.waiters).await;
        drop(self.guard);
        self.holder.close().await;
    }
}
