//! Instances of a bench.

use std::{sync::Arc, time::Duration};

use tenure::{Elect, ElectConfig, Guard, elect::Acquired, store::Store};

pub(crate) fn config(holder: &str) -> ElectConfig {
    ElectConfig::new("bench", holder).expect("within the limits")
}

/// 3 s for a takeover, where it is half a minute by default.
pub(crate) fn quick(holder: &str) -> ElectConfig {
    let second = Duration::from_secs(1);
    config(holder)
        .with_hold_duration(2 * second)
        .with_refresh_interval(second / 2)
        .with_refresh_duration(3 * second)
}

pub(crate) async fn start(store: impl Into<Arc<dyn Store>>, config: ElectConfig) -> Elect {
    Elect::start(store, config).await.expect("the store works")
}

/// A guard of a key nobody else wants.
pub(crate) async fn take(elect: &Elect, key: &str) -> Guard {
    match elect.key(key).try_acquire().await.expect("the store answers") {
        Acquired::Guard(guard) => guard,
        busy @ Acquired::Busy(_) => panic!("the lock is free, but the answer was {busy:?}"),
    }
}
