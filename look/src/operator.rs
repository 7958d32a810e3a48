//! Actions of an operator on a namespace.
//!
//! An action writes to the store without a session: an operator holds nothing. Name and reason of the operator go into the
//! log, and into the record of a pause, an order, or a request to a holder.

use std::{fmt, sync::Arc, time::Duration};

use tenure::{
    Clock, StoreError, SystemClock,
    model::{Holder, LockId, Namespace, ScheduleId, ScheduleName, SessionId, StoreTime, Term, Why},
    store::{
        About, Instruction, LockSeen, Refusal, Request, Revocation, RevokeAnswer, RunNow, ScheduleRecord,
        ScheduleSeen, SessionRecord, SessionSeen, Store, StoreExt, Topic,
    },
};

use crate::schedule::lock_of;

/// Time that a person waits for one answer of the store.
const LIMIT: Duration = Duration::from_secs(10);

/// An operator of a namespace.
#[derive(Clone, Debug)]
pub struct Operator {
    store: Arc<dyn Store>,
    namespace: Namespace,
    by: Holder,
    clock: Arc<dyn Clock>,
}

/// Reason why an action was not done.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotDone {
    /// The store did not do it; [`applied`](StoreError::applied) says whether anything may have changed.
    Store(StoreError),
    /// The record cannot be used, or has no room.
    Refused {
        /// The key, schedule or instance.
        name: String,
        /// Reason of the refusal.
        refusal: Refusal,
    },
    /// The namespace has no such schedule.
    Unknown(ScheduleName),
    /// The state is not the one that the operator saw.
    Changed(String),
    /// The holder is dead, so that it cannot be asked.
    Dead {
        /// The key.
        lock: LockId,
        /// The holder.
        holder: Holder,
    },
    /// An instance has the schedule, so that it is not deleted.
    Owned {
        /// The schedule.
        schedule: ScheduleName,
        /// The instance.
        by: Holder,
    },
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Refused { name, refusal } => write!(f, "{name}: {refusal}"),
            Self::Unknown(schedule) => write!(f, "there is no schedule {:?}", schedule.as_str()),
            Self::Changed(sentence) => f.write_str(sentence),
            Self::Dead { lock, holder } => {
                write!(
                    f,
                    "{holder} is dead and cannot be asked: the next instance that asks for {lock} takes it over"
                )
            }
            Self::Owned { schedule, by } => {
                write!(f, "{by} has the schedule {schedule}: remove it from the program first")
            }
        }
    }
}

impl std::error::Error for NotDone {}

impl From<StoreError> for NotDone {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Operator {
    /// An operator of that name.
    #[must_use]
    pub fn new(store: impl Into<Arc<dyn Store>>, namespace: Namespace, by: Holder) -> Self {
        Self { store: store.into(), namespace, by, clock: Arc::new(SystemClock::new()) }
    }

    /// The same by another clock, which gives orders their instants.
    pub(crate) fn by_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// The namespace.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Name on record.
    #[must_use]
    pub const fn by(&self) -> &Holder {
        &self.by
    }

    // ----- keys

    /// Asks the holder of a key, or of a task or schedule, to give it back: its job is told to stop, and the key is free
    /// when it has. `term` is the one that the operator saw. Returns the holder that is asked.
    ///
    /// # Errors
    ///
    /// The key is not held under that term any more, its holder is dead, the record cannot be used, or the store does not
    /// answer.
    pub async fn release(&self, lock: &LockId, term: Term, why: &Why) -> Result<Holder, NotDone> {
        let seen = self.store.locks(vec![lock.clone()], LIMIT).await?.pop();
        let record = match seen {
            Some(LockSeen::Found(record)) if record.term == term => record,
            Some(LockSeen::Refused(refusal)) => return Err(refused(lock, refusal)),
            _ => return Err(changed(lock)),
        };
        let held = record.holding.ok_or_else(|| changed(lock))?.by;
        let name = format!("{lock}, held by {}", held.holder);
        let request = self.request(lock, term, why);
        match self.revoke(lock, Revocation::Ask { session: held.session, request }).await? {
            RevokeAnswer::Asked => {
                self.log("release", &name, why);
                Ok(held.holder)
            }
            _ => Err(NotDone::Dead { lock: lock.clone(), holder: held.holder }),
        }
    }

    /// Takes a key from its holder at once. The holder works on until it notices, beside the next one: only the term
    /// protects what they write.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release), except that a key can be taken from a dead holder.
    pub async fn force(&self, lock: &LockId, term: Term, why: &Why) -> Result<(), NotDone> {
        match self.revoke(lock, Revocation::Force(self.request(lock, term, why))).await? {
            RevokeAnswer::Freed(_) => {
                self.log("force", lock, why);
                Ok(())
            }
            _ => Err(changed(lock)),
        }
    }

    /// Ends the rest of a task, or opens a key that is kept closed: it may be taken at once. `term` is the last one, which
    /// the operator saw.
    ///
    /// # Errors
    ///
    /// The key was taken since, the record cannot be used, or the store does not answer.
    pub async fn put_back(&self, lock: &LockId, term: Term, why: &Why) -> Result<(), NotDone> {
        match self.revoke(lock, Revocation::Reopen(self.request(lock, term, why))).await? {
            RevokeAnswer::Freed(_) => {
                self.log("put back", lock, why);
                Ok(())
            }
            _ => Err(changed(lock)),
        }
    }

    fn request(&self, lock: &LockId, term: Term, why: &Why) -> Request {
        Request { lock: lock.clone(), term, by: self.by.clone(), why: why.clone() }
    }

    async fn revoke(
        &self,
        name: &(dyn fmt::Display + Sync),
        revocation: Revocation,
    ) -> Result<RevokeAnswer, NotDone> {
        match self.store.revoke(revocation, LIMIT).await? {
            RevokeAnswer::Refused(refusal) => Err(refused(name, refusal)),
            answer => Ok(answer),
        }
    }

    // ----- instances

    /// Orders an instance to drain: it gives its tasks and schedules to others, one after the other, and takes none, as
    /// [`Spread::drain`](tenure::spread::Spread::drain) does for one spread. That holds until it is
    /// [undrained](Self::undrain) or its process ends, once a beat has read the order, also for spreads that it joins
    /// later. Locks and campaigns are not concerned. Returns its name.
    ///
    /// # Errors
    ///
    /// No living instance of the namespace has that session, the record cannot be used, or the store does not answer.
    pub async fn drain(&self, session: SessionId, why: &Why) -> Result<Holder, NotDone> {
        let record = self.living(session).await?;
        self.order(&record, Some((self.by.clone(), why.clone())), "drain", why).await
    }

    /// Has an instance accept tasks again. A spread that the program drains itself stays drained. Returns its name.
    ///
    /// # Errors
    ///
    /// As [`drain`](Self::drain).
    pub async fn undrain(&self, session: SessionId, why: &Why) -> Result<Holder, NotDone> {
        let record = self.living(session).await?;
        self.order(&record, None, "undrain", why).await
    }

    async fn living(&self, session: SessionId) -> Result<SessionRecord, NotDone> {
        let seen = self.store.observe(vec![session], LIMIT).await?.pop();
        match seen {
            Some(SessionSeen::Alive(record)) if record.about.namespace == self.namespace => Ok(record),
            Some(SessionSeen::Refused(refusal)) => Err(refused(&session, refusal)),
            _ => Err(gone(session)),
        }
    }

    async fn order(
        &self,
        record: &SessionRecord,
        order: Option<(Holder, Why)>,
        action: &str,
        why: &Why,
    ) -> Result<Holder, NotDone> {
        let (session, About { holder, namespace, .. }) = (record.id, &record.about);
        let spread =
            record.shares.first().map(|share| Topic::Spread(namespace.clone(), share.spread.clone()));
        let tell = spread.unwrap_or(Topic::Session(session));
        match self.revoke(holder, Revocation::Drain { session, order, tell }).await? {
            RevokeAnswer::Asked => {
                self.log(action, holder, why);
                Ok(holder.clone())
            }
            _ => Err(gone(record.id)),
        }
    }

    // ----- schedules

    /// Pauses a schedule: no tick of it is run until it is resumed. The current run continues.
    ///
    /// # Errors
    ///
    /// The namespace has no such schedule, its record cannot be used, or the store does not answer.
    pub async fn pause(&self, schedule: &ScheduleName, why: &Why) -> Result<(), NotDone> {
        let pause = Instruction::Pause { by: self.by.clone(), why: why.clone() };
        self.instruct(schedule, pause).await?;
        self.log("pause", schedule, why);
        Ok(())
    }

    /// Resumes a schedule. Ticks within the pause are not made up for.
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause).
    pub async fn resume(&self, schedule: &ScheduleName, why: &Why) -> Result<(), NotDone> {
        self.instruct(schedule, Instruction::Resume).await?;
        self.log("resume", schedule, why);
        Ok(())
    }

    /// Has a schedule run once, besides its ticks; also if it is paused. Returns the instant under which its history has the
    /// run.
    ///
    /// The same order twice within a millisecond, with the same reason, is one.
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause).
    pub async fn run(&self, schedule: &ScheduleName, why: &Why) -> Result<StoreTime, NotDone> {
        let mut at = self.clock.wall();
        loop {
            let order = RunNow { at, by: self.by.clone(), why: why.clone() };
            let record = self.instruct(schedule, Instruction::Run(order.clone())).await?;
            let stored = record.orders.iter().find(|known| known.at == at);
            if stored.is_none_or(|known| *known == order) {
                self.log("run", &format!("{schedule} as {at}"), why);
                return Ok(at);
            }
            // Another order has that millisecond.
            at = StoreTime::from_millis(at.as_millis() + 1);
        }
    }

    /// Deletes a schedule that no program has any more, with its history.
    ///
    /// # Errors
    ///
    /// A living instance has the schedule, the namespace has no such schedule, or the store does not answer; then a part of
    /// it may be gone, and the next call deletes the rest.
    pub async fn delete(&self, schedule: &ScheduleName, why: &Why) -> Result<(), NotDone> {
        let id = self.schedule(schedule);
        let record = self.store.schedules(vec![id.clone()], LIMIT).await?.pop();
        // A record that cannot be used is deleted, too; and history that an interrupted deletion has left.
        let is_known = matches!(record, Some(ScheduleSeen::Found(_) | ScheduleSeen::Refused(_)));
        if !is_known && self.store.history(id.clone(), None, 1, LIMIT).await?.items.is_empty() {
            return Err(NotDone::Unknown(schedule.clone()));
        }
        let lock = self.store.locks(vec![lock_of(&id)], LIMIT).await?.pop().and_then(LockSeen::found);
        if let Some(held) = lock.and_then(|lock| lock.holding) {
            let owner = self.store.observe(vec![held.by.session], LIMIT).await?.pop();
            if matches!(owner, Some(SessionSeen::Alive(_))) {
                return Err(NotDone::Owned { schedule: schedule.clone(), by: held.by.holder });
            }
        }
        while !self.store.delete_schedule(id.clone(), LIMIT).await? {}
        self.log("delete", schedule, why);
        Ok(())
    }

    fn schedule(&self, name: &ScheduleName) -> ScheduleId {
        ScheduleId { namespace: self.namespace.clone(), name: name.clone() }
    }

    async fn instruct(
        &self,
        schedule: &ScheduleName,
        instruction: Instruction,
    ) -> Result<ScheduleRecord, NotDone> {
        let id = self.schedule(schedule);
        let refused = |refusal| refused(&format!("schedule {:?}", schedule.as_str()), refusal);
        // An instruction would create the record of a schedule that was mistyped.
        match self.store.schedules(vec![id.clone()], LIMIT).await?.pop() {
            Some(ScheduleSeen::Found(_)) => {}
            Some(ScheduleSeen::Refused(refusal)) => return Err(refused(refusal)),
            Some(ScheduleSeen::Absent) | None => return Err(NotDone::Unknown(schedule.clone())),
        }
        match self.store.instruct(id.clone(), instruction, LIMIT).await? {
            ScheduleSeen::Found(record) => Ok(record),
            ScheduleSeen::Refused(refusal) => Err(refused(refusal)),
            ScheduleSeen::Absent => Ok(ScheduleRecord::new(id)),
        }
    }

    fn log(&self, action: &str, name: &(dyn fmt::Display + Sync), why: &Why) {
        tracing::info!(by = self.by.as_str(), action, %name, why = why.as_str(), "an operator acted");
    }
}

fn refused(name: &(dyn fmt::Display + Sync), refusal: Refusal) -> NotDone {
    NotDone::Refused { name: name.to_string(), refusal }
}

fn changed(lock: &LockId) -> NotDone {
    NotDone::Changed(format!("{lock} was released or taken since"))
}

fn gone(session: SessionId) -> NotDone {
    NotDone::Changed(format!("no instance of session {session} beats in this namespace any more"))
}
