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
use super::{Answer, Capabilities, Hint, Reach, Store, Topics, rings};
use crate::{store_methods, words};

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
    /// Bells are rung by that ringer, or by one of its own.
    fn new(
        current: Current,
        options: MongoOptions,
        (has_bells, buckets): Prepared,
        marks: Arc<Marks>,
        ringer: Option<Arc<Ringer>>,
    ) -> Self {
        let (names, stop) = (Collections::new(&options.prefix), CancellationToken::new());
        let connection = Arc::new(Connection::new(current, options.clone(), marks.clone(), stop.clone()));
        let ringer = ringer.unwrap_or_else(|| {
            Arc::new(Ringer::new(Arc::clone(&connection), Arc::clone(&buckets), stop.clone()))
        });
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
        Ok(Self {
            inner: Arc::new(Inner::new(Current::own(made, uri), options, prepared, Arc::default(), None)),
        })
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
        Ok(Self { inner: Arc::new(Inner::new(current, options, prepared, Arc::default(), None)) })
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
        let Inner { has_bells, buckets, marks, ringer, .. } = &*self.inner;
        let made = uri.client(&options).await.map_err(CommandFailure::not_connected)?;
        // The string was read before, and so was the database's name.
        let made = OwnClient { database: name, ..made };
        // Finds the server and opens a connection now, so that no beat has to.
        run(&made.client.database(&made.database), doc! { "ping": 1 }).await?;
        let prepared = (*has_bells, Arc::clone(buckets));
        // Its runtime may end with its last write, and the bell of that be lost.
        let ringer = Some(Arc::clone(ringer));
        Ok(Inner::new(Current::own(made, uri), options, prepared, Arc::clone(marks), ringer))
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

/// A method of the contract: its name in errors, the module that carries it out, and whether it may ring bells.
macro_rules! carried_out {
    (($doing:literal by $module:ident) $method:ident($($argument:ident: $type:ty),+) -> $answer:ty) => {
        fn $method(&self, $($argument: $type,)+ limit: Duration) -> Answer<'_, $answer> {
            self.step(limit, $doing, move |store| $module::$method(store, $($argument,)+ limit))
        }
    };
    (($doing:literal by $module:ident, rings) $method:ident($($argument:ident: $type:ty),+) -> $answer:ty) => {
        fn $method(&self, $($argument: $type,)+ limit: Duration) -> Answer<'_, $answer> {
            let rung = rings::$method($(&$argument),+);
            self.ringing(limit, $doing, rung, move |store| $module::$method(store, $($argument,)+ limit))
        }
    };
}

impl Store for MongoStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(error::STORE, Reach::Fleet, self.inner.has_bells.then_some("bells"))
    }

    store_methods! { carried_out:
        // The first two are `steps::BEATS`.
        open("open a session" by sessions, rings);
        beat("renew a session" by sessions, rings);
        observe("observe sessions" by sessions);
        declare("declare a session dead" by sessions, rings);
        sessions("list sessions" by sessions);
        take("take locks" by take, rings);
        release("release locks" by release, rings);
        wait("join a queue" by queue, rings);
        stop_waiting("leave a queue" by queue);
        waiters("read a queue" by queue);
        places("find places in a queue" by queue);
        set_value("set a value" by locks, rings);
        locks("read locks" by locks);
        list_locks("list locks" by locks);
        held_by("list the locks of a session" by locks);
        latest_grants("list the latest grants" by locks);
        revoke("revoke a lock" by revoke, rings);
        define("define a schedule" by schedules, rings);
        instruct("update a schedule" by schedules, rings);
        list_schedules("list schedules" by schedules);
        delete_schedule("delete a schedule" by runs);
        schedules("read schedules" by schedules);
        claim("claim a tick" by runs);
        finish("finish a run" by runs);
        history("read a history" by runs);
        last_runs("read the last runs of schedules" by runs);
        purge_runs("purge runs" by runs);
        purge("purge" by purge);
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
}
