//! A process with one instance that stands for all keys, works under what it holds, and says what
//! happens to it.
//!
//! It is this very program, started once more for [`holds`] alone: so it can be killed and frozen.

use std::{
    cell::Cell,
    io::{BufRead, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mongodb::event::EventHandler;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tenure::{
    Clock, Elect, ElectConfig, Lease, SystemClock,
    clock::Moment,
    elect::Campaign,
    model::{StoreTime, Term},
    schedule::{Misfire, Overlap, Schedule},
    spread::{Spread, Task},
    store::{
        mongo::{MongoOptions, MongoStore},
        sqlite::SqliteStore,
    },
};
use tenure_sim::{
    Dice, EventKind, Life, Recording, Reported, SPREAD, Watched, Wire, Witness, WorkKind, lock_id, number_of,
    task_name,
};
use tokio::{
    runtime::Handle,
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::{
    flaw::flaw,
    ills::{Ill, Illness, Log, Numbers, Part},
    lines::{self, Line},
    resource::Resource,
    ticks::PULSE,
};

/// Beginning of the URI of a file.
pub(crate) const FILE: &str = "sqlite:";
pub(crate) const ORDER: &str = "TENURE_TEST_HOLDER";
/// Arguments of such a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) uri: String,
    pub(crate) database: String,
    pub(crate) member: usize,
    pub(crate) number: u32,
    pub(crate) keys: usize,
    pub(crate) tasks: usize,
    pub(crate) cap: usize,
    pub(crate) seed: u64,
    pub(crate) pace: Pace,
    /// Parts of the program that misbehave.
    pub(crate) ills: Vec<Ill>,
    /// Some keys are worked at by threads, under guards.
    pub(crate) with_guards: bool,
}

/// Speed of the holders.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// A takeover in three seconds.
    Quick,
    /// A ttl that cannot be waited for unnoticed, and many keys.
    Patient,
    /// As quick, to be looked at: jobs stop as soon as they are told to, and the log is not shown.
    Shown,
}

impl Pace {
    /// Longest time between two polls of a job.
    const fn polls(self) -> Duration {
        Duration::from_millis(match self {
            Self::Quick => 20,
            Self::Patient | Self::Shown => 60,
        })
    }
}

/// Configuration of the holders.
pub(crate) fn config(member: usize, pace: Pace) -> ElectConfig {
    let (second, config) =
        (Duration::from_secs(1), ElectConfig::new("fleet", format!("pod-{member}")).unwrap());
    let config = match pace {
        Pace::Quick | Pace::Shown => config.with_hold_duration(2 * second).with_refresh_interval(second / 2),
        Pace::Patient => config.with_hold_duration(7 * second).with_refresh_interval(second),
    };
    config.with_refresh_duration(match pace {
        Pace::Quick | Pace::Shown => 3 * second,
        Pace::Patient => 10 * second,
    })
}

/// Says what happens.
#[derive(Clone, Copy, Debug)]
struct Pen;

fn say(line: &Line) {
    say_of(SystemClock::new().now(), line);
}

/// In one write: a line is whole, also if the process is killed.
fn say_of(at: Moment, line: &Line) {
    let line = lines::write(at, line);
    let _ = std::io::stdout().write_all(line.as_bytes());
}

thread_local! {
    static LOOKED: Cell<Option<Moment>> = const { Cell::new(None) };
}

/// The machine's clock. It knows when each thread looked at it last.
#[derive(Debug, Default)]
struct Looked(SystemClock);

impl Clock for Looked {
    fn now(&self) -> Moment {
        let now = self.0.now();
        LOOKED.set(Some(now));
        now
    }

    fn wall(&self) -> StoreTime {
        self.0.wall()
    }
}

/// Time at which the engine found that this poll of a job may begin. However long the thread loses its processor
/// after that, nothing can stop the poll.
fn allowed_at() -> Moment {
    LOOKED.get().unwrap_or_else(|| SystemClock::new().now())
}

impl Recording for Pen {
    fn write(&self, what: EventKind) {
        say(&Line::Seen(what));
    }
}

/// Returns whether this process was started to be a holder, and has been one.
pub(crate) fn holds() -> bool {
    let Ok(order) = std::env::var(ORDER) else { return false };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let order: Order = serde_json::from_str(&order).unwrap();
    // The line the test harness has begun ends here.
    println!();
    let illness = Illness::new(order.ills.clone(), order.seed ^ order.member as u64);
    // With the time by which the entries of a history are counted, to read it beside one.
    tracing_subscriber::fmt()
        .with_writer(Log(illness.clone()))
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .init();
    metrics::set_global_recorder(Numbers(illness.clone())).unwrap();
    Pen.write(EventKind::Started);
    let (tell, told) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = tell.send(line);
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(live(order, illness, told));
    true
}

#[test]
#[ignore = "not a test: the process that others start"]
fn is_a_holder() {
    holds();
}

/// The runtime of the part that looks at the program: nothing is wrong with it.
static LOOKING: OnceLock<Handle> = OnceLock::new();

fn looking() -> &'static Handle {
    LOOKING.get().expect("it is set before anything begins")
}

async fn live(order: Order, illness: Arc<Illness>, mut told: mpsc::UnboundedReceiver<String>) {
    LOOKING.set(Handle::current()).expect("once");
    let order = Arc::new(order);
    let idle = Arc::new(AtomicBool::new(false));
    let mut starting = Some(tokio::spawn(start(order.clone(), illness, idle.clone())));
    let mut running = None;
    loop {
        tokio::select! {
            biased;
            line = told.recv() => match line.as_deref().map(|line| line.split_once(' ').unwrap_or((line, ""))) {
                Some(("echo", number)) => say(&Line::Echo(number.parse().unwrap())),
                Some(("idle", _)) => idle.store(true, Ordering::SeqCst),
                Some(("close", _)) => break,
                Some((other, _)) => panic!("{other} is no order"),
                // The fleet that wanted it is gone.
                None => return,
            },
            started = async { starting.as_mut().expect("checked").await }, if starting.is_some() => {
                starting = None;
                running = Some(started.unwrap());
            }
        }
    }
    idle.store(true, Ordering::SeqCst);
    let Some((elect, kept)) = running else { return };
    Pen.write(EventKind::Closes);
    let closed = elect.close().await;
    Pen.write(EventKind::Closed { overran: closed.overran.len() });
    drop(kept);
}

async fn connect(order: &Order, illness: &Arc<Illness>) -> MongoStore {
    loop {
        let mut options = MongoOptions::new().database(&order.database);
        if !order.ills.is_empty() {
            let (of_uris, uri, of_commands) = (illness.clone(), order.uri.clone(), illness.clone());
            options = options
                .uri_from(move || {
                    let (illness, uri) = (of_uris.clone(), uri.clone());
                    async move {
                        illness.strikes(Part::Uri, 0);
                        Ok(uri)
                    }
                })
                .command_events(EventHandler::callback(move |_| of_commands.strikes(Part::Commands, 0)));
        }
        match MongoStore::connect(&order.uri, options).await {
            Ok(store) => return store,
            // It is in the middle of whatever is done to it.
            Err(error) => eprintln!("holder {}.{}: {error}", order.member, order.number),
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn start(
    order: Arc<Order>,
    illness: Arc<Illness>,
    idle: Arc<AtomicBool>,
) -> (Elect, (Vec<Campaign>, Spread, Schedule)) {
    let (store, fenced): (Arc<dyn tenure::store::Store>, _) = if let Some(file) = order.uri.strip_prefix(FILE)
    {
        (Arc::new(SqliteStore::open(file).unwrap()), None)
    } else {
        // Its handle for fences is the program's own: a handler that blocks may block its runtime.
        let clients = illness.clients(&Handle::current());
        let (of_store, its) = (order.clone(), illness.clone());
        let store = clients.spawn(async move { connect(&of_store, &its).await }).await.unwrap();
        (Arc::new(store.clone()), Some((store, Resource::connect(&order.uri, &order.database).await)))
    };
    let clock = Arc::new(Looked::default());
    let wire = Wire::new(store, Arc::new(Pen), clock.clone());
    let wire: Arc<dyn tenure::store::Store> = Arc::new(wire);
    let mut builder = Elect::builder(wire, config(order.member, order.pace)).clock(clock);
    if let Some(flaw) = flaw() {
        builder = builder.flaw(flaw);
    }
    let runtime = illness.runtime(&Handle::current());
    let elect = {
        let _inside = runtime.enter();
        builder.begin().unwrap()
    };
    illness.begins();
    let mut events = elect.events();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            if let Some(told) = Reported::of(&event) {
                Pen.write(EventKind::Reported(told));
            }
        }
    });
    let life = Life { member: order.member, number: order.number };
    let mut dice = Dice::new(order.seed ^ (u64::from(life.number) << 32) ^ life.member as u64);
    let mut campaigns = Vec::new();
    for key in 0..order.keys {
        let tag = format!("{life}-{key}");
        let dice = dice.split(key as u64);
        if order.with_guards && is_guarded(key) {
            let (elect, idle) = (elect.clone(), idle.clone());
            std::thread::spawn(move || guards(&elect, key, &tag, dice, &idle));
            continue;
        }
        let hands = Hands { fenced: fenced.clone(), key, pace: order.pace, with_guards: order.with_guards };
        let rest = Duration::from_millis(100);
        let campaign = elect.key(format!("k{key}")).who(&tag).campaign().rest_between(rest);
        let run = move |lease: Lease| {
            let term = lease.term();
            job(lease, key, &tag, hands.clone(), dice.clone().split(term.get()))
        };
        let strikes = || {
            let illness = illness.clone();
            move || {
                illness.strikes(Part::Callbacks, 0);
                std::future::ready(())
            }
        };
        let (acquired, lost, leader) = (strikes(), strikes(), strikes());
        let campaign = campaign
            .on_acquired(move |_| acquired())
            .on_lost(move |_| lost())
            .on_new_leader(move |_| leader());
        campaigns.push(campaign.run(run).unwrap());
    }
    let hands = Hands { fenced, key: 0, pace: order.pace, with_guards: order.with_guards };
    let share = share(&elect, &order, &hands, dice.split(99));
    let pulse = pulse(&elect);
    (elect, (campaigns, share, pulse))
}

/// Returns whether a key is worked at by a thread under guards, where there are such.
pub(crate) const fn is_guarded(key: usize) -> bool {
    key % 3 == 2
}

/// Works under guards, in a thread whose runtime runs for as long as it waits. Some waits are given up at once.
fn guards(elect: &Elect, key: usize, tag: &str, mut dice: Dice, idle: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    while !idle.load(Ordering::SeqCst) {
        std::thread::sleep(dice.between(Duration::ZERO, Duration::from_millis(50)));
        let is_patient = dice.below(10) < 7;
        let patience = Duration::from_millis(if is_patient { 5_000 } else { dice.below(50) });
        let acquire = elect.key(format!("k{key}")).who(tag).acquire();
        let Ok(Ok(guard)) = runtime.block_on(async { timeout(patience, acquire).await }) else { continue };
        let (lease, term) = (guard.lease(), guard.term());
        if lease.is_cancelled() {
            continue;
        }
        let tag = tag.to_owned();
        say_of(allowed_at(), &Line::Seen(EventKind::Began { key, term, tag, sort: WorkKind::Guard }));
        tell_of_cancelling(&lease, key);
        works(&lease, key, dice.between(Duration::ZERO, Duration::from_secs(3)));
        Pen.write(EventKind::Ended { key, term });
    }
}

fn tell_of_cancelling(lease: &Lease, key: usize) {
    let (token, term) = (lease.token(), lease.term());
    looking().spawn(async move {
        token.cancelled().await;
        Pen.write(EventKind::Cancelled { key, term });
    });
}

/// Has the schedule: every tick of it is run, however late.
fn pulse(elect: &Elect) -> Schedule {
    let misfire = Misfire::All { window: Duration::from_secs(120), at_most: 120 };
    let pulse = elect.schedule(PULSE, "* * * * * *").misfire(misfire).overlap(Overlap::Queue);
    let run = async |tick: tenure::schedule::Tick, lease: Lease| {
        let (instant, attempt) = (tick.scheduled_at().as_millis(), tick.attempt());
        say_of(allowed_at(), &Line::Ticked { instant, attempt });
        // It may be killed in the middle.
        tokio::select! {
            () = lease.cancelled() => Err("cancelled"),
            () = sleep(Duration::from_millis(100)) => Ok(()),
        }
    };
    pulse.run(run).unwrap()
}

/// Takes part in the spread. Its tickets have no names.
fn share(elect: &Elect, order: &Order, hands: &Hands, dice: Dice) -> Spread {
    Pen.write(EventKind::Capped { cap: order.cap });
    let spread = elect.spread(SPREAD).tasks((0..order.tasks).map(task_name));
    let spread = spread.cap(u32::try_from(order.cap).unwrap()).again_after(Duration::from_millis(100));
    let hands = hands.clone();
    let run = move |task: Task, lease: Lease| {
        let key = number_of(task.key().as_str()).unwrap();
        let dice = dice.clone().split(lease.term().get());
        job(lease, key, "", Hands { key, ..hands.clone() }, dice)
    };
    spread.run(run).unwrap()
}

/// Things that a job works with.
#[derive(Clone, Debug)]
struct Hands {
    /// Store and resource behind the fence, where there is one.
    fenced: Option<(MongoStore, Resource)>,
    key: usize,
    pace: Pace,
    /// Some of its jobs block a thread.
    with_guards: bool,
}

/// Behaviour of a job.
#[derive(Clone, Copy, Debug)]
enum JobBehaviour {
    /// Returns after a while, or when it is told to stop.
    Returns(Duration),
    /// Returns when it is told to stop.
    Obeys,
    /// Takes most of its grace.
    Drains,
    /// Is polled until it is dropped.
    Ignores,
}

impl JobBehaviour {
    fn any(dice: &mut Dice) -> Self {
        match dice.below(10) {
            0..4 => Self::Returns(dice.between(Duration::from_millis(500), Duration::from_secs(6))),
            4..6 => Self::Obeys,
            6..8 => Self::Drains,
            _ => Self::Ignores,
        }
    }
}

fn job(lease: Lease, key: usize, tag: &str, hands: Hands, mut dice: Dice) -> Watched<Watch> {
    let term = lease.term();
    Pen.write(EventKind::Began { key, term, tag: tag.to_owned(), sort: WorkKind::Job });
    tell_of_cancelling(&lease, key);
    if hands.with_guards && key % 3 == 1 {
        let (lease, time) = (lease.clone(), dice.between(Duration::ZERO, Duration::from_secs(6)));
        tokio::task::spawn_blocking(move || works(&lease, key, time));
    }
    let conduct = match hands.pace {
        Pace::Shown => JobBehaviour::Obeys,
        Pace::Quick | Pace::Patient => JobBehaviour::any(&mut dice),
    };
    let polls = hands.pace.polls();
    let work = async move {
        let ticks = async {
            let mut tick = tokio::time::interval(polls);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
            }
        };
        let enough = async {
            match conduct {
                JobBehaviour::Returns(after) => {
                    tokio::select! { () = lease.cancelled() => {} () = sleep(after) => {} }
                }
                JobBehaviour::Obeys => lease.cancelled().await,
                JobBehaviour::Drains => {
                    lease.cancelled().await;
                    sleep(lease.remaining() * 4 / 5).await;
                }
                JobBehaviour::Ignores => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = enough => {}
            () = ticks => {}
            () = hands.work(term, dice) => {}
        }
        Ok(())
    };
    Watched::new(work, Watch { key, term })
}

/// Works in this thread for so long, and no longer than the lease goes.
fn works(lease: &Lease, key: usize, time: Duration) {
    let (term, enough) = (lease.term(), SystemClock::new().now() + time);
    while !lease.is_cancelled() && allowed_at() < enough {
        say_of(allowed_at(), &Line::Seen(EventKind::Polled { key, term }));
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Hands {
    /// Writes the resource again and again, each time behind the fence.
    async fn work(self, term: Term, mut dice: Dice) {
        let lock = lock_id(self.key);
        let Some((store, resource)) = self.fenced else { return std::future::pending().await };
        let fence = loop {
            if let Ok(fence) = resource.arm(&store, &lock, term).await {
                break fence;
            }
            sleep(dice.between(Duration::from_millis(50), Duration::from_millis(200))).await;
        };
        // Another instance holds a later term, which this job will be told soon.
        let Some(fence) = fence else { return std::future::pending().await };
        loop {
            if let Ok(version) = resource.write(&fence, self.key).await {
                say(&Line::Committed { key: self.key, term, version });
            }
            sleep(dice.between(Duration::from_millis(50), Duration::from_millis(400))).await;
        }
    }
}

#[derive(Debug)]
struct Watch {
    key: usize,
    term: Term,
}

impl Witness for Watch {
    fn polls(&mut self) {
        say_of(allowed_at(), &Line::Seen(EventKind::Polled { key: self.key, term: self.term }));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        Pen.write(EventKind::Ended { key: self.key, term: self.term });
    }
}
