//! News of schedules, on their way to whoever runs them.

use std::{
    any::Any,
    collections::BTreeSet,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use super::Engine;
use crate::{
    clock::Moment,
    logic::store_time::{Jump, StoreClock},
    model::{ScheduleName, StoreTime},
    sync::locked,
};

/// What happened to schedules since somebody looked last.
#[derive(Debug, Default)]
pub(crate) struct ScheduleNews {
    /// Hints may have been lost.
    pub(crate) resync: bool,
    pub(crate) schedules: BTreeSet<ScheduleName>,
}

/// Where the hints of schedules arrive, and the one who runs them here.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Whoever runs the schedules of this instance: a layer above, which this one does not know.
    host: Mutex<Option<Weak<dyn Any + Send + Sync>>>,
    news: Mutex<ScheduleNews>,
    wake: Notify,
    part: Mutex<SchedulesShare>,
    /// The instant of the last order that was given here.
    ordered: AtomicI64,
}

/// What part this instance is to have of the schedules, as far as somebody said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SchedulesShare {
    pub(crate) cap: Option<u32>,
    pub(crate) weight: Option<u32>,
    pub(crate) draining: bool,
}

impl Notices {
    fn tell(&self, change: impl FnOnce(&mut ScheduleNews)) {
        change(&mut locked(&self.news));
        self.wake.notify_one();
    }

    pub(crate) fn resync(&self) {
        self.tell(|news| news.resync = true);
    }

    pub(crate) fn schedule(&self, schedule: ScheduleName) {
        // Where no schedule is run, nobody takes them.
        if locked(&self.host).as_ref().is_some_and(|host| host.strong_count() > 0) {
            self.tell(|news| {
                news.schedules.insert(schedule);
            });
        }
    }

    pub(crate) fn take(&self) -> ScheduleNews {
        mem::take(&mut locked(&self.news))
    }

    /// Until there may be news.
    pub(crate) async fn news(&self) {
        self.wake.notified().await;
    }

    /// An instant for an order that is given now: none has the same that was given here.
    pub(crate) fn order_at(&self, now: StoreTime) -> StoreTime {
        let next = |last: i64| Some(now.as_millis().max(last.saturating_add(1)));
        let given = |last| next(last).unwrap_or(last);
        match self.ordered.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Ok(last) | Err(last) => StoreTime::from_millis(given(last)),
        }
    }

    pub(crate) fn part(&self) -> SchedulesShare {
        *locked(&self.part)
    }

    pub(crate) fn set_part(&self, change: impl FnOnce(&mut SchedulesShare)) {
        change(&mut locked(&self.part));
    }

    /// The host, if there is one.
    pub(crate) fn known_host<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let host = locked(&self.host);
        host.as_ref().and_then(Weak::upgrade).and_then(|host| host.downcast().ok())
    }

    /// The host, as it is; or the one that this makes.
    pub(crate) fn host<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let mut host = locked(&self.host);
        let known = host.as_ref().and_then(Weak::upgrade).and_then(|host| host.downcast().ok());
        known.unwrap_or_else(|| {
            let made = make();
            let weak: Weak<T> = Arc::downgrade(&made);
            *host = Some(weak);
            made
        })
    }
}

/// The store's time, as this instance estimates it, over all of its sessions.
#[derive(Debug, Default)]
pub(crate) struct StoreTimes {
    clock: Mutex<StoreClock>,
    signal: Arc<Signal>,
}

/// Wakes those who wait for an instant, in the order in which they came: a watch does not.
#[derive(Debug, Default)]
struct Signal {
    /// Counts the changes that are worth it.
    changes: AtomicU64,
    changed: Notify,
}

/// The changes of the store's time, as one follows them.
#[derive(Debug)]
pub(crate) struct TimeChanges {
    signal: Arc<Signal>,
    seen: u64,
}

impl TimeChanges {
    /// What has changed until now is known.
    pub(crate) fn mark_seen(&mut self) {
        self.seen = self.signal.changes.load(Ordering::Acquire);
    }

    /// Until something has changed that is not known.
    pub(crate) async fn changed(&mut self) {
        loop {
            let mut changed = std::pin::pin!(self.signal.changed.notified());
            changed.as_mut().enable();
            let changes = self.signal.changes.load(Ordering::Acquire);
            if changes != self.seen {
                self.seen = changes;
                return;
            }
            changed.await;
        }
    }
}

impl Engine {
    /// The store's clock showed `at`, at some moment since this was sent.
    pub(crate) fn saw_store_time(&self, sent: Moment, at: StoreTime) {
        let (holder, namespace) = (self.config.holder(), self.config.namespace());
        match self.store_times.saw(sent, self.clock.now(), at) {
            Some(Jump::Doubted { millis }) => tracing::warn!(
                %holder, %namespace, millis,
                "the store's clock has jumped; schedules go on by the old time until the new one has held for five minutes"
            ),
            Some(Jump::Believed { millis }) => {
                tracing::error!(
                    %holder, %namespace, millis,
                    "the store's clock has jumped and stays there: schedules go by it from now on"
                );
            }
            None => {}
        }
    }
}

impl StoreTimes {
    fn clock(&self) -> MutexGuard<'_, StoreClock> {
        locked(&self.clock)
    }

    /// The store's clock showed `at`, at some moment between these two. Says what is remarkable about that.
    fn saw(&self, sent: Moment, answered: Moment, at: StoreTime) -> Option<Jump> {
        let (jump, is_news) = {
            let mut clock = self.clock();
            (clock.saw(sent, answered, at), clock.is_news())
        };
        if is_news {
            self.signal.changes.fetch_add(1, Ordering::AcqRel);
            self.signal.changed.notify_waiters();
        }
        jump
    }

    /// What the store's clock shows now; nothing before the first answer.
    pub(crate) fn now(&self, now: Moment) -> Option<StoreTime> {
        self.clock().now(now)
    }

    /// How far off that may be.
    pub(crate) fn uncertainty(&self, now: Moment) -> Option<std::time::Duration> {
        self.clock().uncertainty(now)
    }

    pub(crate) fn changes(&self) -> TimeChanges {
        let mut changes = TimeChanges { signal: self.signal.clone(), seen: 0 };
        changes.mark_seen();
        changes
    }
}
