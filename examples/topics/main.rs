//! 100 subscriptions over a fleet: each runs in one instance at a time, and all have about as many.
//!
//! ```sh
//! TENURE_STORE=mongodb://localhost/shop cargo run --release --features mongodb --example topics
//! ```
//!
//! runs one instance until SIGTERM or Ctrl-C, and prints a line whenever the status changes. Start as many as you like.
//!
//! ```sh
//! cargo run --release --example topics
//! ```
//!
//! runs five instances in one process, in `fleet.rs`: one is cut off from the store, one is drained, one joins. At the
//! end it says whether a subscription ever ran twice at once.

mod fleet;
mod registry;
#[path = "../support/mod.rs"]
mod support;

use std::{convert::Infallible, time::Duration};

use tenure::{
    Elect, Lease,
    spread::{Member, Spread, SpreadBuilder, SpreadStatus, Task},
};

const TOPICS: usize = 100;

/// Job of a subscription: it gets messages until it is told to stop.
async fn subscribe(_: Task, lease: Lease) -> Result<(), Infallible> {
    while !lease.is_cancelled() {
        tokio::select! {
            () = lease.cancelled() => {}
            // A message. What is written for it carries `lease.term()`.
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
    }
    // The last message is brought to its end: nobody else subscribes before.
    tokio::time::sleep(Duration::from_millis(20)).await;
    // `Ok` means: it ended as it should, and is begun again wherever its task is. With `done_for_good` it would
    // mean that nobody ever runs it again: there a job that was told to stop returns an error.
    Ok(())
}

/// The spread of an instance, without its job.
fn spread(elect: &Elect) -> SpreadBuilder {
    elect.spread("topics").tasks((0..TOPICS).map(|topic| format!("topic-{topic:02}")))
}

/// Number of subscriptions of each member.
fn in_short(status: &SpreadStatus) -> String {
    let count = |member: &Member| {
        let drains = if member.share.draining { " (drains)" } else { "" };
        format!("{} {:2}{drains}", member.holder, member.tasks)
    };
    let counts: Vec<_> = status.members.iter().map(count).collect();
    counts.join("  ")
}

/// Prints a line when the status has changed, five a second at most, for as long as it is polled.
async fn show(topics: &Spread) {
    let line = |status: &SpreadStatus| format!("{} | {} run here", in_short(status), status.here.len());
    let mut shown = String::new();
    loop {
        shown = line(&topics.until(|status| line(status) != shown).await);
        println!("{shown}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), support::Failure> {
    let store = support::store().await?;
    if support::uri().is_none() {
        return fleet::run(store).await;
    }
    // Before anything is held, so that no signal is missed.
    let stop = support::stop_signal()?;
    let me = support::process_name();
    let elect = Elect::builder(store, support::quick(&me)?).program("topics 1.0").start().await?;
    let topics = spread(&elect).run(subscribe)?;
    tokio::select! {
        () = stop => {}
        () = show(&topics) => {}
    }
    let had = topics.share().len();
    let closed = elect.close().await;
    if !closed.overran.is_empty() {
        println!("{me} has left, but these go on: {:?}", closed.overran);
    } else if !closed.unconfirmed.is_empty() {
        println!("{me} has left, but the store has not confirmed: {:?}", closed.unconfirmed);
    } else {
        println!("{me} has left: its {had} subscriptions are free");
    }
    Ok(())
}
