//! Holding back of a member whose sessions before died young, until it has lived for a while.

use std::{fmt, sync::Arc, time::Duration};

use serde::Serialize;

use super::shared::ActorState;
use crate::{
    clock::Moment,
    elect::Engine,
    logic::age::{Row, least_age, usual},
    model::{SessionId, SessionRecord, Share, SpreadName},
    store::SessionSeen,
    words,
};

/// State of an instance that takes no part in a spread yet: the sessions before it that had its holder's name died
/// young, one after the other, and tasks that it took now might stop with its own death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeldBack {
    /// Number of those sessions.
    pub deaths: u32,
    /// Time for which it is still held back, as long as others take part.
    #[serde(rename = "remaining_ms", serialize_with = "crate::model::serial::ms")]
    pub remaining: Duration,
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sessions = if self.deaths == 1 {
            "the previous session".to_owned()
        } else {
            format!("the previous {} sessions", self.deaths)
        };
        write!(
            f,
            "this instance takes no tasks for {:.1?} while others do: {sessions} died soon after starting",
            self.remaining
        )
    }
}

/// Age of this instance, as far as it decides whether it takes part.
#[derive(Debug, Default)]
pub(super) struct Youth {
    row: Row,
    /// Number of such deaths that is usual here.
    usual: u32,
    is_logged: bool,
    is_over: bool,
}

impl Youth {
    /// Begins, once everything was read. Watches the sessions that may be dead, as nobody else may do so.
    pub(super) fn begin(
        &mut self,
        engine: &Arc<Engine>,
        spread: &SpreadName,
        sessions: &[SessionRecord],
        own: Option<SessionId>,
    ) {
        let last_beat = sessions.iter().map(|session| session.beat_at).max();
        if let Some(now) = engine.store_now().or(last_beat) {
            let holder = engine.config.holder();
            self.row = Row::of(sessions, holder, own, now);
            let takes_part = |session: &&SessionRecord| {
                let mut shares = session.shares.iter();
                session.is_alive()
                    && session.about.holder != *holder
                    && shares.any(|share| share.spread == *spread)
            };
            self.usual = usual(sessions, sessions.iter().filter(takes_part), now);
        }
        for session in self.row.undecided() {
            engine.watcher.watch(engine, session, None);
        }
    }

    pub(super) fn saw(&mut self, session: SessionId, sighting: &SessionSeen) {
        if !self.is_over {
            self.row.saw(session, sighting);
        }
    }

    /// Returns whether this instance takes part already.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns when this instance is old enough.
    pub(super) fn ends(&self, engine: &Engine) -> Moment {
        engine.born + least_age(self.row.deaths().saturating_sub(self.usual), engine.times.ttl)
    }

    /// Returns the state for people, if this instance is held back.
    pub(super) fn held_back(&self, engine: &Engine, now: Moment) -> Option<HeldBack> {
        let held = HeldBack { deaths: self.row.deaths(), remaining: self.ends(engine).since(now) };
        (self.is_logged && !self.is_over).then_some(held)
    }
}

/// Lets this instance take part once it is old enough, or nobody else does. Returns whether it does from now on.
pub(super) fn admit(engine: &Engine, state: &mut ActorState, now: Moment) -> bool {
    if !state.complete || state.youth.is_over {
        return false;
    }
    let own = engine.config.holder();
    let is_there = state.view.members().any(|(_, peer)| peer.holder != *own && takes(&peer.share));
    let ends = state.youth.ends(engine);
    state.youth.is_over = now >= ends || !is_there;
    if !state.youth.is_over && !state.youth.is_logged {
        state.youth.is_logged = true;
        let (spread, namespace) = (&state.share.spread, engine.config.namespace());
        let (deaths, wait) = (state.youth.row.deaths(), ends.since(now));
        words::warn!(%spread, %namespace, holder = %own, deaths, ?wait, "earlier sessions of this holder died soon after their start: waiting before taking tasks");
    }
    state.youth.is_over
}

/// Returns whether an instance with this share takes tasks.
fn takes(share: &Share) -> bool {
    !share.draining && !share.paused && share.reserved.is_zero() && share.weight > 0 && share.cap > 0
}
