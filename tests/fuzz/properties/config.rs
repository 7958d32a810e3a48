//! Configuration as text and as variables: refused by the name of a field, or keeping every rule and read
//! back the same.

use std::{ffi::OsString, time::Duration};

use serde_json::{Map, Value, json};
use tenure::{ConfigError, ElectConfig, testing::read_variables};

use super::source::Source;

const TIMES: [&str; 11] = [
    "hold_duration",
    "refresh_interval",
    "refresh_duration",
    "stop_grace",
    "margin",
    "poll_interval",
    "settle",
    "locks",
    "runs",
    "sessions",
    "takeover_within",
];
const UNITS: [&str; 12] = ["ns", "us", "ms", "s", " s", "m", "h", "d", "w", "M", "y", "s "];

/// The bytes as a text of each format, and a configuration made of them in each format.
pub(crate) fn config(bytes: &[u8]) -> bool {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(table) = text.parse::<toml::Table>() {
            judged(toml::from_str(text), &names(&table));
        }
        if let Ok(value) = serde_json::from_str::<Value>(text) {
            from_json(&value);
        }
        let _ = toml::from_str::<ElectConfig>(text);
        let _ = serde_json::from_str::<ElectConfig>(text);
    }
    let mut source = Source::new(bytes);
    let fields = fields(&mut source);
    let json = from_json(&Value::Object(fields.clone()));
    let variables = from_variables(&fields, &mut source);
    json | variables
}

// ----- each format

fn from_json(value: &Value) -> bool {
    let mut written = vec![];
    if let Value::Object(fields) = value {
        for (name, value) in fields {
            written.push(name.clone());
            written.extend(value.as_object().into_iter().flat_map(|inner| inner.keys().cloned()));
        }
    } else {
        written.push("table".to_owned());
    }
    let read = judged(serde_json::from_value::<ElectConfig>(value.clone()), &written);
    // The same in the other format, as far as that has it.
    if let Ok(text) = toml::to_string(value)
        && !text.contains("$__")
        && !text.is_empty()
    {
        let other = judged(toml::from_str::<ElectConfig>(&text), &written);
        assert!(read.is_none() || read == other, "{text}");
    }
    read.is_some()
}

fn from_variables(fields: &Map<String, Value>, source: &mut Source<'_>) -> bool {
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    let mut add = |name: &str, value: &Value| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Object(inner) if name == "takeover" => {
                let parts =
                    inner.iter().map(|(key, value)| [key, ":", value.as_str().unwrap_or("2s")].concat());
                parts.collect()
            }
            other => other.to_string(),
        };
        variables.push((format!("P_{}", name.to_ascii_uppercase()).into(), text.into()));
    };
    for (name, value) in fields {
        match value {
            Value::Object(inner) if name == "retention" => {
                inner.iter().for_each(|(part, value)| add(&format!("retention_{part}"), value));
            }
            value => add(name, value),
        }
    }
    variables.push((format!("P_{}", source.text(9)).into(), source.text(9).into()));
    let read: Result<_, ConfigError> = read_variables("P_", variables.clone());
    if let Err(error) = &read {
        let named = error.field().to_ascii_uppercase();
        assert!(!named.is_empty() && error.to_string().to_ascii_uppercase().contains(&named), "{error}");
    }
    judged(
        read,
        &variables.iter().filter_map(|(name, _)| name.clone().into_string().ok()).collect::<Vec<_>>(),
    )
    .is_some()
}

// ----- what holds

fn names(table: &toml::Table) -> Vec<String> {
    let inner = table.values().filter_map(toml::Value::as_table).flat_map(|inner| inner.keys());
    table.keys().chain(inner).cloned().collect()
}

/// A refusal names a field that was written, or one that should have been.
fn judged<E: std::fmt::Display>(read: Result<ElectConfig, E>, written: &[String]) -> Option<ElectConfig> {
    match read {
        Ok(config) => {
            keeps_every_rule(&config);
            is_read_back(&config);
            Some(config)
        }
        Err(error) => {
            let text = error.to_string();
            let names = |name: &&str| text.to_ascii_lowercase().contains(&name.to_ascii_lowercase());
            let known = TIMES.into_iter().chain(["namespace", "holder", "takeover", "retention"]);
            let named = written.iter().map(String::as_str).chain(known).any(|name| names(&name));
            assert!(named, "{text} names none of {written:?}");
            assert!(text.len() < 4000, "{text}");
            None
        }
    }
}

fn keeps_every_rule(config: &ElectConfig) {
    let [ttl, interval, refresh, hold, grace, margin] = [
        config.ttl(),
        config.refresh_interval(),
        config.refresh_duration(),
        config.hold_duration(),
        config.stop_grace(),
        config.margin(),
    ]
    .map(|time| {
        // As the store keeps it.
        let millis = u64::try_from(time.as_millis()).expect("it was accepted");
        assert_eq!(Duration::from_millis(millis), time, "nothing is cut off: {config:?}");
        assert!(millis > 0, "{config:?}");
        millis
    });
    assert!(refresh >= 2 * interval + margin + grace, "{config:?}");
    assert!(50 * margin >= ttl, "{config:?}");
    assert!(grace + margin < ttl, "{config:?}");
    assert!(ttl >= hold + interval && ttl >= refresh, "{config:?}");
    assert!(config.retention_sessions() >= config.ttl(), "{config:?}");
    config.validate().unwrap();
}

fn is_read_back(config: &ElectConfig) {
    let json = serde_json::to_value(config).unwrap();
    assert_eq!(&serde_json::from_value::<ElectConfig>(json).unwrap(), config);
    let text = toml::to_string(config).unwrap_or_else(|error| panic!("{error}: {config:?}"));
    assert_eq!(&toml::from_str::<ElectConfig>(&text).unwrap(), config, "{text}");
}

// ----- configurations

/// Most fields, most of them as they may be meant, in an order of size that may be accepted.
fn fields(source: &mut Source<'_>) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut retention = Map::new();
    if !source.one_in(16) {
        fields.insert("namespace".to_owned(), text(source, "shop"));
        fields.insert("holder".to_owned(), text(source, "pod-7"));
    }
    let scale = 1 + source.number() % 5_000;
    for (name, usual) in TIMES.into_iter().zip([20, 5, 30, 4, 3, 5, 1, 700, 700, 100, 30]) {
        // It excludes three of the others.
        if !source.one_in(if name == "takeover_within" { 12 } else { 3 }) {
            continue;
        }
        let value =
            if source.one_in(6) { anything(source, 2) } else { json!(format!("{}ms", usual * scale)) };
        let to = if matches!(name, "locks" | "runs" | "sessions") { &mut retention } else { &mut fields };
        to.insert(name.to_owned(), value);
    }
    match source.below(8) {
        5 => drop(retention.insert("run_entries".to_owned(), json!(source.number()))),
        6 => drop(retention.insert("run_entries".to_owned(), json!(source.number().to_string()))),
        7 => drop(retention.insert("run_entries".to_owned(), anything(source, 1))),
        _ => {}
    }
    if !retention.is_empty() {
        fields.insert("retention".to_owned(), Value::Object(retention));
    }
    match source.below(12) {
        1 => drop(fields.insert("retention".to_owned(), anything(source, 2))),
        2 => drop(fields.insert(source.text(12), anything(source, 1))),
        _ => {}
    }
    fields
}

fn text(source: &mut Source<'_>, usual: &str) -> Value {
    if source.one_in(8) { anything(source, 1) } else { json!(usual) }
}

fn anything(source: &mut Source<'_>, depth: usize) -> Value {
    match source.below(10) {
        0 => json!((0..source.below(4)).map(|_| duration(source)).collect::<String>()),
        1 => json!(source.text(24)),
        2 => json!(source.number()),
        3 => json!(source.number().cast_signed()),
        4 => json!(f64::from_bits(source.number())),
        5 => json!(source.one_in(2)),
        6 => Value::Null,
        7 if depth > 0 => Value::Array((0..source.below(3)).map(|_| anything(source, depth - 1)).collect()),
        8 if depth > 0 => {
            let names = ["runs", "locks", "a"];
            (0..source.below(3))
                .map(|_| (source.pick(&names).to_owned(), anything(source, depth - 1)))
                .collect()
        }
        _ => json!(duration(source)),
    }
}

fn duration(source: &mut Source<'_>) -> String {
    format!("{}{}", source.number(), source.pick(&UNITS))
}
