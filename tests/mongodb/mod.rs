//! The MongoDB store on real servers.
//!
//! `TENURE_TEST_MONGODB_URI` names a deployment for the conformance suite and the random scripts;
//! without it, and for every test that hurts a server, deployments are started by `scripts/mongod`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod bells;
mod conformance;
mod connecting;
mod costs;
mod damaged;
mod dedicated;
mod extremes;
mod failover;
mod fence;
mod hint_troubles;
mod hints;
mod history;
mod limits;
mod logins;
mod preparation;
mod purge;
mod renewal;
mod replies;
mod restored;
mod rights;
mod round_trips;
mod scripts;
mod secrets;
mod spent;
mod stamp;
mod terms;
mod whole_ids;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    captured::Log,
    support::{
        rounds::rounds,
        wait::{until, within},
    },
};
use mongodb::bson::{Document, doc};
use tenure::store::{
    Store,
    mongo::{ConnectError, MongoOptions, MongoStore},
};
use tenure_conformance::Fixture;

/// Puts something in the place of all bells that nobody can tail.
async fn without_bells(database: &mongodb::Database) {
    for number in 0..64 {
        let view = doc! { "create": format!("bells_{number:02}"), "viewOn": "locks", "pipeline": [] };
        database.run_command(view).await.unwrap();
    }
}

/// Connects a store. A machine that stands still for longer than an attempt may last is no reason to give up.
pub(crate) async fn connected(uri: impl AsRef<str>, options: MongoOptions) -> MongoStore {
    within("the store has its server", async {
        loop {
            match MongoStore::connect(uri.as_ref(), options.clone()).await {
                Err(error) if error.is_retryable() => {}
                attempt => return attempt.unwrap(),
            }
        }
    })
    .await
}

/// Prepares a store on a client of the program's own: it tries again where an attempt's limit passed.
pub(crate) async fn lent(client: &mongodb::Client, options: MongoOptions) -> MongoStore {
    until("the store is prepared", async || match MongoStore::with_client(client, options.clone()).await {
        Err(error) if error.is_retryable() => Err(error),
        attempt => Ok(attempt.unwrap()),
    })
    .await
}

/// Connects a store, and returns the log of the attempt that came through.
async fn connected_and_logged(uri: impl AsRef<str>, options: MongoOptions) -> (MongoStore, Log) {
    within("the store has its server", async {
        loop {
            let (log, _here) = Log::start();
            match MongoStore::connect(uri.as_ref(), options.clone()).await {
                Err(error) if error.is_retryable() => {}
                attempt => return (attempt.unwrap(), log),
            }
        }
    })
    .await
}

/// The error of a store that cannot be connected whoever tries again. One that may pass says nothing of that.
async fn refused_for_good(uri: &str, options: MongoOptions) -> ConnectError {
    until("the store is refused", async || match MongoStore::connect(uri, options.clone()).await {
        Err(error) if !error.is_retryable() => Ok(error),
        other => Err(other),
    })
    .await
}

/// A store in a database of its own, and the raw collections under it.
struct Place {
    store: MongoStore,
    database: mongodb::Database,
}

impl Place {
    async fn on(uri: &str) -> Self {
        Self::with(uri, MongoOptions::new()).await
    }

    async fn with(uri: &str, options: MongoOptions) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{}-{number}", std::process::id());
        let store = connected(uri, options.database(&name)).await;
        let client = mongodb::Client::with_uri_str(uri).await.expect("the script prints a valid URI");
        Self { store, database: client.database(&name) }
    }

    fn fixture(&self) -> Fixture {
        Fixture::new(Arc::new(self.store.clone()) as Arc<dyn Store>)
    }

    /// Reading of the server's clock, in milliseconds since 1970.
    async fn server_time(&self) -> i64 {
        let hello = self.database.run_command(doc! { "hello": 1 }).await.expect("the server is up");
        hello.get_datetime("localTime").expect("a hello tells the time").timestamp_millis()
    }

    fn collection(&self, name: &str) -> mongodb::Collection<Document> {
        self.database.collection(name)
    }
}
