//! Instances on a MongoDB, each over a store and a client of its own, and a look at their records.

use std::{
    future::Future,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use mongodb::bson::{Document, doc};
use tenure::{
    Elect, ElectConfig, Event,
    elect::{Builder, EventStream},
    model::{Key, Kind, LockId, LockRecord, SessionId, SessionRecord},
    store::{
        Answer, Store,
        mongo::{MongoOptions, MongoStore},
    },
};
use tokio::sync::OnceCell;

use crate::{
    flaw::flaw,
    support::mongod::{Deployment, Options, Shape, Timing},
};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Longest time of one attempt at the store.
pub(crate) const ATTEMPT: Duration = Duration::from_millis(2500);
/// A poll begins after the check that allows it: so much later at the most, if its thread loses the
/// processor in between. The margin is there for that.
pub(crate) const PREEMPTED: Duration = Duration::from_millis(20);
/// For what happens much sooner, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The replica set of those who do not hurt it. Its elections take long, so that there are none when
/// the machine is busy.
pub(crate) async fn replica_set() -> &'static Deployment {
    static SHARED: OnceCell<Deployment> = OnceCell::const_new();
    SHARED.get_or_init(|| Deployment::start(Shape::ReplicaSet, calm())).await
}

pub(crate) fn calm() -> Options {
    Options { timing: Timing::Default, ..Options::default() }
}

/// Waits, but not for ever.
pub(crate) async fn bounded<T>(what: &str, wait: impl Future<Output = T>) -> T {
    within(PATIENCE, what, wait).await
}

pub(crate) async fn within<T>(time: Duration, what: &str, wait: impl Future<Output = T>) -> T {
    let Ok(done) = tokio::time::timeout(time, pin!(wait)).await else { panic!("{what} within {time:?}") };
    done
}

/// Until `condition` makes something of what it looks at. For what tells nobody when it changes.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut condition: impl FnMut() -> F,
) -> T {
    bounded(what, async {
        loop {
            if let Some(found) = condition().await {
                return found;
            }
            tokio::time::sleep(2 * MS).await;
        }
    })
    .await
}

/// 3 s for a takeover.
pub(crate) fn quick(holder: &str) -> ElectConfig {
    config(holder)
        .with_hold_duration(2 * SECOND)
        .with_refresh_interval(500 * MS)
        .with_refresh_duration(3 * SECOND)
}

/// As it is by default.
pub(crate) fn config(holder: &str) -> ElectConfig {
    ElectConfig::new("test", holder).unwrap()
}

/// Until when a beat that was sent now is good for.
pub(crate) fn validity(config: &ElectConfig) -> Duration {
    config.ttl().saturating_sub(config.margin())
}

pub(crate) fn lock(key: &str) -> LockId {
    LockId { namespace: "test".parse().unwrap(), kind: Kind::Lock, key: Key::new(key).unwrap() }
}

/// A database of its own on some MongoDB.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) uri: String,
    pub(crate) name: String,
    /// For setup and inspection.
    pub(crate) database: mongodb::Database,
}

impl Place {
    pub(crate) async fn on(uri: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("elect-{}-{number}", std::process::id());
        let client = mongodb::Client::with_uri_str(uri).await.expect("the script prints a valid URI");
        Self { uri: uri.to_owned(), database: client.database(&name), name }
    }

    pub(crate) async fn store(&self) -> MongoStore {
        self.store_over(&self.uri).await
    }

    /// A store in this database over another way to the server.
    pub(crate) async fn store_over(&self, uri: &str) -> MongoStore {
        MongoStore::connect(uri, MongoOptions::new().database(&self.name)).await.expect("the server is up")
    }

    pub(crate) async fn builder(&self, config: ElectConfig) -> Builder {
        self.builder_over(&self.uri, config).await
    }

    pub(crate) async fn builder_over(&self, uri: &str, config: ElectConfig) -> Builder {
        let builder = Elect::builder(self.store_over(uri).await, config);
        match flaw() {
            Some(flaw) => builder.flaw(flaw),
            None => builder,
        }
    }

    pub(crate) async fn instance(&self, config: ElectConfig) -> Elect {
        self.builder(config).await.start().await.expect("the server is up")
    }

    pub(crate) fn collection(&self, name: &str) -> mongodb::Collection<Document> {
        self.database.collection(name)
    }

    /// Removes one record by hand.
    pub(crate) async fn delete(&self, collection: &str, filter: Document) {
        let deleted = self.collection(collection).delete_one(filter).await.expect("the server is up");
        assert_eq!(deleted.deleted_count, 1, "there was such a record");
    }
}

pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Asks until the store answers: it may be in the middle of whatever the test does to it.
async fn answered<'a, T>(mut ask: impl FnMut() -> Answer<'a, T>) -> T {
    bounded("the store answers", async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
    })
    .await
}

pub(crate) async fn record(store: &MongoStore, key: &str) -> Option<LockRecord> {
    let seen = answered(|| store.locks(vec![lock(key)], LIMIT)).await;
    seen.into_iter().next().unwrap().found()
}

pub(crate) async fn session(store: &MongoStore, session: SessionId) -> Option<SessionRecord> {
    let seen = answered(|| store.observe(vec![session], LIMIT)).await;
    seen[0].record().cloned()
}

pub(crate) fn by_session(session: SessionId) -> Document {
    doc! { "_id": session.to_string() }
}

pub(crate) fn by_key(key: &str) -> Document {
    doc! { "_id.key": key }
}

/// The next event of which `wanted` makes something.
pub(crate) async fn event<T>(
    events: &mut EventStream,
    what: &str,
    mut wanted: impl FnMut(&Event) -> Option<T>,
) -> T {
    bounded(what, async {
        loop {
            let event = events.next().await.expect("the engine runs");
            if let Some(found) = wanted(&event) {
                return found;
            }
        }
    })
    .await
}

/// All events that have been told by now.
pub(crate) fn told(events: &mut EventStream) -> Vec<Event> {
    use futures::FutureExt;
    std::iter::from_fn(|| events.next().now_or_never().flatten()).collect()
}

/// Events that report the loss of a lease or of a session.
pub(crate) fn losses(events: &[Event]) -> Vec<&Event> {
    let bad = |event: &&Event| {
        matches!(
            event,
            Event::Lost { .. }
                | Event::SessionLost { .. }
                | Event::Overran { .. }
                | Event::Panicked { .. }
                | Event::Missed { .. }
        )
    };
    events.iter().filter(bad).collect()
}
