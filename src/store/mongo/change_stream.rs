//! Hints from a change stream over the collections: the second rung, where there can be no bells.
//!
//! Every entry of the server's oplog wakes every stream, whatever it is about.

use bson::{Bson, Document, doc};
use mongodb::{
    change_stream::{
        ChangeStream,
        event::{ChangeStreamEvent, OperationType},
    },
    error::{Error as DriverError, ErrorKind},
};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    codes, fields,
    hints::{End, PATIENCE, Shared, Wanted},
    options::Collections,
    renewal::{Current, Moves},
};
use crate::{
    model::{Ended, Kind},
    store::{Bell, News, Topic},
};

type Stream = ChangeStream<ChangeStreamEvent<Document>>;

/// Opens a stream and passes on what it tells, until it ends. Calls `opened` when it is open, and for each topic that
/// is added then.
pub(super) async fn follow(
    shared: &Shared,
    wanted: &mut watch::Receiver<Wanted>,
    moves: &mut Moves,
    stop: &CancellationToken,
    mut opened: impl FnMut(&Shared),
) -> End {
    let used = moves.mark_unchanged();
    wanted.mark_unchanged();
    let stream = tokio::select! {
        biased;
        () = stop.cancelled() => return End::Stopped,
        stream = open(shared, &used) => stream,
    };
    let mut stream = match stream {
        Ok(stream) => stream,
        Err(end) => return end,
    };
    // Only now: changes from here on are told.
    opened(shared);
    let patience = shared.wait + PATIENCE;
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return End::Stopped,
            // It may still be open, on connections that end with their client.
            () = moves.renewed() => return End::Moved,
            Ok(()) = wanted.changed() => {
                wanted.mark_unchanged();
                opened(shared);
                continue;
            }
            event = timeout(patience, stream.next_if_any()) => event,
        };
        match event {
            Ok(Ok(Some(event))) => match read(&event, &shared.names) {
                Ok(Some(bell)) => shared.tell_bell(bell),
                Ok(None) => {}
                Err(end) => return end,
            },
            Ok(Ok(None)) if stream.is_alive() => {}
            Ok(Ok(None)) => return End::silent("the server closed it"),
            Ok(Err(error)) => return shared.failed(&used, error),
            Err(_) => return End::silent(format!("no answer within {patience:?}")),
        }
    }
}

async fn open(shared: &Shared, used: &Current) -> Result<Stream, End> {
    let watch = used.database.watch().pipeline(wanted(&shared.names)).max_await_time(shared.wait);
    match timeout(PATIENCE, watch.into_future()).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) if is_unsupported(&error) => Err(End::Unsupported),
        Ok(Err(error)) => Err(shared.failed(used, error)),
        Err(_) => Err(End::silent("no answer when opening it")),
    }
}

/// A server that is no member of a replica set has no change streams.
fn is_unsupported(error: &DriverError) -> bool {
    matches!(&*error.kind, ErrorKind::Command(command) if command.code == codes::NO_CHANGE_STREAMS)
}

/// The changes that the server sends: no beats, no runs, and nothing large.
fn wanted(names: &Collections) -> [Document; 2] {
    let beat_fields = ["beat", "nonce", "beat_at"];
    let changed = doc! { "$map": {
        "input": { "$objectToArray": { "$ifNull": ["$updateDescription.updatedFields", {}] } },
        "in": "$$this.k",
    } };
    let more_than_a_beat =
        doc! { "$gt": [{ "$size": { "$setDifference": [changed.clone(), beat_fields] } }, 0] };
    // A list that only became shorter changes none of these fields.
    let more_than_the_mark = doc! { "$ne": [changed, ["mark"]] };
    [
        doc! { "$match": { "$or": [
            { "ns.coll": &names.locks, "operationType": { "$in": ["insert", "update", "replace", "delete"] } },
            { "ns.coll": &names.waiters, "operationType": "insert" },
            { "ns.coll": &names.sessions, "operationType": { "$in": ["insert", "replace", "delete"] } },
            { "ns.coll": &names.sessions, "operationType": "update", "$expr": more_than_a_beat },
            {
                "ns.coll": &names.runs,
                "documentKey._id.at": null,
                "operationType": { "$in": ["insert", "update", "replace"] },
                "$expr": more_than_the_mark,
            },
            { "ns.coll": { "$in": names.all() }, "operationType": { "$in": ["drop", "rename"] } },
            { "operationType": { "$in": ["dropDatabase", "invalidate"] } },
        ] } },
        doc! { "$unset": [
            "fullDocument.value", "fullDocument.past", "fullDocument.orders",
            "updateDescription.updatedFields.value", "updateDescription.updatedFields.past",
            "updateDescription.updatedFields.orders",
        ] },
    ]
}

/// What an event tells, and whom. An event that cannot be read is none: hints may be lost.
pub(super) fn read(event: &ChangeStreamEvent<Document>, names: &Collections) -> Result<Option<Bell>, End> {
    if !matches!(
        event.operation_type,
        OperationType::Insert | OperationType::Update | OperationType::Replace | OperationType::Delete
    ) {
        return Err(End::Dropped);
    }
    let collection = event.ns.as_ref().and_then(|ns| ns.coll.as_ref());
    let Some(id) = event.document_key.as_ref().and_then(|key| key.get("_id")) else { return Ok(None) };
    let news = if collection == Some(&names.locks) {
        return Ok(read_lock(event, id));
    } else if collection == Some(&names.waiters) {
        let waiter = event.full_document.as_ref();
        waiter.and_then(|waiter| fields::read_lock_id(waiter.get("lock")?).ok()).map(News::Line)
    } else if collection == Some(&names.sessions) {
        read_session(event, id)
    } else if collection == Some(&names.runs) {
        fields::read_schedule_id(id).ok().map(News::Schedule)
    } else {
        None
    };
    Ok(news.map(for_all))
}

const fn for_all(news: News) -> Bell {
    Bell { to: None, news }
}

fn read_lock(event: &ChangeStreamEvent<Document>, id: &Bson) -> Option<Bell> {
    let lock = fields::read_lock_id(id).ok()?;
    if event.operation_type == OperationType::Delete {
        return Some(for_all(News::Revoked(lock)));
    }
    let Some(update) = &event.update_description else { return Some(for_all(News::Lock(lock))) };
    let fields = &update.updated_fields;
    if fields.get_str("ended").is_ok_and(|how| how == Ended::Forced.as_str()) {
        return Some(for_all(News::Revoked(lock)));
    }
    // Of a task all members hear who has it.
    if lock.kind.spread().is_none()
        && let Some(session) = fields.get_str("session").ok().and_then(|session| session.parse().ok())
    {
        return Some(Bell { to: Some(Topic::Session(session)), news: News::Handed(lock) });
    }
    // One that is opened has changed nothing else. A value is its program's own, but for that of a schedule.
    let changed = |fields: &Document, names: &[&str]| names.iter().any(|name| fields.contains_key(name));
    let is_value = lock.kind == Kind::Schedule && changed(fields, &["value_set"]);
    (is_value || changed(fields, &["session", "term", "not_before"])).then(|| for_all(News::Lock(lock)))
}

fn read_session(event: &ChangeStreamEvent<Document>, id: &Bson) -> Option<News> {
    let session = id.as_str()?.parse().ok()?;
    let fields = event.update_description.as_ref().map(|update| &update.updated_fields);
    // The first is a change of the whole list, the other of an entry.
    let is_asked = |field: &str| field == "requests" || field.starts_with("requests.");
    let is_asked = fields.is_some_and(|fields| fields.keys().any(|field| is_asked(field)));
    Some(if is_asked { News::Asked(session) } else { News::Member(session) })
}
