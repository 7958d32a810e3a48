//! The change stream, where there are no bells: what it tells, and that it comes back by itself.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use mongodb::bson::{Document, doc};
use tenure::{
    model::{LockId, RunId, RunNow, ScheduleId, StoreTime, Term, Why},
    store::{Claim, Hint, Instruction, News, Store, mongo::MongoOptions},
    testing::conformance::LIMIT,
};

use crate::mongodb::{Place, connected};
use crate::support::{
    mongod::{Deployment, Options, Shape, shared_single},
    wait::{until, within},
};

/// The next hint that `wanted` makes something of.
async fn next<T>(
    hints: &mut BoxStream<'static, Hint>,
    what: &str,
    mut wanted: impl FnMut(Hint) -> Option<T>,
) -> T {
    within(what, async {
        loop {
            let hint = hints.next().await.expect("hints come for as long as somebody listens");
            if let Some(found) = wanted(hint) {
                return found;
            }
        }
    })
    .await
}

/// Hints of a stream that is open on the server: the first [`Hint::Resync`] comes at once, the
/// second with the stream.
async fn listening(place: &Place) -> BoxStream<'static, Hint> {
    let mut hints = place.store.hints(place.fixture().topics("import"));
    for _ in 0..2 {
        next(&mut hints, "a stream opens", |hint| (hint == Hint::Resync).then_some(())).await;
    }
    hints
}

async fn hears_of(hints: &mut BoxStream<'static, Hint>, wanted: &LockId) {
    next(hints, "a change of the lock is told", |hint| match hint {
        Hint::News(News::Lock(lock)) if lock == *wanted => Some(()),
        _ => None,
    })
    .await;
}

/// A place whose client has a name of its own, so that a fail point meets nobody else.
async fn named(deployment: &Deployment, name: &str) -> Place {
    let options = MongoOptions::new().hint_wait(Duration::from_millis(500));
    Place::by_stream(&format!("{}&appName={name}", deployment.uri()), options).await
}

/// Also what only makes a list shorter is told; what only raises the mark is not.
#[tokio::test]
async fn a_schedule_is_told_of_but_not_its_mark_nor_its_runs() {
    let place = Place::by_stream(shared_single().await.uri(), MongoOptions::new()).await;
    let fixture = place.fixture();
    let [schedule, last] = ["nightly", "last"].map(|name| fixture.schedule(name));
    let mut hints = listening(&place).await;
    let say = async |of: &ScheduleId, instruction| {
        place.store.instruct(of.clone(), instruction, LIMIT).await.unwrap();
    };
    let at = StoreTime::from_millis(5);
    let order = RunNow { at, by: "admin".parse().unwrap(), why: Why::new("now").unwrap() };
    say(&schedule, Instruction::Run(order)).await;
    say(&schedule, Instruction::Ran { at }).await;
    let claim = Claim {
        run: RunId::tick(schedule.clone(), at),
        session: fixture.session(),
        holder: "pod".parse().unwrap(),
        term: Term::new(1),
        attempt: 1,
        instead_of: None,
        skipped: None,
    };
    place.store.claim(claim, LIMIT).await.unwrap();
    let mut marks = 0;
    while marks == 0 {
        let page = place.store.purge_runs(schedule.clone(), Duration::ZERO, 0, LIMIT).await.unwrap();
        marks += page.page.items.len();
    }
    say(&last, Instruction::Resume).await;
    let mut told = Vec::new();
    while told.last() != Some(&last) {
        let schedule = next(&mut hints, "a hint comes", |hint| match hint {
            Hint::News(News::Schedule(schedule)) => Some(schedule),
            _ => None,
        });
        told.push(schedule.await);
    }
    assert_eq!(told, [schedule.clone(), schedule, last]);
}

#[tokio::test]
async fn a_new_value_is_no_hint() {
    let place = Place::by_stream(shared_single().await.uri(), MongoOptions::new()).await;
    let fixture = place.fixture();
    let (lock, other) = (fixture.lock("report"), fixture.lock("other"));
    let record = fixture.held(&lock, fixture.session(), 1).await;
    let mut hints = listening(&place).await;
    let value = tenure::model::Value::new(b"progress").unwrap();
    fixture.set(&lock, record.holding.unwrap().by.session, record.term, Some(value)).await;
    fixture.held(&other, fixture.session(), 1).await;
    let first = next(&mut hints, "a hint comes", |hint| match hint {
        Hint::News(News::Lock(lock)) => Some(lock),
        _ => None,
    });
    assert_eq!(first.await, other);
}

#[tokio::test]
async fn the_stream_is_opened_again_after_whatever_ends_it() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let place = named(&deployment, "reopened").await;
    let fixture = place.fixture();
    let mut hints = listening(&place).await;
    let node = &deployment.nodes()[0];
    let app = |mut data: Document| {
        data.insert("appName", "reopened");
        data
    };
    for (number, failure) in [
        doc! { "errorCode": 286 },
        doc! { "errorCode": 280 },
        doc! { "errorCode": 50811 },
        doc! { "errorCode": 43 },
        doc! { "closeConnection": true },
    ]
    .into_iter()
    .enumerate()
    {
        // Both what the driver does by itself and its second attempt fail.
        node.fail_command(&["getMore", "aggregate"], 3, app(failure)).await;
        next(&mut hints, "the stream is opened again", |hint| (hint == Hint::Resync).then_some(())).await;
        let lock = fixture.lock(&format!("after failure {number}"));
        fixture.held(&lock, fixture.session(), 1).await;
        hears_of(&mut hints, &lock).await;
    }
}

#[tokio::test]
async fn hints_go_on_after_a_collection_was_dropped_and_it_has_its_indexes_again() {
    let place = Place::by_stream(shared_single().await.uri(), MongoOptions::new()).await;
    let fixture = place.fixture();
    let mut hints = listening(&place).await;
    for name in ["locks", "waiters", "sessions"] {
        place.collection(name).drop().await.unwrap();
        next(&mut hints, "the stream is opened again", |hint| (hint == Hint::Resync).then_some(())).await;
        let indexes = place.collection(name).list_index_names().await.unwrap();
        assert!(indexes.len() > 1, "{name} has {indexes:?}");
        let lock = fixture.lock(&format!("after {name}"));
        fixture.held(&lock, fixture.session(), 1).await;
        hears_of(&mut hints, &lock).await;
    }
    place.database.drop().await.unwrap();
    next(&mut hints, "the stream is opened again", |hint| (hint == Hint::Resync).then_some(())).await;
    let lock = fixture.lock("after everything");
    fixture.held(&lock, fixture.session(), 1).await;
    hears_of(&mut hints, &lock).await;
}

#[tokio::test]
async fn hints_go_on_after_the_primary_stood_down() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let place = named(&deployment, "stood-down").await;
    let fixture = place.fixture();
    let mut hints = listening(&place).await;
    deployment.step_down().await;
    deployment.wait_for_primary(None).await;
    let lock = fixture.lock("report");
    until("the lock is taken", async || {
        let by = fixture.candidate(fixture.session(), 1);
        let take = tenure::store::Take { lock: lock.clone(), by };
        place.store.take(vec![take], vec![], Duration::from_secs(1)).await
    })
    .await;
    // The change is told, or that changes may have been missed.
    next(&mut hints, "the change, or a resync", |hint| match hint {
        Hint::News(News::Lock(_)) | Hint::Resync => Some(()),
        _ => None,
    })
    .await;
    let again = fixture.lock("again");
    fixture.held(&again, fixture.session(), 1).await;
    let heard = next(&mut hints, "hints go on", |hint| match hint {
        Hint::News(News::Lock(lock)) if lock == again => Some(()),
        Hint::Resync => Some(()),
        _ => None,
    });
    heard.await;
}

/// Number of streams that are open on the database of a place.
///
/// The server lists a cursor as idle or as at work, and for a moment between the two as neither: one
/// look may miss it, so this looks until it has seen whatever is there.
pub(crate) async fn streams(place: &Place) -> usize {
    const LOOKS: usize = 50;
    let admin = place.database.client().database("admin");
    let ours = doc! { "$match": {
        "cursor.originatingCommand.pipeline.0.$changeStream": { "$exists": true },
        "ns": { "$regex": format!("^{}\\.", place.database.name()) },
    } };
    let current = doc! { "$currentOp": { "idleCursors": true, "allUsers": true } };
    let mut seen = BTreeSet::new();
    for _ in 0..LOOKS {
        let listed = admin.aggregate([current.clone(), ours.clone()]).await.unwrap();
        let cursors: Vec<Document> = listed.try_collect().await.unwrap();
        seen.extend(cursors.iter().map(|op| op.get_document("cursor").unwrap().get_i64("cursorId").unwrap()));
    }
    seen.len()
}

#[tokio::test]
async fn a_handle_has_one_stream_however_many_listen_and_none_when_nobody_does() {
    let place = named(shared_single().await, "one-stream").await;
    assert_eq!(streams(&place).await, 0, "nobody listens yet");
    let listeners = [listening(&place).await, listening(&place).await];
    assert_eq!(streams(&place).await, 1);
    drop(listeners);
    until("the stream is closed", async || match streams(&place).await {
        0 => Ok(()),
        open => Err(open),
    })
    .await;
    let mut hints = listening(&place).await;
    let fixture = place.fixture();
    let lock = fixture.lock("report");
    fixture.held(&lock, fixture.session(), 1).await;
    hears_of(&mut hints, &lock).await;
}

mod by_a_stream {
    use super::*;

    async fn store() -> Arc<dyn Store> {
        static WITHOUT_BELLS: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
        let deployment = shared_single().await;
        let client = deployment.client().await;
        let database = client.database("tenure-by-a-stream");
        WITHOUT_BELLS.get_or_init(|| crate::mongodb::without_bells(&database)).await;
        let options = MongoOptions::new().database("tenure-by-a-stream");
        let store = connected(deployment.uri(), options).await;
        assert_eq!(store.capabilities().hints, Some("a change stream"));
        Arc::new(store)
    }

    tenure::conformance_tests! { hints only: store().await }
}

mod without_hints {
    use super::*;

    /// Of which nobody is told anything: there are no bells, and no change stream.
    async fn store() -> Arc<dyn Store> {
        static SHARED: tokio::sync::OnceCell<Deployment> = tokio::sync::OnceCell::const_new();
        let start = || async {
            let deployment = Deployment::start(Shape::Standalone, Options::default()).await;
            crate::mongodb::without_bells(&deployment.client().await.database("tenure-conformance")).await;
            deployment
        };
        let options = MongoOptions::new().database("tenure-conformance");
        let store = connected(SHARED.get_or_init(start).await.uri(), options).await;
        assert_eq!(store.capabilities().hints, None);
        Arc::new(store)
    }

    tenure::conformance_tests!(without hints: store().await);
}
