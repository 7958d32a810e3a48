//! A replica set, held by `scripts/mongod serve` until its stdin ends.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use mongodb::{
    Client,
    bson::{Bson, Document, doc},
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

    /// Of the primary: replication among the nodes is not counted, but costs processor time.
    pub(crate) async fn work(&self) -> Work {
        let status = self.ask(doc! { "serverStatus": 1 }).await;
        let sum = |counters: &Document, names: &[&str]| -> f64 {
            names.iter().filter_map(|name| counters.get(*name)).map(number).sum()
        };
        let counters = status.get_document("opcounters").expect("a server counts");
        let changed = status.get_document("metrics").and_then(|metrics| metrics.get_document("document"));
        let changed = changed.expect("a server counts");
        Work {
            commands: sum(counters, &["insert", "query", "update", "delete", "getmore", "command"]),
            writes: sum(changed, &["inserted", "updated", "deleted"]),
        }
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
