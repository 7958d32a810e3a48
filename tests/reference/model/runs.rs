use tenure::{
    model::{Outcome, RunId, RunRecord, ScheduleId, StoreTime, Why},
    store::{Claim, ClaimAnswer, FinishRun, Page},
};

use super::{Check, Model, Once, ensure};

/// The attempt on record of a tick, or of another entry.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) claim: Claim,
    end: Option<(Outcome, Option<Why>, bool)>,
    started: Once<StoreTime>,
    ended: Once<StoreTime>,
}

impl Attempt {
    fn is(&self, session: tenure::model::SessionId, term: tenure::model::Term, attempt: u32) -> bool {
        (self.claim.session, self.claim.term, self.claim.attempt) == (session, term, attempt)
    }

    fn meet(&mut self, seen: &RunRecord) -> Check {
        let Claim { run, session, holder, term, attempt, instead_of: _, skipped } = &self.claim;
        let expected = (run, session, holder, term, attempt, skipped);
        let found = (&seen.id, &seen.session, &seen.holder, &seen.term, &seen.attempt, &seen.skipped);
        ensure!(expected == found, "the run must be {expected:?}, and is {found:?}");
        self.started.meet("the start of a run", &seen.started)?;
        let end = seen.finish.as_ref().map(|finish| (finish.outcome, finish.error.clone(), finish.last));
        ensure!(self.end == end, "the run must have ended {:?}, not {end:?}", self.end);
        match &seen.finish {
            Some(finish) => self.ended.meet("the end of a run", &finish.at),
            None => Ok(()),
        }
    }

    fn answered(&mut self, ours: bool, answer: &ClaimAnswer) -> Check {
        match answer {
            ClaimAnswer::Yours(record) if ours => self.meet(record),
            ClaimAnswer::Others(record) if !ours => self.meet(record),
            other => Err(format!("the attempt on record is {self:?} (ours: {ours}), not {other:?}")),
        }
    }
}

impl Model {
    pub(crate) fn claim(&mut self, claim: &Claim, answer: &ClaimAnswer) -> Check {
        let fresh = || Attempt {
            claim: claim.clone(),
            end: claim.skipped.as_ref().map(|_| (Outcome::Skipped, None, true)),
            started: Once::default(),
            ended: Once::default(),
        };
        let on_record = self.ticks.entry(claim.run.clone()).or_insert_with(fresh);
        let replaces = claim.instead_of == Some((on_record.claim.term, on_record.claim.attempt));
        let is_over = matches!(on_record.end, Some((Outcome::Succeeded, ..) | (_, _, true)));
        if replaces && !is_over && !on_record.is(claim.session, claim.term, claim.attempt) {
            *on_record = fresh();
        }
        *self.met.entry(format!("claim of: {}", claim.run.entry.as_str())).or_default() += 1;
        on_record.answered(on_record.is(claim.session, claim.term, claim.attempt), answer)
    }

    pub(crate) fn finish(&mut self, finish: &FinishRun, answer: &ClaimAnswer) -> Check {
        let FinishRun { run, session, term, attempt, outcome, error, last } = finish;
        let Some(on_record) = self.ticks.get_mut(run) else {
            ensure!(*answer == ClaimAnswer::Absent, "nobody claimed {run:?}, and it is {answer:?}");
            return Ok(());
        };
        let ours = on_record.is(*session, *term, *attempt);
        match &mut on_record.end {
            end @ None if ours => *end = Some((*outcome, error.clone(), *last)),
            Some((known, _, is_last)) if ours && known == outcome => *is_last |= *last,
            _ => {}
        }
        on_record.answered(ours, answer)
    }

    fn runs_of(&self, schedule: &ScheduleId) -> Vec<RunId> {
        self.ticks.keys().rev().filter(|run| run.schedule == *schedule).cloned().collect()
    }

    /// A whole history.
    pub(crate) fn history(
        &mut self,
        schedule: &ScheduleId,
        seen: &[RunRecord],
        mark: Option<StoreTime>,
    ) -> Check {
        let expected = self.runs_of(schedule);
        let found: Vec<_> = seen.iter().map(|run| &run.id).collect();
        ensure!(expected.iter().eq(found.iter().copied()), "the history has {expected:?}, not {found:?}");
        for run in seen {
            if let Some(attempt) = self.ticks.get_mut(&run.id) {
                attempt.meet(run)?;
            }
        }
        let expected = self.marks.get(schedule).copied();
        ensure!(expected == mark, "the mark must be {expected:?}, and is {mark:?}");
        Ok(())
    }

    /// The last entries of a ledger.
    pub(crate) fn last_runs(&self, schedule: &ScheduleId, at_most: usize, seen: &Page<RunRecord>) -> Check {
        let expected = self.runs_of(schedule);
        let found = seen.items.iter().map(|run| &run.id);
        ensure!(expected.iter().take(at_most).eq(found), "the history has {expected:?}, not {seen:?}");
        ensure!(seen.next.is_some() == (expected.len() > at_most), "of {expected:?} there is {seen:?}");
        Ok(())
    }

    /// The history after a purge: of those that were not to be kept, any may be gone.
    pub(crate) fn purged_runs(
        &mut self,
        schedule: &ScheduleId,
        may_purge: bool,
        keep: usize,
        seen: &[RunRecord],
        mark: Option<StoreTime>,
    ) -> Check {
        let runs = self.runs_of(schedule);
        for run in runs.iter().skip(if may_purge { keep } else { runs.len() }) {
            if !seen.iter().any(|left| left.id == *run) {
                self.ticks.remove(run);
                *self.met.entry("purge: run".to_owned()).or_default() += 1;
                let mark = self.marks.entry(schedule.clone()).or_insert(run.instant);
                *mark = (*mark).max(run.instant);
            }
        }
        self.history(schedule, seen, mark)
    }
}
