//! From a connection string to a client that keeps the contract whatever the string says.

use std::{fmt, time::Duration};

use mongodb::{
    Client,
    options::{Acknowledgment, ClientOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern},
};

use super::{MongoOptions, command::STORE, prepare::Unfit};
use crate::error::{Applied, StoreError};

/// The database if neither the options nor the connection string name one.
const DATABASE: &str = "tenure";
/// Enough for 64 operations at once. With the driver's own 10, 64 tasks get half as much done.
const POOL: u32 = 64;
/// An attempt lasts no longer than this: what is not found by then is not found.
const ATTEMPT: Duration = Duration::from_millis(2500);
/// How often the driver looks at each member. The driver's own 10 s is how long it would overlook a
/// change of primary that it was not told of.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Why a store could not be connected.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The connection string cannot be read. The message never shows its user or password.
    Uri(String),
    /// A name in the options breaks the server's rules.
    Name {
        /// Which option.
        option: &'static str,
        /// What it was set to.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// The server is older than 6.0.
    TooOld {
        /// The version it has.
        version: String,
    },
    /// A collection compares texts in a way that takes two keys for one.
    Collation {
        /// Which collection.
        collection: String,
    },
    /// The server could not be asked.
    Store(StoreError),
}

impl ConnectError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri(problem) => write!(f, "the connection string cannot be used: {problem}"),
            Self::Name { option, value, rule } => write!(f, "{option} is {value:?}, it must be {rule}"),
            Self::TooOld { version } => {
                write!(f, "the server has version {version}, tenure needs 6.0 or later")
            }
            Self::Collation { collection } => write!(
                f,
                "the collection {collection:?} has a collation, with which two keys may be taken for one: \
                 use another prefix, or let tenure create it"
            ),
            Self::Store(error) => write!(f, "could not prepare the database: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => error.source(),
            _ => None,
        }
    }
}

impl From<StoreError> for ConnectError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Unfit> for ConnectError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::TooOld { version } => Self::TooOld { version },
            Unfit::Collation { collection } => Self::Collation { collection },
        }
    }
}

/// The client of our own, and the database to use.
pub(super) async fn client(uri: &str, options: &MongoOptions) -> Result<(Client, String), ConnectError> {
    let mut parsed = ClientOptions::parse(uri)
        .await
        .map_err(|error| ConnectError::Uri(without_secrets(uri, &error.to_string())))?;
    let database = options
        .database
        .clone()
        .or_else(|| parsed.default_database.clone())
        .unwrap_or_else(|| DATABASE.to_owned());
    force(&mut parsed);
    parsed.command_event_handler.clone_from(&options.command_events);
    let client = Client::with_options(parsed).map_err(|error| {
        let problem = without_secrets(uri, &error.to_string());
        ConnectError::Store(StoreError::new(STORE, "connect", Applied::No, false, problem))
    })?;
    Ok((client, database))
}

/// What R11 demands, whatever the connection string says; and what makes the figures.
fn force(options: &mut ClientOptions) {
    // Every operation may be repeated, and the engine repeats it. The driver's own way of making a
    // write repeatable costs a third of the throughput.
    options.retry_writes = Some(false);
    options.retry_reads = Some(false);
    options.write_concern = Some(WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build());
    options.read_concern = Some(ReadConcern::majority());
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    options.max_pool_size = options.max_pool_size.or(Some(POOL));
    options.server_selection_timeout = Some(ATTEMPT);
    options.connect_timeout = Some(ATTEMPT);
    options.heartbeat_freq = Some(HEARTBEAT);
    options.app_name.get_or_insert_with(|| "tenure".to_owned());
}

/// A message of the driver's about a connection string, unless it repeats anything of what may be
/// a user or a password in it. In a string that cannot be read nobody knows where those begin.
fn without_secrets(uri: &str, message: &str) -> String {
    const SHORTEST: usize = 3;
    let after_scheme = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    // An unescaped `@`, `/` or `?` in a password ends it early for a parser: everything up to the
    // last `@` is taken for secret, and every value of the query.
    let user = after_scheme.rsplit_once('@').map_or("", |(user, _)| user);
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    let values = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .flat_map(|(_, value)| value.split([',', ':']));
    let pieces = user.split([':', '@', '/', '?', '&', '=', ',', '%']).chain(values);
    if pieces.filter(|piece| piece.len() >= SHORTEST).any(|piece| message.contains(piece)) {
        return "it is not valid (what exactly is wrong is left out here, for it repeats parts of the string)".to_owned();
    }
    message.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whatever_the_connection_string_says_is_overruled() {
        let uri = "mongodb://localhost/app?w=1&journal=false&wtimeoutMS=5&readPreference=secondaryPreferred&\
                   maxStalenessSeconds=120&readConcernLevel=local&retryWrites=true&retryReads=true&maxPoolSize=7";
        let mut options = ClientOptions::parse(uri).await.unwrap();
        force(&mut options);
        assert_eq!(options.retry_writes, Some(false));
        assert_eq!(options.retry_reads, Some(false));
        assert_eq!(options.read_concern, Some(ReadConcern::majority()));
        let concern = options.write_concern.unwrap();
        assert_eq!(
            (concern.w, concern.journal, concern.w_timeout),
            (Some(Acknowledgment::Majority), Some(true), None)
        );
        assert_eq!(
            options.selection_criteria,
            Some(SelectionCriteria::ReadPreference(ReadPreference::Primary))
        );
        assert_eq!(options.max_pool_size, Some(7), "a pool that was asked for is kept");
    }

    #[tokio::test]
    async fn the_database_is_that_of_the_options_or_the_string_or_tenure() {
        let named = MongoOptions::new().database("mine");
        for (uri, options, database) in [
            ("mongodb://localhost/app", named, "mine"),
            ("mongodb://localhost/app", MongoOptions::new(), "app"),
            ("mongodb://localhost", MongoOptions::new(), "tenure"),
        ] {
            assert_eq!(client(uri, &options).await.unwrap().1, database);
        }
    }

    #[tokio::test]
    async fn a_string_that_cannot_be_read_is_not_repeated() {
        for uri in [
            "mongodb://ada:s3cret@@host:27017/",
            "mongodb://ada:s3cret/more@host:27017/",
            "mongodb://ada:s3cret@host:notaport/",
            "mongodb://ada:s3cret%zz@host/",
            "mongodb://ada:s3cret@host/?w=-1",
            "mongodb://ada@host/?authMechanismProperties=AWS_SESSION_TOKEN:s3cret&authMechanism=s3cret",
            "mongodb://host/?tls=true&tlsCertificateKeyFilePassword=s3cret&tls=false",
            "s3cret",
            "mongodb+srv://ada:s3cret@a:1/",
        ] {
            let error = match client(uri, &MongoOptions::new()).await {
                Ok(_) => continue,
                Err(error) => error,
            };
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("s3cret") || uri == "s3cret", "{uri}: {shown}");
        }
    }

    #[test]
    fn a_message_that_shows_nothing_is_kept() {
        let uri = "mongodb://ada:s3cret@host/?w=-1";
        assert_eq!(without_secrets(uri, "w must not be negative"), "w must not be negative");
        assert!(!without_secrets(uri, "bad: ada:s3cret").contains("ada"));
    }
}
