//! Holding back of a member whose last processes died, for a while.

use std::{fmt, time::Duration};

use serde::Serialize;

use super::shared::ActorState;
use crate::{
    clock::Moment,
    elect::Engine,
    logic::{failing, view::takes},
    words,
};

/// State of an instance that takes no part in a spread yet: the processes before it that had its holder's name died one
/// after the other, and tasks that it took now might stop with its own death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeldBack {
    /// Number of those processes.
    pub deaths: u32,
    /// Time for which it is still held back, as long as others have room for all tasks.
    #[serde(rename = "remaining_ms", serialize_with = "crate::model::serial::ms")]
    pub remaining: Duration,
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this instance takes no tasks for {:.1?} while others have room: the last {} processes of its name died",
            self.remaining, self.deaths
        )
    }
}

/// Pause of an instance before it takes part.
#[derive(Debug)]
pub(super) struct StartupHold {
    /// Number of processes of its name that died, one after the other.
    deaths: u32,
    /// End of its pause.
    pub(super) until: Moment,
    is_logged: bool,
    is_over: bool,
}

impl Default for StartupHold {
    fn default() -> Self {
        let until = Moment::after_start(Duration::ZERO);
        Self { deaths: 0, until, is_logged: false, is_over: false }
    }
}

impl StartupHold {
    /// Returns whether this instance takes part already.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the state for people, if this instance is held back.
    pub(super) fn held_back(&self, now: Moment) -> Option<HeldBack> {
        let held = HeldBack { deaths: self.deaths, remaining: self.until.since(now) };
        (self.is_logged && !self.is_over).then_some(held)
    }
}

impl ActorState {
    /// Decides how long this instance pauses, once everything was read: as a task does after so many deaths, of which
    /// only those count that are more than the fewest of a member that takes part.
    pub(super) fn begin_startup_hold(&mut self, engine: &Engine) {
        self.view.deaths.ask_for(engine.process);
        let (Some(now), Some(own)) = (engine.store_now(), engine.current()) else { return };
        self.view.deaths.forget(now);
        let takers = self.view.members().filter(|(_, peer)| takes(&peer.share));
        let others = takers.map(|(session, peer)| self.view.deaths.of_member(&peer.holder, session, now));
        let fewest = others.min().unwrap_or(0);
        let deaths = self.view.deaths.of_member(engine.config.holder(), own.id, now);
        self.startup_hold.deaths = deaths;
        self.startup_hold.until = engine.born + failing::pause(deaths.saturating_sub(fewest));
    }
}

/// Lets this instance take part once its pause is over, or the others have no room for all tasks. Returns whether it does from now on.
pub(super) fn admit(engine: &Engine, state: &mut ActorState, now: Moment) -> bool {
    if !state.complete || state.startup_hold.is_over {
        return false;
    }
    let own = engine.config.holder();
    let others = state.view.members().filter(|(_, peer)| peer.holder != *own && takes(&peer.share));
    let room = others.map(|(_, peer)| peer.share.cap as usize).fold(0, usize::saturating_add);
    let until = state.startup_hold.until;
    // No task waits for the end of the pause.
    state.startup_hold.is_over = now >= until || room < state.view.tasks().count().max(1);
    if !state.startup_hold.is_over && !state.startup_hold.is_logged {
        state.startup_hold.is_logged = true;
        let (spread, namespace) = (&state.share.spread, engine.config.namespace());
        let (deaths, wait) = (state.startup_hold.deaths, until.since(now));
        words::warn!(%spread, %namespace, holder = %own, deaths, ?wait, "the last processes of this holder died: waiting before taking tasks");
    }
    state.startup_hold.is_over
}
