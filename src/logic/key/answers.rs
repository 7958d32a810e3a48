//! Answers of the store, and what they change.

use std::{sync::Arc, time::Duration};

use super::{
    KeyMachine, SOON,
    choose::named,
    state::{HeldState, NextStep, QueuePlace},
    types::{Context, Op, OpReply, Output, Patience, TicketOutcome},
};
use crate::{
    StoreError,
    backoff::jittered,
    clock::Moment,
    error::Applied,
    logic::{flaw::Flaw, watch::Liveness},
    model::StoreTime,
    store::{Candidate, LockRecord, LockSeen, Refusal, ReleaseAnswer, TakeAnswer, Ticket},
};

/// Most tries of a ticket that does not wait, if the store does not answer.
const TRIES: u32 = 3;
/// Time within which a failure is a refusal; one that takes longer got no answer.
const AT_ONCE: Duration = Duration::from_millis(500);

impl KeyMachine {
    /// The answer to the operation that was under way since `sent`.
    pub(crate) fn answered(&mut self, context: Context<'_>, sent: Moment, op: Op, answer: OpReply) {
        let in_flight = self.in_flight.take().unwrap_or_default();
        self.changed = context.now;
        self.last.is_of_the_queue = op.is_of_the_queue();
        let reads_queue = matches!(op, Op::ReadQueue { .. });
        if matches!(op, Op::Take { .. } | Op::Confirm { .. } | Op::Release { .. }) {
            self.last.is_stuck = match &answer {
                OpReply::Failed(error) => self.last.is_stuck || error.applied() == Applied::Unknown,
                _ => false,
            };
        }
        if let OpReply::Failed(error) = answer {
            self.failed(context, sent, &op, error);
        } else {
            if !op.is_of_the_queue() {
                self.backoff.reset();
                self.failure = None;
            }
            self.recheck.entry &= !in_flight.polls;
            self.succeeded(context, op, answer, in_flight.stale);
            // Others may be before it: the queue is read before it tries.
            if in_flight.polls {
                let tries = self.contenders.front().is_some_and(|head| head.step == NextStep::Again);
                self.recheck.queue |= self.last_seen.free || tries;
            }
        }
        // The answer may be from before it. A ticket that holds back for others does so still.
        if in_flight.stale && !reads_queue {
            self.look_at = context.now;
        }
        self.undecided |= in_flight.unexpected_grant && self.held.is_none();
        self.recheck.lock |= in_flight.unexpected_grant && self.held.is_none();
    }

    fn succeeded(&mut self, context: Context<'_>, op: Op, answer: OpReply, stale: bool) {
        match (op, answer) {
            (Op::Look | Op::Peek, OpReply::Seen(seen)) => self.seen(context, seen),
            (Op::Poll { ticket, .. }, OpReply::Polled { seen, in_queue }) => {
                self.polled(context, ticket, seen, in_queue);
            }
            (Op::Take { by, dead }, OpReply::Took(answer)) => {
                self.passed_on_here(context, &by, &answer);
                if let (TakeAnswer::Taken(_), [dead]) = (&answer, &dead[..]) {
                    self.out.push(Output::TookOver(*dead));
                }
                self.took(context, &by, answer);
            }
            (Op::Confirm { session, ticket }, OpReply::Took(answer)) => {
                self.confirmed(session, ticket, answer);
            }
            (Op::Release { term, then, leaving, .. }, OpReply::Released { answer, left }) => {
                match (leaving.is_empty(), left) {
                    (true, _) => {}
                    (false, true) => self.mark_left(context.now, &leaving),
                    (false, false) => self.not_left(context, &leaving),
                }
                match answer {
                    // The queue is read next.
                    ReleaseAnswer::Wanted => self.has_queue = true,
                    ReleaseAnswer::Refused(refusal) => self.not_released(context, term, &then, refusal),
                    ReleaseAnswer::Released => self.on_released(context, term, &then),
                }
            }
            (Op::ReadQueue { .. }, OpReply::Queue(queue)) => self.queue_read(context, queue, stale),
            (Op::Register(tickets), OpReply::Done) => self.registered(context, &tickets),
            (Op::Leave(gone), OpReply::Done) => self.mark_left(context.now, &gone),
            (Op::Inquire { .. }, OpReply::Known(liveness)) => self.inquired(liveness),
            (op, answer) => debug_assert!(false, "{answer:?} is no answer to {op:?}"),
        }
    }

    fn failed(&mut self, context: Context<'_>, sent: Moment, op: &Op, error: Arc<StoreError>) {
        match op {
            Op::Register(_) => return self.registration.failed(context.now, context.roll),
            Op::Leave(gone) => return self.not_left(context, gone),
            Op::ReadQueue { .. } => {
                let back = self.returns.front_mut();
                // A primary that has stood down says so at once, and an instance that asks again waits for the next
                // one. A release would do so, too, and no waiter would be told of it.
                if let Some(back) = back
                    && !back.asks_again
                    && error.is_retryable()
                    && context.now.since(sent) < AT_ONCE
                {
                    back.asks_again = true;
                    return;
                }
                self.reading.failed(context.now, context.roll);
                if let Some(back) = self.returns.front_mut() {
                    // Fairness can wait; the lock cannot. Others may be in the queue: it is for any of them to take.
                    back.queue = Some((context.now, Vec::new()));
                    back.handback.offered = true;
                }
                return;
            }
            _ => {}
        }
        // One that hung has had its pause.
        self.pause = context.now.max(sent + self.backoff.next(context.roll));
        self.failure = Some(error.clone());
        let unknown = error.applied() == Applied::Unknown && !self.flaws.has(Flaw::UnknownIsNo);
        if self.flaws.has(Flaw::UnknownIsNo)
            && matches!(op, Op::Release { .. })
            && let Some(back) = self.returns.pop_front()
        {
            self.out.push(Output::Returned(back.ticket));
        }
        let taken = if let Op::Take { by, .. } = op { Some(by.ticket) } else { None };
        if let Some(heir) = taken {
            self.not_passed_on_here(heir);
        }
        if let Some(head) = self.contenders.front_mut()
            && head.patience == Patience::Once
        {
            head.tries += 1;
            if head.tries >= TRIES || !error.is_retryable() {
                let ticket = head.by.ticket;
                // Also a take that was lost before others that were refused.
                let is_take_lost = unknown && taken.is_some();
                self.undecided |= head.unconfirmed || is_take_lost;
                self.contenders.pop_front();
                self.out.push(Output::Verdict(ticket, TicketOutcome::Failed(error)));
            }
        }
        if let Some(ticket) = taken.filter(|_| unknown) {
            match self.contenders.iter_mut().find(|contender| contender.by.ticket == ticket) {
                Some(contender) => contender.unconfirmed = true,
                // It has left in the meantime.
                None => self.undecided = true,
            }
        }
    }

    fn seen(&mut self, context: Context<'_>, seen: LockSeen) {
        if let Some(held) = &mut self.held {
            self.recheck.lock = false;
            let ours = matches!(&seen, LockSeen::Found(record)
                if record.term == held.term && record.is_granted_to(held.session, held.ticket));
            if !ours && held.hold == HeldState::Runs {
                held.hold = HeldState::Suspected;
            }
            return;
        }
        self.undecided = false;
        self.recheck.lock = false;
        self.last_seen.handed_over = false;
        self.last_seen.refused = false;
        match seen {
            LockSeen::Found(record) => self.learned(context, record),
            LockSeen::Absent => {
                self.last_seen.other = None;
                self.last_seen.free = true;
            }
            LockSeen::Refused(refusal) => self.refused(context, refusal),
        }
    }

    fn polled(&mut self, context: Context<'_>, ticket: Ticket, seen: LockSeen, in_queue: Option<bool>) {
        match in_queue {
            Some(_) => self.reading.worked(),
            None => self.reading.failed(context.now, context.roll),
        }
        self.seen(context, seen);
        let Some(head) = self.contenders.front_mut() else { return };
        if in_queue == Some(true) {
            head.registered = Some(context.now);
        }
        if head.by.ticket == ticket && in_queue == Some(false) {
            // A failure of the store undid it: it is behind others from now on.
            // The heir of a lock takes it all the same.
            head.step = if head.step == NextStep::Try { NextStep::Try } else { NextStep::Again };
            head.place = QueuePlace::Nowhere;
            head.queue_read = None;
            head.ahead = None;
        }
    }

    fn took(&mut self, context: Context<'_>, by: &Candidate, answer: TakeAnswer) {
        self.last_seen.free = false;
        self.last_seen.refused = false;
        self.recheck.lock = false;
        self.undecided = false;
        match answer {
            TakeAnswer::Taken(record)
                if Some(by.session) == context.current || self.flaws.has(Flaw::LateAnswer) =>
            {
                let since =
                    record.holding.as_ref().map_or(StoreTime::from_millis(0), |held| held.acquired_at);
                // Of a lock that was passed on here, the queue may be known.
                self.has_queue |= record.wanted && self.next_in_queue.is_none();
                self.ours(context, by.session, by.ticket, record.term, since);
            }
            // R10: it came after the end. The session's death frees the lock.
            TakeAnswer::Taken(_) => {}
            // R11: an answer that says another ticket of ours has it decides nothing. A read will.
            TakeAnswer::Held(record) if context.current.is_some_and(|session| record.is_held_by(session)) => {
                self.last_seen.other = None;
                self.last_seen.handed_over = true;
                self.look_at = context.now;
            }
            TakeAnswer::Held(record) => self.learned(context, record),
            TakeAnswer::Closed(record) => self.closed(context, record),
            TakeAnswer::Refused(refusal) => self.refused(context, refusal),
        }
    }

    /// The lock as it is, and not granted to the ticket that asked.
    fn learned(&mut self, context: Context<'_>, record: LockRecord) {
        let now = context.now;
        let Some(held) = &record.holding else {
            if closed_for(context, &record).is_zero() {
                self.last_seen.other = None;
                self.last_seen.free = true;
            } else {
                self.closed(context, record);
            }
            return;
        };
        self.last_seen.free = false;
        let (session, ticket, since) = (held.by.session, held.by.ticket, held.acquired_at);
        if Some(session) == context.current {
            let term = record.term;
            self.has_queue |= record.wanted;
            self.ours(context, session, ticket, term, since);
            return;
        }
        let named = named(&record, held);
        let dead = (context.known)(session);
        let is_wanted = record.wanted || record.id.kind.spread().is_some();
        self.last_seen.other = Some(Box::new(record));
        let Some(head) = self.contenders.front_mut() else { return };
        head.contested = true;
        // The mark was not made where the lock was free, and a release takes it away: another may hold it since.
        if !is_wanted && head.place == QueuePlace::Joined {
            head.place = QueuePlace::Asked;
        }
        if dead == Some(Liveness::Dead) {
            head.step = if head.step == NextStep::Try { NextStep::Try } else { NextStep::Again };
            return;
        }
        self.out.push(Output::Watch(session, Some(named)));
        match (head.patience, dead) {
            (Patience::Once, Some(liveness)) => self.inquired(liveness),
            // Asked about next.
            (Patience::Once, None) => {}
            (Patience::Waits, _) if head.step == NextStep::Try => head.step = NextStep::Again,
            (Patience::Waits, _) => {
                self.schedule_next_look(now, jittered(self.poll, context.roll));
            }
        }
    }

    /// Handles a key without a holder that may not be taken yet.
    fn closed(&mut self, context: Context<'_>, record: LockRecord) {
        let now = context.now;
        let left = closed_for(context, &record);
        self.last_seen.other = None;
        if let Some(ticket) = self.drop_impatient_head() {
            self.out.push(Output::Verdict(ticket, TicketOutcome::Closed(Box::new(record))));
        } else {
            // A little late, so that it is open by then. Or the next poll, if that is sooner; or if the guess is
            // wrong, since the store says that the key is closed, and by the guess it is open.
            let wait = if left.is_zero() { self.poll } else { left + Duration::from_millis(2) };
            self.schedule_next_look(now, wait.clamp(SOON, self.poll.max(SOON)));
            self.last_seen.free = self.look_at.since(now) >= left;
            self.recheck.queue = true;
        }
    }

    fn refused(&mut self, context: Context<'_>, refusal: Refusal) {
        self.last_seen.free = false;
        self.last_seen.other = None;
        self.last_seen.refused = true;
        if let Some(ticket) = self.drop_impatient_head() {
            self.out.push(Output::Verdict(ticket, TicketOutcome::Refused(refusal)));
        } else {
            self.out.extend((!self.contenders.is_empty()).then_some(Output::Refused(refusal)));
            self.schedule_next_look(context.now, self.poll);
        }
    }

    fn inquired(&mut self, liveness: Liveness) {
        if liveness == Liveness::Dead {
            return;
        }
        if let Some(record) = self.last_seen.other.clone()
            && let Some(ticket) = self.drop_impatient_head()
        {
            self.out.push(Output::Verdict(ticket, TicketOutcome::Held(record, liveness)));
        }
    }

    /// Looks at the lock again after `time`; until then the first in the queue waits, or is tried again if it does not
    /// wait.
    fn schedule_next_look(&mut self, now: Moment, time: Duration) {
        self.look_at = now + time;
        self.recheck.entry = true;
        if let Some(head) = self.contenders.front_mut() {
            head.step = match (head.patience, head.step) {
                // It is not to wait, so it is tried again, in a moment.
                (Patience::Once, _) => {
                    self.pause = now + SOON.min(time);
                    NextStep::Try
                }
                (Patience::Waits, NextStep::Try) => NextStep::Again,
                (Patience::Waits, _) => NextStep::Waiting,
            };
        }
    }

    fn drop_impatient_head(&mut self) -> Option<Ticket> {
        let head = self.contenders.front()?;
        let once = head.patience == Patience::Once;
        if once { self.contenders.pop_front().map(|contender| contender.by.ticket) } else { None }
    }
}

/// Returns how long the key may stay closed, as far as the store's time can be guessed.
fn closed_for(context: Context<'_>, record: &LockRecord) -> Duration {
    match (record.closed, context.store_now) {
        (Some(closed), Some(store_now)) => closed.left_about(store_now),
        (Some(closed), None) => closed.length,
        (None, _) => Duration::ZERO,
    }
}
