//! The pattern of a cron expression. What its fields mean, and which civil times match, is croner's to say, once.

use croner::Cron;
use jiff::tz::TimeZone;

use super::zone::timestamp;

#[derive(Clone, Debug)]
pub(super) struct Pattern {
    cron: Cron,
    /// Follows the clock: its seconds, minutes or hours begin with `*`.
    pub(super) wildcard: bool,
}

impl Pattern {
    pub(super) const fn new(cron: Cron, wildcard: bool) -> Self {
        Self { cron, wildcard }
    }

    /// The first match at or after a civil time, in seconds since 1970 began there. In UTC the two are the same.
    pub(super) fn first(&self, civil: i64) -> Option<i64> {
        let found = self.cron.find_next_occurrence(&timestamp(civil).to_zoned(TimeZone::UTC), true);
        // An error says that there is none.
        Some(found.ok()?.timestamp().as_second())
    }
}
