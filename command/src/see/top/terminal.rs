//! The terminal: what it shows, what its keys say, and that it is left as it was found.

use std::io::{self, stdout};

use crossterm::{
    event::{Event as TerminalEvent, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute,
    terminal::{EnterAlternateScreen, enable_raw_mode},
};
use ratatui::{DefaultTerminal, layout::Rect};
use rustix::process::{getpid, getsid};
use signal_hook::{consts::SIGTSTP, low_level::emulate_default_handler};

use super::{
    draw,
    machine::{Event, Key, State},
};

/// A terminal that shows nothing but this. It is as it was before when this goes, and also after a panic.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    colours: bool,
}

/// The meaning of an input from the terminal.
#[derive(Debug)]
pub(super) enum Input {
    /// An event for the state.
    Event(Event),
    /// The screen is to be drawn whole: something else has written on it.
    Redraw,
    /// The user wants the shell again for a while.
    Suspend,
    Nothing,
}

impl Screen {
    pub(super) fn open(colours: bool) -> io::Result<Self> {
        Ok(Self { terminal: ratatui::try_init()?, colours })
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    pub(super) fn draw(&mut self, state: &State) -> io::Result<()> {
        let colours = self.colours;
        self.terminal.draw(|frame| draw::draw(frame.buffer_mut(), state, colours))?;
        Ok(())
    }

    pub(super) fn redraw(&mut self, state: &State) -> io::Result<()> {
        // Its `clear` asks the terminal where the cursor is, and waits for the answer among the keys.
        let (columns, rows) = self.size()?;
        self.terminal.resize(Rect::new(0, 0, columns, rows))?;
        self.draw(state)
    }

    /// Stops, as any program does at that key, and goes on when the shell lets it. Where the terminal has no shell, as
    /// under `ssh -t host tenure top`, nobody could let it go on: there it does not stop.
    pub(super) fn suspend(&mut self, state: &State) -> io::Result<()> {
        if getsid(None).is_ok_and(|leader| leader == getpid()) {
            return Ok(());
        }
        self.terminal.show_cursor()?;
        ratatui::try_restore()?;
        emulate_default_handler(SIGTSTP)?;
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen)?;
        self.redraw(state)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// Returns the meaning of a terminal event for this program.
pub(super) fn said(came: &TerminalEvent) -> Input {
    match came {
        TerminalEvent::Resize(columns, rows) => Input::Event(Event::Size(*columns, *rows)),
        TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => said_by_key(*key),
        _ => Input::Nothing,
    }
}

fn said_by_key(key: KeyEvent) -> Input {
    let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let key = match key.code {
        KeyCode::Char('c') if with_control => Key::Interrupt,
        KeyCode::Char('l') if with_control => return Input::Redraw,
        KeyCode::Char('z') if with_control => return Input::Suspend,
        KeyCode::Char(_) if with_control => return Input::Nothing,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Esc,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Backspace => Key::Backspace,
        _ => return Input::Nothing,
    };
    Input::Event(Event::Key(key))
}
