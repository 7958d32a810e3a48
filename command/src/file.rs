//! A file that is followed: a waiter learns that it may have changed.

use std::{
    ffi::OsStr,
    io,
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::sync::mpsc;

use crate::{exit::Failure, say};

/// A file that is read again when it changes; or none.
#[derive(Debug)]
pub(crate) struct Followed {
    path: Option<PathBuf>,
    changes: Option<mpsc::Receiver<()>>,
}

impl Followed {
    pub(crate) fn of(path: Option<&Path>) -> Result<Self, Failure> {
        let cannot = |path: &Path, error| {
            Failure::failed(format!("cannot watch {} for changes: {error}", path.display()))
        };
        let changes = path.map(|path| follow(path).map_err(|error| cannot(path, error))).transpose()?;
        Ok(Self { path: path.map(ToOwned::to_owned), changes })
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

/// Follows the folder of a file, as a file that is replaced by another is not the one that was opened. What is in a
/// volume of Kubernetes changes by a link beside it.
fn follow(file: &Path) -> io::Result<mpsc::Receiver<()>> {
    let folder: PathBuf = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => ".".into(),
    };
    let watch = inotify::init(CreateFlags::CLOEXEC)?;
    let what = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::DELETE;
    let own = file.file_name().map(ToOwned::to_owned);
    inotify::add_watch(&watch, &folder, what)?;
    // One that was not heard yet stands for all that came since.
    let (send, receive) = mpsc::channel(1);
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
                    if send.try_send(()) == Err(mpsc::error::TrySendError::Closed(())) {
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
    Ok(receive)
}
