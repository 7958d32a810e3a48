//! The instants of a pattern in a zone.
//!
//! ```text
//!   a gap:   civil  01:00 ────── 02:00 | 03:00 ──────       02:30 is skipped: the rule decides
//!   a fold:  civil  01:00 ────── 02:00 | 01:00 ──────       01:30 comes twice
//! ```

use super::{
    Dst, LAST,
    pattern::Pattern,
    zone::{NEAR, Place, Transition, Zone},
};

pub(super) struct Search<'a> {
    pub(super) pattern: &'a Pattern,
    pub(super) zone: &'a Zone,
    pub(super) dst: Dst,
}

impl Search<'_> {
    /// The first instant at or after `from`.
    pub(super) fn next(&self, from: i64) -> Option<i64> {
        // Instants of skipped times: a shifted one may come long after its gap.
        let mut skipped = None;
        if self.decides_gaps() {
            for change in self.zone.changes_near(from) {
                skipped = earlier(skipped, self.of_gap(&change, from));
            }
        }
        let mut at = from;
        loop {
            let offset = self.zone.offset(at);
            let change = self.zone.change_after(at, offset);
            let end = change.map_or(i64::MAX, |change| change.at);
            let ahead = match self.within(at, end, offset) {
                Ok(found) => return earlier(skipped, Some(found)),
                Err(ahead) => ahead,
            };
            let change = change.filter(|change| skipped.is_none_or(|skipped| skipped >= change.at));
            let Some(change) = change else { return skipped };
            // A stretch that is long enough is followed by civil times it did not show: no match before
            // the one ahead, and if there is none, none at all.
            if change.at - at >= NEAR {
                let near = ahead? - NEAR;
                if near > change.at {
                    at = near;
                    continue;
                }
            }
            at = change.at;
            if at > LAST {
                return skipped;
            }
            if self.decides_gaps() {
                skipped = earlier(skipped, self.of_gap(&change, from));
            }
        }
    }

    fn decides_gaps(&self) -> bool {
        !self.pattern.wildcard && self.dst != Dst::Skip
    }

    /// The first match from `at` to before `end`, where the offset is the same; or else the civil time of the
    /// first one ahead.
    fn within(&self, at: i64, end: i64, offset: i64) -> Result<i64, Option<i64>> {
        let mut civil = at + offset;
        loop {
            let found = self.pattern.first(civil).ok_or(None)?;
            let instant = found - offset;
            if instant >= end {
                return Err(Some(found));
            }
            let again = if self.pattern.wildcard { None } else { self.zone.shown_before(found, instant) };
            let Some(until) = again else { return Ok(instant) };
            civil = until;
        }
    }

    /// The first instant at or after `from` that a change owes to what it skipped.
    fn of_gap(&self, change: &Transition, from: i64) -> Option<i64> {
        let begin = match self.dst {
            Dst::Vixie if change.at < from => return None,
            Dst::Vixie => change.at,
            Dst::Shift => change.at.max(from),
            Dst::Skip => return None,
        };
        let mut civil = begin + change.from;
        loop {
            civil = self
                .pattern
                .first(civil)
                .filter(|civil| change.is_gap() && *civil < change.at + change.to)?;
            match self.zone.place(civil) {
                // Two changes close together: another one shows it.
                Place::Shown { until, .. } => civil = until,
                // Or another one skipped it before.
                Place::Skipped { by } if by != change.at => civil += 1,
                Place::Skipped { by } if self.dst == Dst::Vixie => return Some(by),
                Place::Skipped { .. } => return Some(civil - change.from),
            }
        }
    }
}

/// The earlier of two instants, if there is one.
pub(super) fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    [one, other].into_iter().flatten().min()
}
