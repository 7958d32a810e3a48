//! The term on the user's own documents: what a former holder writes late is refused.

use futures::future::join_all;
use mongodb::{
    Collection, IndexModel,
    bson::{Document, doc},
    error::Error as DriverError,
    options::IndexOptions,
};
use tenure::{
    Elect, ElectConfig,
    model::{LockId, Term},
    store::mongo::{Stale, Stamp},
};

use crate::mongodb::Place;
use crate::support::mongod::shared_replica_set;

/// Two holders of a lock, one after the other, and a collection of the user's.
struct Holders {
    lock: LockId,
    /// Term of the holder whose writes are under way for long, and arrive when the lock is another's.
    former: Term,
    next: Term,
    orders: Collection<Document>,
}

impl Holders {
    async fn meet() -> Self {
        let place = Place::on(shared_replica_set().await.uri()).await;
        let mut held = Vec::new();
        for holder in ["pod-1", "pod-2"] {
            let config = ElectConfig::new("shop", holder).unwrap();
            let elect = Elect::start(place.store.clone(), config).await.unwrap();
            let guard = elect.acquire("orders").await.unwrap();
            held.push((guard.lease().lock().clone(), guard.term()));
            guard.release().await.unwrap();
            elect.close().await;
        }
        let [(_, former), (lock, next)] = held.try_into().unwrap();
        assert!(former < next);
        Self { lock, former, next, orders: place.collection("orders") }
    }

    fn stamps(&self) -> (Stamp, Stamp) {
        (Stamp::new(&self.lock, self.former), Stamp::new(&self.lock, self.next))
    }

    async fn order(&self, id: i32) -> Document {
        self.orders.find_one(doc! { "_id": id }).await.unwrap().expect("it was written")
    }
}

fn state(state: &str) -> Document {
    doc! { "$set": { "state": state } }
}

fn is_late(answer: &Result<(), DriverError>) -> bool {
    answer.as_ref().is_err_and(|error| Stale::in_error(error).is_some())
}

#[tokio::test]
async fn a_former_holder_writes_nothing_to_what_the_next_one_has_written() {
    let holders = Holders::meet().await;
    let (former, next) = holders.stamps();
    let orders = &holders.orders;
    former.write(orders, 1, state("packed")).await.unwrap();
    former.write(orders, 1, state("shipped")).await.unwrap();
    assert_eq!(
        holders.order(1).await.get_str("state").ok(),
        Some("shipped"),
        "under one term as often as it likes"
    );
    // One of them is there already, the other is not.
    for id in [1, 2] {
        next.write(orders, id, state("returned")).await.unwrap();
        let late = former.write(orders, id, state("lost")).await;
        let stale = late.as_ref().err().and_then(Stale::in_error);
        assert_eq!(stale.map(|stale| stale.term), Some(holders.former), "{late:?}");
        let order = holders.order(id).await;
        let term = i64::try_from(holders.next.get()).unwrap();
        assert_eq!(order, doc! { "_id": id, "state": "returned", "term": term });
    }
    next.write(orders, 1, state("sold")).await.unwrap();
    assert_eq!(holders.order(1).await.get_str("state").ok(), Some("sold"));
}

#[tokio::test]
async fn a_document_that_bears_no_term_gets_one() {
    let holders = Holders::meet().await;
    let (former, next) = holders.stamps();
    let (former, next) = (former.field("held.term"), next.field("held.term"));
    holders.orders.insert_one(doc! { "_id": 1, "state": "new", "held": { "by": "nobody" } }).await.unwrap();
    next.write(&holders.orders, 1, state("packed")).await.unwrap();
    let order = holders.order(1).await;
    let held = order.get_document("held").unwrap();
    assert_eq!(held.get_str("by").ok(), Some("nobody"), "the rest of it stays");
    assert_eq!(held.get_i64("term").unwrap().cast_unsigned(), holders.next.get());
    assert!(is_late(&former.write(&holders.orders, 1, state("lost")).await));
}

#[tokio::test]
async fn filter_and_update_do_the_same_in_a_write_of_the_users_own() {
    let holders = Holders::meet().await;
    let (former, next) = holders.stamps();
    for id in 1..=3 {
        holders.orders.insert_one(doc! { "_id": id, "state": "new" }).await.unwrap();
    }
    next.write(&holders.orders, 2, state("packed")).await.unwrap();
    let all = former.filter(doc! { "state": { "$in": ["new", "packed"] } });
    let told = holders.orders.update_many(all, former.update(state("shipped"))).await.unwrap();
    assert_eq!(told.modified_count, 2, "all but the one that the next holder has written");
    assert_eq!(holders.order(2).await.get_str("state").ok(), Some("packed"));
}

#[tokio::test]
async fn writes_of_one_holder_that_race_all_arrive_and_none_is_called_late() {
    let holders = Holders::meet().await;
    let (former, next) = holders.stamps();
    for round in 0..10 {
        // On a document that nobody has made yet; those of the former holder are lost, or were first.
        let count = doc! { "$inc": { "n": 1 } };
        let writes = (0..16).map(|number| {
            let stamp = if number % 4 == 0 { &former } else { &next };
            let write = stamp.write(&holders.orders, round, count.clone());
            async move { (number % 4 == 0, write.await) }
        });
        let answers = join_all(writes).await;
        let written = answers.iter().filter(|(_, answer)| answer.is_ok()).count();
        for (is_former, answer) in &answers {
            assert!(answer.is_ok() || *is_former && is_late(answer), "{answer:?}");
        }
        assert_eq!(holders.order(round).await.get_i32("n").ok(), Some(i32::try_from(written).unwrap()));
        let term = holders.order(round).await.get_i64("term").unwrap().cast_unsigned();
        assert_eq!(term, holders.next.get(), "the later term stays");
    }
}

#[tokio::test]
async fn a_write_that_fails_on_a_foreign_term_or_a_unique_index_is_not_called_late() {
    let holders = Holders::meet().await;
    let (_, next) = holders.stamps();
    holders.orders.insert_one(doc! { "_id": 1, "term": "spring" }).await.unwrap();
    let answer = next.write(&holders.orders, 1, state("packed")).await;
    assert!(answer.is_err() && !is_late(&answer), "{answer:?}");
    assert_eq!(holders.order(1).await, doc! { "_id": 1, "term": "spring" });

    let unique = IndexOptions::builder().unique(true).build();
    let index = IndexModel::builder().keys(doc! { "number": 1 }).options(unique).build();
    holders.orders.delete_many(doc! {}).await.unwrap();
    holders.orders.create_index(index).await.unwrap();
    next.write(&holders.orders, 2, doc! { "$set": { "number": 7 } }).await.unwrap();
    let answer = next.write(&holders.orders, 3, doc! { "$set": { "number": 7 } }).await;
    assert!(answer.is_err() && !is_late(&answer), "{answer:?}");
}
