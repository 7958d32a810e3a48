//! Three instances in one process, of which one is cut off from the store in the middle of its work.

#[path = "../support/cable.rs"]
mod cable;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use cable::Cabled;
use futures::future::join_all;
use tenure::{
    Elect, Lease,
    model::{Entry, RunRecord},
    schedule::{Schedule, Tick},
    store::Store,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{SCHEDULES, SECOND, schedule, support, work};

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

    /// Cuts an instance off, once: in the middle of its work, so what it began is begun again by another.
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

/// An instance of the fleet.
struct Instance {
    elect: Elect,
    _schedules: Vec<Schedule>,
}

impl Instance {
    async fn start(
        store: Arc<dyn Store>,
        name: &str,
        registry: &Arc<Registry>,
    ) -> Result<Self, support::Failure> {
        let elect = Elect::builder(store, support::quick(name)?).program("cron 1.0").start().await?;
        let (mut schedules, at) = (Vec::new(), (registry.clone(), Arc::from(name)));
        for (name, expression, _) in SCHEDULES {
            schedules.push(schedule(&elect, name, expression).run_with(at.clone(), judged_work)?);
        }
        Ok(Self { elect, _schedules: schedules })
    }
}

/// The job, with its runs in the registry. In the middle of its work an instance is cut off.
async fn judged_work(
    (registry, me): (Arc<Registry>, Arc<str>),
    tick: Tick,
    lease: Lease,
) -> Result<(), String> {
    let name = tick.schedule().clone();
    let _running = registry.begin(name.as_str(), &me);
    let cut_off = async {
        if name.as_str() == "digest" {
            registry.cut_off(&me);
        }
    };
    let (ended, ()) = tokio::join!(work(me.clone(), tick, lease), cut_off);
    ended
}

/// Runs the fleet, and judges it by the ledger.
pub(crate) async fn run(store: Arc<dyn Store>) -> Result<(), support::Failure> {
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
    // Dropped, not closed: nothing would get through.
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
