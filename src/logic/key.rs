//! The machine of one key in one instance: which of its tickets holds the key, which wait, and the one
//! operation that is under way.
//!
//! A ticket goes `Try`, then (if it waits at all) joins the queue, `Again`, `Waiting`, until it is granted or
//! left. Tickets wait in the order of their numbers, and only the first sends takes: so a take that
//! arrives late never carries a larger number than one that was granted since (R7). The others are
//! reached by a hand-over.
//!
//! The queue decides nothing: a ticket that cannot join it, or leave it, or read it, tries all the same.
//!
//! The machine reads neither a clock nor a store: [`KeyMachine::next`] says what to do, the caller does it and
//! brings the answer.

mod answers;
mod choose;
mod held;
mod queue;
mod rest;
mod state;
mod types;

use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

use crate::{
    StoreError,
    backoff::Backoff,
    clock::Moment,
    logic::{flaw::Flaws, watch::Liveness},
    model::SessionId,
    store::{Candidate, LockRecord, Ticket, Waiter},
};
use rest::Throttle;
use state::{
    Contender, ForcedReads, HeldLock, HeldState, InFlight, LastOps, LastRelease, LastSeen, Leaving, NextStep,
    QueuePlace, Return,
};
use types::Patience;

pub(crate) use choose::QUEUE_READ;
pub(crate) use queue::{FIRST_IN_QUEUE, WATCHED_AHEAD, WHOLE_QUEUE};
pub(crate) use types::{
    Context, Expect, Handback, NextOp, Op, OpReply, Output, Standing, TicketOutcome, WaitMode,
};

/// Delay before the read that follows a hint which says too little.
const VERIFY_AFTER: Duration = Duration::from_millis(50);
/// The least time between two takes of a key that is said to be closed.
const SOON: Duration = Duration::from_millis(50);
/// Work on the queue that fails rests so long at first.
const FIRST_REST: Duration = Duration::from_millis(100);

/// A lock that was handed over has a holder: for so long, a ticket that comes again joins the queue and does not try
/// before.
const REMEMBERED: Duration = Duration::from_millis(100);

/// Machine of one key in one instance.
#[derive(Clone, Debug)]
pub(crate) struct KeyMachine {
    flaws: Flaws,
    poll: Duration,
    hints: bool,
    held: Option<HeldLock>,
    returns: VecDeque<Return>,
    contenders: VecDeque<Contender>,
    /// The operation that was begun and not answered yet: no other is begun meanwhile.
    in_flight: Option<InFlight>,
    /// A take was given up before it was answered.
    undecided: bool,
    recheck: ForcedReads,
    /// True if other instances may be in the store's queue.
    has_queue: bool,
    /// First waiters of that queue, as read while the lock was held.
    next_in_queue: Option<(Moment, Vec<Waiter>)>,
    last_release: Option<LastRelease>,
    last_seen: LastSeen,
    look_at: Moment,
    pause: Moment,
    backoff: Backoff,
    /// The last answer about the lock, if that was an error.
    failure: Option<Arc<StoreError>>,
    last: LastOps,
    /// Work on the queue rests by itself: nothing else waits for it.
    registration: Throttle,
    leaving: Leaving,
    reading: Throttle,
    changed: Moment,
    out: Vec<Output>,
}

impl KeyMachine {
    pub(crate) fn new(poll: Duration, hints: bool, flaws: Flaws, now: Moment) -> Self {
        let longest = poll.max(FIRST_REST);
        let rest = Throttle::new(FIRST_REST, longest, now);
        Self {
            flaws,
            poll,
            hints,
            held: None,
            returns: VecDeque::new(),
            contenders: VecDeque::new(),
            in_flight: None,
            undecided: false,
            recheck: ForcedReads::default(),
            has_queue: false,
            next_in_queue: None,
            last_release: None,
            last_seen: LastSeen::default(),
            look_at: now,
            pause: now,
            backoff: Backoff::new(FIRST_REST, longest),
            failure: None,
            last: LastOps::default(),
            registration: rest.clone(),
            leaving: Leaving { rest: rest.clone(), tickets: Vec::new(), given_up: false, tries: 0 },
            reading: rest,
            // No change yet: what an audit found is news to a key that was just made.
            changed: Moment::after_start(Duration::ZERO),
            out: Vec::new(),
        }
    }

    /// Returns whether this instance has nothing to do with the key any more.
    pub(crate) fn is_done(&self) -> bool {
        self.held.is_none()
            && self.returns.is_empty()
            && self.contenders.is_empty()
            && self.leaving.tickets.is_empty()
            && self.in_flight.is_none()
            && !self.undecided
            && self.out.is_empty()
    }

    /// The moment until which there is something to remember, though there is nothing to do.
    pub(crate) fn remembers_until(&self, now: Moment) -> Option<Moment> {
        let handed_over = self.last_release.as_ref().filter(|_| self.hints && self.last_seen.handed_over);
        handed_over.map(|last| last.at + REMEMBERED).filter(|end| now < *end)
    }

    /// Returns whether the last write of the lock had no answer: the next one may hold up others that go with it.
    pub(crate) const fn is_stuck(&self) -> bool {
        self.last.is_stuck
    }

    /// Takes what has been put out since the last call.
    pub(crate) fn take_out(&mut self) -> Vec<Output> {
        mem::take(&mut self.out)
    }

    /// Returns how many of this instance wait for the key.
    pub(crate) fn waiting(&self) -> usize {
        self.contenders.iter().filter(|contender| contender.patience == Patience::Waits).count()
    }

    /// Returns how many of them have a place in the queue, or may have one.
    pub(crate) fn in_queue(&self) -> usize {
        self.contenders.iter().filter(|contender| contender.place != QueuePlace::Nowhere).count()
    }

    /// Returns whether there is something to do, or nothing at all left to remember.
    pub(crate) fn has_something(&self, context: Context<'_>) -> bool {
        self.is_done() || self.choose(context) != NextOp::Idle
    }

    /// Returns whether the lock of this ticket is on its way back.
    pub(crate) fn is_returning(&self, ticket: Ticket) -> bool {
        self.returns.iter().any(|back| back.ticket == ticket)
    }

    /// A new ticket, with a number larger than every one before.
    pub(crate) fn contend(&mut self, context: Context<'_>, by: Candidate, mode: WaitMode) {
        let WaitMode { patience, expect } = mode;
        self.changed = context.now;
        let ticket = by.ticket;
        debug_assert!(
            self.contenders
                .back()
                .is_none_or(|last| last.by.session != by.session || last.by.ticket < ticket)
        );
        if patience == Patience::Once {
            if self.held.is_some() {
                self.out.push(Output::Verdict(ticket, TicketOutcome::Here));
                return;
            }
            // Others of this instance wait: they are before it, and it does not wait.
            if self.contenders.iter().any(|contender| contender.patience == Patience::Waits) {
                let known = |record: &LockRecord| (context.known)(record.holding.as_ref()?.by.session);
                let verdict = match &self.last_seen.other {
                    Some(record) => {
                        TicketOutcome::Held(record.clone(), known(record).unwrap_or(Liveness::Alive))
                    }
                    None => TicketOutcome::Here,
                };
                self.out.push(Output::Verdict(ticket, verdict));
                return;
            }
        }
        // Behind others of this instance it only waits in the queue; so it does if the lock has just been handed
        // over.
        let first =
            self.held.is_none() && self.contenders.is_empty() && self.remembers_until(context.now).is_none();
        let open = first && expect != Expect::Held;
        let step = if open || patience == Patience::Once { NextStep::Try } else { NextStep::Again };
        self.contenders.push_back(Contender {
            by: Box::new(by),
            patience,
            step,
            tries: 0,
            registered: None,
            contested: false,
            unconfirmed: false,
            place: QueuePlace::Nowhere,
            since: context.now,
            expect,
            queue_read: None,
            ahead: None,
        });
    }

    /// A ticket is given up.
    pub(crate) fn leave(&mut self, now: Moment, ticket: Ticket) {
        self.changed = now;
        if let Some(place) = self.contenders.iter().position(|contender| contender.by.ticket == ticket) {
            let Some(contender) = self.contenders.remove(place) else { return };
            // Only the first sends takes: one of them may be under way.
            let is_take_under_way = place == 0 && self.in_flight.is_some();
            let may_have_been_granted = contender.unconfirmed || is_take_under_way;
            self.undecided |= may_have_been_granted;
            self.make_answer_stale();
            if contender.place != QueuePlace::Nowhere {
                self.leave_queue(contender.by.session, ticket);
                self.leaving.given_up = true;
            }
        }
        if self.waiting() == 0 {
            // Another may have come since it was read, for the sake of the tickets here.
            for back in &mut self.returns {
                back.queue = None;
            }
        }
    }

    /// A session of this instance is over: its tickets are void, its locks are freed by its death.
    pub(crate) fn session_over(&mut self, now: Moment, session: SessionId) {
        self.changed = now;
        let (void, contenders): (VecDeque<_>, _) =
            mem::take(&mut self.contenders).into_iter().partition(|s| s.by.session == session);
        self.contenders = contenders;
        for contender in void {
            // Others are not to look past it for as long as the dead are remembered.
            if contender.place != QueuePlace::Nowhere {
                self.leave_queue(session, contender.by.ticket);
            }
            self.out.push(Output::Verdict(contender.by.ticket, TicketOutcome::SessionOver));
        }
        let (gone, kept): (VecDeque<_>, _) =
            mem::take(&mut self.returns).into_iter().partition(|r| r.session == session);
        self.returns = kept;
        self.out.extend(gone.into_iter().map(|gone| Output::Returned(gone.ticket)));
        self.undecided = false;
    }

    /// A hint: the lock may be another's, or free, or granted to a ticket of ours.
    pub(crate) fn hint(&mut self, context: Context<'_>) {
        if !self.contenders.is_empty() && self.held.is_none() {
            self.look_at = context.now;
            self.recheck.entry = true;
            self.make_answer_stale();
        }
    }

    /// A hint: the lock was handed to this session, perhaps to a ticket that was given up.
    pub(crate) fn handed(&mut self, context: Context<'_>) {
        self.hint(context);
        self.recheck.lock |= self.held.is_none();
        match &mut self.in_flight {
            Some(in_flight) => in_flight.unexpected_grant = true,
            None => self.undecided |= self.contenders.is_empty() && self.held.is_none(),
        }
    }

    /// A hint: the lock may have been taken away from its holder. It may be about an earlier one, for which the
    /// read that says so waits a moment.
    pub(crate) fn revoked(&mut self, context: Context<'_>) {
        if self.held.is_some() && !self.recheck.lock {
            self.recheck.lock = true;
            self.look_at = context.now + VERIFY_AFTER;
        }
    }

    /// Hints may have been lost.
    pub(crate) fn resync(&mut self, now: Moment) {
        self.make_answer_stale();
        self.recheck.entry = true;
        if let Some(head) = self.contenders.front_mut() {
            head.registered = None;
            self.look_at = now;
        }
    }

    /// The lock may have become free: an answer that is awaited may be from before.
    const fn make_answer_stale(&mut self) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.stale = true;
        }
    }

    /// Returns whether the lock was in the hands of that session when it was last seen.
    pub(crate) fn is_held_by(&self, session: SessionId) -> bool {
        self.last_seen.other.as_ref().is_some_and(|record| record.is_held_by(session))
    }

    /// Returns what is known of the lock, for a ticket that is to wait no longer.
    pub(crate) fn standing(&self) -> Standing {
        match &self.failure {
            _ if self.held.is_some() => Standing::Held,
            Some(failure) => Standing::Failing(failure.clone()),
            None if self.last_seen.other.is_some() && !self.last_seen.free => Standing::Held,
            None => Standing::Unknown,
        }
    }

    /// A session that was watched is dead.
    pub(crate) fn died(&mut self, now: Moment, session: SessionId) {
        if self.is_held_by(session) {
            self.recheck.queue = true;
            self.look_at = now;
        }
    }

    fn is_pending(&self, session: SessionId, ticket: Ticket) -> bool {
        self.contenders
            .iter()
            .any(|contender| contender.by.session == session && contender.by.ticket == ticket)
    }
}

#[cfg(test)]
mod tests;
