//! Three cron-style jobs over a fleet: each tick runs in one instance, once.
//!
//! ```sh
//! TENURE_STORE=mongodb://localhost/shop cargo run --release --features mongodb --example cron
//! ```
//!
//! runs one instance until SIGTERM or Ctrl-C, and prints a line for every run. Start as many as you like.
//!
//! ```sh
//! cargo run --release --example cron
//! ```
//!
//! runs three instances in one process, in `fleet.rs`, and cuts one of them off from the store in the middle of its
//! work: what the others see is what they see of a crash. At the end the ledger says whether each tick was run, and once.

mod fleet;
#[path = "../support/mod.rs"]
mod support;

use std::{sync::Arc, time::Duration};

use tenure::{
    Elect, Lease,
    model::StoreTime,
    schedule::{Misfire, Overlap, Retries, ScheduleBuilder, Tick},
};

const SECOND: Duration = Duration::from_secs(1);
/// The schedules, and how many seconds lie between their ticks.
const SCHEDULES: [(&str, &str, u32); 3] =
    [("pulse", "* * * * * *", 1), ("digest", "*/3 * * * * *", 3), ("invoices", "*/2 * * * * *", 2)];

/// Job of every schedule: it does little, and the invoices fail at first, so that they are tried again.
async fn work(me: Arc<str>, tick: Tick, lease: Lease) -> Result<(), String> {
    let (schedule, instant) = (tick.schedule().as_str(), tick.scheduled_at());
    let late = match tick.lateness() {
        late if late < SECOND => String::new(),
        late => format!(", {:.1} s late", late.as_secs_f64()),
    };
    let again = if tick.attempt() > 1 { format!(", attempt {}", tick.attempt()) } else { String::new() };
    println!("{}  {schedule:8}  {me}{late}{again}", time_of_day(instant));
    // What is written for it carries `lease.term()`, or the tick's instant, so that it is not written twice.
    let takes = if schedule == "digest" { SECOND } else { SECOND / 10 };
    tokio::select! {
        // `Ok` would mean that the tick has done its work: an error has it begun again elsewhere.
        () = lease.cancelled() => return Err("cancelled".to_owned()),
        () = tokio::time::sleep(takes) => {}
    }
    if schedule == "invoices" && tick.attempt() == 1 && instant.as_millis() % 10_000 == 0 {
        return Err("the printer was busy".to_owned());
    }
    Ok(())
}

fn time_of_day(instant: StoreTime) -> String {
    let text = instant.to_string();
    text.split_once('T').map_or(text.clone(), |(_, time)| time.to_owned())
}

/// A schedule of an instance, without its job.
fn schedule(elect: &Elect, name: &str, expression: &str) -> ScheduleBuilder {
    elect
        .schedule(name, expression)
        // A tick that nobody was there for is made up for: every one of the last minute.
        .misfire(Misfire::All { window: 60 * SECOND, at_most: 60 })
        .overlap(Overlap::Queue)
        .retries(Retries { tries: 3, first: SECOND / 5, longest: SECOND })
        .timeout(10 * SECOND)
}

#[tokio::main]
async fn main() -> Result<(), support::Failure> {
    let store = support::store().await?;
    if support::uri().is_none() {
        return fleet::run(store).await;
    }
    // Before anything is held, so that no signal is missed.
    let stop = support::stop_signal()?;
    let me: Arc<str> = support::process_name().into();
    let elect = Elect::builder(store, support::quick(&me)?).program("cron 1.0").start().await?;
    let mut kept = Vec::new(); // one that is dropped runs here no more
    for (name, expression, _) in SCHEDULES {
        let schedule = schedule(&elect, name, expression).run_with(me.clone(), work)?;
        println!("{name}: {}", schedule.timing());
        kept.push(schedule);
    }
    stop.await;
    let closed = elect.close().await;
    println!("{me} has left, {} runs go on", closed.overran.len());
    Ok(())
}
