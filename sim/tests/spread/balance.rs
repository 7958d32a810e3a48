//! Numbers of tasks of each member, and the cost of getting there.

use std::{collections::BTreeMap, sync::Arc};

use tenure::{
    model::{Key, Why},
    spread::TaskState,
    store::{Revocation, RevokeAnswer, Store, StoreExt, Topic},
    testing::{Counts, Operation},
};
use tokio::time::Instant;

use crate::spread::team::{SECOND, Team, counts};

#[tokio::test(start_paused = true)]
async fn all_tasks_run_once_and_evenly() {
    let team = Team::new(100);
    let players = team.of(5).await;
    assert_eq!(counts(&players), [20; 5]);
    assert_eq!(team.registry.running(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_join_moves_as_few_as_can_be_within_a_second() {
    let team = Team::new(100);
    let mut players = team.of(10).await;
    tokio::time::sleep(SECOND * 10).await;
    let (before, starts) = (team.terms().await, team.registry.starts());
    let begun = Instant::now();
    players.push(team.join("pod-10").await);
    team.settled(&players).await;
    assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
    tokio::time::sleep(SECOND * 30).await;
    assert_eq!(team.moves(&before).await, 9);
    assert_eq!(team.registry.starts() - starts, 9, "tasks that stay are not interrupted");
    assert_eq!(counts(&players), [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 10]);
}

#[tokio::test(start_paused = true)]
async fn many_that_join_together_make_one_plan() {
    let team = Team::new(100);
    let mut players = team.of(10).await;
    tokio::time::sleep(SECOND * 10).await;
    let before = team.terms().await;
    for player in 10..15 {
        players.push(team.join(&format!("pod-{player}")).await);
    }
    team.settled(&players).await;
    assert_eq!(team.moves(&before).await, 30);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_leaves_is_replaced_within_a_second_and_only_its_tasks_move() {
    let team = Team::new(100);
    let mut players = team.of(10).await;
    tokio::time::sleep(SECOND * 10).await;
    let before = team.terms().await;
    let leaves = players.remove(3);
    let begun = Instant::now();
    leaves.elect.close().await;
    team.settled(&players).await;
    assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
    assert_eq!(team.moves(&before).await, 10);
    assert_eq!(team.registry.running(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_crashes_is_replaced_a_second_after_its_ttl() {
    let team = Team::new(100);
    let mut players = team.of(10).await;
    tokio::time::sleep(SECOND * 10).await;
    let before = team.terms().await;
    players.remove(3).kill().await;
    let begun = Instant::now();
    assert_eq!(team.registry.running(), 90);
    let ttl = players[0].elect.config().ttl();
    while team.registry.running() < 100 {
        assert!(begun.elapsed() <= ttl + SECOND, "{:?}", begun.elapsed());
        tokio::time::sleep(SECOND / 100).await;
    }
    assert_eq!(team.moves(&before).await, 10);
}

#[tokio::test(start_paused = true)]
async fn members_that_watch_each_other_and_die_together_are_detected() {
    let team = Team::new(60);
    let mut players = team.of(12).await;
    tokio::time::sleep(SECOND * 20).await;
    // All but one: each of them was watched by the dead only, or by the one that is left.
    let left = vec![players.remove(5)];
    for player in players {
        player.kill().await;
    }
    let begun = Instant::now();
    team.settled(&left).await;
    assert_eq!(counts(&left), [60]);
    let config = left[0].elect.config();
    assert!(begun.elapsed() <= config.ttl() + config.refresh_interval() * 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn caps_are_kept_and_what_nobody_has_room_for_is_shown() {
    let team = Team::new(25);
    let mut players = Vec::new();
    for name in ["a", "b"] {
        players.push(team.join_as(name, |spread| spread.cap(10)).await);
    }
    let mut events = players[0].spread.events();
    team.settled(&players).await;
    assert_eq!(counts(&players), [10, 10]);
    tokio::time::sleep(SECOND * 60).await;
    let status = players[0].spread.status();
    let waiting: BTreeMap<&Key, _> = status.waiting().collect();
    assert_eq!(waiting.len(), 5);
    assert!(waiting.values().all(|since| *since >= SECOND * 59), "{waiting:?}");
    let first = (*waiting.keys().next().unwrap()).clone();
    let why = players[0].spread.explain(&first).await.unwrap().to_string();
    assert!(
        why.contains(": waiting for room for 60s: all 2 instances are full: raise the cap or add one; ")
            && why.contains("b has 10 tasks and a cap of 10"),
        "{why}"
    );
    let mut told = 0;
    while let Ok(Some(event)) = tokio::time::timeout(SECOND, events.next()).await {
        told += usize::from(matches!(event, tenure::Event::Waiting { .. }));
    }
    assert_eq!(told, 5, "each once");

    // More room where it is needed; nothing else moves.
    let before = team.terms().await;
    players[1].spread.set_cap(20);
    players[0].spread.until(|status| status.waiting().count() == 0 && status.is_settled()).await;
    players[1].spread.until(tenure::spread::SpreadStatus::is_settled).await;
    assert_eq!((team.moves(&before).await, counts(&players)), (5, vec![10, 15]));
}

#[tokio::test(start_paused = true)]
async fn weights_share_out_in_proportion_and_may_change() {
    let team = Team::new(90);
    let mut players = Vec::new();
    for (name, weight) in [("a", 1), ("b", 2)] {
        players.push(team.join_as(name, |spread| spread.weight(weight)).await);
    }
    team.settled(&players).await;
    assert_eq!(counts(&players), [30, 60]);
    tokio::time::sleep(SECOND * 5).await;
    players[0].spread.set_weight(2);
    players[1].spread.until(|status| status.share().len() == 45).await;
    team.settled(&players).await;
    assert_eq!(counts(&players), [45, 45]);
}

#[tokio::test(start_paused = true)]
async fn a_draining_member_gives_all_tasks_away_and_gets_its_share_back_later() {
    let team = Team::new(30);
    let players = team.of(3).await;
    tokio::time::sleep(SECOND * 5).await;
    let (before, starts) = (team.terms().await, team.registry.starts());
    players[0].spread.drain();
    let begun = Instant::now();
    players[0].spread.until(|status| status.share().is_empty()).await;
    team.settled(&players).await;
    assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
    assert_eq!(counts(&players), [0, 15, 15]);
    assert_eq!((team.moves(&before).await, team.registry.starts() - starts), (10, 10));
    tokio::time::sleep(SECOND * 5).await;
    players[0].spread.undrain();
    players[0].spread.until(|status| status.share().len() == 10).await;
    team.settled(&players).await;
    assert_eq!(counts(&players), [10; 3]);
}

/// A drain by an operator takes effect everywhere, as does its end; a drain by the program holds beside it.
#[tokio::test(start_paused = true)]
async fn a_member_drained_by_an_operator_has_no_tasks_until_it_is_undrained() {
    let team = Team::new(30);
    let players = team.of(3).await;
    tokio::time::sleep(SECOND * 5).await;
    let first = &players[0];
    let store: Arc<dyn Store> = Arc::new(team.memory.clone());
    let say = async |drained: bool| {
        let session = first.elect.health().session.unwrap();
        let record = store.observe(vec![session], SECOND).await.unwrap()[0].record().unwrap().clone();
        let order = drained.then(|| ("ops".parse().unwrap(), Why::new("the node is repaired").unwrap()));
        let tell = Topic::Spread(record.about.namespace, record.shares[0].spread.clone());
        let asked = store.revoke(Revocation::Drain { session, order, tell }, SECOND).await;
        assert_eq!(asked.unwrap(), RevokeAnswer::Asked);
    };
    let record = async || {
        let session = first.elect.health().session.unwrap();
        let seen = store.observe(vec![session], SECOND).await.unwrap();
        seen[0].record().unwrap().clone()
    };
    for _ in 0..2 {
        let said = Instant::now();
        say(true).await;
        first.spread.until(|status| status.share().is_empty()).await;
        let order = record().await.drained.unwrap();
        assert_eq!((order.by.as_str(), order.why.as_str()), ("ops", "the node is repaired"));
        assert!(said.elapsed() <= SECOND, "by a hint, long before a beat: {:?}", said.elapsed());
        team.settled(&players).await;
        assert_eq!(counts(&players), [0, 15, 15]);
        tokio::time::sleep(SECOND * 60).await;
        assert_eq!(counts(&players), [0, 15, 15]);
        say(false).await;
        first.spread.until(|status| status.share().len() == 10).await;
        team.settled(&players).await;
        assert_eq!((record().await.drained, record().await.shares[0].known), (None, Some(30)));
        // A task that was just moved may rest before it moves again.
        tokio::time::sleep(SECOND * 5).await;
    }
    say(true).await;
    first.spread.drain();
    first.spread.until(|status| status.share().is_empty()).await;
    say(false).await;
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(counts(&players), [0, 15, 15], "the program drains it still");
    first.spread.undrain();
    first.spread.until(|status| status.share().len() == 10).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_member_keeps_its_tasks() {
    let team = Team::new(30);
    let mut players = team.of(2).await;
    tokio::time::sleep(SECOND * 5).await;
    players[0].spread.pause();
    tokio::time::sleep(SECOND).await;
    let before = team.terms().await;
    players.push(team.join("pod-02").await);
    tokio::time::sleep(SECOND * 30).await;
    assert_eq!(counts(&players), [7, 8, 15]);
    assert_eq!(team.moves(&before).await, 7);
    players[0].spread.resume();
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(counts(&players), [10, 10, 10]);
}

/// Ten times the tasks cost not one write more, and no more than ten times the records that are looked at.
#[tokio::test(start_paused = true)]
async fn in_quiet_instances_beat_and_write_nothing_else() {
    let quiet = async |tasks: usize| {
        let team = Team::new(tasks);
        let players = team.of(10).await;
        tokio::time::sleep(SECOND * 60).await;
        let counts = || players.iter().map(|player| player.counts.intercept().counts()).collect::<Vec<_>>();
        let before = counts();
        tokio::time::sleep(SECOND * 600).await;
        let spent: Vec<_> = counts().into_iter().zip(before).map(|(now, before)| now - before).collect();
        for one in &spent {
            // The first purge may come at any time.
            let (beats, purges) = (one.calls(Operation::Beat), one.calls(Operation::Purge));
            assert_eq!(one.writes(), beats + purges);
            assert!(purges <= 1, "{purges} purges in ten minutes");
            assert!((119..=124).contains(&beats), "{beats} in 120 intervals");
            // A page of sessions, one of tasks, the audit; and a look at each of three.
            assert!(one.total() - beats <= 8 * beats, "{one:?}");
        }
        spent.iter().map(Counts::writes).sum::<u64>()
    };
    let (few, many) = (quiet(100).await, quiet(1000).await);
    assert!(few.abs_diff(many) <= 10, "{few} {many}");
}

#[tokio::test(start_paused = true)]
async fn tasks_do_not_move_while_no_member_joins_or_leaves() {
    let team = Team::new(100);
    let players = team.of(7).await;
    tokio::time::sleep(SECOND * 5).await;
    let (before, starts) = (team.terms().await, team.registry.starts());
    tokio::time::sleep(SECOND * 900).await;
    assert_eq!((team.moves(&before).await, team.registry.starts() - starts), (0, 0));
    let held = |state: &TaskState| state.holder().is_some();
    assert!(players[0].spread.status().tasks.values().all(held));
}

#[tokio::test(start_paused = true)]
async fn tasks_that_waited_are_begun_once_when_all_caps_rise_together() {
    let team = Team::new(100);
    let players = team.of(5).await;
    for player in &players {
        player.spread.set_cap(10);
    }
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!((team.registry.running(), counts(&players)), (50, vec![10; 5]));
    let starts = team.registry.starts();
    for player in &players {
        player.spread.set_cap(100);
    }
    tokio::time::sleep(SECOND * 10).await;
    let starts = team.registry.starts() - starts;
    println!("caps of five raised at once: {starts} starts for 50 tasks that waited");
    assert_eq!((team.registry.running(), counts(&players)), (100, vec![20; 5]));
    assert_eq!(starts, 50);
}
