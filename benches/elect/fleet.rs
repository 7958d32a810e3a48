//! Instances on the deployment of the bench, each with connections of its own.

use std::{sync::Arc, time::Duration};

use tenure::{
    Elect, ElectConfig, Guard,
    elect::Acquired,
    store::{
        Store,
        mongo::{MongoOptions, MongoStore},
    },
};

use crate::world::World;

/// A store on a database for engines.
pub(crate) async fn store(world: &World) -> MongoStore {
    store_with(world.uri(), MongoOptions::new()).await
}

/// The same with these options.
pub(crate) async fn store_with(uri: &str, options: MongoOptions) -> MongoStore {
    MongoStore::connect(uri, options.database("engines")).await.expect("the server is up")
}

pub(crate) fn config(holder: &str) -> ElectConfig {
    ElectConfig::new("bench", holder).expect("within the limits")
}

/// 3 s for a takeover, where it is half a minute by default.
#[allow(dead_code, reason = "only benches that kill use it")]
pub(crate) fn quick(holder: &str) -> ElectConfig {
    let second = Duration::from_secs(1);
    config(holder)
        .with_hold_duration(2 * second)
        .with_refresh_interval(second / 2)
        .with_refresh_duration(3 * second)
}

pub(crate) async fn instance(world: &World, holder: &str) -> Elect {
    on(Arc::new(store(world).await), config(holder)).await
}

pub(crate) async fn on(store: Arc<dyn Store>, config: ElectConfig) -> Elect {
    Elect::start(store, config).await.expect("the server is up")
}

/// A guard of a key nobody else wants.
pub(crate) async fn take(elect: &Elect, key: &str) -> Guard {
    match elect.key(key).try_acquire().await.expect("the server answers") {
        Acquired::Guard(guard) => guard,
        busy @ Acquired::Busy(_) => panic!("the lock is free, but the answer was {busy:?}"),
    }
}
