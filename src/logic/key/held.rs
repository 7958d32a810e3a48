//! The lock this instance holds: granted, suspected, confirmed or lost, and given back.

use std::{collections::VecDeque, mem, time::Duration};

use super::{
    FIRST_REST, KeyMachine,
    queue::{GATHERED, others},
    state::{HeldLock, HeldState, LastRelease, NextStep, QueuePlace, Return},
    types::{Context, Handback, Output, Patience, TicketOutcome},
};
use crate::{
    backoff::jittered,
    clock::Moment,
    logic::flaw::Flaw,
    model::{Loss, SessionId, StoreTime, Term},
    store::{Candidate, Ended, LockRecord, Note, Past, Refusal, ReleaseTo, TakeAnswer, Ticket, Waiter},
};

/// A read that follows a release by less may be from before it.
const AFTER_RELEASE: Duration = Duration::from_millis(5);
/// Most tries of a release whose record the store refuses to write. The audit finds what is left then.
pub(super) const RELEASE_TRIES: u32 = 5;

impl KeyMachine {
    /// The work under this ticket has ended (a job, a guard that is dropped, or none was begun): its lock can go. Under
    /// a session that is over there is nothing to send: its death frees the lock.
    pub(crate) fn ended(&mut self, context: Context<'_>, ticket: Ticket, handback: Handback) {
        let now = context.now;
        self.changed = now;
        if let Some(held) = self.held.take_if(|held| held.ticket == ticket) {
            let queue = self.take_next_in_queue(context, &handback);
            if handback.keep || held.hold == HeldState::Lost || Some(held.session) != context.current {
                self.out.push(Output::Returned(ticket));
            } else {
                self.give_back(held.session, held.ticket, held.term, handback);
                if let Some(back) = self.returns.back_mut() {
                    back.queue = queue;
                }
            }
            self.pause = now;
            self.look_at = now;
        }
    }

    /// The record says that a ticket of ours holds the lock.
    pub(super) fn ours(
        &mut self,
        context: Context<'_>,
        session: SessionId,
        ticket: Ticket,
        term: Term,
        since: StoreTime,
    ) {
        if self.held.is_some_and(|held| held.ticket == ticket)
            || self.returns.iter().any(|back| back.term == term)
        {
            return;
        }
        let place = self
            .contenders
            .iter()
            .position(|contender| contender.by.session == session && contender.by.ticket == ticket);
        let place = match place {
            None if self.flaws.has(Flaw::AnyTicket) && !self.contenders.is_empty() => Some(0),
            place => place,
        };
        if self.is_blocked(Some(session)) {
            self.pass_on(session, ticket, term);
            return;
        }
        if let Some(held) = &mut self.held {
            // Then what runs here has lost it.
            if term > held.term && held.hold == HeldState::Runs {
                held.hold = HeldState::Suspected;
            }
            return;
        }
        match place {
            Some(place) => {
                let Some(contender) = self.contenders.remove(place) else { return };
                let ticket = contender.by.ticket;
                self.last.has_inherited = false;
                self.last_seen.other = None;
                self.last_seen.free = false;
                self.recheck.lock = false;
                self.held = Some(HeldLock { session, ticket, term, hold: HeldState::Runs });
                self.has_queue |= contender.contested;
                if contender.place != QueuePlace::Nowhere {
                    self.leave_queue(session, ticket);
                    // A job that ends at once leaves the queue with its release.
                    if self.leaving.rest.is_well() && self.leaving.rest.is_over(context.now) {
                        self.leaving.rest.gathers(context.now, GATHERED);
                    }
                }
                self.changed = context.now;
                self.out.push(Output::Verdict(ticket, TicketOutcome::Granted { term, since }));
                self.turn_away_the_impatient();
            }
            None => {
                if let Some(last) = self.release_that_reads_may_miss(context.now, term) {
                    // It was released just now, and a majority does not know it yet: a take will find it free,
                    // or in the hands of the one it was given to.
                    self.last_seen.free = !last.handed_over;
                    self.pause = context.now + AFTER_RELEASE;
                } else if let Some(in_flight) = &mut self.in_flight {
                    // The answer that is awaited may say more.
                    in_flight.unexpected_grant = true;
                } else if !self.inherit(session, ticket) {
                    // No ticket here wants it (any more): it is passed on.
                    self.pass_on(session, ticket, term);
                }
            }
        }
    }

    /// The first that waits here takes the place of one that has given up: it takes the lock under its own ticket, which
    /// is newer. To pass the lock on would take a release, and a race of all that wait. Not twice in a row: where one
    /// after the other gives up, others get their turn. Returns whether there is one.
    fn inherit(&mut self, session: SessionId, ticket: Ticket) -> bool {
        if self.last.has_inherited {
            return false;
        }
        let heir =
            self.contenders.front_mut().filter(|head| head.by.session == session && head.by.ticket > ticket);
        let Some(heir) = heir else { return false };
        heir.step = NextStep::Try;
        self.last.has_inherited = true;
        self.last_seen.other = None;
        self.last_seen.handed_over = false;
        self.last_seen.free = true;
        // The heir may give up as well.
        self.undecided = true;
        self.leave_queue(session, ticket);
        true
    }

    /// Gives back a lock that no ticket here wants, to no waiter in particular: places like that of its ticket may
    /// still be in the queue that no session can remove, and a lock that is handed from one to the next never comes
    /// to the tickets that wait.
    fn pass_on(&mut self, session: SessionId, ticket: Ticket, term: Term) {
        self.last.has_inherited = false;
        self.next_in_queue = None;
        self.leave_queue(session, ticket);
        self.give_back(session, ticket, term, Handback { offered: true, ..Handback::default() });
    }

    fn give_back(&mut self, session: SessionId, ticket: Ticket, term: Term, handback: Handback) {
        if !self.returns.iter().any(|back| back.term == term) {
            self.returns.push_back(Return {
                session,
                ticket,
                term,
                handback,
                queue: None,
                heir: None,
                is_part: false,
                asks_again: false,
                refused: 0,
            });
        }
    }

    pub(super) fn confirmed(&mut self, session: SessionId, ticket: Ticket, answer: TakeAnswer) {
        let Some(held) = self.held.as_mut().filter(|held| held.ticket == ticket) else {
            // Its job has ended in the meantime: what it was granted anew goes back with what it had.
            if let TakeAnswer::Taken(record) = answer {
                self.give_back(session, ticket, record.term, Handback::default());
            }
            return;
        };
        let found = match answer {
            TakeAnswer::Taken(record) if record.term == held.term => {
                held.hold = HeldState::Runs;
                return;
            }
            // The record was free or gone, and is ours again under a new term: that keeps others out
            // until the job has stopped, and is given back then.
            TakeAnswer::Taken(record) => {
                let loss = lost(&record, held.term);
                held.hold = HeldState::Runs;
                held.term = record.term;
                self.out.push(Output::Lost(ticket, loss));
                return;
            }
            TakeAnswer::Held(record) | TakeAnswer::Closed(record) => lost(&record, held.term),
            TakeAnswer::Refused(refusal) => Loss::Vanished { found: refusal.to_string() },
        };
        held.hold = HeldState::Lost;
        self.out.push(Output::Lost(ticket, found));
        // No ticket here can take the lock up until the job has ended: they wait.
        let places: Vec<_> =
            self.contenders.iter().filter(|contender| contender.place != QueuePlace::Nowhere).collect();
        let places: Vec<_> =
            places.iter().map(|contender| (contender.by.session, contender.by.ticket)).collect();
        for (session, ticket) in places {
            self.leave_queue(session, ticket);
        }
        for contender in &mut self.contenders {
            contender.step = NextStep::Again;
            contender.place = QueuePlace::Nowhere;
        }
    }

    /// The store does not write the record. For a moment, perhaps: so it is tried again.
    pub(super) fn not_released(
        &mut self,
        context: Context<'_>,
        term: Term,
        then: &ReleaseTo,
        refusal: Refusal,
    ) {
        let Some(back) = self.returns.iter_mut().find(|back| back.term == term) else { return };
        back.refused += 1;
        if back.refused >= RELEASE_TRIES {
            self.out.push(Output::Refused(refusal));
            self.on_released(context, term, then);
        } else {
            let whole = FIRST_REST.saturating_mul(1 << back.refused);
            self.pause = context.now + jittered(whole, context.roll);
        }
    }

    pub(super) fn on_released(&mut self, context: Context<'_>, term: Term, then: &ReleaseTo) {
        let Some(place) = self.returns.iter().position(|back| back.term == term) else { return };
        let Some(back) = self.returns.remove(place) else { return };
        self.out.push(Output::Returned(back.ticket));
        let handed_over = matches!(then, ReleaseTo::HandTo(_));
        let others_wait = back.queue.as_ref().is_some_and(|(_, queue)| others(context, queue).len() > 1);
        self.last_release = Some(LastRelease { term, at: context.now, handed_over, others_wait });
        self.last_seen.free = matches!(then, ReleaseTo::Free | ReleaseTo::FreeUnlessWanted);
        self.last_seen.handed_over = handed_over;
        self.look_at = context.now;
        if let Some((_, queue)) = &back.queue {
            self.has_queue |= queue.len() > 1;
        }
        if let ReleaseTo::HandTo(to) = then
            && Some(to.session) == context.current
        {
            // R11: this answer makes no ticket a holder. A majority event or read will.
            if self.flaws.has(Flaw::ReleaseMakesHolder) {
                self.ours(
                    context,
                    to.session,
                    to.ticket,
                    Term::new(term.get() + 1),
                    StoreTime::from_millis(0),
                );
            }
            self.look_at = context.now + AFTER_RELEASE;
        }
        for contender in &mut self.contenders {
            if contender.step == NextStep::Again {
                contender.step = NextStep::Waiting;
            }
        }
    }

    /// The ticket that was to take the lock over has not got it, or did not hear: the lock is given back to no waiter in
    /// particular. To take is another right than to release, and others wait.
    pub(super) fn not_passed_on_here(&mut self, heir: Ticket) {
        let back = self.returns.front_mut().filter(|back| back.heir == Some(heir));
        if let Some(back) = back {
            back.heir = None;
            back.handback.offered = true;
            back.queue = None;
        }
    }

    /// The answer to the take of a ticket that takes the lock over from one of this session: what that one had is
    /// gone.
    pub(super) fn passed_on_here(&mut self, context: Context<'_>, by: &Candidate, answer: &TakeAnswer) {
        let Some(back) = self.returns.front().filter(|back| back.heir == Some(by.ticket)) else { return };
        if !matches!(answer, TakeAnswer::Taken(record) if record.term > back.term) {
            return self.not_passed_on_here(by.ticket);
        }
        let Some(back) = self.returns.pop_front() else { return };
        self.out.push(Output::Returned(back.ticket));
        let is_heir = |waiter: &Waiter| waiter.by.session == by.session && waiter.by.ticket == by.ticket;
        // The others are as they were, and newer ones are behind them. Where none of them is left, those may be next.
        self.next_in_queue = back.queue.and_then(|(read, mut queue)| {
            let was_empty = queue.is_empty();
            queue.retain(|waiter| !is_heir(waiter));
            self.has_queue |= !others(context, &queue).is_empty();
            (was_empty || !queue.is_empty()).then_some((read, queue))
        });
    }

    /// The audit found the lock in the hands of this session for a ticket; it was sent for at `requested`.
    pub(crate) fn found(
        &mut self,
        asked: Moment,
        now: Moment,
        session: SessionId,
        ticket: Ticket,
        term: Term,
    ) {
        let wanted = self.is_pending(session, ticket) && !self.is_blocked(Some(session))
            || self.held.is_some_and(|held| held.ticket == ticket)
            || self.returns.iter().any(|back| back.term == term);
        let undecided = self.in_flight.is_some() || self.undecided || self.changed >= asked;
        if self.flaws.has(Flaw::HastyAudit) || (!wanted && !undecided) {
            self.changed = now;
            self.pass_on(session, ticket, term);
        }
    }

    /// The audit did not find the lock that is held here under this term.
    pub(crate) fn missed(&mut self, asked: Moment, term: Term) {
        let undecided = self.in_flight.is_some() || self.changed >= asked;
        if let Some(held) = &mut self.held
            && held.term == term
            && held.hold == HeldState::Runs
            && !undecided
        {
            held.hold = HeldState::Suspected;
        }
    }

    fn turn_away_the_impatient(&mut self) {
        let (once, waits): (VecDeque<_>, _) =
            mem::take(&mut self.contenders).into_iter().partition(|s| s.patience == Patience::Once);
        self.contenders = waits;
        for contender in once {
            self.out.push(Output::Verdict(contender.by.ticket, TicketOutcome::Here));
        }
        for contender in &mut self.contenders {
            if contender.step == NextStep::Try {
                contender.step = NextStep::Again;
            }
        }
    }

    /// Returns whether what this instance holds keeps it from holding more: it is lost, or of a session that is
    /// over, and has not ended.
    pub(super) fn is_blocked(&self, current: Option<SessionId>) -> bool {
        self.held.is_some_and(|held| held.hold == HeldState::Lost || Some(held.session) != current)
    }

    /// Returns whether a waiter may be in the queue for the lock held here.
    pub(super) fn is_queue_likely(&self) -> bool {
        self.has_queue || self.waiting() > 0
    }

    /// The release of this term, if it was so lately that reads may still show the term.
    fn release_that_reads_may_miss(&self, now: Moment, term: Term) -> Option<LastRelease> {
        self.last_release.filter(|last| term <= last.term && now.since(last.at) < self.poll / 2)
    }
}

/// Why a lock that was held under this term is held no more.
fn lost(record: &LockRecord, term: Term) -> Loss {
    let past = record.past.iter().find(|past| past.term == term);
    if let Some(Past { how: Ended::Forced, note: Some(Note::Revoked { by, why }), .. }) = past {
        return Loss::Revoked { by: by.clone(), why: why.clone() };
    }
    Loss::Vanished {
        found: match &record.holding {
            Some(held) => format!("{} holds it under term {}", held.by.holder, record.term),
            None => format!("nobody holds it, and its last term is {}", record.term),
        },
    }
}
