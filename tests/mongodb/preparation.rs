//! Preparation before a store is used: collections and indexes, and what is refused.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, future::join_all};
use mongodb::{
    Client, IndexModel,
    bson::{Bson, DateTime, Document, doc},
};
use tenure::{
    model::Term,
    store::{
        FOR_GOOD, ReleaseTo, Store, StoreExt, TakeAnswer,
        mongo::{ConnectError, MongoOptions, MongoStore, index_script},
    },
};
use tenure_conformance::{Fixture, LIMIT};

use crate::{
    mongodb::{Place, connected, connected_and_logged, lent, refused_for_good},
    support::mongod::shared_single,
};

fn own(name: &str) -> MongoOptions {
    MongoOptions::new().database(format!("test-{}-{name}", std::process::id()))
}

async fn indexes(place: &Place) -> Vec<String> {
    let mut found = Vec::new();
    for name in place.database.list_collection_names().await.unwrap() {
        let indexes: Vec<IndexModel> =
            place.collection(&name).list_indexes().await.unwrap().try_collect().await.unwrap();
        found.extend(indexes.into_iter().map(|index| format!("{name} {}", index.keys)));
    }
    found.sort();
    found
}

#[tokio::test]
async fn everything_that_is_missing_is_created_also_by_many_at_once() {
    let uri = shared_single().await.uri();
    join_all((0..8).map(|_| connected(uri, own("many")))).await;
    let place = Place { store: connected(uri, own("many")).await, database: database(uri, "many").await };
    let found = indexes(&place).await;
    assert_eq!(
        found,
        [
            "fences { \"_id\": 1 }",
            "fences { \"lock\": 1 }",
            "locks { \"_id\": 1 }",
            "locks { \"session\": 1, \"term\": -1, \"_id\": 1, \"ticket\": 1 }",
            "runs { \"_id\": 1 }",
            "sessions { \"_id\": 1 }",
            "sessions { \"ns\": 1, \"_id\": 1 }",
            "waiters { \"_id\": 1 }",
            "waiters { \"lock\": 1, \"since\": 1, \"_id\": 1 }",
            "waiters { \"session\": 1 }",
        ]
    );
    let script = index_script("any", &MongoOptions::new());
    for index in found.iter().filter(|index| !index.contains("{ \"_id\": 1 }")) {
        let (collection, keys) = index.split_once(' ').unwrap();
        assert!(
            script.contains(&format!("getCollection({collection:?}).createIndex({keys}")),
            "{index}:\n{script}"
        );
    }
}

async fn database(uri: &str, name: &str) -> mongodb::Database {
    let client = Client::with_uri_str(uri).await.unwrap();
    client.database(&format!("test-{}-{name}", std::process::id()))
}

#[tokio::test]
async fn a_store_opened_without_create_creates_nothing_and_works() {
    let uri = shared_single().await.uri();
    let store = connected(uri, own("by-hand").create(false)).await;
    let database = database(uri, "by-hand").await;
    assert_eq!(database.list_collection_names().await.unwrap(), [""; 0]);
    let place = Place { store, database };
    // It works all the same: what is missing costs pace.
    let fixture = place.fixture();
    fixture.held(&fixture.lock("report"), fixture.session(), 1).await;
}

#[tokio::test]
async fn a_prefix_goes_before_every_collection() {
    let uri = shared_single().await.uri();
    connected(uri, own("prefixed").prefix("tenure_")).await;
    let mut names = database(uri, "prefixed").await.list_collection_names().await.unwrap();
    names.sort();
    assert_eq!(
        names,
        ["fences", "locks", "runs", "sessions", "waiters"].map(|name| format!("tenure_{name}"))
    );
}

#[tokio::test]
async fn names_the_server_would_not_take_are_refused_before_it_is_asked() {
    for (options, message) in [
        (MongoOptions::new().database(""), "database (\"\") must be 1 to 63 bytes"),
        (MongoOptions::new().database("a.b"), "database (\"a.b\") must be 1 to 63 bytes without any of"),
        (MongoOptions::new().database("x".repeat(64)), "must be 1 to 63 bytes"),
        (MongoOptions::new().prefix("$"), "prefix (\"$\") must be at most 63 bytes, without $"),
        (MongoOptions::new().prefix("system."), "not beginning with system."),
    ] {
        let error = MongoStore::connect("mongodb://nobody.invalid", options).await.unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert!(!error.is_retryable());
    }
}

#[tokio::test]
async fn a_collection_that_takes_two_keys_for_one_is_refused() {
    let uri = shared_single().await.uri();
    let database = database(uri, "collation").await;
    database
        .run_command(doc! { "create": "locks", "collation": { "locale": "en", "strength": 2 } })
        .await
        .unwrap();
    let error = refused_for_good(uri, own("collation")).await;
    assert!(matches!(&error, ConnectError::Collation { collection } if collection == "locks"), "{error}");
    assert!(error.to_string().starts_with("the collection \"locks\" has a collation"), "{error}");
}

/// No program reads two layouts of a lock, so none works beside such records. The end does as the sentence says: terms
/// go on above those that were there (R5), and a closed key stays closed.
#[tokio::test]
async fn records_of_an_earlier_layout_are_refused_with_the_way_out() {
    let uri = shared_single().await.uri();
    let database = database(uri, "layouts").await;
    let locks = database.collection::<Document>("locks");
    for layout in [Bson::Int64(2), Bson::Int32(2), Bson::Double(2.0)] {
        locks.delete_many(doc! {}).await.unwrap();
        // The first record is none of them.
        locks.insert_one(doc! { "_id": "another lock", "v": 3_i64 }).await.unwrap();
        locks.insert_one(doc! { "_id": "a lock", "v": layout }).await.unwrap();
        let error = refused_for_good(uri, own("layouts")).await;
        assert!(!error.is_retryable());
        assert_eq!(
            error.to_string(),
            "the collection \"locks\" holds records of layout 2, and this version of tenure reads layout 3 only: stop \
             all instances of the earlier version, then let it be read as that (updateMany({ v: 2 }, { $set: { v: \
             NumberLong(3) } }))"
        );
    }
    // Whatever somebody else keeps there is refused key by key, as always.
    for foreign in [doc! { "v": 4_i64 }, doc! { "v": "1" }, doc! {}] {
        locks.delete_many(doc! {}).await.unwrap();
        locks.insert_one(foreign).await.unwrap();
        connected(uri, own("layouts")).await;
    }
    locks.delete_many(doc! {}).await.unwrap();
    let runs = database.collection::<Document>("runs");
    runs.insert_one(doc! { "_id": "a run", "v": 1_i64 }).await.unwrap();
    let error = refused_for_good(uri, own("layouts")).await.to_string();
    assert!(error.ends_with("reads layout 2 only: use an empty database, or another prefix"), "{error}");
    runs.delete_many(doc! {}).await.unwrap();
    // An earlier version had a key, ahead of the clock, and a task that is done for good.
    let fixture = Fixture::new(Arc::new(connected(uri, own("layouts")).await) as Arc<dyn Store>);
    let lock = fixture.lock("report");
    let (held, done) = (fixture.opened().await, fixture.task("import", "done"));
    let ahead = fixture.held(&lock, held.id, 1).await.term.get() + 1_000_000_000;
    let term = fixture.held(&done, held.id, 1).await.term;
    fixture.release(&done, held.id, term, ReleaseTo::ClosedFor(FOR_GOOD)).await;
    let earlier =
        doc! { "v": 2_i64, "term": i64::try_from(ahead).unwrap(), "note": "failing since long ago" };
    locks.update_many(doc! {}, doc! { "$set": earlier, "$unset": { "granted_to": 1 } }).await.unwrap();
    let sessions = database.collection::<Document>("sessions");
    let earlier = doc! { "$set": { "v": 2_i64 }, "$unset": { "drained": 1 } };
    sessions.update_many(doc! {}, earlier).await.unwrap();
    for records in [locks, sessions] {
        assert!(matches!(refused_for_good(uri, own("layouts")).await, ConnectError::Layout { .. }));
        records.update_many(doc! { "v": 2 }, doc! { "$set": { "v": 3_i64 } }).await.unwrap();
    }
    fixture.release(&lock, held.id, Term::new(ahead), ReleaseTo::Free).await;
    let again = fixture.held(&lock, fixture.opened().await.id, 1).await;
    assert!(again.term.get() > ahead, "{} after {ahead}", again.term);
    let by = fixture.candidate(held.id, 2);
    assert!(matches!(fixture.take(&done, &by).await, TakeAnswer::Closed(_)), "it is done for good");
    fixture.send(&fixture.beat(held.id, 1)).await.record().expect("its session lives on");
}

#[tokio::test]
async fn a_ttl_index_is_warned_of() {
    let uri = shared_single().await.uri();
    let ttl = doc! { "createIndexes": "locks", "indexes": [
        { "key": { "ended_at": 1 }, "name": "expires", "expireAfterSeconds": 60 },
    ] };
    database(uri, "ttl").await.run_command(ttl).await.unwrap();
    // Of this thread alone; what is looked at is looked at on a task, so there is one thread only.
    let log = connected_and_logged(uri, own("ttl")).await.1.text();
    assert!(log.contains("a TTL index deletes records that are in use") && log.contains("expires"), "{log}");
}

#[tokio::test]
async fn a_client_of_the_programs_own_serves_too() {
    let uri = format!("{}&w=1&readPreference=secondary&readConcernLevel=local", shared_single().await.uri());
    let client = Client::with_uri_str(&uri).await.unwrap();
    let store = lent(&client, own("borrowed")).await;
    let place = Place { store, database: client.database("unused") };
    let fixture = place.fixture();
    let record = fixture.held(&fixture.lock("report"), fixture.session(), 1).await;
    fixture.freed(&record).await;
    let mut hints = place.store.hints(place.fixture().topics("import"));
    assert!(hints.next().await.is_some());
}

/// Entry of the server's profiler about the last find on a collection.
async fn profile(place: &Place, collection: &str) -> Document {
    profile_of(place, "find", collection).await
}

async fn profile_of(place: &Place, command: &str, collection: &str) -> Document {
    let seen = place.database.collection::<Document>("system.profile");
    let ns = format!("{}.{collection}", place.database.name());
    let read = format!("command.{command}");
    let last = seen.find_one(doc! { "ns": ns, read: collection }).sort(doc! { "$natural": -1 });
    last.await.unwrap().expect("the profiler is on")
}

fn count(profile: &Document, field: &str) -> i64 {
    match profile.get(field) {
        Some(Bson::Int32(count)) => (*count).into(),
        Some(Bson::Int64(count)) => *count,
        other => panic!("{field} is {other:?} in {profile}"),
    }
}

#[tokio::test]
async fn an_audit_reads_its_index_alone_and_no_further_than_its_page() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let (mine, others) = (fixture.session(), fixture.session());
    for (session, part) in [(mine, "mine"), (others, "others")] {
        let takes = (0..500).map(|key| tenure::store::Take {
            lock: fixture.lock(&format!("{part} {key}")),
            by: fixture.candidate(session, key + 1),
        });
        fixture.take_all(takes.collect(), &[]).await;
    }
    place.database.run_command(doc! { "profile": 2 }).await.unwrap();
    let mut after = None;
    for _ in 0..5 {
        let page = place.store.held_by(mine, after, 100, LIMIT).await.unwrap();
        assert_eq!(page.items.len(), 100);
        after = page.next;
        let profile = profile(&place, "locks").await;
        assert_eq!(count(&profile, "docsExamined"), 0, "{profile}");
        assert!(count(&profile, "keysExamined") <= 110, "{profile}");
    }
    assert_eq!(after, None);
}

#[tokio::test]
async fn a_look_along_the_queue_reads_no_more_than_it_was_asked_for() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let lock = fixture.lock("report");
    let waits = (0..200).map(|ticket| tenure::store::Wait {
        lock: lock.clone(),
        by: fixture.candidate(fixture.session(), ticket),
    });
    place.store.wait(waits.collect(), LIMIT).await.unwrap();
    place.database.run_command(doc! { "profile": 2 }).await.unwrap();
    assert_eq!(place.store.waiters(lock, 3, LIMIT).await.unwrap().waiters.len(), 3);
    let profile = profile(&place, "waiters").await;
    assert_eq!((count(&profile, "docsExamined"), count(&profile, "keysExamined")), (3, 3), "{profile}");
    assert_eq!(profile.get_bool("hasSortStage").ok(), None, "the index has them in order: {profile}");
}

/// More would be read, and sorted, if the server took one scan for all of them.
#[tokio::test]
async fn the_latest_grants_are_found_by_a_scan_for_each_session() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let sessions: Vec<_> = (0..200).map(|_| fixture.session()).collect();
    for session in &sessions {
        let takes = (0..20).map(|key| tenure::store::Take {
            lock: fixture.lock(&format!("{session} {key}")),
            by: fixture.candidate(*session, key),
        });
        fixture.take_all(takes.collect(), &[]).await;
    }
    place.database.run_command(doc! { "profile": 2 }).await.unwrap();
    assert_eq!(place.store.latest_grants(sessions, 30, LIMIT).await.unwrap().len(), 30);
    let profile = profile(&place, "locks").await;
    assert_eq!(count(&profile, "docsExamined"), 30, "{profile}");
    assert!(count(&profile, "keysExamined") <= 30 + 200, "{profile}");
    assert_eq!(profile.get_bool("hasSortStage").ok(), None, "{profile}");
}

#[tokio::test]
async fn the_last_runs_of_ledgers_are_read_from_their_ends() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let schedules: Vec<_> = (0..50).map(|number| fixture.schedule(&format!("{number}"))).collect();
    let entries = schedules.iter().flat_map(|schedule| {
        let (ns, name) = (schedule.namespace.as_str(), schedule.name.as_str());
        (0..100)
            .map(move |at| doc! { "_id": { "ns": ns, "schedule": name, "at": DateTime::from_millis(at) } })
    });
    place.collection("runs").insert_many(entries).await.unwrap();
    place.database.run_command(doc! { "profile": 2 }).await.unwrap();
    let pages = place.store.last_runs(schedules, 10, LIMIT).await.unwrap();
    assert!(pages.iter().all(|page| page.refused.len() == 10 && page.next.is_some()));
    let profile = profile_of(&place, "aggregate", "runs").await;
    let read = (count(&profile, "docsExamined"), count(&profile, "keysExamined"));
    assert_eq!(read, (50 * 11, 50 * 11), "{profile}");
}
