//! Query, insert, delete: a look whether the key is held, an insert that a unique key decides, and a delete.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures::future::BoxFuture;
use mongodb::{
    Client, Collection,
    bson::{DateTime, Document, doc, oid::ObjectId},
};

use super::{Held, Instance, client, collection, from_now, shedlock::is_taken};

pub(crate) struct Insert {
    client: Client,
    collection: Collection<Document>,
    ttl: Duration,
    name: String,
    drawn: AtomicU64,
}

impl Insert {
    pub(crate) async fn start(uri: &str, ttl: Duration) -> Self {
        let client = client(uri, None).await;
        let (collection, name) = (collection(&client, "inserted"), ObjectId::new().to_hex());
        Self { client, collection, ttl, name, drawn: AtomicU64::new(0) }
    }

    async fn attempt(&self, key: &str) -> Option<Held> {
        let found = self.collection.find_one(doc! { "_id": key }).await.expect("the server answers");
        if let Some(found) = found {
            let now = DateTime::now();
            if found.get_datetime("until").is_ok_and(|until| *until > now) {
                return None;
            }
            let expired = doc! { "_id": key, "until": { "$lte": now } };
            self.collection.delete_one(expired).await.expect("the server answers");
        }
        let token = format!("{} {}", self.name, self.drawn.fetch_add(1, Ordering::Relaxed));
        let document = doc! { "_id": key, "by": &token, "until": from_now(self.ttl) };
        match self.collection.insert_one(document).await {
            Ok(_) => Some(Held::Token(key.to_owned(), token)),
            Err(error) if is_taken(&error) => None,
            Err(error) => panic!("the server answers {error}"),
        }
    }
}

impl Instance for Insert {
    fn try_take<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Option<Held>> {
        Box::pin(self.attempt(key))
    }

    fn give(&self, held: Held) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Held::Token(key, token) = held {
                let mine = doc! { "_id": key, "by": token };
                self.collection.delete_one(mine).await.expect("the server answers");
            }
        })
    }

    fn renew<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Held::Token(key, token) = held {
                let until = doc! { "$set": { "until": from_now(self.ttl) } };
                let _ = self.collection.update_one(doc! { "_id": key, "by": token }, until).await;
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.client.clone().shutdown().into_future())
    }
}
