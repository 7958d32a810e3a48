//! A service that runs as several instances: one of them leads, each job runs in one instance at a time, and an
//! instance that is told to stop leaves its keys free at once.
//!
//! ```sh
//! cargo run --example service
//! ```
//!
//! runs it beside a standby in the same process, sends itself SIGTERM after two seconds, and ends.
//!
//! ```sh
//! TENURE_STORE=mongodb://localhost/shop cargo run --features mongodb --example service
//! ```
//!
//! runs one instance until SIGTERM or Ctrl-C. Start it twice.

mod support;

use std::{sync::Arc, time::Duration};

use tenure::{
    Elect, Lease,
    elect::{Campaign, Locked},
    store::Store,
};
use tokio::task::JoinHandle;

/// Work of whoever leads, for as long as it leads.
async fn dispatch(me: Arc<str>, lease: Lease) -> Result<(), String> {
    println!("{me} dispatches orders under term {}", lease.term());
    let mut orders = 0_u32;
    loop {
        tokio::select! {
            () = lease.cancelled() => break,
            () = tokio::time::sleep(Duration::from_millis(100)) => orders += 1,
        }
    }
    // What was begun is brought to its end: there is `stop_grace` for it, and the key is not released
    // before.
    tokio::time::sleep(Duration::from_millis(50)).await;
    println!("{me} has dispatched {orders} orders, and stops: {}", lease.loss().expect("it was cancelled"));
    // `Ok` means: nothing went wrong. The key is given back either way; after an `Err` the campaign would say so
    // in the log, and rest longer before it contends again.
    Ok(())
}

/// An instance of the service.
struct Instance {
    me: Arc<str>,
    elect: Elect,
    campaign: Campaign,
    cleaner: JoinHandle<Result<(), tenure::Error>>,
}

impl Instance {
    async fn start(store: Arc<dyn Store>, name: &str) -> Result<Self, support::Failure> {
        let me: Arc<str> = name.into();
        let elect = Elect::builder(store, support::config(name)?).program("service 1.0").start().await?;
        // Its job runs whenever this instance leads, and is tried again if it fails.
        let leads = me.clone();
        let campaign = elect.campaign("dispatcher").run(move |lease| dispatch(leads.clone(), lease))?;
        let cleaner = tokio::spawn(clean(me.clone(), elect.clone()));
        Ok(Self { me, elect, campaign, cleaner })
    }

    /// Answer of a health check. Leading has no part in it: a rollout that waits for a new instance to lead waits
    /// for ever.
    fn is_ready(&self) -> bool {
        self.elect.health().is_ok()
    }

    /// Drains, releases, closes: within `stop_grace` and a few attempts at the store, well under the 30 s
    /// that Kubernetes gives by default.
    async fn stop(self) {
        self.cleaner.abort();
        let closed = self.elect.close().await;
        drop(self.campaign);
        if !closed.overran.is_empty() {
            println!("{} has closed, but these jobs go on: {:?}", self.me, closed.overran);
        } else if !closed.unconfirmed.is_empty() {
            println!("{} has closed, but the store has not confirmed: {:?}", self.me, closed.unconfirmed);
        } else {
            println!("{} has closed, and its keys are free", self.me);
        }
    }
}

/// A job that any instance may do, one at a time: whoever comes first.
async fn clean(me: Arc<str>, elect: Elect) -> Result<(), tenure::Error> {
    loop {
        let cleans = me.clone();
        // Not twice within a second, however fast it is done.
        let ask = elect.key("cleanup").why("clean-up of old carts").at_least(Duration::from_secs(1));
        let locked = ask.lock(async move |lease: Lease| {
            println!("{cleans} cleans up under term {}", lease.term());
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok::<_, String>(())
        });
        match locked.await {
            Ok(Locked::Running(job)) => {
                job.join().await;
            }
            Ok(Locked::Busy(busy)) => println!("{me} does not clean up: {}", support::in_words(&busy)),
            // The store does not answer for now. The engine goes on; so do we.
            Err(error) if error.is_retryable() => println!("{me} cannot clean up: {error}"),
            Err(error) => return Err(error),
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), support::Failure> {
    let store = support::store().await?;
    // Before anything is held, so that no signal is missed.
    let stop = support::stop_signal()?;
    let me = if support::uri().is_some() { support::process_name() } else { "pod-1".to_owned() };
    let instance = Instance::start(store.clone(), &me).await?;
    println!("{me} is ready: {}", instance.is_ready());

    if support::uri().is_some() {
        stop.await;
        println!("{me} is told to stop: {}", instance.elect.health());
        instance.stop().await;
        return Ok(());
    }

    instance.campaign.led().await?;
    let standby = Instance::start(store, "pod-2").await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    terminate_myself()?;
    stop.await;
    println!("{me} is told to stop: {}", instance.elect.health());
    instance.stop().await;
    let lease = standby.campaign.led().await?;
    println!("pod-2 leads under term {}", lease.term());
    tokio::time::sleep(Duration::from_millis(500)).await;
    standby.stop().await;
    Ok(())
}

/// Sends SIGTERM, as Kubernetes would.
fn terminate_myself() -> Result<(), support::Failure> {
    let status = std::process::Command::new("sh").args(["-c", "kill -TERM $PPID"]).status()?;
    if status.success() { Ok(()) } else { Err("could not send a signal".into()) }
}
