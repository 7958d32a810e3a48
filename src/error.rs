//! Errors between an instance and its store, and what a caller can conclude from them.

use std::{error::Error as StdError, fmt};

/// Answer to whether a store's operation that failed may have changed something ([R8](crate::store#rules-of-safety)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// No change was made, and none will be.
    No,
    /// Perhaps applied, now or later. Nothing may be concluded: the operation is repeated until it is answered.
    Unknown,
}

/// The longest message of another's that is repeated.
const LONGEST_CAUSES: usize = 600;

/// A store did not answer an operation.
///
/// It is printed with its cause, in one line; so its [`source`](StdError::source) is nothing, and a chain of
/// causes says nothing twice. What the store's driver said is at [`cause`](Self::cause).
///
/// Never says that a race was lost or a record is damaged: those are answers. What can be done now
/// is answered by [`is_retryable`](Self::is_retryable) and [`applied`](Self::applied).
pub struct StoreError {
    store: &'static str,
    doing: &'static str,
    applied: Applied,
    retryable: bool,
    words: String,
    cause: Box<dyn StdError + Send + Sync>,
}

impl StoreError {
    /// The operation `doing` failed in `store`.
    #[must_use]
    pub fn new(
        store: &'static str,
        doing: &'static str,
        applied: Applied,
        retryable: bool,
        cause: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        let cause = cause.into();
        Self { store, doing, applied, retryable, words: chain(&*cause), cause }
    }

    /// The operation `doing` of `store` was to go on from a [cursor](crate::store::Cursor) that it did not make.
    #[must_use]
    pub fn foreign_cursor(store: &'static str, doing: &'static str) -> Self {
        Self::new(store, doing, Applied::No, false, ForeignCursor)
    }

    /// With the cause in other words than its own.
    #[cfg(feature = "mongodb")]
    pub(crate) fn in_words(self, words: String) -> Self {
        Self { words, ..self }
    }

    /// Name of the store.
    #[must_use]
    pub const fn store(&self) -> &'static str {
        self.store
    }

    /// Operation that failed.
    #[must_use]
    pub const fn doing(&self) -> &'static str {
        self.doing
    }

    /// Returns whether something may have changed.
    #[must_use]
    pub const fn applied(&self) -> Applied {
        self.applied
    }

    /// Error beneath it, such as one of the driver's.
    #[must_use]
    pub fn cause(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.cause
    }

    /// Returns whether the same operation may succeed if it is sent again. If not, an operator has to
    /// change something first: a right, a password, the server's version.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Returns whether the store was to go on from a [cursor](crate::store::Cursor) that it did not make: the mistake is
    /// the caller's, and the store is well. A store may also go on from such a cursor, at any place.
    #[must_use]
    pub fn is_foreign_cursor(&self) -> bool {
        self.cause.is::<ForeignCursor>()
    }
}

/// A store was to go on from a cursor that it did not make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForeignCursor;

impl fmt::Display for ForeignCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cursor was not made by this store")
    }
}

impl StdError for ForeignCursor {}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, doing, applied, words, .. } = self;
        match applied {
            Applied::No => write!(f, "{store} could not {doing}, nothing was changed: {words}"),
            Applied::Unknown => {
                write!(f, "{store} failed to {doing}, the outcome is unknown: {words}")
            }
        }
    }
}

impl fmt::Debug for StoreError {
    // The words only: a driver's errors hold whole replies, byte by byte.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, doing, applied, retryable, words, .. } = self;
        f.debug_struct("StoreError")
            .field("store", store)
            .field("doing", doing)
            .field("applied", applied)
            .field("retryable", retryable)
            .field("cause", words)
            .finish()
    }
}

impl StdError for StoreError {}

/// An error with its causes: in one line, none of them twice, and not without end.
pub(crate) fn in_words(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    in_one_line(&text, LONGEST_CAUSES)
}

/// A text of others, of any length and with any characters, in one line.
pub(crate) fn in_one_line(text: &str, most: usize) -> String {
    let mut line: String = text.split(|c: char| c.is_control()).collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(most) {
        line.truncate(end);
        line.push_str("...");
    }
    line
}

/// `not authorized on shop to execute command { find: "locks", filter: ...`: not further than what is found,
/// for a value may be in the rest.
pub(crate) fn without_command(message: &str) -> &str {
    let end = message.find("to execute command {").and_then(|start| {
        let comma = message[start..].find(',')?;
        Some(start + comma)
    });
    end.map_or(message, |end| &message[..end])
}

/// Formats an error with its causes in one line: without the command it repeats, and without the reply byte
/// by byte.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let message = in_words(error);
    let message = message.split_once(", labels: {").map_or(&*message, |(before, _)| before);
    without_command(message).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_tells_what_was_done_what_became_of_it_and_why_once() {
        let error = StoreError::new("mongodb", "take 3 locks", Applied::Unknown, true, "reply lost");
        let message = "mongodb failed to take 3 locks, the outcome is unknown: reply lost";
        assert_eq!(error.to_string(), message);
        assert!(error.source().is_none(), "a chain would say it twice");
        assert_eq!(error.cause().to_string(), "reply lost");
        let error = StoreError::new("mongodb", "beat", Applied::No, false, "not authorised");
        assert_eq!(error.to_string(), "mongodb could not beat, nothing was changed: not authorised");
        assert_eq!(
            format!("{error:?}"),
            r#"StoreError { store: "mongodb", doing: "beat", applied: No, retryable: false, cause: "not authorised" }"#
        );
    }

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl StdError for Layer {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            self.1.as_deref().map(|inner| inner as _)
        }
    }

    #[test]
    fn causes_are_printed_in_one_line_and_none_of_them_twice() {
        let layer = |text, inner| Layer(text, Some(Box::new(inner)));
        let error = layer("connecting: no route", layer("no route", Layer("the cable\nis out", None)));
        assert_eq!(in_words(&error), "connecting: no route: the cable is out");
        let endless: &'static str = "é".repeat(10_000).leak();
        assert_eq!(in_words(&Layer(endless, None)).chars().count(), LONGEST_CAUSES + 3);
    }
}
