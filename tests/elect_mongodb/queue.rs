//! A collection in which the store may not do what it wants: the queue decides nothing.

use std::{future::ready, time::Duration};

use futures::future::join_all;
use mongodb::bson::{Document, doc};
use tenure::Elect;

use crate::elect_mongodb::fleet::{Place, calm, config, replica_set, steady, waits, within};
use crate::support::{
    mongod::{Deployment, Options, Shape},
    wire,
};
use crate::turns::{take_after_others_gave_up, take_turns};

/// Far longer than any wait that does not count on it.
const POLL: Duration = Duration::from_secs(20);

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

#[tokio::test]
async fn instances_that_take_turns_wait_for_no_poll() {
    let single = Deployment::start(Shape::Single, calm()).await;
    for uri in [single.uri(), replica_set().await.uri()] {
        for instances in [2, 3, 8] {
            let place = Place::on(uri).await;
            let config = |number| config(&format!("pod-{number}")).with_poll_interval(POLL);
            let elects = join_all((0..instances).map(|number| place.instance(config(number)))).await;
            let worst = within("all have had their turns", take_turns(&elects, 25, 1)).await;
            println!("{instances} instances: {worst:?}");
            assert!(worst.wait < POLL / 2, "{instances} instances: {worst:?}");
            if let [one, other, third] = &elects[..] {
                let given_up = take_after_others_gave_up([one, other, third], 30);
                let longest = within("keys that others gave up are taken", given_up).await;
                assert!(longest < POLL / 2, "{longest:?} after others gave up");
            }
            join_all(elects.iter().map(Elect::close)).await;
        }
    }
}

/// A holder that has released refuses nobody: also not while a majority does not know of it yet.
#[tokio::test]
async fn a_try_gets_a_key_whose_release_was_answered_before() {
    let single = Deployment::start(Shape::Single, calm()).await;
    for uri in [single.uri(), replica_set().await.uri()] {
        let place = Place::on(uri).await;
        let [first, second] = pair(&place).await;
        for round in 0..10 {
            let held = first.acquire("key").await.unwrap();
            let next = tokio::spawn({
                let second = second.clone();
                async move { second.acquire("key").await.unwrap() }
            });
            waits(&second, 1).await;
            held.release().await.unwrap();
            within("it is handed over", next).await.unwrap().release().await.unwrap();
            let tried = first.key("key").try_acquire().await.unwrap();
            let guard = tried.guard().unwrap_or_else(|| panic!("round {round}: it is refused"));
            guard.release().await.unwrap();
        }
        first.close().await;
        second.close().await;
    }
}
