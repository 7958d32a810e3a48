//! Messages on their way: requests that may arrive late, twice or never, and answers that may be lost.
//!
//! A request that was not answered in time is unknown (R8): no instance awaits it any more, and it may be
//! applied all the same, whenever. An answer counts when a majority keeps what it tells; that of a
//! release, when the primary has it.

use crate::model::{
    action::Action,
    protocol::Protocol,
    world::{Id, Mark, Nonce, Place, Session, Term, Time, World},
    wrong::Wrong,
};

const ROOM: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Request {
    Open { session: Session, nonce: Nonce },
    Beat { session: Session, number: u8, nonce: Nonce, ttl: Time },
    Declare { session: Session, mark: Mark },
    Take { place: Place, dead: u8 },
    Release { session: Session, term: Term, to: Option<Place> },
    Wait(Place),
    Leave(Place),
}

impl Request {
    /// Returns whether it is about the key. Of these an instance has one under way.
    pub(crate) fn is_of_key(self) -> bool {
        matches!(self, Request::Take { .. } | Request::Release { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// The session lives, and this is its beat.
    Alive(Nonce),
    Dead,
    Missing,
    /// The lock is this ticket's, under this term.
    Granted(Term),
    /// The lock has another holder.
    Held,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Progress {
    Sent,
    /// The primary has it.
    Applied(Answer),
    /// A majority has it.
    Kept(Answer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) from: Id,
    pub(crate) request: Request,
    /// True while its sender still waits for the answer.
    pub(crate) awaited: bool,
    pub(crate) progress: Progress,
}

/// A set in which order means nothing, so it is kept sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Wire([Option<Message>; ROOM]);

impl Wire {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Message> + '_ {
        self.0.iter().flatten().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    pub(crate) fn put(&mut self, message: Message) {
        let free = self.0.iter_mut().find(|slot| slot.is_none());
        *free.expect("room was asked for before") = Some(message);
        self.0.sort_unstable();
    }

    pub(crate) fn take_out(&mut self, message: Message) {
        let slot = self.0.iter_mut().find(|slot| **slot == Some(message));
        *slot.expect("it was found here") = None;
        self.0.sort_unstable();
    }

    fn change(&mut self, change: impl Fn(Message) -> Option<Message>) {
        for slot in &mut self.0 {
            *slot = slot.and_then(&change);
        }
        self.0.sort_unstable();
    }

    pub(crate) fn is_awaited(&self, from: Id, which: impl Fn(Request) -> bool) -> bool {
        self.iter().any(|message| message.from == from && message.awaited && which(message.request))
    }

    /// Stops waiting for these answers.
    pub(crate) fn abandon(&mut self, from: Id, which: impl Fn(Request) -> bool) {
        self.change(|message| {
            if message.from == from && which(message.request) { unawaited(message) } else { Some(message) }
        });
    }
}

/// The same, not awaited; one that was applied already has nothing left to do.
fn unawaited(message: Message) -> Option<Message> {
    (message.progress == Progress::Sent).then_some(Message { awaited: false, ..message })
}

impl Protocol {
    pub(crate) fn has_room(&self, world: &World) -> bool {
        world.wire.len() < self.budget.room
    }

    pub(crate) fn send(&self, world: &mut World, from: Id, request: Request, awaited: bool) {
        // One that has no room is lost: that may happen to each of them.
        if self.has_room(world) {
            let message = Message { from, request, awaited, progress: Progress::Sent };
            if !world.wire.iter().any(|other| other == message) {
                world.wire.put(message);
            }
        }
    }

    pub(crate) fn wire_actions(&self, world: &World, actions: &mut Vec<Action>) {
        let mut before = None;
        for message in world.wire.iter().filter(|message| before.replace(*message) != Some(*message)) {
            match message.progress {
                Progress::Sent => {
                    actions.push(Action::Apply(message));
                    // A message that is never applied is lost too: that it is gone matters where room is needed.
                    if !message.awaited && !self.has_room(world) {
                        actions.push(Action::Lose(message));
                    }
                    if world.spent.doubles < self.budget.doubles && self.has_room(world) {
                        actions.push(Action::Double(message));
                    }
                }
                Progress::Applied(_) if !self.primary_is_enough(message.request) => {}
                Progress::Applied(_) | Progress::Kept(_) => actions.push(Action::Answer(message)),
            }
            if message.awaited && world.spent.timeouts < self.budget.timeouts {
                actions.push(Action::Forget(message));
            }
        }
        if world.primary != world.majority
            || world.wire.iter().any(|message| matches!(message.progress, Progress::Applied(_)))
        {
            actions.push(Action::Commit);
            if world.spent.failovers < self.budget.failovers {
                actions.push(Action::Failover);
            }
        }
    }

    /// R11: a release decides nothing. Everything else waits for a majority.
    fn primary_is_enough(&self, request: Request) -> bool {
        match request {
            Request::Release { .. } => true,
            Request::Beat { .. } => self.is(Wrong::PrimaryBeat),
            Request::Take { .. } => self.is(Wrong::PrimaryTake),
            _ => false,
        }
    }

    pub(crate) fn apply(&self, world: &mut World, message: Message) {
        world.wire.take_out(message);
        let answer = self.perform(world, message.request);
        if message.awaited {
            world.wire.put(Message { progress: Progress::Applied(answer), ..message });
        }
    }

    pub(crate) fn answer(&self, world: &mut World, message: Message) {
        world.wire.take_out(message);
        let (Progress::Applied(answer) | Progress::Kept(answer)) = message.progress else { return };
        match message.request {
            Request::Open { .. } | Request::Beat { .. } => self.beat_answered(world, message.from, answer),
            Request::Take { place, .. } => self.take_answered(world, message.from, place, answer),
            Request::Release { to, .. } => self.release_answered(world, message.from, to),
            Request::Declare { .. } | Request::Wait(_) | Request::Leave(_) => {}
        }
    }

    /// The attempt ran out of its time.
    pub(crate) fn forget(world: &mut World, message: Message) {
        world.spent.timeouts += 1;
        world.wire.take_out(message);
        if let Some(left) = unawaited(message) {
            world.wire.put(left);
        }
    }

    pub(crate) fn double(world: &mut World, message: Message) {
        world.spent.doubles += 1;
        world.wire.put(Message { awaited: false, ..message });
    }

    /// The majority has all that the primary had. That it once had less of it is another order of the
    /// same events: the rest was applied later.
    pub(crate) fn commit(world: &mut World) {
        let before = world.majority.lock;
        world.majority = world.primary;
        world.wire.change(|message| match message.progress {
            Progress::Applied(answer) => Some(Message { progress: Progress::Kept(answer), ..message }),
            _ => Some(message),
        });
        if world.majority.lock != before {
            Self::tell_of_grant(world);
        }
    }

    /// Replaces the primary: writes that no majority kept are gone, and the answers that waited for one are
    /// unknown.
    pub(crate) fn failover(&self, world: &mut World) {
        world.spent.failovers += 1;
        world.former = self.budget.two_primaries.then_some(world.majority.sessions);
        world.primary = world.majority;
        world.wire.change(|message| match message.progress {
            Progress::Applied(_) => None,
            _ => Some(message),
        });
    }
}
