//! Everything that this program says on standard error: its own sentences, the log, and what its jobs' children say.
//!
//! The reader of a log may be slow, frozen or gone, and its disk may be full. So a thread of its own writes; a caller
//! only adds to what waits, and never waits itself. Bytes that do not fit, or cannot be written, are counted by lines,
//! and the next bytes that get through are preceded by that count.

use std::{
    collections::VecDeque,
    fmt::Display,
    io::{self, Write},
    mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, poll};

/// Most bytes that wait.
const MOST: usize = 1 << 20;
/// Time for the last bytes of a program that ends.
const LAST: Duration = Duration::from_secs(1);

static QUEUE: Mutex<Queue> = Mutex::new(Queue::NEW);
/// There is something to write.
static NEWS: Condvar = Condvar::new();
/// All is written.
static DONE: Condvar = Condvar::new();

/// Bytes that wait for the thread that writes them.
struct Queue {
    parts: VecDeque<Vec<u8>>,
    /// Bytes of all parts.
    bytes: usize,
    lost: u64,
    has_thread: bool,
    is_writing: bool,
}

impl Queue {
    const NEW: Self =
        Self { parts: VecDeque::new(), bytes: 0, lost: 0, has_thread: false, is_writing: false };

    fn push(&mut self, part: Vec<u8>) {
        if self.bytes + part.len() > MOST {
            self.lost += lines(&part);
            return;
        }
        self.bytes += part.len();
        self.parts.push_back(part);
    }

    /// The next part, with the count of lost lines before it.
    fn pop(&mut self) -> Option<(u64, Vec<u8>)> {
        let part = self.parts.pop_front()?;
        self.bytes -= part.len();
        Some((mem::take(&mut self.lost), part))
    }

    fn is_idle(&self) -> bool {
        self.parts.is_empty() && !self.is_writing
    }
}

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lines(part: &[u8]) -> u64 {
    let ends = part.split(|byte| *byte == b'\n').count() - 1;
    ends.max(1) as u64
}

/// Says a sentence.
pub(crate) fn say(sentence: impl Display) {
    pass(format!("tenure: {sentence}\n").into_bytes());
}

/// Passes on bytes that another wrote.
pub(crate) fn pass(part: Vec<u8>) {
    let mut queue = queue();
    if !queue.has_thread {
        // If there is none to be had, the next sentence tries again.
        let thread = std::thread::Builder::new().name("tenure-say".to_owned());
        queue.has_thread = thread.spawn(write_all).is_ok();
    }
    queue.push(part);
    NEWS.notify_one();
}

/// Says a sentence at once, in a process that has one thread and nothing else to do.
pub(crate) fn say_now(sentence: impl Display) {
    let _ = write(format!("tenure: {sentence}\n").as_bytes());
}

/// Puts a question, after what waits.
pub(crate) fn ask(question: impl Display) -> io::Result<()> {
    flush();
    write(question.to_string().as_bytes())
}

/// Waits until all is written, for a moment at most: a program must not stay for a reader that does not read.
pub(crate) fn flush() {
    let _ = DONE.wait_timeout_while(queue(), LAST, |queue| queue.has_thread && !queue.is_idle());
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
    let mut queue = queue();
    // A part that is passed on may end within a line.
    let mut ends_line = true;
    loop {
        let Some((lost, mut part)) = queue.pop() else {
            queue.is_writing = false;
            DONE.notify_all();
            queue = NEWS.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        queue.is_writing = true;
        drop(queue);
        let of_part = lines(&part);
        if lost > 0 {
            let end = if ends_line { "" } else { "\n" };
            part.splice(..0, format!("{end}tenure: {lost} lines before this one are lost\n").into_bytes());
        }
        let written = write(&part);
        ends_line = part.ends_with(b"\n");
        queue = self::queue();
        if written.is_err() {
            queue.lost += lost + of_part;
        }
    }
}

/// Writes it all, also to a pipe that another process made non-blocking.
fn write(mut part: &[u8]) -> io::Result<()> {
    let mut to = io::stderr().lock();
    while !part.is_empty() {
        match to.write(part) {
            Ok(written) => part = &part[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(&to, PollFlags::OUT)], None)?;
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
        queue.push(vec![b'x'; MOST - 1]);
        queue.push(b"one\ntwo\n".to_vec());
        queue.push(b"end of a line".to_vec());
        assert_eq!(queue.lost, 3);
        let (lost, part) = queue.pop().unwrap();
        assert_eq!((lost, part.len(), queue.bytes, queue.lost), (3, MOST - 1, 0, 0));
        queue.push(b"next\n".to_vec());
        assert_eq!(queue.pop(), Some((0, b"next\n".to_vec())));
        assert!(queue.is_idle());
    }
}
