//! Outages for a while, or at one instance only: the others and the rest go on, and no instance is blamed for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tenure::{
    Lease,
    spread::Task,
    testing::{Call, Course, Fault, Intercept},
};
use tokio::time::Instant;

use crate::spread::team::{Player, SECOND, SPREAD, Team, counts};

/// A way to the store that is cut while the flag is set.
#[derive(Clone, Debug, Default)]
struct Way(Arc<AtomicBool>);

impl Way {
    fn cut(&self, is_cut: bool) {
        self.0.store(is_cut, Ordering::Relaxed);
    }
}

impl Intercept for Way {
    fn decide(&self, _: &Call) -> Course {
        if self.0.load(Ordering::Relaxed) { Fault::Swallowed.into() } else { Course::PLAIN }
    }
}

/// Players, each with a way of its own to the store, when they have shared out the tasks.
async fn with_ways(team: &Team, pods: u64) -> (Vec<Player>, Vec<Way>) {
    let (mut players, mut ways) = (Vec::new(), Vec::new());
    for pod in 0..pods {
        let way = Way::default();
        let store = way.clone().around(Arc::new(team.memory.clone()));
        players.push(team.join_on(store, &format!("pod-{pod}"), 100 + pod).await);
        ways.push(way);
    }
    team.settled(&players).await;
    (players, ways)
}

fn cut(ways: &[Way], is_cut: bool) {
    for way in ways {
        way.cut(is_cut);
    }
}

/// The time until all run.
async fn until_all_run(team: &Team, tasks: usize) -> Duration {
    let begun = Instant::now();
    while team.registry.running() < tasks && begun.elapsed() < SECOND * 3600 {
        tokio::time::sleep(SECOND / 10).await;
    }
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_again_and_again_makes_nothing_pause() {
    let team = Team::new(100);
    let (_players, ways) = with_ways(&team, 5).await;
    for away in [60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 95, 120, 600] {
        tokio::time::sleep(SECOND * 180).await;
        assert_eq!(team.registry.running(), 100);
        cut(&ways, true);
        tokio::time::sleep(SECOND * away).await;
        cut(&ways, false);
        let took = until_all_run(&team, 100).await;
        println!("away for {away} s: all run {took:.1?} after it is back");
        assert!(took <= SECOND * 10, "{took:?}");
    }
    assert_eq!(team.notes().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_cut_off_again_and_again_makes_no_task_pause() {
    let team = Team::new(20);
    let (_players, ways) = with_ways(&team, 2).await;
    for time in 0..20 {
        tokio::time::sleep(SECOND * 135).await;
        assert_eq!(team.registry.running(), 20);
        ways[0].cut(true);
        tokio::time::sleep(SECOND * 45).await;
        ways[0].cut(false);
        let took = until_all_run(&team, 20).await;
        assert!(took <= SECOND * 10, "{took:?} the {}. time", time + 1);
    }
    assert_eq!(team.notes().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_stood_still_for_two_ttls_runs_on_and_nothing_pauses() {
    let team = Team::new(100);
    let (_players, _) = with_ways(&team, 5).await;
    for _ in 0..3 {
        tokio::time::sleep(SECOND * 180).await;
        assert_eq!(team.registry.running(), 100);
        // No task of any of them is polled in between.
        tokio::time::advance(SECOND * 60).await;
        let took = until_all_run(&team, 100).await;
        println!("all stood still for 60 s: all run {took:.1?} later");
        assert!(took <= SECOND * 10, "{took:?}");
    }
    assert_eq!(team.notes().await, []);
}

/// A machine; if it is broken, all children fail on it.
#[derive(Clone, Default)]
struct Machine {
    is_broken: Arc<AtomicBool>,
    failures: Arc<AtomicUsize>,
}

impl Machine {
    fn breaks(&self, is_broken: bool) {
        self.is_broken.store(is_broken, Ordering::Relaxed);
    }

    fn failures(&self) -> usize {
        self.failures.load(Ordering::Relaxed)
    }
}

/// An instance whose children fail if its machine is broken.
async fn join(team: &Team, holder: &str, machine: &Machine) -> Player {
    let (elect, gate, counts) = team.elect(holder).await;
    let (job, machine) = (team.job(holder), machine.clone());
    let job = move |task: Task, lease: Lease| {
        let is_broken = machine.is_broken.load(Ordering::Relaxed);
        machine.failures.fetch_add(usize::from(is_broken), Ordering::Relaxed);
        let run = (!is_broken).then(|| job(task, lease));
        async move {
            match run {
                Some(run) => run.await,
                None => Err("no such file".to_owned()),
            }
        }
    };
    let spread = elect.spread(SPREAD).tasks(team.keys()).cap(20).run(job).unwrap();
    Player { elect, spread, gate, counts }
}

#[tokio::test(start_paused = true)]
async fn tasks_that_fail_on_one_machine_run_on_the_others_until_it_is_mended() {
    for joins_later in [false, true] {
        let team = Team::new(30);
        let (well, bad) = (Machine::default(), Machine::default());
        bad.breaks(true);
        let mut pods = Vec::new();
        for name in ["pod-0", "pod-1"] {
            pods.push(join(&team, name, &well).await);
        }
        if joins_later {
            team.settled(&pods).await;
            tokio::time::sleep(SECOND * 60).await;
        }
        let starts = team.registry.starts();
        pods.push(join(&team, "pod-2", &bad).await);
        tokio::time::sleep(SECOND).await;
        let took = until_all_run(&team, 30).await + SECOND;
        assert!(took <= SECOND * 60, "{took:?}");
        let started = team.registry.starts() - starts;
        assert_eq!(
            started,
            if joins_later { 10 } else { 30 },
            "none that ran was stopped for one that failed"
        );
        let (mut least, starts) = (30, team.registry.starts());
        for _ in 0..2 * 3600 {
            tokio::time::sleep(SECOND).await;
            least = least.min(team.registry.running());
        }
        let probes = team.registry.starts() - starts;
        bad.breaks(false);
        let mended = Instant::now();
        if joins_later {
            // The machine is mended, and its instance started anew.
            pods.remove(2).elect.close().await;
            pods.push(join(&team, "pod-2", &well).await);
        }
        while counts(&pods) != [10, 10, 10] && mended.elapsed() < SECOND * 3600 {
            tokio::time::sleep(SECOND).await;
        }
        println!(
            "a bad machine of three, later: {joins_later}: all run after {took:.1?}, {started} starts; in 2 h {probes} \
             probes, {least} run at least; even {:.0?} after it is mended",
            mended.elapsed()
        );
        // Running tasks were stopped for a probe at a time, and for nothing else.
        assert!(least == 29 && probes <= 16, "{least} {probes}");
        assert!(mended.elapsed() <= SECOND * 900, "{:?}", counts(&pods));
    }
}

/// Three are the fewest by which a member is failing: its probes must not wear them out.
#[tokio::test(start_paused = true)]
async fn a_bad_machine_with_three_tasks_gets_nothing_but_probes_as_long_as_it_is_bad() {
    let team = Team::new(9);
    let (well, bad) = (Machine::default(), Machine::default());
    bad.breaks(true);
    let mut pods = Vec::new();
    for (name, machine) in [("pod-0", &well), ("pod-1", &well), ("pod-2", &bad)] {
        pods.push(join(&team, name, machine).await);
    }
    until_all_run(&team, 9).await;
    let before = bad.failures();
    tokio::time::sleep(SECOND * 6 * 3600).await;
    let probes = bad.failures() - before;
    println!("a bad machine with three tasks of nine: {before} failures, then {probes} in 6 h");
    assert!((30..=42).contains(&probes), "{before} {probes}");
    bad.breaks(false);
    let mended = Instant::now();
    while counts(&pods) != [3, 3, 3] && mended.elapsed() < SECOND * 3600 {
        tokio::time::sleep(SECOND).await;
    }
    assert!(mended.elapsed() <= SECOND * 900, "{:?}", counts(&pods));
}

/// An instance whose tasks fail while the flag is set, those of these numbers.
async fn join_breaking(
    team: &Team,
    holder: &str,
    broken: &Arc<AtomicBool>,
    breaks: impl Fn(usize) -> bool + Send + Sync + 'static,
) -> Player {
    let (elect, gate, counts) = team.elect(holder).await;
    let (job, broken) = (team.job(holder), broken.clone());
    let job = move |task: Task, lease: Lease| {
        let may_break = breaks(task.key().as_str()["task-".len()..].parse().unwrap());
        let (run, broken) = (job(task, lease), broken.clone());
        async move {
            let breaks = async {
                while !may_break || !broken.load(Ordering::Relaxed) {
                    tokio::time::sleep(SECOND).await;
                }
            };
            tokio::select! {
                biased;
                () = breaks => Err("no such device".to_owned()),
                ended = run => ended,
            }
        }
    };
    let spread = elect.spread(SPREAD).tasks(team.keys()).tries(1).run(job).unwrap();
    Player { elect, spread, gate, counts }
}

#[tokio::test(start_paused = true)]
async fn failures_count_while_the_clock_is_behind_the_beginning_of_their_members_session() {
    let team = Team::new(20);
    let broken = Arc::new(AtomicBool::new(false));
    let mut pods = Vec::new();
    for pod in 0..4 {
        pods.push(join_breaking(&team, &format!("pod-{pod}"), &broken, move |_| pod == 1).await);
    }
    team.settled(&pods).await;
    team.clock.step_wall_back(SECOND * 3600);
    // By then it is believed.
    tokio::time::sleep(SECOND * 400).await;
    broken.store(true, Ordering::Relaxed);
    tokio::time::sleep(SECOND * 20).await;
    assert_eq!(team.registry.running(), 20, "{:?}", counts(&pods));
    assert_eq!(pods[1].count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failing_member_that_has_its_part_is_not_probed_and_like_the_others_after_an_hour() {
    let team = Team::new(30);
    let broken = Arc::new(AtomicBool::new(false));
    let mut pods = Vec::new();
    for pod in 0..3 {
        let breaks = move |task: usize| pod == 2 && task.is_multiple_of(2);
        pods.push(join_breaking(&team, &format!("pod-{pod}"), &broken, breaks).await);
    }
    team.settled(&pods).await;
    // One gives up some of its tasks, and is mended before any other knows that it fails. Then others come, and what it
    // has left is all of its part.
    broken.store(true, Ordering::Relaxed);
    tokio::time::sleep(SECOND * 2).await;
    broken.store(false, Ordering::Relaxed);
    for pod in 3..10 {
        pods.push(team.join(&format!("pod-{pod}")).await);
    }
    tokio::time::sleep(SECOND * 30).await;
    let starts = team.registry.starts();
    let failing = |pods: &[Player]| pods[0].spread.status().members.iter().any(|member| member.failing);
    tokio::time::sleep(SECOND * 900).await;
    assert!(failing(&pods), "{}", pods[0].spread.status());
    tokio::time::sleep(SECOND * 3000).await;
    assert!(!failing(&pods), "{}", pods[0].spread.status());
    assert_eq!(team.registry.starts(), starts);
    assert_eq!(team.registry.running(), 30);
}
