//! A file that is followed: a waiter learns that it may have changed.

use std::{
    ffi::OsStr,
    fs, io,
    mem::MaybeUninit,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};
use tokio::sync::mpsc;

use crate::say;

/// Time between two looks at a file.
const LOOK: Duration = Duration::from_secs(3);

/// A file that is read again when it changes; or none.
#[derive(Debug)]
pub(crate) struct Followed {
    path: Option<PathBuf>,
    changes: Option<mpsc::Receiver<()>>,
}

impl Followed {
    /// Follows a file from now on, on the runtime that this is called on.
    pub(crate) fn of(path: Option<&Path>) -> Self {
        let changes = path.map(|path| {
            // One that was not heard yet stands for all that came since.
            let (send, receive) = mpsc::channel(1);
            if let Err(error) = follow(path, send.clone()) {
                say::say(format_args!(
                    "the kernel gives no notice of changes of {}, so it is looked at every {}: {error}{}",
                    path.display(),
                    humantime::format_duration(LOOK),
                    limit(&error)
                ));
            }
            tokio::spawn(look_at(path.to_owned(), send));
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

/// Looks at a file from time to time. The kernel tells of changes in one folder alone: not of the file that a link or a
/// mount leads to, nor of those on another host.
async fn look_at(file: PathBuf, changed: mpsc::Sender<()>) {
    let look = || {
        let seen = fs::metadata(&file).ok()?;
        Some((seen.modified().ok(), seen.len(), seen.dev(), seen.ino()))
    };
    let (mut told, mut before) = (look(), look());
    while !changed.is_closed() {
        tokio::time::sleep(LOOK).await;
        let now = look();
        // One that is being written may be half there: it is told of once it stays as it is.
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

/// Returns whether the kernel gives notice of changes of a file.
pub(crate) fn try_notice(file: &Path) -> io::Result<()> {
    let inotify = inotify::init(CreateFlags::CLOEXEC)?;
    inotify::add_watch(&inotify, file, WatchFlags::ATTRIB)?;
    Ok(())
}

/// Follows the folder of a file, as a file that is replaced by another is not the one that was opened. What is in a
/// volume of Kubernetes changes by a link beside it.
fn follow(file: &Path, changed: mpsc::Sender<()>) -> io::Result<()> {
    let folder: PathBuf = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => ".".into(),
    };
    let watch = inotify::init(CreateFlags::CLOEXEC)?;
    let what = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::DELETE;
    let own = file.file_name().map(ToOwned::to_owned);
    inotify::add_watch(&watch, &folder, what)?;
    let listen = move || {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(watch, &mut space);
        loop {
            match events.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                    let is_link = name.as_ref().is_some_and(|name| folder.join(name).is_symlink());
                    // A file that is made is empty until it is closed; of others only links concern this one.
                    let is_whole = !event.events().contains(ReadFlags::CREATE);
                    if !(is_link || is_whole && name == own) {
                        continue;
                    }
                    if changed.try_send(()) == Err(mpsc::error::TrySendError::Closed(())) {
                        return;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    say::say(format_args!(
                        "changes of files in {} are not noticed any more: {error}",
                        folder.display()
                    ));
                    return;
                }
            }
        }
    };
    std::thread::Builder::new().name("tenure-file".to_owned()).spawn(listen)?;
    Ok(())
}
