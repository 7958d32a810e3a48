//! Limits in time, while somebody else has the file locked; and what comes together.

use std::{future::Future, sync::Arc, time::Duration};

use futures::{FutureExt, future::join_all};
use tenure::{
    Applied, Clock, StoreError,
    model::{Retention, Value},
    store::{
        FOR_GOOD, LockSeen, ReleaseTo, SessionSeen, StoreExt, Take, TakeAnswer,
        sqlite::{SqliteOptions, SqliteStore},
    },
    testing::TestClock,
};
use tenure_conformance::LIMIT;

use crate::{
    folder::{Folder, fixture},
    wait::{until, within},
};

const SHORT: Duration = Duration::from_millis(150);

/// The error of a call with that limit, which cannot be answered before. In paused time: it takes the limit, to the
/// millisecond.
async fn refused_in_time<T: std::fmt::Debug>(answer: impl Future<Output = Result<T, StoreError>>) {
    tokio::time::pause();
    let clock = TestClock::new();
    let begun = clock.now();
    let error = answer.await.unwrap_err();
    let took = clock.now().since(begun);
    tokio::time::resume();
    assert!((SHORT..=SHORT + Duration::from_millis(1)).contains(&took), "{took:?}");
    assert_eq!((error.applied(), error.is_retryable()), (Applied::No, true), "{error}");
}

/// Sends an operation off, which cannot be answered yet.
fn has_begun_to_wait<T>(answer: &mut (impl Future<Output = T> + Unpin)) -> bool {
    answer.now_or_never().is_none()
}

#[tokio::test]
async fn a_limit_is_kept_while_another_process_has_the_file_locked() {
    let folder = Folder::new();
    let store = folder.open();
    let fixture = fixture(&store);
    let session = fixture.opened().await;
    let shell = folder.shell();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let lock = fixture.lock("report");
    let take = Take { lock: lock.clone(), by: fixture.candidate(session.id, 1) };
    refused_in_time(store.take(vec![take], Vec::new(), SHORT)).await;
    refused_in_time(store.beat(fixture.beat(session.id, 1), SHORT)).await;
    let seen = within("reads wait for nobody", fixture.seen(session.id)).await;
    assert_eq!(seen, SessionSeen::Alive(session.clone()));
    shell.execute_batch("COMMIT").unwrap();
    // Whatever comes later comes after what was given up, if that had been done.
    fixture.opened().await;
    assert_eq!(fixture.look(&lock).await, LockSeen::Absent, "it never began");
    assert_eq!(fixture.seen(session.id).await, SessionSeen::Alive(session));
}

#[tokio::test]
async fn a_waiting_call_is_done_once_the_file_is_free() {
    let folder = Folder::new();
    let store = folder.open();
    let fixture = fixture(&store);
    let session = fixture.opened().await.id;
    let shell = folder.shell();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let beat = fixture.beat(session, 1);
    let mut beaten = store.beat(beat.clone(), LIMIT);
    assert!(has_begun_to_wait(&mut beaten));
    shell.execute_batch("COMMIT").unwrap();
    assert!(within("the beat", beaten).await.unwrap().bears(beat.nonce));
}

#[tokio::test]
async fn a_call_that_is_given_up_before_it_began_never_begins() {
    let folder = Folder::new();
    let store = folder.open();
    let fixture = fixture(&store);
    let session = fixture.session();
    let shell = folder.shell();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let take = |key| vec![Take { lock: fixture.lock(key), by: fixture.candidate(session, 1) }];
    let mut dropped = store.take(take("dropped"), Vec::new(), LIMIT);
    assert!(has_begun_to_wait(&mut dropped));
    drop(dropped);
    let mut kept = store.take(take("kept"), Vec::new(), LIMIT);
    assert!(has_begun_to_wait(&mut kept));
    shell.execute_batch("COMMIT").unwrap();
    within("the take", kept).await.unwrap();
    assert_eq!(fixture.look(&fixture.lock("dropped")).await, LockSeen::Absent);
}

/// The time is read once for each transaction: those that were written together bear the same.
#[tokio::test]
async fn calls_that_come_together_are_written_together() {
    let folder = Folder::new();
    let store = folder.open();
    let fixture = fixture(&store);
    let session = fixture.session();
    let shell = folder.shell();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let takes = (0..64).map(|number| {
        let lock = fixture.lock(&format!("key {number}"));
        store.take(vec![Take { lock, by: fixture.candidate(session, 1) }], Vec::new(), LIMIT)
    });
    let mut all = join_all(takes);
    assert_eq!((&mut all).now_or_never().map(drop), None, "somebody has the file locked");
    shell.execute_batch("COMMIT").unwrap();
    let mut times: Vec<_> = within("all takes", all)
        .await
        .into_iter()
        .map(|answer| match answer.unwrap().remove(0) {
            TakeAnswer::Taken(record) => record.holding.unwrap().acquired_at,
            other => panic!("it was free: {other:?}"),
        })
        .collect();
    times.dedup();
    assert_eq!(times.len(), 1, "{times:?}");
}

/// Of those that are written together one has no room: that one fails.
#[tokio::test]
async fn a_call_that_fails_in_a_shared_transaction_fails_alone() {
    let folder = Folder::new();
    let store = SqliteStore::open_with(folder.database(), SqliteOptions::new().max_pages(40)).unwrap();
    let fixture = fixture(&store);
    let session = fixture.opened().await.id;
    let shell = folder.shell();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let large = Some(Value::new(vec![7; Value::MAX_BYTES]).unwrap());
    let takes = (0..40).map(|number| {
        let mut by = fixture.candidate(session, 1);
        by.value = large.clone();
        Take { lock: fixture.lock(&format!("key {number}")), by }
    });
    let beats = [1, 2].map(|number| fixture.beat(session, number));
    let mut first = store.beat(beats[0].clone(), LIMIT);
    let mut large = store.take(takes.collect(), Vec::new(), LIMIT);
    let mut last = store.beat(beats[1].clone(), LIMIT);
    assert!(has_begun_to_wait(&mut first) && has_begun_to_wait(&mut large) && has_begun_to_wait(&mut last));
    shell.execute_batch("COMMIT").unwrap();
    assert!(within("the first beat", first).await.unwrap().bears(beats[0].nonce));
    let error = within("the take", large).await.unwrap_err();
    assert_eq!(error.applied(), Applied::No, "{error}");
    assert!(error.to_string().contains("there is no room for"), "{error}");
    assert!(within("the last beat", last).await.unwrap().bears(beats[1].nonce));
    assert_eq!(fixture.look(&fixture.lock("key 0")).await, LockSeen::Absent);
}

/// The error of whoever was held up says by what.
#[tokio::test]
async fn a_call_that_is_held_up_says_by_what() {
    let folder = Folder::new();
    let store = folder.open();
    let fixture = fixture(&store);
    let session = fixture.opened().await.id;
    let shell = folder.shell();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    // As soon as the store has found out.
    until("the error says who holds it up", async || {
        let error = store.beat(fixture.beat(session, 1), SHORT).await.unwrap_err();
        assert_eq!(error.applied(), Applied::No);
        let words = error.to_string();
        if words.contains("tenure.db: another process keeps it locked") { Ok(()) } else { Err(words) }
    })
    .await;
}

#[tokio::test]
async fn a_lock_closed_for_good_is_closed_and_kept_whatever_the_clock_says() {
    let folder = Folder::new();
    let clock = Arc::new(TestClock::new());
    let store = SqliteStore::open_with(folder.database(), SqliteOptions::new().clock(clock.clone())).unwrap();
    let fixture = fixture(&store);
    let session = fixture.opened().await.id;
    let lock = fixture.lock("report");
    let held = fixture.held(&lock, session, 1).await;
    fixture.release(&lock, session, held.term, ReleaseTo::ClosedFor(FOR_GOOD)).await;
    for step in [TestClock::step_wall, TestClock::step_wall_back, TestClock::step_wall_back] {
        step(&clock, FOR_GOOD + Duration::from_secs(3600));
        let purged =
            store.purge(fixture.namespace().clone(), Retention::default(), None, LIMIT).await.unwrap();
        assert_eq!(purged.locks, 0);
        let answer = fixture.take(&lock, &fixture.candidate(fixture.session(), 1)).await;
        assert!(matches!(answer, TakeAnswer::Closed(_)), "{answer:?}");
    }
}
