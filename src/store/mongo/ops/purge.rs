//! The purge: records that are not needed any more go, a part at a time.
//!
//! A namespace has more records than one call can look at, and whatever has to stay must not stand in the
//! way of what comes after it. So the ids are gone through in their order, and the answer says from where to
//! go on: locks first, then the dead. One call looks at [`LOOKED_AT`] locks at most. An index of what is idle
//! would find it sooner, but every take and every release would pay for it.

use std::time::Duration;

use bson::{Bson, Document, doc};

use super::{
    locks::{closed_for, ended, is_closed, is_sane_lock, locks_of, not_closed},
    pages::place,
    sessions::is_dead_session,
};
use crate::{
    model::{MAX_NUMBER, Namespace, Retention},
    store::{
        Bell, Cursor, Ended, Purged, TERM_KEPT,
        mongo::{
            MongoStore,
            client::{
                command::{distinct, write},
                error::{CommandFailure, CommandResult},
            },
            documents::{
                fields::{LAYOUT, LEASE_LAYOUT, millis, read_lock_id},
                pipeline::{ago, merged, overlaid},
                queries::{self, Find, KeptRecords, Statement},
            },
        },
    },
};

/// The number of locks one call looks at: some 50 ms of the server's time.
const LOOKED_AT: usize = 10_000;
/// The most records of one sort that a call changes or removes.
const AT_ONCE: usize = 1000;

pub(crate) async fn purge(
    store: MongoStore,
    namespace: Namespace,
    retention: Retention,
    after: Option<Cursor>,
    limit: Duration,
) -> CommandResult<Purged> {
    let part = PurgePart { store: &store, namespace: &namespace, retention, limit };
    let mut purged = Purged::default();
    let next = match PurgeCursor::of(place(after)?)? {
        PurgeCursor::Locks(after) => part.idle_locks(after, &mut purged).await?,
        PurgeCursor::Dead(after) => Some(PurgeCursor::Dead(after)),
    };
    let next = match next {
        Some(PurgeCursor::Dead(after)) => part.the_dead(after, &mut purged).await?,
        locks => locks,
    };
    purged.next = next.map(PurgeCursor::cursor).transpose()?;
    Ok(purged)
}

/// The progress of a purge: the id after which it goes on.
enum PurgeCursor {
    Locks(Option<Bson>),
    Dead(Bson),
}

impl PurgeCursor {
    /// Before every session: their ids are texts.
    fn first_dead() -> Self {
        Self::Dead(Bson::String(String::new()))
    }

    fn of(written: Option<Document>) -> CommandResult<Self> {
        let Some(mut written) = written else { return Ok(Self::Locks(None)) };
        if let Some(id) = written.remove("locks") {
            return Ok(Self::Locks(Some(id)));
        }
        written.remove("dead").map(Self::Dead).ok_or_else(CommandFailure::foreign_cursor)
    }

    fn cursor(self) -> CommandResult<Cursor> {
        let written = match self {
            Self::Locks(id) => doc! { "locks": id },
            Self::Dead(id) => doc! { "dead": id },
        };
        written.to_vec().map(Cursor::new).map_err(CommandFailure::unknown)
    }
}

struct PurgePart<'a> {
    store: &'a MongoStore,
    namespace: &'a Namespace,
    retention: Retention,
    limit: Duration,
}

impl PurgePart<'_> {
    async fn remove(&self, collection: &str, filter: Document) -> CommandResult<u64> {
        let command = queries::delete(collection, vec![filter], KeptRecords::Majority, self.limit);
        write(&self.store.database(), command).await.map(|gone| gone.matched)
    }

    /// Removes the idle ones of the next locks. Answers from where to go on.
    async fn idle_locks(
        &self,
        after: Option<Bson>,
        purged: &mut Purged,
    ) -> CommandResult<Option<PurgeCursor>> {
        let names = self.store.names();
        let last = self.store.find(&names.locks, last_looked_at(self.namespace, after.clone()), self.limit);
        let last = ids(last.await?).pop();
        let range = up_to(locks_of(self.namespace, None, after), last.clone());
        let found = first_ids(merged([range, idle(self.retention)]));
        let found = ids(self.store.find(&names.locks, found, self.limit).await?);
        // Locks that did not fit are next; they are behind the last of these.
        let last = if found.len() == AT_ONCE { found.last().cloned() } else { last };
        if !found.is_empty() {
            // The fences first: a lock that is gone is not found again, its fences would stay for ever.
            self.remove(&names.fences, unused_fences(&found, self.retention)).await?;
            // Some may have been taken since.
            let idle = merged([queries::by_ids(found), idle(self.retention)]);
            purged.locks = self.remove(&names.locks, idle).await?;
        }
        Ok(Some(last.map_or_else(PurgeCursor::first_dead, |last| PurgeCursor::Locks(Some(last)))))
    }

    /// Frees what the next of the dead hold, removes their places in the queue, and the sessions that no lock names
    /// any more. Answers from where to go on.
    async fn the_dead(&self, after: Bson, purged: &mut Purged) -> CommandResult<Option<PurgeCursor>> {
        let names = self.store.names();
        let found =
            self.store.find(&names.sessions, dead(self.namespace, &after, self.retention), self.limit);
        let found = found.await?;
        let is = |flag| move |dead: &&Document| dead.get_bool(flag).unwrap_or_default();
        let abandoning = ids(found.iter().filter(is("abandoned")).cloned().collect());
        let mut going = ids(found.iter().filter(is("over")).cloned().collect());
        let all = ids(found);
        if all.is_empty() {
            return Ok(None);
        }
        let held = if abandoning.is_empty() {
            Vec::new()
        } else {
            self.store.find(&names.locks, held_by_any(&abandoning), self.limit).await?
        };
        let held_are_many = held.len() == AT_ONCE;
        if !held.is_empty() {
            let free = held.iter().map(free_of_the_dead).collect();
            let command = queries::update(&names.locks, free, KeptRecords::Majority, self.limit);
            purged.freed = write(&self.store.database(), command).await?.modified;
            // Some may have been taken since: then a listener finds nothing new.
            let freed = held.iter().filter_map(|lock| read_lock_id(lock.get("_id")?).ok());
            self.store.ring(freed.filter_map(|lock| Bell::changed(&lock)).collect());
        }
        let places = doc! { "session": { "$in": &all }, "v": LAYOUT };
        purged.waiters = self.remove(&names.waiters, places).await?;
        // An instance that finds a lock of a dead session must find its death.
        if !going.is_empty() {
            let named =
                distinct(&self.store.database(), named_by_locks(&names.locks, &going, self.limit)).await?;
            going.retain(|session| !named.contains(session));
        }
        if !going.is_empty() {
            purged.sessions = self.remove(&names.sessions, long_dead(going, self.retention)).await?;
        }
        // As long as some were freed there may be more that did not fit.
        if held_are_many && purged.freed > 0 {
            return Ok(Some(PurgeCursor::Dead(after)));
        }
        let full = all.len() == AT_ONCE;
        Ok(all.into_iter().next_back().filter(|_| full).map(PurgeCursor::Dead))
    }
}

fn ids(found: Vec<Document>) -> Vec<Bson> {
    found.into_iter().filter_map(|mut document| document.remove("_id")).collect()
}

/// The last of the next locks to look at; nothing if there are fewer.
fn last_looked_at(namespace: &Namespace, after: Option<Bson>) -> Find {
    Find {
        filter: locks_of(namespace, None, after),
        sort: Some(doc! { "_id": 1 }),
        projection: Some(doc! { "_id": 1 }),
        skip: LOOKED_AT - 1,
        at_most: Some(1),
        ..Find::default()
    }
}

/// A range of ids that ends with that one.
fn up_to(mut range: Document, last: Option<Bson>) -> Document {
    if let (Some(last), Ok(ids)) = (last, range.get_document_mut("_id")) {
        ids.insert("$lte", last);
    }
    range
}

fn first_ids(filter: Document) -> Find {
    Find {
        filter,
        sort: Some(doc! { "_id": 1 }),
        projection: Some(doc! { "_id": 1 }),
        at_most: Some(AT_ONCE),
        ..Find::default()
    }
}

/// Locks that may go (R5).
fn idle(retention: Retention) -> Document {
    let condition = doc! { "$and": [
        is_sane_lock(),
        { "$eq": [{ "$type": "$ended_at" }, "date"] },
        { "$lt": ["$ended_at", ago(retention.locks)] },
        { "$lt": ["$term", { "$toLong": ago(TERM_KEPT) }] },
        { "$not": is_closed() },
    ] };
    doc! { "v": LEASE_LAYOUT, "session": null, "$expr": condition }
}

/// The fences of locks that go, unless they were armed lately, or were not written by tenure.
fn unused_fences(locks: &[Bson], retention: Retention) -> Document {
    doc! {
        "lock": { "$in": locks },
        "v": LAYOUT,
        "$expr": { "$and": [
            { "$eq": [{ "$type": "$armed_at" }, "date"] },
            { "$lt": ["$armed_at", ago(retention.locks)] },
        ] },
    }
}

/// The next of the dead, and what their time is over for.
fn dead(namespace: &Namespace, after: &Bson, retention: Retention) -> Find {
    let dead_for = |time| doc! { "$lt": ["$death.at", ago(time)] };
    Find {
        filter: doc! {
            "ns": namespace.as_str(),
            "_id": { "$gt": after },
            "v": LEASE_LAYOUT,
            "$expr": is_dead_session(),
        },
        sort: Some(doc! { "_id": 1 }),
        projection: Some(
            doc! { "_id": 1, "abandoned": dead_for(retention.locks), "over": dead_for(retention.sessions) },
        ),
        at_most: Some(AT_ONCE),
        ..Find::default()
    }
}

/// Filter: those of these sessions that have been dead for long enough.
fn long_dead(sessions: Vec<Bson>, retention: Retention) -> Document {
    let over = doc! { "$lt": ["$death.at", ago(retention.sessions)] };
    merged([
        queries::by_ids(sessions),
        doc! { "v": LEASE_LAYOUT, "$expr": { "$and": [is_dead_session(), over] } },
    ])
}

/// Reads what sessions hold. Leaves out locks that cannot be read: they are not freed, and would be found for ever.
fn held_by_any(sessions: &[Bson]) -> Find {
    Find {
        filter: doc! { "session": { "$in": sessions }, "v": LEASE_LAYOUT, "$expr": is_sane_lock() },
        projection: Some(doc! { "_id": 1, "session": 1, "term": 1, "lock_delay": 1 }),
        at_most: Some(AT_ONCE),
        ..Find::default()
    }
}

/// Frees a lock of the dead, if it still is that session's under that term. It keeps its term (R5).
fn free_of_the_dead(held: &Document) -> Statement {
    let field = |name| held.get(name).cloned().unwrap_or(Bson::Null);
    let filter =
        doc! { "_id": field("_id"), "v": LEASE_LAYOUT, "session": field("session"), "term": field("term") };
    let delay = held.get("lock_delay").and_then(number).unwrap_or_default();
    if delay == 0 {
        let end = merged([ended(Ended::Died, None), not_closed()]);
        return Statement::plain(filter, doc! { "$set": end, "$currentDate": { "ended_at": true } });
    }
    let closed = merged([doc! { "ended_at": "$$NOW" }, closed_for(millis(Duration::from_millis(delay)))]);
    Statement::pipeline(filter, vec![doc! { "$replaceWith": overlaid(ended(Ended::Died, None), closed) }])
}

fn number(found: &Bson) -> Option<u64> {
    let number = match found {
        Bson::Int32(number) => i64::from(*number),
        Bson::Int64(number) => *number,
        _ => return None,
    };
    u64::try_from(number).ok().filter(|number| *number <= MAX_NUMBER)
}

/// Asks which of these sessions the locks name, whatever else those say.
fn named_by_locks(collection: &str, sessions: &[Bson], limit: Duration) -> Document {
    queries::distinct(collection, "session", doc! { "session": { "$in": sessions } }, limit)
}
