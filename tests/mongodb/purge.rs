//! The purge of a namespace with more records than one call looks at, and with records nobody can read.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use tenure::{
    model::Retention,
    store::{Purged, StoreExt, TakeAnswer},
};
use tenure_conformance::{Fixture, LIMIT};

use crate::mongodb::Place;
use crate::support::mongod::shared_single;

const NOW: Retention = Retention { locks: Duration::ZERO, sessions: Duration::ZERO };
/// Long enough for whatever is looked at here to be told from what is idle.
const YEARS: i64 = 10 * 365 * 24 * 3600 * 1000;

/// Every part of a purge.
async fn purge(place: &Place, fixture: &Fixture) -> Vec<Purged> {
    let mut parts: Vec<Purged> = Vec::new();
    loop {
        let after = parts.last().and_then(|last| last.next.clone());
        let part = place.store.purge(fixture.namespace().clone(), NOW, after, LIMIT).await.unwrap();
        let is_last = part.next.is_none();
        parts.push(part);
        assert!(parts.len() < 100, "a purge must come to an end");
        if is_last {
            return parts;
        }
    }
}

/// The document of a lock that has been free for long, under a term of long ago.
async fn idle(place: &Place, fixture: &Fixture) -> Document {
    let record = fixture.held(&fixture.lock("template"), fixture.session(), 1).await;
    fixture.freed(&record).await;
    let id = doc! { "_id.ns": fixture.namespace().as_str() };
    let mut lock = place.collection("locks").find_one_and_delete(id).await.unwrap().unwrap();
    lock.extend(doc! { "term": 1_i64, "ended_at": DateTime::from_millis(0) });
    lock
}

fn named(template: &Document, key: &str, fields: Document) -> Document {
    let mut lock = template.clone();
    let mut id = lock.get_document("_id").unwrap().clone();
    id.insert("key", key);
    lock.insert("_id", id);
    lock.extend(fields);
    lock
}

#[tokio::test]
async fn a_purge_gets_past_more_locks_than_it_looks_at_and_removes_more_than_it_does_at_once() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let template = idle(&place, &fixture).await;
    let now = place.server_time().await;
    // What is done for good comes first, and stays: also if a clock that went back or was ahead wrote it.
    let until = [now + YEARS / 2, now + YEARS * 3, now - YEARS];
    let done =
        |number: usize| doc! { "not_before": DateTime::from_millis(until[number % 3]), "closed_for": YEARS };
    let stay = (0..11_000).map(|number| named(&template, &format!("done {number}"), done(number)));
    let go = (0..2500).map(|number| named(&template, &format!("idle {number}"), doc! {}));
    for part in stay.chain(go).collect::<Vec<_>>().chunks(5000) {
        place.collection("locks").insert_many(part).await.unwrap();
    }
    let parts = purge(&place, &fixture).await;
    assert_eq!(parts.iter().map(|part| part.locks).sum::<u64>(), 2500, "{parts:?}");
    assert!(parts.len() >= 4 && parts.iter().all(|part| part.locks <= 1000), "{parts:?}");
    let left = doc! { "_id.ns": fixture.namespace().as_str() };
    assert_eq!(place.collection("locks").count_documents(left).await.unwrap(), 11_000);
    let by = fixture.candidate(fixture.opened().await.id, 1);
    for number in 0..3 {
        let answer = fixture.take(&fixture.lock(&format!("done {number}")), &by).await;
        assert!(matches!(answer, TakeAnswer::Closed(_)), "{number}: {answer:?}");
    }
}

#[tokio::test]
async fn a_lock_that_somebody_wrote_by_hand_keeps_nothing_else_from_being_purged() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let template = idle(&place, &fixture).await;
    let mut hostile = Vec::new();
    for length in [Bson::Int64(i64::MIN), Bson::Int64(-1), Bson::Int64(i64::MAX), "x".into(), Bson::Null] {
        for date in [i64::MAX, i64::MIN, 0] {
            let fields = doc! { "not_before": DateTime::from_millis(date), "closed_for": length.clone() };
            hostile.push(named(&template, &format!("a hostile {}", hostile.len()), fields));
        }
    }
    for term in [Bson::Int64(i64::MIN), Bson::Double(0.5), Bson::Null] {
        let key = format!("a hostile {}", hostile.len());
        hostile.push(named(&template, &key, doc! { "term": term }));
    }
    place.collection("locks").insert_many(&hostile).await.unwrap();
    place.collection("locks").insert_one(named(&template, "idle", doc! {})).await.unwrap();
    let dead = fixture.dead_session().await;
    let parts = purge(&place, &fixture).await;
    assert_eq!(parts.iter().map(|part| part.locks).sum::<u64>(), 1);
    for lock in hostile {
        let id = doc! { "_id": lock.get("_id").cloned() };
        assert_eq!(place.collection("locks").find_one(id).await.unwrap(), Some(lock), "as it was");
    }
    // Its death may be of this very millisecond.
    let mut gone = parts.iter().map(|part| part.sessions).sum::<u64>();
    while gone == 0 {
        gone = purge(&place, &fixture).await.iter().map(|part| part.sessions).sum();
    }
    assert_eq!(fixture.seen(dead).await, tenure::store::SessionSeen::Missing);
}

#[tokio::test]
async fn fences_and_places_that_tenure_did_not_write_stay() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let template = idle(&place, &fixture).await;
    let lock = template.get_document("_id").unwrap();
    let slot = |slot: i64| {
        let mut id = lock.clone();
        id.insert("slot", slot);
        id
    };
    let long_ago = DateTime::from_millis(0);
    let fences = place.collection("fences");
    let foreign = [
        doc! { "_id": slot(100), "lock": lock, "armed_at": long_ago },
        doc! { "_id": slot(101), "lock": lock, "v": 2_i64, "term": 1_i64 },
        doc! { "_id": slot(102), "lock": lock, "v": 2_i64, "term": 1_i64, "armed_at": "long ago" },
        doc! { "_id": slot(103), "lock": lock, "v": 3_i64, "term": 1_i64, "armed_at": long_ago },
    ];
    fences.insert_many(&foreign).await.unwrap();
    let ours = doc! { "_id": slot(0), "lock": lock, "v": 2_i64, "term": 1_i64, "armed_at": long_ago };
    fences.insert_one(ours).await.unwrap();
    place.collection("locks").insert_one(&template).await.unwrap();
    let dead = fixture.dead_session().await;
    let standing = doc! { "_id": "by hand", "session": dead.to_string(), "lock": lock };
    place.collection("waiters").insert_one(&standing).await.unwrap();

    let parts = purge(&place, &fixture).await;
    assert_eq!(
        parts.iter().map(|part| (part.locks, part.waiters)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
        (1, 0)
    );
    let left = fences.count_documents(doc! { "lock": lock }).await.unwrap();
    assert_eq!(left, foreign.len() as u64, "only what was armed by tenure goes");
    for fence in foreign {
        let id = doc! { "_id": fence.get("_id").cloned() };
        assert_eq!(fences.find_one(id).await.unwrap(), Some(fence));
    }
    let found = place.collection("waiters").find_one(doc! { "_id": "by hand" }).await.unwrap();
    assert_eq!(found, Some(standing));
}
