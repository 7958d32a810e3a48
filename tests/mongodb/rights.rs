//! Rights that tenure asks for at its start: those of the role that `docs/operations.md` shows, each of which it
//! names where it is lacking.

use std::{collections::BTreeSet, sync::Arc};

use futures::{StreamExt, stream, stream::BoxStream};
use mongodb::{
    Client,
    bson::{Bson, Document, doc, serialize_to_bson},
};
use tenure::{
    Applied,
    model::SessionId,
    store::{
        Hint, LockSeen, News, SessionSeen, Store, StoreExt, Take, Topic, Wait,
        mongo::{ConnectError, MongoOptions, MongoStore, bare},
    },
};
use tenure_conformance::{Fixture, LIMIT};
use tokio::sync::{OnceCell, watch};

use crate::mongodb::{Place, connected, connected_and_logged, refused_for_good};
use crate::support::{
    mongod::{Deployment, shared_single},
    wait::within,
};

const PAGE: &str = include_str!("../../docs/operations.md");
const COLLECTIONS: [&str; 5] = ["sessions", "locks", "waiters", "fences", "runs"];

/// A replica set of one that asks who one is. Its first user may do everything.
async fn guarded() -> &'static Deployment {
    static GUARDED: OnceCell<Deployment> = OnceCell::const_new();
    GUARDED.get_or_init(Deployment::start_guarded).await
}

/// The database of a test, with whoever may do everything in it.
struct Guarded {
    server: &'static Deployment,
    name: String,
    admin: Client,
}

impl Guarded {
    async fn new(name: &str) -> Self {
        let server = guarded().await;
        let name = format!("test-{}-{name}", std::process::id());
        let admin = Client::with_uri_str(server.uri_as("root", "root", "admin")).await.unwrap();
        Self { server, name, admin }
    }

    /// A user with these privileges alone, and how it connects.
    async fn user(&self, user: &str, privileges: Vec<Document>) -> String {
        let database = self.admin.database(&self.name);
        let role = doc! { "createRole": user, "privileges": privileges, "roles": [] };
        database.run_command(role).await.unwrap();
        self.user_in(user, doc! { "role": user, "db": &self.name }).await
    }

    async fn user_in(&self, user: &str, role: Document) -> String {
        let create = doc! { "createUser": user, "pwd": "secret", "roles": [role] };
        self.admin.database(&self.name).run_command(create).await.unwrap();
        self.server.uri_as(user, "secret", &self.name)
    }

    async fn connect(&self, uri: &str, options: MongoOptions) -> MongoStore {
        connected(uri, options.database(&self.name)).await
    }

    async fn lacking(&self, uri: &str, options: MongoOptions) -> String {
        let error = refused_for_good(uri, options.database(&self.name)).await;
        assert!(matches!(error, ConnectError::Rights { .. }), "{error}");
        error.to_string()
    }

    async fn is_empty(&self) {
        for name in COLLECTIONS {
            let collection = self.admin.database(&self.name).collection::<Document>(name);
            let found = collection.count_documents(doc! {}).await.unwrap();
            assert_eq!(found, 0, "what was asked left something behind in {name}");
        }
    }
}

/// The part of the page that has the role of who only looks.
fn of_readers() -> &'static str {
    PAGE.split_once("### Who only looks").expect("the page has such a part").1
}

/// The privileges on the page, in another database.
fn documented(database: &str) -> Vec<Document> {
    documented_in(PAGE, database)
}

/// The privileges of the first role on a page.
fn documented_in(page: &str, database: &str) -> Vec<Document> {
    let (_, bells) = page.split_once("grantPrivilegesToRole(").expect("the page shows what bells need");
    let actions = bells.lines().find_map(|line| line.trim().strip_prefix("\"actions\": "));
    let actions: Vec<String> = serde_json::from_str(actions.expect("these are its actions")).unwrap();
    let actions: Vec<_> = actions.iter().map(String::as_str).collect();
    role_in(page, database).into_iter().chain(of_bells(database, &actions)).collect()
}

/// Privileges on the collections of the bells.
fn of_bells(database: &str, actions: &[&str]) -> Vec<Document> {
    // No privilege is one without an action.
    let bells = (0..64).filter(|_| !actions.is_empty()).map(|number| {
        let resource = doc! { "db": database, "collection": format!("bells_{number:02}") };
        doc! { "resource": resource, "actions": actions }
    });
    bells.collect()
}

/// The privileges of the role alone.
fn role(database: &str) -> Vec<Document> {
    role_in(PAGE, database)
}

fn role_in(page: &str, database: &str) -> Vec<Document> {
    let (_, after) = page.split_once("createRole(").expect("the page shows how the role is made");
    let (role, _) = after.split_once("\n})").expect("its end stands on a line of its own");
    let mut role: serde_json::Value = serde_json::from_str(&format!("{role}}}")).expect("it is plain JSON");
    let privileges = role["privileges"].as_array_mut().unwrap();
    for privilege in &mut *privileges {
        privilege["resource"]["db"] = database.into();
    }
    let privileges = privileges.iter().map(|privilege| serialize_to_bson(privilege).unwrap());
    privileges.map(|privilege| privilege.as_document().unwrap().clone()).collect()
}

fn actions(privilege: &Document) -> Vec<String> {
    privilege.get_array("actions").unwrap().iter().map(|action| action.as_str().unwrap().to_owned()).collect()
}

/// Every way to leave out one action of one privilege: on which collection, which, and what is left.
fn with_one_less(all: &[Document]) -> Vec<(String, String, Vec<Document>)> {
    let mut less = Vec::new();
    for (at, privilege) in all.iter().enumerate() {
        for action in actions(privilege) {
            let mut left = all.to_vec();
            let others = actions(privilege).into_iter().filter(|other| *other != action).map(Bson::from);
            left[at].insert("actions", others.collect::<Vec<_>>());
            // No privilege is one without an action.
            left.retain(|privilege| !actions(privilege).is_empty());
            let on = privilege.get_document("resource").unwrap().get_str("collection").unwrap();
            less.push((on.to_owned(), action, left));
        }
    }
    less
}

#[tokio::test]
async fn the_documented_role_is_enough_on_an_empty_database() {
    let place = Guarded::new("enough").await;
    let uri = place.user("app", documented(&place.name)).await;
    let store = place.connect(&uri, MongoOptions::new()).await;
    place.is_empty().await;
    let place = Place { store, database: place.admin.database(&place.name) };
    let fixture = place.fixture();
    let lock = fixture.lock("report");
    let session = fixture.opened().await.id;
    let record = fixture.held(&lock, session, 1).await;
    fixture.freed(&record).await;
    let mut hints = place.store.hints(place.fixture().topics("import"));
    assert_eq!(hints.next().await, Some(Hint::Resync), "changes are heard");
}

#[tokio::test]
async fn rights_of_the_documented_role_are_all_needed_and_named_where_they_are_lacking() {
    let place = Guarded::new("least").await;
    let cases = with_one_less(&role(&place.name));
    let known: BTreeSet<_> = cases.iter().map(|(_, action, _)| action.as_str()).collect();
    let all = ["createIndex", "find", "insert", "listCollections", "listIndexes", "remove", "update"];
    assert!(known.iter().eq(&all), "{known:?}");
    stream::iter(cases.into_iter().enumerate())
        .for_each_concurrent(2, |(number, (on, action, privileges))| {
            let place = &place;
            async move {
                let user = format!("app{number}");
                let privileges = privileges
                    .into_iter()
                    .chain(of_bells(&place.name, &["insert", "convertToCapped"]))
                    .collect();
                let uri = place.user(&user, privileges).await;
                let told = place.lacking(&uri, MongoOptions::new()).await;
                let on = match (&*on, &*action) {
                    ("", _) => place.name.clone(),
                    (on, _) => format!("{}.{on}", place.name),
                };
                let what_to_do = if action == "createIndex" {
                    "grant that, or create the indexes by hand (index_script prints how) and connect with \
                     MongoOptions::create(false)"
                } else {
                    "grant that; docs/operations.md has the role it needs"
                };
                assert_eq!(told, format!("the user {user:?} may not {action} on {on}: {what_to_do}"));
                if action == "createIndex" {
                    place.connect(&uri, MongoOptions::new().create(false)).await;
                }
            }
        })
        .await;
    place.is_empty().await;
}

/// Reads all that is in a corner of a store: a session with a lock, for which another waits.
async fn look_at_all(store: &MongoStore, fixture: &Fixture, session: SessionId, waiter: &Wait) {
    let (namespace, schedule) = (fixture.namespace(), fixture.schedule("nightly"));
    let lock = waiter.lock.clone();
    let seen = store.observe(vec![session], LIMIT).await.unwrap();
    assert!(matches!(seen[..], [SessionSeen::Alive(_)]), "{seen:?}");
    assert_eq!(store.sessions(namespace.clone(), None, 10, LIMIT).await.unwrap().items.len(), 1);
    let seen = store.locks(vec![lock.clone()], LIMIT).await.unwrap();
    assert!(matches!(seen[..], [LockSeen::Found(_)]), "{seen:?}");
    assert_eq!(store.list_locks(namespace.clone(), None, None, 10, LIMIT).await.unwrap().items.len(), 1);
    assert_eq!(store.held_by(session, None, 10, LIMIT).await.unwrap().items.len(), 1);
    assert_eq!(store.latest_grants(vec![session], 10, LIMIT).await.unwrap().len(), 1);
    assert_eq!(store.waiters(lock.clone(), 10, LIMIT).await.unwrap().waiters.len(), 1);
    let place = (lock, waiter.by.session, waiter.by.ticket);
    assert_eq!(store.places(vec![place], LIMIT).await.unwrap(), [true]);
    assert!(store.list_schedules(namespace.clone(), None, 10, LIMIT).await.unwrap().items.is_empty());
    assert_eq!(store.schedules(vec![schedule.clone()], LIMIT).await.unwrap().len(), 1);
    assert!(store.history(schedule.clone(), None, 10, LIMIT).await.unwrap().items.is_empty());
    assert_eq!(store.last_runs(vec![schedule], 10, LIMIT).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_documented_role_of_a_reader_is_enough_to_read_all_and_writes_nothing() {
    let place = Guarded::new("looks").await;
    let options = || MongoOptions::new().read_only(true);
    let uri = place.user("looks", documented_in(of_readers(), &place.name)).await;
    let store = place.connect(&uri, options()).await;
    let there = place.admin.database(&place.name).list_collection_names().await.unwrap();
    assert_eq!(there, [""; 0], "nothing is created");

    let app = place.user("app", documented(&place.name)).await;
    let fixture = Fixture::new(Arc::new(place.connect(&app, MongoOptions::new()).await));
    let session = fixture.opened().await.id;
    let wait = Wait { lock: fixture.lock("report"), by: fixture.candidate(fixture.session(), 1) };
    fixture.held(&wait.lock, session, 1).await;
    fixture.store().wait(vec![wait.clone()], LIMIT).await.unwrap();
    fixture.settle().await;
    look_at_all(&store, &fixture, session, &wait).await;
    let reads = place.user_in("reads", doc! { "role": "read", "db": &place.name }).await;
    look_at_all(&place.connect(&reads, options()).await, &fixture, session, &wait).await;

    let by = fixture.candidate(session, 2);
    let take = Take { lock: fixture.lock("another"), by };
    let error = store.take(vec![take.clone()], Vec::new(), LIMIT).await.unwrap_err();
    assert_eq!((error.applied(), error.is_retryable()), (Applied::No, false), "{error}");
    assert!(matches!(fixture.look(&take.lock).await, LockSeen::Absent));

    let reads_only = place.connect(&app, options()).await;
    let error = reads_only.open(fixture.opening(), LIMIT).await.unwrap_err();
    assert!(error.to_string().contains("opened to read only") && !error.is_retryable(), "{error}");

    // A writer has made the bells that it hears.
    Listener::new(&app, MongoOptions::new().database(&place.name)).await.rings().await;
    assert_eq!(Listener::new(&uri, options().database(&place.name)).await.deaf().await, None);
    let uri = place.user("polls", role_in(of_readers(), &place.name)).await;
    let mut listener = Listener::new(&uri, options().database(&place.name)).await;
    let told = format!("the user \"polls\" may not find on {}: grant that", listener.place(&place.name));
    let deaf = listener.deaf().await.unwrap();
    assert!(deaf.starts_with(&told), "{deaf}");
}

#[tokio::test]
async fn rights_of_the_documented_role_of_a_reader_are_all_needed_and_named_where_they_are_lacking() {
    let place = Guarded::new("least-to-read").await;
    let cases = with_one_less(&role_in(of_readers(), &place.name));
    assert_eq!(cases.len(), 1 + 2 * COLLECTIONS.len());
    for (number, (on, action, privileges)) in cases.into_iter().enumerate() {
        let user = format!("looks{number}");
        let uri = place.user(&user, privileges).await;
        let told = place.lacking(&uri, MongoOptions::new().read_only(true)).await;
        let on = if on.is_empty() { place.name.clone() } else { format!("{}.{on}", place.name) };
        assert_eq!(
            told,
            format!(
                "the user {user:?} may not {action} on {on}: grant that; docs/operations.md has the role it needs"
            )
        );
    }
}

#[tokio::test]
async fn a_user_that_may_only_read_is_told_all_that_is_lacking_at_once() {
    let place = Guarded::new("reader").await;
    let uri = place.user_in("eve", doc! { "role": "read", "db": &place.name }).await;
    let on = COLLECTIONS.map(|name| format!("{}.{name}", place.name)).join(", ");
    let told = place.lacking(&uri, MongoOptions::new()).await;
    assert_eq!(
        told,
        format!(
            "the user \"eve\" may not insert, update, remove on {on}: grant that; docs/operations.md has the role it needs"
        )
    );
    // In another database it may not even look.
    let told = refused_for_good(&uri, MongoOptions::new().database("elsewhere")).await.to_string();
    assert!(told.starts_with(
        "the user \"eve\" may not find, insert, update, remove, listIndexes on elsewhere.sessions, "
    ));
    assert!(told.contains("; listCollections on elsewhere: "), "{told}");
    place.is_empty().await;
}

#[tokio::test]
async fn rights_count_wherever_they_come_from() {
    let place = Guarded::new("roles").await;
    let any = |actions: [&str; 7]| {
        vec![doc! { "resource": { "db": &place.name, "collection": "" }, "actions": actions.to_vec() }]
    };
    let whole = any(["find", "insert", "update", "remove", "listIndexes", "listCollections", "createIndex"]);
    let uris = [
        place.user("whole", whole).await,
        place.user_in("writer", doc! { "role": "readWrite", "db": &place.name }).await,
        place.user_in("anywhere", doc! { "role": "readWriteAnyDatabase", "db": "admin" }).await,
        place.user_in("root", doc! { "role": "root", "db": "admin" }).await,
        place.user_in("god", doc! { "role": "__system", "db": "admin" }).await,
    ];
    for uri in uris {
        place.connect(&uri, MongoOptions::new()).await;
    }
    place.is_empty().await;
}

/// A listener to one topic, and what it is told of bells before it hears of news.
struct Listener {
    store: MongoStore,
    topic: Topic,
    hints: BoxStream<'static, Hint>,
}

impl Listener {
    async fn new(uri: &str, options: MongoOptions) -> Self {
        let (store, log) = connected_and_logged(uri, options).await;
        assert!(!log.text().contains("WARN"), "bells are not tried out: {}", log.text());
        let topic = Topic::Session(SessionId::from_u128(7));
        let (_, listens) = watch::channel([topic.clone()].into());
        let hints = store.hints(listens);
        Self { store, topic, hints }
    }

    fn place(&self, database: &str) -> String {
        format!("{database}.{}", bare::bells_of(&self.topic))
    }

    fn ring(&self) {
        bare::ring(&self.store, [(self.topic.clone(), News::Asked(SessionId::from_u128(1)))], None);
    }

    /// The reason why no hints come, if it is told before they do.
    async fn deaf(&mut self) -> Option<String> {
        assert_eq!(within("a hint", self.hints.next()).await, Some(Hint::Resync));
        match within("a hint", self.hints.next()).await.unwrap() {
            Hint::Failing { error, lasting } => {
                assert!(lasting, "somebody has to grant it: {error}");
                Some(error)
            }
            hint => {
                assert_eq!(hint, Hint::Resync);
                None
            }
        }
    }

    /// The reason why none can be sent.
    async fn mute(&mut self) -> String {
        self.ring();
        match within("a hint", self.hints.next()).await.unwrap() {
            Hint::Unsent { error, lasting: true } => error,
            hint => panic!("{hint:?}"),
        }
    }

    async fn rings(&mut self) {
        assert_eq!(self.deaf().await, None);
        self.ring();
        assert!(matches!(within("a hint", self.hints.next()).await, Some(Hint::News(_))));
    }
}

#[tokio::test]
async fn the_right_that_bells_lack_is_told_with_the_user_to_those_who_listen() {
    let place = Guarded::new("bells").await;
    let options = || MongoOptions::new().database(&place.name);
    let may_not = |user: &str, lacking: &str| {
        format!("the user {user:?} may not {lacking}: grant that; docs/operations.md has the role it needs")
    };
    for (number, actions) in
        [&["find", "insert"][..], &["find", "convertToCapped"], &["find"]].into_iter().enumerate()
    {
        let user = format!("deaf{number}");
        let privileges = role(&place.name).into_iter().chain(of_bells(&place.name, actions));
        let uri = place.user(&user, privileges.collect()).await;
        let mut listener = Listener::new(&uri, options()).await;
        let told = may_not(&user, &format!("insert, convertToCapped on {}", listener.place(&place.name)));
        assert_eq!(listener.deaf().await.unwrap(), told);
        assert!(listener.mute().await.contains(&told), "the same keeps it from ringing");
    }
    let app = place.user("app", documented(&place.name)).await;
    Listener::new(&app, options()).await.rings().await;
    // Once they are there, nobody has to create them.
    let ringer = role(&place.name).into_iter().chain(of_bells(&place.name, &["find", "insert"]));
    let uri = place.user("ringer", ringer.collect()).await;
    Listener::new(&uri, options()).await.rings().await;
    let mute = role(&place.name).into_iter().chain(of_bells(&place.name, &["find", "convertToCapped"]));
    let uri = place.user("mute", mute.collect()).await;
    let mut listener = Listener::new(&uri, options()).await;
    assert_eq!(listener.deaf().await, None, "it may read");
    let told = may_not("mute", &format!("insert on {}", listener.place(&place.name)));
    assert!(listener.mute().await.contains(&told));
}

#[tokio::test]
async fn rights_are_not_probed_on_a_server_without_authentication() {
    let (events, mut sent) = tokio::sync::mpsc::channel(1000);
    let empty = format!("unasked-{}", std::process::id());
    let options = MongoOptions::new().database(&empty).create(false).command_events(events.into());
    connected(shared_single().await.uri(), options).await;
    sent.close();
    let mut names = BTreeSet::new();
    while let Some(event) = sent.recv().await {
        if let mongodb::event::command::CommandEvent::Started(command) = event {
            names.insert(command.command_name);
        }
    }
    let expected =
        ["aggregate", "connectionStatus", "find", "findAndModify", "hello", "killCursors", "listCollections"];
    let unexpected: Vec<_> = names.iter().filter(|name| !expected.contains(&name.as_str())).collect();
    assert!(unexpected.iter().all(|name| *name == "listIndexes"), "{unexpected:?}");
    assert!(names.contains("connectionStatus") && !names.contains("delete"), "{names:?}");
}
