//! A meter: what clients sent and were sent, and what the server read and wrote for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use mongodb::{
    Database,
    bson::{Bson, Document, doc},
    error::{Error, ErrorKind},
    event::{EventHandler, command::CommandEvent},
};
use tenure::store::mongo::MongoOptions;
use tokio::{sync::watch, time::sleep};

use crate::support::wait::within;

/// So often in a row nobody was seen to send anything, when what was begun is done. Seen often and not for long, for a
/// machine that stands still sends nothing either.
const QUIET_LOOKS: u32 = 20;
const LOOK: Duration = Duration::from_millis(20);

/// Cost of something, figure by figure; what is not there is 0.
pub(crate) type Cost = BTreeMap<String, i64>;

/// Counts what the clients with its options do.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    counts: Arc<Mutex<Cost>>,
    /// Rises with each command that is sent, and with each that is answered.
    stirs: watch::Sender<u64>,
    beats: Arc<Mutex<Beats>>,
}

/// Heartbeats since the meter is there, and what else is under way.
#[derive(Debug, Default)]
struct Beats {
    under_way: BTreeSet<i32>,
    /// All but the looks of listeners.
    others: BTreeSet<i32>,
    answered: u64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self { counts: Arc::default(), stirs: watch::Sender::new(0), beats: Arc::default() }
    }

    /// Options of a client that is counted.
    pub(crate) fn options(&self) -> MongoOptions {
        let meter = self.clone();
        MongoOptions::new().command_events(EventHandler::callback(move |event| meter.note(&event)))
    }

    fn note(&self, event: &CommandEvent) {
        match event {
            CommandEvent::Started(event) => {
                let name = name(&event.command);
                let mut beats = self.beats.lock().unwrap();
                match name.as_str() {
                    "beat" => _ = beats.under_way.insert(event.request_id),
                    "getMore" => {}
                    _ => _ = beats.others.insert(event.request_id),
                }
                drop(beats);
                self.add(name, 1);
                self.add("sent", event.command.to_vec().unwrap().len());
            }
            CommandEvent::Succeeded(event) => {
                let cursor = event.reply.get_document("cursor");
                let batch = cursor.and_then(|cursor| cursor.get_array("nextBatch"));
                self.add("events", batch.map_or(0, Vec::len));
                self.add("received", event.reply.to_vec().unwrap().len());
                let mut beats = self.beats.lock().unwrap();
                beats.answered += u64::from(beats.under_way.remove(&event.request_id));
                beats.others.remove(&event.request_id);
            }
            CommandEvent::Failed(event) => {
                self.add("failed", 1);
                let mut beats = self.beats.lock().unwrap();
                beats.under_way.remove(&event.request_id);
                beats.others.remove(&event.request_id);
            }
            _ => {}
        }
        self.stirs.send_modify(|stirs| *stirs += 1);
    }

    fn add(&self, figure: impl Into<String>, more: usize) {
        *self.counts.lock().unwrap().entry(figure.into()).or_default() += i64::try_from(more).unwrap();
    }

    /// Waits until nothing more is sent.
    pub(crate) async fn quiet(&self) {
        let mut stirs = self.stirs.subscribe();
        let quiet = async {
            let mut looks = 0;
            // One that is given up on the way is never answered.
            while looks < QUIET_LOOKS || !self.awaits_nothing() && looks < 25 * QUIET_LOOKS {
                stirs.borrow_and_update();
                sleep(LOOK).await;
                looks = if stirs.has_changed().unwrap() { 0 } else { looks + 1 };
            }
        };
        within("what was begun is done", quiet).await;
    }

    fn awaits_nothing(&self) -> bool {
        let beats = self.beats.lock().unwrap();
        beats.under_way.is_empty() && beats.others.is_empty()
    }

    /// Waits until so many more beats were answered.
    pub(crate) async fn beats(&self, beats: u64) {
        let mut stirs = self.stirs.subscribe();
        let answered = || self.beats.lock().unwrap().answered;
        let enough = answered() + beats;
        let there = async {
            while answered() < enough {
                stirs.changed().await.unwrap();
            }
        };
        within("instances beat", there).await;
    }

    fn take(&self) -> Cost {
        std::mem::take(&mut *self.counts.lock().unwrap())
    }
}

/// The name of a command; that of a heartbeat, which instances send by themselves, is `beat`.
fn name(command: &Document) -> String {
    let (name, of) = command.iter().next().expect("a command has a name");
    let is_beat = name == "findAndModify" && of.as_str() == Some("sessions");
    if is_beat { "beat".to_owned() } else { name.clone() }
}

fn is_there(error: &Error) -> bool {
    const NAMESPACE_EXISTS: i32 = 48;
    matches!(&*error.kind, ErrorKind::Command(refusal) if refusal.code == NAMESPACE_EXISTS)
}

/// The server's account of what it does in one database.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    database: Database,
}

impl Profile {
    /// Of a database on a server that serves nobody else: its profiler is turned on.
    pub(crate) async fn of(database: Database) -> Self {
        let profile = Self { database };
        profile.clear().await;
        profile
    }

    async fn clear(&self) {
        self.set(0).await;
        let size = doc! { "create": "system.profile", "capped": true, "size": 16 * 1024 * 1024 };
        loop {
            self.database.collection::<Document>("system.profile").drop().await.unwrap();
            match self.database.run_command(size.clone()).await {
                Ok(_) => break,
                // The server made one, a small one, for an operation that was under way.
                Err(error) if is_there(&error) => {}
                Err(error) => panic!("{error}"),
            }
        }
        self.set(2).await;
    }

    async fn set(&self, level: i32) {
        self.database.run_command(doc! { "profile": level }).await.unwrap();
    }

    /// Sums over all operations but those of listeners, whose number is a matter of time.
    async fn sums(&self) -> Cost {
        let sum = |fields: &[&str]| {
            let fields: Vec<Bson> =
                fields.iter().map(|field| doc! { "$ifNull": [field, 0] }.into()).collect();
            doc! { "$sum": { "$add": fields } }
        };
        let ns = format!("{}.system.profile", self.database.name());
        let own = doc! { "op": { "$ne": "getmore" }, "ns": { "$ne": ns } };
        let group = doc! {
            "_id": null,
            "keys": sum(&["$keysExamined"]),
            "read": sum(&["$docsExamined"]),
            "returned": sum(&["$nreturned"]),
            "written": sum(&["$nModified", "$ninserted", "$ndeleted", "$nUpserted"]),
            "index": sum(&["$keysInserted", "$keysDeleted"]),
        };
        let profile = self.database.collection::<Document>("system.profile");
        let found = profile.aggregate([doc! { "$match": own }, doc! { "$group": group }]).await;
        let mut found = found.unwrap();
        let mut sums = Cost::new();
        if found.advance().await.unwrap() {
            for (figure, sum) in &found.deserialize_current().unwrap() {
                if let Some(sum) = sum.as_i64().or(sum.as_i32().map(Into::into)) {
                    sums.insert(figure.clone(), sum);
                }
            }
        }
        sums
    }
}

/// Everything that is counted from a moment on.
#[derive(Debug)]
pub(crate) struct Measured<'a> {
    meter: &'a Meter,
    profile: &'a Profile,
}

impl<'a> Measured<'a> {
    pub(crate) async fn start(meter: &'a Meter, profile: &'a Profile) -> Self {
        profile.clear().await;
        meter.take();
        Self { meter, profile }
    }

    pub(crate) async fn cost(self) -> Cost {
        let mut cost = self.meter.take();
        cost.extend(self.profile.sums().await);
        cost.retain(|_, count| *count != 0);
        cost
    }
}

/// Documents and keys that the server looked at so far, whoever asked for them.
pub(crate) async fn scanned(database: &Database) -> i64 {
    let status = database.run_command(doc! { "serverStatus": 1 }).await.unwrap();
    let metrics = status.get_document("metrics").unwrap().get_document("queryExecutor").unwrap();
    metrics.get_i64("scannedObjects").unwrap() + metrics.get_i64("scanned").unwrap()
}
