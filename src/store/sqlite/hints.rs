//! Hints: listeners are told of a change by a table of bells and by what the kernel tells of a file.
//!
//! A change rings in its own transaction: a row a bell, in the table `rings`. When that has committed, its process
//! sets the times of a file to now, which the kernel tells to all processes that watch the file for that. They read the
//! rows that are new to them, each on a thread and a connection of its own. For a hand-over it is the file of the session
//! that gets the lock, which its process alone watches: one of all that wait is woken. For all other bells, and where the
//! session has no file, it is the database's. A process that can watch nothing looks at the rows from time to time.
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

#[cfg(any(target_os = "linux", target_os = "android"))]
use std::collections::BTreeMap;
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
    store::{Bell, Hint, News, Topic, Topics, hint_stream, hints::Told, sqlite::file::OpenFile},
    sync::locked,
    words,
};
pub(crate) use table::ring;
#[cfg(any(target_os = "linux", target_os = "android"))]
use {super::file::inotify::Watched, listener::Listener};

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
    /// The folder in which sessions have their files, if they have.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    sessions: Option<PathBuf>,
    /// The file counts as open as long as a thread may have a connection.
    kept: Option<Arc<OpenFile>>,
    heard: broadcast::Sender<Heard>,
    /// There is one as long as a topic has a listener.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    listener: Mutex<Weak<Listener>>,
}

impl Hints {
    /// Of the database in that file, and of the sessions with files in that folder.
    pub(super) fn of(file: &Arc<OpenFile>, sessions: Option<&Path>) -> Self {
        Self::new(file.path(), sessions, Some(Arc::clone(file)))
    }

    #[cfg_attr(
        not(any(target_os = "linux", target_os = "android")),
        expect(unused_variables, reason = "there are no such files")
    )]
    fn new(database: &Path, sessions: Option<&Path>, kept: Option<Arc<OpenFile>>) -> Self {
        Self(Arc::new(Shared {
            database: database.to_owned(),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            sessions: sessions.map(ToOwned::to_owned),
            kept,
            heard: broadcast::Sender::new(HINTS_KEPT),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            listener: Mutex::default(),
        }))
    }
}

/// Sets the times of a file to now, which its watchers are told as a change of attributes. By its name: a descriptor of the
/// database that is closed would take SQLite's locks with it.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn touch(file: &Path) -> rustix::io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    utimensat(CWD, file, &Timestamps { last_access: now, last_modification: now }, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Hints {
    /// Tells their listeners, in all processes, that these were [rung](ring): after the commit.
    pub(super) fn announce<'a>(&self, bells: impl IntoIterator<Item = &'a Bell>) {
        let file = |bell: &Bell| matches!(bell.news, News::Handed(_)).then(|| self.0.file_of(&bell.to))?;
        let files = bells.into_iter().map(file).collect::<BTreeSet<_>>();
        // Where a session has no file it is the database's, which all hear.
        let is_told = |file: &Option<PathBuf>| file.as_ref().is_some_and(|file| touch(file).is_ok());
        if !files.iter().all(is_told)
            && let Err(error) = touch(&self.0.database)
        {
            let database = self.0.database.display();
            words::debug!(%database, %error, "could not ring: waiters find the change at their next read");
        }
    }

    /// The hints of one listener.
    pub(super) fn listen(&self, topics: Topics) -> BoxStream<'static, Hint> {
        let heard = hint_stream(self.0.heard.subscribe(), topics.clone());
        stream::select_all([heard, self.0.clone().kept(topics)]).boxed()
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Hints {
    /// Does nothing: waiters look from time to time.
    pub(super) fn announce<'a>(&self, _: impl IntoIterator<Item = &'a Bell>) {}

    /// No news is told.
    pub(super) fn listen(&self, topics: Topics) -> BoxStream<'static, Hint> {
        crate::store::hints::resyncs(topics).boxed()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Shared {
    /// The file by which a session is told of a lock that it got; none for topics of others.
    fn file_of(&self, topic: &Topic) -> Option<PathBuf> {
        match topic {
            Topic::Session(session) => Some(self.sessions.as_ref()?.join(session.to_string())),
            Topic::Spread(..) => None,
        }
    }

    /// Keeps the thread as long as there are topics, and watches what tells of them: with a resync, as a change may have
    /// come before. Says what cannot be watched.
    fn kept(self: Arc<Self>, topics: Topics) -> BoxStream<'static, Hint> {
        let begun = (self, topics, Ears::default());
        stream::unfold(begun, |(shared, mut topics, mut ears)| async move {
            loop {
                let wanted = topics.borrow_and_update().clone();
                match ears.turn_to(&shared, &wanted) {
                    Ok(false) => {}
                    Ok(true) => {
                        let resync = stream::iter([Hint::Resync]).boxed();
                        return Some((resync, (shared, topics, ears)));
                    }
                    Err(error) => {
                        let error = Hint::Failing { error: error.to_string(), lasting: false };
                        // The next round comes after the pause.
                        let pause = stream::once(tokio::time::sleep(AGAIN)).filter_map(|()| async { None });
                        let hints = stream::iter([error]).chain(pause).boxed();
                        return Some((hints, (shared, topics, ears)));
                    }
                }
                if topics.changed().await.is_err() {
                    // Its topics stay as they are.
                    std::future::pending::<()>().await;
                }
            }
        })
        .flatten()
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

/// The thread, and the topics that it tells of to one listener.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Default)]
struct Ears {
    listener: Option<Arc<Listener>>,
    watched: BTreeMap<Topic, Option<Watched>>,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Ears {
    /// Listens to these topics from now on. Returns whether there are new ones.
    fn turn_to(&mut self, shared: &Shared, topics: &BTreeSet<Topic>) -> std::io::Result<bool> {
        self.watched.retain(|topic, _| topics.contains(topic));
        if topics.is_empty() {
            self.listener = None;
            return Ok(false);
        }
        let listener = match &self.listener {
            Some(listener) => listener,
            None => self.listener.insert(shared.listener()?),
        };
        let known = self.watched.len();
        for topic in topics {
            if !self.watched.contains_key(topic) {
                let watched = shared.file_of(topic).map(|file| listener.also(&file)).transpose()?;
                self.watched.insert(topic.clone(), watched.flatten());
            }
        }
        Ok(self.watched.len() > known)
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hints").field("database", &self.0.database).finish_non_exhaustive()
    }
}
