//! Locks that are compared, behind one trait.

mod etcd;
mod floor;
mod insert;
mod mongo_lock;
mod redis;
mod shedlock;
mod tenure;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use mongodb::{
    Client, Collection,
    bson::{DateTime, Document},
    options::{ClientOptions, ReadConcern, WriteConcern},
};
use tokio::time::sleep;

/// Pause of waiters that poll.
pub(crate) const POLL: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    Floor,
    Tenure,
    MongoLock,
    Insert,
    ShedLock,
    Etcd,
    Redis,
}

/// Way of a peer to keep what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// The instance does so by itself, for all its keys at once.
    Itself,
    /// A write for each key, which the run sends three times a ttl.
    EachKey,
    /// Not at all: its lease ends a ttl after the take.
    Never,
}

impl Peer {
    pub(crate) const ALL: [Self; 7] =
        [Self::Floor, Self::Tenure, Self::MongoLock, Self::Insert, Self::ShedLock, Self::Etcd, Self::Redis];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Tenure => "tenure",
            Self::MongoLock => "mongo-lock-async",
            Self::Insert => "query-insert-delete",
            Self::ShedLock => "lockUntil",
            Self::Etcd => "etcd",
            Self::Redis => "Redis",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|peer| peer.name() == name)
    }

    pub(crate) fn keeps(self) -> Keeps {
        match self {
            Self::Tenure | Self::Etcd => Keeps::Itself,
            Self::Insert | Self::ShedLock | Self::Redis => Keeps::EachKey,
            Self::Floor | Self::MongoLock => Keeps::Never,
        }
    }

    /// Starts an instance, with connections of its own.
    pub(crate) async fn start(self, uri: &str, ttl: Duration, name: &str) -> Arc<dyn Instance> {
        match self {
            Self::Floor => Arc::new(floor::Floor::start(uri).await),
            Self::Tenure => Arc::new(tenure::Tenure::start(uri, ttl, name).await),
            Self::MongoLock => Arc::new(mongo_lock::MongoLock::start(uri, ttl).await),
            Self::Insert => Arc::new(insert::Insert::start(uri, ttl).await),
            Self::ShedLock => Arc::new(shedlock::ShedLock::start(uri, ttl, name).await),
            Self::Etcd => Arc::new(etcd::Etcd::start(uri, ttl).await),
            Self::Redis => Arc::new(redis::Redis::start(uri, ttl, name).await),
        }
    }
}

/// A key that is held, in the words of its peer.
pub(crate) enum Held {
    Guard(::tenure::Guard),
    MongoLock(mongo_lock_async::Lock),
    /// Key, and what shows whose it is.
    Token(String, String),
    /// Key of etcd, as `Lock` answered it.
    Locked(Vec<u8>),
}

/// An instance of a peer: a process of a service, as far as its servers see.
pub(crate) trait Instance: Send + Sync {
    fn try_take<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Option<Held>>;

    /// Waits for the key: a peer without a way to wait polls.
    fn take<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Held> {
        Box::pin(async move {
            loop {
                if let Some(held) = self.try_take(key).await {
                    return held;
                }
                sleep(POLL).await;
            }
        })
    }

    fn give(&self, held: Held) -> BoxFuture<'_, ()>;

    /// A single renewal, for those that renew each key. An error is passed over: the caller goes on trying.
    fn renew<'a>(&'a self, _: &'a Held) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn close(&self) -> BoxFuture<'_, ()>;
}

/// A client as the driver makes it, but with connections for 64 tasks.
async fn client(uri: &str, retries: Option<bool>) -> Client {
    let mut options = ClientOptions::parse(uri).await.expect("the URI is valid");
    options.max_pool_size = Some(64);
    options.retry_writes = retries;
    options.write_concern = Some(WriteConcern::majority());
    options.read_concern = Some(ReadConcern::majority());
    Client::with_options(options).expect("these options are valid")
}

fn collection(client: &Client, name: &str) -> Collection<Document> {
    client.database("peers").collection(name)
}

/// Clients that time leases by their wall clock.
fn from_now(time: Duration) -> DateTime {
    let millis = i64::try_from(time.as_millis()).expect("a ttl of seconds");
    DateTime::from_millis(DateTime::now().timestamp_millis() + millis)
}
