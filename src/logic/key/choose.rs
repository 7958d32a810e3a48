//! Choosing the next operation.

use super::{
    KeyMachine, SOON,
    queue::is_first,
    state::{Contender, HeldLock, HeldState, InFlight, NextStep, QueuePlace},
    types::{Context, Expect, NextOp, Op, Patience},
};
use crate::{
    logic::watch::{Liveness, Named},
    store::LockRecord,
};

/// Most waiters read at once: enough to find one that lives, few enough for one small answer.
pub(crate) const QUEUE_READ: usize = 32;

impl KeyMachine {
    /// Chooses what to do next. After [`NextOp::Do`] nothing else is begun until its [answer](Self::answered).
    pub(crate) fn next(&mut self, context: Context<'_>) -> NextOp {
        if self.in_flight.is_some() {
            return NextOp::Idle;
        }
        match self.choose(context) {
            NextOp::Do(_) if context.now < self.pause => NextOp::At(self.pause),
            NextOp::Do(op) => {
                if let Op::Take { by, .. } = &op
                    && let Some(back) = self.returns.front_mut()
                {
                    back.heir = Some(by.ticket);
                }
                if let Op::Register(_) = op {
                    // As many as the operation names.
                    for contender in
                        self.contenders.iter_mut().filter(|contender| contender.is_unregistered())
                    {
                        contender.place = QueuePlace::Asked;
                    }
                }
                let waits = self.contenders.front().is_some_and(|head| head.step == NextStep::Waiting);
                let polls = waits && self.recheck.entry && matches!(op, Op::Look | Op::Poll { .. });
                self.in_flight = Some(InFlight { polls, ..InFlight::default() });
                NextOp::Do(op)
            }
            NextOp::Idle => self.remembers_until(context.now).map_or(NextOp::Idle, NextOp::At),
            at @ NextOp::At(_) => at,
        }
    }

    pub(super) fn choose(&self, context: Context<'_>) -> NextOp {
        // A lock to give back comes first: a session may wait for it.
        if let Some(back) = self.returns.front() {
            return NextOp::Do(self.release_step(context, back));
        }
        if let Some(HeldLock { session, ticket, hold: HeldState::Suspected, .. }) = self.held
            && Some(session) == context.current
        {
            return NextOp::Do(Op::Confirm { session, ticket });
        }
        let queue = self.queue_op(context);
        if let Some(op) = queue.as_ref().filter(|op| self.goes_first(op)) {
            return NextOp::Do(op.clone());
        }
        match (self.lock_step(context), queue, self.queue_wakes(context)) {
            (NextOp::Do(op), ..) | (_, Some(op), _) => NextOp::Do(op),
            (NextOp::At(at), None, wakes) => NextOp::At(wakes.map_or(at, |wakes| wakes.min(at))),
            (NextOp::Idle, None, wakes) => wakes.map_or(NextOp::Idle, NextOp::At),
        }
    }

    /// Returns what is to be done about the lock itself, once nothing of it is to be given back.
    fn lock_step(&self, context: Context<'_>) -> NextOp {
        if self.held.is_some() {
            return match self.recheck.lock {
                true if context.now >= self.look_at => NextOp::Do(Op::Look),
                true => NextOp::At(self.look_at),
                false => NextOp::Idle,
            };
        }
        match self.contenders.front() {
            // Its session has come to its end: it will hear of that.
            Some(head) if Some(head.by.session) != context.current => NextOp::At(context.now + SOON),
            Some(head) => self.head_step(context, head),
            None if self.undecided => NextOp::Do(Op::Look),
            None => NextOp::Idle,
        }
    }

    fn head_step(&self, context: Context<'_>, head: &Contender) -> NextOp {
        let holder = self.last_seen.other.as_ref().and_then(|record| record.holding.as_ref());
        let take = |dead| NextOp::Do(Op::Take { by: head.by.clone(), dead });
        let reads = self.reading.is_over(context.now);
        let unsure = self.recheck.queue && !is_first(context, head);
        let look = match head.step {
            NextStep::Waiting if self.recheck.entry && reads && self.is_place_due(context, head) => {
                Op::Poll { session: head.by.session, ticket: head.by.ticket }
            }
            // A holder that has released refuses no try, though a majority does not know of it yet. One whose take was
            // not answered may be the holder itself (R11).
            NextStep::Try if head.patience == Patience::Once && !head.unconfirmed => Op::Peek,
            _ => Op::Look,
        };
        let read_queue = match head.step {
            // A ticket that is handed the lock looks first.
            NextStep::Waiting => !self.recheck.lock && (unsure || self.is_queue_new(context, head)),
            NextStep::Again => unsure,
            NextStep::Try => false,
        };
        match head.step {
            NextStep::Waiting if context.now < self.look_at && !self.recheck.lock => NextOp::At(self.look_at),
            _ if read_queue && reads => NextOp::Do(Op::ReadQueue { most: QUEUE_READ, to: None }),
            _ if self.last_seen.free => take(Vec::new()),
            _ => match holder {
                // If a holder is expected, a read costs less than a write that loses.
                None if head.step == NextStep::Try && !self.last_seen.handed_over => {
                    take(head.dead().into_iter().collect())
                }
                Some(held) => match (context.known)(held.by.session) {
                    Some(Liveness::Dead) => take(vec![held.by.session]),
                    None if head.patience == Patience::Once && head.contested => {
                        let record = self.last_seen.other.as_ref().expect("it names a holder");
                        NextOp::Do(Op::Inquire { session: held.by.session, named: named(record, held) })
                    }
                    Some(Liveness::Alive | Liveness::Overdue) | None => NextOp::Do(look),
                },
                None => NextOp::Do(look),
            },
        }
    }

    /// Returns whether its place is to be looked for: a change of primary may have undone it, which a resync tells if
    /// there are hints.
    fn is_place_due(&self, context: Context<'_>, head: &Contender) -> bool {
        let is_known = |at| context.now.since(at) < head.by.ttl;
        !(self.hints && head.registered.is_some_and(is_known))
    }

    /// Returns whether the queue is to be read for the first waiters in it, which are watched: at first, when the
    /// lock has changed hands, and once a ttl, before they are forgotten; but not while the lock may be taken. A
    /// successor is handed the lock by a living holder.
    fn is_queue_new(&self, context: Context<'_>, head: &Contender) -> bool {
        let Some(holder) = self.last_seen.other.as_ref().filter(|_| head.expect != Expect::Held) else {
            return false;
        };
        let held = holder.holding.as_ref().map(|held| held.by.session);
        let may_be_taken = self.last_seen.free || held.and_then(context.known) == Some(Liveness::Dead);
        let read = |(term, at)| term == holder.term && context.now.since(at) < head.by.ttl;
        !may_be_taken && !head.queue_read.is_some_and(read)
    }
}

pub(super) fn named(record: &LockRecord, held: &crate::store::Holding) -> Named {
    Named { namespace: record.id.namespace.clone(), holder: held.by.holder.clone(), ttl: held.by.ttl }
}
