//! Tasks whose processes die: those that kill theirs, and those that are there by chance.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tenure::{
    Lease,
    model::Key,
    spread::{Spread, Task},
    store::StoreExt,
};
use tenure_sim::cases;
use tokio_util::sync::CancellationToken;

use crate::spread::team::{SECOND, SPREAD, Team};

/// Pods that come back whenever they die.
struct Fleet {
    team: Arc<Team>,
    /// Tasks that kill, and how long after they began.
    killers: Arc<Mutex<Vec<(Key, Duration)>>>,
    deaths: Arc<AtomicUsize>,
    /// By pod: what kills the process it is now.
    lives: Arc<Mutex<Vec<CancellationToken>>>,
    spreads: Arc<Mutex<Vec<Option<Arc<Spread>>>>>,
}

impl Fleet {
    /// Of pods that are back under their names so long after they died.
    async fn of(pods: usize, tasks: usize, back_after: Duration, seed: u64) -> Self {
        let fleet = Self {
            team: Arc::new(Team::seeded(tasks, seed)),
            killers: Arc::default(),
            deaths: Arc::default(),
            lives: Arc::new(Mutex::new(vec![CancellationToken::new(); pods])),
            spreads: Arc::new(Mutex::new(vec![None; pods])),
        };
        for pod in 0..pods {
            tokio::spawn(fleet.pod(pod, back_after));
        }
        tokio::time::sleep(SECOND * 120).await;
        assert_eq!(fleet.team.registry.running(), tasks);
        fleet
    }

    fn pod(&self, pod: usize, back_after: Duration) -> impl Future<Output = ()> + Send + 'static {
        let (team, killers, deaths) = (self.team.clone(), self.killers.clone(), self.deaths.clone());
        let (lives, spreads) = (self.lives.clone(), self.spreads.clone());
        async move {
            loop {
                let holder = format!("pod-{pod}");
                let (elect, gate, _) = team.elect(&holder).await;
                let life = CancellationToken::new();
                lives.lock().unwrap()[pod] = life.clone();
                let (job, killers, dies) = (team.job(&holder), killers.clone(), life.clone());
                let job = move |task: Task, lease: Lease| {
                    let (key, killers, dies) = (task.key().clone(), killers.clone(), dies.clone());
                    let running = job(task, lease);
                    async move {
                        let kills = async {
                            loop {
                                let kills = killers.lock().unwrap().clone();
                                if let Some((_, after)) = kills.iter().find(|(killer, _)| *killer == key) {
                                    tokio::time::sleep(*after).await;
                                    dies.cancel();
                                }
                                tokio::time::sleep(SECOND).await;
                            }
                        };
                        tokio::select! {
                            biased;
                            ended = running => ended,
                            () = kills => Ok(()),
                        }
                    }
                };
                let spread = Arc::new(elect.spread(SPREAD).tasks(team.keys()).run(job).unwrap());
                spreads.lock().unwrap()[pod] = Some(spread);
                life.cancelled().await;
                gate.kill();
                deaths.fetch_add(1, Ordering::Relaxed);
                spreads.lock().unwrap()[pod] = None;
                drop(elect);
                tokio::time::sleep(back_after).await;
            }
        }
    }

    fn kills(&self, task: &str, after: Duration) {
        self.killers.lock().unwrap().push((Key::new(task).unwrap(), after));
    }

    fn deaths(&self) -> usize {
        self.deaths.load(Ordering::Relaxed)
    }

    fn any(&self) -> Option<Arc<Spread>> {
        self.spreads.lock().unwrap().iter().flatten().next().cloned()
    }

    /// Watches for so many seconds, with a look each second. The task that kills does not count.
    #[allow(clippy::cast_precision_loss, reason = "these are small")]
    async fn ran(&self, seconds: usize, killer: Option<&str>) -> Ran {
        let mut ran: BTreeMap<String, usize> = self
            .team
            .keys()
            .into_iter()
            .filter(|key| Some(key.as_str()) != killer)
            .map(|key| (key, 0))
            .collect();
        let mut longest = Duration::ZERO;
        for second in 0..seconds {
            tokio::time::sleep(SECOND).await;
            for key in self.team.registry.keys() {
                ran.entry(key.to_string()).and_modify(|ran| *ran += 1);
            }
            if second % 7 == 0 {
                longest = longest.max(self.longest_pause(killer).await);
            }
        }
        let parts = || ran.values().map(|ran| *ran as f64 / seconds as f64 * 100.0);
        Ran {
            mean: parts().sum::<f64>() / ran.len() as f64,
            least: parts().fold(100.0, f64::min),
            longest,
            deaths: self.deaths(),
        }
    }

    /// The longest pause of a task that does not kill.
    async fn longest_pause(&self, killer: Option<&str>) -> Duration {
        let kind = tenure::model::Kind::Task(SPREAD.parse().unwrap());
        let page = self.team.memory.list_locks("test".parse().unwrap(), Some(kind), None, 100_000, SECOND);
        let records = page.await.unwrap().items.into_iter();
        let innocent = records.filter(|record| Some(record.id.key.as_str()) != killer);
        innocent.filter_map(|record| record.closed).map(|closed| closed.length).max().unwrap_or_default()
    }
}

/// Result of a fleet, in percent of the time.
#[derive(Debug)]
struct Ran {
    mean: f64,
    least: f64,
    longest: Duration,
    deaths: usize,
}

/// Pods, tasks, seconds after which one kills, seconds after which its pod is back.
const KILLERS: [(usize, usize, f64, u64); 9] = [
    (5, 100, 20.0, 10),
    (3, 12, 60.0, 60),
    (2, 10, 0.5, 10),
    (2, 10, 120.0, 10),
    (3, 12, 45.0, 10),
    (5, 100, 0.5, 60),
    (5, 100, 60.0, 60),
    (5, 100, 90.0, 10),
    (5, 100, 120.0, 10),
];

#[tokio::test(start_paused = true)]
async fn a_task_that_kills_its_process_pauses_ever_longer_and_the_others_run() {
    for (pods, tasks, after, back) in cases(&KILLERS, 1).iter().copied() {
        let fleet = Fleet::of(pods, tasks, SECOND * u32::try_from(back).unwrap(), 1).await;
        fleet.kills("task-007", SECOND.mul_f64(after));
        let ran = fleet.ran(7200, Some("task-007")).await;
        println!(
            "{tasks} tasks, {pods} pods, one kills after {after} s, back after {back} s, 2 h: {ran:.1?}"
        );
        let (mean, least) = if pods > 2 { (95.0, 90.0) } else { (93.0, 85.0) };
        assert!(ran.mean >= mean && ran.least >= least, "{ran:?}");
        assert!(ran.longest <= SECOND * 300, "{ran:?}");
        assert!(ran.deaths <= 21, "{ran:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_killed_its_processes_says_so_and_runs_again_once_it_is_mended() {
    let fleet = Fleet::of(5, 50, SECOND * 10, 1).await;
    fleet.kills("task-007", SECOND);
    fleet.ran(1800, Some("task-007")).await;
    let spread = fleet.any().unwrap();
    spread.until(|status| status.resting().any(|key| key.as_str() == "task-007")).await;
    let why = spread.explain("task-007").await.unwrap().to_string();
    assert!(why.contains(" holders died while they had it, since "), "{why}");
    fleet.killers.lock().unwrap().clear();
    assert!(spread.put_back("task-007").await.unwrap());
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(fleet.team.registry.running(), 50);
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_killed_by_chance_cost_little() {
    let fleet = Fleet::of(5, 50, SECOND * 10, 1).await;
    let kills = async {
        for kill in 0_usize.. {
            tokio::time::sleep(SECOND * 300).await;
            fleet.lives.lock().unwrap()[kill * 7919 % 5].cancel();
        }
    };
    let ran = tokio::select! {
        ran = fleet.ran(3 * 3600, None) => ran,
        () = kills => unreachable!("it goes on"),
    };
    println!("a pod killed each 5 min for 3 h: {ran:.1?}");
    assert!(ran.mean >= 97.5 && ran.least >= 88.0, "{ran:?}");
}
