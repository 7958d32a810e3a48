//! Members that die young, again and again.

use std::time::Duration;

use crate::captured::Log;
use crate::spread::team::{Player, SECOND, Team};

/// Number of tasks; and of members besides the one that dies.
const TASKS: usize = 100;
const OTHERS: usize = 5;

/// Number of tasks that ran while time passed.
#[derive(Default)]
struct Ran {
    looks: usize,
    sum: usize,
    least: Option<usize>,
}

impl Ran {
    async fn look_for(&mut self, team: &Team, time: Duration) {
        for _ in 0..time.as_millis() / 500 {
            tokio::time::sleep(SECOND / 2).await;
            let running = team.registry.running();
            self.looks += 1;
            self.sum += running;
            self.least = Some(self.least.map_or(running, |least| least.min(running)));
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "these are small")]
    fn average(&self) -> f64 {
        self.sum as f64 / self.looks as f64
    }

    /// For how many seconds tasks did not run, over all of them.
    fn stood_still(&self) -> usize {
        (self.looks * TASKS - self.sum) / 2
    }
}

async fn others(team: &Team) -> Vec<Player> {
    let mut others = Vec::new();
    for pod in 0..OTHERS {
        others.push(team.join(&format!("pod-{pod}")).await);
    }
    team.settled(&others).await;
    others
}

/// Starts and kills an instance `times` times: it lives for `lives` seconds, and is back `back_after` seconds later.
async fn crashes(lives: u64, back_after: u64, times: usize) -> (Ran, Ran) {
    let team = Team::new(TASKS);
    let _others = others(&team).await;
    let (mut first, mut rest) = (Ran::default(), Ran::default());
    for time in 0..times {
        // The cost of the first death is over when the second one comes, or the third.
        let ran = if time < 3 { &mut first } else { &mut rest };
        let bad = team.join("pod-bad").await;
        ran.look_for(&team, SECOND * u32::try_from(lives).unwrap()).await;
        bad.kill().await;
        ran.look_for(&team, SECOND * u32::try_from(back_after).unwrap()).await;
    }
    (first, rest)
}

#[tokio::test(start_paused = true)]
async fn a_member_that_crashes_in_a_loop_takes_ever_fewer_tasks_with_it() {
    let mut ran = Vec::new();
    for lives in [1, 5, 20] {
        let (first, rest) = crashes(lives, 20, 20).await;
        let all = Ran {
            looks: first.looks + rest.looks,
            sum: first.sum + rest.sum,
            least: first.least.min(rest.least),
        };
        println!(
            "lives {lives} s, back 20 s later, 20 times: of {TASKS} tasks {:.1} ran on average, {:?} at least, {} task seconds lost; from the fourth life on {:.1}",
            all.average(),
            all.least,
            all.stood_still(),
            rest.average()
        );
        ran.push((lives, all, rest));
    }
    for (lives, all, rest) in ran {
        assert!(all.average() >= 97.0, "lives {lives} s: {}", all.average());
        assert!(rest.average() >= 98.5, "lives {lives} s: {}", rest.average());
    }
}

/// Waits until it takes part; says after how long.
async fn takes_part(player: &Player) -> Duration {
    let begun = tokio::time::Instant::now();
    player.spread.until(|status| status.planned).await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_last_processes_died_pauses_ever_longer_before_it_takes_part() {
    let (log, _guard) = Log::start();
    let team = Team::new(20);
    let _others = others(&team).await;
    for (deaths, pause) in [(0, 0), (1, 0), (2, 0), (3, 10), (4, 30), (5, 60), (6, 180), (7, 300)] {
        let bad = team.join("pod-bad").await;
        tokio::time::sleep(SECOND).await;
        let status = bad.spread.status();
        assert_eq!(status.held_back.map(|held| held.deaths), (pause > 0).then_some(deaths), "{status}");
        if pause > 0 {
            assert!(status.members.iter().all(|member| member.holder.as_str() != "pod-bad"));
            let why = bad.spread.explain("task-001").await.unwrap().to_string();
            assert!(why.contains("takes no tasks"), "{why}");
            assert!(
                status.to_string().contains(&format!("the last {deaths} processes of its name died")),
                "{status}"
            );
        }
        let (took, pause) = (takes_part(&bad).await + SECOND, SECOND * pause);
        assert!(took >= pause * 3 / 4 && took <= pause + SECOND * 2, "{took:?} for {pause:?}");
        assert_eq!(bad.spread.status().held_back, None);
        bad.kill().await;
        tokio::time::sleep(SECOND * 40).await;
    }
    assert_eq!(log.with(&["waiting before taking tasks"]).len(), 5, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_member_is_held_back_also_before_its_predecessors_are_known_to_be_dead() {
    let team = Team::new(20);
    let _others = others(&team).await;
    for _ in 0..3 {
        team.join("pod-bad").await.kill().await;
        tokio::time::sleep(SECOND * 12).await;
    }
    let bad = team.join("pod-bad").await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(bad.spread.status().held_back.map(|held| held.deaths), Some(3));
}

#[tokio::test(start_paused = true)]
async fn members_that_all_die_equally_often_are_not_held_back() {
    let team = Team::new(20);
    for _ in 0..5 {
        for name in ["a", "b", "c"] {
            team.join(name).await.kill().await;
        }
        tokio::time::sleep(SECOND * 40).await;
    }
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        let player = team.join(name).await;
        assert!(takes_part(&player).await <= SECOND, "{name}");
        all.push(player);
    }
}

/// Lets so many instances die one after the other under this name.
async fn died(team: &Team, name: &str, times: usize) {
    for _ in 0..times {
        team.join(name).await.kill().await;
        tokio::time::sleep(SECOND * 40).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_was_closed_is_alone_or_has_a_living_namesake_is_not_held_back() {
    let team = Team::new(20);
    // Alone.
    died(&team, "pod-bad", 4).await;
    let alone = team.join("pod-bad").await;
    assert!(takes_part(&alone).await <= SECOND);
    alone.elect.close().await;
    // Closed: that ends the row.
    let _others = others(&team).await;
    let closed = team.join("pod-bad").await;
    assert!(takes_part(&closed).await <= SECOND);
    // One that beats is another of this name.
    let namesake = team.join("pod-bad").await;
    assert!(takes_part(&namesake).await <= SECOND);
    tokio::time::sleep(SECOND * 5).await;
    assert!(closed.count() > 0 && namesake.count() > 0);
}

#[tokio::test(start_paused = true)]
async fn a_held_back_member_takes_part_when_the_others_are_gone() {
    let team = Team::new(20);
    let other = team.join("other").await;
    died(&team, "pod-bad", 5).await;
    let bad = team.join("pod-bad").await;
    tokio::time::sleep(SECOND * 5).await;
    assert!(bad.spread.status().held_back.is_some());
    other.elect.close().await;
    assert!(takes_part(&bad).await <= SECOND);
    tokio::time::sleep(SECOND).await;
    assert!(bad.count() > 0);
}
