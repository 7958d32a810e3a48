//! first try
use crate::{
    fleet::{Fleet, Plan, Way, now},
    support::mongod::{Deployment, Options, Shape},
};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first() {
    let deployment = Deployment::start(Shape::ReplicaSet, Options::default()).await;
    let plan = Plan { seed: 1, members: 3, keys: 4, database: "real".into() };
    let ways = vec![Way { uri: deployment.uri().to_owned(), namespace: None }; 3];
    let mut fleet = Fleet::start(plan, deployment.client().await, ways).await;
    println!("{:?}", fleet.converges(now(), Duration::from_secs(30)).await);
    println!("{:?}", fleet.judge().await.map(|v| v.to_string()));
    for _ in 0..3 {
        let before = deployment.kill_primary().await;
        let t = now();
        let after = deployment.wait_for_primary(Some(before.port())).await;
        println!("{} -> {} in {:?}", before.port(), after.port(), now().since(t));
        deployment.restart(before).await;
        println!("{:?}", fleet.converges(now(), Duration::from_secs(30)).await);
        println!(
            "{:?} {} kept {}",
            fleet.judge().await.map(|v| v.to_string()),
            fleet.court.entries(),
            fleet.court.kept
        );
    }
    println!(
        "{:?} {} kept {}",
        fleet.end().await.map(|v| v.to_string()),
        fleet.court.entries(),
        fleet.court.kept
    );
}
