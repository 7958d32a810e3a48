//! Options for the use of a database, and the names that follow from them.

use std::{future::Future, time::Duration};

use mongodb::event::{EventHandler, command::CommandEvent};

use super::{aside::UriSource, error::ConnectError};

/// Options for the use of a database.
#[derive(Clone, Debug)]
pub struct MongoOptions {
    pub(crate) database: Option<String>,
    pub(crate) prefix: String,
    pub(crate) hint_wait: Duration,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) command_events: Option<EventHandler<CommandEvent>>,
    pub(crate) uri_from: Option<UriSource>,
}

impl Default for MongoOptions {
    fn default() -> Self {
        Self {
            database: None,
            prefix: String::new(),
            hint_wait: Duration::from_secs(10),
            create: true,
            read_only: false,
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

    /// Sets what the names of the collections begin with: `sessions`, `locks`, `waiters`, `fences`, `runs` and
    /// `bells_00` to `bells_63` come after it. Default: nothing.
    #[must_use]
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        prefix.as_ref().clone_into(&mut self.prefix);
        self
    }

    /// Sets how long the server waits for a change before it answers that there was none. Default: 10s.
    ///
    /// Such a wait is not broken off: for so long the server keeps a cursor, and its connection, that no listener
    /// needs any more.
    #[must_use]
    pub const fn hint_wait(mut self, wait: Duration) -> Self {
        self.hint_wait = wait;
        self
    }

    /// Sets whether to create missing collections and indexes. Default: yes. If not, an operator has applied
    /// [`index_script`](crate::store::mongo::index_script).
    #[must_use]
    pub const fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets whether the store only reads, as a program that shows what is held does. Default: no.
    ///
    /// The user then needs the rights to read alone, and nothing is created.
    /// [`role_script`](crate::store::mongo::role_script) prints that role. No session can be opened on such a store;
    /// other operations that write are the server's to refuse.
    #[must_use]
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets a handler for every command the store's own clients send, and for its end. Default: none.
    ///
    /// A thread of its own calls it for what an instance's engine sends: no heartbeat waits for it. If it falls 8192
    /// events behind, the next ones are dropped.
    #[must_use]
    pub fn command_events(mut self, handler: EventHandler<CommandEvent>) -> Self {
        self.command_events = Some(handler);
        self
    }

    /// Sets where the connection string is found anew, for a store of [`MongoStore::connect`]. Default: nowhere, it
    /// stays what it was.
    ///
    /// If the server refuses a login, because a password or certificate is another one now, the store
    /// connects anew in the background: with what this answers, or else with the string it has; the files that
    /// the string names are read again in any case. What it has held goes on. If that fails, it is reported with the
    /// failed operations, and tried again after growing rests, of 30 seconds at most, for as long as logins
    /// are refused.
    ///
    /// The string must name the same database of the same deployment. Another deployment is refused: the record of
    /// the instance's session is read there, and it must bear the last heartbeat that was confirmed.
    ///
    /// `source` is asked for each attempt, by the store and by its keeper, on a thread with a runtime of its own, and
    /// has ten seconds. It may block: nothing waits for it. It is not asked again before it has answered. Its error is
    /// printed with that of the operation, and must not contain a secret.
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
    ///
    /// [`MongoStore::connect`]: crate::store::mongo::MongoStore::connect
    #[must_use]
    pub fn uri_from<F, A>(mut self, source: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<String, Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.uri_from = Some(UriSource::new(source));
        self
    }

    /// Returns whether the store creates collections and indexes that are missing.
    pub(crate) const fn creates(&self) -> bool {
        self.create && !self.read_only
    }

    pub(crate) fn check(&self) -> Result<(), ConnectError> {
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
pub(crate) fn check_name(database: &str) -> Result<(), ConnectError> {
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
pub(crate) struct Collections {
    pub(crate) sessions: String,
    pub(crate) locks: String,
    pub(crate) waiters: String,
    pub(crate) fences: String,
    pub(crate) runs: String,
}

impl Collections {
    pub(crate) fn new(prefix: &str) -> Self {
        let name = |name| format!("{prefix}{name}");
        Self {
            sessions: name("sessions"),
            locks: name("locks"),
            waiters: name("waiters"),
            fences: name("fences"),
            runs: name("runs"),
        }
    }

    pub(crate) fn all(&self) -> Vec<&str> {
        vec![&self.sessions, &self.locks, &self.waiters, &self.fences, &self.runs]
    }
}
