//! Durations as people write them.

use std::{fmt, time::Duration};

/// A duration as people write it: `1m 30s`.
#[derive(Clone, Copy)]
pub(super) struct Shown(pub(super) Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), u64::from(self.0.subsec_nanos()));
        let parts = [
            (seconds / 86_400, "d"),
            (seconds / 3600 % 24, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
            (nanos / 1_000_000, "ms"),
            (nanos / 1000 % 1000, "us"),
            (nanos % 1000, "ns"),
        ];
        let mut gap = "";
        for (number, unit) in parts.into_iter().filter(|(number, _)| *number > 0) {
            write!(f, "{gap}{number}{unit}")?;
            gap = " ";
        }
        if gap.is_empty() { f.write_str("0s") } else { Ok(()) }
    }
}
