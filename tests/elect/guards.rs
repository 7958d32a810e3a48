//! Locks held by a value; keys that stay closed; what is known of an instance.

use std::time::Duration;

use futures::FutureExt;
use tenure::{
    Elect, Error, Loss,
    elect::{Acquired, Busy, JobEnd, Status},
    testing::{Fault, Operation},
};
use tokio::time::Instant;

use crate::elect::world::{SECOND, World};

#[tokio::test(start_paused = true)]
async fn a_guard_releases_when_it_is_dropped() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let Acquired::Guard(guard) = first.key("k").try_acquire().await.unwrap() else { panic!("it is free") };
    assert!(guard.is_valid() && guard.remaining() > SECOND * 20);
    assert!(guard.check().await.unwrap());
    let busy = second.key("k").try_acquire().await.unwrap().busy().unwrap();
    assert!(matches!(busy, Busy::Held(held) if held.term == guard.term()));
    drop(guard);
    assert!(second.key("k").acquire_within(SECOND).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_guard_may_be_dropped_on_a_thread_without_a_runtime() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let guard = first.acquire("k").await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    assert!(second.key("k").acquire_within(SECOND).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_at_its_deadline_and_leaves_no_trace() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let guard = first.acquire("k").await.unwrap();
    let before = Instant::now();
    assert!(second.key("k").acquire_within(SECOND * 3).await.unwrap().is_none());
    assert_eq!(before.elapsed(), SECOND * 3);
    tokio::time::sleep(SECOND / 10).await;
    assert_eq!(format!("{:?}", world.memory), "MemoryStore { locks: 1, sessions: 2, waiters: 0, .. }");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_acquired_all_or_none() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let held = second.acquire("b").await.unwrap();
    assert!(first.acquire_all(["c", "a", "b"], SECOND * 2).await.unwrap().is_none());
    for key in ["a", "c"] {
        let free = second.key(key).acquire_within(SECOND).await.unwrap();
        assert!(free.is_some(), "{key}");
    }
    held.release().await.unwrap();
    let all = first.acquire_all(["c", "a", "b", "a"], SECOND * 2).await.unwrap().unwrap();
    let keys: Vec<_> = all.each().iter().map(|guard| guard.key().as_str().to_owned()).collect();
    assert_eq!(keys, ["a", "b", "c"]);
    assert!(all.is_valid());
    all.release().await.unwrap();
    assert!(second.acquire_all(["a", "b", "c"], SECOND).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_guard_tells_that_its_lock_is_lost_and_runs_nothing_after() {
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    let guard = elect.acquire("k").await.unwrap();
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    let begun = Instant::now();
    let run = guard.run(async |_| std::future::pending::<Result<(), ()>>().await);
    let (lost, end) = tokio::join!(
        async {
            let lost = guard.lost().await;
            (lost, begun.elapsed())
        },
        run
    );
    assert!(matches!(lost.0, Loss::Expired { .. }));
    assert!(begun.elapsed() >= lost.1 + SECOND * 4, "it had its grace");
    assert!(matches!(end, JobEnd::Cancelled(Loss::Expired { .. })));
    assert!(!guard.is_valid());
    assert_eq!(guard.remaining(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn with_lock_returns_what_the_job_returns_and_may_borrow() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let mut count = 0;
    for _ in 0..3 {
        let end = elect.with_lock("k", async |lease| {
            count += 1;
            Ok::<_, String>(lease.term())
        });
        assert!(end.await.unwrap().finished().is_some());
    }
    assert_eq!(count, 3);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_kept_at_least_so_long() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let before = Instant::now();
    let guard = first.key("k").at_least(SECOND * 10).acquire().await.unwrap();
    tokio::time::sleep(SECOND).await;
    guard.release().await.unwrap();
    let busy = second.key("k").try_acquire().await.unwrap().busy().unwrap();
    assert!(matches!(busy, Busy::Closed { .. }), "{busy:?}");
    drop(second.acquire("k").await.unwrap());
    let waited = before.elapsed();
    assert!(waited >= SECOND * 10 && waited < SECOND * 11, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_kept_at_least_so_long_though_its_instance_closes_before_the_guard_is_dropped() {
    for (is_dropped, waits) in [(true, true), (false, true), (true, false), (false, false)] {
        let world = World::new();
        let (first, _) = world.instance("a").await;
        let (second, _) = world.instance("b").await;
        let before = Instant::now();
        let request = first.key("k").why("nightly").at_least(SECOND * 60);
        let guard = request.acquire().await.unwrap();
        let report = first.close().await;
        assert_eq!(report.overran.len(), 1, "{report:?}");
        if is_dropped {
            drop(guard);
        } else {
            // As the end of the process would: the session dies of its ttl.
            std::mem::forget(guard);
        }
        let busy = second.key("k").try_acquire().await.unwrap().busy().unwrap();
        assert!(matches!(busy, Busy::Closed { .. }), "{busy:?}");
        if waits {
            drop(second.acquire("k").await.unwrap());
        } else {
            // Nobody asked meanwhile.
            tokio::time::sleep_until(before + SECOND * 61).await;
            assert!(second.key("k").try_acquire().await.unwrap().guard().is_some());
        }
        let waited = before.elapsed();
        assert!(waited >= SECOND * 60 && waited < SECOND * 63, "{is_dropped} {waits}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_no_caller_got_stays_closed_for_no_least_time() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let mut waits = Box::pin(first.key("k").at_least(SECOND * 60).acquire());
    assert!(waits.as_mut().now_or_never().is_none());
    tokio::time::sleep(SECOND).await;
    assert_eq!(first.holding_keys().len(), 1, "it is granted");
    drop(waits);
    tokio::time::sleep(SECOND).await;
    assert!(second.key("k").try_acquire().await.unwrap().guard().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_key_stays_closed_for_the_lock_delay_after_a_death() {
    let world = World::new();
    let (first, faulty) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let guard = first.key("k").lock_delay(SECOND * 20).acquire().await.unwrap();
    let waits = {
        let second = second.clone();
        tokio::spawn(async move { second.acquire("k").await.unwrap() })
    };
    tokio::time::sleep(SECOND).await;
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    let before = Instant::now();
    drop(waits.await.unwrap());
    let waited = before.elapsed();
    assert!(waited > SECOND * 45 && waited < SECOND * 58, "{waited:?}");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn health_tells_degraded_from_lost() {
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    let _guard = elect.acquire("k").await.unwrap();
    let health = elect.health();
    assert_eq!((health.status.clone(), health.held), (Status::Healthy, 1));
    assert_eq!(health.to_string(), "healthy, 1 held, 0 waiting");
    faulty.intercept().always(Operation::ALL, Fault::Refused);
    tokio::time::sleep(SECOND * 12).await;
    let health = elect.health();
    assert!(matches!(health.status, Status::Degraded { since, .. } if since > SECOND * 5), "{health:?}");
    assert!(health.is_ok());
    tokio::time::sleep(SECOND * 30).await;
    let health = elect.health();
    assert!(matches!(health.status, Status::Lost { error: Some(_) }) && !health.is_ok(), "{health:?}");
    assert!(matches!(elect.key("other").try_acquire().await, Err(Error::NoSession { last: Some(_) })));
    faulty.intercept().heal();
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(elect.health().status, Status::Healthy);
    elect.close().await;
    assert_eq!(elect.health().status, Status::Closed);
}

#[tokio::test(start_paused = true)]
async fn broken_limits_are_told_and_cost_no_trip() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    for error in [
        elect.key("").try_acquire().await.unwrap_err(),
        elect.key("x".repeat(513)).try_acquire().await.unwrap_err(),
        elect.key("k").who("\n").try_acquire().await.unwrap_err(),
        elect.key("k").why("w".repeat(2000)).try_acquire().await.unwrap_err(),
        elect.key("k").value(vec![0; 20_000]).try_acquire().await.unwrap_err(),
        elect.watch("").unwrap_err(),
        elect.unlock("\u{7}").await.unwrap_err(),
    ] {
        assert!(error.is_config() && !error.is_retryable(), "{error:?}");
    }
    assert_eq!(format!("{:?}", world.memory), "MemoryStore { locks: 0, sessions: 1, waiters: 0, .. }");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_or_is_silent_fails_the_start() {
    let world = World::new();
    let (builder, faulty) = world.builder("a");
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    let before = Instant::now();
    let error = builder.start().await.unwrap_err();
    assert!(error.is_retryable());
    assert_eq!(before.elapsed(), SECOND * 30);
    // Or it comes up before its store.
    let (builder, faulty) = world.builder("b");
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    let elect: Elect = builder.begin().unwrap();
    assert!(!elect.health().is_ok());
    faulty.intercept().heal();
    drop(elect.acquire("k").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_that_goes_gives_everything_back() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let guard = first.acquire("k").await.unwrap();
    drop(first);
    assert!(guard.check().await.unwrap());
    drop(guard);
    assert!(second.key("k").acquire_within(SECOND).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn tasks_that_a_job_spawned_end_with_it_and_before_the_release() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let job = first.lock("k", async |lease| {
        let child = lease.clone();
        Ok::<_, ()>(lease.spawn(async move {
            child.cancelled().await;
            tokio::time::sleep(SECOND * 2).await;
            Ok::<_, ()>("drained")
        }))
    });
    let job = job.await.unwrap().running().unwrap();
    let before = Instant::now();
    let child = job.join().await.finished().unwrap();
    drop(second.acquire("k").await.unwrap());
    assert!(before.elapsed() >= SECOND * 2, "{:?}", before.elapsed());
    assert_eq!(child.await.unwrap(), JobEnd::Finished("drained"));
}

#[tokio::test(start_paused = true)]
async fn work_that_cannot_fail_is_spawned_on_a_lease_as_it_is() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let guard = elect.acquire("k").await.unwrap();
    assert_eq!(guard.lease().spawn(async {}).await.unwrap(), JobEnd::Finished(()));
}
