//! Jobs that have a limit.

use std::future::pending;

use tenure::{Loss, elect::JobEnd};
use tokio::time::Instant;

use crate::elect::world::{SECOND, World};

#[tokio::test(start_paused = true)]
async fn a_job_that_hangs_is_told_then_dropped_and_its_key_goes_to_the_next() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let after = SECOND * 20;
    let before = Instant::now();
    let job = first.key("k").timeout(after).lock(async |_| pending::<Result<(), String>>().await);
    let job = job.await.unwrap().running().unwrap();
    let lease = job.lease().clone();
    let next = tokio::spawn(async move {
        let guard = second.acquire("k").await.unwrap();
        (guard, before.elapsed())
    });
    lease.cancelled().await;
    assert_eq!(before.elapsed().as_secs(), 20);
    assert_eq!(job.join().await, JobEnd::Cancelled(Loss::TimedOut { after }));
    let (_guard, had) = next.await.unwrap();
    assert_eq!(had.as_secs(), 25, "the grace lies between");
    let health = first.health();
    assert!(health.is_ok() && health.held == 0, "{health:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_heeds_its_timeout_has_its_own_end_and_one_that_is_in_time_never_hears_of_it() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let request = || elect.key("k").timeout(SECOND * 20);
    let before = Instant::now();
    let end = request().with_lock(async |lease| {
        lease.cancelled().await;
        Ok::<_, String>(lease.loss())
    });
    let after = SECOND * 20;
    assert_eq!(end.await.unwrap(), JobEnd::Finished(Some(Loss::TimedOut { after })));
    assert_eq!(before.elapsed().as_secs(), 20);
    let end = request().with_lock(async |_| Ok::<_, String>(()));
    assert_eq!(end.await.unwrap(), JobEnd::Finished(()));
    // The time of that one is not the next one's.
    let guard = elect.acquire("k").await.unwrap();
    tokio::time::sleep(SECOND * 60).await;
    assert!(guard.is_valid() && !guard.lease().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_guard_is_told_of_its_timeout_and_keeps_the_key_until_it_is_dropped() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let after = SECOND * 2;
    let guard = first.key("k").timeout(after).acquire().await.unwrap();
    assert_eq!(guard.lost().await, Loss::TimedOut { after });
    tokio::time::sleep(SECOND * 60).await;
    assert!(!guard.is_valid());
    assert!(second.key("k").try_acquire().await.unwrap().busy().is_some());
    drop(guard);
    assert!(second.key("k").acquire_within(SECOND).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_campaign_whose_job_hangs_lets_another_lead_and_contends_again() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let hangs = async |_| pending::<Result<(), String>>().await;
    let campaign = first.key("k").timeout(SECOND * 20).campaign().run(hangs).unwrap();
    campaign.led().await.unwrap();
    let guard = second.acquire("k").await.unwrap();
    tokio::time::sleep(SECOND * 5).await;
    assert!(!campaign.is_leading());
    guard.release().await.unwrap();
    campaign.led().await.unwrap();
}
