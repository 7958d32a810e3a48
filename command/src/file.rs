//! A file that is followed: a waiter learns that it may have changed.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::{
    fs::inotify::{self, CreateFlags, WatchFlags},
    io::Errno,
};
use tokio::sync::mpsc;

/// Time between two looks at a file.
const LOOK: Duration = Duration::from_secs(1);

/// A file that is read again when it changes; or none.
#[derive(Debug)]
pub(crate) struct Followed {
    path: Option<PathBuf>,
    changes: Option<mpsc::Receiver<()>>,
}

impl Followed {
    /// Follows a file from now on, on the runtime that this is called on: one that is read after this is known.
    pub(crate) fn of(path: Option<&Path>) -> Self {
        let changes = path.map(|path| {
            // A change that was not heard yet stands for all that came since.
            let (send, receive) = mpsc::channel(1);
            tokio::spawn(look_at(path.to_owned(), look(path), send));
            receive
        });
        Self { path: path.map(ToOwned::to_owned), changes }
    }

    pub(crate) const fn is_there(&self) -> bool {
        self.path.is_some()
    }

    /// Waits until it may have changed.
    ///
    /// # Cancel safety
    /// No change is lost.
    pub(crate) async fn changed(&mut self) {
        match &mut self.changes {
            Some(changes) => {
                if changes.recv().await.is_none() {
                    self.changes = None;
                }
            }
            None => std::future::pending().await,
        }
    }

    /// Returns its path if it is empty, as one is that is about to be written. That is not what is wanted from now
    /// on: a user who wants nothing writes a comment.
    pub(crate) fn blank(&self) -> Option<&Path> {
        self.path.as_deref().filter(|path| path.metadata().is_ok_and(|file| file.len() == 0))
    }
}

/// A text without the mark of its encoding, by which some editors begin a file.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The time of a file, its size, and the file itself: one of them changes with it.
type Seen = (SystemTime, u64, u64, u64);

fn look(file: &Path) -> Option<Seen> {
    let seen = fs::metadata(file).ok()?;
    Some((seen.modified().ok()?, seen.len(), seen.dev(), seen.ino()))
}

/// Looks at a file from time to time. The kernel would tell of changes in one folder alone: not of the file that a link or
/// a mount leads to, nor of those on another host; and it has few instances of inotify for a user.
async fn look_at(file: PathBuf, mut told: Option<Seen>, changed: mpsc::Sender<()>) {
    let mut before = told;
    while !changed.is_closed() {
        tokio::time::sleep(LOOK).await;
        // Elsewhere: a file of another host can make a look wait for ever.
        let path = file.clone();
        let Ok(now) = tokio::task::spawn_blocking(move || look(&path)).await else { return };
        // A file that is being written may be half there: it is told of once it stays as it is.
        if now != told && now == before {
            told = now;
            let _ = changed.try_send(());
        }
        before = now;
    }
}

/// Names the setting that bars notices, if one does.
pub(crate) fn limit(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => " (the limit may be fs.inotify.max_user_instances)",
        Some(Errno::NOSPC) => " (the limit is fs.inotify.max_user_watches)",
        _ => "",
    }
}

/// Returns whether the kernel gives notice of changes of a file. What this process has is enough for one more.
pub(crate) fn try_notice(file: &Path) -> io::Result<()> {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    if open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|file| file == Path::new("anon_inode:inotify"))
    {
        return Ok(());
    }
    let inotify = inotify::init(CreateFlags::CLOEXEC)?;
    inotify::add_watch(&inotify, file, WatchFlags::ATTRIB)?;
    Ok(())
}
