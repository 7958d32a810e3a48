//! Every write that decides something names the whole `_id` of each document it may change: a sharded cluster
//! then sends it to one shard. The conformance suite and the random scripts run on a store that checks it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use mongodb::{
    bson::{Bson, Document, doc},
    event::{EventHandler, command::CommandEvent},
};
use tenure::{store::StoreExt, store::mongo::MongoOptions};

/// Options for a store whose operations fail if they write without whole ids.
pub(crate) fn checked() -> MongoOptions {
    // Called within the operation: it fails with this, and so does the test that asked for it.
    let check = |event| {
        if let CommandEvent::Started(started) = event {
            check(&started.command).unwrap_or_else(|why| panic!("{why}: {}", started.command));
        }
    };
    MongoOptions::new().command_events(EventHandler::callback(check))
}

fn check(command: &Document) -> Result<(), String> {
    let statements = |field| {
        let all = command.get_array(field).map_err(|_| format!("there are no `{field}`"))?;
        let filters = all.iter().map(|one| one.as_document().and_then(|one| one.get_document("q").ok()));
        filters
            .map(|filter| filter.ok_or("a statement has no filter".to_owned()))
            .collect::<Result<Vec<_>, _>>()
    };
    match command.keys().next().map(String::as_str) {
        Some("findAndModify") => names_ids(command.get_document("query").map_err(|error| error.to_string())?),
        Some("update") => statements("updates")?.into_iter().try_for_each(names_ids),
        Some("delete") => {
            let of_many =
                |filter: &Document| is_of_many(command.get_str("delete").unwrap_or_default(), filter);
            statements("deletes")?.into_iter().filter(|filter| !of_many(filter)).try_for_each(names_ids)
        }
        _ => Ok(()),
    }
}

/// Returns whether the purge removes more than one record by this filter.
fn is_of_many(collection: &str, filter: &Document) -> bool {
    match collection {
        "waiters" => filter.contains_key("session"),
        "fences" => filter.contains_key("lock"),
        _ => false,
    }
}

fn names_ids(filter: &Document) -> Result<(), String> {
    let several = filter.get_document("_id").ok().and_then(|id| id.get_array("$in").ok());
    let whole = match (several, filter.get("_id")) {
        (Some(ids), _) => ids.iter().all(is_whole),
        (None, Some(id)) => is_whole(id),
        (None, None) => false,
    };
    if whole { Ok(()) } else { Err(format!("a write names no whole `_id`: {filter}")) }
}

/// A value to be equal to, not a condition.
fn is_whole(id: &Bson) -> bool {
    match id {
        Bson::String(_) => true,
        Bson::Document(id) => !id.is_empty() && id.keys().all(|key| !key.starts_with('$')),
        _ => false,
    }
}

#[test]
fn operations_that_name_less_than_the_whole_id_are_found() {
    let id = doc! { "ns": "shop", "kind": "lock", "key": "report" };
    for filter in [
        doc! { "_id": &id },
        doc! { "_id": "000000000000000000000000000000ab", "beat": 1 },
        doc! { "_id": { "$in": [&id, &id] }, "session": "x" },
    ] {
        assert_eq!(check(&doc! { "findAndModify": "locks", "query": &filter }), Ok(()));
        assert_eq!(check(&doc! { "update": "locks", "updates": [{ "q": filter }] }), Ok(()));
    }
    for filter in [
        doc! {},
        doc! { "session": "x" },
        doc! { "_id.key": "report" },
        doc! { "_id": { "$gt": &id } },
        doc! { "_id": { "$in": [{ "$gt": &id }] } },
    ] {
        assert!(check(&doc! { "findAndModify": "locks", "query": &filter }).is_err(), "{filter}");
        assert!(check(&doc! { "update": "locks", "updates": [{ "q": &id }, { "q": &filter }] }).is_err());
        assert!(check(&doc! { "delete": "locks", "deletes": [{ "q": filter, "limit": 0 }] }).is_err());
    }
    let places = doc! { "session": { "$in": ["x"] }, "v": 2 };
    assert_eq!(check(&doc! { "delete": "waiters", "deletes": [{ "q": &places }] }), Ok(()));
    assert!(check(&doc! { "delete": "sessions", "deletes": [{ "q": places }] }).is_err());
}

#[tokio::test]
async fn an_operation_whose_command_does_not_pass_fails() {
    let refusing = Arc::new(AtomicBool::new(false));
    let refuses = Arc::clone(&refusing);
    let refuse = move |event| {
        let refuses = refuses.load(Ordering::Relaxed) && matches!(event, CommandEvent::Started(_));
        assert!(!refuses, "not now");
    };
    let options = MongoOptions::new().command_events(EventHandler::callback(refuse));
    let place =
        crate::mongodb::Place::with(crate::support::mongod::shared_single().await.uri(), options).await;
    let fixture = place.fixture();
    fixture.opened().await;
    refusing.store(true, Ordering::Relaxed);
    let opened = fixture.store().open(fixture.opening(), tenure_conformance::LIMIT).await;
    assert!(opened.is_err(), "{opened:?}");
}
