//! Standard error of a child: passed on, and its end kept for the record of a failure.

use std::{collections::VecDeque, io::Read, process::ChildStderr, thread::JoinHandle};

use crate::say;

/// Bytes of the end that are kept.
const KEPT: usize = 1024;

/// The reader of a child's standard error.
pub(crate) struct Tail(Option<JoinHandle<VecDeque<u8>>>);

impl Tail {
    pub(crate) const fn nothing() -> Self {
        Self(None)
    }

    /// Passes on what comes until all have closed it.
    pub(crate) fn follow(mut stderr: ChildStderr) -> Self {
        let follow = move || {
            let (mut kept, mut part) = (VecDeque::with_capacity(KEPT), [0; 4096]);
            while let Ok(read @ 1..) = stderr.read(&mut part) {
                say::pass(part[..read].to_vec());
                kept.extend(&part[..read]);
                kept.drain(..kept.len().saturating_sub(KEPT));
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
    fn lines_become_one() {
        assert_eq!(text(b"one\n\n two\n"), "one | two");
        assert_eq!(text("\u{e9}nd".as_bytes().split_at(1).1), "nd");
        assert_eq!(text(b""), "");
    }
}
