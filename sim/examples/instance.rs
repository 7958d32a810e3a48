//! An instance of a fleet of several versions, for `scripts/mixed`.
//!
//! Takes `TENURE_STORE` (`sqlite:PATH` or `mongodb://…`) and the configuration in `TENURE_NAMESPACE`, `TENURE_HOLDER`, …
//! Closes when its standard input ends. Its lines on standard output are a format that stays, as other versions of this
//! program write it, too:
//!
//! ```text
//! ready
//! begin KIND KEY TERM NANOSECONDS
//! end KIND KEY TERM NANOSECONDS HOW
//! closed
//! ```
//!
//! `KIND` is `campaign`, `queue`, `task` or `tick`; the key of a tick is `SCHEDULE@INSTANT`. The times are of boot time,
//! which all processes of a machine share: of the first and of the last poll of a job. `HOW` is `done`, `told` where the
//! job was told to stop, or `dropped`.

use std::{error::Error, fmt::Display, io::Write, sync::Arc, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use tenure::{
    Elect, ElectConfig, Lease,
    schedule::{Misfire, Overlap},
    store::{Store, mongo::MongoOptions, mongo::MongoStore, sqlite::SqliteStore},
};
use tokio::io::AsyncReadExt;

const CAMPAIGNS: usize = 3;
const TASKS: usize = 12;
/// Time between two polls of a job, each of which counts as the last one.
const STEP: Duration = Duration::from_millis(10);
/// Time that a turn in the queue and the run of a tick take.
const SHORT: Duration = Duration::from_millis(50);

/// A job that is on, until this is dropped: also if the engine drops it half-way.
struct Running {
    what: String,
    polled: u64,
    how: &'static str,
}

impl Running {
    fn begin(kind: &str, key: impl Display, lease: &Lease) -> Self {
        let what = format!("{kind} {key} {}", lease.term());
        let polled = now();
        say(&format!("begin {what} {polled}"));
        Self { what, polled, how: "dropped" }
    }

    /// Works for so long, or until it is told to stop.
    async fn work(mut self, lease: Lease, takes: Duration) -> Result<(), &'static str> {
        let end = now().saturating_add(u64::try_from(takes.as_nanos()).unwrap_or(u64::MAX));
        while !lease.is_cancelled() && now() < end {
            tokio::time::sleep(STEP).await;
            self.polled = now();
        }
        self.how = if now() < end { "told" } else { "done" };
        if self.how == "done" { Ok(()) } else { Err("told to stop") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        say(&format!("end {} {} {}", self.what, self.polled, self.how));
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("boot time begins with 0")
}

/// Writes a line at once, so that a kill leaves no half of it.
fn say(line: &str) {
    // A reader that went away ends this program by its standard input.
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

async fn store() -> Result<Arc<dyn Store>, Box<dyn Error>> {
    let place = std::env::var("TENURE_STORE")?;
    Ok(match place.strip_prefix("sqlite:") {
        Some(path) => SqliteStore::open(path)?.into(),
        None => MongoStore::connect(&place, MongoOptions::new()).await?.into(),
    })
}

/// Waits for its turn again and again.
async fn queue(elect: Elect) {
    let turn = |lease: Lease| Running::begin("queue", lease.key(), &lease).work(lease, SHORT);
    while elect.with_lock("queue", turn).await.is_ok() {
        tokio::time::sleep(SHORT).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let elect = Elect::start(store().await?, ElectConfig::from_env("TENURE_")?).await?;
    let mut campaigns = Vec::new();
    for number in 0..CAMPAIGNS {
        let key = format!("key-{number}");
        let run = move |lease: Lease| {
            Running::begin("campaign", lease.key(), &lease).work(lease.clone(), Duration::MAX)
        };
        campaigns.push(elect.campaign(&key).run(run)?);
    }
    let _spread = elect
        .spread("tasks")
        .tasks((0..TASKS).map(|number| format!("task-{number:02}")))
        .run(|task, lease| Running::begin("task", task.key(), &lease).work(lease, Duration::MAX))?;
    let _schedule = elect
        .schedule("clock", "* * * * * *")
        .misfire(Misfire::All { window: Duration::from_secs(60), at_most: 60 })
        .overlap(Overlap::Queue)
        .run(|tick, lease| {
            let key = format!("{}@{}", tick.schedule(), tick.scheduled_at().as_millis());
            Running::begin("tick", key, &lease).work(lease, SHORT)
        })?;
    let turns = tokio::spawn(queue(elect.clone()));
    say("ready");
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    elect.close().await;
    turns.await?;
    say("closed");
    Ok(())
}
