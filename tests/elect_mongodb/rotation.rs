//! A password that is changed while an instance runs: the store connects anew with what the program's source
//! answers, and the instance goes on.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use futures::{StreamExt, TryStreamExt};
use mongodb::{
    Client,
    bson::{Document, doc},
};
use tenure::{
    Elect,
    elect::{Status, Work},
    model::{Kind, LockId, SessionId},
    store::{
        Candidate, Hint, News, Store, StoreExt, Take, Ticket, Topic,
        mongo::{MongoOptions, MongoStore},
    },
};

use crate::elect_mongodb::fleet::{LIMIT, SECOND, config, lock, steady, until, when, within};
use crate::{
    captured::Log,
    mongodb::connected,
    support::{mongod::Deployment, proxy::Proxy},
};

/// The clients that ask the source, each at its own pace: the program's, that of the work and that of the beats.
const HANDLES: usize = 3;
const FORMER: &str = "f0rmer-pw";
pub(super) const LATTER: &str = "l4tter-pw";

/// A replica set of one that asks who one is, behind a proxy, and a program's secret.
pub(super) struct Guarded {
    _server: Deployment,
    proxy: Proxy,
    port: u16,
    admin: Client,
    secret: Arc<Mutex<Secret>>,
}

struct Secret {
    password: &'static str,
    /// The server that the source names.
    port: u16,
    /// Moments at which it was asked for.
    asked: Vec<Instant>,
}

impl Guarded {
    pub(super) async fn start() -> Self {
        let server = Deployment::start_guarded().await;
        let port = server.nodes()[0].port();
        let admin = Client::with_uri_str(server.uri_as("root", "root", "admin")).await.unwrap();
        let proxy = Proxy::start(port);
        let secret = Secret { password: FORMER, port: proxy.port(), asked: Vec::new() };
        let guarded = Self { _server: server, proxy, port, admin, secret: Arc::new(Mutex::new(secret)) };
        guarded.ask(doc! { "createUser": "ada", "pwd": FORMER, "roles": ["root"] }).await;
        guarded
    }

    async fn ask(&self, command: Document) {
        self.admin.database("admin").run_command(command).await.unwrap();
    }

    /// From now on, the former password is wrong, and there are no connections from before.
    pub(super) async fn change_password(&self) {
        self.ask(doc! { "updateUser": "ada", "pwd": LATTER }).await;
        self.proxy.sever();
    }

    pub(super) fn know(&self, password: &'static str) {
        self.know_at(password, self.proxy.port());
    }

    /// The source names another server.
    fn know_at(&self, password: &'static str, port: u16) {
        let mut secret = self.secret.lock().unwrap();
        (secret.password, secret.port) = (password, port);
    }

    /// The records of sessions, as they are.
    async fn sessions(&self) -> Vec<Document> {
        let sessions = self.admin.database("app").collection::<Document>("sessions");
        sessions.find(doc! {}).await.unwrap().try_collect().await.unwrap()
    }

    fn asked(&self) -> Vec<Instant> {
        self.secret.lock().unwrap().asked.clone()
    }

    async fn store(&self) -> MongoStore {
        self.store_behind(|| {}).await
    }

    /// A store whose source does that first, and may block for it.
    #[allow(clippy::disallowed_methods, reason = "how often it is asked is what is looked at")]
    pub(super) async fn store_behind(&self, first: impl Fn() + Send + Sync + 'static) -> MongoStore {
        let secret = Arc::clone(&self.secret);
        let source = move || {
            first();
            let mut secret = secret.lock().unwrap();
            secret.asked.push(Instant::now());
            let answer = uri(secret.password, secret.port);
            async move { Ok(answer) }
        };
        connected(uri(FORMER, self.proxy.port()), MongoOptions::new().uri_from(source)).await
    }
}

fn uri(password: &str, port: u16) -> String {
    format!("mongodb://ada:{password}@127.0.0.1:{port}/app?authSource=admin&directConnection=true")
}

/// Waits until it is told.
async fn logged(log: &Log, parts: &[&str]) {
    until("it is told", async || when(!log.with(parts).is_empty(), log.lines())).await;
}

#[tokio::test]
async fn an_instance_goes_on_with_a_new_password_and_loses_nothing() {
    let guarded = Guarded::start().await;
    let (log, _here) = Log::start();
    let store = guarded.store().await;
    // With a keeper's connection of its own, which is made anew as well.
    let elect = Elect::start(store.clone(), config("pod-1")).await.unwrap();
    let held = elect.acquire("orders").await.unwrap();
    let spread = Topic::Spread(lock("others").namespace, "import".parse().unwrap());
    let mut hints = store.hints(tokio::sync::watch::channel([spread].into()).1);
    assert_eq!(within("it listens", hints.next()).await, Some(Hint::Resync));

    guarded.know(LATTER);
    guarded.change_password().await;
    until("both have asked", async || when(guarded.asked().len() >= 2, guarded.asked())).await;
    until("it is well again", async || {
        let health = elect.health();
        let is_well = matches!(health.status, Status::Healthy) && health.troubles.is_empty();
        when(is_well && store.locks(vec![lock("orders")], SECOND).await.is_ok(), health)
    })
    .await;
    assert!(held.is_valid(), "its lease goes on: {:#?}", log.lines());
    logged(&log, &["INFO", "reconnected the store"]).await;

    // What another one does is heard of.
    let port = guarded.port;
    let root = format!("mongodb://root:root@127.0.0.1:{port}/app?authSource=admin&directConnection=true");
    let other = connected(root, MongoOptions::new()).await;
    let task = LockId { kind: Kind::Task("import".parse().unwrap()), ..lock("others") };
    let by = Candidate::new(SessionId::from_u128(7), Ticket::new(1), SECOND, "pod-2".parse().unwrap());
    other.take(vec![Take { lock: task.clone(), by }], Vec::new(), LIMIT).await.unwrap();
    within("hints come again", async {
        while let Some(hint) = hints.next().await {
            if hint == Hint::News(News::Lock(task.clone())) {
                break;
            }
        }
    })
    .await;
    held.release().await.unwrap();

    let lines = log.lines();
    for line in &lines {
        println!("{line}");
        assert!(!line.contains("lost"), "{line}");
        assert!(![FORMER, LATTER].iter().any(|secret| line.contains(secret)), "{line}");
    }
    within("it closes", elect.close()).await;
    within("the other one closes", other.close()).await;
}

#[tokio::test]
async fn a_source_that_does_not_know_the_new_password_yet_is_asked_again_and_not_too_often() {
    let guarded = Guarded::start().await;
    let (log, _here) = Log::start();
    let store = guarded.store().await;
    let elect = Elect::builder(store, config("pod-1")).start().await.unwrap();
    guarded.change_password().await;
    logged(&log, &["WARN", "sending heartbeats is failing", "AuthenticationFailed"]).await;
    until("it was asked again", async || when(guarded.asked().len() > HANDLES, guarded.asked())).await;
    let says = "could not reconnect the store: AuthenticationFailed";
    until("it says what is in the way", async || {
        let health = elect.health();
        let beats = health.troubles.iter().find(|trouble| trouble.work == Work::Beats);
        let is_said = beats.is_some_and(|trouble| trouble.lasting && trouble.error.contains(says));
        when(is_said, health)
    })
    .await;
    let asked = guarded.asked();
    for asked in asked.windows(HANDLES + 1) {
        let rested = asked[HANDLES] - asked[0];
        assert!(rested >= 2 * SECOND, "it was asked again after {rested:?}");
    }

    guarded.know(LATTER);
    logged(&log, &["INFO", "sending heartbeats works again"]).await;
    until("its beats are no trouble", async || {
        let health = elect.health();
        when(health.troubles.iter().all(|trouble| trouble.work != Work::Beats), health)
    })
    .await;
    let held = within("it is free", elect.acquire("orders")).await.unwrap();
    assert!(held.is_valid());
    let lines = log.lines();
    for line in &lines {
        println!("{line}");
        assert!(![FORMER, LATTER].iter().any(|secret| line.contains(secret)), "{line}");
    }
    held.release().await.unwrap();
    within("it closes", elect.close()).await;
}

#[tokio::test]
async fn a_deployment_that_lacks_the_beats_of_the_session_is_refused_until_the_source_names_the_right_one() {
    let (guarded, other) = (Guarded::start().await, Guarded::start().await);
    other.ask(doc! { "updateUser": "ada", "pwd": LATTER }).await;
    let (log, _here) = Log::start();
    let long = steady("pod-1").with_refresh_duration(120 * SECOND);
    let elect = Elect::start(guarded.store().await, long).await.unwrap();
    let held = elect.acquire("orders").await.unwrap();
    // The other one has a copy of the database, that is some beats old.
    let copied = guarded.sessions().await;
    let into = other.admin.database("app").collection::<Document>("sessions");
    into.insert_many(&copied).await.unwrap();
    let nonce = copied[0].get_i64("nonce").unwrap();
    until("there is another beat", async || {
        let now = guarded.sessions().await;
        when(now[0].get_i64("nonce").unwrap() != nonce, now)
    })
    .await;

    guarded.know_at(LATTER, other.port);
    guarded.change_password().await;
    let session = copied[0].get_str("_id").unwrap();
    let says = format!(
        "uri_from names another deployment, in which session {session} is unknown: this instance stays where it is"
    );
    until("it says what is in the way", async || {
        let health = elect.health();
        let beats = health.troubles.iter().find(|trouble| trouble.work == Work::Beats);
        when(beats.is_some_and(|trouble| trouble.lasting && trouble.error.contains(&says)), health)
    })
    .await;
    logged(&log, &["WARN", "sending heartbeats is failing", &says]).await;
    guarded.know(LATTER);
    logged(&log, &["INFO", "sending heartbeats works again"]).await;
    assert!(held.is_valid(), "its lease goes on");
    held.release().await.unwrap();
    assert_eq!(other.sessions().await, copied, "nothing was written there");
    within("it closes", elect.close()).await;
}
