//! Runs commands: within a limit, on a task of their own, and with every outcome classified (R8).

use std::{cell::Cell, fmt, future::Future, time::Duration};

use bson::{Bson, Document, Timestamp};
use futures::TryStreamExt;
use mongodb::Database;
use tokio::runtime::Handle;

use super::{
    codes,
    error::{CommandFailure, CommandResult},
    messages,
};
use crate::{error::StoreError, store::Refusal};

/// The server's reply was not what the command promises.
fn unexpected(field: &str) -> CommandFailure {
    CommandFailure::unknown(format!("the server's reply has no readable `{field}`"))
}

/// The limit passed before the answer came.
fn no_answer(limit: Duration) -> CommandFailure {
    CommandFailure::unknown(format!("no answer within {limit:?}"))
}

/// The server says that something went wrong with a write that it may have applied.
#[derive(Debug)]
pub(crate) struct ServerSays(String);

impl fmt::Display for ServerSays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServerSays {}

tokio::task_local! {
    /// True once a command of the operation under way has changed something. Then a failure of a later
    /// one leaves the outcome of the whole unknown, even if that one changed nothing.
    static CHANGED: Cell<bool>;
    /// The latest time at which a command of the operation under way was carried out, by the clock that the members
    /// of a replica set share. Other readers of what a majority has had since then see what it has changed.
    static CARRIED_OUT: Cell<Option<Timestamp>>;
}

/// Returns the time at which the operation under way was carried out, as far as it was answered. A standalone server
/// has no such time.
pub(crate) fn carried_out() -> Option<Timestamp> {
    CARRIED_OUT.try_with(Cell::get).ok().flatten()
}

/// Returns whether the operation under way has changed something.
pub(crate) fn has_changed() -> bool {
    CHANGED.try_with(Cell::get).unwrap_or(false)
}

fn note_time(reply: &Document) {
    let Ok(at) = reply.get_timestamp("operationTime") else { return };
    // Outside of an operation there is no caller to tell.
    let _ = CARRIED_OUT.try_with(|latest| latest.set(latest.get().max(Some(at))));
}

/// Runs `work` on a task of its own and waits for it no longer than `limit`.
///
/// The task goes on after the limit: a driver call that is dropped half-way costs its connection,
/// and its outcome is as unknown as that of one left alone. It does not go on for ever: the server
/// gives up after the limit, and again that long for its write concern. What has no answer by then
/// was lost on the way, and a call that waits for it would keep its connection from the others.
pub(crate) async fn within<T: Send + 'static>(
    limit: Duration,
    doing: &'static str,
    work: impl Future<Output = CommandResult<T>> + Send + 'static,
) -> Result<T, StoreError> {
    within_on(&Handle::current(), limit, doing, work).await
}

/// Does so on this runtime. A connection is driven by the runtime on which it was opened, and others use it later.
pub(crate) async fn within_on<T: Send + 'static>(
    runtime: &Handle,
    limit: Duration,
    doing: &'static str,
    work: impl Future<Output = CommandResult<T>> + Send + 'static,
) -> Result<T, StoreError> {
    let task = runtime.spawn(in_scope(async move {
        let lost = |_| Err(no_answer(limit));
        let outcome = tokio::time::timeout(limit.saturating_mul(2), work).await.unwrap_or_else(lost);
        outcome.map_err(|failure| if has_changed() { failure.half_way() } else { failure })
    }));
    let outcome = match tokio::time::timeout(limit, task).await {
        Ok(Ok(outcome)) => outcome,
        // The task panicked, or the runtime is shutting down.
        Ok(Err(lost)) => Err(CommandFailure::unknown(lost)),
        Err(_) => Err(no_answer(limit)),
    };
    outcome.map_err(|failure| failure.named(doing))
}

async fn in_scope<T>(work: impl Future<Output = T>) -> T {
    CHANGED.scope(Cell::new(false), CARRIED_OUT.scope(Cell::new(None), work)).await
}

/// Runs one command. A write concern that was not met makes the outcome unknown: the write is
/// there, and may stay or be rolled back.
pub(crate) async fn run(database: &Database, command: Document) -> CommandResult<Document> {
    let reply = database.run_command(command).await?;
    note_time(&reply);
    match reply.get("writeConcernError") {
        None => Ok(reply),
        Some(error) => {
            let says = error.as_document().map_or_else(|| error.to_string(), messages::of_reply);
            Err(CommandFailure::unknown(ServerSays(format!("write concern not met: {says}"))))
        }
    }
}

/// Runs a `findAndModify` and returns the document as it is afterwards, if there is one.
pub(crate) async fn modify(database: &Database, command: Document) -> CommandResult<Option<Document>> {
    let mut reply = run(database, command).await?;
    match reply.remove("value") {
        Some(Bson::Document(document)) => Ok(Some(document)),
        Some(Bson::Null) | None => Ok(None),
        Some(_) => Err(unexpected("value")),
    }
}

/// The results of the statements of a batch.
pub(crate) struct WriteReply {
    /// The number that matched a document or inserted one.
    pub(crate) matched: u64,
    /// The number that changed a document that was there.
    pub(crate) modified: u64,
    /// The statements that inserted a document, by their place in the batch.
    pub(crate) inserted: Vec<usize>,
    /// The statements the server refused, by their place in the batch.
    pub(crate) refused: Vec<(usize, Refusal)>,
}

/// Runs an `update` or `delete` command of many statements.
pub(crate) async fn write(database: &Database, command: Document) -> CommandResult<WriteReply> {
    let reply = run(database, command).await?;
    if count(reply.get("n")).is_some_and(|matched| matched > 0) {
        // Outside of an operation there is no caller to tell.
        let _ = CHANGED.try_with(|changed| changed.set(true));
    }
    written(&reply)
}

/// Reads the results of the statements from the server's reply.
fn written(reply: &Document) -> CommandResult<WriteReply> {
    let matched = count(reply.get("n")).ok_or_else(|| unexpected("n"))?;
    let modified = count(reply.get("nModified")).unwrap_or_default();
    let inserted = reply.get_array("upserted").into_iter().flatten();
    let inserted =
        inserted.filter_map(|one| usize::try_from(count(one.as_document()?.get("index"))?).ok()).collect();
    let mut refused = Vec::new();
    for error in reply.get_array("writeErrors").into_iter().flatten() {
        let error = error.as_document().ok_or_else(|| unexpected("writeErrors"))?;
        let place = count(error.get("index")).and_then(|index| usize::try_from(index).ok());
        let place = place.ok_or_else(|| unexpected("writeErrors.index"))?;
        let code = error.get_i32("code").unwrap_or_default();
        if code == codes::DUPLICATE_KEY {
            // Two inserted the same document at once. This one did nothing, and would find it now.
            continue;
        }
        if !codes::is_of_the_document(code) {
            let says = format!("a statement failed: {}", messages::of_reply(error));
            return Err(CommandFailure::unknown(ServerSays(says)));
        }
        let problem = format!("was refused by the server: {}", messages::of_reply(error));
        refused.push((place, Refusal::Damaged { field: "_id".to_owned(), problem }));
    }
    Ok(WriteReply { matched, modified, inserted, refused })
}

fn count(number: Option<&Bson>) -> Option<u64> {
    match number? {
        Bson::Int32(number) => u64::try_from(*number).ok(),
        Bson::Int64(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// Runs a `distinct`.
pub(crate) async fn distinct(database: &Database, command: Document) -> CommandResult<Vec<Bson>> {
    match run(database, command).await?.remove("values") {
        Some(Bson::Array(values)) => Ok(values),
        _ => Err(unexpected("values")),
    }
}

/// Runs a `find` or an `aggregate` to its end. A reply larger than 16 MiB comes in several batches, each of
/// which has to be asked for under the session that asked for the first: the driver's cursor sees to that.
pub(crate) async fn find(database: &Database, command: Document) -> CommandResult<Vec<Document>> {
    Ok(database.run_cursor_command(command).await?.try_collect().await?)
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::error::Applied;

    fn reply(code: i32) -> Document {
        let error = doc! { "index": 1, "code": code, "errmsg": "no" };
        doc! { "ok": 1.0, "n": 1, "nModified": 1, "writeErrors": [error] }
    }

    #[test]
    fn an_error_about_a_document_is_of_its_statement_alone() {
        for code in [2, 121, 159, 10_334, 17_419] {
            let written = written(&reply(code)).unwrap();
            assert_eq!((written.matched, written.refused.len()), (1, 1), "{code}");
            let (place, refusal) = &written.refused[0];
            let words = refusal.to_string();
            assert!(*place == 1 && words.contains(&format!("({code}): no")), "{words}");
        }
    }

    #[test]
    fn an_error_about_the_server_leaves_the_outcome_unknown() {
        // LockTimeout, MaxTimeMSExpired, WriteConflict, ExceededTimeLimit, TemporarilyUnavailable,
        // Interrupted, OutOfDiskSpace, and one that is not known yet.
        for code in [24, 50, 112, 262, 365, 11_601, 14_031, 999] {
            let failure = written(&reply(code)).err().expect("an error of the server");
            let error = failure.named("take locks");
            assert!(error.is_retryable(), "{code}");
            assert_eq!(error.applied(), Applied::Unknown, "{code}");
        }
    }

    #[test]
    fn two_that_insert_the_same_document_are_no_error() {
        assert!(written(&reply(codes::DUPLICATE_KEY)).unwrap().refused.is_empty());
    }
}
