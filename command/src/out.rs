//! Output: a table for people, one JSON document for programs.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
pub(crate) use tenure_look::{count, one_line};
use unicode_width::UnicodeWidthChar;

use crate::{
    common::{Colour, Common, Form},
    exit::Failure,
};

/// Rows under headings, each column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: impl IntoIterator<Item = &'static str>) -> Self {
        Self { headings: headings.into_iter().collect(), rows: Vec::new() }
    }

    /// Rows of named cells: the names of the first row are the headings.
    pub(crate) fn of(rows: impl IntoIterator<Item = Vec<(&'static str, String)>>) -> Self {
        let mut rows = rows.into_iter().peekable();
        let mut table = Self::new(rows.peek().into_iter().flatten().map(|(name, _)| *name));
        rows.for_each(|row| table.row(row.into_iter().map(|(_, cell)| cell)));
        table
    }

    /// Adds a row of as many cells as there are headings.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(|cell| one_line(&cell.into())).collect());
    }

    /// The whole table. What is the last column is not padded.
    pub(crate) fn render(&self) -> String {
        let mut widths: Vec<usize> = self.headings.iter().map(|heading| width(heading)).collect();
        for row in &self.rows {
            for (at, cell) in row.iter().enumerate() {
                widths[at] = widths[at].max(width(cell));
            }
        }
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for (cell, wide) in cells.zip(&widths) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', wide - width(cell) + 2));
            }
            line.truncate(line.trim_end().len());
            line.push('\n');
            line
        };
        let mut text = line(&mut self.headings.iter().copied());
        for row in &self.rows {
            text.push_str(&line(&mut row.iter().map(String::as_str)));
        }
        text
    }
}

/// Named cells, each in a line of its own.
pub(crate) fn fields(fields: &[(&'static str, String)]) -> String {
    fields.iter().fold(String::new(), |text, (name, value)| {
        format!("{text}{:<11}{}\n", name.to_lowercase(), one_line(value))
    })
}

/// The beginning of a text, so many characters at most.
pub(crate) fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}\u{2026}", &text[..end]),
        None => text.to_owned(),
    }
}

/// Columns of a terminal that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum()
}

/// Prints what was asked for, as a table or as JSON.
pub(crate) fn print<T: Serialize>(
    common: &Common,
    document: &T,
    table: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match common.output {
        Form::Table => text(&table()),
        Form::Json => {
            let mut json = serde_json::to_string_pretty(document)
                .map_err(|error| Failure::failed(format!("the answer cannot be written as JSON: {error}")))?;
            json.push('\n');
            text(&json)
        }
    }
}

/// Prints a text. A reader of its beginning alone, as `head` is, has what it wanted.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("the answer cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Returns whether to colour what goes to standard output.
pub(crate) fn colours(common: &Common) -> bool {
    match common.color {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => {
            io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    }
}
