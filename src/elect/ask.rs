//! Requests for one key: run a job under its lock, take it, or wait for it.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use serde::Serialize;

use super::{
    CampaignBuilder, Elect, Error, Guard, HeldBy, JobEnd, JobHandle, Lease,
    hold::Hold,
    job, nesting,
    ticket::{AcquireOutcome, Wants},
};
use crate::{
    error::chain,
    logic::{
        key::{Standing, TicketOutcome, WaitMode},
        watch,
    },
    model::{Key, Kind, LimitError, LockId, StoreTime, Value, Who, Why},
    words,
};

/// Reason why a key was not granted at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Busy {
    /// Another instance holds the key.
    Held(HeldBy),
    /// The key is already held, or waited for, by this instance.
    Here,
    /// No instance holds the key, and none may yet: it stays closed for a while after its last holder.
    Closed {
        /// End of that time, by the store's clock.
        until: StoreTime,
    },
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(held) => held.fmt(f),
            Self::Here => f.write_str("this instance already holds the key or waits for it"),
            Self::Closed { until } => write!(f, "the key is not held, and stays closed until {until}"),
        }
    }
}

/// Outcome of [`lock`](KeyRequest::lock).
#[derive(Debug)]
#[must_use = "the job may not run: somebody else may hold the key"]
pub enum Locked<T, E> {
    /// The lock is held, and the job runs.
    Running(JobHandle<T, E>),
    /// The job was not started.
    Busy(Busy),
}

impl<T, E> Locked<T, E> {
    /// Returns the job, if it runs.
    #[must_use]
    pub fn running(self) -> Option<JobHandle<T, E>> {
        if let Self::Running(job) = self { Some(job) } else { None }
    }

    /// Returns why the job does not run, if it does not.
    #[must_use]
    pub fn busy(self) -> Option<Busy> {
        if let Self::Busy(busy) = self { Some(busy) } else { None }
    }
}

/// Outcome of [`try_acquire`](KeyRequest::try_acquire).
#[derive(Debug)]
#[must_use = "the lock may not be held"]
pub enum Acquired {
    /// The lock is held, until the guard is dropped or lost.
    Guard(Guard),
    /// The lock is not held.
    Busy(Busy),
}

impl Acquired {
    /// Returns the guard, if the lock is held.
    #[must_use]
    pub fn guard(self) -> Option<Guard> {
        if let Self::Guard(guard) = self { Some(guard) } else { None }
    }

    /// Returns why the lock is not held, if it is not.
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

    /// Names the part of the program that wants the key, for others to read.
    pub fn who(self, who: impl AsRef<str>) -> Self {
        self.and(|wants| Who::new(who).map(|who| wants.who = Some(who)))
    }

    /// States what the key is wanted for, for others to read.
    pub fn why(self, why: impl AsRef<str>) -> Self {
        self.and(|wants| Why::new(why).map(|why| wants.why = Some(why)))
    }

    /// Sets bytes for others to read with the lock.
    pub fn value(self, value: impl AsRef<[u8]>) -> Self {
        self.and(|wants| Value::new(value).map(|value| wants.value = Some(value)))
    }

    /// Keeps the key for at least this long, counted from the grant: released sooner, it stays closed for the
    /// rest. For jobs that may finish in less time than clocks differ.
    ///
    /// [Closing](Elect::close) the instance keeps to that, also before its guard is dropped: then the key is closed for a
    /// ttl at least. A death does not: where the process ends without a release or a close, or a job, or a process with
    /// the lease's [presence](Lease::presence), overruns a close, the key is free as soon as the session is dead, unless
    /// a [`lock_delay`](Self::lock_delay) keeps it closed from then on.
    pub fn at_least(self, time: Duration) -> Self {
        self.and(|wants| {
            wants.at_least = time;
            Ok(())
        })
    }

    /// Keeps the key closed for this long after this instance was declared dead while holding the lock: time
    /// for work it had already sent to arrive.
    pub fn lock_delay(self, time: Duration) -> Self {
        self.and(|wants| {
            wants.lock_delay = time;
            Ok(())
        })
    }

    /// Limits the time for which the key is held, counted from the grant, so that a job that hangs does not keep it:
    /// then the job is cancelled by its lease's [token](Lease::token), and `stop_grace` later dropped, and the key is
    /// released. Its end names [`Loss::TimedOut`](crate::Loss::TimedOut). Default: no limit.
    ///
    /// A job that blocks is told and keeps the key until it returns, a guard until it is dropped. A campaign contends
    /// again, after a pause as for a job that failed.
    pub fn timeout(self, time: Duration) -> Self {
        self.and(|wants| {
            wants.timeout = Some(time);
            Ok(())
        })
    }

    /// Runs a job under the lock if the key is free.
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

    /// Like [`lock`](Self::lock), for a job that blocks its thread: it has a thread of its own. The job checks its token
    /// or [`Lease::is_valid`]; it cannot be dropped, so its lock is kept until it returns.
    ///
    /// # Errors
    /// As [`lock`](Self::lock); or no thread could be started: the job never begins, and the key goes back.
    pub async fn lock_blocking<T, E>(
        self,
        job: impl FnOnce(Lease) -> Result<T, E> + Send + 'static,
    ) -> Result<Locked<T, E>, Error>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        Ok(match self.once().await? {
            Ok(hold) => Locked::Running(
                job::start_blocking(hold, job).map_err(|error| Error::Thread(Arc::new(error)))?,
            ),
            Err(busy) => Locked::Busy(busy),
        })
    }

    /// Waits for the lock, runs the job within this call, and releases the lock.
    ///
    /// The job may borrow from its surroundings. It must not wait for the same key: it would wait for itself, and gets
    /// [`Error::Nested`] instead, unless it waits on another task that it has spawned.
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
            words::warn!(%kind, key = key.as_str(), %namespace, error, "could not release a lock yet, retrying");
        }
        Ok(end)
    }

    /// Takes the lock if the key is free.
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
    /// A limit is broken, the engine is closed, or this is called by a job that runs under the key itself. A store that
    /// does not answer is waited for.
    ///
    /// # Panics
    /// In a task of a tokio runtime without timers.
    ///
    /// # Cancel safety
    /// Dropped, it leaves the queue; a lock that arrives all the same is passed on.
    pub async fn acquire(self) -> Result<Guard, Error> {
        match self.wait(None).await? {
            Ok(hold) => Ok(Guard::new(hold)),
            Err(_) => unreachable!("a wait without an end ends with the lock"),
        }
    }

    /// Waits for the lock no longer than this. Returns `None` if the key is still held then, or closed.
    ///
    /// However short the time is, the store is asked once and its answer awaited: so a free key is granted also in no
    /// time at all.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); or the record cannot be used, or the store has not answered: then it is not known
    /// whether anybody holds the key.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(self, time: Duration) -> Result<Option<Guard>, Error> {
        if !time.is_zero() {
            match self.clone().wait(Some(time)).await? {
                Ok(hold) => return Ok(Some(Guard::new(hold))),
                Err(Standing::Held) => return Ok(None),
                Err(Standing::Failing(error)) => return Err(Error::Store(error)),
                Err(Standing::Unknown) => {}
            }
        }
        Ok(self.try_acquire().await?.guard())
    }

    /// Contends for the key until stopped: acquires it, loses it, acquires it again.
    pub fn campaign(self) -> CampaignBuilder {
        CampaignBuilder::new(self)
    }

    /// Waits for the lock, no longer than this; else returns what is known of it.
    async fn wait(self, within: Option<Duration>) -> Result<Result<Hold, Standing>, Error> {
        let (elect, lock, wants) = self.parts()?;
        if nesting::runs_under(elect.engine(), &lock) {
            return Err(Error::Nested { lock });
        }
        elect.wait_for(&lock, &wants, within).await
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
        let mut ticket = elect.engine().contend(&session, Some(elect.life()), &lock, &wants, WaitMode::ONCE);
        let retiring = elect.engine().retiring.clone();
        let outcome = tokio::select! {
            biased;
            outcome = ticket.outcome() => outcome,
            () = retiring.cancelled() => return Err(Error::Closed),
        };
        Ok(match outcome {
            AcquireOutcome::Granted(hold) => Ok(hold),
            AcquireOutcome::Other(verdict) => Err(busy(lock, verdict)?),
        })
    }
}

/// Translates an answer that is not a grant for the caller.
fn busy(lock: LockId, verdict: TicketOutcome) -> Result<Busy, Error> {
    match verdict {
        TicketOutcome::Granted { .. } => unreachable!("a grant comes with its lock"),
        TicketOutcome::Held(record, liveness) => {
            let stale = Some(liveness).filter(|liveness| *liveness != watch::Liveness::Alive);
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
