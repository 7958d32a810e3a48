//! Waits with an end: what they answer when their time is over.

use std::time::Duration;

use tenure::{
    Error,
    testing::{Course, Fault, Operation},
};
use tokio::time::Instant;

use crate::elect::world::{SECOND, World};

#[tokio::test(start_paused = true)]
async fn a_free_key_is_granted_in_no_time_at_all_however_slow_the_store_is() {
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    faulty.intercept().always(&[Operation::Take], Course::PLAIN.late_by(SECOND / 10));
    assert!(elect.key("k").acquire_within(Duration::ZERO).await.unwrap().is_some());
    assert!(elect.key("l").acquire_within(SECOND / 50).await.unwrap().is_some());
    assert!(elect.acquire_all(["m", "n"], Duration::ZERO).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_while_the_store_is_away_is_an_error_and_nobody_is_said_to_hold_the_key() {
    for away in [Fault::Refused, Fault::Swallowed] {
        let world = World::new();
        let (elect, faulty) = world.instance("a").await;
        let (other, _) = world.instance("b").await;
        let held = other.acquire("held").await.unwrap();
        faulty.intercept().always(Operation::ALL, away);
        for time in [Duration::ZERO, SECOND, SECOND * 12] {
            let before = Instant::now();
            let waits = elect.key("free").acquire_within(time).await;
            assert!(
                matches!(waits, Err(Error::Store(_) | Error::NoSession { .. })),
                "{away:?} {time:?}: {waits:?}"
            );
            assert!(before.elapsed() < time + SECOND * 8, "{away:?} {time:?}: {:?}", before.elapsed());
            let all = elect.acquire_all(["free", "other"], time).await;
            assert!(all.is_err_and(|error| error.is_retryable()), "{away:?} {time:?}");
        }
        faulty.intercept().heal();
        assert!(elect.key("free").acquire_within(SECOND * 30).await.unwrap().is_some());
        // Held when it was asked for; whether it is at the end is not known.
        let waits = elect.key("held").acquire_within(SECOND * 15);
        let goes = async {
            tokio::time::sleep(SECOND).await;
            faulty.intercept().always(Operation::ALL, away);
        };
        let (waits, ()) = tokio::join!(waits, goes);
        assert!(matches!(waits, Err(Error::Store(_))), "{away:?}: {waits:?}");
        drop(held);
    }
}

#[tokio::test(start_paused = true)]
async fn two_waits_of_one_instance_are_both_told_that_the_store_is_away() {
    let world = World::new();
    let (elect, faulty) = world.instance("a").await;
    faulty.intercept().always(Operation::ALL, Fault::Refused);
    let wait = |time| elect.key("k").acquire_within(time);
    let (first, second) = tokio::join!(wait(SECOND), wait(SECOND * 2));
    for waits in [first, second] {
        assert!(matches!(waits, Err(Error::Store(_))), "{waits:?}");
    }
}
