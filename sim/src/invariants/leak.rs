use std::collections::BTreeSet;

use super::{Invariant, Stage};
use crate::{Entry, EventKind, Life, Registry};
use tenure::{model::SessionId, store::Ticket};

/// An instance that was closed leaves nothing behind: no task, no session alive, no lock, no place in the queue.
#[derive(Default)]
pub(super) struct NoLeak {
    /// Tickets that have left the queue; a request that came late, or a change of primary, may have put them there
    /// again.
    left: BTreeSet<(usize, SessionId, Ticket)>,
    /// Lives that were closed in quiet: the store answered.
    quiet: BTreeSet<Life>,
}

impl Invariant for NoLeak {
    fn name(&self) -> &'static str {
        "no leak"
    }

    fn see(&mut self, registry: &Registry, entry: &Entry) -> Result<(), String> {
        if let EventKind::Leaves { key, session, ticket } = entry.what {
            self.left.insert((key, session, ticket));
        }
        if let (Some(life), EventKind::Closes, Some(_)) = (entry.life, &entry.what, registry.calm()) {
            self.quiet.insert(life);
        }
        Ok(())
    }

    fn judge(&mut self, registry: &Registry, stage: &Stage) -> Result<(), (String, Option<usize>)> {
        let Stage::Closed(census) = stage else { return Ok(()) };
        for (life, inside) in &census.lives {
            // A session that was lost before is not closed: it is for others to find, or purged.
            let of_it = |session| {
                let of = registry.session(session).filter(|session| session.closed);
                of.and_then(|session| session.life) == Some(*life)
            };
            if !inside.is_empty() {
                let says = format!("tasks of instance {life} are left, which was closed: {inside:?}");
                return Err((says, None));
            }
            // With a store that does not answer, the rest is for others to find.
            if !self.quiet.contains(life) {
                continue;
            }
            if let Some(session) = census.alive.iter().find(|session| of_it(**session)) {
                return Err((format!("session {session} of instance {life} lives, which was closed"), None));
            }
            if let Some((key, term, _)) =
                census.held.iter().find(|(_, _, session)| of_it(*session) && census.alive.contains(session))
            {
                let says =
                    format!("key {key} is held under term {term} by instance {life}, which was closed");
                return Err((says, Some(*key)));
            }
            let left_behind =
                |place: &&(usize, SessionId, Ticket)| of_it(place.1) && !self.left.contains(*place);
            if let Some((key, session, ticket)) = census.waiters.iter().find(left_behind) {
                let says = format!(
                    "instance {life} stands in the queue for key {key} ({session}, ticket {ticket}), and was closed"
                );
                return Err((says, Some(*key)));
            }
        }
        Ok(())
    }
}
