use std::fmt;

/// The most of a text that a message repeats.
const LONGEST_SHOWN: usize = 256;

/// An expression, a zone or a spread that no schedule can have.
///
/// The message names what was given and the rule it broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarError(String);

impl CalendarError {
    pub(crate) fn new(message: String) -> Self {
        Self(message)
    }

    /// Of an expression: which one, and what is wrong with it.
    pub(super) fn of(expression: &str, why: impl fmt::Display) -> Self {
        Self(format!("the expression {} {why}", shown(expression)))
    }
}

impl fmt::Display for CalendarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CalendarError {}

/// In quotes, on one line, and not too long.
pub(super) fn shown(text: &str) -> String {
    let shown: String = text.escape_debug().take(LONGEST_SHOWN).collect();
    let cut = if text.escape_debug().nth(LONGEST_SHOWN).is_some() { ".." } else { "" };
    format!("\"{shown}{cut}\"")
}
