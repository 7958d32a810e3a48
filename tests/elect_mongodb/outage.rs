//! Calls of a program come to an end, also while the store does not answer.

use std::time::Duration;

use tenure::{
    Elect,
    elect::{JobEnd, Unlocked},
};

use crate::{
    fleet::{ATTEMPT, Place, SECOND, bounded, config, quick, record, replica_set, until},
    polls::now,
    support::proxy::{Mode, Proxy},
};

async fn cut(config: tenure::ElectConfig) -> (Place, Proxy, Elect) {
    let deployment = replica_set().await;
    let proxy = Proxy::start(deployment.wait_for_primary(None).await.port());
    let place = Place::on(deployment.uri()).await;
    let elect = place.builder_over(&proxy.uri(), config).await.start().await.unwrap();
    (place, proxy, elect)
}

#[tokio::test]
async fn unlocking_is_bounded_while_nobody_answers() {
    let config = config("pod").with_stop_grace(SECOND);
    let (place, proxy, elect) = cut(config.clone()).await;
    let store = place.store().await;
    let job = elect.lock("key", async |lease| {
        lease.cancelled().await;
        Ok::<_, String>(())
    });
    let job = job.await.unwrap().running().unwrap();
    proxy.set_mode(Mode::BlackHole).await;
    let before = now();
    assert_eq!(elect.unlock("key").await.unwrap(), Unlocked::Pending);
    let took = now().since(before);
    println!("unlock while nobody answers: {took:.1?}");
    assert!(took <= config.stop_grace() + 2 * ATTEMPT + SECOND / 2, "{took:?}");
    assert_eq!(bounded("the job stops", job.join()).await, JobEnd::Finished(()));
    assert!(elect.holding_keys().is_empty());
    assert!(record(&store, "key").await.unwrap().holding.is_some(), "it was not answered");
    // It goes on in the background.
    proxy.set_mode(Mode::Pass).await;
    until("the key is free", || async {
        record(&store, "key").await.unwrap().holding.is_none().then_some(())
    })
    .await;
    println!("  released {:.1?} after unlock was called", now().since(before));
    assert!(elect.health().session.is_some());
}

#[tokio::test]
async fn closing_is_bounded_during_an_outage_and_lists_what_overran() {
    let config = quick("pod");
    let (place, proxy, elect) = cut(config.clone()).await;
    let guard = elect.acquire("guard").await.unwrap();
    let (stop, stops) = std::sync::mpsc::channel::<()>();
    let blocking = elect.key("blocking").lock_blocking(move |_| {
        stops.recv().unwrap();
        Ok::<_, String>(())
    });
    let blocking = blocking.await.unwrap().running().unwrap();
    let stubborn = elect.lock("stubborn", async |_| std::future::pending::<Result<(), String>>().await);
    let stubborn = stubborn.await.unwrap().running().unwrap();
    proxy.set_mode(Mode::BlackHole).await;

    let before = now();
    let closed = bounded("it closes", elect.close()).await;
    let took = now().since(before);
    let overran: Vec<&str> = closed.overran.iter().map(|lock| lock.key.as_str()).collect();
    println!("close during an outage: {took:.1?}, overran: {overran:?}");
    assert!(took <= 2 * config.stop_grace() + 2 * ATTEMPT + SECOND, "{took:?}");
    assert_eq!(overran, ["blocking", "guard"]);
    assert!(matches!(bounded("it was dropped", stubborn.join()).await, JobEnd::Cancelled(_)));
    assert!(!guard.is_valid(), "its grace is long over");

    // What runs keeps its lock from the others for as long as anybody can tell.
    stop.send(()).unwrap();
    assert!(
        matches!(bounded("it returns", blocking.join()).await, JobEnd::Overran { by, .. } if by > Duration::ZERO)
    );
    drop(guard);
    proxy.set_mode(Mode::Pass).await;
    let other = place.instance(quick("other")).await;
    for key in ["guard", "blocking", "stubborn"] {
        bounded("the key is to be had", other.acquire(key)).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn closing_lists_only_what_has_not_ended() {
    let place = Place::on(replica_set().await.uri()).await;
    let elect = place.instance(quick("pod")).await;
    let guard = elect.acquire("guard").await.unwrap();
    let job = elect.lock("job", async |lease| {
        lease.cancelled().await;
        Ok::<_, String>(())
    });
    let job = job.await.unwrap().running().unwrap();
    let before = now();
    let closed = bounded("it closes", elect.close()).await;
    let overran: Vec<&str> = closed.overran.iter().map(|lock| lock.key.as_str()).collect();
    let took = now().since(before);
    println!("close with a guard out: {took:.1?}, overran: {overran:?}");
    assert!(took < quick("x").stop_grace() + SECOND, "{took:?}");
    assert_eq!(overran, ["guard"]);
    assert_eq!(job.join().await, JobEnd::Finished(()));
    drop(guard);
}
