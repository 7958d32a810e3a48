//! The settings of an instance: from options, from variables, from a file, and else the defaults.

use std::{env, fs, path::PathBuf};

use serde::Deserialize;
use tenure::ElectConfig;
use toml::{Table, Value};

use crate::{common::Common, exit::Failure};

/// What a configuration file may say beside the fields of the library.
const STORE: &str = "store";
const STORE_FILE: &str = "store_file";

/// Fields of the library that have a variable and no option.
const MORE: [&str; 7] = [
    "hold_duration",
    "margin",
    "poll_interval",
    "settle",
    "retention.locks",
    "retention.runs",
    "retention.sessions",
];

/// What was set, and where.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The store's URI, if one was given.
    pub(crate) store: Option<Uri>,
    pub(crate) config: ElectConfig,
}

/// The URI of a store.
#[derive(Clone, Debug)]
pub(crate) struct Uri {
    pub(crate) text: String,
    /// The file that it was read from, if it was: it is read again when the server refuses a login.
    pub(crate) file: Option<PathBuf>,
}

impl Settings {
    pub(crate) fn of(common: &Common) -> Result<Self, Failure> {
        let mut written = common.config.as_ref().map_or_else(|| Ok(Table::new()), read_file)?;
        let mut of_file = |field: &str| -> Result<Option<String>, Failure> {
            match written.remove(field) {
                None => Ok(None),
                Some(Value::String(text)) => Ok(Some(text)),
                Some(other) => Err(Failure::config(format!(
                    "{field} in the configuration file is {other}, and has to be a text"
                ))),
            }
        };
        let (file_store, file_store_file) = (of_file(STORE)?, of_file(STORE_FILE)?);
        let store = store_uri(common, file_store, file_store_file)?;
        let options = [
            ("namespace", &common.namespace),
            ("holder", &common.holder),
            ("takeover_within", &common.takeover_within),
            ("refresh_interval", &common.refresh_interval),
            ("refresh_duration", &common.refresh_duration),
            ("stop_grace", &common.stop_grace),
        ];
        for field in MORE {
            let variable = format!("TENURE_{}", field.replace('.', "_").to_ascii_uppercase());
            if let Some(value) = variable_text(&variable)? {
                put(&mut written, field, value);
            }
        }
        for (field, value) in options {
            if let Some(value) = value {
                put(&mut written, field, value.clone());
            }
        }
        written.entry("namespace").or_insert_with(|| "default".into());
        written.entry("holder").or_insert_with(|| default_holder().into());
        let config = ElectConfig::deserialize(Value::Table(written))
            .map_err(|error| Failure::config(in_one_line(&error.to_string())))?;
        Ok(Self { store, config })
    }
}

/// Errors of the parser are several lines, the first of which may be empty.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn put(table: &mut Table, field: &str, value: String) {
    match field.split_once('.') {
        None => {
            table.insert(field.to_owned(), value.into());
        }
        Some((outer, inner)) => {
            let nested = table.entry(outer).or_insert_with(|| Table::new().into());
            if let Value::Table(nested) = nested {
                nested.insert(inner.to_owned(), value.into());
            }
        }
    }
}

fn variable_text(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(text) => Ok(Some(text)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => {
            Err(Failure::config(format!("the value of the variable {name} is not UTF-8")))
        }
    }
}

fn read_file(path: &PathBuf) -> Result<Table, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::config(format!("the configuration file {name} cannot be read: {error}")))?;
    toml::from_str(&text).map_err(|error| {
        Failure::config(format!(
            "the configuration file {name} cannot be understood: {}",
            in_one_line(&error.to_string())
        ))
    })
}

fn store_uri(
    common: &Common,
    file_store: Option<String>,
    file_store_file: Option<String>,
) -> Result<Option<Uri>, Failure> {
    if common.store.is_some() && common.store_file.is_some() {
        return Err(Failure::usage(
            "--store and --store-file (or TENURE_STORE and TENURE_STORE_FILE) name the store twice: set one of them",
        ));
    }
    let plain = |text| Ok(Some(Uri { text, file: None }));
    if let Some(text) = &common.store {
        return plain(text.clone());
    }
    let file = common
        .store_file
        .clone()
        .or_else(|| if file_store.is_some() { None } else { file_store_file.map(PathBuf::from) });
    if let Some(file) = file {
        let text = fs::read_to_string(&file).map_err(|error| {
            Failure::config(format!(
                "the file {} with the store's URI cannot be read: {error}",
                file.display()
            ))
        })?;
        return Ok(Some(Uri { text: text.trim().to_owned(), file: Some(file) }));
    }
    file_store.map_or(Ok(None), plain)
}

/// The host's name and the process id, so that no two of one machine bear the same name.
fn default_holder() -> String {
    let name = rustix::system::uname();
    let host = name.nodename().to_string_lossy();
    let host = if host.is_empty() { "host".into() } else { host };
    format!("{host}-{}", std::process::id())
}
