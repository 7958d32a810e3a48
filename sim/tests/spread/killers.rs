//! Tasks that kill the process of whoever runs them.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tenure::{
    Lease,
    model::Key,
    spread::{Spread, Task, TaskState},
    store::Store,
};
use tenure_sim::cases;
use tokio_util::sync::CancellationToken;

use crate::captured::Log;
use crate::spread::team::{SECOND, SPREAD, Team};

/// Time a pod takes to come back.
const BACK_AFTER: Duration = Duration::from_secs(10);

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
    async fn of(pods: usize, tasks: usize) -> Self {
        let fleet = Self {
            team: Arc::new(Team::new(tasks)),
            killers: Arc::default(),
            deaths: Arc::default(),
            lives: Arc::new(Mutex::new(vec![CancellationToken::new(); pods])),
            spreads: Arc::new(Mutex::new(vec![None; pods])),
        };
        for pod in 0..pods {
            tokio::spawn(fleet.pod(pod));
        }
        tokio::time::sleep(SECOND * 120).await;
        assert_eq!(fleet.team.registry.running(), tasks);
        fleet
    }

    fn pod(&self, pod: usize) -> impl Future<Output = ()> + Send + 'static {
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
                tokio::time::sleep(BACK_AFTER).await;
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

    /// Tasks that were quarantined at some time, as the records say, and why.
    async fn quarantined(&self) -> BTreeSet<(String, String)> {
        let kind = tenure::model::Kind::Task(SPREAD.parse().unwrap());
        let page = self.team.memory.list_locks("test".parse().unwrap(), Some(kind), None, 100_000, SECOND);
        let mut found = BTreeSet::new();
        for record in page.await.unwrap().items {
            for note in record.past.iter().filter_map(|past| past.note.as_ref()) {
                if note.as_str().starts_with("quarantined") {
                    found.insert((record.id.key.to_string(), note.to_string()));
                }
            }
        }
        found
    }

    /// Number of tasks that ran, on average and at least, for so many seconds; and how long each stood still at
    /// most.
    #[allow(clippy::cast_precision_loss, reason = "these are small")]
    async fn ran(&self, seconds: usize) -> (f64, usize) {
        let (mut sum, mut least) = (0, usize::MAX);
        for _ in 0..seconds {
            tokio::time::sleep(SECOND).await;
            let running = self.team.registry.running();
            sum += running;
            least = least.min(running);
        }
        (sum as f64 / seconds as f64, least)
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_kills_its_process_is_found_and_rests_and_the_others_run() {
    for (kills_after, most_deaths, on_average) in cases(&[(60, 10, 44.0), (0, 4, 47.0), (5, 4, 47.0)], 1) {
        let (log, guard) = Log::start();
        let fleet = Fleet::of(5, 50).await;
        fleet.kills("task-007", SECOND * *kills_after);
        let (average, least) = fleet.ran(1800).await;
        println!(
            "it kills after {kills_after} s: in 30 minutes {} processes died of one task; of 50 tasks {average:.1} ran on average, {least} at least",
            fleet.deaths()
        );
        let quarantined = fleet.quarantined().await;
        println!("  {quarantined:?}");
        assert!(fleet.deaths() <= *most_deaths, "{} deaths", fleet.deaths());
        assert!(average >= *on_average, "{average}");
        assert_eq!(fleet.team.registry.running(), 49);
        let names: BTreeSet<_> = quarantined.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(names, BTreeSet::from(["task-007"]), "{quarantined:?}");

        let spread = fleet.any().unwrap();
        let status = spread.status();
        let state = &status.tasks[&Key::new("task-007").unwrap()];
        assert!(
            matches!(state, TaskState::Quarantined { error, .. } if error.contains("killed its process")),
            "{state:?}"
        );
        let why = spread.explain("task-007").await.unwrap().to_string();
        assert!(why.contains("it killed its process 2 times while it was tried alone"), "{why}");
        assert!(!log.with(&["may have crashed", "task-007"]).is_empty(), "{}", log.text());
        drop(guard);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_kills_again_after_its_rest_costs_one_process_more_and_one_that_was_mended_runs() {
    let fleet = Fleet::of(5, 50).await;
    fleet.kills("task-007", SECOND);
    fleet.ran(1800).await;
    let before = fleet.deaths();
    fleet.ran(3600).await;
    println!("{before} processes died at first, {} in the hour after that", fleet.deaths() - before);
    assert_eq!(fleet.deaths(), before + 1);
    fleet.killers.lock().unwrap().clear();
    fleet.ran(3700).await;
    assert_eq!(fleet.team.registry.running(), 50);
}

#[tokio::test(start_paused = true)]
async fn two_that_kill_are_both_found() {
    let fleet = Fleet::of(5, 50).await;
    fleet.kills("task-007", SECOND);
    fleet.kills("task-031", SECOND * 5);
    let (average, least) = fleet.ran(1800).await;
    let quarantined = fleet.quarantined().await;
    println!("{} deaths, {average:.1} on average, {least} at least, {quarantined:?}", fleet.deaths());
    let names: BTreeSet<_> = quarantined.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["task-007", "task-031"]));
    assert!(fleet.deaths() <= 12, "{}", fleet.deaths());
    assert_eq!(fleet.team.registry.running(), 48);
}

#[tokio::test(start_paused = true)]
async fn of_many_tasks_on_two_pods_the_one_that_kills_is_found_by_groups() {
    let fleet = Fleet::of(2, 400).await;
    fleet.kills("task-007", SECOND);
    for minutes in 0.. {
        assert!(minutes < 60, "it is not found in an hour");
        fleet.ran(60).await;
        if !fleet.quarantined().await.is_empty() {
            break;
        }
    }
    // Long enough for the others to be trusted again.
    let (average, _) = fleet.ran(1200).await;
    let quarantined = fleet.quarantined().await;
    println!("{} deaths, of 400 tasks {average:.1} on average then, {quarantined:?}", fleet.deaths());
    let names: BTreeSet<_> = quarantined.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["task-007"]));
    assert_eq!(fleet.team.registry.running(), 399);
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_killed_by_chance_quarantine_nothing() {
    for every in cases(&[30_u64, 60], 1).iter().copied() {
        let fleet = Fleet::of(5, 50).await;
        let (mut least, mut sum) = (usize::MAX, 0.0);
        for kill in 0..1800 / every {
            let pod = usize::try_from(kill * 7919 % 5).unwrap();
            fleet.lives.lock().unwrap()[pod].cancel();
            let (average, ran) = fleet.ran(usize::try_from(every).unwrap()).await;
            least = least.min(ran);
            sum += average;
        }
        println!(
            "a pod killed each {every} s: {} deaths, of 50 tasks {:.1} ran on average, {least} at least",
            fleet.deaths(),
            sum * every as f64 / 1800.0
        );
        println!("  {:?}", fleet.quarantined().await);
        assert_eq!(fleet.quarantined().await, BTreeSet::new(), "a pod killed each {every} s");
        tokio::time::sleep(SECOND * 620).await;
        assert_eq!(fleet.team.registry.running(), 50);
    }
}
