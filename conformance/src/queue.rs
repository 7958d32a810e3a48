//! The queue: first come, first served, and it decides nothing.

use crate::fixture::{Fixture, LIMIT, eventually, sure};
use tenure::{
    model::{LockId, StoreTime},
    store::{Candidate, LockSeen, StoreExt, Wait, Waiter},
};

async fn stand(fixture: &Fixture, lock: &LockId, by: &Candidate) {
    let wait = Wait { lock: lock.clone(), by: by.clone() };
    sure(fixture.store().wait(vec![wait], LIMIT)).await;
}

async fn leave(fixture: &Fixture, lock: &LockId, by: &Candidate) {
    let place = (lock.clone(), by.session, by.ticket);
    sure(fixture.store().stop_waiting(vec![place], LIMIT)).await;
}

async fn queue(fixture: &Fixture, lock: &LockId) -> Vec<Waiter> {
    let queue = sure(fixture.store().waiters(lock.clone(), 100, LIMIT)).await;
    assert!(queue.whole, "fewer stand there than were asked for");
    queue.waiters
}

/// Time at which it joined.
async fn since(fixture: &Fixture, lock: &LockId, by: &Candidate) -> Option<StoreTime> {
    let queue = queue(fixture, lock).await;
    queue.iter().find(|waiter| waiter.by == *by).map(|waiter| waiter.since)
}

/// Joins the queue so that the store's clock has gone on since the one before came.
async fn stand_after(fixture: &Fixture, lock: &LockId, by: &Candidate, before: Option<&Candidate>) {
    let before = match before {
        Some(before) => since(fixture, lock, before).await,
        None => None,
    };
    eventually("the store's clock goes on", async || {
        stand(fixture, lock, by).await;
        let came = since(fixture, lock, by).await;
        if came <= before {
            leave(fixture, lock, by).await;
        }
        (came > before).then_some(())
    })
    .await;
}

/// A queue of that many, each after the one before.
async fn queue_of(fixture: &Fixture, lock: &LockId, many: u64) -> Vec<Candidate> {
    let mut queue: Vec<Candidate> = Vec::new();
    for ticket in 1..=many {
        let by = fixture.talkative(fixture.session(), ticket);
        stand_after(fixture, lock, &by, queue.last()).await;
        queue.push(by);
    }
    queue
}

fn names(queue: Vec<Waiter>) -> Vec<Candidate> {
    queue.into_iter().map(|waiter| waiter.by).collect()
}

/// Each with all it said, longest wait first.
pub async fn waiters_stand_in_the_order_they_came(fixture: &Fixture) {
    let lock = fixture.lock("report");
    assert_eq!(queue(fixture, &lock).await, [], "nobody waits for a lock nobody knows");
    let came = queue_of(fixture, &lock, 4).await;
    let stand = queue(fixture, &lock).await;
    assert!(stand.iter().all(|waiter| waiter.lock == lock));
    assert!(stand.is_sorted_by(|one, next| one.since < next.since), "longest wait first: {stand:?}");
    assert_eq!(names(stand), came, "each must stand in the queue with all it said");
}

/// The first ones, not any.
pub async fn only_so_many_waiters_are_read(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let came = queue_of(fixture, &lock, 3).await;
    for at_most in 1..=4 {
        let first = sure(fixture.store().waiters(lock.clone(), at_most, LIMIT)).await;
        assert_eq!(first.whole, at_most == 4, "of 3 who stand there, {at_most} were asked for");
        assert_eq!(names(first.waiters), came[..at_most.min(3)], "the first {at_most} must be read");
    }
}

/// Each by lock, session and ticket together.
pub async fn places_are_found_in_the_order_asked_for(fixture: &Fixture) {
    let [lock, other] = ["report", "other"].map(|key| fixture.lock(key));
    let came = queue_of(fixture, &lock, 2).await;
    stand(fixture, &other, &came[1]).await;
    let nobody = fixture.candidate(fixture.session(), 1);
    let asked = [
        (&other, &came[1], came[1].ticket, true),
        (&lock, &came[0], came[0].ticket, true),
        (&other, &came[0], came[0].ticket, false),
        (&lock, &nobody, nobody.ticket, false),
        (&lock, &came[0], came[1].ticket, false),
        (&lock, &came[1], came[1].ticket, true),
        (&other, &came[1], came[1].ticket, true),
    ];
    let places = asked.map(|(lock, by, ticket, _)| (lock.clone(), by.session, ticket));
    let stand = sure(fixture.store().places(places.to_vec(), LIMIT)).await;
    assert_eq!(stand, asked.map(|(.., stands)| stands), "of {places:#?}");
    leave(fixture, &lock, &came[0]).await;
    let stand = sure(fixture.store().places(places[..2].to_vec(), LIMIT)).await;
    assert_eq!(stand, [true, false], "whoever left stands there no more");
}

/// Sent again, by a retry or out of impatience, it is the same place.
pub async fn an_entry_that_is_there_keeps_its_place(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let came = queue_of(fixture, &lock, 3).await;
    let before = queue(fixture, &lock).await;
    for by in &came {
        stand(fixture, &lock, by).await;
    }
    let twice = vec![Wait { lock: lock.clone(), by: came[0].clone() }; 2];
    sure(fixture.store().wait(twice, LIMIT)).await;
    assert_eq!(queue(fixture, &lock).await, before, "joining the queue again must change nothing");
}

/// A ticket has one place: a session that has two tickets for a lock is in the queue twice.
pub async fn each_ticket_of_a_session_has_its_place(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let session = fixture.session();
    let [first, second] = [9, 3].map(|ticket| fixture.candidate(session, ticket));
    stand(fixture, &lock, &first).await;
    stand_after(fixture, &lock, &second, Some(&first)).await;
    assert_eq!(names(queue(fixture, &lock).await), [first.clone(), second.clone()]);
    leave(fixture, &lock, &first).await;
    assert_eq!(names(queue(fixture, &lock).await), [second], "only the ticket that left must leave");
}

/// Places in the queue are given up, whether or not others named beside them exist.
pub async fn leaving_passes_over_those_who_do_not_stand_there(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let other = fixture.lock("other");
    let came = queue_of(fixture, &lock, 3).await;
    stand(fixture, &other, &came[1]).await;
    let nobody = fixture.candidate(fixture.session(), 1);
    let ticket = |ticket| tenure::store::Ticket::new(ticket);
    let places = vec![
        (lock.clone(), nobody.session, nobody.ticket),
        (fixture.lock("never waited for"), came[0].session, came[0].ticket),
        (lock.clone(), came[0].session, ticket(77)),
        (lock.clone(), came[1].session, came[1].ticket),
        (lock.clone(), nobody.session, came[2].ticket),
    ];
    for _ in 0..2 {
        sure(fixture.store().stop_waiting(places.clone(), LIMIT)).await;
        let left = names(queue(fixture, &lock).await);
        assert_eq!(left, [came[0].clone(), came[2].clone()], "one of them stood there");
    }
    assert_eq!(names(queue(fixture, &other).await), [came[1].clone()], "a place in another queue stays");
}

/// A session that left and comes again is at the end.
pub async fn a_waiter_that_comes_again_stands_at_the_end(fixture: &Fixture) {
    let lock = fixture.lock("report");
    let came = queue_of(fixture, &lock, 2).await;
    leave(fixture, &lock, &came[0]).await;
    stand_after(fixture, &lock, &came[0], Some(&came[1])).await;
    assert_eq!(names(queue(fixture, &lock).await), [came[1].clone(), came[0].clone()]);
}

/// In one call, for as many locks as an instance waits for.
pub async fn a_batch_stands_in_many_queues(fixture: &Fixture) {
    let locks: Vec<_> = (0..50).map(|number| fixture.lock(&format!("key {number}"))).collect();
    let by = fixture.talkative(fixture.session(), 1);
    let waits = locks.iter().map(|lock| Wait { lock: lock.clone(), by: by.clone() });
    sure(fixture.store().wait(waits.collect(), LIMIT)).await;
    for lock in &locks {
        let queue = names(queue(fixture, lock).await);
        assert_eq!(queue, std::slice::from_ref(&by), "it must stand in the queue of {lock}");
    }
    let places = locks.iter().map(|lock| (lock.clone(), by.session, by.ticket));
    sure(fixture.store().stop_waiting(places.collect(), LIMIT)).await;
    for lock in &locks {
        assert_eq!(queue(fixture, lock).await, []);
    }
}

/// Writes of waiters do not touch the lock: neither its record, nor that it has none.
pub async fn waiting_marks_the_lock_and_changes_nothing_else(fixture: &Fixture) {
    let [held, absent] = ["held", "absent"].map(|key| fixture.lock(key));
    let record = fixture.taken(&held, &fixture.talkative(fixture.session(), 1)).await;
    for lock in [&held, &absent] {
        queue_of(fixture, lock, 2).await;
    }
    fixture.settle().await;
    assert_eq!(with!(fixture.record(&held).await; wanted: false), record);
    let task = fixture.task("import", "orders");
    let record = fixture.taken(&task, &fixture.talkative(fixture.session(), 1)).await;
    queue_of(fixture, &task, 2).await;
    fixture.settle().await;
    assert_eq!(fixture.record(&task).await, record, "the members of a spread hear of those who wait");
    assert_eq!(fixture.look(&absent).await, LockSeen::Absent, "waiting must make no record");
    let taker = fixture.candidate(fixture.session(), 1);
    assert_eq!(
        fixture.taken(&absent, &taker).await.past,
        [],
        "a queue decides nothing: a free lock is taken"
    );
    assert_eq!(queue(fixture, &absent).await.len(), 2, "and the queue stays as it was");
}
