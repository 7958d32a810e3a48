//! The look around before a store is used: is this a server, are these collections, that keep what
//! tenure promises?

use std::time::Duration;

use bson::{Document, doc};
use mongodb::Database;
use tokio::time::timeout;

use super::{
    codes,
    command::run,
    error::{CommandResult, ConnectError, is_lasting},
    indexes,
    messages::message,
    options::Collections,
    rights,
};
use crate::{
    store::mongo::documents::fields::{LAYOUT, LEASE_LAYOUT},
    words,
};

/// Server 6.0, by the version of its wire protocol.
const OLDEST_WIRE: i32 = 17;
/// The number of records in which a start looks for those of an earlier layout: a few milliseconds of the server.
const OLDEST_RECORDS: i64 = 10_000;

/// Refuses what would break a promise, and warns of what may. Answers whether the server is a router of a sharded
/// cluster.
pub(crate) async fn look(
    database: &Database,
    names: &Collections,
    read_only: bool,
) -> CommandResult<Result<bool, ConnectError>> {
    let hello = run(database, doc! { "hello": 1 }).await?;
    if hello.get_i32("maxWireVersion").unwrap_or_default() < OLDEST_WIRE {
        let info = run(database, doc! { "buildInfo": 1 }).await?;
        let version = info.get_str("version").unwrap_or("unknown").to_owned();
        return Ok(Err(ConnectError::TooOld { version }));
    }
    let is_mongos = hello.get_str("msg").ok() == Some("isdbgrid");
    if !is_mongos && !hello.contains_key("setName") {
        words::warn!("the server is not a member of a replica set: its locks are lost if its disk is");
    }
    warn_of_few_voters(database, &hello);
    if let Err(unfit) = rights::check(database, names, read_only).await? {
        return Ok(Err(unfit));
    }
    if let Err(unfit) = rights::try_out(database, names, read_only).await? {
        return Ok(Err(unfit));
    }

    let ours = doc! { "listCollections": 1, "filter": { "name": { "$in": names.all() } }, "cursor": { "batchSize": 100 } };
    for found in batch(&run(database, ours).await?) {
        let name = found.get_str("name").unwrap_or_default();
        // The plain comparison of bytes is no collation at all; any other may take two keys for one.
        if found.get_document("options").is_ok_and(|options| options.contains_key("collation")) {
            return Ok(Err(ConnectError::Collation { collection: name.to_owned() }));
        }
        let layout = if name == names.locks || name == names.sessions { LEASE_LAYOUT } else { LAYOUT };
        if let Some(found) = earlier_layout(database, name, layout).await? {
            return Ok(Err(ConnectError::Layout { collection: name.to_owned(), found, reads: layout }));
        }
        let list = doc! { "listIndexes": name, "cursor": { "batchSize": 100 } };
        for index in batch(&run(database, list).await?) {
            if index.contains_key("expireAfterSeconds") {
                words::warn!(
                    collection = name,
                    index = index.get_str("name").unwrap_or_default(),
                    "a TTL index deletes records that are in use: drop it, tenure purges old records itself"
                );
            }
        }
    }
    Ok(Ok(is_mongos))
}

/// The layout of a record that an earlier version of tenure wrote, if there is one among the oldest: no start is to
/// read a whole ledger. Records behind them are refused one by one.
async fn earlier_layout(database: &Database, name: &str, layout: i64) -> CommandResult<Option<i64>> {
    let pipeline = vec![
        doc! { "$limit": OLDEST_RECORDS },
        doc! { "$match": { "v": { "$gte": 1, "$lt": layout } } },
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": 0, "v": { "$toLong": "$v" } } },
    ];
    let earlier =
        batch(&run(database, doc! { "aggregate": name, "pipeline": pipeline, "cursor": {} }).await?);
    Ok(earlier.first().and_then(|record| record.get_i64("v").ok()))
}

/// With two members that hold data, one that fails stops every majority write.
fn warn_of_few_voters(database: &Database, hello: &Document) {
    let arbiters = hello.get_array("arbiters").map_or(0, Vec::len);
    let hosts =
        hello.get_array("hosts").map_or(0, Vec::len) + hello.get_array("passives").map_or(0, Vec::len);
    if hosts == 2 {
        words::warn!(
            database = database.name(),
            arbiters,
            "the replica set has only two data-bearing members: if one fails, no lock can be acquired or kept"
        );
    }
}

fn batch(reply: &Document) -> Vec<Document> {
    let cursor = reply.get_document("cursor");
    let first = cursor.and_then(|cursor| cursor.get_array("firstBatch"));
    first.into_iter().flatten().filter_map(|entry| entry.as_document().cloned()).collect()
}

/// Creates again what was dropped while the store was in use, if that is the store's to do. Returns whether there is no
/// use in trying again soon; there is while the server drops the rest of a database, say.
pub(crate) async fn mend(database: &Database, names: &Collections, create: bool, limit: Duration) -> bool {
    if !create {
        words::warn!("a collection of tenure was dropped or renamed: recreate it");
        return true;
    }
    words::warn!("a collection of tenure was dropped or renamed, recreating it");
    let (lasting, problem) = match timeout(limit, self::create(database, names)).await {
        Ok(Ok(lacking)) if lacking.is_empty() => return true,
        Ok(Ok(lacking)) => (true, format!("may not createIndex on {}", lacking.join(", "))),
        Ok(Err(error)) => (is_lasting(&error), message(&error)),
        Err(_) => (false, format!("no answer within {limit:?}")),
    };
    words::warn!(error = problem, "could not recreate the collections");
    lasting
}

/// Creates what is missing of the collections and their indexes. Any number of times, by any number
/// of instances at once. Answers which indexes this user may not create.
pub(crate) async fn create(
    database: &Database,
    names: &Collections,
) -> Result<Vec<String>, mongodb::error::Error> {
    for command in indexes::create_collections(names) {
        match database.run_command(command).await {
            Err(error) if !is_existing(&error) => return Err(error),
            _ => {}
        }
    }
    rights::create_indexes(database, indexes::create_indexes(names)).await
}

fn is_existing(error: &mongodb::error::Error) -> bool {
    matches!(&*error.kind, mongodb::error::ErrorKind::Command(command) if command.code == codes::NAMESPACE_EXISTS)
}
