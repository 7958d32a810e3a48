//! Records that somebody's transaction keeps: the server answers no write of them until it ends.

#![allow(clippy::disallowed_methods, reason = "how long takes last is what this test looks at")]

use std::time::Instant;

use bson::doc;

use crate::elect_mongodb::fleet::{Place, SECOND, by_key, replica_set, steady, within};

#[tokio::test]
async fn a_lock_that_a_transaction_keeps_holds_up_no_other() {
    let place = Place::on(replica_set().await.uri()).await;
    let elect = place.instance(steady("pod").with_poll_interval(SECOND / 2)).await;
    elect.acquire("kept").await.unwrap().release().await.unwrap();
    let mut transaction = place.database.client().start_session().await.unwrap();
    transaction.start_transaction().await.unwrap();
    let change = doc! { "$set": { "note": "of the program" } };
    let locks = place.collection("locks");
    locks.update_one(by_key("kept"), change).session(&mut transaction).await.unwrap();

    let waits = tokio::spawn({
        let elect = elect.clone();
        async move { elect.acquire("kept").await }
    });
    let (begun, mut takes, mut slow) = (Instant::now(), 0, 0);
    // Long enough for several attempts at the lock that is kept.
    while begun.elapsed() < SECOND * 12 {
        let sent = Instant::now();
        let free = elect.key(format!("free-{takes}")).try_acquire().await.unwrap();
        free.guard().expect("it is free").release().await.unwrap();
        takes += 1;
        // An attempt at the kept one lasts 2.5 s.
        slow += u32::from(sent.elapsed() > SECOND);
    }
    println!("{takes} takes beside a lock that is kept, {slow} of them above a second");
    assert!(!waits.is_finished());
    // Those that go with its first attempt wait for it.
    assert!(slow <= 2, "{slow} of {takes} waited for the lock that is kept");
    transaction.abort_transaction().await.unwrap();
    drop(within("it gets the lock", waits).await.unwrap().unwrap());
}
