//! A replica set, held by `scripts/mongod serve` until its stdin ends.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use mongodb::{
    Client,
    bson::{Bson, Document, Timestamp, doc},
};

use super::Work;
use crate::processes::{Bound, bound};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/mongod");

pub(crate) struct Mongo {
    pub(crate) uri: String,
    pub(crate) pids: Vec<u32>,
    pub(crate) version: String,
    client: Client,
    /// Ends the set when it is dropped: the kernel kills the nodes with it, and the script removes their folders.
    _held: Bound,
}

impl Mongo {
    pub(crate) async fn start(nodes: usize) -> Self {
        let nodes = nodes.to_string();
        let mut command = bound(SCRIPT);
        command.args(["serve", "--nodes", &nodes, "--no-enable-test-commands", "--default-timeouts"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 is there");
        let out = child.stdout.take().expect("it is piped");
        let held = Bound(child);
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("the script writes text");
        let said: serde_json::Value =
            serde_json::from_str(&line).expect("scripts/mongod has said why it cannot start");
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        // With the database, for crates that take it from there.
        let uri = text(&said["uri"]).replace("/?", "/peers?");
        let nodes = said["nodes"].as_array().expect("a list of nodes");
        let pids = nodes.iter().filter_map(|node| node["pid"].as_u64()).filter_map(|pid| pid.try_into().ok());
        let (pids, version) = (pids.collect(), text(&said["version"]));
        let client = Client::with_uri_str(&uri).await.expect("the script prints a valid URI");
        Self { uri, pids, version, client, _held: held }
    }

    async fn ask(&self, command: Document) -> Document {
        self.client.database("admin").run_command(command).await.expect("the primary answers")
    }

    /// Port of the primary.
    pub(crate) async fn primary(&self) -> u16 {
        let hello = self.ask(doc! { "hello": 1 }).await;
        let host = hello.get_str("primary").expect("a set has one");
        host.rsplit(':').next().and_then(|port| port.parse().ok()).expect("hosts have a port")
    }

    /// Commands of the primary since it started, and writes to collections of peers since then: the server's own, as
    /// of its sessions, are left out. Replication among the nodes is not counted, but costs processor time.
    pub(crate) async fn work(&self, since: Option<Timestamp>) -> Work {
        let status = self.ask(doc! { "serverStatus": 1 }).await;
        let counters = status.get_document("opcounters").expect("a server counts");
        let names = ["insert", "query", "update", "delete", "getmore", "command"];
        let commands = names.iter().filter_map(|name| counters.get(*name)).map(number).sum();
        let writes = match since {
            Some(since) => self.writes(since).await,
            None => 0.0,
        };
        let mark = status.get_timestamp("operationTime").expect("a member of a set has one");
        Work { commands, writes, mark: Some(mark) }
    }

    async fn writes(&self, since: Timestamp) -> f64 {
        let oplog = self.client.database("local").collection::<Document>("oplog.rs");
        let ours =
            doc! { "ts": { "$gt": since }, "ns": { "$regex": "^(peers|tenure)\\." }, "op": { "$ne": "n" } };
        oplog.count_documents(ours).await.expect("the primary answers") as f64
    }
}

fn number(value: &Bson) -> f64 {
    match value {
        Bson::Int32(number) => f64::from(*number),
        Bson::Int64(number) => *number as f64,
        Bson::Double(number) => *number,
        _ => 0.0,
    }
}
