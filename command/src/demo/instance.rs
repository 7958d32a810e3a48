//! An instance of the fleet, in a process of its own: it works on its tasks and reports that, until it is ordered to
//! end or its demo is gone.

use std::{
    convert::Infallible,
    io::{self, BufRead, Write},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tenure::{
    Clock, Elect, ElectConfig, Event, Lease, SystemClock,
    clock::Moment,
    schedule::{Misfire, OnCrash, Overlap, Schedule, Tick, Timing},
    spread::Spread,
};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use super::message::{InstanceMessage, Under, write};
use crate::{
    common::Level,
    exit::Failure,
    logs,
    place::{OpenMode, OpenStore},
    settings::{Settings, Uri},
};

/// Time between two steps of a task, and between two signs of life of a process.
const STEP: Duration = Duration::from_millis(50);
/// Time that the job of a tick takes: long enough to be killed in the middle.
const TICK_TAKES: Duration = Duration::from_millis(30);

/// Names under which the fleet works.
pub(crate) const SPREAD: &str = "work";
const SCHEDULE: &str = "clock";

/// The first message to an instance: not passed as an argument, as there may be a password in the store's URI.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Setup {
    pub(crate) store: String,
    pub(crate) store_file: Option<PathBuf>,
    pub(crate) namespace: String,
    pub(crate) holder: String,
    pub(crate) tasks: usize,
    pub(crate) ttl_ms: u64,
    pub(crate) log: Level,
}

impl Setup {
    fn settings(&self) -> Result<Settings, Failure> {
        let ttl = Duration::from_millis(self.ttl_ms);
        let config = ElectConfig::new(&self.namespace, &self.holder)
            .map_err(|error| Failure::config(error.to_string()))?
            .with_refresh_duration(ttl)
            .with_refresh_interval(ttl / 6);
        let store = Uri { text: self.store.clone(), file: self.store_file.clone() };
        Ok(Settings::new(Some(store), config))
    }
}

/// An order to an instance, one word a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Drain,
    Close,
}

impl Order {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Close => "close",
        }
    }

    fn read(line: &str) -> Option<Self> {
        [Self::Drain, Self::Close].into_iter().find(|order| order.word() == line.trim())
    }
}

pub(crate) async fn run() -> Result<u8, Failure> {
    end_with_the_demo();
    let mut lines = lines_of_stdin();
    let setup = lines.recv().await.unwrap_or_default();
    let setup: Setup = serde_json::from_str(&setup)
        .map_err(|error| Failure::usage(format!("an instance is started by tenure demo only: {error}")))?;
    logs::start_at(setup.log);
    let ended = take_part(&setup, &mut lines).await;
    match &ended {
        Ok(()) => say(&InstanceMessage::Closed),
        Err(failure) => say(&InstanceMessage::Failed { why: failure.to_string() }),
    }
    ended.map(|()| 0)
}

async fn take_part(setup: &Setup, lines: &mut mpsc::UnboundedReceiver<String>) -> Result<(), Failure> {
    let place = OpenStore::open(&setup.settings()?, OpenMode::ReadWrite).await?;
    let program = concat!("tenure demo ", env!("CARGO_PKG_VERSION"));
    let elect =
        Elect::builder(place.store.clone(), setup.settings()?.config).program(program).start().await?;
    let mut events = elect.events();
    let spread = join(&elect, setup.tasks)?;
    let schedule = tick(&elect)?;
    say(&InstanceMessage::Ready);
    let mut pulse = interval(STEP);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut drains, mut is_drained) = (false, false);
    loop {
        tokio::select! {
            line = lines.recv() => match line.as_deref().map(Order::read) {
                Some(Some(Order::Drain)) => {
                    spread.drain();
                    drains = true;
                }
                Some(Some(Order::Close)) => break,
                Some(None) | None => {}
            },
            Some(event) = events.next() => heard(&event),
            _ = spread.until(|status| status.share().is_empty()), if drains && !is_drained => {
                is_drained = true;
                say(&InstanceMessage::Drained);
            }
            _ = pulse.tick() => say(&InstanceMessage::Pulse { late: late(&elect) }),
        }
    }
    elect.close().await;
    drop((spread, schedule, elect));
    place.close().await;
    Ok(())
}

/// Time by which the answer to a heartbeat is overdue.
fn late(elect: &Elect) -> Duration {
    let since = elect.health().last_beat.unwrap_or_default();
    since.saturating_sub(elect.config().refresh_interval())
}

fn heard(event: &Event) {
    match event {
        Event::SessionLost { loss, .. } => say(&InstanceMessage::Lost { why: loss.to_string() }),
        Event::Resting { lock, .. } => {
            if let Some(task) = number(lock.key.as_str()) {
                say(&InstanceMessage::Rests { task });
            }
        }
        Event::NotRun { count, why, .. } => {
            say(&InstanceMessage::NotRun { count: *count, why: format!("{why:?}") });
        }
        _ => {}
    }
}

// ----- tasks

/// Name of a task.
fn name(task: usize) -> String {
    format!("task-{task:02}")
}

fn number(name: &str) -> Option<usize> {
    name.strip_prefix("task-")?.parse().ok()
}

fn join(elect: &Elect, tasks: usize) -> Result<Spread, Failure> {
    Ok(elect
        .spread(SPREAD)
        .tasks((0..tasks).map(name))
        .run(|task, lease| work(number(task.key().as_str()).unwrap_or_default(), lease))?)
}

/// Works in small steps until it is told to stop, and says of each under which right it was made.
async fn work(task: usize, lease: Lease) -> Result<(), Infallible> {
    let Some(_running) = Running::begin(task, &lease) else {
        lease.cancelled().await;
        return Ok(());
    };
    let mut steps = interval(STEP);
    steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = lease.cancelled() => break,
            _ = steps.tick() => {}
        }
        worked(task, &lease, InstanceMessage::Worked);
    }
    worked(task, &lease, InstanceMessage::Worked);
    Ok(())
}

/// Says that work is done, if it is done under a valid lease. Returns whether it is.
///
/// The moment is taken before the lease is looked at: valid later, it was valid then. The process may be frozen
/// between the two, so the other order would be wrong now and then.
fn worked(task: usize, lease: &Lease, as_what: fn(Under) -> InstanceMessage) -> bool {
    let at = now();
    let left = lease.remaining();
    if left.is_zero() {
        return false;
    }
    tell(at, &as_what(Under { task, term: lease.term().get(), left }));
    true
}

/// Says that a job is over, however it ends: it may return, or be dropped.
struct Running {
    task: usize,
    term: u64,
}

impl Running {
    fn begin(task: usize, lease: &Lease) -> Option<Self> {
        worked(task, lease, InstanceMessage::Began).then(|| Self { task, term: lease.term().get() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        say(&InstanceMessage::Ended { task: self.task, term: self.term });
    }
}

// ----- the schedule

/// Ticks every second. Ticks that fall due while the schedule has no owner are run later, all of them.
fn tick(elect: &Elect) -> Result<Schedule, Failure> {
    Ok(elect
        .schedule(SCHEDULE, Timing::new("* * * * * *"))
        .misfire(Misfire::All { window: Duration::from_secs(3600), at_most: 3600 })
        .overlap(Overlap::Queue)
        .on_crash(OnCrash::AtLeastOnce { attempts: 20 })
        .run(ticked)?)
}

async fn ticked(tick: Tick, lease: Lease) -> Result<(), &'static str> {
    let (instant, attempt) = (tick.scheduled_at().as_millis(), tick.attempt());
    say(&InstanceMessage::TickBegan { instant, attempt });
    tokio::select! {
        biased;
        () = lease.cancelled() => {
            say(&InstanceMessage::TickStopped { instant, attempt });
            Err("asked to stop")
        }
        () = tokio::time::sleep(TICK_TAKES) => {
            say(&InstanceMessage::TickDone { instant, attempt });
            Ok(())
        }
    }
}

// ----- its demo

pub(crate) fn now() -> Moment {
    SystemClock::new().now()
}

fn say(said: &InstanceMessage) {
    tell(now(), said);
}

/// Says it at once, and before anything else happens: a lock is not given back before the last word under it is in
/// the pipe, where it stays if this process is killed.
fn tell(at: Moment, said: &InstanceMessage) {
    let mut out = io::stdout().lock();
    if out.write_all(write(at, said).as_bytes()).and_then(|()| out.flush()).is_err() {
        // The demo does not read any more.
        std::process::exit(0);
    }
}

/// Lines of standard input. The process ends with it: a demo that is gone has closed it.
fn lines_of_stdin() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                // It has closed already, and ends by itself.
                return;
            }
        }
        std::process::exit(0);
    });
    lines
}

/// Has the kernel kill this process with the demo, also while it is frozen and cannot read that its input has ended.
fn end_with_the_demo() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        // Without it the end of the input does, unless this process is frozen.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_known_by_its_number() {
        for task in [0, 7, 42, 99, 100] {
            assert_eq!(number(&name(task)), Some(task));
        }
        assert_eq!(number("report"), None);
    }

    #[test]
    fn orders_are_read_as_they_were_written() {
        for order in [Order::Drain, Order::Close] {
            assert_eq!(Order::read(&format!("{}\n", order.word())), Some(order));
        }
        assert_eq!(Order::read("sing"), None);
    }

    #[test]
    fn the_durations_of_the_fleet_keep_the_rules() {
        let setup = Setup {
            store: "sqlite:/nowhere".to_owned(),
            store_file: None,
            namespace: "demo".to_owned(),
            holder: "demo-1".to_owned(),
            tasks: 100,
            ttl_ms: u64::try_from(super::super::TTL.as_millis()).unwrap(),
            log: Level::Error,
        };
        let config = setup.settings().unwrap().config;
        config.validate().unwrap();
        assert_eq!(config.ttl(), super::super::TTL);
    }
}
