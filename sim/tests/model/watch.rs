//! Observation of another instance's session: what was seen of it, and for how long (R3).
//!
//! A look is one step: what counts is when its answer arrives, and an answer that takes its time only
//! makes the count begin later. An observer watches one session, that of the lock's holder.

use crate::model::{
    action::Action,
    protocol::Protocol,
    wire::Request,
    world::{Id, Instance, Mark, Seen, Session, SessionRecord, Standing, World},
    wrong::Wrong,
};

impl Protocol {
    pub(crate) fn watch_actions(&self, world: &World, id: Id, actions: &mut Vec<Action>) {
        let observer = world.at(id);
        if !observer.is_valid() {
            return;
        }
        if let Some(session) = watched(world, id) {
            let is_new = |of| record_of(world, session, of).is_some_and(|it| is_news(observer, session, it));
            if is_new(Of::Majority) {
                actions.push(Action::Observe(id));
            }
            if is_new(Of::Former) {
                actions.push(Action::ObserveFormer(id));
            }
        }
        if let Some(seen) = observer.seen
            && !observer.knows_dead(seen.session)
            && world.clock(id) >= seen.since + self.patience(seen)
            && self.has_room(world)
            && !world.wire.iter().any(|message| message.request == self.declaration(seen))
        {
            actions.push(Action::Declare(id));
        }
    }

    pub(crate) fn observe(&self, world: &mut World, id: Id, of: Of) {
        let now = world.clock(id);
        let Some(session) = watched(world, id) else { return };
        let Some(record) = record_of(world, session, of) else { return };
        let observer = world.at_mut(id);
        let Some(mark) = mark_of(record) else {
            observer.dead |= 1 << session;
            observer.seen.take_if(|seen| seen.session == session);
            return;
        };
        let before = observer.seen.filter(|seen| seen.session == session);
        let since = match before {
            Some(seen) if self.is(Wrong::AnyBeat) => seen.since,
            // This look had been on its way for a while.
            _ if self.is(Wrong::CountFromSending) => now.saturating_sub(2),
            _ => now,
        };
        // A missing session is watched for the ttl that the lock's record carries.
        let ttl = if mark == Mark::Missing { self.budget.ttl } else { record.ttl };
        observer.seen = Some(Seen { session, mark, since, ttl });
    }

    fn patience(&self, seen: Seen) -> u8 {
        if self.is(Wrong::HastyTombstone) && seen.mark == Mark::Missing { 0 } else { seen.ttl }
    }

    fn declaration(&self, seen: Seen) -> Request {
        let mark = match seen.mark {
            Mark::Beat(_) if self.is(Wrong::UnnamedBeat) => Mark::Any,
            mark => mark,
        };
        Request::Declare { session: seen.session, mark }
    }

    /// Declares a session dead. The answer is not awaited: the next look shows the result.
    pub(crate) fn declare(&self, world: &mut World, id: Id) {
        let former = world.former;
        let observer = world.at_mut(id);
        // It is written at the deposed primary, where the beat that was seen is still the last one, and
        // read there.
        let locally =
            |seen: Seen| former.is_some_and(|its| mark_of(its[usize::from(seen.session)]) == Some(seen.mark));
        if self.is(Wrong::UndeclaredDeath)
            || self.is(Wrong::DeathReadLocally) && observer.seen.is_some_and(locally)
        {
            observer.dead |= observer.seen.take().map_or(0, |seen| 1 << seen.session);
        }
        if let Some(seen) = observer.seen {
            self.send(world, id, self.declaration(seen), false);
        }
    }
}

/// The holder's session, unless it is the observer's own. One that is steady is seen to beat: no instance would ever
/// declare it.
fn watched(world: &World, id: Id) -> Option<Session> {
    let holder = world.majority.lock.holding?.session;
    let steady = world.instances.iter().any(|it| it.session == holder && it.is_steady());
    (holder != world.at(id).session && !steady).then_some(holder)
}

/// Source of a read: the majority, or a deposed primary, which knows of nothing newer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    Majority,
    Former,
}

/// Majority reads only (R11).
fn record_of(world: &World, session: Session, of: Of) -> Option<SessionRecord> {
    let sessions = match of {
        Of::Majority => Some(world.majority.sessions),
        Of::Former => world.former,
    };
    sessions.map(|sessions| sessions[usize::from(session)])
}

fn is_news(observer: &Instance, session: Session, record: SessionRecord) -> bool {
    let Some(mark) = mark_of(record) else { return !observer.knows_dead(session) };
    observer.seen.is_none_or(|seen| (seen.session, seen.mark) != (session, mark))
}

/// Mark that can be seen of a session that is not dead.
fn mark_of(record: SessionRecord) -> Option<Mark> {
    match record.standing {
        Standing::Alive => Some(Mark::Beat(record.nonce)),
        Standing::Missing => Some(Mark::Missing),
        Standing::Dead => None,
    }
}
