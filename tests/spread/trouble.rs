//! Jobs that fail, or are done; and what is told of them.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tenure::{
    Event, Loss,
    model::Why,
    spread::{Phase, Spread, TaskState},
};
use tokio::time::Instant;

use crate::team::{SECOND, SPREAD, Team, counts};

/// A spread of three tasks, of which one fails for as long as it is broken.
struct Broken {
    team: Team,
    fails: Arc<AtomicBool>,
    /// Where it was tried, and when.
    tried: Arc<Mutex<Vec<(String, Instant)>>>,
}

const BROKEN: &str = "task-001";

impl Broken {
    fn new() -> Self {
        Self { team: Team::new(3), fails: Arc::new(AtomicBool::new(true)), tried: Arc::default() }
    }

    async fn join(&self, holder: &str) -> (tenure::Elect, Spread) {
        let (elect, _, _) = self.team.elect(holder).await;
        let (broken, tried, name) = (self.fails.clone(), self.tried.clone(), holder.to_owned());
        let job = move |task: tenure::spread::Task, lease: tenure::Lease| {
            let (broken, tried, name) = (broken.clone(), tried.clone(), name.clone());
            async move {
                if task.key().as_str() == BROKEN && broken.load(Ordering::Relaxed) {
                    tried.lock().unwrap().push((name, Instant::now()));
                    return Err("no route to host");
                }
                lease.cancelled().await;
                Ok(())
            }
        };
        let spread = elect.spread(SPREAD).tasks(self.team.keys()).tries(3).run(job).unwrap();
        (elect, spread)
    }

    fn tried(&self) -> Vec<String> {
        self.tried.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }
}

async fn set_aside(spread: &Spread) {
    spread.until(|picture| picture.here.values().any(|phase| matches!(phase, Phase::SetAside { .. }))).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_is_tried_here_then_elsewhere_then_set_aside_until_it_is_put_back() {
    let world = Broken::new();
    let (_first, one) = world.join("a").await;
    one.until(|picture| picture.share().len() == 3).await;
    let (_second, other) = world.join("b").await;
    let mut events = (one.events(), other.events());
    let aside = async {
        tokio::select! {
            () = set_aside(&one) => &one,
            () = set_aside(&other) => &other,
        }
    };
    let aside = tokio::time::timeout(SECOND * 120, aside).await.unwrap();
    let tried = world.tried();
    assert_eq!(tried.len(), 6, "{tried:?}");
    assert_ne!(tried[0], tried[5], "three times here, three times elsewhere");
    assert_eq!(BTreeSet::from_iter(&tried[..3]).len(), 1, "{tried:?}");
    let rest = world.tried.lock().unwrap().windows(2).map(|two| two[1].1 - two[0].1).collect::<Vec<_>>();
    assert!(rest[0] >= SECOND && rest[1] > rest[0], "with growing rests: {rest:?}");

    // It is not tried any more, and everybody can see why.
    tokio::time::sleep(SECOND * 600).await;
    assert_eq!(world.tried().len(), 6);
    for spread in [&one, &other] {
        let why = spread.explain(BROKEN).await.unwrap().to_string();
        assert!(why.contains("set aside") && why.contains("no route to host"), "{why}");
    }
    let mut told = 0;
    for events in [&mut events.0, &mut events.1] {
        while let Ok(Some(event)) = tokio::time::timeout(SECOND, events.next()).await {
            if let Event::SetAside { lock, error, .. } = event {
                assert_eq!((lock.key.as_str(), error.as_str()), (BROKEN, "no route to host"));
                told += 1;
            }
        }
    }
    assert_eq!(told, 1);

    // Mended, and put back where it is.
    world.fails.store(false, Ordering::Relaxed);
    assert!(aside.put_back(BROKEN).await.unwrap());
    aside.until(|picture| picture.here.values().all(|phase| *phase == Phase::Running)).await;
    assert!(!aside.put_back(BROKEN).await.unwrap(), "it is not set aside any more");
    assert!(!aside.put_back("task-000").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_set_aside_elsewhere_is_put_back_by_asking_its_holder() {
    let world = Broken::new();
    let (_first, one) = world.join("a").await;
    set_aside(&one).await;
    assert_eq!(world.tried().len(), 3, "there is nobody else to try it");
    let (_second, other) = world.join("b").await;
    tokio::time::sleep(SECOND * 5).await;
    world.fails.store(false, Ordering::Relaxed);
    assert!(other.put_back(BROKEN).await.unwrap());
    let runs = |picture: &tenure::spread::Picture| {
        picture.here.get(&BROKEN.parse().unwrap()) == Some(&Phase::Running)
    };
    tokio::time::timeout(SECOND * 10, other.until(runs)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure() {
    let team = Team::new(1);
    let (elect, _, _) = team.elect("a").await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let job = move |_: tenure::spread::Task, lease: tenure::Lease| {
        let run = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            assert!(run > 1, "not yet");
            lease.cancelled().await;
            Ok::<_, String>(())
        }
    };
    let spread = elect.spread(SPREAD).tasks(team.keys()).run(job).unwrap();
    let failed = |picture: &tenure::spread::Picture| {
        picture.here.values().any(|phase| matches!(phase, Phase::Failed { error, .. } if error == "not yet"))
    };
    spread.until(|picture| picture.share().len() == 1).await;
    tokio::time::sleep(SECOND / 10).await;
    assert!(failed(&spread.picture()));
    tokio::time::sleep(SECOND * 20).await;
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    assert_eq!(spread.picture().here.values().next(), Some(&Phase::Running));
}

/// A job that returns at once, and how often it ran.
fn counted(
    runs: &Arc<AtomicUsize>,
) -> impl Fn(tenure::spread::Task, tenure::Lease) -> std::future::Ready<Result<(), String>> + use<> {
    let runs = runs.clone();
    move |_, _| {
        runs.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_returns_is_run_again_after_a_rest_under_the_same_term() {
    let team = Team::new(1);
    let (elect, _, _) = team.elect("a").await;
    let runs = Arc::new(AtomicUsize::new(0));
    let spread =
        elect.spread(SPREAD).tasks(team.keys()).again_after(SECOND * 10).run(counted(&runs)).unwrap();
    spread.until(|picture| picture.share().len() == 1).await;
    let before = team.terms().await;
    tokio::time::sleep(SECOND * 95).await;
    assert_eq!(runs.load(Ordering::Relaxed), 10);
    assert_eq!(team.moves(&before).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_done_for_good_is_never_run_again_by_anybody() {
    let team = Team::new(5);
    let runs = Arc::new(AtomicUsize::new(0));
    for holder in ["a", "b"] {
        let (elect, _, _) = team.elect(holder).await;
        let spread = elect.spread(SPREAD).tasks(team.keys()).done_for_good().run(counted(&runs)).unwrap();
        let closed = |state: &TaskState| *state == TaskState::Closed;
        let is_done = |picture: &tenure::spread::Picture| picture.tasks.values().all(closed);
        tokio::time::timeout(SECOND * 30, spread.until(is_done)).await.unwrap();
        tokio::time::sleep(SECOND * 3600).await;
        assert_eq!(runs.load(Ordering::Relaxed), 5);
        let why = spread.explain("task-002").await.unwrap().to_string();
        assert!(why.contains("(done)"), "{why}");
        elect.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_an_operator_wants_back_is_run_elsewhere() {
    let team = Team::new(10);
    let players = team.of(2).await;
    tokio::time::sleep(SECOND * 5).await;
    let lease = players[0].spread.share().into_values().next().unwrap();
    let key = lease.key().clone();
    let record = team.record(key.as_str()).await.unwrap();
    let held = record.holding.unwrap();
    let request = tenure::model::Request {
        lock: record.id.clone(),
        term: record.term,
        by: "admin".parse().unwrap(),
        why: Why::new("too hot here").unwrap(),
    };
    let ask = tenure::store::Revocation::Ask { session: held.by.session, request };
    tenure::store::Store::revoke(&team.memory, ask, SECOND).await.unwrap();
    tokio::time::timeout(SECOND, lease.cancelled()).await.unwrap();
    assert!(matches!(lease.loss(), Some(Loss::Revoked { .. })));
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(team.book.runs_at(key.as_str()).as_deref(), Some("pod-01"));
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!((team.book.running(), counts(&players)), (10, vec![5, 5]));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_moves_has_the_grace_to_finish_and_is_not_started_before() {
    let team = Team::new(2);
    let first = team.elect("a").await.0;
    let slow = team.book.clone();
    // It takes two seconds to stop.
    let job = move |task: tenure::spread::Task, lease: tenure::Lease| {
        let book = slow.clone();
        async move {
            let _running = book.begin(task.key(), "a");
            lease.cancelled().await;
            assert!(matches!(lease.loss(), Some(Loss::Moved)));
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok::<_, String>(())
        }
    };
    let spread = first.spread(SPREAD).tasks(team.keys()).run(job).unwrap();
    spread.until(|picture| picture.share().len() == 2).await;
    tokio::time::sleep(SECOND * 5).await;
    let begun = Instant::now();
    let second = team.join("b").await;
    second.spread.until(|picture| picture.share().len() == 1).await;
    let took = begun.elapsed();
    assert!(took >= SECOND * 2 && took <= SECOND * 3, "{took:?}");
}
