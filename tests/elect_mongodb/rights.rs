//! A right that is taken away: the log says what is failing, and what to grant.

use mongodb::bson::{Document, doc};
use tenure::{Elect, elect::Work, store::mongo::MongoOptions};

use crate::elect_mongodb::fleet::{quick, steady, until, when};
use crate::{
    captured::Log,
    mongodb::connected,
    support::{
        mongod::{Deployment, Options, Shape},
        wire,
    },
};

/// Role of a user who may not use the queue after it has started.
const ROLE: &str = "tenure";

fn privileges(places: bool) -> Vec<Document> {
    let on = |collection: &str, actions: &[&str]| {
        doc! { "resource": { "db": "app", "collection": collection }, "actions": actions }
    };
    let all = ["insert", "update", "remove"];
    let mut privileges = vec![on("", &["find", "listCollections", "listIndexes"])];
    privileges.extend(["sessions", "locks", "fences", "runs"].map(|name| on(name, &all)));
    privileges.push(on("waiters", if places { &all } else { &["remove"] }));
    privileges
}

#[tokio::test]
async fn whoever_may_not_stand_in_line_is_told_what_to_grant_and_when_it_works() {
    let options = Options { args: vec!["--auth".into()], ..Options::default() };
    let deployment = Deployment::start(Shape::Standalone, options).await;
    let port = deployment.nodes()[0].port();
    let root = doc! { "createUser": "root", "pwd": "pw", "roles": ["root"] };
    wire::ask(port, root).await.expect("the first user can be created from this machine");
    let client = mongodb::Client::with_uri_str(format!("mongodb://root:pw@127.0.0.1:{port}")).await.unwrap();
    let admin = client.database("admin");
    // The collections are there.
    let uri = format!("mongodb://root:pw@127.0.0.1:{port}/app?authSource=admin");
    connected(uri, MongoOptions::new()).await;
    let role = doc! { "createRole": ROLE, "privileges": privileges(true), "roles": [] };
    admin.run_command(role).await.unwrap();
    let user = doc! { "createUser": "ada", "pwd": "pw", "roles": [ROLE] };
    admin.run_command(user).await.unwrap();

    let (log, _here) = Log::start();
    let uri = format!("mongodb://ada:pw@127.0.0.1:{port}/app?authSource=admin");
    let instance = async |name: &str| -> Elect {
        let store = connected(&uri, MongoOptions::new().create(false)).await;
        Elect::builder(store, steady(name)).start().await.unwrap()
    };
    let (leads, waits) = (instance("pod-1").await, instance("pod-2").await);
    let held = leads.acquire("orders").await.unwrap();
    // Without it they would not have started.
    let role = doc! { "updateRole": ROLE, "privileges": privileges(false) };
    admin.run_command(role).await.unwrap();
    let _campaign = waits.campaign("orders").start().unwrap();
    until("it is told", async || {
        let told =
            log.with(&["WARN", "joining the line is failing", "grant find, insert, update on waiters"]);
        when(!told.is_empty(), log.lines())
    })
    .await;
    until("its health says so", async || {
        let health = waits.health();
        let joins = health.troubles.iter().find(|trouble| trouble.work == Work::Joining);
        when(health.is_ok() && joins.is_some_and(|trouble| trouble.lasting), health)
    })
    .await;

    let role = doc! { "updateRole": ROLE, "privileges": privileges(true) };
    admin.run_command(role).await.unwrap();
    until("it works again", async || {
        let told = log.with(&["INFO", "joining the line works again"]);
        when(!told.is_empty() && waits.health().troubles.is_empty(), log.lines())
    })
    .await;
    for line in log.lines() {
        println!("{line}");
    }
    held.release().await.unwrap();
}

/// Connected before the password changed, it goes on for as long as its connections do; then it is told. The
/// same process goes on with a second instance that has the new one.
#[tokio::test]
async fn a_password_that_is_changed_is_told_and_a_second_instance_of_the_process_goes_on() {
    let options = Options { args: vec!["--auth".into()], ..Options::default() };
    let deployment = Deployment::start(Shape::Standalone, options).await;
    let node = &deployment.nodes()[0];
    let port = node.port();
    let root = doc! { "createUser": "root", "pwd": "old", "roles": ["root"] };
    wire::ask(port, root).await.expect("the first user can be created from this machine");
    let uri = |password: &str| format!("mongodb://root:{password}@127.0.0.1:{port}/app?authSource=admin");
    let instance = async |password: &str| -> Elect {
        let store = connected(uri(password), MongoOptions::new()).await;
        Elect::builder(store, quick("pod-1")).start().await.unwrap()
    };
    let (log, _here) = Log::start();
    let first = instance("old").await;
    let _held = first.acquire("orders").await.unwrap();
    let client = mongodb::Client::with_uri_str(uri("old")).await.unwrap();
    // On the disk, for the server is killed.
    let kept = doc! { "w": 1, "j": true };
    let change = doc! { "updateUser": "root", "pwd": "new", "writeConcern": kept };
    client.database("admin").run_command(change).await.unwrap();
    // Its connections are gone, and the next ones are refused.
    deployment.kill(node).await;
    deployment.restart(node).await;
    until("it is told", async || {
        let told = log.with(&["WARN", "sending heartbeats is failing", "check whether the password"]);
        when(!told.is_empty(), log.lines())
    })
    .await;
    until("its health says so", async || {
        let health = first.health();
        when(health.troubles.iter().any(|trouble| trouble.work == Work::Beats), health)
    })
    .await;

    let second = instance("new").await;
    let held = second.acquire("orders").await.unwrap();
    assert!(held.is_valid());
    for line in log.lines() {
        println!("{line}");
    }
    assert!(
        log.lines().iter().all(|line| !line.contains("old") || !line.contains("root:old")),
        "{:#?}",
        log.lines()
    );
}
