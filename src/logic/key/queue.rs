//! The queue: joining it, leaving it, and the waiter that is given the lock. It decides nothing: whatever of this
//! fails rests by itself, and takes, releases and looks go on without it.

use std::time::Duration;

use super::{
    KeyMachine,
    state::{Contender, NextStep, QueuePlace, Return},
    types::{Context, Handback, Op, Output, Patience},
};
use crate::{
    clock::Moment,
    logic::{flaw::Flaw, watch::Liveness},
    model::{Holder, SessionId},
    store::{Candidate, Queue, ReleaseTo, Ticket, Waiter},
};

/// Most waiters a releaser reads: the first, and some more in case that one is dead.
pub(crate) const FIRST_IN_QUEUE: usize = 8;
/// A queue that was read while the lock was held is as good as new for so long.
const QUEUE_KEPT: Duration = Duration::from_secs(1);
/// The n-th instance in the queue tries so much later than the one before it, that a free lock is no stampede.
const STEP_BACK: Duration = Duration::from_millis(50);
/// Longest time to hold back.
const LONGEST_STEP_BACK: Duration = Duration::from_secs(1);
/// Places are taken and left together that come within so long: where tickets here take turns, one of each a turn would
/// cost as much as the turn.
pub(super) const GATHERED: Duration = Duration::from_millis(10);
/// Tickets behind one of their own instance join the queue once another instance is known to wait, or after so long.
/// Where tickets here take turns, the place of each would cost more than its turn.
const AMONG_OURSELVES: Duration = Duration::from_secs(1);
/// Most waiters ahead of this instance that it watches: should a lock be handed to one that died, its death is
/// near.
pub(crate) const WATCHED_AHEAD: usize = 3;
/// Most waiters among whom a successor is looked for by name.
pub(crate) const WHOLE_QUEUE: usize = 1000;
/// Most tries in a row to leave the queue. An instance that reads the queue removes what is left then.
const LEAVE_TRIES: u32 = 10;

impl KeyMachine {
    // ----- what to do

    /// Returns what is to be done about the queue, unless it rests.
    pub(super) fn queue_op(&self, context: Context<'_>) -> Option<Op> {
        let now = context.now;
        if self.registration.is_over(now) && self.has_to_register(context) {
            let unregistered = self.contenders.iter().filter(|contender| contender.is_unregistered());
            return Some(Op::Register(unregistered.map(|contender| (*contender.by).clone()).collect()));
        }
        if self.leaving.rest.is_over(now) && !self.leaving.tickets.is_empty() {
            return Some(Op::Leave(self.leaving.tickets.clone()));
        }
        (self.reading.is_over(now) && self.reads_ahead(context))
            .then_some(Op::ReadQueue { most: FIRST_IN_QUEUE, to: None })
    }

    /// Returns whether that goes before looks and takes: only what works, and of leaving only where no ticket waits
    /// here. Not twice in a row: where tickets come all the time, the lock would never be looked at.
    pub(super) fn goes_first(&self, op: &Op) -> bool {
        match op {
            Op::Register(_) => {
                self.registration.is_well() && !self.last.is_of_the_queue && !self.last_seen.free
            }
            Op::Leave(_) => self.leaving.rest.is_well() && self.contenders.is_empty(),
            _ => false,
        }
    }

    /// Moment at which some part of the queue's work has rested enough.
    pub(super) fn queue_wakes(&self, context: Context<'_>) -> Option<Moment> {
        let now = context.now;
        [
            self.registration.end(now).filter(|_| self.has_to_register(context)),
            self.ends_among_ourselves().filter(|end| now < *end),
            self.leaving.rest.end(now).filter(|_| !self.leaving.tickets.is_empty()),
            self.reading.end(now).filter(|_| self.reads_ahead(context)),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns whether tickets are to be registered: what runs here may never end, and no other instance is to wait
    /// for that.
    fn has_to_register(&self, context: Context<'_>) -> bool {
        // Tickets behind one that tries register after it, if at all.
        let tries = self.contenders.front().is_some_and(|head| head.step == NextStep::Try);
        !self.is_blocked(context.current)
            && !self.last_seen.refused
            && !tries
            && self.contenders.iter().any(Contender::is_unregistered)
            && self.ends_among_ourselves().is_none_or(|end| context.now >= end)
    }

    /// The moment until which the tickets here wait without a place, if they do: one of them has the lock, and no other
    /// instance waits.
    fn ends_among_ourselves(&self) -> Option<Moment> {
        let first = self.contenders.iter().find(|contender| contender.is_unregistered());
        first.filter(|_| self.held.is_some() && !self.has_queue).map(|first| first.since + AMONG_OURSELVES)
    }

    /// Read while there is time, so that the release need not.
    fn reads_ahead(&self, context: Context<'_>) -> bool {
        let runs = self.held.is_some_and(|held| held.hold == super::HeldState::Runs);
        runs && self.is_queue_likely() && self.next_in_queue.is_none() && !self.is_blocked(context.current)
    }

    pub(super) fn release_step(&self, context: Context<'_>, back: &Return) -> Op {
        let Return { session, term, handback, queue, is_part, .. } = back;
        let reads = self.reading.is_over(context.now);
        let then = if !handback.closed_for.is_zero() {
            ReleaseTo::ClosedFor(handback.closed_for)
        } else if let Some(successor) = &handback.successor {
            ReleaseTo::HandTo(successor.clone())
        } else if let Some((_, queue)) = queue {
            let successor =
                self.successor(context, handback.to.as_ref(), queue).filter(|_| !handback.offered);
            match successor.or_else(|| self.own_successor(back).filter(|_| !handback.offered)) {
                _ if successor.is_none() && *is_part && reads => {
                    return Op::ReadQueue { most: WHOLE_QUEUE, to: None };
                }
                Some(successor) if self.takes_over(back, successor) => {
                    return Op::Take { by: Box::new(successor.clone()), dead: Vec::new() };
                }
                Some(successor) => ReleaseTo::HandTo(Box::new(successor.clone())),
                None => ReleaseTo::Free,
            }
        } else if let Some(to) = handback.to.as_ref().filter(|_| reads) {
            return Op::ReadQueue { most: WHOLE_QUEUE, to: Some(to.clone()) };
        } else if reads && self.is_queue_likely() {
            return Op::ReadQueue { most: FIRST_IN_QUEUE, to: None };
        } else if reads {
            ReleaseTo::FreeUnlessWanted
        } else {
            ReleaseTo::Free
        };
        let leaving = if self.leaving.rest.is_well() { self.leaving.tickets.clone() } else { Vec::new() };
        Op::Release { session: *session, term: *term, note: handback.note.clone(), then, leaving }
    }

    /// Returns whether the successor is the first ticket here: it takes the lock from the one before it (R7), by a
    /// write that a majority keeps, and so needs no read to know that it has it (R11).
    fn takes_over(&self, back: &Return, successor: &Candidate) -> bool {
        let is_head = |head: &Contender| head.by.ticket == successor.ticket && head.by.ticket > back.ticket;
        successor.session == back.session
            && !self.flaws.has(Flaw::ReleaseMakesHolder)
            && back.handback.note.is_none()
            && self.contenders.front().is_some_and(is_head)
    }

    /// The first ticket here, which need not be in the queue: behind all that are.
    fn own_successor(&self, back: &Return) -> Option<&Candidate> {
        let waits = |head: &&Contender| {
            head.patience == Patience::Waits
                && head.by.session == back.session
                && head.by.ticket > back.ticket
                && back.handback.note.is_none()
        };
        self.contenders.front().filter(waits).map(|head| &*head.by)
    }

    /// Returns the waiter that is given the lock: one of that name, if one may be; else the first. Of other sessions
    /// only one that was seen to beat lately: a lock that is given to a dead session is free for no other until that
    /// session is declared dead.
    fn successor<'a>(
        &self,
        context: Context<'_>,
        to: Option<&Holder>,
        queue: &'a [Waiter],
    ) -> Option<&'a Candidate> {
        let takes_it = |by: &Candidate| match by.session {
            own if Some(own) == context.current => self.is_pending(own, by.ticket),
            other => (context.beats)(other),
        };
        let mut fit = queue.iter().map(|waiter| &waiter.by).filter(|by| takes_it(by));
        fit.clone().find(|by| to == Some(&by.holder)).or_else(|| fit.next())
    }

    /// The queue that was read while the lock was held, if it is of use still.
    pub(super) fn take_next_in_queue(
        &mut self,
        context: Context<'_>,
        handback: &Handback,
    ) -> Option<(Moment, Vec<Waiter>)> {
        let (read, queue) = self.next_in_queue.take()?;
        let is_new = context.now.since(read) < QUEUE_KEPT;
        // If no waiter in it may be given the lock, it is read again: another may have come.
        let is_of_use = queue.is_empty() && !self.has_queue && self.waiting() > 0
            || self.successor(context, None, &queue).is_some();
        (is_new && handback.to.is_none() && is_of_use).then_some((read, queue))
    }

    /// A hint says that a session began to wait.
    pub(crate) fn queue_hint(&mut self, context: Context<'_>) {
        self.has_queue = true;
        if self.held.is_some() || !self.returns.is_empty() {
            self.make_answer_stale();
        }
        // A new waiter is behind the known ones: that is of interest if none of them is given the lock.
        if let Some((read, queue)) = self.next_in_queue.take() {
            let has_successor = self.successor(context, None, &queue).is_some();
            self.next_in_queue = has_successor.then_some((read, queue));
        }
    }

    // ----- what came of it

    pub(super) fn registered(&mut self, context: Context<'_>, tickets: &[Candidate]) {
        self.registration.gathers(context.now, GATHERED);
        let (handed_over, look_in) = match self.last_release {
            Some(last) if self.last_seen.handed_over => {
                // The heir of a release here may hand it over by then, which a hint tells; and a read now would show
                // the lock before that release. If others stand behind the heir, it goes to them next, and not free.
                (true, if last.others_wait { QUEUE_KEPT } else { GATHERED })
            }
            _ => (false, Duration::ZERO),
        };
        for (place, contender) in self.contenders.iter_mut().enumerate() {
            if contender.place != QueuePlace::Asked
                || !tickets.iter().any(|by| by.ticket == contender.by.ticket)
            {
                continue;
            }
            contender.place = QueuePlace::Joined;
            contender.registered = Some(context.now);
            // Once more, in case it became free just before (only the first tries). One that holds back for others looks
            // soon.
            let holds_back = contender.step == NextStep::Waiting
                && contender.ahead.as_ref().is_some_and(|ahead| !ahead.is_empty());
            let tries = place == 0 && !handed_over && !holds_back;
            contender.step = if tries { NextStep::Again } else { NextStep::Waiting };
            if place == 0 && !holds_back {
                self.look_at = context.now + look_in;
            }
        }
        for by in tickets {
            if !self.contenders.iter().any(|contender| contender.by.ticket == by.ticket)
                && self.held.is_none_or(|held| held.ticket != by.ticket)
            {
                self.leave_queue(by.session, by.ticket);
            }
        }
    }

    pub(super) fn leave_queue(&mut self, session: SessionId, ticket: Ticket) {
        if !self.leaving.tickets.contains(&(session, ticket)) {
            self.leaving.tickets.push((session, ticket));
        }
    }

    pub(super) fn mark_left(&mut self, now: Moment, gone: &[(SessionId, Ticket)]) {
        self.leaving.rest.gathers(now, GATHERED);
        self.leaving.tries = 0;
        self.leaving.tickets.retain(|ticket| !gone.contains(ticket));
        // The lock may have been handed to one of them in between.
        self.undecided |= std::mem::take(&mut self.leaving.given_up) && self.held.is_none();
    }

    /// A place that is left behind does no harm: an instance that reads the queue and knows its session dead removes
    /// it, and one that is handed the lock passes it on. So that is not tried for ever.
    pub(super) fn not_left(&mut self, context: Context<'_>, gone: &[(SessionId, Ticket)]) {
        self.leaving.rest.failed(context.now, context.roll);
        // Without a session there is no store to leave anything in.
        self.leaving.tries += u32::from(context.current.is_some());
        if self.leaving.tries >= LEAVE_TRIES {
            self.mark_left(context.now, gone);
        }
    }

    /// The queue as it was read. With `came`, a session began to wait meanwhile.
    pub(super) fn queue_read(&mut self, context: Context<'_>, queue: Queue, came: bool) {
        self.reading.worked();
        let Queue { waiters, whole } = queue;
        let ours = |by: &Candidate| Some(by.session) == context.current;
        // Waiters that died; and one that left, and is there again: its registration came late, or twice.
        let gone = |by: &Candidate| {
            if ours(by) {
                !self.is_pending(by.session, by.ticket)
                    && self.held.is_none_or(|held| held.ticket != by.ticket)
            } else {
                (context.known)(by.session) == Some(Liveness::Dead)
            }
        };
        let (gone, queue): (Vec<_>, Vec<_>) = waiters.into_iter().partition(|waiter| gone(&waiter.by));
        for Waiter { by, .. } in gone {
            self.leave_queue(by.session, by.ticket);
        }
        if let Some(back) = self.returns.front_mut() {
            self.has_queue = came;
            // It is read once more at most.
            back.is_part = !whole && back.queue.is_none();
            back.queue = Some((context.now, queue));
            return;
        }
        if self.held.is_some() {
            let is_unread = !whole && queue.is_empty();
            self.has_queue = came || is_unread || !others(context, &queue).is_empty();
            self.next_in_queue = Some((context.now, queue));
            return;
        }
        self.recheck.queue = false;
        let Some(head) = self.contenders.front_mut() else { return };
        let place =
            queue.iter().position(|w| w.by.session == head.by.session && w.by.ticket == head.by.ticket);
        if place.is_none() && whole && head.place == QueuePlace::Joined {
            // A failure of the store undid it.
            head.place = QueuePlace::Nowhere;
        }
        self.recheck.entry = false;
        head.queue_read = self.last_seen.other.as_ref().map(|record| (record.term, context.now));
        // Each once: of the tickets that wait in one instance only the first tries.
        let mut ahead = Vec::new();
        for Waiter { by, .. } in &queue[..place.unwrap_or(queue.len())] {
            if !ahead.contains(&by.session) {
                ahead.push(by.session);
            }
        }
        let many = ahead.iter().filter(|session| counts(context, **session)).count();
        for session in ahead.iter().take(WATCHED_AHEAD) {
            self.out.push(Output::Watch(*session, None));
        }
        head.ahead = Some(ahead);
        if many > 0 {
            let many = u32::try_from(many).unwrap_or(u32::MAX);
            self.look_at = context.now + STEP_BACK.saturating_mul(many).min(LONGEST_STEP_BACK);
            head.step = NextStep::Waiting;
            // By then a session before this one may have it.
            self.last_seen.free = false;
        }
    }
}

/// Returns the first sessions of a queue, but for our own and the dead: each once.
pub(super) fn others(context: Context<'_>, queue: &[Waiter]) -> Vec<SessionId> {
    let mut others = Vec::new();
    for Waiter { by, .. } in queue {
        let counts =
            Some(by.session) != context.current && (context.known)(by.session) != Some(Liveness::Dead);
        if counts && !others.contains(&by.session) {
            others.push(by.session);
        }
    }
    others
}

/// Returns whether no living session was before this one when it read the queue. A new waiter is behind it, and the
/// ones before it become fewer only: so that is as good as to read the queue again.
pub(super) fn is_first(context: Context<'_>, head: &Contender) -> bool {
    head.ahead.as_ref().is_some_and(|ahead| !ahead.iter().any(|session| counts(context, *session)))
}

/// Returns whether one that is before another is to take the lock first: if it was seen to beat. Of many that
/// live some were, which is enough to keep the ones behind them from coming all at once.
fn counts(context: Context<'_>, session: SessionId) -> bool {
    Some(session) != context.current && (context.beats)(session)
}
