//! Everything that this program says on standard error: its own sentences, the log, and what its jobs' children say.
//!
//! The reader of a log may be slow, frozen or gone, and its disk may be full. So a thread of its own writes, and a caller
//! only adds to what waits. Bytes that do not fit, or cannot be written, are counted by lines, and the next bytes that
//! get through are preceded by that count.

use std::{
    collections::VecDeque,
    fmt::Display,
    io::{self, Write},
    mem,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use tenure_look::one_line;

/// Most bytes that wait.
const MOST: usize = 1 << 20;
/// Time for the last bytes of a program that ends.
const LAST: Duration = Duration::from_secs(1);

static QUEUE: Mutex<Queue> = Mutex::new(Queue::NEW);
/// There is something to write.
static NEWS: Condvar = Condvar::new();
/// A part is written.
static ROOM: Condvar = Condvar::new();

/// Bytes as they were passed on.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    /// Lines that are lost before it.
    lost: u64,
    bytes: Vec<u8>,
}

/// Parts that wait for the thread that writes them.
struct Queue {
    parts: VecDeque<Part>,
    /// Bytes of all parts.
    bytes: usize,
    /// Lines that are lost since the last part.
    lost: u64,
    /// The time since which a part is being written.
    since: Option<Instant>,
    has_thread: bool,
}

impl Queue {
    const NEW: Self = Self { parts: VecDeque::new(), bytes: 0, lost: 0, since: None, has_thread: false };

    const fn has_room(&self, bytes: &[u8]) -> bool {
        self.bytes + size(bytes) <= MOST
    }

    fn push(&mut self, bytes: Vec<u8>) {
        if !self.has_room(&bytes) {
            self.lost += lines(&bytes);
            return;
        }
        self.bytes += size(&bytes);
        self.parts.push_back(Part { lost: mem::take(&mut self.lost), bytes });
    }

    fn pop(&mut self) -> Option<Part> {
        let part = self.parts.pop_front()?;
        self.bytes -= size(&part.bytes);
        Some(part)
    }

    fn is_idle(&self) -> bool {
        self.parts.is_empty() && self.since.is_none()
    }

    /// Time for which it is worth waiting until the reader has read on.
    fn patience(&self) -> Duration {
        self.since.map_or(LAST, |since| LAST.saturating_sub(since.elapsed()))
    }
}

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lines(bytes: &[u8]) -> u64 {
    let ends = bytes.split(|byte| *byte == b'\n').count() - 1;
    ends.max(1) as u64
}

/// Bytes that a part takes, with what it takes beside them.
const fn size(bytes: &[u8]) -> usize {
    bytes.len() + 64
}

/// Says a sentence, in one line and in characters that are seen, whatever names are in it.
pub(crate) fn say(sentence: impl Display) {
    pass(format!("tenure: {}\n", one_line(&sentence.to_string())).into_bytes());
}

fn pass(bytes: Vec<u8>) {
    add(queue(), bytes);
}

/// Passes on what a child has written. A reader that is slower than the child slows it down until the child is over;
/// one that does not read at all does not.
pub(crate) fn pass_on(bytes: &[u8], is_over: &AtomicBool) {
    let mut queue = queue();
    while queue.has_thread && !queue.has_room(bytes) && !is_over.load(Ordering::Relaxed) {
        let patience = queue.patience();
        if patience.is_zero() {
            break;
        }
        queue = ROOM.wait_timeout(queue, patience).unwrap_or_else(PoisonError::into_inner).0;
    }
    add(queue, bytes.to_vec());
}

fn add(mut queue: MutexGuard<'_, Queue>, bytes: Vec<u8>) {
    if !queue.has_thread {
        // If there is none to be had, the next sentence tries again.
        let thread = std::thread::Builder::new().name("tenure-say".to_owned());
        queue.has_thread = thread.spawn(write_all).is_ok();
    }
    queue.push(bytes);
    NEWS.notify_one();
}

/// Says a sentence at once, in a process that has one thread and nothing else to do.
pub(crate) fn say_now(sentence: impl Display) {
    let _ = write(format!("tenure: {}\n", one_line(&sentence.to_string())).as_bytes());
}

/// Puts a question, after what waits.
pub(crate) fn ask(question: impl Display) -> io::Result<()> {
    flush();
    write(question.to_string().as_bytes())
}

/// Waits until all is written, for a moment at most: a program must not stay for a reader that does not read.
pub(crate) fn flush() {
    let mut queue = queue();
    if queue.has_thread {
        let _ = ROOM.wait_timeout_while(queue, LAST, |queue| !queue.is_idle());
        return;
    }
    // No thread could be started, which may be the sentence to tell.
    let mut writer = Writer::NEW;
    while is_read_within(LAST)
        && let Some(part) = queue.pop()
    {
        writer.write(part);
    }
}

/// The log, for `tracing`: each write is an event.
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        pass(event.to_vec());
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all() {
    let (mut queue, mut writer) = (queue(), Writer::NEW);
    loop {
        let Some(part) = queue.pop() else {
            queue = NEWS.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        queue.since = Some(Instant::now());
        drop(queue);
        writer.write(part);
        queue = self::queue();
        queue.since = None;
        ROOM.notify_all();
    }
}

/// The writer of parts.
struct Writer {
    /// True if the last part ended with a line.
    ends_line: bool,
    /// Lines that could not be written.
    lost: u64,
}

impl Writer {
    const NEW: Self = Self { ends_line: true, lost: 0 };

    fn write(&mut self, Part { lost, mut bytes }: Part) {
        let (lost, own) = (self.lost + lost, lines(&bytes));
        if lost > 0 {
            let end = if self.ends_line { "" } else { "\n" };
            bytes.splice(..0, format!("{end}tenure: {lost} lines before this one are lost\n").into_bytes());
        }
        self.lost = if write(&bytes).is_ok() { 0 } else { lost + own };
        self.ends_line = bytes.ends_with(b"\n");
    }
}

/// Returns whether something can be written within that time.
fn is_read_within(within: Duration) -> bool {
    let within = Timespec::try_from(within).ok();
    poll(&mut [PollFd::new(&io::stderr(), PollFlags::OUT)], within.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Writes it all, also to a pipe that another process made non-blocking.
fn write(mut bytes: &[u8]) -> io::Result<()> {
    let mut to = io::stderr().lock();
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                match poll(&mut [PollFd::new(&to, PollFlags::OUT)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_do_not_fit_are_counted_and_told_once() {
        let mut queue = Queue::NEW;
        queue.push(vec![b'x'; MOST - 100]);
        queue.push(b"one\ntwo\n".to_vec());
        queue.push(b"end of a line".to_vec());
        assert_eq!(queue.lost, 3);
        assert_eq!(queue.pop().map(|part| (part.lost, part.bytes.len())), Some((0, MOST - 100)));
        queue.push(b"next\n".to_vec());
        assert_eq!(queue.pop(), Some(Part { lost: 3, bytes: b"next\n".to_vec() }));
        assert!(queue.is_idle() && queue.bytes == 0 && queue.lost == 0);
    }
}
