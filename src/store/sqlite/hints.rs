//! Hints: listeners are told of a change by a table of bells and by what the kernel tells of the database's file.
//!
//! A change rings in its own transaction: a row a bell, in the table `rings`. When that has committed, its process
//! sets the times of the database's file to now, which the kernel tells to all processes that watch the file for
//! that. They read the rows that are new to them, each on a thread and a connection of its own.
//!
//! The writes to SQLite's log would not do as a signal. With `synchronous=FULL` they come before the sync, the commit
//! can be seen only after it, and nothing tells of that: a quarter of the commits were noticed with the next write
//! only. They would also wake every listener for each beat of any session. A process that is killed between commit
//! and signal leaves its rows to the next signal, or to the poll of the waiters (R12).

#[cfg(any(target_os = "linux", target_os = "android"))]
mod listener;
mod table;
mod text;

#[cfg(test)]
#[cfg(any(target_os = "linux", target_os = "android"))]
mod tests;

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::broadcast;

use crate::{
    store::{
        Bell, Hint, Topic, Topics, hint_stream,
        hints::{Told, resyncs},
        sqlite::file::OpenFile,
    },
    sync::locked,
    words,
};
#[cfg(any(target_os = "linux", target_os = "android"))]
use listener::Listener;
pub(crate) use table::ring;

/// The way they come.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) const NAME: Option<&str> = Some("inotify");
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) const NAME: Option<&str> = None;

/// The number of hints a slow listener may lag behind before it gets a resync.
const HINTS_KEPT: usize = 4096;
/// Time after which a thread that could not be started is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// A message of the thread to its listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Bell(Bell),
    /// Something may have been missed.
    Resync,
    /// No bell is heard at present.
    Failing {
        error: Arc<str>,
        lasting: bool,
    },
}

impl Told for Heard {
    fn hint(self, topics: &BTreeSet<Topic>) -> Option<Hint> {
        match self {
            Self::Bell(bell) => bell.hint(topics),
            Self::Resync => Some(Hint::Resync),
            Self::Failing { error, lasting } => Some(Hint::Failing { error: error.to_string(), lasting }),
        }
    }
}

/// The hints of one store. Its clones are the same.
#[derive(Clone)]
pub(super) struct Hints(Arc<Shared>);

struct Shared {
    database: PathBuf,
    /// The file counts as open as long as a thread may have a connection.
    kept: Option<Arc<OpenFile>>,
    heard: broadcast::Sender<Heard>,
    /// There is one as long as a topic has a listener.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    listener: Mutex<Weak<Listener>>,
}

impl Hints {
    /// Of the database in that file.
    pub(super) fn of(file: &Arc<OpenFile>) -> Self {
        Self::new(file.path(), Some(Arc::clone(file)))
    }

    fn new(database: &Path, kept: Option<Arc<OpenFile>>) -> Self {
        Self(Arc::new(Shared {
            database: database.to_owned(),
            kept,
            heard: broadcast::Sender::new(HINTS_KEPT),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            listener: Mutex::default(),
        }))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Hints {
    /// Tells all listeners, in all processes, that something was [rung](ring): after the commit.
    pub(super) fn announce(&self) {
        use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        // Both times, which the kernel tells of as of a change of attributes. By its name: a descriptor of the
        // database that is closed would take SQLite's locks with it.
        let times = Timestamps { last_access: now, last_modification: now };
        if let Err(error) = utimensat(CWD, &self.0.database, &times, AtFlags::empty()) {
            let database = self.0.database.display();
            words::debug!(%database, %error, "could not ring: waiters find the change at their next read");
        }
    }

    /// The hints of one listener.
    pub(super) fn listen(&self, topics: Topics) -> BoxStream<'static, Hint> {
        let heard = hint_stream(self.0.heard.subscribe(), topics.clone());
        let added = resyncs(topics.clone());
        stream::select_all([heard, added.boxed(), self.0.clone().kept(topics)]).boxed()
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Hints {
    /// Does nothing: waiters look from time to time.
    pub(super) fn announce(&self) {}

    /// No news is told.
    pub(super) fn listen(&self, topics: Topics) -> BoxStream<'static, Hint> {
        resyncs(topics).boxed()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Shared {
    /// Keeps the thread as long as there are topics. Says when it cannot be started.
    fn kept(self: Arc<Self>, topics: Topics) -> BoxStream<'static, Hint> {
        let begun = (self, topics, None);
        stream::unfold(begun, |(shared, mut topics, mut listener)| async move {
            loop {
                if topics.borrow_and_update().is_empty() {
                    listener = None;
                } else if listener.is_none() {
                    match shared.listener() {
                        Ok(started) => listener = Some(started),
                        Err(error) => {
                            let hint = Hint::Failing { error: error.to_string(), lasting: false };
                            // The next round comes after the pause.
                            return Some((stream::iter([hint]).boxed(), (shared, topics, None)));
                        }
                    }
                }
                if topics.changed().await.is_err() {
                    // Its topics stay as they are.
                    std::future::pending::<()>().await;
                }
            }
        })
        .flat_map(|hints| {
            let pause = stream::once(tokio::time::sleep(AGAIN)).filter_map(|()| async { None });
            hints.chain(pause)
        })
        .boxed()
    }

    /// The thread that runs, or a new one.
    fn listener(&self) -> std::io::Result<Arc<Listener>> {
        let mut known = locked(&self.listener);
        if let Some(listener) = known.upgrade() {
            return Ok(listener);
        }
        let listener =
            Arc::new(Listener::start(self.database.clone(), self.kept.clone(), self.heard.clone())?);
        *known = Arc::downgrade(&listener);
        Ok(listener)
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hints").field("database", &self.0.database).finish_non_exhaustive()
    }
}
