//! A collection in which the store may not do what it wants: the queue decides nothing.

use std::future::ready;

use futures::future::join_all;
use mongodb::bson::{Document, doc};
use tenure::Elect;

use crate::elect_mongodb::fleet::{Place, calm, steady, waits, within};
use crate::support::{
    mongod::{Deployment, Options, Shape},
    wire,
};

async fn pair(place: &Place) -> [Elect; 2] {
    [place.instance(steady("first")).await, place.instance(steady("second")).await]
}

/// The second takes over when the first closes, which is not before `met`; gives the key up, and leads again.
///
/// How soon: `queue::a_standby_whose_place_is_refused…` of `tests/elect/`, in paused time.
async fn the_second_leads_and_leads_again(
    what: &str,
    [first, second]: [Elect; 2],
    met: impl Future<Output = ()>,
) {
    let leads = first.campaign("key").start().unwrap();
    within(&format!("{what}: the first leads"), leads.led()).await.unwrap();
    let campaign = second.campaign("key").start().unwrap();
    waits(&second, 1).await;
    let mut watch = second.watch("key").unwrap();
    let looks = async { while watch.changed().await.unwrap().is_none() {} };
    within(&format!("{what}: the second has looked at the lock"), looks).await;
    within(&format!("{what}: its place is refused"), met).await;
    assert!(!campaign.is_leading());
    first.close().await;
    within(&format!("{what}: it takes over"), campaign.led()).await.unwrap();
    second.unlock("key").await.unwrap();
    within(&format!("{what}: it leads again"), campaign.led()).await.unwrap();
    campaign.stop().await;
    second.close().await;
}

#[tokio::test]
async fn a_standby_takes_over_whatever_the_collection_of_waiters_refuses() {
    let deployment = Deployment::start(Shape::Single, calm()).await;
    let node = &deployment.nodes()[0];
    // A full disk, a validator that does not know the documents.
    for (command, code) in [("update", 14031), ("update", 121)] {
        let place = Place::on(deployment.uri()).await;
        let pair = pair(&place).await;
        let namespace = format!("{}.waiters", place.name);
        let refuse = doc! { "failCommands": [command], "errorCode": code, "namespace": namespace };
        let before = node.fail_point("failCommand", "alwaysOn", refuse).await;
        let refused = node.until_fail_point("failCommand", before + 1);
        the_second_leads_and_leads_again(&format!("{command} {code}"), pair, refused).await;
        node.clear_fail_point("failCommand").await;
    }
}

#[tokio::test]
async fn a_standby_takes_over_when_a_right_to_the_collection_of_waiters_is_withdrawn() {
    let options = Options { args: vec!["--auth".into()], ..calm() };
    let deployment = Deployment::start(Shape::Standalone, options).await;
    let port = deployment.nodes()[0].port();
    let root = doc! { "createUser": "root", "pwd": "pw", "roles": [{ "role": "root", "db": "admin" }] };
    wire::ask(port, root).await.expect("the first user can be created from this machine");
    let stands = async |lacks: &str| {
        let by_root = Place::on(&format!("mongodb://root:pw@127.0.0.1:{port}/?authSource=admin")).await;
        let privileges = |lacks: Option<&str>| -> Vec<Document> {
            let all =
                ["find", "insert", "update", "remove", "createCollection", "createIndex", "listIndexes"];
            let collections = ["sessions", "locks", "waiters", "fences", "runs", ""];
            let privilege = |name: &str| {
                let lacks = lacks.filter(|_| name == "waiters");
                let actions: Vec<_> = match name {
                    "" => vec!["listCollections"],
                    _ => all.into_iter().filter(|action| Some(*action) != lacks).collect(),
                };
                doc! { "resource": { "db": &by_root.name, "collection": name }, "actions": actions }
            };
            collections.into_iter().map(privilege).collect()
        };
        let run = async |command: Document| {
            by_root.database.run_command(command).await.unwrap();
        };
        run(doc! { "createRole": "app", "privileges": privileges(None), "roles": [] }).await;
        run(doc! { "createUser": "app", "pwd": "pw", "roles": ["app"] }).await;
        let uri = format!("mongodb://app:pw@127.0.0.1:{port}/?authSource={}", by_root.name);
        let place = Place { uri, ..by_root.clone() };
        let pair = pair(&place).await;
        run(doc! { "updateRole": "app", "privileges": privileges(Some(lacks)) }).await;
        the_second_leads_and_leads_again(lacks, pair, ready(())).await;
    };
    join_all(["insert", "update", "remove", "find"].map(stands)).await;
}
