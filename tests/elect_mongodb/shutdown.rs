//! A program that has closed its engine and ends: nothing of the driver's runs on and panics.

use std::{
    panic,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use tenure::{
    Applied, Elect,
    store::{StoreExt, mongo::MongoOptions},
};

use crate::elect_mongodb::fleet::{LIMIT, Place, lock, replica_set, rounds, steady, within};
use crate::mongodb::connected;

/// The database in which [`ends`] is to run, and where that is.
const PLACE: [&str; 2] = ["TENURE_TEST_ENDS_URI", "TENURE_TEST_ENDS_DATABASE"];

/// Number of panics of the driver's code, on whatever thread.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if info.location().is_some_and(|at| at.file().contains("mongodb-")) {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        before(info);
    }));
}

/// Runs a program, from its start to its end.
///
/// Others of its tasks use the store until the runtime ends under them.
fn program(uri: &str, database: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = connected(uri, MongoOptions::new().database(database)).await;
        let elect = Elect::start(store.clone(), steady("pod")).await.unwrap();
        let campaign = elect.campaign("leader").start().unwrap();
        within("it leads", campaign.led()).await.unwrap();
        drop(within("the key is free", elect.acquire("key")).await.unwrap());
        for _ in 0..64 {
            let store = store.clone();
            tokio::spawn(async move { while store.locks(vec![lock("key")], LIMIT).await.is_ok() {} });
        }
        let closed = within("it closes", elect.close()).await;
        assert!(closed.overran.is_empty(), "{closed:?}");
        drop((elect, campaign));
        within("the store closes", store.close()).await;
        let late = store.locks(vec![lock("key")], LIMIT).await;
        assert!(late.is_err_and(|error| error.applied() == Applied::No), "it is closed");
    });
}

#[test]
#[ignore = "not a test: the process that another starts, since a panic hook is of a whole process"]
fn ends() {
    let [Ok(uri), Ok(database)] = PLACE.map(std::env::var) else { return };
    count_panics();
    for _ in 0..10 * rounds() {
        program(&uri, &database);
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "the driver panicked");
}

#[tokio::test]
async fn a_program_that_closes_its_engine_and_its_store_ends_without_a_panic_of_the_driver() {
    let place = Place::on(replica_set().await.uri()).await;
    let mut program = Command::new(std::env::current_exe().unwrap());
    let (_, here) = module_path!().split_once("::").expect("it is in a crate");
    let test = format!("{here}::ends");
    program.args(["--exact", test.as_str(), "--ignored", "--nocapture", "--test-threads=1"]);
    program.env(PLACE[0], &place.uri).env(PLACE[1], &place.name);
    let ended =
        within("it ends", tokio::task::spawn_blocking(move || program.output())).await.unwrap().unwrap();
    let said = [ended.stdout, ended.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(ended.status.success(), "{}", said.concat());
    assert!(said[0].contains("1 passed"), "{}", said[0]);
}
