//! Five instances in one process: one is cut off from the store, one is drained, one joins.

#![allow(clippy::disallowed_methods, reason = "when something happened is what this example prints")]

#[path = "../support/cable.rs"]
mod cable;

use std::{cell::RefCell, convert::Infallible, sync::Arc, time::Duration};

use cable::Cabled;
use futures::future::join_all;
use tenure::{
    Elect, Event, Lease,
    spread::{Spread, SpreadStatus, Task},
    store::Store,
};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::{TOPICS, in_short, registry::Registry, spread, subscribe, support};

/// Time between two looks for something to print.
const LOOK: Duration = Duration::from_millis(200);

/// An instance of the fleet.
struct Instance {
    elect: Elect,
    topics: Spread,
}

impl Instance {
    async fn start(
        store: Arc<dyn Store>,
        name: &str,
        registry: &Arc<Registry>,
    ) -> Result<Self, support::Failure> {
        let elect = Elect::builder(store, support::quick(name)?).program("topics 1.0").start().await?;
        let topics = spread(&elect).run_with((registry.clone(), Arc::from(name)), judged)?;
        Ok(Self { elect, topics })
    }

    /// Waits until the fleet has so many members, each what the plan wants it to have, and all of it runs.
    async fn settled(&self, members: usize, printer: &Printer, registry: &Registry) {
        let is_so = |status: &SpreadStatus| {
            status.members.len() == members
                && status.held() == TOPICS
                && status.members.iter().all(|member| member.target == Some(member.tasks))
        };
        self.topics.until(is_so).await;
        while registry.running() < TOPICS {
            tokio::time::sleep(LOOK / 10).await;
        }
        printer.look(&self.topics, registry);
    }
}

/// The job, with its runs in the registry.
async fn judged(
    (registry, me): (Arc<Registry>, Arc<str>),
    task: Task,
    lease: Lease,
) -> Result<(), Infallible> {
    let _running = registry.begin(task.key(), &me);
    subscribe(task, lease).await
}

/// Printer of what happens, each line with its time.
struct Printer {
    begun: Instant,
    /// The status that was printed last.
    shown: RefCell<String>,
}

impl Printer {
    fn new() -> Self {
        Self { begun: Instant::now(), shown: RefCell::default() }
    }

    fn say(&self, text: impl AsRef<str>) {
        println!("{:4.1} s  {}", self.begun.elapsed().as_secs_f64(), text.as_ref());
    }

    /// A line for every change of the status, for as long as it is polled.
    async fn show(&self, topics: &Spread, registry: &Registry) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.look(topics, registry);
        }
    }

    /// A line, if the status has changed.
    fn look(&self, topics: &Spread, registry: &Registry) {
        let line = format!("{} | {} run", in_short(&topics.status()), registry.running());
        if line != *self.shown.borrow() {
            let moved = match registry.take_moved() {
                0 => String::new(),
                moved => format!(", {moved} moved"),
            };
            self.say(format!("{line}{moved}"));
            self.shown.replace(line);
        }
    }
}

/// Runs the fleet, and says whether a subscription ever ran twice at once.
pub(crate) async fn run(store: Arc<dyn Store>) -> Result<(), support::Failure> {
    let (printer, registry) = (Printer::new(), Arc::new(Registry::default()));
    let first = Instance::start(store.clone(), "pod-1", &registry).await?;
    let others = tokio::select! {
        left = play(&printer, store, &first, &registry) => left?,
        () = printer.show(&first.topics, &registry) => Vec::new(),
    };
    join_all(others.iter().chain([&first]).map(|one| one.elect.close())).await;

    let ran = registry.summary();
    if !ran.twice.is_empty() {
        return Err(ran.twice.join("\n").into());
    }
    if ran.running > 0 {
        return Err(format!("{} subscriptions run on", ran.running).into());
    }
    printer.say(format!("{} starts of {TOPICS} subscriptions: none ever ran twice at once", ran.starts));
    Ok(())
}

/// Makes things happen to the fleet. Returns those that are left, beside the first one.
async fn play(
    printer: &Printer,
    store: Arc<dyn Store>,
    first: &Instance,
    registry: &Arc<Registry>,
) -> Result<Vec<Instance>, support::Failure> {
    let second = Instance::start(store.clone(), "pod-2", registry).await?;
    let pulled = CancellationToken::new();
    let cabled = Cabled { store: store.clone(), pulled: pulled.clone() };
    let third = Instance::start(Arc::new(cabled), "pod-3", registry).await?;
    let fourth = Instance::start(store.clone(), "pod-4", registry).await?;
    let fifth = Instance::start(store.clone(), "pod-5", registry).await?;
    first.settled(5, printer, registry).await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    // The store sees the same of it as of a crash: nothing more.
    printer.say("the cable of pod-3 is pulled out");
    let (cut, mut events) = (Instant::now(), third.topics.events());
    let had = third.topics.share().len();
    pulled.cancel();
    let loss = loop {
        match events.next().await {
            Some(Event::Lost { loss, .. }) => break loss,
            Some(_) => {}
            None => return Err("pod-3 was not notified".into()),
        }
    };
    third.topics.until(|status| status.here.is_empty()).await;
    let after = cut.elapsed().as_secs_f64();
    let run = registry.running();
    printer.say(format!("pod-3 has stopped all {had} by itself after {after:.1} s ({loss}); {run} run on"));
    // Dropped, not closed: nothing would get through.
    drop(third);
    first.settled(4, printer, registry).await;
    let after = cut.elapsed().as_secs_f64();
    printer.say(format!("the others have taken over after {after:.1} s"));
    tokio::time::sleep(Duration::from_secs(1)).await;

    printer.say("pod-2 is drained");
    second.topics.drain();
    second.topics.until(|status| status.here.is_empty()).await;
    first.settled(4, printer, registry).await;
    second.elect.close().await;
    printer.say("pod-2 has given all away, and leaves");
    first.settled(3, printer, registry).await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    printer.say("pod-6 joins");
    let sixth = Instance::start(store, "pod-6", registry).await?;
    first.settled(4, printer, registry).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let one = sixth.topics.share().into_keys().next().ok_or("pod-6 has nothing")?;
    printer.say(format!("why is it where it is? {}", first.topics.explain(&one).await?));

    printer.say("all leave");
    Ok(vec![fourth, fifth, sixth])
}
