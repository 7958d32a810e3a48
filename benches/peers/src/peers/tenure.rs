//! Tenure, through its public interface.

use std::time::Duration;

use futures::future::BoxFuture;
use tenure::{
    Elect, ElectConfig,
    elect::Acquired,
    store::mongo::{MongoOptions, MongoStore},
};

use super::{Held, Instance};

pub(crate) struct Tenure {
    elect: Elect,
    store: MongoStore,
}

impl Tenure {
    pub(crate) async fn start(uri: &str, ttl: Duration, name: &str) -> Self {
        let options = MongoOptions::new().database("tenure");
        let store = MongoStore::connect(uri, options).await.expect("the server is up");
        // The interval is a sixth of the ttl, as in the defaults.
        let config = ElectConfig::new("peers", name).expect("within the limits");
        let config = config.with_refresh_interval(ttl / 6).with_refresh_duration(ttl);
        let elect = Elect::start(store.clone(), config).await.expect("the store works");
        Self { elect, store }
    }
}

impl Instance for Tenure {
    fn try_take<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Option<Held>> {
        Box::pin(async move {
            match self.elect.key(key).try_acquire().await.expect("the server answers") {
                Acquired::Guard(guard) => Some(Held::Guard(guard)),
                Acquired::Busy(_) => None,
            }
        })
    }

    fn take<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Held> {
        Box::pin(async move { Held::Guard(self.elect.acquire(key).await.expect("the server answers")) })
    }

    fn give(&self, held: Held) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Held::Guard(guard) = held {
                guard.release().await.expect("the server answers");
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.elect.close().await;
            self.store.close().await;
        })
    }
}
