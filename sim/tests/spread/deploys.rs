//! Deploys: versions of a program that know different tasks run side by side.

use std::{collections::VecDeque, time::Duration};

use tenure_sim::cases;

use crate::spread::team::{Player, SECOND, Team, counts};

/// Observations of a deploy, pod by pod.
#[derive(Debug, Default)]
struct Rollout {
    /// The most tasks that one pod had at any moment.
    most: usize,
    /// The same for a second on end.
    lasting: usize,
    /// The most that one had at each of the last looks.
    looks: VecDeque<usize>,
    /// Number of tasks that were started.
    starts: usize,
    /// For how long fewer tasks ran than both versions know.
    short: Duration,
}

/// Order in which an old pod is exchanged for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchange {
    NewFirst,
    OldFirst,
    /// New first, and halfway a new pod crashes and is back after 10 s.
    Crash,
}

impl Rollout {
    async fn look(&mut self, team: &Team, tasks: usize, pods: [&[Player]; 2], during: Duration) {
        let look = SECOND / 10;
        for _ in 0..during.as_millis() / look.as_millis() {
            tokio::time::sleep(look).await;
            let most = pods.into_iter().flatten().map(Player::count).max().unwrap_or(0);
            self.most = self.most.max(most);
            self.looks.push_back(most);
            if self.looks.len() > 10 {
                self.looks.pop_front();
                self.lasting = self.lasting.max(self.looks.iter().min().copied().unwrap_or(0));
            }
            if team.registry.running() < tasks.min(100) {
                self.short += look;
            }
        }
    }
}

/// Ten pods of 100 tasks are exchanged one by one for pods of a version that knows so many.
async fn rolled_out(tasks: usize, gap: Duration, exchange: Exchange) -> Rollout {
    let team = Team::new(100);
    let mut old = team.of(10).await;
    tokio::time::sleep(SECOND * 30).await;
    let later = Team::beside(&team, tasks);
    let (mut new, mut seen, before) = (Vec::new(), Rollout::default(), team.registry.starts());
    for pod in 0..10 {
        for step in 0..2 {
            if (step == 0) == (exchange != Exchange::OldFirst) {
                new.push(later.join(&format!("new-{pod:02}")).await);
            } else {
                old.remove(0).elect.close().await;
            }
            seen.look(&team, tasks, [&old, &new], gap / 2).await;
        }
        if exchange == Exchange::Crash && pod == 5 {
            new.remove(2).kill().await;
            seen.look(&team, tasks, [&old, &new], SECOND * 10).await;
            new.push(later.join("new-02").await);
            seen.look(&team, tasks, [&old, &new], gap).await;
        }
    }
    let took = later.settled(&new).await;
    seen.starts = team.registry.starts() - before;
    println!(
        "100 tasks to {tasks}, {exchange:?}, one in {gap:?}: at most {} on a pod, {} for a second, {} starts, most of one task {}, \
         fewer than both know ran for {:?}; settled {took:?} after the last, {:?}",
        seen.most,
        seen.lasting,
        seen.starts,
        team.registry.most_starts(),
        seen.short,
        counts(&new)
    );
    let all = counts(&new);
    assert!(all[9] - all[0] <= 1 && all.iter().sum::<usize>() == tasks, "{all:?}");
    seen
}

#[tokio::test(start_paused = true)]
async fn a_rolling_deploy_with_other_tasks_overloads_no_pod() {
    let mut all = Vec::new();
    for tasks in cases(&[110, 90, 100, 101], 2).iter().copied() {
        for gap in [60, 5] {
            all.push((tasks, rolled_out(tasks, SECOND * gap, Exchange::NewFirst).await));
        }
    }
    for (tasks, seen) in all {
        // The last old pod begins all that the new ones do not know, and then gives away the others.
        let most = if tasks < 100 { seen.lasting } else { seen.most };
        assert!(most <= tasks.max(100).div_ceil(10) + 2, "{tasks} tasks: {seen:?}");
        assert!(seen.starts <= 2 * tasks.max(100), "{tasks} tasks: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_crashes_in_the_middle_of_a_deploy_overloads_no_other() {
    for tasks in cases(&[90, 110, 100], 1).iter().copied() {
        let seen = rolled_out(tasks, SECOND * 60, Exchange::Crash).await;
        assert!(seen.lasting <= tasks.max(100).div_ceil(9) + 2, "{tasks} tasks: {seen:?}");
        // Tasks of the pod that crashed are started twice more.
        assert!(seen.starts <= 2 * (tasks.max(100) + 12), "{tasks} tasks: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rolling_deploy_that_stops_old_pods_first_overloads_no_pod() {
    let mut all = Vec::new();
    for tasks in cases(&[101, 110], 1).iter().copied() {
        all.push((tasks, rolled_out(tasks, SECOND * 60, Exchange::OldFirst).await));
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
    // The tasks of a pod that dies go to both.
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
