use std::collections::BTreeMap;

use super::Invariant;
use crate::{Entry, EventKind, Registry};
use tenure::model::Term;

/// Reads and writes under the lock: a resource that remembers terms never sees a smaller one, and no update is
/// lost.
#[derive(Default)]
pub(super) struct Fence {
    seen: BTreeMap<usize, (Term, u64)>,
}

impl Invariant for Fence {
    fn name(&self) -> &'static str {
        "fence"
    }

    fn see(&mut self, registry: &Registry, entry: &Entry) -> Result<(), String> {
        let (EventKind::Read { key, term, .. } | EventKind::Wrote { key, term, .. }) = &entry.what else {
            return Ok(());
        };
        if registry.grant(*key, *term).is_none_or(|grant| grant.void) {
            // Not judged, as its lock was deleted by hand; but what it wrote is there.
            if let (EventKind::Wrote { over, .. }, Some((_, version))) = (&entry.what, self.seen.get_mut(key))
            {
                *version = over + 1;
            }
            return Ok(());
        }
        let (last, version) = self.seen.entry(*key).or_insert((*term, 0));
        if *term < *last {
            return Err(format!("the resource of key {key} sees term {term} after term {last}"));
        }
        *last = *term;
        if let EventKind::Wrote { over, .. } = &entry.what {
            if *over != *version {
                return Err(format!(
                    "an update of key {key} under term {term} was made of version {over}, and version {version} is lost"
                ));
            }
            *version += 1;
        }
        Ok(())
    }
}
