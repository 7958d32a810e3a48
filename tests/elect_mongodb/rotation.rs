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

use crate::{
    captured::Log,
    fleet::{SECOND, bounded, config, lock, until},
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
        MongoStore::connect(uri(FORMER, port), MongoOptions::new().uri_from(source)).await.unwrap()
    }
}

fn uri(password: &str, port: u16) -> String {
    format!("mongodb://ada:{password}@127.0.0.1:{port}/app?authSource=admin&directConnection=true")
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
    assert_eq!(bounded("it listens", hints.next()).await, Some(Hint::Resync));

    guarded.know(LATTER);
    guarded.change_password().await;
    until("both have asked", || async { (guarded.asked().len() >= 2).then_some(()) }).await;
    until("it is well again", || async {
        let health = elect.health();
        let is_well = matches!(health.status, Status::Healthy) && health.troubles.is_empty();
        (is_well && store.locks(vec![lock("orders")], SECOND).await.is_ok()).then_some(())
    })
    .await;
    assert!(held.is_valid(), "its lease goes on");
    assert!(!log.with(&["INFO", "reconnected the store"]).is_empty(), "{:#?}", log.lines());

    // What another one does is heard of.
    let other = MongoStore::connect(
        format!("mongodb://root:root@127.0.0.1:{}/app?authSource=admin&directConnection=true", guarded.port),
        MongoOptions::new(),
    )
    .await
    .unwrap();
    let task = LockId { kind: Kind::Task("import".parse().unwrap()), ..lock("others") };
    let by = Candidate::new(SessionId::from_u128(7), Ticket::new(1), SECOND, "pod-2".parse().unwrap());
    other.take(vec![Take { lock: task.clone(), by }], Vec::new(), SECOND * 10).await.unwrap();
    bounded("hints come again", async {
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
    bounded("it closes", elect.close()).await;
    bounded("the other one closes", other.close()).await;
}

#[tokio::test]
async fn a_source_that_does_not_know_the_new_password_yet_is_asked_again_and_not_too_often() {
    let guarded = Guarded::start().await;
    let (log, _here) = Log::start();
    let store = guarded.store().await;
    let elect = Elect::builder(store, config("pod-1")).keeper_thread(false).start().await.unwrap();
    guarded.change_password().await;
    until("it is told", || async {
        let told = log.with(&["WARN", "sending heartbeats is failing", "AuthenticationFailed"]);
        (!told.is_empty()).then_some(())
    })
    .await;
    until("it was asked three times", || async { (guarded.asked().len() >= 3).then_some(()) }).await;
    let says = "could not reconnect the store: AuthenticationFailed";
    until("it says what is in the way", || async {
        let health = elect.health();
        let beats = health.troubles.iter().find(|trouble| trouble.work == Work::Beats);
        beats.is_some_and(|trouble| trouble.lasting && trouble.error.contains(says)).then_some(())
    })
    .await;
    let asked = guarded.asked();
    for (asked, rest) in asked.windows(2).zip([2, 4]) {
        let rested = asked[1] - asked[0];
        assert!(rested >= Duration::from_secs(rest), "it was asked again after {rested:?}");
    }

    guarded.know(LATTER);
    until("it works again", || async {
        let told = log.with(&["INFO", "sending heartbeats works again"]);
        let beats = elect.health().troubles.iter().any(|trouble| trouble.work == Work::Beats);
        (!told.is_empty() && !beats).then_some(())
    })
    .await;
    let held = bounded("it is free", elect.acquire("orders")).await.unwrap();
    assert!(held.is_valid());
    let lines = log.lines();
    for line in &lines {
        println!("{line}");
        assert!(![FORMER, LATTER].iter().any(|secret| line.contains(secret)), "{line}");
    }
    held.release().await.unwrap();
    bounded("it closes", elect.close()).await;
}
