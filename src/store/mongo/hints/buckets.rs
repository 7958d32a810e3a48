//! The collections that bells are written to: which one is a topic's, and how they come to be.
//!
//! The collections are capped, so that they can be tailed and need no purge, and are made by the store that first
//! needs one. An empty one cannot be tailed: its cursor ends at once. So each begins with a *seed*, which concerns no
//! listener.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fmt::Write as _,
    sync::Mutex,
};

use bson::{Bson, Document, doc, oid::ObjectId};
use mongodb::{
    Database,
    error::{Error as DriverError, ErrorKind},
};

use crate::{
    model::Digest,
    store::{
        Topic,
        mongo::client::{
            codes::{self, COLLECTION_UUID_MISMATCH, NAMESPACE_EXISTS},
            command::run,
            error::{CommandFailure, CommandResult},
            messages,
            options::MongoOptions,
            rights,
        },
    },
    sync::locked,
};

/// The number of collections. A store that tails one is woken by the bells of all topics in it: with many, by few
/// others.
const BUCKETS: u8 = 64;
/// The size of each, in bytes: a bell is heard within a second, and this is a thousand of them.
const SIZE: i64 = 256 * 1024;
/// Enough for a server that works, and no more: a listener that waits for a bell polls.
const LIMIT_MS: i64 = 2000;

/// A collection of bells, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bucket(u8);

impl Bucket {
    /// The bucket of a topic: the same on every machine and in every version.
    pub(crate) fn of(topic: &Topic) -> Self {
        let mut hash = Digest::default();
        match topic {
            Topic::Session(session) => hash.write(session.to_string().as_bytes()),
            Topic::Spread(namespace, spread) => {
                hash.write(namespace.as_str().as_bytes());
                // The zero byte is in no name.
                hash.write(&[0]);
                hash.write(spread.as_str().as_bytes());
            }
        }
        Self(hash.mixed().to_be_bytes()[0] % BUCKETS)
    }

    /// Returns whether a listener to these topics hears of them here.
    pub(crate) fn concerns(self, topics: &BTreeSet<Topic>) -> bool {
        topics.iter().any(|topic| Self::of(topic) == self)
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..BUCKETS).map(Self)
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}", self.0)
    }
}

/// The collections of one store, and what is known of them.
pub(crate) struct Buckets {
    prefix: String,
    create: bool,
    read_only: bool,
    /// Collections that are known to be there and capped, by the server's own ids of them. An `insert` names that, for
    /// otherwise it would create a collection that is not capped where there is none.
    known: Mutex<BTreeMap<Bucket, Bson>>,
}

impl Buckets {
    /// The collections of a store with these options.
    pub(crate) fn new(options: &MongoOptions) -> Self {
        Self {
            prefix: options.prefix.clone(),
            create: options.creates(),
            read_only: options.read_only,
            known: Mutex::default(),
        }
    }

    pub(crate) fn name(&self, bucket: Bucket) -> String {
        format!("{}bells_{bucket}", self.prefix)
    }

    /// Forgets what was known of one: it is another one now, or gone. Returns whether it was known.
    pub(crate) fn forget(&self, bucket: Bucket) -> bool {
        locked(&self.known).remove(&bucket).is_some()
    }

    /// Sees to it that one is there and capped, and answers with the server's id of it.
    pub(crate) async fn ready(&self, database: &Database, bucket: Bucket) -> CommandResult<Bson> {
        if let Some(known) = locked(&self.known).get(&bucket) {
            return Ok(known.clone());
        }
        let name = self.name(bucket);
        // Missing, and then found, once more: others see to it at the same time.
        for _ in 0..2 {
            match found(database, &name).await? {
                Some(Found { uuid, is_capped: true }) => {
                    locked(&self.known).insert(bucket, uuid.clone());
                    return Ok(uuid);
                }
                None if self.read_only => {
                    return Err(CommandFailure::not_begun(format!("the collection {name} is not there yet")));
                }
                Some(Found { is_capped: false, .. }) => {
                    let problem = format!("the collection {name} is not capped: drop it");
                    return Err(CommandFailure::lasting(problem));
                }
                None if !self.create => {
                    let problem = format!("the collection {name} does not exist: apply index_script");
                    return Err(CommandFailure::lasting(problem));
                }
                None => match allowed(database, create(&name)).await {
                    Err(failure) if failure.code() != Some(NAMESPACE_EXISTS) => return Err(failure),
                    _ => {}
                },
            }
        }
        Err(CommandFailure::unknown(format!("the collection {name} is dropped again and again")))
    }

    /// Sees to it that one can be tailed.
    pub(crate) async fn seed(&self, database: &Database, bucket: Bucket) -> CommandResult<()> {
        // It is empty, gone, or not what it was.
        self.forget(bucket);
        if self.read_only {
            self.ready(database, bucket).await?;
            self.forget(bucket);
            let problem = format!("the collection {} is still empty", self.name(bucket));
            return Err(CommandFailure::not_begun(problem));
        }
        let inserted = self.insert(database, bucket, vec![seed()]).await;
        if inserted.is_err() {
            // It may be there, and is empty all the same.
            self.forget(bucket);
        }
        match inserted? {
            Inserted::All => Ok(()),
            Inserted::ElseWhere => Err(CommandFailure::unknown(format!(
                "the collection {} was dropped again",
                self.name(bucket)
            ))),
        }
    }

    /// Inserts these documents, which no caller waits for.
    pub(crate) async fn insert(
        &self,
        database: &Database,
        bucket: Bucket,
        documents: Vec<Document>,
    ) -> CommandResult<Inserted> {
        let uuid = self.ready(database, bucket).await?;
        let reply = allowed(database, on_this(insert(&self.name(bucket), documents), uuid)).await?;
        // All that fail do so for the same reason: the documents are tenure's own.
        let Some(error) = write_error(&reply) else { return Ok(Inserted::All) };
        match error.get_i32("code") {
            Ok(COLLECTION_UUID_MISMATCH) => {
                self.forget(bucket);
                Ok(Inserted::ElseWhere)
            }
            // By a validator, say.
            Ok(code) if codes::is_of_the_document(code) => {
                Err(CommandFailure::lasting(messages::of_reply(error)))
            }
            _ => Err(CommandFailure::unknown(messages::of_reply(error))),
        }
    }

    /// The lines of a script for the server's shell that create all of them, in the database `on` of the shell.
    pub(crate) fn script(&self, on: &str) -> String {
        let mut script = String::from("// the bells, through which instances wake each other\n");
        for bucket in Bucket::all() {
            let name = self.name(bucket);
            let _ = writeln!(
                script,
                "{on}.createCollection({name:?}, {{ capped: true, size: {SIZE} }});\n\
                 {on}.getCollection({name:?}).insertOne({{ seed: true }});"
            );
        }
        script
    }
}

/// The outcome of an insert.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    All,
    /// No document: the collection is gone, or another one has its name. The next insert finds out.
    ElseWhere,
}

/// A collection that is there.
struct Found {
    uuid: Bson,
    is_capped: bool,
}

/// The collection of this name, if it is there.
async fn found(database: &Database, name: &str) -> CommandResult<Option<Found>> {
    let list = doc! {
        "listCollections": 1, "filter": { "name": name }, "cursor": {}, "maxTimeMS": LIMIT_MS,
    };
    let reply = allowed(database, list).await?;
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let Some(entry) = batch.into_iter().flatten().find_map(Bson::as_document) else { return Ok(None) };
    let uuid = entry.get_document("info").ok().and_then(|info| info.get("uuid")).cloned();
    let uuid = uuid.ok_or_else(|| CommandFailure::lasting("the server has no ids of collections"))?;
    let capped = entry.get_document("options").ok().and_then(|options| options.get_bool("capped").ok());
    Ok(Some(Found { uuid, is_capped: capped == Some(true) }))
}

fn create(name: &str) -> Document {
    doc! {
        "create": name, "capped": true, "size": SIZE, "writeConcern": { "w": 1 }, "maxTimeMS": LIMIT_MS,
    }
}

/// A majority has the change that a bell tells of once it is in the journals. The bell comes after it in the oplog and
/// asks for that now: on one node its listener would wait for the journal's next tick, up to 100 ms.
fn insert(name: &str, documents: Vec<Document>) -> Document {
    doc! {
        "insert": name,
        "documents": documents,
        "ordered": false,
        "writeConcern": { "w": 1, "j": true },
        "maxTimeMS": LIMIT_MS,
    }
}

/// The command for the collection with this id alone: never for another one of its name, or none.
fn on_this(command: Document, uuid: Bson) -> Document {
    let mut command = command;
    command.insert("collectionUUID", uuid);
    command
}

/// The first error of a write's statements, if the server has carried out the command.
fn write_error(reply: &Document) -> Option<&Document> {
    reply.get_array("writeErrors").ok()?.first()?.as_document()
}

/// A document that concerns no listener.
pub(crate) fn seed() -> Document {
    doc! { "_id": ObjectId::new(), "seed": true }
}

/// Runs a command. One that this user may not is named by its right.
async fn allowed(database: &Database, command: Document) -> CommandResult<Document> {
    let right = right(database, &command);
    match run(database, command).await {
        Err(failure) => Err(named(failure, database, &right).await),
        answer => answer,
    }
}

/// The right that a command needs, and on what.
pub(crate) fn right(database: &Database, command: &Document) -> String {
    let (name, on) = command.iter().next().map_or(("", None), |(name, on)| (name.as_str(), on.as_str()));
    let action = match name {
        // Of what is capped.
        "create" => "insert, convertToCapped",
        other => other,
    };
    on.map_or_else(
        || format!("{action} on {}", database.name()),
        |on| format!("{action} on {}.{on}", database.name()),
    )
}

/// Names the right that is lacking, and the user who lacks it, if that is it.
pub(crate) async fn named(failure: CommandFailure, database: &Database, right: &str) -> CommandFailure {
    if failure.code() == Some(codes::UNAUTHORIZED) {
        failure.in_other_words(rights::may_not(rights::user(database).await.name().as_deref(), right))
    } else {
        failure
    }
}

/// Returns whether a cursor ended because its collection was dropped.
pub(crate) fn is_dropped(error: &DriverError) -> bool {
    matches!(
        &*error.kind,
        ErrorKind::Command(command)
            if command.code == codes::QUERY_PLAN_KILLED && command.message.contains("collection dropped")
    )
}

/// Returns whether a collection cannot be tailed, since it is not capped.
pub(crate) fn is_uncapped(error: &DriverError) -> bool {
    matches!(
        &*error.kind,
        ErrorKind::Command(command) if command.code == codes::BAD_VALUE && command.message.contains("tailable")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SessionId;

    fn spread(spread: &str) -> Topic {
        Topic::Spread("shop".parse().unwrap(), spread.parse().unwrap())
    }

    #[test]
    fn a_bell_is_in_the_journal_before_it_is_answered() {
        let concern = insert("bells_07", vec![seed()]).remove("writeConcern");
        assert_eq!(concern, Some(doc! { "w": 1, "j": true }.into()));
    }

    #[test]
    fn a_topic_has_the_same_bucket_in_every_version() {
        let topics = [spread("import"), spread("export"), Topic::Session(SessionId::from_u128(7))];
        assert_eq!(topics.map(|topic| Bucket::of(&topic).0), [0, 60, 57]);
    }

    #[test]
    fn topics_are_in_all_buckets() {
        let topics = (0..1000_u32).map(|number| spread(&format!("spread-{number}")));
        let sessions = (0..1000_u128).map(|id| Topic::Session(SessionId::from_u128(id)));
        for buckets in [
            topics.map(|topic| Bucket::of(&topic)).collect::<BTreeSet<_>>(),
            sessions.map(|topic| Bucket::of(&topic)).collect(),
        ] {
            assert!(buckets.into_iter().eq(Bucket::all()));
        }
    }

    #[test]
    fn names_follow_the_options() {
        let options = MongoOptions::new().prefix("t_");
        assert_eq!(Buckets::new(&options).name(Bucket(7)), "t_bells_07");
    }
}
