//! The crate `mongo-lock-async`: a conditional upsert and a delete.

use std::time::Duration;

use futures::future::BoxFuture;
use mongo_lock_async::{Lock, prepare_database};
use mongodb::Client;

use super::{Held, Instance, client};

pub(crate) struct MongoLock {
    client: Client,
    ttl: Duration,
}

impl MongoLock {
    pub(crate) async fn start(uri: &str, ttl: Duration) -> Self {
        let client = client(uri, None).await;
        prepare_database(&client).await.expect("the server answers");
        Self { client, ttl }
    }
}

impl Instance for MongoLock {
    fn try_take<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Option<Held>> {
        Box::pin(async move {
            let lock = Lock::try_acquire(&self.client, key, self.ttl).await.expect("the server answers");
            lock.map(Held::MongoLock)
        })
    }

    fn give(&self, held: Held) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Held::MongoLock(lock) = held {
                lock.release().await.expect("the server answers");
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.client.clone().shutdown().into_future())
    }
}
