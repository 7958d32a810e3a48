use super::Invariant;
use crate::{Entry, EventKind, Registry};

/// From the moment a key is granted to another holder, or free, no poll begins under its earlier lease.
pub(super) struct Exclusion;

impl Invariant for Exclusion {
    fn name(&self) -> &'static str {
        "exclusion"
    }

    fn see(&mut self, registry: &Registry, entry: &Entry) -> Result<(), String> {
        let (Some(_), EventKind::Polled { key, term }) = (entry.life, &entry.what) else { return Ok(()) };
        let Some(grant) = registry.grant(*key, *term).filter(|grant| !grant.void) else { return Ok(()) };
        match registry.current(*key) {
            Some(current) if current != *term => Err(format!(
                "a poll begins under term {term} of key {key}, which is granted under term {current} since"
            )),
            _ if grant.over => {
                Err(format!("a poll begins under term {term} of key {key}, which is free since"))
            }
            _ => Ok(()),
        }
    }
}
