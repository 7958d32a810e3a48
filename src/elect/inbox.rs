//! Inbox: news gather in it until its reader takes them all.

use std::{mem, sync::Mutex};

use tokio::sync::Notify;

use crate::sync::locked;

/// Inbox of one reader. Its news are kept as one value, so that they can be merged as they come.
#[derive(Debug, Default)]
pub(crate) struct Inbox<N> {
    news: Mutex<N>,
    wake: Notify,
}

impl<N: Default> Inbox<N> {
    /// Adds news, and wakes the reader.
    pub(crate) fn add(&self, change: impl FnOnce(&mut N)) {
        change(&mut locked(&self.news));
        self.wake.notify_one();
    }

    /// Takes all news.
    pub(crate) fn take(&self) -> N {
        mem::take(&mut locked(&self.news))
    }

    /// Waits until there may be news.
    pub(crate) async fn news(&self) {
        self.wake.notified().await;
    }
}
