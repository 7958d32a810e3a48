//! The picture, on a terminal of 80 columns and 24 rows that is a real one to the program that draws on it.

use std::{fs::File, io::Write, os::fd::OwnedFd, process::Stdio, time::Instant};

use super::run::{Folder, command, processes_of};
use crate::{
    pty::{HEIGHT, WIDTH, read_all, terminal},
    wait::LIMIT,
};

/// A screen that obeys the few commands that are sent to it.
struct Screen {
    rows: Vec<Vec<char>>,
    row: usize,
    column: usize,
    frames: usize,
    shows_cursor: bool,
    /// Text that went beyond the right edge.
    wrapped: bool,
    escape: Option<String>,
}

impl Screen {
    fn new() -> Self {
        let rows = vec![vec![' '; usize::from(WIDTH)]; usize::from(HEIGHT)];
        Self { rows, row: 0, column: 0, frames: 0, shows_cursor: true, wrapped: false, escape: None }
    }

    fn feed(&mut self, text: &str) {
        for c in text.chars() {
            match (&mut self.escape, c) {
                (Some(escape), c) if escape.is_empty() && c == '[' => escape.push(c),
                (Some(escape), c) if c.is_ascii_alphabetic() => {
                    let escape = escape.trim_start_matches('[').to_owned();
                    self.escape = None;
                    self.obey(&escape, c);
                }
                (Some(escape), c) => escape.push(c),
                (None, '\x1b') => self.escape = Some(String::new()),
                (None, '\r') => self.column = 0,
                (None, '\n') => self.line_feed(),
                (None, c) => self.put(c),
            }
        }
    }

    fn put(&mut self, c: char) {
        if self.column >= usize::from(WIDTH) {
            self.wrapped = true;
            return;
        }
        self.rows[self.row][self.column] = c;
        self.column += 1;
    }

    fn line_feed(&mut self) {
        self.column = 0;
        if self.row + 1 < self.rows.len() {
            self.row += 1;
        } else {
            self.rows.remove(0);
            self.rows.push(vec![' '; usize::from(WIDTH)]);
        }
    }

    fn obey(&mut self, escape: &str, command: char) {
        match (escape, command) {
            (up, 'A') => {
                self.frames += 1;
                self.row = self.row.checked_sub(up.parse().unwrap()).expect("it stays on the screen");
            }
            ("", 'K') => self.rows[self.row][self.column..].fill(' '),
            ("", 'J') => {
                self.rows[self.row][self.column..].fill(' ');
                for row in &mut self.rows[self.row + 1..] {
                    row.fill(' ');
                }
            }
            ("?25", 'l') => self.shows_cursor = false,
            ("?25", 'h') => self.shows_cursor = true,
            (_, 'm') => {}
            other => panic!("a terminal need not know {other:?}"),
        }
    }

    fn text(&self) -> String {
        let lines: Vec<String> =
            self.rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect();
        lines.join("\n")
    }
}

/// Starts a demo whose controlling terminal this is.
fn start(slave: File, folder: &Folder, arguments: &[&str]) -> std::process::Child {
    let same = || Stdio::from(OwnedFd::from(slave.try_clone().unwrap()));
    let mut command = command("setsid", folder);
    command.arg("--ctty").arg(env!("CARGO_BIN_EXE_tenure")).arg("demo").args(arguments);
    command.stdin(same()).stdout(same()).stderr(same());
    let child = command.spawn().unwrap();
    // The slave end is the child's now: the reader of the other end learns that the child is gone.
    drop(slave);
    child
}

#[test]
fn a_picture_is_drawn_again_and_again_and_the_summary_stands_under_it() {
    let folder = Folder::new();
    let (master, slave) = terminal();
    let begun = Instant::now();
    let mut child = start(slave, &folder, &["--time", "10s"]);
    let (mut screen, mut all) = (Screen::new(), String::new());
    let mut unseen: Vec<_> = (1..=6).map(|number| format!("\n  demo-{number} ")).collect();
    for text in read_all(master) {
        all.push_str(&text);
        for line in text.split_inclusive('\n') {
            screen.feed(line);
            let seen = screen.text();
            unseen.retain(|row| !seen.contains(row));
        }
    }
    assert!(child.wait().unwrap().success(), "{}", screen.text());
    assert!(!screen.wrapped, "{all:?}");
    assert!(screen.shows_cursor);
    assert!(all.starts_with("\x1b[?25l"), "the cursor is hidden first: {all:?}");
    // Five a second at most, and one at the end.
    let most = usize::try_from(begun.elapsed().as_millis()).unwrap() / 200 + 2;
    assert!((2..=most).contains(&screen.frames), "{} frames", screen.frames);
    assert_eq!(unseen, [""; 0], "{all:?}");
    assert!(screen.text().contains("Every promise held."), "{}", screen.text());
    assert!(processes_of(&folder).is_empty());
    assert_eq!(std::fs::read_dir(&folder.path).unwrap().count(), 0);
}

#[test]
fn ctrl_c_ends_all_of_it_and_the_cursor_is_back() {
    let folder = Folder::new();
    let (mut master, slave) = terminal();
    let mut child = start(slave, &folder, &["--time", "1h"]);
    let all = read_all(master.try_clone().unwrap());
    let mut screen = Screen::new();
    let whole = ["100 of 100 tasks run", "kill -9 any of these pids", "####", "\n  demo-1 ", "\n  demo-5 "];
    while !whole.iter().all(|part| screen.text().contains(part)) {
        screen.feed(&all.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{}", screen.text())));
    }
    assert!(screen.text().starts_with("tenure demo "), "{}", screen.text());
    assert!(!screen.shows_cursor);
    master.write_all(b"\x03").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    for text in all {
        screen.feed(&text);
    }
    assert!(screen.shows_cursor);
    assert!(processes_of(&folder).is_empty());
    assert_eq!(std::fs::read_dir(&folder.path).unwrap().count(), 0);
}
