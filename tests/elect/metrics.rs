//! Metrics of the engine.

use tenure::{
    elect::JobEnd,
    testing::{Course, Fault, Operation},
};

use crate::elect::world::{SECOND, World};
use crate::numbers::{Numbers, is};

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_and_released_is_counted() {
    let numbers = Numbers::start();
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let guard = first.acquire("k").await.unwrap();
    is(numbers.gauge("tenure_held namespace=test kind=lock"), 1.0);
    let waits = tokio::spawn(async move { second.acquire("k").await.unwrap() });
    tokio::time::sleep(SECOND * 6).await;
    guard.release().await.unwrap();
    let guard = waits.await.unwrap();
    is(numbers.gauge("tenure_held namespace=test kind=lock"), 1.0);
    guard.release().await.unwrap();
    is(numbers.gauge("tenure_held namespace=test kind=lock"), 0.0);
    assert_eq!(numbers.count("tenure_acquired_total namespace=test"), 2);
    assert_eq!(numbers.count("tenure_lost_total namespace=test reason=expired"), 0);
    // Beats in no time, of a budget of five seconds.
    let beats = numbers.values("tenure_beat_seconds namespace=test");
    assert!(!beats.is_empty() && beats.iter().all(|took| *took < 0.1), "{beats:?}");
    assert_eq!(numbers.values("tenure_beat_budget_ratio namespace=test").len(), beats.len());
}

/// Descriptions in a dashboard are those of the documents.
#[tokio::test(start_paused = true)]
async fn every_metric_says_what_it_is_in_the_words_of_the_documents() {
    let _numbers = Numbers::start();
    let _elect = World::new().instance("a").await;
    let page = include_str!("../../docs/operations.md").replace('`', "");
    let says = Numbers::says();
    assert!(says.len() >= 24, "{says:?}");
    for (name, (unit, text)) in &says {
        let row = page.lines().find(|line| line.starts_with(&format!("| {name} |")));
        let row = row.unwrap_or_else(|| panic!("{name} is not in the table"));
        assert!(row.ends_with(&format!("| {text} |")), "{name} says {text:?}, the table {row:?}");
        assert_eq!(*unit == Some(metrics::Unit::Seconds), name.ends_with("_seconds"), "{name} {unit:?}");
    }
    for row in page.lines().filter_map(|line| line.strip_prefix("| tenure_")) {
        let name = row.split_once(" |").map_or("", |(name, _)| name);
        let known = says.contains_key(&format!("tenure_{name}"));
        assert!(known || !row.contains("| namespace"), "tenure_{name} is not described");
    }
}

/// An increase is seen only of what was there before.
#[tokio::test(start_paused = true)]
async fn counters_begin_with_0() {
    let numbers = Numbers::start();
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let _spread = elect.spread("topics").tasks(["t"]).run(async |_, _| Ok::<_, String>(())).unwrap();
    let _schedule = elect.schedule("s", "@daily").run(async |_, _| Ok::<_, String>(())).unwrap();
    for counter in [
        "tenure_acquired_total namespace=test",
        "tenure_overruns_total namespace=test",
        "tenure_lost_total namespace=test reason=expired",
        "tenure_sessions_lost_total namespace=test reason=declared_dead",
        "tenure_failed_calls_total namespace=test work=joining",
        "tenure_spread_actions_total namespace=test spread=topics",
        "tenure_schedule_runs_total namespace=test schedule=s outcome=failed",
        "tenure_schedule_skipped_total namespace=test schedule=s why=too late",
    ] {
        assert_eq!(numbers.counts(counter), Some(0), "{counter}");
    }
    is(numbers.gauge("tenure_trouble namespace=test work=takes"), 0.0);
    is(numbers.gauge("tenure_spread_waiting namespace=test spread=topics"), 0.0);
    is(numbers.gauge("tenure_schedule_failures namespace=test schedule=s"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_work_is_shown_and_its_failures_are_counted() {
    let numbers = Numbers::start();
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    faulty.intercept().always(&[Operation::Take], Fault::Forbidden);
    let _campaign = elect.campaign("k").start().unwrap();
    tokio::time::sleep(SECOND).await;
    is(numbers.gauge("tenure_trouble namespace=test work=takes"), 1.0);
    assert!(numbers.count("tenure_failed_calls_total namespace=test work=takes") > 0);
    faulty.intercept().heal();
    tokio::time::sleep(SECOND * 60).await;
    is(numbers.gauge("tenure_trouble namespace=test work=takes"), 0.0);
    is(numbers.gauge("tenure_trouble namespace=test work=beats"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_beat_is_measured_against_the_interval() {
    let numbers = Numbers::start();
    let world = World::new();
    let (_elect, faulty) = world.instance("a").await;
    faulty.intercept().always(&[Operation::Beat], Course::PLAIN.answered_after(SECOND * 2));
    tokio::time::sleep(SECOND * 12).await;
    is(*numbers.values("tenure_beat_seconds namespace=test").last().unwrap(), 2.0);
    is(*numbers.values("tenure_beat_budget_ratio namespace=test").last().unwrap(), 0.4);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_lost_and_a_takeover_are_counted() {
    let numbers = Numbers::start();
    let world = World::new();
    let (first, faulty) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let guard = first.acquire("k").await.unwrap();
    let waits = tokio::spawn(async move { second.acquire("k").await.unwrap() });
    tokio::time::sleep(SECOND).await;
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    let taken = waits.await.unwrap();
    assert_eq!(numbers.count("tenure_lost_total namespace=test reason=expired"), 1);
    assert_eq!(numbers.count("tenure_sessions_lost_total namespace=test reason=expired"), 1);
    let silent = numbers.values("tenure_takeover_seconds namespace=test");
    assert!(matches!(silent[..], [silent] if (30.0..36.0).contains(&silent)), "{silent:?}");
    drop((guard, taken));
}

#[tokio::test(start_paused = true)]
async fn contenders_leaders_and_waiters_are_counted() {
    let numbers = Numbers::start();
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let campaign = elect.campaign("k").start().unwrap();
    campaign.led().await.unwrap();
    is(numbers.gauge("tenure_contending namespace=test key=k"), 1.0);
    is(numbers.gauge("tenure_leading namespace=test key=k"), 1.0);
    let other = elect.clone();
    let waits = tokio::spawn(async move { other.acquire("k").await.unwrap() });
    tokio::time::sleep(SECOND * 6).await;
    is(numbers.gauge("tenure_waiting namespace=test"), 1.0);
    campaign.stop().await;
    is(numbers.gauge("tenure_contending namespace=test key=k"), 0.0);
    is(numbers.gauge("tenure_leading namespace=test key=k"), 0.0);
    let guard = waits.await.unwrap();
    tokio::time::sleep(SECOND * 6).await;
    is(numbers.gauge("tenure_waiting namespace=test"), 0.0);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_overran_is_counted() {
    let numbers = Numbers::start();
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let clock = world.clock.clone();
    let job = elect.lock("k", async move |_| {
        // The machine sleeps while this is polled.
        clock.suspend(SECOND * 60);
        Ok::<_, String>(())
    });
    let end = job.await.unwrap().running().unwrap().join().await;
    assert!(matches!(end, JobEnd::Overran { .. }), "{end:?}");
    assert_eq!(numbers.count("tenure_overruns_total namespace=test"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_unnoticed_is_counted_as_lost() {
    let numbers = Numbers::start();
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let job = elect.lock("k", async |_| {
        loop {
            tokio::time::sleep(SECOND / 100).await;
        }
        #[expect(unreachable_code, reason = "it says what the job would return")]
        Ok::<(), String>(())
    });
    let job = job.await.unwrap().running().unwrap();
    // The job's own timer finds it, before the keeper does.
    world.clock.suspend(SECOND * 3600);
    assert!(matches!(job.join().await, JobEnd::Cancelled(_)));
    assert_eq!(numbers.count("tenure_lost_total namespace=test reason=expired"), 1);
}
