//! Bare transactions.

use std::{
    path::Path,
    sync::{Arc, Condvar, Mutex},
};

use futures::{FutureExt, future::BoxFuture};
use rusqlite::{Connection, TransactionBehavior, params};
use tokio::sync::oneshot;

/// A connection to a table of its own, on this thread.
pub(crate) struct Floor(Connection);

/// Data that is synced before a transaction has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sync {
    /// The transaction's pages in the log.
    Full,
    /// No write of it is synced; a checkpoint is.
    Normal,
}

impl Floor {
    pub(crate) fn open(path: &Path, sync: Sync) -> Self {
        let connection = Connection::open(path).expect("the folder is ours");
        let sync = match sync {
            Sync::Full => "FULL",
            Sync::Normal => "NORMAL",
        };
        connection
            .execute_batch(&format!(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = {sync};
                 CREATE TABLE IF NOT EXISTS floor (key TEXT PRIMARY KEY, number INTEGER, by TEXT) STRICT;
                 INSERT OR REPLACE INTO floor VALUES ('one', 0, 'nobody')"
            ))
            .expect("the disk works");
        Self(connection)
    }

    /// Runs a transaction that changes one row.
    pub(crate) fn transaction(&mut self) {
        let mut write = || -> rusqlite::Result<usize> {
            let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let change = "UPDATE floor SET number = number + 1, by = ?1 WHERE key = 'one'";
            let changed = transaction.prepare_cached(change)?.execute(params!["pod-1"])?;
            transaction.commit()?;
            Ok(changed)
        };
        assert_eq!(write().expect("the disk works"), 1);
    }

    pub(crate) fn pair(&mut self) {
        self.transaction();
        self.transaction();
    }

    /// The same on a thread that sleeps meanwhile, with a word there and a word back: no store can do without that if
    /// it keeps its file away from the threads of a runtime.
    pub(crate) fn on_a_thread(mut self) -> impl Fn() -> BoxFuture<'static, ()> + Send + std::marker::Sync {
        // A channel would spin for a while, which is of use only to those who ask again and again.
        let asked = Arc::new((Mutex::new(None::<oneshot::Sender<()>>), Condvar::new()));
        let order = Arc::clone(&asked);
        std::thread::spawn(move || {
            loop {
                let order =
                    order.1.wait_while(order.0.lock().expect("nobody panics"), |order| order.is_none());
                let done = order.expect("nobody panics").take().expect("checked");
                self.transaction();
                // An error only says that nobody waits any more.
                let _ = done.send(());
            }
        });
        move || {
            let (done, answer) = oneshot::channel();
            *asked.0.lock().expect("nobody panics") = Some(done);
            asked.1.notify_one();
            answer.map(|answer| answer.expect("the thread runs")).boxed()
        }
    }
}
