use std::collections::BTreeMap;

use super::Invariant;
use crate::{Entry, EventKind, Registry};
use tenure::model::Term;

/// The terms of a key rise in the order in which they are granted, so that each belongs to one grant.
#[derive(Default)]
pub(super) struct Terms {
    last: BTreeMap<usize, Term>,
}

impl Invariant for Terms {
    fn name(&self) -> &'static str {
        "terms rise"
    }

    fn see(&mut self, _: &Registry, entry: &Entry) -> Result<(), String> {
        let EventKind::Granted { key, term, .. } = &entry.what else { return Ok(()) };
        match self.last.insert(*key, *term) {
            Some(last) if last >= *term => {
                Err(format!("key {key} was granted under term {term} after term {last}"))
            }
            _ => Ok(()),
        }
    }
}
