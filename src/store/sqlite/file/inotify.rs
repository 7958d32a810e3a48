//! Events of files, from the kernel to a thread that waits for them and can be ended at any time.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt, io,
    mem::{self, MaybeUninit},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    ptr,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};

use crate::{
    clock::{Clock, SystemClock},
    sync::locked,
};

/// Ends a thread that waits, when it is dropped.
#[derive(Debug)]
pub(crate) struct Stop(Arc<OwnedFd>);

impl Drop for Stop {
    fn drop(&mut self) {
        notify(&*self.0);
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

/// Events of one path, and the name of the file in a folder.
type Events = Vec<(ReadFlags, Option<OsString>)>;

/// Events for one watch that it has not read yet.
struct Inbox {
    events: Mutex<Events>,
    /// Wakes its thread.
    news: OwnedFd,
    stop: Arc<OwnedFd>,
}

/// The instance of inotify of this process, which all watches share: a user has few, on Linux 128. Its thread gives each
/// watch its events, so that none is woken by those of another.
struct Shared {
    inner: Arc<Inner>,
    /// Ends the thread.
    _stop: Stop,
}

struct Inner {
    inotify: OwnedFd,
    /// Of each watch of the kernel, which is the same for all that watch the same file.
    inboxes: Mutex<BTreeMap<i32, Vec<Weak<Inbox>>>>,
}

/// The instance, while there is a watch.
static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

impl Shared {
    fn get() -> io::Result<Arc<Self>> {
        let mut known = locked(&SHARED);
        if let Some(shared) = known.upgrade() {
            return Ok(shared);
        }
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let inner = Arc::new(Inner { inotify, inboxes: Mutex::default() });
        let stop = Arc::new(event()?);
        let (of_thread, stopped) = (inner.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("tenure-inotify".to_owned());
        thread.spawn(move || of_thread.hand_out(&stopped))?;
        let shared = Arc::new(Self { inner, _stop: Stop(stop) });
        *known = Arc::downgrade(&shared);
        Ok(shared)
    }
}

impl Inner {
    fn add(&self, path: &Path, events: WatchFlags, inbox: &Arc<Inbox>) -> Result<i32, Errno> {
        let mut inboxes = locked(&self.inboxes);
        let number = inotify::add_watch(&self.inotify, path, events | WatchFlags::MASK_ADD)?;
        inboxes.entry(number).or_default().push(Arc::downgrade(inbox));
        Ok(number)
    }

    fn remove(&self, number: i32, inbox: &Arc<Inbox>) {
        let mut inboxes = locked(&self.inboxes);
        let Some(of_it) = inboxes.get_mut(&number) else { return };
        of_it.retain(|one| !ptr::eq(one.as_ptr(), Arc::as_ptr(inbox)));
        if of_it.is_empty() {
            inboxes.remove(&number);
            // Of a file that is gone there is no watch any more.
            let _ = inotify::remove_watch(&self.inotify, number);
        }
    }

    /// Gives each watch its events, until this is to end.
    fn hand_out(&self, stop: &OwnedFd) {
        loop {
            let both = [self.inotify.as_fd(), stop.as_fd()];
            let mut wanted = both.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN));
            let waited = poll(&mut wanted, None);
            if !wanted[1].revents().is_empty() {
                return;
            }
            // Both fail only for reasons that do not pass.
            if !matches!(waited, Ok(_) | Err(Errno::INTR)) || self.hand_out_those_there().is_err() {
                return;
            }
        }
    }

    fn hand_out_those_there(&self) -> Result<(), Errno> {
        let inboxes = locked(&self.inboxes);
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut space);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
            // That some are lost concerns all.
            let is_for_all = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            let of = inboxes.iter().filter(|(number, _)| is_for_all || **number == event.wd());
            for inbox in of.flat_map(|(_, inboxes)| inboxes).filter_map(Weak::upgrade) {
                locked(&inbox.events).push((event.events(), name.clone()));
                notify(&inbox.news);
            }
        }
    }
}

fn event() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Makes a descriptor readable. It fails only if that was done 2^64 times before.
fn notify(event: impl AsFd) {
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// A watch on one path.
pub(crate) struct Watch {
    inbox: Arc<Inbox>,
    /// None until the path is watched.
    watched: Option<(Arc<Shared>, i32)>,
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
        let stop = Arc::new(event()?);
        let inbox = Inbox { events: Mutex::default(), news: event()?, stop: stop.clone() };
        Ok((Self { inbox: Arc::new(inbox), watched: None }, Stop(stop)))
    }

    /// Watches a path for these events from now on.
    pub(crate) fn begin(&mut self, path: &Path, events: WatchFlags) -> io::Result<()> {
        let say = |error: io::Error, (reached, limit): (Errno, &str)| {
            let hint = if Errno::from_io_error(&error) == Some(reached) { limit } else { "" };
            io::Error::new(error.kind(), format!("could not watch {}: {error}{hint}", path.display()))
        };
        let shared = Shared::get().map_err(|error| {
            say(error, (Errno::MFILE, " (the limit may be fs.inotify.max_user_instances)"))
        })?;
        let number = shared.inner.add(path, events, &self.inbox).map_err(|error| {
            say(error.into(), (Errno::NOSPC, " (the limit is fs.inotify.max_user_watches)"))
        })?;
        self.watched = Some((shared, number));
        Ok(())
    }

    /// Waits until something is told, or this is to end, or that time is over.
    pub(crate) fn wait(&self, at_most: Option<Duration>) -> io::Result<Woken> {
        let clock = SystemClock::new();
        let until = at_most.map(|time| clock.now() + time);
        loop {
            // A time that is too long for the kernel is for ever.
            let left = until.and_then(|until| Timespec::try_from(until.since(clock.now())).ok());
            let [stop, news] = [&self.inbox.stop, &self.inbox.news].map(|one| one.as_fd());
            let mut wanted = [stop, news].map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN));
            match poll(&mut wanted, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !wanted[0].revents().is_empty() {
                return Ok(Woken::Stopped);
            }
            let _ = rustix::io::read(&self.inbox.news, &mut [0; 8]);
            if !locked(&self.inbox.events).is_empty() {
                return Ok(Woken::Told);
            }
            if until.is_some_and(|until| until <= clock.now()) {
                return Ok(Woken::Late);
            }
        }
    }

    /// Takes all that was told, without waiting.
    pub(crate) fn read(&self, mut each: impl FnMut(ReadFlags, Option<&OsStr>)) {
        for (events, name) in mem::take(&mut *locked(&self.inbox.events)) {
            each(events, name.as_deref());
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((shared, number)) = self.watched.take() {
            shared.inner.remove(number, &self.inbox);
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
        watch.read(|events, _| panic!("{events:?}"));
        drop(stop);
        assert_eq!(watch.wait(None).unwrap(), Woken::Stopped);
    }

    #[test]
    fn watches_share_an_instance_and_each_hears_of_its_own_path() {
        let folder = std::env::temp_dir().join(format!("tenure-inotify-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (one, other) = (folder.join("one"), folder.join("other"));
        std::fs::write(&one, "").unwrap();
        std::fs::write(&other, "").unwrap();
        let watch = |path: &Path, events| Watch::new(path, events).unwrap();
        let (first, _stop) = watch(&one, WatchFlags::ATTRIB);
        let (same, _stop) = watch(&one, WatchFlags::CLOSE_WRITE);
        let (second, _stop) = watch(&other, WatchFlags::ATTRIB);
        let shared = |watch: &Watch| Arc::as_ptr(&watch.watched.as_ref().unwrap().0);
        assert!(ptr::eq(shared(&first), shared(&second)) && ptr::eq(shared(&first), shared(&same)));
        let told = |watch: &Watch| {
            let mut told = 0;
            watch.read(|_, _| told += 1);
            told
        };
        std::fs::write(&one, "x").unwrap();
        assert_eq!(first.wait(None).unwrap(), Woken::Told);
        assert_eq!(same.wait(None).unwrap(), Woken::Told);
        assert_eq!(second.wait(Some(Duration::from_millis(1))).unwrap(), Woken::Late);
        assert_eq!(told(&second), 0, "that of another path");
        // A watch goes, and another of the same file hears on, up to the end of the file.
        drop(same);
        std::fs::remove_file(&one).unwrap();
        let mut is_gone = false;
        while !is_gone {
            assert_eq!(first.wait(None).unwrap(), Woken::Told);
            first.read(|events, _| is_gone |= events.contains(ReadFlags::IGNORED));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_path_that_cannot_be_watched_is_named() {
        let error = Watch::new(Path::new("/proc/none"), WatchFlags::ATTRIB).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with("could not watch /proc/none: "), "{error}");
    }
}
