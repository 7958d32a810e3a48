//! A small fleet to look at: a spread, schedules, locks and queues, with one task that fails and one schedule that does.

#![allow(dead_code, reason = "each user has its part of it")]

#[path = "../../../examples/support/cable.rs"]
mod cable;

use std::{collections::BTreeMap, error::Error, sync::Arc, time::Duration};

pub(crate) use cable::Cabled;
use tenure::{
    Clock, Elect, ElectConfig, Lease, SystemClock,
    elect::Locked,
    model::Namespace,
    schedule::{Retries, Schedule, Timing},
    spread::{Spread, SpreadStatus},
    store::Store,
};
use tokio_util::sync::CancellationToken;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const SPREAD: &str = "topics";
/// The task whose job fails.
pub(crate) const BROKEN: &str = "topic-13";
/// The lock that others wait for.
pub(crate) const LEADER: &str = "leader";
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// Schedules: name, expression, zone.
const SCHEDULES: [(&str, &str, Option<&str>); 5] = [
    ("pulse", "*/2 * * * * *", None),
    ("invoices", "*/4 * * * * *", None),
    ("digest", "30 2 * * MON-FRI", Some("Europe/Berlin")),
    ("cleanup", "@every 90s", None),
    ("report", "0 6 1 * *", Some("America/New_York")),
];

/// An instance of the fleet.
pub(crate) struct Instance {
    pub(crate) elect: Elect,
    pub(crate) spread: Spread,
    schedules: Vec<Schedule>,
    /// Token that cuts the instance off: the store sees of it the same as of a crash.
    pub(crate) pulled: CancellationToken,
}

/// A fleet, and what it keeps as long as it is there.
pub(crate) struct Fleet {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    pub(crate) tasks: usize,
    pub(crate) instances: BTreeMap<String, Instance>,
    /// Tokens that end the jobs which hold locks.
    holds: BTreeMap<String, CancellationToken>,
}

pub(crate) fn namespace() -> Namespace {
    Namespace::new(NAMESPACE).expect("it is short")
}

impl Fleet {
    pub(crate) fn new(store: Arc<dyn Store>, tasks: usize) -> Self {
        let clock = Arc::new(SystemClock::new());
        Self { store, clock, tasks, instances: BTreeMap::new(), holds: BTreeMap::new() }
    }

    /// The same by another clock.
    pub(crate) fn by(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Adds an instance. It takes part in all that the others do.
    pub(crate) async fn join(&mut self, holder: &str) -> Result<(), Failure> {
        let config = ElectConfig::new(NAMESPACE, holder)?
            .with_hold_duration(2 * SECOND)
            .with_refresh_interval(500 * MS)
            .with_refresh_duration(3 * SECOND);
        let pulled = CancellationToken::new();
        let cabled = Cabled { store: self.store.clone(), pulled: pulled.clone() };
        let store: Arc<dyn Store> = Arc::new(cabled);
        let builder = Elect::builder(store, config).clock(self.clock.clone());
        let elect = builder.program("shop 1.4").start().await?;
        let keys = (0..self.tasks).map(|topic| format!("topic-{topic:02}"));
        let spread = elect.spread(SPREAD).tasks(keys).tries(2).run(async |task, lease: Lease| {
            if task.key().as_str() == BROKEN {
                return Err("the broker refuses it");
            }
            lease.cancelled().await;
            Ok(())
        })?;
        let mut schedules = Vec::new();
        for (name, expression, zone) in SCHEDULES {
            let mut timing = Timing::new(expression);
            if let Some(zone) = zone {
                timing = timing.zone(zone);
            }
            let schedule = elect
                .schedule(name, timing)
                .retries(Retries { tries: 1, first: SECOND, longest: SECOND })
                .run(async |tick, _| {
                    if tick.schedule().as_str() == "invoices" {
                        return Err("the printer is out of paper");
                    }
                    Ok(())
                })?;
            schedules.push(schedule);
        }
        self.instances.insert(holder.to_owned(), Instance { elect, spread, schedules, pulled });
        Ok(())
    }

    /// Has this instance hold a key, with a reason and a value.
    pub(crate) async fn hold(&mut self, holder: &str, key: &str, why: &str) -> Result<(), Failure> {
        let elect = &self.instances[holder].elect;
        let end = CancellationToken::new();
        self.holds.insert(key.to_owned(), end.clone());
        let asked = elect.key(key).who("shop").why(why).value("10.0.0.1:8080 secret");
        let job = async move |lease: Lease| {
            tokio::select! {
                () = lease.cancelled() => {}
                () = end.cancelled() => {}
            }
            Ok::<_, String>(())
        };
        match asked.lock(job).await? {
            Locked::Running(_) => Ok(()),
            Locked::Busy(busy) => Err(format!("{key} is not free: {busy:?}").into()),
        }
    }

    /// Gives a key back.
    pub(crate) fn give_back(&mut self, key: &str) {
        if let Some(end) = self.holds.remove(key) {
            end.cancel();
        }
    }

    /// Has this instance wait for a key that another holds.
    pub(crate) fn queue(&self, holder: &str, key: &str) {
        let asked = self.instances[holder].elect.key(key).who("shop").why("to lead next");
        tokio::spawn(async move {
            // It is granted if its holder goes, and given back then.
            let _ = asked.acquire().await;
        });
    }

    /// Waits until all members have what the plan wants.
    pub(crate) async fn settled(&self) {
        let members = self.instances.len();
        let Some(one) = self.instances.values().next() else { return };
        let is_so = |status: &SpreadStatus| status.members.len() == members && status.is_settled();
        one.spread.until(is_so).await;
    }

    /// Cuts an instance off from the store, and waits until the others have its tasks.
    pub(crate) async fn crash(&mut self, holder: &str) {
        if let Some(one) = self.instances.remove(holder) {
            one.pulled.cancel();
        }
        self.settled().await;
    }

    pub(crate) async fn close(self) {
        futures::future::join_all(self.instances.values().map(|one| one.elect.close())).await;
    }
}
