//! The store of one machine: a SQLite file that its processes share, with nothing installed.
//!
//! ```no_run
//! use tenure::{Elect, ElectConfig, store::sqlite::SqliteStore};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = SqliteStore::open("/var/lib/shop/tenure.db")?;
//! let elect = Elect::start(store, ElectConfig::new("shop", "worker-1")?).await?;
//! # Ok(())
//! # }
//! ```

mod file;
mod hints;
mod proof;
mod rows;
mod threads;
#[cfg(test)]
#[path = "../../../tests/support/wait.rs"]
mod wait;

use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use futures::{FutureExt, TryFutureExt, stream::BoxStream};
use rusqlite::Connection;

pub use self::file::error::OpenError;
use self::{
    file::{OpenFile, Sharing, error::STORE, header},
    hints::Hints,
    proof::{Listener, SessionFiles},
    rows::{Outcome, SqlRows},
    threads::{Place, backlog::Backlog, call::call, trouble::Trouble},
};
use super::{
    Answer, Capabilities, Declaration, Hint, Op, Operation, Presence, Reach, Reply, SessionSeen, Store,
    Topics, steps::Step,
};
use crate::{
    clock::{Clock, SystemClock},
    error::Applied,
    model::SessionId,
    sync::locked,
    words,
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
/// Clones are the same store. **It excludes no process on another machine**, whatever file system that sees: the
/// file has to lie on a local one.
///
/// Each store has two threads, one that writes and one that reads. Operations that come together are written together.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

/// The parts that the stores of one opening share.
struct Home {
    file: Arc<OpenFile>,
    /// Without them nothing is proven here, and the ttl counts.
    files: Option<Arc<SessionFiles>>,
    hints: Hints,
    /// The thread that proves sessions dead.
    listener: Mutex<Option<Listener>>,
}

struct Inner {
    home: Arc<Home>,
    options: SqliteOptions,
    writes: Arc<Backlog>,
    reads: Arc<Backlog>,
    /// The one that ends last.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Opens the folder of the sessions' files. There is none where it proves nothing, which the log says.
fn open_session_files(file: &OpenFile) -> std::io::Result<Option<SessionFiles>> {
    SessionFiles::open(&header::beside(file.path(), "-sessions"), Sharing::of(file.path()))
}

/// The same, also where it cannot be used.
fn session_files(file: &OpenFile) -> Option<SessionFiles> {
    open_session_files(file).unwrap_or_else(|error| {
        words::warn!(
            %error,
            "the folder of the sessions cannot be used: no crash detection, takeovers wait for the ttl"
        );
        None
    })
}

impl Home {
    fn new(file: Arc<OpenFile>, options: &SqliteOptions) -> Result<Self, OpenError> {
        let failed = |error| OpenError::of_io(file.path(), &error);
        let files = session_files(&file).map(Arc::new);
        let hints = Hints::of(&file, files.as_ref().map(|files| files.path()));
        let mut listener = None;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(files) = &files {
            let deaths = threads::deaths::Deaths {
                connection: file::connect_again(&file, options)?,
                file: Arc::clone(&file),
                files: Arc::clone(files),
                hints: hints.clone(),
                clock: Arc::clone(&options.clock),
            };
            listener = Some(Listener::start(Arc::clone(files), deaths).map_err(failed)?);
        }
        Ok(Self { file, files, hints, listener: Mutex::new(listener) })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // An operation that has begun is done to its end.
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
        // If it fails, the connection goes before the file counts as closed.
        let home = Home::new(Arc::clone(&file), &options)?;
        Self::on(&Arc::new(home), connection, options)
    }

    /// Closes the file, also for the clones of this store, once what was begun is done. If the file has no other
    /// user, its log is written back and goes. Without this it is closed soon after the last clone was dropped.
    ///
    /// # Cancel safety
    /// It is closed all the same.
    pub async fn close(self) {
        let Self { inner } = self;
        let close = move || {
            // One after the other: of connections that are closed at once none would write the log back.
            if let Some(listener) = locked(&inner.home.listener).take() {
                listener.end();
            }
            inner.writes.close();
            inner.reads.close();
            let thread = locked(&inner.thread).take();
            thread.is_none_or(|thread| thread.join().is_ok())
        };
        match threads::elsewhere("tenure-close", close).await {
            Ok(true) => {}
            Ok(false) => words::error!("a thread of the SQLite store panicked"),
            Err(error) => {
                words::error!(%error, "could not close the SQLite store, it is closed once its last clone is dropped");
            }
        }
    }

    /// Raises the terms of all locks in a file that was restored from a backup, and answers with their number.
    ///
    /// Since the backup was made, larger terms may have been granted than it knows, and a resource that has seen them
    /// refuses smaller ones. After this the next terms are larger than any that were granted, as long as the clock was
    /// never further ahead than a day. All sessions of the backup are declared dead.
    ///
    /// **Stop every process that uses the file first**, also in other containers: a job that was begun before does
    /// not know that its key may be granted again. It is refused while a session is alive: its process lives, or it was
    /// renewed within its ttl and its end cannot be proven.
    ///
    /// Looks closer than [`open`](Self::open) whether the file is whole: a copy of bare files that were in use may have
    /// indexes and tables of different moments. That takes up to ten times as long.
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
        let path = path.as_ref();
        if let Err(error) = std::fs::metadata(path) {
            return Err(OpenError::of_io(path, &error));
        }
        let (file, mut connection) = file::open(path, options)?;
        let failed = |error| OpenError::of_io(path, &error);
        let files = open_session_files(&file).map_err(failed)?;
        if let Some(files) = &files
            && files.is_anybody_there().map_err(failed)?
        {
            return Err(OpenError::InUse { path: path.to_owned() });
        }
        file::check(file.path(), &connection, "integrity_check")?;
        let raised = rows::restored::raise_terms(&mut connection, options.clock.wall(), files.is_some());
        let raised = raised.map_err(|error| OpenError::of_sqlite(file.path(), &error))?;
        raised.ok_or_else(|| OpenError::InUse { path: path.to_owned() })
    }

    fn on(home: &Arc<Home>, writes: Connection, options: SqliteOptions) -> Result<Self, OpenError> {
        let file = &home.file;
        let reads = file::connect_again(file, &options)?;
        let failed = |error| OpenError::of_io(file.path(), &error);
        let inner = Inner {
            home: Arc::clone(home),
            options,
            writes: Arc::default(),
            reads: Arc::default(),
            thread: Mutex::default(),
        };
        let with = |connection, backlog: &Arc<Backlog>| {
            Place::new(connection, Arc::clone(home), Arc::clone(backlog), Arc::clone(&inner.options.clock))
        };
        let reader = threads::reader(with(reads, &inner.reads)).map_err(failed)?;
        let writer = threads::writer(with(writes, &inner.writes), reader).map_err(failed)?;
        *locked(&inner.thread) = Some(writer);
        Ok(Self { inner: Arc::new(inner) })
    }

    /// An operation that is answered once a disk has it.
    fn synced<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        work: impl Fn(&mut Step<'_, SqlRows<'_>>) -> Outcome<T> + Send + 'static,
    ) -> Answer<'_, T> {
        call(&self.inner.writes, true, doing, limit, work)
    }

    /// An operation that only a power cut can undo, which ends every session of the machine, too.
    fn unsynced<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        work: impl Fn(&mut Step<'_, SqlRows<'_>>) -> Outcome<T> + Send + 'static,
    ) -> Answer<'_, T> {
        call(&self.inner.writes, false, doing, limit, work)
    }

    /// An operation that only reads, and waits for no writer.
    fn reading<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        work: impl Fn(&mut Step<'_, SqlRows<'_>>) -> Outcome<T> + Send + 'static,
    ) -> Answer<'_, T> {
        call(&self.inner.reads, false, doing, limit, work)
    }
}

impl SqliteStore {
    /// The session that an operation closes, if this process has it: once it is on record as dead its file goes. When it
    /// is let go of after that, no other process is told, and has to look who died.
    fn closing(&self, op: &Op) -> Option<(Arc<SessionFiles>, SessionId)> {
        let Op::Declare(Declaration { session, .. }) = op else { return None };
        let files = self.inner.home.files.as_ref().filter(|files| files.identity(*session).is_some())?;
        Some((Arc::clone(files), *session))
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.inner.home.file.path()).finish_non_exhaustive()
    }
}

/// Carries out an operation within a transaction.
fn carry_out(step: &mut Step<'_, SqlRows<'_>>, op: Op) -> Outcome<Reply> {
    let reply = step.carry_out(op)?;
    // The last part also removes the files of sessions that never got a record, or have none any more.
    if matches!(&reply, Reply::Purge(purged) if purged.next.is_none()) {
        step.rows().remove_strays()?;
    }
    Ok(reply)
}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(STORE, Reach::Host, hints::NAME)
    }

    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply> {
        let operation = op.operation();
        let closing = self.closing(&op);
        // A copy: SQLite may give up a transaction for the sake of another operation, and then this is done again.
        let work = move |step: &mut Step<'_, SqlRows<'_>>| carry_out(step, op.clone());
        let answer = match operation {
            Operation::Beat | Operation::Wait | Operation::StopWaiting => {
                self.unsynced(operation.doing(), limit, work)
            }
            _ if operation.is_write() => self.synced(operation.doing(), limit, work),
            _ => self.reading(operation.doing(), limit, work),
        };
        match closing {
            Some((files, session)) => answer
                .inspect_ok(move |reply| {
                    if matches!(reply, Reply::Declare(SessionSeen::Dead(_))) {
                        files.remove(session);
                    }
                })
                .boxed(),
            None => answer,
        }
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.inner.home.hints.listen(topics)
    }

    /// The lock of a file beside the database. Made within the first poll: a few microseconds.
    fn presence(&self, session: SessionId) -> Answer<'_, Option<Presence>> {
        let files = self.inner.home.files.clone();
        async move {
            let Some(files) = files else { return Ok(None) };
            let presence = files.presence(session);
            let failed = |error| Trouble::of_io(&error).error("lock a session's file", Applied::No);
            presence.map(Some).map_err(failed)
        }
        .boxed()
    }

    /// The same file by connections and threads of its own.
    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        const DOING: &str = "open a second connection";

        let (home, options) = (Arc::clone(&self.inner.home), self.inner.options.clone());
        let open = threads::elsewhere("tenure-open", move || {
            file::connect_again(&home.file, &options).and_then(|writes| Self::on(&home, writes, options))
        });
        async {
            let opened = open.await.map_err(|error| Trouble::of_io(&error).error(DOING, Applied::No))?;
            let store = opened.map_err(|error| Trouble::opening(&error).error(DOING, Applied::No))?;
            Ok(Some(Arc::new(store) as Arc<dyn Store>))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::rows::Failure;

    /// A decision has to be on the disk; a transaction of nothing but beats need not wait for that.
    #[tokio::test]
    async fn a_decision_is_synced_and_a_beat_is_not() {
        let folder = std::env::temp_dir().join(format!("tenure-synced-{:016x}", getrandom::u64().unwrap()));
        std::fs::create_dir(&folder).unwrap();
        let store = SqliteStore::open(folder.join("tenure.db")).unwrap();
        let level = |step: &mut Step<'_, SqlRows<'_>>| {
            let level =
                step.rows().connection.query_row("PRAGMA synchronous", [], |row| row.get::<_, i64>(0));
            level.map_err(Failure::from)
        };
        let (full, normal, limit) = (2_i64, 1_i64, Duration::from_secs(30));
        for _ in 0..3 {
            assert_eq!(store.synced("ask", limit, level).await.unwrap(), full);
            assert_eq!(store.unsynced("ask", limit, level).await.unwrap(), normal);
        }
        store.close().await;
        std::fs::remove_dir_all(folder).unwrap();
    }
}
