//! Lines on their way to the log, and the thread that tells them.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt, mem,
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;
use tracing::{Dispatch, Level, dispatcher, level_filters::LevelFilter, subscriber::NoSubscriber};

use super::pace::{Pace, Voice};
use crate::{
    clock::{Clock, Moment, SystemClock},
    sync::{OwnThread, caught, locked},
};

/// Most lines that wait; the oldest go.
const MOST: usize = 8192;
/// Rest after a line, so that not each of many wakes the thread.
const REST: Duration = Duration::from_millis(5);
/// A line says by how much it is late, from then on.
const LATE: Duration = Duration::from_secs(1);

type Told = Box<dyn FnOnce(Option<String>) + Send>;

struct Line {
    at: Moment,
    under: Under,
    tell: Told,
}

/// A caller that waits until so many lines are told, or are gone. It is beside the lines: room is made by dropping
/// lines, and a caller takes none of it.
struct Mark {
    lines: u64,
    told: oneshot::Sender<()>,
}

/// Next step of the thread.
enum Next {
    /// To tell a line, after what was not told since the last that was.
    Tell {
        line: Line,
        dropped: u64,
        panics: u64,
    },
    Answer(oneshot::Sender<()>),
}

struct Outbox {
    lines: VecDeque<Line>,
    marks: VecDeque<Mark>,
    /// Lines that have left it, since the process began.
    left: u64,
    /// Lines that went because it was full, since that was last told.
    dropped: u64,
    pace: Pace,
    thread: OwnThread,
    is_idle: bool,
    /// True if a caller waits for the lines so far.
    is_awaited: bool,
}

static OUTBOX: Mutex<Outbox> = Mutex::new(Outbox::NEW);
static NEWS: Condvar = Condvar::new();
#[cfg(any(test, feature = "testing"))]
static DONE: Condvar = Condvar::new();

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
    let line = Line { at: SystemClock::new().now(), under: Under::current(), tell: Box::new(tell) };
    let mut outbox = locked(&OUTBOX);
    outbox.add(line);
    outbox.look_after();
}

impl Outbox {
    const NEW: Self = Self {
        lines: VecDeque::new(),
        marks: VecDeque::new(),
        left: 0,
        dropped: 0,
        pace: Pace::NEW,
        thread: OwnThread::NONE,
        is_idle: false,
        is_awaited: false,
    };

    fn add(&mut self, line: Line) {
        if self.lines.len() >= MOST
            && let Some(Line { under, .. }) = self.lines.pop_front()
        {
            // Dropping the last handle of a log runs its code.
            mem::forget(under);
            self.left += 1;
            self.dropped += 1;
        }
        self.lines.push_back(line);
    }

    /// Has a caller wait for the lines so far. Returns whether there are any.
    fn mark(&mut self, told: oneshot::Sender<()>) -> bool {
        // Callers have a limit, and may have gone.
        self.marks.retain(|mark| !mark.told.is_closed());
        let lines = self.all();
        let waits = self.done() < lines;
        if waits {
            self.marks.push_back(Mark { lines, told });
        } else {
            // An error says that its caller has gone.
            let _ = told.send(());
        }
        waits
    }

    /// Takes out what is to be done next, if there is something.
    fn take(&mut self) -> Option<Next> {
        let done = self.done();
        if self.marks.front().is_some_and(|mark| mark.lines <= done) {
            return self.marks.pop_front().map(|mark| Next::Answer(mark.told));
        }
        let line = self.lines.pop_front()?;
        self.left += 1;
        self.pace.begun();
        let dropped = mem::take(&mut self.dropped);
        Some(Next::Tell { line, dropped, panics: self.pace.panics() })
    }

    /// Number of lines that are told, or are gone.
    fn done(&self) -> u64 {
        self.left - u64::from(self.pace.is_under_way())
    }

    /// Number of lines that ever came.
    fn all(&self) -> u64 {
        self.left + self.lines.len() as u64
    }

    /// Has the thread look, and starts it if there is none.
    fn look_after(&mut self) {
        // If there is none to be had, the next line tries again.
        if let Ok(true) = self.thread.begin("tenure-words", tell_all) {
            // A fork may have come while a line was under way.
            (self.pace, self.is_idle) = (Pace::NEW, false);
        }
        if mem::take(&mut self.is_idle) {
            NEWS.notify_one();
        }
    }
}

/// Returns what waits until all lines so far are told, or are gone. Only to be awaited beside a limit.
pub(crate) fn told() -> oneshot::Receiver<()> {
    let (sender, told) = oneshot::channel();
    let mut outbox = locked(&OUTBOX);
    if outbox.mark(sender) {
        outbox.is_awaited = true;
        outbox.look_after();
        NEWS.notify_one();
    }
    told
}

/// Waits until all lines so far are told.
#[cfg(any(test, feature = "testing"))]
pub(super) fn flush() {
    let mut outbox = locked(&OUTBOX);
    let lines = outbox.all();
    while outbox.done() < lines && outbox.thread.runs() {
        outbox.is_awaited = true;
        NEWS.notify_one();
        outbox = DONE.wait(outbox).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Returns what keeps lines from being told, if something does.
pub(super) fn voice() -> Option<Voice> {
    locked(&OUTBOX).pace.voice()
}

/// The thread of the words: the only one that runs code of the log.
fn tell_all() {
    loop {
        match next() {
            Next::Tell { line: Line { at, under, tell }, dropped, panics } => {
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
                #[cfg(any(test, feature = "testing"))]
                DONE.notify_all();
            }
            // A waker may panic, too; and an error says that its caller has gone.
            Next::Answer(told) => drop(caught(|| told.send(()))),
        }
    }
}

/// Waits for what is to be done next.
fn next() -> Next {
    let mut outbox = locked(&OUTBOX);
    let mut has_rested = false;
    loop {
        if let Some(next) = outbox.take() {
            return next;
        }
        outbox.is_awaited = false;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        Line { at: SystemClock::new().now(), under: Under(None), tell: Box::new(|_| {}) }
    }

    #[test]
    fn lines_for_a_log_that_nobody_reads_are_bounded_whoever_waits_for_them() {
        let mut outbox = Outbox::NEW;
        outbox.add(line());
        assert!(matches!(outbox.take(), Some(Next::Tell { .. })), "the log has it, and does not return");
        let (waits, mut waiting) = oneshot::channel();
        let (gone, _) = oneshot::channel();
        assert!(outbox.mark(waits) && outbox.mark(gone));
        for _ in 0..3 * MOST {
            outbox.add(line());
        }
        assert_eq!((outbox.lines.len(), outbox.dropped), (MOST, 2 * MOST as u64));
        let (late, mut waiting_more) = oneshot::channel();
        assert!(outbox.mark(late));
        assert_eq!(outbox.marks.len(), 2, "that of a caller that has gone is gone");

        outbox.pace.returned(true);
        let Some(Next::Answer(told)) = outbox.take() else { panic!("the lines it waits for are gone") };
        assert!(waiting.try_recv().is_err());
        told.send(()).unwrap();
        for _ in 0..MOST {
            assert!(matches!(outbox.take(), Some(Next::Tell { .. })));
            assert!(waiting_more.try_recv().is_err());
            outbox.pace.returned(true);
        }
        assert!(matches!(outbox.take(), Some(Next::Answer(_))) && outbox.take().is_none());
        let (now, mut waiting) = oneshot::channel();
        assert!(!outbox.mark(now) && waiting.try_recv().is_ok());
    }
}
