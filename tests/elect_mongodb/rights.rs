//! A right that is taken away: the log says what is failing, and what to grant.

use mongodb::{
    Client,
    bson::{Document, doc},
};
use tenure::{Elect, elect::Work, store::mongo::MongoOptions};

use crate::elect_mongodb::fleet::{MS, SECOND, config, quick, steady, until, when, within};
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
async fn an_instance_that_may_not_join_the_queue_is_told_what_to_grant_and_when_it_works() {
    let options = Options { args: vec!["--auth".into()], ..Options::default() };
    let deployment = Deployment::start(Shape::Standalone, options).await;
    let port = deployment.nodes()[0].port();
    let root = doc! { "createUser": "root", "pwd": "pw", "roles": ["root"] };
    wire::ask(port, root).await.expect("the first user can be created from this machine");
    let client = Client::with_uri_str(format!("mongodb://root:pw@127.0.0.1:{port}")).await.unwrap();
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
            log.with(&["WARN", "joining the queue is failing", "grant find, insert, update on app.waiters"]);
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
        let told = log.with(&["INFO", "joining the queue works again"]);
        let joins = waits.health().troubles.iter().any(|trouble| trouble.work == Work::Joining);
        when(!told.is_empty() && !joins, log.lines())
    })
    .await;
    for line in log.lines() {
        println!("{line}");
    }
    held.release().await.unwrap();
}

/// The right to tail bells, and to ring them, is taken away from both sides of a hand-over.
#[tokio::test]
async fn hints_that_may_not_be_sent_or_heard_are_told_with_the_right_and_so_is_their_end() {
    let deployment = Deployment::start_guarded().await;
    let root = Client::with_uri_str(deployment.uri_as("root", "root", "admin")).await.unwrap();
    let admin = root.database("admin");
    let bells = |actions: &[&str]| {
        let mut privileges = privileges(true);
        // Not `find` on all of them.
        privileges[0] = doc! {
            "resource": { "db": "app", "collection": "" }, "actions": ["listCollections", "listIndexes"],
        };
        for name in ["sessions", "locks", "fences", "runs", "waiters"] {
            privileges.push(doc! { "resource": { "db": "app", "collection": name }, "actions": ["find"] });
        }
        let bells = (0..64).map(|number| doc! { "db": "app", "collection": format!("bells_{number:02}") });
        privileges.extend(bells.map(|bells| doc! { "resource": bells, "actions": actions }));
        privileges
    };
    let all = ["find", "insert", "convertToCapped"];
    connected(deployment.uri_as("root", "root", "admin"), MongoOptions::new().database("app")).await;
    let role = doc! { "createRole": ROLE, "privileges": bells(&all), "roles": [] };
    admin.run_command(role).await.unwrap();
    let user = doc! { "createUser": "ada", "pwd": "pw", "roles": [ROLE] };
    admin.run_command(user).await.unwrap();
    for number in 0..64 {
        let (app, name) = (root.database("app"), format!("bells_{number:02}"));
        app.run_command(doc! { "create": &name, "capped": true, "size": 262_144 }).await.unwrap();
        app.collection(&name).insert_one(doc! { "seed": true }).await.unwrap();
    }
    let (log, _here) = Log::start();
    let uri = deployment.uri_as("ada", "pw", "admin");
    let instance = async |name: &str| -> Elect {
        let options = MongoOptions::new().create(false).database("app").hint_wait(MS * 500);
        let config = config(name).with_poll_interval(SECOND);
        Elect::builder(connected(&uri, options).await, config).start().await.unwrap()
    };
    let (one, two) = (instance("pod-1").await, instance("pod-2").await);
    // By the bell, or by the poll that comes when there is none.
    let queue = root.database("app").collection::<Document>("waiters");
    let in_queue = async |many: u64| {
        until("the queue is as it is to be", async || {
            let waiting = queue.count_documents(doc! {}).await.unwrap();
            when(waiting == many, waiting)
        })
        .await;
    };
    let hand_over = async || {
        in_queue(0).await;
        let held = one.acquire("orders").await.unwrap();
        let waits = tokio::spawn({
            let two = two.clone();
            async move { two.acquire("orders").await.unwrap() }
        });
        in_queue(1).await;
        held.release().await.unwrap();
        within("it is handed over", waits).await.unwrap().release().await.unwrap();
    };
    hand_over().await;
    // Hints are sent by the one that releases, and heard by the other.
    let failing = || {
        let of =
            |elect: &Elect, work| elect.health().troubles.into_iter().find(|trouble| trouble.work == work);
        [of(&one, Work::Ringing), of(&two, Work::Hints)]
    };
    let update = async |actions: &[&str]| {
        let role = doc! { "updateRole": ROLE, "privileges": bells(actions) };
        admin.run_command(role).await.unwrap();
    };
    assert!(log.with(&["WARN"]).is_empty(), "{:#?}", log.lines());

    update(&["convertToCapped"]).await;
    until("both are told", async || {
        hand_over().await;
        when(failing().iter().all(Option::is_some), failing())
    })
    .await;
    for (trouble, right) in failing().into_iter().flatten().zip(["insert", "find"]) {
        let told = format!("the user \"ada\" may not {right} on app.bells_");
        assert!(trouble.lasting && trouble.error.contains(&told), "{trouble}");
        assert!(trouble.error.contains("grant that; docs/operations.md has the role"), "{trouble}");
    }
    assert_eq!(two.health().hints, None, "none come");
    let told =
        log.with(&["WARN", "sending hints is failing: others see what is released here at their next poll"]);
    assert!(!told.is_empty(), "{:#?}", log.lines());

    update(&all).await;
    until("both work again", async || {
        hand_over().await;
        when(failing().iter().all(Option::is_none), failing())
    })
    .await;
    for told in ["receiving hints works again", "sending hints works again"] {
        // Twice, where the one that hands over came back while the other had the key: then it has heard nothing, either.
        assert!(!log.with(&["INFO", told]).is_empty(), "{:#?}", log.lines());
    }
    assert_eq!(two.health().hints, Some("bells"));
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
    let client = Client::with_uri_str(uri("old")).await.unwrap();
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
