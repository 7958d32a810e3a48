//! The inbox of schedules: hints arrive here, on their way to the runner of schedules.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use super::inbox::Inbox;
use crate::{
    model::{ScheduleName, StoreTime},
    sync::locked,
};

/// Hints of schedules since they were last taken.
#[derive(Debug, Default)]
pub(crate) struct ScheduleNews {
    /// Hints may have been lost.
    pub(crate) resync: bool,
    pub(crate) schedules: BTreeSet<ScheduleName>,
}

/// Inbox of the schedules of one instance, whether it runs any or not.
#[derive(Debug, Default)]
pub(crate) struct ScheduleInbox {
    inbox: Inbox<ScheduleNews>,
    share: Mutex<SchedulesShare>,
    /// Instant of the last order that was given here.
    ordered: AtomicI64,
}

/// Share of the schedules that this instance is to have, as far as the program has set it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SchedulesShare {
    pub(crate) cap: Option<u32>,
    pub(crate) weight: Option<u32>,
    pub(crate) draining: bool,
}

impl ScheduleInbox {
    /// Adds that hints may have been lost.
    pub(crate) fn resync(&self) {
        self.inbox.add(|news| news.resync = true);
    }

    /// Adds that a schedule has changed.
    pub(crate) fn schedule(&self, schedule: ScheduleName) {
        self.inbox.add(|news| {
            news.schedules.insert(schedule);
        });
    }

    pub(crate) fn take(&self) -> ScheduleNews {
        self.inbox.take()
    }

    /// Waits until there may be news.
    pub(crate) async fn news(&self) {
        self.inbox.news().await;
    }

    /// Returns an instant for an order that is given now: no two orders that were given here have the same.
    pub(crate) fn order_at(&self, now: StoreTime) -> StoreTime {
        let next = |last: i64| Some(now.as_millis().max(last.saturating_add(1)));
        let given = |last| next(last).unwrap_or(last);
        match self.ordered.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Ok(last) | Err(last) => StoreTime::from_millis(given(last)),
        }
    }

    pub(crate) fn share(&self) -> SchedulesShare {
        *locked(&self.share)
    }

    pub(crate) fn set_share(&self, change: impl FnOnce(&mut SchedulesShare)) {
        change(&mut locked(&self.share));
    }
}
