//! What the owner of a schedule reads before it runs anything.

use super::Driver;
use crate::{
    Event,
    core::tick::Ticks,
    elect::Work,
    model::{RunRecord, ScheduleRecord},
    store::{Cursor, Define, Refusal, ScheduleSeen},
};

/// How many entries of the ledger its new owner reads at once.
const READ: usize = 20;
/// And then, if these do not suffice.
const READ_ON: usize = 1000;

/// Why nothing can be run yet.
pub(super) enum NotLoaded {
    /// The lease is told to end.
    Over,
    /// Another instance has the schedule under a later term.
    Superseded,
    /// The record cannot be used.
    Refused(Refusal),
}

impl Driver {
    /// What the store knows of the schedule: its record, and the last entries of its ledger.
    pub(super) async fn load(&self) -> Result<(ScheduleRecord, Vec<RunRecord>), NotLoaded> {
        let host = self.host.upgrade().ok_or(NotLoaded::Over)?;
        // Whoever takes over ten thousand schedules asks for some at a time.
        let _turn = tokio::select! {
            biased;
            () = self.lease.cancelled() => return Err(NotLoaded::Over),
            turn = host.loading.acquire() => turn.map_err(|_| NotLoaded::Over)?,
        };
        let (record, is_new) = self.defined().await?;
        let (store, id) = (&self.engine.store, &self.plan.id);
        let mut runs: Vec<RunRecord> = Vec::new();
        if is_new {
            let since = record.definition.as_ref().map(|definition| definition.since);
            if since.is_some_and(|since| self.plan.calendar.next(since, since).is_none()) {
                tracing::warn!(schedule = id.name.as_str(), namespace = %id.namespace, timing = %self.plan.timing, "the schedule has no tick: it was past when it was stored");
            }
            return Ok((record, runs));
        }
        let mut after: Option<Cursor> = None;
        let now = self.now().await.ok_or(NotLoaded::Over)?;
        loop {
            // More of them only after a clock that was ahead.
            let many = if runs.is_empty() { READ } else { READ_ON };
            let page = self
                .ask(Work::Schedules, |limit| store.history(id.clone(), after.clone(), many, limit))
                .await;
            let page = page.ok_or(NotLoaded::Over)?;
            for (entry, refusal) in &page.page.refused {
                tracing::error!(schedule = id.name.as_str(), namespace = %id.namespace, entry, %refusal, "an entry of the ledger cannot be used");
            }
            runs.extend(page.page.items);
            after = page.page.next;
            if after.is_none() || Ticks::are_enough(&runs, now) {
                let mark = record.mark.max(page.mark);
                return Ok((ScheduleRecord { mark, ..record }, runs));
            }
        }
    }

    /// The schedule's record, which says what the program says; and whether there was none before.
    pub(super) async fn defined(&self) -> Result<(ScheduleRecord, bool), NotLoaded> {
        let (store, id) = (&self.engine.store, &self.plan.id);
        let (timing, policies) = (self.plan.timing.clone(), self.plan.policies());
        let known = tokio::select! {
            biased;
            () = self.lease.cancelled() => return Err(NotLoaded::Over),
            known = self.until_answered(|| self.engine.look_at_schedule(id.clone())) => known,
        };
        let before = match known {
            ScheduleSeen::Refused(refusal) => return Err(NotLoaded::Refused(refusal)),
            ScheduleSeen::Found(record) => Some(record),
            ScheduleSeen::Absent => None,
        };
        let says = |record: &ScheduleRecord| {
            let definition = record.definition.as_ref();
            definition.is_some_and(|known| known.timing == timing && known.policies == policies)
        };
        if let Some(record) = before.as_ref().filter(|record| says(record)) {
            return Ok((record.clone(), false));
        }
        let define = Define {
            schedule: id.clone(),
            term: self.lease.term(),
            timing: timing.clone(),
            policies: policies.clone(),
        };
        let seen = self
            .ask(Work::Defining, |limit| store.define(define.clone(), limit))
            .await
            .ok_or(NotLoaded::Over)?;
        let record = match seen {
            ScheduleSeen::Found(record) if says(&record) => record,
            ScheduleSeen::Refused(refusal) => return Err(NotLoaded::Refused(refusal)),
            ScheduleSeen::Found(_) | ScheduleSeen::Absent => return Err(NotLoaded::Superseded),
        };
        let is_new = before.is_none();
        if before.and_then(|record| record.definition).is_some_and(|before| before.timing != timing) {
            tracing::info!(schedule = id.name.as_str(), namespace = %id.namespace, %timing, "the schedule has another timing from now on");
            self.engine.events.tell(Event::Retimed { lock: self.lease.lock().clone(), timing });
        }
        Ok((record, is_new))
    }

    /// Nothing can be run. If the lease does not end, the driver does: its spread begins it again after a
    /// rest.
    pub(super) async fn wait_for_the_end(&self, why: NotLoaded) {
        match why {
            NotLoaded::Over => {}
            NotLoaded::Superseded => {
                self.is_superseded(None);
                self.rest_in_vain().await;
            }
            NotLoaded::Refused(refusal) => {
                tracing::error!(schedule = self.plan.id.name.as_str(), namespace = %self.plan.id.namespace, %refusal, "the schedule cannot be run, its record has to be looked at");
                self.rest_in_vain().await;
            }
        }
    }
}
