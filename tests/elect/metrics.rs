//! What the engine counts.

use metrics::set_default_local_recorder;
use tenure::{
    elect::JobEnd,
    testing::{Fault, Operation},
};

use crate::{
    numbers::{Numbers, is},
    world::{SECOND, World},
};

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_and_released_is_counted() {
    let numbers = Numbers::default();
    let _here = set_default_local_recorder(&numbers);
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

#[tokio::test(start_paused = true)]
async fn a_beat_is_measured_against_the_interval() {
    let numbers = Numbers::default();
    let _here = set_default_local_recorder(&numbers);
    let world = World::new();
    let (_elect, faulty) = world.instance("a").await;
    faulty.intercept().always(&[Operation::Beat], tenure::testing::Course::PLAIN.answered_after(SECOND * 2));
    tokio::time::sleep(SECOND * 12).await;
    is(*numbers.values("tenure_beat_seconds namespace=test").last().unwrap(), 2.0);
    is(*numbers.values("tenure_beat_budget_ratio namespace=test").last().unwrap(), 0.4);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_lost_and_a_takeover_are_counted() {
    let numbers = Numbers::default();
    let _here = set_default_local_recorder(&numbers);
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
async fn who_stands_leads_and_waits_is_shown() {
    let numbers = Numbers::default();
    let _here = set_default_local_recorder(&numbers);
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let campaign = elect.campaign("k").start().unwrap();
    campaign.led().await.unwrap();
    is(numbers.gauge("tenure_standing namespace=test key=k"), 1.0);
    is(numbers.gauge("tenure_leading namespace=test key=k"), 1.0);
    let other = elect.clone();
    let waits = tokio::spawn(async move { other.acquire("k").await.unwrap() });
    tokio::time::sleep(SECOND * 6).await;
    is(numbers.gauge("tenure_waiting namespace=test"), 1.0);
    campaign.stop().await;
    is(numbers.gauge("tenure_standing namespace=test key=k"), 0.0);
    is(numbers.gauge("tenure_leading namespace=test key=k"), 0.0);
    let guard = waits.await.unwrap();
    tokio::time::sleep(SECOND * 6).await;
    is(numbers.gauge("tenure_waiting namespace=test"), 0.0);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_overran_is_counted() {
    let numbers = Numbers::default();
    let _here = set_default_local_recorder(&numbers);
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
