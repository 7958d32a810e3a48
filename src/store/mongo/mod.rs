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

use std::{fmt, future::Future, sync::Arc, time::Duration};

pub use ::mongodb as driver;
use bson::doc;
use futures::stream::BoxStream;
use mongodb::{
    Client, Database,
    event::{EventHandler, command::CommandEvent},
};
use tokio_util::sync::CancellationToken;

pub use error::ConnectError;
pub use fence::{Armed, FENCE_SLOTS, Fence, Stale};
pub use stamp::Stamp;

use self::{
    command::{run, within},
    connect::Uri,
    error::{CommandFailure, CommandResult},
    hints::Hints,
    renewal::{Connection, Current, UriSource},
};
use super::{Answer, Capabilities, Hint, Reach, Store};
use crate::store_methods;

/// The time that the first answer of a fresh client may take: it has to find the servers.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// The longest that a client holds up the end of a program.
const CLOSING: Duration = Duration::from_secs(3);

/// Options for the use of a database.
#[derive(Clone, Debug)]
pub struct MongoOptions {
    database: Option<String>,
    prefix: String,
    hint_wait: Duration,
    create: bool,
    command_events: Option<EventHandler<CommandEvent>>,
    uri_from: Option<UriSource>,
}

impl Default for MongoOptions {
    fn default() -> Self {
        Self {
            database: None,
            prefix: String::new(),
            hint_wait: Duration::from_secs(10),
            create: true,
            command_events: None,
            uri_from: None,
        }
    }
}

impl MongoOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the database. Default: that of the connection string, or `tenure`.
    #[must_use]
    pub fn database(mut self, name: impl AsRef<str>) -> Self {
        self.database = Some(name.as_ref().to_owned());
        self
    }

    /// Sets what the names of the collections begin with: `sessions`, `locks`, `waiters`, `fences` and
    /// `runs` come after it. Default: nothing.
    #[must_use]
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        prefix.as_ref().clone_into(&mut self.prefix);
        self
    }

    /// Sets how long the server waits for a change before it answers that there was none. Default: 10s.
    #[must_use]
    pub const fn hint_wait(mut self, wait: Duration) -> Self {
        self.hint_wait = wait;
        self
    }

    /// Sets whether to create missing collections and indexes. Default: yes. If not, somebody has applied
    /// [`index_script`].
    #[must_use]
    pub const fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets a handler for every command the store's own client sends, and for its end. Default: none.
    #[must_use]
    pub fn command_events(mut self, handler: EventHandler<CommandEvent>) -> Self {
        self.command_events = Some(handler);
        self
    }

    /// Sets where the connection string is found anew, for a store of [`MongoStore::connect`]. Default: nowhere, it
    /// stays what it was.
    ///
    /// When the server refuses a login, because a password or certificate is another one now, the store
    /// connects anew in the background: with what this answers, or else with the string it has; the files that
    /// the string names are read again in any case. What it has held goes on. If that fails, it is reported with the
    /// failed operations, and tried again after growing rests, of 30 seconds at most, for as long as logins
    /// are refused.
    ///
    /// The string must name the same database. `source` is asked for each attempt, on a runtime of the store's or
    /// of its keeper's, by each of them, and has ten seconds: it is async so that it may ask a vault, and must
    /// not block. Its error is printed with that of the operation, and must not contain a secret.
    ///
    /// ```no_run
    /// # use tenure::store::mongo::{ConnectError, MongoOptions, MongoStore};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = "/run/secrets/mongodb-uri"; // mounted, and replaced when the password is
    /// let read = move || async move { Ok(std::fs::read_to_string(file)?.trim().to_owned()) };
    /// let uri = std::fs::read_to_string(file)?;
    /// let store = MongoStore::connect(uri.trim(), MongoOptions::new().uri_from(read)).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn uri_from<F, A>(mut self, source: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<String, Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.uri_from = Some(UriSource::new(source));
        self
    }

    fn check(&self) -> Result<(), ConnectError> {
        self.database.as_deref().map_or(Ok(()), check_name)?;
        // No index name longer than the server allows.
        if self.prefix.len() > 63 || self.prefix.starts_with("system.") || self.prefix.contains(['$', '\0']) {
            return Err(ConnectError::Name {
                option: "prefix",
                value: self.prefix.clone(),
                rule: "at most 63 bytes, without $ and not beginning with system.",
            });
        }
        Ok(())
    }
}

/// The server's own rules for the name of a database, wherever it comes from.
fn check_name(database: &str) -> Result<(), ConnectError> {
    let bad = |c: char| c.is_control() || "/\\. \"$*<>:|?".contains(c);
    if database.is_empty() || database.len() > 63 || database.contains(bad) {
        return Err(ConnectError::Name {
            option: "database",
            value: database.to_owned(),
            rule: "1 to 63 bytes without any of / \\ . space \" $ * < > : | ?",
        });
    }
    Ok(())
}

/// The names of the collections.
#[derive(Clone, Debug)]
struct Collections {
    sessions: String,
    locks: String,
    waiters: String,
    fences: String,
    runs: String,
}

impl Collections {
    fn new(prefix: &str) -> Self {
        let name = |name| format!("{prefix}{name}");
        Self {
            sessions: name("sessions"),
            locks: name("locks"),
            waiters: name("waiters"),
            fences: name("fences"),
            runs: name("runs"),
        }
    }

    fn all(&self) -> Vec<&str> {
        vec![&self.sessions, &self.locks, &self.waiters, &self.fences, &self.runs]
    }
}

/// A script for the server's shell that creates the collections and indexes of a store, for those who do
/// not let their programs do it.
#[must_use]
pub fn index_script(database: &str, options: &MongoOptions) -> String {
    indexes::script(database, &Collections::new(&options.prefix))
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
        Capabilities::new(error::STORE, Reach::Fleet, self.inner.has_hints)
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

    fn hints(&self) -> BoxStream<'static, Hint> {
        self.inner.hints.listen()
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
