//! Events of an engine, and the streams that deliver them.

use std::{
    collections::VecDeque,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, Weak},
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, task::AtomicWaker};
use serde::Serialize;

use super::{HeldBy, wakes::Waking};
use crate::{
    logic::tick::NotRun,
    model::{Kind, LockId, Loss, Outcome, Rules, RunId, SessionId, StoreTime, Term},
    sync::locked,
};

/// Number of events that a slow reader may lag behind before it loses some.
const KEPT: usize = 1024;

/// Event of this instance.
///
/// Of every [`Acquired`](Self::Acquired) there follows one [`Released`](Self::Released) or one
/// [`Lost`](Self::Lost), never both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// A session was opened.
    SessionOpened {
        /// Id of the session.
        session: SessionId,
    },
    /// The session was lost. Everything that ran under it has been cancelled; another session is being
    /// opened.
    SessionLost {
        /// Id of the session.
        session: SessionId,
        /// Reason for the loss.
        loss: Loss,
    },
    /// The session was closed because the engine is closing.
    SessionClosed {
        /// Id of the session.
        session: SessionId,
    },
    /// A lock was acquired.
    Acquired {
        /// Lock that the event is about.
        lock: LockId,
        /// Term under which the lock is held.
        term: Term,
    },
    /// A lock was lost, or is about to be: the job was cancelled.
    Lost {
        /// Lock that the event is about.
        lock: LockId,
        /// Term under which the lock was held.
        term: Term,
        /// Reason for the loss.
        loss: Loss,
    },
    /// A lock was released, because the program is done with it.
    Released {
        /// Lock that the event is about.
        lock: LockId,
        /// Term under which the lock was held.
        term: Term,
    },
    /// A watched lock has a new holder, or none.
    NewLeader {
        /// Lock that the event is about.
        lock: LockId,
        /// New holder.
        leader: Option<HeldBy>,
    },
    /// A job kept running after its lease ended.
    Overran {
        /// Lock that the event is about.
        lock: LockId,
        /// Term under which the lock is held.
        term: Term,
        /// Time since the lease ended.
        #[serde(rename = "by_ms", serialize_with = "crate::model::serial::ms")]
        by: Duration,
    },
    /// No instance of a spread has room for a task.
    Waiting {
        /// Lock of the task.
        lock: LockId,
    },
    /// A task failed too often in a row here, or its last holders died: it is released, rests, and is then retried, on
    /// another instance if possible.
    Resting {
        /// Lock of the task.
        lock: LockId,
        /// Term under which the lock is held.
        term: Term,
        /// First failure or death of the row, by the store's clock.
        since: StoreTime,
        /// Number of times it was given up since then, or of holders that died.
        tries: u32,
        /// Last error of the task, or what is known of the deaths.
        error: String,
        /// Time until it is retried.
        #[serde(rename = "rest_ms", serialize_with = "crate::model::serial::ms")]
        rest: Duration,
    },
    /// An attempt at a tick of a schedule has ended, or none is made any more.
    Ran {
        /// The schedule's lock.
        lock: LockId,
        /// Tick, or requested run.
        run: RunId,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Outcome of the attempt.
        outcome: Outcome,
        /// Set if no other attempt at this tick follows: it succeeded, or has failed for good. An attempt
        /// that was cancelled and will be repeated, here or elsewhere, is not the last. Sent before it is on record: if
        /// this instance cannot write it, the next owner settles the run like one whose owner died.
        last: bool,
        /// Delay between the tick's instant and its start.
        #[serde(rename = "lateness_ms", serialize_with = "crate::model::serial::ms")]
        lateness: Duration,
        /// Duration of the attempt.
        #[serde(rename = "took_ms", serialize_with = "crate::model::serial::ms")]
        took: Duration,
        /// Error of the attempt.
        error: Option<String>,
    },
    /// Ticks of a schedule were skipped.
    NotRun {
        /// The schedule's lock.
        lock: LockId,
        /// The first of them.
        from: StoreTime,
        /// The last one.
        to: StoreTime,
        /// Number of ticks; 10,000 stands for that many or more.
        count: u64,
        /// Reason for skipping them.
        why: NotRun,
    },
    /// The timing of a schedule changed.
    Retimed {
        /// The schedule's lock.
        lock: LockId,
        /// New timing.
        timing: Rules,
    },
    /// A tick of a schedule is due, and no live instance has the schedule. Sent once for each first due tick,
    /// by the one instance that checks.
    Overdue {
        /// The schedule's lock.
        lock: LockId,
        /// The tick.
        due: StoreTime,
        /// Time since it was due.
        #[serde(rename = "by_ms", serialize_with = "crate::model::serial::ms")]
        by: Duration,
    },
    /// A job or a callback panicked.
    Panicked {
        /// Lock that the event is about.
        lock: LockId,
        /// Term under which the lock is held.
        term: Term,
        /// Message of the panic.
        message: String,
    },
    /// Events were dropped here because this reader was too slow.
    Missed {
        /// Number of them.
        count: u64,
    },
}

impl Event {
    /// Returns the lock that the event is about, if any.
    #[must_use]
    pub const fn lock(&self) -> Option<&LockId> {
        match self {
            Self::Acquired { lock, .. }
            | Self::Lost { lock, .. }
            | Self::Released { lock, .. }
            | Self::NewLeader { lock, .. }
            | Self::Overran { lock, .. }
            | Self::Waiting { lock }
            | Self::Resting { lock, .. }
            | Self::Ran { lock, .. }
            | Self::NotRun { lock, .. }
            | Self::Retimed { lock, .. }
            | Self::Overdue { lock, .. }
            | Self::Panicked { lock, .. } => Some(lock),
            Self::SessionOpened { .. }
            | Self::SessionLost { .. }
            | Self::SessionClosed { .. }
            | Self::Missed { .. } => None,
        }
    }
}

/// Stream of the events of an engine, or of one lock. Ends with the engine.
///
/// A reader that is too slow loses events, gets their number, and slows nothing down.
#[derive(Debug)]
pub struct EventStream {
    queue: Arc<EventQueue>,
}

impl EventStream {
    /// Returns the next event; `None` when the engine has ended.
    ///
    /// # Cancel safety
    /// No event is lost when this is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let next @ Poll::Ready(_) = locked(&self.queue.state).next() {
            return next;
        }
        // Under no mutex: its clone is code of others. Something may have come until it was there.
        self.queue.reader.register(cx.waker());
        let mut state = locked(&self.queue.state);
        let next = state.next();
        state.is_awaited = next.is_pending();
        next
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        // Here, and not with the last handle, which may be a sender's.
        drop(self.queue.reader.take());
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll(cx)
    }
}

/// Filter of a stream.
#[derive(Clone, Debug)]
pub(crate) enum EventFilter {
    All,
    /// Events of one lock.
    Lock(LockId),
    /// Events of all locks of a kind.
    Kind(Kind),
}

/// The events that a stream has not delivered yet.
#[derive(Debug, Default)]
struct EventQueue {
    state: Mutex<QueueState>,
    reader: AtomicWaker,
}

#[derive(Debug, Default)]
struct QueueState {
    events: VecDeque<Event>,
    /// Events that found no room since the last that did.
    missed: u64,
    /// True if the reader is to be woken.
    is_awaited: bool,
    has_ended: bool,
}

impl QueueState {
    fn add(&mut self, event: Event) {
        // Missed events are reported where they were left out.
        if self.missed > 0 && self.events.len() < KEPT {
            self.events.push_back(Event::Missed { count: mem::take(&mut self.missed) });
        }
        if self.missed == 0 && self.events.len() < KEPT {
            self.events.push_back(event);
        } else {
            self.missed += 1;
        }
    }

    fn next(&mut self) -> Poll<Option<Event>> {
        if let Some(event) = self.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        match mem::take(&mut self.missed) {
            0 if self.has_ended => Poll::Ready(None),
            0 => Poll::Pending,
            count => Poll::Ready(Some(Event::Missed { count })),
        }
    }
}

/// Registry of the streams.
#[derive(Debug)]
pub(crate) struct Events {
    /// `None` once the engine has ended.
    listeners: Mutex<Option<Vec<EventListener>>>,
    waking: Waking,
}

#[derive(Debug)]
struct EventListener {
    only: EventFilter,
    queue: Weak<EventQueue>,
}

impl Events {
    pub(crate) fn new(waking: Waking) -> Self {
        Self { listeners: Mutex::new(Some(Vec::new())), waking }
    }

    pub(crate) fn listen(&self, only: EventFilter) -> EventStream {
        let queue: Arc<EventQueue> = Arc::default();
        if let Some(listeners) = &mut *locked(&self.listeners) {
            // A listener that is gone may wait for an event of a lock that never comes.
            listeners.retain(|listener| listener.queue.strong_count() > 0);
            listeners.push(EventListener { only, queue: Arc::downgrade(&queue) });
        } else {
            locked(&queue.state).has_ended = true;
        }
        EventStream { queue }
    }

    /// Sends an event to every stream, without waiting.
    #[expect(clippy::needless_pass_by_value, reason = "an event is made to be sent")]
    pub(crate) fn send(&self, event: Event) {
        let mut awaited = Vec::new();
        if let Some(listeners) = &mut *locked(&self.listeners) {
            listeners.retain(|listener| {
                let Some(queue) = listener.queue.upgrade() else { return false };
                if listener.only.wants(&event) && queue.change(|state| state.add(event.clone())) {
                    awaited.push(queue);
                }
                true
            });
        }
        self.wake(awaited);
    }

    /// Ends every stream, as the engine has ended.
    pub(crate) fn end(&self) {
        let listeners = locked(&self.listeners).take().into_iter().flatten();
        let queues = listeners.filter_map(|listener| listener.queue.upgrade());
        self.wake(queues.filter(|queue| queue.change(|state| state.has_ended = true)).collect());
    }

    fn wake(&self, awaited: Vec<Arc<EventQueue>>) {
        for queue in awaited {
            self.waking.wake(move || queue.reader.wake());
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.end();
    }
}

impl EventQueue {
    /// Returns whether the reader is to be woken.
    fn change(&self, change: impl FnOnce(&mut QueueState)) -> bool {
        let mut state = locked(&self.state);
        change(&mut state);
        mem::take(&mut state.is_awaited)
    }
}

impl EventFilter {
    fn wants(&self, event: &Event) -> bool {
        match self {
            Self::All => true,
            Self::Lock(lock) => event.lock() == Some(lock),
            Self::Kind(kind) => event.lock().is_some_and(|lock| lock.kind == *kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u128) -> Event {
        Event::SessionOpened { session: SessionId::from_u128(number) }
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_how_many_it_missed_and_where() {
        let events = Events::new(Waking::Here);
        let mut stream = events.listen(EventFilter::All);
        for number in 0..KEPT as u128 + 10 {
            events.send(event(number));
        }
        for number in 0..KEPT as u128 {
            assert_eq!(stream.next().await, Some(event(number)));
        }
        events.send(event(7777));
        assert_eq!(stream.next().await, Some(Event::Missed { count: 10 }));
        assert_eq!(stream.next().await, Some(event(7777)));
        events.end();
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test]
    async fn a_reader_that_caught_up_is_told_without_another_event() {
        let events = Events::new(Waking::Here);
        let mut stream = events.listen(EventFilter::All);
        for number in 0..KEPT as u128 + 3 {
            events.send(event(number));
        }
        for _ in 0..KEPT {
            stream.next().await;
        }
        assert_eq!(stream.next().await, Some(Event::Missed { count: 3 }));
    }

    fn lock(key: &str) -> LockId {
        LockId { namespace: "n".parse().unwrap(), kind: Kind::Lock, key: key.parse().unwrap() }
    }

    fn listeners(events: &Events) -> usize {
        events.listeners.lock().unwrap().as_ref().unwrap().len()
    }

    #[test]
    fn dropped_listeners_are_forgotten_at_the_next_event_of_anything() {
        let events = Events::new(Waking::Here);
        let stays = events.listen(EventFilter::Lock(lock("stays")));
        let gone: Vec<_> =
            (0..1000).map(|number| events.listen(EventFilter::Lock(lock(&number.to_string())))).collect();
        drop(gone);
        events.send(event(1));
        assert_eq!(listeners(&events), 1);
        drop(stays);
    }

    #[test]
    fn dropped_listeners_leave_nothing_behind_even_without_an_event() {
        let events = Events::new(Waking::Here);
        for number in 0..1000 {
            drop(events.listen(EventFilter::Lock(lock(&number.to_string()))));
        }
        assert!(listeners(&events) <= 1, "{}", listeners(&events));
    }

    #[tokio::test]
    async fn a_reader_of_one_lock_hears_of_no_other() {
        let acquired = |key| Event::Acquired { lock: lock(key), term: Term::new(1) };
        let events = Events::new(Waking::Here);
        let mut stream = events.listen(EventFilter::Lock(lock("a")));
        for reported in [event(1), acquired("b"), acquired("a")] {
            events.send(reported);
        }
        assert_eq!(stream.next().await, Some(acquired("a")));
    }
}
