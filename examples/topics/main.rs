//! 100 subscriptions over a fleet: each runs in one instance at a time, and all have about as many.
//!
//! ```sh
//! cargo run --release --example topics
//! ```
//!
//! runs five instances in one process. One is cut off from the store, one is drained, one joins; a line is
//! printed whenever the status changes. At the end it says whether a subscription ever ran twice at once.
//!
//! ```sh
//! TENURE_STORE=mongodb://localhost/shop cargo run --release --features mongodb --example topics
//! ```
//!
//! runs one instance until SIGTERM or Ctrl-C. Start as many as you like.

#![allow(clippy::disallowed_methods, reason = "when something happened is what this example prints")]

#[path = "../support/cable.rs"]
mod cable;
mod registry;
#[path = "../support/mod.rs"]
mod support;

use std::{cell::RefCell, convert::Infallible, sync::Arc, time::Duration};

use cable::Cabled;
use futures::future::join_all;
use registry::{Registry, Running};
use tenure::{
    Elect, Event, Lease,
    spread::{Member, Spread, SpreadStatus},
    store::Store,
};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

const TOPICS: usize = 100;
/// Time between two looks for something to print.
const LOOK: Duration = Duration::from_millis(200);

/// Job of a subscription: it gets messages until it is told to stop.
async fn subscribe(lease: Lease, _running: Running) -> Result<(), Infallible> {
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

/// An instance of the fleet.
struct Instance {
    me: Arc<str>,
    elect: Elect,
    topics: Spread,
}

impl Instance {
    async fn start(
        store: Arc<dyn Store>,
        name: &str,
        registry: &Arc<Registry>,
    ) -> Result<Self, support::Failure> {
        let me: Arc<str> = name.into();
        let elect = Elect::builder(store, support::quick(name)?).program("topics 1.0").start().await?;
        let keys = (0..TOPICS).map(|topic| format!("topic-{topic:02}"));
        let (registry, at) = (registry.clone(), me.clone());
        let topics = elect
            .spread("topics")
            .tasks(keys)
            .run(move |task, lease| subscribe(lease, registry.begin(task.key(), &at)))?;
        Ok(Self { me, elect, topics })
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

/// Printer of what happens, each line with its time.
struct Printer {
    begun: Instant,
    /// Words for those that run in this process.
    run: &'static str,
    /// The status that was printed last.
    shown: RefCell<String>,
}

impl Printer {
    fn new(run: &'static str) -> Self {
        Self { begun: Instant::now(), run, shown: RefCell::default() }
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
        let line = format!("{} | {} {}", in_short(&topics.status()), registry.running(), self.run);
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

/// Number of subscriptions of each member.
fn in_short(status: &SpreadStatus) -> String {
    let count = |member: &Member| {
        let drains = if member.share.draining { " (drains)" } else { "" };
        format!("{} {:2}{drains}", member.holder, member.tasks)
    };
    let counts: Vec<_> = status.members.iter().map(count).collect();
    counts.join("  ")
}

/// Runs an instance of a fleet of processes.
async fn alone(store: Arc<dyn Store>) -> Result<(), support::Failure> {
    let printer = Printer::new("run here");
    // Before anything is held, so that no signal is missed.
    let stop = support::stop_signal()?;
    let registry = Arc::new(Registry::default());
    let Instance { me, elect, topics } = Instance::start(store, &support::process_name(), &registry).await?;
    printer.say(format!("{me} takes part"));
    tokio::select! {
        () = stop => {}
        () = printer.show(&topics, &registry) => {}
    }
    let had = topics.share().len();
    let closed = elect.close().await;
    if !closed.overran.is_empty() {
        printer.say(format!("{me} has left, but these go on: {:?}", closed.overran));
    } else if !closed.unconfirmed.is_empty() {
        printer.say(format!("{me} has left, but the store has not confirmed: {:?}", closed.unconfirmed));
    } else {
        printer.say(format!("{me} has left: its {had} subscriptions are free"));
    }
    Ok(())
}

/// A fleet in one process.
async fn together(store: Arc<dyn Store>) -> Result<(), support::Failure> {
    let (printer, registry) = (Printer::new("run"), Arc::new(Registry::default()));
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

    // What the store sees of it is what it sees of a crash: nothing more.
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
    // It is not closed: nothing would get through.
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

#[tokio::main]
async fn main() -> Result<(), support::Failure> {
    let store = support::store().await?;
    if support::uri().is_some() { alone(store).await } else { together(store).await }
}
