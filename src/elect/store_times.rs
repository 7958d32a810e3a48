//! The store's time, as this instance estimates it from the answers it gets.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::Engine;
use crate::{
    clock::Moment,
    logic::store_time::{Jump, StoreClock},
    model::StoreTime,
    sync::locked,
    words,
};

/// Estimate of the store's time, over all sessions of this instance.
#[derive(Debug, Default)]
pub(crate) struct StoreTimes {
    clock: Mutex<StoreClock>,
    signal: Arc<Signal>,
}

/// Signal to the waiters for an instant: it wakes them in the order in which they came, and a watch does not.
#[derive(Debug, Default)]
struct Signal {
    /// Counts the changes that matter to the waiters.
    changes: AtomicU64,
    changed: Notify,
}

/// Changes of the store's time, as one of the waiters has seen them.
#[derive(Debug)]
pub(crate) struct TimeChanges {
    signal: Arc<Signal>,
    seen: u64,
}

impl TimeChanges {
    /// Marks all changes until now as seen.
    pub(crate) fn mark_seen(&mut self) {
        self.seen = self.signal.changes.load(Ordering::Acquire);
    }

    /// Waits for a change that was not seen.
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
    /// Learns that the store's clock showed `at`, at some moment since a call was sent.
    pub(crate) fn record_store_time(&self, sent: Moment, at: StoreTime) {
        let (holder, namespace) = (self.config.holder(), self.config.namespace());
        match self.store_times.saw(sent, self.clock.now(), at) {
            Some(Jump::Suspected { millis }) => words::warn!(
                %holder, %namespace, millis,
                "the store's clock jumped: schedules keep the old time until the new one has lasted five minutes"
            ),
            Some(Jump::Believed { millis }) => {
                words::error!(
                    %holder, %namespace, millis,
                    "the store's clock jumped and stayed there: schedules now follow it"
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

    /// Learns that the store's clock showed `at`, at some moment between these two. Returns a jump that is to be
    /// reported.
    fn saw(&self, sent: Moment, answered: Moment, at: StoreTime) -> Option<Jump> {
        let (jump, is_news) = {
            let mut clock = self.clock();
            (clock.saw(sent, answered, at), clock.report_news())
        };
        if is_news {
            self.signal.changes.fetch_add(1, Ordering::AcqRel);
            self.signal.changed.notify_waiters();
        }
        jump
    }

    /// Returns what the store's clock shows now; nothing before the first answer.
    pub(crate) fn now(&self, now: Moment) -> Option<StoreTime> {
        self.clock().now(now)
    }

    /// Returns the least that it may show now: a caller that waits for it to pass an instant does not look too early.
    pub(crate) fn at_least(&self, now: Moment) -> Option<StoreTime> {
        self.clock().at_least(now)
    }

    /// Returns how far off [`now`](Self::now) may be.
    pub(crate) fn uncertainty(&self, now: Moment) -> Option<Duration> {
        self.clock().uncertainty(now)
    }

    /// Follows the changes from now on.
    pub(crate) fn changes(&self) -> TimeChanges {
        let mut changes = TimeChanges { signal: self.signal.clone(), seen: 0 };
        changes.mark_seen();
        changes
    }
}
