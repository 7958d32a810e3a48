//! Random scripts on a real server, held against the reference model.

use std::hash::{BuildHasher, RandomState};

use crate::{conformance::store, reference};

/// Another one each time, which a failure prints; `TENURE_SEED` replays it.
fn seed() -> u64 {
    match std::env::var("TENURE_SEED") {
        Ok(seed) => seed.parse().expect("TENURE_SEED is the number that a failure printed"),
        Err(_) => RandomState::new().hash_one("seed"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mongodb_store_answers_as_the_model_says() {
    reference::check(seed(), 5_000, async || (store().await, None)).await;
}
