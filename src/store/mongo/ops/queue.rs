//! The queue before a lock: its waiters, their order, and the start of each wait. It decides nothing.

use std::{collections::BTreeSet, time::Duration};

use bson::{Bson, Document, doc};

use super::{
    batch::{BATCH, by_key},
    locks::is_unwanted,
};
use crate::{
    model::{LockId, SessionId},
    store::{
        Queue, Ticket, Wait, Waiter,
        mongo::{
            MongoStore,
            client::{
                command,
                error::{CommandFailure, CommandResult},
            },
            documents::{
                fields::{Fields, LAYOUT, LEASE_LAYOUT, Read, candidate, lock_id, long},
                pipeline::{changed_if, is_new, merged, overlaid},
                queries::{self, Find, KeptRecords, Statement, by_ids},
            },
        },
    },
};

pub(crate) async fn wait(store: MongoStore, waits: Vec<Wait>, limit: Duration) -> CommandResult<()> {
    let names = store.names();
    write(&store, &names.waiters, waits.iter().map(wait_statement).collect(), limit).await?;
    // Of tasks the members of their spread hear.
    let wanted: BTreeSet<_> =
        waits.iter().map(|wait| &wait.lock).filter(|lock| lock.kind.spread().is_none()).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let marks = wanted.into_iter().map(want_statement).collect();
    write(&store, &names.locks, marks, limit).await?;
    // The waiter looks next: a read of an earlier time would show neither its mark nor a release before that.
    store.inner.unseen.note(command::carried_out());
    Ok(())
}

/// Marks a lock that is held, after the place was written: the instance that releases it from then on reads the
/// queue.
pub(crate) fn want_statement(lock: &LockId) -> Statement {
    let held = doc! { "_id": lock_id(lock), "v": LEASE_LAYOUT, "session": { "$ne": null } };
    Statement::plain(merged([held, is_unwanted()]), doc! { "$set": { "wanted": true } })
}

pub(crate) fn wait_statement(wait: &Wait) -> Statement {
    let id = waiter_id(&wait.lock, wait.by.session, wait.by.ticket);
    let place = merged([doc! { "v": LAYOUT, "lock": lock_id(&wait.lock) }, candidate(&wait.by)]);
    Statement::pipeline(
        doc! { "_id": id.clone() },
        changed_if(is_new(id), overlaid(place, doc! { "since": "$$NOW" })),
    )
    .or_insert()
}

pub(crate) async fn stop_waiting(
    store: MongoStore,
    waits: Vec<(LockId, SessionId, Ticket)>,
    limit: Duration,
) -> CommandResult<()> {
    let (database, names) = store.place();
    if waits.is_empty() {
        return Ok(());
    }
    let places = waits.chunks(BATCH).map(at_places).collect();
    command::write(&database, queries::delete(&names.waiters, places, KeptRecords::Primary, limit))
        .await
        .map(drop)
}

pub(crate) fn at_places(waits: &[(LockId, SessionId, Ticket)]) -> Document {
    by_ids(waits.iter().map(|(lock, session, ticket)| waiter_id(lock, *session, *ticket).into()))
}

/// Writes that only the primary has to keep. Two that insert the same place meet as one.
async fn write(
    store: &MongoStore,
    collection: &str,
    statements: Vec<Statement>,
    limit: Duration,
) -> CommandResult<()> {
    let database = store.database();
    let mut statements = statements.into_iter().peekable();
    while statements.peek().is_some() {
        let batch = statements.by_ref().take(BATCH).collect();
        let written =
            command::write(&database, queries::update(collection, batch, KeptRecords::Primary, limit))
                .await?;
        if let Some((_, refusal)) = written.refused.first() {
            return Err(CommandFailure::unknown(refusal.to_string()));
        }
    }
    Ok(())
}

pub(crate) async fn waiters(
    store: MongoStore,
    lock: LockId,
    at_most: usize,
    limit: Duration,
) -> CommandResult<Queue> {
    let found = store.find(&store.names().waiters, first_waiters(&lock, at_most), limit).await?;
    let waiters = found.iter().filter_map(|waiter| read_waiter(waiter).ok()).collect();
    Ok(Queue { waiters, whole: found.len() < at_most })
}

pub(crate) fn first_waiters(lock: &LockId, at_most: usize) -> Find {
    first_waiters_of(lock_id(lock).into(), at_most)
}

/// The waiters that came first, of a lock or of several.
pub(crate) fn first_waiters_of(lock: Bson, at_most: usize) -> Find {
    Find {
        filter: doc! { "lock": lock },
        sort: Some(doc! { "since": 1, "_id": 1 }),
        at_most: Some(at_most),
        local: true,
        ..Find::default()
    }
}

pub(crate) async fn places(
    store: MongoStore,
    places: Vec<(LockId, SessionId, Ticket)>,
    limit: Duration,
) -> CommandResult<Vec<bool>> {
    let mut stand = Vec::with_capacity(places.len());
    for batch in places.chunks(BATCH) {
        let ids: Vec<_> =
            batch.iter().map(|(lock, session, ticket)| waiter_id(lock, *session, *ticket)).collect();
        let found = store.find(&store.names().waiters, known_places(&ids), limit).await?;
        let found = by_key(found);
        for id in ids {
            stand.push(found.contains_key(&id.to_vec().map_err(CommandFailure::unknown)?));
        }
    }
    Ok(stand)
}

/// The ids of the places that there are.
pub(crate) fn known_places(ids: &[Document]) -> Find {
    Find {
        filter: by_ids(ids.iter().map(Bson::from)),
        projection: Some(doc! { "_id": 1 }),
        local: true,
        ..Find::default()
    }
}

pub(crate) fn waiter_id(lock: &LockId, session: SessionId, ticket: Ticket) -> Document {
    let mut id = lock_id(lock);
    id.insert("session", session.to_string());
    id.insert("ticket", long(ticket.get()));
    id
}

pub(crate) fn read_waiter(document: &Document) -> Read<Waiter> {
    let fields = Fields::of(document, LAYOUT)?;
    Ok(Waiter { lock: fields.lock_id("lock")?, by: fields.candidate()?, since: fields.at("since")? })
}
