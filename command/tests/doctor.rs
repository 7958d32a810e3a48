//! `tenure doctor` on stores that are well, and on deployments that are broken in each of the ways it knows.

use std::{fs, process::Output};

use mongodb::bson::{Document, doc};
use serde_json::Value;

use crate::{
    cli::{Folder, output, stderr, stdout, tenure},
    support::{
        mongod::{Deployment, Options, Shape, Timing, shared_single},
        wait::{until, within},
    },
};

struct Report {
    code: Option<i32>,
    items: Vec<Value>,
    text: String,
}

impl Report {
    fn of(output: &Output) -> Self {
        let text = stdout(output);
        let report: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {}", stderr(output)));
        Self { code: output.status.code(), items: report["items"].as_array().unwrap().clone(), text }
    }

    /// The finding about that, of that level.
    fn has(&self, level: &str, about: &str, says: &str) {
        let is_it = |item: &&Value| {
            item["level"] == level && item["about"] == about && item["says"].as_str().unwrap().contains(says)
        };
        let found = self.items.iter().find(is_it);
        let found = found.unwrap_or_else(|| panic!("no finding {level} {about} {says:?}: {}", self.text));
        assert_eq!(found["advice"].is_string(), ["warning", "bad"].contains(&level), "{found}");
    }

    /// The same report, if there are none of these findings.
    fn without(self, levels: &[&str], abouts: &[&str]) -> Result<Self, String> {
        let is_one = |item: &Value| {
            let is_of = |words: &[&str], field: &str| words.iter().any(|word| item[field] == *word);
            is_of(levels, "level") && is_of(abouts, "about")
        };
        if self.items.iter().any(is_one) { Err(self.text) } else { Ok(self) }
    }

    /// The same report, if it says that.
    fn saying(self, words: &str) -> Result<Self, String> {
        if self.text.contains(words) { Ok(self) } else { Err(self.text) }
    }

    fn is_well_about(&self, about: &str) {
        self.has("ok", about, "");
    }
}

async fn doctor(store: &str, more: &[&str]) -> Report {
    let (store, more): (_, Vec<String>) =
        (store.to_owned(), more.iter().map(|word| (*word).to_owned()).collect());
    let run = move || output(tenure(&store).args(["doctor", "-o", "json"]).args(more));
    Report::of(&within("the doctor", tokio::task::spawn_blocking(run)).await.unwrap())
}

/// The findings of a moment in which the machine is not slow, for that would be found, too.
async fn doctor_at_ease(store: &str) -> Report {
    let look =
        async || doctor(store, &[]).await.without(&["warning"], &["speed", "clock", "clocks", "hints"]);
    until("a quick machine", look).await
}

#[tokio::test]
async fn a_file_that_is_well_is_found_so() {
    let folder = Folder::new("doctor");
    assert!(output(tenure(&folder.store()).args(["exec", "--key", "k", "--", "true"])).status.success());
    let report = doctor_at_ease(&folder.store()).await;
    assert_eq!(report.code, Some(0), "{}", report.text);
    for about in ["disk", "open", "speed", "proof", "clock", "hints"] {
        report.is_well_about(about);
    }
    let report = doctor(&folder.store(), &["--read-only"]).await;
    assert_eq!(report.code, Some(0), "{}", report.text);
    report.has("untested", "dry run", "only reads");
    let text = output(tenure(&folder.store()).args(["doctor", "--color", "never"]));
    assert!(stdout(&text).starts_with("ok          file"), "{}", stdout(&text));
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let folder = Folder::new("doctor-files");
    let nowhere = doctor(&format!("sqlite:{}", folder.join("none/tenure.db").display()), &[]).await;
    assert_eq!(nowhere.code, Some(69));
    nowhere.has("bad", "open", "none");
    fs::write(
        folder.join("tenure.db"),
        "no database, but some words that are longer than the header of one would be, so that it is read",
    )
    .unwrap();
    let foreign = doctor(&folder.store(), &[]).await;
    assert_eq!(foreign.code, Some(69));
    foreign.has("bad", "open", "tenure.db");
    fs::remove_file(folder.join("tenure.db")).unwrap();
    for more in [&["--read-only"][..], &[]] {
        let absent = doctor(&folder.store(), more).await;
        assert_eq!(absent.code, Some(69));
        absent.has("bad", "open", "there is no store at");
        assert!(!folder.join("tenure.db").exists());
    }
}

#[tokio::test]
async fn a_set_of_one_is_well_but_for_being_one() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let first = doctor(deployment.uri(), &[]).await;
    first.has("note", "indexes", "has no collection of tenure yet");
    let report = doctor_at_ease(deployment.uri()).await;
    assert_eq!(report.code, Some(1), "{}", report.text);
    for about in
        ["shape", "version", "compatibility", "durations", "clocks", "open", "speed", "clock", "hints"]
    {
        report.is_well_about(about);
    }
    report.has("warning", "members", "one member holds data");
    report.has("note", "user", "the server requires no login");
    // The look has made them.
    let report = doctor(deployment.uri(), &["--read-only"]).await;
    report.is_well_about("indexes");
    report.has("untested", "dry run", "only reads");
}

/// Faults that keep the store from working, or make it slow, in a database that was prepared by hand.
#[tokio::test]
async fn indexes_that_are_missing_or_delete_records_are_named() {
    let deployment = shared_single().await;
    let name = format!("doctor-{}", std::process::id());
    let uri = deployment.uri_in(&name);
    doctor(&uri, &[]).await.is_well_about("open");
    let client = deployment.client().await;
    let database = client.database(&name);
    let ttl = doc! { "key": { "at": 1 }, "name": "old", "expireAfterSeconds": 60 };
    for command in [
        doc! { "createIndexes": "sessions", "indexes": [ttl] },
        doc! { "dropIndexes": "locks", "index": "audit" },
        doc! { "drop": "fences" },
    ] {
        database.run_command(command).await.unwrap();
    }
    let report = doctor(&uri, &["--read-only"]).await;
    report.has("bad", "indexes", "the TTL index old of sessions deletes records that are in use");
    report.has("warning", "indexes", "locks lacks the index audit");
    report.has("warning", "indexes", "there is no collection fences");
    assert_eq!(report.code, Some(2), "{}", report.text);
}

#[tokio::test]
async fn users_who_may_not_and_passwords_that_are_wrong_are_named() {
    let deployment = Deployment::start_guarded().await;
    let client = mongodb::Client::with_uri_str(deployment.uri_as("root", "root", "admin")).await.unwrap();
    let reads =
        doc! { "createUser": "reader", "pwd": "s3cret", "roles": [{ "role": "read", "db": "tenure" }] };
    client.database("admin").run_command(reads).await.unwrap();
    let reader = doctor(&deployment.uri_as("reader", "s3cret", "admin"), &[]).await;
    reader.has("ok", "user", "it is the user reader");
    reader.has("untested", "members", "the user may not ask for the state of the members");
    reader.has("bad", "open", "insert, update, remove on tenure.sessions");
    assert_eq!(reader.code, Some(69), "{}", reader.text);
    let looks = doctor(&deployment.uri_as("reader", "s3cret", "admin"), &["--read-only"]).await;
    looks.has("ok", "open", "can be opened and read");
    let wrong = doctor(&deployment.uri_as("reader", "s4cret", "admin"), &[]).await;
    wrong.has("bad", "login", "the server refuses the login");
    assert_eq!(wrong.code, Some(69), "{}", wrong.text);
    let all = ["find", "insert", "update", "remove", "listIndexes", "listCollections", "createIndex"];
    let privilege = doc! { "resource": { "db": "tenure", "collection": "" }, "actions": all };
    let role = doc! { "createRole": "deaf", "privileges": [privilege], "roles": [] };
    client.database("admin").run_command(role).await.unwrap();
    let user = doc! { "createUser": "deaf", "pwd": "s3cret", "roles": ["deaf"] };
    client.database("admin").run_command(user).await.unwrap();
    let deaf = doctor(&deployment.uri_as("deaf", "s3cret", "admin"), &[]).await;
    deaf.has("warning", "hints", "the user \"deaf\" may not insert, convertToCapped on tenure.bells_");
    assert_eq!(deaf.code, Some(1), "{}", deaf.text);
    for report in [reader, looks, wrong, deaf] {
        assert!(!report.text.contains("s3cret") && !report.text.contains("s4cret"), "{}", report.text);
    }
}

/// As on servers that speak the protocol and are not MongoDB, and on one that is not through with its upgrade.
#[tokio::test]
async fn a_server_that_lacks_what_locks_are_written_with_is_found() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let node = &deployment.nodes()[0];
    let unknown = doc! { "errorCode": 9 };
    node.ask(doc! { "setFeatureCompatibilityVersion": "5.0" }).await;
    node.fail_command(&["findAndModify"], 1000, unknown).await;
    let report = doctor(deployment.uri(), &[]).await;
    report.has("bad", "open", "updates by an aggregation pipeline");
    report.has("warning", "compatibility", "the server behaves as 5.0");
    assert_eq!(report.code, Some(69), "{}", report.text);
}

/// As for a backup of its files.
#[tokio::test]
async fn a_server_that_takes_no_writes_is_found() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    doctor(deployment.uri(), &[]).await.is_well_about("open");
    deployment.nodes()[0].ask(doc! { "fsync": 1, "lock": true }).await;
    let report = doctor(deployment.uri(), &[]).await;
    assert!([Some(2), Some(69)].contains(&report.code), "{}", report.text);
    assert!(report.items.iter().any(|item| item["level"] == "bad"), "{}", report.text);
    deployment.nodes()[0].ask(doc! { "fsyncUnlock": 1 }).await;
    doctor(deployment.uri(), &[]).await.is_well_about("open");
}

#[tokio::test]
async fn a_standalone_server_is_found_with_what_to_do() {
    let deployment = Deployment::start(Shape::Standalone, Options::default()).await;
    let report = doctor(deployment.uri(), &[]).await;
    report.has("bad", "shape", "this is a standalone server");
    assert_eq!(report.code, Some(2), "{}", report.text);
}

#[tokio::test]
async fn members_that_are_down_and_clocks_that_differ_are_found() {
    let options = Options { steppable_clock: true, timing: Timing::Default, ..Options::default() };
    let deployment = Deployment::start(Shape::ReplicaSet, options).await;
    let primary = deployment.wait_for_primary(None).await.port();
    let mut others = deployment.nodes().iter().filter(|node| node.port() != primary);
    deployment.step_clock_of(others.next().unwrap(), 60_000).await;
    let report = doctor(deployment.uri(), &["--takeover-within", "3s"]).await;
    report.has("warning", "clocks", "is furthest from this machine's");
    report.has("warning", "durations", "every such failover stops every job");
    let is_whole = async || doctor(deployment.uri(), &["--read-only"]).await.saying("all 3 members are up");
    until("members that are up", is_whole).await.has("ok", "members", "all 3 members are up");
    let down = others.next().unwrap();
    // It gets the writes and does not apply them.
    down.fail_point("rsSyncApplyStop", "alwaysOn", doc! {}).await;
    let client = deployment.client().await;
    let written = client.database("test").collection::<Document>("written");
    let report = until("a member that is behind", async || {
        written.insert_one(doc! {}).await.unwrap();
        doctor(deployment.uri(), &["--read-only"]).await.saying("behind the primary")
    });
    report.await.has("warning", "members", "s behind the primary");
    deployment.kill(down).await;
    // The others notice it by its silence.
    let report = until("a member that is down", async || {
        doctor(deployment.uri(), &["--read-only"]).await.saying("is (not reachable/healthy)")
    });
    let report = report.await;
    report.has("warning", "members", "is (not reachable/healthy)");
    report.has("untested", "clocks", &down.port().to_string());
    assert_eq!(report.code, Some(1), "{}", report.text);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_soon_and_no_password_is_told() {
    let report = doctor("mongodb://somebody:s3cret@127.0.0.1:1/shop?replicaSet=rs0", &[]).await;
    assert_eq!(report.code, Some(69));
    report.has("bad", "reach", "no server answers within 5 s");
    assert!(!report.text.contains("s3cret"), "{}", report.text);
    let report = doctor("mongodb://", &[]).await;
    report.has("bad", "uri", "the connection string cannot be read");
}
