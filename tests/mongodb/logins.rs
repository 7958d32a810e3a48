//! Logins that fail: because of who logs in, or because of the state of the server.

use mongodb::bson::doc;
use tenure::{
    Applied,
    store::{
        Store,
        mongo::{ConnectError, MongoOptions, MongoStore},
    },
};

use crate::mongodb::{connected, refused_for_good};
use crate::support::{
    mongod::{Deployment, Options, Shape},
    wait::until,
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
    let store = connected(&uri("secret"), MongoOptions::new()).await;
    let operator = mongodb::Client::with_uri_str(uri("secret")).await.unwrap().database("admin");
    operator.run_command(doc! { "ping": 1 }).await.unwrap();

    // NotPrimaryOrSecondary of a node that starts, InterruptedAtShutdown, ShutdownInProgress; the last is what a
    // wrong password comes to.
    for (code, retryable) in [(13_436, true), (11_600, true), (91, true), (18, false)] {
        let fail = doc! { "failCommands": ["saslContinue"], "errorCode": code };
        let on = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": fail };
        operator.run_command(on).await.unwrap();
        // An attempt on a machine that stood still may end before its time, and says that it may be repeated.
        let error = until("the first is refused", async || {
            let first = MongoStore::connect(uri("secret"), MongoOptions::new()).await;
            let error = first.expect_err("nobody can log in");
            if error.is_retryable() == retryable { Ok(error) } else { Err(error) }
        })
        .await;
        let again = until("another is refused", async || {
            let error = store.dedicated().await.expect_err("nobody can log in");
            if error.is_retryable() == retryable { Ok(error) } else { Err(error) }
        })
        .await;
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        operator.run_command(off).await.unwrap();

        for error in [error, again.into()] {
            let ConnectError::Store(error) = error else { panic!("{code}: {error:?}") };
            assert_eq!(error.applied(), Applied::No, "{code}: {error:?}");
        }
    }
    refused_for_good(&uri("wrong"), MongoOptions::new()).await;
}
