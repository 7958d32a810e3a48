//! What happens, for whoever wants to know.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use tokio::sync::mpsc;

use super::HeldBy;
use crate::{
    logic::tick::NotRun,
    model::{Kind, LockId, Loss, Outcome, Rules, RunId, SessionId, StoreTime, Term},
    sync::locked,
};

/// How many events a slow reader may lag behind before it loses some.
const KEPT: usize = 1024;

/// Something happened to this engine.
///
/// Of every [`Acquired`](Self::Acquired) there follows one [`Released`](Self::Released) or one
/// [`Lost`](Self::Lost), never both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It has a session.
    SessionOpened {
        /// Which.
        session: SessionId,
    },
    /// Its session was lost. Everything that ran under it has been told; another is being opened.
    SessionLost {
        /// Which.
        session: SessionId,
        /// Why.
        loss: Loss,
    },
    /// Its session is over because the engine closes, as the program wanted.
    SessionClosed {
        /// Which.
        session: SessionId,
    },
    /// It holds a lock.
    Acquired {
        /// Which.
        lock: LockId,
        /// Under which term.
        term: Term,
    },
    /// A lock was lost, or is about to be: the job was told to stop.
    Lost {
        /// Which.
        lock: LockId,
        /// Under which term it was held.
        term: Term,
        /// Why.
        loss: Loss,
    },
    /// A lock is given back, because the program is done with it.
    Released {
        /// Which.
        lock: LockId,
        /// Under which term it was held.
        term: Term,
    },
    /// A lock that is watched has a new holder, or none.
    NewLeader {
        /// Which lock.
        lock: LockId,
        /// Who holds it.
        leader: Option<HeldBy>,
    },
    /// A job went on after its lease had ended.
    Overran {
        /// Which lock's.
        lock: LockId,
        /// Under which term.
        term: Term,
        /// For how long.
        by: Duration,
    },
    /// Nobody of a spread has room for a task.
    Waiting {
        /// Which task.
        lock: LockId,
    },
    /// A task failed too often in a row here: it is given back, rests, and is then tried again, elsewhere if
    /// somebody else can.
    Quarantined {
        /// Which task.
        lock: LockId,
        /// Under which term.
        term: Term,
        /// When it failed first, of all the failures in a row, by the store's clock.
        since: StoreTime,
        /// How many instances gave it up since then, one after the other.
        tries: u32,
        /// What it said last.
        error: String,
        /// How long it rests.
        rest: Duration,
    },
    /// An attempt at a tick of a schedule has ended, or nobody makes it.
    Ran {
        /// The schedule's lock.
        lock: LockId,
        /// Which tick, or order.
        run: RunId,
        /// Which attempt, from 1.
        attempt: u32,
        /// How it ended.
        outcome: Outcome,
        /// No attempt at this tick follows: it succeeded, or has failed for good. A run that was told to stop and
        /// is begun again, here or elsewhere, is not the last.
        last: bool,
        /// How long after its instant it began.
        lateness: Duration,
        /// How long it took.
        took: Duration,
        /// What went wrong.
        error: Option<String>,
    },
    /// Ticks of a schedule were not run.
    NotRun {
        /// The schedule's lock.
        lock: LockId,
        /// The first of them.
        from: StoreTime,
        /// The last one.
        to: StoreTime,
        /// How many; ten thousand stands for that many and more.
        count: u64,
        /// Why.
        why: NotRun,
    },
    /// A schedule has another timing from now on than the one that was stored.
    Retimed {
        /// The schedule's lock.
        lock: LockId,
        /// The new one.
        timing: Rules,
    },
    /// A tick of a schedule is due, and no instance that is alive has the schedule. Told once for each tick that
    /// is the first of those that are due, by the one instance that looks; by another when that one is gone.
    Overdue {
        /// The schedule's lock.
        lock: LockId,
        /// The tick.
        due: StoreTime,
        /// For how long it is due.
        by: Duration,
    },
    /// A job or a callback panicked.
    Panicked {
        /// Which lock's.
        lock: LockId,
        /// Under which term.
        term: Term,
        /// What it said.
        message: String,
    },
    /// This reader was too slow: so many events were left out here.
    Missed(u64),
}

impl Event {
    /// The lock it is about, if it is about one.
    #[must_use]
    pub const fn lock(&self) -> Option<&LockId> {
        match self {
            Self::Acquired { lock, .. }
            | Self::Lost { lock, .. }
            | Self::Released { lock, .. }
            | Self::NewLeader { lock, .. }
            | Self::Overran { lock, .. }
            | Self::Waiting { lock }
            | Self::Quarantined { lock, .. }
            | Self::Ran { lock, .. }
            | Self::NotRun { lock, .. }
            | Self::Retimed { lock, .. }
            | Self::Overdue { lock, .. }
            | Self::Panicked { lock, .. } => Some(lock),
            Self::SessionOpened { .. }
            | Self::SessionLost { .. }
            | Self::SessionClosed { .. }
            | Self::Missed(_) => None,
        }
    }
}

/// The events of an engine, or of one lock. Ends with the engine.
///
/// A reader that is too slow loses events, is told how many, and slows down nobody.
#[derive(Debug)]
pub struct EventStream {
    events: mpsc::Receiver<Event>,
    missed: Arc<AtomicU64>,
}

impl EventStream {
    /// The next event; nothing when the engine has ended.
    ///
    /// # Cancel safety
    /// No event is lost when this is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        // Empty by its own word: a poll may also be pending because the task has had its turn.
        if self.events.is_empty() {
            let missed = self.missed.swap(0, Ordering::AcqRel);
            if missed > 0 {
                return Poll::Ready(Some(Event::Missed(missed)));
            }
        }
        self.events.poll_recv(cx)
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll(cx)
    }
}

/// Which events somebody wants to hear of.
#[derive(Clone, Debug)]
pub(crate) enum EventFilter {
    All,
    /// Those of one lock.
    Lock(LockId),
    /// Those of all locks of a kind.
    Kind(Kind),
}

/// Those who listen.
#[derive(Debug)]
pub(crate) struct Events {
    /// Nothing once the engine has ended.
    listeners: Mutex<Option<Vec<EventListener>>>,
}

impl Default for Events {
    fn default() -> Self {
        Self { listeners: Mutex::new(Some(Vec::new())) }
    }
}

#[derive(Debug)]
struct EventListener {
    only: EventFilter,
    events: mpsc::Sender<Event>,
    missed: Arc<AtomicU64>,
}

impl Events {
    pub(crate) fn listen(&self, only: EventFilter) -> EventStream {
        let (sender, events) = mpsc::channel(KEPT);
        let missed = Arc::new(AtomicU64::new(0));
        let listener = EventListener { only, events: sender, missed: missed.clone() };
        if let Some(listeners) = &mut *locked(&self.listeners) {
            // Those who are gone may wait for an event of a lock that never comes.
            listeners.retain(|listener| !listener.events.is_closed());
            listeners.push(listener);
        }
        EventStream { events, missed }
    }

    /// Tells everybody. Waits for nobody.
    #[expect(clippy::needless_pass_by_value, reason = "an event is made to be told")]
    pub(crate) fn tell(&self, event: Event) {
        let mut listeners = locked(&self.listeners);
        let Some(listeners) = &mut *listeners else { return };
        listeners.retain(|listener| {
            let wanted = match &listener.only {
                EventFilter::All => true,
                EventFilter::Lock(lock) => event.lock() == Some(lock),
                EventFilter::Kind(kind) => event.lock().is_some_and(|lock| lock.kind == *kind),
            };
            if wanted { listener.tell(&event) } else { !listener.events.is_closed() }
        });
    }

    /// The engine has ended: every stream ends.
    pub(crate) fn end(&self) {
        *locked(&self.listeners) = None;
    }
}

impl EventListener {
    /// Says whether it still listens.
    fn tell(&self, event: &Event) -> bool {
        // What was left out is told where it was left out.
        let missed = self.missed.swap(0, Ordering::AcqRel);
        let told = missed == 0 || self.events.try_send(Event::Missed(missed)).is_ok();
        let sent = if told {
            self.events.try_send(event.clone())
        } else {
            Err(mpsc::error::TrySendError::Full(event.clone()))
        };
        match sent {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.missed.fetch_add(if told { 1 } else { missed + 1 }, Ordering::AcqRel);
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
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
        let events = Events::default();
        let mut stream = events.listen(EventFilter::All);
        for number in 0..KEPT as u128 + 10 {
            events.tell(event(number));
        }
        for number in 0..KEPT as u128 {
            assert_eq!(stream.next().await, Some(event(number)));
        }
        events.tell(event(7777));
        assert_eq!(stream.next().await, Some(Event::Missed(10)));
        assert_eq!(stream.next().await, Some(event(7777)));
        events.end();
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test]
    async fn a_reader_that_caught_up_is_told_without_another_event() {
        let events = Events::default();
        let mut stream = events.listen(EventFilter::All);
        for number in 0..KEPT as u128 + 3 {
            events.tell(event(number));
        }
        for _ in 0..KEPT {
            stream.next().await;
        }
        assert_eq!(stream.next().await, Some(Event::Missed(3)));
    }

    fn lock(key: &str) -> LockId {
        LockId { namespace: "n".parse().unwrap(), kind: Kind::Lock, key: key.parse().unwrap() }
    }

    fn listeners(events: &Events) -> usize {
        events.listeners.lock().unwrap().as_ref().unwrap().len()
    }

    #[test]
    fn who_has_gone_is_forgotten_with_the_next_event_of_anything() {
        let events = Events::default();
        let stays = events.listen(EventFilter::Lock(lock("stays")));
        let gone: Vec<_> =
            (0..1000).map(|number| events.listen(EventFilter::Lock(lock(&number.to_string())))).collect();
        drop(gone);
        events.tell(event(1));
        assert_eq!(listeners(&events), 1);
        drop(stays);
    }

    #[test]
    fn who_comes_and_goes_leaves_nothing_behind_though_nothing_happens() {
        let events = Events::default();
        for number in 0..1000 {
            drop(events.listen(EventFilter::Lock(lock(&number.to_string()))));
        }
        assert!(listeners(&events) <= 1, "{}", listeners(&events));
    }

    #[tokio::test]
    async fn a_reader_of_one_lock_hears_of_no_other() {
        let acquired = |key| Event::Acquired { lock: lock(key), term: Term::new(1) };
        let events = Events::default();
        let mut stream = events.listen(EventFilter::Lock(lock("a")));
        for told in [event(1), acquired("b"), acquired("a")] {
            events.tell(told);
        }
        assert_eq!(stream.next().await, Some(acquired("a")));
    }
}
