//! Batches: how many keys go in one command, and how the answers find back to their keys.

use std::{collections::HashMap, future::Future};

use bson::Document;
use futures::{StreamExt, stream};

use crate::{
    model::LockId,
    store::mongo::{client::error::CommandResult, documents::fields::lock_id},
};

/// The most statements in one command: well below every limit of the server's, also with the
/// largest values in them.
pub(crate) const BATCH: usize = 1000;

/// The number of such commands that are under way at once: while the server works on one, the next is made ready.
const AT_ONCE: usize = 3;

/// Runs the parts of a large batch, a few at once, each to its end. If one of several fails, it is unknown what the
/// others did.
pub(crate) async fn side_by_side<T>(
    parts: Vec<impl Future<Output = CommandResult<Vec<T>>>>,
) -> CommandResult<Vec<T>> {
    let several = parts.len() > 1;
    let done: Vec<_> = stream::iter(parts).buffered(AT_ONCE).collect().await;
    let done: CommandResult<Vec<_>> = done.into_iter().collect();
    match done {
        Ok(parts) => Ok(parts.into_iter().flatten().collect()),
        Err(failure) if several => Err(failure.half_way()),
        Err(failure) => Err(failure),
    }
}

/// The records of a batch, by their ids.
pub(crate) fn by_key(found: Vec<Document>) -> HashMap<Vec<u8>, Document> {
    let key = |record: &Document| record.get_document("_id").ok()?.to_vec().ok();
    found.into_iter().filter_map(|record| Some((key(&record)?, record))).collect()
}

/// Finds the record of a lock in a batch that was read.
pub(crate) fn in_batch<'a>(found: &'a HashMap<Vec<u8>, Document>, lock: &LockId) -> Option<&'a Document> {
    found.get(&lock_id(lock).to_vec().ok()?)
}
