//! Schedules: what they go by, and what is wanted of them.

use super::{Rows, Step, and_one, each, page};
use crate::{
    model::{Namespace, ScheduleId},
    store::{
        Bell, Cursor, Define, Definition, Instruction, MAX_ORDERS, MAX_PAUSES_BEFORE, Page, Pause,
        PauseBefore, Refusal, ScheduleRecord, ScheduleSeen,
    },
};

impl<R: Rows> Step<'_, R> {
    /// Changes a schedule's record, which there is from then on; says so if that is a change.
    fn change_schedule(
        &mut self,
        schedule: ScheduleId,
        change: impl FnOnce(&mut ScheduleRecord) -> Result<(), Refusal>,
    ) -> Result<ScheduleSeen, R::Failure> {
        let known = match self.rows.schedule(&schedule)? {
            Err(refusal) => return Ok(ScheduleSeen::Refused(refusal)),
            Ok(known) => known,
        };
        let mut record = known.clone().unwrap_or_else(|| ScheduleRecord::new(schedule));
        if let Err(refusal) = change(&mut record) {
            return Ok(ScheduleSeen::Refused(refusal));
        }
        if known.as_ref() != Some(&record) {
            self.rows.put_schedule(&record)?;
            self.ring([Bell::schedule(&record.id)]);
        }
        Ok(ScheduleSeen::Found(record))
    }

    pub(in crate::store) fn define(&mut self, define: Define) -> Result<ScheduleSeen, R::Failure> {
        let now = self.now;
        let Define { schedule, term, timing, policies, instead_of } = define;
        self.change_schedule(schedule, |record| {
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

    pub(in crate::store) fn instruct(
        &mut self,
        schedule: ScheduleId,
        instruction: Instruction,
    ) -> Result<ScheduleSeen, R::Failure> {
        let now = self.now;
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

    pub(in crate::store) fn schedules(
        &mut self,
        schedules: Vec<ScheduleId>,
    ) -> Result<Vec<ScheduleSeen>, R::Failure> {
        each(schedules, |schedule| {
            Ok(match self.rows.schedule(&schedule)? {
                Ok(found) => found.map_or(ScheduleSeen::Absent, ScheduleSeen::Found),
                Err(refusal) => ScheduleSeen::Refused(refusal),
            })
        })
    }

    pub(in crate::store) fn list_schedules(
        &mut self,
        namespace: Namespace,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Result<Page<ScheduleRecord>, R::Failure> {
        let after = after.as_ref().map(Cursor::place);
        Ok(page(self.rows.schedules(&namespace, after, and_one(at_most))?, at_most))
    }

    pub(in crate::store) fn delete_schedule(&mut self, schedule: ScheduleId) -> Result<bool, R::Failure> {
        self.rows.delete_schedule(&schedule)?;
        self.rows.delete_runs_of(&schedule, R::AT_ONCE)
    }
}
