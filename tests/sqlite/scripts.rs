//! Random scripts, held against the reference model: the same answers as those of the other stores.

use std::sync::Arc;

use tenure::{store::sqlite::SqliteOptions, testing::TestClock};

use crate::{
    folder::{Folder, InFolder},
    reference,
};

const STEPS: usize = 10_000;

#[tokio::test]
async fn the_sqlite_store_answers_as_the_model_says() {
    for seed in 0..2 {
        let subject = async || -> reference::Subject {
            let clock = Arc::new(TestClock::new());
            let options = SqliteOptions::new().clock(clock.clone());
            (InFolder::store(Folder::in_memory(), options), Some(clock))
        };
        reference::check(seed, STEPS, subject).await;
    }
}

#[tokio::test]
async fn the_sqlite_store_answers_as_the_model_says_while_time_goes_on() {
    let subject =
        async || -> reference::Subject { (InFolder::store(Folder::in_memory(), SqliteOptions::new()), None) };
    reference::check(100, STEPS, subject).await;
}
