//! The state of the screen, and its changes by keys and new pictures. Pure: no clock, no store, no terminal.

use std::sync::Arc;

use tenure::model::StoreTime;
use tenure_look::{NotLoaded, Picture, Trouble};

use super::{
    details::{self, Line},
    list::{List, Subject},
    text::clean,
    views::View,
};

/// Lines around the rows: title, views, headings, keys.
const FRAME: usize = 4;
/// The most troubles above a list.
const TOLD: usize = 5;
/// Characters of a filter.
const FILTER: usize = 100;
/// Columns of the mark at the selected row.
pub(super) const MARK: usize = 2;

/// A key of the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Esc,
    Tab,
    BackTab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Backspace,
    /// Ctrl-C.
    Interrupt,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Key(Key),
    /// The terminal has so many columns and rows.
    Size(u16, u16),
    Picture(Arc<Picture>),
    /// No picture was read, for the store does not answer.
    NotLoaded(NotLoaded),
    /// The text that was read about this, or why it cannot be read.
    Read(Subject, Result<String, String>),
}

/// The consequence of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The screen is to be drawn anew.
    Draw,
    /// The screen is to be drawn anew, and the text about this is to be read.
    Ask(Subject),
    Quit,
}

/// Position of the user in a list.
#[derive(Clone, Debug, Default)]
struct Place {
    /// The selected subject; `None` selects the first row.
    subject: Option<Subject>,
    at: usize,
    /// First row that is shown.
    top: usize,
}

/// A text over the list.
#[derive(Clone, Debug)]
pub(super) struct Over {
    pub(super) what: Overlay,
    pub(super) lines: Vec<Line>,
    /// First line that is shown.
    pub(super) top: usize,
    read: Option<String>,
    /// Why it is old, or not there yet.
    unread: String,
    /// A read is on its way.
    is_asked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Overlay {
    Help,
    Details(Subject),
}

#[derive(Clone, Debug)]
pub(super) struct State {
    /// The store's name.
    pub(super) store: String,
    size: (u16, u16),
    view: View,
    places: [Place; View::ALL.len()],
    pub(super) filter: String,
    /// The filter is being written.
    pub(super) is_typing: bool,
    over: Option<Over>,
    picture: Option<Arc<Picture>>,
    unread: Option<NotLoaded>,
    /// Time of the store's last answer.
    pub(super) answered: Option<StoreTime>,
    list: List,
}

impl State {
    pub(super) fn new(store: &str, view: View, filter: &str) -> Self {
        Self {
            store: clean(store),
            size: (80, 24),
            view,
            places: Default::default(),
            filter: filter.to_owned(),
            is_typing: false,
            over: None,
            picture: None,
            unread: None,
            answered: None,
            list: List::default(),
        }
    }

    pub(super) fn picture(&self) -> Option<&Picture> {
        self.picture.as_deref()
    }

    pub(super) const fn view(&self) -> View {
        self.view
    }

    pub(super) const fn list(&self) -> &List {
        &self.list
    }

    pub(super) const fn over(&self) -> Option<&Over> {
        self.over.as_ref()
    }

    /// The row that is selected, and the first one that is shown.
    pub(super) fn selected(&self) -> (usize, usize) {
        (self.place().at, self.place().top)
    }

    fn place(&self) -> &Place {
        &self.places[self.view.index()]
    }

    fn place_mut(&mut self) -> &mut Place {
        &mut self.places[self.view.index()]
    }

    /// Rows of the list that there is room for, or lines of a text.
    pub(super) fn room(&self) -> usize {
        let above = usize::from(self.trouble().is_some()) + self.told().len();
        usize::from(self.size.1).saturating_sub(FRAME + above).max(1)
    }

    /// The troubles that are told above a list.
    pub(super) fn told(&self) -> &[Trouble] {
        let troubles = self.picture().map(|picture| &picture.verdict().troubles[..]).unwrap_or_default();
        let room = if self.over.is_some() { 0 } else { (usize::from(self.size.1) / 6).min(TOLD) };
        &troubles[..troubles.len().min(room)]
    }

    /// Why the store does not answer.
    pub(super) fn trouble(&self) -> Option<String> {
        let unread = self.unread.as_ref().map(ToString::to_string);
        unread.or_else(|| Some(self.picture()?.trouble()?.to_owned()))
    }

    /// Columns for a row.
    pub(super) fn columns(&self) -> usize {
        usize::from(self.size.0).saturating_sub(MARK)
    }

    /// Takes in what happened.
    pub(super) fn step(&mut self, event: Event) -> Step {
        match event {
            Event::Key(Key::Interrupt) => return Step::Quit,
            Event::Key(key) if self.is_typing => self.type_key(key),
            Event::Key(Key::Char('q')) => return Step::Quit,
            Event::Key(key) => return self.key(key),
            Event::Size(columns, rows) => {
                self.size = (columns, rows);
                self.retell();
                self.scroll();
            }
            Event::Picture(picture) => {
                if picture.trouble().is_none() {
                    self.answered = Some(picture.now());
                }
                self.picture = Some(picture);
                self.unread = None;
                self.relist();
                self.retell();
                return self.ask();
            }
            Event::NotLoaded(unread) => self.unread = Some(unread),
            Event::Read(subject, read) => self.read(&subject, read),
        }
        Step::Draw
    }

    // ----- keys

    fn key(&mut self, key: Key) -> Step {
        match key {
            Key::Tab => self.look_at(View::ALL[(self.view.index() + 1) % View::ALL.len()]),
            Key::BackTab => {
                self.look_at(View::ALL[(self.view.index() + View::ALL.len() - 1) % View::ALL.len()]);
            }
            Key::Char(digit @ '1'..='5') => {
                let at = digit.to_digit(10).map_or(0, |digit| digit as usize - 1);
                self.look_at(View::ALL[at]);
            }
            Key::Char('?') => self.open(Overlay::Help),
            key if self.over.is_some() => self.key_over(key),
            key => return self.key_of_list(key),
        }
        Step::Draw
    }

    fn key_of_list(&mut self, key: Key) -> Step {
        match key {
            Key::Char('/') => self.is_typing = true,
            Key::Esc => {
                self.filter.clear();
                self.relist();
            }
            Key::Enter => {
                let at = self.place().at;
                if let Some(row) = self.list.rows.get(at) {
                    self.open(Overlay::Details(row.subject.clone()));
                    return self.ask();
                }
            }
            key => {
                if let Some(at) = moved(key, self.place().at, self.room()) {
                    self.go(at);
                }
                if key == Key::Home {
                    self.place_mut().subject = None;
                }
            }
        }
        Step::Draw
    }

    fn key_over(&mut self, key: Key) {
        let room = self.room();
        let Some(over) = &mut self.over else { return };
        if let Key::Esc | Key::Backspace = key {
            self.over = None;
        } else if let Some(top) = moved(key, over.top, room) {
            over.top = top.min(over.lines.len().saturating_sub(room));
        }
    }

    fn type_key(&mut self, key: Key) {
        match key {
            Key::Char(c) if self.filter.chars().count() < FILTER => self.filter.push(c),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            Key::Enter | Key::Tab | Key::Up | Key::Down => self.is_typing = false,
            _ => {}
        }
        self.relist();
    }

    fn look_at(&mut self, view: View) {
        self.view = view;
        self.over = None;
        self.relist();
    }

    // ----- the list

    fn relist(&mut self) {
        let Some(picture) = self.picture.clone() else { return };
        let mut list = self.view.list(&picture);
        list.filter(&clean(&self.filter));
        self.list = list;
        let subject = self.place().subject.clone();
        let found = subject.and_then(|subject| self.list.rows.iter().position(|row| row.subject == subject));
        let last = self.list.rows.len().saturating_sub(1);
        let place = self.place_mut();
        place.at = match (found, &place.subject) {
            (Some(at), _) => at,
            (None, None) => 0,
            // It is gone: what stands in its place is selected.
            (None, Some(_)) => place.at.min(last),
        };
        self.scroll();
    }

    fn go(&mut self, at: usize) {
        let at = at.min(self.list.rows.len().saturating_sub(1));
        let subject = self.list.rows.get(at).map(|row| row.subject.clone());
        let place = self.place_mut();
        place.at = at;
        place.subject = subject;
        self.scroll();
    }

    /// Has what is selected on the screen, and the screen full.
    fn scroll(&mut self) {
        let (room, rows) = (self.room(), self.list.rows.len());
        let place = self.place_mut();
        place.top =
            place.top.min(place.at).max((place.at + 1).saturating_sub(room)).min(rows.saturating_sub(room));
    }

    // ----- details

    fn open(&mut self, what: Overlay) {
        self.over = Some(Over {
            what,
            lines: Vec::new(),
            top: 0,
            read: None,
            unread: String::new(),
            is_asked: false,
        });
        self.retell();
    }

    /// Writes the text over the list anew.
    fn retell(&mut self) {
        let (columns, room) = (self.columns(), self.room());
        let Some(over) = &mut self.over else { return };
        let text = match (&over.what, &self.picture) {
            (Overlay::Details(subject), Some(picture)) => {
                let read = over.read.as_deref().unwrap_or("Loading.\n");
                details::of(subject, picture, &(over.unread.clone() + read))
            }
            (Overlay::Details(_), None) => String::new(),
            (Overlay::Help, _) => details::HELP.to_owned(),
        };
        over.lines = details::lines(&text, columns);
        over.top = over.top.min(over.lines.len().saturating_sub(room));
    }

    /// Requests what the picture has not for the text that is shown, unless it is already on its way.
    fn ask(&mut self) -> Step {
        let Some(over) = self.over.as_mut().filter(|over| !over.is_asked) else { return Step::Draw };
        let Overlay::Details(subject @ (Subject::Key(_) | Subject::Schedule(_))) = &over.what else {
            return Step::Draw;
        };
        over.is_asked = true;
        Step::Ask(subject.clone())
    }

    fn read(&mut self, subject: &Subject, read: Result<String, String>) {
        let Some(over) = &mut self.over else { return };
        if !matches!(&over.what, Overlay::Details(shown) if shown == subject) {
            return;
        }
        over.is_asked = false;
        match read {
            Ok(text) => (over.read, over.unread) = (Some(text), String::new()),
            Err(error) => over.unread = format!("It cannot be read now: {error}\n"),
        }
        self.retell();
    }
}

/// Returns where a key moves to from here, a screen being a page of so many lines; the end may be further than the last.
const fn moved(key: Key, at: usize, page: usize) -> Option<usize> {
    Some(match key {
        Key::Up | Key::Char('k') => at.saturating_sub(1),
        Key::Down | Key::Char('j') => at + 1,
        Key::PageUp => at.saturating_sub(page),
        Key::PageDown => at + page,
        Key::Home => 0,
        Key::End => usize::MAX,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
