use super::Invariant;
use crate::{Entry, EventKind, Registry};

/// A program that is told that a lock is given back finds it so at the primary, unless the session ends. A
/// change of primary may undo it: then the audit gives it back again, which liveness judges.
pub(super) struct Released;

impl Invariant for Released {
    fn name(&self) -> &'static str {
        "released means released"
    }

    fn see(&mut self, registry: &Registry, entry: &Entry) -> Result<(), String> {
        let (Some(life), EventKind::Returned { key, term }) = (entry.life, &entry.what) else {
            return Ok(());
        };
        let Some(grant) = registry.grant(*key, *term) else { return Ok(()) };
        let Some(session) = registry.session(grant.session) else { return Ok(()) };
        let ends = session.over || session.died.is_some() || session.end.is_none_or(|end| entry.local >= end);
        if grant.over || grant.given_back || grant.void || ends || registry.is_closing(life) {
            return Ok(());
        }
        Err(format!("term {term} of key {key} is given back, the program was told, and its record stands"))
    }
}
