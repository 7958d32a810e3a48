//! A lock held by a value.

use std::{future::Future, time::Duration};

use super::{Error, JobEnd, Lease, hold::Hold, job};
use crate::model::{Key, Loss, StoreTime, Term};

/// A lock that is held until this is released or dropped, or the lease is lost.
///
/// Code beside a guard is not stopped by a loss: watch [`lost`](Self::lost), or let [`run`](Self::run) stop it.
/// Dropping a guard releases the lock in the background; from any thread, also outside a runtime and
/// while the runtime shuts down (then the session is closed, which frees it too). A process that ends meanwhile may be
/// faster than its store: after a return from `main` without [`close`](super::Elect::close) the key may be free only a
/// ttl later. There are other [ways to give a key up](crate::elect#ways-to-give-a-key-up).
#[derive(Debug)]
#[must_use = "dropping a guard releases its lock"]
pub struct Guard {
    hold: Hold,
}

impl Guard {
    pub(crate) const fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// Returns the lease, to be passed on to what runs under the lock.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.hold.lease()
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.hold.cell().lock.key
    }

    /// Returns the fencing number: larger than that of every earlier holder.
    #[must_use]
    pub fn term(&self) -> Term {
        self.hold.cell().term
    }

    /// Returns when the lock was acquired, by the store's clock.
    #[must_use]
    pub fn acquired_at(&self) -> StoreTime {
        self.hold.cell().since
    }

    /// Returns whether the lock is still held, by this machine's clock.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.lease().is_valid()
    }

    /// Returns whether the lock is lost, or about to be.
    pub(crate) fn is_lost(&self) -> bool {
        let lease = self.lease();
        lease.is_cancelled() || !lease.is_valid()
    }

    /// Returns how long the lock stays valid if no further heartbeat is acknowledged.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease().remaining()
    }

    /// Asks the store whether the lock is still held. See [`Lease::check`].
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn check(&self) -> Result<bool, Error> {
        self.lease().check().await
    }

    /// Waits until the lock is lost, or is about to be: what runs under it should stop within
    /// [`remaining`](Self::remaining). It looks at the clock itself, as [`Lease::cancelled`] does.
    ///
    /// # Panics
    /// In a task of a tokio runtime without timers.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn lost(&self) -> Loss {
        let lease = self.lease();
        lease.cancelled().await;
        lease.loss().unwrap_or(Loss::Resigned)
    }

    /// Runs a future for as long as the lock is held: cancelled by its lease's token, dropped when its time
    /// is over.
    ///
    /// # Cancel safety
    /// Dropping this drops the job.
    pub async fn run<T, E, F>(&self, job: impl FnOnce(Lease) -> F) -> JobEnd<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let worker = self.hold.work();
        let lease = self.lease();
        let end = job::drive(self.hold.cell(), async move { job(lease).await }).await;
        drop(worker);
        end
    }

    /// Releases the lock, and waits until that is confirmed. One of the [ways to give a key
    /// up](crate::elect#ways-to-give-a-key-up).
    ///
    /// # Errors
    /// The store did not confirm it in time. It goes on trying; the lock is free at the latest when this
    /// instance's session is dead.
    ///
    /// # Cancel safety
    /// Dropped, it goes on in the background.
    pub async fn release(self) -> Result<(), Error> {
        let cell = self.hold.cell().clone();
        drop(self);
        if cell.returned().await { Ok(()) } else { Err(Error::store(super::error::unconfirmed())) }
    }
}

/// Several locks, held together.
#[derive(Debug)]
#[must_use = "dropping guards releases their locks"]
pub struct Guards {
    guards: Vec<Guard>,
}

impl Guards {
    pub(crate) const fn new(guards: Vec<Guard>) -> Self {
        Self { guards }
    }

    /// Returns the guards, in the order of their keys.
    pub fn each(&self) -> &[Guard] {
        &self.guards
    }

    /// Returns whether all of them are still held, by this machine's clock.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.guards.iter().all(Guard::is_valid)
    }

    /// Waits until one of them is lost, or is about to be.
    pub async fn lost(&self) -> Loss {
        if self.guards.is_empty() {
            return std::future::pending().await;
        }
        let lost: Vec<_> = self.guards.iter().map(|guard| Box::pin(guard.lost())).collect();
        futures::future::select_all(lost).await.0
    }

    /// Releases all of them. One of the [ways to give a key up](crate::elect#ways-to-give-a-key-up).
    ///
    /// # Errors
    /// As [`Guard::release`]; all of them are given back all the same.
    pub async fn release(self) -> Result<(), Error> {
        let released = self.guards.into_iter().map(Guard::release);
        futures::future::join_all(released).await.into_iter().collect()
    }
}
