//! Random scripts, held against the reference model: the same answers as those of the other stores.

use std::sync::Arc;

use tenure::{store::sqlite::SqliteOptions, testing::TestClock};

use crate::{
    folder::{Folder, InFolder},
    reference,
    rounds::rounds,
};

/// In each of `TENURE_ROUNDS`.
const STEPS: u32 = 3_000;

fn steps() -> usize {
    usize::try_from(STEPS * rounds()).unwrap()
}

/// The same one each time; `TENURE_SEED` is another.
fn seed() -> u64 {
    std::env::var("TENURE_SEED").map_or(1, |seed| seed.parse().unwrap())
}

#[tokio::test]
async fn the_sqlite_store_answers_as_the_model_says() {
    let subject = async || -> reference::Subject {
        let clock = Arc::new(TestClock::new());
        let options = SqliteOptions::new().clock(clock.clone());
        (InFolder::store(Folder::in_memory(), &options), Some(clock))
    };
    reference::check(seed(), steps(), subject).await;
}

#[tokio::test]
async fn the_sqlite_store_answers_as_the_model_says_while_time_goes_on() {
    let subject = async || -> reference::Subject {
        (InFolder::store(Folder::in_memory(), &SqliteOptions::new()), None)
    };
    reference::check(seed(), steps(), subject).await;
}
