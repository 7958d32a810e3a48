//! From what somebody wrote to a configuration, and back. Everything is read as it stands first, so
//! that a message can name the field, whatever format it came in.

use std::{fmt, marker::PhantomData, time::Duration};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
    ser::SerializeMap,
};

use super::{ConfigError, ElectConfig, sooner::conflict};
use crate::model::LimitError;

/// The longest text of a duration, and the longest number in one. `humantime` panics where a sum of
/// parts is 2^64 s; within these it stays far below.
const LONGEST_TEXT: usize = 64;
const MOST_DIGITS: usize = 10;
const EXAMPLES: &str = r#""500ms", "30s" or "1h 30m""#;

/// The fields as they were written; nothing for those that were not.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    takeover_within: Option<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_duration: Option<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_interval: Option<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_duration: Option<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_grace: Option<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    margin: Option<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_interval: Option<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settle: Option<RawValue>,
    retention: Table<RawRetention>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawRetention {
    #[serde(skip_serializing_if = "Option::is_none")]
    locks: Option<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_entries: Option<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<RawValue>,
}

/// What is written by name only: serde would also read a list, and take its entries by their places.
#[derive(Debug, Default)]
pub(super) struct Table<T>(T);

trait Fields {
    /// What it is, for a message.
    const WHAT: &'static str;
}

impl Fields for Raw {
    const WHAT: &'static str = "a table with the fields of a configuration";
}

impl Fields for RawRetention {
    const WHAT: &'static str = "a table for `retention`";
}

impl<'de, T: Fields + Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Only<T>(PhantomData<T>);

        impl<'de, T: Fields + Deserialize<'de>> Visitor<'de> for Only<T> {
            type Value = Table<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::WHAT)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Table<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Table)
            }
        }

        from.deserialize_map(Only(PhantomData))
    }
}

impl<T: Serialize> Serialize for Table<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl Raw {
    /// Every field with its name.
    pub(super) fn slots(&mut self) -> [(&'static str, &mut Option<RawValue>); 14] {
        let Table(retention) = &mut self.retention;
        [
            ("namespace", &mut self.namespace),
            ("holder", &mut self.holder),
            ("takeover_within", &mut self.takeover_within),
            ("hold_duration", &mut self.hold_duration),
            ("refresh_interval", &mut self.refresh_interval),
            ("refresh_duration", &mut self.refresh_duration),
            ("stop_grace", &mut self.stop_grace),
            ("margin", &mut self.margin),
            ("poll_interval", &mut self.poll_interval),
            ("settle", &mut self.settle),
            ("retention.locks", &mut retention.locks),
            ("retention.runs", &mut retention.runs),
            ("retention.run_entries", &mut retention.run_entries),
            ("retention.sessions", &mut retention.sessions),
        ]
    }

    /// The configuration, checked. `called` says what a field is called where it was written.
    pub(super) fn read(self, called: &dyn Fn(&str) -> String) -> Result<ElectConfig, ConfigError> {
        let text = |field: &str, written: Option<RawValue>| match written {
            Some(RawValue::Text(text)) => Ok(text),
            Some(other) => Err(refused(&called(field), &other, "must be a text")),
            None => Err(missing(&called(field))),
        };
        let Table(retention) = self.retention;
        let namespace = text("namespace", self.namespace)?;
        let holder = text("holder", self.holder)?;
        let mut config = ElectConfig::new(
            namespace.parse().map_err(|error| limited("namespace", &called("namespace"), &error))?,
            holder.parse().map_err(|error| limited("holder", &called("holder"), &error))?,
        );
        let time = |field: &str, written: &Option<RawValue>| {
            written.as_ref().map(|written| duration(&called(field), written)).transpose()
        };
        if let Some(within) = time("takeover_within", &self.takeover_within)? {
            for (field, written) in [
                ("hold_duration", &self.hold_duration),
                ("refresh_interval", &self.refresh_interval),
                ("refresh_duration", &self.refresh_duration),
            ] {
                if written.is_some() {
                    return Err(conflict(&called(field)));
                }
            }
            config = config.takeover_within(within);
        }
        config.hold_duration = time("hold_duration", &self.hold_duration)?;
        config.stop_grace = time("stop_grace", &self.stop_grace)?;
        config.margin = time("margin", &self.margin)?;
        config.poll_interval = time("poll_interval", &self.poll_interval)?;
        for (field, written, to) in [
            ("refresh_interval", &self.refresh_interval, &mut config.refresh_interval),
            ("refresh_duration", &self.refresh_duration, &mut config.refresh_duration),
            ("settle", &self.settle, &mut config.settle),
            ("retention.locks", &retention.locks, &mut config.retention.locks),
            ("retention.runs", &retention.runs, &mut config.retention_runs),
            ("retention.sessions", &retention.sessions, &mut config.retention.sessions),
        ] {
            *to = time(field, written)?.unwrap_or(*to);
        }
        if let Some(written) = retention.run_entries {
            config.retention_run_entries = number(&called("retention.run_entries"), &written)?;
        }
        config.validate()?;
        Ok(config)
    }
}

impl TryFrom<Table<Raw>> for ElectConfig {
    type Error = ConfigError;

    fn try_from(Table(raw): Table<Raw>) -> Result<Self, ConfigError> {
        raw.read(&str::to_owned)
    }
}

impl From<ElectConfig> for Raw {
    fn from(config: ElectConfig) -> Self {
        let text = |text: &dyn fmt::Display| Some(RawValue::Text(text.to_string()));
        let time = |time: Duration| text(&Shown(time));
        // They follow from it.
        let chosen = |chosen: Duration| time(chosen).filter(|_| config.takeover_within.is_none());
        Self {
            takeover_within: config.takeover_within.and_then(time),
            namespace: text(&config.namespace),
            holder: text(&config.holder),
            hold_duration: config.hold_duration.and_then(chosen),
            refresh_interval: chosen(config.refresh_interval),
            refresh_duration: chosen(config.refresh_duration),
            stop_grace: config.stop_grace.and_then(time),
            margin: config.margin.and_then(time),
            poll_interval: config.poll_interval.and_then(time),
            settle: time(config.settle),
            retention: Table(RawRetention {
                locks: time(config.retention.locks),
                runs: time(config.retention_runs),
                run_entries: Some(RawValue::Number(config.retention_run_entries.to_string())),
                sessions: time(config.retention.sessions),
            }),
        }
    }
}

/// A value as it was written.
#[derive(Clone, Debug)]
pub(super) enum RawValue {
    Text(String),
    Number(String),
    /// `true` or `false`.
    Truth(bool),
    Table(Vec<(String, RawValue)>),
    /// A list, whatever is in it.
    List,
    /// `null`, where a format has such.
    Nothing,
}

impl fmt::Display for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => match text.char_indices().nth(LONGEST_TEXT) {
                Some((end, _)) => write!(f, "{:?}...", &text[..end]),
                None => write!(f, "{text:?}"),
            },
            Self::Number(number) => f.write_str(number),
            Self::Truth(truth) => write!(f, "{truth}"),
            Self::Table(_) => f.write_str("a table"),
            Self::List => f.write_str("a list"),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = RawValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number or a table")
            }

            fn visit_str<E>(self, text: &str) -> Result<RawValue, E> {
                Ok(RawValue::Text(text.to_owned()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<RawValue, E> {
                Ok(RawValue::Number(number.to_string()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<RawValue, E> {
                Ok(RawValue::Number(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<RawValue, E> {
                Ok(RawValue::Number(number.to_string()))
            }

            fn visit_bool<E>(self, truth: bool) -> Result<RawValue, E> {
                Ok(RawValue::Truth(truth))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawValue, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(RawValue::Table(entries))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RawValue, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(RawValue::List)
            }

            fn visit_unit<E>(self) -> Result<RawValue, E> {
                Ok(RawValue::Nothing)
            }
        }

        from.deserialize_any(Any)
    }
}

impl Serialize for RawValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => to.serialize_str(text),
            Self::Number(number) => match number.parse::<u64>() {
                Ok(number) => to.serialize_u64(number),
                Err(_) => to.serialize_str(number),
            },
            Self::Truth(truth) => to.serialize_bool(*truth),
            Self::Table(entries) => {
                let mut map = to.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
            // Never of a configuration.
            Self::List | Self::Nothing => to.serialize_unit(),
        }
    }
}

/// A duration as people write it: `1m 30s`.
#[derive(Clone, Copy)]
pub(super) struct Shown(pub(super) Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), u64::from(self.0.subsec_nanos()));
        let parts = [
            (seconds / 86_400, "d"),
            (seconds / 3600 % 24, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
            (nanos / 1_000_000, "ms"),
            (nanos / 1000 % 1000, "us"),
            (nanos % 1000, "ns"),
        ];
        let mut gap = "";
        for (number, unit) in parts.into_iter().filter(|(number, _)| *number > 0) {
            write!(f, "{gap}{number}{unit}")?;
            gap = " ";
        }
        if gap.is_empty() { f.write_str("0s") } else { Ok(()) }
    }
}

fn refused(field: &str, written: &RawValue, rule: impl fmt::Display) -> ConfigError {
    ConfigError::new(field, format!("{field} ({written}) {rule}"))
}

fn missing(field: &str) -> ConfigError {
    ConfigError::new(field, format!("{field} is required, and not set"))
}

fn limited(field: &str, called: &str, error: &LimitError) -> ConfigError {
    let place = if field == called { String::new() } else { format!("{called}: ") };
    ConfigError::new(called, format!("{place}{error}"))
}

fn duration(field: &str, written: &RawValue) -> Result<Duration, ConfigError> {
    let unit = || Err(refused(field, written, format_args!("needs a unit, as in {EXAMPLES}")));
    let text = match written {
        RawValue::Text(text) => text.trim(),
        RawValue::Number(_) => return unit(),
        _ => return Err(refused(field, written, format_args!("must be a duration such as {EXAMPLES}"))),
    };
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || ".,+-_".contains(c)) {
        return unit();
    }
    let numbers = text.split(|c: char| !c.is_ascii_digit());
    if text.len() > LONGEST_TEXT || numbers.map(str::len).any(|digits| digits > MOST_DIGITS) {
        return Err(refused(field, written, format_args!("is too long for a duration such as {EXAMPLES}")));
    }
    humantime::parse_duration(text).map_err(|error| {
        refused(field, written, format_args!("is not a duration such as {EXAMPLES}: {error}"))
    })
}

fn number(field: &str, written: &RawValue) -> Result<usize, ConfigError> {
    let parsed = match written {
        RawValue::Number(number) | RawValue::Text(number) => number.parse().ok(),
        RawValue::Truth(_) | RawValue::Table(_) | RawValue::List | RawValue::Nothing => None,
    };
    parsed.ok_or_else(|| refused(field, written, "must be a number such as 100"))
}
