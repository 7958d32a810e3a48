//! Instances that have schedules, and what was run.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::killable::Killable;
use futures::future::join_all;
use mongodb::event::{EventHandler, command::CommandEvent};
use tenure::{
    Clock, Elect, ElectConfig, SystemClock,
    model::StoreTime,
    schedule::Schedule,
    spread::SpreadStatus,
    store::mongo::{MongoOptions, MongoStore},
};
use tokio::time::timeout;

use crate::{measure::median, world::World};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// For what takes seconds at the worst.
const BOUND: Duration = Duration::from_secs(120);

/// The servers' time: they are on this machine.
pub(crate) fn wall() -> StoreTime {
    SystemClock::new().wall()
}

/// A job was begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) by: usize,
    pub(crate) instant: StoreTime,
    pub(crate) at: StoreTime,
}

impl Run {
    pub(crate) fn lateness(&self) -> Duration {
        self.at.since(self.instant)
    }
}

/// Instances over one database.
pub(crate) struct Crew {
    uri: String,
    database: String,
    pub(crate) members: Vec<Member>,
    runs: Arc<Mutex<Vec<Run>>>,
    /// Number of commands that the clients have sent.
    sent: Arc<AtomicU64>,
    started: usize,
}

pub(crate) struct Member {
    pub(crate) number: usize,
    pub(crate) elect: Elect,
    pub(crate) process: Killable,
    pub(crate) schedules: Vec<Schedule>,
}

impl Crew {
    pub(crate) async fn new(world: &World, database: &str, instances: usize, config: Config) -> Self {
        let mut crew = Self {
            uri: world.uri().to_owned(),
            database: database.to_owned(),
            members: Vec::new(),
            runs: Arc::default(),
            sent: Arc::default(),
            started: 0,
        };
        crew.start(instances, config).await;
        crew
    }

    pub(crate) async fn start(&mut self, instances: usize, config: Config) {
        let numbers = self.started..self.started + instances;
        self.started += instances;
        let members = join_all(numbers.map(|number| self.member(number, config))).await;
        self.members.extend(members);
    }

    async fn member(&self, number: usize, config: Config) -> Member {
        let sent = self.sent.clone();
        let count = EventHandler::callback(move |event| {
            if matches!(event, CommandEvent::Started(_)) {
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
        let options = MongoOptions::new().database(&self.database).command_events(count);
        let store = MongoStore::connect(&self.uri, options).await.expect("the server is up");
        let process = Killable::default();
        let mut builder = Elect::builder(store, config.of(&format!("pod-{number:02}")));
        if config == Config::Killed {
            // On a thread of its own the keeper would survive.
            builder = builder.tasks(Arc::new(process.clone()));
        }
        let elect = builder.start().await.expect("the server is up");
        Member { number, elect, process, schedules: Vec::new() }
    }

    /// All of them have so many schedules.
    pub(crate) fn schedules(&mut self, number: usize, expression: &str, spread_over: Duration) {
        for member in &mut self.members {
            for schedule in member.schedules.len()..number {
                let (runs, by) = (self.runs.clone(), member.number);
                let scheduling = member.elect.schedule(format!("job-{schedule:05}"), expression);
                let schedule = scheduling.spread_over(spread_over).run(move |tick, _lease| {
                    let run = Run { by, instant: tick.scheduled_at(), at: wall() };
                    runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
                    std::future::ready(Ok::<_, String>(()))
                });
                member.schedules.push(schedule.expect("it is open, and within the limits"));
            }
        }
    }

    /// Waits until all have their part.
    pub(crate) async fn settled(&self, schedules: usize) {
        assert!(self.settles(schedules).await, "schedules are shared out in time");
    }

    /// Returns whether all have their part in time.
    pub(crate) async fn settles(&self, schedules: usize) -> bool {
        let is_so = |status: &SpreadStatus| {
            status.is_settled() && status.members.len() == self.members.len() && status.held() == schedules
        };
        let status = self.members[0].elect.schedules();
        timeout(BOUND, status.until(is_so)).await.is_ok()
    }

    fn registry(&self) -> MutexGuard<'_, Vec<Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs that were begun since the last call.
    pub(crate) fn take_runs(&self) -> Vec<Run> {
        std::mem::take(&mut *self.registry())
    }

    /// Waits until such a run was begun.
    pub(crate) async fn run(&self, mut is_it: impl FnMut(&Run) -> bool) -> Run {
        let found = async {
            loop {
                if let Some(run) = self.registry().iter().find(|run| is_it(run)) {
                    return *run;
                }
                tokio::time::sleep(SECOND / 1000).await;
            }
        };
        timeout(BOUND, found).await.expect("it is run in time")
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) async fn close(self) {
        join_all(self.members.iter().map(|member| member.elect.close())).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Config {
    /// As it is by default.
    Default,
    /// 3 s for a takeover, and may be killed by its process.
    Killed,
}

impl Config {
    pub(crate) fn of(self, holder: &str) -> ElectConfig {
        let config = ElectConfig::new("bench", holder).expect("within the limits");
        match self {
            Self::Default => config,
            Self::Killed => config
                .with_hold_duration(2 * SECOND)
                .with_refresh_interval(SECOND / 2)
                .with_refresh_duration(3 * SECOND),
        }
    }
}

/// In milliseconds: half of them, 99 of 100, the worst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Late {
    pub(crate) fn of(runs: &[Run]) -> Self {
        let mut millis: Vec<f64> = runs.iter().map(|run| run.lateness().as_secs_f64() * 1e3).collect();
        millis.sort_by(f64::total_cmp);
        let (p99, max) = (millis[millis.len() * 99 / 100], millis[millis.len() - 1]);
        Self { p50: median(millis), p99, max }
    }
}
