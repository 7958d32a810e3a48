//! Deploys: versions of a program that know different tasks run side by side.

use std::time::Duration;

use tenure_sim::cases;

use crate::spread::team::{Player, SECOND, Team, counts};

/// Observations of a deploy, pod by pod.
#[derive(Debug, Default)]
struct Rollout {
    /// The most tasks that one pod had at any moment.
    most: usize,
    /// Number of tasks that were started.
    starts: usize,
    /// For how long fewer tasks ran than both versions know.
    short: Duration,
}

/// Order in which an old pod is exchanged for a new one.
#[derive(Clone, Copy, Debug)]
enum Exchange {
    NewFirst,
    OldFirst,
}

impl Rollout {
    async fn look(&mut self, team: &Team, pods: [&[Player]; 2], during: Duration) {
        let look = SECOND / 10;
        for _ in 0..during.as_millis() / look.as_millis() {
            tokio::time::sleep(look).await;
            let most = pods.into_iter().flatten().map(Player::count).max().unwrap_or(0);
            self.most = self.most.max(most);
            if team.registry.running() < 100 {
                self.short += look;
            }
        }
    }
}

/// Ten pods of 100 tasks are exchanged one by one for pods of a version that knows more.
async fn rolled_out(more: usize, gap: Duration, exchange: Exchange) -> Rollout {
    let team = Team::new(100);
    let mut old = team.of(10).await;
    tokio::time::sleep(SECOND * 30).await;
    let later = Team::beside(&team, 100 + more);
    let (mut new, mut seen, before) = (Vec::new(), Rollout::default(), team.registry.starts());
    for pod in 0..10 {
        for step in 0..2 {
            if matches!((exchange, step), (Exchange::NewFirst, 0) | (Exchange::OldFirst, 1)) {
                new.push(later.join(&format!("new-{pod:02}")).await);
            } else {
                old.remove(0).elect.close().await;
            }
            seen.look(&team, [&old, &new], gap / 2).await;
        }
    }
    let took = later.settled(&new).await;
    seen.starts = team.registry.starts() - before;
    println!(
        "{more} more, {exchange:?}, one in {gap:?}: at most {} on a pod, {} starts, most of one task {}, \
         fewer than 100 ran for {:?}; settled {took:?} after the last, {:?}",
        seen.most,
        seen.starts,
        team.registry.most_starts(),
        seen.short,
        counts(&new)
    );
    let all = counts(&new);
    assert!(all[9] - all[0] <= 1 && all.iter().sum::<usize>() == 100 + more, "{all:?}");
    seen
}

#[tokio::test(start_paused = true)]
async fn a_rolling_deploy_with_more_tasks_overloads_no_pod() {
    let mut all = Vec::new();
    for more in cases(&[10, 0, 1], 1).iter().copied() {
        for gap in [60, 5] {
            all.push((100 + more, rolled_out(more, SECOND * gap, Exchange::NewFirst).await));
        }
    }
    for (tasks, seen) in all {
        assert!(seen.most <= tasks.div_ceil(10) + 2, "{tasks} tasks: {seen:?}");
        assert!(seen.starts <= 2 * tasks, "{tasks} tasks: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_old_pod_goes_first_a_deploy_overloads_no_pod_either() {
    let mut all = Vec::new();
    for more in cases(&[1, 10], 1).iter().copied() {
        all.push((100 + more, rolled_out(more, SECOND * 60, Exchange::OldFirst).await));
    }
    for (tasks, seen) in all {
        assert!(seen.most <= tasks.div_ceil(9) + 2, "{tasks} tasks: {seen:?}");
        assert!(seen.starts <= 2 * tasks, "{tasks} tasks: {seen:?}");
    }
}

/// All tasks run, every pod has its part, and nothing moves any more.
async fn assert_even(team: &Team, pods: &[&[Player]], tasks: usize) {
    tokio::time::sleep(SECOND * 60).await;
    let mut all: Vec<_> = pods.iter().copied().flatten().map(Player::count).collect();
    all.sort_unstable();
    println!("{all:?}");
    assert_eq!(team.registry.running(), tasks);
    let (least, most) = (all[0], all[all.len() - 1]);
    assert!(most - least <= 2, "{all:?}");
    let before = team.registry.starts();
    tokio::time::sleep(SECOND * 300).await;
    assert_eq!(team.registry.starts(), before, "it has come to rest");
}

async fn joined(team: &Team, name: &str, how_many: usize) -> Vec<Player> {
    let mut pods = Vec::new();
    for pod in 0..how_many {
        pods.push(team.join(&format!("{name}-{pod}")).await);
    }
    pods
}

#[tokio::test(start_paused = true)]
async fn two_versions_that_each_have_tasks_of_their_own_share_out_all_of_them() {
    let team = Team::new(100);
    let old = joined(&team, "old", 5).await;
    team.settled(&old).await;
    let later = Team::beside_with(&team, 10..110);
    let mut new = joined(&later, "new", 5).await;
    assert_even(&team, &[&old, &new], 110).await;
    // What a pod had that dies goes to both.
    new.remove(0).kill().await;
    tokio::time::sleep(SECOND * 60).await;
    assert_even(&team, &[&old, &new], 110).await;
}

#[tokio::test(start_paused = true)]
async fn a_third_version_that_joins_two_gets_its_part() {
    let team = Team::new(100);
    let old = joined(&team, "old", 4).await;
    team.settled(&old).await;
    let later = Team::beside(&team, 105);
    let new = joined(&later, "new", 4).await;
    assert_even(&team, &[&old, &new], 105).await;
    let before = team.registry.starts();
    let latest = Team::beside_with(&team, 3..108);
    let newest = joined(&latest, "newest", 2).await;
    assert_even(&team, &[&old, &new, &newest], 108).await;
    let starts = team.registry.starts() - before;
    println!("{starts} starts");
    assert!(starts <= 40, "two of ten join, and little more than their part moves: {starts}");
}
