use super::Invariant;
use crate::{Entry, EventKind, Registry};

/// An instance closes its own session only when nothing runs under it any more: no job, no call that
/// blocks, and no guard is out.
pub(super) struct Closing;

impl Invariant for Closing {
    fn name(&self) -> &'static str {
        "closing"
    }

    fn see(&mut self, registry: &Registry, entry: &Entry) -> Result<(), String> {
        let EventKind::Died { session: id, by: Some(life), .. } = &entry.what else { return Ok(()) };
        let Some(session) = registry.session(*id).filter(|session| session.life == Some(*life)) else {
            return Ok(());
        };
        // By then any observer may: its end has passed.
        if entry.at.saturating_sub(session.beaten) >= session.ttl * 100 / 101 {
            return Ok(());
        }
        for (key, term, lease) in registry.leases_of(*life) {
            let of_it = registry.grant(key, term).is_some_and(|grant| grant.session == *id);
            if of_it && lease.running > 0 {
                let sort = lease.sort;
                return Err(format!(
                    "a session was closed while a {sort:?} is out under term {term} of key {key}"
                ));
            }
        }
        Ok(())
    }
}
