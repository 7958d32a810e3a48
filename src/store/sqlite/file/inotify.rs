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

/// A change that was told.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The kernel's number of the watch, which [`Watched::is_of`] knows.
    number: i32,
    pub(crate) flags: ReadFlags,
    /// The name of the file in a folder that is watched.
    pub(crate) name: Option<OsString>,
}

/// Events that one thread has not read yet.
struct Inbox {
    events: Mutex<Vec<Event>>,
    /// Wakes the thread.
    news: OwnedFd,
    stop: Arc<OwnedFd>,
}

impl Inbox {
    fn tell(&self, event: Event) {
        locked(&self.events).push(event);
        notify(&self.news);
    }
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
        if let Some(place) = of_it.iter().position(|one| ptr::eq(one.as_ptr(), Arc::as_ptr(inbox))) {
            of_it.swap_remove(place);
        }
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
                return self.hand_out_that_it_ends();
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
            for (number, inboxes) in inboxes.iter().filter(|(number, _)| is_for_all || **number == event.wd())
            {
                for inbox in inboxes.iter().filter_map(Weak::upgrade) {
                    inbox.tell(Event { number: *number, flags: event.events(), name: name.clone() });
                }
            }
        }
    }

    /// Tells each watch what the kernel tells of the last event of a path. Later ones get another instance.
    fn hand_out_that_it_ends(&self) {
        *locked(&SHARED) = Weak::new();
        for (number, inboxes) in &*locked(&self.inboxes) {
            for inbox in inboxes.iter().filter_map(Weak::upgrade) {
                inbox.tell(Event { number: *number, flags: ReadFlags::IGNORED, name: None });
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

/// The events of some paths, for a thread that waits for them. Its clones are the same.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Inbox>);

/// A path whose events are told, until this is dropped.
pub(crate) struct Watched {
    shared: Arc<Shared>,
    number: i32,
    inbox: Arc<Inbox>,
}

impl Watched {
    /// Returns whether an event is one of this path.
    pub(crate) const fn is_of(&self, event: &Event) -> bool {
        self.number == event.number
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.shared.inner.remove(self.number, &self.inbox);
    }
}

impl Watch {
    /// Watches nothing until a path is [added](Self::add), and can be ended all the same.
    pub(crate) fn new() -> io::Result<(Self, Stop)> {
        let stop = Arc::new(event()?);
        let inbox = Inbox { events: Mutex::default(), news: event()?, stop: stop.clone() };
        Ok((Self(Arc::new(inbox)), Stop(stop)))
    }

    /// Watches a path for these events from now on.
    pub(crate) fn add(&self, path: &Path, events: WatchFlags) -> io::Result<Watched> {
        let say = |error: io::Error, (reached, limit): (Errno, &str)| {
            let hint = if Errno::from_io_error(&error) == Some(reached) { limit } else { "" };
            io::Error::new(error.kind(), format!("could not watch {}: {error}{hint}", path.display()))
        };
        let shared = Shared::get().map_err(|error| {
            say(error, (Errno::MFILE, " (the limit may be fs.inotify.max_user_instances)"))
        })?;
        let number = shared.inner.add(path, events, &self.0).map_err(|error| {
            say(error.into(), (Errno::NOSPC, " (the limit is fs.inotify.max_user_watches)"))
        })?;
        Ok(Watched { shared, number, inbox: Arc::clone(&self.0) })
    }

    /// Waits until something is told, or this is to end, or that time is over.
    pub(crate) fn wait(&self, at_most: Option<Duration>) -> io::Result<Woken> {
        let clock = SystemClock::new();
        let until = at_most.map(|time| clock.now() + time);
        loop {
            // A time that is too long for the kernel is for ever.
            let left = until.and_then(|until| Timespec::try_from(until.since(clock.now())).ok());
            let [stop, news] = [&self.0.stop, &self.0.news].map(|one| one.as_fd());
            let mut wanted = [stop, news].map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN));
            match poll(&mut wanted, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !wanted[0].revents().is_empty() {
                return Ok(Woken::Stopped);
            }
            let _ = rustix::io::read(&self.0.news, &mut [0; 8]);
            if !locked(&self.0.events).is_empty() {
                return Ok(Woken::Told);
            }
            if until.is_some_and(|until| until <= clock.now()) {
                return Ok(Woken::Late);
            }
        }
    }

    /// Takes all that was told, without waiting.
    pub(crate) fn read(&self) -> Vec<Event> {
        mem::take(&mut *locked(&self.0.events))
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("number", &self.number).finish_non_exhaustive()
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
        let (watch, stop) = Watch::new().unwrap();
        let thread = std::thread::spawn(move || watch.wait(None).unwrap());
        drop(stop);
        assert_eq!(thread.join().unwrap(), Woken::Stopped);
    }

    #[test]
    fn a_watch_of_nothing_waits_until_its_time_is_over_or_its_owner_lets_go() {
        let (watch, stop) = Watch::new().unwrap();
        assert_eq!(watch.wait(Some(Duration::from_millis(1))).unwrap(), Woken::Late);
        assert!(watch.read().is_empty());
        drop(stop);
        assert_eq!(watch.wait(None).unwrap(), Woken::Stopped);
    }

    #[test]
    fn watches_share_an_instance_and_each_hears_of_its_own_paths() {
        let folder = std::env::temp_dir().join(format!("tenure-inotify-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let [one, other, third] = ["one", "other", "third"].map(|name| folder.join(name));
        for path in [&one, &other, &third] {
            std::fs::write(path, "").unwrap();
        }
        let ((first, _stop), (second, _other_stop)) = (Watch::new().unwrap(), Watch::new().unwrap());
        let of_one = first.add(&one, WatchFlags::ATTRIB).unwrap();
        let also_of_one = second.add(&one, WatchFlags::CLOSE_WRITE).unwrap();
        let of_other = second.add(&other, WatchFlags::ATTRIB).unwrap();
        assert!(ptr::eq(&raw const *of_one.shared, &raw const *of_other.shared));
        std::fs::write(&one, "x").unwrap();
        assert_eq!(first.wait(None).unwrap(), Woken::Told);
        assert_eq!(second.wait(None).unwrap(), Woken::Told);
        assert!(first.read().iter().all(|event| of_one.is_of(event)));
        let told = second.read();
        assert!(told.iter().all(|event| also_of_one.is_of(event) && !of_other.is_of(event)), "{told:?}");
        // A path goes, and the other watch of the same file hears on, up to the end of the file.
        drop(also_of_one);
        std::fs::remove_file(&one).unwrap();
        let mut is_gone = false;
        while !is_gone {
            assert_eq!(first.wait(None).unwrap(), Woken::Told);
            is_gone |= first.read().iter().any(|event| event.flags.contains(ReadFlags::IGNORED));
        }
        assert_eq!(second.wait(Some(Duration::from_millis(1))).unwrap(), Woken::Late, "that of another path");
        // The kernel's last word, should the thread fail.
        of_other.shared.inner.hand_out_that_it_ends();
        let told = second.read();
        assert!(told.iter().any(|event| of_other.is_of(event) && event.flags.contains(ReadFlags::IGNORED)));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_path_that_cannot_be_watched_is_named() {
        let (watch, _stop) = Watch::new().unwrap();
        let error = watch.add(Path::new("/proc/none"), WatchFlags::ATTRIB).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().starts_with("could not watch /proc/none: "), "{error}");
    }
}
