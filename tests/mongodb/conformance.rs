//! Every property of the contract, on a real server.

use std::sync::Arc;

use tenure::store::Store;

use crate::mongodb::{connected, whole_ids};
use crate::support::mongod;

/// Store on which the suite and the scripts run.
pub(crate) async fn store() -> Arc<dyn Store> {
    let uri = match std::env::var("TENURE_TEST_MONGODB_URI") {
        Ok(uri) => uri,
        Err(_) => mongod::shared_single().await.uri().to_owned(),
    };
    let options = whole_ids::checked().database("tenure-conformance");
    Arc::new(connected(&uri, options).await)
}

tenure_conformance::conformance_tests!(store().await);
