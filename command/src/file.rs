//! A file that is followed: whoever waits learns that it may have changed.

use std::{
    io,
    mem::MaybeUninit,
    path::{Path, PathBuf},
};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::sync::mpsc;

/// Follows the folder of a file, as a file that is replaced by another is not the one that was opened. What is in a
/// volume of Kubernetes changes by a link beside it.
pub(crate) fn follow(file: &Path) -> io::Result<mpsc::Receiver<()>> {
    let folder: PathBuf = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => ".".into(),
    };
    let watch = inotify::init(CreateFlags::CLOEXEC)?;
    let what = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::DELETE;
    inotify::add_watch(&watch, &folder, what)?;
    // One that was not heard yet stands for all that came since.
    let (send, receive) = mpsc::channel(1);
    let listen = move || {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(watch, &mut space);
        loop {
            match events.next() {
                Ok(_) => {
                    if send.try_send(()) == Err(mpsc::error::TrySendError::Closed(())) {
                        return;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    eprintln!(
                        "tenure: changes of files in {} are not noticed any more: {error}",
                        folder.display()
                    );
                    return;
                }
            }
        }
    };
    std::thread::Builder::new().name("tenure-file".to_owned()).spawn(listen)?;
    Ok(receive)
}
