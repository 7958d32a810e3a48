//! The instants of a pattern in a zone.
//!
//! ```text
//!   a gap:   civil  01:00 ────── 02:00 | 03:00 ──────       02:30 is skipped: run once, when the gap ends
//!   a fold:  civil  01:00 ────── 02:00 | 01:00 ──────       01:30 comes twice: run at its first
//! ```

use super::{
    pattern::Pattern,
    zone::{NEAR, Zone},
};

/// The first instant at or after `from`.
pub(super) fn next(pattern: &Pattern, zone: &Zone, from: i64) -> Option<i64> {
    if pattern.wildcard {
        return followed(pattern, zone, from);
    }
    // Times that follow each other are reached one after the other, or together where a gap ends.
    let civil = pattern.first(zone.not_reached_before(from))?;
    Some(zone.reached(civil, from))
}

/// The first instant at or after `from` at which the clocks show a time that matches.
fn followed(pattern: &Pattern, zone: &Zone, from: i64) -> Option<i64> {
    let mut at = from;
    loop {
        let offset = zone.offset(at);
        let shown = pattern.first(at + offset)? - offset;
        match zone.change_after(at, offset) {
            // A stretch that is long enough is followed by civil times that it did not show: no match before this one.
            Some(change) if change.at <= shown && change.at - at >= NEAR => at = change.at.max(shown - NEAR),
            Some(change) if change.at <= shown => at = change.at,
            _ => return Some(shown),
        }
    }
}
