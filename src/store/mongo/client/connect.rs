//! From a connection string to a client that keeps the contract whatever the string says.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use bson::oid::ObjectId;
use mongodb::{
    Client,
    error::ErrorKind,
    event::{EventHandler, sdam::SdamEvent},
    options::{
        Acknowledgment, ClientOptions, ReadConcern, ReadPreference, SelectionCriteria, Tls, WriteConcern,
    },
};

use tokio::sync::{Semaphore, watch};

use super::{
    error::{ConnectError, STORE},
    messages::{self, message},
    options::MongoOptions,
};
use crate::error::{Applied, StoreError};

/// The time that the first answer of a fresh client may take: it has to find the servers.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// The longest that a client holds up the end of a program.
pub(crate) const CLOSING: Duration = Duration::from_secs(3);
/// The database if neither the options nor the connection string name one.
const DATABASE: &str = "tenure";
/// The number of operations that go on at once. With the driver's own pool of 10, 64 tasks get half as much
/// done.
const AT_ONCE: u32 = 64;
/// Room for connections beside those in use. The driver waits for ever for a handshake that is not
/// answered, and a connection that waits for its handshake has a place in the pool.
const POOL: u32 = 8 * AT_ONCE;
/// An attempt lasts no longer than this: what is not found by then is not found.
pub(crate) const ATTEMPT: Duration = Duration::from_millis(2500);
/// The interval at which the driver looks at each member. Its default of 10 s is how long it would overlook a
/// change of primary that was not reported to it.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// A connection string that is kept, to connect with once more.
#[derive(Clone)]
pub(crate) struct Uri(Arc<str>);

impl Uri {
    pub(crate) fn new(uri: &str) -> Self {
        Self(uri.into())
    }

    /// A client of our own, which lives on the runtime that runs this.
    pub(crate) async fn client(&self, options: &MongoOptions) -> Result<OwnClient, ConnectError> {
        client(&self.0, options).await
    }
}

impl fmt::Debug for Uri {
    // It knows the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Uri(..)")
    }
}

/// A client, and what is known of it before it has found a server.
pub(crate) struct OwnClient {
    pub(crate) client: Client,
    /// The database to use.
    pub(crate) database: String,
    pub(crate) room: Room,
    pub(crate) elections: Elections,
}

/// The number of operations, and of streams, for which a client has connections.
pub(crate) struct Room {
    /// Permits, one for each operation that goes on at the same time.
    pub(crate) permits: Semaphore,
    /// The number of streams that may be open besides.
    pub(crate) streams: usize,
}

/// The latest election that a client has heard of; a change of it means that there is another primary, or the same
/// one anew. A client that was lent reports none.
pub(crate) type Elections = watch::Receiver<Option<ObjectId>>;

const SCHEMES: [&str; 2] = ["mongodb://", "mongodb+srv://"];

async fn client(uri: &str, options: &MongoOptions) -> Result<OwnClient, ConnectError> {
    if !SCHEMES.iter().any(|scheme| uri.starts_with(scheme)) {
        return Err(ConnectError::Uri("it must begin with mongodb:// or mongodb+srv://".to_owned()));
    }
    let mut parsed = match ClientOptions::parse(uri).await {
        Ok(parsed) => parsed,
        // Its syntax is well; what it names could not be asked for its servers.
        Err(error) if matches!(&*error.kind, ErrorKind::DnsResolve { .. }) => {
            return Err(StoreError::new(STORE, "connect", Applied::No, true, messages::IN_DNS).into());
        }
        // The driver's words repeat parts of the string, and where a password begins in it is not known.
        Err(_) => return Err(ConnectError::Uri(unreadable(uri))),
    };
    let database = options
        .database
        .clone()
        .or_else(|| parsed.default_database.clone())
        .unwrap_or_else(|| DATABASE.to_owned());
    let room = room(parsed.max_pool_size);
    force(&mut parsed);
    let (told, elections) = elections();
    parsed.sdam_event_handler = Some(told);
    parsed.command_event_handler.clone_from(&options.command_events);
    let secrets = secrets(uri, &parsed);
    let certificate = certificate_file(&parsed);
    let client = Client::with_options(parsed).map_err(|error| {
        let problem = match (&*error.kind, certificate) {
            // The driver does not say of which file.
            (ErrorKind::Io(io), Some(file)) => {
                format!("tlsCertificateKeyFile ({}) cannot be read: {io}", file.display())
            }
            _ => message(&error),
        };
        let is_shown = secrets.iter().any(|secret| problem.contains(secret.as_str()));
        let problem = if is_shown { "its options cannot be used".to_owned() } else { problem };
        ConnectError::Store(StoreError::new(STORE, "connect", Applied::No, false, problem))
    })?;
    Ok(OwnClient { client, database, room, elections })
}

/// Follows what the driver learns of its servers.
fn elections() -> (EventHandler<SdamEvent>, Elections) {
    let (latest, elections) = watch::channel(None);
    let follow = move |event| {
        let SdamEvent::TopologyDescriptionChanged(change) = event else { return };
        let now = change.new_description;
        // While there is none, there is nothing to do but wait for the next one.
        if let Some(election) = now.max_election_id().filter(|_| now.has_writable_server()) {
            latest.send_if_modified(|latest| latest.replace(election) != Some(election));
        }
    };
    (EventHandler::callback(follow), elections)
}

/// The parts of an understood string that may not be in a message. The rest may: names of hosts and files
/// are what one looks for.
fn secrets(uri: &str, options: &ClientOptions) -> Vec<String> {
    let mut secrets = Vec::new();
    if let Some(credential) = &options.credential {
        secrets.extend(credential.password.clone());
        let properties = credential.mechanism_properties.iter().flat_map(|properties| properties.values());
        secrets.extend(properties.filter_map(|value| value.as_str().map(str::to_owned)));
    }
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        if ["tlscertificatekeyfilepassword", "proxypassword"].contains(&name.to_lowercase().as_str()) {
            secrets.extend([value.to_owned(), unescaped(value)]);
        }
    }
    secrets.retain(|secret| !secret.is_empty());
    secrets
}

fn certificate_file(options: &ClientOptions) -> Option<PathBuf> {
    match &options.tls {
        Some(Tls::Enabled(tls)) => tls.cert_key_file_path.clone(),
        _ => None,
    }
}

/// Shares a pool out: permits for no more operations than there are connections, so that no operation waits in the
/// driver's own queue for one. An operation that leaves that half-way stays in it, and the ones behind wait until
/// something happens in the pool. A stream has a connection all the time.
pub(crate) fn room(pool: Option<u32>) -> Room {
    let number = |number: u32| usize::try_from(number).unwrap_or(Semaphore::MAX_PERMITS);
    let pool = pool.filter(|pool| *pool > 0);
    let at_once = pool.unwrap_or(AT_ONCE).min(AT_ONCE);
    let streams = pool.map_or(POOL / 2, |pool| (pool / 4).max(1));
    Room { permits: Semaphore::new(number(at_once)), streams: number(streams) }
}

/// The room in a client whose pool is unknown: it is taken for the driver's default.
pub(crate) fn lent_room() -> Room {
    const POOL: u32 = 10;
    Room { permits: room(None).permits, streams: room(Some(POOL)).streams }
}

/// Forces what R11 demands, whatever the connection string says, and what the measured figures rest on.
fn force(options: &mut ClientOptions) {
    // Every operation may be repeated, and the engine repeats it. The driver's own way of making a
    // write repeatable costs a third of the throughput.
    options.retry_writes = Some(false);
    options.retry_reads = Some(false);
    options.write_concern = Some(WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build());
    options.read_concern = Some(ReadConcern::majority());
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    options.max_pool_size = options.max_pool_size.or(Some(POOL));
    // With the driver's own 2, two handshakes without an answer keep every other one from beginning.
    options.max_connecting = options.max_connecting.or(Some(POOL));
    options.server_selection_timeout = Some(ATTEMPT);
    options.connect_timeout = Some(ATTEMPT);
    options.heartbeat_freq = Some(HEARTBEAT);
    options.app_name.get_or_insert_with(|| "tenure".to_owned());
}

fn unreadable(uri: &str) -> String {
    let options = option_names(uri).map(|names| format!(" ({names})")).unwrap_or_default();
    format!(
        "it is not valid: check hosts and ports, the names and values of its options{options}, and that each of \
         : / ? # [ ] @ % in user and password is written as a code, such as %40 for @"
    )
}

/// The names of its options, unless one may be a piece of a secret: an unescaped sign in a password moves the place
/// where options begin.
fn option_names(uri: &str) -> Option<String> {
    let (before, query) = uri.split_once('?')?;
    let (servers, _) = before.split_once("://")?.1.split_once('/')?;
    let hosts = servers.rsplit_once('@').map_or(servers, |(_, hosts)| hosts);
    let is_host = |host: &str| host.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok());
    let names: Vec<_> = query.split('&').map(|pair| pair.split('=').next().unwrap_or(pair)).collect();
    let is_name = |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
    let lower = query.to_lowercase();
    let has_secrets = lower.contains("password") || lower.contains("properties");
    let is_plain = uri.matches('@').count() <= 1 && !query.contains(['@', '?', '/']);
    let is_sure = is_plain && !has_secrets && hosts.split(',').all(is_host) && names.iter().all(is_name);
    is_sure.then(|| names.join(", "))
}

/// A text without its percent-escapes, as the driver's messages have it.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.first_chunk::<2>().filter(|_| *first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_named_unless_one_may_be_a_piece_of_a_secret() {
        for (uri, names) in [
            ("mongodb://host/?frob=1", Some("frob")),
            ("mongodb://ada:s3cret@a:1,b/shop?w=1&frob=s3cret", Some("w, frob")),
            ("mongodb://host", None),
            ("mongodb://ada:secret/?more=1@host/", None),
            ("mongodb://ada:secret/?more=1", None),
            ("mongodb://ada:pa@ss@host/?more=1", None),
            ("mongodb://ada:pass?more=1", None),
            ("mongodb://host/?authMechanismProperties=AWS_SESSION_TOKEN:a&more=1", None),
            ("mongodb://host/?s3cret=1", None),
        ] {
            assert_eq!(option_names(uri).as_deref(), names, "{uri}");
        }
    }

    #[tokio::test]
    async fn concerns_and_retries_of_the_connection_string_are_overruled() {
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
            assert_eq!(client(uri, &options).await.unwrap().database, database);
        }
    }

    #[tokio::test]
    async fn a_string_that_cannot_be_read_is_not_repeated() {
        let mut refused = 0;
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
            // Some of these the driver makes something of.
            let Err(error) = client(uri, &MongoOptions::new()).await else { continue };
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("s3cret"), "{uri}: {shown}");
            refused += 1;
        }
        assert!(refused >= 5, "{refused} were refused");
    }

    #[test]
    fn a_string_that_is_kept_is_not_printed() {
        let uri = Uri::new("mongodb://ada:s3cret@host/");
        assert_eq!(format!("{uri:?} {uri:#?}"), "Uri(..) Uri(..)");
    }
}
