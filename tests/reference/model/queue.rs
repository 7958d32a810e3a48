use tenure::{
    model::{LockId, SessionId, StoreTime},
    store::{Candidate, Queue, Ticket, Wait},
};

use super::{Check, Life, Model, Once, ensure};

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) lock: LockId,
    pub(crate) by: Candidate,
    since: Once<StoreTime>,
}

impl Place {
    fn is(&self, lock: &LockId, session: SessionId, ticket: Ticket) -> bool {
        self.lock == *lock && self.by.session == session && self.by.ticket == ticket
    }
}

impl Model {
    pub(crate) fn wait(&mut self, wait: &Wait) {
        let Wait { lock, by } = wait;
        if lock.kind.to_string() == "lock"
            && let Some(held) = self.locks.get_mut(lock)
        {
            held.wanted |= held.holder().is_some();
        }
        if !self.queue.iter().any(|place| place.is(lock, by.session, by.ticket)) {
            self.queue.push(Place { lock: lock.clone(), by: by.clone(), since: Once::default() });
        }
    }

    pub(crate) fn stop_waiting(&mut self, (lock, session, ticket): &(LockId, SessionId, Ticket)) {
        self.queue.retain(|place| !place.is(lock, *session, *ticket));
    }

    /// Removes the places of dead sessions.
    pub(crate) fn leave_the_dead(&mut self) {
        let lives = &self.lives;
        self.queue.retain(|place| !lives.get(&place.by.session).is_some_and(Life::is_dead));
    }

    /// Every place in the queue, looked for in the queues of all these locks: in order, and whether it is there.
    pub(crate) fn places(&self, locks: &[LockId]) -> Vec<((LockId, SessionId, Ticket), bool)> {
        let tickets = self.queue.iter().map(|place| (place.by.session, place.by.ticket));
        let each = tickets.flat_map(|(session, ticket)| {
            locks.iter().map(move |lock| {
                let stands = self.queue.iter().any(|place| place.is(lock, session, ticket));
                ((lock.clone(), session, ticket), stands)
            })
        });
        each.collect()
    }

    /// The whole queue, or the first `at_most` of it.
    pub(crate) fn queue_seen(&mut self, lock: &LockId, at_most: usize, seen: &Queue) -> Check {
        let mut places: Vec<_> = self.queue.iter_mut().filter(|place| place.lock == *lock).collect();
        let length = places.len().min(at_most);
        let whole = places.len() < at_most;
        ensure!(seen.whole == whole, "of {} places, {at_most} were asked for: {seen:?}", places.len());
        let seen = &seen.waiters[..];
        ensure!(seen.len() == length, "{length} must be read of the queue, not {seen:?}");
        let rising = seen.is_sorted_by(|one, next| one.since <= next.since);
        ensure!(rising, "the longest wait must come first: {seen:?}");
        for waiter in seen {
            ensure!(waiter.lock == *lock, "a waiter for {lock}, not {waiter:?}");
            let by = &waiter.by;
            let place = places.iter().position(|place| place.is(lock, by.session, by.ticket));
            let Some(place) = place else { return Err(format!("nobody stands there twice: {waiter:?}")) };
            let place = places.swap_remove(place);
            ensure!(place.by == waiter.by, "it waits as {:?}, not as {waiter:?}", place.by);
            place.since.meet("the beginning of a wait", &waiter.since)?;
        }
        let Some(last) = seen.last().map(|waiter| waiter.since) else { return Ok(()) };
        let passed = places.iter().find(|place| place.since.get().is_some_and(|since| *since < last));
        ensure!(passed.is_none(), "{passed:?} waited longer and was passed over");
        Ok(())
    }
}
