//! A deployment, a store on it, and plain clients for the floors.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use mongodb::{
    Client, Collection,
    bson::{Document, doc},
    options::{ClientOptions, ReturnDocument, WriteConcern},
};
use tenure::{
    Elect,
    model::{Holder, Key, Kind, LockId, Namespace, SessionId, Term},
    store::{
        About, Candidate, Nonce, Open, Release, ReleaseTo, StoreExt, Take, TakeAnswer, Ticket,
        mongo::{MongoOptions, MongoStore},
    },
};

use super::{
    instances::{config, start},
    measure::cpu,
    support::mongod::{Deployment, Options, Shape, Timing},
};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);
const DATABASE: &str = "figures";

pub(crate) struct World {
    deployment: Deployment,
    pub(crate) nodes: usize,
    pub(crate) store: MongoStore,
    /// A plain client, as the driver makes it, but for the pool.
    pub(crate) plain: Client,
    /// The same without its retries.
    pub(crate) no_retry: Client,
    drawn: AtomicU64,
}

impl World {
    pub(crate) async fn start(shape: Shape) -> Self {
        let options = Options { test_commands: false, timing: Timing::Default, ..Options::default() };
        let deployment = Deployment::start(shape, options).await;
        let plain = |retries| {
            let uri = deployment.uri().to_owned();
            async move {
                let mut options = ClientOptions::parse(uri).await.expect("the script prints a valid URI");
                options.max_pool_size = Some(64);
                options.retry_writes = retries;
                Client::with_options(options).expect("these options are valid")
            }
        };
        let store = MongoStore::connect(deployment.uri(), MongoOptions::new().database(DATABASE)).await;
        let nodes = deployment.nodes().len();
        let (plain, no_retry) = (plain(None).await, plain(Some(false)).await);
        Self { deployment, nodes, store: store.expect("the server is up"), plain, no_retry, drawn: 1.into() }
    }

    pub(crate) fn uri(&self) -> &str {
        self.deployment.uri()
    }

    pub(crate) fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// A store for engines, with connections of its own.
    pub(crate) async fn for_engine(&self) -> MongoStore {
        connect(self.uri(), MongoOptions::new()).await
    }

    pub(crate) async fn instance(&self, holder: &str) -> Elect {
        start(self.for_engine().await, config(holder)).await
    }

    pub(crate) fn cpu(&self) -> f64 {
        cpu(&self.pids())
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.deployment.nodes().iter().map(super::support::mongod::Node::pid).collect()
    }

    pub(crate) fn draw(&self) -> u64 {
        self.drawn.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn collection(client: &Client, name: &str) -> Collection<Document> {
        client.database(DATABASE).collection(name)
    }

    /// The entries of the oplog for a collection of the store.
    pub(crate) async fn oplog(&self, collection: &str) -> u64 {
        let oplog = self.plain.database("local").collection::<Document>("oplog.rs");
        let ours = doc! { "ns": format!("{DATABASE}.{collection}") };
        oplog.count_documents(ours).await.expect("the primary answers")
    }

    pub(crate) fn lock(key: &str) -> LockId {
        let namespace = Namespace::new("bench").expect("within the limits");
        LockId { namespace, kind: Kind::Lock, key: Key::new(key).expect("within the limits") }
    }

    pub(crate) async fn open(&self) -> SessionId {
        let namespace = Namespace::new("bench").expect("within the limits");
        let mut about = About::new(namespace, Holder::new("pod-1").expect("within the limits"));
        (about.host, about.pid) = ("host-1".to_owned(), std::process::id());
        (about.program, about.plan_version) = ("bench".to_owned(), 1);
        let (session, nonce) = (SessionId::from_u128(self.draw().into()), Nonce::new(self.draw()));
        let ttl = Duration::from_secs(30);
        let open = Open { session, nonce, about, ttl, shares: Vec::new(), drained: None };
        self.store.open(open, LIMIT).await.expect("the server answers");
        session
    }

    /// A take of a fresh ticket.
    pub(crate) fn ticket(&self, lock: LockId, session: SessionId) -> Take {
        let (ticket, ttl) = (Ticket::new(self.draw()), Duration::from_secs(30));
        let by = Candidate::new(session, ticket, ttl, Holder::new("pod-1").expect("within the limits"));
        Take { lock, by }
    }

    pub(crate) async fn take(&self, lock: &LockId, session: SessionId) -> Term {
        let take = self.ticket(lock.clone(), session);
        let answer = self.store.take(vec![take], Vec::new(), LIMIT).await.expect("the server answers");
        granted(&answer[0])
    }

    pub(crate) async fn take_all(&self, locks: &[LockId], session: SessionId) -> Vec<Term> {
        let takes = locks.iter().map(|lock| self.ticket(lock.clone(), session)).collect();
        let answers = self.store.take(takes, Vec::new(), LIMIT).await.expect("the server answers");
        answers.iter().map(granted).collect()
    }

    pub(crate) async fn release(&self, lock: &LockId, session: SessionId, term: Term) {
        self.store.release(vec![given_up(lock, session, term)], LIMIT).await.expect("the server answers");
    }
}

/// A store on the database of the engines.
pub(crate) async fn connect(uri: &str, options: MongoOptions) -> MongoStore {
    MongoStore::connect(uri, options.database("engines")).await.expect("the server is up")
}

pub(crate) fn granted(answer: &TakeAnswer) -> Term {
    answer.taken().unwrap_or_else(|| panic!("the lock is free, but the answer was {answer:?}")).term
}

pub(crate) fn given_up(lock: &LockId, session: SessionId, term: Term) -> Release {
    Release { lock: lock.clone(), session, term, note: None, then: ReleaseTo::Free }
}

/// A bare majority `findAndModify` of one document by its id. The document must be there.
pub(crate) async fn bare(collection: &Collection<Document>, key: &str) {
    let change = doc! { "$inc": { "n": 1_i64 }, "$set": { "by": "pod-1" } };
    let done = collection
        .find_one_and_update(doc! { "_id": key }, change)
        .return_document(ReturnDocument::After)
        .write_concern(WriteConcern::majority());
    done.await.expect("the server answers").expect("the document is there");
}

pub(crate) async fn insert(collection: &Collection<Document>, keys: impl IntoIterator<Item = String>) {
    let documents = keys.into_iter().map(|key| doc! { "_id": key, "n": 0_i64, "by": "nobody" });
    collection.insert_many(documents).await.expect("the server answers");
}
