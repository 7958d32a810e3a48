//! A job that writes down when it was polled.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll::{Pending, Ready},
    time::Duration,
};

use tenure::{
    Clock, Lease, SystemClock,
    clock::Moment,
    model::{Key, Term},
};

/// Time by the clock that leases are counted by: the same in every process of the machine.
pub(crate) fn now() -> Moment {
    SystemClock::new().now()
}

/// Beginning of a poll of a job.
#[derive(Clone, Debug)]
pub(crate) struct Polled {
    pub(crate) key: Key,
    pub(crate) term: Term,
    pub(crate) at: Moment,
}

/// Behaviour of a job that is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Returns.
    Stops,
    /// Goes on until it is dropped.
    GoesOn,
}

/// The polls of all jobs of a test, as they began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Polls {
    polls: Arc<Mutex<Vec<Polled>>>,
}

impl Polls {
    pub(crate) fn all(&self) -> Vec<Polled> {
        self.polls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn of(&self, key: &str) -> Vec<Polled> {
        self.all().into_iter().filter(|poll| poll.key.as_str() == key).collect()
    }

    pub(crate) fn under(&self, key: &str, term: Term) -> Vec<Polled> {
        self.of(key).into_iter().filter(|poll| poll.term == term).collect()
    }

    /// A moment at which a job was surely allowed to run: that of its last poll but one. The clock was read
    /// between the two. The last poll itself may begin later than it was allowed, if its thread loses the
    /// processor in between.
    pub(crate) fn last_allowed(&self, key: &str, term: Term) -> Option<Moment> {
        self.under(key, term).iter().rev().nth(1).map(|poll| poll.at)
    }

    /// A job that is polled at this pace, and whenever else.
    pub(crate) fn job(
        &self,
        lease: Lease,
        pace: Duration,
        told: Told,
    ) -> impl Future<Output = Result<(), String>> + Send + use<> {
        let polls = self.clone();
        async move {
            let mut tick = tokio::time::interval(pace);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut cancelled = pin!(lease.cancelled());
            // A token that has fired is not asked again.
            let mut heard = false;
            poll_fn(|cx| {
                let poll = Polled { key: lease.key().clone(), term: lease.term(), at: now() };
                polls.polls.lock().unwrap_or_else(PoisonError::into_inner).push(poll);
                while tick.poll_tick(cx).is_ready() {}
                heard = heard || cancelled.as_mut().poll(cx).is_ready();
                if heard && told == Told::Stops { Ready(Ok(())) } else { Pending }
            })
            .await
        }
    }
}
