//! Crashes in the middle of things, a store that fails, and programs that misbehave.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream::BoxStream};
use tenure::{
    Lease,
    spread::{Phase, SpreadStatus, Task},
    store::Hint,
    testing::{Call, Course, Faulty, Intercept, Rates},
};
use tokio::time::Instant;

use crate::spread::team::{SECOND, SPREAD, Team, counts};

/// Waits until all tasks run; answers with how long that took.
async fn all_run(team: &Team, within: Duration) -> Duration {
    let begun = Instant::now();
    while team.registry.running() < team.keys().len() {
        assert!(begun.elapsed() <= within, "{} run after {within:?}", team.registry.running());
        tokio::time::sleep(SECOND / 100).await;
    }
    begun.elapsed()
}

#[derive(Clone, Copy, Debug)]
enum Dies {
    Holder,
    Successor,
    Both,
}

#[tokio::test(start_paused = true)]
async fn tasks_wait_at_most_a_ttl_and_two_seconds_whichever_member_dies_in_a_hand_over() {
    for dies in [Dies::Holder, Dies::Successor, Dies::Both] {
        // The plan is made after 200 ms; everything happens around then.
        let every = if tenure_sim::is_whole() { 1 } else { 4 };
        for step in (0..40).step_by(every).map(|step| Duration::from_millis(180 + 2 * step)) {
            let team = Team::new(6);
            let mut players = team.of(3).await;
            let ttl = players[0].elect.config().ttl();
            tokio::time::sleep(SECOND * 5).await;
            let successor = team.join("successor").await;
            tokio::time::sleep(step).await;
            let holder = players.remove(0);
            match dies {
                Dies::Holder => {
                    holder.kill().await;
                    players.push(successor);
                }
                Dies::Successor => {
                    successor.kill().await;
                    players.push(holder);
                }
                Dies::Both => {
                    holder.gate.kill();
                    successor.kill().await;
                }
            }
            all_run(&team, ttl + SECOND * 2).await;
            team.settled(&players).await;
            // Not only for a moment.
            tokio::time::sleep(SECOND * 10).await;
            assert_eq!(team.registry.running(), 6, "{dies:?} at {step:?}");
        }
    }
}

/// Joins, and is gone before it can do anything: as a pod does that crashes in a loop.
#[tokio::test(start_paused = true)]
async fn a_member_that_dies_as_it_joins_stops_no_task() {
    let team = Team::new(40);
    let mut players = team.of(4).await;
    tokio::time::sleep(SECOND * 5).await;
    let (before, starts) = (team.terms().await, team.registry.starts());
    for ghost in 0..5 {
        team.join(&format!("ghost-{ghost}")).await.kill().await;
        tokio::time::sleep(SECOND * 10).await;
    }
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!((team.moves(&before).await, team.registry.starts() - starts), (0, 0));
    players.push(team.join("pod-04").await);
    team.settled(&players).await;
    assert_eq!(counts(&players), [8; 5]);
}

/// Their records say that they take no part, and what they hold is theirs until they are dead.
#[tokio::test(start_paused = true)]
async fn tasks_of_members_that_die_while_they_stop_are_run_again() {
    let team = Team::new(10);
    let slow = |registry: &Arc<crate::spread::team::Registry>| {
        let registry = registry.clone();
        move |task: Task, lease: Lease| {
            let running = registry.begin(task.key(), "old");
            async move {
                lease.cancelled().await;
                tokio::time::sleep(SECOND * 4).await;
                drop(running);
                Ok::<_, String>(())
            }
        }
    };
    let mut gates = Vec::new();
    let mut kept = Vec::new();
    for holder in ["a", "b"] {
        let (elect, gate, _) = team.elect(holder).await;
        let spread = elect.spread(SPREAD).tasks(team.keys()).run(slow(&team.registry)).unwrap();
        gates.push(gate);
        kept.push((elect, spread));
    }
    kept[1].1.until(|status| status.share().len() == 5).await;
    tokio::time::sleep(SECOND * 5).await;
    // Both are told to stop, and killed while their jobs drain.
    for (_, spread) in kept {
        drop(spread);
    }
    tokio::time::sleep(SECOND * 2).await;
    for gate in gates {
        gate.kill();
    }
    tokio::time::sleep(SECOND / 1000).await;
    assert_eq!(team.registry.running(), 0);
    let players = [team.join("c").await, team.join("d").await];
    let config = players[0].elect.config();
    all_run(&team, config.ttl() + config.refresh_interval() + SECOND * 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_panics_is_a_job_that_fails() {
    let team = Team::new(1);
    let (elect, _, _) = team.elect("a").await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let job = move |_: Task, lease: Lease| {
        // Before there is a future.
        assert!(counted.fetch_add(1, Ordering::Relaxed) > 0, "not yet");
        async move {
            lease.cancelled().await;
            Ok::<_, String>(())
        }
    };
    let spread = elect.spread(SPREAD).tasks(team.keys()).run(job).unwrap();
    let runs = |status: &SpreadStatus| status.here.values().any(|phase| *phase == Phase::Running);
    tokio::time::sleep(SECOND * 10).await;
    assert!(runs(&spread.status()), "{:?}", spread.status());
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    spread.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_weight_nothing_is_taken_also_when_nobody_else_has_room() {
    let team = Team::new(10);
    let full = team.join_as("full", |spread| spread.cap(6)).await;
    let none = team.join_as("none", |spread| spread.weight(0)).await;
    full.spread.until(|status| status.share().len() == 6).await;
    tokio::time::sleep(SECOND * 300).await;
    assert_eq!((none.count(), team.registry.starts()), (0, 6));
    let why = full.spread.explain("task-009").await.unwrap().to_string();
    let other = full.spread.explain("task-000").await.unwrap().to_string();
    assert!([&why, &other].iter().any(|why| why.contains("none has a weight of 0")), "{why} {other}");
}

#[derive(Debug)]
struct Deaf;

impl Intercept for Deaf {
    fn decide(&self, _: &Call) -> Course {
        Course::PLAIN
    }

    fn hints(&self, hints: BoxStream<'static, Hint>) -> BoxStream<'static, Hint> {
        hints.filter(|hint| std::future::ready(*hint == Hint::Resync)).boxed()
    }
}

/// R12: hints decide nothing.
#[tokio::test(start_paused = true)]
async fn without_any_hint_everything_works_at_the_pace_of_the_poll() {
    let team = Team::new(30);
    let mut players = Vec::new();
    for seed in 0..3 {
        let deaf = Deaf.around(Arc::new(team.memory.clone()));
        players.push(team.join_on(deaf, &format!("pod-{seed}"), 100 + seed).await);
    }
    let ttl = players[0].elect.config().ttl();
    let poll = players[0].elect.config().poll_interval();
    team.settled(&players).await;
    // A view of the others, and of tasks that were handed over, may be as old as a poll.
    let settled = tokio::time::Instant::now();
    while counts(&players) != [10; 3] {
        tokio::time::sleep(SECOND).await;
        assert!(settled.elapsed() <= SECOND * 180, "{:?}", counts(&players));
    }
    tokio::time::sleep(SECOND * 10).await;
    players.remove(0).kill().await;
    all_run(&team, ttl + poll * 2 + SECOND * 2).await;
    players.remove(0).elect.close().await;
    all_run(&team, poll * 2 + SECOND * 2).await;
}

#[tokio::test(start_paused = true)]
async fn on_a_store_that_fails_again_and_again_nothing_runs_twice_and_all_runs_in_the_end() {
    for seed in 0..if tenure_sim::is_whole() { 20 } else { 5 } {
        let team = Team::new(20);
        let faulty = |seed| Faulty::seeded(seed, Rates::of_each(10)).around(Arc::new(team.memory.clone()));
        let mut players = Vec::new();
        for player in 0..4 {
            let (name, chance) = (format!("pod-{player}"), seed * 10 + player);
            players.push(team.join_on(faulty(chance), &name, 1000 + chance).await);
        }
        for _ in 0..10 {
            tokio::time::sleep(SECOND * 30).await;
            players.remove(0).kill().await;
            let starts = team.registry.starts();
            let name = format!("pod-{starts}");
            players.push(team.join_on(faulty(4 + seed), &name, 7 + starts as u64 * 100 + seed).await);
        }
        // Calm: instances that fail are replaced by instances that do not.
        for player in players {
            player.elect.close().await;
        }
        let calm = vec![team.join("calm-a").await, team.join("calm-b").await];
        team.settled(&calm).await;
        let ttl = calm[0].elect.config().ttl();
        tokio::time::sleep(ttl).await;
        // One that was tried by several that were killed is taken for their killer.
        calm[0].spread.put_back_all().await.unwrap();
        all_run(&team, SECOND * 10).await;
        team.settled(&calm).await;
        assert_eq!(counts(&calm), [10, 10], "seed {seed}");
    }
}

/// Locks of a session that is deleted by hand are named by no instance, and free after the ttl that they carry.
#[tokio::test(start_paused = true)]
async fn tasks_of_a_deleted_session_are_run_again() {
    for others in [0, 2] {
        let team = Team::new(6);
        let players = team.of(1 + others).await;
        tokio::time::sleep(SECOND * 10).await;
        let session = players[0].elect.health().session.unwrap();
        team.memory.delete_session(session);
        tokio::time::sleep(SECOND).await;
        let config = players[0].elect.config();
        all_run(&team, config.ttl() + config.refresh_interval() * 2 + SECOND * 2).await;
    }
}

/// The instance that joins has seen the holder die; then the record of the death is deleted, so that the store says
/// nothing of it.
#[tokio::test(start_paused = true)]
async fn tasks_of_a_dead_member_are_run_again_though_the_record_of_its_death_is_deleted() {
    let team = Team::new(6);
    let first = team.join("first").await;
    all_run(&team, SECOND * 2).await;
    let (elect, _gate, _) = team.elect("second").await;
    let held = first.elect.acquire("a key besides").await.unwrap();
    let waits = elect.acquire("a key besides");
    let session = first.elect.health().session.unwrap();
    let dies = async {
        tokio::time::sleep(SECOND).await;
        first.kill().await;
    };
    let (taken, ()) = tokio::join!(waits, dies);
    drop(held);
    team.memory.delete_session(session);
    let _spread = elect.spread(SPREAD).tasks(team.keys()).run(team.job("second")).unwrap();
    all_run(&team, SECOND * 10).await;
    drop(taken.unwrap());
}
