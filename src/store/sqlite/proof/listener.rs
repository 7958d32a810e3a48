//! The thread of a store that hears of files that are closed, and proves sessions dead.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use rustix::fs::inotify::{ReadFlags, WatchFlags};

use super::{Identity, NoProof, Proof, SessionFiles};
use crate::{
    clock::{Clock, Moment, SystemClock},
    model::SessionId,
    store::sqlite::file::inotify::{Stop, Watch, Watched, Woken},
    words,
};

/// The duration of attempts at a locked file: the kernel reports a close a moment before it releases the lock, and does
/// not report the release. A file that is still locked then was opened by another process, which closed it.
const SOON: Duration = Duration::from_secs(2);
/// The duration of attempts to write a proven death. After that others find it by the session's ttl.
const LATEST: Duration = Duration::from_secs(30);
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// The times between two attempts to watch the folder, where the first one failed: a user has so many instances of
/// inotify. All files are looked at with each.
const SHORTEST_AGAIN: Duration = Duration::from_millis(100);
const LONGEST_AGAIN: Duration = Duration::from_secs(10);
/// The number of sessions that are looked at together.
const PART: usize = 500;

/// The state of a session on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OnRecord {
    /// The session is alive, and holds that file, if it could be given one.
    Alive(Option<Identity>),
    /// The session is dead: its file is not needed any more.
    Dead,
    /// There is none: it is just being opened, or its process died before that, or its record was purged.
    Missing,
}

/// The records of sessions, as the thread needs them. Called on the thread alone.
pub(crate) trait Register: Send + 'static {
    /// Reads what is on record of these sessions. One whose record cannot be read is left out.
    fn look(&mut self, sessions: &[SessionId]) -> Vec<(SessionId, OnRecord)>;

    /// Declares these sessions dead, and returns the ones that are dead on record then. The others are tried again.
    fn proven(&mut self, proofs: &[Proof]) -> Vec<SessionId>;

    /// Names those of these sessions that still have no record, while no store can insert one.
    fn without_record(&mut self, sessions: &[SessionId], each: &dyn Fn(SessionId));
}

/// The thread. It ends when this is dropped, as soon as it has finished what it does.
#[derive(Debug)]
pub(crate) struct Listener {
    stop: Stop,
    thread: JoinHandle<()>,
}

impl Listener {
    /// Starts the thread: it looks at all files once, and then at each that is closed. While the folder cannot be
    /// watched it looks at all of them from time to time.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(files: Arc<SessionFiles>, register: impl Register) -> io::Result<Self> {
        let (watch, stop) = Watch::new()?;
        let mut ear =
            Ear { files, register, watch, watched: None, awaited: BTreeMap::new(), again: SHORTEST_AGAIN };
        // Before the files are looked at, so that none is closed in between.
        if let Err(error) = ear.watch() {
            let folder = ear.files.path().display();
            words::warn!(%folder, %error, "no notice of crashes from the kernel: takeovers take up to 10 s longer");
        }
        let under = words::Under::current();
        let thread = std::thread::Builder::new().name("tenure-proof".to_owned());
        let thread = thread.spawn(move || under.run(|| ear.run()))?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread, and waits until it has ended.
    pub(crate) fn end(self) {
        let Self { stop, thread } = self;
        drop(stop);
        if thread.join().is_err() {
            words::error!("the thread that proves deaths panicked");
        }
    }
}

/// A session whose file was closed.
struct Awaited {
    /// The file that its record names; none if it has no record.
    identity: Option<Identity>,
    since: Moment,
    proven: bool,
}

struct Ear<R> {
    files: Arc<SessionFiles>,
    register: R,
    watch: Watch,
    /// The folder, unless it could not be watched yet.
    watched: Option<Watched>,
    awaited: BTreeMap<SessionId, Awaited>,
    /// The pause before the folder is tried to be watched again.
    again: Duration,
}

impl<R: Register> Ear<R> {
    fn watch(&mut self) -> io::Result<()> {
        // Not of a file that was removed before it was closed: its session is on record as dead.
        let events = WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR | WatchFlags::EXCL_UNLINK;
        self.watched = Some(self.watch.add(self.files.path(), events)?);
        Ok(())
    }

    fn run(mut self) {
        self.sweep();
        loop {
            let pause = if self.watched.is_some() { self.pause() } else { Some(self.again) };
            let heard = match self.watch.wait(pause) {
                Ok(Woken::Stopped) => return,
                Ok(Woken::Late) => self.look_again(),
                Ok(Woken::Told) => self.hear(),
                Err(error) => Err(error),
            };
            if let Err(error) = heard {
                let folder = self.files.path().display();
                words::warn!(%folder, %error, "crash detection stopped: takeovers wait for the ttl");
                return;
            }
            self.prove();
        }
    }

    /// Watches the folder if that can be done now, and looks at every file; only while it is not watched.
    fn look_again(&mut self) -> io::Result<()> {
        if self.watched.is_some() {
            return Ok(());
        }
        match self.watch() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            Err(_) => self.again = (self.again * 2).min(LONGEST_AGAIN),
        }
        self.sweep();
        Ok(())
    }

    /// Looks at every file: those that were closed before this began, or while too much happened to be told of.
    fn sweep(&mut self) {
        let sessions = match self.files.sessions() {
            Ok(sessions) => sessions,
            Err(error) => {
                return words::warn!(%error, "could not check for crashed sessions: their takeovers wait for the ttl");
            }
        };
        for part in sessions.chunks(PART) {
            // Once: most of them live.
            self.look_at(part, SystemClock::new().now() - SOON);
            self.prove();
        }
        self.files.remove_unfinished();
    }

    fn hear(&mut self) -> io::Result<()> {
        let (mut closed, mut too_much, mut gone) = (BTreeSet::new(), false, false);
        for event in self.watch.read() {
            too_much |= event.flags.contains(ReadFlags::QUEUE_OVERFLOW);
            gone |= event.flags.contains(ReadFlags::IGNORED);
            let name = event.name.as_ref().and_then(|name| name.to_str());
            closed.extend(name.and_then(|name| name.parse::<SessionId>().ok()));
        }
        if gone {
            return Err(io::Error::other("the folder is gone"));
        }
        if too_much {
            self.sweep();
        }
        let closed: Vec<_> = closed.into_iter().collect();
        for part in closed.chunks(PART) {
            self.look_at(part, SystemClock::new().now());
        }
        Ok(())
    }

    /// Takes up the sessions that are alive on record, or have no record, as if their files had been closed then.
    fn look_at(&mut self, sessions: &[SessionId], since: Moment) {
        for (session, found) in self.register.look(sessions) {
            match found {
                OnRecord::Alive(Some(identity)) => self.wait_for(session, Some(identity), since),
                // Its ttl counts.
                OnRecord::Alive(None) => {}
                OnRecord::Dead => self.files.remove(session),
                OnRecord::Missing => self.wait_for(session, None, since),
            }
        }
    }

    fn wait_for(&mut self, session: SessionId, identity: Option<Identity>, since: Moment) {
        self.awaited.insert(session, Awaited { identity, since, proven: false });
    }

    fn prove(&mut self) {
        if self.awaited.is_empty() {
            return;
        }
        let (now, mut proofs, mut strays) = (SystemClock::new().now(), Vec::new(), Vec::new());
        let files = &self.files;
        self.awaited.retain(|session, awaited| {
            let age = now.since(awaited.since);
            let Some(identity) = &awaited.identity else {
                let let_go = files.is_let_go(*session);
                strays.extend(let_go.is_ok().then_some(*session));
                return matches!(let_go, Err(NoProof::Held)) && age < SOON;
            };
            match files.prove(*session, identity) {
                Ok(proof) => {
                    proofs.push(proof);
                    awaited.proven = true;
                    age < LATEST
                }
                Err(NoProof::Held) => age < SOON,
                Err(why) => {
                    words::debug!(%session, %why, "no proof that a session is dead: its ttl counts");
                    false
                }
            }
        });
        if !strays.is_empty() {
            self.register.without_record(&strays, &|session| files.remove_stray(session));
        }
        if proofs.is_empty() {
            return;
        }
        for dead in self.register.proven(&proofs) {
            self.awaited.remove(&dead);
            self.files.remove(dead);
        }
    }

    /// Time until the awaited sessions are tried again; none if there are none.
    fn pause(&self) -> Option<Duration> {
        let now = SystemClock::new().now();
        let youngest = self.awaited.values().map(|awaited| now.since(awaited.since)).min()?;
        Some((youngest / 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE))
    }
}

impl<R> fmt::Debug for Ear<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ear").field("files", &self.files).finish_non_exhaustive()
    }
}
