//! A primary without a majority takes writes for a while; they count for nothing.

use std::time::Duration;

use mongodb::bson::Document;

use crate::{
    fleet::{MS, PREEMPTED, Place, bounded, by_session, calm, quick, until, validity, within},
    polls::{Polls, Told, now},
    support::mongod::{Deployment, Node, Shape},
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
    // Elections after ten seconds: until then the primary believes in itself.
    let deployment = Deployment::start(Shape::ReplicaSet, calm()).await;
    let place = Place::on(deployment.uri()).await;
    let elect = place.instance(quick("pod")).await;
    let polls = Polls::default();
    let campaign = {
        let polls = polls.clone();
        elect.campaign("key").run(move |lease| polls.job(lease, PACE, Told::GoesOn)).unwrap()
    };
    let lease = bounded("a free key is led", campaign.led()).await.unwrap();
    let session = by_session(elect.health().session.unwrap());

    let primary = deployment.wait_for_primary(None).await;
    let others: Vec<_> = deployment.nodes().iter().filter(|node| node.port() != primary.port()).collect();
    deployment.kill(others[0]).await;
    deployment.kill(others[1]).await;
    let alone = now();
    let beat = beat_on(&primary.uri(), &place, &session).await;
    let end = alone + validity(elect.config());
    within(validity(elect.config()), "its token fires", lease.cancelled()).await;
    until("it is dropped", || async { (!lease.is_valid()).then_some(()) }).await;
    let over = now();
    // It was the primary all the time, and took beats.
    assert_eq!(deployment.primary().await.map(Node::port), Some(primary.port()));
    let beats = beat_on(&primary.uri(), &place, &session).await - beat;
    assert!(beats >= 1, "no beat was written without a majority");
    let last = polls.under("key", lease.term()).last().unwrap().at;
    assert!(last <= end + PREEMPTED, "polled {:?} after the end", last.since(end));
    assert!(over <= end + 250 * MS);
    println!(
        "alone, the primary took {beats} beats; the last poll was {:.1?} after it was alone",
        last.since(alone)
    );

    for node in others {
        deployment.restart(node).await;
    }
    let again =
        until("it leads again", || async { campaign.lease().filter(|again| again.term() != lease.term()) })
            .await;
    assert!(again.term() > lease.term());
    until("it leads for good", || async { campaign.lease()?.check().await.ok().filter(|held| *held) }).await;
}
