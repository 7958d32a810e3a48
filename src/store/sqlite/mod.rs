//! The store of one machine: a SQLite file that its processes share, with nothing installed.
//!
//! ```no_run
//! use std::sync::Arc;
//! use tenure::{Elect, ElectConfig, store::sqlite::SqliteStore};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = SqliteStore::open("/var/lib/shop/tenure.db")?;
//! let elect = Elect::start(ElectConfig::new("shop".parse()?, "worker-1".parse()?), Arc::new(store)).await?;
//! # Ok(())
//! # }
//! ```

mod call;
mod error;
mod fields;
mod file;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod file_system;
mod header;
mod hints;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod inotify;
mod json;
mod proof;
mod queue;
mod restored;
mod rings;
mod rows;
mod tables;
mod threads;

use std::{fmt, path::Path, sync::Arc, time::Duration};

use futures::{
    FutureExt, StreamExt,
    future::ready,
    stream::{self, BoxStream},
};
use rusqlite::Connection;

pub use self::error::OpenError;
use self::{
    call::call,
    error::{STORE, Trouble},
    file::OpenFile,
    queue::Queue,
    rows::{Outcome, SqlRows},
};
use super::{Answer, Capabilities, Hint, Reach, Store, Topics, steps::Step};
use crate::{
    clock::{Clock, SystemClock},
    error::Applied,
    store_methods,
};

/// Options for the use of a file.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    clock: Arc<dyn Clock>,
    max_pages: Option<u32>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock::new()), max_pages: None }
    }
}

impl SqliteOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the clock whose wall time goes into the records, so that tests can turn it. Default: the machine's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets how many pages of 4 KiB the file may have: beyond that nothing new is stored, as on a full disk. Default:
    /// no limit.
    #[must_use]
    pub const fn max_pages(mut self, pages: u32) -> Self {
        self.max_pages = Some(pages);
        self
    }
}

/// A store in a SQLite file, for the processes of one machine.
///
/// Its clones are the same store. **It excludes nobody on another machine**, whatever file system that sees: the file
/// has to lie on a local one.
///
/// Each store has two threads, one that writes and one that reads. Operations that come together are written together.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

struct Inner {
    file: Arc<OpenFile>,
    options: SqliteOptions,
    writes: Arc<Queue>,
    reads: Arc<Queue>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What has begun is done to its end.
        self.writes.close();
        self.reads.close();
    }
}

impl SqliteStore {
    /// Opens a file, which is made if there is none. It is tenure's own: not the database of the application.
    ///
    /// Reads the file from its beginning to its end, to see whether it is whole: milliseconds for thousands of records,
    /// in which the calling thread waits.
    ///
    /// # Errors
    /// [`OpenError`] names the path and the rule that it breaks. Nothing that was there is overwritten.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As with [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, OpenError> {
        let (file, connection) = file::open(path.as_ref(), &options)?;
        Self::on(file, connection, options)
    }

    /// Raises the terms of all locks in a file that was restored from a backup, and answers with their number.
    ///
    /// Since the backup was made, larger terms may have been granted than it knows, and a resource that has seen them
    /// refuses smaller ones. After this the next terms are larger than any that were granted, as long as the clock was
    /// never further ahead than a day. All sessions of the backup are declared dead.
    ///
    /// **Stop everybody who uses the file first**, also in other containers: a job that was begun before does not know
    /// that its key may be granted again.
    ///
    /// # Errors
    /// As with [`open`](Self::open).
    pub fn raise_terms(path: impl AsRef<Path>) -> Result<u64, OpenError> {
        Self::raise_terms_with(path, &SqliteOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As with [`open`](Self::open).
    pub fn raise_terms_with(path: impl AsRef<Path>, options: &SqliteOptions) -> Result<u64, OpenError> {
        let (file, mut connection) = file::open(path.as_ref(), options)?;
        let raised = restored::raise_terms(&mut connection, options.clock.wall());
        raised.map_err(|error| OpenError::of_sqlite(file.path(), &error))
    }

    fn on(file: Arc<OpenFile>, writes: Connection, options: SqliteOptions) -> Result<Self, OpenError> {
        let reads = file::connect_again(&file, &options)?;
        let failed = |error| OpenError::of_io(file.path(), &error);
        let inner = Inner {
            file: Arc::clone(&file),
            options: options.clone(),
            writes: Arc::default(),
            reads: Arc::default(),
        };
        let (clock, queue) = (Arc::clone(&options.clock), Arc::clone(&inner.writes));
        threads::writer(writes, Arc::clone(&file), queue, clock).map_err(failed)?;
        let (clock, queue) = (Arc::clone(&options.clock), Arc::clone(&inner.reads));
        threads::reader(reads, Arc::clone(&file), queue, clock).map_err(failed)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// An operation that is answered once a disk has it.
    fn synced<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        work: impl FnOnce(&mut Step<'_, SqlRows<'_>>) -> Outcome<T> + Send + 'static,
    ) -> Answer<'_, T> {
        call(&self.inner.writes, true, doing, limit, work)
    }

    /// An operation that only a power cut can undo, which ends every session of the machine, too.
    fn unsynced<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        work: impl FnOnce(&mut Step<'_, SqlRows<'_>>) -> Outcome<T> + Send + 'static,
    ) -> Answer<'_, T> {
        call(&self.inner.writes, false, doing, limit, work)
    }

    /// An operation that only reads, and waits for nobody who writes.
    fn reading<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        work: impl FnOnce(&mut Step<'_, SqlRows<'_>>) -> Outcome<T> + Send + 'static,
    ) -> Answer<'_, T> {
        call(&self.inner.reads, false, doing, limit, work)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.inner.file.path()).finish_non_exhaustive()
    }
}

macro_rules! carried_out {
    (($way:ident $doing:literal) $method:ident($($argument:ident: $type:ty),+) -> $answer:ty) => {
        fn $method(&self, $($argument: $type,)+ limit: Duration) -> Answer<'_, $answer> {
            self.$way($doing, limit, move |step| step.$method($($argument),+))
        }
    };
}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(STORE, Reach::Host, None)
    }

    store_methods! { carried_out:
        open(synced "open a session");
        beat(unsynced "renew a session");
        observe(reading "observe sessions");
        declare(synced "declare a session dead");
        sessions(reading "list sessions");
        take(synced "take locks");
        release(synced "release locks");
        wait(unsynced "join a line");
        stop_waiting(unsynced "leave a line");
        waiters(reading "read a line");
        places(reading "find places in line");
        set_value(synced "set a value");
        locks(reading "read locks");
        list_locks(reading "list locks");
        held_by(reading "list the locks of a session");
        revoke(synced "revoke a lock");
        define(synced "define a schedule");
        instruct(synced "update a schedule");
        schedules(reading "read schedules");
        list_schedules(reading "list schedules");
        delete_schedule(synced "delete a schedule");
        claim(synced "claim a tick");
        finish(synced "finish a run");
        history(reading "read a history");
        purge_runs(synced "purge runs");
        purge(synced "purge");
    }

    fn hints(&self, _: Topics) -> BoxStream<'static, Hint> {
        stream::once(ready(Hint::Resync)).chain(stream::pending()).boxed()
    }

    /// The same file by connections and threads of its own.
    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        const DOING: &str = "open a second connection";

        let (file, options) = (Arc::clone(&self.inner.file), self.inner.options.clone());
        let open = tokio::task::spawn_blocking(move || {
            file::connect_again(&file, &options).and_then(|writes| Self::on(file, writes, options))
        });
        async {
            match open.await {
                Ok(Ok(store)) => Ok(Some(Arc::new(store) as Arc<dyn Store>)),
                Ok(Err(error)) => Err(Trouble::opening(&error).error(DOING, Applied::No)),
                Err(_) => Err(Trouble::ended().error(DOING, Applied::No)),
            }
        }
        .boxed()
    }
}
