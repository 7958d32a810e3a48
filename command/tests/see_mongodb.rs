//! The listings on a real MongoDB.

use std::{
    io::{BufRead, BufReader, Lines, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use mongodb::bson::{Document, doc, serialize_to_document};
use rustix::process::Signal;
use serde_json::Value;
use tenure::{
    model::Kind,
    store::{
        Share,
        mongo::{MongoOptions, MongoStore},
    },
};

use crate::{
    cli::{Running, bare, output, stderr, stdout},
    looking::{LIFE, LOCK, SESSION, World, and, fields, given_up, item, listing},
    support::mongod::{Deployment, shared_single},
};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn the_listings_are_the_same_on_a_server() {
    let deployment = shared_single().await;
    let database = format!("looking-{}", std::process::id());
    let store = MongoStore::connect(deployment.uri(), MongoOptions::new().database(&database)).await.unwrap();
    let uri = deployment.uri_in(&database);
    let world = World::on(Arc::new(store), &uri);

    let elect = world.engine("pod-1").await;
    let guard = elect.key("report").why("nightly").try_acquire().await.unwrap().guard().unwrap();
    let job = elect.schedule("job", "0 0 1 1 *").run(|_, _| async { Err("disk full") }).unwrap();
    job.run_now("a test").await.unwrap();
    let topics = || Kind::Task("topics".parse().unwrap());
    let silent = world
        .session(7, "pod-7", Duration::from_millis(1), vec![Share::new("topics".parse().unwrap())])
        .await;
    world.take(topics(), "lost", &silent).await;
    world.close_for(topics(), "resting", &silent, Some(given_up()), HOUR).await;

    let failed = |json: &Value| json["items"].as_array().unwrap().iter().any(|item| item["failures"] == 1);
    let schedules = world.json_until(&["schedules"], failed).await;
    assert_eq!(item(listing(&schedules), "/record/id/name", "job")["owner"]["holder"], "pod-1");
    let held = world.json(&["ls"]);
    let held = listing(&held);
    for one in held {
        fields(one, &and(LOCK, LIFE));
    }
    assert_eq!(
        held.iter().map(|one| one["id"]["key"].as_str().unwrap()).collect::<Vec<_>>(),
        ["report", "job", "lost"]
    );
    assert_eq!(item(held, "/id/key", "lost")["life"], "silent");
    assert_eq!(world.json(&["show", "report"])["record"]["holding"]["by"]["why"], "nightly");
    let instances = world.json(&["instances"]);
    let instances = listing(&instances);
    for one in instances {
        fields(
            one,
            &and(
                SESSION,
                &and(LIFE, &[("held", "object"), ("failing", "array"), ("clock_ahead_ms", "null")]),
            ),
        );
    }
    let first = item(instances, "/about/holder", "pod-1");
    assert_eq!((&first["held"]["locks"], &first["held"]["schedules"]), (&1.into(), &1.into()));
    let spread = world.json(&["spreads", "topics"]);
    let tasks = spread["tasks"].as_array().unwrap();
    assert_eq!(item(tasks, "/key", "resting")["state"]["kind"], "resting");
    assert_eq!(spread["orphans"], serde_json::json!(["lost"]));
    assert_eq!(listing(&world.json(&["spreads"])).len(), 2, "and that of the schedules");
    assert_eq!(world.json(&["history", "job"])["items"][0]["finish"]["outcome"], "failed");
    let check = world.run(&["check", "--leader", "report"]);
    assert_eq!((check.code, check.out.as_str()), (0, "OK: pod-1 holds \"report\"\n"), "{check:?}");
    let check = world.run(&["check"]);
    let is_told = |says| check.out.contains(says);
    assert_eq!(check.code, 1, "{check:?}");
    assert!(is_told("job has failed once: disk full") && is_told("1 task of topics resting"), "{check:?}");
    drop(guard);
    elect.close().await;
}

/// Rights that a printed script gives to a role.
fn privileges(script: &str) -> Vec<Document> {
    let (_, after) = script.split_once("createRole(").unwrap();
    let (role, after) = after.split_once("\n})").unwrap();
    let role: Value = serde_json::from_str(&format!("{role}}}")).unwrap();
    let of_role = role["privileges"].as_array().unwrap().iter();
    let mut all: Vec<_> = of_role.map(|privilege| serialize_to_document(privilege).unwrap()).collect();
    let database = role["privileges"][0]["resource"]["db"].as_str().unwrap();
    let (_, actions) = after.split_once("\"actions\": ").unwrap();
    let actions: Vec<String> = serde_json::from_str(actions.lines().next().unwrap()).unwrap();
    all.extend((0..64).map(|number| {
        let resource = doc! { "db": database, "collection": format!("bells_{number:02}") };
        doc! { "resource": resource, "actions": &actions }
    }));
    all
}

/// A command that runs until it is told to end.
struct Lasting {
    running: Running,
    line: String,
    // The stream stays open, for more lines follow.
    _rest: Lines<BufReader<Box<dyn Read>>>,
}

impl Lasting {
    /// Starts it, and waits for its first line with that text: the driver's log may come before.
    fn start(command: &mut Command, text: &str, stream: impl FnOnce(&mut Child) -> Box<dyn Read>) -> Self {
        let mut running = Running::start(command);
        let mut rest = BufReader::new(stream(&mut running.0)).lines();
        let line = rest.by_ref().map(Result::unwrap).find(|line| line.contains(text)).unwrap();
        Self { running, line, _rest: rest }
    }

    fn end(mut self) -> Option<i32> {
        self.running.signal(Signal::TERM);
        self.running.join().code()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_printed_role_of_a_reader_sees_all_and_locks_nothing() {
    let server = Deployment::start_guarded().await;
    let admin = mongodb::Client::with_uri_str(server.uri_as("root", "root", "admin")).await.unwrap();
    let printed = output(bare().args(["schema", "--database", "tenure", "--role", "reader", "-o", "json"]));
    let printed: Value = serde_json::from_str(&stdout(&printed)).unwrap();
    let privileges = privileges(printed["script"].as_str().unwrap());
    let admin = admin.database("tenure");
    admin.run_command(doc! { "createRole": "looks", "privileges": privileges, "roles": [] }).await.unwrap();
    admin.run_command(doc! { "createUser": "looks", "pwd": "secret", "roles": ["looks"] }).await.unwrap();
    let uri = server.uri_as("root", "root", "admin");
    let store = MongoStore::connect(&uri, MongoOptions::new().database("tenure")).await.unwrap();
    let reader = World::on(Arc::new(store), &server.uri_as("looks", "secret", "tenure"));

    let elect = reader.engine("pod-1").await;
    let guard = elect.acquire("report").await.unwrap();
    let schedule = elect.schedule("job", "0 0 1 1 *").run(|_, _| async { Ok::<(), &str>(()) }).unwrap();
    schedule.run_now("a test").await.unwrap();
    let is_done = |json: &Value| !json["items"][0]["finish"].is_null();
    reader.json_until(&["history", "job"], is_done).await;
    for (words, shown) in [
        (&["ls"][..], "report"),
        (&["show", "report"], "pod-1"),
        (&["instances"], "pod-1"),
        (&["spreads"], "tenure.schedules"),
        (&["schedules"], "job"),
        (&["history", "job"], "succeeded"),
        (&["next", "0 12 1 1 *"], "-01-01"),
        (&["check", "--leader", "report"], "OK: "),
        (&["top", "--once"], "pod-1"),
    ] {
        let ran = reader.run(words);
        assert!(ran.code == 0 && ran.out.contains(shown), "{words:?}: {ran:?}");
    }

    let mut watch = reader.command(&["watch", "--output", "json"]);
    let watch = Lasting::start(watch.stdout(Stdio::piped()), "\"watching\"", |child| {
        Box::new(child.stdout.take().unwrap())
    });
    assert_eq!(watch.end(), Some(0));
    let mut page = reader.command(&["ui", "--listen", "127.0.0.1:0"]);
    let is_at = "tenure: the page is at http://";
    let page =
        Lasting::start(page.stderr(Stdio::piped()), is_at, |child| Box::new(child.stderr.take().unwrap()));
    let address = page.line.trim().strip_prefix(is_at).expect(&page.line);
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET /key?key=report HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    stream.write_all(format!("{head}accept: text/html\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("pod-1"), "{answer}");
    assert_eq!(page.end(), Some(0));

    let lacking = "the user \"looks\" may not insert, update, remove on tenure.sessions, ";
    for words in [
        &["exec", "--key", "another", "--", "true"][..],
        &["release", "report", "--yes"],
        &["ui", "--listen", "127.0.0.1:0", "--allow-actions"],
    ] {
        let refused = output(&mut reader.command(words));
        assert_eq!(refused.status.code(), Some(69), "{words:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(lacking), "{words:?}: {}", stderr(&refused));
    }
    drop(guard);
    elect.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn terms_of_a_restored_server_are_raised_once_no_session_is_alive() {
    let deployment = shared_single().await;
    let database = format!("raising-{}", std::process::id());
    let store = MongoStore::connect(deployment.uri(), MongoOptions::new().database(&database)).await.unwrap();
    let world = World::on(Arc::new(store), &deployment.uri_in(&database));
    let elect = world.engine("pod-1").await;
    let guard = elect.acquire("report").await.unwrap();
    let alive = world.run(&["raise-terms", "--yes"]);
    assert_eq!(alive.code, 69, "{alive:?}");
    let sentence = "the session of \"pod-1\" is alive: stop all instances first";
    assert!(alive.err.contains(sentence), "{alive:?}");
    assert!(guard.check().await.unwrap());
    guard.release().await.unwrap();
    elect.close().await;
    let raised = world.json(&["raise-terms", "--yes"]);
    assert_eq!((&raised["done"], &raised["raised"]), (&true.into(), &1.into()), "{raised}");
}
