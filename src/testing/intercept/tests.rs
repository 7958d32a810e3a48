use std::future::Future;

use futures::StreamExt;
use tokio::{sync::watch, time::Instant};

use super::*;
use crate::{
    model::{Holder, Namespace},
    store::{About, Beat, BeatWrite, MemoryStore, Nonce, Open, Share, StoreExt, Topic},
};

const LIMIT: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);

fn id() -> SessionId {
    SessionId::from_u128(1)
}

fn opening() -> Open {
    let about = About::new(Namespace::new("tests").unwrap(), Holder::new("pod-1").unwrap());
    Open { session: id(), nonce: Nonce::new(1), about, ttl: LIMIT, shares: Vec::new(), drained: None }
}

fn beat(number: u64) -> BeatWrite {
    BeatWrite::new(id(), Beat::new(number), Nonce::new(100 + number))
}

/// Number of the beat on record; nothing if the session was never opened.
async fn last_beat(store: &MemoryStore) -> Option<u64> {
    let seen = store.observe(vec![id()], LIMIT).await.unwrap();
    seen[0].record().map(|record| record.beat.get())
}

#[expect(clippy::disallowed_methods, reason = "measures the tests' own time, which stands still")]
async fn timed<T>(call: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let answer = call.await;
    (answer, start.elapsed())
}

/// A faulty store around one in which a session is open.
async fn opened() -> (MemoryStore, Arc<Intercepted<Faulty>>) {
    let inner = MemoryStore::default();
    inner.open(opening(), LIMIT).await.unwrap();
    (inner.clone(), Faulty::default().around(Arc::new(inner)))
}

#[tokio::test(start_paused = true)]
async fn faults_apply_and_answer_as_they_say() {
    // fault, is it applied, what the caller is told, when
    let table = [
        (Fault::Refused, false, Some(Applied::No), Duration::ZERO),
        (Fault::Forbidden, false, Some(Applied::No), Duration::ZERO),
        (Fault::RequestLost, false, Some(Applied::Unknown), Duration::ZERO),
        (Fault::AnswerLost, true, Some(Applied::Unknown), Duration::ZERO),
        (Fault::Swallowed, false, Some(Applied::Unknown), LIMIT),
        (Fault::Hang, true, Some(Applied::Unknown), LIMIT),
        (Fault::Twice, true, None, Duration::ZERO),
        (Fault::Echo(SECOND), true, None, Duration::ZERO),
    ];
    for (fault, applied, told, when) in table {
        let (inner, faulty) = opened().await;
        faulty.intercept().next(Operation::Beat, fault);
        let (answer, took) = timed(faulty.beat(beat(1), LIMIT)).await;
        assert_eq!(answer.as_ref().err().map(StoreError::applied), told, "{fault:?}");
        assert_eq!(took, when, "{fault:?}");
        assert_eq!(last_beat(&inner).await, Some(u64::from(applied)), "{fault:?}");
        if let Ok(seen) = answer {
            assert!(seen.bears(beat(1).nonce), "{fault:?}: sent twice, it is recognised");
        }
        assert_eq!(faulty.intercept().to_come(), 0);
        assert!(faulty.beat(beat(2), LIMIT).await.is_ok(), "the call after {fault:?} goes through");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_names_the_store_and_what_it_was_doing() {
    let (_, faulty) = opened().await;
    faulty.intercept().next(Operation::Beat, Fault::Refused);
    let error = faulty.beat(beat(1), LIMIT).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "memory could not renew a session, nothing was changed: refused on purpose"
    );
    assert!(error.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_late_is_applied_after_its_caller_has_given_up() {
    let (inner, faulty) = opened().await;
    faulty.intercept().next(Operation::Beat, Course::PLAIN.late_by(LIMIT * 2));
    let (answer, took) = timed(faulty.beat(beat(1), LIMIT)).await;
    assert_eq!((answer.unwrap_err().applied(), took), (Applied::Unknown, LIMIT));
    assert_eq!(last_beat(&inner).await, Some(0));
    tokio::time::sleep(LIMIT + SECOND).await;
    assert_eq!(last_beat(&inner).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_late_is_applied_after_its_caller_has_dropped_it() {
    let (inner, faulty) = opened().await;
    faulty.intercept().next(Operation::Beat, Course::PLAIN.late_by(SECOND));
    tokio::select! {
        biased;
        _ = faulty.beat(beat(1), LIMIT) => panic!("it is late"),
        () = tokio::task::yield_now() => {}
    }
    tokio::time::sleep(LIMIT).await;
    assert_eq!(last_beat(&inner).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_an_answer_within_the_limit_only() {
    let (inner, faulty) = opened().await;
    faulty.intercept().next(Operation::Beat, Course::PLAIN.answered_after(SECOND));
    faulty.intercept().next(Operation::Beat, Course::PLAIN.answered_after(LIMIT + SECOND));
    let (answer, took) = timed(faulty.beat(beat(1), LIMIT)).await;
    assert!(answer.is_ok() && took == SECOND);
    let (answer, took) = timed(faulty.beat(beat(2), LIMIT)).await;
    assert!(answer.is_err() && took == LIMIT);
    assert_eq!(last_beat(&inner).await, Some(2));
}

fn shares() -> Vec<Share> {
    vec![Share::new("import".parse().unwrap())]
}

/// Topics of a listener that hears of the members of a spread.
fn of_members() -> Topics {
    let spread = shares().remove(0).spread;
    watch::channel([Topic::Spread(opening().about.namespace, spread)].into()).1
}

#[tokio::test(start_paused = true)]
async fn an_echo_arrives_once_more_and_finds_what_came_in_between() {
    let (inner, faulty) = opened().await;
    faulty.intercept().next(Operation::Open, Fault::Echo(SECOND));
    let other = Open { session: SessionId::from_u128(2), shares: shares(), ..opening() };
    faulty.open(other.clone(), LIMIT).await.unwrap();
    let mut hints = inner.hints(of_members());
    assert_eq!(hints.next().await, Some(Hint::Resync));
    tokio::time::sleep(LIMIT).await;
    let seen = inner.open(other, LIMIT).await.unwrap();
    assert!(seen.bears(Nonce::new(1)));
    assert_eq!(hints.next().now_or_never(), None, "the echo opened nothing new");
}

#[tokio::test(start_paused = true)]
async fn a_store_is_out_of_reach_until_it_heals() {
    let (inner, faulty) = opened().await;
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    for number in 1..4 {
        let (answer, took) = timed(faulty.beat(beat(number), LIMIT)).await;
        assert!(answer.is_err() && took == LIMIT);
    }
    assert_eq!(last_beat(&inner).await, Some(0));
    faulty.intercept().heal();
    assert!(faulty.beat(beat(4), LIMIT).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn chance_follows_from_the_seed_alone() {
    let call = |operation| Call { operation, keys: 1, limit: LIMIT };
    let courses = |faulty: &Faulty, operation| -> Vec<Course> {
        (0..500).map(|_| faulty.decide(&call(operation))).collect()
    };
    let [one, same, other] = [7, 7, 8].map(|seed| Faulty::seeded(seed, Rates::of_each(50)));
    let takes = courses(&one, Operation::Take);
    // In between, and before: what other operations do does not matter.
    courses(&same, Operation::Beat);
    same.next(Operation::Take, Fault::Hang);
    let again = courses(&same, Operation::Take);
    assert_eq!(again[0], Fault::Hang.into());
    assert_eq!(takes[1..], again[1..]);
    assert_ne!(takes, courses(&other, Operation::Take));
    assert_ne!(takes, courses(&one, Operation::Beat));
    let faults = takes.iter().filter(|course| course.fault.is_some()).count();
    assert!((100..250).contains(&faults), "seven kinds at 5 % each are 175 of 500, not {faults}");
    let waits = takes.iter().filter(|course| !course.before.is_zero()).count();
    assert!((5..60).contains(&waits), "5 % are 25 of 500, not {waits}");
}

#[tokio::test(start_paused = true)]
async fn hints_are_lost_doubled_and_late_as_the_seed_says() {
    let hear = |rates, count| async move {
        let inner = MemoryStore::default();
        let store = Faulty::seeded(3, rates).around(Arc::new(inner.clone()));
        let mut hints = store.hints(of_members());
        for number in 0..count {
            let open = Open { session: SessionId::from_u128(number), shares: shares(), ..opening() };
            inner.open(open, LIMIT).await.unwrap();
        }
        let mut heard = Vec::new();
        while let Ok(Some(hint)) = tokio::time::timeout(10 * SECOND, hints.next()).await {
            heard.push(hint);
        }
        heard
    };
    let all = hear(Rates::default(), 200).await;
    assert_eq!((all.len(), &all[0]), (201, &Hint::Resync));
    assert_eq!(hear(Rates { hint_lost: 1000, ..Rates::default() }, 200).await, [Hint::Resync]);
    assert_eq!(hear(Rates { hint_doubled: 1000, ..Rates::default() }, 200).await.len(), 402);
    let late = Rates { hint_late: 1000, longest: SECOND, ..Rates::default() };
    assert_eq!(hear(late, 200).await, all, "late, they keep their order");
    let some = hear(Rates { hint_lost: 500, ..Rates::default() }, 200).await;
    assert!((60..140).contains(&some.len()), "half of 200, not {}", some.len());
    assert_eq!(some, hear(Rates { hint_lost: 500, ..Rates::default() }, 200).await);
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_gives_up_at_the_callers_limit_and_applies_nevertheless() {
    let inner = MemoryStore::default();
    let slow = Slow { before: SECOND, after: 2 * SECOND }.around(Arc::new(inner.clone()));
    let (answer, took) = timed(slow.open(opening(), 10 * SECOND)).await;
    assert!(answer.is_ok() && took == 3 * SECOND);
    let (answer, took) = timed(slow.beat(beat(1), LIMIT)).await;
    assert_eq!((answer.unwrap_err().applied(), took), (Applied::Unknown, LIMIT));
    assert_eq!(last_beat(&inner).await, Some(1));
}

#[tokio::test]
async fn counts_are_kept_for_each_operation_with_its_keys() {
    let store = Counting::default().around(Arc::new(MemoryStore::default()));
    store.open(opening(), LIMIT).await.unwrap();
    let before = store.intercept().counts();
    store.observe(vec![id(); 3], LIMIT).await.unwrap();
    store.observe(vec![id()], LIMIT).await.unwrap();
    store.beat(beat(1), LIMIT).await.unwrap();
    drop(store.beat(beat(2), LIMIT)); // Never polled, so never sent.
    let made = store.intercept().counts() - before;
    assert_eq!((made.calls(Operation::Observe), made.keys(Operation::Observe)), (2, 4));
    assert_eq!((made.calls(Operation::Beat), made.keys(Operation::Beat)), (1, 1));
    assert_eq!((made.calls(Operation::Open), made.total(), made.writes()), (0, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn wrappers_wrap_wrappers() {
    let counting = Counting::default().around(Arc::new(MemoryStore::default()));
    let faulty = Faulty::default().around(counting.clone());
    let store = Slow { before: SECOND, after: Duration::ZERO }.around(faulty.clone());
    faulty.intercept().next(Operation::Open, Fault::Twice);
    store.open(opening(), LIMIT).await.unwrap();
    assert_eq!(counting.intercept().counts().calls(Operation::Open), 2);
    assert_eq!(store.capabilities().name, "memory");
}

#[tokio::test]
async fn a_store_around_one_without_a_dedicated_store_has_none_either() {
    let store = Counting::default().around(Arc::new(MemoryStore::default()));
    assert!(store.dedicated().await.unwrap().is_none());
}
