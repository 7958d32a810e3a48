//! Place of a demo: a folder of its own and, unless a store was named, a SQLite file in it. Both are gone at its end,
//! unless they are to be kept.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use rustix::fs::Access;

use crate::{
    common::Common,
    exit::Failure,
    place::StoreUri,
    settings::{Settings, Uri},
};

/// A store to work on.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
    uri: Uri,
    /// The store's file, if it is one.
    pub(crate) database: Option<PathBuf>,
    /// The store is the user's, and only the namespace is the demo's own.
    is_named: bool,
    pub(crate) namespace: String,
    keep: bool,
}

impl Scratch {
    pub(crate) fn new(common: &Common, keep: bool) -> Result<Self, Failure> {
        // A store that is set for all commands is a store in use: only one that is named here is meant.
        let is_named = names_a_store(std::env::args_os().map(|it| it.to_string_lossy().into_owned()));
        let named = if is_named { Settings::of(common)?.store } else { None };
        let number = RandomState::new().hash_one(std::process::id());
        let folder = temporary().join(format!("tenure-demo-{number:016x}"));
        let (uri, namespace) = if let Some(uri) = named {
            (uri, format!("demo-{number:016x}"))
        } else {
            let text = format!("sqlite:{}", folder.join("tenure.db").display());
            (Uri { text, file: None }, "demo".to_owned())
        };
        let database = match StoreUri::of(Some(&uri))? {
            StoreUri::Sqlite(path) => {
                Some(std::path::absolute(path).map_err(|error| cannot(&folder, &error))?)
            }
            StoreUri::Mongo(_) => None,
        };
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|error| cannot(&folder, &error))?;
        Ok(Self { folder, uri, database, is_named, namespace, keep })
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The store for people: without a password.
    pub(crate) fn name(&self) -> String {
        match &self.database {
            Some(path) => format!("sqlite:{}", path.display()),
            #[cfg(feature = "mongodb")]
            None => crate::place::without_secrets(&self.uri.text),
            #[cfg(not(feature = "mongodb"))]
            None => "mongodb".to_owned(),
        }
    }

    /// Says how to look at what is kept.
    pub(crate) fn how_to_look(&self) -> Option<String> {
        self.keep.then(|| {
            let store = if self.database.is_some() { self.name() } else { "...".to_owned() };
            format!("Kept: tenure ls --store {store} --namespace {}", self.namespace)
        })
    }

    /// Removes what the demo has written to a server, unless it is to be kept. The folder goes when this is dropped.
    #[cfg(feature = "mongodb")]
    pub(crate) async fn clear(&self) -> Result<(), Failure> {
        if self.keep || self.database.is_some() {
            return Ok(());
        }
        forget(&self.uri.text, &self.namespace).await
    }

    /// Says what stays where it cannot be removed: terms in a file of the user's never go back.
    pub(crate) fn stays(&self) -> Option<String> {
        (self.is_named && self.database.is_some() && !self.keep)
            .then(|| format!("Its records stay in {}, in the namespace {}.", self.name(), self.namespace))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            // No caller is left that could be told that it is still there.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// A folder for what is not kept: in memory if there is one, where no busy disk holds up a picture.
fn temporary() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let is_usable = || rustix::fs::access(memory, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    if std::env::var_os("TMPDIR").is_none() && is_usable() { memory.to_owned() } else { std::env::temp_dir() }
}

fn cannot(folder: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!(
        "the folder {} for the demo cannot be made: {error}; set TMPDIR to one that you can write to",
        folder.display()
    ))
}

/// Returns whether these arguments name a store.
fn names_a_store(arguments: impl Iterator<Item = String>) -> bool {
    let named = ["--store", "--store-file"];
    arguments.skip(1).any(|argument| named.contains(&argument.split('=').next().unwrap_or_default()))
}

/// Removes all records of a namespace that is not used any more, and will not be.
#[cfg(feature = "mongodb")]
async fn forget(uri: &str, namespace: &str) -> Result<(), Failure> {
    use tenure::store::mongo::driver::{
        Client,
        bson::{Document, doc},
    };

    let failed = |error: tenure::store::mongo::driver::error::Error| {
        Failure::store(format!("the records of the namespace {namespace} cannot be removed: {}", error.kind))
    };
    let client = Client::with_uri_str(uri).await.map_err(failed)?;
    let database = client.default_database().unwrap_or_else(|| client.database("tenure"));
    let sessions = database.collection::<Document>("sessions");
    sessions.delete_many(doc! { "ns": namespace }).await.map_err(failed)?;
    // Ids are documents that begin with the namespace.
    let beyond = format!("{namespace}\0");
    for collection in ["locks", "waiters", "runs"] {
        let of_namespace = doc! { "_id": { "$gt": { "ns": namespace }, "$lt": { "ns": &beyond } } };
        database.collection::<Document>(collection).delete_many(of_namespace).await.map_err(failed)?;
    }
    client.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_meant_if_it_is_an_argument() {
        let names = |line: &str| names_a_store(line.split(' ').map(str::to_owned));
        assert!(!names("tenure demo --time 20s"));
        assert!(names("tenure demo --store sqlite:x"));
        assert!(names("tenure --store=mongodb://h demo"));
        assert!(names("tenure demo --store-file=f"));
        assert!(!names("--store demo"), "the program's own name is none");
    }
}
