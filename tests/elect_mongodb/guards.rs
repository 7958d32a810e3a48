//! Guards that are dropped wherever a program may drop them: their keys are free soon after.

use std::time::Duration;

use tenure::{Elect, Guard, clock::Moment, store::mongo::MongoStore};
use tokio::{runtime::Runtime, task::JoinHandle};

use crate::{
    fleet::{Place, SECOND, bounded, quick, record, replica_set, until},
    polls::now,
};

/// Until nobody holds the key; how long that took from then on.
async fn free(store: &MongoStore, key: &str, dropped: Moment) -> Duration {
    until("the key is free", || async { record(store, key).await.unwrap().holding.is_none().then_some(()) })
        .await;
    now().since(dropped)
}

/// Somebody who waits for a key.
async fn waits(elect: &Elect, key: &'static str) -> JoinHandle<(Guard, Moment)> {
    let before = elect.health().waiting;
    let waiter = tokio::spawn({
        let elect = elect.clone();
        async move { (elect.acquire(key).await.unwrap(), now()) }
    });
    until("it waits", || async { (elect.health().waiting > before).then_some(()) }).await;
    // It stands in line, too, or will look again once it does.
    tokio::task::yield_now().await;
    waiter
}

#[tokio::test]
async fn a_guard_may_be_dropped_in_a_plain_thread() {
    let place = Place::on(replica_set().await.uri()).await;
    let (elect, other) = (place.instance(quick("pod")).await, place.instance(quick("other")).await);
    let store = place.store().await;
    let guard = elect.acquire("key").await.unwrap();
    let drops = |guard: Guard| {
        let thread = std::thread::spawn(move || {
            assert!(tokio::runtime::Handle::try_current().is_err());
            let at = now();
            drop(guard);
            at
        });
        tokio::task::spawn_blocking(move || thread.join().unwrap())
    };
    let dropped = drops(guard).await.unwrap();
    let alone = free(&store, "key", dropped).await;

    let guard = elect.acquire("key").await.unwrap();
    let waiter = waits(&other, "key").await;
    let dropped = drops(guard).await.unwrap();
    let (_next, at) = bounded("it is handed over", waiter).await.unwrap();
    println!(
        "guard dropped in a thread: free after {alone:.1?}; had by the next after {:.1?}",
        at.since(dropped)
    );
    assert!(alone < SECOND && at.since(dropped) < SECOND);
}

/// A program on a runtime of its own.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Ends a runtime, from a thread in which that may be done.
async fn shut_down(runtime: Runtime) -> Moment {
    let shut = tokio::task::spawn_blocking(move || {
        let at = now();
        drop(runtime);
        at
    });
    bounded("the runtime ends", shut).await.unwrap()
}

#[tokio::test]
async fn a_guard_may_be_dropped_with_its_runtime() {
    let place = Place::on(replica_set().await.uri()).await;
    let store = place.store().await;
    let other = place.instance(quick("other")).await;
    for key in ["nobody waits", "somebody waits"] {
        let program = runtime();
        let held = program.spawn({
            let place = place.clone();
            async move {
                let elect = place.instance(quick("pod")).await;
                let guard = elect.acquire(key).await.unwrap();
                tokio::spawn(async move {
                    let _both = (elect, guard);
                    std::future::pending::<()>().await;
                });
            }
        });
        bounded("it is held", held).await.unwrap();
        assert!(record(&store, key).await.unwrap().holding.is_some());
        let took = if key == "nobody waits" {
            let dropped = shut_down(program).await;
            let session = record(&store, key).await.unwrap().holding.map(|held| held.by.session);
            // Its session is dead, if it was not given back.
            if let Some(id) = session {
                until("its session is dead", || async {
                    let session = crate::fleet::session(&store, id).await.unwrap();
                    let held = record(&store, key).await.unwrap().holding.is_some();
                    (!session.is_alive() || !held).then_some(())
                })
                .await;
            }
            assert!(other.key(key).try_acquire().await.unwrap().guard().is_some(), "it is to be had");
            now().since(dropped)
        } else {
            let waiter = waits(&other, key).await;
            let dropped = shut_down(program).await;
            let (_guard, at) = bounded("the next one has it", waiter).await.unwrap();
            at.since(dropped)
        };
        println!("runtime shut down with its engine, {key}: to be had after {took:.1?}");
        assert!(took < SECOND, "{key}: {took:?}");
    }
}

#[tokio::test]
async fn a_guard_may_be_dropped_with_its_runtime_while_a_handle_is_kept_elsewhere() {
    let place = Place::on(replica_set().await.uri()).await;
    let other = place.instance(quick("other")).await;
    let program = runtime();
    let held = program.spawn({
        let place = place.clone();
        async move {
            let elect = place.instance(quick("pod")).await;
            let guard = elect.acquire("key").await.unwrap();
            tokio::spawn(async move {
                let _held = guard;
                std::future::pending::<()>().await;
            });
            elect
        }
    });
    let kept = bounded("it is held", held).await.unwrap();
    let waiter = waits(&other, "key").await;
    let dropped = shut_down(program).await;
    let (_guard, at) = bounded("the next one has it", waiter).await.unwrap();
    println!("runtime shut down, handle kept: had by the next after {:.1?}", at.since(dropped));
    // An engine without a runtime runs nothing, and has no business with a session.
    assert!(at.since(dropped) < SECOND, "{:?}", at.since(dropped));
    drop(kept);
}
