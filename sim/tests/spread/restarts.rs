//! Instances that come back.

use tokio::time::Instant;

use crate::spread::team::{SECOND, Team, counts};

#[tokio::test(start_paused = true)]
async fn a_rolling_restart_with_grace_moves_nothing() {
    let team = Team::new(100);
    let mut players = team.of(10).await;
    tokio::time::sleep(SECOND * 10).await;
    let homes = team.terms().await;
    for player in 0..10 {
        let leaves = players.remove(0);
        let begun = Instant::now();
        let closed = leaves.elect.close_for_restart(SECOND * 60).await;
        assert!(closed.overran.is_empty());
        assert!(begun.elapsed() <= SECOND / 10, "it returns at once: {:?}", begun.elapsed());
        drop((leaves.spread, leaves.elect));
        tokio::time::sleep(SECOND * 5).await;
        assert_eq!(team.registry.running(), 90, "nobody takes what is reserved");
        players.push(team.join(&format!("pod-{player:02}")).await);
        team.settled(&players).await;
        assert_eq!(team.registry.running(), 100);
    }
    let after = team.terms().await;
    for (key, (term, holder)) in &homes {
        assert_eq!(&after[key].1, holder, "{key} is where it was");
        assert!(after[key].0 > *term);
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_reserved_for_a_member_that_does_not_come_back_go_to_the_others() {
    let team = Team::new(30);
    let mut players = team.of(3).await;
    tokio::time::sleep(SECOND * 5).await;
    let leaves = players.remove(0);
    leaves.elect.close_for_restart(SECOND * 20).await;
    tokio::time::sleep(SECOND * 19).await;
    assert_eq!(counts(&players), [10, 10]);
    let why = players[0].spread.explain("task-000").await.unwrap().to_string();
    assert!(!why.is_empty());
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(counts(&players), [15, 15]);
    assert_eq!(team.registry.running(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_rolling_restart_without_grace_moves_each_task_twice_at_most() {
    let team = Team::new(100);
    let mut players = team.of(10).await;
    tokio::time::sleep(SECOND * 10).await;
    let starts = team.registry.starts();
    for player in 0..10 {
        players.remove(0).elect.close().await;
        team.settled(&players).await;
        tokio::time::sleep(SECOND * 5).await;
        players.push(team.join(&format!("pod-{player:02}")).await);
        team.settled(&players).await;
        tokio::time::sleep(SECOND * 5).await;
    }
    let moved = team.registry.starts() - starts;
    assert!(moved <= 200, "{moved} moves of 100 tasks");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_killed_while_it_closes_reserves_no_tasks() {
    let team = Team::new(10);
    let other = team.join("other").await;
    let (elect, gate, _) = team.elect("restarts").await;
    let registry = team.registry.clone();
    let job = move |task: tenure::spread::Task, lease: tenure::Lease| {
        let running = registry.begin(task.key(), "restarts");
        async move {
            lease.cancelled().await;
            tokio::time::sleep(SECOND * 4).await;
            drop(running);
            Ok::<_, String>(())
        }
    };
    let spread = elect.spread(crate::spread::team::SPREAD).tasks(team.keys()).run(job).unwrap();
    spread.until(|status| status.share().len() == 5).await;
    tokio::time::sleep(SECOND * 5).await;
    let closing = elect.clone();
    let close = tokio::spawn(async move { closing.close_for_restart(SECOND * 600).await });
    tokio::time::sleep(SECOND).await;
    gate.kill();
    close.abort();
    let begun = Instant::now();
    // The beat that reserved was out of turn: it is seen by the look for the next one.
    let ttl = elect.config().ttl() + elect.config().refresh_interval();
    while other.count() < 10 {
        assert!(begun.elapsed() <= ttl + SECOND, "{:?}", begun.elapsed());
        tokio::time::sleep(SECOND / 10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_comes_back_with_a_smaller_cap_takes_no_more_tasks_than_that() {
    let team = Team::new(20);
    let mut players = team.of(2).await;
    tokio::time::sleep(SECOND * 5).await;
    let leaves = players.remove(0);
    leaves.elect.close_for_restart(SECOND * 60).await;
    drop(leaves);
    players.push(team.join_as("pod-00", |spread| spread.cap(4)).await);
    team.settled(&players).await;
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!((counts(&players), team.registry.running()), (vec![4, 16], 20));
}

#[tokio::test(start_paused = true)]
async fn members_that_restart_together_get_their_tasks_back() {
    let team = Team::new(40);
    let players = team.of(4).await;
    tokio::time::sleep(SECOND * 5).await;
    let homes = team.terms().await;
    for player in players {
        player.elect.close_for_restart(SECOND * 60).await;
    }
    let back = team.of(4).await;
    assert_eq!(counts(&back), [10; 4]);
    let after = team.terms().await;
    assert!(homes.iter().all(|(key, (_, holder))| after[key].1 == *holder));
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_spreads_closes_for_a_restart_at_once() {
    let team = Team::new(1);
    let (elect, _, _) = team.elect("a").await;
    let closed = tokio::time::timeout(SECOND, elect.close_for_restart(SECOND * 60)).await.unwrap();
    assert!(closed.overran.is_empty());
}
