//! Connections that an instance takes.

use futures::{StreamExt, future::join_all};
use mongodb::{
    Client,
    bson::{Document, doc},
    options::ClientOptions,
};
use tenure::{
    Elect,
    store::mongo::{MongoOptions, MongoStore},
};

use crate::fleet::{Place, bounded, quick, replica_set, session, until};

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

#[tokio::test]
async fn an_instance_at_rest_takes_as_many_connections_as_the_documents_say() {
    let uri = replica_set().await.uri();
    let place = Place::on(uri).await;
    // A name by which its connections are told from those of other tests.
    let program = format!("{}-pod", place.name);
    let store =
        MongoStore::connect(format!("{uri}&appName={program}"), MongoOptions::new().database(&place.name));
    let elect = Elect::start(store.await.unwrap(), quick("pod-1")).await.unwrap();
    let spread = elect.spread("topics").tasks((0..100).map(|task| format!("topic-{task}"))).run(
        async |_, lease: tenure::Lease| {
            lease.cancelled().await;
            Ok::<_, String>(())
        },
    );
    let spread = spread.unwrap();
    let schedule = elect.schedule("pulse", "* * * * * *").run(async |_, _| Ok::<_, String>(())).unwrap();
    bounded("all are held", spread.until(|status| status.held() == 100)).await;
    let (store, own) = (place.store().await, elect.health().session.unwrap());
    let beats = session(&store, own).await.unwrap().beat.get();
    until("it rests", || async { (session(&store, own).await?.beat.get() >= beats + 10).then_some(()) })
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
    println!("connections (whether of the primary, how many): {counts:?}");
    for (is_primary, count) in counts {
        // About 9 on the primary, 4 on each other.
        let (least, most) = if is_primary { (5, 14) } else { (1, 5) };
        assert!((least..=most).contains(&count), "{count} connections, primary: {is_primary}");
    }
    drop((spread, schedule));
    elect.close().await;
}
