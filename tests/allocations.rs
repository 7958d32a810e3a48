//! Memory that is allocated where it counts: by a check of a lease, a step of a machine, a grant and its release.
//!
//! How much more than before is on the heap at the most, which for what allocates nothing is 0: whatever is
//! allocated shows, also if it is freed at once. It is a test binary of its own with one test, so that nobody else
//! allocates meanwhile.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

use std::{hint::black_box, sync::Arc, time::Duration};

use futures::FutureExt;
use peak_alloc::PeakAlloc;
use tenure::{
    Elect, ElectConfig,
    elect::Acquired,
    sim::steps::BeatingSession,
    store::{MemoryStore, Release, ReleaseTo, StoreExt, Take},
    testing::TestClock,
};
use tenure_conformance::{Fixture, LIMIT};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Bytes at the most, and why as many.
const ALLOWED: &[(&str, usize, &str)] = &[
    ("a check of a lease", 0, "a job may ask before each step"),
    ("a wake-up at which nothing is due", 0, "a list without an action needs no memory"),
    ("a wake-up at which a beat is due", 192, "a list with an action"),
    ("the answer to a beat", 192, "a list with an action; the record comes with the answer"),
    ("a grant in memory", 1296, "the answer with its record, whose past has room for four, and a future"),
    ("a release in memory", 256, "a future with room for any operation, and the answer"),
];

/// Compares what was allocated with what is allowed.
#[derive(Debug, Default)]
struct Allocated {
    wrong: Vec<String>,
}

impl Allocated {
    fn by<T>(&mut self, what: &str, work: impl FnOnce() -> T) -> T {
        HEAP.reset_peak_usage();
        let before = HEAP.current_usage();
        let result = black_box(work());
        let bytes = HEAP.peak_usage() - before;
        let (_, allowed, why) = ALLOWED.iter().find(|(known, ..)| *known == what).unwrap();
        if bytes > *allowed {
            self.wrong.push(format!("(\"{what}\", {bytes}, \"{why}\"), // {allowed} was allowed"));
        }
        result
    }
}

#[tokio::test(start_paused = true)]
async fn checks_steps_and_grants_allocate_no_more_than_allowed() {
    let mut wrong = Vec::new();
    // More than once: the thread that has started this one may allocate for itself meanwhile.
    for _ in 0..3 {
        let mut allocated = Allocated::default();
        checks(&mut allocated).await;
        steps(&mut allocated);
        grants(&mut allocated).await;
        wrong = allocated.wrong;
        if wrong.is_empty() {
            return;
        }
    }
    panic!("tests/allocations.rs, ALLOWED:\n{}", wrong.join("\n"));
}

async fn checks(allocated: &mut Allocated) {
    let clock = Arc::new(TestClock::new());
    let config = ElectConfig::new("test", "pod-1").unwrap();
    let elect = Elect::builder(MemoryStore::new(clock.clone()), config).clock(clock).start().await.unwrap();
    let Acquired::Guard(guard) = elect.key("key").try_acquire().await.unwrap() else {
        panic!("nobody else is here");
    };
    let lease = guard.lease();
    allocated.by("a check of a lease", || {
        assert!(lease.is_valid() && guard.is_valid() && !lease.is_cancelled());
        assert!(lease.remaining() > Duration::ZERO);
    });
    guard.release().await.unwrap();
    elect.close().await;
}

fn steps(allocated: &mut Allocated) {
    let mut session = BeatingSession::default();
    let interval = session.interval();
    // Once for what is allocated for good.
    assert!(session.wake(interval), "a beat is due");
    session.answer(session.found());
    assert!(!allocated.by("a wake-up at which nothing is due", || session.wake(interval / 2)));
    assert!(allocated.by("a wake-up at which a beat is due", || session.wake(interval / 2)));
    let answer = session.found();
    allocated.by("the answer to a beat", || session.answer(answer));
}

async fn grants(allocated: &mut Allocated) {
    let clock = Arc::new(TestClock::new());
    let fixture = Fixture::new(Arc::new(MemoryStore::new(clock)));
    let (store, session) = (fixture.store(), fixture.opened().await.id);
    let lock = fixture.lock("key");
    // Once, so that the record is there, and as often as past holders are kept.
    for ticket in 1..=20 {
        let takes = vec![Take { lock: lock.clone(), by: fixture.candidate(session, ticket) }];
        let grant = || store.take(takes, Vec::new(), LIMIT).now_or_never().expect("it is in memory").unwrap();
        let taken = if ticket < 20 { grant() } else { allocated.by("a grant in memory", grant) };
        let term = taken[0].taken().expect("it is free").term;
        let release = Release { lock: lock.clone(), session, term, note: None, then: ReleaseTo::Free };
        let releases = vec![release];
        let give = || store.release(releases, LIMIT).now_or_never().expect("it is in memory").unwrap();
        if ticket < 20 {
            give();
        } else {
            allocated.by("a release in memory", give);
        }
    }
}
