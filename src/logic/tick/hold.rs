//! The last time that a schedule was held back.

use super::is_believable;
use crate::{
    model::{Entry, RunRecord, StoreTime},
    store::{Pause, PauseBefore, ScheduleRecord},
};

/// A pause as the record says it, and as it is understood: what a clock that was ahead has dated is taken to
/// have been said when it was heard of.
#[derive(Clone, Debug, Default)]
pub(super) struct PauseView {
    said: Option<Pause>,
    understood: Option<Pause>,
    /// The times before that, earliest first.
    before: Vec<PauseBefore>,
}

impl PauseView {
    /// Returns what is understood of what a record says, whose last ticks were run then, and up to `cursor` all dealt
    /// with.
    pub(super) fn load(
        record: &ScheduleRecord,
        runs: &[RunRecord],
        cursor: StoreTime,
        now: StoreTime,
    ) -> Self {
        let mut hold = Self::default();
        hold.hear(record, now);
        let Some((said, pause)) = hold.said.as_ref().zip(hold.understood.as_mut()) else { return hold };
        if said.until.is_some_and(|until| !is_believable(until, now)) {
            // It was over when a tick of later was run.
            let ticks = runs.iter().filter(|run| run.id.entry == Entry::Tick).map(|run| run.id.instant);
            let later = ticks.filter(|at| is_believable(*at, now) && *at > pause.since);
            pause.until = later.max().or(pause.until);
        } else if !is_believable(said.since, now) {
            // It began after what was dealt with last.
            pause.since = cursor;
        }
        hold
    }

    /// Takes in the record: a pause, or its end.
    pub(super) fn hear(&mut self, record: &ScheduleRecord, now: StoreTime) {
        let dated = |at: StoreTime| if is_believable(at, now) { at } else { now };
        let said = self.said.as_ref().zip(self.understood.as_ref());
        self.understood = record.pause.clone().map(|pause| {
            let known = said.filter(|(said, _)| said.since == pause.since);
            let since = known.map_or_else(|| dated(pause.since), |(_, understood)| understood.since);
            let until = match known.filter(|(said, _)| said.until == pause.until) {
                Some((_, understood)) => understood.until,
                None => pause.until.map(dated),
            };
            Pause { since, until, ..pause }
        });
        self.said.clone_from(&record.pause);
        // A pause dated by a clock that was ahead was over before anything of now.
        let is_past = |pause: &&PauseBefore| is_believable(pause.until, now);
        self.before = record.pauses_before.iter().filter(is_past).copied().collect();
    }

    /// The pause before the last one that covers it.
    pub(super) fn before(&self, instant: StoreTime) -> Option<&PauseBefore> {
        self.before.iter().find(|pause| pause.covers(instant))
    }

    /// The beginning of the next of these pauses after it.
    pub(super) fn next_before(&self, instant: StoreTime) -> Option<StoreTime> {
        self.before.iter().map(|pause| pause.since).filter(|since| *since > instant).min()
    }

    pub(super) const fn pause(&self) -> Option<&Pause> {
        self.understood.as_ref()
    }

    pub(super) fn is_on(&self) -> bool {
        self.pause().is_some_and(Pause::is_on)
    }
}
