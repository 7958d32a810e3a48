//! Jobs, and what becomes of them.

use tenure::{
    Error, Loss,
    elect::{Busy, JobEnd, Locked, Unlocked},
    testing::{Course, Fault, Operation},
};
use tokio::time::Instant;

use crate::elect::world::{SECOND, World};

#[tokio::test(start_paused = true)]
async fn a_job_runs_under_its_lock_and_its_outcome_is_told() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let job = elect.lock("k", async |lease| {
        assert!(lease.is_valid());
        Ok::<_, String>(lease.term())
    });
    let job = job.await.unwrap().running().unwrap();
    let term = job.lease().term();
    assert_eq!(job.join().await, JobEnd::Finished(term));
    // It is released: the next one gets a larger term.
    let job = elect.lock("k", async |lease| Ok::<_, String>(lease.term())).await.unwrap().running().unwrap();
    assert!(job.join().await.finished().unwrap() > term);
}

#[tokio::test(start_paused = true)]
async fn the_second_is_told_who_holds_the_key() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let job = first.key("k").why("nightly").lock(async |lease| {
        lease.cancelled().await;
        Ok::<_, String>(())
    });
    let job = job.await.unwrap().running().unwrap();
    let Locked::Busy(Busy::Held(held)) = second.lock("k", async |_| Ok::<_, String>(())).await.unwrap()
    else {
        panic!("the key is held");
    };
    assert_eq!(Busy::Held(held.clone()).to_string(), held.to_string());
    assert_eq!(held.holder.as_str(), "a");
    assert_eq!(held.why.unwrap().as_str(), "nightly");
    assert_eq!(held.term, job.lease().term());
    assert!(!held.stale);
    let busy = first.lock("k", async |_| Ok::<_, String>(())).await.unwrap().busy().unwrap();
    assert_eq!(busy, Busy::Here);
    assert_eq!(busy.to_string(), "this instance already holds the key or waits for it");
    assert_eq!(first.holding_keys().len(), 1);
    assert_eq!(second.locked_keys().await.unwrap().held.len(), 1);

    assert_eq!(second.unlock("k").await.unwrap(), Unlocked::NotHeld);
    assert_eq!(first.unlock("k").await.unwrap(), Unlocked::Released);
    assert_eq!(job.join().await, JobEnd::Finished(()));
    let job = second.lock("k", async |_| Ok::<_, String>(())).await.unwrap().running().unwrap();
    assert_eq!(job.join().await, JobEnd::Finished(()));
}

#[tokio::test(start_paused = true)]
async fn a_join_returns_when_the_key_is_released() {
    let world = World::new();
    let (first, faulty) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    faulty.intercept().always(&[Operation::Release], Course::PLAIN.late_by(SECOND));
    for _ in 0..3 {
        let job = first.lock("k", async |_| Ok::<_, String>(())).await.unwrap().running().unwrap();
        assert_eq!(job.join().await, JobEnd::Finished(()));
        let job = second.lock("k", async |_| Ok::<_, String>(())).await.unwrap();
        assert_eq!(job.running().unwrap().join().await, JobEnd::Finished(()));
        let job = first.key("k").lock_blocking(|_| Ok::<_, String>(())).await.unwrap();
        assert_eq!(job.running().unwrap().join().await, JobEnd::Finished(()));
        let free = second.key("k").try_acquire().await.unwrap().guard().unwrap();
        free.release().await.unwrap();
    }
    // Without an answer it does not wait for ever.
    let job = first.lock("k", async |_| Ok::<_, String>(())).await.unwrap().running().unwrap();
    faulty.intercept().always(&[Operation::Release], Fault::Swallowed);
    let before = Instant::now();
    assert_eq!(job.join().await, JobEnd::Finished(()));
    assert_eq!(before.elapsed().as_secs(), 10, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_would_wait_for_its_own_key_is_told_so() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let (other, _) = world.instance("b").await;
    let within = elect.clone();
    let nested = move |key: &'static str| {
        let within = within.clone();
        async move {
            let waits = within.with_lock(key, |_| async { Ok::<_, String>(()) });
            tokio::time::timeout(SECOND, waits).await.map_err(|_| "it waits for itself")
        }
    };
    let told = move |waits: Result<Result<JobEnd<(), String>, Error>, &str>| {
        let error = waits.unwrap().unwrap_err();
        assert!(error.is_config() && !error.is_retryable(), "{error:?}");
        assert!(error.to_string().contains("lock \"k\" of "), "{error}");
    };
    let ends = elect.with_lock("k", async |lease| {
        told(nested("k").await);
        // Also from within the job of another key, and from what runs beside it under the lease.
        let inner = async |_| {
            told(nested("k").await);
            Ok::<_, String>(())
        };
        elect.with_lock("l", inner).await.unwrap();
        let beside = nested("k");
        assert_eq!(lease.spawn(async move { told(beside.await) }).await.unwrap(), JobEnd::Finished(()));
        assert!(elect.key("k").acquire_within(SECOND).await.is_err());
        // A task that is none of the job may wait: the key comes to it.
        Ok::<_, String>(tokio::spawn(nested("k")))
    });
    let free = ends.await.unwrap().finished().unwrap();
    assert_eq!(free.await.unwrap().unwrap().unwrap(), JobEnd::Finished(()));
    // Not the same: the key of another instance, and one that has ended.
    let guard = elect.acquire("m").await.unwrap();
    let free =
        guard.run(async |_| Ok::<_, String>(other.key("m").acquire_within(SECOND).await.unwrap().is_some()));
    assert_eq!(free.await, JobEnd::Finished(false));
    guard.release().await.unwrap();
    nested("m").await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn unlocking_waits_for_the_grace_and_two_attempts_at_the_store() {
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    let job = elect.lock("k", async |lease| {
        lease.cancelled().await;
        Ok::<_, String>(())
    });
    let job = job.await.unwrap().running().unwrap();
    faulty.intercept().always(&[Operation::Release], Fault::Swallowed);
    let before = Instant::now();
    assert_eq!(elect.unlock("k").await.unwrap(), Unlocked::Pending);
    assert_eq!(before.elapsed().as_secs(), 10, "{:?}", before.elapsed());
    assert_eq!(job.join().await, JobEnd::Finished(()));
}

#[tokio::test(start_paused = true)]
async fn releasing_all_does_not_wait_for_the_store_for_what_has_not_stopped() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let stays = elect.acquire("k").await.unwrap();
    let before = Instant::now();
    let late: Vec<_> = elect.release_all().await.into_iter().map(|lock| lock.key.to_string()).collect();
    assert_eq!(late, ["k"]);
    // The grace and a tenth.
    assert!(before.elapsed() < SECOND * 6, "{:?}", before.elapsed());
    drop(stays);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_handed_the_lock_at_once() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let guard = first.acquire("k").await.unwrap();
    let waits = tokio::spawn({
        let second = second.clone();
        async move { second.acquire("k").await.unwrap() }
    });
    tokio::time::sleep(SECOND).await;
    let before = tokio::time::Instant::now();
    let term = guard.term();
    guard.release().await.unwrap();
    let guard = waits.await.unwrap();
    assert!(guard.term() > term);
    assert!(before.elapsed() < SECOND / 10, "{:?}", before.elapsed());
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn waiters_of_one_instance_come_one_after_the_other() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let guard = elect.acquire("k").await.unwrap();
    let mut tasks = Vec::new();
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    for number in 0..5 {
        let (elect, order) = (elect.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = elect.acquire("k").await.unwrap();
            order.lock().unwrap().push(number);
            tokio::time::sleep(SECOND / 10).await;
            guard.release().await.unwrap();
        }));
        tokio::time::sleep(SECOND / 10).await;
    }
    drop(guard);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_replaced_after_its_ttl() {
    let world = World::new();
    let (first, faulty) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let job = first.lock("k", async |lease| {
        lease.cancelled().await;
        Ok::<_, String>(lease.loss())
    });
    let job = job.await.unwrap().running().unwrap();
    let waits = tokio::spawn({
        let second = second.clone();
        async move { second.acquire("k").await.unwrap() }
    });
    tokio::time::sleep(SECOND).await;
    faulty.intercept().always(tenure::testing::Operation::ALL, tenure::testing::Fault::Swallowed);
    let before = tokio::time::Instant::now();
    let end = job.join().await;
    assert!(matches!(&end, JobEnd::Finished(Some(Loss::Expired { .. }))), "{end:?}");
    let stopped = before.elapsed();
    assert!(stopped > SECOND * 18 && stopped < SECOND * 26, "{stopped:?}");
    let guard = waits.await.unwrap();
    assert!(before.elapsed() > stopped);
    assert!(before.elapsed() < SECOND * 36, "{:?}", before.elapsed());
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_closed_engine_leaves_its_keys_free_at_once() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let job = first.lock("k", async |lease| {
        lease.cancelled().await;
        Ok::<_, String>(lease.loss())
    });
    let job = job.await.unwrap().running().unwrap();
    assert!(first.close().await.overran.is_empty());
    assert_eq!(job.join().await, JobEnd::Finished(Some(Loss::Closed)));
    assert!(first.lock("k", async |_| Ok::<_, String>(())).await.is_err());
    let job = second.lock("k", async |_| Ok::<_, String>(())).await.unwrap().running().unwrap();
    assert_eq!(job.join().await, JobEnd::Finished(()));
}
