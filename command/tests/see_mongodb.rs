//! The listings on a real MongoDB.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tenure::{
    model::Kind,
    store::{
        Share,
        mongo::{MongoOptions, MongoStore},
    },
};

use crate::{
    looking::{LIFE, LOCK, SESSION, World, and, fields, item, listing},
    support::mongod::shared_single,
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
    let note =
        "failing since 2025-11-22T04:13:33.123Z, given up 3 times by pod-1, pod-2, pod-3: no route to host";
    world.close_for(topics(), "resting", &silent, note, HOUR).await;

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
        fields(one, &and(SESSION, &and(LIFE, &[("held", "object"), ("failing", "array")])));
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
    assert_eq!(world.run(&["check"]).out, "WARNING: job has failed once: disk full\n");
    drop(guard);
    elect.close().await;
}
