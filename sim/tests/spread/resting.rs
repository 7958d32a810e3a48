//! Tasks that fail too often rest, are tried again by themselves, and elsewhere first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tenure::{
    Elect, Event, Lease,
    spread::{Phase, Spread, SpreadStatus, Task, TaskState},
    testing::{Counting, Intercepted, Operation},
};
use tenure_sim::cases;
use tokio::time::Instant;

use crate::spread::team::{SECOND, SPREAD, Team};

/// Rule by which a job fails, by instance and task.
type Fails = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// Instances whose jobs fail as they are told to.
struct Ward {
    team: Team,
    fails: Fails,
    tries: u32,
    runs: Arc<Mutex<BTreeMap<String, String>>>,
    /// Beginnings: of which task, where, and when.
    begun: Arc<Mutex<Vec<(String, String, Instant)>>>,
}

struct Patient {
    elect: Elect,
    spread: Spread,
    counts: Arc<Intercepted<Counting>>,
}

struct Off(Arc<Mutex<BTreeMap<String, String>>>, String);

impl Drop for Off {
    fn drop(&mut self) {
        self.0.lock().unwrap().remove(&self.1);
    }
}

impl Ward {
    fn new(tasks: usize, tries: u32, fails: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> Self {
        let fails: Fails = Arc::new(fails);
        Self { team: Team::new(tasks), fails, tries, runs: Arc::default(), begun: Arc::default() }
    }

    async fn join(&self, holder: &str) -> Patient {
        let (elect, _, counts) = self.team.elect(holder).await;
        let (fails, runs, begun, name) =
            (self.fails.clone(), self.runs.clone(), self.begun.clone(), holder.to_owned());
        let job = move |task: Task, lease: Lease| {
            let (fails, runs, begun, name) = (fails.clone(), runs.clone(), begun.clone(), name.clone());
            async move {
                let key = task.key().to_string();
                begun.lock().unwrap().push((name.clone(), key.clone(), Instant::now()));
                let mut off = None;
                loop {
                    if fails(&name, &key) {
                        return Err("no route to host");
                    }
                    off.get_or_insert_with(|| {
                        runs.lock().unwrap().insert(key.clone(), name.clone());
                        Off(runs.clone(), key.clone())
                    });
                    tokio::select! {
                        biased;
                        () = lease.cancelled() => return Ok(()),
                        () = tokio::time::sleep(SECOND / 2) => {}
                    }
                }
            }
        };
        let spread = elect.spread(SPREAD).tasks(self.team.keys()).tries(self.tries).run(job).unwrap();
        Patient { elect, spread, counts }
    }

    async fn of(&self, instances: usize) -> Vec<Patient> {
        let mut patients = Vec::new();
        for number in 0..instances {
            patients.push(self.join(&format!("pod-{number}")).await);
        }
        tokio::time::sleep(SECOND * 60).await;
        patients
    }

    fn running(&self) -> usize {
        self.runs.lock().unwrap().len()
    }

    /// Number that work at each.
    fn working(&self, names: &[&str]) -> Vec<usize> {
        let runs = self.runs.lock().unwrap();
        names.iter().map(|name| runs.values().filter(|at| at == name).count()).collect()
    }

    /// Instances on which a task was tried, once for each holder in a row.
    fn tried(&self, key: &str) -> Vec<String> {
        let begun = self.begun.lock().unwrap();
        let mut at: Vec<_> = begun.iter().filter(|one| one.1 == key).map(|one| one.0.clone()).collect();
        at.dedup();
        at
    }
}

/// Fails for as long as the flag says.
fn while_broken() -> (Arc<AtomicBool>, impl Fn(&str, &str) -> bool + Send + Sync + 'static) {
    let broken = Arc::new(AtomicBool::new(false));
    let flag = broken.clone();
    (broken, move |_: &str, _: &str| flag.load(Ordering::Relaxed))
}

/// Records of locks that were written, or asked to be.
fn writes(patients: &[Patient]) -> u64 {
    let of =
        [Operation::Take, Operation::Release, Operation::Wait, Operation::StopWaiting, Operation::SetValue];
    let count =
        |patient: &Patient| of.iter().map(|one| patient.counts.intercept().counts().keys(*one)).sum::<u64>();
    patients.iter().map(count).sum()
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_is_away_for_a_while_needs_nobody() {
    let (times, teams) = (cases(&[780, 30, 60, 120_u32], 1), cases(&[5, 1, 2], 1));
    for away in times.iter().copied() {
        for instances in teams.iter().copied() {
            let (broken, fails) = while_broken();
            let ward = Ward::new(100, 5, fails);
            let patients = ward.of(instances).await;
            assert_eq!(ward.running(), 100);
            let before = writes(&patients);
            broken.store(true, Ordering::Relaxed);
            tokio::time::sleep(SECOND * away).await;
            let written = writes(&patients) - before;
            broken.store(false, Ordering::Relaxed);
            let back = Instant::now();
            while ward.running() < 100 && back.elapsed() < SECOND * 3600 {
                tokio::time::sleep(SECOND / 10).await;
            }
            let took = back.elapsed();
            println!(
                "{instances} instances, 100 tasks, away {away} s: all run {took:.1?} after it is back; \
                 {written} records written meanwhile"
            );
            assert!(took <= SECOND * 60.max(away / 12), "{took:?}");
            // A task is taken and given up; a row of failures has as many tries as its logarithm.
            assert!(written <= u64::from(100 * (6 + away / 10)), "{written}");
        }
    }
}

/// The number in a task's name.
fn number(key: &str) -> usize {
    key["task-".len()..].parse().unwrap()
}

fn resting(spread: &Spread) -> usize {
    spread.status().resting().count()
}

#[tokio::test(start_paused = true)]
async fn tasks_that_fail_everywhere_take_up_no_room() {
    for broken in cases(&[2, 0, 5], 1).iter().copied() {
        let ward = Ward::new(10, 3, move |_, key| number(key) >= 10 - broken);
        let a = ward.join("a").await;
        tokio::time::sleep(SECOND * 300).await;
        let b = ward.join("b").await;
        tokio::time::sleep(SECOND * 3600).await;
        let status = a.spread.status();
        let (working, settled) = (ward.working(&["a", "b"]), status.is_settled());
        let targets: Vec<_> = status.members.iter().map(|member| member.target).collect();
        println!(
            "{broken} of 10 fail everywhere, b joins: an hour later {working:?} work, targets {targets:?}, settled \
             {settled}, {} rest",
            resting(&b.spread)
        );
        assert_eq!(ward.running(), 10 - broken);
        assert!(working[0].abs_diff(working[1]) <= 1, "{working:?}");
        assert_eq!(resting(&b.spread), broken);
        assert!(settled, "{status}");
    }
    let ward = Ward::new(40, 3, |_, key| number(key).is_multiple_of(4));
    let mut patients = ward.of(2).await;
    tokio::time::sleep(SECOND * 600).await;
    for name in ["pod-2", "pod-3"] {
        patients.push(ward.join(name).await);
    }
    tokio::time::sleep(SECOND * 3600).await;
    let mut working = ward.working(&["pod-0", "pod-1", "pod-2", "pod-3"]);
    println!("40 tasks, 10 fail everywhere, two instances, two more: an hour later {working:?} work");
    working.sort_unstable();
    assert!(working[0] >= 7 && working[3] <= 8, "{working:?}");
    assert!(patients[3].spread.status().is_settled());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_failed_long_ago_is_tried_before_one_that_fails_now() {
    let broken: Arc<Mutex<BTreeSet<String>>> = Arc::new(Mutex::new(["a".to_owned()].into()));
    let fails = broken.clone();
    let ward = Ward::new(1, 3, move |holder, _| fails.lock().unwrap().contains(holder));
    let a = ward.join("a").await;
    a.spread.until(|status| status.share().len() == 1).await;
    let b = ward.join("b").await;
    tokio::time::sleep(SECOND * 300).await;
    assert_eq!(ward.tried("task-000"), ["a", "b"], "it works at b");
    // Good work at b for longer than anything is remembered; a is well again.
    broken.lock().unwrap().clear();
    tokio::time::sleep(SECOND * 3600 * 6).await;
    assert_eq!(ward.tried("task-000"), ["a", "b"]);
    let failed = Instant::now();
    broken.lock().unwrap().insert("b".to_owned());
    while ward.working(&["a"]) != [1] {
        tokio::time::sleep(SECOND / 10).await;
        assert!(failed.elapsed() < SECOND * 60, "{}", a.spread.explain("task-000").await.unwrap());
    }
    println!("b fails what a gave up six hours ago: it works at a after {:.1?}", failed.elapsed());
    assert_eq!(ward.tried("task-000"), ["a", "b", "a"]);
    tokio::time::sleep(SECOND * 3600 * 2).await;
    assert_eq!(ward.tried("task-000"), ["a", "b", "a"], "it stays where it works");
    assert_eq!((resting(&a.spread), resting(&b.spread)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn tasks_that_fail_at_one_member_work_at_another_and_the_counts_differ_by_them() {
    let ward = Ward::new(20, 3, |holder, key| holder == "pod-1" && number(key) < 2);
    let patients = ward.of(2).await;
    tokio::time::sleep(SECOND * 600).await;
    let working = ward.working(&["pod-0", "pod-1"]);
    assert!(working[0] + working[1] == 20 && (8..=10).contains(&working[1]), "{working:?}");
    let begun = ward.begun.lock().unwrap().len();
    tokio::time::sleep(SECOND * 3600 * 2).await;
    assert_eq!(ward.begun.lock().unwrap().len(), begun, "nothing is tried any more where it failed");
    assert!(patients[0].spread.status().is_settled());
}

#[tokio::test(start_paused = true)]
async fn a_row_of_failures_goes_on_over_holders_and_is_told_once_each() {
    let broken = Arc::new(AtomicBool::new(true));
    let fails = broken.clone();
    let ward = Ward::new(3, 3, move |_, key| number(key) == 1 && fails.load(Ordering::Relaxed));
    let patients = ward.of(2).await;
    let mut events = patients.iter().map(|one| one.spread.events()).collect::<Vec<_>>();
    tokio::time::sleep(SECOND * 1800).await;
    let mut told = Vec::new();
    for events in &mut events {
        while let Ok(Some(event)) = tokio::time::timeout(SECOND / 1000, events.next()).await {
            if let Event::Resting { lock, since, tries, error, rest, .. } = event {
                assert_eq!((lock.key.as_str(), error.as_str()), ("task-001", "no route to host"));
                told.push((tries, since, rest));
            }
        }
    }
    told.sort_unstable();
    assert!(told.windows(2).all(|two| two[0].0 + 1 == two[1].0 && two[0].1 == two[1].1), "{told:?}");
    assert!(told.windows(2).all(|two| two[0].2 <= two[1].2), "rests grow: {told:?}");
    let last = told.last().unwrap();
    println!("in half an hour: {} tries of three failures each, the last rest {:?}", last.0, last.2);
    assert!((15..=60).contains(&last.0) && last.2 >= SECOND * 120, "{last:?}");
    // It can be seen everywhere, by whomever it was tried.
    for patient in &patients {
        patient.spread.until(|status| status.resting().count() == 1).await;
        let status = patient.spread.status();
        let state = &status.tasks[&"task-001".parse().unwrap()];
        let is_so = matches!(state, TaskState::Resting { since, error, .. } if (*since, error.as_str()) == (last.1, "no route to host"));
        assert!(is_so, "{state:?}");
        assert!(status.to_string().ends_with("2 of 3 tasks held, 1 resting"), "{status}");
        let why = patient.spread.explain("task-001").await.unwrap().to_string();
        for says in ["resting until 00:", " times by pod-", ": no route to host"] {
            assert!(why.contains(says), "{why}");
        }
        assert!(!why.contains("preferred"), "there are no others: {why}");
    }
    // Mended: it works by itself, and the row is over.
    broken.store(false, Ordering::Relaxed);
    tokio::time::sleep(SECOND * 600).await;
    assert_eq!(ward.running(), 3);
    broken.store(true, Ordering::Relaxed);
    let told = async {
        loop {
            for events in &mut events {
                if let Ok(Some(Event::Resting { tries, rest, .. })) =
                    tokio::time::timeout(SECOND / 100, events.next()).await
                {
                    return (tries, rest);
                }
            }
        }
    };
    let (tries, rest) = tokio::time::timeout(SECOND * 60, told).await.unwrap();
    assert!(tries == 1 && rest <= SECOND * 2, "{tries} {rest:?}");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_stays_the_same_has_one_try() {
    let team = Team::new(1);
    let (elect, _, _) = team.elect("a").await;
    let begun = Arc::new(AtomicUsize::new(0));
    let runs = begun.clone();
    let job = move |_: Task, _: Lease| {
        runs.fetch_add(1, Ordering::Relaxed);
        async { Err::<(), _>("no such program") }
    };
    let spreading =
        elect.spread(SPREAD).tasks(team.keys()).give_up_on(|error| error.contains("no such program"));
    let spread = spreading.run(job).unwrap();
    spread.until(|status| status.resting().count() == 1).await;
    assert_eq!(begun.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn resting_tasks_can_be_put_back_by_any_member() {
    let (broken, fails) = while_broken();
    let ward = Ward::new(30, 3, fails);
    let patients = ward.of(3).await;
    broken.store(true, Ordering::Relaxed);
    tokio::time::sleep(SECOND * 3600).await;
    broken.store(false, Ordering::Relaxed);
    let rests = |status: &SpreadStatus| status.resting().map(ToString::to_string).collect::<Vec<_>>();
    let resting = rests(&patients[1].spread.status());
    assert!(resting.len() > 20, "{resting:?}");
    let one = &resting[0];
    assert!(patients[1].spread.put_back(one).await.unwrap());
    tokio::time::sleep(SECOND * 2).await;
    assert!(ward.runs.lock().unwrap().contains_key(one), "it is tried at once");
    assert!(!patients[1].spread.put_back(one).await.unwrap(), "it does not rest any more");
    assert!(!patients[1].spread.put_back("task-never").await.unwrap());
    let resting = rests(&patients[2].spread.status()).len();
    assert_eq!(patients[2].spread.put_back_all().await.unwrap(), resting);
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(ward.running(), 30);
    assert_eq!(patients[2].spread.put_back_all().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn tasks_that_are_done_are_not_put_back() {
    let team = Team::new(5);
    let (elect, _, _) = team.elect("a").await;
    let job = async |_: Task, _: Lease| Ok::<_, String>(());
    let spread = elect.spread(SPREAD).tasks(team.keys()).done_for_good().run(job).unwrap();
    let is_done = |status: &SpreadStatus| status.tasks.values().all(|state| *state == TaskState::Done);
    spread.until(is_done).await;
    assert_eq!(spread.put_back_all().await.unwrap(), 0);
    assert!(!spread.put_back("task-001").await.unwrap());
    tokio::time::sleep(SECOND * 60).await;
    assert!(is_done(&spread.status()));
}

#[tokio::test(start_paused = true)]
async fn a_task_fails_a_few_times_before_it_rests() {
    let ward = Ward::new(1, 3, |_, _| true);
    let only = ward.join("a").await;
    let failed = |status: &SpreadStatus| {
        let failed = |phase: &Phase| matches!(phase, Phase::Failing { times: 2, error, .. } if error == "no route to host");
        status.here.values().any(failed)
    };
    only.spread.until(failed).await;
    only.spread.until(|status| status.resting().count() == 1).await;
    let begun: Vec<_> = ward.begun.lock().unwrap().iter().map(|(.., at)| *at).collect();
    assert_eq!(begun.len(), 3);
    let rests: Vec<Duration> = begun.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(rests[0] >= SECOND && rests[1] > rests[0], "with growing rests: {rests:?}");
    only.elect.close().await;
}
