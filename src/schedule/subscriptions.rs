//! Subscriptions of drivers to the records of their schedules.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, Weak},
};

use tokio::sync::watch;

use super::spec::name_of;
use crate::{
    elect::{Engine, Work},
    error::chain,
    model::{Key, ScheduleId},
    store::{ScheduleRecord, ScheduleSeen, StoreExt},
    sync::locked,
    words,
};

/// Records that are read at once.
const PAGE: usize = 1000;
/// Records read by an occasional look, where hints report what changes.
const ROLLING: usize = 100;

/// Records of the schedules that are driven here, as they were read last.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(Mutex<BTreeMap<Key, watch::Sender<ScheduleRecord>>>);

/// Subscription of one driver to the record of its schedule, until this is dropped.
#[derive(Debug)]
pub(super) struct Subscription {
    subscriptions: Weak<Subscriptions>,
    key: Key,
    records: watch::Receiver<ScheduleRecord>,
}

impl Subscription {
    /// Sets the record to what the driver has read. A record that has arrived since is newer, and stays news.
    pub(super) fn set_read(&self, record: ScheduleRecord) {
        let Some(subscriptions) = self.subscriptions.upgrade() else { return };
        let senders = subscriptions.senders();
        if let Some(sender) = senders.get(&self.key)
            && !self.records.has_changed().unwrap_or(true)
        {
            sender.send_if_modified(|known| {
                *known = record;
                false
            });
        }
    }

    /// Takes the record, if it has changed since it was taken last.
    pub(super) fn take_news(&mut self) -> Option<ScheduleRecord> {
        // An error says that another driver has subscribed: this one's lease has ended.
        let is_news = self.records.has_changed().unwrap_or(false);
        is_news.then(|| self.records.borrow_and_update().clone())
    }

    /// Waits for a change that was not taken.
    pub(super) async fn changed(&mut self) {
        // Another driver may have subscribed: this one's lease has ended.
        if self.records.changed().await.is_err() || self.records.has_changed().is_err() {
            pending::<()>().await;
        }
        self.records.mark_changed();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(subscriptions) = self.subscriptions.upgrade() else { return };
        let mut senders = subscriptions.senders();
        if senders.get(&self.key).is_some_and(|sender| self.records.same_channel(&sender.subscribe())) {
            senders.remove(&self.key);
        }
    }
}

impl Subscriptions {
    fn senders(&self) -> MutexGuard<'_, BTreeMap<Key, watch::Sender<ScheduleRecord>>> {
        locked(&self.0)
    }

    /// Subscribes the driver of a schedule, in place of the one before it.
    pub(super) fn subscribe(self: &Arc<Self>, key: Key, id: ScheduleId) -> Subscription {
        let (sender, records) = watch::channel(ScheduleRecord::new(id));
        self.senders().insert(key.clone(), sender);
        Subscription { subscriptions: Arc::downgrade(self), key, records }
    }

    pub(super) fn all(&self) -> Vec<Key> {
        self.senders().keys().cloned().collect()
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.senders().contains_key(key)
    }

    /// Returns the next page of keys after that one.
    pub(super) fn page(&self, after: &mut Option<Key>) -> Vec<Key> {
        let senders = self.senders();
        let start = after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let rest = senders.range((start, Bound::Unbounded)).map(|(key, _)| key);
        let page: Vec<_> = rest.take(ROLLING).cloned().collect();
        // A full page goes on next time; from the last one it begins anew.
        *after = page.last().filter(|_| page.len() == ROLLING).cloned();
        page
    }

    /// Reads the records of these keys and notifies their drivers. Returns whether the store has answered for
    /// all; keys it has answered for are removed.
    pub(super) async fn read(&self, engine: &Engine, keys: &mut BTreeSet<Key>) -> bool {
        keys.retain(|key| self.contains(key));
        while !keys.is_empty() {
            let page: Vec<Key> = keys.iter().take(PAGE).cloned().collect();
            let namespace = engine.config.namespace();
            let id = |key: &Key| ScheduleId { namespace: namespace.clone(), name: name_of(key) };
            let limit = engine.limit();
            let ids = page.iter().map(id).collect();
            let seen = match engine.call(Work::Schedules, limit, engine.store().schedules(ids, limit)).await {
                Ok(seen) => seen,
                Err(error) => {
                    words::debug!(error = chain(&error), "could not read schedules");
                    return false;
                }
            };
            let senders = self.senders();
            for (key, seen) in page.iter().zip(seen) {
                keys.remove(key);
                if let (Some(sender), ScheduleSeen::Found(record)) = (senders.get(key), seen) {
                    sender.send_if_modified(|known| {
                        // Its mark is the owner's own.
                        let is_news = ScheduleRecord { mark: record.mark, ..known.clone() } != record;
                        *known = record;
                        is_news
                    });
                }
            }
        }
        true
    }
}
