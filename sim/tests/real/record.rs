//! Records of the store, as the harness reads them by a way of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mongodb::{
    Client,
    bson::{Document, doc},
    options::{ReadConcern, WriteConcern},
};
use tenure::{
    clock::Moment,
    model::{SessionId, Term},
};
use tenure_sim::number_of;
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

use crate::{
    audit::Audit,
    ledger::{self, Applied, MARKS},
    resource::{self, Resource},
    ticks::{Entry as Tick, PULSE},
};

/// Time allowed to the store for one question.
const QUESTION: Duration = Duration::from_secs(5);

/// A lock on record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock {
    pub(crate) term: Term,
    /// True if a session holds it that was not declared dead.
    pub(crate) is_held: bool,
    /// The session that has it, dead or alive.
    pub(crate) session: Option<SessionId>,
    /// True if it is kept closed, as a task is that died with several processes.
    pub(crate) rests: bool,
}

/// All locks, by their numbers.
pub(crate) type Locks = BTreeMap<usize, Lock>;

pub(crate) enum Record {
    Mongo { client: Client, database: String },
    File(Audit),
}

impl Record {
    /// Makes what the fleet works with beside its locks.
    pub(crate) async fn prepare(&self, locks: impl Iterator<Item = usize>) {
        if let Self::Mongo { client, database } = self {
            Resource::create(client, database, locks).await;
        }
    }

    /// Reads all that is committed from now on, and sends it with the moment it was read.
    pub(crate) async fn follow(&self, to: mpsc::UnboundedSender<(Moment, Applied)>) -> JoinHandle<()> {
        match self {
            Self::Mongo { client, database } => ledger::follow(client, database, to).await,
            Self::File(audit) => audit.follow(to),
        }
    }

    /// Writes a marker behind all that is committed. Returns whether it is there.
    pub(crate) async fn mark(&self, number: i64) -> bool {
        match self {
            Self::Mongo { client, database } => {
                let marks = client.database(database).collection::<Document>(MARKS);
                let mark = doc! { "_id": number };
                let options = WriteConcern::majority();
                let replaced =
                    marks.replace_one(mark.clone(), mark.clone()).upsert(true).write_concern(options);
                matches!(timeout(QUESTION, replaced).await, Ok(Ok(_)))
            }
            Self::File(audit) => {
                audit.mark(number);
                true
            }
        }
    }

    /// Returns `None` if the store does not answer.
    pub(crate) async fn locks(&self) -> Option<Locks> {
        match self {
            Self::Mongo { client, database } => {
                timeout(QUESTION, locks_of(client, database)).await.ok()?.ok()
            }
            Self::File(audit) => Some(audit.locks()),
        }
    }

    /// Keys of these that have a waiter in the queue. `None` if the store does not answer.
    pub(crate) async fn waited_for(&self, keys: &[usize]) -> Option<BTreeSet<usize>> {
        let all = match self {
            Self::Mongo { client, database } => {
                timeout(QUESTION, waited_for(client, database)).await.ok()?.ok()?
            }
            Self::File(audit) => audit.waited_for(),
        };
        Some(all.into_iter().filter(|key| keys.contains(key)).collect())
    }

    /// Returns whether the file can be written, or cannot for as long as a process stands still.
    pub(crate) fn is_writable(&self) -> bool {
        let Self::File(audit) = self else { panic!("nobody locks a whole set") };
        audit.is_writable()
    }

    /// The ledger of the schedule. `None` if the store does not answer.
    pub(crate) async fn ledger(&self) -> Option<Vec<Tick>> {
        match self {
            Self::Mongo { client, database } => {
                timeout(QUESTION, ledger_of(client, database)).await.ok()?.ok()
            }
            Self::File(audit) => Some(audit.ledger()),
        }
    }

    /// Drops a collection by hand.
    pub(crate) async fn drop_collection(&self, name: &str) {
        assert_ne!(name, resource::COLLECTION);
        let Self::Mongo { client, database } = self else { panic!("a file has no collections") };
        let collection = client.database(database).collection::<Document>(name);
        collection.drop().await.expect("the set is healthy");
    }

    /// Identity that tells a collection from the one that was there before it under the same name.
    pub(crate) async fn identity(&self, name: &str) -> Option<Vec<u8>> {
        use futures::TryStreamExt;

        let Self::Mongo { client, database } = self else { panic!("a file has no collections") };
        let found = client.database(database).list_collections().filter(doc! { "name": name }).await;
        let found: Vec<_> =
            found.expect("the set is healthy").try_collect().await.expect("the set is healthy");
        Some(found.first()?.info.uuid.as_ref()?.bytes.clone())
    }
}

/// As a majority has them.
async fn locks_of(client: &Client, database: &str) -> mongodb::error::Result<Locks> {
    use futures::TryStreamExt;

    let all = async |collection: &str, filter: Document| {
        let collection = client.database(database).collection::<Document>(collection);
        let found = collection.find(filter).read_concern(ReadConcern::majority()).await?;
        found.try_collect::<Vec<_>>().await
    };
    let (locks, alive) = (all("locks", doc! {}).await?, all("sessions", doc! { "death": null }).await?);
    let alive: BTreeSet<_> = alive.iter().filter_map(|session| session.get_str("_id").ok()).collect();
    let read = |lock: &Document| {
        let key = number_of(lock.get_document("_id").ok()?.get_str("key").ok()?)?;
        let term = Term::try_new(u64::try_from(lock.get_i64("term").ok()?).ok()?)?;
        let session = lock.get_str("session").ok();
        let is_held = session.is_some_and(|session| alive.contains(session));
        let session = session.and_then(|session| session.parse().ok());
        Some((key, Lock { term, is_held, session, rests: lock.get_datetime("not_before").is_ok() }))
    };
    Ok(locks.iter().filter_map(read).collect())
}

async fn waited_for(client: &Client, database: &str) -> mongodb::error::Result<Vec<usize>> {
    use futures::TryStreamExt;

    let waiters = client.database(database).collection::<Document>("waiters");
    let found: Vec<_> =
        waiters.find(doc! {}).read_concern(ReadConcern::majority()).await?.try_collect().await?;
    let key = |waiter: &Document| number_of(waiter.get_document("lock").ok()?.get_str("key").ok()?);
    Ok(found.iter().filter_map(key).collect())
}

/// As a majority has it.
async fn ledger_of(client: &Client, database: &str) -> mongodb::error::Result<Vec<Tick>> {
    use futures::TryStreamExt;

    let runs = client.database(database).collection::<Document>("runs");
    let found = runs.find(doc! { "_id.schedule": PULSE }).read_concern(ReadConcern::majority()).await?;
    let found: Vec<_> = found.try_collect().await?;
    Ok(found.iter().filter_map(Tick::read).collect())
}
