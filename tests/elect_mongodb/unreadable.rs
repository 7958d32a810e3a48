//! Records that this version cannot read, while something waits for them.

use bson::{Document, doc};
use tenure::elect::{Elect, Work};

use crate::elect_mongodb::fleet::{
    Place, SECOND, by_key, by_session, replica_set, steady, until, waits, when, within,
};

/// Waits until an instance says this of its records; nothing, if they can all be read.
async fn says(elect: &Elect, wanted: Option<&[&str]>) {
    until("it says so", async || {
        let health = elect.health();
        let said = health.troubles.iter().find(|trouble| trouble.work == Work::Records);
        let is_so = match (said, wanted) {
            (Some(said), Some(words)) => {
                said.lasting && words.iter().all(|word| said.error.contains(word)) && health.is_ok()
            }
            (said, wanted) => said.is_none() && wanted.is_none(),
        };
        when(is_so, health)
    })
    .await;
}

/// A record of a lock as another instance holds it, under another key.
async fn copied(place: &Place, key: &str, change: Document) -> Document {
    let locks = place.collection("locks");
    let mut record = locks.find_one(by_key("base")).await.unwrap().unwrap();
    record.get_document_mut("_id").unwrap().insert("key", key);
    record.extend(change);
    locks.insert_one(&record).await.unwrap();
    record
}

#[tokio::test]
async fn a_lock_whose_record_or_holder_cannot_be_read_is_named_and_nothing_is_written_into_it() {
    let place = Place::on(replica_set().await.uri()).await;
    let other = place.instance(steady("other")).await;
    let _base = other.acquire("base").await.unwrap();
    let elect = place.instance(steady("pod").with_poll_interval(SECOND / 2)).await;
    let sessions = place.collection("sessions");
    let holder = sessions.find_one(by_session(other.health().session.unwrap())).await.unwrap().unwrap();
    let newer = "fe".repeat(16);
    sessions.insert_one(doc! { "_id": &newer, "v": 4_i64, "holder": holder.get("holder") }).await.unwrap();

    let cases = [
        (doc! { "v": 4_i64 }, ["lock", "case", "layout version 4"]),
        (doc! { "term": "ten" }, ["lock", "case", "`term`"]),
        (
            doc! { "session": &newer },
            ["session", newer.as_str(), "of other: the record has layout version 4"],
        ),
    ];
    for (number, (change, words)) in cases.into_iter().enumerate() {
        let key = format!("case-{number}");
        let record = copied(&place, &key, change.clone()).await;
        let waiter = tokio::spawn({
            let (elect, key) = (elect.clone(), key.clone());
            async move { elect.acquire(key).await }
        });
        waits(&elect, 1).await;
        says(&elect, Some(&words)).await;
        if number < 2 {
            let found = place.collection("locks").find_one(by_key(&key)).await.unwrap().unwrap();
            assert_eq!(found, record, "nothing is written into it");
            // Somebody has repaired it.
            let free = doc! { "v": 3_i64, "term": 1_i64, "session": null };
            place.collection("locks").update_one(by_key(&key), doc! { "$set": free }).await.unwrap();
            drop(within("it gets the lock", waiter).await.unwrap().unwrap());
        } else {
            waiter.abort();
        }
        says(&elect, None).await;
    }
}
