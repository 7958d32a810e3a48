//! Loading of a schedule: what its driver reads, and defines, before it runs anything.

use super::Driver;
use crate::{
    Event,
    elect::Work,
    logic::{
        calendar::{Calendar, zone_rules_in},
        tick::{TickStep, Ticks},
    },
    model::{Rules, RunRecord},
    store::{Cursor, Define, Refusal, ScheduleRecord, ScheduleSeen, StoreExt},
    words,
};

/// Entries of the ledger that a new owner reads at first.
const READ: usize = 20;
/// Entries that it reads then, if these do not suffice.
const READ_ON: usize = 1000;

/// Reason why nothing can be run.
pub(super) enum NotLoaded {
    /// The lease is cancelled.
    Over,
    /// Another instance has the schedule under a later term.
    Superseded,
    /// The record cannot be used.
    Refused(Refusal),
}

impl Driver {
    /// Reads the schedule's record, and the last entries of its ledger.
    pub(super) async fn load(&self) -> Result<(ScheduleRecord, Vec<RunRecord>), NotLoaded> {
        let runner = self.runner.upgrade().ok_or(NotLoaded::Over)?;
        // An instance that takes over ten thousand schedules asks for some at a time.
        let _turn = tokio::select! {
            biased;
            () = self.lease.cancelled() => return Err(NotLoaded::Over),
            turn = runner.loading.acquire() => turn.map_err(|_| NotLoaded::Over)?,
        };
        let Some(known) = self.read_record().await? else {
            return Ok((self.define(None, None).await?, Vec::new()));
        };
        let (known, runs) = self.read_ledger(known).await?;
        if self.is_current(&known) {
            return Ok((known, runs));
        }
        Ok((self.redefine(known, &runs).await?, runs))
    }

    /// Reads the record, if there is one.
    async fn read_record(&self) -> Result<Option<ScheduleRecord>, NotLoaded> {
        let known = tokio::select! {
            biased;
            () = self.lease.cancelled() => return Err(NotLoaded::Over),
            known = self.until_ok(|| self.engine.look_at_schedule(self.spec.id.clone())) => known,
        };
        match known {
            ScheduleSeen::Refused(refusal) => Err(NotLoaded::Refused(refusal)),
            ScheduleSeen::Found(record) => Ok(Some(record)),
            ScheduleSeen::Absent => Ok(None),
        }
    }

    /// Reads the last entries of the ledger, and takes over its mark into the record.
    async fn read_ledger(
        &self,
        record: ScheduleRecord,
    ) -> Result<(ScheduleRecord, Vec<RunRecord>), NotLoaded> {
        let (store, id) = (self.engine.store(), &self.spec.id);
        let mut runs: Vec<RunRecord> = Vec::new();
        let mut after: Option<Cursor> = None;
        let now = self.now().await.ok_or(NotLoaded::Over)?;
        let since = record.definition.as_ref().map_or(now, |definition| definition.since);
        let only = self.spec.calendar.only(since);
        loop {
            // More of them only after a clock that was ahead, or another timing.
            let many = if runs.is_empty() { READ } else { READ_ON };
            let page = self
                .retry_or_cancelled(Work::Schedules, |limit| {
                    store.history(id.clone(), after.clone(), many, limit)
                })
                .await;
            let page = page.ok_or(NotLoaded::Over)?;
            for (entry, refusal) in &page.refused {
                words::error!(schedule = id.name.as_str(), namespace = %id.namespace, entry, %refusal, "cannot use an entry of the ledger, ignoring it");
            }
            runs.extend(page.items);
            after = page.next;
            if after.is_none() || Ticks::are_enough(&runs, only, now) {
                let mark = record.mark.max(page.mark);
                return Ok((ScheduleRecord { mark, ..record }, runs));
            }
        }
    }

    /// Returns whether the record says what the program says.
    fn is_current(&self, record: &ScheduleRecord) -> bool {
        let (timing, policies) = (&self.spec.timing, &self.spec.policies());
        let definition = record.definition.as_ref();
        definition.is_some_and(|known| known.timing == *timing && known.policies == *policies)
    }

    /// Defines the schedule as the program says. Ticks that were due by the old timing, and not dealt with, are
    /// recorded first, so that they are not lost with this instance; where both timings have the same instants,
    /// nothing changes.
    async fn redefine(&self, known: ScheduleRecord, runs: &[RunRecord]) -> Result<ScheduleRecord, NotLoaded> {
        if known.definition.as_ref().is_some_and(|known| known.term > self.lease.term()) {
            return Err(NotLoaded::Superseded);
        }
        let now = self.now().await.ok_or(NotLoaded::Over)?;
        let other = known.definition.as_ref().filter(|definition| definition.timing != self.spec.timing);
        let before = other.and_then(|other| {
            let calendar = Calendar::read(other.timing.as_str(), &self.spec.id.name).ok()?;
            Some((Ticks::load(calendar, self.spec.policies, &known, runs, now), other.timing.clone()))
        });
        let Some((mut ticks, timing)) = before else { return self.define(Some(&known), None).await };
        if ticks.agree_with(&self.spec.calendar, now) {
            let record = self.define(Some(&known), Some(timing)).await?;
            // Meanwhile they may have ceased to agree.
            let now = self.now().await.ok_or(NotLoaded::Over)?;
            if !ticks.agree_with(&self.spec.calendar, now) {
                self.leave_behind(ticks.left_until(now)).await;
            }
            return Ok(record);
        }
        self.leave_behind(ticks.left_until(now)).await;
        let record = self.define(Some(&known), None).await?;
        // And ticks that fell due since.
        let now = self.now().await.ok_or(NotLoaded::Over)?;
        self.leave_behind(ticks.left_behind(&record, now)).await;
        Ok(record)
    }

    /// Records ticks of the old timing as not run.
    async fn leave_behind(&self, step: Option<TickStep>) {
        if let Some(TickStep::Skip { from, to, count, why }) = step {
            self.write_skip(from, to, count, why).await;
        }
    }

    /// Restores the record, after it was overwritten, to what the program says.
    pub(super) async fn restore(&self) -> Result<ScheduleRecord, NotLoaded> {
        match self.read_record().await? {
            Some(known) if self.is_current(&known) => Ok(known),
            known => self.define(known.as_ref(), None).await,
        }
    }

    async fn define(
        &self,
        before: Option<&ScheduleRecord>,
        instead_of: Option<Rules>,
    ) -> Result<ScheduleRecord, NotLoaded> {
        let (store, id) = (self.engine.store(), &self.spec.id);
        let (timing, policies) = (self.spec.timing.clone(), self.spec.policies());
        let term = self.lease.term();
        let define = Define {
            schedule: id.clone(),
            term,
            timing: timing.clone(),
            policies: policies.clone(),
            instead_of,
        };
        let seen = self
            .retry_or_cancelled(Work::Defining, |limit| store.define(define.clone(), limit))
            .await
            .ok_or(NotLoaded::Over)?;
        let record = match seen {
            ScheduleSeen::Found(record) if self.is_current(&record) => record,
            ScheduleSeen::Refused(refusal) => return Err(NotLoaded::Refused(refusal)),
            ScheduleSeen::Found(_) | ScheduleSeen::Absent => return Err(NotLoaded::Superseded),
        };
        let before = before.and_then(|record| record.definition.as_ref());
        if let Some(known) = before.filter(|known| known.timing == timing) {
            let (theirs, ours) = (zone_rules_in(known.policies.as_str()), zone_rules_in(policies.as_str()));
            if theirs.is_some() && theirs != ours {
                words::warn!(schedule = id.name.as_str(), namespace = %id.namespace, %timing, theirs, ours, "instances have different time-zone databases: ticks of the schedule may differ");
            }
        }
        if before.is_some_and(|before| before.timing != timing) {
            words::info!(schedule = id.name.as_str(), namespace = %id.namespace, %timing, "the schedule's timing changed");
            self.engine.events.send(Event::Retimed { lock: self.lease.lock().clone(), timing });
        }
        Ok(record)
    }

    /// Reports why nothing can be run. If the lease does not end, the driver does: its spread begins it again after
    /// a rest.
    pub(super) async fn report_not_loaded(&self, why: NotLoaded) {
        match why {
            NotLoaded::Over => {}
            NotLoaded::Superseded => {
                self.warn_superseded(None);
                self.rest_before_reload().await;
            }
            NotLoaded::Refused(refusal) => {
                words::error!(schedule = self.spec.id.name.as_str(), namespace = %self.spec.id.namespace, %refusal, "cannot run the schedule, inspect its record");
                self.rest_before_reload().await;
            }
        }
    }
}
