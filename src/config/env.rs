//! A configuration from variables.

use std::{collections::BTreeMap, ffi::OsString};

use super::{
    ConfigError, ElectConfig, near,
    read::{self, FIELDS},
};

/// Reads what concerns tenure out of all the variables there are.
///
/// # Errors
/// As [`ElectConfig::from_env`].
#[cfg_attr(not(feature = "testing"), expect(unreachable_pub, reason = "tests are given it by `testing`"))]
pub fn read(
    prefix: &str,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<ElectConfig, ConfigError> {
    let mut written = BTreeMap::new();
    for (name, value) in variables {
        // A name that is not UTF-8 is none of ours.
        let Some(name) = name.to_str() else { continue };
        let Some(rest) = name.strip_prefix(prefix) else { continue };
        if let Some(field) = FIELDS.into_iter().find(|field| variable(field) == rest) {
            let Ok(value) = value.into_string() else {
                return Err(ConfigError::new(name, format!("the value of {name} is not UTF-8")));
            };
            written.insert(field.to_owned(), value.into());
            continue;
        }
        let near = near::names(&rest.to_ascii_uppercase(), FIELDS.into_iter().map(variable));
        if !near.is_empty() {
            let near: Vec<_> = near.iter().map(|field| format!("{prefix}{field}")).collect();
            let message = format!("{name} is not known; did you mean {}?", near.join(" or "));
            return Err(ConfigError::new(name, message));
        }
    }
    read::read(written, &|field| format!("{prefix}{}", variable(field)))
}

/// Name of the variable for a field, after the prefix.
fn variable(field: &str) -> String {
    field.replace('.', "_").to_ascii_uppercase()
}
