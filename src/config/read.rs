//! From written fields to a configuration, and back. Everything is read into values of one kind first, so that a message
//! names the field and the value, whatever format they came in.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use humantime_serde::re::humantime;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ConfigError, ElectConfig, near, shown::Shown, sooner::conflict};
use crate::model::{Holder, LimitError, Namespace};

/// Every field by its path.
pub(super) const FIELDS: [&str; 14] = [
    "namespace",
    "holder",
    "takeover_within",
    "hold_duration",
    "refresh_interval",
    "refresh_duration",
    "stop_grace",
    "margin",
    "poll_interval",
    "settle",
    "retention.locks",
    "retention.runs",
    "retention.run_entries",
    "retention.sessions",
];
/// The only table.
const RETENTION: &str = "retention";
/// The longest text that a message shows.
const LONGEST_SHOWN: usize = 64;

/// Examples of a duration.
const DURATIONS: &str = r#""500ms", "30s" or "1h 30m""#;
/// The longest text of a duration, and the longest number in it. `humantime` panics where a sum of parts is 2^64 s;
/// within these it stays far below.
const LONGEST_TEXT: usize = 64;
const MOST_DIGITS: usize = 10;

/// The fields that were written, by their paths, and the name of each where it was written.
struct Fields<'a> {
    written: BTreeMap<String, Value>,
    called: &'a dyn Fn(&str) -> String,
}

/// The configuration, checked. `called` says the name of a field where it was written.
pub(super) fn read(
    written: BTreeMap<String, Value>,
    called: &dyn Fn(&str) -> String,
) -> Result<ElectConfig, ConfigError> {
    let fields = Fields { written, called };
    fields.all_known()?;
    let (namespace, holder) =
        (fields.name("namespace", Namespace::new)?, fields.name("holder", Holder::new)?);
    let mut config = ElectConfig::of(namespace, holder);
    if let Some(within) = fields.get("takeover_within", duration)? {
        let derived = ["hold_duration", "refresh_interval", "refresh_duration"];
        if let Some(beside) = derived.into_iter().find(|field| fields.value(field).is_some()) {
            return Err(conflict(&called(beside)));
        }
        config = config.takeover_within(within);
    }
    for (field, to) in [
        ("hold_duration", &mut config.hold_duration),
        ("stop_grace", &mut config.stop_grace),
        ("margin", &mut config.margin),
        ("poll_interval", &mut config.poll_interval),
    ] {
        *to = fields.get(field, duration)?;
    }
    for (field, to) in [
        ("refresh_interval", &mut config.refresh_interval),
        ("refresh_duration", &mut config.refresh_duration),
        ("settle", &mut config.settle),
        ("retention.locks", &mut config.retention.locks),
        ("retention.runs", &mut config.retention_runs),
        ("retention.sessions", &mut config.retention.sessions),
    ] {
        *to = fields.get(field, duration)?.unwrap_or(*to);
    }
    if let Some(entries) = fields.get("retention.run_entries", number)? {
        config.retention_run_entries = entries;
    }
    config.validate()?;
    Ok(config)
}

impl Fields<'_> {
    /// A field that was written; a value of nothing is none.
    fn value(&self, field: &str) -> Option<&Value> {
        self.written.get(field).filter(|value| !value.is_null())
    }

    fn get<T>(&self, field: &str, read: fn(&Value) -> Result<T, String>) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        read(value).map(Some).map_err(|rule| refused(&(self.called)(field), value, rule))
    }

    /// A name, which is required, and says itself what it must be.
    fn name<T>(&self, field: &str, new: fn(String) -> Result<T, LimitError>) -> Result<T, ConfigError> {
        let called = (self.called)(field);
        match self.value(field) {
            None => Err(ConfigError::new(&called, format!("{called} is required but not set"))),
            Some(Value::String(text)) => new(text.clone()).map_err(|rule| {
                let place = if field == called { String::new() } else { format!("{called}: ") };
                ConfigError::new(&called, format!("{place}{rule}"))
            }),
            Some(other) => Err(refused(&called, other, "must be a string")),
        }
    }

    fn all_known(&self) -> Result<(), ConfigError> {
        let Some(field) = self.written.keys().find(|field| !FIELDS.contains(&field.as_str())) else {
            return Ok(());
        };
        let (table, name) = field.rsplit_once('.').unwrap_or_default();
        let name = if table.is_empty() { field } else { name };
        let of_table = |path: &'static str| match path.split_once('.') {
            Some((of, name)) => {
                Some(if of == table { name } else { of }).filter(|_| of == table || table.is_empty())
            }
            None => Some(path).filter(|_| table.is_empty()),
        };
        let known: BTreeSet<_> = FIELDS.into_iter().filter_map(of_table).collect();
        let near = near::names(name, known.iter().map(|name| (*name).to_owned()));
        let beside = |name: &String| if table.is_empty() { name.clone() } else { format!("{table}.{name}") };
        let hint = match &near.iter().map(beside).collect::<Vec<_>>()[..] {
            [] => format!("the known ones are {}", known.into_iter().collect::<Vec<_>>().join(", ")),
            near => format!("did you mean {}?", near.join(" or ")),
        };
        Err(ConfigError::new(field, format!("{field} is not known; {hint}")))
    }
}

/// The fields of a table, by their paths.
fn flat(table: Map<String, Value>) -> Result<BTreeMap<String, Value>, ConfigError> {
    let mut fields = BTreeMap::new();
    for (name, value) in table {
        match value {
            Value::Object(inner) if name == RETENTION => {
                fields.extend(inner.into_iter().map(|(name, value)| (format!("{RETENTION}.{name}"), value)));
            }
            Value::Null if name == RETENTION => {}
            other if name == RETENTION => return Err(refused(RETENTION, &other, "must be a table")),
            other if name.contains('.') => {
                return Err(refused(&name, &other, "must be in a table of its own"));
            }
            other => drop(fields.insert(name, other)),
        }
    }
    Ok(fields)
}

impl<'de> Deserialize<'de> for ElectConfig {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = match Value::deserialize(from)? {
            Value::Object(table) => flat(table).and_then(|fields| read(fields, &str::to_owned)),
            other => Err(refused("the configuration", &other, "must be a table")),
        };
        read.map_err(serde::de::Error::custom)
    }
}

impl Serialize for ElectConfig {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let time = |time: Duration| Some(Value::from(Shown(time).to_string()));
        // Others follow from it.
        let chosen = |chosen: Duration| time(chosen).filter(|_| self.takeover_within.is_none());
        let retention = [
            ("locks", time(self.retention.locks)),
            ("runs", time(self.retention_runs)),
            ("run_entries", Some(self.retention_run_entries.into())),
            ("sessions", time(self.retention.sessions)),
        ];
        let retention: Map<_, _> =
            retention.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        let fields = [
            ("namespace", Some(self.namespace.as_str().into())),
            ("holder", Some(self.holder.as_str().into())),
            ("takeover_within", self.takeover_within.and_then(time)),
            ("hold_duration", self.hold_duration.and_then(chosen)),
            ("refresh_interval", chosen(self.refresh_interval)),
            ("refresh_duration", chosen(self.refresh_duration)),
            ("stop_grace", self.stop_grace.and_then(time)),
            ("margin", self.margin.and_then(time)),
            ("poll_interval", self.poll_interval.and_then(time)),
            ("settle", time(self.settle)),
            (RETENTION, Some(retention.into())),
        ];
        to.collect_map(fields.into_iter().filter_map(|(name, value)| Some((name, value?))))
    }
}

fn refused(field: &str, value: &Value, rule: impl fmt::Display) -> ConfigError {
    ConfigError::new(field, format!("{field} ({}) {rule}", Written(value)))
}

/// A value, for a message.
struct Written<'a>(&'a Value);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => match text.char_indices().nth(LONGEST_SHOWN) {
                Some((end, _)) => write!(f, "{:?}...", &text[..end]),
                None => write!(f, "{text:?}"),
            },
            Value::Object(_) => f.write_str("a table"),
            Value::Array(_) => f.write_str("a list"),
            other => write!(f, "{other}"),
        }
    }
}

/// Reads a duration as `humantime` does, once it is sure that it can.
fn duration(written: &Value) -> Result<Duration, String> {
    let needs_unit = || Err(format!("needs a unit, as in {DURATIONS}"));
    let text = match written {
        Value::String(text) => text.trim(),
        Value::Number(_) => return needs_unit(),
        _ => return Err(format!("must be a duration such as {DURATIONS}")),
    };
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || ".,+-_".contains(c)) {
        return needs_unit();
    }
    let numbers = text.split(|c: char| !c.is_ascii_digit());
    if text.len() > LONGEST_TEXT || numbers.map(str::len).any(|digits| digits > MOST_DIGITS) {
        return Err(format!("is too long for a duration such as {DURATIONS}"));
    }
    humantime::parse_duration(text).map_err(|error| format!("is not a duration such as {DURATIONS}: {error}"))
}

/// Reads a number, which is a text where it comes out of a variable.
fn number(written: &Value) -> Result<usize, String> {
    let number = match written {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().and_then(|number| usize::try_from(number).ok()),
    };
    number.ok_or_else(|| "must be a number such as 100".to_owned())
}
