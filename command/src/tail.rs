//! Standard error of a child: passed on, and its end kept for the record of a failure.

use std::{
    collections::VecDeque,
    io::Read,
    process::ChildStderr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use crate::say;

/// Bytes of the end that are kept.
const KEPT: usize = 1024;
/// Bytes after which a line is cut.
const LONGEST: usize = 16 * 1024;

/// The reader of a child's standard error.
pub(crate) struct Tail {
    thread: Option<JoinHandle<VecDeque<u8>>>,
    /// True once the child is gone.
    is_over: Arc<AtomicBool>,
}

impl Tail {
    pub(crate) fn nothing() -> Self {
        Self { thread: None, is_over: Arc::default() }
    }

    /// Passes on what comes until all have closed it; with a label, line by line behind it.
    pub(crate) fn follow(mut stderr: ChildStderr, label: Option<String>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let follow = move || {
            let (mut kept, mut part) = (VecDeque::with_capacity(KEPT), [0; 4096]);
            let mut lines = label.map(|label| Lines::new(label.into_bytes()));
            let mut pass_on = |bytes: &[u8]| say::pass_on(bytes, &until);
            while let Ok(read @ 1..) = stderr.read(&mut part) {
                match &mut lines {
                    Some(lines) => lines.pass_on(&part[..read], &mut pass_on),
                    None => pass_on(&part[..read]),
                }
                kept.extend(&part[..read]);
                kept.drain(..kept.len().saturating_sub(KEPT));
            }
            if let Some(lines) = &mut lines {
                lines.end(&mut pass_on);
            }
            kept
        };
        Self {
            thread: std::thread::Builder::new().name("tenure-stderr".to_owned()).spawn(follow).ok(),
            is_over,
        }
    }

    /// The end of it, once it has no writer any more.
    pub(crate) fn end(self) -> String {
        // The key is kept until all is read: no reader of the log keeps it longer.
        self.is_over.store(true, Ordering::Relaxed);
        let kept = self.thread.and_then(|thread| thread.join().ok()).unwrap_or_default();
        text(&kept.into_iter().collect::<Vec<u8>>())
    }
}

/// Lines behind a label. Each is written at once, so that those of several children do not mix.
struct Lines {
    label: Vec<u8>,
    /// The label, and what has come of the line.
    line: Vec<u8>,
}

impl Lines {
    fn new(label: Vec<u8>) -> Self {
        Self { line: label.clone(), label }
    }

    fn pass_on(&mut self, part: &[u8], out: &mut impl FnMut(&[u8])) {
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(piece);
            if piece.ends_with(b"\n") {
                out(&self.line);
                self.line.clone_from(&self.label);
            } else if self.line.len() >= LONGEST {
                self.end(out);
            }
        }
    }

    /// Ends a line that has no end of its own.
    fn end(&mut self, out: &mut impl FnMut(&[u8])) {
        if self.line.len() > self.label.len() {
            self.line.push(b'\n');
            out(&self.line);
            self.line.clone_from(&self.label);
        }
    }
}

/// In one line: an error's text is shown in tables.
fn text(kept: &[u8]) -> String {
    let text = String::from_utf8_lossy(kept);
    // A text that was cut in the middle of a letter begins with the rest of it.
    let text = text.trim_start_matches(char::REPLACEMENT_CHARACTER);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_a_label_however_it_comes() {
        let (mut lines, mut written) = (Lines::new(b"eu: ".to_vec()), Vec::new());
        let mut out = |line: &[u8]| written.push(line.to_vec());
        for part in ["one\ntw", "o\n", "\nthree"] {
            lines.pass_on(part.as_bytes(), &mut out);
        }
        lines.end(&mut out);
        lines.end(&mut out);
        // A line without an end is not kept for ever.
        lines.pass_on(&vec![b'x'; LONGEST], &mut out);
        let last = written.pop().unwrap();
        assert_eq!(written.concat(), b"eu: one\neu: two\neu: \neu: three\n");
        assert!(last.starts_with(b"eu: x") && last.ends_with(b"x\n"));
    }

    #[test]
    fn lines_become_one() {
        assert_eq!(text(b"one\n\n two\n"), "one | two");
        assert_eq!(text("\u{e9}nd".as_bytes().split_at(1).1), "nd");
        assert_eq!(text(b""), "");
    }
}
