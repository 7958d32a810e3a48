//! The settings of an instance: from options, from variables, from a file, and else the defaults.

use std::{collections::BTreeMap, env, ffi::OsString, fs, path::PathBuf};

use clap::CommandFactory;
use serde::Deserialize;
use tenure::ElectConfig;
use tenure_look::shell_word;
use toml::{Table, Value};

use crate::{Cli, common::Common, exit::Failure, place::has_secret};

/// Fields of a configuration file in addition to those of the library.
const STORE: &str = "store";
const STORE_FILE: &str = "store_file";

/// Fields of the library that have a variable and no option.
const MORE: [&str; 8] = [
    "hold_duration",
    "margin",
    "poll_interval",
    "settle",
    "retention.locks",
    "retention.runs",
    "retention.run_entries",
    "retention.sessions",
];

/// Fields of the library that have an option, too.
const FIELDS: [&str; 6] =
    ["namespace", "holder", "takeover_within", "refresh_interval", "refresh_duration", "stop_grace"];

/// Fields that `takeover_within` determines.
const FOLLOW: [&str; 5] = ["refresh_interval", "refresh_duration", "hold_duration", "stop_grace", "margin"];

/// The settings and their sources.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The store's URI, if one was given.
    pub(crate) store: Option<Uri>,
    pub(crate) config: ElectConfig,
    sources: BTreeMap<&'static str, Source>,
}

/// Source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Option,
    Variable,
    File,
    /// Derived from other settings.
    Derived,
    Default,
}

impl Source {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Option => "option",
            Self::Variable => "variable",
            Self::File => "file",
            Self::Derived => "derived",
            Self::Default => "default",
        }
    }
}

/// The URI of a store.
#[derive(Clone, Debug)]
pub(crate) struct Uri {
    pub(crate) text: String,
    /// The file that it was read from, if it was: it is read again when the server refuses a login.
    #[cfg_attr(not(feature = "mongodb"), expect(dead_code, reason = "no other store has logins"))]
    pub(crate) file: Option<PathBuf>,
}

impl Settings {
    pub(crate) fn of(common: &Common) -> Result<Self, Failure> {
        check_variables(env::vars_os().map(|(name, _)| name))?;
        let mut written = common.config.as_ref().map_or_else(|| Ok(Table::new()), read_file)?;
        let mut sources: BTreeMap<&'static str, Source> = BTreeMap::new();
        check_fields(&written)?;
        let file_store = text_of(&mut written, STORE)?;
        let file_store_file = text_of(&mut written, STORE_FILE)?;
        let options = [
            ("namespace", &common.namespace),
            ("holder", &common.holder),
            ("takeover_within", &common.takeover_within),
            ("refresh_interval", &common.refresh_interval),
            ("refresh_duration", &common.refresh_duration),
            ("stop_grace", &common.stop_grace),
        ];
        let fields = options.iter().map(|(field, _)| *field).chain(MORE);
        sources.extend(fields.filter(|field| is_in(&written, field)).map(|field| (field, Source::File)));
        for field in MORE {
            if let Some(value) = variable_text(&variable(field))? {
                put(&mut written, field, value);
                sources.insert(field, Source::Variable);
            }
        }
        for (field, value) in options {
            if let Some(value) = value {
                put(&mut written, field, value.clone());
                sources.insert(field, option_or_variable(field, value));
            }
        }
        let of_store = match (&common.store, &common.store_file) {
            (Some(uri), _) => Some(option_or_variable(STORE, uri)),
            (None, Some(file)) => Some(option_or_variable(STORE_FILE, &file.to_string_lossy())),
            (None, None) => (file_store.is_some() || file_store_file.is_some()).then_some(Source::File),
        };
        sources.extend(of_store.map(|source| (STORE, source)));
        let store = store_uri(common, file_store, file_store_file)?;
        written.entry("namespace").or_insert_with(|| "default".into());
        written.entry("holder").or_insert_with(|| default_holder().into());
        let config = ElectConfig::deserialize(Value::Table(written))
            .map_err(|error| Failure::config(in_one_line(&error.to_string())))?;
        Ok(Self { store, config, sources })
    }

    /// Source of a setting.
    pub(crate) fn source(&self, setting: &str) -> Source {
        let follows =
            setting == "ttl" || FOLLOW.contains(&setting) && self.sources.contains_key("takeover_within");
        let otherwise = if follows { Source::Derived } else { Source::Default };
        self.sources.get(setting).copied().unwrap_or(otherwise)
    }
}

/// Takes a text out of what a file says.
fn text_of(written: &mut Table, field: &str) -> Result<Option<String>, Failure> {
    match written.remove(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(Failure::config(format!(
            "{field} in the configuration file is {other}, and has to be a text"
        ))),
    }
}

fn is_in(written: &Table, field: &str) -> bool {
    match field.split_once('.') {
        None => written.contains_key(field),
        Some((outer, inner)) => {
            written.get(outer).and_then(Value::as_table).is_some_and(|nested| nested.contains_key(inner))
        }
    }
}

/// The name of the variable for a field.
fn variable(field: &str) -> String {
    format!("TENURE_{}", field.replace('.', "_").to_ascii_uppercase())
}

/// An option of the same value as its variable counts as that.
fn option_or_variable(field: &str, value: &str) -> Source {
    if env::var(variable(field)).is_ok_and(|set| set == value) { Source::Variable } else { Source::Option }
}

/// The options of a command line that name the store and the namespace, for advice to be typed as it stands; of a store
/// with a password a placeholder.
pub(crate) fn options_of(common: &Common) -> String {
    let path = |path: &Option<PathBuf>| Some(path.as_ref()?.to_string_lossy().into_owned());
    let given = [
        (STORE, common.store.clone()),
        (STORE_FILE, path(&common.store_file)),
        ("namespace", common.namespace.clone()),
        ("config", path(&common.config)),
    ];
    let option = |(field, value): (&str, Option<String>)| {
        let value = value.filter(|value| option_or_variable(field, value) == Source::Option)?;
        let value = if has_secret(&value) { "URI" } else { &value };
        Some(format!(" --{}={}", field.replace('_', "-"), shell_word(value)))
    };
    given.into_iter().filter_map(option).collect()
}

/// Variables that are no settings: a child has these.
const OF_A_CHILD: [&str; 6] =
    ["TENURE_KEY", "TENURE_TERM", "TENURE_SCHEDULE", "TENURE_TICK", "TENURE_ATTEMPT", "TENURE_SPREAD"];

/// Refuses a variable that looks like a setting with a slip in it, or that is named like an option which is none.
fn check_variables(names: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let command = ["store", "store_file", "config", "output", "log"];
    let known: Vec<String> = command.into_iter().chain(FIELDS).chain(MORE).map(variable).collect();
    for name in names {
        let Some(name) = name.to_str() else { continue };
        let is_known = known.iter().any(|known| known == name) || OF_A_CHILD.contains(&name);
        if is_known || !name.starts_with("TENURE_") {
            continue;
        }
        if let Some(near) = known.iter().find(|known| distance(known, name) <= SLIP) {
            return Err(Failure::config(format!("the variable {name} is not known; did you mean {near}?")));
        }
        if let Some(option) = option_named_like(name) {
            return Err(Failure::config(format!(
                "the variable {name} has no effect: give --{option} on the command line, and unset it"
            )));
        }
    }
    Ok(())
}

/// Returns the option with a value, of whatever subcommand, that a variable is named like.
fn option_named_like(name: &str) -> Option<String> {
    let cli = Cli::command();
    let options = cli.get_subcommands().chain([&cli]).flat_map(clap::Command::get_opts);
    let mut options =
        options.filter(|option| option.get_action().takes_values()).filter_map(clap::Arg::get_long);
    options.find(|option| variable(&option.replace('-', "_")) == name).map(ToOwned::to_owned)
}

/// Refuses a field of a file that neither the command nor the library knows.
fn check_fields(written: &Table) -> Result<(), Failure> {
    let known: Vec<&str> = [STORE, STORE_FILE].into_iter().chain(FIELDS).chain(MORE).collect();
    let is_known = |field: &str| known.iter().any(|known| known.split('.').next() == Some(field));
    let Some(unknown) = written.keys().find(|field| !is_known(field)) else { return Ok(()) };
    let near = known.iter().find(|known| distance(known, unknown) <= SLIP);
    Err(Failure::config(match near {
        Some(near) => format!("{unknown} is not known; did you mean {near}?"),
        None => format!("{unknown} is not known; the known ones are {}", known.join(", ")),
    }))
}

/// Letters by which a slip differs, at most.
const SLIP: usize = 2;

/// Letters to add, leave out or change, from one text to the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, here) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (column, there) in other.iter().enumerate() {
            let changed = before + usize::from(here != *there);
            before = row[column + 1];
            row[column + 1] = changed.min(before + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
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
    let is_written = file_store.is_some() && file_store_file.is_some();
    let text = common.store.clone().or(file_store);
    let file = common.store_file.clone().or(file_store_file.map(PathBuf::from));
    match (text, file) {
        (Some(_), Some(_)) => {
            let twice = "store and store_file (--store and --store-file, TENURE_STORE and TENURE_STORE_FILE, or in the \
                         configuration file) name the store twice: set one of them";
            Err(if is_written { Failure::config(twice) } else { Failure::usage(twice) })
        }
        (Some(text), None) => Ok(Some(Uri { text, file: None })),
        (None, Some(file)) => {
            let text = fs::read_to_string(&file).map_err(|error| {
                Failure::config(format!(
                    "the file {} with the store's URI cannot be read: {error}",
                    file.display()
                ))
            })?;
            let text = text.trim().to_owned();
            if text.contains('\n') {
                return Err(Failure::config(format!(
                    "the file {} has more than one line: leave the store's URI alone in it",
                    file.display()
                )));
            }
            if text.is_empty() {
                return Err(Failure::config(format!(
                    "the file {} is empty: write the store's URI into it, sqlite:PATH or mongodb://...",
                    file.display()
                )));
            }
            Ok(Some(Uri { text, file: Some(file) }))
        }
        (None, None) => Ok(None),
    }
}

/// The host's name and the process id, so that no two of one machine bear the same name.
fn default_holder() -> String {
    let name = rustix::system::uname();
    let host = name.nodename().to_string_lossy();
    let host = if host.is_empty() { "host".into() } else { host };
    format!("{host}-{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn a_slip_in_a_variable_is_told_with_what_was_meant() {
        let check = |name: &str| {
            check_variables([OsString::from(name)].into_iter()).map_err(|failure| failure.message)
        };
        for name in
            ["TENURE_STORE", "TENURE_RETENTION_LOCKS", "TENURE_TERM", "TENURE_TEST", "TENURE_ROUNDS", "PATH"]
        {
            assert_eq!(check(name), Ok(()));
        }
        let said = check("TENURE_REFRESH_INTERVALL").unwrap_err();
        assert_eq!(
            said,
            "the variable TENURE_REFRESH_INTERVALL is not known; did you mean TENURE_REFRESH_INTERVAL?"
        );
        assert!(check("TENURE_STOR").is_err());
        for (name, option) in
            [("TENURE_ZONE", "zone"), ("TENURE_METRICS", "metrics"), ("TENURE_COLOR", "color")]
        {
            let said = check(name).unwrap_err();
            let rule = format!("the variable {name} has no effect: give --{option} on the command line");
            assert!(said.starts_with(&rule), "{said}");
        }
    }

    #[test]
    fn advice_has_the_options_that_were_given_and_no_password() {
        let options = |line: &[&str]| options_of(&Cli::try_parse_from(line).unwrap().common);
        let at = ["tenure", "--store", "mongodb://db/?replicaSet=a", "--namespace=-n", "status"];
        assert_eq!(options(&at), " --store='mongodb://db/?replicaSet=a' --namespace=-n");
        let with_password = ["tenure", "--store=mongodb://ann:secret@db/", "status", "--config=a b.toml"];
        assert_eq!(options(&with_password), " --store=URI --config='a b.toml'");
        assert_eq!(options(&["tenure", "status", "--store-file", "uri"]), " --store-file=uri");
    }

    #[test]
    fn a_distance_counts_letters() {
        for (one, other, letters) in
            [("", "", 0), ("abc", "abc", 0), ("abc", "abd", 1), ("abc", "bc", 1), ("a", "xyz", 3)]
        {
            assert_eq!(distance(one, other), letters, "{one} {other}");
        }
    }
}
