//! Preparation of a database that was restored from a backup, or moved to another deployment.

use std::time::Duration;

use bson::{Document, doc};

use crate::{
    error::{Applied, StoreError},
    model::MAX_NUMBER,
    store::{
        TERM_KEPT,
        mongo::{
            MongoStore,
            client::{
                command::{find, within, write},
                error::{CommandFailure, CommandResult, STORE},
            },
            documents::{
                fields::{LEASE_LAYOUT, long},
                queries::{self, Find, KeptRecords, Statement},
            },
        },
    },
};

/// Time for all records of a collection.
const ALL: Duration = Duration::from_secs(60);
const DOING: &str = "raise terms";

impl MongoStore {
    /// Raises the terms of all locks in a database that was restored from a backup or moved to another deployment, and
    /// answers with their number.
    ///
    /// Since the backup was made, larger terms may have been granted than it knows, and a resource that has seen them
    /// refuses smaller ones. After this the next terms of these locks are larger than any that were granted, as long
    /// as the server's clock was never further ahead than a day. All sessions of the backup are declared dead. A lock
    /// that the backup does not know begins at the server's clock, which must not be behind that of the former server.
    ///
    /// **Stop all instances first**, those of the former deployment, too: a job that was begun there does not know
    /// that its key may be granted here.
    ///
    /// # Errors
    /// [`StoreError`], also when a session of this database was renewed within its ttl: then nothing is changed.
    pub async fn raise_terms(&self) -> Result<u64, StoreError> {
        let store = self.clone();
        let beaten = within(ALL, DOING, async move { store.beaten().await }).await?;
        if let Some(holder) = beaten {
            let problem = format!("the session of {holder:?} is alive: stop all instances first");
            return Err(StoreError::new(STORE, DOING, Applied::No, false, problem));
        }
        let store = self.clone();
        within(ALL * 2, DOING, async move { store.raise().await }).await
    }

    /// The holder of a session that was renewed within its ttl.
    async fn beaten(&self) -> CommandResult<Option<String>> {
        let is_read =
            doc! { "$and": [{ "$isNumber": "$ttl" }, { "$eq": [{ "$type": "$beat_at" }, "date"] }] };
        let is_beaten = doc! { "$gt": [{ "$add": ["$beat_at", "$ttl"] }, "$$NOW"] };
        let filter = doc! { "death": null, "$expr": { "$cond": [is_read, is_beaten, false] } };
        let wanted = Find { filter, at_most: Some(1), ..Find::default() };
        let command = queries::find(&self.names().sessions, wanted, ALL);
        let found = find(&self.database(), command).await?;
        Ok(found.first().map(|session| session.get_str("holder").unwrap_or_default().to_owned()))
    }

    async fn raise(&self) -> CommandResult<u64> {
        let kept = i64::try_from(TERM_KEPT.as_millis()).unwrap_or(i64::MAX);
        let beyond = doc! { "$add": [{ "$toLong": "$$NOW" }, kept] };
        let raised = doc! { "$max": [{ "$add": ["$term", 1_i64] }, beyond] };
        let term = doc! { "$min": [raised, long(MAX_NUMBER)] };
        let locks =
            doc! { "v": LEASE_LAYOUT, "term": { "$type": "long", "$gte": 0, "$lte": long(MAX_NUMBER) } };
        let number = self.change_all(&self.names().locks, locks, doc! { "term": term }).await?;
        let death = doc! {
            "at": "$$NOW", "by": "raise_terms", "why": "the database was restored from a backup",
        };
        let alive = doc! { "v": LEASE_LAYOUT, "death": null };
        self.change_all(&self.names().sessions, alive, doc! { "death": death }).await?;
        Ok(number)
    }

    /// Sets fields in all records that match.
    async fn change_all(&self, collection: &str, filter: Document, set: Document) -> CommandResult<u64> {
        let statement = Statement { multi: true, ..Statement::pipeline(filter, vec![doc! { "$set": set }]) };
        let command = queries::update(collection, vec![statement], KeptRecords::Majority, ALL);
        let written = write(&self.database(), command).await?;
        match written.refused.into_iter().next() {
            Some((_, refusal)) => Err(CommandFailure::unknown(refusal.to_string())),
            None => Ok(written.modified),
        }
    }
}
