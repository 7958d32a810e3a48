//! What is asked of the server: pure functions from what is wanted to the command that does it.
//!
//! Decisions are made inside aggregation-pipeline updates, so that each is one atomic step on one
//! document. In a pipeline every string that begins with `$` is evaluated, so whatever comes from
//! outside goes in as `$literal` (a holder named `$exp` once stored no holder at all).

mod reopen;

use std::{collections::BTreeMap, time::Duration};

use bson::{Bson, Document, doc};

pub(super) use reopen::reopen;

use super::documents::{
    LAYOUT, bytes, candidate, date, ended, lock_id, long, millis, not_ended, order, past_entry, request,
    request_key, run_id, schedule_id, schedule_part, shares, skipped, waiter_id,
};
use crate::{
    model::{
        Buckets, Candidate, Ended, Kind, LockId, LockRecord, MAX_NUMBER, Namespace, Outcome, PAST_HOLDERS,
        Request, RunId, ScheduleId, SessionId, StoreTime, Term, Ticket, Why,
    },
    store::{
        BeatWrite, Claim, Declaration, Define, Evidence, FinishRun, Instruction, MAX_ORDERS,
        MAX_PAUSES_BEFORE, MAX_REQUESTS, Open, Release, ReleaseTo, SetValue, Take, Wait,
    },
};

/// What the server keeps a write for before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptRecords {
    /// On a majority of the members, in their journals: no failure can undo it (R11).
    Majority,
    /// On the primary alone. Only for what decides nothing.
    Primary,
}

/// One statement of an `update` command.
pub(super) struct Statement {
    pub(super) filter: Document,
    /// Operators, whose values are taken as they are; or a pipeline, in which they are evaluated.
    pub(super) update: Bson,
    pub(super) upsert: bool,
    /// Every document that matches, not the first: for filters of many ids.
    pub(super) multi: bool,
}

impl Statement {
    pub(super) fn plain(filter: Document, operators: Document) -> Self {
        Self { filter, update: operators.into(), upsert: false, multi: false }
    }

    pub(super) fn pipeline(filter: Document, stages: Vec<Document>) -> Self {
        Self { filter, update: stages.into(), upsert: false, multi: false }
    }

    pub(super) fn or_insert(self) -> Self {
        Self { upsert: true, ..self }
    }
}

fn literal(value: impl Into<Bson>) -> Document {
    doc! { "$literal": value.into() }
}

fn text(value: &impl ToString) -> Document {
    literal(value.to_string())
}

fn concern(kept: KeptRecords, limit: Duration) -> Document {
    match kept {
        KeptRecords::Majority => doc! { "w": "majority", "j": true, "wtimeout": server_limit(limit) },
        KeptRecords::Primary => doc! { "w": 1 },
    }
}

/// The server's limit in milliseconds. Zero would mean none at all.
fn server_limit(limit: Duration) -> i64 {
    i64::try_from(limit.as_millis()).unwrap_or(i64::MAX).clamp(1, i64::from(i32::MAX))
}

// ----- commands

/// A `findAndModify` by `_id` that answers with the document as it stands afterwards.
pub(super) fn modify(collection: &str, statement: Statement, limit: Duration) -> Document {
    doc! {
        "findAndModify": collection,
        "query": statement.filter,
        "update": statement.update,
        "upsert": statement.upsert,
        "new": true,
        "writeConcern": concern(KeptRecords::Majority, limit),
        "maxTimeMS": server_limit(limit),
    }
}

/// Many statements in one command, each of them on its own.
pub(super) fn update(
    collection: &str,
    statements: Vec<Statement>,
    kept: KeptRecords,
    limit: Duration,
) -> Document {
    let updates: Vec<_> = statements
        .into_iter()
        .map(|Statement { filter, update, upsert, multi }| {
            Bson::Document(doc! { "q": filter, "u": update, "upsert": upsert, "multi": multi })
        })
        .collect();
    doc! {
        "update": collection,
        "updates": updates,
        "ordered": false,
        "writeConcern": concern(kept, limit),
        "maxTimeMS": server_limit(limit),
    }
}

/// Deletes whatever each filter matches.
pub(super) fn delete(
    collection: &str,
    filters: Vec<Document>,
    kept: KeptRecords,
    limit: Duration,
) -> Document {
    let deletes: Vec<_> =
        filters.into_iter().map(|filter| Bson::Document(doc! { "q": filter, "limit": 0 })).collect();
    doc! {
        "delete": collection,
        "deletes": deletes,
        "ordered": false,
        "writeConcern": concern(kept, limit),
        "maxTimeMS": server_limit(limit),
    }
}

/// How a read is made.
#[derive(Default)]
pub(super) struct Find {
    pub(super) filter: Document,
    pub(super) sort: Option<Document>,
    pub(super) projection: Option<Document>,
    pub(super) skip: usize,
    pub(super) at_most: Option<usize>,
    /// What the primary has now, though a failure may undo it: for what decides nothing.
    pub(super) local: bool,
}

pub(super) fn find(collection: &str, find: Find, limit: Duration) -> Document {
    let mut command = doc! { "find": collection, "filter": find.filter };
    if let Some(sort) = find.sort {
        command.insert("sort", sort);
    }
    if let Some(projection) = find.projection {
        command.insert("projection", projection);
    }
    if find.skip > 0 {
        command.insert("skip", long(find.skip as u64));
    }
    if let Some(at_most) = find.at_most {
        command.insert("limit", long(at_most as u64));
    }
    // One batch, as far as the server's limit on a reply allows.
    command.insert("batchSize", i32::MAX);
    command.insert("readConcern", doc! { "level": if find.local { "local" } else { "majority" } });
    command.insert("maxTimeMS", server_limit(limit));
    command
}

/// Reads locks by their ids, and the server's clock beside them: what a majority has, or what the
/// primary has now (`local`), though a failure may undo it.
pub(super) fn locks_and_time(collection: &str, ids: Vec<Bson>, local: bool, limit: Duration) -> Document {
    let clock = doc! { "$unionWith": { "pipeline": [{ "$documents": [{ "now": "$$NOW" }] }] } };
    doc! {
        "aggregate": collection,
        "pipeline": [{ "$match": by_ids(ids) }, clock],
        "cursor": { "batchSize": i32::MAX },
        "readConcern": { "level": if local { "local" } else { "majority" } },
        "maxTimeMS": server_limit(limit),
    }
}

/// The values that a field has in what matches.
pub(super) fn distinct(collection: &str, field: &str, filter: Document, limit: Duration) -> Document {
    doc! {
        "distinct": collection,
        "key": field,
        "query": filter,
        "readConcern": { "level": "majority" },
        "maxTimeMS": server_limit(limit),
    }
}

pub(super) fn by_ids(ids: impl IntoIterator<Item = Bson>) -> Document {
    doc! { "_id": { "$in": ids.into_iter().collect::<Vec<_>>() } }
}

// ----- parts of pipelines

/// Whether this document is being inserted by this very command. An upsert's pipeline starts from
/// the `_id` alone; a foreign document has something beside it. (One that has nothing beside it
/// says nothing, and nothing is lost with it.)
pub(super) fn is_new(id: impl Into<Bson>) -> Document {
    doc! { "$eq": ["$$ROOT", { "_id": literal(id) }] }
}

pub(super) fn is_known_layout() -> Document {
    doc! { "$eq": ["$v", LAYOUT] }
}

pub(super) fn is_number(field: &str) -> Document {
    doc! { "$and": [
        { "$in": [{ "$type": field }, ["long", "int"]] },
        { "$gte": [field, 0] },
        { "$lte": [field, long(MAX_NUMBER)] },
    ] }
}

fn is_type(field: &str, types: &[&str]) -> Document {
    doc! { "$in": [{ "$type": field }, types] }
}

fn is_one_of(fields: &[&str], is: impl Fn(&str) -> Document) -> Vec<Document> {
    fields.iter().map(|field| is(field)).collect()
}

fn are_numbers(fields: &[&str]) -> Vec<Document> {
    is_one_of(fields, is_number)
}

fn are(wanted: &str, fields: &[&str]) -> Vec<Document> {
    is_one_of(fields, |field| is_type(field, &[wanted]))
}

/// Whether a lock's document can be read, but for the lengths of its texts and its past: then every
/// field has the type and the bounds that are relied on here.
pub(super) fn is_sane_lock() -> Document {
    let closed = [are("date", &["$not_before"]), are_numbers(&["$closed_for"])].concat();
    let held = [
        are("string", &["$session", "$holder"]),
        are("date", &["$acquired_at"]),
        are_numbers(&["$ticket", "$ttl", "$lock_delay", "$value_set"]),
        is_one_of(&["$who", "$why"], |field| is_type(field, &["null", "string"])),
        vec![is_type("$value", &["null", "binData"])],
    ];
    doc! { "$and": [
        is_known_layout(),
        is_number("$term"),
        { "$isArray": "$past" },
        { "$or": [{ "$eq": ["$not_before", null] }, { "$and": closed }] },
        { "$or": [{ "$eq": ["$session", null] }, { "$and": held.concat() }] },
    ] }
}

/// Whether a sane lock is kept closed. A wait is not believed beyond the length written beside it (R1). What
/// is added is never larger than 2^53: no date that somebody wrote makes it overflow.
pub(super) fn is_closed() -> Document {
    doc! { "$and": [
        { "$gt": ["$not_before", "$$NOW"] },
        { "$lte": ["$not_before", { "$add": ["$$NOW", "$closed_for"] }] },
    ] }
}

fn is_small(field: &str) -> Document {
    doc! { "$and": [is_number(field), { "$lte": [field, i64::from(u32::MAX)] }] }
}

/// An array of documents that are each so.
fn is_list(field: &str, is: Vec<Document>) -> Document {
    let each = doc! { "$map": { "input": field, "as": "one", "in": { "$and": is } } };
    doc! { "$and": [{ "$isArray": field }, { "$allElementsTrue": [each] }] }
}

/// Whether it is what a share says of the parts of its task set. An earlier version does not write it.
fn are_buckets(field: &str) -> Document {
    let size = doc! { "$eq": [{ "$binarySize": field }, Buckets::BYTES as i64] };
    doc! { "$cond": [is_type(field, &["binData"]), size, is_type(field, &["missing", "null"])] }
}

/// Whether a session's document can be read, but for the lengths of its texts and what `death` says.
fn is_sane_session() -> Vec<Document> {
    let share = [
        are("string", &["$$one.spread", "$$one.digest"]),
        are("bool", &["$$one.draining", "$$one.paused"]),
        is_one_of(&["$$one.cap", "$$one.weight"], is_small),
        are_numbers(&["$$one.reserved"]),
        vec![are_buckets("$$one.buckets")],
        // Not every version writes it.
        vec![is_type("$$one.trial", &["missing", "null", "string"])],
    ];
    let request =
        [are("string", &["$$one.kind", "$$one.key", "$$one.by", "$$one.why"]), are_numbers(&["$$one.term"])];
    [
        vec![is_known_layout()],
        are("string", &["$ns", "$holder", "$host", "$program"]),
        are("date", &["$started", "$beat_at"]),
        are_numbers(&["$beat", "$nonce", "$ttl"]),
        is_one_of(&["$pid", "$plan_version"], is_small),
        vec![is_list("$shares", share.concat()), is_list("$requests", request.concat())],
    ]
    .concat()
}

fn is_alive_session() -> Document {
    let all = [vec![doc! { "$eq": ["$death", null] }], is_sane_session()].concat();
    doc! { "$and": all }
}

pub(super) fn is_dead_session() -> Document {
    let death = [
        are("object", &["$death"]),
        are("date", &["$death.at"]),
        are("string", &["$death.by", "$death.why"]),
    ];
    let all = [death.concat(), is_sane_session()].concat();
    doc! { "$and": all }
}

/// The document with other fields laid over it. Those of the first are taken as they are, those of
/// the second are evaluated.
pub(super) fn overlaid(fixed: Document, evaluated: Document) -> Document {
    doc! { "$mergeObjects": ["$$ROOT", literal(fixed), evaluated] }
}

/// The document, changed only if the condition holds.
pub(super) fn changed_if(condition: impl Into<Bson>, changed: impl Into<Bson>) -> Vec<Document> {
    vec![doc! { "$replaceWith": { "$cond": [condition.into(), changed.into(), "$$ROOT"] } }]
}

/// The next term (R5). `$max` passes over what `$add` makes of a missing term.
fn next_term() -> Document {
    doc! { "$max": [1_i64, { "$add": ["$term", 1_i64] }, { "$toLong": "$$NOW" }] }
}

/// The past of a lock that is granted: the holder whose fields are still in place comes in front.
/// It ended as the word says; or, if that is nothing, as the record does.
fn past_with(how: impl Into<Bson>, note: impl Into<Bson>) -> Document {
    let entry = doc! {
        "holder": "$holder", "who": "$who", "term": "$term", "from": "$acquired_at",
        "to": { "$ifNull": ["$ended_at", "$$NOW"] },
        "how": { "$ifNull": ["$ended", how.into()] },
        "note": note.into(),
    };
    doc! { "$slice": [{ "$concatArrays": [[entry], "$past"] }, PAST_HOLDERS as i64] }
}

pub(super) fn not_closed() -> Document {
    doc! { "not_before": null, "closed_for": null }
}

pub(super) fn closed_for(length: impl Into<Bson>) -> Document {
    let length = length.into();
    doc! { "not_before": { "$add": ["$$NOW", length.clone()] }, "closed_for": length }
}

pub(super) fn merged(parts: impl IntoIterator<Item = Document>) -> Document {
    parts.into_iter().flatten().collect()
}

/// The fields of a lock that was granted, but for term, time and past.
fn granted(by: &Candidate) -> Document {
    merged([doc! { "v": LAYOUT }, candidate(by), doc! { "value_set": 0_i64 }, not_ended(), not_closed()])
}

// ----- locks

/// One conditional upsert (R4): every decision of a take, in the order in which they are made.
pub(super) fn take(take: &Take, dead: &[SessionId]) -> Statement {
    let id = lock_id(&take.lock);
    let dead: Vec<_> = dead.iter().map(ToString::to_string).collect();
    let names_dead = !dead.is_empty();
    // At its limit there is no larger term to grant.
    let may_change = doc! { "$and": [is_sane_lock(), { "$lt": ["$term", long(MAX_NUMBER)] }] };
    let grant_if_older = doc! { "$lt": ["$ticket", long(take.by.ticket.get())] };
    // Each verdict is a word: two of them are what the past says of the holder that goes.
    let mut verdicts = vec![
        doc! { "case": is_new(id.clone()), "then": "new" },
        doc! { "case": { "$not": may_change }, "then": "keep" },
        doc! {
            "case": { "$eq": ["$session", text(&take.by.session)] },
            "then": { "$cond": [grant_if_older, Ended::Superseded.as_str(), "keep"] },
        },
    ];
    if names_dead {
        verdicts.push(doc! {
            "case": { "$in": ["$session", literal(dead)] },
            "then": { "$cond": [{ "$gt": ["$lock_delay", 0] }, "delay", Ended::Died.as_str()] },
        });
    }
    verdicts.push(doc! { "case": { "$ne": ["$session", null] }, "then": "keep" });
    verdicts.push(doc! {
        "case": is_closed(),
        "then": "keep",
    });
    let mut outcomes = vec![doc! { "case": { "$eq": ["$$verdict", "keep"] }, "then": "$$ROOT" }];
    if names_dead {
        let closed = merged([doc! { "ended_at": "$$NOW" }, closed_for("$lock_delay")]);
        let delayed = overlaid(ended(Ended::Died, None), closed);
        outcomes.push(doc! { "case": { "$eq": ["$$verdict", "delay"] }, "then": delayed });
    }
    let past = doc! { "$cond": [{ "$eq": ["$$verdict", "new"] }, [], past_with("$$verdict", "$note")] };
    let taken =
        overlaid(granted(&take.by), doc! { "term": next_term(), "acquired_at": "$$NOW", "past": past });
    let decided = doc! { "$let": {
        "vars": { "verdict": { "$switch": { "branches": verdicts, "default": "free" } } },
        "in": { "$switch": { "branches": outcomes, "default": taken } },
    } };
    Statement::pipeline(doc! { "_id": id }, vec![doc! { "$replaceWith": decided }]).or_insert()
}

/// Grants a lock that has no record, if it still has none.
///
/// This and the two below are the same decisions as [`take`], made by the caller from a read of
/// many locks and carried out only if nothing has changed since. Evaluating a pipeline costs the
/// server more than the write itself, which is what counts in a large batch.
pub(super) fn grant_new(take: &Take, now: StoreTime) -> Statement {
    let times = doc! { "term": long(Term::first(now).get()), "acquired_at": date(now), "past": [] };
    let lock = merged([granted(&take.by), times]);
    Statement::plain(doc! { "_id": lock_id(&take.lock) }, doc! { "$setOnInsert": lock }).or_insert()
}

/// Grants a lock under that term, if it still stands as it was read. `ends` is how its holder goes, if it has
/// one.
pub(super) fn grant_read(
    take: &Take,
    read: &LockRecord,
    document: &Document,
    ends: Option<Ended>,
    term: Term,
    now: StoreTime,
) -> Statement {
    let mut entry = past_entry(document);
    if let Some(how) = ends {
        entry.insert("to", date(now));
        entry.insert("how", how.as_str());
    }
    let times = doc! { "term": long(term.get()), "acquired_at": date(now) };
    let past = doc! { "$each": [entry], "$position": 0, "$slice": PAST_HOLDERS as i64 };
    let operators = doc! { "$set": merged([granted(&take.by), times]), "$push": { "past": past } };
    Statement::plain(as_read(read), operators)
}

/// Closes a lock whose holder is dead, if it still stands as it was read.
pub(super) fn close_read(read: &LockRecord, delay: Duration, now: StoreTime) -> Statement {
    let times =
        doc! { "ended_at": date(now), "not_before": date(now.plus(delay)), "closed_for": millis(delay) };
    Statement::plain(as_read(read), doc! { "$set": merged([ended(Ended::Died, None), times]) })
}

/// The term changes with every grant, and the session with every end.
fn as_read(read: &LockRecord) -> Document {
    let session = read.holding.as_ref().map_or(Bson::Null, |held| held.by.session.to_string().into());
    doc! { "_id": lock_id(&read.id), "v": LAYOUT, "term": long(read.term.get()), "session": session }
}

/// Releases, in as few statements as can be. Locks that were granted in one batch bear the same term,
/// and those of them that are released alike go together, for half of what they cost one by one.
pub(super) fn releases(releases: &[Release]) -> Vec<Statement> {
    let mut alike: BTreeMap<_, Vec<&Release>> = BTreeMap::new();
    let mut statements = Vec::new();
    for one in releases {
        let note = one.note.as_ref().map(Why::as_str);
        match then(one) {
            ReleaseTo::Free => alike.entry((one.session, one.term, note)).or_default().push(one),
            _ => statements.push(release(held_under(&one.lock, one.session, one.term), one)),
        }
    }
    for together in alike.values() {
        let first = together[0];
        let mut filter = held_under(&first.lock, first.session, first.term);
        if together.len() > 1 {
            filter.extend(by_ids(together.iter().map(|one| lock_id(&one.lock).into())));
        }
        statements.push(Statement { multi: together.len() > 1, ..release(filter, first) });
    }
    statements
}

/// To whom a lock really goes: at its limit there is no larger term to hand it over under.
fn then(release: &Release) -> &ReleaseTo {
    let spent = release.term.get() == MAX_NUMBER;
    if spent && matches!(release.then, ReleaseTo::HandTo(_)) { &ReleaseTo::Free } else { &release.then }
}

fn release(filter: Document, release: &Release) -> Statement {
    let note = release.note.as_ref();
    match then(release) {
        ReleaseTo::Free => {
            let end = merged([ended(Ended::Released, note), not_closed()]);
            Statement::plain(filter, doc! { "$set": end, "$currentDate": { "ended_at": true } })
        }
        ReleaseTo::ClosedFor(length) => {
            let closed = merged([doc! { "ended_at": "$$NOW" }, closed_for(millis(*length))]);
            let document = overlaid(ended(Ended::Released, note), closed);
            Statement::pipeline(filter, vec![doc! { "$replaceWith": document }])
        }
        ReleaseTo::HandTo(next) => {
            let note: Bson = note.map_or(Bson::Null, |note| text(&note).into());
            let handed = doc! { "term": next_term(), "acquired_at": "$$NOW", "past": past_with(Ended::HandedOver.as_str(), note) };
            Statement::pipeline(filter, vec![doc! { "$replaceWith": overlaid(granted(next), handed) }])
        }
    }
}

/// The lock, if that session holds it under that term (R6).
fn held_under(lock: &LockId, session: SessionId, term: Term) -> Document {
    doc! { "_id": lock_id(lock), "v": LAYOUT, "session": session.to_string(), "term": long(term.get()) }
}

pub(super) fn set_value(set: &SetValue) -> Statement {
    let earlier = doc! { "value_set": { "$lt": long(set.number) } };
    let filter = merged([held_under(&set.lock, set.session, set.term), earlier]);
    let value = doc! { "value": bytes(set.value.as_ref()), "value_set": long(set.number) };
    Statement::plain(filter, doc! { "$set": value })
}

pub(super) fn force(request: &Request) -> Statement {
    let condition = doc! { "$and": [
        is_sane_lock(),
        { "$eq": ["$term", long(request.term.get())] },
        { "$ne": ["$session", null] },
    ] };
    let end = overlaid(ended(Ended::Forced, Some(&request.note())), doc! { "ended_at": "$$NOW" });
    Statement::pipeline(doc! { "_id": lock_id(&request.lock) }, changed_if(condition, end))
}

/// The locks of a namespace, of one kind or of all, by the order of their ids.
pub(super) fn locks_of(namespace: &Namespace, kind: Option<&Kind>, after: Option<Bson>) -> Document {
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
    let from = after.map_or_else(|| doc! { "$gte": first }, |after| doc! { "$gt": after });
    doc! { "_id": merged([from, doc! { "$lte": last }]) }
}

/// What a session holds, from its index alone: latest term first. `part` says from where.
pub(super) fn held_by(session: SessionId, part: Document, at_most: usize) -> Find {
    Find {
        filter: merged([doc! { "session": session.to_string() }, part]),
        sort: Some(doc! { "term": -1, "_id": 1 }),
        projection: Some(doc! { "_id": 1, "term": 1, "ticket": 1 }),
        at_most: Some(at_most),
        ..Find::default()
    }
}

/// What comes after one lock of the audit, in two parts: the rest of its term, and earlier terms.
/// As one condition the server would read its index from the beginning.
pub(super) fn held_after(term: Term, id: Bson) -> [Document; 2] {
    let term = long(term.get());
    [doc! { "term": &term, "_id": { "$gt": id } }, doc! { "term": { "$lt": &term } }]
}

// ----- the line

pub(super) fn wait(wait: &Wait) -> Statement {
    let id = waiter_id(&wait.lock, wait.by.session, wait.by.ticket);
    let place = merged([doc! { "v": LAYOUT, "lock": lock_id(&wait.lock) }, candidate(&wait.by)]);
    Statement::pipeline(
        doc! { "_id": id.clone() },
        changed_if(is_new(id), overlaid(place, doc! { "since": "$$NOW" })),
    )
    .or_insert()
}

pub(super) fn stop_waiting(waits: &[(LockId, SessionId, Ticket)]) -> Document {
    by_ids(waits.iter().map(|(lock, session, ticket)| waiter_id(lock, *session, *ticket).into()))
}

pub(super) fn waiters(lock: &LockId, at_most: usize) -> Find {
    Find {
        filter: doc! { "lock": lock_id(lock) },
        sort: Some(doc! { "since": 1, "_id": 1 }),
        at_most: Some(at_most),
        local: true,
        ..Find::default()
    }
}

/// The ids of those that there are.
pub(super) fn places(ids: &[Document]) -> Find {
    Find {
        filter: by_ids(ids.iter().map(Bson::from)),
        projection: Some(doc! { "_id": 1 }),
        local: true,
        ..Find::default()
    }
}

// ----- sessions

pub(super) fn open(open: &Open) -> Statement {
    let id = open.session.to_string();
    let about = &open.about;
    let session = doc! {
        "v": LAYOUT,
        "ns": about.namespace.as_str(),
        "holder": about.holder.as_str(),
        "host": &about.host,
        "pid": i64::from(about.pid),
        "program": &about.program,
        "plan_version": i64::from(about.plan_version),
        "beat": 0_i64,
        "nonce": long(open.nonce.get()),
        "ttl": millis(open.ttl),
        "death": null,
        "shares": shares(&open.shares),
        "requests": [],
    };
    Statement::pipeline(
        doc! { "_id": &id },
        changed_if(is_new(id), overlaid(session, doc! { "started": "$$NOW", "beat_at": "$$NOW" })),
    )
    .or_insert()
}

pub(super) fn beat(write: &BeatWrite) -> Statement {
    let mut fixed = doc! { "beat": long(write.beat.get()), "nonce": long(write.nonce.get()) };
    if let Some(now) = &write.shares {
        fixed.insert("shares", shares(now));
    }
    let mut evaluated = doc! { "beat_at": "$$NOW" };
    if !write.heard.is_empty() {
        let heard: Vec<_> =
            write.heard.iter().map(|(lock, term)| Bson::Document(request_key(lock, *term))).collect();
        evaluated.insert(
            "requests",
            doc! { "$filter": {
                "input": "$requests",
                "as": "request",
                "cond": { "$not": { "$in": [request_key_of("$$request"), literal(heard)] } },
            } },
        );
    }
    let larger = doc! { "$and": [is_alive_session(), is_number("$beat"), { "$lt": ["$beat", long(write.beat.get())] }] };
    Statement::pipeline(
        doc! { "_id": write.session.to_string() },
        changed_if(larger, overlaid(fixed, evaluated)),
    )
}

/// What makes two requests the same one, of a request in a document.
fn request_key_of(request: &str) -> Document {
    doc! {
        "kind": format!("{request}.kind"),
        "key": format!("{request}.key"),
        "term": format!("{request}.term"),
    }
}

pub(super) fn ask(session: SessionId, asked: &Request) -> Statement {
    let same = doc! { "$eq": [request_key_of("$$known"), literal(request_key(&asked.lock, asked.term))] };
    let known = doc! { "$anyElementTrue": [{ "$map": { "input": "$requests", "as": "known", "in": same } }] };
    let condition = doc! { "$and": [
        is_alive_session(),
        { "$lt": [{ "$size": "$requests" }, MAX_REQUESTS as i64] },
        { "$not": known },
    ] };
    let added = doc! { "requests": { "$concatArrays": ["$requests", [literal(request(asked))]] } };
    Statement::pipeline(doc! { "_id": session.to_string() }, changed_if(condition, overlaid(doc! {}, added)))
}

pub(super) fn declare(declaration: &Declaration) -> Statement {
    let id = declaration.session.to_string();
    let death = doc! { "death": {
        "at": "$$NOW", "by": text(&declaration.by), "why": text(&declaration.why),
    } };
    let ground = match &declaration.ground {
        Evidence::Missing { namespace, holder, ttl } => {
            let tombstone = doc! {
                "v": LAYOUT, "ns": namespace.as_str(), "holder": holder.as_str(), "host": "", "pid": 0_i64,
                "program": "", "plan_version": 0_i64, "beat": 0_i64, "nonce": 0_i64, "ttl": millis(*ttl),
                "shares": [], "requests": [],
            };
            let buried = merged([death, doc! { "started": "$$NOW", "beat_at": "$$NOW" }]);
            return Statement::pipeline(
                doc! { "_id": &id },
                changed_if(is_new(id), overlaid(tombstone, buried)),
            )
            .or_insert();
        }
        Evidence::Unbeaten { nonce } => doc! { "$eq": ["$nonce", long(nonce.get())] },
        Evidence::Operator => doc! { "$literal": true },
    };
    Statement::pipeline(
        doc! { "_id": id },
        changed_if(doc! { "$and": [is_alive_session(), ground] }, overlaid(doc! {}, death)),
    )
}

// ----- schedules

/// Whether a field is absent, null, or what is said.
fn is_nothing_or(field: &str, condition: Document) -> Document {
    doc! { "$or": [is_type(field, &["null", "missing"]), condition] }
}

fn is_sane_order(order: &str) -> Document {
    doc! { "$and": [
        is_type(&format!("{order}.at"), &["date"]),
        is_type(&format!("{order}.by"), &["string"]),
        is_type(&format!("{order}.why"), &["string"]),
    ] }
}

/// Whether a schedule's document is one that can be read, but for the lengths of its texts.
fn is_sane_schedule() -> Document {
    let definition = doc! { "$and": [
        is_type("$definition", &["object"]),
        is_type("$definition.timing", &["string"]),
        is_type("$definition.policies", &["string"]),
        is_type("$definition.since", &["date"]),
        is_type("$definition.term", &["long", "int"]),
        { "$gte": ["$definition.term", 0] },
        { "$lte": ["$definition.term", long(MAX_NUMBER)] },
    ] };
    let pause = doc! { "$and": [
        is_type("$pause", &["object"]),
        is_type("$pause.since", &["date"]),
        is_type("$pause.until", &["date", "null", "missing"]),
        is_type("$pause.by", &["string"]),
        is_type("$pause.why", &["string"]),
    ] };
    let sane = doc! { "$map": { "input": "$orders", "as": "order", "in": is_sane_order("$$order") } };
    let orders = doc! { "$and": [{ "$isArray": "$orders" }, { "$allElementsTrue": [sane] }] };
    let sane = doc! { "$map": { "input": "$pauses_before", "as": "pause", "in": { "$and": [
        is_type("$$pause.since", &["date"]),
        is_type("$$pause.until", &["date"]),
    ] } } };
    let before = doc! { "$and": [{ "$isArray": "$pauses_before" }, { "$allElementsTrue": [sane] }] };
    doc! { "$and": [
        is_known_layout(),
        is_nothing_or("$definition", definition),
        is_nothing_or("$pause", pause),
        is_nothing_or("$pauses_before", before),
        is_nothing_or("$orders", orders),
        is_type("$mark", &["date", "null", "missing"]),
    ] }
}

/// A record that says nothing, if there is none; and then the change, if the record is whole and has need of
/// it.
fn change_schedule(schedule: &ScheduleId, needed: Document, change: Document) -> Statement {
    let id = schedule_id(schedule);
    let mut stages = changed_if(is_new(id.clone()), overlaid(doc! { "v": LAYOUT }, doc! {}));
    stages.extend(changed_if(doc! { "$and": [is_sane_schedule(), needed] }, overlaid(doc! {}, change)));
    Statement::pipeline(doc! { "_id": id }, stages).or_insert()
}

pub(super) fn define(define: &Define) -> Statement {
    let same_timing = doc! { "$eq": ["$definition.timing", text(&define.timing)] };
    let same_policies = doc! { "$eq": ["$definition.policies", text(&define.policies)] };
    let needed = doc! { "$and": [
        { "$not": { "$gt": ["$definition.term", long(define.term.get())] } },
        { "$not": { "$and": [same_timing.clone(), same_policies] } },
    ] };
    let keeps = match &define.instead_of {
        Some(known) => doc! { "$or": [same_timing, { "$eq": ["$definition.timing", text(known)] }] },
        None => same_timing,
    };
    let definition = doc! {
        "timing": text(&define.timing),
        "policies": text(&define.policies),
        "since": { "$cond": [keeps, "$definition.since", "$$NOW"] },
        "term": long(define.term.get()),
    };
    change_schedule(&define.schedule, needed, doc! { "definition": definition })
}

pub(super) fn instruct(schedule: &ScheduleId, instruction: &Instruction) -> Statement {
    let is_on = doc! { "$and": [
        is_type("$pause", &["object"]),
        { "$eq": [{ "$ifNull": ["$pause.until", null] }, null] },
    ] };
    let has_order = |at| doc! { "$in": [date(at), { "$ifNull": ["$orders.at", []] }] };
    let orders = doc! { "$ifNull": ["$orders", []] };
    let orders_that = |are: &str, at| {
        let condition = doc! { are: ["$$order.at", date(at)] };
        doc! { "$filter": { "input": orders.clone(), "as": "order", "cond": condition } }
    };
    let (needed, change) = match instruction {
        Instruction::Pause { by, why } => {
            let pause = doc! { "since": "$$NOW", "until": null, "by": text(by), "why": text(why) };
            let last = doc! { "since": "$pause.since", "until": "$pause.until" };
            let known = doc! { "$ifNull": ["$pauses_before", []] };
            let all = doc! { "$concatArrays": [known.clone(), [last]] };
            let before = doc! { "$cond": [
                is_type("$pause", &["object"]),
                { "$slice": [all, -(MAX_PAUSES_BEFORE as i64)] },
                known,
            ] };
            (doc! { "$not": is_on }, doc! { "pause": pause, "pauses_before": before })
        }
        Instruction::Resume => {
            (is_on, doc! { "pause": { "$mergeObjects": ["$pause", { "until": "$$NOW" }] } })
        }
        Instruction::Run(new) => {
            let has_room = doc! { "$lt": [{ "$size": orders.clone() }, MAX_ORDERS as i64] };
            let needed = doc! { "$and": [{ "$not": has_order(new.at) }, has_room] };
            let all: [Bson; 3] = [
                orders_that("$lt", new.at).into(),
                vec![literal(order(new))].into(),
                orders_that("$gt", new.at).into(),
            ];
            (needed, doc! { "orders": { "$concatArrays": all.to_vec() } })
        }
        Instruction::Ran { at } => (has_order(*at), doc! { "orders": orders_that("$ne", *at) }),
    };
    change_schedule(schedule, needed, change)
}

pub(super) fn raise_mark(schedule: &ScheduleId, to: &RunId) -> Statement {
    let lower = doc! { "$not": { "$gte": ["$mark", date(to.instant)] } };
    change_schedule(schedule, lower, doc! { "mark": date(to.instant) })
}

// ----- runs

/// Whether a run's document can be read, but for the lengths of its texts.
fn is_sane_run() -> Document {
    let outcomes: Vec<_> = Outcome::ALL.into_iter().map(Outcome::as_str).collect();
    let finish = [
        are("object", &["$finish"]),
        are("date", &["$finish.at"]),
        vec![doc! { "$in": ["$finish.outcome", outcomes] }, is_type("$finish.error", &["null", "string"])],
        vec![is_type("$finish.last", &["bool", "null", "missing"])],
    ];
    let skipped = [
        are("object", &["$skipped"]),
        are("date", &["$skipped.from"]),
        are_numbers(&["$skipped.count"]),
        are("string", &["$skipped.why"]),
    ];
    let all = [
        vec![is_known_layout()],
        are("string", &["$session", "$holder"]),
        are("date", &["$started"]),
        are_numbers(&["$term"]),
        is_one_of(&["$attempt"], is_small),
        vec![
            doc! { "$or": [{ "$eq": ["$finish", null] }, { "$and": finish.concat() }] },
            is_nothing_or("$skipped", doc! { "$and": skipped.concat() }),
        ],
    ];
    doc! { "$and": all.concat() }
}

pub(super) fn claim(claim: &Claim) -> Statement {
    let id = run_id(&claim.run);
    let mut fixed = doc! {
        "v": LAYOUT,
        "session": claim.session.to_string(),
        "holder": claim.holder.as_str(),
        "term": long(claim.term.get()),
        "attempt": i64::from(claim.attempt),
        "finish": null,
        "skipped": skipped(claim.skipped.as_ref()),
    };
    let mut evaluated = doc! { "started": "$$NOW" };
    if claim.skipped.is_some() {
        fixed.remove("finish");
        evaluated.insert("finish", ended_now(Outcome::Skipped, Bson::Null, true));
    }
    let mut free = vec![is_new(id.clone())];
    if let Some((term, attempt)) = claim.instead_of {
        free.push(doc! { "$and": [
            is_sane_run(),
            { "$eq": ["$term", long(term.get())] },
            { "$eq": ["$attempt", i64::from(attempt)] },
            { "$ne": ["$finish.outcome", Outcome::Succeeded.as_str()] },
            { "$not": is_attempt(claim.session, claim.term, claim.attempt) },
        ] });
    }
    Statement::pipeline(doc! { "_id": id }, changed_if(doc! { "$or": free }, overlaid(fixed, evaluated)))
        .or_insert()
}

fn is_attempt(session: SessionId, term: Term, attempt: u32) -> Document {
    doc! { "$and": [
        { "$eq": ["$session", text(&session)] },
        { "$eq": ["$term", long(term.get())] },
        { "$eq": ["$attempt", i64::from(attempt)] },
    ] }
}

fn ended_now(outcome: Outcome, error: Bson, last: bool) -> Document {
    doc! { "at": "$$NOW", "outcome": outcome.as_str(), "error": error, "last": last }
}

pub(super) fn finish(finish: &FinishRun) -> Statement {
    let error: Bson = finish.error.as_ref().map_or(Bson::Null, |error| text(&error).into());
    let end = doc! { "finish": ended_now(finish.outcome, error, finish.last) };
    let condition = doc! { "$and": [
        is_sane_run(),
        is_attempt(finish.session, finish.term, finish.attempt),
        { "$eq": ["$finish", null] },
    ] };
    Statement::pipeline(doc! { "_id": run_id(&finish.run) }, changed_if(condition, overlaid(doc! {}, end)))
}

/// The runs of a schedule, but not its own record.
pub(super) fn runs_of(schedule: &ScheduleId, before: Option<Bson>) -> Document {
    let first = schedule_part(schedule, date(StoreTime::from_millis(i64::MIN)));
    let mut last = schedule_part(schedule, date(StoreTime::from_millis(i64::MAX)));
    // After every entry of that instant.
    last.insert("entry", Bson::MaxKey);
    let to = before.map_or_else(|| doc! { "$lte": last }, |before| doc! { "$lt": before });
    doc! { "_id": merged([doc! { "$gte": first }, to]) }
}

/// The runs of a schedule up to one of them.
pub(super) fn runs_up_to(schedule: &ScheduleId, last: Bson) -> Document {
    let first = schedule_part(schedule, date(StoreTime::from_millis(i64::MIN)));
    doc! { "_id": { "$gte": first, "$lte": last } }
}

/// Those that started longer ago than that.
pub(super) fn started_before(age: Duration) -> Document {
    doc! { "$expr": { "$and": [
        { "$eq": [{ "$type": "$started" }, "date"] },
        { "$lt": ["$started", ago(age)] },
    ] } }
}

// ----- upkeep

/// That long before now. Durations stay below 2^53 ms, so that this is a date.
pub(super) fn ago(age: Duration) -> Document {
    doc! { "$subtract": ["$$NOW", millis(age)] }
}

#[cfg(test)]
#[allow(clippy::too_many_lines, reason = "a snapshot is as long as what the server is sent")]
mod tests {
    use std::fmt::Write as _;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::model::{Entry, Holder, Nonce, RunNow, Skipped, Why};

    const LIMIT: Duration = Duration::from_millis(2500);

    /// A document over several lines, as a person would write it.
    fn pretty(value: &Bson, indent: usize, out: &mut String) {
        let pad = " ".repeat(indent + 2);
        match value {
            Bson::Document(document) if value.to_string().len() > 90 => {
                out.push_str("{\n");
                for (key, value) in document {
                    write!(out, "{pad}{key}: ").expect("a string takes any text");
                    pretty(value, indent + 2, out);
                    out.push('\n');
                }
                write!(out, "{}}}", " ".repeat(indent)).expect("a string takes any text");
            }
            Bson::Array(values) if value.to_string().len() > 90 => {
                out.push_str("[\n");
                for value in values {
                    out.push_str(&pad);
                    pretty(value, indent + 2, out);
                    out.push('\n');
                }
                write!(out, "{}]", " ".repeat(indent)).expect("a string takes any text");
            }
            short => out.push_str(&short.to_string()),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
    fn check(statement: Statement, expected: Expect) {
        let mut text = String::new();
        let filter = doc! { "q": statement.filter, "u": statement.update, "upsert": statement.upsert };
        pretty(&filter.into(), 0, &mut text);
        expected.assert_eq(&text);
    }

    fn lock() -> LockId {
        LockId { namespace: "shop".parse().unwrap(), kind: Kind::Lock, key: "$report".parse().unwrap() }
    }

    fn candidate() -> Candidate {
        Candidate {
            session: SessionId::from_u128(0xab),
            ticket: Ticket::new(7),
            ttl: Duration::from_secs(30),
            holder: Holder::new("$exp").unwrap(),
            who: None,
            why: Some(Why::new("$$NOW").unwrap()),
            value: None,
            lock_delay: Duration::ZERO,
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a snapshot")]
    fn a_take() {
        check(
            take(&Take { lock: lock(), by: candidate() }, &[SessionId::from_u128(0xdead)]),
            expect![[r#"
                {
                  q: { "_id": { "ns": "shop", "kind": "lock", "key": "$report" } }
                  u: [
                    {
                      $replaceWith: {
                        $let: {
                          vars: {
                            verdict: {
                              $switch: {
                                branches: [
                                  {
                                    case: {
                                      $eq: ["$$ROOT", { "_id": { "$literal": { "ns": "shop", "kind": "lock", "key": "$report" } } }]
                                    }
                                    then: "new"
                                  }
                                  {
                                    case: {
                                      $not: {
                                        $and: [
                                          {
                                            $and: [
                                              { "$eq": ["$v", 2] }
                                              {
                                                $and: [
                                                  { "$in": [{ "$type": "$term" }, ["long", "int"]] }
                                                  { "$gte": ["$term", 0] }
                                                  { "$lte": ["$term", 9007199254740991] }
                                                ]
                                              }
                                              { "$isArray": "$past" }
                                              {
                                                $or: [
                                                  { "$eq": ["$not_before", null] }
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$not_before" }, ["date"]] }
                                                      {
                                                        $and: [
                                                          { "$in": [{ "$type": "$closed_for" }, ["long", "int"]] }
                                                          { "$gte": ["$closed_for", 0] }
                                                          { "$lte": ["$closed_for", 9007199254740991] }
                                                        ]
                                                      }
                                                    ]
                                                  }
                                                ]
                                              }
                                              {
                                                $or: [
                                                  { "$eq": ["$session", null] }
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$session" }, ["string"]] }
                                                      { "$in": [{ "$type": "$holder" }, ["string"]] }
                                                      { "$in": [{ "$type": "$acquired_at" }, ["date"]] }
                                                      {
                                                        $and: [
                                                          { "$in": [{ "$type": "$ticket" }, ["long", "int"]] }
                                                          { "$gte": ["$ticket", 0] }
                                                          { "$lte": ["$ticket", 9007199254740991] }
                                                        ]
                                                      }
                                                      {
                                                        $and: [
                                                          { "$in": [{ "$type": "$ttl" }, ["long", "int"]] }
                                                          { "$gte": ["$ttl", 0] }
                                                          { "$lte": ["$ttl", 9007199254740991] }
                                                        ]
                                                      }
                                                      {
                                                        $and: [
                                                          { "$in": [{ "$type": "$lock_delay" }, ["long", "int"]] }
                                                          { "$gte": ["$lock_delay", 0] }
                                                          { "$lte": ["$lock_delay", 9007199254740991] }
                                                        ]
                                                      }
                                                      {
                                                        $and: [
                                                          { "$in": [{ "$type": "$value_set" }, ["long", "int"]] }
                                                          { "$gte": ["$value_set", 0] }
                                                          { "$lte": ["$value_set", 9007199254740991] }
                                                        ]
                                                      }
                                                      { "$in": [{ "$type": "$who" }, ["null", "string"]] }
                                                      { "$in": [{ "$type": "$why" }, ["null", "string"]] }
                                                      { "$in": [{ "$type": "$value" }, ["null", "binData"]] }
                                                    ]
                                                  }
                                                ]
                                              }
                                            ]
                                          }
                                          { "$lt": ["$term", 9007199254740991] }
                                        ]
                                      }
                                    }
                                    then: "keep"
                                  }
                                  {
                                    case: { "$eq": ["$session", { "$literal": "000000000000000000000000000000ab" }] }
                                    then: { "$cond": [{ "$lt": ["$ticket", 7] }, "superseded", "keep"] }
                                  }
                                  {
                                    case: { "$in": ["$session", { "$literal": ["0000000000000000000000000000dead"] }] }
                                    then: { "$cond": [{ "$gt": ["$lock_delay", 0] }, "delay", "died"] }
                                  }
                                  { "case": { "$ne": ["$session", null] }, "then": "keep" }
                                  {
                                    case: {
                                      $and: [
                                        { "$gt": ["$not_before", "$$NOW"] }
                                        { "$lte": ["$not_before", { "$add": ["$$NOW", "$closed_for"] }] }
                                      ]
                                    }
                                    then: "keep"
                                  }
                                ]
                                default: "free"
                              }
                            }
                          }
                          in: {
                            $switch: {
                              branches: [
                                { "case": { "$eq": ["$$verdict", "keep"] }, "then": "$$ROOT" }
                                {
                                  case: { "$eq": ["$$verdict", "delay"] }
                                  then: {
                                    $mergeObjects: [
                                      "$$ROOT"
                                      { "$literal": { "session": null, "value": null, "ended": "died", "note": null } }
                                      {
                                        ended_at: "$$NOW"
                                        not_before: { "$add": ["$$NOW", "$lock_delay"] }
                                        closed_for: "$lock_delay"
                                      }
                                    ]
                                  }
                                }
                              ]
                              default: {
                                $mergeObjects: [
                                  "$$ROOT"
                                  {
                                    $literal: {
                                      v: 2
                                      session: "000000000000000000000000000000ab"
                                      ticket: 7
                                      ttl: 30000
                                      holder: "$exp"
                                      who: null
                                      why: "$$NOW"
                                      value: null
                                      lock_delay: 0
                                      value_set: 0
                                      ended: null
                                      ended_at: null
                                      note: null
                                      not_before: null
                                      closed_for: null
                                    }
                                  }
                                  {
                                    term: { "$max": [1, { "$add": ["$term", 1] }, { "$toLong": "$$NOW" }] }
                                    acquired_at: "$$NOW"
                                    past: {
                                      $cond: [
                                        { "$eq": ["$$verdict", "new"] }
                                        []
                                        {
                                          $slice: [
                                            {
                                              $concatArrays: [
                                                [
                                                  {
                                                    holder: "$holder"
                                                    who: "$who"
                                                    term: "$term"
                                                    from: "$acquired_at"
                                                    to: { "$ifNull": ["$ended_at", "$$NOW"] }
                                                    how: { "$ifNull": ["$ended", "$$verdict"] }
                                                    note: "$note"
                                                  }
                                                ]
                                                "$past"
                                              ]
                                            }
                                            5
                                          ]
                                        }
                                      ]
                                    }
                                  }
                                ]
                              }
                            }
                          }
                        }
                      }
                    }
                  ]
                  upsert: true
                }"#]],
        );
    }

    #[test]
    fn a_release_to_nobody() {
        let release = Release {
            lock: lock(),
            session: SessionId::from_u128(0xab),
            term: Term::new(5),
            note: Some(Why::new("$done").unwrap()),
            then: ReleaseTo::Free,
        };
        check(
            releases(&[release]).remove(0),
            expect![[r#"
                {
                  q: {
                    _id: { "ns": "shop", "kind": "lock", "key": "$report" }
                    v: 2
                    session: "000000000000000000000000000000ab"
                    term: 5
                  }
                  u: {
                    $set: {
                      session: null
                      value: null
                      ended: "released"
                      note: "$done"
                      not_before: null
                      closed_for: null
                    }
                    $currentDate: { "ended_at": true }
                  }
                  upsert: false
                }"#]],
        );
    }

    #[test]
    fn a_hand_over() {
        let release = Release {
            lock: lock(),
            session: SessionId::from_u128(0xab),
            term: Term::new(5),
            note: Some(Why::new("$done").unwrap()),
            then: ReleaseTo::HandTo(Box::new(candidate())),
        };
        check(
            releases(&[release]).remove(0),
            expect![[r#"
                {
                  q: {
                    _id: { "ns": "shop", "kind": "lock", "key": "$report" }
                    v: 2
                    session: "000000000000000000000000000000ab"
                    term: 5
                  }
                  u: [
                    {
                      $replaceWith: {
                        $mergeObjects: [
                          "$$ROOT"
                          {
                            $literal: {
                              v: 2
                              session: "000000000000000000000000000000ab"
                              ticket: 7
                              ttl: 30000
                              holder: "$exp"
                              who: null
                              why: "$$NOW"
                              value: null
                              lock_delay: 0
                              value_set: 0
                              ended: null
                              ended_at: null
                              note: null
                              not_before: null
                              closed_for: null
                            }
                          }
                          {
                            term: { "$max": [1, { "$add": ["$term", 1] }, { "$toLong": "$$NOW" }] }
                            acquired_at: "$$NOW"
                            past: {
                              $slice: [
                                {
                                  $concatArrays: [
                                    [
                                      {
                                        holder: "$holder"
                                        who: "$who"
                                        term: "$term"
                                        from: "$acquired_at"
                                        to: { "$ifNull": ["$ended_at", "$$NOW"] }
                                        how: { "$ifNull": ["$ended", "handed over"] }
                                        note: { "$literal": "$done" }
                                      }
                                    ]
                                    "$past"
                                  ]
                                }
                                5
                              ]
                            }
                          }
                        ]
                      }
                    }
                  ]
                  upsert: false
                }"#]],
        );
    }

    #[test]
    fn a_beat() {
        let beat = BeatWrite {
            session: SessionId::from_u128(0xab),
            beat: crate::model::Beat::new(12),
            nonce: Nonce::new(99),
            shares: None,
            heard: vec![(lock(), Term::new(5))],
        };
        check(
            super::beat(&beat),
            expect![[r#"
                {
                  q: { "_id": "000000000000000000000000000000ab" }
                  u: [
                    {
                      $replaceWith: {
                        $cond: [
                          {
                            $and: [
                              {
                                $and: [
                                  { "$eq": ["$death", null] }
                                  { "$eq": ["$v", 2] }
                                  { "$in": [{ "$type": "$ns" }, ["string"]] }
                                  { "$in": [{ "$type": "$holder" }, ["string"]] }
                                  { "$in": [{ "$type": "$host" }, ["string"]] }
                                  { "$in": [{ "$type": "$program" }, ["string"]] }
                                  { "$in": [{ "$type": "$started" }, ["date"]] }
                                  { "$in": [{ "$type": "$beat_at" }, ["date"]] }
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$beat" }, ["long", "int"]] }
                                      { "$gte": ["$beat", 0] }
                                      { "$lte": ["$beat", 9007199254740991] }
                                    ]
                                  }
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$nonce" }, ["long", "int"]] }
                                      { "$gte": ["$nonce", 0] }
                                      { "$lte": ["$nonce", 9007199254740991] }
                                    ]
                                  }
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$ttl" }, ["long", "int"]] }
                                      { "$gte": ["$ttl", 0] }
                                      { "$lte": ["$ttl", 9007199254740991] }
                                    ]
                                  }
                                  {
                                    $and: [
                                      {
                                        $and: [
                                          { "$in": [{ "$type": "$pid" }, ["long", "int"]] }
                                          { "$gte": ["$pid", 0] }
                                          { "$lte": ["$pid", 9007199254740991] }
                                        ]
                                      }
                                      { "$lte": ["$pid", 4294967295] }
                                    ]
                                  }
                                  {
                                    $and: [
                                      {
                                        $and: [
                                          { "$in": [{ "$type": "$plan_version" }, ["long", "int"]] }
                                          { "$gte": ["$plan_version", 0] }
                                          { "$lte": ["$plan_version", 9007199254740991] }
                                        ]
                                      }
                                      { "$lte": ["$plan_version", 4294967295] }
                                    ]
                                  }
                                  {
                                    $and: [
                                      { "$isArray": "$shares" }
                                      {
                                        $allElementsTrue: [
                                          {
                                            $map: {
                                              input: "$shares"
                                              as: "one"
                                              in: {
                                                $and: [
                                                  { "$in": [{ "$type": "$$one.spread" }, ["string"]] }
                                                  { "$in": [{ "$type": "$$one.digest" }, ["string"]] }
                                                  { "$in": [{ "$type": "$$one.draining" }, ["bool"]] }
                                                  { "$in": [{ "$type": "$$one.paused" }, ["bool"]] }
                                                  {
                                                    $and: [
                                                      {
                                                        $and: [
                                                          { "$in": [{ "$type": "$$one.cap" }, ["long", "int"]] }
                                                          { "$gte": ["$$one.cap", 0] }
                                                          { "$lte": ["$$one.cap", 9007199254740991] }
                                                        ]
                                                      }
                                                      { "$lte": ["$$one.cap", 4294967295] }
                                                    ]
                                                  }
                                                  {
                                                    $and: [
                                                      {
                                                        $and: [
                                                          { "$in": [{ "$type": "$$one.weight" }, ["long", "int"]] }
                                                          { "$gte": ["$$one.weight", 0] }
                                                          { "$lte": ["$$one.weight", 9007199254740991] }
                                                        ]
                                                      }
                                                      { "$lte": ["$$one.weight", 4294967295] }
                                                    ]
                                                  }
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$$one.reserved" }, ["long", "int"]] }
                                                      { "$gte": ["$$one.reserved", 0] }
                                                      { "$lte": ["$$one.reserved", 9007199254740991] }
                                                    ]
                                                  }
                                                  {
                                                    $cond: [
                                                      { "$in": [{ "$type": "$$one.buckets" }, ["binData"]] }
                                                      { "$eq": [{ "$binarySize": "$$one.buckets" }, 1024] }
                                                      { "$in": [{ "$type": "$$one.buckets" }, ["missing", "null"]] }
                                                    ]
                                                  }
                                                  { "$in": [{ "$type": "$$one.trial" }, ["missing", "null", "string"]] }
                                                ]
                                              }
                                            }
                                          }
                                        ]
                                      }
                                    ]
                                  }
                                  {
                                    $and: [
                                      { "$isArray": "$requests" }
                                      {
                                        $allElementsTrue: [
                                          {
                                            $map: {
                                              input: "$requests"
                                              as: "one"
                                              in: {
                                                $and: [
                                                  { "$in": [{ "$type": "$$one.kind" }, ["string"]] }
                                                  { "$in": [{ "$type": "$$one.key" }, ["string"]] }
                                                  { "$in": [{ "$type": "$$one.by" }, ["string"]] }
                                                  { "$in": [{ "$type": "$$one.why" }, ["string"]] }
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$$one.term" }, ["long", "int"]] }
                                                      { "$gte": ["$$one.term", 0] }
                                                      { "$lte": ["$$one.term", 9007199254740991] }
                                                    ]
                                                  }
                                                ]
                                              }
                                            }
                                          }
                                        ]
                                      }
                                    ]
                                  }
                                ]
                              }
                              {
                                $and: [
                                  { "$in": [{ "$type": "$beat" }, ["long", "int"]] }
                                  { "$gte": ["$beat", 0] }
                                  { "$lte": ["$beat", 9007199254740991] }
                                ]
                              }
                              { "$lt": ["$beat", 12] }
                            ]
                          }
                          {
                            $mergeObjects: [
                              "$$ROOT"
                              { "$literal": { "beat": 12, "nonce": 99 } }
                              {
                                beat_at: "$$NOW"
                                requests: {
                                  $filter: {
                                    input: "$requests"
                                    as: "request"
                                    cond: {
                                      $not: {
                                        $in: [
                                          { "kind": "$$request.kind", "key": "$$request.key", "term": "$$request.term" }
                                          { "$literal": [{ "kind": "lock", "key": "$report", "term": 5 }] }
                                        ]
                                      }
                                    }
                                  }
                                }
                              }
                            ]
                          }
                          "$$ROOT"
                        ]
                      }
                    }
                  ]
                  upsert: false
                }"#]],
        );
    }

    #[test]
    fn a_declaration() {
        let declaration = Declaration {
            session: SessionId::from_u128(0xab),
            ground: Evidence::Unbeaten { nonce: Nonce::new(99) },
            by: "$pod".parse().unwrap(),
            why: Why::new("no beat for 30s").unwrap(),
        };
        check(
            declare(&declaration),
            expect![[r#"
                {
                  q: { "_id": "000000000000000000000000000000ab" }
                  u: [
                    {
                      $replaceWith: {
                        $cond: [
                          {
                            $and: [
                              {
                                $and: [
                                  { "$eq": ["$death", null] }
                                  { "$eq": ["$v", 2] }
                                  { "$in": [{ "$type": "$ns" }, ["string"]] }
                                  { "$in": [{ "$type": "$holder" }, ["string"]] }
                                  { "$in": [{ "$type": "$host" }, ["string"]] }
                                  { "$in": [{ "$type": "$program" }, ["string"]] }
                                  { "$in": [{ "$type": "$started" }, ["date"]] }
                                  { "$in": [{ "$type": "$beat_at" }, ["date"]] }
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$beat" }, ["long", "int"]] }
                                      { "$gte": ["$beat", 0] }
                                      { "$lte": ["$beat", 9007199254740991] }
                                    ]
                                  }
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$nonce" }, ["long", "int"]] }
                                      { "$gte": ["$nonce", 0] }
                                      { "$lte": ["$nonce", 9007199254740991] }
                                    ]
                                  }
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$ttl" }, ["long", "int"]] }
                                      { "$gte": ["$ttl", 0] }
                                      { "$lte": ["$ttl", 9007199254740991] }
                                    ]
                                  }
                                  {
                                    $and: [
                                      {
                                        $and: [
                                          { "$in": [{ "$type": "$pid" }, ["long", "int"]] }
                                          { "$gte": ["$pid", 0] }
                                          { "$lte": ["$pid", 9007199254740991] }
                                        ]
                                      }
                                      { "$lte": ["$pid", 4294967295] }
                                    ]
                                  }
                                  {
                                    $and: [
                                      {
                                        $and: [
                                          { "$in": [{ "$type": "$plan_version" }, ["long", "int"]] }
                                          { "$gte": ["$plan_version", 0] }
                                          { "$lte": ["$plan_version", 9007199254740991] }
                                        ]
                                      }
                                      { "$lte": ["$plan_version", 4294967295] }
                                    ]
                                  }
                                  {
                                    $and: [
                                      { "$isArray": "$shares" }
                                      {
                                        $allElementsTrue: [
                                          {
                                            $map: {
                                              input: "$shares"
                                              as: "one"
                                              in: {
                                                $and: [
                                                  { "$in": [{ "$type": "$$one.spread" }, ["string"]] }
                                                  { "$in": [{ "$type": "$$one.digest" }, ["string"]] }
                                                  { "$in": [{ "$type": "$$one.draining" }, ["bool"]] }
                                                  { "$in": [{ "$type": "$$one.paused" }, ["bool"]] }
                                                  {
                                                    $and: [
                                                      {
                                                        $and: [
                                                          { "$in": [{ "$type": "$$one.cap" }, ["long", "int"]] }
                                                          { "$gte": ["$$one.cap", 0] }
                                                          { "$lte": ["$$one.cap", 9007199254740991] }
                                                        ]
                                                      }
                                                      { "$lte": ["$$one.cap", 4294967295] }
                                                    ]
                                                  }
                                                  {
                                                    $and: [
                                                      {
                                                        $and: [
                                                          { "$in": [{ "$type": "$$one.weight" }, ["long", "int"]] }
                                                          { "$gte": ["$$one.weight", 0] }
                                                          { "$lte": ["$$one.weight", 9007199254740991] }
                                                        ]
                                                      }
                                                      { "$lte": ["$$one.weight", 4294967295] }
                                                    ]
                                                  }
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$$one.reserved" }, ["long", "int"]] }
                                                      { "$gte": ["$$one.reserved", 0] }
                                                      { "$lte": ["$$one.reserved", 9007199254740991] }
                                                    ]
                                                  }
                                                  {
                                                    $cond: [
                                                      { "$in": [{ "$type": "$$one.buckets" }, ["binData"]] }
                                                      { "$eq": [{ "$binarySize": "$$one.buckets" }, 1024] }
                                                      { "$in": [{ "$type": "$$one.buckets" }, ["missing", "null"]] }
                                                    ]
                                                  }
                                                  { "$in": [{ "$type": "$$one.trial" }, ["missing", "null", "string"]] }
                                                ]
                                              }
                                            }
                                          }
                                        ]
                                      }
                                    ]
                                  }
                                  {
                                    $and: [
                                      { "$isArray": "$requests" }
                                      {
                                        $allElementsTrue: [
                                          {
                                            $map: {
                                              input: "$requests"
                                              as: "one"
                                              in: {
                                                $and: [
                                                  { "$in": [{ "$type": "$$one.kind" }, ["string"]] }
                                                  { "$in": [{ "$type": "$$one.key" }, ["string"]] }
                                                  { "$in": [{ "$type": "$$one.by" }, ["string"]] }
                                                  { "$in": [{ "$type": "$$one.why" }, ["string"]] }
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$$one.term" }, ["long", "int"]] }
                                                      { "$gte": ["$$one.term", 0] }
                                                      { "$lte": ["$$one.term", 9007199254740991] }
                                                    ]
                                                  }
                                                ]
                                              }
                                            }
                                          }
                                        ]
                                      }
                                    ]
                                  }
                                ]
                              }
                              { "$eq": ["$nonce", 99] }
                            ]
                          }
                          {
                            $mergeObjects: [
                              "$$ROOT"
                              { "$literal": {} }
                              {
                                death: { "at": "$$NOW", "by": { "$literal": "$pod" }, "why": { "$literal": "no beat for 30s" } }
                              }
                            ]
                          }
                          "$$ROOT"
                        ]
                      }
                    }
                  ]
                  upsert: false
                }"#]],
        );
    }

    fn schedule() -> ScheduleId {
        ScheduleId { namespace: "shop".parse().unwrap(), name: "$nightly".parse().unwrap() }
    }

    /// Only the change: the conditions of every record stand in one snapshot.
    #[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
    fn check_change(statement: Statement, expected: Expect) {
        assert_eq!(statement.filter, doc! { "_id": { "ns": "shop", "schedule": "$nightly", "at": null } });
        assert!(statement.upsert, "whoever has something to say of it makes its record");
        let stages = statement.update.as_array().unwrap();
        let change = stages[1].as_document().unwrap().get_document("$replaceWith").unwrap();
        let [condition, changed, _] = &change.get_array("$cond").unwrap()[..] else { panic!("{change}") };
        let [_, needed] = &condition.as_document().unwrap().get_array("$and").unwrap()[..] else {
            panic!("{condition}")
        };
        let changed = changed.as_document().unwrap().get_array("$mergeObjects").unwrap();
        let mut text = String::new();
        pretty(&doc! { "if": needed.clone(), "then": changed.last().unwrap().clone() }.into(), 0, &mut text);
        expected.assert_eq(&text);
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a snapshot")]
    fn a_mark_that_is_raised() {
        let run = RunId::tick(schedule(), StoreTime::from_millis(60_000));
        check(
            raise_mark(&schedule(), &run),
            expect![[r#"
                {
                  q: { "_id": { "ns": "shop", "schedule": "$nightly", "at": null } }
                  u: [
                    {
                      $replaceWith: {
                        $cond: [
                          {
                            $eq: [
                              "$$ROOT"
                              { "_id": { "$literal": { "ns": "shop", "schedule": "$nightly", "at": null } } }
                            ]
                          }
                          { "$mergeObjects": ["$$ROOT", { "$literal": { "v": 2 } }, {}] }
                          "$$ROOT"
                        ]
                      }
                    }
                    {
                      $replaceWith: {
                        $cond: [
                          {
                            $and: [
                              {
                                $and: [
                                  { "$eq": ["$v", 2] }
                                  {
                                    $or: [
                                      { "$in": [{ "$type": "$definition" }, ["null", "missing"]] }
                                      {
                                        $and: [
                                          { "$in": [{ "$type": "$definition" }, ["object"]] }
                                          { "$in": [{ "$type": "$definition.timing" }, ["string"]] }
                                          { "$in": [{ "$type": "$definition.policies" }, ["string"]] }
                                          { "$in": [{ "$type": "$definition.since" }, ["date"]] }
                                          { "$in": [{ "$type": "$definition.term" }, ["long", "int"]] }
                                          { "$gte": ["$definition.term", 0] }
                                          { "$lte": ["$definition.term", 9007199254740991] }
                                        ]
                                      }
                                    ]
                                  }
                                  {
                                    $or: [
                                      { "$in": [{ "$type": "$pause" }, ["null", "missing"]] }
                                      {
                                        $and: [
                                          { "$in": [{ "$type": "$pause" }, ["object"]] }
                                          { "$in": [{ "$type": "$pause.since" }, ["date"]] }
                                          { "$in": [{ "$type": "$pause.until" }, ["date", "null", "missing"]] }
                                          { "$in": [{ "$type": "$pause.by" }, ["string"]] }
                                          { "$in": [{ "$type": "$pause.why" }, ["string"]] }
                                        ]
                                      }
                                    ]
                                  }
                                  {
                                    $or: [
                                      { "$in": [{ "$type": "$pauses_before" }, ["null", "missing"]] }
                                      {
                                        $and: [
                                          { "$isArray": "$pauses_before" }
                                          {
                                            $allElementsTrue: [
                                              {
                                                $map: {
                                                  input: "$pauses_before"
                                                  as: "pause"
                                                  in: {
                                                    $and: [
                                                      { "$in": [{ "$type": "$$pause.since" }, ["date"]] }
                                                      { "$in": [{ "$type": "$$pause.until" }, ["date"]] }
                                                    ]
                                                  }
                                                }
                                              }
                                            ]
                                          }
                                        ]
                                      }
                                    ]
                                  }
                                  {
                                    $or: [
                                      { "$in": [{ "$type": "$orders" }, ["null", "missing"]] }
                                      {
                                        $and: [
                                          { "$isArray": "$orders" }
                                          {
                                            $allElementsTrue: [
                                              {
                                                $map: {
                                                  input: "$orders"
                                                  as: "order"
                                                  in: {
                                                    $and: [
                                                      { "$in": [{ "$type": "$$order.at" }, ["date"]] }
                                                      { "$in": [{ "$type": "$$order.by" }, ["string"]] }
                                                      { "$in": [{ "$type": "$$order.why" }, ["string"]] }
                                                    ]
                                                  }
                                                }
                                              }
                                            ]
                                          }
                                        ]
                                      }
                                    ]
                                  }
                                  { "$in": [{ "$type": "$mark" }, ["date", "null", "missing"]] }
                                ]
                              }
                              { "$not": { "$gte": ["$mark", DateTime("1970-01-01 0:01:00.0 +00:00:00")] } }
                            ]
                          }
                          {
                            $mergeObjects: ["$$ROOT", { "$literal": {} }, { "mark": DateTime("1970-01-01 0:01:00.0 +00:00:00") }]
                          }
                          "$$ROOT"
                        ]
                      }
                    }
                  ]
                  upsert: true
                }"#]],
        );
    }

    #[test]
    fn a_definition() {
        let define = Define {
            schedule: schedule(),
            term: Term::new(5),
            timing: "$daily".parse().unwrap(),
            policies: "retry.3".parse().unwrap(),
            instead_of: None,
        };
        check_change(
            super::define(&define),
            expect![[r#"
            {
              if: {
                $and: [
                  { "$not": { "$gt": ["$definition.term", 5] } }
                  {
                    $not: {
                      $and: [
                        { "$eq": ["$definition.timing", { "$literal": "$daily" }] }
                        { "$eq": ["$definition.policies", { "$literal": "retry.3" }] }
                      ]
                    }
                  }
                ]
              }
              then: {
                definition: {
                  timing: { "$literal": "$daily" }
                  policies: { "$literal": "retry.3" }
                  since: {
                    $cond: [
                      { "$eq": ["$definition.timing", { "$literal": "$daily" }] }
                      "$definition.since"
                      "$$NOW"
                    ]
                  }
                  term: 5
                }
              }
            }"#]],
        );
    }

    #[test]
    fn a_pause() {
        let by = "$pod".parse().unwrap();
        let pause = Instruction::Pause { by, why: Why::new("$$NOW").unwrap() };
        check_change(
            instruct(&schedule(), &pause),
            expect![[r#"
                {
                  if: {
                    $not: {
                      $and: [
                        { "$in": [{ "$type": "$pause" }, ["object"]] }
                        { "$eq": [{ "$ifNull": ["$pause.until", null] }, null] }
                      ]
                    }
                  }
                  then: {
                    pause: {
                      since: "$$NOW"
                      until: null
                      by: { "$literal": "$pod" }
                      why: { "$literal": "$$NOW" }
                    }
                    pauses_before: {
                      $cond: [
                        { "$in": [{ "$type": "$pause" }, ["object"]] }
                        {
                          $slice: [
                            {
                              $concatArrays: [
                                { "$ifNull": ["$pauses_before", []] }
                                [{ "since": "$pause.since", "until": "$pause.until" }]
                              ]
                            }
                            -20
                          ]
                        }
                        { "$ifNull": ["$pauses_before", []] }
                      ]
                    }
                  }
                }"#]],
        );
    }

    #[test]
    fn the_end_of_a_pause() {
        check_change(
            instruct(&schedule(), &Instruction::Resume),
            expect![[r#"
            {
              if: {
                $and: [
                  { "$in": [{ "$type": "$pause" }, ["object"]] }
                  { "$eq": [{ "$ifNull": ["$pause.until", null] }, null] }
                ]
              }
              then: { "pause": { "$mergeObjects": ["$pause", { "until": "$$NOW" }] } }
            }"#]],
        );
    }

    #[test]
    fn an_order() {
        let (by, why) = ("$pod".parse().unwrap(), Why::new("$$NOW").unwrap());
        let order = RunNow { at: StoreTime::from_millis(60_000), by, why };
        check_change(
            instruct(&schedule(), &Instruction::Run(order)),
            expect![[r#"
            {
              if: {
                $and: [
                  {
                    $not: { "$in": [DateTime("1970-01-01 0:01:00.0 +00:00:00"), { "$ifNull": ["$orders.at", []] }] }
                  }
                  { "$lt": [{ "$size": { "$ifNull": ["$orders", []] } }, 100] }
                ]
              }
              then: {
                orders: {
                  $concatArrays: [
                    {
                      $filter: {
                        input: { "$ifNull": ["$orders", []] }
                        as: "order"
                        cond: { "$lt": ["$$order.at", DateTime("1970-01-01 0:01:00.0 +00:00:00")] }
                      }
                    }
                    [
                      {
                        $literal: { "at": DateTime("1970-01-01 0:01:00.0 +00:00:00"), "by": "$pod", "why": "$$NOW" }
                      }
                    ]
                    {
                      $filter: {
                        input: { "$ifNull": ["$orders", []] }
                        as: "order"
                        cond: { "$gt": ["$$order.at", DateTime("1970-01-01 0:01:00.0 +00:00:00")] }
                      }
                    }
                  ]
                }
              }
            }"#]],
        );
    }

    #[test]
    fn an_order_that_ran() {
        let ran = Instruction::Ran { at: StoreTime::from_millis(60_000) };
        check_change(
            instruct(&schedule(), &ran),
            expect![[r#"
            {
              if: { "$in": [DateTime("1970-01-01 0:01:00.0 +00:00:00"), { "$ifNull": ["$orders.at", []] }] }
              then: {
                orders: {
                  $filter: {
                    input: { "$ifNull": ["$orders", []] }
                    as: "order"
                    cond: { "$ne": ["$$order.at", DateTime("1970-01-01 0:01:00.0 +00:00:00")] }
                  }
                }
              }
            }"#]],
        );
    }

    #[test]
    fn a_claim_of_ticks_that_are_not_run() {
        let instant = StoreTime::from_millis(60_000);
        let claim = Claim {
            run: RunId { schedule: schedule(), instant, entry: Entry::Skipped },
            session: SessionId::from_u128(0xab),
            holder: Holder::new("$exp").unwrap(),
            term: Term::new(5),
            attempt: 1,
            instead_of: Some((Term::new(4), 1)),
            skipped: Some(Skipped {
                from: StoreTime::from_millis(0),
                count: 2,
                why: Why::new("$paused").unwrap(),
            }),
        };
        check(
            super::claim(&claim),
            expect![[r#"
                {
                  q: {
                    _id: {
                      ns: "shop"
                      schedule: "$nightly"
                      at: DateTime("1970-01-01 0:01:00.0 +00:00:00")
                      entry: "skipped"
                    }
                  }
                  u: [
                    {
                      $replaceWith: {
                        $cond: [
                          {
                            $or: [
                              {
                                $eq: [
                                  "$$ROOT"
                                  {
                                    _id: {
                                      $literal: {
                                        ns: "shop"
                                        schedule: "$nightly"
                                        at: DateTime("1970-01-01 0:01:00.0 +00:00:00")
                                        entry: "skipped"
                                      }
                                    }
                                  }
                                ]
                              }
                              {
                                $and: [
                                  {
                                    $and: [
                                      { "$eq": ["$v", 2] }
                                      { "$in": [{ "$type": "$session" }, ["string"]] }
                                      { "$in": [{ "$type": "$holder" }, ["string"]] }
                                      { "$in": [{ "$type": "$started" }, ["date"]] }
                                      {
                                        $and: [
                                          { "$in": [{ "$type": "$term" }, ["long", "int"]] }
                                          { "$gte": ["$term", 0] }
                                          { "$lte": ["$term", 9007199254740991] }
                                        ]
                                      }
                                      {
                                        $and: [
                                          {
                                            $and: [
                                              { "$in": [{ "$type": "$attempt" }, ["long", "int"]] }
                                              { "$gte": ["$attempt", 0] }
                                              { "$lte": ["$attempt", 9007199254740991] }
                                            ]
                                          }
                                          { "$lte": ["$attempt", 4294967295] }
                                        ]
                                      }
                                      {
                                        $or: [
                                          { "$eq": ["$finish", null] }
                                          {
                                            $and: [
                                              { "$in": [{ "$type": "$finish" }, ["object"]] }
                                              { "$in": [{ "$type": "$finish.at" }, ["date"]] }
                                              {
                                                $in: [
                                                  "$finish.outcome"
                                                  [
                                                    "succeeded"
                                                    "failed"
                                                    "cancelled"
                                                    "timed out"
                                                    "displaced"
                                                    "abandoned"
                                                    "not begun"
                                                    "skipped"
                                                  ]
                                                ]
                                              }
                                              { "$in": [{ "$type": "$finish.error" }, ["null", "string"]] }
                                              { "$in": [{ "$type": "$finish.last" }, ["bool", "null", "missing"]] }
                                            ]
                                          }
                                        ]
                                      }
                                      {
                                        $or: [
                                          { "$in": [{ "$type": "$skipped" }, ["null", "missing"]] }
                                          {
                                            $and: [
                                              { "$in": [{ "$type": "$skipped" }, ["object"]] }
                                              { "$in": [{ "$type": "$skipped.from" }, ["date"]] }
                                              {
                                                $and: [
                                                  { "$in": [{ "$type": "$skipped.count" }, ["long", "int"]] }
                                                  { "$gte": ["$skipped.count", 0] }
                                                  { "$lte": ["$skipped.count", 9007199254740991] }
                                                ]
                                              }
                                              { "$in": [{ "$type": "$skipped.why" }, ["string"]] }
                                            ]
                                          }
                                        ]
                                      }
                                    ]
                                  }
                                  { "$eq": ["$term", 4] }
                                  { "$eq": ["$attempt", 1] }
                                  { "$ne": ["$finish.outcome", "succeeded"] }
                                  {
                                    $not: {
                                      $and: [
                                        { "$eq": ["$session", { "$literal": "000000000000000000000000000000ab" }] }
                                        { "$eq": ["$term", 5] }
                                        { "$eq": ["$attempt", 1] }
                                      ]
                                    }
                                  }
                                ]
                              }
                            ]
                          }
                          {
                            $mergeObjects: [
                              "$$ROOT"
                              {
                                $literal: {
                                  v: 2
                                  session: "000000000000000000000000000000ab"
                                  holder: "$exp"
                                  term: 5
                                  attempt: 1
                                  skipped: { "from": DateTime("1970-01-01 0:00:00.0 +00:00:00"), "count": 2, "why": "$paused" }
                                }
                              }
                              {
                                started: "$$NOW"
                                finish: { "at": "$$NOW", "outcome": "skipped", "error": null, "last": true }
                              }
                            ]
                          }
                          "$$ROOT"
                        ]
                      }
                    }
                  ]
                  upsert: true
                }"#]],
        );
    }

    #[test]
    fn a_history_goes_on_before_an_entry_and_never_reaches_the_schedules_own_record() {
        let order = RunId { entry: Entry::Order, ..RunId::tick(schedule(), StoreTime::from_millis(60_000)) };
        let mut text = String::new();
        pretty(&runs_of(&schedule(), None).into(), 0, &mut text);
        text.push('\n');
        pretty(&runs_of(&schedule(), Some(run_id(&order).into())).into(), 0, &mut text);
        expect![[r#"
            {
              _id: {
                $gte: { "ns": "shop", "schedule": "$nightly", "at": DateTime("-9223372036854775808") }
                $lte: {
                  ns: "shop"
                  schedule: "$nightly"
                  at: DateTime("9223372036854775807")
                  entry: MaxKey
                }
              }
            }
            {
              _id: {
                $gte: { "ns": "shop", "schedule": "$nightly", "at": DateTime("-9223372036854775808") }
                $lt: {
                  ns: "shop"
                  schedule: "$nightly"
                  at: DateTime("1970-01-01 0:01:00.0 +00:00:00")
                  entry: "order"
                }
              }
            }"#]]
        .assert_eq(&text);
    }

    #[test]
    fn what_decides_is_kept_by_a_majority_and_both_ends_have_the_limit() {
        let command = modify("locks", take(&Take { lock: lock(), by: candidate() }, &[]), LIMIT);
        assert_eq!(
            command.get_document("writeConcern").unwrap(),
            &doc! { "w": "majority", "j": true, "wtimeout": 2500_i64 }
        );
        assert_eq!(command.get_i64("maxTimeMS").unwrap(), 2500);
        let none = modify("locks", take(&Take { lock: lock(), by: candidate() }, &[]), Duration::ZERO);
        assert_eq!(none.get_i64("maxTimeMS").unwrap(), 1, "zero would be no limit at all");
    }
}
