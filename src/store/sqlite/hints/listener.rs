//! The thread of a store that hears that something was rung.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::inotify::{ReadFlags, WatchFlags};
use tokio::sync::broadcast;

use super::{Heard, table::Reader};
use crate::{
    store::sqlite::file::{
        OpenFile,
        inotify::{Stop, Watch, Watched, Woken},
    },
    words::{self, Under},
};

/// Time after which a database that could not be opened is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The time between two looks where nothing can be watched: a user has so many instances of inotify. A look costs a tenth of
/// a millisecond, and a hand-over takes half of this on the average.
const LOOK: Duration = Duration::from_millis(100);
/// The longest wait for a process that recovers the database.
const BUSY: Duration = Duration::from_secs(1);

/// The thread. It ends when this is dropped, as soon as it has finished what it does.
#[derive(Debug)]
pub(super) struct Listener {
    watch: Watch,
    /// False if nothing could be watched, and it looks instead.
    watches: bool,
    _stop: Stop,
    #[cfg(test)]
    thread: std::thread::JoinHandle<()>,
    /// Folder in which the kernel says how often it ran.
    #[cfg(test)]
    pub(super) task: Arc<std::sync::OnceLock<PathBuf>>,
}

impl Listener {
    /// Starts the thread. It says [`Heard::Resync`] when it listens.
    ///
    /// # Errors
    /// The database is not there, or the thread cannot be started.
    pub(super) fn start(
        database: PathBuf,
        kept: Option<Arc<OpenFile>>,
        heard: broadcast::Sender<Heard>,
    ) -> io::Result<Self> {
        // The file itself, not its folder: no listener is woken by what happens beside it, nor by writes that ring
        // nothing.
        let events = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        let (watch, stop) = Watch::new()?;
        let watched = match watch.add(&database, events) {
            Ok(watched) => Some(watched),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            Err(error) => {
                words::debug!(%error, every = ?LOOK, "looks at the topics of listeners from time to time");
                None
            }
        };
        let (watches, task) = (watched.is_some(), Arc::default());
        let ear =
            Ear { database, heard, watch: watch.clone(), watched, task: Arc::clone(&task), _kept: kept };
        let under = Under::current();
        let thread = std::thread::Builder::new().name("tenure-hints".to_owned());
        let thread = thread.spawn(move || under.run(|| ear.run()))?;
        #[cfg(not(test))]
        drop(thread);
        Ok(Self {
            watch,
            watches,
            _stop: stop,
            #[cfg(test)]
            thread,
            #[cfg(test)]
            task,
        })
    }

    /// Watches the file of a session besides; nothing if there is none, or it is looked for all the same.
    pub(super) fn also(&self, file: &Path) -> io::Result<Option<Watched>> {
        if !self.watches {
            return Ok(None);
        }
        match self.watch.add(file, WatchFlags::ATTRIB) {
            Ok(watched) => Ok(Some(watched)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends the thread, and waits until it has ended.
    #[cfg(test)]
    pub(super) fn end(self) {
        let Self { _stop: stop, thread, .. } = self;
        drop(stop);
        thread.join().unwrap();
    }
}

struct Ear {
    database: PathBuf,
    heard: broadcast::Sender<Heard>,
    watch: Watch,
    /// The database, if it can be watched.
    watched: Option<Watched>,
    task: Arc<std::sync::OnceLock<PathBuf>>,
    _kept: Option<Arc<OpenFile>>,
}

impl Ear {
    fn tell(&self, heard: Heard) {
        // An error only says that there is no listener now.
        let _ = self.heard.send(heard);
    }

    fn fail(&self, error: &dyn fmt::Display, lasting: bool) {
        let error = format!("could not follow the changes of {}: {error}", self.database.display());
        self.tell(Heard::Failing { error: error.into(), lasting });
    }

    fn run(self) {
        if cfg!(test) {
            let _ = self.task.set(std::fs::read_link("/proc/thread-self").unwrap_or_default());
        }
        let Some(mut reader) = self.reader() else { return };
        // A change rung before this place is found by looking.
        self.tell(Heard::Resync);
        loop {
            match self.watch.wait(self.watched.is_none().then_some(LOOK)) {
                Ok(Woken::Stopped) => return,
                Ok(Woken::Told | Woken::Late) => {}
                Err(error) => return self.fail(&error, true),
            }
            // All that was told until now is read at once.
            let moved = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED;
            let is_of_database = |event| self.watched.as_ref().is_some_and(|watched| watched.is_of(event));
            if self.watch.read().iter().any(|event| is_of_database(event) && event.flags.intersects(moved)) {
                return self.fail(&"it was moved or deleted", true);
            }
            for heard in reader.news() {
                self.tell(heard);
            }
        }
    }

    /// Opens the database; nothing if this is to end.
    fn reader(&self) -> Option<Reader> {
        let mut told = false;
        loop {
            match self.connect().and_then(Reader::new) {
                Ok(reader) => return Some(reader),
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        self.fail(&error, false);
                    }
                    if !matches!(self.watch.wait(Some(AGAIN)), Ok(Woken::Told | Woken::Late)) {
                        return None;
                    }
                    self.watch.read();
                }
            }
        }
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        // For writing, as a reader may have to make the index of the log; but nothing is written.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.database, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }
}
