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

/// One that lives for so long and is back so much later, so many times.
async fn crashes(lives: u64, back_after: u64, times: usize) -> (Ran, Ran) {
    let team = Team::new(TASKS);
    let _others = others(&team).await;
    let (mut first, mut rest) = (Ran::default(), Ran::default());
    for time in 0..times {
        // What the first death costs is over when the second one comes, or the third.
        let ran = if time < 3 { &mut first } else { &mut rest };
        let bad = team.join("pod-bad").await;
        ran.look_for(&team, SECOND * u32::try_from(lives).unwrap()).await;
        bad.kill().await;
        ran.look_for(&team, SECOND * u32::try_from(back_after).unwrap()).await;
    }
    (first, rest)
}

#[tokio::test(start_paused = true)]
async fn one_that_crashes_in_a_loop_takes_tasks_with_it_once() {
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
        assert!(all.average() >= 98.9, "lives {lives} s: {}", all.average());
        // What a sixth of the tasks costs that waits for a ttl.
        assert!(all.stood_still() <= 17 * 36, "lives {lives} s: {}", all.stood_still());
        assert_eq!(rest.least, Some(TASKS), "lives {lives} s");
    }
}

/// Until it takes part; says after how long.
async fn takes_part(player: &Player) -> Duration {
    let begun = tokio::time::Instant::now();
    player.spread.until(|status| status.planned).await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn one_that_crashed_takes_part_when_it_has_lived_as_long_as_its_death_would_cost() {
    let (log, _guard) = Log::start();
    let team = Team::new(20);
    let _others = others(&team).await;
    let ttl = Team::config("x").ttl();
    for least in [Duration::ZERO, ttl, ttl * 2, ttl * 4, ttl * 8, ttl * 10] {
        let bad = team.join("pod-bad").await;
        tokio::time::sleep(SECOND).await;
        let status = bad.spread.status();
        assert_eq!(status.held_back.is_some(), !least.is_zero(), "{status}");
        if let Some(held_back) = status.held_back {
            assert!(held_back.remaining + SECOND * 2 > least, "{held_back}");
            assert!(status.members.iter().all(|member| member.holder.as_str() != "pod-bad"));
            let why = bad.spread.explain("task-001").await.unwrap().to_string();
            assert!(why.contains("takes no tasks"), "{why}");
            assert!(status.to_string().contains("died soon after starting"), "{status}");
        }
        let took = takes_part(&bad).await + SECOND;
        assert!(took + SECOND >= least && took <= least + SECOND * 2, "{took:?} for {least:?}");
        assert_eq!(bad.spread.status().held_back, None);
        bad.kill().await;
        tokio::time::sleep(SECOND * 40).await;
    }
    assert_eq!(log.with(&["waiting before taking tasks"]).len(), 5, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn one_whose_predecessor_is_not_known_to_be_dead_yet_is_held_back_too() {
    let team = Team::new(20);
    let _others = others(&team).await;
    team.join("pod-bad").await.kill().await;
    let bad = team.join("pod-bad").await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(bad.spread.status().held_back.map(|held| held.deaths), Some(1));
    // Nobody else sees to those that never took part.
    bad.kill().await;
    let bad = team.join("pod-bad").await;
    tokio::time::sleep(SECOND * 50).await;
    assert_eq!(bad.spread.status().held_back.map(|held| held.deaths), Some(2));
}

#[tokio::test(start_paused = true)]
async fn one_that_was_closed_or_is_alone_or_has_a_living_namesake_is_not_held_back_for_long() {
    let team = Team::new(20);
    // Alone.
    team.join("pod-bad").await.kill().await;
    let alone = team.join("pod-bad").await;
    assert!(takes_part(&alone).await <= SECOND);
    alone.elect.close().await;
    // Closed: that ends the row.
    let _others = others(&team).await;
    let closed = team.join("pod-bad").await;
    assert!(takes_part(&closed).await <= SECOND);
    // One that beats is another of this name.
    let namesake = team.join("pod-bad").await;
    assert!(takes_part(&namesake).await <= SECOND * 6);
    tokio::time::sleep(SECOND * 5).await;
    assert!(closed.count() > 0 && namesake.count() > 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_held_back_takes_part_when_the_others_are_gone() {
    let team = Team::new(20);
    let other = team.join("other").await;
    team.join("pod-bad").await.kill().await;
    let bad = team.join("pod-bad").await;
    tokio::time::sleep(SECOND * 5).await;
    assert!(bad.spread.status().held_back.is_some());
    other.elect.close().await;
    assert!(takes_part(&bad).await <= SECOND);
    tokio::time::sleep(SECOND).await;
    assert!(bad.count() > 0);
}
