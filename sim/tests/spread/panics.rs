//! Code of the program that panics where the engine calls it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use tenure::{elect::Work, spread::Task};

use crate::spread::team::{SECOND, SPREAD, Team};

type Answer = BoxFuture<'static, Result<Vec<Task>, String>>;

fn tasks(keys: &[&str]) -> Vec<Task> {
    keys.iter().map(|key| Task::new(key, ()).unwrap()).collect()
}

/// A closure that does this at its first calls, at the second and so on; and how often it was called.
fn asked(
    answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
) -> (impl Fn() -> Answer + Send + Sync, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let count = asked.clone();
    (move || answer(count.fetch_add(1, Ordering::Relaxed)), asked)
}

fn panics() -> Answer {
    panic!("no tasks today")
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_panics_is_asked_again_and_what_lasts_is_told() {
    let team = Team::new(0);
    let (elect, _, _) = team.elect("a").await;
    let (ask, asked) = asked(|call| match call {
        0 => Box::pin(async { Ok(tasks(&["a", "b"])) }),
        1..=10 if call % 2 == 0 => panics(),
        1..=10 => Box::pin(async { panics().await }),
        _ => Box::pin(async { Ok(tasks(&["a", "b", "c"])) }),
    });
    let spread = elect.spread(SPREAD).tasks_by(SECOND * 10, ask).run(team.job("a")).unwrap();
    spread.until(|status| status.share().len() == 2).await;
    while asked.load(Ordering::Relaxed) < 10 {
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!((team.registry.running(), team.registry.starts()), (2, 2), "the tasks stay as they are");
    let health = elect.health();
    assert!(health.is_ok(), "{health}");
    let [trouble] = &health.troubles[..] else { panic!("{health:?}") };
    assert_eq!(trouble.work, Work::Tasks);
    assert!(trouble.error.contains("spread topics: panicked: no tasks today"), "{trouble}");
    spread.until(|status| status.share().len() == 3).await;
    tokio::time::sleep(SECOND).await;
    assert!(elect.health().troubles.is_empty(), "{:?}", elect.health());
    let before = asked.load(Ordering::Relaxed);
    tokio::time::sleep(SECOND * 60).await;
    assert!((6..9).contains(&(asked.load(Ordering::Relaxed) - before)), "at its own pace again");
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_panics_for_ever_is_asked_each_minute_and_no_trouble_when_the_spread_is_left() {
    let team = Team::new(0);
    let (elect, _, _) = team.elect("a").await;
    let (ask, asked) = asked(|_| panics());
    let spread = elect.spread(SPREAD).tasks_by(SECOND * 3600, ask).run(team.job("a")).unwrap();
    tokio::time::sleep(SECOND * 600).await;
    let asked = asked.load(Ordering::Relaxed);
    println!("asked {asked} times in 600 s");
    assert!((14..30).contains(&asked), "{asked}");
    assert_eq!(elect.health().troubles.len(), 1);
    spread.stop().await;
    tokio::time::sleep(SECOND).await;
    assert!(elect.health().troubles.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_spread_whose_source_works_hides_no_trouble_of_another() {
    let team = Team::new(0);
    let (elect, _, _) = team.elect("a").await;
    let (ask, _) = asked(|_| panics());
    let bad = elect.spread("bad").tasks_by(SECOND * 5, ask).run(team.job("a")).unwrap();
    let good = || async { Ok::<_, String>(tasks(&["a"])) };
    let good = elect.spread(SPREAD).tasks_by(SECOND, good).run(team.job("a")).unwrap();
    tokio::time::sleep(SECOND * 120).await;
    assert_eq!(elect.health().troubles.len(), 1, "{:?}", elect.health());
    drop((bad, good));
}

/// Data of a task; that of one cannot be cloned for a while.
struct Meta(u32, Arc<Mutex<usize>>);

impl Clone for Meta {
    fn clone(&self) -> Self {
        if self.0 == 1 {
            let mut panics = self.1.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if *panics > 0 {
                *panics -= 1;
                drop(panics);
                panic!("this cannot be cloned");
            }
        }
        Self(self.0, self.1.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_the_data_of_a_task_is_cloned_is_a_failure_of_that_task() {
    let team = Team::new(0);
    let (elect, _, _) = team.elect("a").await;
    let panics = Arc::new(Mutex::new(2));
    let known = (0..3).map(|number| (format!("t{number}"), Meta(number, panics.clone())));
    let registry = team.registry.clone();
    let mut events = elect.events();
    let spread = elect.spread(SPREAD).tasks_with(known.collect::<Vec<_>>());
    let spread = spread.run(move |task: Task<Meta>, lease| {
        let registry = registry.clone();
        async move {
            let _running = registry.begin(task.key(), "a");
            lease.cancelled().await;
            Ok::<_, String>(())
        }
    });
    let spread = spread.unwrap();
    let panicked = async {
        loop {
            if let tenure::Event::Panicked { lock, .. } = events.next().await.unwrap() {
                break lock.key;
            }
        }
    };
    assert_eq!(panicked.await.as_str(), "t1");
    assert_eq!(team.registry.running(), 2, "the others run");
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!((team.registry.running(), *panics.lock().unwrap()), (3, 0), "it was tried again");
    drop(spread);
}
