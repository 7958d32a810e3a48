//! The commands that are sent, as documents: pure functions from what is wanted to the command that
//! does it.

use std::time::Duration;

use bson::{Bson, Document, Timestamp, doc};

use super::fields::long;

/// The place where the server keeps a write before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptRecords {
    /// On a majority of the members, in their journals: no failure can undo it (R11).
    Majority,
    /// On the primary alone. Only for what decides nothing.
    Primary,
}

/// A statement of an `update` command.
pub(crate) struct Statement {
    pub(crate) filter: Document,
    /// Operators, whose values are taken as they are; or a pipeline, in which they are evaluated.
    pub(crate) update: Bson,
    pub(crate) upsert: bool,
    /// Every document that matches, not the first: for filters of many ids.
    pub(crate) multi: bool,
}

impl Statement {
    pub(crate) fn plain(filter: Document, operators: Document) -> Self {
        Self { filter, update: operators.into(), upsert: false, multi: false }
    }

    pub(crate) fn pipeline(filter: Document, stages: Vec<Document>) -> Self {
        Self { filter, update: stages.into(), upsert: false, multi: false }
    }

    pub(crate) fn or_insert(self) -> Self {
        Self { upsert: true, ..self }
    }
}

fn concern(kept: KeptRecords, limit: Duration) -> Document {
    match kept {
        KeptRecords::Majority => doc! { "w": "majority", "j": true, "wtimeout": server_limit(limit) },
        KeptRecords::Primary => doc! { "w": 1 },
    }
}

/// The server's limit in milliseconds. Zero would mean none at all.
fn server_limit(limit: Duration) -> i64 {
    i64::try_from(limit.as_millis()).unwrap_or(i64::MAX).clamp(1, i64::from(i32::MAX))
}

/// A `findAndModify` by `_id` that answers with the document as it is afterwards.
pub(crate) fn modify(collection: &str, statement: Statement, limit: Duration) -> Document {
    doc! {
        "findAndModify": collection,
        "query": statement.filter,
        "update": statement.update,
        "upsert": statement.upsert,
        "new": true,
        "writeConcern": concern(KeptRecords::Majority, limit),
        "maxTimeMS": server_limit(limit),
    }
}

/// Many statements in one command, each of them on its own.
pub(crate) fn update(
    collection: &str,
    statements: Vec<Statement>,
    kept: KeptRecords,
    limit: Duration,
) -> Document {
    let updates: Vec<_> = statements
        .into_iter()
        .map(|Statement { filter, update, upsert, multi }| {
            Bson::Document(doc! { "q": filter, "u": update, "upsert": upsert, "multi": multi })
        })
        .collect();
    doc! {
        "update": collection,
        "updates": updates,
        "ordered": false,
        "writeConcern": concern(kept, limit),
        "maxTimeMS": server_limit(limit),
    }
}

/// Deletes whatever each filter matches.
pub(crate) fn delete(
    collection: &str,
    filters: Vec<Document>,
    kept: KeptRecords,
    limit: Duration,
) -> Document {
    let deletes: Vec<_> =
        filters.into_iter().map(|filter| Bson::Document(doc! { "q": filter, "limit": 0 })).collect();
    doc! {
        "delete": collection,
        "deletes": deletes,
        "ordered": false,
        "writeConcern": concern(kept, limit),
        "maxTimeMS": server_limit(limit),
    }
}

/// A read: its filter, order and limits.
#[derive(Default)]
pub(crate) struct Find {
    pub(crate) filter: Document,
    pub(crate) sort: Option<Document>,
    pub(crate) projection: Option<Document>,
    pub(crate) skip: usize,
    pub(crate) at_most: Option<usize>,
    /// Read what the primary has now, though a failure may undo it: for what decides nothing.
    pub(crate) local: bool,
}

pub(crate) fn find(collection: &str, find: Find, limit: Duration) -> Document {
    let mut command = doc! { "find": collection, "filter": find.filter };
    if let Some(sort) = find.sort {
        command.insert("sort", sort);
    }
    if let Some(projection) = find.projection {
        command.insert("projection", projection);
    }
    if find.skip > 0 {
        command.insert("skip", long(find.skip as u64));
    }
    if let Some(at_most) = find.at_most {
        command.insert("limit", long(at_most as u64));
    }
    // One batch, as far as the server's limit on a reply allows.
    command.insert("batchSize", i32::MAX);
    command.insert("readConcern", doc! { "level": if find.local { "local" } else { "majority" } });
    command.insert("maxTimeMS", server_limit(limit));
    command
}

/// The same read, of what a majority has had since that time. The server may wait for it no longer than `limit`.
pub(crate) fn since(mut read: Document, at: Timestamp, limit: Duration) -> Document {
    read.insert("readConcern", doc! { "level": "majority", "afterClusterTime": at });
    read.insert("maxTimeMS", server_limit(limit));
    read
}

/// A read in stages.
pub(crate) fn aggregate(collection: &str, pipeline: Vec<Document>, local: bool, limit: Duration) -> Document {
    doc! {
        "aggregate": collection,
        "pipeline": pipeline,
        "cursor": { "batchSize": i32::MAX },
        "readConcern": { "level": if local { "local" } else { "majority" } },
        "maxTimeMS": server_limit(limit),
    }
}

/// Reads locks by their ids, and the server's clock beside them, if the collection has any record: what a majority has,
/// or what the primary has now (`local`), though a failure may undo it. Needs no right but `find` on the collection.
pub(crate) fn locks_and_time(collection: &str, ids: Vec<Bson>, local: bool, limit: Duration) -> Document {
    let any = vec![doc! { "$limit": 1 }, doc! { "$project": { "_id": 0, "now": "$$NOW" } }];
    let clock = doc! { "$unionWith": { "coll": collection, "pipeline": any } };
    aggregate(collection, vec![doc! { "$match": by_ids(ids) }, clock], local, limit)
}

/// The values that a field has in what matches.
pub(crate) fn distinct(collection: &str, field: &str, filter: Document, limit: Duration) -> Document {
    doc! {
        "distinct": collection,
        "key": field,
        "query": filter,
        "readConcern": { "level": "majority" },
        "maxTimeMS": server_limit(limit),
    }
}

pub(crate) fn by_ids(ids: impl IntoIterator<Item = Bson>) -> Document {
    doc! { "_id": { "$in": ids.into_iter().collect::<Vec<_>>() } }
}
