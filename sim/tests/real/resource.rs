//! Resource that the locks are for: one document a key, written behind the fence only.

use std::time::Duration;

use mongodb::{
    Client, ClientSession,
    bson::{Document, doc},
};
use tenure::{
    model::{LockId, Term},
    store::mongo::{Armed, Fence, MongoStore},
};
use tokio::time::timeout;

/// The collection in which they are.
pub(crate) const COLLECTION: &str = "resource";
/// For one transaction; a lease is shorter.
const LIMIT: Duration = Duration::from_secs(2);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Clone, Debug)]
pub(crate) struct Resource {
    client: Client,
    database: String,
}

impl Resource {
    pub(crate) async fn connect(uri: &str, database: &str) -> Self {
        let client = Client::with_uri_str(uri).await.expect("the URI is valid");
        Self { client, database: database.to_owned() }
    }

    /// Makes the documents of these keys.
    pub(crate) async fn create(client: &Client, database: &str, keys: impl Iterator<Item = usize>) {
        let documents = keys.map(|key| doc! { "_id": key as i64, "version": 0_i64, "term": 0_i64 });
        let collection = client.database(database).collection::<Document>(COLLECTION);
        collection.insert_many(documents).await.expect("the server is up");
    }

    /// The fence of a lock for that term; nothing, if the lock has a later one.
    pub(crate) async fn arm(&self, store: &MongoStore, lock: &LockId, term: Term) -> Result<Option<Fence>> {
        Ok(match store.arm(lock, term, LIMIT).await? {
            Armed::Yes(fence) => Some(fence),
            Armed::Late(_) => None,
        })
    }

    /// Reads a version and writes the next one, in a transaction behind the fence. Answers which one it
    /// wrote.
    pub(crate) async fn write(&self, fence: &Fence, key: usize) -> Result<u64> {
        timeout(LIMIT, async {
            let mut session = self.client.start_session().await?;
            session.start_transaction().await?;
            let wrote = self.pass_and_write(&mut session, fence, key).await;
            match wrote {
                Ok(version) => {
                    session.commit_transaction().await?;
                    Ok(version)
                }
                Err(error) => {
                    let _ = session.abort_transaction().await;
                    Err(error)
                }
            }
        })
        .await?
    }

    async fn pass_and_write(&self, session: &mut ClientSession, fence: &Fence, key: usize) -> Result<u64> {
        fence.pass(0, session).await?;
        let collection = self.client.database(&self.database).collection::<Document>(COLLECTION);
        let one = doc! { "_id": key as i64 };
        let found = collection.find_one(one.clone()).session(&mut *session).await?;
        let version = found.ok_or("the resource is gone")?.get_i64("version")? + 1;
        let term = i64::try_from(fence.term().get())?;
        let change = doc! { "$set": { "version": version, "term": term } };
        let changed = collection.update_one(one, change).session(&mut *session).await?;
        if changed.modified_count != 1 {
            return Err("nothing was written".into());
        }
        Ok(u64::try_from(version)?)
    }
}
