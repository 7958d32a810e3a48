//! The algorithm of `ShedLock` on MongoDB: an upsert whose filter is `lockUntil`, so that a duplicate key means taken.

use std::time::Duration;

use futures::future::BoxFuture;
use mongodb::{
    Client, Collection,
    bson::{DateTime, Document, doc},
    error::{ErrorKind, WriteFailure},
};

use super::{Held, Instance, client, collection, from_now};

const DUPLICATE_KEY: i32 = 11_000;

pub(crate) struct ShedLock {
    client: Client,
    collection: Collection<Document>,
    ttl: Duration,
    name: String,
}

impl ShedLock {
    pub(crate) async fn start(uri: &str, ttl: Duration, name: &str) -> Self {
        let client = client(uri, None).await;
        Self { collection: collection(&client, "until"), client, ttl, name: name.to_owned() }
    }

    async fn attempt(&self, key: &str) -> Option<Held> {
        let now = DateTime::now();
        let free = doc! { "_id": key, "lockUntil": { "$lte": now } };
        let mine = doc! { "lockUntil": from_now(self.ttl), "lockedAt": now, "lockedBy": &self.name };
        match self.collection.find_one_and_update(free, doc! { "$set": mine }).upsert(true).await {
            Ok(_) => Some(Held::Token(key.to_owned(), self.name.clone())),
            Err(error) if is_taken(&error) => None,
            Err(error) => panic!("the server answers {error}"),
        }
    }
}

impl Instance for ShedLock {
    fn try_take<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Option<Held>> {
        Box::pin(self.attempt(key))
    }

    fn give(&self, held: Held) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Held::Token(key, name) = held {
                let (mine, free) =
                    (doc! { "_id": key, "lockedBy": name }, doc! { "lockUntil": DateTime::now() });
                let done = self.collection.find_one_and_update(mine, doc! { "$set": free }).await;
                done.expect("the server answers");
            }
        })
    }

    fn renew<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Held::Token(key, name) = held {
                let mine = doc! { "_id": key, "lockedBy": name, "lockUntil": { "$gt": DateTime::now() } };
                let longer = doc! { "$set": { "lockUntil": from_now(self.ttl) } };
                let _ = self.collection.find_one_and_update(mine, longer).await;
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.client.clone().shutdown().into_future())
    }
}

/// True if an error means that the key is there already.
pub(crate) fn is_taken(error: &mongodb::error::Error) -> bool {
    match error.kind.as_ref() {
        ErrorKind::Write(WriteFailure::WriteError(error)) => error.code == DUPLICATE_KEY,
        ErrorKind::Command(error) => error.code == DUPLICATE_KEY,
        _ => false,
    }
}
