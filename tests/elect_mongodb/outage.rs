//! Calls of a program come to an end, also while the store does not answer.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tenure::{
    Elect, ElectConfig,
    elect::{JobEnd, Unlocked},
};

use crate::elect_mongodb::{
    fleet::{Place, SECOND, free, job, obedient, quick, record, replica_set, steady, until, within},
    polls::now,
};
use crate::support::proxy::{Mode, Proxy};

async fn cut(config: ElectConfig) -> (Place, Proxy, Elect) {
    let deployment = replica_set().await;
    let proxy = Proxy::start(deployment.wait_for_primary(None).await.port());
    let place = Place::on(deployment.uri()).await;
    let elect = place.builder_over(&proxy.uri(), config).await.start().await.unwrap();
    (place, proxy, elect)
}

#[tokio::test]
async fn unlocking_is_bounded_while_nobody_answers() {
    let (place, proxy, elect) = cut(steady("pod")).await;
    let store = place.store().await;
    let job = job(|| elect.key("key"), obedient).await;
    proxy.set_mode(Mode::BlackHole).await;
    let before = now();
    // By how much: `jobs::unlocking_waits_for_the_grace…` of `tests/elect/`, in paused time.
    assert_eq!(within("it answers", elect.unlock("key")).await.unwrap(), Unlocked::Pending);
    println!("unlock while nobody answers: {:.1?}", now().since(before));
    assert_eq!(within("the job stops", job.join()).await, JobEnd::Finished(()));
    assert!(elect.holding_keys().is_empty());
    assert!(record(&store, "key").await.unwrap().holding.is_some(), "it was not answered");
    // It goes on in the background.
    proxy.set_mode(Mode::Pass).await;
    free(&store, "key").await;
    println!("  released {:.1?} after unlock was called", now().since(before));
    assert!(elect.health().session.is_some());
}

#[tokio::test]
async fn closing_is_bounded_during_an_outage_and_lists_what_overran() {
    let (place, proxy, elect) = cut(quick("pod")).await;
    let guard = elect.acquire("guard").await.unwrap();
    let (stop, stops) = std::sync::mpsc::channel::<()>();
    let stops = Arc::new(Mutex::new(stops));
    let blocking = until("it runs", async || {
        let stops = stops.clone();
        let locked = elect.key("blocking").lock_blocking(move |_| {
            stops.lock().unwrap().recv().unwrap();
            Ok::<_, String>(())
        });
        locked.await.map_err(|error| error.to_string())?.running().ok_or("busy".to_owned())
    })
    .await;
    let stubborn = job(|| elect.key("stubborn"), async |_| std::future::pending().await).await;
    proxy.set_mode(Mode::BlackHole).await;

    let before = now();
    let closed = within("it closes", elect.close()).await;
    let took = now().since(before);
    let overran: Vec<&str> = closed.overran.iter().map(|lock| lock.key.as_str()).collect();
    println!("close during an outage: {took:.1?}, overran: {overran:?}");
    // The other one, too, if the machine stood still when its grace was over.
    assert!(["blocking", "guard"].iter().all(|key| overran.contains(key)), "{overran:?}");
    assert!(matches!(within("it was dropped", stubborn.join()).await, JobEnd::Cancelled(_)));
    assert!(!guard.is_valid(), "its grace is long over");

    // What runs keeps its lock from the others for as long as anybody can tell.
    stop.send(()).unwrap();
    assert!(
        matches!(within("it returns", blocking.join()).await, JobEnd::Overran { by, .. } if by > Duration::ZERO)
    );
    drop(guard);
    proxy.set_mode(Mode::Pass).await;
    let other = place.instance(quick("other")).await;
    for key in ["guard", "blocking", "stubborn"] {
        within("the key is to be had", other.acquire(key)).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn closing_lists_only_what_has_not_ended() {
    let place = Place::on(replica_set().await.uri()).await;
    // A machine that stands still for seconds leaves the job time to end.
    let elect = place.instance(steady("pod").with_stop_grace(4 * SECOND)).await;
    let guard = elect.acquire("guard").await.unwrap();
    let job = job(|| elect.key("job"), obedient).await;
    let closed = within("it closes", elect.close()).await;
    let overran: Vec<&str> = closed.overran.iter().map(|lock| lock.key.as_str()).collect();
    assert_eq!(overran, ["guard"]);
    assert_eq!(job.join().await, JobEnd::Finished(()));
    drop(guard);
}
