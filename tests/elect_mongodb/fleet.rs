//! Instances on a MongoDB, each over a store and a client of its own, and a look at their records.

use std::{
    fmt::Debug,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use mongodb::bson::{Document, doc};
use tenure::{
    Elect, ElectConfig, Error, Event, Lease, StoreError,
    elect::{Builder, Busy, EventStream, JobHandle, KeyRequest},
    model::{Key, Kind, LockId, SessionId},
    store::{
        LockRecord, SessionRecord, StoreExt,
        mongo::{MongoOptions, MongoStore},
    },
};
use tokio::sync::OnceCell;

use crate::{
    flaw::flaw,
    mongodb::connected,
    support::mongod::{Deployment, Options, Shape, Timing},
};

/// `LIMIT` bounds a call to a store, too.
pub(crate) use crate::support::{
    rounds::rounds,
    wait::{LIMIT, until, within},
};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The replica set of those who do not hurt it. Its elections take long, so that there are none when
/// the machine is busy.
pub(crate) async fn replica_set() -> &'static Deployment {
    static SHARED: OnceCell<Deployment> = OnceCell::const_new();
    SHARED.get_or_init(|| Deployment::start(Shape::ReplicaSet, calm())).await
}

pub(crate) fn calm() -> Options {
    Options { timing: Timing::Default, ..Options::default() }
}

/// For [`until`].
pub(crate) fn when<S: Debug>(is_so: bool, seen: S) -> Result<(), S> {
    if is_so { Ok(()) } else { Err(seen) }
}

/// With leases short enough to wait for their end, and long enough that one survives a machine that stands
/// still for three seconds.
pub(crate) fn quick(holder: &str) -> ElectConfig {
    config(holder).takeover_within(8 * SECOND)
}

/// With beats that come soon, and leases that end by themselves in no test.
pub(crate) fn steady(holder: &str) -> ElectConfig {
    config(holder).with_refresh_interval(SECOND / 2).with_stop_grace(SECOND / 2)
}

/// As it is by default.
pub(crate) fn config(holder: &str) -> ElectConfig {
    ElectConfig::new("test", holder).unwrap()
}

/// End of the time that a beat sent now is good for.
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
        connected(uri, MongoOptions::new().database(&self.name)).await
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

/// Asks until the store answers: it may be in the middle of whatever the test does to it.
async fn answered<T, F: Future<Output = Result<T, StoreError>>>(mut ask: impl FnMut() -> F) -> T {
    let look = async || match ask().await {
        Err(error) if error.is_retryable() => Err(error),
        answer => Ok(answer.unwrap()),
    };
    until("the store answers", look).await
}

/// Asks an instance until its store answers: each of its calls has a limit of seconds.
pub(crate) async fn asked<T>(mut ask: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let look = async || match ask().await {
        Err(error) if error.is_retryable() => Err(error),
        answer => Ok(answer.unwrap()),
    };
    until("the store answers the instance", look).await
}

/// Returns whether the store confirms a lease.
pub(crate) async fn holds(lease: &Lease) -> bool {
    asked(async || lease.check().await).await
}

/// The reason why a key is not to be had, which somebody else holds.
pub(crate) async fn busy(elect: &Elect, key: &str) -> Busy {
    asked(async || elect.key(key).try_acquire().await).await.busy().expect("somebody else holds it")
}

/// Runs a job under a free key.
pub(crate) async fn job<F>(
    key: impl Fn() -> KeyRequest,
    job: impl Fn(Lease) -> F + Clone + Send + 'static,
) -> JobHandle<(), String>
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    // A take that nobody waits for any more may hold the key for a moment.
    until("the job runs", async || match key().lock(job.clone()).await {
        Ok(locked) => locked.running().ok_or("busy".to_owned()),
        Err(error) if error.is_retryable() => Err(error.to_string()),
        Err(error) => panic!("{error:?}"),
    })
    .await
}

/// A job that returns when it is told to.
pub(crate) async fn obedient(lease: Lease) -> Result<(), String> {
    lease.cancelled().await;
    Ok(())
}

/// Waits until so many requests of an instance wait for a key.
pub(crate) async fn waits(elect: &Elect, many: usize) {
    until("it waits", async || {
        let health = elect.health();
        when(health.waiting == many, health)
    })
    .await;
}

/// Waits until nobody holds the key.
pub(crate) async fn free(store: &MongoStore, key: &str) {
    until("the key is free", async || {
        let record = record(store, key).await.expect("it was held");
        when(record.holding.is_none(), record)
    })
    .await;
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
    within(what, async {
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
