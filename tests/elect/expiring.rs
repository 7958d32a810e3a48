//! No work begins under a session that is about to end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tenure::{
    Elect, ElectConfig, Error, Event, Lease,
    store::Store,
    testing::{Course, Fault, Faulty, Intercept, Intercepted, Operation, Rates},
};
use tokio::time::Instant;

use crate::captured::Log;
use crate::elect::world::{SECOND, World};

const MS: Duration = Duration::from_millis(1);

/// An instance of these durations, whose hints are all lost.
fn begun(world: &World, config: ElectConfig) -> (Elect, Arc<Intercepted<Faulty>>) {
    let rates = Rates { hint_lost: 1000, ..Rates::default() };
    let faulty = Faulty::seeded(1, rates).around(Arc::new(world.memory.clone()));
    let store: Arc<dyn Store> = faulty.clone();
    (world.on(store, config).begin().unwrap(), faulty)
}

/// A ttl of three seconds.
fn short(holder: &str) -> ElectConfig {
    World::config(holder)
        .with_hold_duration(SECOND * 2)
        .with_refresh_duration(SECOND * 3)
        .with_refresh_interval(SECOND / 4)
}

/// Waits until an instance whose beats are not answered is so near to expiring.
async fn nearly_expiring(lease: &Lease, grace: Duration) {
    while lease.remaining() > grace + SECOND / 2 {
        tokio::time::sleep(SECOND / 100).await;
    }
    assert!(!lease.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_expiring_grants_nothing_until_an_answer_saves_it() {
    let world = World::new();
    let config = short("a").with_stop_grace(MS * 2200);
    config.validate().unwrap();
    let (elect, faulty) = begun(&world, config);
    let first = elect.acquire("first").await.unwrap();
    // Every beat is answered, later than the session begins to expire: the end moves, and stays within the grace.
    let slow = Course::PLAIN.answered_after(MS * 800);
    faulty.intercept().always(&[Operation::Beat], slow);
    first.lost().await;
    let from = Instant::now();
    while from.elapsed() < SECOND * 10 {
        let second = elect.key("second").try_acquire().await;
        assert!(matches!(second, Err(Error::NoSession { .. })), "{:?}: {second:?}", from.elapsed());
        tokio::time::sleep(MS * 5).await;
    }
    let session = elect.health().session;
    assert!(session.is_some(), "the session lives on all the while");
    faulty.intercept().heal();
    let second = elect.key("second").acquire_within(SECOND).await.unwrap();
    assert!(second.is_some(), "an answer that saves the session is heard");
    assert_eq!(elect.health().session, session);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_granted_while_expiring_begins_no_job_and_is_given_back() {
    let world = World::new();
    let config = World::config("a");
    let grace = config.stop_grace();
    let (elect, faulty) = begun(&world, config);
    let (other, _) = world.instance("b").await;
    let guard = elect.acquire("first").await.unwrap();
    let mut events = elect.events();
    faulty.intercept().always(&[Operation::Beat], Fault::Swallowed);
    nearly_expiring(&guard.lease(), grace).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    // Requested before the session expires, granted while it does.
    faulty.intercept().next(Operation::Take, Course::PLAIN.answered_after(SECOND));
    let lock = elect.lock("k", async move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok::<_, String>(())
    });
    let answer = lock.await;
    assert!(guard.lease().is_cancelled() && guard.is_valid(), "it is expiring, and not over");
    assert!(matches!(answer, Err(Error::NoSession { .. })), "{answer:?}");
    assert!(other.key("k").acquire_within(SECOND * 6).await.unwrap().is_some(), "it was given back");
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    elect.close().await;
    while let Some(event) = events.next().await {
        let told = event.lock().is_some_and(|lock| lock.key.as_str() == "k");
        assert!(!told, "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_campaign_that_wins_while_expiring_waits_for_the_session_to_be_saved() {
    let world = World::new();
    let config = World::config("a");
    let grace = config.stop_grace();
    let (elect, faulty) = begun(&world, config);
    let guard = elect.acquire("first").await.unwrap();
    faulty.intercept().always(&[Operation::Beat], Fault::Swallowed);
    nearly_expiring(&guard.lease(), grace).await;
    faulty.intercept().next(Operation::Take, Course::PLAIN.answered_after(SECOND));
    let campaign = elect.campaign("k").run(async |lease: Lease| {
        assert!(!lease.is_cancelled(), "it begins and is told to stop at once");
        lease.cancelled().await;
        Ok::<_, String>(())
    });
    let campaign = campaign.unwrap();
    let mut events = campaign.events();
    guard.lost().await;
    tokio::time::sleep(SECOND * 2).await;
    assert!(!campaign.is_leading());
    let session = elect.health().session;
    faulty.intercept().heal();
    let lease = campaign.led().await.unwrap();
    assert_eq!(elect.health().session, session, "it was saved");
    // Of the first grant nobody was told.
    let Some(Event::Acquired { term, .. }) = events.next().await else { panic!("it leads") };
    assert_eq!(term, lease.term());
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_was_answered_too_late_is_told_as_what_it_is() {
    let (log, _here) = Log::start();
    let world = World::new();
    let (elect, faulty) = begun(&world, short("a").with_stop_grace(MS * 500));
    // The first opening is on record, and its answer is lost. When somebody answers, its time is over.
    faulty.intercept().next(Operation::Open, Fault::Hang);
    faulty.intercept().next(Operation::Open, Fault::Swallowed);
    faulty.intercept().next(Operation::Open, Fault::Swallowed);
    let mut events = elect.events();
    assert!(matches!(events.next().await, Some(Event::SessionOpened { .. })));
    let lines = log.lines();
    assert!(log.with(&["already in use"]).is_empty(), "{lines:?}");
    let late = [
        "the new session was confirmed too late to be valid, opening another",
        "took=3.",
        "ttl=3s",
        "holder=a",
    ];
    assert_eq!(log.with(&late).len(), 1, "{lines:?}");
    drop(elect.acquire("k").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_session_is_told_as_opened_when_something_may_begin_under_it() {
    let world = World::new();
    let config = short("a").with_stop_grace(MS * 500);
    let (elect, faulty) = begun(&world, config);
    // What is left of the first opening when it is heard of is less than the grace.
    faulty.intercept().next(Operation::Open, Fault::Hang);
    faulty.intercept().next(Operation::Open, Fault::Swallowed);
    faulty.intercept().next(Operation::Beat, Course::PLAIN.answered_after(MS * 50));
    let mut events = elect.events();
    let Some(Event::SessionOpened { session }) = events.next().await else { panic!("it opens") };
    let guard = elect.key("k").try_acquire().await.unwrap().guard().expect("the key is free");
    assert!(!guard.lease().is_cancelled());
    assert_eq!(elect.health().session, Some(session), "the same session, saved by a beat");
    assert_eq!(format!("{:?}", world.memory), "MemoryStore { locks: 1, sessions: 1, waiters: 0, .. }");
}
