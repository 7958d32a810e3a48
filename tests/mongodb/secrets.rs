//! A password in a connection string is never shown: not by an error and not by what is under it,
//! not by `Debug`, and not by anything that is logged, down to the driver's own traces.

use std::{error::Error, fmt::Write as _, sync::Arc};

use futures::{StreamExt, future::join_all};
use mongodb::bson::doc;
use tenure::{
    Applied, StoreError,
    store::{
        Hint, Store, StoreExt, Take, TakeAnswer,
        mongo::{ConnectError, MongoOptions, MongoStore},
    },
};
use tenure_conformance::{Fixture, LIMIT};
use tracing::level_filters::LevelFilter;

use crate::mongodb::connected;
use crate::{
    captured::Log,
    support::{
        mongod::{Deployment, Options, Shape, shared_single},
        proxy::{Mode, Proxy},
        wait::{until, within},
        wire,
    },
};

/// No password holds a part that may stand in a message by chance, and every one is made of these.
const PARTS: [&str; 4] = ["Hg7xyw", "kTqv8j", "9Qzvvm", "Wp3bbk"];
/// With everything in it that must be escaped, and how it is written in a connection string.
const PASSWORD: &str = "Hg7xyw@kTqv8j:/?#[]9Qzvvm%41 &=+Wp3bbk";
const ESCAPED: &str = "Hg7xyw%40kTqv8j%3A%2F%3F%23%5B%5D9Qzvvm%2541%20%26%3D%2BWp3bbk";
const PLAIN: &str = "Hg7xywkTqv8j";

/// The part of the password that is shown, with what stands around it.
fn leak(shown: &str) -> Option<String> {
    // Some things are logged in lower case.
    let lower = shown.to_lowercase();
    let at = PARTS.iter().find_map(|part| lower.find(&part.to_lowercase()))?;
    let start = lower.char_indices().map(|(at, _)| at).rfind(|start| *start + 200 < at).unwrap_or(0);
    Some(lower[start..].chars().take(400).collect())
}

#[track_caller]
fn check(what: &str, shown: &str) {
    if let Some(leak) = leak(shown) {
        panic!("{what} shows a part of the password: ...{leak}...");
    }
}

/// An error and everything under it, in every form.
fn forms(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let _ = write!(text, "{error}\n{error:#}\n{error:?}\n{error:#?}\n");
        next = error.source();
    }
    text
}

/// The log shows no secret; and shows what is expected, else that would prove nothing.
#[track_caller]
fn check_log(log: &Log, expected: &[&str]) {
    let text = log.text();
    for part in expected {
        assert!(text.contains(part), "nothing of {part} in {} bytes of log", text.len());
    }
    check("the log", &text);
}

async fn connect(uri: &str) -> Result<MongoStore, ConnectError> {
    within("an attempt", MongoStore::connect(uri, MongoOptions::new())).await
}

async fn failed(uri: &str) -> ConnectError {
    match connect(uri).await {
        Err(error) => error,
        Ok(store) => panic!("{uri} was taken: {store:?}"),
    }
}

/// A connection that must fail, and whose error must show nothing.
async fn refused(uri: &str) -> ConnectError {
    let error = failed(uri).await;
    check("the error", &forms(&error));
    error
}

/// The same of one that whoever tries again does not change. One that may pass says nothing of that.
async fn refused_for_good(uri: &str) -> ConnectError {
    until("it is refused for good", async || {
        let error = refused(uri).await;
        if error.is_retryable() { Err(error) } else { Ok(error) }
    })
    .await
}

#[tokio::test]
async fn a_string_that_cannot_be_read_is_not_repeated() {
    let (log, _guard) = Log::at(LevelFilter::TRACE);
    let mut leaks = Vec::new();
    for uri in [
        // What should have been escaped was not.
        "mongodb://ada:Hg7xyw@kTqv8j@host:27017/",
        "mongodb://ada:Hg7xyw/kTqv8j@host:27017/",
        "mongodb://ada:Hg7xyw:kTqv8j@host:27017/",
        "mongodb://ada:Hg7xyw?kTqv8j@host:27017/",
        "mongodb://ada:Hg7xyw?kTqv8j=9Qzvvm@host:27017/",
        "mongodb://ada:12?Hg7xyw=kTqv8j@host:27017/",
        "mongodb://ada:Hg7xyw#kTqv8j[]@host:27017/",
        "mongodb://ada:Hg7xyw%kTqv8j@host:27017/",
        "mongodb://ada:Hg7xyw%zz@host/",
        "mongodb://ada:Hg7xyw%ff%fe@host/",
        "mongodb://ada:Hg7xyw%@host/",
        "mongodb+srv://ada:Hg7xyw/kTqv8j@host/",
        // What should not have been escaped was; or something is missing.
        "mongodb://ada:Hg7xyw%40host:27017/",
        "mongodb://ada%3AHg7xyw%40host/%zz?w=-1",
        "mongodb://ada:Hg7xyw",
        "mongodb://ada:Hg7xyw/host",
        "mongodb:/ada:Hg7xyw@host/",
        "ada:Hg7xyw@host/?next=http://kTqv8j",
        "Hg7xyw://ada:kTqv8j@host/",
        "Hg7xyw",
        // The password is right, and something else is wrong.
        "mongodb://ada:Hg7xyw@host:notaport/",
        "mongodb://ada:Hg7xyw@host:99999/",
        "mongodb://ada:Hg7xyw@/",
        "mongodb://ada:Hg7xyw@host/a$b",
        "mongodb://ada:Hg7xyw@host/?w=-1",
        "mongodb://ada:Hg7xyw@host/?wtimeoutMS=soon",
        "mongodb://ada:Hg7xyw@host/?readPreference=nearby",
        "mongodb://ada:Hg7xyw@host/?maxStalenessSeconds=5&readPreference=secondary",
        "mongodb://ada:Hg7xyw@host/?tls=perhaps",
        "mongodb://ada:Hg7xyw@host/?retryWrites",
        "mongodb://ada:Hg7xyw@host/?noSuchOption=1",
        "mongodb://ada:Hg7xyw@host/?authMechanism=NONE",
        "mongodb://ada:Hg7xyw@host/?authSource=",
        "mongodb://ada:Hg7xyw@host/?tls=true&ssl=false",
        "mongodb://ada:Hg7xyw@host/?appName=a&appName=b",
        "mongodb+srv://ada:Hg7xyw@a:1/",
        "mongodb+srv://ada:Hg7xyw@a,b/",
        "mongodb+srv://ada:Hg7xyw@localhost/?directConnection=true",
        // Options that are secrets, or have got one by mistake.
        "mongodb://host/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:a%2CHg7xyw",
        "mongodb://host/?authMechanism=MONGODB-AWS&authMechanismProperties=Hg7xyw%40kTqv8j",
        "mongodb://host/?authMechanismProperties=AWS_SESSION_TOKEN:ab,Hg7xyw",
        "mongodb://host/?authMechanismProperties=AWS_SESSION_TOKEN:ab&Hg7xyw",
        "mongodb://host/?authMechanismProperties=AWS_SESSION_TOKEN:ab&Hg7xyw=kTqv8j",
        "mongodb://ada@host/?authMechanism=GSSAPI&authMechanismProperties=CANONICALIZE_HOST_NAME:Hg7xyw",
        "mongodb://ada@host/?authMechanism=Hg7xyw",
        "mongodb://host/?tls=true&tlsCertificateKeyFilePassword=Hg7xyw&tls=false",
        "mongodb://host/?tls=false&tlsCertificateKeyFilePassword=Hg7xyw",
        "mongodb://host/?proxyPassword=Hg7xyw&proxyUsername=kTqv8j",
        "mongodb://host/?readPreference=Hg7xyw",
        "mongodb://host/?Hg7xyw",
        "mongodb://host/?password=Hg7xyw",
        "mongodb://host/?Hg7xyw=1",
        "mongodb://host/?uuidRepresentation=Hg7%78yw",
        "mongodb://host/Hg7xyw$/?w=-1",
    ] {
        let error = failed(uri).await;
        assert!(matches!(error, ConnectError::Uri(_)), "{uri}: {error:?}");
        assert!(!error.is_retryable(), "{uri}");
        leaks.extend(leak(&forms(&error)).map(|shown| (uri, shown)));
    }
    assert!(leaks.is_empty(), "{} leaks: {leaks:#?}", leaks.len());
    check("the log", &log.text());
}

#[tokio::test]
async fn a_connection_that_fails_shows_no_password() {
    let (log, _guard) = Log::at(LevelFilter::TRACE);
    let server = shared_single().await.nodes()[0].port();
    let proxy = Proxy::start(server);
    proxy.set_mode(Mode::Refuse).await;
    for password in [PLAIN, ESCAPED] {
        let uri = format!("mongodb://ada:{password}@127.0.0.1:{}/app?directConnection=true", proxy.port());
        let error = refused(&uri).await;
        assert!(matches!(error, ConnectError::Store(_)) && error.is_retryable(), "{error:?}");
    }
    // A file that is not there, and mechanisms that this build does not have.
    let uris = [
        "tls=true&tlsCertificateKeyFile=/nowhere&tlsCertificateKeyFilePassword=Hg7xyw",
        "authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:Hg7xyw",
        "authMechanism=GSSAPI&authSource=$external&authMechanismProperties=SERVICE_NAME:Hg7xyw",
        "authMechanism=PLAIN&authSource=$external",
        "authMechanism=MONGODB-X509&authSource=$external",
    ]
    .into_iter()
    .flat_map(|options| [format!("ada:{ESCAPED}@"), "ada@".to_owned()].map(|user| (user, options)))
    .map(|(user, options)| {
        format!("mongodb://{user}127.0.0.1:{}/?directConnection=true&{options}", proxy.port())
    })
    .collect::<Vec<_>>();
    join_all(uris.iter().map(|uri| refused(uri))).await;
    check_log(&log, &["mongodb::server_selection", "mongodb::topology"]);
}

/// A user of the server's `admin` database.
async fn create_user(port: u16, name: &str, password: &str, role: &str) {
    let user = doc! { "createUser": name, "pwd": password, "roles": [{ "role": role, "db": "admin" }] };
    wire::ask(port, user).await.expect("the first user can be created from this machine");
}

fn uri_of(user: &str, password: &str, port: u16) -> String {
    format!("mongodb://{user}:{password}@127.0.0.1:{port}/app?authSource=admin")
}

#[tokio::test]
async fn a_wrong_password_and_a_right_one_are_shown_to_nobody() {
    let options = Options { args: vec!["--auth".into()], ..Options::default() };
    let deployment = Deployment::start(Shape::Standalone, options).await;
    let port = deployment.nodes()[0].port();
    create_user(port, "ada", PASSWORD, "root").await;
    let (log, _guard) = Log::at(LevelFilter::TRACE);

    for wrong in [PLAIN, "Wp3bbk%40Wp3bbk", "Hg7xyw%2540kTqv8j"] {
        let error = refused_for_good(&uri_of("ada", wrong, port)).await;
        let ConnectError::Store(error) = &error else { panic!("{error:?}") };
        assert_eq!(error.applied(), Applied::No);
    }
    refused_for_good(&uri_of("nobody", ESCAPED, port)).await;

    let (events, _handled) = tokio::sync::mpsc::channel(1000);
    let options = MongoOptions::new().command_events(events.into());
    check("the options", &format!("{options:?} {options:#?}"));
    let store = connected(&uri_of("ada", ESCAPED, port), options).await;
    check("the store", &format!("{store:?} {store:#?}"));
    let dedicated = until("a dedicated store", async || store.dedicated().await).await;
    let dedicated = dedicated.expect("the client is the store's own");
    check("the dedicated store", &format!("{dedicated:?} {dedicated:#?}"));

    let fixture = Fixture::new(Arc::new(store.clone()));
    let session = fixture.opened().await.id;
    let lock = fixture.lock("key");
    let held = fixture.held(&lock, session, 1).await;
    fixture.send(&fixture.beat(session, 1)).await;
    let mut hints = store.hints(fixture.topics("import"));
    assert_eq!(hints.next().await, Some(Hint::Resync));
    let take = || Take { lock: lock.clone(), by: fixture.candidate(fixture.session(), 1) };
    let answer = store.take(vec![take()], Vec::new(), LIMIT).await.unwrap();
    check("an answer", &format!("{answer:?}"));
    assert_eq!(answer, [TakeAnswer::Held(held)]);

    // One that may look and not touch.
    let client = mongodb::Client::with_uri_str(uri_of("ada", ESCAPED, port)).await.unwrap();
    let reader = doc! { "createUser": "eve", "pwd": PASSWORD, "roles": ["readAnyDatabase"] };
    client.database("admin").run_command(reader).await.unwrap();
    refused_for_good(&uri_of("eve", ESCAPED, port)).await;

    // One whose server is gone.
    deployment.kill(&deployment.nodes()[0]).await;
    fails(&store, take()).await;
    let error = within("an attempt", store.dedicated()).await.expect_err("nobody is there");
    assert!(error.is_retryable(), "{error:?}");
    check("the error", &forms(&error));
    drop((hints, dedicated, store, fixture));

    check_log(
        &log,
        &[
            "mongodb::command",
            "mongodb::connection",
            "mongodb::server_selection",
            "mongodb::topology",
            "findAndModify",
            "the server is not a member of a replica set",
        ],
    );
}

async fn fails(store: &MongoStore, take: Take) -> StoreError {
    let error = store.take(vec![take], Vec::new(), LIMIT).await.expect_err("it cannot be done");
    check("the error", &forms(&error));
    check("the store", &format!("{store:?}"));
    error
}
