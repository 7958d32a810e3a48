//! Messages where no store can be had: one sentence for each cause, with what to do, in one line.

use std::error::Error;

use mongodb::bson::doc;
use tenure::store::mongo::{ConnectError, MongoOptions, MongoStore};
use tokio::net::TcpSocket;

use crate::mongodb::connected;
use crate::support::{
    mongod::{Deployment, Options, Shape, shared_single},
    wait::{until, within},
    wire,
};

/// Message of an attempt that must fail: all there is to know, on one line, and for people.
pub(crate) async fn refused(uri: &str) -> (String, ConnectError) {
    let attempt = within("an attempt", MongoStore::connect(uri, MongoOptions::new()));
    let error = attempt.await.expect_err(uri);
    let told = error.to_string();
    assert!(error.source().is_none(), "a chain would say it twice: {told}");
    assert!(told.lines().count() == 1 && told.chars().count() < 600, "{told}");
    for (what, shown) in [("message", told.clone()), ("debug output", format!("{error:?}"))] {
        for noise in ["RawDocument", "Kind:", "labels:", "server response", "Topology", "Some("] {
            let is_of_user = noise == "Some(" && what == "debug output";
            assert!(is_of_user || !shown.contains(noise), "the {what} has {noise:?}: {shown}");
        }
    }
    (told, error)
}

/// Checks the words of the message, and whether it is worth to try again.
async fn says(uri: &str, words: &str, retryable: bool) {
    until(&format!("{uri} is told: {words}"), async || {
        let (told, error) = refused(uri).await;
        if told.contains(words) {
            assert_eq!(error.is_retryable(), retryable, "{told}");
            return Ok(());
        }
        // An attempt that ended before its time, on a machine that stood still, says so.
        assert!(error.is_retryable(), "{uri}\nsays:     {told}\nand not:  {words}");
        Err(told)
    })
    .await;
}

#[tokio::test]
async fn a_string_that_is_none_is_told_how_it_begins() {
    for uri in ["mongo://x", "", "localhost:27017", "MongoDB://x/"] {
        says(
            uri,
            "the connection string cannot be used: it must begin with mongodb:// or mongodb+srv://",
            false,
        )
        .await;
    }
}

#[tokio::test]
async fn the_name_of_a_database_is_checked_wherever_it_stands() {
    let uri = shared_single().await.uri().replacen("/?", "/te.nure?", 1);
    assert!(uri.contains("/te.nure?"), "{uri}");
    says(&uri, r#"database ("te.nure") must be 1 to 63 bytes without any of / \ . space"#, false).await;
}

#[tokio::test]
async fn a_host_that_nobody_knows_or_that_does_not_listen_is_named_with_what_to_look_at() {
    // A name that can never be one.
    let uri = "mongodb://nobody.invalid:27017/";
    says(uri, "nobody.invalid:27017: the host name cannot be resolved (DNS)", true).await;
    says("mongodb+srv://ada@nobody.invalid/", "the host name cannot be resolved (DNS)", true).await;
    // A port that is taken, and on which nothing listens.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let port = silent.local_addr().unwrap().port();
    let words = format!(
        "mongodb could not connect, nothing was changed: 127.0.0.1:{port}: connection refused: check that the server is up"
    );
    says(&format!("mongodb://127.0.0.1:{port}/"), &words, true).await;
}

#[tokio::test]
async fn a_replica_set_of_another_name_is_told_with_the_name_that_was_written() {
    let server = shared_single().await;
    let port = server.nodes()[0].port();
    let words = "none of the hosts in the connection string is a member of the replica set \"elsewhere\": set replicaSet= to the \
                 name that rs.status() shows";
    says(&format!("mongodb://127.0.0.1:{port}/?replicaSet=elsewhere"), words, false).await;
    let uri = format!("mongodb://127.0.0.1:{port}/?replicaSet=elsewhere&directConnection=true");
    let words = "none of the hosts in the connection string is a member of the replica set";
    says(&uri, words, false).await;
}

#[tokio::test]
async fn files_that_cannot_be_read_are_named() {
    let port = shared_single().await.nodes()[0].port();
    let at = |options: &str| format!("mongodb://ada:s3cret@127.0.0.1:{port}/?tls=true&{options}");
    says(&at("tlsCAFile=/nowhere/ca.pem"), "/nowhere/ca.pem", false).await;
    let words = "tlsCertificateKeyFile (/nowhere/key.pem) cannot be read";
    says(&at("tlsCertificateKeyFile=/nowhere/key.pem"), words, false).await;
    // But not where that would show the password.
    let (told, _) = refused(&at("tlsCAFile=/nowhere/s3cret.pem")).await;
    assert!(!told.contains("s3cret"), "{told}");
}

fn file(name: &str) -> String {
    format!("{}/mongodb/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[tokio::test]
async fn tls_that_one_side_has_and_an_authority_that_is_not_known_are_told_apart() {
    let plain = shared_single().await.nodes()[0].port();
    let words =
        "it does not use TLS: remove tls=true from the connection string, or enable TLS on the server";
    says(&format!("mongodb://127.0.0.1:{plain}/?tls=true"), words, true).await;

    let certificate = file("server.pem");
    let args = ["--tlsMode", "preferTLS", "--tlsCertificateKeyFile", &certificate].map(Into::into).into();
    let secure = Deployment::start(Shape::Standalone, Options { args, ..Options::default() }).await;
    let port = secure.nodes()[0].port();
    let words =
        "its certificate was issued by an unknown authority: set tlsCAFile= to the file of that authority";
    says(&format!("mongodb://127.0.0.1:{port}/?tls=true"), words, true).await;
    let known = format!("mongodb://127.0.0.1:{port}/?tls=true&tlsCAFile={}", file("ca.pem"));
    connected(&known, MongoOptions::new()).await;

    // From now on it takes no connection without TLS.
    secure.nodes()[0].ask(doc! { "setParameter": 1, "tlsMode": "requireTLS" }).await;
    let words = "it closed the connection: it may require TLS (tls=true)";
    says(&format!("mongodb://127.0.0.1:{port}/"), words, true).await;
    connected(&known, MongoOptions::new()).await;
}

#[tokio::test]
async fn a_user_that_is_wrong_or_missing_is_told_so() {
    let args = vec!["--auth".into()];
    let server = Deployment::start(Shape::Standalone, Options { args, ..Options::default() }).await;
    let port = server.nodes()[0].port();
    let user = doc! { "createUser": "ada", "pwd": "right", "roles": ["root"] };
    wire::ask(port, user).await.expect("the first user can be created from this machine");
    let at = |login: &str, more: &str| format!("mongodb://{login}127.0.0.1:{port}/shop?{more}");
    let words = "wrong user or password, or the user is not in the database that authSource= names";
    says(&at("ada:wrong@", "authSource=admin"), words, false).await;
    says(&at("eve:right@", "authSource=admin"), words, false).await;
    says(&at("ada:right@", "authSource=shop"), words, false).await;
    says(&at("", ""), "the server requires a user and a password, and the connection string has none", false)
        .await;
    connected(&at("ada:right@", "authSource=admin"), MongoOptions::new()).await;
}

/// With what is refused as by a server that does not know it.
async fn without(server: &Deployment, command: &str, skip: i32, code: i32) -> String {
    let node = &server.nodes()[0];
    until("it is refused for good", async || {
        let data = doc! { "failCommands": [command], "errorCode": code, "failInternalCommands": false };
        node.fail_point("failCommand", doc! { "skip": skip }, data).await;
        let (told, error) = refused(&node.uri()).await;
        node.clear_fail_point("failCommand").await;
        if error.is_retryable() { Err(told) } else { Ok(told) }
    })
    .await
}

#[tokio::test]
async fn a_server_that_lacks_what_tenure_rests_on_is_refused_by_what_it_lacks() {
    let server = Deployment::start(Shape::Standalone, Options::default()).await;
    for (command, skip, code, lacks) in [
        // An unrecognized stage of a pipeline.
        ("findAndModify", 0, 40_324, "updates by an aggregation pipeline"),
        ("findAndModify", 0, 9, "updates by an aggregation pipeline"),
        // An undefined variable.
        ("findAndModify", 1, 17_276, "the server's time in an update ($$NOW)"),
        // ReadConcernMajorityNotEnabled, NotImplemented.
        ("find", 0, 148, "reads from a majority"),
        ("find", 0, 238, "reads from a majority"),
    ] {
        let told = without(&server, command, skip, code).await;
        let words = format!("this server is not supported, because it lacks {lacks}: ");
        assert!(told.starts_with(&words) && told.contains(&format!("({code})")), "{told}");
    }
    // What passes says nothing of what a server can do: it may be retried.
    let node = &server.nodes()[0];
    let data = doc! { "failCommands": ["findAndModify"], "errorCode": 91, "failInternalCommands": false };
    node.fail_point("failCommand", doc! { "times": 1 }, data).await;
    says(&node.uri(), "ShutdownInProgress (91)", true).await;
    connected(&node.uri(), MongoOptions::new()).await;
}
