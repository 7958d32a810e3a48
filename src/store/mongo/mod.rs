//! The store for the fleet: a MongoDB replica set of 6.0 or later.
//!
//! Works on a standalone server too, without hints. On a sharded cluster every filter names the
//! `_id`, which is what sharding needs; that was not tested.
//!
//! The driver is re-exported as [`mongodb`](driver) so that a program that passes its own client, or
//! uses the [`Fence`] in its transactions, uses the same one.

#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod bare;
mod batch;
mod codes;
mod command;
mod connect;
mod error;
mod fence;
mod fields;
mod hints;
mod indexes;
mod line;
mod locks;
mod options;
mod pages;
mod pipeline;
mod prepare;
mod purge;
mod queries;
mod release;
mod renewal;
mod revoke;
mod rights;
mod runs;
mod schedules;
mod sessions;
mod stamp;
mod steps;
mod take;
#[cfg(test)]
#[allow(clippy::too_many_lines, reason = "a snapshot is as long as what the server is sent")]
mod tests;
mod words;

use std::{fmt, sync::Arc, time::Duration};

pub use ::mongodb as driver;
use bson::doc;
use futures::stream::BoxStream;
use mongodb::{Client, Database};
use tokio_util::sync::CancellationToken;

pub use error::ConnectError;
pub use fence::{Armed, FENCE_SLOTS, Fence, Stale};
pub use options::MongoOptions;
pub use stamp::Stamp;

use self::{
    command::{run, within},
    connect::{CLOSING, FIRST_ANSWER, Uri},
    error::{CommandFailure, CommandResult},
    hints::Hints,
    options::{Collections, check_name},
    renewal::{Connection, Current},
};
use super::{Answer, Capabilities, Hint, Reach, Store, Topics};
use crate::store_methods;

/// A script for the server's shell that creates the collections and indexes of a store, for those who do
/// not let their programs do it.
#[must_use]
pub fn index_script(database: impl AsRef<str>, options: &MongoOptions) -> String {
    indexes::script(database.as_ref(), &Collections::new(&options.prefix))
}

/// A store in MongoDB. Cheap to clone; its clones share one client and one change stream.
#[derive(Clone)]
pub struct MongoStore {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Arc<Connection>,
    names: Collections,
    hints: Arc<Hints>,
    /// True if there are change streams behind them.
    has_hints: bool,
    options: MongoOptions,
}

impl fmt::Debug for MongoStore {
    // Nothing of the client: it knows the password.
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
        let (client, name, permits) = uri.client(&options).await?;
        check_name(&name)?;
        let database = client.database(&name);
        let has_hints = prepared(&database, &options).await?;
        Ok(Self::assembled(Current::new(database, permits, Some(uri)), options, has_hints))
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
        let has_hints = prepared(&database, &options).await?;
        Ok(Self::assembled(Current::new(database, connect::permits(None), None), options, has_hints))
    }

    /// Ends what the store and its client have under way: the last thing to do before a program ends its
    /// runtime. Bounded by three seconds, after which what is under way is left alone.
    ///
    /// Nothing is lost without it. But a client of the driver's that is dropped says goodbye to the server
    /// on a task of its own, and if the runtime ends under that the driver panics, on a thread of the
    /// runtime's (`connection_requester.rs`: `SendError`).
    ///
    /// Every handle of this store is closed with it: operations fail from then on, and hints end. A client
    /// that was [lent](Self::with_client) goes on; it is the program's to shut down.
    pub async fn close(&self) {
        let inner = &self.inner;
        let closing = async {
            inner.hints.close().await;
            inner.connection.close().await;
        };
        // An error says that the server does not answer.
        let _ = tokio::time::timeout(CLOSING, closing).await;
    }

    fn assembled(current: Current, options: MongoOptions, has_hints: bool) -> Self {
        let (names, stop) = (Collections::new(&options.prefix), CancellationToken::new());
        let connection = Arc::new(Connection::new(current, options.clone(), stop.clone()));
        let hints = Arc::new(Hints::new(Arc::clone(&connection), names.clone(), &options, stop));
        Self { inner: Arc::new(Inner { connection, names, hints, has_hints, options }) }
    }

    /// The same with another client, which lives on the runtime that runs this. The database was
    /// looked at and prepared before.
    async fn connected_again(self, uri: Uri, name: String) -> CommandResult<Self> {
        let Inner { options, has_hints, .. } = &*self.inner;
        let (client, _, permits) = uri.client(options).await.map_err(CommandFailure::not_connected)?;
        let database = client.database(&name);
        // Finds the server and opens a connection now, so that no beat has to.
        run(&database, doc! { "ping": 1 }).await?;
        Ok(Self::assembled(Current::new(database, permits, Some(uri)), options.clone(), *has_hints))
    }

    fn database(&self) -> Database {
        self.inner.connection.database()
    }

    fn names(&self) -> &Collections {
        &self.inner.names
    }

    fn place(&self) -> (Database, &Collections) {
        (self.database(), self.names())
    }
}

/// Looks at the database, and creates what is missing in it. Answers whether there are change streams.
async fn prepared(database: &Database, options: &MongoOptions) -> Result<bool, ConnectError> {
    let names = Collections::new(&options.prefix);
    let (looked, at) = (database.clone(), names.clone());
    let look = async move { prepare::look(&looked, &at).await };
    let has_hints = within(FIRST_ANSWER, "connect", look).await??;
    if options.create {
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
    Ok(has_hints)
}

/// One method of the contract: what it is called in errors, and the module that carries it out.
macro_rules! carried_out {
    (($doing:literal by $module:ident) $method:ident($($argument:ident: $type:ty),+) -> $answer:ty) => {
        fn $method(&self, $($argument: $type,)+ limit: Duration) -> Answer<'_, $answer> {
            self.step(limit, $doing, move |store| $module::$method(store, $($argument,)+ limit))
        }
    };
}

impl Store for MongoStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(error::STORE, Reach::Fleet, self.inner.has_hints.then_some("a change stream"))
    }

    store_methods! { carried_out:
        open("open a session" by sessions);
        beat("renew a session" by sessions);
        observe("observe sessions" by sessions);
        declare("declare a session dead" by sessions);
        sessions("list sessions" by sessions);
        take("take locks" by take);
        release("release locks" by release);
        wait("join a line" by line);
        stop_waiting("leave a line" by line);
        waiters("read a line" by line);
        places("find places in line" by line);
        set_value("set a value" by locks);
        locks("read locks" by locks);
        list_locks("list locks" by locks);
        held_by("list the locks of a session" by locks);
        revoke("revoke a lock" by revoke);
        define("define a schedule" by schedules);
        instruct("update a schedule" by schedules);
        list_schedules("list schedules" by schedules);
        delete_schedule("delete a schedule" by runs);
        schedules("read schedules" by schedules);
        claim("claim a tick" by runs);
        finish("finish a run" by runs);
        history("read a history" by runs);
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
