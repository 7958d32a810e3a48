//! Hints from one change stream a handle.
//!
//! The stream is opened when somebody listens, is reopened by itself, and closes when nobody does.
//! It decides nothing (R12): whatever goes wrong with it is logged once, and slows others down.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bson::{Bson, Document, doc};
use futures::{
    StreamExt,
    future::ready,
    stream::{self, BoxStream},
};
use mongodb::{
    change_stream::{
        ChangeStream,
        event::{ChangeStreamEvent, OperationType},
    },
    error::{Error as DriverError, ErrorKind},
};
use tokio::{sync::broadcast, task::JoinHandle, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    codes,
    error::{is_lasting, refuses_the_client},
    fields,
    options::{Collections, MongoOptions},
    prepare,
    renewal::Connection,
};
use crate::{
    clock::{Clock, SystemClock},
    model::{Ended, Kind},
    store::{Heard, Hint, News, Topics, hint_stream},
    sync::locked,
};

/// The number of hints a slow listener may lag behind before it gets a [resync](Hint::Resync).
const HINTS_KEPT: usize = 4096;
/// The time that the server may take beyond the wait it was asked for. There is no other limit: the
/// driver waits for a frozen server for ever.
const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A stream that was open for so long has worked: when it ends, the next is opened soon.
const LIVED: Duration = Duration::from_secs(10);

/// The stream of one store handle, and those who listen to it.
pub(super) struct Hints {
    shared: SharedStream,
    pump: Mutex<Option<JoinHandle<()>>>,
    // The last handle of the store takes the stream with it.
    _stop: DropGuard,
}

#[derive(Clone)]
struct SharedStream {
    connection: Arc<Connection>,
    names: Collections,
    wait: Duration,
    /// True if collections that were dropped are created again.
    create: bool,
    listeners: broadcast::Sender<Heard>,
    /// A standalone server has no change streams, and never will while it runs.
    without: Arc<AtomicBool>,
    stop: CancellationToken,
}

impl Hints {
    /// Ends with `stop`, and cancels it when it is dropped.
    pub(super) fn new(
        connection: Arc<Connection>,
        names: Collections,
        options: &MongoOptions,
        stop: CancellationToken,
    ) -> Self {
        let shared = SharedStream {
            connection,
            names,
            wait: options.hint_wait,
            create: options.create,
            listeners: broadcast::Sender::new(HINTS_KEPT),
            without: Arc::default(),
            stop: stop.clone(),
        };
        Self { shared, pump: Mutex::default(), _stop: stop.drop_guard() }
    }

    /// Begins with the first poll, on whose runtime the stream then lives.
    pub(super) fn listen(self: &Arc<Self>, topics: Topics) -> BoxStream<'static, Hint> {
        // Who listens does not keep the store.
        let hints = Arc::downgrade(self);
        let begin = async move { hints.upgrade().map(|hints| hints.begin(topics)) };
        stream::once(begin).filter_map(ready).flatten().boxed()
    }

    /// Ends the stream, and waits until it has ended.
    pub(super) async fn close(&self) {
        self.shared.stop.cancel();
        let pump = locked(&self.pump).take();
        if let Some(pump) = pump {
            // An error says that it has ended in another way.
            let _ = pump.await;
        }
    }

    fn begin(&self, topics: Topics) -> BoxStream<'static, Hint> {
        let listener = self.shared.listeners.subscribe();
        let mut pump = locked(&self.pump);
        // It ends when nobody listens, and with the runtime of whoever listened first.
        let runs = pump.as_ref().is_some_and(|pump| !pump.is_finished());
        if !runs && !self.shared.without.load(Ordering::Relaxed) {
            *pump = Some(tokio::spawn(self.shared.clone().pump()));
        }
        hint_stream(listener, topics)
    }
}

/// Why a stream ended.
pub(super) enum StreamEnd {
    NobodyListens,
    /// The store has another client.
    Renewed,
    /// The server has no change streams.
    Unsupported,
    /// A collection was dropped, and its indexes with it.
    Dropped,
    Failed {
        error: String,
        /// Somebody has to change something first.
        lasting: bool,
    },
}

impl StreamEnd {
    fn failed(error: &DriverError) -> Self {
        Self::Failed { error: super::words::words(error), lasting: is_lasting(error) }
    }

    fn silent(error: impl Into<String>) -> Self {
        Self::Failed { error: error.into(), lasting: false }
    }
}

impl SharedStream {
    async fn pump(self) {
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.reopen_for_ever() => {}
        }
    }

    async fn reopen_for_ever(&self) {
        let clock = SystemClock::new();
        let mut pause = FIRST_PAUSE;
        let mut renewed = self.connection.changes();
        loop {
            renewed.mark_unchanged();
            let end = match self.open().await {
                Ok(stream) => {
                    // Only now: changes from here on are notified.
                    self.tell(Hint::Resync);
                    let opened = clock.now();
                    let end = tokio::select! {
                        // Its stream may still be open, on connections that end with their client.
                        _ = renewed.changed() => StreamEnd::Renewed,
                        end = self.follow(stream) => end,
                    };
                    // One that fails as soon as it is open is not opened again and again: whoever waits looks
                    // each time.
                    if clock.now().since(opened) >= LIVED {
                        pause = FIRST_PAUSE;
                    }
                    end
                }
                Err(end) => end,
            };
            match end {
                StreamEnd::NobodyListens => return,
                StreamEnd::Renewed => {
                    pause = FIRST_PAUSE;
                    continue;
                }
                StreamEnd::Unsupported => {
                    self.without.store(true, Ordering::Relaxed);
                    tracing::warn!(
                        "the server has no change streams (it is not a member of a replica set): \
                         waiters poll every poll_interval"
                    );
                    return;
                }
                StreamEnd::Dropped if !self.create => {
                    tracing::warn!("a collection of tenure was dropped or renamed: recreate it");
                }
                StreamEnd::Dropped => {
                    tracing::warn!("a collection of tenure was dropped or renamed, recreating it");
                    match timeout(PATIENCE, prepare::create(&self.connection.database(), &self.names)).await {
                        Ok(Ok(lacking)) if lacking.is_empty() => {}
                        Ok(Ok(lacking)) => {
                            let error = format!("may not createIndex on {}", lacking.join(", "));
                            tracing::warn!(error, "could not recreate the collections");
                        }
                        Ok(Err(error)) => {
                            let error = super::words::words(&error);
                            tracing::warn!(error, "could not recreate the collections");
                        }
                        Err(_) => tracing::warn!("timed out recreating the collections"),
                    }
                }
                StreamEnd::Failed { error, lasting } => {
                    tracing::debug!(error, "the stream of hints ended, reopening it");
                    self.tell(Hint::Failing { error, lasting });
                }
            }
            // The next one may take a while: until it is open, whoever waits goes by its own pace.
            tokio::select! {
                _ = renewed.changed() => pause = FIRST_PAUSE,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    fn tell(&self, hint: Hint) {
        // An error only says that nobody listens.
        let _ = self.listeners.send(Heard::Hint(hint));
    }

    async fn open(&self) -> Result<ChangeStream<ChangeStreamEvent<Document>>, StreamEnd> {
        let used = self.connection.current();
        let watch = used.database.watch().pipeline(wanted(&self.names)).max_await_time(self.wait);
        match timeout(PATIENCE, watch.into_future()).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) if is_unsupported(&error) => Err(StreamEnd::Unsupported),
            Ok(Err(error)) if refuses_the_client(&error) => {
                let words = self.connection.refused(&used, error.into()).into_words();
                Err(StreamEnd::Failed { error: words, lasting: true })
            }
            Ok(Err(error)) => Err(StreamEnd::failed(&error)),
            Err(_) => Err(StreamEnd::silent("no answer when opening it")),
        }
    }

    async fn follow(&self, mut stream: ChangeStream<ChangeStreamEvent<Document>>) -> StreamEnd {
        let patience = self.wait + PATIENCE;
        loop {
            if self.listeners.receiver_count() == 0 {
                return StreamEnd::NobodyListens;
            }
            match timeout(patience, stream.next_if_any()).await {
                Ok(Ok(Some(event))) => match read(&event, &self.names) {
                    Ok(Some(news)) => self.tell(Hint::News(news)),
                    Ok(None) => {}
                    Err(end) => return end,
                },
                Ok(Ok(None)) if stream.is_alive() => {}
                Ok(Ok(None)) => return StreamEnd::silent("the server closed it"),
                Ok(Err(error)) => return StreamEnd::failed(&error),
                Err(_) => return StreamEnd::silent(format!("no answer within {patience:?}")),
            }
        }
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

/// The news in an event. An event that cannot be read is none: hints may be lost.
pub(super) fn read(
    event: &ChangeStreamEvent<Document>,
    names: &Collections,
) -> Result<Option<News>, StreamEnd> {
    if !matches!(
        event.operation_type,
        OperationType::Insert | OperationType::Update | OperationType::Replace | OperationType::Delete
    ) {
        return Err(StreamEnd::Dropped);
    }
    let collection = event.ns.as_ref().and_then(|ns| ns.coll.as_ref());
    let Some(id) = event.document_key.as_ref().and_then(|key| key.get("_id")) else { return Ok(None) };
    Ok(if collection == Some(&names.locks) {
        read_lock(event, id)
    } else if collection == Some(&names.waiters) {
        let waiter = event.full_document.as_ref();
        waiter.and_then(|waiter| fields::read_lock_id(waiter.get("lock")?).ok()).map(News::Line)
    } else if collection == Some(&names.sessions) {
        read_session(event, id)
    } else if collection == Some(&names.runs) {
        fields::read_schedule_id(id).ok().map(News::Schedule)
    } else {
        None
    })
}

fn read_lock(event: &ChangeStreamEvent<Document>, id: &Bson) -> Option<News> {
    let lock = fields::read_lock_id(id).ok()?;
    if event.operation_type == OperationType::Delete {
        return Some(News::Revoked(lock));
    }
    let Some(update) = &event.update_description else { return Some(News::Lock(lock)) };
    let fields = &update.updated_fields;
    if fields.get_str("ended").is_ok_and(|how| how == Ended::Forced.as_str()) {
        return Some(News::Revoked(lock));
    }
    // One that is opened has changed nothing else. A value is its program's own, but for that of a schedule.
    let changed = |fields: &Document, names: &[&str]| names.iter().any(|name| fields.contains_key(name));
    let is_value = lock.kind == Kind::Schedule && changed(fields, &["value_set"]);
    (is_value || changed(fields, &["session", "term", "not_before"])).then_some(News::Lock(lock))
}

fn read_session(event: &ChangeStreamEvent<Document>, id: &Bson) -> Option<News> {
    let session = id.as_str()?.parse().ok()?;
    let fields = event.update_description.as_ref().map(|update| &update.updated_fields);
    // The first is a change of the whole list, the other of an entry.
    let is_asked = |field: &str| field == "requests" || field.starts_with("requests.");
    let is_asked = fields.is_some_and(|fields| fields.keys().any(|field| is_asked(field)));
    Some(if is_asked { News::Asked(session) } else { News::Member(session) })
}
