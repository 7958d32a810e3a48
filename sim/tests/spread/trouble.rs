//! Jobs that fail, or are done; and what is told of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tenure::{
    Loss,
    model::Why,
    spread::{Phase, TaskState},
};
use tokio::time::Instant;

use crate::spread::team::{SECOND, SPREAD, Team, counts};

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
    let failed = |status: &tenure::spread::SpreadStatus| {
        status.here.values().any(|phase| matches!(phase, Phase::Failing { error, .. } if error == "not yet"))
    };
    spread.until(|status| status.share().len() == 1).await;
    tokio::time::sleep(SECOND / 10).await;
    assert!(failed(&spread.status()));
    tokio::time::sleep(SECOND * 20).await;
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    assert_eq!(spread.status().here.values().next(), Some(&Phase::Running));
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
    spread.until(|status| status.share().len() == 1).await;
    let before = team.terms().await;
    tokio::time::sleep(SECOND * 95).await;
    assert_eq!(runs.load(Ordering::Relaxed), 10);
    assert_eq!(team.moves(&before).await, 0);
}

#[tokio::test(start_paused = true)]
async fn tasks_done_for_good_are_never_run_again() {
    let team = Team::new(5);
    let runs = Arc::new(AtomicUsize::new(0));
    for holder in ["a", "b"] {
        let (elect, _, _) = team.elect(holder).await;
        let spread = elect.spread(SPREAD).tasks(team.keys()).done_for_good().run(counted(&runs)).unwrap();
        let closed = |state: &TaskState| *state == TaskState::Done;
        let is_done = |status: &tenure::spread::SpreadStatus| status.tasks.values().all(closed);
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
    let request = tenure::store::Request {
        lock: record.id.clone(),
        term: record.term,
        by: "admin".parse().unwrap(),
        why: Why::new("too hot here").unwrap(),
    };
    let ask = tenure::store::Revocation::Ask { session: held.by.session, request };
    tenure::store::StoreExt::revoke(&team.memory, ask, SECOND).await.unwrap();
    tokio::time::timeout(SECOND, lease.cancelled()).await.unwrap();
    assert!(matches!(lease.loss(), Some(Loss::Revoked { .. })));
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(team.registry.runs_at(key.as_str()).as_deref(), Some("pod-01"));
    // No task is stopped to make up for it, until that is forgotten.
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!((team.registry.running(), counts(&players)), (10, vec![4, 6]));
    tokio::time::sleep(SECOND * 600).await;
    assert_eq!((team.registry.running(), counts(&players)), (10, vec![5, 5]));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_moves_has_the_grace_to_finish_and_is_not_started_before() {
    let team = Team::new(2);
    let first = team.elect("a").await.0;
    let slow = team.registry.clone();
    // It takes two seconds to stop.
    let job = move |task: tenure::spread::Task, lease: tenure::Lease| {
        let registry = slow.clone();
        async move {
            let _running = registry.begin(task.key(), "a");
            lease.cancelled().await;
            assert!(matches!(lease.loss(), Some(Loss::Moved)));
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok::<_, String>(())
        }
    };
    let spread = first.spread(SPREAD).tasks(team.keys()).run(job).unwrap();
    spread.until(|status| status.share().len() == 2).await;
    tokio::time::sleep(SECOND * 5).await;
    let begun = Instant::now();
    let second = team.join("b").await;
    second.spread.until(|status| status.share().len() == 1).await;
    let took = begun.elapsed();
    assert!(took >= SECOND * 2 && took <= SECOND * 3, "{took:?}");
}
