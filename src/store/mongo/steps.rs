//! Execution of one method of the contract: within its limit, under a permit, over the client of the moment.

use std::{future::Future, sync::Arc, time::Duration};

use bson::{Bson, Document};

use super::{
    MongoStore,
    command::{find, modify, within},
    error::{CommandFailure, CommandResult},
    queries::{self, Find, Statement},
};
use crate::store::Answer;

impl MongoStore {
    pub(super) fn step<T: Send + 'static, F: Future<Output = CommandResult<T>> + Send + 'static>(
        &self,
        limit: Duration,
        doing: &'static str,
        work: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Answer<'_, T> {
        let (connection, work) = (Arc::clone(&self.inner.connection), work(self.clone()));
        Box::pin(within(limit, doing, async move {
            let used = connection.current();
            // What has not begun when the caller gives up never begins.
            let permit = tokio::time::timeout(limit, Arc::clone(&used.permits).acquire_owned());
            let _permit =
                permit.await.map_err(CommandFailure::not_begun)?.map_err(CommandFailure::not_begun)?;
            connection.watched(&used, work).await
        }))
    }

    pub(super) async fn modify(
        &self,
        collection: &str,
        statement: Statement,
        limit: Duration,
    ) -> CommandResult<Option<Document>> {
        modify(&self.database(), queries::modify(collection, statement, limit)).await
    }

    pub(super) async fn find(
        &self,
        collection: &str,
        wanted: Find,
        limit: Duration,
    ) -> CommandResult<Vec<Document>> {
        find(&self.database(), queries::find(collection, wanted, limit)).await
    }

    pub(super) async fn find_by_id(
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

/// An upsert always leaves a document behind.
pub(super) fn left(document: Option<Document>) -> CommandResult<Document> {
    document.ok_or_else(|| CommandFailure::unknown("an upsert answered without a document"))
}
