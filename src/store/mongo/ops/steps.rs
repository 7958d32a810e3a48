//! Execution of one method of the contract: within its limit, under a permit, over the client of the moment.

use std::{future::Future, sync::Arc, time::Duration};

use bson::{Bson, Document};

use crate::{
    clock::{Clock, SystemClock},
    store::{
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
    },
    words,
};

/// The longest that a read waits for what a bell tells of to reach a majority. It is there in milliseconds, within a
/// second where another primary was just elected, or the set has lost its majority.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

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

    /// Runs a `find` or an `aggregate` that reads what a majority has, and with it what bells have told of.
    pub(crate) async fn read(&self, command: Document, limit: Duration) -> CommandResult<Vec<Document>> {
        let (database, clock) = (self.database(), SystemClock::new());
        let Some(at) = self.inner.unseen.get() else { return find(&database, command).await };
        // The rest is for a plain read.
        let (begun, wait) = (clock.now(), LONGEST_WAIT.min(limit / 2));
        let outcome = find(&database, queries::since(command.clone(), at, wait)).await;
        match outcome {
            Err(failure) if is_too_early(&failure) => {
                words::debug!(
                    error = failure.into_words(),
                    "the change that a bell announced is not visible yet"
                );
            }
            Err(failure) => return Err(failure),
            Ok(found) => {
                self.inner.unseen.forget(at);
                return Ok(found);
            }
        }
        self.inner.unseen.forget(at);
        let rest = limit.saturating_sub(clock.now().since(begun));
        find(&database, queries::limited(command, rest)).await
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

/// A majority does not have it yet, or the server knows nothing of that time.
fn is_too_early(failure: &CommandFailure) -> bool {
    matches!(failure.code(), Some(codes::MAX_TIME_EXPIRED | codes::INVALID_OPTIONS))
}

/// An upsert always leaves a document behind.
pub(crate) fn left(document: Option<Document>) -> CommandResult<Document> {
    document.ok_or_else(|| CommandFailure::unknown("an upsert answered without a document"))
}
