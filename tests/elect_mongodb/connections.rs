//! Connections that an instance takes.

use futures::{StreamExt, future::join_all};
use mongodb::{
    Client,
    bson::{Document, doc},
    options::ClientOptions,
};
use tenure::{Elect, store::mongo::MongoOptions};

use crate::elect_mongodb::fleet::{Place, replica_set, session, steady, until, when, within};
use crate::mongodb::connected;

/// Number of connections of that program to a server, busy and idle ones.
async fn connections(server: &Client, program: &str) -> usize {
    let all = vec![
        doc! { "$currentOp": { "allUsers": true, "idleConnections": true } },
        doc! { "$match": { "appName": program, "connectionId": { "$exists": true } } },
        doc! { "$group": { "_id": "$connectionId" } },
    ];
    let found = server.database("admin").aggregate(all).await.unwrap();
    let found: Vec<Document> = found.map(Result::unwrap).collect().await;
    found.len()
}

/// Number of connections of an instance at rest to each server, and whether that is the primary.
async fn at_rest(uri: &str) -> Vec<(bool, usize)> {
    let place = Place::on(uri).await;
    // A name by which its connections are told from those of other tests.
    let program = format!("{}-pod", place.name);
    let store =
        connected(format!("{uri}&appName={program}"), MongoOptions::new().database(&place.name)).await;
    let elect = Elect::start(store, steady("pod-1")).await.unwrap();
    let spread = elect.spread("topics").tasks((0..100).map(|task| format!("topic-{task}"))).run(
        async |_, lease: tenure::Lease| {
            lease.cancelled().await;
            Ok::<_, String>(())
        },
    );
    let spread = spread.unwrap();
    let schedule = elect.schedule("pulse", "* * * * * *").run(async |_, _| Ok::<_, String>(())).unwrap();
    within("all are held", spread.until(|status| status.held() == 100)).await;
    let (store, own) = (place.store().await, elect.health().session.unwrap());
    let beats = session(&store, own).await.unwrap().beat.get();
    until("it rests", async || {
        let beat = session(&store, own).await.unwrap().beat.get();
        when(beat >= beats + 5, beat)
    })
    .await;

    let servers = ClientOptions::parse(uri).await.unwrap().hosts;
    let counts = join_all(servers.into_iter().map(async |server| {
        let mut options = ClientOptions::default();
        (options.hosts, options.direct_connection) = (vec![server], Some(true));
        let server = Client::with_options(options).unwrap();
        let hello = server.database("admin").run_command(doc! { "hello": 1 }).await.unwrap();
        (hello.get_bool("isWritablePrimary").unwrap(), connections(&server, &program).await)
    }))
    .await;
    drop((spread, schedule));
    elect.close().await;
    counts
}

#[tokio::test]
async fn an_instance_at_rest_takes_as_many_connections_as_the_documents_say() {
    let uri = replica_set().await.uri();
    // About 12 on the primary, 6 on each other.
    let is_fine = |&(is_primary, count): &(bool, usize)| {
        let (least, most) = if is_primary { (8, 17) } else { (4, 7) };
        (least..=most).contains(&count)
    };
    // A server that stands still at the start may be given some more, which are kept.
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|counts: &Vec<_>| counts.iter().all(is_fine)) {
        assert!(seen.len() < 5, "time after time (whether of the primary, how many): {seen:?}");
        seen.push(at_rest(uri).await);
    }
    println!("connections (whether of the primary, how many): {seen:?}");
}
