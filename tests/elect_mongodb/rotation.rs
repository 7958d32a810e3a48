//! A password that is changed while an instance runs: the store connects anew with what the program's source
//! answers, and the instance goes on.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::StreamExt;
use mongodb::{
    Client,
    bson::{Document, doc},
};
use tenure::{
    Elect,
    elect::{Status, Work},
    model::{Candidate, Kind, LockId, SessionId, Ticket},
    store::{
        Hint, News, Store, Take, Topic,
        mongo::{MongoOptions, MongoStore},
    },
};

use crate::elect_mongodb::fleet::{LIMIT, SECOND, config, lock, until, when, within};
use crate::{
    captured::Log,
    mongodb::connected,
    support::{mongod::Deployment, proxy::Proxy},
};

const FORMER: &str = "f0rmer-pw";
const LATTER: &str = "l4tter-pw";

/// A replica set of one that asks who one is, behind a proxy, and a program's secret.
struct Guarded {
    _server: Deployment,
    proxy: Proxy,
    port: u16,
    admin: Client,
    secret: Arc<Mutex<Secret>>,
}

struct Secret {
    password: &'static str,
    /// Moments at which it was asked for.
    asked: Vec<Instant>,
}

impl Guarded {
    async fn start() -> Self {
        let server = Deployment::start_guarded().await;
        let port = server.nodes()[0].port();
        let admin = Client::with_uri_str(server.uri_as("root", "root", "admin")).await.unwrap();
        let guarded = Self {
            _server: server,
            proxy: Proxy::start(port),
            port,
            admin,
            secret: Arc::new(Mutex::new(Secret { password: FORMER, asked: Vec::new() })),
        };
        guarded.ask(doc! { "createUser": "ada", "pwd": FORMER, "roles": ["root"] }).await;
        guarded
    }

    async fn ask(&self, command: Document) {
        self.admin.database("admin").run_command(command).await.unwrap();
    }

    /// From now on, the former password is wrong, and there are no connections from before.
    async fn change_password(&self) {
        self.ask(doc! { "updateUser": "ada", "pwd": LATTER }).await;
        self.proxy.sever();
    }

    fn know(&self, password: &'static str) {
        self.secret.lock().unwrap().password = password;
    }

    fn asked(&self) -> Vec<Instant> {
        self.secret.lock().unwrap().asked.clone()
    }

    #[allow(clippy::disallowed_methods, reason = "how often it is asked is what is looked at")]
    async fn store(&self) -> MongoStore {
        let (secret, port) = (Arc::clone(&self.secret), self.proxy.port());
        let source = move || {
            let mut secret = secret.lock().unwrap();
            secret.asked.push(Instant::now());
            let answer = uri(secret.password, port);
            async move { Ok(answer) }
        };
        connected(uri(FORMER, port), MongoOptions::new().uri_from(source)).await
    }
}

fn uri(password: &str, port: u16) -> String {
    format!("mongodb://ada:{password}@127.0.0.1:{port}/app?authSource=admin&directConnection=true")
}

/// Until it is told.
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
    assert!(held.is_valid(), "its lease goes on");
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
    until("it was asked three times", async || when(guarded.asked().len() >= 3, guarded.asked())).await;
    let says = "could not reconnect the store: AuthenticationFailed";
    until("it says what is in the way", async || {
        let health = elect.health();
        let beats = health.troubles.iter().find(|trouble| trouble.work == Work::Beats);
        let is_said = beats.is_some_and(|trouble| trouble.lasting && trouble.error.contains(says));
        when(is_said, health)
    })
    .await;
    let asked = guarded.asked();
    for (asked, rest) in asked.windows(2).zip([2, 4]) {
        let rested = asked[1] - asked[0];
        assert!(rested >= Duration::from_secs(rest), "it was asked again after {rested:?}");
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
