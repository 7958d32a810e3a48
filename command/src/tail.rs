//! Standard error of a child: passed on, and its end kept for the record of a failure.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    process::ChildStderr,
    thread::JoinHandle,
};

use crate::say::{self, Log};

/// Bytes of the end that are kept.
const KEPT: usize = 1024;
/// Bytes after which a line is cut.
const LONGEST: usize = 16 * 1024;

/// The reader of a child's standard error.
pub(crate) struct Tail(Option<JoinHandle<VecDeque<u8>>>);

impl Tail {
    pub(crate) const fn nothing() -> Self {
        Self(None)
    }

    /// Passes on what comes until all have closed it; with a label, line by line behind it.
    pub(crate) fn follow(mut stderr: ChildStderr, label: Option<String>) -> Self {
        let follow = move || {
            let (mut kept, mut part) = (VecDeque::with_capacity(KEPT), [0; 4096]);
            let mut lines = label.map(|label| Lines::new(label.into_bytes()));
            while let Ok(read @ 1..) = stderr.read(&mut part) {
                match &mut lines {
                    Some(lines) => lines.pass_on(&part[..read], &mut Log),
                    None => say::pass(part[..read].to_vec()),
                }
                kept.extend(&part[..read]);
                kept.drain(..kept.len().saturating_sub(KEPT));
            }
            if let Some(lines) = &mut lines {
                lines.end(&mut Log);
            }
            kept
        };
        Self(std::thread::Builder::new().name("tenure-stderr".to_owned()).spawn(follow).ok())
    }

    /// The end of it, once it has no writer any more.
    pub(crate) fn end(self) -> String {
        let kept = self.0.and_then(|thread| thread.join().ok()).unwrap_or_default();
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

    fn pass_on(&mut self, part: &[u8], out: &mut impl Write) {
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(piece);
            if piece.ends_with(b"\n") {
                let _ = out.write_all(&self.line);
                self.line.clone_from(&self.label);
            } else if self.line.len() >= LONGEST {
                self.end(out);
            }
        }
    }

    /// Ends a line that has no end of its own.
    fn end(&mut self, out: &mut impl Write) {
        if self.line.len() > self.label.len() {
            self.line.push(b'\n');
            let _ = out.write_all(&self.line);
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
        let (mut lines, mut out) = (Lines::new(b"eu: ".to_vec()), Vec::new());
        for part in ["one\ntw", "o\n", "\nthree"] {
            lines.pass_on(part.as_bytes(), &mut out);
        }
        assert_eq!(out, b"eu: one\neu: two\neu: \n");
        lines.end(&mut out);
        lines.end(&mut out);
        assert!(out.ends_with(b"eu: three\n"));
        out.clear();
        lines.pass_on(&vec![b'x'; LONGEST], &mut out);
        assert!(
            out.starts_with(b"eu: x") && out.ends_with(b"x\n"),
            "a line without an end is not kept for ever"
        );
    }

    #[test]
    fn lines_become_one() {
        assert_eq!(text(b"one\n\n two\n"), "one | two");
        assert_eq!(text("\u{e9}nd".as_bytes().split_at(1).1), "nd");
        assert_eq!(text(b""), "");
    }
}
