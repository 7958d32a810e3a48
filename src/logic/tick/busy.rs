//! Spans of time in which runs were on.

use crate::model::StoreTime;

/// Stretches of time in which a run was on, earliest first: what fell due in one is not run. What was due before
/// it, or between two, is late.
#[derive(Clone, Debug, Default)]
pub(super) struct RunSpans(Vec<(StoreTime, StoreTime)>);

impl RunSpans {
    pub(super) fn add(&mut self, begun: StoreTime, ended: StoreTime) {
        self.0.push((begun, ended));
    }

    /// Forgets the spans up to there: they are not asked about any more.
    pub(super) fn forget(&mut self, dealt_with: StoreTime) {
        self.0.retain(|(_, ended)| *ended > dealt_with);
    }

    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The end of the one in which that fell due. What was due at the very beginning was late already.
    pub(super) fn end_of(&self, instant: StoreTime) -> Option<StoreTime> {
        let covers = |(begun, ended): &&(StoreTime, StoreTime)| *begun < instant && instant <= *ended;
        self.0.iter().find(covers).map(|(_, ended)| *ended)
    }

    /// The beginning of the next one.
    pub(super) fn next_from(&self, instant: StoreTime) -> Option<StoreTime> {
        self.0.iter().map(|(begun, _)| *begun).find(|begun| *begun >= instant)
    }
}
