//! Display of the demo: a picture that is drawn again and again on a terminal, or lines.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use rustix::termios::tcgetwinsize;

use super::{
    picture::{self, View},
    record::Record,
};

/// A terminal that is lower, or narrower, gets lines.
const LOWEST: usize = 14;
const NARROWEST: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Picture,
    Lines,
    /// No output until the end.
    Silent,
}

#[derive(Debug)]
pub(crate) struct Screen {
    how: How,
    colours: bool,
    events: Vec<String>,
    /// Lines of the picture that stands there.
    drawn: usize,
    /// Standard output is gone.
    is_gone: bool,
}

impl Screen {
    pub(crate) fn new(how: How, colours: bool) -> Self {
        let how = match how {
            How::Picture if !io::stdout().is_terminal() || size().is_none() => How::Lines,
            how => how,
        };
        let mut screen = Self { how, colours, events: Vec::new(), drawn: 0, is_gone: false };
        if how == How::Picture {
            // Without the cursor, which would dance.
            screen.write("\x1b[?25l");
        }
        screen
    }

    pub(crate) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Something happened.
    pub(crate) fn event(&mut self, since: Duration, text: &str) {
        let line = format!("{:6.1} s  {text}", since.as_secs_f64());
        if self.how == How::Lines {
            self.write(&format!("{line}\n"));
        }
        self.events.push(line);
    }

    /// Draws the picture anew.
    pub(crate) fn draw(&mut self, record: &Record, since: Duration, time: Duration, store: &str) {
        let Some((width, height)) = size().filter(|_| self.how == How::Picture) else { return };
        let (events, colours) = (self.events.as_slice(), self.colours);
        let lines = picture::draw(record, &View { since, time, store, events, width, height, colours });
        let mut text = if self.drawn > 0 { format!("\x1b[{}A", self.drawn) } else { String::new() };
        for line in &lines {
            text.push('\r');
            text.push_str(line);
            text.push_str("\x1b[K\n");
        }
        // The rest of a higher one.
        text.push_str("\x1b[J");
        self.drawn = lines.len();
        self.write(&text);
    }

    pub(crate) fn lines(&mut self, text: &str) {
        if self.how != How::Silent {
            self.write(text);
        }
    }

    fn write(&mut self, text: &str) {
        let mut out = io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            self.is_gone = true;
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.how == How::Picture {
            self.write("\x1b[?25h");
        }
    }
}

/// Columns and rows of the terminal, if it is large enough for a picture.
fn size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    let (width, height) = (usize::from(size.ws_col), usize::from(size.ws_row));
    // One that does not say is as they were for long.
    let (width, height) = if width == 0 || height == 0 { (80, 24) } else { (width, height) };
    (width >= NARROWEST && height >= LOWEST).then_some((width, height))
}
