//! The store that a command works on: opened by its URI, named without its password, closed at the end.

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
#[cfg(feature = "mongodb")]
use tenure::store::mongo::{ConnectError, MongoOptions, MongoStore};
use tenure::{
    Elect,
    elect::Work,
    store::{
        Store,
        sqlite::{OpenError, SqliteStore},
    },
};
use tokio::time::Instant;

use crate::{
    exit::Failure,
    settings::{Settings, Uri},
};

/// The mode in which a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Read-only: needs the rights to read alone, and never creates the store.
    ReadOnly,
    /// Read-write, of a store that is there.
    Existing,
    /// Read-write: creates the store where there is none.
    ReadWrite,
}

/// Location of a store, as a URI says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreUri {
    Sqlite(PathBuf),
    Mongo(String),
}

impl StoreUri {
    pub(crate) fn of(uri: Option<&Uri>) -> Result<Self, Failure> {
        let Some(uri) = uri else { return default_file().map(Self::Sqlite) };
        let text = uri.text.as_str();
        if let Some(path) = text.strip_prefix("sqlite:") {
            if path.is_empty() {
                return Err(Failure::usage("the store sqlite: names no file: write sqlite:PATH"));
            }
            return Ok(Self::Sqlite(path.into()));
        }
        if text.starts_with("mongodb://") || text.starts_with("mongodb+srv://") {
            return Ok(Self::Mongo(text.to_owned()));
        }
        // It may be a URI with a slip in it and a password further on: of an unknown one, the beginning only.
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
        Err(Failure::usage(if scheme.is_empty() {
            "the store has to be sqlite:PATH or mongodb://...".to_owned()
        } else {
            format!("the store has to be sqlite:PATH or mongodb://..., and begins with {scheme}:")
        }))
    }

    /// Returns the URI without user and password.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::Mongo(uri) => without_secrets(uri),
        }
    }
}

/// Raises the terms of all locks in a store that was restored from a backup, and returns their number.
pub(crate) async fn raise_terms(settings: &Settings) -> Result<u64, Failure> {
    match StoreUri::of(settings.store.as_ref())? {
        StoreUri::Sqlite(path) => {
            let raise = move || {
                look_for(&path)?;
                SqliteStore::raise_terms(&path).map_err(|error| Failure::store(error.to_string()))
            };
            tokio::task::spawn_blocking(raise).await.map_err(|error| Failure::failed(error.to_string()))?
        }
        #[cfg(feature = "mongodb")]
        StoreUri::Mongo(uri) => {
            let file = settings.store.as_ref().and_then(|uri| uri.file.clone());
            let store = connect(&uri, file, OpenMode::Existing).await?;
            let raised = store.raise_terms().await;
            store.close().await;
            raised.map_err(Failure::from)
        }
        #[cfg(not(feature = "mongodb"))]
        StoreUri::Mongo(_) => Err(no_driver()),
    }
}

/// In the user's state directory, where the system keeps such things.
fn default_file() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            Failure::config(
                "neither --store nor HOME is set: no default location for the store; set --store sqlite:PATH",
            )
        })?;
    Ok(folder.join("tenure/tenure.db"))
}

/// A store that is open.
#[derive(Debug)]
pub(crate) struct OpenStore {
    pub(crate) store: Arc<dyn Store>,
    /// Location of the store, without user and password.
    pub(crate) name: String,
    /// The file, if it is one.
    pub(crate) file: Option<PathBuf>,
    kind: Opened,
}

#[derive(Debug)]
enum Opened {
    Sqlite(SqliteStore),
    #[cfg(feature = "mongodb")]
    Mongo(MongoStore),
}

impl OpenStore {
    pub(crate) async fn open(settings: &Settings, purpose: OpenMode) -> Result<Self, Failure> {
        let uri = StoreUri::of(settings.store.as_ref())?;
        let name = uri.name();
        match uri {
            StoreUri::Sqlite(path) => Self::sqlite(path, name, settings.store.is_none(), purpose).await,
            #[cfg(feature = "mongodb")]
            StoreUri::Mongo(uri) => {
                Self::mongo(&uri, name, settings.store.as_ref().and_then(|uri| uri.file.clone()), purpose)
                    .await
            }
            #[cfg(not(feature = "mongodb"))]
            StoreUri::Mongo(_) => Err(no_driver()),
        }
    }

    async fn sqlite(
        path: PathBuf,
        name: String,
        is_default: bool,
        purpose: OpenMode,
    ) -> Result<Self, Failure> {
        let open = move || {
            if purpose != OpenMode::ReadWrite {
                look_for(&path)?;
            }
            if is_default && let Some(folder) = path.parent() {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
                    Failure::store(format!(
                        "the folder {} for the store cannot be made: {error}; write --store sqlite:PATH for another",
                        folder.display()
                    ))
                })?;
            }
            let store = SqliteStore::open(&path).map_err(|error| {
                let advice = if is_on_a_disk_that_is_read_only(&path) {
                    "; the disk is read only: mount it for writing, or name a file on another"
                } else if purpose == OpenMode::ReadOnly && matches!(error, OpenError::ReadOnly { .. }) {
                    "; that holds for looking, too. For a group: chgrp and chmod 2770 the folder and the folders in \
                     it, chgrp and chmod 660 the files"
                } else {
                    ""
                };
                let message = format!("{error}{advice}");
                Failure { message, ..error.into() }
            })?;
            // By whatever links it was named: what lies beside it has to be the same for all.
            let file = fs::canonicalize(&path).map_err(|error| {
                Failure::store(format!("the path {} cannot be resolved: {error}", path.display()))
            })?;
            Ok(Self { store: Arc::new(store.clone()), name, file: Some(file), kind: Opened::Sqlite(store) })
        };
        tokio::task::spawn_blocking(open).await.map_err(|error| Failure::failed(error.to_string()))?
    }

    #[cfg(feature = "mongodb")]
    async fn mongo(
        uri: &str,
        name: String,
        file: Option<PathBuf>,
        purpose: OpenMode,
    ) -> Result<Self, Failure> {
        let store = connect(uri, file, purpose).await?;
        Ok(Self { store: Arc::new(store.clone()), name, file: None, kind: Opened::Mongo(store) })
    }

    /// Waits until no heartbeat has been possible on the store's file for a whole ttl, for a reason that does not pass
    /// by itself: the file was replaced, say. Errors of a server never end this, for it may be mended meanwhile.
    pub(crate) fn lost(&self, elect: &Elect) -> BoxFuture<'static, Failure> {
        if self.file.is_none() {
            return std::future::pending().boxed();
        }
        let elect = elect.clone();
        let lost = async move {
            let mut looks = tokio::time::interval(elect.config().refresh_interval());
            let mut since = None;
            loop {
                looks.tick().await;
                let mut troubles = elect.health().troubles.into_iter();
                let Some(trouble) = troubles.find(|trouble| trouble.work == Work::Beats && trouble.lasting)
                else {
                    since = None;
                    continue;
                };
                if since.get_or_insert_with(Instant::now).elapsed() >= elect.config().ttl() {
                    return Failure::store(trouble.error);
                }
            }
        };
        lost.boxed()
    }

    pub(crate) async fn close(self) {
        drop(self.store);
        match self.kind {
            Opened::Sqlite(store) => store.close().await,
            #[cfg(feature = "mongodb")]
            Opened::Mongo(store) => store.close().await,
        }
    }
}

#[cfg(feature = "mongodb")]
async fn connect(uri: &str, file: Option<PathBuf>, purpose: OpenMode) -> Result<MongoStore, Failure> {
    let mut options =
        MongoOptions::new().create(purpose == OpenMode::ReadWrite).read_only(purpose == OpenMode::ReadOnly);
    if let Some(file) = file {
        options = options.uri_from(move || {
            let file = file.clone();
            async move { Ok(fs::read_to_string(file)?.trim().to_owned()) }
        });
    }
    MongoStore::connect(uri, options).await.map_err(|error| match &error {
        ConnectError::Uri(_) => Failure::usage(error.to_string()),
        _ => Failure::store(error.to_string()),
    })
}

/// Refuses a file that is not there, or of which nobody can tell.
fn look_for(path: &Path) -> Result<(), Failure> {
    let name = path.display();
    match path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::store(format!(
            "there is no store at {name}: it was not used yet, or it is elsewhere (--store, TENURE_STORE)"
        ))),
        Err(error) => Err(Failure::store(format!(
            "the store at {name} cannot be looked for: {error}: check the path, and whether this user may enter its folder"
        ))),
    }
}

fn is_on_a_disk_that_is_read_only(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    rustix::fs::statvfs(folder).is_ok_and(|disk| disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// A connection string without user, password and options.
pub(crate) fn without_secrets(uri: &str) -> String {
    let (scheme, rest) = uri.split_once("://").unwrap_or(("mongodb", uri));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.split('?').next().unwrap_or_default();
    format!("{scheme}://{rest}")
}

/// Returns whether a URI has a password in it, which no child should inherit.
pub(crate) fn has_secret(uri: &str) -> bool {
    uri.split_once("://").is_some_and(|(_, rest)| rest.contains('@'))
}

/// A build without the driver was asked for a server.
#[cfg(not(feature = "mongodb"))]
pub(crate) fn no_driver() -> Failure {
    Failure::usage(
        "this build of tenure supports SQLite files only: build it with the feature mongodb, which is on by default",
    )
}
