use std::collections::{BTreeMap, BTreeSet};

use super::{Invariant, Stage};
use crate::{Entry, EventKind, Life, Registry, Reported};
use tenure::model::Term;

/// Of every `Acquired` there follows one `Released` or one `Lost`, never both; and what ran out while
/// something ran under it was lost.
#[derive(Default)]
pub(super) struct EventOrder {
    /// Leases, and whether each has ended.
    leases: BTreeMap<(Life, usize, Term), bool>,
    /// Lives of which events were lost: nothing can be said of them.
    missed: BTreeSet<Life>,
    closed: BTreeSet<Life>,
    /// Leases under which something ended after their own end.
    outlived: BTreeSet<(Life, usize, Term)>,
}

impl Invariant for EventOrder {
    fn name(&self) -> &'static str {
        "event order"
    }

    fn see(&mut self, registry: &Registry, entry: &Entry) -> Result<(), String> {
        let Some(life) = entry.life else { return Ok(()) };
        match &entry.what {
            EventKind::Closed { overran: 0 } => {
                self.closed.insert(life);
            }
            EventKind::Reported(Reported::Missed { .. }) => {
                self.missed.insert(life);
            }
            EventKind::Reported(_) if self.missed.contains(&life) => {}
            EventKind::Reported(Reported::Acquired { key, term })
                if self.leases.insert((life, *key, *term), false).is_some() =>
            {
                return Err(format!("key {key} was acquired twice under term {term}"));
            }
            // The time at which an event is read says little of when it was told; the end of the job says enough.
            EventKind::Ended { key, term } => {
                let slack = registry.member(life).durations.slack;
                if registry.end(*key, *term).is_some_and(|end| entry.local > end + slack) {
                    self.outlived.insert((life, *key, *term));
                }
            }
            EventKind::Reported(Reported::Released { key, term })
                if self.outlived.contains(&(life, *key, *term)) =>
            {
                return Err(format!("term {term} of key {key} ran out, and was told as released"));
            }
            EventKind::Reported(Reported::Released { key, term } | Reported::Lost { key, term, .. }) => {
                match self.leases.insert((life, *key, *term), true) {
                    Some(false) => {}
                    Some(true) => return Err(format!("term {term} of key {key} ended twice")),
                    None => {
                        return Err(format!("term {term} of key {key} ended, and was never acquired"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn judge(&mut self, _: &Registry, stage: &Stage) -> Result<(), (String, Option<usize>)> {
        let Stage::Closed(_) = stage else { return Ok(()) };
        for ((life, key, term), ended) in &self.leases {
            if !ended && self.closed.contains(life) && !self.missed.contains(life) {
                let says =
                    format!("nobody was told of the end of term {term} of key {key} in instance {life}");
                return Err((says, Some(*key)));
            }
        }
        Ok(())
    }
}
