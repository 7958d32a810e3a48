use std::ops::RangeInclusive;

use tenure::{
    model::{Holder, ScheduleId, StoreTime, Why},
    store::{
        Define, Definition, Instruction, MAX_ORDERS, Pause, PauseBefore, Refusal, RunNow, ScheduleRecord,
        ScheduleSeen,
    },
};

use super::{Check, Model, Once, ensure};

/// Definition, pause and orders that a schedule was given.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// Every definition that counted.
    definitions: Vec<Define>,
    /// Since when it has the timing of the last.
    since: Once<StoreTime>,
    pauses: Vec<Break>,
    /// In the order they came.
    orders: Vec<RunNow>,
}

#[derive(Debug)]
struct Break {
    by: Holder,
    why: Why,
    since: Once<StoreTime>,
    /// Once it is over.
    until: Option<Once<StoreTime>>,
}

/// Between which times of the store's clock something was done.
pub(crate) type During = RangeInclusive<StoreTime>;

impl Said {
    /// Expected record, with the times as they are seen.
    fn expected(&self, id: &ScheduleId, mark: Option<StoreTime>, seen: &ScheduleRecord) -> ScheduleRecord {
        let seen_definition = seen.definition.as_ref().map_or(StoreTime::from_millis(0), |seen| seen.since);
        let seen_since = seen.pause.as_ref().map_or(StoreTime::from_millis(0), |pause| pause.since);
        let seen_until = seen.pause.as_ref().and_then(|pause| pause.until);
        let mut orders = self.orders.clone();
        orders.sort_by_key(|order| order.at);
        let mut expected = ScheduleRecord::new(id.clone());
        expected.definition = self.definitions.last().map(|last| {
            Definition::new(last.timing.clone(), last.policies.clone(), seen_definition, last.term)
        });
        expected.pause = self.pauses.last().map(|last| {
            let mut pause = Pause::new(seen_since, last.by.clone(), last.why.clone());
            pause.until = last.until.as_ref().map(|_| seen_until.unwrap_or(StoreTime::from_millis(0)));
            pause
        });
        expected.pauses_before = self.before(seen);
        expected.orders = orders;
        expected.mark = mark;
        expected
    }

    /// The last twenty of the pauses before the last one, with the times as they are seen.
    fn before(&self, seen: &ScheduleRecord) -> Vec<PauseBefore> {
        let many = self.pauses.len().saturating_sub(1);
        let known = &self.pauses[many.saturating_sub(20)..many];
        let time = |time: Option<&Once<StoreTime>>| time.and_then(Once::get).copied();
        let expected = known.iter().map(|pause| (time(Some(&pause.since)), time(pause.until.as_ref())));
        // One that nobody has looked at since it ended is as it is seen.
        let pairs = expected.zip(&seen.pauses_before);
        let all: Vec<_> = pairs
            .map(|((since, until), seen)| PauseBefore {
                since: since.unwrap_or(seen.since),
                until: until.unwrap_or(seen.until),
            })
            .collect();
        if known.len() == seen.pauses_before.len() { all } else { Vec::new() }
    }

    fn meet(&mut self, id: &ScheduleId, mark: Option<StoreTime>, seen: &ScheduleRecord) -> Check {
        let expected = self.expected(id, mark, seen);
        ensure!(expected == *seen, "the schedule must be {expected:?}, and is {seen:?}");
        if let Some(definition) = &seen.definition {
            self.since.meet("since when a timing counts", &definition.since)?;
        }
        if let (Some(pause), Some(last)) = (&seen.pause, self.pauses.last_mut()) {
            last.since.meet("the beginning of a pause", &pause.since)?;
            if let (Some(until), Some(end)) = (&pause.until, &mut last.until) {
                end.meet("the end of a pause", until)?;
            }
        }
        Ok(())
    }
}

fn within(during: &During, what: &str, time: Option<&StoreTime>) -> Check {
    let is_now = time.is_some_and(|time| during.contains(time));
    ensure!(is_now, "{what} was {during:?}, and is said to be {time:?}");
    Ok(())
}

impl Model {
    pub(crate) fn schedule_seen(&mut self, id: &ScheduleId, seen: &ScheduleSeen) -> Check {
        let mark = self.marks.get(id).copied();
        match (self.said.get_mut(id), seen) {
            (Some(said), ScheduleSeen::Found(record)) => said.meet(id, mark, record),
            (None, ScheduleSeen::Found(record)) if mark.is_some() => Said::default().meet(id, mark, record),
            (None, ScheduleSeen::Absent) if mark.is_none() => Ok(()),
            (said, seen) => Err(format!("of {id} was said {said:?} (mark {mark:?}), and it is {seen:?}")),
        }
    }

    pub(crate) fn define(&mut self, define: &Define, during: &During, answer: &ScheduleSeen) -> Check {
        let said = self.said.entry(define.schedule.clone()).or_default();
        let last = said.definitions.last();
        let is_late = last.is_some_and(|last| last.term > define.term);
        let same_timing = last.is_some_and(|last| last.timing == define.timing);
        let same = same_timing && last.is_some_and(|last| last.policies == define.policies);
        let met = match (is_late, same, same_timing) {
            (true, ..) => "late",
            (_, true, _) => "known",
            (.., true) => "policies",
            _ if last.is_some_and(|last| Some(&last.timing) == define.instead_of.as_ref()) => "instead",
            _ => "timing",
        };
        if met == "timing" {
            said.since = Once::default();
        }
        if !is_late && !same {
            said.definitions.push(define.clone());
        }
        *self.met.entry(format!("define: {met}")).or_default() += 1;
        self.schedule_seen(&define.schedule, answer)?;
        match self.said.get(&define.schedule) {
            Some(said) if met == "timing" => within(during, "a new timing", said.since.get()),
            _ => Ok(()),
        }
    }

    pub(crate) fn instruct(
        &mut self,
        schedule: &ScheduleId,
        instruction: &Instruction,
        during: &During,
        answer: &ScheduleSeen,
    ) -> Check {
        let said = self.said.entry(schedule.clone()).or_default();
        let is_on = said.pauses.last().is_some_and(|last| last.until.is_none());
        let orders = said.orders.len();
        let is_known = |at| said.orders.iter().any(|order| order.at == at);
        let met = match instruction {
            Instruction::Pause { .. } if is_on => "paused again",
            Instruction::Pause { by, why } => {
                let (by, why) = (by.clone(), why.clone());
                said.pauses.push(Break { by, why, since: Once::default(), until: None });
                "paused"
            }
            Instruction::Resume => match said.pauses.last_mut().filter(|_| is_on) {
                Some(last) => {
                    last.until = Some(Once::default());
                    "resumed"
                }
                None => "resumed again",
            },
            Instruction::Run(order) if is_known(order.at) => "ordered again",
            Instruction::Run(_) if orders == MAX_ORDERS => {
                let full = ScheduleSeen::Refused(Refusal::Full { what: "orders", most: MAX_ORDERS });
                ensure!(*answer == full, "there is no room, and it is {answer:?}");
                return Ok(());
            }
            Instruction::Run(order) => {
                said.orders.push(order.clone());
                "ordered"
            }
            Instruction::Ran { at } => {
                said.orders.retain(|order| order.at != *at);
                if said.orders.len() < orders { "ran" } else { "ran again" }
            }
            other => return Err(format!("the model knows nothing of {other:?}")),
        };
        *self.met.entry(format!("instruct: {met}")).or_default() += 1;
        self.schedule_seen(schedule, answer)?;
        let last = self.said.get(schedule).and_then(|said| said.pauses.last());
        match met {
            "paused" => within(during, "a pause", last.and_then(|last| last.since.get())),
            "resumed" => {
                within(during, "the end of a pause", last.and_then(|last| last.until.as_ref()?.get()))
            }
            _ => Ok(()),
        }
    }
}
