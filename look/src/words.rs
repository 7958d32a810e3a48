//! Times and texts as people read them.

use std::time::Duration;

use tenure::{
    model::{Entry, RunRecord, StoreTime, Value, Why},
    store::{Drained, Share},
};

/// `4 min ago`, or `in 4 min`.
#[must_use]
pub fn ago(then: StoreTime, now: StoreTime) -> String {
    if then > now {
        format!("in {}", length(then.since(now)))
    } else {
        format!("{} ago", length(now.since(then)))
    }
}

/// A length of time by its largest unit: `4 min`.
#[must_use]
pub fn length(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// `1 task`, `2 tasks`.
#[must_use]
pub fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A value as its text, or as hexadecimal digits.
#[must_use]
pub fn value(value: &Value) -> String {
    let bytes = value.as_bytes();
    let digits = || bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"));
    std::str::from_utf8(bytes).map_or_else(|_| digits(), one_line)
}

/// Returns the unusual terms of a share: `cap 5, draining`. `drained` is the order that its instance has.
#[must_use]
pub fn terms(share: &Share, drained: Option<&Drained>) -> String {
    let mut terms = Vec::new();
    if share.cap < u32::MAX {
        terms.push(format!("cap {}", share.cap));
    }
    if share.weight != 1 {
        terms.push(format!("weight {}", share.weight));
    }
    if let Some(Drained { by, since, why }) = drained {
        terms.push(format!("drained since {since} by {by}: {why}"));
    } else if share.draining {
        terms.push("draining".to_owned());
    }
    if share.paused {
        terms.push("paused".to_owned());
    }
    if !share.reserved.is_zero() {
        terms.push(format!("reserved for {}", length(share.reserved)));
    }
    terms.join(", ")
}

/// Returns how an entry of a ledger ended, in words. `is_on` is true if its runner is there.
#[must_use]
pub fn ended(run: &RunRecord, is_on: bool) -> &'static str {
    match &run.finish {
        _ if run.id.entry == Entry::Skipped => "not run",
        Some(finish) => finish.outcome.as_str(),
        None if is_on => "is on",
        None => "its runner died",
    }
}

/// Why an entry of a ledger ended so, if it says.
#[must_use]
pub fn why_ended(run: &RunRecord) -> Option<&Why> {
    match (&run.skipped, &run.finish) {
        (Some(skipped), _) => Some(&skipped.why),
        (None, Some(finish)) => finish.error.as_ref(),
        (None, None) => None,
    }
}

/// A text without control characters, and without those that turn or hide others: a text in a store must not move the
/// cursor of its reader, nor look like another.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if is_told(c) { c } else { '\u{b7}' }).collect()
}

fn is_told(c: char) -> bool {
    !c.is_control() && !hides(c)
}

/// A text as a word of a shell's command line, in characters that can be seen.
#[must_use]
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:/@+-=".contains(c);
    // Some shells take a word that begins with = for the path of a program.
    if !text.is_empty() && !text.starts_with('=') && text.chars().all(is_plain) {
        return text.to_owned();
    }
    if text.chars().all(is_told) {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    let mut word = "$'".to_owned();
    for c in text.chars() {
        match c {
            '\'' | '\\' => word.extend(['\\', c]),
            _ if is_told(c) => word.push(c),
            _ => word.extend(c.to_string().bytes().map(|byte| format!("\\{byte:03o}"))),
        }
    }
    word + "'"
}

/// Returns whether it has no width, or changes the direction.
const fn hides(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_told_by_one_unit() {
        for (ms, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (119_000, "119 s"),
            (120_000, "2 min"),
            (7_200_000, "2 h"),
            (172_800_000, "2 d"),
        ] {
            assert_eq!(length(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn a_word_is_quoted_so_that_a_shell_takes_it_as_it_is() {
        for (text, word) in [
            ("eu-1", "eu-1"),
            ("--task=a", "--task=a"),
            ("=ls", "'=ls'"),
            ("", "''"),
            ("it's billing", r"'it'\''s billing'"),
            ("a\u{200b}b", r"$'a\342\200\213b'"),
            ("it's\u{202e}\\", r"$'it\'s\342\200\256\\'"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }

    #[test]
    fn an_instant_ahead_is_told_as_ahead_and_control_characters_are_replaced() {
        let at = |seconds: i64| StoreTime::from_millis(1_000_000 + seconds * 1000);
        assert_eq!((ago(at(0), at(5)), ago(at(5), at(0))), ("5 s ago".to_owned(), "in 5 s".to_owned()));
        assert_eq!(one_line("a\u{1b}[2Jb\u{202e}\u{200b}"), "a\u{b7}[2Jb\u{b7}\u{b7}");
    }

    #[test]
    fn a_value_is_told_in_one_line_whatever_it_is() {
        assert_eq!(value(&Value::new("10.0.0.1:80").unwrap()), "10.0.0.1:80");
        assert_eq!(value(&Value::new("a\u{1b}[2Jb").unwrap()), "a\u{b7}[2Jb");
        assert_eq!(value(&Value::new([0, 255]).unwrap()), "0x00ff");
    }
}
