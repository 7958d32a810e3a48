//! Random scripts on a real server, held against the reference model.

use crate::mongodb::{conformance::store, rounds};
use crate::reference;

/// The same one each time; `TENURE_SEED` is another.
fn seed() -> u64 {
    std::env::var("TENURE_SEED").map_or(1, |seed| seed.parse().expect("TENURE_SEED is a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mongodb_store_answers_as_the_model_says() {
    let steps = 1000 * usize::try_from(rounds()).unwrap();
    reference::check(seed(), steps, async || (store().await, None)).await;
}
