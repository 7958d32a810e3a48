//! Handles of schedules: for the program that has one, and for operators.

use std::sync::Arc;

use super::{
    Overdue, ScheduleStatus, Timing, overdue,
    runner::ScheduleRunner,
    spec::{ScheduleSpec, key_of},
};
use crate::{
    elect::{Elect, Error, EventFilter, EventStream, SchedulesShare, Work},
    model::{Key, Kind, LockId, ScheduleId, ScheduleName, StoreTime, Why},
    spread::{Spread, SpreadStatus},
    store::{Cursor, Instruction, Page, Refusal, RunNow, RunPage, ScheduleRecord, ScheduleSeen, StoreExt},
};

/// Attempts at a change, against lost answers; then the caller gets the error.
const TRIES: u32 = 3;

/// Schedule that this instance may run, until this is dropped.
///
/// All instances that have a schedule of the same name share its ticks. Dropping this is one of the
/// [ways to give a key up](crate::elect#ways-to-give-a-key-up).
#[derive(Debug)]
#[must_use = "dropping it removes the schedule from this instance: keep it in a variable with a name, as `_nightly`"]
pub struct Schedule {
    elect: Elect,
    runner: Arc<ScheduleRunner>,
    key: Key,
    name: ScheduleName,
}

impl Drop for Schedule {
    fn drop(&mut self) {
        self.runner.remove(&self.key);
    }
}

impl Schedule {
    pub(super) const fn new(elect: Elect, runner: Arc<ScheduleRunner>, key: Key, name: ScheduleName) -> Self {
        Self { elect, runner, key, name }
    }

    /// Name of the schedule.
    #[must_use]
    pub const fn name(&self) -> &ScheduleName {
        &self.name
    }

    fn spec(&self) -> Arc<ScheduleSpec> {
        self.runner.spec(&self.key).expect("it is removed when this is dropped")
    }

    /// Describes its timing in one line.
    #[must_use]
    pub fn timing(&self) -> String {
        self.spec().timing.to_string()
    }

    /// Describes in one line how ticks are handled that are late, overlap, or fail; with a number for the rules of its
    /// zone, by which one sees that two builds know different rules.
    #[must_use]
    pub fn policies(&self) -> String {
        self.spec().policies().to_string()
    }

    /// Returns its next ticks, by the store's time as this instance estimates it; none before the first beat. `@after`
    /// is counted from now, as if it were new.
    #[must_use]
    pub fn next(&self, ticks: usize) -> Vec<StoreTime> {
        let engine = self.elect.engine();
        let Some(now) = engine.store_times.now(engine.clock.now()) else { return Vec::new() };
        self.spec().calendar.first(ticks, now)
    }

    /// Sets another timing from now on. It applies where it is set: the timing of the instance that owns the schedule is
    /// in force.
    ///
    /// # Errors
    /// The expression or the zone is invalid, or has no instant.
    pub fn set_timing(&self, timing: impl Into<Timing>) -> Result<(), Error> {
        self.runner.retime(self.spec().retimed(timing.into())?);
        Ok(())
    }

    /// See [`Schedules::pause`].
    ///
    /// # Errors
    /// The reason breaks a limit, the store did not answer, or the record cannot be used.
    pub async fn pause(&self, why: impl AsRef<str>) -> Result<(), Error> {
        self.elect.schedules().pause(&self.name, why).await
    }

    /// See [`Schedules::resume`].
    ///
    /// # Errors
    /// The store did not answer, or the record cannot be used.
    pub async fn resume(&self) -> Result<(), Error> {
        self.elect.schedules().resume(&self.name).await
    }

    /// See [`Schedules::run_now`].
    ///
    /// # Errors
    /// The reason breaks a limit, the store did not answer, or too many wait already.
    pub async fn run_now(&self, why: impl AsRef<str>) -> Result<StoreTime, Error> {
        self.elect.schedules().run_now(&self.name, why).await
    }

    /// See [`Schedules::status`].
    ///
    /// # Errors
    /// The store did not answer, or the record cannot be used.
    pub async fn status(&self) -> Result<Option<ScheduleStatus>, Error> {
        self.elect.schedules().status(&self.name).await
    }

    /// Follows what happens to it here from now on: [runs](crate::Event::Ran), ticks that were
    /// [not run](crate::Event::NotRun), a [new timing](crate::Event::Retimed), and what happens to the lock of its
    /// owner.
    #[must_use]
    pub fn events(&self) -> EventStream {
        let lock = lock_of(&self.elect, self.key.clone());
        self.elect.engine().events.listen(EventFilter::Lock(lock))
    }
}

/// Returns the lock that the owner of a schedule holds.
fn lock_of(elect: &Elect, key: Key) -> LockId {
    LockId { namespace: elect.config().namespace().clone(), kind: Kind::Schedule, key }
}

/// Schedules of a namespace, for operators. Made by [`Elect::schedules`].
#[derive(Clone, Debug)]
pub struct Schedules {
    elect: Elect,
    even_if_unknown: bool,
    even_if_owned: bool,
}

impl Schedules {
    fn id(&self, name: impl AsRef<str>) -> Result<ScheduleId, Error> {
        let namespace = self.elect.config().namespace().clone();
        Ok(ScheduleId { namespace, name: ScheduleName::new(name)? })
    }

    /// Allows to pause, resume and order schedules that no instance has run yet, such as one that is to be held back
    /// from its first run on. Otherwise such a name is taken for a typing error.
    #[must_use]
    pub fn even_if_unknown(self) -> Self {
        Self { even_if_unknown: true, ..self }
    }

    /// Returns whether this instance has the schedule, or the store knows it.
    async fn is_known(&self, id: &ScheduleId) -> Result<bool, Error> {
        let has = ScheduleRunner::known(self.elect.engine())
            .is_some_and(|runner| runner.spec(&key_of(&id.name)).is_some());
        if has || self.even_if_unknown {
            return Ok(true);
        }
        let record = self.record(id).await?;
        Ok(record.is_some_and(|record| record.definition.is_some() || record.pause.is_some()))
    }

    async fn record(&self, id: &ScheduleId) -> Result<Option<ScheduleRecord>, Error> {
        let engine = self.elect.engine();
        let limit = engine.limit();
        let seen = engine.call(Work::Requested, limit, engine.given.schedules(vec![id.clone()], limit)).await;
        match seen.map_err(Error::store)?.pop() {
            Some(ScheduleSeen::Found(record)) => Ok(Some(record)),
            Some(ScheduleSeen::Refused(refusal)) => Err(self.refused(id, refusal)),
            Some(ScheduleSeen::Absent) | None => Ok(None),
        }
    }

    async fn instruct(
        &self,
        name: impl AsRef<str>,
        instruction: Instruction,
    ) -> Result<ScheduleRecord, Error> {
        let id = self.id(name)?;
        if !self.is_known(&id).await? {
            return Err(Error::UnknownSchedule(id.name));
        }
        let engine = self.elect.engine();
        let mut tries = TRIES;
        let seen = loop {
            let limit = engine.limit();
            tries -= 1;
            // The same again is the same.
            match engine
                .call(Work::Requested, limit, engine.given.instruct(id.clone(), instruction.clone(), limit))
                .await
            {
                Err(error) if error.is_retryable() && tries > 0 => {}
                seen => break seen,
            }
        };
        match seen.map_err(Error::store)? {
            ScheduleSeen::Refused(refusal) => Err(self.refused(&id, refusal)),
            ScheduleSeen::Found(record) => Ok(record),
            ScheduleSeen::Absent => Ok(ScheduleRecord::new(id)),
        }
    }

    fn refused(&self, id: &ScheduleId, refusal: Refusal) -> Error {
        Error::Refused { lock: lock_of(&self.elect, key_of(&id.name)), refusal }
    }

    /// Holds a schedule back: no run of it begins from now on, in any instance, but those that are
    /// [ordered](Self::run_now). A run that is on goes on; one that fails or dies is not tried again until the
    /// schedule is resumed. The ledger records the ticks that were not run.
    ///
    /// Its owner learns of the pause by a hint at once, without hints within `poll_interval`.
    ///
    /// # Errors
    /// The name or the reason breaks a limit, no instance has run a schedule of that name yet (see
    /// [`even_if_unknown`](Self::even_if_unknown)), the store did not answer, or the record cannot be used.
    pub async fn pause(&self, name: impl AsRef<str>, why: impl AsRef<str>) -> Result<(), Error> {
        let (by, why) = (self.elect.config().holder().clone(), Why::new(why)?);
        self.instruct(name, Instruction::Pause { by, why }).await.map(drop)
    }

    /// Resumes a schedule. Ticks inside the pause are not run; one from before, which was due and not run, is late.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub async fn resume(&self, name: impl AsRef<str>) -> Result<(), Error> {
        self.instruct(name, Instruction::Resume).await.map(drop)
    }

    /// Has a schedule run now, once, by its owner, besides its ticks; also if it is paused. Returns the instant under
    /// which the ledger has the run: each call is a run of its own, and calls of one millisecond take the next free ones.
    /// They are run one after the other.
    ///
    /// # Errors
    /// As [`pause`](Self::pause); or a hundred of these wait already.
    pub async fn run_now(&self, name: impl AsRef<str>, why: impl AsRef<str>) -> Result<StoreTime, Error> {
        let engine = self.elect.engine();
        let (by, why) = (engine.config.holder().clone(), Why::new(why)?);
        let now = engine.store_times.now(engine.clock.now());
        let now = now.ok_or(Error::NoSession { last: None })?;
        loop {
            let order = RunNow { at: engine.schedule_inbox.order_at(now), by: by.clone(), why: why.clone() };
            let record = self.instruct(&name, Instruction::Run(order.clone())).await?;
            let stored = record.orders.iter().find(|known| known.at == order.at);
            // Else another order had that millisecond.
            if stored.is_none_or(|known| *known == order) {
                return Ok(order.at);
            }
        }
    }

    /// Reads the status of a schedule; `None` if the store knows none of that name.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub async fn status(&self, name: impl AsRef<str>) -> Result<Option<ScheduleStatus>, Error> {
        let id = self.id(name)?;
        let Some(record) = self.record(&id).await? else { return Ok(None) };
        let runs = self.history(&id.name, None, ScheduleStatus::LOOKED_AT).await?.items;
        Ok(Some(ScheduleStatus::of(record, runs)))
    }

    /// Reads the ledger, last entry first, page by page: give the `next` of a page as `after`.
    ///
    /// # Errors
    /// The name breaks a limit, or the store did not answer.
    pub async fn history(
        &self,
        name: impl AsRef<str>,
        after: Option<Cursor>,
        at_most: usize,
    ) -> Result<RunPage, Error> {
        let (id, engine) = (self.id(name)?, self.elect.engine());
        let limit = engine.limit();
        engine
            .call(Work::Requested, limit, engine.given.history(id, after, at_most, limit))
            .await
            .map_err(Error::store)
    }

    /// Lists the schedules of the namespace that were ever run, paused or ordered, page by page in the order of their
    /// names: give the `next` of a page as `after`. Schedules that no program has any more are among them, until they
    /// are [deleted](Self::delete).
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn list(&self, after: Option<Cursor>, at_most: usize) -> Result<Page<ScheduleRecord>, Error> {
        let engine = self.elect.engine();
        let (limit, namespace) = (engine.limit(), engine.config.namespace().clone());
        let page = engine.given.list_schedules(namespace, after, at_most, limit);
        engine.call(Work::Requested, limit, page).await.map_err(Error::store)
    }

    /// Finds the schedules of the namespace with a tick that is due for more than a minute and two ttls, and that no
    /// instance has that is alive. One of the instances with schedules looks by itself, and reports them by
    /// [`Event::Overdue`](crate::Event::Overdue); this looks at all of them now.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn overdue(&self) -> Result<Vec<Overdue>, Error> {
        overdue::all(self.elect.engine()).await.map_err(Error::store)
    }

    /// Allows to delete a schedule that an instance has. That instance goes on with it, and writes into a new ledger.
    #[must_use]
    pub fn even_if_owned(self) -> Self {
        Self { even_if_owned: true, ..self }
    }

    /// Deletes a schedule that no program has any more, with its ledger. Returns whether there was anything to delete.
    /// A program that has it still, or again, begins it anew.
    ///
    /// # Errors
    /// The name breaks a limit, an instance has the schedule ([`Error::Owned`]; see
    /// [`even_if_owned`](Self::even_if_owned)), or the store did not answer; then a part of it may be gone.
    pub async fn delete(&self, name: impl AsRef<str>) -> Result<bool, Error> {
        let (id, engine) = (self.id(name)?, self.elect.engine());
        let key = key_of(&id.name);
        if !self.even_if_owned {
            // If it is not held, this instance is about to take it.
            let here = ScheduleRunner::known(engine).and_then(|runner| runner.spec(&key));
            let here = here.map(|_| engine.config.holder().clone());
            let by = overdue::holder_of(engine, lock_of(&self.elect, key)).await.map_err(Error::store)?;
            if let Some(by) = by.or(here) {
                return Err(Error::Owned { schedule: id.name, by });
            }
        }
        let was_there = match self.record(&id).await {
            Ok(record) => record.is_some(),
            // A record that cannot be used is deleted, too.
            Err(Error::Refused { .. }) => true,
            Err(error) => return Err(error),
        };
        let has_runs = !self.history(&id.name, None, 1).await?.items.is_empty();
        overdue::delete(engine, &id, Work::Requested).await.map_err(Error::store)?;
        Ok(was_there || has_runs)
    }

    // ----- owners of schedules

    fn spread(&self) -> Option<Arc<Spread>> {
        ScheduleRunner::known(self.elect.engine())?.spread()
    }

    /// Returns which instance has which schedule, as this one knows it; `None` if it has no schedules, or has not joined
    /// the others yet.
    #[must_use]
    pub fn spread_status(&self) -> Option<SpreadStatus> {
        Some(self.spread()?.status())
    }

    /// Waits until the schedules are as wanted; for ever if this instance has none.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn until(&self, predicate: impl FnMut(&SpreadStatus) -> bool) -> SpreadStatus {
        match ScheduleRunner::known(self.elect.engine()) {
            Some(runner) => runner.joined().await.until(predicate).await,
            None => std::future::pending().await,
        }
    }

    /// Sets the share, now or as soon as there are schedules.
    fn set_share(&self, change: impl FnOnce(&mut SchedulesShare), then: impl FnOnce(&Spread)) {
        self.elect.engine().schedule_inbox.set_share(change);
        if let Some(spread) = self.spread() {
            then(&spread);
        }
    }

    /// Sets the most schedules this instance may have.
    pub fn set_cap(&self, cap: u32) {
        self.set_share(|share| share.cap = Some(cap), |spread| spread.set_cap(cap));
    }

    /// Sets this instance's part in proportion to that of the others.
    pub fn set_weight(&self, weight: u32) {
        self.set_share(|share| share.weight = Some(weight), |spread| spread.set_weight(weight));
    }

    /// Gives the schedules away to the others, with what is running, and gets no new ones, until
    /// [`undrain`](Self::undrain).
    pub fn drain(&self) {
        self.set_share(|share| share.draining = true, Spread::drain);
    }

    /// Takes its part again.
    pub fn undrain(&self) {
        self.set_share(|share| share.draining = false, Spread::undrain);
    }
}

impl Elect {
    /// Returns the schedules of the namespace: to pause them, to have them run, to read their status.
    #[must_use]
    pub fn schedules(&self) -> Schedules {
        Schedules { elect: self.clone(), even_if_unknown: false, even_if_owned: false }
    }
}
