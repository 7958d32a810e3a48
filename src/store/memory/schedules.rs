//! Schedules and their ledgers.

use std::time::Duration;

use super::{MemoryStore, last_first, page};
use crate::{
    model::{
        Definition, Finish, Namespace, Outcome, Pause, PauseBefore, RunRecord, ScheduleId, ScheduleRecord,
    },
    store::{
        Claim, ClaimAnswer, Cursor, Define, FinishRun, Hint, Instruction, MAX_ORDERS, MAX_PAUSES_BEFORE,
        Page, Refusal, RunPage, ScheduleSeen,
    },
};

impl MemoryStore {
    /// Changes a schedule's record, which there is from then on; says so if that is a change.
    fn change_schedule(
        &self,
        schedule: &ScheduleId,
        change: impl FnOnce(&mut ScheduleRecord) -> Result<(), Refusal>,
    ) -> ScheduleSeen {
        let mut records = self.records();
        let known = records.schedules.get(schedule).cloned();
        let mut record = known.clone().unwrap_or_else(|| ScheduleRecord::new(schedule.clone()));
        if let Err(refusal) = change(&mut record) {
            return ScheduleSeen::Refused(refusal);
        }
        records.schedules.insert(schedule.clone(), record.clone());
        drop(records);
        if known.as_ref() != Some(&record) {
            self.hint(Hint::Schedule { schedule: schedule.clone() });
        }
        ScheduleSeen::Found(record)
    }

    pub(super) fn define_now(&self, define: Define) -> ScheduleSeen {
        let now = self.clock.wall();
        let Define { schedule, term, timing, policies, instead_of } = define;
        self.change_schedule(&schedule, |record| {
            let known = record.definition.as_ref();
            let is_later = known.is_some_and(|known| known.term > term);
            let is_known = known.is_some_and(|known| known.timing == timing && known.policies == policies);
            if !is_later && !is_known {
                let same = known
                    .filter(|known| known.timing == timing || Some(&known.timing) == instead_of.as_ref());
                let since = same.map_or(now, |known| known.since);
                record.definition = Some(Definition { timing, policies, since, term });
            }
            Ok(())
        })
    }

    pub(super) fn instruct_now(&self, schedule: &ScheduleId, instruction: Instruction) -> ScheduleSeen {
        let now = self.clock.wall();
        self.change_schedule(schedule, |record| {
            match instruction {
                Instruction::Pause { by, why } => {
                    if !record.pause.as_ref().is_some_and(Pause::is_on) {
                        let before =
                            record.pause.as_ref().and_then(|pause| Some((pause.since, pause.until?)));
                        let before = before.map(|(since, until)| PauseBefore { since, until });
                        record.pauses_before.extend(before);
                        let many = record.pauses_before.len().saturating_sub(MAX_PAUSES_BEFORE);
                        record.pauses_before.drain(..many);
                        record.pause = Some(Pause { since: now, until: None, by, why });
                    }
                }
                Instruction::Resume => {
                    if let Some(pause) = record.pause.as_mut().filter(|pause| pause.is_on()) {
                        pause.until = Some(now);
                    }
                }
                Instruction::Run(order) => {
                    let place = record.orders.binary_search_by_key(&order.at, |order| order.at);
                    if let Err(place) = place {
                        if record.orders.len() == MAX_ORDERS {
                            return Err(Refusal::Full { what: "orders", most: MAX_ORDERS });
                        }
                        record.orders.insert(place, order);
                    }
                }
                Instruction::Ran { at } => record.orders.retain(|order| order.at != at),
            }
            Ok(())
        })
    }

    pub(super) fn schedules_now(&self, schedules: &[ScheduleId]) -> Vec<ScheduleSeen> {
        let records = self.records();
        let seen = |schedule| {
            records.schedules.get(schedule).cloned().map_or(ScheduleSeen::Absent, ScheduleSeen::Found)
        };
        schedules.iter().map(seen).collect()
    }

    pub(super) fn list_schedules_now(
        &self,
        namespace: &Namespace,
        after: Option<&Cursor>,
        at_most: usize,
    ) -> Page<ScheduleRecord> {
        let records = self.records();
        let all = records.schedules.values().filter(|record| record.id.namespace == *namespace);
        page(all.map(|record| (record.id.name.as_str().as_bytes().to_vec(), record.clone())), after, at_most)
    }

    pub(super) fn delete_schedule_now(&self, schedule: &ScheduleId) -> bool {
        let mut records = self.records();
        records.schedules.remove(schedule);
        for run in records.runs_of(schedule) {
            records.runs.remove(&run.id);
        }
        true
    }

    pub(super) fn claim_now(&self, claim: Claim) -> ClaimAnswer {
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

    pub(super) fn finish_now(&self, finish: FinishRun) -> ClaimAnswer {
        let at = self.clock.wall();
        let mut records = self.records();
        let FinishRun { run, session, term, attempt, outcome, error, last } = finish;
        let Some(record) = records.runs.get_mut(&run) else { return ClaimAnswer::Absent };
        if record.is_claimed_by(session, term, attempt) && record.finish.is_none() {
            record.finish = Some(Finish { at, outcome, error, last });
        }
        ClaimAnswer::of(record.clone(), session, term, attempt)
    }

    pub(super) fn history_now(
        &self,
        schedule: &ScheduleId,
        after: Option<&Cursor>,
        at_most: usize,
    ) -> RunPage {
        let records = self.records();
        let runs = records.runs_of(schedule).into_iter().rev().map(|run| (last_first(&run.id), run));
        RunPage { page: page(runs, after, at_most), mark: records.mark(schedule) }
    }

    pub(super) fn purge_runs_now(&self, schedule: &ScheduleId, older_than: Duration, keep: usize) -> RunPage {
        let cutoff = self.clock.wall().minus(older_than);
        let mut records = self.records();
        let mut old = records.runs_of(schedule);
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
        RunPage { page, mark: records.mark(schedule) }
    }
}
