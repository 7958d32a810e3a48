//! A right that is taken away: the log says what does not work, and what to grant.

use mongodb::bson::{Document, doc};
use tenure::{
    Elect,
    elect::Work,
    store::mongo::{MongoOptions, MongoStore},
};

use crate::{
    captured::Log,
    fleet::{quick, until},
    support::{
        mongod::{Deployment, Options, Shape},
        wire,
    },
};

/// That of a user who may not stand in line after it has started.
const ROLE: &str = "tenure";

fn privileges(places: bool) -> Vec<Document> {
    let on = |collection: &str, actions: &[&str]| {
        doc! { "resource": { "db": "app", "collection": collection }, "actions": actions }
    };
    let all = ["insert", "update", "remove"];
    let mut privileges = vec![on("", &["find", "changeStream", "listCollections", "listIndexes"])];
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
    MongoStore::connect(
        format!("mongodb://root:pw@127.0.0.1:{port}/app?authSource=admin"),
        MongoOptions::new(),
    )
    .await
    .unwrap();
    let role = doc! { "createRole": ROLE, "privileges": privileges(true), "roles": [] };
    admin.run_command(role).await.unwrap();
    let user = doc! { "createUser": "ada", "pwd": "pw", "roles": [ROLE] };
    admin.run_command(user).await.unwrap();

    let (log, _here) = Log::start();
    let uri = format!("mongodb://ada:pw@127.0.0.1:{port}/app?authSource=admin");
    let instance = async |name: &str| -> Elect {
        let store = MongoStore::connect(&uri, MongoOptions::new().create(false)).await.unwrap();
        Elect::builder(store, quick(name)).keeper_thread(false).start().await.unwrap()
    };
    let (leads, waits) = (instance("pod-1").await, instance("pod-2").await);
    let held = leads.acquire("orders").await.unwrap();
    // Without it they would not have started.
    let role = doc! { "updateRole": ROLE, "privileges": privileges(false) };
    admin.run_command(role).await.unwrap();
    let _campaign = waits.campaign("orders").start().unwrap();
    until("it is told", || async {
        let told = log.with(&["WARN", "standing in line does not work"]);
        told.first().is_some_and(|line| line.contains("grant find, insert, update on waiters")).then_some(())
    })
    .await;
    let health = waits.health();
    assert!(health.is_ok(), "{health}");
    assert!(
        health.troubles.iter().any(|trouble| trouble.work == Work::Standing && trouble.lasting),
        "{health:?}"
    );

    let role = doc! { "updateRole": ROLE, "privileges": privileges(true) };
    admin.run_command(role).await.unwrap();
    until("it works again", || async {
        (!log.with(&["INFO", "standing in line works again"]).is_empty()).then_some(())
    })
    .await;
    assert!(waits.health().troubles.is_empty(), "{:?}", waits.health());
    for line in log.lines() {
        println!("{line}");
    }
    assert!(log.lines().len() <= 12, "{:#?}", log.lines());
    held.release().await.unwrap();
}
