//! Events of files, from the kernel to a thread that waits for them and can be ended at any time.

use std::{
    ffi::OsStr,
    fmt, io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};

/// Ends a thread that waits, when it is dropped.
#[derive(Debug)]
pub(crate) struct Stop(Arc<OwnedFd>);

impl Drop for Stop {
    fn drop(&mut self) {
        // It fails only if it was told 2^64 times before.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// Why a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The thread is to end.
    Stopped,
    /// Something was told.
    Told,
    /// The time is over.
    Late,
}

/// A watch on one path.
pub(crate) struct Watch {
    /// None until the path is watched.
    inotify: Option<OwnedFd>,
    stop: Arc<OwnedFd>,
}

impl Watch {
    /// Watches a path for these events. What happens from then on is told.
    pub(crate) fn new(path: &Path, events: WatchFlags) -> io::Result<(Self, Stop)> {
        let (mut watch, stop) = Self::of_nothing()?;
        watch.begin(path, events)?;
        Ok((watch, stop))
    }

    /// Watches nothing until it [begins](Self::begin), and can be ended all the same.
    pub(crate) fn of_nothing() -> io::Result<(Self, Stop)> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok((Self { inotify: None, stop: stop.clone() }, Stop(stop)))
    }

    /// Watches a path for these events from now on.
    pub(crate) fn begin(&mut self, path: &Path, events: WatchFlags) -> io::Result<()> {
        let say = |error: Errno, hint: &str| {
            let text = format!("could not watch {}: {error}{hint}", path.display());
            io::Error::new(io::Error::from(error).kind(), text)
        };
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|error| {
            let many = error == Errno::MFILE;
            say(error, if many { " (the limit may be fs.inotify.max_user_instances)" } else { "" })
        })?;
        inotify::add_watch(&inotify, path, events).map_err(|error| {
            let many = error == Errno::NOSPC;
            say(error, if many { " (the limit is fs.inotify.max_user_watches)" } else { "" })
        })?;
        self.inotify = Some(inotify);
        Ok(())
    }

    /// Waits until something is told, or this is to end, or that time is over.
    pub(crate) fn wait(&self, at_most: Option<Duration>) -> io::Result<Woken> {
        // One that is too long for the kernel is for ever.
        let at_most = at_most.and_then(|time| Timespec::try_from(time).ok());
        let (told, stopped) = loop {
            let watched = self.inotify.as_ref().map_or(self.stop.as_fd(), AsFd::as_fd);
            let mut both = [
                PollFd::from_borrowed_fd(watched, PollFlags::IN),
                PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            ];
            match poll(&mut both, at_most.as_ref()) {
                Ok(_) => break (!both[0].revents().is_empty(), !both[1].revents().is_empty()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        Ok(match (stopped, told) {
            (true, _) => Woken::Stopped,
            (false, true) => Woken::Told,
            (false, false) => Woken::Late,
        })
    }

    /// Reads all that was told, without waiting: what happened, and the name of the file in a folder.
    pub(crate) fn read(&self, mut each: impl FnMut(ReadFlags, Option<&OsStr>)) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); 4096];
        let Some(inotify) = &self.inotify else { return Ok(()) };
        let mut reader = Reader::new(inotify, &mut space);
        loop {
            match reader.next() {
                Ok(event) => {
                    each(event.events(), event.file_name().map(|name| OsStr::from_bytes(name.to_bytes())));
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_ends_when_its_owner_lets_go() {
        let (watch, stop) = Watch::new(&std::env::temp_dir(), WatchFlags::DELETE_SELF).unwrap();
        let thread = std::thread::spawn(move || watch.wait(None).unwrap());
        drop(stop);
        assert_eq!(thread.join().unwrap(), Woken::Stopped);
    }

    #[test]
    fn a_watch_of_nothing_waits_until_its_time_is_over_or_its_owner_lets_go() {
        let (watch, stop) = Watch::of_nothing().unwrap();
        assert_eq!(watch.wait(Some(Duration::from_millis(1))).unwrap(), Woken::Late);
        watch.read(|events, _| panic!("{events:?}")).unwrap();
        drop(stop);
        assert_eq!(watch.wait(None).unwrap(), Woken::Stopped);
    }

    #[test]
    fn a_path_that_cannot_be_watched_is_named() {
        let error = Watch::new(Path::new("/proc/none"), WatchFlags::ATTRIB).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with("could not watch /proc/none: "), "{error}");
    }
}
