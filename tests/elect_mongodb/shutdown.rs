//! A program that has closed its engine and ends: nothing of the driver's runs on and panics.

use std::{
    panic,
    sync::atomic::{AtomicUsize, Ordering},
};

use tenure::{
    Applied, Elect,
    store::{
        Store,
        mongo::{MongoOptions, MongoStore},
    },
};

use crate::fleet::{Place, SECOND, bounded, lock, quick, replica_set};

/// Number of panics of the driver's code, on whatever thread.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if info.location().is_some_and(|at| at.file().contains("mongodb-")) {
            PANICS.fetch_add(1, Ordering::Relaxed);
        } else {
            before(info);
        }
    }));
}

/// One program, from its start to its end. Says how often the driver panicked.
///
/// Others of its tasks use the store until the runtime ends under them.
fn program(uri: &str, database: &str, closes: bool) -> usize {
    let before = PANICS.load(Ordering::Relaxed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = MongoStore::connect(uri, MongoOptions::new().database(database)).await.unwrap();
        let elect = Elect::start(store.clone(), quick("pod")).await.unwrap();
        let campaign = elect.campaign("leader").start().unwrap();
        bounded("it leads", campaign.led()).await.unwrap();
        drop(bounded("the key is free", elect.acquire("key")).await.unwrap());
        for _ in 0..64 {
            let store = store.clone();
            tokio::spawn(async move { while store.locks(vec![lock("key")], SECOND).await.is_ok() {} });
        }
        let closed = bounded("it closes", elect.close()).await;
        assert!(closed.overran.is_empty() && closed.unconfirmed.is_empty(), "{closed:?}");
        drop((elect, campaign));
        if closes {
            bounded("the store closes", store.close()).await;
            let late = store.locks(vec![lock("key")], SECOND).await;
            assert!(late.is_err_and(|error| error.applied() == Applied::No), "it is closed");
        }
    });
    drop(runtime);
    PANICS.load(Ordering::Relaxed) - before
}

#[tokio::test]
async fn a_program_that_closes_its_engine_and_its_store_ends_without_a_panic_of_the_driver() {
    count_panics();
    let place = Place::on(replica_set().await.uri()).await;
    let rounds = |closes: bool| {
        let (uri, name) = (place.uri.clone(), place.name.clone());
        tokio::task::spawn_blocking(move || (0..25).map(|_| program(&uri, &name, closes)).sum::<usize>())
    };
    // The driver's own doing, and a matter of chance.
    println!("with the store left open: {} panics in 25 ends", rounds(false).await.unwrap());
    assert_eq!(rounds(true).await.unwrap(), 0);
}
