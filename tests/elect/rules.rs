//! The rules of safety, one test or two for each, named after it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tenure::{
    Elect, Error, Event, Loss,
    elect::{Busy, JobEnd, JobHandle, Lease, Locked, Unlocked},
    model::SessionId,
    store::{Declaration, Evidence, Revocation, Store, StoreExt},
    testing::{Course, Fault, Faulty, Intercept, Intercepted, Operation, Rates},
};
use tokio::time::Instant;

use crate::elect::world::{SECOND, World};

const LIMIT: Duration = SECOND;

/// A job that runs until it is told to stop, and says why.
async fn obedient(elect: &Elect, key: &str) -> JobHandle<Option<Loss>, String> {
    let job = elect.lock(key, async |lease: Lease| {
        lease.cancelled().await;
        Ok(lease.loss())
    });
    job.await.unwrap().running().expect("the key is free")
}

/// Waits for a key on a task of its own.
fn waits(elect: &Elect, key: &'static str) -> tokio::task::JoinHandle<tenure::Guard> {
    let elect = elect.clone();
    tokio::spawn(async move { elect.acquire(key).await.unwrap() })
}

fn session(elect: &Elect) -> SessionId {
    elect.health().session.expect("there is a valid session")
}

fn unreachable(faulty: &Intercepted<Faulty>) {
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
}

#[tokio::test(start_paused = true)]
async fn r1_no_wall_clock_moves_the_end_of_a_lease_or_a_takeover() {
    let world = World::new();
    let (first, faulty) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let job = obedient(&first, "k").await;
    let next = waits(&second, "k");
    for _ in 0..5 {
        world.clock.step_wall(SECOND * 3600);
        tokio::time::sleep(SECOND * 7).await;
        world.clock.step_wall_back(SECOND * 7200);
        tokio::time::sleep(SECOND * 7).await;
        assert!(job.lease().is_valid() && !job.lease().is_cancelled());
    }
    unreachable(&faulty);
    world.clock.step_wall(SECOND * 3600);
    let before = Instant::now();
    drop(next.await.unwrap());
    assert!(before.elapsed() > SECOND * 25 && before.elapsed() < SECOND * 36, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn r2_the_end_counts_from_the_sending_of_the_beat() {
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    let job = obedient(&elect, "k").await;
    // Beats are applied at once, and answered two seconds later.
    let late = Course { after: SECOND * 2, ..Course::PLAIN };
    faulty.intercept().always(&[Operation::Beat], late);
    tokio::time::sleep(SECOND * 10).await;
    let mut most = Duration::ZERO;
    for _ in 0..400 {
        tokio::time::sleep(SECOND / 10).await;
        most = most.max(job.lease().remaining());
    }
    // ttl 30 s, margin 800 ms, and two seconds on the way.
    assert!(most <= (SECOND * 28).checked_sub(SECOND * 4 / 5).unwrap(), "{most:?}");
    assert!(most > SECOND * 26, "{most:?}");
}

#[tokio::test(start_paused = true)]
async fn r3_a_session_is_declared_dead_only_when_its_last_beat_was_seen_for_its_whole_ttl() {
    let world = World::new();
    let (first, faulty) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let job = obedient(&first, "k").await;
    let dead = session(&first);
    let next = waits(&second, "k");
    tokio::time::sleep(SECOND * 12).await;
    // Its answers are lost, its beats are not: it stops, and nobody may take its place yet. (Nor can it
    // close its session by itself.)
    unreachable(&faulty);
    faulty.intercept().always(&[Operation::Beat], Fault::AnswerLost);
    assert!(matches!(job.join().await, JobEnd::Finished(Some(Loss::Expired { .. }))));
    unreachable(&faulty);
    let last_beat = Instant::now();
    assert!(!next.is_finished());
    drop(next.await.unwrap());
    // The last beat was sent shortly before.
    assert!(last_beat.elapsed() > SECOND * 25, "{:?}", last_beat.elapsed());
    let seen = world.memory.observe(vec![dead], LIMIT).await.unwrap();
    assert!(seen[0].is_dead());
}

#[tokio::test(start_paused = true)]
async fn r3_an_instance_does_not_close_its_session_under_a_guard_that_is_out() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let guard = first.acquire("k").await.unwrap();
    let dead = session(&first);
    assert_eq!(first.close().await.overran.len(), 1);
    let seen = world.memory.observe(vec![dead], LIMIT).await.unwrap();
    assert!(!seen[0].is_dead());
    assert!(!guard.is_valid());
    let before = Instant::now();
    drop(waits(&second, "k").await.unwrap());
    assert!(before.elapsed() > SECOND * 20, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn r3_a_session_that_nobody_waits_for_is_declared_dead_all_the_same() {
    let world = World::new();
    let (first, faulty) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let (silent, alive) = (session(&first), session(&second));
    unreachable(&faulty);
    tokio::time::sleep(SECOND * 120).await;
    let seen = world.memory.observe(vec![silent], LIMIT).await.unwrap();
    assert!(!seen[0].is_dead(), "it holds nothing: nobody watches it");
    // Everybody looks over the sessions once an hour or so, and then for a ttl at the silent ones.
    tokio::time::sleep(SECOND * (90 * 60 + 60)).await;
    let seen = world.memory.observe(vec![silent, alive], LIMIT).await.unwrap();
    assert!(seen[0].is_dead());
    assert!(!seen[1].is_dead() && session(&second) == alive);
}

#[tokio::test(start_paused = true)]
async fn r4_a_lock_of_a_dead_session_is_free_and_its_holder_is_told() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let job = obedient(&first, "k").await;
    let declaration = Declaration {
        session: session(&first),
        ground: Evidence::Operator,
        by: "operator".parse().unwrap(),
        why: tenure::model::Why::shortened("it hangs"),
        tell: Vec::new(),
    };
    world.memory.declare(declaration, LIMIT).await.unwrap();
    let end = job.join().await;
    assert!(
        matches!(&end, JobEnd::Cancelled(Loss::DeclaredDead { by, .. }) if by.as_str() == "operator"),
        "{end:?}"
    );
    assert!(matches!(second.lock("k", async |_| Ok::<_, ()>(())).await.unwrap(), Locked::Running(_)));
}

#[tokio::test(start_paused = true)]
async fn r5_terms_rise_with_every_change_of_holder() {
    let world = World::new();
    let (first, faulty) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let mut terms = Vec::new();
    for elect in [&first, &second, &second, &first] {
        world.clock.step_wall_back(SECOND * 60);
        let guard = elect.acquire("k").await.unwrap();
        terms.push(guard.term());
        guard.release().await.unwrap();
    }
    let guard = first.acquire("k").await.unwrap();
    terms.push(guard.term());
    unreachable(&faulty);
    terms.push(second.acquire("k").await.unwrap().term());
    assert!(terms.windows(2).all(|pair| pair[0] < pair[1]), "{terms:?}");
}

#[tokio::test(start_paused = true)]
async fn r6_a_release_that_was_not_answered_is_sent_again() {
    let world = World::new();
    let (first, faulty) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    for fault in
        [Fault::RequestLost, Fault::AnswerLost, Fault::Refused, Fault::Swallowed, Fault::Hang, Fault::Twice]
    {
        let guard = first.acquire("k").await.unwrap();
        faulty.intercept().next(Operation::Release, fault);
        let before = Instant::now();
        drop(guard);
        let guard = second.acquire("k").await.unwrap();
        assert!(before.elapsed() < SECOND * 6, "{fault:?}: {:?}", before.elapsed());
        guard.release().await.unwrap();
        assert_eq!(faulty.intercept().to_come(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn r7_a_lock_that_arrives_for_a_ticket_that_was_given_up_is_given_back() {
    let world = World::new();
    let (first, faulty) = deaf(&world, "a").await;
    let (second, _) = world.instance("b").await;
    // The take is applied and never answered; the caller does not wait for it.
    faulty.intercept().next(Operation::Take, Fault::Hang);
    let ran = Arc::new(AtomicBool::new(false));
    let flag = ran.clone();
    let lock = first.lock("k", async move |_| {
        flag.store(true, Ordering::Relaxed);
        Ok::<_, ()>(())
    });
    assert!(tokio::time::timeout(SECOND / 2, lock).await.is_err());
    let before = Instant::now();
    drop(second.acquire("k").await.unwrap());
    assert!(before.elapsed() < SECOND * 6, "{:?}", before.elapsed());
    assert!(!ran.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn r8_an_unknown_outcome_changes_nothing_and_is_asked_again() {
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    let job = obedient(&elect, "k").await;
    for fault in [Fault::AnswerLost, Fault::Swallowed, Fault::RequestLost, Fault::Hang] {
        for _ in 0..3 {
            faulty.intercept().next(Operation::Beat, fault);
        }
        tokio::time::sleep(SECOND * 30).await;
        assert_eq!(faulty.intercept().to_come(), 0, "{fault:?}");
        assert!(job.lease().is_valid() && !job.lease().is_cancelled(), "{fault:?}");
    }
    // A take whose answer is lost twice is the same take, with the same term.
    faulty.intercept().next(Operation::Take, Fault::AnswerLost);
    faulty.intercept().next(Operation::Take, Fault::Swallowed);
    let job = obedient(&elect, "other").await;
    assert!(job.lease().check().await.unwrap());
}

/// Polls seen by a job that never stops by itself, and wakes itself all the time.
#[derive(Default)]
struct Polls {
    last: Mutex<Option<Instant>>,
    many: AtomicUsize,
}

async fn restless(polls: Arc<Polls>) -> Result<(), ()> {
    loop {
        *polls.last.lock().unwrap() = Some(Instant::now());
        polls.many.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(SECOND / 100).await;
    }
}

#[tokio::test(start_paused = true)]
async fn r9_cancel_then_drain_then_stop_and_only_then_release() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let polls = Arc::new(Polls::default());
    let given = polls.clone();
    let job = first.lock("k", async move |_| restless(given).await).await.unwrap().running().unwrap();
    let next = waits(&second, "k");
    tokio::time::sleep(SECOND).await;
    let told = Instant::now();
    let lease = job.lease().clone();
    let unlocked = tokio::spawn(async move { first.unlock("k").await.unwrap() });
    lease.cancelled().await;
    assert_eq!(told.elapsed(), Duration::ZERO);
    assert!(lease.is_valid());
    // The grace is a sixth of 30 s.
    assert_eq!(job.join().await, JobEnd::Cancelled(Loss::Resigned));
    let stopped = told.elapsed();
    assert!(stopped >= SECOND * 5 && stopped < SECOND * 5 + SECOND / 50, "{stopped:?}");
    drop(next.await.unwrap());
    assert!(polls.last.lock().unwrap().unwrap() <= told + SECOND * 5);
    assert_eq!(unlocked.await.unwrap(), Unlocked::Released);
}

#[tokio::test(start_paused = true)]
async fn r9_no_poll_begins_after_the_end_also_of_a_job_that_wakes_itself() {
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    let polls = Arc::new(Polls::default());
    let given = polls.clone();
    let job = elect.lock("k", async move |_| restless(given).await).await.unwrap().running().unwrap();
    tokio::time::sleep(SECOND).await;
    unreachable(&faulty);
    let end = Instant::now() + job.lease().remaining();
    job.lease().cancelled().await;
    let warned = end.saturating_duration_since(Instant::now());
    assert!(
        warned >= (SECOND * 5).checked_sub(SECOND / 50).unwrap() && warned <= SECOND * 5 + SECOND / 50,
        "{warned:?}"
    );
    assert!(matches!(job.join().await, JobEnd::Cancelled(Loss::Expired { .. })));
    let last = polls.last.lock().unwrap().unwrap();
    assert!(last < end && last > end - SECOND / 10, "{:?}", end - last);
}

#[tokio::test(start_paused = true)]
async fn r9_a_machine_that_was_suspended_polls_no_old_job_once_more() {
    let world = World::new();
    let (elect, _) = world.instance("a").await;
    let polls = Arc::new(Polls::default());
    let given = polls.clone();
    let job = elect.lock("k", async move |_| restless(given).await).await.unwrap().running().unwrap();
    tokio::time::sleep(SECOND).await;
    let before = polls.many.load(Ordering::Relaxed);
    // tokio's timers have not noticed; the next one that fires finds another time.
    world.clock.suspend(SECOND * 60);
    assert!(!job.lease().is_valid());
    assert!(matches!(job.join().await, JobEnd::Cancelled(Loss::Expired { .. })));
    assert_eq!(polls.many.load(Ordering::Relaxed), before);
}

#[tokio::test(start_paused = true)]
async fn r10_an_answer_that_comes_after_the_end_is_no_lock() {
    let world = World::new();
    let (elect, faulty) = deaf(&world, "a").await;
    faulty.intercept().next(Operation::Take, Course { after: SECOND, ..Course::PLAIN });
    let ran = Arc::new(AtomicBool::new(false));
    let flag = ran.clone();
    let clock = world.clock.clone();
    let suspended = tokio::spawn(async move {
        tokio::time::sleep(SECOND / 2).await;
        clock.suspend(SECOND * 60);
    });
    let lock = elect.lock("k", async move |_| {
        flag.store(true, Ordering::Relaxed);
        Ok::<_, ()>(())
    });
    assert!(matches!(lock.await, Err(Error::NoSession { .. })));
    suspended.await.unwrap();
    tokio::time::sleep(SECOND * 5).await;
    assert!(!ran.load(Ordering::Relaxed));
    // Under a new session it is to be had: the old one is closed by its own instance.
    obedient(&elect, "k").await;
}

/// Instances whose hints are all lost.
async fn deaf(world: &World, holder: &str) -> (Elect, Arc<Intercepted<Faulty>>) {
    let rates = Rates { hint_lost: 1000, ..Rates::default() };
    let faulty = Faulty::seeded(1, rates).around(Arc::new(world.memory.clone()));
    let store: Arc<dyn Store> = faulty.clone();
    let builder = world.on(store, World::config(holder));
    (builder.start().await.unwrap(), faulty)
}

#[tokio::test(start_paused = true)]
async fn r11_the_answer_of_a_release_makes_nobody_a_holder() {
    let world = World::new();
    let (first, _) = deaf(&world, "a").await;
    let (second, faulty) = deaf(&world, "b").await;
    let guard = first.acquire("k").await.unwrap();
    let next = waits(&second, "k");
    tokio::time::sleep(SECOND).await;
    // The lock is handed over; no read is answered that would say so.
    faulty.intercept().always(&[Operation::Locks], Fault::RequestLost);
    guard.release().await.unwrap();
    tokio::time::sleep(SECOND * 3).await;
    assert!(!next.is_finished());
    faulty.intercept().heal();
    drop(next.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn r11_a_task_takes_over_from_another_of_its_instance_by_the_answer_of_a_take() {
    let world = World::new();
    let (elect, faulty) = deaf(&world, "a").await;
    let guard = elect.acquire("k").await.unwrap();
    let next = waits(&elect, "k");
    tokio::time::sleep(SECOND).await;
    let (term, before) = (guard.lease().term(), Instant::now());
    faulty.intercept().always(&[Operation::Locks, Operation::Release], Fault::RequestLost);
    guard.release().await.unwrap();
    let guard = next.await.unwrap();
    assert!(guard.lease().term() > term);
    assert_eq!(before.elapsed(), Duration::ZERO, "neither a read nor a release is needed");
}

#[tokio::test(start_paused = true)]
async fn r12_without_a_single_hint_everything_works_at_the_pace_of_polls() {
    let world = World::new();
    let (first, _) = deaf(&world, "a").await;
    let (second, _) = deaf(&world, "b").await;
    let guard = first.acquire("k").await.unwrap();
    let next = waits(&second, "k");
    tokio::time::sleep(SECOND).await;
    let before = Instant::now();
    guard.release().await.unwrap();
    let guard = next.await.unwrap();
    assert!(before.elapsed() <= SECOND * 6, "{:?}", before.elapsed());
    // An operator's request comes with the next beat.
    let lease = guard.lease();
    let request = tenure::store::Request {
        lock: lease.lock().clone(),
        term: lease.term(),
        by: "operator".parse().unwrap(),
        why: tenure::model::Why::shortened("maintenance"),
    };
    let session = session(&second);
    world.memory.revoke(Revocation::Ask { session, request }, LIMIT).await.unwrap();
    let before = Instant::now();
    assert!(matches!(guard.lost().await, Loss::Revoked { by, .. } if by.as_str() == "operator"));
    // A beat may be early by 2 % of the interval, and the next one not.
    assert!(before.elapsed() <= SECOND * 5 + SECOND / 10, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn r13_neither_a_panic_nor_a_failure_nor_a_lost_race_ends_a_campaign() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let held = second.acquire("k").await.unwrap();
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = turns.clone();
    let mut events = first.events();
    let campaign = first.campaign("k").run(move |lease: Lease| {
        let turn = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            match turn {
                0 => panic!("the first turn panics"),
                1 => Err("the second turn fails"),
                2 => Ok(()),
                _ => {
                    lease.cancelled().await;
                    Ok(())
                }
            }
        }
    });
    let campaign = campaign.unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!(turns.load(Ordering::Relaxed), 0);
    held.release().await.unwrap();
    let mut panicked = 0;
    let mut acquired = 0;
    while acquired < 4 {
        match events.next().await.unwrap() {
            Event::Acquired { .. } => acquired += 1,
            Event::Panicked { message, .. } => {
                assert_eq!(message, "the first turn panics");
                panicked += 1;
            }
            _ => {}
        }
    }
    assert_eq!(panicked, 1);
    assert!(campaign.led().await.unwrap().is_valid());
    campaign.stop().await;
    assert!(matches!(second.lock("k", async |_| Ok::<_, ()>(())).await.unwrap(), Locked::Running(_)));
}

#[tokio::test(start_paused = true)]
async fn r13_what_somebody_else_holds_is_no_error() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let _guard = first.acquire("k").await.unwrap();
    for _ in 0..100 {
        let answer = second.lock("k", async |_| Ok::<_, ()>(())).await.unwrap();
        assert!(matches!(answer, Locked::Busy(Busy::Held(held)) if held.holder.as_str() == "a"));
    }
}
