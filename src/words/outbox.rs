//! Lines on their way to the log, and the thread that tells them.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt, mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;
use tracing::{Dispatch, Level, dispatcher, level_filters::LevelFilter, subscriber::NoSubscriber};

use super::pace::{Pace, Voice};
use crate::{
    clock::{Clock, Moment, SystemClock},
    sync::{caught, locked},
};

/// Most lines that wait; the oldest go.
const MOST: usize = 8192;
/// Rest after a line, so that not each of many wakes the thread.
const REST: Duration = Duration::from_millis(5);
/// A line says by how much it is late, from then on.
const LATE: Duration = Duration::from_secs(1);

type Told = Box<dyn FnOnce(Option<String>) + Send>;

/// A line, or a place in the outbox that a caller waits for.
enum Entry {
    Line { at: Moment, under: Under, tell: Told },
    Mark(Box<dyn FnOnce() + Send>),
}

struct Outbox {
    entries: VecDeque<Entry>,
    /// Lines that went because it was full, since that was last told.
    dropped: u64,
    pace: Pace,
    has_thread: bool,
    is_idle: bool,
    /// True if a caller waits for the lines so far.
    is_awaited: bool,
}

static OUTBOX: Mutex<Outbox> = Mutex::new(Outbox {
    entries: VecDeque::new(),
    dropped: 0,
    pace: Pace::NEW,
    has_thread: false,
    is_idle: false,
    is_awaited: false,
});
static NEWS: Condvar = Condvar::new();

thread_local! {
    /// On a thread of ours: the log of the program that it works for.
    static UNDER: RefCell<Option<Under>> = const { RefCell::new(None) };
}

/// The log that the program had where it began something; if it had none, the one that it has when it is told.
#[derive(Clone)]
pub(crate) struct Under(Option<Dispatch>);

impl Under {
    pub(crate) fn current() -> Self {
        // A thread that ends has none any more, and is not worth a panic.
        let ours = UNDER.try_with(|under| under.borrow().clone()).ok().flatten();
        ours.unwrap_or_else(|| {
            let theirs = dispatcher::get_default(Dispatch::clone);
            Self(Some(theirs).filter(|theirs| !theirs.is::<NoSubscriber>()))
        })
    }

    /// Calls the log. Where there is none, `tracing` may pass on what is said to the `log` facade, but not once a log
    /// was ever set, by this for example.
    fn tell(&self, line: impl FnOnce()) {
        match &self.0 {
            Some(log) => dispatcher::with_default(log, line),
            None => line(),
        }
    }

    /// Runs work on a thread of ours. It tells its lines to this log, and what libraries log in it is lost: they would
    /// do it on the path of a lease.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Restored(Option<Under>);

        impl Drop for Restored {
            fn drop(&mut self) {
                UNDER.with(|under| under.replace(self.0.take()));
            }
        }

        let _restored = Restored(UNDER.with(|under| under.replace(Some(self.clone()))));
        match &self.0 {
            Some(_) => dispatcher::with_default(&Dispatch::none(), work),
            None => work(),
        }
    }
}

impl fmt::Debug for Under {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Under").finish_non_exhaustive()
    }
}

/// Returns whether the log may take lines of this level. Without a subscriber that may be the `log` facade.
pub(crate) fn is_heard(level: Level) -> bool {
    level <= LevelFilter::current() || (level <= Level::INFO && !dispatcher::has_been_set())
}

/// Pushes a line. It is told later, or never if the log takes none.
pub(crate) fn push(tell: impl FnOnce(Option<String>) + Send + 'static) {
    let line = Entry::Line { at: SystemClock::new().now(), under: Under::current(), tell: Box::new(tell) };
    let mut outbox = locked(&OUTBOX);
    if outbox.entries.len() >= MOST {
        match outbox.entries.pop_front() {
            // Dropping the last handle of a log runs its code.
            Some(Entry::Line { under, .. }) => {
                mem::forget(under);
                outbox.dropped += 1;
            }
            // A caller that waits for what went waits for the next line.
            Some(mark @ Entry::Mark(_)) => outbox.entries.insert(1, mark),
            None => {}
        }
    }
    enter(outbox, line);
}

fn enter(mut outbox: MutexGuard<'_, Outbox>, entry: Entry) {
    outbox.entries.push_back(entry);
    if !outbox.has_thread {
        // If there is none to be had, the next line tries again.
        let thread = std::thread::Builder::new().name("tenure-words".to_owned());
        outbox.has_thread = thread.spawn(tell_all).is_ok();
    }
    if mem::take(&mut outbox.is_idle) {
        NEWS.notify_one();
    }
}

/// Has this called when all lines so far are told, or are gone.
fn when_told(told: impl FnOnce() + Send + 'static) {
    let mut outbox = locked(&OUTBOX);
    if outbox.entries.is_empty() && !outbox.pace.is_under_way() {
        drop(outbox);
        told();
    } else {
        outbox.is_awaited = true;
        enter(outbox, Entry::Mark(Box::new(told)));
        NEWS.notify_one();
    }
}

/// Returns what waits until all lines so far are told, or are gone. Only to be awaited beside a limit.
pub(crate) fn told() -> oneshot::Receiver<()> {
    let (sender, told) = oneshot::channel();
    when_told(|| {
        // An error says that no caller waits any more.
        let _ = sender.send(());
    });
    told
}

/// Waits until all lines so far are told.
#[cfg(any(test, feature = "testing"))]
pub(super) fn flush() {
    let (sender, told) = std::sync::mpsc::channel::<()>();
    when_told(|| drop(sender));
    // The only answer is that the sender is gone.
    let _ = told.recv();
}

/// Returns what keeps lines from being told, if something does.
pub(super) fn voice() -> Option<Voice> {
    locked(&OUTBOX).pace.voice()
}

/// The thread of the words: the only one that runs code of the log.
fn tell_all() {
    loop {
        let (entry, dropped, panics) = next();
        match entry {
            Entry::Line { at, under, tell } => {
                let late = SystemClock::new().now().since(at);
                let late = (late >= LATE).then(|| format!("{:.1}s", late.as_secs_f64()));
                let is_told = caught(move || {
                    under.tell(|| {
                        confess(dropped, panics);
                        tell(late);
                    });
                });
                let mut outbox = locked(&OUTBOX);
                outbox.pace.returned(is_told);
                if !is_told {
                    outbox.dropped += dropped;
                }
            }
            // A waker may panic, too.
            Entry::Mark(told) => drop(caught(told)),
        }
    }
}

/// Waits for the next entry. Returns with it what was not told since the last line that was.
fn next() -> (Entry, u64, u64) {
    let mut outbox = locked(&OUTBOX);
    let mut has_rested = false;
    loop {
        if let Some(entry) = outbox.entries.pop_front() {
            if matches!(entry, Entry::Mark(_)) {
                outbox.is_awaited = false;
                return (entry, 0, 0);
            }
            outbox.pace.begun();
            let dropped = mem::take(&mut outbox.dropped);
            return (entry, dropped, outbox.pace.panics());
        }
        outbox = if has_rested {
            outbox.is_idle = true;
            NEWS.wait(outbox).unwrap_or_else(PoisonError::into_inner)
        } else {
            // A caller that pushes meanwhile does not wake the thread.
            let rested = NEWS.wait_timeout_while(outbox, REST, |outbox| !outbox.is_awaited);
            rested.unwrap_or_else(PoisonError::into_inner).0
        };
        has_rested = true;
    }
}

fn confess(dropped: u64, panics: u64) {
    if dropped > 0 {
        tracing::warn!(lines = dropped, "the log was too slow: lines were dropped");
    }
    if panics > 0 {
        tracing::warn!(lines = panics, "the log panicked: lines were lost");
    }
}
