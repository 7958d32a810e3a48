//! Troubles are reported: in the log, in health, in a metric.

use std::{fmt, sync::Arc, time::Duration};

use futures::{StreamExt, stream, stream::BoxStream};
use tenure::{
    Elect,
    elect::{Status, Work},
    store::{Hint, Store},
    testing::{Call, Course, Fault, Intercept, Operation},
};

use crate::captured::Log;
use crate::elect::world::{SECOND, World};

const MINUTE: Duration = Duration::from_secs(60);

fn works(elect: &Elect) -> Vec<Work> {
    elect.health().troubles.iter().map(|trouble| trouble.work).collect()
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_is_told_at_once_and_again_at_growing_rests_and_when_it_is_there() {
    let (log, _here) = Log::start();
    let world = World::new();
    let (elect, faulty) = world.instance("pod-1").await;
    faulty.intercept().always(&[Operation::Take], Fault::Forbidden);
    let _campaign = elect.campaign("k").start().unwrap();
    tokio::time::sleep(SECOND).await;
    let told = log.with(&["WARN", "acquiring locks is failing: nothing is acquired or taken over here"]);
    assert_eq!(told.len(), 1, "{told:?}");
    for part in [
        "work=\"takes\"",
        "not authorized, on purpose",
        "grant find, insert, update on locks",
        "namespace=test",
    ] {
        assert!(told[0].contains(part), "{part} in {}", told[0]);
    }
    let health = elect.health();
    assert!(health.is_ok(), "another copy would lack the same right: {health}");
    let Status::Degraded { since, error } = &health.status else { panic!("{health}") };
    assert!(
        *since <= SECOND * 2 && error.contains("acquiring locks") && error.contains("not authorized"),
        "{health}"
    );
    assert_eq!(health.troubles.len(), 1);
    assert!(health.troubles[0].lasting && health.troubles[0].failures > 0, "{health:?}");

    tokio::time::sleep(MINUTE * 30).await;
    let told = log.with(&["WARN", "acquiring locks is failing"]).len();
    assert!((4..=7).contains(&told), "{told} times in half an hour");

    faulty.intercept().heal();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(log.with(&["INFO", "acquiring locks works again", "lasted="]).len(), 1);
    assert_eq!((elect.health().status, works(&elect)), (Status::Healthy, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_may_pass_is_told_when_it_has_lasted() {
    let (log, _here) = Log::start();
    let world = World::new();
    let (elect, faulty) = world.instance("pod-1").await;
    faulty.intercept().always(&[Operation::Take], Fault::RequestLost);
    let _campaign = elect.campaign("k").start().unwrap();
    tokio::time::sleep(SECOND * 12).await;
    assert_eq!(log.with(&["WARN"]), Vec::<String>::new(), "an election takes as long");
    assert_eq!(elect.health().status, Status::Healthy);
    tokio::time::sleep(SECOND * 48).await;
    assert_eq!(log.with(&["WARN", "acquiring locks is failing"]).len(), 1, "{:?}", log.lines());
    assert_eq!(works(&elect), [Work::Takes]);
}

/// No work that fails for a minute is silent, whichever right is missing.
#[tokio::test(start_paused = true)]
async fn a_forbidden_operation_is_told_within_a_minute_of_its_failure() {
    for (operation, work) in [
        (Operation::Beat, Work::Beats),
        (Operation::Take, Work::Takes),
        (Operation::Release, Work::Releases),
        (Operation::Locks, Work::Reads),
        (Operation::Wait, Work::Joining),
        (Operation::StopWaiting, Work::Leaving),
        (Operation::Waiters, Work::Queues),
        (Operation::Observe, Work::Watching),
        (Operation::HeldBy, Work::Audit),
    ] {
        let (log, _here) = Log::start();
        let world = World::new();
        let (elect, faulty) = world.instance("pod-1").await;
        let (other, _) = world.instance("pod-2").await;
        let held = other.acquire("k").await.unwrap();
        let _leads = elect.campaign("own").start().unwrap();
        tokio::time::sleep(SECOND).await;
        faulty.intercept().always(&[operation], Fault::Forbidden);
        // It waits, is handed the lock, gives it back, and waits again.
        let _stands = elect.campaign("k").run(async |_| Ok::<_, String>(())).unwrap();
        tokio::time::sleep(SECOND * 20).await;
        held.release().await.unwrap();
        tokio::time::sleep(MINUTE).await;
        let told = log.with(&["WARN", &format!("{} is failing", work.subject())]);
        assert!(!told.is_empty(), "{operation:?} is forbidden, and nothing tells: {:?}", log.lines());
        elect.close().await;
        other.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn failing_declarations_and_purges_are_told_too() {
    let (log, _here) = Log::start();
    let world = World::new();
    let (elect, faulty) = world.instance("pod-1").await;
    let (other, silent) = world.instance("pod-2").await;
    let held = other.acquire("k").await.unwrap();
    faulty.intercept().always(&[Operation::Declare, Operation::Purge], Fault::Forbidden);
    silent.intercept().always(Operation::ALL, Fault::Swallowed);
    let _stands = elect.campaign("k").start().unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(log.with(&["WARN", "declaring sessions dead is failing"]).len(), 1, "{:?}", log.lines());
    tokio::time::sleep(MINUTE * 100).await;
    assert!(!log.with(&["WARN", "the purge is failing"]).is_empty());
    assert_eq!(works(&elect).len(), 2, "{:?}", works(&elect));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_not_tried_any_more_is_no_trouble() {
    let (_log, _here) = Log::start();
    let world = World::new();
    let (elect, faulty) = world.instance("pod-1").await;
    faulty.intercept().always(&[Operation::Take], Fault::Forbidden);
    assert!(elect.key("k").try_acquire().await.is_err());
    assert_eq!(works(&elect), [Work::Takes]);
    tokio::time::sleep(MINUTE * 10).await;
    assert_eq!((elect.health().status, works(&elect)), (Status::Healthy, vec![]));
}

/// Hints that fail, as a store tells of them.
struct Broken {
    lasting: bool,
    /// Opens between the failures.
    opens: bool,
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Broken")
    }
}

impl Intercept for Broken {
    fn decide(&self, _: &Call) -> Course {
        Course::PLAIN
    }

    fn hints(&self, _: BoxStream<'static, Hint>) -> BoxStream<'static, Hint> {
        let failing = Hint::Failing { error: "no right to find".to_owned(), lasting: self.lasting };
        let told = if self.opens { vec![Hint::Resync, failing] } else { vec![failing] };
        let told = stream::iter(std::iter::repeat_n(told, 20).flatten());
        let told = told.then(|hint| async {
            tokio::time::sleep(SECOND * 2).await;
            hint
        });
        let open = stream::iter([Hint::Resync]).chain(stream::pending());
        stream::iter([Hint::Resync]).chain(told).chain(open).boxed()
    }
}

async fn without_hints(world: &World, broken: Broken) -> Elect {
    let store: Arc<dyn Store> = broken.around(Arc::new(world.memory.clone()));
    world.on(store, World::config("pod-1")).start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn missing_hints_are_told_and_so_is_their_return() {
    let (log, _here) = Log::start();
    let world = World::new();
    let elect = without_hints(&world, Broken { lasting: true, opens: false }).await;
    tokio::time::sleep(SECOND * 3).await;
    let told = log.with(&["WARN", "receiving hints is failing: waiters poll every poll_interval"]);
    assert_eq!(told.len(), 1, "{:?}", log.lines());
    assert!(told[0].contains("no right to find"), "{told:?}");
    assert_eq!(works(&elect), [Work::Hints]);
    tokio::time::sleep(MINUTE * 2).await;
    assert_eq!(log.with(&["receiving hints works again"]).len(), 1);
    assert_eq!(works(&elect), []);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_opens_and_fails_at_once_does_not_work() {
    let (log, _here) = Log::start();
    let world = World::new();
    let elect = without_hints(&world, Broken { lasting: false, opens: true }).await;
    tokio::time::sleep(SECOND * 15).await;
    assert_eq!(works(&elect), []);
    tokio::time::sleep(SECOND * 25).await;
    assert_eq!(log.with(&["WARN", "receiving hints is failing"]).len(), 1, "{:?}", log.lines());
    assert_eq!(works(&elect), [Work::Hints]);
    tokio::time::sleep(MINUTE * 2).await;
    assert_eq!(works(&elect), []);
}

/// The lines of a takeover name the key and who it was.
#[tokio::test(start_paused = true)]
async fn a_takeover_is_told_with_the_names_of_both() {
    let (log, _here) = Log::start();
    let world = World::new();
    let (elect, _) = world.instance("pod-1").await;
    let (other, silent) = world.instance("pod-2").await;
    let held = other.acquire("orders").await.unwrap();
    let _stands = elect.campaign("orders").start().unwrap();
    tokio::time::sleep(SECOND).await;
    silent.intercept().always(Operation::ALL, Fault::Swallowed);
    tokio::time::sleep(MINUTE).await;
    let expect = |parts: &[&str]| assert_eq!(log.with(parts).len(), 1, "{parts:?} in {:#?}", log.lines());
    let lock = "kind=lock key=\"orders\" namespace=test";
    expect(&["session opened", "holder=pod-1", "namespace=test", "ttl=", "cancelled_after="]);
    expect(&["declared a session dead", "of=\"pod-2\"", "host=", "pid=", "holder=pod-1"]);
    expect(&["took over from a dead session", lock, "from=\"pod-2\"", "holder=pod-1", "silent="]);
    expect(&[" acquired ", lock, "holder=pod-1"]);
    expect(&[" lost ", lock, "holder=pod-2"]);
    expect(&["ERROR", "session lost", "holder=pod-2"]);
    drop(held);
}

/// Log of an outage: a few lines, whatever fails during it.
#[tokio::test(start_paused = true)]
async fn an_outage_of_two_minutes_is_told_in_a_few_lines() {
    let (log, _here) = Log::start();
    let world = World::new();
    let (elect, faulty) = world.instance("pod-1").await;
    let _campaign = elect.campaign("orders").start().unwrap();
    let _spread = elect
        .spread("topics")
        .tasks((0..50).map(|task| format!("topic-{task}")))
        .run(async |_, lease| {
            lease.cancelled().await;
            Ok::<_, String>(())
        })
        .unwrap();
    tokio::time::sleep(MINUTE).await;
    let before = log.lines().len();
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    tokio::time::sleep(MINUTE * 2).await;
    faulty.intercept().heal();
    tokio::time::sleep(MINUTE * 2).await;
    for line in log.lines() {
        println!("{line}");
    }
    let told = log.lines().len() - before;
    assert!(told <= 16, "{told} lines of an outage: {:#?}", log.lines());
    assert_eq!(
        log.with(&["is failing"]),
        log.with(&["sending heartbeats is failing"]),
        "the others fail of the same"
    );
    assert!(!log.with(&["WARN", "sending heartbeats is failing", "no answer within the limit"]).is_empty());
    assert_eq!(log.with(&["ERROR", "session lost"]).len(), 1);
    assert_eq!(log.with(&["INFO", "sending heartbeats works again", "lasted="]).len(), 1);
    assert_eq!(log.with(&["WARN", "lost tasks", "count=50"]).len(), 1);
    assert_eq!((elect.health().status, works(&elect)), (Status::Healthy, vec![]));
}
