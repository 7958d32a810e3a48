//! The ledger of a schedule: claims, how attempts end, the history, and what goes of it.

use std::time::Duration;

use super::{State, page};
use crate::{
    model::{Finish, Outcome, RunId, RunRecord, ScheduleId, ScheduleRecord},
    store::{Claim, ClaimAnswer, Cursor, FinishRun, Page, RunPage},
};

impl State {
    pub(super) fn claim(&self, claim: Claim) -> ClaimAnswer {
        let started = self.clock.wall();
        let mut records = self.records();
        let Claim { run, session, holder, term, attempt, instead_of, skipped } = claim;
        let known = records.runs.get(&run);
        let free = match (known, instead_of) {
            (None, _) => true,
            (Some(known), Some((term, attempt))) => {
                known.term == term && known.attempt == attempt && !known.has_succeeded()
            }
            (Some(_), None) => false,
        };
        let ours = known.is_some_and(|known| known.is_claimed_by(session, term, attempt));
        if free && !ours {
            let finish = skipped.is_some().then_some(Finish {
                at: started,
                outcome: Outcome::Skipped,
                error: None,
                last: true,
            });
            let record =
                RunRecord { id: run.clone(), session, holder, term, attempt, started, finish, skipped };
            records.runs.insert(run.clone(), record);
        }
        ClaimAnswer::of(records.runs[&run].clone(), session, term, attempt)
    }

    pub(super) fn finish(&self, finish: FinishRun) -> ClaimAnswer {
        let at = self.clock.wall();
        let mut records = self.records();
        let FinishRun { run, session, term, attempt, outcome, error, last } = finish;
        let Some(record) = records.runs.get_mut(&run) else { return ClaimAnswer::Absent };
        if record.is_claimed_by(session, term, attempt) && record.finish.is_none() {
            record.finish = Some(Finish { at, outcome, error, last });
        }
        ClaimAnswer::of(record.clone(), session, term, attempt)
    }

    pub(super) fn history(&self, schedule: ScheduleId, after: Option<Cursor>, at_most: usize) -> RunPage {
        let records = self.records();
        let runs = records.runs_of(&schedule).into_iter().rev().map(|run| (last_first(&run.id), run));
        RunPage { page: page(runs, after.as_ref(), at_most), mark: records.mark(&schedule) }
    }

    pub(super) fn purge_runs(&self, schedule: ScheduleId, older_than: Duration, keep: usize) -> RunPage {
        let cutoff = self.clock.wall().minus(older_than);
        let mut records = self.records();
        let mut old = records.runs_of(&schedule);
        old.truncate(old.len().saturating_sub(keep));
        old.retain(|run| run.started < cutoff);
        if let Some(last) = old.last() {
            let record = records.schedules.entry(schedule.clone());
            let record = record.or_insert_with(|| ScheduleRecord::new(schedule.clone()));
            record.mark = record.mark.max(Some(last.id.instant));
        }
        for run in &old {
            records.runs.remove(&run.id);
        }
        let page = Page { items: old, refused: Vec::new(), next: None };
        RunPage { page, mark: records.mark(&schedule) }
    }
}

/// Returns the place of an entry in its history: latest instant first, also before 1970.
fn last_first(id: &RunId) -> Vec<u8> {
    let ascending = id.instant.as_millis().cast_unsigned() ^ (1 << 63);
    let mut place = (!ascending).to_be_bytes().to_vec();
    place.push(!(id.entry as u8));
    place
}
