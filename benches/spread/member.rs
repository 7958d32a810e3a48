//! A process with one instance, which takes part when it is told to, and says what happens.

use std::{
    io::{BufRead, Write},
    sync::Arc,
    time::Duration,
};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tenure::{
    Clock, Elect, ElectConfig, Lease, SystemClock,
    clock::Moment,
    spread::{Spread, Task},
    store::{
        Store,
        mongo::{MongoOptions, MongoStore},
    },
    testing::{Counting, Intercept, Intercepted, Operation},
};
use tokio::sync::mpsc;

const ORDER: &str = "TENURE_BENCH_MEMBER";
pub(crate) const NAMESPACE: &str = "bench";
pub(crate) const SPREAD: &str = "tasks";

/// Arguments of a member at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) uri: String,
    pub(crate) database: String,
    pub(crate) holder: String,
    pub(crate) tasks: usize,
    /// Takes over in three seconds, where it is half a minute by default.
    pub(crate) quick: bool,
}

impl Order {
    /// For the environment of a member.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        (ORDER, serde_json::to_string(self).expect("it is plain data"))
    }
}

pub(crate) fn config(holder: &str, quick: bool) -> ElectConfig {
    let config = ElectConfig::new(NAMESPACE, holder).expect("within the limits");
    if !quick {
        return config;
    }
    let second = Duration::from_secs(1);
    config.with_hold_duration(2 * second).with_refresh_interval(second / 2).with_refresh_duration(3 * second)
}

pub(crate) fn keys(tasks: usize) -> impl Iterator<Item = String> {
    (0..tasks).map(|task| format!("task-{task:04}"))
}

/// Messages of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Said {
    /// The member has a session.
    Ready { session: String },
    /// The member is about to take part.
    Joins,
    /// A job was started.
    Began { key: String, term: u64 },
    /// The member begins to close.
    Closes,
    /// The member is closed.
    Closed { overran: usize },
    /// Calls to the store until now, and keys in them, by operation.
    Asked { calls: Vec<(String, bool, u64, u64)> },
}

/// With the moment, by the clock that all processes of the machine have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    nanos: u64,
    pub(crate) said: Said,
}

impl Line {
    pub(crate) fn at(&self) -> Moment {
        Moment::after_start(Duration::from_nanos(self.nanos))
    }
}

pub(crate) fn now() -> Moment {
    SystemClock::new().now()
}

fn say(said: Said) {
    let since = now().since(Moment::after_start(Duration::ZERO)).as_nanos();
    let line = Line { nanos: u64::try_from(since).unwrap_or(u64::MAX), said };
    let line = serde_json::to_string(&line).expect("it is plain data") + "\n";
    // In one write: a line is whole, also if the process is killed.
    let _ = std::io::stdout().write_all(line.as_bytes());
}

/// If this process was started as a member, it is one until its end.
pub(crate) fn is_one() -> bool {
    let Ok(order) = std::env::var(ORDER) else { return false };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("it is a valid signal");
    let order: Order = serde_json::from_str(&order).expect("whoever starts a member writes it");
    let (tell, told) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = tell.send(line);
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("threads can be started").block_on(live(order, told));
    true
}

async fn live(order: Order, mut told: mpsc::UnboundedReceiver<String>) {
    let options = MongoOptions::new().database(&order.database);
    let store = MongoStore::connect(&order.uri, options).await.expect("the server is up");
    let counts: Arc<Intercepted<Counting>> = Counting::default().around(Arc::new(store));
    let store: Arc<dyn Store> = counts.clone();
    let elect = Elect::start(store, config(&order.holder, order.quick)).await.expect("the server is up");
    let session = elect.health().session.map(|session| session.to_string()).unwrap_or_default();
    say(Said::Ready { session });
    let mut spread: Option<Spread> = None;
    // When it ends, whoever wanted this process is gone.
    while let Some(line) = told.recv().await {
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("join", _) => {
                say(Said::Joins);
                let spreading = elect.spread(SPREAD).tasks(keys(order.tasks));
                spread = Some(spreading.run(job).expect("it is open, and within the limits"));
            }
            ("asked", _) => say(Said::Asked { calls: calls(&counts) }),
            ("close", grace) => {
                say(Said::Closes);
                let grace: u64 = grace.parse().unwrap_or(0);
                // Dropped before, it would give its tasks away.
                let part = spread.take();
                let closed = if part.is_some() && grace > 0 {
                    elect.close_for_restart(Duration::from_secs(grace)).await
                } else {
                    elect.close().await
                };
                drop(part);
                say(Said::Closed { overran: closed.overran.len() });
                return;
            }
            (other, _) => panic!("{other} is no order"),
        }
    }
}

/// Returns at once when it is told to stop.
async fn job(task: Task, lease: Lease) -> Result<(), String> {
    say(Said::Began { key: task.key().to_string(), term: lease.term().get() });
    lease.cancelled().await;
    Ok(())
}

fn calls(counts: &Intercepted<Counting>) -> Vec<(String, bool, u64, u64)> {
    let counts = counts.intercept().counts();
    let one = |operation: &Operation| {
        (format!("{operation:?}"), operation.is_write(), counts.calls(*operation), counts.keys(*operation))
    };
    Operation::ALL.iter().map(one).filter(|(_, _, calls, _)| *calls > 0).collect()
}
