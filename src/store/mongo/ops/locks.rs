//! Locks: their record, in a pipeline and as a document; how they are read and listed; their value.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use bson::{Bson, Document, doc};

use super::{
    batch::{BATCH, by_key, in_batch},
    pages::{by_id, id_of, page, place},
};
use crate::{
    model::{Holder, Kind, LockId, Namespace, SessionId, Term, Who},
    store::{
        Candidate, Closed, Cursor, Ended, FOR_GOOD, Held, Holding, LockRecord, LockSeen, Note, PAST_HOLDERS,
        Page, Past, SetAnswer, SetValue, Ticket,
        mongo::{
            MongoStore,
            client::{command::write, error::CommandResult},
            documents::{
                fields::{
                    self, Fields, LEASE_LAYOUT, Read, bytes, candidate, damaged, lock_id, long, millis,
                    read_note,
                },
                pipeline::{are, are_numbers, is_number, is_of_layout, is_one_of, is_type, merged},
                queries::{self, Find, KeptRecords, Statement},
            },
        },
    },
};

/// The most sessions whose locks the server finds in order, by a scan of the audit's index for each. Of more it would
/// read whatever they hold, and sort that (`internalQueryMaxScansToExplode`).
const MERGED: usize = 200;

pub(crate) async fn locks(
    store: MongoStore,
    locks: Vec<LockId>,
    limit: Duration,
) -> CommandResult<Vec<LockSeen>> {
    read(&store, &locks, false, limit).await
}

/// As the primary has them now.
pub(crate) async fn peek(
    store: MongoStore,
    locks: Vec<LockId>,
    limit: Duration,
) -> CommandResult<Vec<LockSeen>> {
    read(&store, &locks, true, limit).await
}

async fn read(
    store: &MongoStore,
    locks: &[LockId],
    local: bool,
    limit: Duration,
) -> CommandResult<Vec<LockSeen>> {
    let mut seen = Vec::with_capacity(locks.len());
    for batch in locks.chunks(BATCH) {
        let found = read_batch(store, batch, local, limit).await?;
        seen.extend(batch.iter().map(|lock| match in_batch(&found, lock).map(read_lock) {
            None => LockSeen::Absent,
            Some(Ok(record)) => LockSeen::Found(record),
            Some(Err(refusal)) => LockSeen::Refused(refusal),
        }));
    }
    Ok(seen)
}

pub(crate) async fn read_batch(
    store: &MongoStore,
    locks: &[LockId],
    local: bool,
    limit: Duration,
) -> CommandResult<HashMap<Vec<u8>, Document>> {
    let ids = locks.iter().map(|lock| lock_id(lock).into());
    let wanted = Find { filter: queries::by_ids(ids), local, ..Find::default() };
    store.find(&store.names().locks, wanted, limit).await.map(by_key)
}

pub(crate) async fn list_locks(
    store: MongoStore,
    namespace: Namespace,
    kind: Option<Kind>,
    after: Option<Cursor>,
    at_most: usize,
    limit: Duration,
) -> CommandResult<Page<LockRecord>> {
    let at_most = at_most.max(1);
    let wanted = listed_locks(&namespace, kind.as_ref(), id_of(place(after)?), at_most);
    page(store.find(&store.names().locks, wanted, limit).await?, at_most, read_lock, by_id)
}

/// Lists locks as the primary has them now: a list informs and grants nothing (R11), and what a majority has may still
/// name the holder before. Of tasks the members of a spread make their plans, so those are what a majority has.
pub(crate) fn listed_locks(
    namespace: &Namespace,
    kind: Option<&Kind>,
    after: Option<Bson>,
    at_most: usize,
) -> Find {
    Find {
        filter: locks_of(namespace, kind, after),
        sort: Some(doc! { "_id": 1 }),
        at_most: Some(at_most.saturating_add(1)),
        local: kind.is_none_or(|kind| kind.spread().is_none()),
        ..Find::default()
    }
}

/// The locks of a namespace, of one kind or of all, by the order of their ids. What they come after may be forged, so
/// it only narrows the range.
pub(crate) fn locks_of(namespace: &Namespace, kind: Option<&Kind>, after: Option<Bson>) -> Document {
    let ns = namespace.as_str();
    let (first, last) = match kind {
        Some(kind) => {
            let kind = kind.to_string();
            (
                doc! { "ns": ns, "kind": &kind, "key": Bson::MinKey },
                doc! { "ns": ns, "kind": &kind, "key": Bson::MaxKey },
            )
        }
        None => (doc! { "ns": ns, "kind": Bson::MinKey }, doc! { "ns": ns, "kind": Bson::MaxKey }),
    };
    let after = after.map(|after| doc! { "$gt": after }).unwrap_or_default();
    doc! { "_id": merged([doc! { "$gte": first }, after, doc! { "$lte": last }]) }
}

pub(crate) async fn held_by(
    store: MongoStore,
    session: SessionId,
    after: Option<Cursor>,
    at_most: usize,
    limit: Duration,
) -> CommandResult<Page<Held>> {
    let at_most = at_most.max(1);
    let after = place(after)?.and_then(|mut after| {
        let term = u64::try_from(after.get_i64("term").ok()?).ok().and_then(Term::try_new)?;
        Some((term, after.remove("id")?))
    });
    let parts = after.map_or_else(|| vec![Document::new()], |(term, id)| held_after(term, id).to_vec());
    let mut found = Vec::new();
    for part in parts {
        let wanted = held_by_session(session, part, at_most.saturating_add(1) - found.len());
        found.extend(store.find(&store.names().locks, wanted, limit).await?);
        if found.len() > at_most {
            break;
        }
    }
    let by_term = |document: &Document| {
        doc! { "id": document.get("_id").cloned(), "term": document.get("term").cloned() }
    };
    page(found, at_most, read_held, by_term)
}

/// Reads what a session holds, from its index alone: latest term first. `part` says from where.
pub(crate) fn held_by_session(session: SessionId, part: Document, at_most: usize) -> Find {
    Find {
        filter: merged([doc! { "session": session.to_string() }, part]),
        sort: Some(doc! { "term": -1, "_id": 1 }),
        projection: Some(doc! { "_id": 1, "term": 1, "ticket": 1 }),
        at_most: Some(at_most),
        ..Find::default()
    }
}

/// Filters for what comes after one lock of the audit, in two parts: the rest of its term, and earlier terms.
/// As one condition the server would read its index from the beginning.
pub(crate) fn held_after(term: Term, id: Bson) -> [Document; 2] {
    let term = long(term.get());
    [doc! { "term": &term, "_id": { "$gt": id } }, doc! { "term": { "$lt": &term } }]
}

pub(crate) async fn latest_grants(
    store: MongoStore,
    sessions: Vec<SessionId>,
    at_most: usize,
    limit: Duration,
) -> CommandResult<Vec<LockRecord>> {
    // The server takes a limit of none for no limit.
    if at_most == 0 {
        return Ok(Vec::new());
    }
    let sessions: Vec<_> = BTreeSet::from_iter(sessions).into_iter().collect();
    let mut latest: Vec<LockRecord> = Vec::new();
    for some in sessions.chunks(MERGED) {
        let found = store.find(&store.names().locks, latest_held(some, at_most), limit).await?;
        latest.extend(found.iter().filter_map(|lock| read_lock(lock).ok()));
    }
    latest.sort_by(|one, other| (other.term, &one.id).cmp(&(one.term, &other.id)));
    // One that changed hands between two commands is in both: its latest grant counts.
    let mut seen = BTreeSet::new();
    latest.retain(|record| seen.insert(record.id.clone()));
    latest.truncate(at_most);
    Ok(latest)
}

/// Reads the locks with the largest terms of those that these sessions hold.
pub(crate) fn latest_held(sessions: &[SessionId], at_most: usize) -> Find {
    let sessions: Vec<_> = sessions.iter().map(SessionId::to_string).collect();
    Find {
        filter: doc! { "session": { "$in": sessions } },
        sort: Some(doc! { "term": -1, "_id": 1 }),
        at_most: Some(at_most),
        ..Find::default()
    }
}

pub(crate) async fn set_value(store: MongoStore, set: SetValue, limit: Duration) -> CommandResult<SetAnswer> {
    let (database, names) = store.place();
    let update = queries::update(&names.locks, vec![set_value_statement(&set)], KeptRecords::Majority, limit);
    let written = write(&database, update).await?;
    if written.matched == 1 {
        return Ok(SetAnswer::Set);
    }
    if let Some((_, refusal)) = written.refused.into_iter().next() {
        return Ok(SetAnswer::Refused(refusal));
    }
    let found = read_batch(&store, std::slice::from_ref(&set.lock), false, limit).await?;
    Ok(match in_batch(&found, &set.lock).map(read_lock) {
        Some(Err(refusal)) => SetAnswer::Refused(refusal),
        // This change is in place, or one that was made after it.
        Some(Ok(record)) if record.term == set.term && record.is_held_by(set.session) => SetAnswer::Set,
        _ => SetAnswer::NotHeld,
    })
}

pub(crate) fn set_value_statement(set: &SetValue) -> Statement {
    let earlier = doc! { "value_set": { "$lt": long(set.number) } };
    let filter = merged([held_under(&set.lock, set.session, set.term), earlier]);
    let value = doc! { "value": bytes(set.value.as_ref()), "value_set": long(set.number) };
    Statement::plain(filter, doc! { "$set": value })
}

// ----- the record in a pipeline

/// Condition: a lock's document can be read, but for the lengths of its texts and its past: then every
/// field has the type and the bounds that are relied on here.
pub(crate) fn is_sane_lock() -> Document {
    let closed = [are("date", &["$not_before"]), are_numbers(&["$closed_for"])].concat();
    let held = [
        are("string", &["$session", "$holder"]),
        are("date", &["$acquired_at"]),
        are_numbers(&["$ticket", "$ttl", "$lock_delay", "$value_set"]),
        is_one_of(&["$who", "$why"], |field| is_type(field, &["null", "string"])),
        vec![is_type("$value", &["null", "binData"])],
    ];
    doc! { "$and": [
        is_of_layout(LEASE_LAYOUT),
        is_number("$term"),
        { "$isArray": "$past" },
        { "$or": [{ "$eq": ["$not_before", null] }, { "$and": closed }] },
        { "$or": [{ "$eq": ["$session", null] }, { "$and": held.concat() }] },
    ] }
}

/// Condition: a sane lock is kept closed. A wait is not believed beyond the length written beside it (R1), but for
/// one for good. What is added is never larger than 2^53: no date written by hand makes it overflow.
pub(crate) fn is_closed() -> Document {
    doc! { "$or": [
        { "$and": [{ "$ne": ["$not_before", null] }, { "$gte": ["$closed_for", millis(FOR_GOOD)] }] },
        { "$and": [
            { "$gt": ["$not_before", "$$NOW"] },
            { "$lte": ["$not_before", { "$add": ["$$NOW", "$closed_for"] }] },
        ] },
    ] }
}

/// The next term (R5). `$max` passes over what `$add` makes of a missing term.
pub(crate) fn next_term() -> Document {
    doc! { "$max": [1_i64, { "$add": ["$term", 1_i64] }, { "$toLong": "$$NOW" }] }
}

/// The past of a lock that is granted: the holder whose fields are still in place comes in front.
/// Its end is what the word says; or, if that is nothing, what the record says.
pub(crate) fn past_with(how: impl Into<Bson>, note: impl Into<Bson>) -> Document {
    let entry = doc! {
        "holder": "$holder", "session": "$granted_to", "who": "$who", "term": "$term", "from": "$acquired_at",
        "to": { "$ifNull": ["$ended_at", "$$NOW"] },
        "how": { "$ifNull": ["$ended", how.into()] },
        "note": note.into(),
    };
    doc! { "$slice": [{ "$concatArrays": [[entry], "$past"] }, PAST_HOLDERS as i64] }
}

pub(crate) fn not_closed() -> Document {
    doc! { "not_before": null, "closed_for": null }
}

pub(crate) fn closed_for(length: impl Into<Bson>) -> Document {
    let length = length.into();
    doc! { "not_before": { "$add": ["$$NOW", length.clone()] }, "closed_for": length }
}

/// The fields of a lock that was granted, but for term, time and past.
pub(crate) fn granted(by: &Candidate) -> Document {
    let own = doc! { "v": LEASE_LAYOUT, "granted_to": by.session.to_string(), "value_set": 0_i64 };
    merged([own, candidate(by), not_ended(), not_closed()])
}

/// Condition: no session has said that it waits for the lock. One that did is read before the lock is released.
pub(crate) fn is_unwanted() -> Document {
    doc! { "wanted": { "$ne": true } }
}

/// The lock, if that session holds it under that term (R6).
pub(crate) fn held_under(lock: &LockId, session: SessionId, term: Term) -> Document {
    doc! { "_id": lock_id(lock), "v": LEASE_LAYOUT, "session": session.to_string(), "term": long(term.get()) }
}

// ----- the record as a document

/// The fields that say how a holding ended, while it has not.
pub(crate) fn not_ended() -> Document {
    doc! { "ended": null, "ended_at": null, "note": null }
}

/// The fields that end a holding, but for the time.
///
/// The other fields of the holder stay where they are until the lock is granted again, and only then
/// move to the past: so a release is a plain update, which costs the server half of one that
/// evaluates anything.
pub(crate) fn ended(how: Ended, note: Option<&Note>) -> Document {
    doc! { "session": null, "value": null, "ended": how.as_str(), "note": fields::note(note) }
}

pub(crate) fn read_lock(document: &Document) -> Read<LockRecord> {
    let fields = Fields::of(document, LEASE_LAYOUT)?;
    let free = fields.is_null("session")?;
    let holding = if free {
        None
    } else {
        Some(Holding {
            by: fields.candidate()?,
            value_set: fields.number("value_set")?,
            acquired_at: fields.at("acquired_at")?,
        })
    };
    let closed = match fields.optional("not_before", Fields::at)? {
        Some(until) => Some(Closed { until, length: fields.time("closed_for")? }),
        None => None,
    };
    let Bson::Array(stored) = fields.get("past")? else {
        return Err(Fields::wrong("past", fields.get("past")?, "an array"));
    };
    // The past is for people: an entry that makes no sense is no reason to refuse the lock.
    let last = free.then(|| read_past(&past_entry(document)).ok()).flatten();
    let earlier = stored.iter().filter_map(|entry| read_past(entry.as_document()?).ok());
    Ok(LockRecord {
        id: fields.lock_id("_id")?,
        term: Term::new(fields.number("term")?),
        holding,
        closed,
        // The mark decides nothing: any other value means that no session waits.
        wanted: document.get_bool("wanted").unwrap_or(false),
        past: last.into_iter().chain(earlier).take(PAST_HOLDERS).collect(),
    })
}

/// The entry of the past for the holder whose fields are still in place.
pub(crate) fn past_entry(lock: &Document) -> Document {
    let field = |name| lock.get(name).cloned().unwrap_or(Bson::Null);
    doc! {
        "holder": field("holder"), "session": field("granted_to"), "who": field("who"), "term": field("term"),
        "from": field("acquired_at"), "to": field("ended_at"), "how": field("ended"), "note": field("note"),
    }
}

fn read_past(entry: &Document) -> Read<Past> {
    let fields = Fields(entry);
    Ok(Past {
        holder: fields.name("holder", Holder::new)?,
        session: fields.session("session").ok(),
        who: fields.optional("who", |fields, field| fields.name(field, Who::new))?,
        term: Term::new(fields.number("term")?),
        from: fields.at("from")?,
        to: fields.at("to")?,
        how: Ended::of_word(fields.string("how")?).ok_or_else(|| damaged("how", "is no way to end"))?,
        note: read_note(&fields),
    })
}

pub(crate) fn read_held(document: &Document) -> Read<Held> {
    // The audit reads its index alone, which has no `v`: what it finds is compared, never written.
    let fields = Fields(document);
    Ok(Held {
        lock: fields.lock_id("_id")?,
        term: Term::new(fields.number("term")?),
        ticket: Ticket::new(fields.number("ticket")?),
    })
}
