//! What the owner of a schedule reads before it runs anything.

use super::Driver;
use crate::{
    Event,
    elect::Work,
    logic::{
        calendar::{Calendar, zone_rules_in},
        tick::{TickStep, Ticks},
    },
    model::{Rules, RunRecord, ScheduleRecord},
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
        let runner = self.runner.upgrade().ok_or(NotLoaded::Over)?;
        // Whoever takes over ten thousand schedules asks for some at a time.
        let _turn = tokio::select! {
            biased;
            () = self.lease.cancelled() => return Err(NotLoaded::Over),
            turn = runner.loading.acquire() => turn.map_err(|_| NotLoaded::Over)?,
        };
        let Some(known) = self.known().await? else { return Ok((self.begun_with().await?, Vec::new())) };
        let (known, runs) = self.with_the_ledger(known).await?;
        if self.says(&known) {
            return Ok((known, runs));
        }
        Ok((self.redefined(known, &runs).await?, runs))
    }

    /// The record that the store has, if it has one.
    async fn known(&self) -> Result<Option<ScheduleRecord>, NotLoaded> {
        let known = tokio::select! {
            biased;
            () = self.lease.cancelled() => return Err(NotLoaded::Over),
            known = self.until_answered(|| self.engine.look_at_schedule(self.plan.id.clone())) => known,
        };
        match known {
            ScheduleSeen::Refused(refusal) => Err(NotLoaded::Refused(refusal)),
            ScheduleSeen::Found(record) => Ok(Some(record)),
            ScheduleSeen::Absent => Ok(None),
        }
    }

    /// One that nobody has said anything of.
    async fn begun_with(&self) -> Result<ScheduleRecord, NotLoaded> {
        let (record, id) = (self.define(None, None).await?, &self.plan.id);
        let since = record.definition.as_ref().map(|definition| definition.since);
        if since.is_some_and(|since| self.plan.calendar.next(since, since).is_none()) {
            tracing::warn!(schedule = id.name.as_str(), namespace = %id.namespace, timing = %self.plan.timing, "the schedule has no tick: it was past when it was stored");
        }
        Ok(record)
    }

    /// The record with the mark of the ledger, and the last entries of that.
    async fn with_the_ledger(
        &self,
        record: ScheduleRecord,
    ) -> Result<(ScheduleRecord, Vec<RunRecord>), NotLoaded> {
        let (store, id) = (&self.engine.store, &self.plan.id);
        let mut runs: Vec<RunRecord> = Vec::new();
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

    fn says(&self, record: &ScheduleRecord) -> bool {
        let (timing, policies) = (&self.plan.timing, &self.plan.policies());
        let definition = record.definition.as_ref();
        definition.is_some_and(|known| known.timing == *timing && known.policies == *policies)
    }

    /// The schedule goes by what the program says from now on. What was due by another timing and not dealt with
    /// is told first, so that it is not lost with whoever does this; where both have the same instants, nothing
    /// changes.
    async fn redefined(
        &self,
        known: ScheduleRecord,
        runs: &[RunRecord],
    ) -> Result<ScheduleRecord, NotLoaded> {
        if known.definition.as_ref().is_some_and(|known| known.term > self.lease.term()) {
            return Err(NotLoaded::Superseded);
        }
        let now = self.now().await.ok_or(NotLoaded::Over)?;
        let other = known.definition.as_ref().filter(|definition| definition.timing != self.plan.timing);
        let before = other.and_then(|other| {
            let calendar = Calendar::read(other.timing.as_str(), &self.plan.id.name).ok()?;
            Some((Ticks::load(calendar, self.plan.policies, &known, runs, now), other.timing.clone()))
        });
        let Some((mut ticks, timing)) = before else { return self.define(Some(&known), None).await };
        if ticks.agree_with(&self.plan.calendar, now) {
            let record = self.define(Some(&known), Some(timing)).await?;
            // As long as that took they may not have agreed.
            let now = self.now().await.ok_or(NotLoaded::Over)?;
            if !ticks.agree_with(&self.plan.calendar, now) {
                self.leave_behind(ticks.left_until(now)).await;
            }
            return Ok(record);
        }
        self.leave_behind(ticks.left_until(now)).await;
        let record = self.define(Some(&known), None).await?;
        // And what fell due since.
        let now = self.now().await.ok_or(NotLoaded::Over)?;
        self.leave_behind(ticks.left_behind(&record, now)).await;
        Ok(record)
    }

    async fn leave_behind(&self, step: Option<TickStep>) {
        if let Some(TickStep::Skip { from, to, count, why }) = step {
            self.write_skip(from, to, count, why).await;
        }
    }

    /// The schedule's record, which says what the program says, whatever it was overwritten with.
    pub(super) async fn defined(&self) -> Result<ScheduleRecord, NotLoaded> {
        match self.known().await? {
            Some(known) if self.says(&known) => Ok(known),
            known => self.define(known.as_ref(), None).await,
        }
    }

    async fn define(
        &self,
        before: Option<&ScheduleRecord>,
        instead_of: Option<Rules>,
    ) -> Result<ScheduleRecord, NotLoaded> {
        let (store, id) = (&self.engine.store, &self.plan.id);
        let (timing, policies) = (self.plan.timing.clone(), self.plan.policies());
        let term = self.lease.term();
        let define = Define {
            schedule: id.clone(),
            term,
            timing: timing.clone(),
            policies: policies.clone(),
            instead_of,
        };
        let seen = self
            .ask(Work::Defining, |limit| store.define(define.clone(), limit))
            .await
            .ok_or(NotLoaded::Over)?;
        let record = match seen {
            ScheduleSeen::Found(record) if self.says(&record) => record,
            ScheduleSeen::Refused(refusal) => return Err(NotLoaded::Refused(refusal)),
            ScheduleSeen::Found(_) | ScheduleSeen::Absent => return Err(NotLoaded::Superseded),
        };
        let before = before.and_then(|record| record.definition.as_ref());
        if let Some(known) = before.filter(|known| known.timing == timing) {
            let (theirs, ours) = (zone_rules_in(known.policies.as_str()), zone_rules_in(policies.as_str()));
            if theirs.is_some() && theirs != ours {
                tracing::warn!(schedule = id.name.as_str(), namespace = %id.namespace, %timing, theirs, ours, "another build of the program knows other rules of the schedule's zone: its ticks may differ");
            }
        }
        if before.is_some_and(|before| before.timing != timing) {
            tracing::info!(schedule = id.name.as_str(), namespace = %id.namespace, %timing, "the schedule has another timing from now on");
            self.engine.events.tell(Event::Retimed { lock: self.lease.lock().clone(), timing });
        }
        Ok(record)
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
