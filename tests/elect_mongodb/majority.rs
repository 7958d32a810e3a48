//! A primary without a majority takes writes for a while; they count for nothing.

use std::time::Duration;

use mongodb::bson::Document;

use crate::elect_mongodb::{
    fleet::{Place, by_session, holds, quick, until, validity, when, within},
    polls::{Polls, Told, now},
};
use crate::support::{
    mongod::{Deployment, Node, Options, Shape, Timing},
    wait::LIMIT,
};

const PACE: Duration = Duration::from_millis(5);

/// The number of the beat on this very node, whatever others know of it.
async fn beat_on(node: &str, place: &Place, session: &Document) -> i64 {
    let client = mongodb::Client::with_uri_str(node).await.unwrap();
    let sessions = client.database(&place.name).collection::<Document>("sessions");
    let find = sessions.find_one(session.clone()).read_concern(mongodb::options::ReadConcern::local());
    find.await.unwrap().unwrap().get_i64("beat").unwrap()
}

#[tokio::test]
async fn a_beat_that_no_majority_keeps_moves_no_end() {
    // No elections: the primary believes in itself all the time.
    let never = u32::try_from(LIMIT.as_millis() * 2).unwrap();
    let timing = Timing::Millis { election_timeout: never, heartbeat: 2000 };
    let deployment = Deployment::start(Shape::ReplicaSet, Options { timing, ..Options::default() }).await;
    let place = Place::on(deployment.uri()).await;
    let elect = place.instance(quick("pod")).await;
    let polls = Polls::default();
    let campaign = {
        let polls = polls.clone();
        elect.campaign("key").run(move |lease| polls.job(lease, PACE, Told::GoesOn)).unwrap()
    };
    let lease = within("a free key is led", campaign.led()).await.unwrap();
    let session = by_session(elect.health().session.unwrap());

    let primary = deployment.wait_for_primary(None).await;
    let others: Vec<_> = deployment.nodes().iter().filter(|node| node.port() != primary.port()).collect();
    deployment.kill(others[0]).await;
    deployment.kill(others[1]).await;
    let alone = now();
    let beat = beat_on(&primary.uri(), &place, &session).await;
    let latest = alone + validity(elect.config());
    within("its token fires", lease.cancelled()).await;
    let end = now() + lease.remaining();
    assert!(!lease.is_valid() || end <= latest, "its end is {:?} too late", end.since(latest));
    until("it is dropped", async || when(!lease.is_valid(), &lease)).await;
    // It was the primary all the time, and took beats.
    assert_eq!(deployment.primary().await.map(Node::port), Some(primary.port()));
    let beats = beat_on(&primary.uri(), &place, &session).await - beat;
    assert!(beats >= 1, "no beat was written without a majority");
    let last = polls.last_allowed("key", lease.term()).expect("it was polled");
    assert!(last <= latest, "polled {:?} after the end", last.since(latest));
    println!(
        "alone, the primary took {beats} beats; the last poll was {:.1?} after it was alone",
        last.since(alone)
    );

    for node in others {
        deployment.restart(node).await;
    }
    let again = until("it leads again", async || {
        let lease = campaign.lease().filter(|again| again.term() != lease.term());
        lease.ok_or_else(|| elect.health())
    })
    .await;
    assert!(again.term() > lease.term());
    until("it leads for good", async || match campaign.lease() {
        Some(lease) => when(holds(&lease).await, Some(lease)),
        None => Err(None),
    })
    .await;
}
