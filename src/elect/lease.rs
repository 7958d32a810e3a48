//! The lease that a job gets with its lock.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Error, JobEnd, JobOutput, Work, hold::LeaseCell, job};
use crate::{
    model::{Key, LockId, Loss, SessionId, StoreTime, Term, Value},
    store::{LockSeen, Presence, SetAnswer, SetValue, StoreExt},
};

/// The right to do one thing, for a time.
///
/// A lease is given to a job with its lock. It is valid until the lock is released or lost, by this
/// machine's clock; [`is_valid`](Self::is_valid) and [`remaining`](Self::remaining) compute it at each
/// call. When it is about to end, its [token](Self::token) is cancelled: the job should then return
/// within `stop_grace`. A job that does not is dropped at its next `.await`, and no poll of it begins
/// after the lease has ended.
///
/// Writes of the job elsewhere should carry the [term](Self::term): a write that is under way when
/// the lease ends may arrive late.
///
/// Clones are the same lease.
#[derive(Clone)]
pub struct Lease {
    pub(super) cell: Arc<LeaseCell>,
    /// Token of this part of the job: it fires with the lease's own, and that of one run of a schedule may
    /// fire before.
    token: CancellationToken,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.cell, f)
    }
}

impl Lease {
    pub(crate) fn of(cell: Arc<LeaseCell>) -> Self {
        let token = cell.token.clone();
        Self { cell, token }
    }

    pub(crate) fn session(&self) -> SessionId {
        self.cell.session.id
    }

    /// Reports a panic of something that runs under it.
    pub(crate) fn panicked(&self, message: &str) {
        self.cell.engine.panicked(&self.cell, message);
    }

    /// Cancels this part of the job.
    pub(crate) fn stop(&self) {
        self.token.cancel();
    }

    /// Returns the same lease for a part of the job, which may be cancelled before the rest.
    pub(crate) fn narrowed(&self) -> Self {
        Self { cell: self.cell.clone(), token: self.token.child_token() }
    }

    /// Returns the lease of the whole job, of which this may be a part.
    #[cfg(tenure_sim)]
    #[doc(hidden)]
    #[must_use]
    pub fn whole(&self) -> Self {
        Self::of(self.cell.clone())
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.cell.lock.key
    }

    /// Returns the lock as the store names it: namespace, kind and key.
    #[must_use]
    pub fn lock(&self) -> &LockId {
        &self.cell.lock
    }

    /// Returns the fencing number: larger than that of every earlier holder.
    #[must_use]
    pub fn term(&self) -> Term {
        self.cell.term
    }

    /// Returns when the lock was acquired, by the store's clock.
    #[must_use]
    pub fn acquired_at(&self) -> StoreTime {
        self.cell.since
    }

    /// Returns whether the lock is still held, as far as this machine can tell without asking: no other
    /// instance holds it at this moment.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.cell.is_valid(self.cell.now())
    }

    /// Returns how long the lease stays valid if no further heartbeat is acknowledged, or how much of the
    /// grace is left if it was cancelled. Zero if it is not valid.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.cell.remaining(self.cell.now())
    }

    /// Cancels everything that runs under it.
    pub(crate) fn give_up(&self, loss: &Loss) {
        self.cell.cancel(loss);
    }

    /// Returns a token that fires when the job should stop. It is the weaker way: a thread of this library has to fire
    /// it, where [`cancelled`](Self::cancelled) and [`is_cancelled`](Self::is_cancelled) look at the clock themselves.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Returns whether the job should stop. It asks the clock first, as a thread should before each step: this is true
    /// from the moment on when the job is to be told, also if nothing of this process ran until now.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cell.should_stop(self.cell.now()) || self.token.is_cancelled()
    }

    /// Waits until the job should stop. In a task of tokio's it looks at the clock when the time has come, as
    /// [`is_cancelled`](Self::is_cancelled) does: it needs nobody to wake it. Elsewhere a thread of this library wakes it.
    ///
    /// # Panics
    /// In a task of a tokio runtime without timers.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn cancelled(&self) {
        self.cell.told(&self.token).await;
    }

    /// Returns why the lease ended or is about to end; `None` while all is well, or if only one run of a
    /// schedule should stop.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.cell.loss()
    }

    /// Asks the store whether this lease still holds the lock. One read of the lock and one of the
    /// session, both of what a majority has.
    ///
    /// Needed seldom: for an effect outside every fence, where a moment more of certainty is worth two
    /// reads. More it is not: a primary that was cut off and has not noticed yet answers with what a
    /// majority had until then, and may confirm what a forced revocation took on the other side. Only a
    /// fence, or the term where the effect lands, covers that.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn check(&self) -> Result<bool, Error> {
        let cell = &self.cell;
        let engine = &cell.engine;
        let limit = engine.limit();
        let locks = engine.call(Work::Requested, limit, engine.given.locks(vec![cell.lock.clone()], limit));
        let sessions =
            engine.call(Work::Requested, limit, engine.given.observe(vec![cell.session.id], limit));
        let (locks, sessions) = tokio::try_join!(locks, sessions).map_err(Error::store)?;
        let ours = matches!(&locks[..], [LockSeen::Found(record)]
            if record.term == cell.term && record.is_granted_to(cell.session.id, cell.ticket));
        let alive = matches!(&sessions[..], [crate::store::SessionSeen::Alive(_)]);
        Ok(ours && alive && self.is_valid())
    }

    /// Changes the value others read with the lock: up to 16 KiB.
    ///
    /// # Errors
    /// The value is too long, the lock is not held any more ([`Error::is_lost`]), the record cannot be written, or
    /// the store did not answer; then the value may have been set.
    pub async fn set_value(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.say(Some(Value::new(value)?)).await
    }

    /// Clears the value others read with the lock.
    ///
    /// # Errors
    /// As [`set_value`](Self::set_value).
    pub async fn clear_value(&self) -> Result<(), Error> {
        self.say(None).await
    }

    async fn say(&self, value: Option<Value>) -> Result<(), Error> {
        let cell = &self.cell;
        let number = cell.state().next_value();
        if !self.is_valid() {
            return Err(Error::lost(self.loss()));
        }
        let set =
            SetValue { lock: cell.lock.clone(), session: cell.session.id, term: cell.term, number, value };
        let limit = cell.engine.limit();
        match cell
            .engine
            .call(Work::Requested, limit, cell.engine.given.set_value(set, limit))
            .await
            .map_err(Error::store)?
        {
            SetAnswer::Set => Ok(()),
            SetAnswer::NotHeld => Err(Error::lost(self.loss())),
            SetAnswer::Refused(refusal) => Err(Error::Refused { lock: cell.lock.clone(), refusal }),
        }
    }

    /// Returns what shows the store that something may run under this lease; `None` if the store proves no deaths, or
    /// nothing runs under it any more.
    ///
    /// For work that outlives a crash of this process, such as a child process: one that inherits the
    /// [descriptor](Presence::descriptor) is waited for before the session counts as dead.
    #[must_use]
    pub fn presence(&self) -> Option<Presence> {
        self.cell.presence()
    }

    /// Runs a task that ends with this lease: cancelled with it, dropped when its time is over, and
    /// waited for before the lock is released. The lease does not end with the task:
    /// [unlock](crate::Elect::unlock) the key when it has ended, if another instance is to have it then.
    ///
    /// If the lease's job has returned already, the task is not started and ends as cancelled.
    pub fn spawn<O, F>(&self, task: F) -> JoinHandle<JobEnd<O::Value, O::Error>>
    where
        O: JobOutput,
        F: Future<Output = O> + Send + 'static,
    {
        let worker = self.cell.enter();
        let cell = self.cell.clone();
        self.cell.engine.runtime.spawn(async move {
            match worker {
                Some(worker) => {
                    let end = job::drive(&cell, task.map(O::into_result)).await;
                    drop(worker);
                    end
                }
                None => JobEnd::Cancelled(cell.loss().unwrap_or(Loss::Resigned)),
            }
        })
    }
}

/// The lock and its term.
impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} under term {}", self.lock(), self.term())
    }
}
