//! Bells: who hears them, what it costs those whom they do not concern, and what they survive.

use std::{
    collections::BTreeSet,
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use mongodb::{
    bson::{Bson, Document, Timestamp, doc},
    event::{
        EventHandler,
        command::{CommandEvent, CommandStartedEvent},
    },
};
use tenure::{
    Applied, StoreError,
    model::{LockId, SessionId},
    store::{
        Hint, LockSeen, News, Release, ReleaseTo, Store, StoreExt, Topic,
        mongo::{MongoOptions, MongoStore, bare, index_script},
    },
};
use tenure_conformance::{Fixture, LIMIT};
use tokio::sync::{mpsc, watch};

use crate::mongodb::{Place, connected_and_logged, failover::steady, history::now, lent};
use crate::{
    captured::Log,
    support::{
        mongod::{Deployment, Options, Shape, shared_replica_set, shared_single},
        wait::{until, within},
    },
};

/// Longer than any wait takes, as long as a bell is heard.
const LONG: Duration = Duration::from_secs(600);

/// A listener, whose topics may change.
struct Ear {
    topics: watch::Sender<BTreeSet<Topic>>,
    hints: BoxStream<'static, Hint>,
}

impl Ear {
    fn new(store: &MongoStore, topics: impl IntoIterator<Item = Topic>) -> Self {
        let (topics, listens) = watch::channel(topics.into_iter().collect());
        Self { topics, hints: store.hints(listens) }
    }

    /// Returns an ear whose topic is known to be open on the server.
    async fn open(store: &MongoStore, topic: &Topic) -> Self {
        let mut ear = Self::new(store, [topic.clone()]);
        ear.resync().await;
        ear.resync().await;
        ear
    }

    async fn hint(&mut self) -> Hint {
        within("a hint", self.hints.next()).await.expect("hints come for as long as somebody listens")
    }

    async fn resync(&mut self) {
        while self.hint().await != Hint::Resync {}
    }

    /// The next news, whatever else comes before.
    async fn news(&mut self) -> News {
        loop {
            if let Hint::News(news) = self.hint().await {
                return news;
            }
        }
    }

    /// Listens on until something else is so, and passes over what it hears.
    async fn listens_until<T>(&mut self, until: impl Future<Output = T>) -> T {
        let mut until = pin!(until);
        loop {
            tokio::select! {
                done = &mut until => return done,
                hint = self.hints.next() => assert!(hint.is_some(), "hints come for as long as somebody listens"),
            }
        }
    }

    /// Rings until it is heard: what is rung while nobody tails is lost.
    async fn hears_again(&mut self, from: &MongoStore, topic: &Topic) {
        static NEXT: AtomicU64 = AtomicU64::new(1000);
        let hears = async {
            let mut rung = Vec::new();
            loop {
                let news = asked(NEXT.fetch_add(1, Ordering::Relaxed).into());
                bare::ring(from, [(topic.clone(), news.clone())], None);
                rung.push(news);
                let heard = async { while !rung.contains(&self.news().await) {} };
                if tokio::time::timeout(Duration::from_millis(500), heard).await.is_ok() {
                    return;
                }
            }
        };
        within("a bell is heard again", hears).await;
    }
}

fn asked(number: u128) -> News {
    News::Asked(SessionId::from_u128(number))
}

fn ring(store: &MongoStore, topic: &Topic, number: u128) {
    bare::ring(store, [(topic.clone(), asked(number))], None);
}

/// Options for a server that soon notices that a cursor is not needed any more.
fn short() -> MongoOptions {
    MongoOptions::new().hint_wait(Duration::from_millis(500))
}

/// Two topics whose bells are in different collections, and one that shares the collection of the first.
fn three_topics(fixture: &Fixture) -> [Topic; 3] {
    let all = || (0..).map(|number| fixture.topic(&format!("spread-{number}")));
    let first = fixture.topic("first");
    let bucket = bare::bells_of(&first);
    let other = all().find(|topic| bare::bells_of(topic) != bucket).unwrap();
    let neighbour = all().find(|topic| bare::bells_of(topic) == bucket).unwrap();
    [first, other, neighbour]
}

/// The cursors that one look sees on the bells of a place. It may miss one that is between two waits.
async fn look(place: &Place) -> BTreeSet<i64> {
    let admin = place.database.client().database("admin");
    let ours = doc! { "$match": {
        "cursor.originatingCommand.find": { "$regex": "bells_" },
        "cursor.originatingCommand.$db": place.database.name(),
    } };
    let current = doc! { "$currentOp": { "idleCursors": true, "allUsers": true } };
    let listed = admin.aggregate([current, ours]).await.unwrap();
    let cursors: Vec<Document> = listed.try_collect().await.unwrap();
    cursors.iter().map(|op| op.get_document("cursor").unwrap().get_i64("cursorId").unwrap()).collect()
}

/// Number of cursors that are open on the bells of a place.
async fn tails(place: &Place) -> usize {
    const LOOKS: usize = 5;
    let mut seen = BTreeSet::new();
    for _ in 0..LOOKS {
        seen.extend(look(place).await);
    }
    seen.len()
}

pub(crate) async fn until_tails(place: &Place, number: usize) {
    until(&format!("{number} cursors"), async || {
        let seen = tails(place).await;
        if seen == number { Ok(()) } else { Err(seen) }
    })
    .await;
}

async fn connected(uri: &str, place: &Place, options: MongoOptions) -> MongoStore {
    crate::mongodb::connected(uri, options.database(place.database.name())).await
}

#[tokio::test]
async fn a_bell_reaches_its_topic_and_no_other() {
    let place = Place::on(shared_single().await.uri()).await;
    let other = connected(shared_single().await.uri(), &place, MongoOptions::new()).await;
    assert_eq!(place.store.capabilities().hints, Some("bells"));
    let topics = three_topics(&place.fixture());
    let mut ears = Vec::new();
    for topic in &topics {
        ears.push(Ear::open(&place.store, topic).await);
    }
    for (number, topic) in (0..).zip(&topics) {
        ring(&other, topic, number);
    }
    for (number, ear) in (0..).zip(&mut ears) {
        assert_eq!(ear.news().await, asked(number));
    }
    for (topic, number) in topics.iter().zip(10..) {
        ring(&other, topic, number);
    }
    for (number, ear) in (10..).zip(&mut ears) {
        assert_eq!(ear.news().await, asked(number), "nothing of the others came between");
    }
}

#[tokio::test]
async fn all_news_of_a_change_is_heard_in_its_order() {
    let place = Place::on(shared_single().await.uri()).await;
    let fixture = place.fixture();
    let topic = fixture.topic("import");
    let mut ear = Ear::open(&place.store, &topic).await;
    let all: Vec<_> =
        (0..500).map(|key| News::Lock(fixture.task("import", &format!("{key:0>200}")))).collect();
    bare::ring(&place.store, all.iter().map(|news| (topic.clone(), news.clone())), None);
    for news in &all {
        assert_eq!(ear.news().await, *news);
    }
}

#[tokio::test]
async fn a_listener_without_topics_has_no_cursor_on_the_server() {
    let place = Place::with(shared_single().await.uri(), short()).await;
    let [first, other, neighbour] = three_topics(&place.fixture());
    let mut ear = Ear::new(&place.store, []);
    assert_eq!(ear.hint().await, Hint::Resync, "it looks for itself before it listens");
    let idle = tokio::time::timeout(Duration::from_millis(300), ear.hints.next()).await;
    assert!(idle.is_err(), "{idle:?}");
    assert_eq!(tails(&place).await, 0);
    // Each topic that is added is followed by a resync, and heard from then on.
    for (number, (topic, cursors)) in (0..).zip([(&first, 1), (&other, 2), (&neighbour, 2)]) {
        ear.topics.send_modify(|topics| _ = topics.replace(topic.clone()));
        ear.resync().await;
        ring(&place.store, topic, number);
        assert_eq!(ear.news().await, asked(number));
        until_tails(&place, cursors).await;
    }
    ear.topics.send_modify(|topics| topics.retain(|topic| *topic == neighbour));
    ear.listens_until(until_tails(&place, 1)).await;
    ear.topics.send_replace(BTreeSet::new());
    ear.listens_until(until_tails(&place, 0)).await;
    ear.topics.send_replace([first.clone()].into());
    ear.resync().await;
    let mut another = Ear::open(&place.store, &first).await;
    until_tails(&place, 1).await;
    drop(ear);
    ring(&place.store, &first, 9);
    assert_eq!(another.news().await, asked(9), "somebody else listens");
    until_tails(&place, 1).await;
    drop(another);
    until_tails(&place, 0).await;
}

#[tokio::test]
async fn bells_rung_before_a_listener_came_are_not_told() {
    let place = Place::on(shared_single().await.uri()).await;
    let topic = place.fixture().topic("import");
    let mut witness = Ear::open(&place.store, &topic).await;
    ring(&place.store, &topic, 1);
    assert_eq!(witness.news().await, asked(1));
    let other = connected(shared_single().await.uri(), &place, MongoOptions::new()).await;
    let mut late = Ear::open(&other, &topic).await;
    ring(&place.store, &topic, 2);
    assert_eq!(late.news().await, asked(2));
}

#[tokio::test]
async fn a_collection_that_is_not_capped_is_told_until_it_is_dropped() {
    let place = Place::on(shared_single().await.uri()).await;
    let topic = place.fixture().topic("import");
    let name = bare::bells_of(&topic);
    let collection = place.collection(&name);
    collection.drop().await.unwrap();
    collection.insert_one(doc! { "_id": "by hand" }).await.unwrap();
    let mut ear = Ear::new(&place.store, [topic.clone()]);
    let told = loop {
        if let Hint::Failing { error, lasting } = ear.hint().await {
            break (error, lasting);
        }
    };
    assert_eq!(told, (format!("the collection {name} is not capped: drop it"), true));
    collection.drop().await.unwrap();
    let other = connected(shared_single().await.uri(), &place, MongoOptions::new()).await;
    let mut ear = Ear::open(&other, &topic).await;
    ear.hears_again(&other, &topic).await;
    assert!(is_capped(&place, &name).await);
}

async fn is_capped(place: &Place, name: &str) -> bool {
    let listed = place.database.list_collections().filter(doc! { "name": name }).await.unwrap();
    let found: Vec<_> = listed.try_collect().await.unwrap();
    found.iter().any(|found| found.options.capped == Some(true))
}

/// Neither who tails it nor who rings in it brings it back without a cap.
#[tokio::test]
async fn a_collection_that_is_dropped_is_made_anew() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let place = Place::with(&format!("{}&appName=dropped", deployment.uri()), short()).await;
    let other = connected(deployment.uri(), &place, MongoOptions::new()).await;
    let topic = place.fixture().topic("import");
    let name = bare::bells_of(&topic);
    let mut ear = Ear::open(&place.store, &topic).await;
    ring(&other, &topic, 1);
    assert_eq!(ear.news().await, asked(1));
    for round in 0..3 {
        place.collection(&name).drop().await.unwrap();
        // Either of them may be the first.
        if round > 0 {
            ear.resync().await;
        }
        ear.hears_again(&other, &topic).await;
        assert!(is_capped(&place, &name).await);
    }
    // As long as the server has not dropped all of it, it refuses to create anything.
    let pending = doc! { "errorCode": 215, "appName": "dropped" };
    deployment.nodes()[0].fail_command(&["create"], 1, pending).await;
    place.database.drop().await.unwrap();
    ear.hears_again(&other, &topic).await;
    assert!(is_capped(&place, &name).await);
    let indexes = place.collection("locks").list_index_names().await.unwrap();
    assert!(indexes.len() > 1, "what went with it is there again: {indexes:?}");
}

#[tokio::test]
async fn the_tail_is_opened_again_after_whatever_ends_it() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let place = Place::with(&format!("{}&appName=tails", deployment.uri()), short()).await;
    let topic = place.fixture().topic("import");
    let mut ear = Ear::open(&place.store, &topic).await;
    for (number, mut failure) in (0..).zip([
        doc! { "errorCode": 43 },
        doc! { "errorCode": 136 },
        doc! { "errorCode": 175 },
        doc! { "errorCode": 237 },
        doc! { "errorCode": 10107 },
        doc! { "closeConnection": true },
    ]) {
        failure.insert("appName", "tails");
        deployment.nodes()[0].fail_command(&["getMore"], 1, failure).await;
        let mut failed = false;
        loop {
            match ear.hint().await {
                Hint::Failing { .. } => failed = true,
                Hint::Resync => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(failed, "the failure is told, too");
        ring(&place.store, &topic, number);
        assert_eq!(ear.news().await, asked(number));
    }
}

/// The wait is so long that only the news of another primary can end it.
#[tokio::test]
async fn bells_are_heard_on_the_next_primary() {
    let deployment = Deployment::start(Shape::ReplicaSet, Options::default()).await;
    let place = Place::with(deployment.uri(), MongoOptions::new().hint_wait(LONG)).await;
    let topic = place.fixture().topic("import");
    let mut ear = Ear::open(&place.store, &topic).await;
    for _ in 0..2 {
        let former = deployment.step_down().await.port();
        deployment.wait_for_primary(Some(former)).await;
        ear.resync().await;
        ear.hears_again(&place.store, &topic).await;
    }
    let killed = deployment.kill_primary().await;
    deployment.wait_for_primary(Some(killed.port())).await;
    ear.resync().await;
    ear.hears_again(&place.store, &topic).await;
}

/// A client that was lent tells nobody of another primary: its tail hears of bells when the former one has them, too.
#[tokio::test]
async fn a_tail_of_a_client_that_was_lent_hears_on_after_its_primary_stood_down() {
    let deployment = Deployment::start(Shape::ReplicaSet, steady()).await;
    let place = Place::with(deployment.uri(), short()).await;
    let options = short().database(place.database.name());
    let client = deployment.client().await;
    let lent = lent(&client, options).await;
    let topic = place.fixture().topic("import");
    let mut ear = Ear::open(&lent, &topic).await;
    ear.hears_again(&place.store, &topic).await;
    let former = deployment.step_down().await.port();
    deployment.wait_for_primary(Some(former)).await;
    ear.hears_again(&place.store, &topic).await;
}

#[tokio::test]
async fn bells_need_no_replica_set() {
    let deployment = Deployment::start(Shape::Standalone, Options::default()).await;
    let database = deployment.client().await.database("bells");
    let options = MongoOptions::new().database(database.name());
    let (store, log) = connected_and_logged(deployment.uri(), options).await;
    let place = Place { store, database };
    assert_eq!(log.with(&["WARN"]).len(), 1, "its disk: {}", log.text());
    let topic = place.fixture().topic("import");
    let mut ear = Ear::open(&place.store, &topic).await;
    ring(&place.store, &topic, 1);
    assert_eq!(ear.news().await, asked(1));
    let lock = place.fixture().lock("report");
    assert_eq!(place.store.locks(vec![lock], LIMIT).await.unwrap(), [LockSeen::Absent]);
}

/// A store that has no connections for as many tails follows the topics in some of the collections.
#[tokio::test]
async fn with_few_connections_a_topic_that_cannot_be_heard_of_is_followed_by_a_resync_all_the_same() {
    let uri = format!("{}&maxPoolSize=4", shared_single().await.uri());
    let place = Place::with(&uri, short()).await;
    let [first, other, _] = three_topics(&place.fixture());
    let mut ear = Ear::open(&place.store, &first).await;
    ear.topics.send_modify(|topics| _ = topics.insert(other.clone()));
    ear.resync().await;
    ear.listens_until(until_tails(&place, 1)).await;
    ear.topics.send_replace([other.clone()].into());
    ear.hears_again(&place.store, &other).await;
}

/// Errors that the server gives once, while it is busy with something else, or stands down.
#[tokio::test]
async fn an_error_that_passes_while_a_store_is_connected_makes_it_neither_deaf_nor_mute() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let node = &deployment.nodes()[0];
    let topic = Topic::Session(SessionId::from_u128(7));
    for (number, code) in [189, 11602, 50, 365].into_iter().enumerate() {
        let app = format!("passing{number}");
        let options = short().database(&app);
        node.fail_command(&["insert"], 1, doc! { "errorCode": code, "appName": &app }).await;
        let uri = format!("{}&appName={app}", deployment.uri());
        let (store, log) = connected_and_logged(&uri, options).await;
        let mut ear = Ear::open(&store, &topic).await;
        ear.hears_again(&store, &topic).await;
        assert!(!log.text().contains("WARN"), "{}", log.text());
    }
}

#[tokio::test]
async fn a_collection_that_cannot_be_seeded_does_not_count_as_dropped() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let place = Place::with(&format!("{}&appName=unseeded", deployment.uri()), short()).await;
    let [_, other, _] = three_topics(&place.fixture());
    let (log, _here) = Log::start();
    let unseeded = doc! { "errorCode": 189, "appName": "unseeded" };
    deployment.nodes()[0].fail_command(&["insert"], 3, unseeded).await;
    let mut ear = Ear::open(&place.store, &other).await;
    ear.hears_again(&place.store, &other).await;
    assert!(!log.text().contains("dropped"), "{}", log.text());
}

#[tokio::test]
async fn a_store_that_creates_nothing_uses_the_bells_that_are_there() {
    let deployment = shared_single().await;
    let database = format!("test-{}-bells-by-hand", std::process::id());
    let options = || MongoOptions::new().create(false).database(&database);
    let store = crate::mongodb::connected(deployment.uri(), options()).await;
    let client = deployment.client().await;
    let names = client.database(&database).list_collection_names().await.unwrap();
    assert_eq!(names, Vec::<String>::new());

    let script = index_script(&database, &options());
    for bucket in ["bells_00", "bells_31", "bells_63"] {
        let create = format!("tenure.createCollection({bucket:?}, {{ capped: true, size: 262144 }});");
        let seed = format!("tenure.getCollection({bucket:?}).insertOne({{ seed: true }});");
        assert!(script.contains(&create) && script.contains(&seed), "{script}");
    }
    assert_eq!(script.matches("createCollection(\"bells_").count(), 64);
    let fixture = Fixture::new(Arc::new(store.clone()) as Arc<dyn Store>);
    let first = fixture.topic("first");
    let is_there = bare::bells_of(&first);
    let mut others = (0..).map(|number| fixture.topic(&format!("spread-{number}")));
    let other = others.find(|topic| bare::bells_of(topic) != is_there).unwrap();
    // As the script does; those of the other topic are forgotten.
    let create = doc! { "create": &is_there, "capped": true, "size": 262_144 };
    client.database(&database).run_command(create).await.unwrap();
    let bells = client.database(&database).collection::<Document>(&is_there);
    bells.insert_one(doc! { "seed": true }).await.unwrap();
    let mut ear = Ear::open(&store, &first).await;
    ring(&store, &first, 1);
    assert_eq!(ear.news().await, asked(1));
    ear.topics.send_modify(|topics| _ = topics.insert(other.clone()));
    let Hint::Failing { error, lasting } = ear.hint().await else { panic!("it cannot be opened") };
    let bucket = bare::bells_of(&other);
    assert!(lasting && error.contains(&format!("the collection {bucket} does not exist: apply")), "{error}");
    ring(&store, &other, 2);
    ring(&store, &first, 3);
    while ear.news().await != asked(3) {}
    let names = client.database(&database).list_collection_names().await.unwrap();
    assert!(!names.contains(&bucket), "nothing was created: {names:?}");
}

// ----- ringing

/// A store that has begun to ring has rung when it is closed.
#[tokio::test]
async fn closing_waits_for_bells() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let node = &deployment.nodes()[0];
    until("a store is closed before it gives up", async || {
        let place = Place::with(&format!("{}&appName=closed", deployment.uri()), MongoOptions::new()).await;
        let topic = place.fixture().topic("import");
        let other = connected(deployment.uri(), &place, MongoOptions::new()).await;
        let mut ear = Ear::open(&other, &topic).await;
        let slow = doc! { "blockConnection": true, "blockTimeMS": 500, "appName": "closed" };
        let met = node.fail_command(&["insert"], 2, slow).await;
        ring(&place.store, &topic, 1);
        node.until_fail_point("failCommand", met + 1).await;
        // Comes while the first one is under way, and after it.
        ring(&place.store, &topic, 2);
        let begun = now();
        place.store.close().await;
        let took = begun.elapsed();
        if took >= Duration::from_secs(3) {
            return Err(took);
        }
        let bells = place.collection(&bare::bells_of(&topic));
        let rung = bells.count_documents(doc! { "news": { "$exists": true } }).await.unwrap();
        assert_eq!(rung, 2);
        assert_eq!([ear.news().await, ear.news().await], [asked(1), asked(2)]);
        let mut closed = Ear::new(&place.store, [topic]);
        while closed.hints.next().await.is_some() {}
        Ok(())
    })
    .await;
}

/// News that comes while a bell is under way is in the next one, all together.
#[tokio::test]
async fn bells_that_come_together_leave_together() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let place = Place::with(&format!("{}&appName=together", deployment.uri()), MongoOptions::new()).await;
    let [first, _, neighbour] = three_topics(&place.fixture());
    let mut ear = Ear::open(&place.store, &first).await;
    let slow = doc! { "blockConnection": true, "blockTimeMS": 500, "appName": "together" };
    let node = &deployment.nodes()[0];
    let met = node.fail_command(&["insert"], 1, slow).await;
    ring(&place.store, &first, 0);
    node.until_fail_point("failCommand", met + 1).await;
    for number in 1..=100 {
        ring(&place.store, if number % 2 == 0 { &first } else { &neighbour }, number);
        ring(&place.store, &first, 2);
    }
    for number in (0..=100).filter(|number| number % 2 == 0) {
        assert_eq!(ear.news().await, asked(number));
    }
    let bells = place.collection(&bare::bells_of(&first));
    let rung = bells.count_documents(doc! { "news": { "$exists": true } }).await.unwrap();
    assert_eq!(rung, 3, "the first one, and one for each topic");
}

#[tokio::test]
async fn a_bell_is_rung_again_unless_it_is_refused() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let place = Place::with(&format!("{}&appName=lost", deployment.uri()), MongoOptions::new()).await;
    let topic = place.fixture().topic("import");
    let mut ear = Ear::open(&place.store, &topic).await;
    let node = &deployment.nodes()[0];
    let fail = async |times, number, failure| {
        let mut failure: Document = failure;
        failure.insert("appName", "lost");
        let met = node.fail_command(&["insert"], times, failure).await;
        ring(&place.store, &topic, number);
        node.until_fail_point("failCommand", met + i64::from(times)).await;
    };
    fail(2, 1, doc! { "closeConnection": true }).await;
    assert_eq!(ear.news().await, asked(1));
    fail(2, 2, doc! { "errorCode": 11601 }).await;
    assert_eq!(ear.news().await, asked(2));
    fail(1, 3, doc! { "errorCode": 13 }).await;
    // Until it is seen that bells can be written, none waits.
    loop {
        match ear.hint().await {
            Hint::SentAgain => break,
            Hint::News(news) => panic!("{news:?} was refused, and is told of"),
            _ => {}
        }
    }
    ring(&place.store, &topic, 4);
    assert_eq!(ear.news().await, asked(4), "the refused one is lost");
}

/// A release by a store whose next update meets this failure, and who hears of it.
async fn failed_release(
    deployment: &Deployment,
    failure: Document,
    limit: Duration,
) -> (Result<(), StoreError>, [MongoStore; 2], Topic, Ear) {
    let place = Place::on(&format!("{}&appName=release", deployment.uri())).await;
    let other = connected(deployment.uri(), &place, MongoOptions::new()).await;
    let fixture = place.fixture();
    let topic = fixture.topic("import");
    let mut ear = Ear::open(&other, &topic).await;
    let lock = fixture.task("import", "orders");
    let record = fixture.held(&lock, fixture.session(), 1).await;
    assert_eq!(ear.news().await, News::Lock(lock.clone()));
    let session = record.holding.unwrap().by.session;
    let release = Release { lock, session, term: record.term, note: None, then: ReleaseTo::Free };
    let mut data = failure;
    data.insert("appName", "release");
    deployment.nodes()[0].fail_command(&["update"], 1, data).await;
    let released = place.store.release(vec![release], limit).await.map(drop);
    (released, [place.store, other], topic, ear)
}

#[tokio::test]
async fn a_write_of_which_nobody_knows_what_became_is_told_of() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    for failure in [doc! { "closeConnection": true }, doc! { "errorCode": 11601 }] {
        let (released, _stores, _, mut ear) = failed_release(&deployment, failure, LIMIT).await;
        assert_eq!(released.unwrap_err().applied(), Applied::Unknown);
        let news = ear.news().await;
        assert!(matches!(news, News::Lock(_)), "{news:?}");
    }
    // The write is carried out, and told of, also when its caller has given up.
    until("the caller gives up", async || {
        let slow = doc! { "blockConnection": true, "blockTimeMS": 150 };
        let limit = Duration::from_millis(100);
        let (released, _stores, _, mut ear) = Box::pin(failed_release(&deployment, slow, limit)).await;
        let news = ear.news().await;
        assert!(matches!(news, News::Lock(_)), "{news:?}");
        let Err(error) = released else { return Err("the answer came first") };
        assert_eq!(error.applied(), Applied::Unknown);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_write_that_was_refused_is_not_told_of() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let refused = doc! { "errorCode": 10107 };
    let (released, [store, _other], topic, mut ear) = failed_release(&deployment, refused, LIMIT).await;
    assert_eq!(released.unwrap_err().applied(), Applied::No);
    // A bell is rung before its write is answered, and what is rung later comes later.
    ring(&store, &topic, 1);
    assert_eq!(ear.news().await, asked(1));
}

/// A change that concerns one user of a key rings nothing.
#[tokio::test]
async fn a_sole_holder_writes_no_bell() {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&log);
    let note = move |event| {
        if let CommandEvent::Started(event) = event {
            seen.lock().unwrap().push(event.command_name);
        }
    };
    let options = MongoOptions::new().command_events(EventHandler::callback(note));
    let place = Place::with(shared_single().await.uri(), options).await;
    let fixture = place.fixture();
    log.lock().unwrap().clear();
    let session = fixture.opened().await.id;
    let record = fixture.held(&fixture.lock("report"), session, 1).await;
    fixture.send(&fixture.beat(session, 1)).await;
    fixture.freed(&record).await;
    place.store.close().await;
    let sent = log.lock().unwrap().clone();
    assert!(sent.contains(&"update".to_owned()), "it was released: {sent:?}");
    let of_bells = ["insert", "listCollections", "create"];
    assert!(!sent.iter().any(|name| of_bells.contains(&name.as_str())), "{sent:?}");
}

// ----- reading after a bell

/// The finds that a store sends: each with its read concern.
fn finds() -> (MongoOptions, mpsc::Receiver<CommandEvent>) {
    let (events, sent) = mpsc::channel(1000);
    (MongoOptions::new().command_events(events.into()), sent)
}

fn since(event: &CommandStartedEvent) -> Option<Timestamp> {
    event.command.get_document("readConcern").ok()?.get_timestamp("afterClusterTime").ok()
}

/// For each majority read of locks that was sent so far: the time it has seen, if it asks for one.
fn reads(sent: &mut mpsc::Receiver<CommandEvent>) -> Vec<Option<Timestamp>> {
    let mut reads = Vec::new();
    while let Ok(event) = sent.try_recv() {
        match event {
            CommandEvent::Started(event)
                if event.command_name == "find"
                    && event.command.get_str("find").is_ok_and(|on| on == "locks") =>
            {
                reads.push(since(&event));
            }
            _ => {}
        }
    }
    reads
}

/// Writes to a lock as somebody else. Answers with the time of the write.
async fn freed_by_hand(place: &Place, lock: &LockId, concern: Document) -> Timestamp {
    let id = doc! { "ns": lock.namespace.as_str(), "kind": "lock", "key": lock.key.as_str() };
    let update = doc! {
        "update": "locks",
        "updates": [{ "q": { "_id": id }, "u": { "$set": { "session": Bson::Null, "ended": "released" } } }],
        "writeConcern": concern,
    };
    let reply = place.database.run_command(update).await.unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    reply.get_timestamp("operationTime").unwrap()
}

async fn is_free(store: &MongoStore, lock: &LockId) -> bool {
    is_free_within(store, lock, LIMIT).await.unwrap()
}

async fn is_free_within(store: &MongoStore, lock: &LockId, limit: Duration) -> Result<bool, StoreError> {
    let seen = store.locks(vec![lock.clone()], limit).await?.remove(0);
    let LockSeen::Found(record) = seen else { panic!("{seen:?}") };
    Ok(record.holding.is_none())
}

/// The bell is there before a majority has what it tells of: whoever reads then waits for it, or it would go on as if
/// nothing had happened.
#[tokio::test]
async fn a_read_after_a_bell_sees_the_change_it_tells_of() {
    let deployment = shared_replica_set().await;
    let (options, mut sent) = finds();
    let place = Place::with(deployment.uri(), options).await;
    let fixture = place.fixture();
    let topic = fixture.topic("import");
    let mut ear = Ear::open(&place.store, &topic).await;
    for round in 0..20 {
        let lock = fixture.lock(&format!("report-{round}"));
        fixture.held(&lock, fixture.session(), 1).await;
        reads(&mut sent);
        let at = freed_by_hand(&place, &lock, doc! { "w": 1 }).await;
        bare::ring(&place.store, [(topic.clone(), News::Lock(lock.clone()))], Some(at));
        assert_eq!(ear.news().await, News::Lock(lock.clone()));
        assert!(is_free(&place.store, &lock).await, "round {round}");
        assert_eq!(reads(&mut sent), [Some(at)]);
        assert!(is_free(&place.store, &lock).await);
        assert_eq!(reads(&mut sent), [None], "one is enough");
    }
}

/// No member but the primary has what is written as long as this goes on.
async fn set_replication(deployment: &Deployment, works: bool) {
    const STOP: &str = "rsSyncApplyStop";
    let primary = deployment.wait_for_primary(None).await;
    if !works {
        // One that still stands there from the last time does not count as met.
        let all = doc! { "w": 3, "wtimeout": 120_000 };
        primary.ask(doc! { "appendOplogNote": 1, "data": { "all": "follow" }, "writeConcern": all }).await;
    }
    for node in deployment.nodes().iter().filter(|node| node.port() != primary.port()) {
        let met = node.fail_point(STOP, if works { "off" } else { "alwaysOn" }, doc! {}).await;
        if !works {
            // Until then it may still apply what comes.
            node.until_fail_point(STOP, met + 1).await;
        }
    }
}

/// Frees a lock, of which a bell tells while no majority has it. Answers with the time of the write.
async fn freed_early(
    deployment: &Deployment,
    place: &Place,
    lock: &LockId,
    topic: &Topic,
    ear: &mut Ear,
) -> Timestamp {
    let fixture = place.fixture();
    fixture.held(lock, fixture.session(), 1).await;
    set_replication(deployment, false).await;
    let at = freed_by_hand(place, lock, doc! { "w": 1 }).await;
    bare::ring(&place.store, [(topic.clone(), News::Lock(lock.clone()))], Some(at));
    assert_eq!(ear.news().await, News::Lock(lock.clone()));
    at
}

#[tokio::test]
async fn a_read_waits_for_the_majority_as_long_as_it_may() {
    let deployment = Deployment::start(Shape::ReplicaSet, steady()).await;
    let (options, mut sent) = finds();
    let place = Place::with(deployment.uri(), options).await;
    let fixture = place.fixture();
    let topic = fixture.topic("import");
    let mut ear = Ear::open(&place.store, &topic).await;
    let lock = fixture.lock("waited for");
    let at = freed_early(&deployment, &place, &lock, &topic, &mut ear).await;
    reads(&mut sent);
    let short = Duration::from_millis(500);
    let failed = is_free_within(&place.store, &lock, short).await.unwrap_err();
    assert!(failed.is_retryable(), "{failed}");
    assert_eq!(reads(&mut sent), [Some(at)], "an answer from before is none");
    let read = tokio::spawn({
        let (store, lock) = (place.store.clone(), lock.clone());
        async move { is_free(&store, &lock).await }
    });
    let asked_again = async {
        while reads(&mut sent).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    within("it asks again", asked_again).await;
    set_replication(&deployment, true).await;
    assert!(read.await.unwrap(), "it was waited for");
}

#[tokio::test]
async fn a_time_that_the_server_refuses_is_forgotten() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    let (options, mut sent) = finds();
    let place = Place::with(&format!("{}&appName=forgotten", deployment.uri()), options).await;
    let fixture = place.fixture();
    let topic = fixture.topic("import");
    let mut ear = Ear::open(&place.store, &topic).await;
    let lock = fixture.lock("report");
    fixture.held(&lock, fixture.session(), 1).await;
    is_free(&place.store, &lock).await;
    // Far ahead: the server itself refuses that.
    let later = Timestamp { time: u32::MAX, increment: 1 };
    let mut at = freed_by_hand(&place, &lock, doc! { "w": "majority" }).await;
    for code in [Some(72), None] {
        reads(&mut sent);
        if let Some(code) = code {
            let failure = doc! { "errorCode": code, "appName": "forgotten" };
            deployment.nodes()[0].fail_command(&["find"], 1, failure).await;
        } else {
            at = later;
        }
        bare::ring(&place.store, [(topic.clone(), asked(1))], Some(at));
        ear.news().await;
        assert!(is_free(&place.store, &lock).await);
        assert!(is_free(&place.store, &lock).await);
        assert_eq!(reads(&mut sent), [Some(at), None, None], "{code:?}");
    }
}
