//! Texts in columns of a terminal: what a character takes there is not always one.

use unicode_width::UnicodeWidthChar;

pub(super) use crate::out::count;
use crate::out::{one_line, width};

/// The replacement for text that was cut off.
const CUT: char = '\u{2026}';

/// A text that takes as many columns on every terminal as are counted here, and moves nothing.
///
/// Characters that join emojis into one are left out: terminals do not agree on how wide that makes a text. Characters
/// that turn the direction of writing become a dot: a name with an override would turn around the columns behind it.
pub(super) fn clean(text: &str) -> String {
    one_line(text).chars().filter_map(plain).collect()
}

fn plain(c: char) -> Option<char> {
    match c {
        // Joiners, variants of what stands before, tones of skin.
        '\u{200c}'
        | '\u{200d}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{1f3fb}'..='\u{1f3ff}'
        | '\u{e0000}'..='\u{e0fff}' => None,
        // Two of these are a flag, or two letters.
        '\u{1f1e6}'..='\u{1f1ff}' => char::from_u32(u32::from(c) - 0x1f1e6 + u32::from('A')),
        c => Some(c),
    }
}

/// As much of a text as there is room for; an ellipsis if that is not all.
pub(super) fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut left = room.saturating_sub(1);
    let mut cut = String::new();
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        cut.push(c);
    }
    if room > 0 {
        cut.push(CUT);
    }
    cut
}

/// A text that takes exactly so many columns.
pub(super) fn fit(text: &str, room: usize, is_number: bool) -> String {
    let text = cut(text, room);
    let rest = " ".repeat(room.saturating_sub(width(&text)));
    if is_number { rest + &text } else { text + &rest }
}

/// A text in lines, broken at blanks where that is possible.
pub(super) fn wrap(text: &str, room: usize) -> Vec<String> {
    let room = room.max(1);
    let (mut lines, mut line, mut wide) = (Vec::new(), String::new(), 0);
    for word in text.split(' ') {
        let long = width(word);
        if wide > 0 && wide + 1 + long > room {
            lines.push(std::mem::take(&mut line));
            wide = 0;
        }
        if wide > 0 {
            line.push(' ');
            wide += 1;
        }
        for c in word.chars() {
            let columns = c.width().unwrap_or(0);
            if wide + columns > room && wide > 0 {
                lines.push(std::mem::take(&mut line));
                wide = 0;
            }
            line.push(c);
            wide += columns;
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// A part of a whole as a bar: `##--`.
pub(super) fn bar(permille: u64, room: usize) -> String {
    let long = u64::try_from(room).unwrap_or(u64::MAX);
    let part = permille.min(1000);
    let mut full = (part * long + 500) / 1000;
    // A part above zero is not shown as zero, and a part below the whole not as the whole.
    if part > 0 {
        full = full.max(1);
    }
    if part < 1000 {
        full = full.min(long.saturating_sub(1));
    }
    let full = usize::try_from(full).unwrap_or(room).min(room);
    "#".repeat(full) + &"-".repeat(room - full)
}

/// `part` of `whole` in thousandths.
pub(super) fn permille(part: usize, whole: usize) -> u64 {
    u64::try_from(part.saturating_mul(1000) / whole.max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_the_columns_that_it_takes() {
        assert_eq!(cut("pod-1", 5), "pod-1");
        assert_eq!(cut("pod-10", 5), "pod-\u{2026}");
        assert_eq!(cut("\u{65e5}\u{672c}\u{8a9e}", 5), "\u{65e5}\u{672c}\u{2026}");
        assert_eq!(cut("\u{65e5}\u{672c}\u{8a9e}", 4), "\u{65e5}\u{2026}");
        assert_eq!((cut("abc", 1), cut("abc", 0)), ("\u{2026}".to_owned(), String::new()));
        for text in ["\u{65e5}\u{672c}\u{8a9e}", "pod", "a\u{301}bc", "\u{1f600}\u{1f600}"] {
            for room in 0..10 {
                assert_eq!(width(&fit(text, room, false)), room, "{text} in {room}");
            }
        }
        assert_eq!(fit("7", 3, true), "  7");
    }

    #[test]
    fn characters_that_move_the_cursor_or_turn_the_text_are_left_out() {
        assert_eq!(clean("a\u{1b}[2Jb\nc"), "a\u{b7}[2Jb\u{b7}c");
        assert_eq!(clean("\u{202e}gpj.exe\u{200f}"), "\u{b7}gpj.exe\u{b7}");
        assert_eq!(clean("\u{1f468}\u{200d}\u{1f469}"), "\u{1f468}\u{1f469}");
        assert_eq!(clean("\u{2764}\u{fe0f}\u{1f1e9}\u{1f1ea}"), "\u{2764}DE");
        assert_eq!(clean("\u{645}\u{631}\u{62d}\u{628}\u{627}"), "\u{645}\u{631}\u{62d}\u{628}\u{627}");
    }

    #[test]
    fn lines_are_broken_at_blanks_or_else_anywhere() {
        assert_eq!(wrap("the disk is full", 8), ["the disk", "is full"]);
        assert_eq!(wrap("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("\u{65e5}\u{672c}\u{8a9e}", 4), ["\u{65e5}\u{672c}", "\u{8a9e}"]);
    }

    #[test]
    fn a_bar_shows_something_as_something_and_all_as_all() {
        assert_eq!(bar(0, 4), "----");
        assert_eq!((bar(1, 4), bar(500, 4), bar(999, 4)), ("#---".into(), "##--".into(), "###-".into()));
        assert_eq!((bar(1000, 4), bar(5000, 4), bar(7, 0)), ("####".into(), "####".into(), String::new()));
    }
}
