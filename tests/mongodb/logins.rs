//! Logins that fail: because of who logs in, or because of the state of the server.

use mongodb::bson::doc;
use tenure::{
    Applied,
    store::{
        Store,
        mongo::{ConnectError, MongoOptions, MongoStore},
    },
};

use crate::support::{
    mongod::{Deployment, Options, Shape},
    wire,
};

#[tokio::test]
async fn a_login_is_tried_again_where_the_server_is_not_ready_and_not_where_the_password_is_wrong() {
    let options = Options { args: vec!["--auth".into()], ..Options::default() };
    let deployment = Deployment::start(Shape::Standalone, options).await;
    let port = deployment.nodes()[0].port();
    let ada = doc! { "createUser": "ada", "pwd": "secret", "roles": ["root"] };
    wire::ask(port, ada).await.expect("the first user can be created from this machine");
    let uri = |password| format!("mongodb://ada:{password}@127.0.0.1:{port}/app?authSource=admin");
    let store = MongoStore::connect(uri("secret"), MongoOptions::new()).await.expect("it is right");
    let operator = mongodb::Client::with_uri_str(uri("secret")).await.unwrap().database("admin");
    operator.run_command(doc! { "ping": 1 }).await.unwrap();

    // NotPrimaryOrSecondary of a node that starts, InterruptedAtShutdown, ShutdownInProgress; the last is what a
    // wrong password comes to.
    for (code, retryable) in [(13_436, true), (11_600, true), (91, true), (18, false)] {
        let fail = doc! { "failCommands": ["saslContinue"], "errorCode": code };
        let on = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": fail };
        operator.run_command(on).await.unwrap();
        let connected = MongoStore::connect(uri("secret"), MongoOptions::new()).await;
        let again = store.dedicated().await;
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        operator.run_command(off).await.unwrap();

        let error = connected.expect_err("nobody can log in");
        assert_eq!(error.is_retryable(), retryable, "{code}: {error:?}");
        let ConnectError::Store(error) = error else { panic!("{code}: {error:?}") };
        assert_eq!(error.applied(), Applied::No, "{code}: {error:?}");
        let error = again.expect_err("nobody can log in");
        assert_eq!(error.is_retryable(), retryable, "{code}: {error:?}");
    }
    let error = MongoStore::connect(uri("wrong"), MongoOptions::new()).await.expect_err("it is wrong");
    assert!(!error.is_retryable(), "{error:?}");
}
