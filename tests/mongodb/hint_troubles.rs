//! Bells that cannot be heard, or not for long: the store says why no hints come.

use std::time::Duration;

use futures::StreamExt;
use mongodb::bson::doc;
use tenure::store::{Hint, Store, mongo::MongoOptions};
use tokio::sync::watch;

use crate::mongodb::{Place, history::now};
use crate::support::{
    mongod::{Deployment, Options, Shape},
    wait::within,
};

/// A server of our own: its fail points meet nobody else.
async fn place() -> (Deployment, Place) {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let options = MongoOptions::new().hint_wait(Duration::from_millis(500));
    let place = Place::with(&format!("{}&appName=hints", deployment.uri()), options).await;
    (deployment, place)
}

#[tokio::test]
async fn failures_of_a_tail_are_each_told_until_it_can_be_opened() {
    let (deployment, place) = place().await;
    let primary = deployment.wait_for_primary(None).await;
    primary.fail_command(&["find"], 3, doc! { "errorCode": 50, "appName": "hints" }).await;
    let mut hints = place.store.hints(place.fixture().topics("import"));
    assert_eq!(hints.next().await, Some(Hint::Resync));
    let mut failed = 0;
    loop {
        match within("a hint", hints.next()).await.unwrap() {
            Hint::Failing { error, lasting } => {
                assert!(!lasting, "it passes: {error}");
                failed += 1;
            }
            Hint::Resync => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(failed, 3, "each failure is told");
}

#[tokio::test]
async fn a_tail_that_may_not_be_opened_is_told_after_each_resync_and_when_more_is_listened_to() {
    let (deployment, place) = place().await;
    let primary = deployment.wait_for_primary(None).await;
    primary.fail_command(&["find"], 1000, doc! { "errorCode": 13, "appName": "hints" }).await;
    let fixture = place.fixture();
    let (topics, listens) = watch::channel([fixture.topic("import")].into());
    let mut hints = place.store.hints(listens);
    let mut fails = async || loop {
        match within("a hint", hints.next()).await.unwrap() {
            Hint::Failing { error, lasting } => {
                assert!(lasting && error.contains("may not find on"), "{error}");
                return;
            }
            hint => assert_eq!(hint, Hint::Resync),
        }
    };
    fails().await;
    // It is not tried again for a minute, unless somebody needs it.
    topics.send_modify(|topics| {
        topics.extend((0..100).map(|number| fixture.topic(&format!("spread-{number}"))));
    });
    fails().await;
    let mut later = place.store.hints(fixture.topics("import"));
    assert_eq!(later.next().await, Some(Hint::Resync));
    let Some(Hint::Failing { .. }) = later.next().await else { panic!("it is told at once what fails") };
}

#[tokio::test]
async fn a_tail_that_opens_and_fails_at_once_is_opened_ever_more_seldom() {
    let (deployment, place) = place().await;
    let primary = deployment.wait_for_primary(None).await;
    primary.fail_command(&["getMore"], 1000, doc! { "errorCode": 50, "appName": "hints" }).await;
    let mut hints = place.store.hints(place.fixture().topics("import"));
    let begun = now();
    // The first Resync is the listener's, the others come with six openings, which have five pauses between them.
    for _ in 0..7 {
        within("it is opened again", async { while hints.next().await.unwrap() != Hint::Resync {} }).await;
    }
    // They double from a tenth of a second.
    assert!(begun.elapsed() >= Duration::from_millis(3100), "six times after {:?}", begun.elapsed());
}
