//! Replies that do not fit into one message.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use mongodb::{
    bson::Bson,
    event::{EventHandler, command::CommandEvent},
};
use tenure::{
    model::{Value, Why},
    store::{LockSeen, StoreExt, Take, mongo::MongoOptions},
};
use tenure_conformance::LIMIT;

use crate::mongodb::Place;
use crate::support::mongod::shared_single;

/// A thousand locks with the largest values are more than 16 MiB. Whoever asks for the rest of a reply must be
/// the one who asked for its beginning: the server refuses others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_part_of_a_large_reply_is_asked_for_under_one_session() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&sent);
    let handler = EventHandler::callback(move |event| {
        if let CommandEvent::Started(started) = event {
            log.lock().unwrap().push(started.command);
        }
    });
    let options = MongoOptions::new().command_events(handler);
    let place = Place::with(shared_single().await.uri(), options).await;
    let fixture = place.fixture();
    let session = fixture.session();
    let locks: Vec<_> = (0..1100).map(|number| fixture.lock(&format!("large {number}"))).collect();
    for part in locks.chunks(250) {
        let value = Some(Value::new(vec![7; Value::MAX_BYTES]).unwrap());
        let why = Some(Why::new("x".repeat(1000)).unwrap());
        let mut by = fixture.candidate(session, 1);
        (by.value, by.why) = (value, why);
        let takes = part.iter().map(|lock| Take { lock: lock.clone(), by: by.clone() });
        fixture.take_all(takes.collect(), &[]).await;
    }
    sent.lock().unwrap().clear();

    let reads = (0..4).map(|_| {
        let (store, locks) = (place.store.clone(), locks[..1000].to_vec());
        tokio::spawn(async move { store.locks(locks, LIMIT).await })
    });
    for read in futures::future::join_all(reads).await {
        let seen = read.unwrap().expect("the server is up");
        assert_eq!(seen.len(), 1000);
        assert!(seen.iter().all(|seen| matches!(seen, LockSeen::Found(_))));
    }
    let sent = sent.lock().unwrap();
    let of = |name: &str| {
        let named = sent.iter().filter(|command| command.contains_key(name));
        named
            .map(|command| command.get("lsid").map_or("none".to_owned(), Bson::to_string))
            .collect::<Vec<_>>()
    };
    let (first, more) = (of("find"), of("getMore"));
    assert_eq!((first.len(), more.len()), (4, 4), "each read has two parts");
    let (first, more): (BTreeSet<_>, BTreeSet<_>) = (first.into_iter().collect(), more.into_iter().collect());
    assert_eq!(first, more, "both under the same session");
}
