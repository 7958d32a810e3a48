//! From written fields to a configuration, and back. Everything is read into figment's values first, so
//! that a message names the field and the value, whatever format they came in.

use std::{fmt, time::Duration};

use figment::{
    error::Kind,
    value::{Dict, Value},
};
use serde::{Deserialize, Serialize};

use super::{ConfigError, ElectConfig, near, sooner::conflict};
use crate::model::{Holder, Namespace};

/// The longest text that a message shows.
const LONGEST_SHOWN: usize = 64;

/// The fields as they were written; nothing for those that were not.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    namespace: Namespace,
    holder: Holder,
    #[serde(default, with = "duration", skip_serializing_if = "Option::is_none")]
    takeover_within: Option<Duration>,
    #[serde(default, with = "duration", skip_serializing_if = "Option::is_none")]
    hold_duration: Option<Duration>,
    #[serde(default, with = "duration", skip_serializing_if = "Option::is_none")]
    refresh_interval: Option<Duration>,
    #[serde(default, with = "duration", skip_serializing_if = "Option::is_none")]
    refresh_duration: Option<Duration>,
    #[serde(default, with = "duration", skip_serializing_if = "Option::is_none")]
    stop_grace: Option<Duration>,
    #[serde(default, with = "duration", skip_serializing_if = "Option::is_none")]
    margin: Option<Duration>,
    #[serde(default, with = "duration", skip_serializing_if = "Option::is_none")]
    poll_interval: Option<Duration>,
    #[serde(default, with = "duration", skip_serializing_if = "Option::is_none")]
    settle: Option<Duration>,
    #[serde(default)]
    retention: RawRetention,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRetention {
    #[serde(default, with = "duration", skip_serializing_if = "Option::is_none")]
    locks: Option<Duration>,
    #[serde(default, with = "duration", skip_serializing_if = "Option::is_none")]
    runs: Option<Duration>,
    #[serde(default, with = "number", skip_serializing_if = "Option::is_none")]
    run_entries: Option<usize>,
    #[serde(default, with = "duration", skip_serializing_if = "Option::is_none")]
    sessions: Option<Duration>,
}

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

/// The configuration, checked. `called` says what a field is called where it was written.
pub(super) fn read(written: Dict, called: &dyn Fn(&str) -> String) -> Result<ElectConfig, ConfigError> {
    let written = Value::from(written);
    // serde would take the entries of a list by their places.
    if let Some(list @ Value::Array(..)) = written.find_ref("retention") {
        return Err(refused(&called("retention"), list, "must be a table"));
    }
    let raw: Raw = written.deserialize().map_err(|error| explained(&error, &written, called))?;
    if raw.takeover_within.is_some() {
        for (field, chosen) in [
            ("hold_duration", raw.hold_duration),
            ("refresh_interval", raw.refresh_interval),
            ("refresh_duration", raw.refresh_duration),
        ] {
            if chosen.is_some() {
                return Err(conflict(&called(field)));
            }
        }
    }
    let config = raw.into_config();
    config.validate()?;
    Ok(config)
}

impl Raw {
    fn into_config(self) -> ElectConfig {
        let mut config = ElectConfig::of(self.namespace, self.holder);
        if let Some(within) = self.takeover_within {
            config = config.takeover_within(within);
        }
        config.hold_duration = self.hold_duration;
        config.stop_grace = self.stop_grace;
        config.margin = self.margin;
        config.poll_interval = self.poll_interval;
        let RawRetention { locks, runs, run_entries, sessions } = self.retention;
        for (chosen, to) in [
            (self.refresh_interval, &mut config.refresh_interval),
            (self.refresh_duration, &mut config.refresh_duration),
            (self.settle, &mut config.settle),
            (locks, &mut config.retention.locks),
            (runs, &mut config.retention_runs),
            (sessions, &mut config.retention.sessions),
        ] {
            *to = chosen.unwrap_or(*to);
        }
        config.retention_run_entries = run_entries.unwrap_or(config.retention_run_entries);
        config
    }
}

impl<'de> Deserialize<'de> for ElectConfig {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = match <Value as Deserialize>::deserialize(from)? {
            Value::Dict(_, written) => read(written, &str::to_owned),
            other => Err(refused("the configuration", &other, "must be a table")),
        };
        read.map_err(serde::de::Error::custom)
    }
}

impl Serialize for ElectConfig {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // They follow from it.
        let chosen = |chosen: Duration| Some(chosen).filter(|_| self.takeover_within.is_none());
        Raw {
            namespace: self.namespace.clone(),
            holder: self.holder.clone(),
            takeover_within: self.takeover_within,
            hold_duration: self.hold_duration.and_then(chosen),
            refresh_interval: chosen(self.refresh_interval),
            refresh_duration: chosen(self.refresh_duration),
            stop_grace: self.stop_grace,
            margin: self.margin,
            poll_interval: self.poll_interval,
            settle: Some(self.settle),
            retention: RawRetention {
                locks: Some(self.retention.locks),
                runs: Some(self.retention_runs),
                run_entries: Some(self.retention_run_entries),
                sessions: Some(self.retention.sessions),
            },
        }
        .serialize(to)
    }
}

/// The error with the field as it is called where it was written, the value, and the rule.
fn explained(error: &figment::Error, written: &Value, called: &dyn Fn(&str) -> String) -> ConfigError {
    let field = error.path.join(".");
    let beside = |name: &str| match field.rsplit_once('.') {
        Some((table, _)) => format!("{table}.{name}"),
        None => name.to_owned(),
    };
    let value = written.find_ref(&field).filter(|_| !field.is_empty());
    match (&error.kind, value) {
        (Kind::MissingField(name), _) => {
            let field = called(name);
            ConfigError::new(&field, format!("{field} is required but not set"))
        }
        (Kind::UnknownField(name, known), _) => {
            let near = near::names(name, known.iter().map(|known| (*known).to_owned()));
            let near: Vec<_> = near.iter().map(|near| beside(near)).collect();
            let hint = match &near[..] {
                [] => format!("the known ones are {}", known.join(", ")),
                near => format!("did you mean {}?", near.join(" or ")),
            };
            ConfigError::new(&field, format!("{field} is not known; {hint}"))
        }
        // A name says itself what it must be.
        (Kind::Message(rule), Some(_)) if matches!(&*field, "namespace" | "holder") => {
            let field_called = called(&field);
            let place = if field == field_called { String::new() } else { format!("{field_called}: ") };
            ConfigError::new(field_called, format!("{place}{rule}"))
        }
        (Kind::Message(rule), Some(value)) => refused(&called(&field), value, rule),
        (_, Some(value)) if matches!(&*field, "namespace" | "holder") => {
            refused(&called(&field), value, "must be a string")
        }
        (_, Some(value)) => refused(&called(&field), value, "must be a table"),
        (kind, None) => ConfigError::new(field, kind.to_string()),
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
            Value::String(_, text) => match text.char_indices().nth(LONGEST_SHOWN) {
                Some((end, _)) => write!(f, "{:?}...", &text[..end]),
                None => write!(f, "{text:?}"),
            },
            Value::Char(_, letter) => write!(f, "{:?}", letter.to_string()),
            Value::Bool(_, truth) => write!(f, "{truth}"),
            Value::Num(_, number) => match (number.to_u128(), number.to_i128(), number.to_f64()) {
                (Some(number), ..) => write!(f, "{number}"),
                (_, Some(number), _) => write!(f, "{number}"),
                (.., Some(number)) => write!(f, "{number}"),
                _ => f.write_str("a number"),
            },
            Value::Dict(..) => f.write_str("a table"),
            Value::Array(..) => f.write_str("a list"),
            Value::Empty(..) => f.write_str("nothing"),
        }
    }
}

/// Durations as `humantime` reads them, once it is sure that it can.
mod duration {
    use std::time::Duration;

    use figment::value::Value;
    use humantime_serde::re::humantime;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::config::shown::Shown;

    const EXAMPLES: &str = r#""500ms", "30s" or "1h 30m""#;
    /// The longest text, and the longest number in it. `humantime` panics where a sum of parts is 2^64 s; within
    /// these it stays far below.
    const LONGEST_TEXT: usize = 64;
    const MOST_DIGITS: usize = 10;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let written = Option::<Value>::deserialize(from)?;
        written.map(|written| parse(&written).map_err(D::Error::custom)).transpose()
    }

    fn parse(written: &Value) -> Result<Duration, String> {
        let needs_unit = || Err(format!("needs a unit, as in {EXAMPLES}"));
        let text = match written {
            Value::String(_, text) => text.trim(),
            Value::Num(..) => return needs_unit(),
            _ => return Err(format!("must be a duration such as {EXAMPLES}")),
        };
        if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || ".,+-_".contains(c)) {
            return needs_unit();
        }
        let numbers = text.split(|c: char| !c.is_ascii_digit());
        if text.len() > LONGEST_TEXT || numbers.map(str::len).any(|digits| digits > MOST_DIGITS) {
            return Err(format!("is too long for a duration such as {EXAMPLES}"));
        }
        humantime::parse_duration(text)
            .map_err(|error| format!("is not a duration such as {EXAMPLES}: {error}"))
    }

    #[expect(clippy::ref_option, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.collect_str(&Shown(*time)),
            None => to.serialize_none(),
        }
    }
}

/// Numbers, which are texts where they come out of variables.
mod number {
    use figment::value::Value;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
        let Some(written) = Option::<Value>::deserialize(from)? else { return Ok(None) };
        let number = match &written {
            Value::String(_, text) => text.parse().ok(),
            Value::Num(_, number) => number
                .to_u128()
                .and_then(|number| usize::try_from(number).ok())
                .or_else(|| usize::try_from(number.to_i128()?).ok()),
            _ => None,
        };
        number.map(Some).ok_or_else(|| D::Error::custom("must be a number such as 100"))
    }

    #[expect(clippy::ref_option, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(number: &Option<usize>, to: S) -> Result<S::Ok, S::Error> {
        number.serialize(to)
    }
}
