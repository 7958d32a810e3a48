//! Shared parts of the examples: the store they run on, durations that are short enough to watch, and the end of
//! a program that gets a signal to stop.

#![allow(dead_code, reason = "each example uses its part of it")]

use std::{error::Error, sync::Arc, time::Duration};

use tenure::{
    ElectConfig,
    elect::Busy,
    store::{MemoryStore, Store},
};

/// An error of any kind, which ends an example.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The connection string of a MongoDB, if there is one: `TENURE_STORE=mongodb://…`.
pub(crate) fn uri() -> Option<String> {
    std::env::var("TENURE_STORE").ok().filter(|uri| uri != "memory")
}

/// The MongoDB that `TENURE_STORE` names, or a store in memory.
#[cfg_attr(not(feature = "mongodb"), expect(clippy::unused_async, reason = "a MongoDB is waited for"))]
pub(crate) async fn store() -> Result<Arc<dyn Store>, Failure> {
    Ok(match uri() {
        #[cfg(feature = "mongodb")]
        Some(uri) => {
            use tenure::store::mongo::{MongoOptions, MongoStore};

            MongoStore::connect(&uri, MongoOptions::new()).await?.into()
        }
        #[cfg(not(feature = "mongodb"))]
        Some(_) => return Err("this was built without the feature `mongodb`".into()),
        None => MemoryStore::default().into(),
    })
}

/// The usual durations, but for beats that come sooner: a holder that is asked for a lock is told with the next one.
pub(crate) fn config(holder: &str) -> Result<ElectConfig, Failure> {
    Ok(ElectConfig::new("examples", holder)?.with_refresh_interval(Duration::from_millis(500)))
}

/// With a ttl of 8 s, so that a takeover from the dead can be watched. On a replica set of your own, keep the
/// usual ones, or shorten its election timeout too.
pub(crate) fn quick(holder: &str) -> Result<ElectConfig, Failure> {
    let config = config(holder)?.with_refresh_duration(Duration::from_secs(8));
    Ok(config.with_stop_grace(Duration::from_secs(3)))
}

/// A name for this process that no other has.
pub(crate) fn process_name() -> String {
    format!("pod-{}", std::process::id())
}

/// Reason why a key was not free, in words.
pub(crate) fn in_words(busy: &Busy) -> String {
    match busy {
        Busy::Held(held) => {
            let why = held.why.as_ref().map_or_else(String::new, |why| format!(", for the {why}"));
            let stale = if held.stale { "; it may have died" } else { "" };
            format!("{} holds it under term {}{why}{stale}", held.holder, held.term)
        }
        Busy::Closed { .. } => "nobody holds it, and nobody may yet".to_owned(),
        _ => "it is held or waited for in this process".to_owned(),
    }
}

/// Waits until this process is told to stop: SIGTERM, as Kubernetes and systemd do, or Ctrl-C. Listens from now
/// on, not only once it is awaited.
#[cfg(unix)]
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Waits until this process is told to stop: Ctrl-C.
#[cfg(not(unix))]
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()>, Failure> {
    Ok(async { tokio::signal::ctrl_c().await.expect("Ctrl-C can be heard") })
}
