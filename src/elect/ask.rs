//! What a program asks of an engine for one key.

use std::{future::Future, time::Duration};

use super::{
    CampaignBuilder, Elect, Error, Guard, HeldBy, JobEnd, JobHandle, Lease,
    hold::Hold,
    job,
    keys::{AcquireOutcome, Wants},
    troubles::chain,
};
use crate::{
    logic::{
        key::{TicketOutcome, WaitMode},
        watch,
    },
    model::{Key, Kind, LimitError, LockId, StoreTime, Value, Who, Why},
};

/// Why a key was not given at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Busy {
    /// Somebody else holds it.
    Held(HeldBy),
    /// This engine holds it already, or waits for it.
    Here,
    /// Nobody holds it, and nobody may yet: it is kept closed after its last holder.
    Closed {
        /// Until when, by the store's clock.
        until: StoreTime,
    },
}

/// What came of [`lock`](KeyRequest::lock).
#[derive(Debug)]
#[must_use = "the job may not run: somebody else may hold the key"]
pub enum Locked<T, E> {
    /// The lock is held, and the job runs.
    Running(JobHandle<T, E>),
    /// The job was not started.
    Busy(Busy),
}

impl<T, E> Locked<T, E> {
    /// The job, if it runs.
    #[must_use]
    pub fn running(self) -> Option<JobHandle<T, E>> {
        if let Self::Running(job) = self { Some(job) } else { None }
    }

    /// Why it does not run, if so.
    #[must_use]
    pub fn busy(self) -> Option<Busy> {
        if let Self::Busy(busy) = self { Some(busy) } else { None }
    }
}

/// What came of [`try_acquire`](KeyRequest::try_acquire).
#[derive(Debug)]
#[must_use = "the lock may not be held"]
pub enum Acquired {
    /// The lock is held, until the guard is dropped or lost.
    Guard(Guard),
    /// It is not.
    Busy(Busy),
}

impl Acquired {
    /// The guard, if the lock is held.
    #[must_use]
    pub fn guard(self) -> Option<Guard> {
        if let Self::Guard(guard) = self { Some(guard) } else { None }
    }

    /// Why it is not held, if so.
    #[must_use]
    pub fn busy(self) -> Option<Busy> {
        if let Self::Busy(busy) = self { Some(busy) } else { None }
    }
}

/// A key, and how it is wanted. Made by [`Elect::key`].
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is sent"]
pub struct KeyRequest {
    elect: Elect,
    asked: Result<(LockId, Wants), LimitError>,
}

impl KeyRequest {
    pub(crate) fn new(elect: Elect, key: impl AsRef<str>) -> Self {
        let namespace = elect.engine().config.namespace().clone();
        let lock = Key::new(key).map(|key| LockId { namespace, kind: Kind::Lock, key });
        Self { elect, asked: lock.map(|lock| (lock, Wants::default())) }
    }

    fn and(mut self, set: impl FnOnce(&mut Wants) -> Result<(), LimitError>) -> Self {
        if let Ok((_, wants)) = &mut self.asked
            && let Err(error) = set(wants)
        {
            self.asked = Err(error);
        }
        self
    }

    /// Which part of the program it is for, for others to read.
    pub fn who(self, who: impl AsRef<str>) -> Self {
        self.and(|wants| Who::new(who).map(|who| wants.who = Some(who)))
    }

    /// What it is for, for others to read.
    pub fn why(self, why: impl AsRef<str>) -> Self {
        self.and(|wants| Why::new(why).map(|why| wants.why = Some(why)))
    }

    /// Bytes for others to read with the lock.
    pub fn value(self, value: impl AsRef<[u8]>) -> Self {
        self.and(|wants| Value::new(value).map(|value| wants.value = Some(value)))
    }

    /// Keep the key at least this long, counted from the grant: released sooner, it stays closed for the
    /// rest. For jobs that may be done faster than clocks differ.
    pub fn at_least(self, time: Duration) -> Self {
        self.and(|wants| {
            wants.at_least = time;
            Ok(())
        })
    }

    /// If this instance dies with the lock in hand, keep the key closed for so long after its death was
    /// declared: time for work already sent to arrive.
    pub fn lock_delay(self, time: Duration) -> Self {
        self.and(|wants| {
            wants.lock_delay = time;
            Ok(())
        })
    }

    /// Runs a job under the lock if the key is to be had now.
    ///
    /// Answers as soon as that is decided; the job runs on a task of its own. It should return soon after
    /// its [token](Lease::token) fires: when `stop_grace` is over it is dropped at its next `.await`.
    ///
    /// # Errors
    /// A limit is broken, the record cannot be used, the store does not answer, or the engine is closed.
    ///
    /// # Cancel safety
    /// Dropped before its answer, the ticket is given up; a lock that arrives all the same is released.
    pub async fn lock<T, E, F>(
        self,
        job: impl FnOnce(Lease) -> F + Send + 'static,
    ) -> Result<Locked<T, E>, Error>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        Ok(match self.once().await? {
            Ok(hold) => Locked::Running(job::start(hold, job)),
            Err(busy) => Locked::Busy(busy),
        })
    }

    /// Like [`lock`](Self::lock), for a job that blocks its thread. It is told by its token, or by asking
    /// [`Lease::is_valid`]; it cannot be dropped, so its lock is kept until it returns.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub async fn lock_blocking<T, E>(
        self,
        job: impl FnOnce(Lease) -> Result<T, E> + Send + 'static,
    ) -> Result<Locked<T, E>, Error>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        Ok(match self.once().await? {
            Ok(hold) => Locked::Running(job::start_blocking(hold, job)),
            Err(busy) => Locked::Busy(busy),
        })
    }

    /// Waits for the lock, runs the job within this call, and releases the lock.
    ///
    /// The job may borrow from its surroundings.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// Dropped, it gives up its ticket, or drops the job and releases the lock in the background.
    pub async fn with_lock<T, E, F>(self, job: impl FnOnce(Lease) -> F) -> Result<JobEnd<T, E>, Error>
    where
        F: Future<Output = Result<T, E>>,
    {
        let guard = self.acquire().await?;
        let lock = guard.lease().lock().clone();
        let end = guard.run(job).await;
        if let Err(error) = guard.release().await {
            // The job has ended all the same; the release goes on.
            let (LockId { kind, key, namespace }, error) = (&lock, chain(&error));
            tracing::warn!(%kind, key = key.as_str(), %namespace, error, "could not release a lock yet, retrying");
        }
        Ok(end)
    }

    /// Takes the lock if it is to be had now.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub async fn try_acquire(self) -> Result<Acquired, Error> {
        Ok(match self.once().await? {
            Ok(hold) => Acquired::Guard(Guard::new(hold)),
            Err(busy) => Acquired::Busy(busy),
        })
    }

    /// Waits for the lock for as long as it takes: first come, first served, over the whole fleet.
    ///
    /// # Errors
    /// A limit is broken, or the engine is closed. A store that does not answer is waited for.
    ///
    /// # Cancel safety
    /// Dropped, it leaves the line; a lock that arrives all the same is passed on.
    pub async fn acquire(self) -> Result<Guard, Error> {
        let (elect, lock, wants) = self.parts()?;
        elect.wait_for(&lock, &wants).await.map(Guard::new)
    }

    /// Waits for the lock no longer than this. Nothing, if it was not to be had in that time.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(self, time: Duration) -> Result<Option<Guard>, Error> {
        match tokio::time::timeout(time, self.acquire()).await {
            Ok(guard) => guard.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Stands for the key until it is stopped: acquired, lost, acquired again.
    pub fn campaign(self) -> CampaignBuilder {
        CampaignBuilder::new(self)
    }

    pub(crate) fn parts(self) -> Result<(Elect, LockId, Wants), Error> {
        let (lock, wants) = self.asked?;
        if self.elect.engine().is_closed() {
            return Err(Error::Closed);
        }
        Ok((self.elect, lock, wants))
    }

    async fn once(self) -> Result<Result<Hold, Busy>, Error> {
        let (elect, lock, wants) = self.parts()?;
        let session = elect.engine().session_or_error()?;
        let mut standing = elect.engine().stand(&session, Some(elect.life()), &lock, &wants, WaitMode::ONCE);
        Ok(match standing.outcome().await {
            AcquireOutcome::Granted(hold) => Ok(hold),
            AcquireOutcome::Other(verdict) => Err(busy(lock, verdict)?),
        })
    }
}

/// What an answer that is no grant means to the caller.
fn busy(lock: LockId, verdict: TicketOutcome) -> Result<Busy, Error> {
    match verdict {
        TicketOutcome::Granted { .. } => unreachable!("a grant is told with its lock"),
        TicketOutcome::Held(record, standing) => {
            let stale = Some(standing).filter(|standing| *standing != watch::Liveness::Alive);
            Ok(HeldBy::of(*record, stale).map_or(Busy::Here, Busy::Held))
        }
        TicketOutcome::Here => Ok(Busy::Here),
        TicketOutcome::Closed(record) => {
            Ok(Busy::Closed { until: record.closed.map_or(StoreTime::from_millis(0), |closed| closed.until) })
        }
        TicketOutcome::Refused(refusal) => Err(Error::Refused { lock, refusal }),
        TicketOutcome::Failed(error) => Err(Error::Store(error)),
        TicketOutcome::SessionOver => Err(Error::NoSession { last: None }),
    }
}
