//! Least that a lock can cost which is taken and released by a majority: two bare `findAndModify`, without retries.

use futures::future::BoxFuture;
use mongodb::{Client, Collection, bson::Document, bson::doc};

use super::{Held, Instance, client, collection};

pub(crate) struct Floor {
    client: Client,
    collection: Collection<Document>,
}

impl Floor {
    pub(crate) async fn start(uri: &str) -> Self {
        let client = client(uri, Some(false)).await;
        Self { collection: collection(&client, "floor"), client }
    }

    async fn write(&self, key: &str) {
        let change = doc! { "$inc": { "n": 1_i64 }, "$set": { "by": "pod-1" } };
        let done = self.collection.find_one_and_update(doc! { "_id": key }, change).upsert(true).await;
        done.expect("the server answers");
    }
}

impl Instance for Floor {
    fn try_take<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Option<Held>> {
        Box::pin(async move {
            self.write(key).await;
            Some(Held::Token(key.to_owned(), String::new()))
        })
    }

    fn give(&self, held: Held) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Held::Token(key, _) = held {
                self.write(&key).await;
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.client.clone().shutdown().into_future())
    }
}
