//! A store without hints: whoever waits polls.

use std::sync::Arc;

use tenure::store::{Store, mongo::MongoOptions};

use crate::{
    mongodb::{connected, without_bells},
    support::mongod::{Deployment, Options, Shape},
};

async fn store() -> Arc<dyn Store> {
    static SHARED: tokio::sync::OnceCell<Deployment> = tokio::sync::OnceCell::const_new();
    let start = || async {
        let deployment = Deployment::start(Shape::Standalone, Options::default()).await;
        without_bells(&deployment.client().await.database("tenure-conformance")).await;
        deployment
    };
    let options = MongoOptions::new().database("tenure-conformance");
    Arc::new(connected(SHARED.get_or_init(start).await.uri(), options).await)
}

tenure_conformance::conformance_tests!(without hints: store().await);
