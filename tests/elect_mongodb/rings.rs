//! Bells of an instance: they wait for nothing of the program's (R15).

use std::time::Duration;

use tenure::{Elect, ElectConfig};

use crate::elect_mongodb::fleet::{LIMIT, Place, record, replica_set, steady, until, when, within};

/// An instance that looks by itself only when the test has failed.
fn patient(holder: &str) -> ElectConfig {
    steady(holder).with_poll_interval(LIMIT + Duration::from_secs(60))
}

/// A store whose runtime has ended: a program's that computes, or is not driven, rings as little.
fn of_a_runtime_that_has_ended(place: &Place) -> tenure::store::mongo::MongoStore {
    let place = place.clone();
    let connects = std::thread::spawn(move || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
            .block_on(place.store())
    });
    connects.join().unwrap()
}

#[tokio::test]
async fn a_hand_over_is_told_though_the_programs_runtime_rings_no_bell() {
    let place = Place::on(replica_set().await.uri()).await;
    let look = place.store().await;
    let first = Elect::start(of_a_runtime_that_has_ended(&place), patient("first")).await.unwrap();
    let second = place.instance(patient("second")).await;
    for closes in [false, true] {
        let guard = within("the key is free", first.acquire("key")).await.unwrap();
        let waits = second.clone();
        let waits = tokio::spawn(async move { waits.acquire("key").await });
        until("it is waited for", async || {
            let record = record(&look, "key").await.expect("it is held");
            when(record.wanted, record)
        })
        .await;
        if closes {
            // The last of its bells: its runtime ends with it.
            drop(guard);
            within("it closes", first.close()).await;
        } else {
            drop(guard);
        }
        let handed = within("the other is told", waits).await.unwrap().unwrap();
        handed.release().await.unwrap();
    }
    second.close().await;
}
