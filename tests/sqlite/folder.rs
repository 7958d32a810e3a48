//! Folders that go with the test that made them.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::stream::BoxStream;
use tenure::{
    model::SessionId,
    store::{
        Answer, Capabilities, Hint, Op, Presence, Reply, Store, Topics,
        sqlite::{SqliteOptions, SqliteStore},
    },
};
use tenure_conformance::Fixture;

/// A folder of a test's own.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    /// A folder in which a sync costs nothing, if there is one: for scripts of many steps.
    pub(crate) fn in_memory() -> Self {
        let shm = Path::new("/dev/shm");
        if shm.is_dir() { Self::within(shm) } else { Self::new() }
    }

    fn within(parent: &Path) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("tenure-sqlite-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // Of a process of the same number, that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The database of the test.
    pub(crate) fn database(&self) -> PathBuf {
        self.0.join("tenure.db")
    }

    pub(crate) fn open(&self) -> SqliteStore {
        SqliteStore::open(self.database()).unwrap()
    }

    /// SQLite itself, on the same file: an operator's shell.
    pub(crate) fn shell(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.database()).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left over is found by its name.
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn fixture(store: &SqliteStore) -> Fixture {
    Fixture::new(Arc::new(store.clone()) as Arc<dyn Store>)
}

/// A store that keeps its folder for as long as it lives.
#[derive(Debug)]
pub(crate) struct InFolder {
    store: SqliteStore,
    _folder: Folder,
}

impl InFolder {
    pub(crate) fn store(folder: Folder, options: &SqliteOptions) -> Arc<dyn Store> {
        let store = SqliteStore::open_with(folder.database(), options.clone()).unwrap();
        Arc::new(Self { store, _folder: folder })
    }
}

impl Store for InFolder {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply> {
        self.store.call(op, limit)
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics)
    }

    fn presence(&self, session: SessionId) -> Answer<'_, Option<Presence>> {
        self.store.presence(session)
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        self.store.dedicated()
    }
}
