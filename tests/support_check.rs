//! The support of the other tests, tested itself: what it starts is what it
//! says, what it breaks is broken, and nothing of it is left behind.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::mongod::{Deployment, Options, Shape, Timing, is_alive, shared_single};
use crate::support::proxy::{Mode, Proxy};
use crate::support::wait::{until, within};
use crate::support::wire;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::timeout;

/// Long enough for an answer that is on its way, short enough to wait for one that is not.
const SILENCE: Duration = Duration::from_millis(300);

// --- deployments --------------------------------------------------------------

#[tokio::test]
async fn a_deployment_starts_and_reports_its_version() {
    let mongo = shared_single().await;
    let client = mongo.client().await;
    let build = client.database("admin").run_command(doc! { "buildInfo": 1 }).await.expect("it answers");
    assert_eq!(build.get_str("version").ok(), Some(mongo.version()));
    assert!(mongo.uri().ends_with(mongo.replica_set().expect("it is a set")));
    assert!(mongo.nodes().iter().all(|node| is_alive(node.pid())));
}

#[tokio::test]
async fn a_standalone_is_no_set_and_takes_writes() {
    let mongo = Deployment::start(Shape::Standalone, Options::default()).await;
    assert_eq!(mongo.replica_set(), None);
    let collection = mongo.client().await.database("check").collection("standalone");
    collection.insert_one(doc! { "_id": 1 }).await.expect("it takes writes");
    assert!(mongo.primary().await.is_some());
}

#[tokio::test]
async fn two_deployments_side_by_side_do_not_collide() {
    let timing = Timing::Millis { election_timeout: 3000, heartbeat: 1000 };
    let (left, right) = tokio::join!(
        Deployment::start(Shape::Single, Options { timing, ..Options::default() }),
        Deployment::start(
            Shape::Single,
            Options { timing: Timing::Default, test_commands: false, ..Options::default() }
        ),
    );
    assert_ne!(left.nodes()[0].port(), right.nodes()[0].port());
    assert_ne!(left.replica_set(), right.replica_set());
    assert_eq!((3000, 1000), timing_of(&left).await);
    assert_eq!((10_000, 2000), timing_of(&right).await);

    let fail_point = doc! { "configureFailPoint": "failCommand", "mode": "off" };
    assert!(wire::ask(left.nodes()[0].port(), fail_point.clone()).await.is_ok());
    assert!(wire::ask(right.nodes()[0].port(), fail_point).await.is_err(), "without test commands");

    let (left, right) = (left.client().await, right.client().await);
    left.database("check").collection("side").insert_one(doc! { "_id": 1 }).await.expect("a write");
    let seen = right.database("check").collection::<Document>("side").count_documents(doc! {}).await;
    assert_eq!(seen.expect("a read"), 0);
}

async fn timing_of(mongo: &Deployment) -> (i32, i32) {
    let answer = mongo.nodes()[0].ask(doc! { "replSetGetConfig": 1 }).await;
    let settings = answer.get_document("config").and_then(|config| config.get_document("settings"));
    let settings = settings.expect("a set has settings");
    let number = |name| settings.get_i32(name).expect("a number");
    (number("electionTimeoutMillis"), number("heartbeatIntervalMillis"))
}

#[tokio::test]
async fn a_start_that_fails_panics_with_what_the_script_says() {
    let options = Options { args: vec!["--no-such-option".into()], ..Options::default() };
    let started = tokio::spawn(Deployment::start(Shape::Single, options)).await;
    let panic = started.expect_err("mongod has no such option").into_panic();
    let said = panic.downcast_ref::<String>().expect("the panic has a text");
    assert!(said.contains("unrecognised option '--no-such-option'"), "{said}");
}

// --- nothing is left behind ---------------------------------------------------

#[tokio::test]
async fn a_dropped_deployment_leaves_no_process_and_no_data() {
    let mongo = Deployment::start(Shape::Single, Options::default()).await;
    let node = &mongo.nodes()[0];
    let (pid, supervisor, dir) = (node.pid(), mongo.supervisor_pid(), node.dir().to_owned());
    assert!(node.log().starts_with(&dir) && is_alive(pid) && is_alive(supervisor));
    // Not even one that cannot act on a signal.
    mongo.freeze(node).await;
    drop(mongo);
    assert!(!is_alive(pid) && !is_alive(supervisor) && !dir.exists());
}

#[tokio::test]
async fn a_process_that_panics_leaves_no_process_and_no_data() {
    let mut holder = Holder::start("panic");
    let ended = holder.process.wait().expect("a child can be waited for");
    assert_eq!(ended.code(), Some(101), "as the test harness ends when a test fails");
    holder.until_all_is_gone().await;

    let mut said = String::new();
    holder.process.stderr.take().expect("stderr is piped").read_to_string(&mut said).expect("text");
    assert!(said.contains("serves these tests (one-node replica set, port "), "{said}");
}

#[tokio::test]
async fn a_process_that_is_killed_leaves_no_process_and_no_data() {
    let mut holder = Holder::start("wait");
    holder.process.kill().expect("a child can be killed");
    holder.process.wait().expect("a child can be waited for");
    holder.until_all_is_gone().await;
}

#[tokio::test]
async fn the_kernel_kills_the_nodes_of_a_killed_supervisor() {
    let mongo = Deployment::start(Shape::Single, Options::default()).await;
    let (pid, dir) = (mongo.nodes()[0].pid(), mongo.nodes()[0].dir().to_owned());
    let kill = Command::new("kill").args(["-KILL", &mongo.supervisor_pid().to_string()]).status();
    assert!(kill.expect("there is a kill command").success());
    until("the node is gone", async || if is_alive(pid) { Err(pid) } else { Ok(()) }).await;

    // No one was left to remove the data; the next start does, or has another one begin with it.
    let next = script(&["serve"]).output().expect("the script runs");
    assert!(next.status.success() && next.stdout.is_empty(), "stdin ended before it was up");
    until("its data is gone", async || if dir.exists() { Err(dir.clone()) } else { Ok(()) }).await;
}

/// Another process of this binary, with a deployment that it does not end itself.
struct Holder {
    process: Child,
    pids: Vec<u32>,
    dir: PathBuf,
}

const HOLD: &str = "TENURE_CHECK_HOLD";

impl Holder {
    fn start(way_to_end: &str) -> Self {
        let mut process = Command::new(env::current_exe().expect("a process has an executable"))
            .args(["--exact", "support_check::holds_a_deployment_for_another_test", "--ignored"])
            .env(HOLD, way_to_end)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the executable runs again");
        let stdout = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let line = stdout
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("HOLDS ")?.1.to_owned()));
        let line = line.expect("it says what it holds");
        let (pids, dir) = line.split_once(" IN ").expect("as it is written below");
        let pids: Vec<u32> = pids.split(' ').map(|pid| pid.parse().expect("a number")).collect();
        assert_eq!(pids.len(), 2, "the supervisor and one node");
        Self { process, pids, dir: dir.into() }
    }

    async fn until_all_is_gone(&self) {
        until("its processes and its data are gone", async || {
            let alive: Vec<_> = self.pids.iter().filter(|pid| is_alive(**pid)).collect();
            if !self.dir.exists() && alive.is_empty() { Ok(()) } else { Err((self.dir.exists(), alive)) }
        })
        .await;
    }
}

#[tokio::test]
#[ignore = "a process for other tests to end"]
async fn holds_a_deployment_for_another_test() {
    let Ok(way_to_end) = env::var(HOLD) else { return };
    let mongo = shared_single().await;
    let node = &mongo.nodes()[0];
    let line = format!("HOLDS {} {} IN {}\n", mongo.supervisor_pid(), node.pid(), node.dir().display());
    // Unlike print!, the harness does not capture this.
    std::io::stdout().write_all(line.as_bytes()).expect("the other test reads it");
    assert_ne!(way_to_end, "panic", "as asked");
    std::future::pending::<()>().await;
}

// --- by hand ------------------------------------------------------------------

#[tokio::test]
async fn a_deployment_started_by_hand_is_listed_until_it_is_stopped() {
    let name = format!("check-{}", std::process::id());
    let output = |arguments: &[&str]| {
        let output = script(arguments).output().expect("the script runs");
        let text = |bytes| String::from_utf8(bytes).expect("it prints text");
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
    let (started, uri, said) = output(&["start", "--nodes", "1", "--name", &name]);
    assert!(started, "{said}");
    let client = Client::with_uri_str(uri.trim()).await.expect("it prints a URI");
    client.database("check").collection("hand").insert_one(doc! {}).await.expect("it takes writes");

    let (_, listed, _) = output(&["status"]);
    assert!(listed.contains(&format!("{name}: {uri}")) && listed.contains("  primary  "), "{listed}");
    let (again, _, said) = output(&["start", "--name", &name]);
    assert!(!again && said.contains("runs already"), "{said}");

    assert!(output(&["stop", &name]).0);
    assert!(!output(&["status"]).1.contains(&name));
    assert!(!output(&["stop", &name]).0, "it is stopped");
}

fn script(arguments: &[&str]) -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/mongod"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target folder");
    command.args(arguments).env("CARGO_TARGET_DIR", target).stdin(Stdio::null());
    command
}

// --- a set of three -----------------------------------------------------------

/// The tests below take the primary away from one set, one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A set that soon notices that its primary is gone.
async fn quick_set() -> &'static Deployment {
    static SET: OnceCell<Deployment> = OnceCell::const_new();
    SET.get_or_init(|| Deployment::start(Shape::ReplicaSet, Options::default())).await
}

#[tokio::test]
async fn a_killed_primary_is_replaced_by_another_node() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let mongo = quick_set().await;
    let killed = mongo.kill_primary().await;
    let pid = killed.pid();
    assert!(!is_alive(pid));
    let next = mongo.wait_for_primary(Some(killed.port())).await;
    assert_ne!(next.port(), killed.port());

    mongo.restart(killed).await;
    assert!(is_alive(killed.pid()) && killed.pid() != pid);
    let hello = killed.ask(doc! { "hello": 1 }).await;
    assert_eq!(hello.get_str("setName").ok(), mongo.replica_set());
}

#[tokio::test]
async fn a_primary_that_steps_down_is_replaced_by_another_node() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let mongo = quick_set().await;
    let old = mongo.step_down().await;
    let next = mongo.wait_for_primary(Some(old.port())).await;
    assert_ne!(next.port(), old.port());
}

#[tokio::test]
async fn a_frozen_primary_is_replaced_by_another_node() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let mongo = quick_set().await;
    let frozen = mongo.wait_for_primary(None).await;
    mongo.freeze(frozen).await;
    let next = mongo.wait_for_primary(Some(frozen.port())).await;
    assert!(timeout(SILENCE, wire::ask(frozen.port(), doc! { "hello": 1 })).await.is_err(), "it is frozen");

    mongo.thaw(frozen).await;
    // It steps down when it hears of the other one, and closes connections then.
    let hello = until("it is thawed", async || wire::ask(frozen.port(), doc! { "hello": 1 }).await).await;
    assert_eq!(hello.get_str("setName").ok(), mongo.replica_set());
    // Whatever the thawed node thinks, the later election counts.
    mongo.wait_for_primary(Some(frozen.port())).await;
    assert_ne!(next.port(), frozen.port());
}

#[tokio::test]
async fn a_node_that_is_told_to_step_up_becomes_primary() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let mongo = quick_set().await;
    let old = mongo.wait_for_primary(None).await;
    let other = mongo.nodes().iter().find(|node| node.port() != old.port()).expect("a set of three");
    // Returns when it was seen to be.
    mongo.step_up(other).await;
}

#[tokio::test]
async fn a_single_node_that_steps_down_comes_back() {
    let mongo = Deployment::start(Shape::Single, Options::default()).await;
    let old = mongo.step_down().await;
    assert_eq!(mongo.wait_for_primary(None).await.port(), old.port());
}

#[tokio::test]
async fn a_fail_point_fails_the_command_as_often_as_asked() {
    let mongo = Deployment::start(Shape::Single, Options::default()).await;
    let node = &mongo.nodes()[0];
    let before = node.fail_command(&["ping"], 1, doc! { "errorCode": 91 }).await;
    let ping = || wire::ask(node.port(), doc! { "ping": 1 });
    assert!(ping().await.is_err());
    assert!(ping().await.is_ok());
    node.until_fail_point("failCommand", before + 1).await;

    node.fail_command(&["ping"], 9, doc! { "closeConnection": true }).await;
    assert!(ping().await.is_err());
    assert_eq!(node.clear_fail_point("failCommand").await, before + 2);
    assert!(ping().await.is_ok());
}

// --- the proxy ----------------------------------------------------------------

async fn proxy() -> Proxy {
    Proxy::start(shared_single().await.nodes()[0].port())
}

fn insert(collection: &str, id: i32) -> Document {
    doc! { "insert": collection, "documents": [{ "_id": id }], "$db": "proxy" }
}

/// Number of documents in the collection, asked past the proxy.
async fn documents(collection: &str) -> i32 {
    let count = doc! { "count": collection, "$db": "proxy" };
    shared_single().await.nodes()[0].ask(count).await.get_i32("n").expect("a count")
}

async fn until_documents(collection: &str, number: i32) {
    until(&format!("{number} in {collection}"), async || match documents(collection).await {
        there if there == number => Ok(()),
        other => Err(other),
    })
    .await;
}

#[tokio::test]
async fn a_proxy_passes_and_counts_by_the_name_of_the_command() {
    let proxy = proxy().await;
    let client = Client::with_uri_str(proxy.uri()).await.expect("a valid URI");
    let collection = client.database("proxy").collection("pass");
    for id in 0..3 {
        collection.insert_one(doc! { "_id": id }).await.expect("the proxy passes");
    }
    proxy.until_passed("hello", 1).await;
    assert_eq!((proxy.passed("insert"), proxy.passed("delete")), (3, 0));
    assert_eq!(documents("pass").await, 3);
}

#[tokio::test]
async fn a_black_hole_accepts_and_swallows() {
    let proxy = proxy().await;
    proxy.set_mode(Mode::BlackHole).await;
    assert!(
        timeout(SILENCE, wire::ask(proxy.port(), insert("hole", 1))).await.is_err(),
        "no answer, no close"
    );
    assert_eq!((proxy.passed("insert"), documents("hole").await), (0, 0));

    proxy.set_mode(Mode::Pass).await;
    wire::ask(proxy.port(), insert("hole", 2)).await.expect("it passes again");
    assert_eq!(documents("hole").await, 1);
}

#[tokio::test]
async fn a_black_hole_hides_that_the_server_closed() {
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let proxy = Proxy::start(server.local_addr().expect("it is bound").port());
    proxy.set_mode(Mode::BlackHole).await;
    let client = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("it accepts");
    drop(server.accept().await.expect("the proxy connects"));
    assert!(timeout(SILENCE, client.readable()).await.is_err(), "nothing to see");

    proxy.set_mode(Mode::Pass).await;
    within("now it is seen", client.readable()).await.expect("a close");
}

#[tokio::test]
async fn a_proxy_that_refuses_closes_what_is_open_and_returns_on_its_port() {
    let proxy = proxy().await;
    let open = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("it accepts");
    proxy.set_mode(Mode::Refuse).await;
    within("it is closed", open.readable()).await.expect("a close");
    let refused = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect_err("nothing listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

    proxy.set_mode(Mode::Pass).await;
    wire::ask(proxy.port(), doc! { "ping": 1 }).await.expect("it passes again");
}

#[tokio::test]
async fn a_proxy_delays_each_direction_by_its_own_time() {
    let proxy = proxy().await;
    let long = Duration::from_secs(50);
    proxy.set_mode(Mode::Delay { to_server: Duration::ZERO, to_client: long }).await;
    let waiting = tokio::spawn(wire::ask(proxy.port(), insert("delay", 1)));
    proxy.until_passed("insert", 1).await;
    until_documents("delay", 1).await;
    assert!(!waiting.is_finished(), "its answer is still on its way");
    waiting.abort();

    proxy.set_mode(Mode::Delay { to_server: long, to_client: Duration::ZERO }).await;
    assert!(timeout(SILENCE, wire::ask(proxy.port(), insert("delay", 2))).await.is_err());
    assert_eq!((proxy.passed("insert"), documents("delay").await), (1, 1));

    proxy.set_mode(Mode::Delay { to_server: SILENCE / 2, to_client: SILENCE / 2 }).await;
    let begun = now();
    wire::ask(proxy.port(), doc! { "ping": 1 }).await.expect("it comes through");
    assert!(begun.elapsed() >= SILENCE, "after {:?}", begun.elapsed());
}

#[allow(clippy::disallowed_methods, reason = "a real server takes real time")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test]
async fn a_command_that_is_silenced_is_carried_out_and_never_answered_and_all_else_is() {
    let proxy = proxy().await;
    proxy.silence("insert", &["silenced"]);
    let waiting = tokio::spawn(wire::ask(proxy.port(), insert("silenced", 1)));
    proxy.until_dropped("insert", 1).await;
    until_documents("silenced", 1).await;
    wire::ask(proxy.port(), insert("beside silence", 1)).await.expect("another collection");
    wire::ask(proxy.port(), doc! { "ping": 1 }).await.expect("another command");
    assert!(!waiting.is_finished(), "no answer, no close");
    waiting.abort();
    proxy.end_silence();
    wire::ask(proxy.port(), insert("silenced", 2)).await.expect("it passes again");
}

#[tokio::test]
async fn a_one_way_partition_applies_what_it_does_not_answer() {
    let proxy = proxy().await;
    proxy.set_mode(Mode::RepliesLost).await;
    let waiting = tokio::spawn(wire::ask(proxy.port(), insert("one-way", 1)));
    proxy.until_passed("insert", 1).await;
    until_documents("one-way", 1).await;
    assert!(timeout(SILENCE, waiting).await.is_err(), "no answer, no close");
}

#[tokio::test]
async fn the_opposite_one_way_partition_applies_nothing() {
    let proxy = proxy().await;
    proxy.set_mode(Mode::RequestsLost).await;
    assert!(timeout(SILENCE, wire::ask(proxy.port(), insert("other-way", 1))).await.is_err());
    assert_eq!((proxy.swallowed(), documents("other-way").await), (1, 0));
}

#[tokio::test]
async fn a_proxy_closes_what_is_open_and_takes_new_connections_at_once() {
    let proxy = proxy().await;
    let open = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("it accepts");
    // Until then the connection may not have been taken yet.
    wire::ask(proxy.port(), doc! { "ping": 1 }).await.expect("it passes");
    proxy.sever();
    within("it is closed", open.readable()).await.expect("a close");
    proxy.until_severed(1).await;
    wire::ask(proxy.port(), doc! { "ping": 1 }).await.expect("it passes");
}

#[tokio::test]
async fn the_replies_to_one_operation_are_lost_and_those_to_others_are_not() {
    let proxy = proxy().await;
    let change = |id: i32| {
        let update = doc! { "$set": { "n": 1 } };
        doc! { "findAndModify": "lost-of-one", "query": { "_id": id }, "update": update, "$db": "proxy" }
    };
    proxy.drop_replies_of_one(&["lost-of-one"], 2);
    wire::ask(proxy.port(), change(1)).await.expect_err("the first");
    wire::ask(proxy.port(), change(2)).await.expect("another one");
    wire::ask(proxy.port(), change(1)).await.expect_err("the first once more");
    wire::ask(proxy.port(), change(1)).await.expect("twice is enough");
    assert_eq!((proxy.passed("findAndModify"), proxy.dropped("findAndModify")), (4, 2));
}

#[tokio::test]
async fn a_set_lives_behind_proxies() {
    let deployment = Deployment::start(Shape::ReplicaSet, Options::default()).await;
    let proxies: Vec<_> = deployment.nodes().iter().map(|node| Proxy::start(node.port())).collect();
    let ports: Vec<_> = proxies.iter().map(Proxy::port).collect();
    let uri = deployment.move_behind(&ports).await;
    // The members go through them: nobody else does as yet.
    for proxy in &proxies {
        proxy.set_mode(Mode::BlackHole).await;
        proxy.until_swallowed(1).await;
        proxy.set_mode(Mode::Pass).await;
    }
    let client = Client::with_uri_str(uri).await.expect("a valid URI");
    let collection = client.database("proxy").collection("behind");
    collection.insert_one(doc! { "_id": 1 }).await.expect("the set is up");
    let passed: u64 = proxies.iter().map(|proxy| proxy.passed("insert")).sum();
    assert!(passed >= 1, "the client goes through the proxies");
}

#[tokio::test]
async fn a_write_whose_reply_is_lost_once_is_applied_once_by_a_retry() {
    let (proxy, collection) = counter("lost-once", true).await;
    proxy.drop_replies("findAndModify", 1);
    increment(&collection).await.expect("the driver retries");
    assert_eq!((proxy.passed("findAndModify"), proxy.dropped("findAndModify")), (2, 1));
    assert_eq!(value(&collection).await, 1);
}

#[tokio::test]
async fn a_write_whose_reply_is_lost_twice_fails_although_it_is_applied() {
    let (proxy, collection) = counter("lost-twice", true).await;
    proxy.drop_replies("findAndModify", 2);
    increment(&collection).await.expect_err("the driver retries once");
    assert_eq!((proxy.passed("findAndModify"), proxy.dropped("findAndModify")), (2, 2));
    assert_eq!(value(&collection).await, 1);
}

#[tokio::test]
async fn without_retries_one_lost_reply_is_an_error_although_it_is_applied() {
    let (proxy, collection) = counter("lost-without-retry", false).await;
    proxy.drop_replies("findAndModify", 1);
    increment(&collection).await.expect_err("no retries");
    assert_eq!((proxy.passed("findAndModify"), proxy.dropped("findAndModify")), (1, 1));
    assert_eq!(value(&collection).await, 1);
}

/// A counter at 0, and the proxy through which the collection is reached.
async fn counter(name: &str, retry_writes: bool) -> (Proxy, Collection<Document>) {
    let proxy = proxy().await;
    let mut options = ClientOptions::parse(proxy.uri()).await.expect("a valid URI");
    options.retry_writes = Some(retry_writes);
    let client = Client::with_options(options).expect("valid options");
    let collection = client.database("proxy").collection(name);
    collection.insert_one(doc! { "_id": 1, "n": 0 }).await.expect("a write");
    (proxy, collection)
}

async fn increment(collection: &Collection<Document>) -> mongodb::error::Result<Option<Document>> {
    collection.find_one_and_update(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } }).await
}

async fn value(collection: &Collection<Document>) -> i32 {
    let found = collection.find_one(doc! { "_id": 1 }).await.expect("a read").expect("the document");
    found.get_i32("n").expect("a number")
}

#[tokio::test]
async fn a_dropped_proxy_closes_its_connections_and_its_port() {
    let proxy = proxy().await;
    let port = proxy.port();
    let open = TcpStream::connect(("127.0.0.1", port)).await.expect("it accepts");
    drop(proxy);
    within("it is closed", open.readable()).await.expect("a close");
    let refused = TcpStream::connect(("127.0.0.1", port)).await.expect_err("nothing listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

// --- the clock ----------------------------------------------------------------

const HOUR: i64 = 3_600_000;

#[tokio::test]
async fn the_wall_clock_of_a_server_steps_both_ways() {
    let mongo =
        Deployment::start(Shape::Single, Options { steppable_clock: true, ..Options::default() }).await;
    let client = mongo.client().await;
    assert_step(&mongo, &client, 0).await;
    for millis in [HOUR, -HOUR, 0] {
        mongo.step_clock(millis).await;
        assert_step(&mongo, &client, millis).await;
    }
}

#[tokio::test]
async fn a_failover_to_a_member_with_another_clock_moves_the_time_of_the_set() {
    let options = Options { steppable_clock: true, timing: Timing::Steady, ..Options::default() };
    let mongo = Deployment::start(Shape::ReplicaSet, options).await;
    let primary = mongo.wait_for_primary(None).await;
    let other = mongo.nodes().iter().find(|node| node.port() != primary.port()).expect("a set of three");
    mongo.kill(other).await;
    mongo.step_clock_of(other, HOUR).await;
    mongo.restart(other).await;

    let client = mongo.client().await;
    assert_step(&mongo, &client, 0).await;
    mongo.step_up(other).await;
    assert_step(&mongo, &client, HOUR).await;
}

/// Both clocks that a client can see are this far from the true time, and the server works.
async fn assert_step(mongo: &Deployment, client: &Client, millis: i64) {
    let hello = mongo.wait_for_primary(None).await.ask(doc! { "hello": 1 }).await;
    assert_near(*hello.get_datetime("localTime").expect("a time"), millis);

    let pipeline = [doc! { "$documents": [{}] }, doc! { "$project": { "now": "$$NOW" } }];
    let mut found = client.database("admin").aggregate(pipeline).await.expect("the server works");
    assert!(found.advance().await.expect("the server works"));
    let now = found.current().get_datetime("now").expect("a time");
    assert_near(now, millis);

    let collection = client.database("check").collection("clock");
    collection.insert_one(doc! {}).await.expect("the server takes writes");
}

fn assert_near(shown: DateTime, millis: i64) {
    let off = shown.timestamp_millis() - DateTime::now().timestamp_millis();
    assert!((off - millis).abs() < 30_000, "the clock is {off} ms from the true time, not {millis}");
}
