//! The store for the fleet: a MongoDB replica set of 6.0 or later.
//!
//! Works on a standalone server too. On a sharded cluster every filter names the
//! `_id`, which is what sharding needs; that was not tested.
//!
//! The driver is re-exported as [`mongodb`](driver) so that a program that passes its own client, or
//! uses the [`Fence`] in its transactions, uses the same one.

mod client;
mod documents;
mod fence;
mod hints;
mod ops;
mod stamp;
#[cfg(test)]
#[allow(clippy::too_many_lines, reason = "a snapshot is as long as what the server is sent")]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

pub use ::mongodb as driver;
use bson::doc;
use futures::stream::BoxStream;
use mongodb::{Client, Database};
use tokio_util::sync::CancellationToken;

pub use client::{error::ConnectError, options::MongoOptions};
pub use fence::{Armed, FENCE_SLOTS, Fence, Stale};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use ops::bare;
pub use stamp::Stamp;

use self::{
    client::{
        aside,
        command::{run, within},
        connect::{self, CLOSING, FIRST_ANSWER, OwnClient, Uri},
        error::{self, CommandFailure, CommandResult},
        indexes,
        marks::Marks,
        options::{Collections, check_name},
        prepare,
        renewal::{Connection, Current},
        rights, role,
    },
    hints::{Buckets, Hints, Ringer, Shared, Unseen},
    ops::{locks, purge, queue, release, revoke, runs, schedules, sessions, take},
};
use super::{Answer, Capabilities, Hint, Op, Reach, Reply, Store, Topics, rings};
use crate::words;

/// A tail waits no longer for a bell: after a cut of the network that nobody reports it would be deaf for so long.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A script for the server's shell that creates the collections and indexes of a store, for operators who do not let
/// their programs do it.
#[must_use]
pub fn index_script(database: impl AsRef<str>, options: &MongoOptions) -> String {
    let (database, names) = (database.as_ref(), Collections::new(&options.prefix));
    indexes::script(database, &names) + &Buckets::new(options).script("tenure")
}

/// The names of the indexes of each collection that the script of [`index_script`] creates, for operators who look
/// whether all are there.
#[must_use]
pub fn index_names(options: &MongoOptions) -> Vec<(String, Vec<&'static str>)> {
    indexes::names(&Collections::new(&options.prefix))
}

/// A script for the server's shell that creates the role with the least rights that a store needs, for its user. For a
/// store that [only reads](MongoOptions::read_only) it is another role, with fewer rights.
#[must_use]
pub fn role_script(database: impl AsRef<str>, options: &MongoOptions) -> String {
    let names = Collections::new(&options.prefix);
    role::script(database.as_ref(), &names, options)
}

/// A store in MongoDB. Cheap to clone; its clones share one client, and what is open for hints.
#[derive(Clone)]
pub struct MongoStore {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Arc<Connection>,
    /// The same with a client for heartbeats alone, of a dedicated store: the driver closes all connections of a client
    /// to a server when one of them is refused or breaks.
    beats: Option<MongoStore>,
    names: Collections,
    hints: Arc<Hints>,
    /// False behind a router: bells are tailed at one server.
    has_bells: bool,
    buckets: Arc<Buckets>,
    ringer: Arc<Ringer>,
    unseen: Arc<Unseen>,
    marks: Arc<Marks>,
    options: MongoOptions,
}

impl Inner {
    fn new(
        current: Current,
        options: MongoOptions,
        (has_bells, buckets): Prepared,
        marks: Arc<Marks>,
    ) -> Self {
        let (names, stop) = (Collections::new(&options.prefix), CancellationToken::new());
        let connection = Arc::new(Connection::new(current, options.clone(), marks.clone(), stop.clone()));
        let ringer = Arc::new(Ringer::new(Arc::clone(&connection), Arc::clone(&buckets), stop.clone()));
        let unseen: Arc<Unseen> = Arc::default();
        let shared = Shared {
            connection: Arc::clone(&connection),
            names: names.clone(),
            buckets: Arc::clone(&buckets),
            unseen: Arc::clone(&unseen),
            wait: options.hint_wait.min(LONGEST_WAIT),
            create: options.creates(),
            has_bells,
            board: Arc::default(),
            ringer: Arc::clone(&ringer),
        };
        let hints = Arc::new(Hints::new(shared, stop));
        Self { connection, beats: None, names, hints, has_bells, buckets, ringer, unseen, marks, options }
    }
}

impl fmt::Debug for MongoStore {
    // Without the client: it knows the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoStore")
            .field("database", &self.database().name())
            .field("collections", &self.inner.names.all())
            .finish_non_exhaustive()
    }
}

impl MongoStore {
    /// Connects with a client of the store's own.
    ///
    /// Whatever the connection string says of write and read concern, read preference and retries is
    /// overruled: what decides is written to a majority and read from one ([R11](crate::store#rules-of-safety)).
    ///
    /// # Errors
    /// [`ConnectError`], without the password in it.
    pub async fn connect(uri: impl AsRef<str>, options: MongoOptions) -> Result<Self, ConnectError> {
        options.check()?;
        let uri = Uri::new(uri.as_ref());
        let made = uri.client(&options).await?;
        check_name(&made.database)?;
        let prepared = prepared(&made.client.database(&made.database), &options).await?;
        Ok(Self { inner: Arc::new(Inner::new(Current::own(made, uri), options, prepared, Arc::default())) })
    }

    /// Uses a client that the program has already.
    ///
    /// The weaker way: concerns and limits are set with each command and hold all the same, but the
    /// client's pool is shared with the program (the driver's default of 10 halves what 64 tasks get
    /// done), it may look for a server for as long as it was told to, and what it logs is its own
    /// business. And no second one can be made like it: there is no [dedicated](Store::dedicated) store
    /// for the keeper, whose beats wait with everything else, and none in its place when a password or certificate
    /// changes ([`uri_from`](MongoOptions::uri_from) is not asked).
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn with_client(client: &Client, options: MongoOptions) -> Result<Self, ConnectError> {
        options.check()?;
        let default = || client.default_database().map(|database| database.name().to_owned());
        let name = options.database.clone().or_else(default).unwrap_or_else(|| "tenure".to_owned());
        check_name(&name)?;
        let database = client.database(&name);
        let prepared = prepared(&database, &options).await?;
        let current = Current::lent(database, connect::lent_room());
        Ok(Self { inner: Arc::new(Inner::new(current, options, prepared, Arc::default())) })
    }

    /// Ends what the store and its client have under way: the last thing to do before a program ends its
    /// runtime. Bounded by three seconds, after which what is under way is left alone.
    ///
    /// No record is lost without it. But a client of the driver's that is dropped says goodbye to the server
    /// on a task of its own, and if the runtime ends under that the driver panics, on a thread of the
    /// runtime's (`connection_requester.rs`: `SendError`).
    ///
    /// Every handle of this store is closed with it: operations fail from then on, and hints end. A client
    /// that was [lent](Self::with_client) goes on; it is the program's to shut down.
    pub async fn close(&self) {
        let inner = &self.inner;
        let beats = async {
            if let Some(beats) = &inner.beats {
                beats.inner.connection.close(async {}).await;
            }
        };
        let closing = async {
            inner.hints.close().await;
            futures::future::join(beats, inner.connection.close(inner.ringer.at_rest())).await;
        };
        // An error says that the server does not answer.
        let _ = tokio::time::timeout(CLOSING, closing).await;
    }

    /// The same with other clients, which live on the runtime that runs this: one for heartbeats, one for all else. The
    /// database was looked at and prepared before.
    async fn connected_again(self, uri: Uri, name: String) -> CommandResult<Self> {
        // One thread tells of both, in order.
        let mut options = self.inner.options.clone();
        let handler = options.command_events.map(aside::events).transpose();
        options.command_events = handler.map_err(CommandFailure::not_begun)?;
        let connect = || self.connected_once_more(uri.clone(), name.clone(), options.clone());
        let (work, beats) = futures::future::try_join(connect(), connect()).await?;
        Ok(Self { inner: Arc::new(Inner { beats: Some(Self { inner: Arc::new(beats) }), ..work }) })
    }

    async fn connected_once_more(
        &self,
        uri: Uri,
        name: String,
        options: MongoOptions,
    ) -> CommandResult<Inner> {
        let Inner { has_bells, buckets, marks, .. } = &*self.inner;
        let made = uri.client(&options).await.map_err(CommandFailure::not_connected)?;
        // The string was read before, and so was the database's name.
        let made = OwnClient { database: name, ..made };
        // Finds the server and opens a connection now, so that no beat has to.
        run(&made.client.database(&made.database), doc! { "ping": 1 }).await?;
        let prepared = (*has_bells, Arc::clone(buckets));
        // Its bells go where its writes go: they wait for nobody else's runtime (R15).
        Ok(Inner::new(Current::own(made, uri), options, prepared, Arc::clone(marks)))
    }

    fn database(&self) -> Database {
        self.inner.connection.database()
    }

    fn names(&self) -> &Collections {
        &self.inner.names
    }

    fn marks(&self) -> &Marks {
        &self.inner.marks
    }

    fn place(&self) -> (Database, &Collections) {
        (self.database(), self.names())
    }
}

/// True if there are bells, and their collections.
type Prepared = (bool, Arc<Buckets>);

/// Looks at the database, and creates what is missing in it.
async fn prepared(database: &Database, options: &MongoOptions) -> Result<Prepared, ConnectError> {
    let names = Collections::new(&options.prefix);
    let (looked, at, read_only) = (database.clone(), names.clone(), options.read_only);
    let look = async move { prepare::look(&looked, &at, read_only).await };
    let is_mongos = within(FIRST_ANSWER, "connect", look).await??;
    if options.creates() {
        let created = database.clone();
        let create = async move {
            let lacking = prepare::create(&created, &names).await?;
            Ok(if lacking.is_empty() {
                Ok(())
            } else {
                Err(rights::may_not_create(&created, &lacking).await)
            })
        };
        within(FIRST_ANSWER, "create collections and indexes", create).await??;
    }
    if is_mongos {
        words::warn!("no hints, waiters poll every poll_interval: there are no bells behind a mongos");
    }
    Ok((!is_mongos, Arc::new(Buckets::new(options))))
}

/// Carries out an operation by the module of its subject.
async fn carry_out(store: MongoStore, op: Op, limit: Duration) -> CommandResult<Reply> {
    match op {
        Op::Open(open) => sessions::open(store, open, limit).await.map(Reply::Open),
        Op::Beat(beat) => sessions::beat(store, beat, limit).await.map(Reply::Beat),
        Op::Observe(sessions) => sessions::observe(store, sessions, limit).await.map(Reply::Observe),
        Op::Declare(declaration) => sessions::declare(store, declaration, limit).await.map(Reply::Declare),
        Op::Sessions(namespace, after, at_most) => {
            sessions::sessions(store, namespace, after, at_most, limit).await.map(Reply::Sessions)
        }
        Op::Take(takes, dead) => take::take(store, takes, dead, limit).await.map(Reply::Take),
        Op::Release(releases) => release::release(store, releases, limit).await.map(Reply::Release),
        Op::Wait(waits) => queue::wait(store, waits, limit).await.map(Reply::Wait),
        Op::StopWaiting(waits) => queue::stop_waiting(store, waits, limit).await.map(Reply::StopWaiting),
        Op::Waiters(lock, at_most) => queue::waiters(store, lock, at_most, limit).await.map(Reply::Waiters),
        Op::Places(places) => queue::places(store, places, limit).await.map(Reply::Places),
        Op::SetValue(set) => locks::set_value(store, set, limit).await.map(Reply::SetValue),
        Op::Locks(locks) => locks::locks(store, locks, limit).await.map(Reply::Locks),
        Op::Peek(locks) => locks::peek(store, locks, limit).await.map(Reply::Peek),
        Op::ListLocks(namespace, kind, after, at_most) => {
            locks::list_locks(store, namespace, kind, after, at_most, limit).await.map(Reply::ListLocks)
        }
        Op::HeldBy(session, after, at_most) => {
            locks::held_by(store, session, after, at_most, limit).await.map(Reply::HeldBy)
        }
        Op::LatestGrants(sessions, at_most) => {
            locks::latest_grants(store, sessions, at_most, limit).await.map(Reply::LatestGrants)
        }
        Op::Revoke(revocation) => revoke::revoke(store, revocation, limit).await.map(Reply::Revoke),
        Op::Define(define) => schedules::define(store, define, limit).await.map(Reply::Define),
        Op::Instruct(schedule, instruction) => {
            schedules::instruct(store, schedule, instruction, limit).await.map(Reply::Instruct)
        }
        Op::Schedules(schedules) => schedules::schedules(store, schedules, limit).await.map(Reply::Schedules),
        Op::ListSchedules(namespace, after, at_most) => {
            schedules::list_schedules(store, namespace, after, at_most, limit).await.map(Reply::ListSchedules)
        }
        Op::DeleteSchedule(schedule) => {
            runs::delete_schedule(store, schedule, limit).await.map(Reply::DeleteSchedule)
        }
        Op::Claim(claim) => runs::claim(store, claim, limit).await.map(Reply::Claim),
        Op::Finish(finish) => runs::finish(store, finish, limit).await.map(Reply::Finish),
        Op::History(schedule, after, at_most) => {
            runs::history(store, schedule, after, at_most, limit).await.map(Reply::History)
        }
        Op::LastRuns(schedules, at_most) => {
            runs::last_runs(store, schedules, at_most, limit).await.map(Reply::LastRuns)
        }
        Op::PurgeRuns(schedule, older_than, keep) => {
            runs::purge_runs(store, schedule, older_than, keep, limit).await.map(Reply::PurgeRuns)
        }
        Op::Purge(namespace, retention, after) => {
            purge::purge(store, namespace, retention, after, limit).await.map(Reply::Purge)
        }
    }
}

impl Store for MongoStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(error::STORE, Reach::Fleet, self.inner.has_bells.then_some("bells"))
    }

    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply> {
        let rung = rings::of(&op);
        self.ringing(limit, op.operation(), rung, move |store| carry_out(store, op, limit))
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.inner.hints.listen(topics)
    }

    /// With the connection string and the options this one was made with; not prepared again.
    ///
    /// Answers within 10 s. `None` if this one uses a client that it [was given](MongoStore::with_client).
    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        Box::pin(async {
            let used = self.inner.connection.current();
            let Some(uri) = used.uri.clone() else { return Ok(None) };
            let (store, name) = (self.clone(), used.database.name().to_owned());
            let again = async move {
                let connection = Arc::clone(&store.inner.connection);
                connection.watched(&used, store.connected_again(uri, name)).await
            };
            let store = within(FIRST_ANSWER, "open a second connection", again).await?;
            Ok(Some(Arc::new(store) as Arc<dyn Store>))
        })
    }

    fn at_rest(&self) -> Answer<'_, ()> {
        Box::pin(async {
            // No failed bell is tried again.
            self.inner.hints.close().await;
            self.inner.ringer.at_rest().await;
            Ok(())
        })
    }
}
