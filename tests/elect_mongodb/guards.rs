//! Guards that are dropped wherever a program may drop them: their keys are free soon after.

use tenure::{
    Elect, Guard,
    model::SessionId,
    store::{Ended, mongo::MongoStore},
};
use tokio::{runtime::Runtime, task::JoinHandle};

use crate::elect_mongodb::fleet::{
    Place, free, record, replica_set, session, steady, until, waits, when, within,
};

/// The session that holds a key.
async fn holder(store: &MongoStore, key: &str) -> SessionId {
    record(store, key).await.unwrap().holding.expect("it is held").by.session
}

/// The last holder gave the key back, or closed its session: nobody waited for its ttl.
async fn assert_given_back(store: &MongoStore, key: &str, by: SessionId) {
    let past = record(store, key).await.unwrap().past;
    match past[0].how {
        Ended::Released | Ended::HandedOver => {}
        Ended::Died => {
            let death = session(store, by).await.unwrap().death.expect("it died");
            assert!(death.is_own(), "{death:?}");
        }
        _ => panic!("{past:?}"),
    }
}

/// Starts a waiter for a key.
async fn stands(elect: &Elect, key: &'static str) -> JoinHandle<Guard> {
    let waiter = tokio::spawn({
        let elect = elect.clone();
        async move { elect.acquire(key).await.unwrap() }
    });
    waits(elect, 1).await;
    waiter
}

#[tokio::test]
async fn a_guard_may_be_dropped_in_a_plain_thread() {
    let place = Place::on(replica_set().await.uri()).await;
    let (elect, other) = (place.instance(steady("pod")).await, place.instance(steady("other")).await);
    let store = place.store().await;
    let by = elect.health().session.unwrap();
    let drops = |guard: Guard| {
        let thread = std::thread::spawn(move || {
            assert!(tokio::runtime::Handle::try_current().is_err());
            drop(guard);
        });
        thread.join().unwrap();
    };
    drops(elect.acquire("key").await.unwrap());
    free(&store, "key").await;
    assert_given_back(&store, "key", by).await;

    let guard = elect.acquire("key").await.unwrap();
    let waiter = stands(&other, "key").await;
    drops(guard);
    let _next = within("it is handed over", waiter).await.unwrap();
    assert_given_back(&store, "key", by).await;
}

/// A program on a runtime of its own.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Ends a runtime, from a thread in which that may be done.
async fn shut_down(runtime: Runtime) {
    let shut = tokio::task::spawn_blocking(move || drop(runtime));
    within("the runtime ends", shut).await.unwrap();
}

#[tokio::test]
async fn a_guard_may_be_dropped_with_its_runtime() {
    let place = Place::on(replica_set().await.uri()).await;
    let store = place.store().await;
    let other = place.instance(steady("other")).await;
    for key in ["nobody waits", "somebody waits"] {
        let program = runtime();
        let held = program.spawn({
            let place = place.clone();
            async move {
                let elect = place.instance(steady("pod")).await;
                let guard = elect.acquire(key).await.unwrap();
                tokio::spawn(async move {
                    let _both = (elect, guard);
                    std::future::pending::<()>().await;
                });
            }
        });
        within("it is held", held).await.unwrap();
        let by = holder(&store, key).await;
        if key == "nobody waits" {
            shut_down(program).await;
            until("it is to be had", async || {
                let (record, session) = (record(&store, key).await.unwrap(), session(&store, by).await);
                let is_alive = session.is_some_and(|session| session.is_alive());
                when(record.holding.is_none() || !is_alive, record)
            })
            .await;
            let _guard = within("it is to be had", other.acquire(key)).await.unwrap();
        } else {
            let waiter = stands(&other, key).await;
            shut_down(program).await;
            let _guard = within("the next one has it", waiter).await.unwrap();
        }
        assert_given_back(&store, key, by).await;
    }
}

#[tokio::test]
async fn a_guard_may_be_dropped_with_its_runtime_while_a_handle_is_kept_elsewhere() {
    let place = Place::on(replica_set().await.uri()).await;
    let (store, other) = (place.store().await, place.instance(steady("other")).await);
    let program = runtime();
    let held = program.spawn({
        let place = place.clone();
        async move {
            let elect = place.instance(steady("pod")).await;
            let guard = elect.acquire("key").await.unwrap();
            tokio::spawn(async move {
                let _held = guard;
                std::future::pending::<()>().await;
            });
            elect
        }
    });
    let kept = within("it is held", held).await.unwrap();
    let by = holder(&store, "key").await;
    let waiter = stands(&other, "key").await;
    shut_down(program).await;
    let _guard = within("the next one has it", waiter).await.unwrap();
    // An engine without a runtime runs nothing, and has no business with a session.
    assert_given_back(&store, "key", by).await;
    drop(kept);
}
