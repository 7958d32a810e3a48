//! Ends of leases, and how they are reported: whoever finds them, and whatever their cause.

use std::{sync::Arc, time::Duration};

use tenure::{
    Event, Loss,
    elect::{EventStream, JobEnd, Lease},
    model::Why,
    store::{Declaration, Evidence, Store, StoreExt},
    testing::{Counting, Fault, Faulty, Intercept, Operation, Rates},
};

use crate::elect::world::{SECOND, World};

/// A job that wakes itself all the time, and never stops.
async fn restless(_: Lease) -> Result<(), String> {
    loop {
        tokio::time::sleep(SECOND / 100).await;
    }
}

/// The events of one lock, until one ends a lease of it.
async fn end_of(events: &mut EventStream) -> Event {
    loop {
        let event = events.next().await.expect("the engine lives");
        if matches!(event, Event::Released { .. } | Event::Lost { .. }) {
            return event;
        }
    }
}

#[track_caller]
fn assert_expired(event: &Event) {
    assert!(matches!(event, Event::Lost { loss: Loss::Expired { .. }, .. }), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn a_campaign_whose_lease_ran_out_unnoticed_has_lost_it() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let campaign = elect.campaign("k").run(restless).unwrap();
    campaign.led().await.unwrap();
    let mut events = elect.events();
    // The job's own timer finds it, before the keeper does.
    world.clock.suspend(SECOND * 3600);
    assert_expired(&end_of(&mut events).await);
    campaign.led().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_lease_ran_out_unnoticed_has_lost_it() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let job = elect.lock("k", restless).await.unwrap().running().unwrap();
    let mut events = elect.events();
    world.clock.suspend(SECOND * 3600);
    assert_expired(&end_of(&mut events).await);
    assert!(matches!(job.join().await, JobEnd::Cancelled(Loss::Expired { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_when_its_lease_has_run_out_was_lost() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let guard = elect.acquire("k").await.unwrap();
    let mut events = elect.events();
    world.clock.suspend(SECOND * 3600);
    drop(guard);
    assert_expired(&end_of(&mut events).await);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_given_up_and_ran_out_before_its_job_stopped_was_lost() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let job = elect.lock("k", restless).await.unwrap().running().unwrap();
    let mut events = elect.events();
    let unlocking = tokio::spawn({
        let elect = elect.clone();
        async move { elect.unlock("k").await }
    });
    job.lease().cancelled().await;
    world.clock.suspend(SECOND * 3600);
    assert_expired(&end_of(&mut events).await);
    unlocking.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_process_that_did_not_run_says_so_and_blames_no_store() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let job = elect.lock("k", restless).await.unwrap().running().unwrap();
    let guard = elect.acquire("other").await.unwrap();
    let mut events = elect.events();
    world.clock.suspend(SECOND * 72);
    let told = |loss: &Loss| {
        let text = loss.to_string();
        let ran =
            text.strip_prefix("expired: this process did not run for ").unwrap_or_else(|| panic!("{text}"));
        let seconds: f64 = ran.strip_suffix('s').unwrap().parse().unwrap();
        assert!((67.0..=72.1).contains(&seconds), "{text}");
        assert_eq!(loss.name(), "expired");
    };
    // Found by the job, and by the keeper.
    let JobEnd::Cancelled(loss) = job.join().await else { panic!("it is over") };
    told(&loss);
    told(&guard.lost().await);
    loop {
        if let Event::SessionLost { loss, .. } = events.next().await.unwrap() {
            return told(&loss);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_told_as_that() {
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    let guard = elect.acquire("k").await.unwrap();
    tokio::time::sleep(SECOND * 12).await;
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    let text = guard.lost().await.to_string();
    assert!(text.starts_with("expired: no heartbeat was acknowledged for 24."), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_given_back_is_not_valid() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let guard = elect.acquire("k").await.unwrap();
    let lease = guard.lease();
    assert!(lease.is_valid() && !lease.is_cancelled());
    guard.release().await.unwrap();
    assert!(!lease.is_valid() && lease.is_cancelled());
    assert_eq!(lease.remaining(), Duration::ZERO);
    assert!(!lease.check().await.unwrap());
}

/// "All of them, or none": also if the session changes while the last is waited for.
#[tokio::test(start_paused = true)]
async fn several_keys_are_all_held_when_they_are_answered_whatever_was_lost_meanwhile() {
    let world = World::new();
    let (other, _) = world.instance("o").await;
    let (elect, _) = world.instance("a").await;
    let held = other.acquire("b").await.unwrap();
    let all = tokio::spawn({
        let elect = elect.clone();
        async move { elect.acquire_all(["a", "b", "c"], SECOND * 600).await.unwrap() }
    });
    tokio::time::sleep(SECOND).await;
    let session = elect.health().session.unwrap();
    let declaration = Declaration {
        session,
        ground: Evidence::Operator,
        by: "operator".parse().unwrap(),
        why: Why::shortened("it hangs"),
        tell: Vec::new(),
    };
    world.memory.declare(declaration, SECOND).await.unwrap();
    tokio::time::sleep(SECOND * 20).await;
    assert_ne!(elect.health().session, Some(session), "it has another one");
    held.release().await.unwrap();
    let guards = all.await.unwrap().unwrap();
    let keys: Vec<_> = guards.each().iter().map(|guard| guard.key().as_str()).collect();
    assert_eq!(keys, ["a", "b", "c"]);
    for guard in guards.each() {
        assert!(guard.is_valid() && guard.check().await.unwrap(), "{}", guard.key());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_comes_after_the_lock_was_given_back_costs_nothing() {
    let world = World::new();
    let rates = Rates { hint_late: 1000, longest: SECOND / 2, ..Rates::default() };
    let counting = Counting::default().around(Arc::new(world.memory.clone()));
    let late = Faulty::seeded(3, rates).around(counting.clone());
    let store: Arc<dyn Store> = late.clone();
    let elect = world.on(store, World::config("a")).start().await.unwrap();
    tokio::time::sleep(SECOND * 12).await;
    for number in 0..20 {
        elect.acquire(format!("order {number}")).await.unwrap().release().await.unwrap();
    }
    let before = counting.intercept().counts();
    // Twenty grants are heard of, one after the other.
    tokio::time::sleep(SECOND * 30).await;
    let made = counting.intercept().counts() - before;
    for operation in [Operation::Take, Operation::Release, Operation::Locks, Operation::Waiters] {
        assert_eq!(made.calls(operation), 0, "{operation:?}");
    }
}
