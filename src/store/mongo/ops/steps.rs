//! Execution of one method of the contract: within its limit, under a permit, over the client of the moment.

use std::{future::Future, sync::Arc, time::Duration};

use bson::{Bson, Document};

use crate::store::{
    Answer, Bell, Operation, Reply,
    mongo::{
        MongoStore,
        client::{
            codes,
            command::{carried_out, find, has_changed, modify, within_on},
            error::{CommandFailure, CommandResult},
        },
        documents::queries::{self, Find, Statement},
        hints::Ringer,
    },
    rings::Ringing,
};

/// Operations that keep a session alive: they wait behind nothing else.
const BEATS: [&str; 2] = [Operation::Open.doing(), Operation::Beat.doing()];

impl MongoStore {
    /// Performs an operation and rings the bells of it. No caller waits for them.
    pub(crate) fn ringing<F: Future<Output = CommandResult<Reply>> + Send + 'static>(
        &self,
        limit: Duration,
        operation: Operation,
        rung: Ringing,
        work: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Answer<'_, Reply> {
        let ringer = Arc::clone(&self.inner.ringer);
        let rung = rung.filter(|_| self.inner.has_bells);
        self.step(limit, operation.doing(), move |store| {
            let work = work(store);
            async move {
                let bells = PendingBells { ringer, rung };
                let outcome = work.await;
                bells.ring(&outcome);
                outcome
            }
        })
    }

    pub(crate) fn step<T: Send + 'static, F: Future<Output = CommandResult<T>> + Send + 'static>(
        &self,
        limit: Duration,
        doing: &'static str,
        work: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Answer<'_, T> {
        let of_beats = self.inner.beats.as_ref().filter(|_| BEATS.contains(&doing));
        let store = of_beats.unwrap_or(self).clone();
        let (connection, work) = (Arc::clone(&store.inner.connection), work(store));
        let runtime = connection.runtime();
        let operation = async move {
            let used = connection.current();
            // An operation that has not begun when the caller gives up never begins.
            let permits = if BEATS.contains(&doing) { &used.beats } else { &used.permits };
            let permit = tokio::time::timeout(limit, Arc::clone(permits).acquire_owned());
            let _permit =
                permit.await.map_err(CommandFailure::not_begun)?.map_err(CommandFailure::not_begun)?;
            connection.watched(&used, work).await
        };
        Box::pin(async move { within_on(&runtime, limit, doing, operation).await })
    }

    /// Rings bells of the operation under way.
    pub(crate) fn ring(&self, bells: Vec<Bell>) {
        if self.inner.has_bells {
            self.inner.ringer.ring(bells, carried_out());
        }
    }

    pub(crate) async fn modify(
        &self,
        collection: &str,
        statement: Statement,
        limit: Duration,
    ) -> CommandResult<Option<Document>> {
        modify(&self.database(), queries::modify(collection, statement, limit)).await
    }

    pub(crate) async fn find(
        &self,
        collection: &str,
        wanted: Find,
        limit: Duration,
    ) -> CommandResult<Vec<Document>> {
        let local = wanted.local;
        let command = queries::find(collection, wanted, limit);
        if local { find(&self.database(), command).await } else { self.read(command, limit).await }
    }

    /// Runs a `find` or an `aggregate` that reads what a majority has, and with it what bells have told of. If a majority
    /// does not have that within the limit, the read fails, and its caller asks again: an answer from before would leave
    /// it asleep, for the bell was heard.
    pub(crate) async fn read(&self, command: Document, limit: Duration) -> CommandResult<Vec<Document>> {
        let database = self.database();
        let Some(at) = self.inner.unseen.get() else { return find(&database, command).await };
        let outcome = find(&database, queries::since(command.clone(), at, limit)).await;
        // The server knows nothing of that time.
        let is_foreign = |failure: &CommandFailure| failure.code() == Some(codes::INVALID_OPTIONS);
        if outcome.as_ref().err().is_none_or(is_foreign) {
            self.inner.unseen.forget(at);
        }
        match outcome {
            Err(failure) if is_foreign(&failure) => find(&database, command).await,
            outcome => outcome,
        }
    }

    pub(crate) async fn find_by_id(
        &self,
        collection: &str,
        ids: impl IntoIterator<Item = Bson>,
        limit: Duration,
    ) -> CommandResult<Vec<Document>> {
        let ids: Vec<_> = ids.into_iter().collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.find(collection, Find { filter: queries::by_ids(ids), ..Find::default() }, limit).await
    }
}

/// The bells of an operation under way: they are rung also if no caller learns what became of it.
struct PendingBells {
    ringer: Arc<Ringer>,
    rung: Ringing,
}

impl PendingBells {
    fn ring(mut self, outcome: &CommandResult<Reply>) {
        match outcome {
            Ok(answer) => self.ring_for(Some(answer)),
            Err(failure) if failure.is_unknown() || has_changed() => self.ring_for(None),
            Err(_) => self.rung = None,
        }
    }

    fn ring_for(&mut self, answer: Option<&Reply>) {
        let bells = self.rung.take().map(|rung| rung(answer)).unwrap_or_default();
        if !bells.is_empty() {
            self.ringer.ring(bells, carried_out());
        }
    }
}

impl Drop for PendingBells {
    fn drop(&mut self) {
        self.ring_for(None);
    }
}

/// An upsert always leaves a document behind.
pub(crate) fn left(document: Option<Document>) -> CommandResult<Document> {
    document.ok_or_else(|| CommandFailure::unknown("an upsert answered without a document"))
}
