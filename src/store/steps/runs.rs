//! The ledger of a schedule: claims, how attempts end, the history, and what goes of it.

use std::time::Duration;

use super::{Rows, Step, and_one, each, page};
use crate::{
    model::{Finish, Outcome, RunRecord, ScheduleId, StoreTime},
    store::{Claim, ClaimAnswer, Cursor, FinishRun, Page, RunPage, ScheduleRecord},
};

impl<R: Rows> Step<'_, R> {
    pub(in crate::store) fn claim(&mut self, claim: Claim) -> Result<ClaimAnswer, R::Failure> {
        let Claim { run, session, holder, term, attempt, instead_of, skipped } = claim;
        let known = match self.rows.run(&run)? {
            Err(refusal) => return Ok(ClaimAnswer::Refused(refusal)),
            Ok(known) => known,
        };
        if let Some(known) = known {
            let is_named = instead_of.is_some_and(|(term, attempt)| {
                known.term == term && known.attempt == attempt && !known.is_over()
            });
            if !is_named || known.is_claimed_by(session, term, attempt) {
                return Ok(ClaimAnswer::of(known, session, term, attempt));
            }
        }
        let started = self.now;
        let finish = skipped.is_some().then_some(Finish {
            at: started,
            outcome: Outcome::Skipped,
            error: None,
            last: true,
        });
        let record = RunRecord { id: run, session, holder, term, attempt, started, finish, skipped };
        self.rows.put_run(&record)?;
        Ok(ClaimAnswer::of(record, session, term, attempt))
    }

    pub(in crate::store) fn finish(&mut self, finish: FinishRun) -> Result<ClaimAnswer, R::Failure> {
        let FinishRun { run, session, term, attempt, outcome, error, last } = finish;
        let mut record = match self.rows.run(&run)? {
            Err(refusal) => return Ok(ClaimAnswer::Refused(refusal)),
            Ok(None) => return Ok(ClaimAnswer::Absent),
            Ok(Some(record)) => record,
        };
        if record.is_claimed_by(session, term, attempt) {
            match &mut record.finish {
                end @ None => *end = Some(Finish { at: self.now, outcome, error, last }),
                Some(end) if last && !end.last && end.outcome == outcome => end.last = true,
                Some(_) => return Ok(ClaimAnswer::of(record, session, term, attempt)),
            }
            self.rows.put_run(&record)?;
        }
        Ok(ClaimAnswer::of(record, session, term, attempt))
    }

    pub(in crate::store) fn history(
        &mut self,
        schedule: ScheduleId,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Result<RunPage, R::Failure> {
        let after = after.as_ref().map(Cursor::place);
        let page = page(self.rows.runs(&schedule, after, and_one(at_most))?, at_most);
        Ok(RunPage::new(page, self.mark(&schedule)?))
    }

    pub(in crate::store) fn last_runs(
        &mut self,
        schedules: Vec<ScheduleId>,
        at_most: usize,
    ) -> Result<Vec<Page<RunRecord>>, R::Failure> {
        each(schedules, |schedule| Ok(page(self.rows.runs(&schedule, None, and_one(at_most))?, at_most)))
    }

    /// The mark of a schedule; none of a record that cannot be used.
    fn mark(&mut self, schedule: &ScheduleId) -> Result<Option<StoreTime>, R::Failure> {
        Ok(self.rows.schedule(schedule)?.ok().flatten().and_then(|record| record.mark))
    }

    pub(in crate::store) fn purge_runs(
        &mut self,
        schedule: ScheduleId,
        older_than: Duration,
        keep: usize,
    ) -> Result<RunPage, R::Failure> {
        let cutoff = self.now.minus(older_than);
        let old = self.rows.old_runs(&schedule, cutoff, keep, R::AT_ONCE)?;
        let Some(last) = old.last() else {
            return Ok(RunPage::new(Page::new(old, None), self.mark(&schedule)?));
        };
        // Without a mark nothing may go: what was claimed there could be claimed again.
        let Ok(record) = self.rows.schedule(&schedule)? else {
            return Ok(RunPage::new(Page::new(Vec::new(), None), None));
        };
        let mut record = record.unwrap_or_else(|| ScheduleRecord::new(schedule));
        record.mark = record.mark.max(Some(last.id.instant));
        self.rows.put_schedule(&record)?;
        old.iter().try_for_each(|run| self.rows.delete_run(&run.id))?;
        Ok(RunPage::new(Page::new(old, None), record.mark))
    }
}
