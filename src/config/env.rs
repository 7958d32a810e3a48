//! A configuration from variables.

use std::ffi::OsString;

use super::{
    ConfigError, ElectConfig,
    read::{Raw, RawValue},
};

/// How many letters may be wrong in a name that is taken for a field's.
const NEAR: usize = 2;

/// Reads what concerns tenure out of all the variables there are.
///
/// # Errors
/// As [`ElectConfig::from_env`].
#[cfg_attr(not(feature = "testing"), expect(unreachable_pub, reason = "tests are given it by `testing`"))]
pub fn read(
    prefix: &str,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<ElectConfig, ConfigError> {
    let called = |field: &str| format!("{prefix}{}", variable(field));
    let mut raw = Raw::default();
    for (name, value) in variables {
        // What is not UTF-8 is no name of ours.
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(prefix)) else { continue };
        let mut slots = raw.slots();
        if let Some((_, slot)) = slots.iter_mut().find(|(field, _)| variable(field) == rest) {
            let Ok(value) = value.into_string() else {
                let name = format!("{prefix}{rest}");
                let message = format!("the value of {name} is not UTF-8");
                return Err(ConfigError::new(name, message));
            };
            **slot = Some(RawValue::Text(value));
            continue;
        }
        let near = nearest(rest, slots.iter().map(|(field, _)| variable(field)));
        if !near.is_empty() {
            let near: Vec<_> = near.iter().map(|field| format!("{prefix}{field}")).collect();
            let name = format!("{prefix}{rest}");
            let message = format!("{name} is not known; did you mean {}?", near.join(" or "));
            return Err(ConfigError::new(name, message));
        }
    }
    raw.read(&called)
}

/// What a field is called among the variables, after the prefix.
fn variable(field: &str) -> String {
    field.replace('.', "_").to_ascii_uppercase()
}

/// Those of the names that are nearest to this one, if they are near at all.
fn nearest(name: &str, known: impl Iterator<Item = String>) -> Vec<String> {
    let name = name.to_ascii_uppercase();
    let near: Vec<_> = known.map(|known| (distance(&name, &known), known)).collect();
    let least = near.iter().map(|(distance, _)| *distance).min().unwrap_or(usize::MAX);
    let near = near.into_iter().filter(|(distance, _)| *distance == least && least <= NEAR);
    near.map(|(_, known)| known).collect()
}

/// How many letters must be added, left out or changed to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<_> = other.chars().collect();
    // A row for each letter of the first: the distance of what was read of it to each beginning of the other.
    let mut row: Vec<_> = (0..=other.len()).collect();
    for (count, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], count + 1);
        for (at, wanted) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *wanted);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[other.len()]
}
