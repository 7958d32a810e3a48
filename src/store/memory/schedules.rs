//! Schedules: what they go by, and what is wanted of them.

use super::{State, page};
use crate::{
    model::{Definition, Namespace, Pause, PauseBefore, ScheduleId, ScheduleRecord},
    store::{Bell, Cursor, Define, Instruction, MAX_ORDERS, MAX_PAUSES_BEFORE, Page, Refusal, ScheduleSeen},
};

impl State {
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
            self.ring([Bell::schedule(schedule)]);
        }
        ScheduleSeen::Found(record)
    }

    pub(super) fn define(&self, define: Define) -> ScheduleSeen {
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

    pub(super) fn instruct(&self, schedule: ScheduleId, instruction: Instruction) -> ScheduleSeen {
        let now = self.clock.wall();
        self.change_schedule(&schedule, |record| {
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

    pub(super) fn schedules(&self, schedules: Vec<ScheduleId>) -> Vec<ScheduleSeen> {
        let records = self.records();
        let seen = |schedule| {
            records.schedules.get(schedule).cloned().map_or(ScheduleSeen::Absent, ScheduleSeen::Found)
        };
        schedules.iter().map(seen).collect()
    }

    pub(super) fn list_schedules(
        &self,
        namespace: Namespace,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Page<ScheduleRecord> {
        let records = self.records();
        let all = records.schedules.values().filter(|record| record.id.namespace == namespace);
        page(
            all.map(|record| (record.id.name.as_str().as_bytes().to_vec(), record.clone())),
            after.as_ref(),
            at_most,
        )
    }

    pub(super) fn delete_schedule(&self, schedule: ScheduleId) -> bool {
        let mut records = self.records();
        records.schedules.remove(&schedule);
        for run in records.runs_of(&schedule) {
            records.runs.remove(&run.id);
        }
        true
    }
}
