//! Three cron-style jobs over a fleet: each tick runs in one instance, once.
//!
//! ```sh
//! cargo run --release --example cron
//! ```
//!
//! runs three instances in one process, and cuts one of them off from the store in the middle of its work:
//! what the others see is what they see of a crash. A line is printed for every run. At the end the ledger
//! says whether each tick was run, and once.
//!
//! ```sh
//! TENURE_STORE=mongodb://localhost/shop cargo run --release --features mongodb --example cron
//! ```
//!
//! runs one instance until SIGTERM or Ctrl-C. Start as many as you like.

#![allow(clippy::disallowed_methods, reason = "when something happened is what this example prints")]

#[path = "../support/cable.rs"]
mod cable;
#[path = "../support/mod.rs"]
mod support;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cable::Cabled;
use futures::future::join_all;
use tenure::{
    Elect, Lease,
    model::{Entry, RunRecord, StoreTime},
    schedule::{Misfire, Overlap, Retries, Schedule, Tick},
    store::Store,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
/// The schedules, and how many seconds lie between their ticks.
const SCHEDULES: [(&str, &str, u32); 3] =
    [("pulse", "* * * * * *", 1), ("digest", "*/3 * * * * *", 3), ("invoices", "*/2 * * * * *", 2)];

/// Registry of the runs in this process, by which the example is judged.
#[derive(Default)]
struct Registry {
    running: Mutex<BTreeMap<String, Arc<str>>>,
    twice: Mutex<Vec<String>>,
    /// The cables of all instances: that of the one which begins the next digest is pulled out.
    cables: Mutex<Option<BTreeMap<String, CancellationToken>>>,
    victim: watch::Sender<Option<Arc<str>>>,
}

/// A schedule whose job is on, until this is dropped: also if the job is dropped half-way.
struct Running(Arc<Registry>, String);

impl Registry {
    fn begin(self: &Arc<Self>, schedule: &str, at: &Arc<str>) -> Running {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = running.insert(schedule.to_owned(), at.clone()) {
            let message = format!("{schedule} ran at {at} while it ran at {other}");
            self.twice.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        }
        Running(self.clone(), schedule.to_owned())
    }

    /// In the middle of its work: what it began is begun again by another.
    fn cut_off(&self, me: &Arc<str>) {
        if let Some(cables) = self.cables.lock().unwrap_or_else(PoisonError::into_inner).take() {
            cables[&**me].cancel();
            println!("--- the cable of {me} is pulled out");
            self.victim.send_replace(Some(me.clone()));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// Job of every schedule: it does little, and the invoices fail at first, so that they are tried again.
async fn work(tick: Tick, lease: Lease, me: Arc<str>, running: Running) -> Result<(), String> {
    let (schedule, instant) = (tick.schedule().as_str(), tick.scheduled_at());
    let late = match tick.lateness() {
        late if late < SECOND => String::new(),
        late => format!(", {:.1} s late", late.as_secs_f64()),
    };
    let again = if tick.attempt() > 1 { format!(", attempt {}", tick.attempt()) } else { String::new() };
    println!("{}  {schedule:8}  {me}{late}{again}", time_of_day(instant));
    // What is written for it carries `lease.term()`, or the tick's instant, so that it is not written twice.
    let takes = if schedule == "digest" { SECOND } else { SECOND / 10 };
    if schedule == "digest" {
        running.0.cut_off(&me);
    }
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

/// An instance of the fleet.
struct Instance {
    elect: Elect,
    schedules: Vec<Schedule>,
}

impl Instance {
    async fn start(
        store: Arc<dyn Store>,
        name: &str,
        registry: &Arc<Registry>,
    ) -> Result<Self, support::Failure> {
        let elect = Elect::builder(store, support::quick(name)?).program("cron 1.0").start().await?;
        let me: Arc<str> = name.into();
        let mut schedules = Vec::new();
        for (name, expression, _) in SCHEDULES {
            let (registry, me) = (registry.clone(), me.clone());
            let schedule = elect
                .schedule(name, expression)
                // A tick that nobody was there for is made up for: every one of the last minute.
                .misfire(Misfire::All { window: 60 * SECOND, at_most: 60 })
                .overlap(Overlap::Queue)
                .retries(Retries { tries: 3, first: SECOND / 5, longest: SECOND })
                .timeout(10 * SECOND)
                .run(move |tick, lease| {
                    let running = registry.begin(tick.schedule().as_str(), &me);
                    work(tick, lease, me.clone(), running)
                })?;
            schedules.push(schedule);
        }
        Ok(Self { elect, schedules })
    }
}

/// Runs an instance of a fleet of processes.
async fn alone(store: Arc<dyn Store>) -> Result<(), support::Failure> {
    // Before anything is held, so that no signal is missed.
    let stop = support::stop_signal()?;
    let me = support::process_name();
    let instance = Instance::start(store, &me, &Arc::default()).await?;
    for schedule in &instance.schedules {
        println!("{}: {}", schedule.name(), schedule.timing());
    }
    stop.await;
    let closed = instance.elect.close().await;
    println!("{me} has left, {} runs go on", closed.overran.len());
    Ok(())
}

/// A fleet in one process.
async fn together(store: Arc<dyn Store>) -> Result<(), support::Failure> {
    let registry = Arc::new(Registry::default());
    let (mut fleet, mut cables) = (Vec::new(), BTreeMap::new());
    for name in ["pod-1", "pod-2", "pod-3"] {
        let pulled = CancellationToken::new();
        let cabled = Cabled { store: store.clone(), pulled: pulled.clone() };
        fleet.push(Instance::start(Arc::new(cabled), name, &registry).await?);
        cables.insert(name.to_owned(), pulled);
    }
    let schedules = fleet[0].elect.schedules();
    schedules.until(|status| status.members.len() == 3 && status.is_settled()).await;
    tokio::time::sleep(3 * SECOND).await;

    *registry.cables.lock().unwrap_or_else(PoisonError::into_inner) = Some(cables);
    let mut victim = registry.victim.subscribe();
    let victim = victim.wait_for(Option::is_some).await?.clone().ok_or("nobody was cut off")?;
    let (dead, living): (Vec<_>, Vec<_>) =
        fleet.into_iter().partition(|one| one.elect.config().holder().as_str() == &*victim);
    let schedules = living[0].elect.schedules();
    schedules.until(|status| status.members.len() == 2 && status.is_settled()).await;
    println!("--- the others have its schedules");
    tokio::time::sleep(3 * SECOND).await;
    // It is not closed: nothing would get through.
    drop(dead);

    let observer = Elect::start(store, support::quick("observer")?).await?;
    join_all(living.iter().map(|one| one.elect.close())).await;
    for (name, _, apart) in SCHEDULES {
        println!("{}", judged(&observer, name, apart).await?);
    }
    observer.close().await;
    let twice = registry.twice.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
    if twice.is_empty() { Ok(()) } else { Err(twice.into()) }
}

/// Checks the ledger of a schedule: each tick from the first to the last is there once.
async fn judged(observer: &Elect, name: &str, apart: u32) -> Result<String, support::Failure> {
    let mut runs: Vec<RunRecord> = Vec::new();
    let mut after = None;
    loop {
        let page = observer.schedules().history(name, after, 100).await?;
        runs.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    runs.reverse();
    let ticks: Vec<_> = runs.iter().filter(|run| run.id.entry == Entry::Tick).collect();
    for pair in ticks.windows(2) {
        let (one, next) = (pair[0].id.instant, pair[1].id.instant);
        if next != one.plus(SECOND * apart) {
            return Err(format!("{name}: after {one} comes {next}").into());
        }
    }
    let again = ticks.iter().filter(|run| run.attempt > 1).count();
    let cut_short = ticks.iter().filter(|run| !run.has_succeeded()).count();
    // The last one of each may have been on when the fleet was closed.
    if cut_short > 1 {
        return Err(format!("{name}: {cut_short} ticks were not run to their end").into());
    }
    Ok(format!(
        "{name}: {} ticks, each in the ledger once, {again} of them with more than one attempt",
        ticks.len()
    ))
}

#[tokio::main]
async fn main() -> Result<(), support::Failure> {
    let store = support::store().await?;
    if support::uri().is_some() { alone(store).await } else { together(store).await }
}
