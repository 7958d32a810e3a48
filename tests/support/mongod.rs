//! Deployments of MongoDB: a standalone, or a replica set of one or three nodes.
//!
//! Each is held by a `scripts/mongod serve`, which ends all nodes and removes
//! their data when its stdin ends. A dropped [`Deployment`] closes that stdin
//! and waits; for a process that panics, exits or is killed the kernel closes
//! it, which is how the shared deployments (statics, never dropped) end too.
//!
//! A [`Client`] lives on the runtime that made it, and each test has its own:
//! tests share deployments, never clients.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use mongodb::Client;
use mongodb::bson::{Bson, Document, doc, oid::ObjectId};
use serde::Deserialize;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::{
    clock,
    wait::{LIMIT, until, within},
    wire,
};

/// For what a node does in milliseconds, unless something holds it up that nobody here knows of.
const ANSWER: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// No replica set, hence neither transactions nor a majority.
    Standalone,
    /// A replica set of one node.
    Single,
    /// A replica set of three nodes.
    ReplicaSet,
}

impl Shape {
    fn nodes(self) -> &'static str {
        match self {
            Self::Standalone => "0",
            Self::Single => "1",
            Self::ReplicaSet => "3",
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Single => "one-node replica set",
            Self::ReplicaSet => "3-node replica set",
        }
    }
}

/// Time within which the members of a set notice that one is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    /// Elections after 500 ms, heartbeats every 200 ms. On a busy machine there are some that nobody asked for.
    Quick,
    /// Elections after 30 s, so that there are none but those that are asked for, by a step down or up: such a one
    /// takes no longer than a quick one.
    Steady,
    /// Defaults of MongoDB: 10 s and 2 s.
    Default,
    Millis {
        election_timeout: u32,
        heartbeat: u32,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Allows fail points. Default: true.
    pub(crate) test_commands: bool,
    /// Default: [`Timing::Quick`].
    pub(crate) timing: Timing,
    /// More arguments for each mongod; `{dir}` is the folder of the node. Default: none.
    pub(crate) args: Vec<String>,
    /// Makes [`Deployment::step_clock`] possible. Default: false.
    pub(crate) steppable_clock: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { test_commands: true, timing: Timing::Quick, args: Vec::new(), steppable_clock: false }
    }
}

impl Options {
    fn arguments(&self, shape: Shape) -> Vec<String> {
        let mut arguments: Vec<String> = ["serve", "--nodes", shape.nodes()].map(Into::into).into();
        if !self.test_commands {
            arguments.push("--no-enable-test-commands".into());
        }
        match self.timing {
            Timing::Quick => {}
            Timing::Steady => arguments.push("--election-timeout-ms=30000".into()),
            Timing::Default => arguments.push("--default-timeouts".into()),
            Timing::Millis { election_timeout, heartbeat } => arguments.extend([
                format!("--election-timeout-ms={election_timeout}"),
                format!("--heartbeat-ms={heartbeat}"),
            ]),
        }
        arguments.extend(self.args.iter().map(|arg| format!("--arg={arg}")));
        if self.steppable_clock {
            arguments.extend(clock::serve_arguments());
        }
        arguments
    }
}

/// The one-node replica set that all tests of this process share.
pub(crate) async fn shared_single() -> &'static Deployment {
    static SHARED: OnceCell<Deployment> = OnceCell::const_new();
    SHARED.get_or_init(|| Deployment::start(Shape::Single, Options::default())).await
}

/// The three-node replica set that all tests of this process share. No election comes by itself in it: a test that
/// takes the primary away does so in a [`Deployment`] of its own.
pub(crate) async fn shared_replica_set() -> &'static Deployment {
    static SHARED: OnceCell<Deployment> = OnceCell::const_new();
    let options = || Options { timing: Timing::Steady, ..Options::default() };
    SHARED.get_or_init(|| Deployment::start(Shape::ReplicaSet, options())).await
}

/// A running MongoDB, with a writable primary when `start` returns.
#[derive(Debug)]
pub(crate) struct Deployment {
    shape: Shape,
    options: Options,
    uri: String,
    replica_set: Option<String>,
    version: String,
    nodes: Vec<Node>,
    supervisor: Arc<Supervisor>,
}

impl Deployment {
    /// # Panics
    ///
    /// With what `scripts/mongod` says, where it cannot start one.
    pub(crate) async fn start(shape: Shape, options: Options) -> Self {
        let arguments = options.arguments(shape);
        let (supervisor, started) = blocking(move || Supervisor::start(&arguments)).await;
        let nodes: Vec<Node> = started.nodes.into_iter().map(Node::from).collect();
        announce(shape, &started.version, &nodes);
        Self {
            shape,
            options,
            uri: started.uri,
            replica_set: started.replica_set,
            version: started.version,
            nodes,
            supervisor: Arc::new(supervisor),
        }
    }

    /// Starts a replica set of one that asks who one is. Its first user is `root`, whose password is `root`.
    pub(crate) async fn start_guarded() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let key = std::env::temp_dir().join(format!("tenure-key-{}-{count}", std::process::id()));
        fs::write(&key, "dGVudXJlJ3MgdGVzdHMga2VlcCBubyBzZWNyZXRzIGhlcmU=")
            .expect("the folder for temporary files takes one");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is our own");
        let args = vec!["--keyFile".to_owned(), key.display().to_string()];
        let server = Self::start(Shape::Single, Options { args, ..Options::default() }).await;
        fs::remove_file(&key).expect("it is our own");
        let root = doc! { "createUser": "root", "pwd": "root", "roles": ["root"] };
        let port = server.nodes()[0].port();
        wire::ask(port, root).await.expect("the first user can be created from this machine");
        server
    }

    /// The URI for one of its users.
    pub(crate) fn uri_as(&self, user: &str, password: &str, source: &str) -> String {
        let hosts = self.uri.strip_prefix("mongodb://").expect("it is one");
        let more = if hosts.contains('?') { '&' } else { '?' };
        format!("mongodb://{user}:{password}@{hosts}{more}authSource={source}")
    }

    /// The URI with a database in it.
    pub(crate) fn uri_in(&self, database: &str) -> String {
        let (server, options) = self.uri.split_once('?').unwrap_or((&self.uri, ""));
        format!("{}/{database}?{options}", server.trim_end_matches('/'))
    }

    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }

    /// The name of the set; a standalone has none.
    pub(crate) fn replica_set(&self) -> Option<&str> {
        self.replica_set.as_deref()
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Has the set call its members by these ports, on which something must forward to them: from then on
    /// clients and members go that way. Answers the URI of the set as it is then.
    pub(crate) async fn move_behind(&self, ports: &[u16]) -> String {
        assert_eq!(ports.len(), self.nodes.len());
        let version = until("the set takes its new ports", async || self.reconfigure(ports).await).await;
        until("the set finds itself behind its new ports", async || {
            let answers = self.answers().await;
            let known = |answer: &Result<Document, String>| {
                let Ok(hello) = answer else { return false };
                let is = |what| hello.get_bool(what).is_ok_and(|is| is);
                hello.get_i32("setVersion").is_ok_and(|known| known == version)
                    && (is("isWritablePrimary") || is("secondary"))
            };
            if answers.iter().all(known) && self.primary_of(&answers).is_some() {
                return Ok(());
            }
            sleep(POLL).await;
            Err(answers)
        })
        .await;
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let name = self.replica_set.as_deref().expect("a standalone has no members");
        format!("mongodb://{}/?replicaSet={name}", hosts.join(","))
    }

    /// Gives the members these ports. Answers the version of the configuration.
    async fn reconfigure(&self, ports: &[u16]) -> Result<i32, String> {
        let primary = self.wait_for_primary(None).await;
        let answer = primary.ask(doc! { "replSetGetConfig": 1 }).await;
        let mut config = answer.get_document("config").expect("a configuration").clone();
        let version = config.get_i32("version").expect("a number") + 1;
        config.insert("version", version);
        let members = config.get_array_mut("members").expect("a list");
        for (member, port) in members.iter_mut().zip(ports) {
            let member = member.as_document_mut().expect("a document");
            member.insert("host", format!("127.0.0.1:{port}"));
        }
        // There may be another primary by now.
        let taken = wire::ask(primary.port, doc! { "replSetReconfig": config }).await;
        taken.map(|_| version).map_err(|error| error.to_string())
    }

    /// The process that holds the nodes.
    pub(crate) fn supervisor_pid(&self) -> u32 {
        self.supervisor.pid
    }

    /// A plain client on [`Deployment::uri`], for setup and inspection.
    pub(crate) async fn client(&self) -> Client {
        Client::with_uri_str(&self.uri).await.expect("the script prints a valid URI")
    }

    /// Returns each node's answer to `hello`.
    async fn answers(&self) -> Vec<Result<Document, String>> {
        join_all(self.nodes.iter().map(Node::hello)).await
    }

    /// The node that takes writes now, as far as the nodes themselves know.
    /// None during an election.
    pub(crate) async fn primary(&self) -> Option<&Node> {
        self.primary_of(&self.answers().await)
    }

    fn primary_of(&self, answers: &[Result<Document, String>]) -> Option<&Node> {
        let claims = self.nodes.iter().zip(answers).filter_map(|(node, answer)| {
            let hello = answer.as_ref().ok()?;
            hello.get_bool("isWritablePrimary").is_ok_and(|is| is).then_some(())?;
            Some((hello.get_object_id("electionId").unwrap_or(ObjectId::from_bytes([0; 12])), node))
        });
        // One that was cut off or frozen may still believe in its term; the latest election counts.
        claims.max_by_key(|(election, _)| *election).map(|(_, node)| node)
    }

    /// Waits for a primary, on another port than `not` if one is given.
    pub(crate) async fn wait_for_primary(&self, not: Option<u16>) -> &Node {
        until(&format!("a primary (but {not:?})"), async || {
            let answers = self.answers().await;
            match self.primary_of(&answers) {
                Some(node) if Some(node.port) != not => return Ok(node),
                _ => sleep(POLL).await,
            }
            Err(answers)
        })
        .await
    }

    /// Kills the primary like a power cut (SIGKILL) and returns which it was.
    pub(crate) async fn kill_primary(&self) -> &Node {
        let primary = self.wait_for_primary(None).await;
        self.kill(primary).await;
        primary
    }

    /// Makes the primary stand down and returns which it was. In a set of three
    /// another one takes over, and this one stays a secondary for ten seconds;
    /// a single node is primary again after one.
    pub(crate) async fn step_down(&self) -> &Node {
        let command = match self.shape {
            Shape::Standalone => panic!("a standalone cannot step down"),
            Shape::Single => doc! { "replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 0, "force": true },
            Shape::ReplicaSet => doc! { "replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 8 },
        };
        until("a primary stands down", async || {
            let primary = self.wait_for_primary(None).await;
            let Err(error) = wire::ask(primary.port, command.clone()).await else { return Ok(primary) };
            // Nobody had caught up with it, or it was none any more: then it has stood down, too.
            let hello = primary.hello().await;
            let stays = hello.map(|hello| hello.get_bool("isWritablePrimary").is_ok_and(|is| is));
            if stays == Ok(false) { Ok(primary) } else { Err(error.to_string()) }
        })
        .await
    }

    /// Makes this node the primary, however many attempts that takes: it loses
    /// an election while it lags behind the others.
    pub(crate) async fn step_up(&self, node: &Node) {
        until(&format!("port {} is primary", node.port), async || {
            if self.primary().await.map(Node::port) == Some(node.port) {
                return Ok(());
            }
            let asked = wire::ask(node.port, doc! { "replSetStepUp": 1 }).await;
            sleep(POLL).await;
            Err(asked.map_err(|error| error.to_string()))
        })
        .await;
    }

    /// SIGKILL; returns when the process is gone.
    pub(crate) async fn kill(&self, node: &Node) {
        self.order("kill", node).await;
    }

    /// Starts the node again on its port and its data, killing it first if it
    /// runs. Returns when it is primary or secondary.
    pub(crate) async fn restart(&self, node: &Node) {
        self.order("restart", node).await;
    }

    /// SIGSTOP: the node keeps its connections and answers nothing.
    pub(crate) async fn freeze(&self, node: &Node) {
        self.order("freeze", node).await;
    }

    /// SIGCONT.
    pub(crate) async fn thaw(&self, node: &Node) {
        self.order("thaw", node).await;
    }

    /// Puts the wall clocks of all nodes `millis` away from the true time (not
    /// from where they are: 0 puts them right). See [`clock`] for what follows.
    pub(crate) async fn step_clock(&self, millis: i64) {
        join_all(self.nodes.iter().map(|node| self.step_clock_of(node, millis))).await;
    }

    /// [`Deployment::step_clock`] for one node. If it is down, it starts with that clock.
    pub(crate) async fn step_clock_of(&self, node: &Node, millis: i64) {
        assert!(self.options.steppable_clock, "needs Options::steppable_clock");
        let stepped = clock::step(node.port, &node.dir, millis);
        let stepped = within(&format!("port {} shows a step of {millis} ms", node.port), stepped).await;
        stepped.unwrap_or_else(|error| panic!("the clock of port {} cannot be set: {error}", node.port));
    }

    async fn order(&self, verb: &str, node: &Node) {
        let supervisor = Arc::clone(&self.supervisor);
        let order = format!("{verb} {}", node.port);
        let told = blocking(move || supervisor.order(&order)).await;
        node.pid.store(told.pid, Ordering::Relaxed);
        node.frozen.store(verb == "freeze", Ordering::Relaxed);
    }
}

/// A mongod of a deployment.
#[derive(Debug)]
pub(crate) struct Node {
    port: u16,
    /// Another one after each restart.
    pid: AtomicU32,
    /// True while it is frozen: its answers are not awaited.
    frozen: AtomicBool,
    dir: PathBuf,
    log: PathBuf,
}

impl Node {
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// The folder that holds its data and its log.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// A URI for this node alone, whatever it says of its set.
    pub(crate) fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port)
    }

    /// Runs a command on the `admin` database of this very node.
    pub(crate) async fn ask(&self, command: Document) -> Document {
        let answer = within(&format!("{command}"), wire::ask(self.port, command.clone())).await;
        answer.unwrap_or_else(|error| panic!("port {} on {command}: {error}", self.port))
    }

    /// Turns a fail point on. `mode` is `"alwaysOn"`, `"off"`, `{ times: n }` or `{ skip: n }`.
    /// Returns how often it has been met since the node started.
    pub(crate) async fn fail_point(&self, name: &str, mode: impl Into<Bson>, data: Document) -> i64 {
        let answer = self.ask(doc! { "configureFailPoint": name, "mode": mode, "data": data }).await;
        match answer.get("count") {
            Some(Bson::Int32(count)) => (*count).into(),
            Some(Bson::Int64(count)) => *count,
            other => panic!("count of {name} is {other:?}"),
        }
    }

    /// `failCommand` on the next `times` of these commands; `data` says how they fail,
    /// as `{ errorCode: 91 }`, `{ closeConnection: true }` or `{ blockConnection: true, blockTimeMS: 100 }`.
    /// Returns how often it has been met.
    pub(crate) async fn fail_command(&self, commands: &[&str], times: u32, mut data: Document) -> i64 {
        data.insert("failCommands", commands);
        self.fail_point("failCommand", doc! { "times": times }, data).await
    }

    pub(crate) async fn clear_fail_point(&self, name: &str) -> i64 {
        self.fail_point(name, "off", Document::new()).await
    }

    /// Returns when the fail point has been met so often since the node started.
    pub(crate) async fn until_fail_point(&self, name: &str, met: i64) {
        let limit = i64::try_from(LIMIT.as_millis()).expect("a bound in seconds");
        self.ask(doc! { "waitForFailPoint": name, "timesEntered": met, "maxTimeMS": limit }).await;
    }

    async fn hello(&self) -> Result<Document, String> {
        if self.frozen.load(Ordering::Relaxed) {
            return Err("it is frozen".to_owned());
        }
        match timeout(ANSWER, wire::ask(self.port, doc! { "hello": 1 })).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(late) => Err(late.to_string()),
        }
    }
}

impl From<NodeState> for Node {
    fn from(state: NodeState) -> Self {
        let (pid, frozen) = (state.pid.into(), AtomicBool::new(false));
        Self { port: state.port, pid, frozen, dir: state.dir, log: state.log }
    }
}

/// Returns whether a process runs. One that has ended and waits for its parent to notice does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// Says once per process on what the tests run, past the capture of their output.
fn announce(shape: Shape, version: &str, nodes: &[Node]) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let ports: Vec<String> = nodes.iter().map(|node| node.port.to_string()).collect();
        let (shape, ports) = (shape.describe(), ports.join(", "));
        let line = format!("mongod {version} serves these tests ({shape}, port {ports})\n");
        // Without a stderr there is no one to tell.
        let _ = std::io::stderr().write_all(line.as_bytes());
    });
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.unwrap_or_else(|ended| match ended.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(cancelled) => panic!("the runtime ended: {cancelled}"),
    })
}

/// First line of `scripts/mongod serve` when all is up.
#[derive(Debug, Deserialize)]
struct Started {
    uri: String,
    replica_set: Option<String>,
    version: String,
    nodes: Vec<NodeState>,
}

#[derive(Debug, Deserialize)]
struct NodeState {
    port: u16,
    pid: u32,
    dir: PathBuf,
    log: PathBuf,
}

/// Answer to a line.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Done(NodeState),
    Failed { error: String },
}

/// A running `scripts/mongod serve`.
#[derive(Debug)]
struct Supervisor {
    pid: u32,
    process: Mutex<Process>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// None once it is closed.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Supervisor {
    fn start(arguments: &[String]) -> (Self, Started) {
        // Of the repository, whichever of its packages these tests are.
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script =
            package.ancestors().map(|folder| folder.join("scripts/mongod")).find(|path| path.exists());
        let script = script.expect("the tests run in the repository");
        let target =
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the folder is in the target folder");
        let mut child = Command::new(&script)
            .args(arguments)
            .env("CARGO_TARGET_DIR", target)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
        let orders = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        answers.read_line(&mut line).expect("the script writes text");
        if line.is_empty() {
            let mut said = String::new();
            let _ = child.stderr.take().expect("stderr is piped").read_to_string(&mut said);
            let _ = child.wait();
            panic!("{}", said.trim());
        }
        let started = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{}: {error}: {line}", script.display()));
        let pid = child.id();
        (Self { pid, process: Mutex::new(Process { child, orders, answers }) }, started)
    }

    fn order(&self, order: &str) -> NodeState {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let answer =
            process.exchange(order).unwrap_or_else(|error| panic!("scripts/mongod on {order:?}: {error}"));
        match serde_json::from_str(&answer) {
            Ok(Answer::Done(node)) => node,
            Ok(Answer::Failed { error }) => panic!("{error}"),
            Err(error) => panic!("scripts/mongod on {order:?}: {error}: {answer:?}"),
        }
    }
}

impl Process {
    fn exchange(&mut self, order: &str) -> std::io::Result<String> {
        let orders = self.orders.as_mut().expect("stdin is closed by drop only");
        writeln!(orders, "{order}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.orders = None;
        // Bounded: the script has an alarm on its own cleaning up.
        let _ = self.child.wait();
    }
}
