//! The errors of this store: why it could not be connected, and why a command has no answer.
//!
//! An error of the driver's is classified here: whether the operation was applied, and whether to try
//! again. Where that is not known, the outcome is unknown, and worth another try (R8).

use std::{error::Error as _, fmt};

use mongodb::error::{Error as DriverError, ErrorKind};

use super::{
    codes::{
        self, AUTHENTICATION_FAILED, BAD_VALUE, COMMAND_NOT_FOUND, FAILED_TO_PARSE, INVALID_OPTIONS,
        NOT_PRIMARY_NO_SECONDARY_OK, NOT_WRITABLE_PRIMARY, TYPE_MISMATCH, UNAUTHORIZED,
    },
    command::ServerSays,
    messages, rights,
};
use crate::{
    error::{Applied, ForeignCursor, StoreError, in_words},
    store::mongo::documents::fields::{LAYOUT, LEASE_LAYOUT},
};

/// The name of this store in errors and reports.
pub(crate) const STORE: &str = "mongodb";

// ----- of a connection

/// Why a store could not be connected.
///
/// Printed with its cause and with what to do, in one line; so its [`source`](std::error::Error::source) is
/// nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The connection string cannot be read. The message never shows its user or password.
    Uri(String),
    /// A name in the options breaks the server's rules.
    Name {
        /// The option.
        option: &'static str,
        /// The option's value.
        value: String,
        /// The rule for its value.
        rule: &'static str,
    },
    /// The server is older than 6.0.
    TooOld {
        /// The version it has.
        version: String,
    },
    /// A collection compares texts in a way that takes two keys for one.
    Collation {
        /// The collection.
        collection: String,
    },
    /// An earlier version of tenure wrote the records that are there, and this one does not read them.
    Layout {
        /// The collection.
        collection: String,
        /// Their layout.
        found: i64,
        /// Layout of this version.
        reads: i64,
    },
    /// The server does not let this user do all that is needed.
    Rights {
        /// The user, if the server names it.
        user: Option<String>,
        /// The actions, and on what: `insert, update on shop.waiters`.
        lacking: String,
        /// True if they are needed only to create indexes.
        to_create: bool,
    },
    /// The server speaks the protocol, and cannot do what keeps the promises.
    Unsupported {
        /// The feature that it lacks.
        what: &'static str,
        /// The reason that it gives.
        why: String,
    },
    /// The server could not be asked.
    Store(StoreError),
}

impl ConnectError {
    /// Returns whether the same call may succeed later, with nothing changed.
    ///
    /// A host whose name is not known, or on which no server listens, may be there in a moment: the one of a pod that
    /// starts is. A replica set of another name than the connection string says is not.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri(problem) => write!(f, "the connection string cannot be used: {problem}"),
            Self::Name { option, value, rule } => write!(f, "{option} ({value:?}) must be {rule}"),
            Self::TooOld { version } => {
                write!(f, "the server has version {version}, tenure needs 6.0 or later")
            }
            Self::Collation { collection } => write!(
                f,
                "the collection {collection:?} has a collation that may treat two keys as equal: \
                 use another prefix, or let tenure create it"
            ),
            Self::Layout { collection, found, reads } => {
                write!(
                    f,
                    "the collection {collection:?} holds records of layout {found}, and this version of tenure \
                     reads layout {reads} only: "
                )?;
                // All that decides has the same place in both; of a note, which was a sentence, nothing is read.
                if (*found, *reads) == (LAYOUT, LEASE_LAYOUT) {
                    write!(
                        f,
                        "stop all instances of the earlier version, then let it be read as that \
                         (updateMany({{ v: {found} }}, {{ $set: {{ v: NumberLong({reads}) }} }}))"
                    )
                } else {
                    f.write_str("use an empty database, or another prefix")
                }
            }
            Self::Rights { user, lacking, to_create: false } => {
                f.write_str(&rights::may_not(user.as_deref(), lacking))
            }
            Self::Rights { user, lacking, to_create: true } => {
                match user {
                    Some(user) => write!(f, "the user {user:?} may not {lacking}: ")?,
                    None => write!(f, "the user may not {lacking}: ")?,
                }
                f.write_str(
                    "grant that, or create the indexes by hand (index_script prints how) and connect with \
                     MongoOptions::create(false)",
                )
            }
            Self::Unsupported { what, why } => {
                write!(f, "this server is not supported, because it lacks {what}: {why}")
            }
            Self::Store(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for ConnectError {}

impl From<StoreError> for ConnectError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

// ----- of a command

/// Why a command has no answer.
#[derive(Debug)]
pub(crate) struct CommandFailure {
    applied: Applied,
    retryable: bool,
    /// True if the server refuses the client's password or certificate.
    refused: bool,
    words: String,
    cause: Box<dyn std::error::Error + Send + Sync>,
}

pub(crate) type CommandResult<T> = Result<T, CommandFailure>;

impl CommandFailure {
    pub(crate) fn unknown(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let cause = cause.into();
        Self { applied: Applied::Unknown, retryable: true, refused: false, words: in_words(&*cause), cause }
    }

    /// No command was sent.
    pub(crate) fn not_begun(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { applied: Applied::No, ..Self::unknown(cause) }
    }

    /// The same after another command of the same operation has changed something: whatever this
    /// one did, the outcome of the operation as a whole is unknown.
    pub(crate) fn half_way(self) -> Self {
        Self { applied: Applied::Unknown, ..self }
    }

    /// No server was reached.
    pub(crate) fn not_connected(error: ConnectError) -> Self {
        // The string was read before: what it says was resolved then, and is not now.
        let retryable = error.is_retryable() || matches!(error, ConnectError::Uri(_));
        Self { retryable, ..Self::not_begun(error) }
    }

    /// As [`unknown`](Self::unknown), until an operator mends what is in the way.
    pub(crate) fn lasting(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { retryable: false, ..Self::unknown(cause) }
    }

    /// No command was sent, for the cursor is not of this store.
    pub(crate) fn foreign_cursor() -> Self {
        Self { applied: Applied::No, ..Self::lasting(ForeignCursor) }
    }

    /// Returns whether it may have been applied.
    pub(crate) fn is_unknown(&self) -> bool {
        self.applied == Applied::Unknown
    }

    /// Returns whether the server refuses the client's password or certificate: with another one it may work.
    pub(crate) const fn is_refused(&self) -> bool {
        self.refused
    }

    /// Returns whether an operator has to change something before it can succeed.
    pub(crate) const fn is_lasting(&self) -> bool {
        !self.retryable
    }

    /// Returns whether the server can never make anything of the command.
    pub(crate) fn is_of_the_command(&self) -> bool {
        self.cause.downcast_ref().is_some_and(rights::is_of_the_command)
    }

    /// Returns the code by which a server has refused the command, if it has.
    pub(crate) fn code(&self) -> Option<i32> {
        code(self.cause.downcast_ref()?)
    }

    /// Returns whether a server has said it.
    pub(crate) fn is_answer(&self) -> bool {
        self.code().is_some() || self.cause.is::<ServerSays>()
    }

    /// Replaces the message.
    pub(crate) fn in_other_words(self, words: String) -> Self {
        Self { words, ..self }
    }

    /// Adds this to the message.
    pub(crate) fn with_more(self, more: &str) -> Self {
        Self { words: format!("{}; {more}", self.words), ..self }
    }

    pub(crate) fn into_words(self) -> String {
        self.words
    }

    pub(crate) fn named(self, doing: &'static str) -> StoreError {
        StoreError::new(STORE, doing, self.applied, self.retryable, self.cause).in_words(self.words)
    }
}

impl From<DriverError> for CommandFailure {
    fn from(error: DriverError) -> Self {
        let (applied, retryable) = classify(&error);
        let refused = refuses_the_client(&error);
        Self { applied, retryable, refused, words: messages::message(&error), cause: Box::new(error) }
    }
}

// ----- of the driver

/// The code by which a server has refused a command, if that is the error.
pub(crate) fn code(error: &DriverError) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(command) => Some(command.code),
        _ => None,
    }
}

/// Classifies an error of the driver: whether the operation was applied, and whether it may succeed later.
fn classify(error: &DriverError) -> (Applied, bool) {
    match &*error.kind {
        // No command was sent.
        ErrorKind::ServerSelection { message, .. } => (Applied::No, !messages::is_of_another_set(message)),
        // The name may come: that of a pod is known once it runs.
        ErrorKind::DnsResolve { .. } => (Applied::No, true),
        ErrorKind::Authentication { .. } => (Applied::No, is_worth_another_login(error)),
        ErrorKind::InvalidArgument { .. }
        | ErrorKind::InvalidTlsConfig { .. }
        | ErrorKind::IncompatibleServer { .. }
        | ErrorKind::Shutdown => (Applied::No, false),
        // Refused before anything was done.
        ErrorKind::Command(command) => match command.code {
            NOT_WRITABLE_PRIMARY | NOT_PRIMARY_NO_SECONDARY_OK => (Applied::No, true),
            UNAUTHORIZED
            | AUTHENTICATION_FAILED
            | BAD_VALUE
            | FAILED_TO_PARSE
            | TYPE_MISMATCH
            | COMMAND_NOT_FOUND
            | INVALID_OPTIONS => (Applied::No, false),
            _ => (Applied::Unknown, true),
        },
        _ => (Applied::Unknown, true),
    }
}

/// Returns whether an operator has to change something before the operation can succeed.
pub(crate) fn is_lasting(error: &DriverError) -> bool {
    !classify(error).1
}

/// Returns whether the server refuses this client, or is one it does not trust: with another password or
/// certificate it may be right again.
pub(crate) fn refuses_the_client(error: &DriverError) -> bool {
    let is_login = matches!(&*error.kind, ErrorKind::Authentication { .. });
    is_login && is_lasting(error) || messages::is_of_a_certificate(error)
}

/// The driver calls every login that failed by one name, also that at a server which is starting, stepping
/// down or shutting down. What the server said stands behind it.
fn is_worth_another_login(error: &DriverError) -> bool {
    let Some(source) = error.source() else { return false };
    let said = source.downcast_ref::<DriverError>();
    let said = said.or_else(|| source.downcast_ref::<Box<DriverError>>().map(|boxed| &**boxed));
    match said.map(|said| &*said.kind) {
        Some(ErrorKind::Command(command)) => !codes::refuses_a_login(command.code),
        Some(_) => true,
        None => false,
    }
}
