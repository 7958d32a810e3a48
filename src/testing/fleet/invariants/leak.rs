use super::{Invariant, Stage};
use crate::testing::fleet::Book;

/// Of an instance that was closed nothing is left: no task, no session alive, no lock, no place in line.
pub(super) struct NoLeak;

impl Invariant for NoLeak {
    fn name(&self) -> &'static str {
        "no leak"
    }

    fn judge(&mut self, book: &Book, stage: &Stage) -> Result<(), (String, Option<usize>)> {
        let Stage::Closed(census) = stage else { return Ok(()) };
        for (life, inside) in &census.lives {
            let of_it = |session| book.session(session).and_then(|session| session.life) == Some(*life);
            if *inside > 0 {
                return Err((format!("{inside} tasks of instance {life} are left, which was closed"), None));
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
            // What a session leaves that was lost before is passed over, and purged with it.
            let closed = |session| book.session(session).is_some_and(|session| session.closed);
            if let Some((key, _)) =
                census.waiters.iter().find(|(_, session)| of_it(*session) && closed(*session))
            {
                let says = format!("instance {life} stands in line for key {key}, and was closed");
                return Err((says, Some(*key)));
            }
        }
        Ok(())
    }
}
