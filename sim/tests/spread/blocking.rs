//! Jobs of tasks that block their threads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tenure::{
    Event, Lease,
    model::Why,
    spread::{Spread, Task},
    store::{Request, Revocation, StoreExt},
};
use tenure_sim::block_for;

use crate::spread::team::{Player, Registry, SECOND, SPREAD, Team, counts};

/// A job that blocks until it is told to stop, or for so long whatever it is told.
fn blocks(
    registry: &Arc<Registry>,
    holder: &str,
    stubborn: Option<Duration>,
) -> impl Fn(Task, Lease) -> Result<(), String> + Send + Sync + 'static + use<> {
    let (registry, holder) = (registry.clone(), holder.to_owned());
    move |task, lease| {
        let _running = registry.begin(task.key(), &holder);
        if let Some(time) = stubborn {
            return if block_for(time) { Ok(()) } else { Err("gone".to_owned()) };
        }
        while !lease.is_cancelled() {
            if !block_for(SECOND / 10) {
                return Err("gone".to_owned());
            }
        }
        Ok(())
    }
}

async fn join(team: &Team, holder: &str, stubborn: Option<Duration>) -> Player {
    let (elect, gate, counts) = team.elect(holder).await;
    let spreading = elect.spread(SPREAD).tasks(team.keys());
    let spread: Spread = spreading.run_blocking(blocks(&team.registry, holder, stubborn)).unwrap();
    Player { elect, spread, gate, counts }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_told_by_its_token_and_its_task_goes_when_it_has_returned() {
    let team = Team::new(6);
    let mut players = vec![join(&team, "a", None).await];
    players[0].spread.until(|status| status.share().len() == 6).await;
    players.push(join(&team, "b", None).await);
    team.settled(&players).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!((counts(&players), team.registry.running()), (vec![3, 3], 6));
    players.remove(0).elect.close().await;
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(team.registry.running(), 6, "closed in order");
    assert_eq!(players[0].count(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_listen_keeps_its_task_until_it_returns() {
    let team = Team::new(2);
    let a = join(&team, "a", Some(SECOND * 60)).await;
    a.spread.until(|status| status.share().len() == 2).await;
    tokio::time::sleep(SECOND * 5).await;
    let b = team.join("b").await;
    for _ in 0..50 {
        tokio::time::sleep(SECOND).await;
        // The registry sees that none of them runs twice.
        assert_eq!((team.registry.running(), b.count()), (2, 0));
    }
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!((a.count(), b.count()), (1, 1), "it has returned");
    let goes = ["task-000", "task-001"].map(|key| team.registry.runs_at(key));
    assert!(goes.contains(&Some("b".to_owned())), "{goes:?}");
}

#[tokio::test(start_paused = true)]
async fn closing_waits_no_longer_for_a_call_and_nobody_has_its_task_before_it_returns() {
    let team = Team::new(1);
    let a = join(&team, "a", Some(SECOND * 20)).await;
    a.spread.until(|status| status.share().len() == 1).await;
    tokio::time::sleep(SECOND).await;
    let b = team.join("b").await;
    let begun = tokio::time::Instant::now();
    let closed = a.elect.close().await;
    let took = begun.elapsed();
    println!("closed after {took:?}: {closed:?}");
    assert!(took < SECOND * 10, "{took:?}");
    assert_eq!(team.registry.runs_at("task-000").as_deref(), Some("a"), "it goes on");
    b.spread.until(|status| status.share().len() == 1).await;
    let took = begun.elapsed();
    println!("the other one has it after {took:?}");
    assert!(took > SECOND * 18 && took < SECOND * 60, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_goes_on_when_its_lock_was_taken_by_force_is_told_as_overran() {
    let team = Team::new(1);
    let a = join(&team, "a", Some(SECOND * 60)).await;
    a.spread.until(|status| status.share().len() == 1).await;
    tokio::time::sleep(SECOND).await;
    let mut events = a.elect.events();
    let record = team.record("task-000").await.unwrap();
    let request = Request {
        lock: record.id,
        term: record.term,
        by: "admin".parse().unwrap(),
        why: Why::new("it hangs").unwrap(),
    };
    team.memory.revoke(Revocation::Force(request), SECOND).await.unwrap();
    let overran = async {
        loop {
            if let Event::Overran { lock, by, .. } = events.next().await.unwrap() {
                break (lock.key, by);
            }
        }
    };
    let (key, by) = tokio::time::timeout(SECOND * 90, overran).await.unwrap();
    println!("overran by {by:?}");
    assert!(key.as_str() == "task-000" && by > SECOND * 50);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_panics_or_fails_is_tried_again() {
    let team = Team::new(1);
    let (elect, _gate, _) = team.elect("a").await;
    let calls = Arc::<AtomicUsize>::default();
    let count = calls.clone();
    let mut events = elect.events();
    let spread = elect.spread(SPREAD).tasks(team.keys()).run_blocking(move |_, lease| {
        match count.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("it blocks and panics"),
            1 => return Err("it blocks and fails"),
            _ => {}
        }
        while !lease.is_cancelled() && block_for(SECOND / 10) {}
        Ok(())
    });
    let spread = spread.unwrap();
    let panicked = async {
        loop {
            if let Event::Panicked { message, .. } = events.next().await.unwrap() {
                break message;
            }
        }
    };
    assert_eq!(panicked.await, "it blocks and panics");
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    assert_eq!(spread.share().len(), 1);
}
