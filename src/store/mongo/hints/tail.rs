//! Tails: one for each bucket that has a listener.
//!
//! A bell wakes every tail of its bucket, and is sent to the listeners whose topics it names. A tail is opened anew
//! when a topic is added, on every error, and when there is another primary: a cursor stays open on the former one.

use std::{collections::BTreeSet, time::Duration};

use bson::{Document, RawBsonRef, Timestamp, doc};
use futures::StreamExt;
use mongodb::{
    Database,
    error::Error as DriverError,
    raw_batch_cursor::{RawBatch, RawBatchCursor},
};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    End, PATIENCE, Shared, Wanted,
    buckets::{Bucket, Buckets, is_dropped, is_uncapped, named, right},
    encoding,
};
use crate::store::{
    Bell, Topic,
    mongo::client::{
        error::{CommandFailure, CommandResult},
        renewal::{Current, Moves},
    },
};

/// An open cursor on a bucket, and the time of its opening.
type Opened = (RawBatchCursor, Option<Timestamp>);

/// Documents that a cursor has read at once.
struct Batch {
    /// The cursor; zero if it has ended.
    id: i64,
    documents: Vec<Document>,
    /// The time of the answer, by the clock that the members of a set share.
    at: Option<Timestamp>,
}

/// Opens a tail and passes on what it hears, until it ends. Calls `opened` whenever bells may have been missed before.
pub(crate) async fn follow(
    shared: &Shared,
    bucket: Bucket,
    wanted: &mut watch::Receiver<Wanted>,
    moves: &mut Moves,
    stop: &CancellationToken,
    mut opened: impl FnMut(&Shared),
) -> End {
    let tail = Tail { shared, bucket, used: moves.mark_unchanged(), stop };
    // A change rung before is found by a listener that looks now.
    let mut cursor = match tail.open(wanted).await {
        Ok(first) => first,
        Err(end) => return end,
    };
    opened(shared);
    let patience = shared.wait + PATIENCE;
    loop {
        let batch = tokio::select! {
            biased;
            () = stop.cancelled() => return End::Stopped,
            () = moves.moved() => return End::Moved,
            Ok(()) = wanted.changed() => {
                // The connection of the former one goes with it: the server does not break its wait off.
                cursor = match tail.open(wanted).await {
                    Ok(next) => next,
                    Err(end) => return end,
                };
                opened(shared);
                continue;
            }
            batch = timeout(patience, cursor.next()) => batch,
        };
        let batch = match batch {
            Ok(Some(Ok(batch))) => read(&batch),
            // Perhaps with the whole database.
            Ok(Some(Err(error))) if is_dropped(&error) => return End::Dropped,
            Ok(Some(Err(error))) => return tail.ended(error).await,
            Ok(None) => return End::silent("the server closed it"),
            Err(_) => return End::silent(format!("no answer within {patience:?}")),
        };
        let Some(batch) = batch else { return End::silent("the server's reply has no readable `cursor`") };
        tail.tell(&batch.documents);
    }
}

fn read(batch: &RawBatch) -> Option<Batch> {
    let reply = batch.as_raw_document();
    let id = reply.get_document("cursor").ok()?.get_i64("id").ok()?;
    // A document that cannot be read is no bell.
    let document = |entry: RawBsonRef<'_>| Document::try_from(entry.as_document()?).ok();
    let documents = batch.doc_slices().ok()?.into_iter().filter_map(|entry| document(entry.ok()?));
    Some(Batch { id, documents: documents.collect(), at: reply.get_timestamp("operationTime").ok() })
}

/// Opens a cursor for some topics, if there is a collection that has been seeded. Answers with the time of that, too: by
/// then all was carried out of which there are bells.
async fn try_open(
    database: &Database,
    collection: &str,
    topics: &BTreeSet<Topic>,
    wait: Duration,
) -> CommandResult<Option<Opened>> {
    let find = find(collection, topics);
    let right = right(database, &find);
    let cursor = match database.run_cursor_command(find).max_time(wait).batch().await {
        Err(error) if is_uncapped(&error) => return Ok(None),
        cursor => cursor,
    };
    let mut cursor = match cursor {
        Err(error) => return Err(named(error.into(), database, &right).await),
        Ok(cursor) => cursor,
    };
    // This one is there already.
    let first = cursor.next().await.transpose()?;
    let first = first.and_then(|first| read(&first)).filter(|batch| batch.id != 0);
    Ok(first.map(|batch| (cursor, batch.at)))
}

/// The same, and sees to it that there is one. `None` if there was one, and it is gone.
async fn open(
    buckets: &Buckets,
    database: &Database,
    bucket: Bucket,
    topics: &BTreeSet<Topic>,
    wait: Duration,
) -> CommandResult<Option<Opened>> {
    let collection = buckets.name(bucket);
    if let Some(opened) = try_open(database, &collection, topics, wait).await? {
        return Ok(Some(opened));
    }
    if buckets.forget(bucket) {
        return Ok(None);
    }
    buckets.seed(database, bucket).await?;
    let opened = try_open(database, &collection, topics, wait).await?;
    let opened = opened
        .ok_or_else(|| CommandFailure::unknown(format!("the collection {collection} cannot be tailed")));
    opened.map(Some)
}

/// The state that all cursors of one tail share.
struct Tail<'a> {
    shared: &'a Shared,
    bucket: Bucket,
    used: Current,
    stop: &'a CancellationToken,
}

impl Tail<'_> {
    /// Opens a cursor for the topics of now.
    async fn open(&self, wanted: &mut watch::Receiver<Wanted>) -> Result<RawBatchCursor, End> {
        let topics = wanted.borrow_and_update().topics.clone();
        let open = open(&self.shared.buckets, &self.used.database, self.bucket, &topics, self.shared.wait);
        let opened = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(End::Stopped),
            opened = timeout(PATIENCE, open) => opened,
        };
        let opened = opened.map_err(|_| End::silent("no answer when opening it"))?;
        let opened = opened.map_err(|failure| self.shared.failed(&self.used, failure))?;
        // Perhaps with the whole database.
        let (cursor, at) = opened.ok_or(End::Dropped)?;
        // A look now sees what was carried out by now.
        self.shared.unseen.note(at);
        Ok(cursor)
    }

    async fn ended(&self, error: DriverError) -> End {
        let database = &self.used.database;
        let right = format!("find on {}.{}", database.name(), self.shared.buckets.name(self.bucket));
        let failure = timeout(PATIENCE, named(error.into(), database, &right)).await;
        failure.map_or_else(
            |_| End::silent("the server refused it"),
            |failure| self.shared.failed(&self.used, failure),
        )
    }

    fn tell(&self, documents: &[Document]) {
        for bell in documents.iter().filter_map(encoding::read) {
            // First: a listener that is told looks at once.
            self.shared.unseen.note(bell.at);
            for news in bell.news {
                self.shared.board.rung(Bell { to: bell.to.clone(), news });
            }
        }
    }
}

fn find(collection: &str, topics: &BTreeSet<Topic>) -> Document {
    let topics: Vec<_> = topics.iter().map(encoding::topic).collect();
    doc! {
        "find": collection,
        "filter": { "to": { "$in": topics } },
        "tailable": true,
        "awaitData": true,
        // All that is there, so that what comes later is what came later.
        "batchSize": i32::MAX,
        "readConcern": { "level": "local" },
    }
}
