//! Names and texts that people choose: checked once, where they come in, so that every store can rely on it.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

/// A text or value that breaks one of the limits every store shares.
///
/// The message names what was given and the rule it broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError {
    what: &'static str,
    broken: Broken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Broken {
    Empty,
    Blank,
    /// `shown` is how it begins; nothing of what may be a secret.
    TooLong {
        bytes: usize,
        most: usize,
        shown: Option<String>,
    },
    Control {
        at: usize,
        char: char,
        shown: String,
    },
}

/// Returns how a text begins, in quotes, for a message.
fn shown(text: &str) -> String {
    const MOST: usize = 32;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what;
        match &self.broken {
            Broken::Empty => write!(f, "{what} must not be empty"),
            Broken::Blank => write!(f, "{what} must not be blank"),
            Broken::TooLong { bytes, most, shown } => {
                write!(f, "{what} is {bytes} bytes long, at most {most} are allowed")?;
                shown.as_ref().map_or(Ok(()), |shown| write!(f, ": {shown}"))
            }
            Broken::Control { at, char, shown } => {
                write!(f, "{what} must not have control characters, {char:?} is at byte {at}: {shown}")
            }
        }
    }
}

impl std::error::Error for LimitError {}

fn check_text(what: &'static str, text: &str, most: usize) -> Result<(), LimitError> {
    let broken = if text.is_empty() {
        Broken::Empty
    } else if text.len() > most {
        Broken::TooLong { bytes: text.len(), most, shown: Some(shown(text)) }
    } else if let Some((at, char)) = text.char_indices().find(|(_, c)| c.is_control()) {
        Broken::Control { at, char, shown: shown(text) }
    } else if text.chars().all(char::is_whitespace) {
        Broken::Blank
    } else {
        return Ok(());
    };
    Err(LimitError { what, broken })
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $most:literal) => {
        $(#[$doc])*
        #[doc = concat!("\n\n1 to ", $most, " bytes of UTF-8 without control characters, not all of them blank; `$`, dots, spaces and any script are fine.")]
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            #[doc = concat!("The most bytes ", $what, " may have.")]
            pub const MAX_BYTES: usize = $most;

            /// Checks the text against the limits.
            ///
            /// # Errors
            /// [`LimitError`] if it is empty, blank, too long, or has a control character.
            pub fn new(text: impl AsRef<str>) -> Result<Self, LimitError> {
                let text = text.as_ref();
                check_text($what, text, $most)?;
                Ok(Self(text.into()))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = LimitError;

            fn from_str(text: &str) -> Result<Self, LimitError> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = LimitError;

            fn try_from(text: &str) -> Result<Self, LimitError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = LimitError;

            fn try_from(text: String) -> Result<Self, LimitError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.as_str().to_owned()
            }
        }
    };
}

text! {
    /// Set of programs that share keys: programs that are to exclude each other use the same namespace.
    Namespace, "namespace", 128
}
text! {
    /// Name of what is held: a lock, a task of a spread, a schedule.
    Key, "key", 512
}
text! {
    /// The name people know an instance by, such as `pod-7`. Two processes may carry the same one:
    /// it is shown, and never decides anything.
    Holder, "holder", 128
}
text! {
    /// Part of a program that holds a lock, where one instance has several.
    Who, "who", 128
}
text! {
    /// The name of a spread.
    SpreadName, "spread", 128
}
text! {
    /// The name of a schedule.
    ScheduleName, "schedule", 128
}
text! {
    /// Rules of a schedule, in one line.
    Rules, "rules", 1024
}

/// Why something was done, for the operator that reads the record at night: up to 1 KiB of any text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Why(Arc<str>);

impl Why {
    /// The most bytes a reason may have.
    pub const MAX_BYTES: usize = 1024;

    /// Checks the length of the text.
    ///
    /// # Errors
    /// [`LimitError`] if it is longer than [`MAX_BYTES`](Self::MAX_BYTES).
    pub fn new(text: impl AsRef<str>) -> Result<Self, LimitError> {
        let text = text.as_ref();
        let (bytes, most) = (text.len(), Self::MAX_BYTES);
        if bytes > most {
            let broken = Broken::TooLong { bytes, most, shown: Some(shown(text)) };
            return Err(LimitError { what: "why", broken });
        }
        Ok(Self(text.into()))
    }

    /// The text, cut at the last whole character that fits: for messages of others, whose length has no limit.
    #[must_use]
    pub fn shortened(text: &str) -> Self {
        let mut end = text.len().min(Self::MAX_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self(text[..end].into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Why {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl TryFrom<String> for Why {
    type Error = LimitError;

    fn try_from(text: String) -> Result<Self, LimitError> {
        Self::new(text)
    }
}

impl From<Why> for String {
    fn from(why: Why) -> String {
        why.as_str().to_owned()
    }
}

/// The bytes a holder keeps with its lock, for others to read: up to 16 KiB.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Value(Arc<[u8]>);

impl Value {
    /// The most bytes a value may have.
    pub const MAX_BYTES: usize = 16 * 1024;

    /// Checks the length of the bytes.
    ///
    /// # Errors
    /// [`LimitError`] if there are more than [`MAX_BYTES`](Self::MAX_BYTES).
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, LimitError> {
        let bytes = bytes.as_ref();
        let most = Self::MAX_BYTES;
        if bytes.len() > most {
            let broken = Broken::TooLong { bytes: bytes.len(), most, shown: None };
            return Err(LimitError { what: "value", broken });
        }
        Ok(Self(bytes.into()))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    // A value may be anything of the user's, secrets too: its length is all a log gets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_any_script_and_every_sign_that_means_something_elsewhere() {
        for text in ["a", "$exp", "a.b", "with space", "ключ", "鍵", "👑", "$$NOW", "{\"$gt\":1}"] {
            assert_eq!(Key::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_broken_limit_is_told_with_its_numbers() {
        let cases = [
            (Key::new("").unwrap_err(), "key must not be empty"),
            (Holder::new(" \u{3000}").unwrap_err(), "holder must not be blank"),
            (
                Key::new("x".repeat(513)).unwrap_err(),
                "key is 513 bytes long, at most 512 are allowed: \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"...",
            ),
            (
                Key::new("a\0b").unwrap_err(),
                "key must not have control characters, '\\0' is at byte 1: \"a\\0b\"",
            ),
            (
                Key::new("é\n").unwrap_err(),
                "key must not have control characters, '\\n' is at byte 2: \"é\\n\"",
            ),
        ];
        for (error, message) in cases {
            assert_eq!(error.to_string(), message);
        }
        assert!(Key::new("x".repeat(512)).is_ok());
        assert_eq!(
            Namespace::new("é".repeat(65)).unwrap_err().to_string(),
            format!("namespace is 130 bytes long, at most 128 are allowed: \"{}\"...", "é".repeat(32))
        );
        assert_eq!(
            Why::new("x".repeat(1025)).unwrap_err().to_string(),
            format!("why is 1025 bytes long, at most 1024 are allowed: \"{}\"...", "x".repeat(32))
        );
        assert_eq!(
            Value::new(vec![0; 16385]).unwrap_err().to_string(),
            "value is 16385 bytes long, at most 16384 are allowed"
        );
        assert!(Value::new(vec![0; 16384]).is_ok());
    }

    #[test]
    fn a_shortened_why_never_cuts_a_character() {
        let why = Why::shortened(&"é".repeat(1000));
        assert_eq!(why.as_str(), "é".repeat(512));
        assert_eq!(Why::shortened("short").as_str(), "short");
    }

    #[test]
    fn a_value_is_not_printed() {
        assert_eq!(format!("{:?}", Value::new(b"password").unwrap()), "Value(8 bytes)");
    }
}
