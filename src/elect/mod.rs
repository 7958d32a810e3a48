//! The engine: sessions, locks, campaigns, guards, and jobs under a lease.
//!
//! ```text
//!  Elect ── keys ───── one machine a key (logic/key), a task for each with something to do
//!    │       ├─ lease, job    what a job gets, and the future that is polled only while it is valid
//!    │       ├─ batch         takes and releases that come together leave together
//!    │       └─ watcher       sessions of others, and their deaths (logic/watch)
//!    ├── keeper ───── beats and the session's end (logic/session), on the engine's thread, as all work on the store
//!    ├── time ─────── tells that a lease ends, if the keeper hangs
//!    └── upkeep ───── hints, the audit, the purge
//! ```
//!
//! # Ways to give a key up
//!
//! A lock is released only when nothing runs under it any more: each of these cancels what runs under the key,
//! by the lease's [token](Lease::token), and gives it `stop_grace` to return. They differ in what is given up, and in
//! whether the caller waits. "Passed on" means: held by the first in the queue, by the same write, or free if the queue
//! is empty.
//!
//! | call | gives up | awaits the end of the job | the store shows afterwards | for |
//! |---|---|---|---|---|
//! | the job returns | its key | | passed on; a [campaign](Campaign) contends again after a rest | the job |
//! | the [timeout](KeyRequest::timeout) of a request is over | its key | | as when the job returns | what may hang |
//! | [`Elect::unlock`] | one key, whatever holds it here | yes, and the release | passed on; held as long as a [`Guard`] of it is kept; a campaign contends again after a rest | any code that knows the key |
//! | [`Elect::release_all`] | all keys of this instance, tasks and schedules too | yes, and the releases | passed on; campaigns and spreads go on | operators |
//! | [`Guard::release`], [`Guards::release`] | the guard's keys | yes, and the releases | passed on | the code that has the guard |
//! | drop of a [`Guard`] or [`Guards`] | the guard's keys | no | passed on soon after | the code that has the guard |
//! | drop of a [`JobHandle`] | nothing: the job runs on | | held | |
//! | [`Campaign::resign`] | the campaign's key | no | passed on; contends again after a rest | the program that leads |
//! | [`Campaign::stop`] | the campaign, with its key | yes, and the release | passed on | the code that has the campaign |
//! | drop of a [`Campaign`] | the campaign, with its key | no | passed on soon after | the code that has the campaign |
//! | [`Spread::remove`](crate::spread::Spread::remove) | one task, here | no | free, for the others that know it | the program |
//! | [`Spread::drain`](crate::spread::Spread::drain) | all tasks of the spread, one after the other | no | held by the others, as they take them | operators |
//! | [`Spread::stop`](crate::spread::Spread::stop) | this instance's part of the spread | yes, and the releases | held by the others, as they take them | the code that has the spread |
//! | drop of a [`Spread`](crate::spread::Spread) | this instance's part of the spread | no | held by the others, as they take them | the code that has the spread |
//! | drop of a [`Schedule`](crate::schedule::Schedule) | the schedule, here, with the run that is on | no | held by another instance that has the schedule | the code that has the schedule |
//! | [`Elect::close`] | everything, and the session | yes, and the releases | passed on; the session is dead, closed by its own instance | the program, at its end |
//! | [`Elect::close_for_restart`] | everything, and the session | yes, and the releases | tasks of spreads are reserved for the next instance of this holder's name, other keys are passed on | the program, at a restart |
//! | drop of the last handle of an instance | the session: nothing runs any more | | the session is dead, closed by its own instance | |
//! | [`Revocation::Drain`] | all tasks and schedules of another instance, which is asked to give them up | no | held by the others, as they take them | operators |
//! | [`Elect::revoke`] | the key of another instance, which is asked to give it up | no | passed on when that holder's job has stopped | operators |
//!
//! A key that is not given back in time stays held, and is free when the session is dead: at the latest a ttl after its
//! last beat.
//!
//! # As JSON
//!
//! Every type that shows a state implements [`serde::Serialize`], for commands, pages and scripts: [`Health`],
//! [`Event`], [`HeldBy`], [`LockedKeys`], [`CloseReport`], [`SpreadStatus`](crate::spread::SpreadStatus),
//! [`Explanation`](crate::spread::Explanation), [`ScheduleStatus`](crate::schedule::ScheduleStatus),
//! [`Overdue`](crate::schedule::Overdue), the records of [`model`](crate::model), and the [pages](crate::store::Page)
//! that list them. All of them keep one convention:
//!
//! | what | how |
//! |---|---|
//! | names | `snake_case` |
//! | a duration | a whole number of milliseconds, in a field whose name ends in `_ms`: scripts and pages compute with it |
//! | an instant | RFC 3339 in UTC, as [`StoreTime`](crate::model::StoreTime) is displayed: `"2026-11-21T03:00:00Z"` |
//! | an enum with data | an object that says which by its `kind`: `{"kind": "revoked", "by": "ops", "why": "maintenance"}` |
//! | an enum without data | a word: `"timed_out"` |
//! | a lock's [`Kind`] | as it is displayed: `"lock"`, `"schedule"`, `"task:topics"` |
//! | a session | its 32 hexadecimal digits |
//! | a [value](crate::model::Value) | its text, or `{"hex": "00ff"}` if it is not UTF-8 |
//! | a number | at most 2^53 - 1, which every tool reads exactly |
//! | what there is not | `null` |
//!
//! Fields may be added in any release, and kinds to enums that are `#[non_exhaustive]`: readers pass over those they
//! do not know.

mod ask;
mod audit;
mod batch;
mod campaign;
mod engine;
mod entropy;
mod error;
mod events;
mod guard;
mod health;
mod hold;
mod inbox;
pub(crate) mod job;
mod keeper;
mod key_task;
mod keys;
mod leader;
mod lease;
mod listening;
pub(crate) mod metrics;
mod namesakes;
mod nesting;
mod own_look;
mod parcel;
mod probe;
mod report;
mod runtime;
mod schedule_inbox;
mod session;
mod spreads;
mod start;
mod store_times;
mod tallies;
mod ticket;
mod time;
mod troubles;
mod unreadable;
mod upkeep;
mod wakes;
mod watcher;
mod work;

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use futures::future::join_all;
use serde::Serialize;

pub use ask::{Acquired, Busy, KeyRequest, Locked};
pub use campaign::{Campaign, CampaignBuilder, Resigned};
pub use error::Error;
pub use events::{Event, EventStream};
pub use guard::{Guard, Guards};
pub use health::{Health, Status};
pub use job::{JobEnd, JobHandle, JobOutput};
pub use leader::{HeldBy, LeaderWatch};
pub use lease::Lease;
pub use start::{Builder, StartError};
pub use troubles::Trouble;
pub use work::Work;

pub(crate) use engine::{Engine, LastFailure};
pub(crate) use events::EventFilter;
pub(crate) use hold::{Hold, RunPermit};
pub(crate) use inbox::Inbox;
pub(crate) use job::{call as call_blocking, panic_message};
#[cfg(tenure_sim)]
pub use runtime::Tasks;
pub(crate) use schedule_inbox::SchedulesShare;
pub(crate) use session::Session;
pub(crate) use spreads::SpreadNews;
pub(crate) use tallies::Note;
pub(crate) use ticket::{AcquireOutcome, Wants};

use self::engine::LAST_WORDS;
use crate::{
    config::ElectConfig,
    error::chain,
    logic::{
        key::{Standing, WaitMode},
        session::LONGEST_ATTEMPT,
    },
    model::{Key, Kind, LockId, Loss, Why},
    store::{
        LockRecord, LockSeen, Page, Refusal, ReleaseAnswer, Request, Revocation, RevokeAnswer, Store,
        StoreExt,
    },
    words,
};

/// Number of records in a page of a listing.
const PAGE: usize = 1000;

/// An instance. It holds locks under one session, and runs jobs under them.
///
/// Cheap to clone: clones are the same instance. It ends when it is [closed](Self::close), or when the
/// last of its handles, guards, campaigns and jobs is gone. All that gives a key up is in
/// [one table](crate::elect#ways-to-give-a-key-up).
#[derive(Clone, Debug)]
pub struct Elect {
    life: Arc<Life>,
}

/// Keeps the engine running. The engine ends soon after the last one is dropped.
#[derive(Debug)]
pub(crate) struct Life {
    engine: Arc<Engine>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.engine.end_gently();
    }
}

/// Outcome of [`unlock`](Elect::unlock).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Unlocked {
    /// The job has stopped and the lock is released.
    Released,
    /// The key is not held by this instance.
    NotHeld,
    /// The job was cancelled and has not stopped yet, or the store has not confirmed the release. The lock is
    /// released as soon as possible.
    Pending,
}

/// Outcome of [`close`](Elect::close).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CloseReport {
    /// Locks whose jobs, blocking calls or guards had not ended in time. The session is left to be
    /// declared dead by others, so that no instance takes these over too early. But under a guard whose key is wanted
    /// [at least](KeyRequest::at_least) for longer, its lock is released: the key is closed for the rest, and for a ttl
    /// at least, by the store's clock.
    pub overran: Vec<LockId>,
    /// Locks under which nothing runs any more, and whose release the store did not confirm in time. They
    /// are free when the session is closed, which is tried as well, or at the latest a ttl later.
    pub unconfirmed: Vec<LockId>,
}

/// A page of locks as the store lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockedKeys {
    /// Locks that are held, in the order of their ids: by kind, then by key.
    pub held: Vec<HeldBy>,
    /// Records that cannot be read: their names, and the reasons.
    #[serde(serialize_with = "crate::store::refused")]
    pub refused: Vec<(String, Refusal)>,
}

/// The locks that are held, without the records that cannot be read.
impl IntoIterator for LockedKeys {
    type Item = HeldBy;
    type IntoIter = std::vec::IntoIter<HeldBy>;

    fn into_iter(self) -> Self::IntoIter {
        self.held.into_iter()
    }
}

impl Elect {
    /// Starts an instance, and waits until it has a session.
    ///
    /// It needs a tokio runtime, on which jobs and callbacks run. Its beats are on a thread of their own,
    /// with a connection of their own where the store has such, so that they do not starve with the
    /// program.
    ///
    /// # Errors
    /// The configuration breaks a rule, or the store does not answer within `refresh_duration`.
    pub async fn start(store: impl Into<Arc<dyn Store>>, config: ElectConfig) -> Result<Self, StartError> {
        Self::builder(store, config).start().await
    }

    /// Builds an instance with settings other than the defaults.
    pub fn builder(store: impl Into<Arc<dyn Store>>, config: ElectConfig) -> Builder {
        Builder::new(store.into(), config)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.life.engine
    }

    pub(crate) fn life(&self) -> Arc<Life> {
        self.life.clone()
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &ElectConfig {
        &self.engine().config
    }

    /// Asks for a key: [`KeyRequest`] says how it is wanted, and what for.
    pub fn key(&self, key: impl AsRef<str>) -> KeyRequest {
        KeyRequest::new(self.clone(), key)
    }

    /// Runs a job under the lock of a key if the key is free. Does not wait for it, as
    /// [`with_lock`](Self::with_lock) does. See [`KeyRequest::lock`].
    ///
    /// # Errors
    /// A limit is broken, the record cannot be used, the store does not answer, or the engine is closed.
    pub async fn lock<T, E, F>(
        &self,
        key: impl AsRef<str>,
        job: impl FnOnce(Lease) -> F + Send + 'static,
    ) -> Result<Locked<T, E>, Error>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        self.key(key).lock(job).await
    }

    /// Waits for the lock of a key, runs the job within this call, and releases the lock. See
    /// [`KeyRequest::with_lock`].
    ///
    /// # Errors
    /// A limit is broken, or the engine is closed.
    pub async fn with_lock<T, E, F>(
        &self,
        key: impl AsRef<str>,
        job: impl FnOnce(Lease) -> F,
    ) -> Result<JobEnd<T, E>, Error>
    where
        F: Future<Output = Result<T, E>>,
    {
        self.key(key).with_lock(job).await
    }

    /// Waits for the lock of a key. See [`KeyRequest::acquire`].
    ///
    /// # Errors
    /// A limit is broken, or the engine is closed.
    pub async fn acquire(&self, key: impl AsRef<str>) -> Result<Guard, Error> {
        self.key(key).acquire().await
    }

    /// Waits for the locks of several keys: all of them, or after so much time none. They are taken in
    /// sorted order, so that two callers that want the same ones do not wait for each other for ever. One
    /// that is lost while others are waited for is waited for again: all of them are held when they are answered.
    ///
    /// # Errors
    /// As [`KeyRequest::acquire_within`].
    pub async fn acquire_all<K: AsRef<str>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        within: Duration,
    ) -> Result<Option<Guards>, Error> {
        let keys: Result<Vec<Key>, _> = keys.into_iter().map(Key::new).collect();
        let mut keys = keys?;
        keys.sort();
        keys.dedup();
        let until = self.engine().clock.now() + within;
        let mut guards: Vec<Guard> = Vec::with_capacity(keys.len());
        loop {
            // A lock that was lost while others were waited for is acquired again, and all after it,
            // so that the order is kept.
            if let Some(lost) = guards.iter().position(Guard::is_lost) {
                guards.truncate(lost);
            }
            let Some(key) = keys.get(guards.len()) else { break Ok(Some(Guards::new(guards))) };
            let left = until.since(self.engine().clock.now());
            match self.key(key).acquire_within(left).await? {
                Some(guard) => guards.push(guard),
                // Guards that were acquired by then are dropped, and so released.
                None => break Ok(None),
            }
        }
    }

    /// Contends for a key until stopped. See [`CampaignBuilder`].
    pub fn campaign(&self, key: impl AsRef<str>) -> CampaignBuilder {
        self.key(key).campaign()
    }

    /// Follows the holder of a key, without contending for it.
    ///
    /// # Errors
    /// The key breaks a limit.
    pub fn watch(&self, key: impl AsRef<str>) -> Result<LeaderWatch, Error> {
        Ok(self.engine().leaders.watch(self.engine(), &self.lock_id(key)?))
    }

    fn lock_id(&self, key: impl AsRef<str>) -> Result<LockId, Error> {
        let namespace = self.config().namespace().clone();
        Ok(LockId { namespace, kind: Kind::Lock, key: Key::new(key)? })
    }

    /// Cancels whatever runs here under a key, and waits until its lock is released. Bounded by the grace and
    /// two attempts at the store. One of the [ways to give a key up](crate::elect#ways-to-give-a-key-up).
    ///
    /// # Errors
    /// The key breaks a limit.
    pub async fn unlock(&self, key: impl AsRef<str>) -> Result<Unlocked, Error> {
        let lock = self.lock_id(key)?;
        let Some(lease) = self.engine().keys.lease(&lock) else { return Ok(Unlocked::NotHeld) };
        let returned = self.engine().keys.when_returned(&lock, lease.ticket);
        lease.cancel(&Loss::Resigned);
        let Some(returned) = returned else { return Ok(Unlocked::Released) };
        let patience = self.engine().times.stop_grace + LONGEST_ATTEMPT * 2;
        match tokio::time::timeout(patience, returned).await {
            Ok(_) => Ok(Unlocked::Released),
            Err(_) => Ok(Unlocked::Pending),
        }
    }

    /// Cancels everything that runs here, and waits until all locks are released. Returns those that were not
    /// released in time. Campaigns contend again after a rest. One of the [ways to give a key
    /// up](crate::elect#ways-to-give-a-key-up).
    pub async fn release_all(&self) -> Vec<LockId> {
        let late = self.give_up_all(&Loss::Resigned).await;
        late.overran.into_iter().chain(late.unconfirmed).collect()
    }

    async fn give_up_all(&self, loss: &Loss) -> CloseReport {
        let engine = self.engine();
        let leases = engine.keys.leases();
        let returned: Vec<_> = leases
            .iter()
            .filter_map(|lease| Some((lease.clone(), engine.keys.when_returned(&lease.lock, lease.ticket)?)))
            .collect();
        for lease in &leases {
            lease.cancel(loss);
        }
        let begun = engine.clock.now();
        // Futures are dropped when the grace is over; a little later what still runs will not stop soon.
        let stopped = engine.times.stop_grace + engine.times.stop_grace / 10 + Duration::from_millis(50);
        let mut late = CloseReport::default();
        for (lease, mut returned) in returned {
            let left = |patience: Duration| (begun + patience).since(engine.clock.now());
            if tokio::time::timeout(left(stopped), &mut returned).await.is_ok() {
                continue;
            }
            // Only what has stopped, and is on its way to the store, is waited for longer.
            let patience = if lease.runs() { Duration::ZERO } else { stopped + LONGEST_ATTEMPT * 2 };
            if tokio::time::timeout(left(patience), returned).await.is_err() {
                let those = if lease.runs() { &mut late.overran } else { &mut late.unconfirmed };
                those.push(lease.lock.clone());
            }
        }
        late
    }

    /// Asks the holder of a lock to release it: its job is cancelled with `by` and `why` as the reason, has
    /// the grace to stop, and its campaign pauses for a while. The holder learns of it with its next heartbeat; at
    /// once if it also waits for a key or has a spread, and the store gives hints.
    ///
    /// Returns whether the lock had that holder. One of the [ways to give a key
    /// up](crate::elect#ways-to-give-a-key-up).
    ///
    /// # Errors
    /// The reason breaks a limit, the session's record cannot be written, or the store did not answer; then it
    /// may have been asked.
    pub async fn revoke(&self, held: &HeldBy, why: impl AsRef<str>) -> Result<bool, Error> {
        let (lock, term, why) = (held.lock.clone(), held.term, Why::new(why)?);
        let by = self.config().holder().clone();
        let ask = Revocation::Ask { session: held.session, request: Request { lock, term, by, why } };
        let had = self.is_held(held).await?;
        let limit = self.engine().limit();
        match self
            .engine()
            .call(Work::Requested, limit, self.engine().given.revoke(ask, limit))
            .await
            .map_err(Error::store)?
        {
            // A read that follows a majority write misses no grant from before it.
            RevokeAnswer::Asked | RevokeAnswer::Freed(_) => Ok(had || self.is_held(held).await?),
            RevokeAnswer::NotHeld => Ok(false),
            RevokeAnswer::Refused(refusal) => Err(Error::Refused { lock: held.lock.clone(), refusal }),
        }
    }

    /// Reads whether the lock has that holder: a session under a term.
    async fn is_held(&self, held: &HeldBy) -> Result<bool, Error> {
        let seen = self.engine().requested_look(held.lock.clone()).await?;
        Ok(matches!(seen, LockSeen::Found(record)
            if record.term == held.term && record.is_held_by(held.session)))
    }

    /// Returns the locks of this instance with their leases: locks, tasks of spreads, and schedules, told
    /// apart by their [kind](LockId::kind).
    #[must_use]
    pub fn holding_keys(&self) -> BTreeMap<LockId, Lease> {
        let leases = self.engine().keys.leases().into_iter().map(Lease::of);
        leases.map(|lease| (lease.lock().clone(), lease)).collect()
    }

    /// Returns everything that is held in the namespace, by any instance, as the store lists it: locks, tasks
    /// of spreads, and schedules, told apart by the [kind](LockId::kind) of [`HeldBy::lock`]; with holder,
    /// term, time, and whether the holder is stale.
    ///
    /// Reads all of it, a thousand at a time: for people, not for a loop. It is what the store has at that moment; on
    /// MongoDB the primary, so a failover may undo what is listed.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn locked_keys(&self) -> Result<LockedKeys, Error> {
        let engine = self.engine();
        let namespace = engine.config.namespace();
        let mut all = LockedKeys::default();
        let mut after = None;
        loop {
            let limit = engine.limit();
            let page = engine.given.list_locks(namespace.clone(), None, after, PAGE, limit);
            let page: Page<LockRecord> =
                engine.call(Work::Requested, limit, page).await.map_err(Error::store)?;
            let sessions =
                page.items.iter().filter_map(|record| record.holding.as_ref()).map(|held| held.by.session);
            engine.watcher.meet(engine, sessions.collect()).await;
            for record in page.items {
                let session = record.holding.as_ref().map(|held| held.by.session);
                let liveness = session.and_then(|session| engine.watcher.known(session));
                all.held.extend(HeldBy::of(record, liveness));
            }
            all.refused.extend(page.refused);
            after = page.next;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Returns the events from now on. A reader that is too slow loses events and gets their number.
    #[must_use]
    pub fn events(&self) -> EventStream {
        self.engine().events.listen(EventFilter::All)
    }

    /// Returns the health of the instance, from what is known here: no call is made.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::of(self.engine())
    }

    /// Ends the instance: refuses new tickets, stops campaigns, cancels every job and waits for it, releases
    /// all locks, and closes the session in the store. Bounded by the grace and a few attempts at the store:
    /// the report lists what has not ended by then, and what the store has not confirmed. One of the [ways to
    /// give a key up](crate::elect#ways-to-give-a-key-up).
    ///
    /// Call it before `main` returns: the end of the process waits neither for jobs that block nor for the store, and
    /// what was not given back by then is free only a ttl later.
    ///
    /// # Cancel safety
    /// Dropped half-way, what was cancelled stops; call it again to wait for the rest. The session lives until that call
    /// or until the last handle is dropped.
    pub async fn close(&self) -> CloseReport {
        let engine = self.engine();
        engine.retire();
        let closed = self.give_up_all(&Loss::Closed).await;
        if closed == CloseReport::default() {
            // Places in the queue are left, too; if the store does not answer, they are passed over.
            let _ = tokio::time::timeout(LONGEST_ATTEMPT, engine.keys.settled()).await;
        }
        self.keep_closed().await;
        engine.closing.cancel();
        let (sender, closed_session) = tokio::sync::oneshot::channel();
        engine.close_session(Some(sender));
        // Jobs that still run keep the session from being closed: others will see to it.
        if closed.overran.is_empty() {
            // An error says that the keeper has ended already.
            let _ = tokio::time::timeout(LONGEST_ATTEMPT * 3, closed_session).await;
        }
        // The keeper may hang.
        engine.end();
        // Programs exit after this.
        engine.tell_log(LAST_WORDS).await;
        closed
    }

    /// Releases keys that are wanted [at least](KeyRequest::at_least) for longer, though a guard of them is still there:
    /// they stay closed for the rest.
    async fn keep_closed(&self) {
        let engine = self.engine();
        let leases = engine.keys.leases();
        let released = leases.iter().filter_map(|lease| lease.closed_release()).map(async |release| {
            let lock = release.lock.clone();
            // The keeper may hang.
            let answer = tokio::time::timeout(LONGEST_ATTEMPT * 2, async {
                match engine.release(release.clone(), false).await {
                    Err(_) => engine.release(release, true).await,
                    answer => answer,
                }
            });
            let error = match answer.await {
                Ok(Ok(ReleaseAnswer::Refused(refusal))) => refusal.to_string(),
                Ok(Ok(_)) => return,
                Ok(Err(error)) => chain(&error),
                Err(_) => "no answer".to_owned(),
            };
            let (LockId { kind, key, namespace }, holder) = (&lock, engine.config.holder());
            words::warn!(%kind, key = key.as_str(), %namespace, %holder, error, "could not keep a key closed that was wanted for longer: it is free when the session is dead");
        });
        join_all(released).await;
    }

    /// [Closes](Self::close), and reserves the tasks of its spreads for the next instance of the same holder
    /// name: no other instance takes them for `grace`, so that a rolling restart moves nothing. Jobs are
    /// cancelled and waited for as usual; nothing is handed over. Locks that are not tasks are released.
    ///
    /// If the store does not answer, or a job overruns, nothing is reserved: other instances take over as after
    /// a crash. One of the [ways to give a key up](crate::elect#ways-to-give-a-key-up).
    ///
    /// # Cancel safety
    /// Dropped half-way it either goes on as [`close`](Self::close) does, or nothing has happened.
    pub async fn close_for_restart(&self, grace: Duration) -> CloseReport {
        let engine = self.engine();
        if let Some(reserving) = engine.spreads.reserve(grace) {
            engine.hurry();
            let published = engine.spreads.published(reserving.version());
            if tokio::time::timeout(LONGEST_ATTEMPT, published).await.is_ok() {
                reserving.keep();
            } else {
                drop(reserving);
                words::warn!(namespace = %engine.config.namespace(), holder = %engine.config.holder(), "the store did not answer: tasks are not reserved for the restart");
            }
        }
        self.close().await
    }

    /// Waits for the lock of a key, over as many sessions as it takes, but no longer than this. Returns what is known of
    /// the lock if it was not granted by then.
    pub(crate) async fn wait_for(
        &self,
        lock: &LockId,
        wants: &Wants,
        within: Option<Duration>,
    ) -> Result<Result<Hold, Standing>, Error> {
        let engine = self.engine();
        let end = async {
            match within {
                Some(within) => tokio::time::sleep(within).await,
                None => std::future::pending().await,
            }
        };
        let mut end = std::pin::pin!(end);
        loop {
            let session = tokio::select! {
                biased;
                session = engine.valid_session() => session?,
                () = end.as_mut() => return Ok(Err(Standing::Unknown)),
            };
            let mut ticket = engine.contend(&session, Some(self.life()), lock, wants, WaitMode::WAITS);
            let outcome = tokio::select! {
                biased;
                outcome = ticket.outcome() => outcome,
                () = engine.retiring.cancelled() => return Err(Error::Closed),
                () = end.as_mut() => return Ok(match ticket.give_up() {
                    Some(standing) => Err(standing),
                    // The answer is on its way.
                    None => match ticket.outcome().await {
                        AcquireOutcome::Granted(hold) => Ok(hold),
                        AcquireOutcome::Other(_) => Err(Standing::Unknown),
                    },
                }),
            };
            if let AcquireOutcome::Granted(hold) = outcome {
                return Ok(Ok(hold));
            }
        }
    }
}
