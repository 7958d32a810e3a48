use super::{Invariant, Stage};
use crate::Registry;

/// With a healthy store and a healthy contender a key is held before long, whatever went before.
pub(super) struct Liveness;

impl Invariant for Liveness {
    fn name(&self) -> &'static str {
        "liveness"
    }

    fn judge(&mut self, registry: &Registry, stage: &Stage) -> Result<(), (String, Option<usize>)> {
        let Stage::Settled(census) = stage else { return Ok(()) };
        for key in &census.wanted {
            let held = census.held.iter().find(|(held, ..)| held == key);
            let Some((_, term, session)) = held else {
                return Err((format!("nobody holds key {key}, and all stand for it"), Some(*key)));
            };
            let life = registry.session(*session).and_then(|session| session.life);
            let runs = life.and_then(|life| registry.lease(life, *key, *term));
            if !census.alive.contains(session) {
                return Err((format!("key {key} is held by a session that is dead"), Some(*key)));
            }
            if runs.is_none_or(|lease| lease.running == 0) {
                return Err((format!("key {key} is held under term {term}, and nothing runs"), Some(*key)));
            }
        }
        Ok(())
    }
}
