//! What one instance does about one key: who of it holds the key, who of it waits, and the one
//! operation that is under way.
//!
//! A ticket goes `Try`, then (if it waits at all) stands in line, `Again`, `Waiting`, until it is granted or
//! left. Tickets stand in the order of their numbers, and only the first sends takes: so a take that
//! arrives late never carries a larger number than one that was granted since (R7). The others are
//! reached by a hand-over.
//!
//! The line decides nothing: who cannot stand in it, or leave it, or read it, tries all the same.
//!
//! Nothing here reads a clock or a store: [`KeyMachine::next`] says what to do, the shell does it and
//! brings the answer.

mod line;
mod rest;

use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

use rest::Rest;

use super::{
    backoff::{Backoff, jittered},
    flaw::{Flaw, Flaws},
    watch::{Liveness, Named},
};
use crate::{
    StoreError,
    clock::Moment,
    error::Applied,
    model::{Candidate, Ended, Holder, LockRecord, Loss, SessionId, StoreTime, Term, Ticket, Waiter, Why},
    store::{Line, LockChange, LockSeen, Refusal, ReleaseAnswer, ReleaseTo, TakeAnswer},
};

/// How many of the line a releaser reads: who is first, and some more in case that one is dead.
pub(crate) const FIRST_IN_LINE: usize = 8;
/// A line that was read while the lock was held is as good as new for so long.
const LINE_KEPT: Duration = Duration::from_secs(1);
/// How many of the line are read: enough to find one that lives, few enough for one small answer.
pub(crate) const LINE_READ: usize = 32;
/// The n-th instance in line tries so much later than the one before it, that a free lock is no stampede.
const STEP_BACK: Duration = Duration::from_millis(50);
/// Nobody holds back longer.
const LONGEST_STEP_BACK: Duration = Duration::from_secs(1);
/// How long after a hint that tells too little a read is to tell the rest.
const VERIFY_AFTER: Duration = Duration::from_millis(50);
/// How many before us in line are watched: should a lock be handed to one that died, its death is
/// near.
pub(crate) const WATCHED_AHEAD: usize = 3;
/// A read that follows a release by less may be from before it.
const AFTER_RELEASE: Duration = Duration::from_millis(5);
/// The least time between two takes of a key that is said to be closed.
const SOON: Duration = Duration::from_millis(50);
/// Who is to be given the lock by name is looked for among so many.
pub(crate) const WHOLE_LINE: usize = 1000;
/// How often a ticket that does not wait is tried, if the store does not answer.
const TRIES: u32 = 3;
/// How often a release is sent whose record the store refuses to write, and a leave that fails. What is left then
/// the audit finds, or whoever reads the line.
const RELEASE_TRIES: u32 = 5;
const LEAVE_TRIES: u32 = 10;
/// Work on the line that fails rests so long at first.
const FIRST_REST: Duration = Duration::from_millis(100);

/// An operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Read the lock.
    Look,
    /// Take it for this ticket, naming those known dead.
    Take { by: Box<Candidate>, dead: Vec<SessionId> },
    /// Ask by a write whether this ticket, which runs here, still holds it.
    Confirm { session: SessionId, ticket: Ticket },
    /// Release it.
    Release { session: SessionId, term: Term, note: Option<Why>, then: ReleaseTo },
    /// Read the lock, and whether this ticket stands in line still.
    Poll { session: SessionId, ticket: Ticket },
    /// Read who stands first in line; whether those live that may be given the lock, and whoever bears that name.
    ReadLine { most: usize, to: Option<Holder> },
    /// Stand in line with these tickets.
    Register(Vec<Candidate>),
    /// Leave the line with these.
    Leave(Vec<(SessionId, Ticket)>),
    /// Find out about the holder's session.
    Inquire { session: SessionId, named: Named },
}

/// What became of it.
#[derive(Clone, Debug)]
pub(crate) enum OpReply {
    Seen(LockSeen),
    /// Nothing is known of the place if it could not be read.
    Polled {
        seen: LockSeen,
        stands: Option<bool>,
    },
    Took(TakeAnswer),
    Released(ReleaseAnswer),
    Line(Line),
    Done,
    Known(Liveness),
    Failed(Arc<StoreError>),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextOp {
    /// This; then bring the answer.
    Do(Op),
    /// Nothing until then, or until something happens.
    At(Moment),
    /// Nothing until something happens.
    Idle,
}

/// What the machine tells its shell.
#[derive(Clone, Debug)]
pub(crate) enum Out {
    /// This ticket was answered and stands no more.
    Verdict(Ticket, TicketOutcome),
    /// Watch this session: it holds the lock, or stands before us in line.
    Watch(SessionId, Option<Named>),
    /// The lease of this ticket is lost, although its session lives.
    Lost(Ticket, Loss),
    /// The lock of this ticket is released, or was gone.
    Parted(Ticket),
    /// It was taken from this session, which is dead.
    TookOver(SessionId),
    /// The lock cannot be released: its record cannot be written.
    Refused(Refusal),
}

/// What became of a ticket.
#[derive(Clone, Debug)]
pub(crate) enum TicketOutcome {
    /// It holds the lock.
    Granted { term: Term, since: StoreTime },
    /// Somebody else does.
    Held(Box<LockRecord>, Liveness),
    /// This instance does, for another ticket, or waits for it.
    Here,
    /// Nobody does, and nobody may yet.
    Closed(Box<LockRecord>),
    /// The record cannot be used.
    Refused(Refusal),
    /// The store did not answer.
    Failed(Arc<StoreError>),
    /// Its session ended first.
    SessionOver,
}

/// Whether a ticket waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It is answered at once.
    Once,
    /// It stands until it is granted or left.
    Waits,
}

/// What whoever tickets for a key knows of it already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Nothing: it may be free.
    Nothing,
    /// Somebody alive holds it: a take would lose.
    Held,
    /// The one on its record is dead.
    Dead(SessionId),
}

/// In what manner a ticket is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitMode {
    pub(crate) patience: Patience,
    pub(crate) expect: Expect,
}

impl WaitMode {
    /// Answered at once, with nothing known.
    pub(crate) const ONCE: Self = Self { patience: Patience::Once, expect: Expect::Nothing };
    /// Until it is granted, with nothing known.
    pub(crate) const WAITS: Self = Self { patience: Patience::Waits, expect: Expect::Nothing };
    /// Until it is handed over by one who lives.
    pub(crate) const HEIR: Self = Self { patience: Patience::Waits, expect: Expect::Held };

    /// Answered at once; the record may name that one, who is dead.
    pub(crate) const fn once(dead: Option<SessionId>) -> Self {
        let expect = match dead {
            Some(dead) => Expect::Dead(dead),
            None => Expect::Nothing,
        };
        Self { patience: Patience::Once, expect }
    }
}

/// How a job gives its lock back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handback {
    /// Leave the record as it is: it is freed by the death of the session, which is near.
    pub(crate) keep: bool,
    /// Keep the key closed for so long.
    pub(crate) closed_for: Duration,
    /// To this ticket, which was seen in line.
    pub(crate) heir: Option<Box<Candidate>>,
    /// To a waiter of this name, if there is one.
    pub(crate) to: Option<Holder>,
    /// What the record is to say of the end.
    pub(crate) note: Option<Why>,
}

/// What surrounds the key as a step is taken.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) now: Moment,
    /// The session that is valid now, if there is one.
    pub(crate) current: Option<SessionId>,
    /// What is known of other sessions.
    pub(crate) known: &'a dyn Fn(SessionId) -> Option<Liveness>,
    /// Whether another session was seen to beat, and its next beat is not due yet.
    pub(crate) beats: &'a dyn Fn(SessionId) -> bool,
    /// The store's time, as far as it can be guessed.
    pub(crate) store_now: Option<StoreTime>,
    /// Any random number.
    pub(crate) roll: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStep {
    /// It has not been tried.
    Try,
    /// It lost. The lock may have become free just before it stood in line.
    Again,
    /// It waits for a hint, a death, or the next look.
    Waiting,
}

/// Whether a ticket has a place in the store's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuePlace {
    /// It has none.
    Nowhere,
    /// One was asked for: it may have it, also if that was not answered.
    Asked,
    /// It has one.
    Stands,
}

#[derive(Clone, Debug)]
struct Contender {
    by: Box<Candidate>,
    patience: Patience,
    step: NextStep,
    tries: u32,
    /// It lost at least once: others want this lock too.
    contested: bool,
    /// A take of it was not answered.
    doubtful: bool,
    place: QueuePlace,
    /// What it knew before it came: an heir is handed the lock by one who lives, and the first take of one
    /// who knows of a death names the dead.
    expect: Expect,
    /// When it read the line last, and under which term somebody held the lock then.
    line_read: Option<(Term, Moment)>,
    /// Who stood before it then, and was not known dead.
    ahead: Option<Vec<SessionId>>,
}

impl Contender {
    fn is_unregistered(&self) -> bool {
        self.patience == Patience::Waits && self.step != NextStep::Try && self.place != QueuePlace::Stands
    }

    fn dead(&self) -> Option<SessionId> {
        if let Expect::Dead(session) = self.expect { Some(session) } else { None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldState {
    /// A job runs, or a guard is out.
    Runs,
    /// Something says that the lock is not ours any more; a write is to tell.
    Suspected,
    /// It is lost. The job has been told; its end is awaited.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct HeldLock {
    session: SessionId,
    ticket: Ticket,
    term: Term,
    hold: HeldState,
}

/// A lock that is to be given back.
#[derive(Clone, Debug)]
struct Return {
    session: SessionId,
    ticket: Ticket,
    term: Term,
    parting: Handback,
    /// Who waits, once it was looked up.
    line: Option<Vec<Waiter>>,
    /// How often the store refused to write its record.
    refused: u32,
}

/// What happened while an operation was under way.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    /// The lock may have become free meanwhile, and the answer may be from before: the lock is looked at again.
    stale: bool,
    /// A grant was seen that nobody here wants, and that the answer may explain.
    unexpected_grant: bool,
}

/// What was last learned of the lock.
///
/// These are no states that exclude each other: each comes from a source of its own, and the next operation depends on
/// which of them contradict. A hint that the lock is free leaves the record as it was read, until a take has been
/// answered, because somebody who stands before this instance may have it by then.
#[derive(Clone, Debug, Default)]
struct LastSeen {
    /// The record that was read last, if it named another holder.
    other: Option<Box<LockRecord>>,
    /// A read, a hint or a release here says that the lock is free.
    free: bool,
    /// A release here handed it over, or an answer said that a ticket of this session has it: it has a holder, though
    /// no read has shown it yet.
    handed_over: bool,
}

/// The last release here.
#[derive(Clone, Copy, Debug)]
struct LastRelease {
    term: Term,
    at: Moment,
    /// The lock went to a waiter.
    handed_over: bool,
}

/// Places in the store's line that are to be removed.
#[derive(Clone, Debug)]
struct Leaving {
    /// Tickets that contend no more and may still have a place.
    tickets: Vec<(SessionId, Ticket)>,
    /// One of those was given up: the lock may be handed to it all the same.
    given_up: bool,
    /// How often in a row that failed.
    tries: u32,
    rest: Rest,
}

/// What may have changed since it was last known, and is to be read again.
#[derive(Clone, Copy, Debug, Default)]
struct Recheck {
    /// Whether what is held here is held still: a hint may say that it was freed, or only that it was before.
    lock: bool,
    /// Who stands first in line, before the next try.
    line: bool,
    /// Whether the first of this instance stands in line still: a failure of the store may have undone its place.
    entry: bool,
}

/// One key of one instance.
#[derive(Clone, Debug)]
pub(crate) struct KeyMachine {
    flaws: Flaws,
    poll: Duration,
    hints: bool,
    held: Option<HeldLock>,
    returns: VecDeque<Return>,
    line: VecDeque<Contender>,
    /// The operation that was begun and not answered yet: no other is begun meanwhile.
    in_flight: Option<InFlight>,
    /// A take was given up before it was answered.
    undecided: bool,
    recheck: Recheck,
    /// Somebody else may stand in the store's line.
    queue: bool,
    /// Who stood there, first of all, as it was read while the lock was held.
    next_in_line: Option<(Moment, Vec<Waiter>)>,
    last_release: Option<LastRelease>,
    last_seen: LastSeen,
    look_at: Moment,
    pause: Moment,
    backoff: Backoff,
    /// What has to do with the line rests by itself: nothing else waits for it.
    standing: Rest,
    leaving: Leaving,
    reading: Rest,
    changed: Moment,
    out: Vec<Out>,
}

impl KeyMachine {
    pub(crate) fn new(poll: Duration, hints: bool, flaws: Flaws, now: Moment) -> Self {
        let longest = poll.max(FIRST_REST);
        let rest = Rest::new(FIRST_REST, longest, now);
        Self {
            flaws,
            poll,
            hints,
            held: None,
            returns: VecDeque::new(),
            line: VecDeque::new(),
            in_flight: None,
            undecided: false,
            recheck: Recheck::default(),
            queue: false,
            next_in_line: None,
            last_release: None,
            last_seen: LastSeen::default(),
            look_at: now,
            pause: now,
            backoff: Backoff::new(FIRST_REST, longest),
            standing: rest.clone(),
            leaving: Leaving { rest: rest.clone(), tickets: Vec::new(), given_up: false, tries: 0 },
            reading: rest,
            // Nothing has changed: what an audit found is news to a key that was just made.
            changed: Moment::after_start(Duration::ZERO),
            out: Vec::new(),
        }
    }

    /// Nothing of this instance has to do with the key any more.
    pub(crate) fn is_done(&self) -> bool {
        self.held.is_none()
            && self.returns.is_empty()
            && self.line.is_empty()
            && self.leaving.tickets.is_empty()
            && self.in_flight.is_none()
            && !self.undecided
            && self.out.is_empty()
    }

    /// What the shell is to tell others.
    pub(crate) fn take_out(&mut self) -> Vec<Out> {
        mem::take(&mut self.out)
    }

    /// How many of this instance wait for the key.
    pub(crate) fn waiting(&self) -> usize {
        self.line.iter().filter(|stander| stander.patience == Patience::Waits).count()
    }

    /// Whether there is something to do, or nothing at all left to remember.
    pub(crate) fn has_something(&self, around: Context<'_>) -> bool {
        self.is_done() || self.choose(around) != NextOp::Idle
    }

    /// Whether the lock of this ticket is on its way back.
    pub(crate) fn is_returning(&self, ticket: Ticket) -> bool {
        self.returns.iter().any(|back| back.ticket == ticket)
    }

    // ----- what happens

    /// A new ticket, with a number larger than every one before.
    pub(crate) fn stand(&mut self, around: Context<'_>, by: Candidate, manner: WaitMode) {
        let WaitMode { patience, expect } = manner;
        self.changed = around.now;
        let ticket = by.ticket;
        debug_assert!(
            self.line.back().is_none_or(|last| last.by.session != by.session || last.by.ticket < ticket)
        );
        if patience == Patience::Once {
            if self.held.is_some() {
                self.out.push(Out::Verdict(ticket, TicketOutcome::Here));
                return;
            }
            // Others of this instance wait: they are before it, and it does not wait.
            if self.line.iter().any(|stander| stander.patience == Patience::Waits) {
                let known = |record: &LockRecord| (around.known)(record.holding.as_ref()?.by.session);
                let verdict = match &self.last_seen.other {
                    Some(record) => {
                        TicketOutcome::Held(record.clone(), known(record).unwrap_or(Liveness::Alive))
                    }
                    None => TicketOutcome::Here,
                };
                self.out.push(Out::Verdict(ticket, verdict));
                return;
            }
        }
        // Behind others of this instance it only stands in line; so it does if somebody has just been
        // given the lock.
        let first =
            self.held.is_none() && self.line.is_empty() && !(self.last_seen.handed_over && self.hints);
        let open = first && expect != Expect::Held;
        let step = if open || patience == Patience::Once { NextStep::Try } else { NextStep::Again };
        self.line.push_back(Contender {
            by: Box::new(by),
            patience,
            step,
            tries: 0,
            contested: false,
            doubtful: false,
            place: QueuePlace::Nowhere,
            expect,
            line_read: None,
            ahead: None,
        });
    }

    /// A ticket is given up.
    pub(crate) fn leave(&mut self, now: Moment, ticket: Ticket) {
        self.changed = now;
        if let Some(place) = self.line.iter().position(|stander| stander.by.ticket == ticket) {
            let Some(stander) = self.line.remove(place) else { return };
            // Only the first sends takes: one of them may be under way.
            let is_take_under_way = place == 0 && self.in_flight.is_some();
            let may_have_been_granted = stander.doubtful || is_take_under_way;
            self.undecided |= may_have_been_granted;
            self.make_answer_stale();
            if stander.place != QueuePlace::Nowhere {
                self.leave_line(stander.by.session, ticket);
                self.leaving.given_up = true;
            }
        }
    }

    /// Nothing runs under this ticket any more: its lock can go. Under a session that is over there is
    /// nothing to send: its death frees the lock.
    pub(crate) fn ended(&mut self, around: Context<'_>, ticket: Ticket, parting: Handback) {
        let now = around.now;
        self.changed = now;
        if let Some(held) = self.held.take_if(|held| held.ticket == ticket) {
            let line = self.take_next_in_line(around, &parting);
            if parting.keep || held.hold == HeldState::Lost || Some(held.session) != around.current {
                self.out.push(Out::Parted(ticket));
            } else {
                self.give_back(held.session, held.ticket, held.term, parting);
                if let Some(back) = self.returns.back_mut() {
                    back.line = line;
                }
            }
            if let Some(head) = self.line.front_mut()
                && head.step == NextStep::Again
                && head.place != QueuePlace::Stands
            {
                head.step = NextStep::Try;
            }
            self.pause = now;
            self.look_at = now;
        }
    }

    /// A session of this instance is over: its tickets are void, its locks are freed by its death.
    pub(crate) fn session_over(&mut self, now: Moment, session: SessionId) {
        self.changed = now;
        let (void, line): (VecDeque<_>, _) =
            mem::take(&mut self.line).into_iter().partition(|s| s.by.session == session);
        self.line = line;
        for stander in void {
            // Others are not to look past it for as long as the dead are remembered.
            if stander.place != QueuePlace::Nowhere {
                self.leave_line(session, stander.by.ticket);
            }
            self.out.push(Out::Verdict(stander.by.ticket, TicketOutcome::SessionOver));
        }
        let (gone, kept): (VecDeque<_>, _) =
            mem::take(&mut self.returns).into_iter().partition(|r| r.session == session);
        self.returns = kept;
        self.out.extend(gone.into_iter().map(|gone| Out::Parted(gone.ticket)));
        self.undecided = false;
    }

    /// A hint says what became of the lock.
    pub(crate) fn hint(&mut self, around: Context<'_>, change: Option<LockChange>) {
        let now = around.now;
        match change {
            // As good as a majority read at that moment.
            Some(LockChange::Granted { session, ticket, term, at }) if Some(session) == around.current => {
                self.ours(around, session, ticket, term, at);
            }
            Some(LockChange::Granted { session, term, .. }) => {
                self.last_seen.free = false;
                if let Some(held) = &mut self.held
                    && term > held.term
                    && held.hold == HeldState::Runs
                {
                    held.hold = HeldState::Suspected;
                }
                if !self.line.is_empty() {
                    self.out.push(Out::Watch(session, None));
                }
            }
            Some(LockChange::Freed | LockChange::Closed) | None
                if !self.line.is_empty() && self.held.is_none() =>
            {
                self.last_seen.free = matches!(change, Some(LockChange::Freed));
                self.recheck.line |= self.last_seen.free;
                self.look_at = now;
                self.make_answer_stale();
            }
            // It may be about an earlier holding, which the hint does not tell. Most are; so the read
            // that tells waits a moment, and is not made if the lock is given back by then.
            Some(LockChange::Freed | LockChange::Closed) | None
                if self.held.is_some() && !self.recheck.lock =>
            {
                self.recheck.lock = true;
                self.look_at = now + VERIFY_AFTER;
            }
            Some(LockChange::Freed | LockChange::Closed) | None => {}
        }
    }

    /// Hints may have been lost.
    pub(crate) fn resync(&mut self, now: Moment) {
        self.queue = true;
        self.make_answer_stale();
        self.recheck.entry = true;
        if !self.line.is_empty() {
            self.look_at = now;
        }
    }

    /// The lock may have become free: an answer that is awaited may be from before.
    const fn make_answer_stale(&mut self) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.stale = true;
        }
    }

    /// Whether the lock was in the hands of that session when it was last seen.
    pub(crate) fn is_held_by(&self, session: SessionId) -> bool {
        self.last_seen.other.as_ref().is_some_and(|record| record.is_held_by(session))
    }

    /// A session that was watched is dead.
    pub(crate) fn died(&mut self, now: Moment, session: SessionId) {
        if self.is_held_by(session) {
            self.recheck.line = true;
            self.look_at = now;
        }
    }

    /// The audit found the lock in the hands of this session for a ticket; it was sent for at `asked`.
    pub(crate) fn found(
        &mut self,
        asked: Moment,
        now: Moment,
        session: SessionId,
        ticket: Ticket,
        term: Term,
    ) {
        let wanted = self.stands(session, ticket) && !self.is_blocked(Some(session))
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

    // ----- what to do

    /// What to do next. After [`Next::Do`] nothing else is begun until its [answer](Self::answered).
    pub(crate) fn next(&mut self, around: Context<'_>) -> NextOp {
        if self.in_flight.is_some() {
            return NextOp::Idle;
        }
        match self.choose(around) {
            NextOp::Do(_) if around.now < self.pause => NextOp::At(self.pause),
            NextOp::Do(op) => {
                if let Op::Register(_) = op {
                    // As many as the operation names.
                    for stander in self.line.iter_mut().filter(|stander| stander.is_unregistered()) {
                        stander.place = QueuePlace::Asked;
                    }
                }
                self.in_flight = Some(InFlight::default());
                NextOp::Do(op)
            }
            other => other,
        }
    }

    fn choose(&self, around: Context<'_>) -> NextOp {
        // What somebody may wait for comes first.
        if let Some(back) = self.returns.front() {
            return NextOp::Do(self.release_step(around, back));
        }
        if let Some(HeldLock { session, ticket, hold: HeldState::Suspected, .. }) = self.held
            && Some(session) == around.current
        {
            return NextOp::Do(Op::Confirm { session, ticket });
        }
        let line = self.line_op(around);
        if let Some(op) = line.as_ref().filter(|op| self.goes_first(op)) {
            return NextOp::Do(op.clone());
        }
        match (self.lock_step(around), line, self.line_wakes(around)) {
            (NextOp::Do(op), ..) | (_, Some(op), _) => NextOp::Do(op),
            (NextOp::At(at), None, wakes) => NextOp::At(wakes.map_or(at, |wakes| wakes.min(at))),
            (NextOp::Idle, None, wakes) => wakes.map_or(NextOp::Idle, NextOp::At),
        }
    }

    /// What is to be done about the lock itself, once nothing of it is to be given back.
    fn lock_step(&self, around: Context<'_>) -> NextOp {
        if self.held.is_some() {
            return match self.recheck.lock {
                true if around.now >= self.look_at => NextOp::Do(Op::Look),
                true => NextOp::At(self.look_at),
                false => NextOp::Idle,
            };
        }
        match self.line.front() {
            // Its session has come to its end: it will be told.
            Some(head) if Some(head.by.session) != around.current => NextOp::At(around.now + SOON),
            Some(head) => self.head_step(around, head),
            None if self.undecided => NextOp::Do(Op::Look),
            None => NextOp::Idle,
        }
    }

    fn head_step(&self, around: Context<'_>, head: &Contender) -> NextOp {
        let holder = self.last_seen.other.as_ref().and_then(|record| record.holding.as_ref());
        let take = |dead| NextOp::Do(Op::Take { by: head.by.clone(), dead });
        let reads = self.reading.is_over(around.now);
        let unsure = self.recheck.line && !line::is_first(around, head);
        let look = match head.step {
            NextStep::Waiting if self.recheck.entry && reads => {
                Op::Poll { session: head.by.session, ticket: head.by.ticket }
            }
            _ => Op::Look,
        };
        let read_line = match head.step {
            NextStep::Waiting => unsure || self.is_line_new(around, head),
            NextStep::Again => unsure,
            NextStep::Try => false,
        };
        match head.step {
            NextStep::Waiting if around.now < self.look_at => NextOp::At(self.look_at),
            _ if read_line && reads => NextOp::Do(Op::ReadLine { most: LINE_READ, to: None }),
            _ if self.last_seen.free => take(Vec::new()),
            _ => match holder {
                // Where a holder is expected, a read costs less than a write that loses.
                None if head.step == NextStep::Try && !self.last_seen.handed_over => {
                    take(head.dead().into_iter().collect())
                }
                Some(held) => match (around.known)(held.by.session) {
                    Some(Liveness::Dead) => take(vec![held.by.session]),
                    None if head.patience == Patience::Once && head.contested => {
                        let record = self.last_seen.other.as_ref().expect("it names a holder");
                        NextOp::Do(Op::Inquire { session: held.by.session, named: named(record, held) })
                    }
                    _ => NextOp::Do(look),
                },
                None => NextOp::Do(look),
            },
        }
    }

    /// Whether the line is to be read for those who are first in it, who are watched: at first, when the lock has
    /// changed hands, and once a ttl, before they are forgotten; but not while the lock may be taken. An heir is handed
    /// the lock by one who lives.
    fn is_line_new(&self, around: Context<'_>, head: &Contender) -> bool {
        let Some(holder) = self.last_seen.other.as_ref().filter(|_| head.expect != Expect::Held) else {
            return false;
        };
        let held = holder.holding.as_ref().map(|held| held.by.session);
        let may_be_taken = self.last_seen.free || held.and_then(around.known) == Some(Liveness::Dead);
        let read = |(term, at)| term == holder.term && around.now.since(at) < head.by.ttl;
        !may_be_taken && !head.line_read.is_some_and(read)
    }

    // ----- what came of it

    /// The answer to the operation that was under way since `sent`.
    pub(crate) fn answered(&mut self, around: Context<'_>, sent: Moment, op: Op, answer: OpReply) {
        let in_flight = self.in_flight.take().unwrap_or_default();
        self.changed = around.now;
        let reads_line = matches!(op, Op::ReadLine { .. });
        if let OpReply::Failed(error) = answer {
            self.failed(around, sent, &op, error);
        } else {
            if !op.is_of_the_line() {
                self.backoff.reset();
            }
            self.succeeded(around, op, answer);
        }
        // What was asked for may have been answered from before it. Whoever holds back for others does so still.
        if in_flight.stale && !reads_line {
            self.look_at = around.now;
        }
        self.undecided |= in_flight.unexpected_grant && self.held.is_none();
    }

    fn succeeded(&mut self, around: Context<'_>, op: Op, answer: OpReply) {
        match (op, answer) {
            (Op::Look, OpReply::Seen(seen)) => self.seen(around, seen),
            (Op::Poll { ticket, .. }, OpReply::Polled { seen, stands }) => {
                self.polled(around, ticket, seen, stands);
            }
            (Op::Take { by, dead }, OpReply::Took(answer)) => {
                if let (TakeAnswer::Taken(_), [dead]) = (&answer, &dead[..]) {
                    self.out.push(Out::TookOver(*dead));
                }
                self.took(around, &by, answer);
            }
            (Op::Confirm { session, ticket }, OpReply::Took(answer)) => {
                self.confirmed(session, ticket, answer)
            }
            (Op::Release { term, then, .. }, OpReply::Released(answer)) => match answer {
                ReleaseAnswer::Refused(refusal) => self.not_released(around, term, &then, refusal),
                ReleaseAnswer::Released => self.on_released(around, term, &then),
            },
            (Op::ReadLine { .. }, OpReply::Line(line)) => self.line_read(around, line),
            (Op::Register(tickets), OpReply::Done) => self.registered(around, &tickets),
            (Op::Leave(gone), OpReply::Done) => self.has_left(&gone),
            (Op::Inquire { .. }, OpReply::Known(standing)) => self.inquired(standing),
            (op, answer) => debug_assert!(false, "{answer:?} is no answer to {op:?}"),
        }
    }

    fn failed(&mut self, around: Context<'_>, sent: Moment, op: &Op, error: Arc<StoreError>) {
        match op {
            Op::Register(_) => return self.standing.failed(around.now, around.roll),
            Op::Leave(gone) => return self.not_left(around, gone),
            Op::ReadLine { .. } => {
                self.reading.failed(around.now, around.roll);
                if let Some(back) = self.returns.front_mut() {
                    // Fairness can wait; the lock cannot.
                    back.line = Some(Vec::new());
                }
                return;
            }
            _ => {}
        }
        // One that hung has had its pause.
        self.pause = around.now.max(sent + self.backoff.next(around.roll));
        let unknown = error.applied() == Applied::Unknown && !self.flaws.has(Flaw::UnknownIsNo);
        if self.flaws.has(Flaw::UnknownIsNo)
            && matches!(op, Op::Release { .. })
            && let Some(back) = self.returns.pop_front()
        {
            self.out.push(Out::Parted(back.ticket));
        }
        let taken = if let Op::Take { by, .. } = op { Some(by.ticket) } else { None };
        if let Some(head) = self.line.front_mut()
            && head.patience == Patience::Once
        {
            head.tries += 1;
            if head.tries >= TRIES || !error.is_retryable() {
                let ticket = head.by.ticket;
                // Also a take that was lost before others that were refused.
                let is_take_lost = unknown && taken.is_some();
                self.undecided |= head.doubtful || is_take_lost;
                self.line.pop_front();
                self.out.push(Out::Verdict(ticket, TicketOutcome::Failed(error)));
            }
        }
        if let Some(ticket) = taken.filter(|_| unknown) {
            match self.line.iter_mut().find(|stander| stander.by.ticket == ticket) {
                Some(stander) => stander.doubtful = true,
                // It has left in the meantime.
                None => self.undecided = true,
            }
        }
    }

    fn seen(&mut self, around: Context<'_>, seen: LockSeen) {
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
        self.last_seen.handed_over = false;
        match seen {
            LockSeen::Found(record) => self.learned(around, record),
            LockSeen::Absent => {
                self.last_seen.other = None;
                self.last_seen.free = true;
            }
            LockSeen::Refused(refusal) => self.refused(around, refusal),
        }
    }

    fn polled(&mut self, around: Context<'_>, ticket: Ticket, seen: LockSeen, stands: Option<bool>) {
        match stands {
            Some(_) => self.reading.worked(),
            None => self.reading.failed(around.now, around.roll),
        }
        self.recheck.entry = false;
        self.seen(around, seen);
        let Some(head) = self.line.front_mut() else { return };
        // Others may be before it: the line is read before it tries.
        self.recheck.line |= self.last_seen.free || head.step == NextStep::Again;
        if head.by.ticket == ticket && stands == Some(false) {
            // A failure of the store undid it: it stands behind others from now on.
            head.step = NextStep::Again;
            head.place = QueuePlace::Nowhere;
            head.line_read = None;
            head.ahead = None;
        }
    }

    fn took(&mut self, around: Context<'_>, by: &Candidate, answer: TakeAnswer) {
        self.last_seen.free = false;
        self.undecided = false;
        match answer {
            TakeAnswer::Taken(record)
                if Some(by.session) == around.current || self.flaws.has(Flaw::LateAnswer) =>
            {
                let since =
                    record.holding.as_ref().map_or(StoreTime::from_millis(0), |held| held.acquired_at);
                self.ours(around, by.session, by.ticket, record.term, since);
            }
            // R10: it came after the end. The session's death frees the lock.
            TakeAnswer::Taken(_) => {}
            // R11: an answer that says another ticket of ours has it decides nothing. A read will.
            TakeAnswer::Held(record) if around.current.is_some_and(|session| record.is_held_by(session)) => {
                self.last_seen.other = None;
                self.last_seen.handed_over = true;
                self.look_at = around.now;
            }
            TakeAnswer::Held(record) => self.learned(around, record),
            TakeAnswer::Closed(record) => self.closed(around, record),
            TakeAnswer::Refused(refusal) => self.refused(around, refusal),
        }
    }

    /// The record says that a ticket of ours holds the lock.
    fn ours(
        &mut self,
        around: Context<'_>,
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
        let place =
            self.line.iter().position(|stander| stander.by.session == session && stander.by.ticket == ticket);
        let place = match place {
            None if self.flaws.has(Flaw::AnyTicket) && !self.line.is_empty() => Some(0),
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
                let Some(stander) = self.line.remove(place) else { return };
                let ticket = stander.by.ticket;
                self.last_seen.other = None;
                self.last_seen.free = false;
                self.recheck.lock = false;
                self.held = Some(HeldLock { session, ticket, term, hold: HeldState::Runs });
                self.queue |= stander.contested;
                if stander.place != QueuePlace::Nowhere {
                    self.leave_line(session, ticket);
                }
                self.changed = around.now;
                self.out.push(Out::Verdict(ticket, TicketOutcome::Granted { term, since }));
                self.turn_away_the_impatient();
            }
            None => {
                if let Some(last) = self.release_that_reads_may_miss(around.now, term) {
                    // It was released just now, and a majority does not know it yet: a take will find it free,
                    // or in the hands of the one it was given to.
                    self.last_seen.free = !last.handed_over;
                    self.pause = around.now + AFTER_RELEASE;
                } else if let Some(in_flight) = &mut self.in_flight {
                    // The answer that is awaited may say more.
                    in_flight.unexpected_grant = true;
                } else {
                    // Nobody here wants it (any more): it is passed on.
                    self.pass_on(session, ticket, term);
                }
            }
        }
    }

    /// Whether what this instance holds keeps it from holding more: it is lost, or of a session that is
    /// over, and has not ended.
    fn is_blocked(&self, current: Option<SessionId>) -> bool {
        self.held.is_some_and(|held| held.hold == HeldState::Lost || Some(held.session) != current)
    }

    /// Whether somebody may stand in line for what is held here.
    fn is_queue_likely(&self) -> bool {
        self.queue || self.waiting() > 0
    }

    /// The release of this term, if it was so lately that reads may still show the term.
    fn release_that_reads_may_miss(&self, now: Moment, term: Term) -> Option<LastRelease> {
        self.last_release.filter(|last| term <= last.term && now.since(last.at) < self.poll / 2)
    }

    fn turn_away_the_impatient(&mut self) {
        let (once, waits): (VecDeque<_>, _) =
            mem::take(&mut self.line).into_iter().partition(|s| s.patience == Patience::Once);
        self.line = waits;
        for stander in once {
            self.out.push(Out::Verdict(stander.by.ticket, TicketOutcome::Here));
        }
        for stander in &mut self.line {
            if stander.step == NextStep::Try {
                stander.step = NextStep::Again;
            }
        }
    }

    /// Gives back what nobody here wants, to nobody: places like that of its ticket may stand in line still that nobody
    /// can remove, and a lock that is handed from one to the next never comes to those who wait.
    fn pass_on(&mut self, session: SessionId, ticket: Ticket, term: Term) {
        self.leave_line(session, ticket);
        self.give_back(session, ticket, term, Handback::default());
        if let Some(back) = self.returns.iter_mut().find(|back| back.term == term) {
            back.line = Some(Vec::new());
        }
    }

    fn give_back(&mut self, session: SessionId, ticket: Ticket, term: Term, parting: Handback) {
        if !self.returns.iter().any(|back| back.term == term) {
            self.returns.push_back(Return { session, ticket, term, parting, line: None, refused: 0 });
        }
    }

    /// The lock as it stands, and not granted to the ticket that asked.
    fn learned(&mut self, around: Context<'_>, record: LockRecord) {
        let now = around.now;
        let Some(held) = &record.holding else {
            if closed_for(around, &record).is_zero() {
                self.last_seen.other = None;
                self.last_seen.free = true;
            } else {
                self.closed(around, record);
            }
            return;
        };
        self.last_seen.free = false;
        let (session, ticket, since) = (held.by.session, held.by.ticket, held.acquired_at);
        if Some(session) == around.current {
            let term = record.term;
            self.ours(around, session, ticket, term, since);
            return;
        }
        let named = named(&record, held);
        let dead = (around.known)(session);
        self.last_seen.other = Some(Box::new(record));
        let Some(head) = self.line.front_mut() else { return };
        head.contested = true;
        if dead == Some(Liveness::Dead) {
            head.step = if head.step == NextStep::Try { NextStep::Try } else { NextStep::Again };
            return;
        }
        self.out.push(Out::Watch(session, Some(named)));
        match (head.patience, dead) {
            (Patience::Once, Some(standing)) => self.inquired(standing),
            // Asked about next.
            (Patience::Once, None) => {}
            (Patience::Waits, _) if head.step == NextStep::Try => head.step = NextStep::Again,
            (Patience::Waits, _) => {
                self.schedule_next_look(now, jittered(self.poll, around.roll));
            }
        }
    }

    /// Nobody holds it, and nobody may take it yet.
    fn closed(&mut self, around: Context<'_>, record: LockRecord) {
        let now = around.now;
        let left = closed_for(around, &record);
        self.last_seen.other = None;
        if let Some(ticket) = self.drop_impatient_head() {
            self.out.push(Out::Verdict(ticket, TicketOutcome::Closed(Box::new(record))));
        } else {
            // A little late, so that it is open by then; the store knows better than our guess. Or the
            // next poll, if that is sooner.
            self.schedule_next_look(now, (left + Duration::from_millis(2)).clamp(SOON, self.poll.max(SOON)));
            self.last_seen.free = self.look_at.since(now) >= left;
            self.recheck.line = true;
        }
    }

    /// Looks at the lock again after `time`; until then the first in line waits, or is tried again if it does not wait.
    fn schedule_next_look(&mut self, now: Moment, time: Duration) {
        self.look_at = now + time;
        self.recheck.entry = true;
        if let Some(head) = self.line.front_mut() {
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
        let head = self.line.front()?;
        let once = head.patience == Patience::Once;
        if once { self.line.pop_front().map(|stander| stander.by.ticket) } else { None }
    }

    fn inquired(&mut self, standing: Liveness) {
        if standing == Liveness::Dead {
            return;
        }
        if let Some(record) = self.last_seen.other.clone()
            && let Some(ticket) = self.drop_impatient_head()
        {
            self.out.push(Out::Verdict(ticket, TicketOutcome::Held(record, standing)));
        }
    }

    fn refused(&mut self, around: Context<'_>, refusal: Refusal) {
        self.last_seen.free = false;
        self.last_seen.other = None;
        if let Some(ticket) = self.drop_impatient_head() {
            self.out.push(Out::Verdict(ticket, TicketOutcome::Refused(refusal)));
        } else {
            self.schedule_next_look(around.now, self.poll);
        }
    }

    fn confirmed(&mut self, session: SessionId, ticket: Ticket, answer: TakeAnswer) {
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
                self.out.push(Out::Lost(ticket, loss));
                return;
            }
            TakeAnswer::Held(record) | TakeAnswer::Closed(record) => lost(&record, held.term),
            TakeAnswer::Refused(refusal) => Loss::Vanished { found: refusal.to_string() },
        };
        held.hold = HeldState::Lost;
        self.out.push(Out::Lost(ticket, found));
        // Until the job has ended nobody here can take the lock up: they stand aside.
        let places: Vec<_> =
            self.line.iter().filter(|stander| stander.place != QueuePlace::Nowhere).collect();
        let places: Vec<_> = places.iter().map(|stander| (stander.by.session, stander.by.ticket)).collect();
        for (session, ticket) in places {
            self.leave_line(session, ticket);
        }
        for stander in &mut self.line {
            stander.step = NextStep::Again;
            stander.place = QueuePlace::Nowhere;
        }
    }

    /// The store does not write the record. For a moment, perhaps: so it is tried again.
    fn not_released(&mut self, around: Context<'_>, term: Term, then: &ReleaseTo, refusal: Refusal) {
        let Some(back) = self.returns.iter_mut().find(|back| back.term == term) else { return };
        back.refused += 1;
        if back.refused >= RELEASE_TRIES {
            self.out.push(Out::Refused(refusal));
            self.on_released(around, term, then);
        } else {
            let whole = FIRST_REST.saturating_mul(1 << back.refused);
            self.pause = around.now + jittered(whole, around.roll);
        }
    }

    fn on_released(&mut self, around: Context<'_>, term: Term, then: &ReleaseTo) {
        let Some(place) = self.returns.iter().position(|back| back.term == term) else { return };
        let Some(back) = self.returns.remove(place) else { return };
        self.out.push(Out::Parted(back.ticket));
        let handed_over = matches!(then, ReleaseTo::HandTo(_));
        self.last_release = Some(LastRelease { term, at: around.now, handed_over });
        self.last_seen.free = matches!(then, ReleaseTo::Free);
        self.last_seen.handed_over = handed_over;
        self.look_at = around.now;
        if let Some(line) = &back.line {
            self.queue |= line.len() > 1;
        }
        if let ReleaseTo::HandTo(to) = then
            && Some(to.session) == around.current
        {
            // R11: this answer makes nobody a holder. A majority event or read will.
            if self.flaws.has(Flaw::ReleaseMakesHolder) {
                self.ours(
                    around,
                    to.session,
                    to.ticket,
                    Term::new(term.get() + 1),
                    StoreTime::from_millis(0),
                );
            }
            self.look_at = around.now + AFTER_RELEASE;
        }
        for stander in &mut self.line {
            if stander.step == NextStep::Again {
                stander.step = NextStep::Waiting;
            }
        }
    }

    fn stands(&self, session: SessionId, ticket: Ticket) -> bool {
        self.line.iter().any(|stander| stander.by.session == session && stander.by.ticket == ticket)
    }
}

impl Op {
    /// Whether it has to do with the line alone, which decides nothing.
    const fn is_of_the_line(&self) -> bool {
        matches!(self, Self::Register(_) | Self::Leave(_) | Self::ReadLine { .. })
    }
}

/// How long the key may stay closed, as far as the store's time can be guessed.
fn closed_for(around: Context<'_>, record: &LockRecord) -> Duration {
    match (record.closed, around.store_now) {
        (Some(closed), Some(store_now)) => closed.left(store_now),
        (Some(closed), None) => closed.length,
        (None, _) => Duration::ZERO,
    }
}

fn named(record: &LockRecord, held: &crate::model::Holding) -> Named {
    Named { namespace: record.id.namespace.clone(), holder: held.by.holder.clone(), ttl: held.by.ttl }
}

/// Why a lock that was held under this term is held no more.
fn lost(record: &LockRecord, term: Term) -> Loss {
    let past = record.past.iter().find(|past| past.term == term);
    let forced = past.filter(|past| past.how == Ended::Forced).and_then(|past| past.note.as_ref());
    let revoked = forced.and_then(|note| {
        let (by, why) = note.as_str().split_once(": ")?;
        Some(Loss::Revoked { by: Holder::new(by).ok()?, why: Why::shortened(why) })
    });
    revoked.unwrap_or_else(|| Loss::Vanished {
        found: match &record.holding {
            Some(held) => format!("{} holds it under term {}", held.by.holder, record.term),
            None => format!("nobody holds it, and its last term is {}", record.term),
        },
    })
}

#[cfg(test)]
mod tests;
