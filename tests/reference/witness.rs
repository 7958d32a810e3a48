//! Comparison of each reading with those before: also if the model is wrong, a term never falls, is given to one
//! ticket only, and the dead stay dead.

use std::collections::{HashMap, HashSet};

use tenure::{
    model::{LockId, SessionId, Term},
    store::{LockSeen, SessionSeen, Ticket},
};

use super::model::{Check, ensure};

/// Facts that must hold whatever the model thinks.
#[derive(Default)]
pub(super) struct Witness {
    terms: HashMap<LockId, Term>,
    grants: HashMap<(LockId, Term), (SessionId, Ticket)>,
    dead: HashSet<SessionId>,
}

impl Witness {
    pub(super) fn lock(&mut self, id: &LockId, seen: &LockSeen) -> Check {
        let LockSeen::Found(record) = seen else { return Ok(()) };
        let last = self.terms.insert(id.clone(), record.term);
        ensure!(last <= Some(record.term), "the term of {id} fell from {last:?} to {}", record.term);
        if let Some(held) = &record.holding {
            let grant = (held.by.session, held.by.ticket);
            let known = *self.grants.entry((id.clone(), record.term)).or_insert(grant);
            ensure!(known == grant, "term {} of {id} was given to {known:?} and {grant:?}", record.term);
        }
        Ok(())
    }

    pub(super) fn session(&mut self, id: SessionId, seen: &SessionSeen) -> Check {
        match seen {
            SessionSeen::Dead(_) => {
                self.dead.insert(id);
            }
            // Purged: whoever opens it again gets a fresh one.
            SessionSeen::Missing => {
                self.dead.remove(&id);
            }
            _ => ensure!(!self.dead.contains(&id), "session {id} was dead, and is {seen:?}"),
        }
        Ok(())
    }

    /// Forgets sessions that were purged: they are missing, and may be opened again.
    pub(super) fn forget(&mut self, is_there: impl Fn(&SessionId) -> bool) {
        self.dead.retain(is_there);
    }
}
