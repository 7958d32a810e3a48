//! An instance's own session: opened, kept alive by beats, over, closed, and another one opened.
//!
//! The end of a session acts on its jobs at once: no job is polled after the end (R9), whether the instance has
//! noticed or not, so when it notices makes no difference.

use crate::model::{
    action::Action,
    protocol::Protocol,
    wire::{Answer, Request},
    world::{ATTEMPTS, Id, Instance, Life, Mark, Standing, Time, World},
    wrong::Wrong,
};

impl Protocol {
    pub(crate) fn session_actions(&self, world: &World, id: Id, actions: &mut Vec<Action>) {
        let instance = world.at(id);
        let beats = |request| matches!(request, Request::Open { .. } | Request::Beat { .. });
        let may_send = self.has_room(world)
            && !instance.is_steady()
            && instance.nonce < self.budget.attempts
            && !world.wire.is_awaited(id, beats);
        let record = world.majority.sessions[usize::from(instance.session)];
        let may_close = self.budget.closes && self.has_room(world) && record.standing == Standing::Alive;
        match instance.life {
            Life::Unborn => {}
            Life::Opening => {
                if may_send {
                    actions.push(Action::Open(id));
                }
            }
            Life::Valid => {
                if may_send {
                    actions.push(Action::Beat(id));
                }
                if world.spent.abandons < self.budget.abandons {
                    actions.push(Action::Abandon(id));
                }
                if may_close && self.is(Wrong::CloseUnderJob) && instance.held.is_some() {
                    actions.push(Action::Close(id));
                }
            }
            Life::Over => {
                let close = closing(instance, record.nonce);
                if may_close && !world.wire.iter().any(|message| message.request == close) {
                    actions.push(Action::Close(id));
                }
                if world.opened < self.budget.sessions {
                    actions.push(Action::Reopen(id));
                }
            }
        }
    }

    pub(crate) fn open(&self, world: &mut World, id: Id) {
        let now = world.clock(id);
        let instance = world.at_mut(id);
        instance.nonce += 1;
        instance.sent[usize::from(instance.nonce - 1)] = now;
        let request = Request::Open { session: instance.session, nonce: instance.nonce };
        self.send(world, id, request, true);
    }

    pub(crate) fn beat(&self, world: &mut World, id: Id) {
        let now = world.clock(id);
        let instance = world.at_mut(id);
        let again = self.is(Wrong::SameNonce) && instance.nonce > instance.confirmed;
        if !again {
            instance.nonce += 1;
            instance.beat += 1;
        }
        instance.sent[usize::from(instance.nonce - 1)] = now;
        let request = Request::Beat {
            session: instance.session,
            number: instance.beat,
            nonce: instance.nonce,
            ttl: self.ttl_of(instance.beat),
        };
        self.send(world, id, request, true);
    }

    /// The ttl is fixed for the session's life (R2).
    fn ttl_of(&self, beat: u8) -> Time {
        let stretch = if self.is(Wrong::StretchedTtl) && beat % 2 == 1 { 2 } else { 0 };
        self.budget.ttl + stretch
    }

    /// The answer to an opening or a beat: the session as it stands.
    pub(crate) fn beat_answered(&self, world: &mut World, id: Id, answer: Answer) {
        let now = world.clock(id);
        let instance = world.at_mut(id);
        match answer {
            Answer::Alive(nonce) => {
                let sent = instance.sent[usize::from(nonce.max(1) - 1)];
                // R2: from when the attempt on record was sent, whichever attempt is answered.
                let from = if self.is(Wrong::EndFromAnswer) { now } else { sent };
                let beat = instance.beat - (instance.nonce - nonce).min(instance.beat);
                let end = from + self.ttl_of(beat) - self.margin();
                instance.end = instance.end.max(end);
                instance.life = Life::Valid;
                instance.confirmed = instance.confirmed.max(nonce);
                // Attempts before it are met no more.
                instance.sent[..usize::from(nonce.max(1) - 1)].fill(0);
                if self.is_past(now, instance.end) {
                    self.end_session(world, id);
                }
            }
            _ => self.end_session(world, id),
        }
    }

    pub(crate) fn margin(&self) -> Time {
        if self.is(Wrong::NoMargin) { 0 } else { self.budget.margin }
    }

    /// Returns whether no poll may begin any more (R9).
    pub(crate) fn is_past(&self, now: Time, end: Time) -> bool {
        if self.is(Wrong::EndIncluded) { now > end } else { now >= end }
    }

    /// Ends the session, here and for ever: jobs are dropped, tickets are void, nothing is released.
    pub(crate) fn end_session(&self, world: &mut World, id: Id) {
        let instance = world.at_mut(id);
        let held = instance.held.filter(|_| self.is(Wrong::NoCheckInPoll));
        *instance = Instance {
            life: Life::Over,
            session: instance.session,
            held,
            seen: instance.seen,
            dead: instance.dead,
            ..Instance::default()
        };
        let late = self.is(Wrong::LateAnswer);
        world.wire.abandon(id, |request| !(late && matches!(request, Request::Take { .. })));
    }

    pub(crate) fn abandon(&self, world: &mut World, id: Id) {
        world.spent.abandons += 1;
        self.end_session(world, id);
    }

    /// R3: nothing runs under it any more, and the beat on its record is ours.
    pub(crate) fn close(&self, world: &mut World, id: Id) {
        let nonce = world.majority.sessions[usize::from(world.at(id).session)].nonce;
        self.send(world, id, closing(world.at(id), nonce), false);
    }

    /// An instance whose end has passed starts over under a new session.
    pub(crate) fn reopen(world: &mut World, id: Id) {
        let session = world.opened;
        world.opened += 1;
        let instance = world.at_mut(id);
        *instance = Instance {
            life: Life::Opening,
            session,
            seen: instance.seen,
            dead: instance.dead,
            ..Instance::default()
        };
    }
}

fn closing(instance: &Instance, nonce: u8) -> Request {
    debug_assert!(usize::from(nonce) <= ATTEMPTS, "one of ours");
    Request::Declare { session: instance.session, mark: Mark::Beat(nonce) }
}
