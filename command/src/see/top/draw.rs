//! The screen: a title, the views, a list or a text, and the keys. Pure: all that it shows is in the state.

use ratatui::{
    buffer::Buffer,
    style::{Color, Modifier, Style},
};

use super::{
    list::Tone,
    machine::{MARK, Over, State},
    text::{clean, count, cut, fit},
    views::View,
};
use crate::{out::width, times};
use tenure_look::{Grade, Trouble};

const KEYS: &str = "Tab view  Enter details  / filter  ? help  q quit";
const KEYS_OVER: &str = "Up Down scroll  Esc back  Tab view  q quit";
const KEYS_TYPING: &str = "Enter keep  Esc all";

/// Lines that are drawn one under another, each as wide as the screen.
struct Pen<'a> {
    buffer: &'a mut Buffer,
    colours: bool,
    row: u16,
}

pub(super) fn draw(buffer: &mut Buffer, state: &State, colours: bool) {
    let last = buffer.area.height.saturating_sub(1);
    let mut pen = Pen { buffer, colours, row: 0 };
    let columns = pen.columns();
    pen.line(&[(sides(&title(state), &clock(state), columns), Style::new().add_modifier(Modifier::BOLD))]);
    if let Some(trouble) = trouble(state) {
        let style = pen.style(Tone::Bad).add_modifier(Modifier::REVERSED);
        pen.line(&[(fit(&trouble, columns, false), style)]);
    }
    for one in state.told() {
        let tone = if one.grade == Grade::Passing { Tone::Note } else { Tone::Bad };
        pen.line(&[(fit(&told(one), columns, false), pen.style(tone))]);
    }
    pen.views(state);
    match state.over() {
        Some(over) => pen.over(over, state.room()),
        None => pen.list(state),
    }
    pen.row = last;
    pen.keys(state);
}

/// The same as a text: all of the rows, and none of the keys.
pub(super) fn text(state: &State) -> String {
    let list = state.list();
    let layout = list.layout(state.columns());
    let mut lines = vec![format!("{}  {}", title(state), clock(state))];
    lines.extend(trouble(state));
    lines.extend(state.told().iter().map(told));
    lines.push(format!("{}: {}", state.view().name(), rows(state)));
    lines.push(layout.headings(list));
    if list.rows.is_empty() {
        lines.push(nothing(state).to_owned());
    }
    let text = |row| layout.cells(list, row).into_iter().map(|(text, _)| text).collect::<String>();
    lines.extend(list.rows.iter().map(text));
    lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// The namespace, and the numbers of troubles that need attention and of instances that beat.
fn title(state: &State) -> String {
    let Some(picture) = state.picture() else { return format!("tenure top  {}", state.store) };
    let verdict = picture.verdict();
    let troubles = match verdict.needing() {
        0 => String::new(),
        needing => format!(", {}", count(needing, "trouble")),
    };
    format!("tenure top  {} in {}{troubles}, {} alive", picture.namespace(), state.store, verdict.alive)
}

/// A trouble in a line.
fn told(one: &Trouble) -> String {
    clean(&format!("{:<8}  {} -> {}", one.grade.as_str(), one.says, one.command))
}

/// Time of the picture.
fn clock(state: &State) -> String {
    state.picture().map(|picture| times::local(picture.now())).unwrap_or_default()
}

/// Why what is shown is old.
fn trouble(state: &State) -> Option<String> {
    let trouble = clean(&state.trouble()?);
    Some(match state.answered {
        Some(at) => {
            format!("Store unreachable since {}; showing old data: {trouble}", times::clock(at))
        }
        None => trouble,
    })
}

/// Returns the numbers of shown and of all rows, with a note while more are being read.
fn rows(state: &State) -> String {
    let Some(picture) = state.picture() else { return "reading".to_owned() };
    let (shown, of) = (state.list().rows.len(), state.list().of);
    let more = if state.view().is_whole(picture) { "" } else { ", reading on" };
    let of = count(of, "row");
    if state.filter.is_empty() { format!("{of}{more}") } else { format!("{shown} of {of}{more}") }
}

/// A text on the left, and one on the right as far as there is room.
fn sides(left: &str, right: &str, columns: usize) -> String {
    let room = columns.saturating_sub(width(right) + 1);
    if right.is_empty() || room < width(left).min(columns / 2) {
        return fit(left, columns, false);
    }
    format!("{} {right}", fit(left, room, false))
}

impl Pen<'_> {
    fn columns(&self) -> usize {
        usize::from(self.buffer.area.width)
    }

    /// Without colours there are words, and what a terminal had before it had colours.
    fn style(&self, tone: Tone) -> Style {
        let colour = |colour| if self.colours { Style::new().fg(colour) } else { Style::new() };
        match tone {
            Tone::Plain => Style::new(),
            Tone::Good => colour(Color::Green),
            Tone::Note => colour(Color::Yellow),
            Tone::Bad => colour(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Quiet => Style::new().add_modifier(Modifier::DIM),
        }
    }

    /// Draws a line, as far as it is on the screen.
    fn line(&mut self, parts: &[(String, Style)]) {
        let mut left = usize::from(self.buffer.area.width);
        let mut column = self.buffer.area.left();
        if self.row < self.buffer.area.height {
            for (text, style) in parts {
                let (next, _) = self.buffer.set_stringn(column, self.row, text, left, *style);
                left -= usize::from(next - column);
                column = next;
            }
        }
        self.row = self.row.saturating_add(1);
    }

    fn views(&mut self, state: &State) {
        let (right, columns) = (rows(state), self.columns());
        let mut parts = Vec::new();
        let mut left = columns.saturating_sub(width(&right) + 1);
        for (number, view) in (1..).zip(View::ALL) {
            let is_shown = view == state.view();
            let text = if is_shown {
                format!("[{number} {}]", view.name())
            } else {
                format!(" {number} {} ", view.name())
            };
            // Without room for all names, that of the shown view stays.
            let text = if columns < 70 && !is_shown { format!(" {number} ") } else { text };
            let text = cut(&text, left);
            left -= width(&text);
            let style = if is_shown { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
            parts.push((text, style));
        }
        parts.push((format!("{} {right}", " ".repeat(left)), self.style(Tone::Quiet)));
        self.line(&parts);
    }

    fn list(&mut self, state: &State) {
        let list = state.list();
        let layout = list.layout(state.columns());
        let headings = format!("{}{}", " ".repeat(MARK), layout.headings(list));
        self.line(&[(
            fit(&headings, self.columns(), false),
            Style::new().add_modifier(Modifier::UNDERLINED),
        )]);
        if list.rows.is_empty() {
            self.line(&[(format!("{}{}", " ".repeat(MARK), nothing(state)), Style::new())]);
        }
        let (selected, top) = state.selected();
        for (at, row) in list.rows.iter().enumerate().skip(top).take(state.room()) {
            let is_selected = at == selected;
            let mark = if is_selected { "> " } else { "  " };
            let mut parts = vec![(mark.to_owned(), Style::new())];
            parts.extend(layout.cells(list, row).into_iter().map(|(text, tone)| (text, self.style(tone))));
            if is_selected {
                for (_, style) in &mut parts {
                    *style = style.add_modifier(Modifier::REVERSED);
                }
            }
            self.line(&parts);
        }
    }

    fn over(&mut self, over: &Over, room: usize) {
        self.line(&[]);
        for line in over.lines.iter().skip(over.top).take(room) {
            let style = if line.is_heading { Modifier::BOLD } else { Modifier::empty() };
            let style = Style::new().add_modifier(style);
            self.line(&[(format!("{}{}", " ".repeat(MARK), line.text), style)]);
        }
    }

    fn keys(&mut self, state: &State) {
        let (left, right) = match state.over() {
            _ if state.is_typing => (format!("filter: {}_", clean(&state.filter)), KEYS_TYPING.to_owned()),
            Some(over) => (KEYS_OVER.to_owned(), lines(over, state.room())),
            None if state.filter.is_empty() => (KEYS.to_owned(), String::new()),
            None => (
                format!("filter: {}", clean(&state.filter)),
                "/ change it  Esc all  ? help  q quit".to_owned(),
            ),
        };
        let style = Style::new().add_modifier(Modifier::REVERSED);
        self.line(&[(sides(&left, &right, self.columns()), style)]);
    }
}

/// Which lines of a text are shown.
fn lines(over: &Over, room: usize) -> String {
    let of = over.lines.len();
    if of <= room {
        String::new()
    } else {
        format!("lines {} to {} of {of}", over.top + 1, (over.top + room).min(of))
    }
}

/// Returns the message for a list without rows.
fn nothing(state: &State) -> &'static str {
    match state.picture() {
        None => "Loading.",
        Some(picture) if !state.view().is_whole(picture) => "Loading.",
        Some(_) if state.list().of > 0 => "No row has that text: Esc shows all.",
        Some(_) => state.view().nothing(),
    }
}
