//! All there is at one moment: the records, the instances, and what is on its way between them.
//!
//! Small numbers in fixed arrays: a state is copied and hashed some fifty million times. There is one
//! key. What happens to several is the same several times, and a session's end touches all alike.

use crate::model::wire::Wire;

pub(crate) type Id = u8;
pub(crate) type Session = u8;
pub(crate) type Ticket = u8;
pub(crate) type Term = u8;
pub(crate) type Nonce = u8;
pub(crate) type Time = u8;

pub(crate) const INSTANCES: usize = 3;
pub(crate) const SESSIONS: usize = 4;
pub(crate) const ATTEMPTS: usize = 4;
/// Tickets of a session are numbered from 1; 0 is none.
pub(crate) const TICKETS: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// Time as it passes, which no instance reads: each has its own clock.
    pub(crate) now: Time,
    /// Instance whose clock has run ahead by a tick.
    pub(crate) fast: Option<Id>,
    /// Writes of the primary.
    pub(crate) primary: Records,
    /// Writes that a majority keeps. The primary falls back to them when it is replaced.
    pub(crate) majority: Records,
    /// Writes that a primary which was deposed, and does not know, takes a majority to have: others may still ask
    /// it.
    pub(crate) former: Option<[SessionRecord; SESSIONS]>,
    pub(crate) instances: [Instance; INSTANCES],
    pub(crate) wire: Wire,
    /// Number of sessions that were given an id.
    pub(crate) opened: u8,
    pub(crate) spent: Spent,
    /// For the property only: the largest term under which a job has begun.
    pub(crate) highest: Term,
    /// For the property only: a job has begun under a term that was not larger.
    pub(crate) fell: bool,
}

/// Events that may happen a few times only, and have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spent {
    pub(crate) failovers: u8,
    pub(crate) timeouts: u8,
    pub(crate) doubles: u8,
    pub(crate) deletions: u8,
    pub(crate) abandons: u8,
    pub(crate) cancels: u8,
    pub(crate) expirations: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Records {
    pub(crate) sessions: [SessionRecord; SESSIONS],
    pub(crate) lock: Lock,
    pub(crate) queue: Queue,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    #[default]
    Missing,
    Alive,
    Dead,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SessionRecord {
    pub(crate) standing: Standing,
    pub(crate) beat: u8,
    pub(crate) nonce: Nonce,
    pub(crate) ttl: Time,
    /// By the store's clock. Written only where a wrong design reads it (R1).
    pub(crate) beat_at: Time,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    pub(crate) term: Term,
    pub(crate) holding: Option<Place>,
    /// By the holder before, in its release.
    pub(crate) handed: bool,
}

/// A ticket of a session: what a lock is granted to, and what stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) session: Session,
    pub(crate) ticket: Ticket,
}

/// Waiters, as a set: a releaser may hand over to any of them, so that no promise rests on the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Queue(u16);

impl Queue {
    fn bit(place: Place) -> u16 {
        1 << (place.session * (TICKETS + 1) + place.ticket)
    }

    pub(crate) fn has(self, place: Place) -> bool {
        self.0 & Self::bit(place) != 0
    }

    pub(crate) fn join(&mut self, place: Place) {
        self.0 |= Self::bit(place);
    }

    pub(crate) fn leave(&mut self, place: Place) {
        self.0 &= !Self::bit(place);
    }

    pub(crate) fn places(self) -> impl Iterator<Item = Place> {
        let all = (0..4).flat_map(|session| (1..=TICKETS).map(move |ticket| Place { session, ticket }));
        all.filter(move |place| self.has(*place))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    /// Never had a session, and is not to have one.
    #[default]
    Unborn,
    /// No opening was answered.
    Opening,
    /// Jobs may run until `end`.
    Valid,
    /// No job runs under it any more.
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Instance {
    pub(crate) life: Life,
    pub(crate) session: Session,
    /// By the instance's own clock, like all its times.
    pub(crate) end: Time,
    /// The last attempt's nonce, and its beat's number. Every opening is beat 0.
    pub(crate) nonce: Nonce,
    pub(crate) beat: u8,
    /// The last attempt that was confirmed.
    pub(crate) confirmed: Nonce,
    /// Sending times of the attempts whose effect may still be met.
    pub(crate) sent: [Time; ATTEMPTS],
    /// Number of tickets it had.
    pub(crate) wanted: Ticket,
    /// The one that stands.
    pub(crate) stands: Option<Ticket>,
    pub(crate) held: Option<Held>,
    /// The term of a lock that is to be given back.
    pub(crate) returning: Option<Term>,
    /// A take was given up before it was answered: a read is to tell what became of it.
    pub(crate) undecided: bool,
    /// A grant of which a hint, or the answer of an older read, may come at any time.
    pub(crate) news: Option<Grant>,
    /// Result of an audit. It is void as soon as anything changes here.
    pub(crate) page: Option<Grant>,
    pub(crate) seen: Option<Seen>,
    /// The sessions that a majority says are dead, one bit each.
    pub(crate) dead: u8,
    /// The largest term that ended here. Kept only where a wrong design reads it.
    pub(crate) ended: Term,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) ticket: Ticket,
    pub(crate) term: Term,
    /// True while the job, told to stop, has not stopped.
    pub(crate) draining: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) ticket: Ticket,
    pub(crate) term: Term,
}

/// Observation of a session: what was seen, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) session: Session,
    pub(crate) mark: Mark,
    pub(crate) since: Time,
    pub(crate) ttl: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mark {
    /// The beat of this nonce.
    Beat(Nonce),
    /// No record at all.
    Missing,
    /// No ground in particular. Only wrong designs declare so.
    Any,
}

impl Instance {
    pub(crate) fn is_valid(&self) -> bool {
        self.life == Life::Valid
    }

    /// Returns whether its beats are always answered, and not modelled.
    pub(crate) fn is_steady(&self) -> bool {
        self.end == Time::MAX
    }

    pub(crate) fn knows_dead(&self, session: Session) -> bool {
        self.dead & (1 << session) != 0
    }

    pub(crate) fn place(&self, ticket: Ticket) -> Place {
        Place { session: self.session, ticket }
    }
}

impl World {
    /// The time by this instance's clock.
    pub(crate) fn clock(&self, id: Id) -> Time {
        self.now + Time::from(self.fast == Some(id))
    }

    pub(crate) fn at(&self, id: Id) -> &Instance {
        &self.instances[usize::from(id)]
    }

    pub(crate) fn at_mut(&mut self, id: Id) -> &mut Instance {
        &mut self.instances[usize::from(id)]
    }
}
