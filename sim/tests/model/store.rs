//! The store: what each request does to the records. The contract of `src/store`, without texts and times.

use crate::model::{
    protocol::Protocol,
    wire::{Answer, Request},
    world::{Lock, Mark, Place, Records, Session, SessionRecord, Standing, Term, Time, World},
    wrong::Wrong,
};

impl Protocol {
    pub(crate) fn perform(&self, world: &mut World, request: Request) -> Answer {
        let store_now = self.store_clock(world);
        let records = &mut world.primary;
        match request {
            Request::Open { session, nonce } => {
                let record = &mut records.sessions[usize::from(session)];
                // Only if it is absent (R3).
                if record.standing == Standing::Missing {
                    let ttl = self.budget.ttl;
                    *record =
                        SessionRecord { standing: Standing::Alive, beat: 0, nonce, ttl, beat_at: store_now };
                }
                sighting(*record)
            }
            Request::Beat { session, number, nonce, ttl } => {
                let record = &mut records.sessions[usize::from(session)];
                // Only on one that lives, and only upward (R3).
                if record.standing == Standing::Alive && number > record.beat {
                    *record = SessionRecord { beat: number, nonce, ttl, beat_at: store_now, ..*record };
                }
                sighting(*record)
            }
            Request::Declare { session, mark } => {
                let record = &mut records.sessions[usize::from(session)];
                if justifies(mark, *record) {
                    // The rest of the record is read no more.
                    *record = SessionRecord { standing: Standing::Dead, ..SessionRecord::default() };
                }
                sighting(*record)
            }
            Request::Take { place, dead } => self.take(records, place, dead, store_now),
            Request::Release { session, term, to } => {
                self.release(&mut records.lock, session, term, to);
                Answer::Done
            }
            Request::Wait(place) => {
                records.queue.join(place);
                Answer::Done
            }
            Request::Leave(place) => {
                records.queue.leave(place);
                Answer::Done
            }
        }
    }

    fn take(&self, records: &mut Records, place: Place, dead: u8, store_now: Time) -> Answer {
        let free = match records.lock.holding {
            None => true,
            // A smaller ticket came late, an equal one came again (R7).
            Some(held) if held.session == place.session => {
                place.ticket > held.ticket || place.ticket < held.ticket && self.is(Wrong::SmallerTicket)
            }
            Some(held) => {
                let record = &records.sessions[usize::from(held.session)];
                let expired = self.is(Wrong::StoreClock) && store_now >= record.beat_at + record.ttl;
                dead & (1 << held.session) != 0 || expired
            }
        };
        if free {
            records.lock = Lock {
                // R5.
                term: records.lock.term + Term::from(records.lock.term == 0 || !self.is(Wrong::TermsKept)),
                holding: Some(place),
                handed: false,
            };
        }
        if records.lock.holding == Some(place) { Answer::Granted(records.lock.term) } else { Answer::Held }
    }

    /// R6: a no-op for any other session, and under any other term.
    fn release(&self, lock: &mut Lock, session: Session, term: Term, to: Option<Place>) {
        let held_by_it = lock.holding.is_some_and(|held| held.session == session);
        if held_by_it && (lock.term == term || self.is(Wrong::ReleaseAnyTerm)) {
            let term = lock.term + Term::from(to.is_some());
            *lock = Lock { term, holding: to, handed: to.is_some() };
        }
    }

    /// The clock of whichever server is the primary. The next one's is ahead by a whole ttl.
    fn store_clock(&self, world: &World) -> Time {
        if self.is(Wrong::StoreClock) { world.now + self.budget.ttl * world.spent.failovers } else { 0 }
    }
}

/// Returns whether a session in this state may be declared dead on that evidence (R3).
fn justifies(mark: Mark, record: SessionRecord) -> bool {
    match (mark, record.standing) {
        (Mark::Beat(nonce), Standing::Alive) => record.nonce == nonce,
        (Mark::Missing, Standing::Missing) | (Mark::Any, Standing::Alive) => true,
        _ => false,
    }
}

fn sighting(record: SessionRecord) -> Answer {
    match record.standing {
        Standing::Alive => Answer::Alive(record.nonce),
        Standing::Dead => Answer::Dead,
        Standing::Missing => Answer::Missing,
    }
}
