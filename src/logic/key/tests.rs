//! Machines of several instances on one lock, with every operation lost, late, doubled or undecided.

mod answers;
mod queue;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::FutureExt;
use tokio::sync::watch;

use super::*;
use crate::{
    StoreError,
    clock::Clock,
    dice::Dice,
    error::Applied,
    model::{Holder, Kind, LockId, StoreTime, Term, Why},
    store::{
        Declaration, Evidence, Hint, MemoryStore, News, Open, Refusal, Release, ReleaseAnswer, ReleaseTo,
        Store, StoreExt, Take, TakeAnswer, Topic, Wait,
    },
};

#[derive(Debug, Default)]
struct Watch(AtomicU64);

impl Clock for Watch {
    fn now(&self) -> Moment {
        Moment::after_start(Duration::from_millis(self.0.load(Ordering::Relaxed)))
    }

    fn wall(&self) -> StoreTime {
        StoreTime::from_millis(i64::try_from(self.0.load(Ordering::Relaxed)).unwrap() + 1_000_000)
    }
}

struct Instance {
    machine: KeyMachine,
    session: SessionId,
    next_ticket: u64,
    /// The tickets that were not answered.
    pending: BTreeMap<Ticket, Patience>,
    /// Ticket and term that run here; and true if the loss of the lock was reported.
    running: Option<(Ticket, Term, bool)>,
    under_way: Option<(Moment, Op)>,
    granted: usize,
}

/// A request that may reach the store later, or again.
#[derive(Clone)]
struct Late(SessionId, Op);

struct World {
    dice: Dice,
    clock: Arc<Watch>,
    store: MemoryStore,
    instances: Vec<Instance>,
    late: Vec<Late>,
    /// Tickets that stood in the queue once.
    seen_in_queue: Vec<Candidate>,
    hints: futures::stream::BoxStream<'static, Hint>,
    /// Topics of all sessions: each instance receives bells of the others, too.
    topics: watch::Sender<BTreeSet<Topic>>,
    /// Hints on their way to each instance.
    arriving: Vec<VecDeque<Hint>>,
    dead: BTreeSet<SessionId>,
    /// Sessions that are not seen to beat any more.
    overdue: BTreeSet<SessionId>,
    /// Operations that the store refuses for want of a right.
    refuses: &'static [QueueWork],
    sessions: u128,
    calm: bool,
    flaws: Flaws,
    trace: Vec<String>,
}

/// Work on the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueWork {
    Standing,
    Leaving,
    Reading,
}

impl QueueWork {
    fn is(self, op: &Op) -> bool {
        match self {
            Self::Standing => matches!(op, Op::Register(_)),
            Self::Leaving => matches!(op, Op::Leave(_)),
            Self::Reading => matches!(op, Op::ReadQueue { .. }),
        }
    }
}

const LIMIT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_secs(5);

fn lock() -> LockId {
    LockId { namespace: "n".parse().unwrap(), kind: Kind::Lock, key: "k".parse().unwrap() }
}

fn ready<T>(answer: impl Future<Output = Result<T, StoreError>>) -> T {
    answer.now_or_never().expect("the memory store answers at once").unwrap()
}

impl World {
    fn new(seed: u64, instances: usize, flaws: Flaws) -> Self {
        let clock = Arc::new(Watch::default());
        let store = MemoryStore::new(clock.clone());
        let topics = watch::Sender::default();
        let mut world = Self {
            dice: Dice::new(seed),
            hints: store.hints(topics.subscribe()),
            topics,
            clock,
            store,
            instances: Vec::new(),
            late: Vec::new(),
            seen_in_queue: Vec::new(),
            arriving: vec![VecDeque::new(); instances],
            dead: BTreeSet::new(),
            overdue: BTreeSet::new(),
            refuses: &[],
            sessions: 0,
            calm: false,
            flaws,
            trace: Vec::new(),
        };
        for _ in 0..instances {
            let session = world.open();
            world.instances.push(Instance {
                machine: KeyMachine::new(POLL, true, flaws, world.clock.now()),
                session,
                next_ticket: 1,
                pending: BTreeMap::new(),
                running: None,
                under_way: None,
                granted: 0,
            });
        }
        world
    }

    fn open(&mut self) -> SessionId {
        self.sessions += 1;
        let session = SessionId::from_u128(self.sessions);
        self.topics.send_modify(|topics| {
            topics.insert(Topic::Session(session));
        });
        let about = crate::store::About::new(lock().namespace, "pod".parse().unwrap());
        let nonce = crate::store::Nonce::new(1);
        ready(self.store.open(
            Open { session, nonce, about, ttl: Duration::from_secs(30), shares: vec![], drained: None },
            LIMIT,
        ));
        session
    }

    fn candidate(session: SessionId, ticket: Ticket) -> Candidate {
        Candidate::new(session, ticket, Duration::from_secs(30), "pod".parse().unwrap())
    }

    fn with<T>(&mut self, place: usize, step: impl FnOnce(&mut Instance, Context<'_>) -> T) -> T {
        let (now, roll) = (self.clock.now(), self.dice.roll());
        let machine = &self.instances[place].machine;
        if machine.is_done() && machine.remembers_until(now).is_none() && self.dice.below(2) == 0 {
            // As the engine does: a key with nothing left to remember is forgotten.
            self.instances[place].machine = KeyMachine::new(POLL, true, self.flaws, now);
        }
        let (dead, overdue) = (self.dead.clone(), self.overdue.clone());
        let instance = &mut self.instances[place];
        let context = Context {
            now,
            current: Some(instance.session),
            known: &|session| {
                Some(match session {
                    dead_one if dead.contains(&dead_one) => Liveness::Dead,
                    silent if overdue.contains(&silent) => Liveness::Overdue,
                    _ => Liveness::Alive,
                })
            },
            beats: &|session| !dead.contains(&session) && !overdue.contains(&session),
            store_now: Some(self.clock.wall()),
            roll,
        };
        let made = step(instance, context);
        for out in instance.machine.take_out() {
            match out {
                Output::Verdict(ticket, verdict) => {
                    assert!(instance.pending.remove(&ticket).is_some(), "{ticket} was answered twice");
                    if let TicketOutcome::Granted { term, .. } = verdict {
                        assert!(
                            instance.running.is_none(),
                            "{ticket} was granted beside {:?}",
                            instance.running
                        );
                        self.trace.push(format!("{place}: ticket {ticket} runs under {term}"));
                        instance.running = Some((ticket, term, false));
                        instance.granted += 1;
                    }
                }
                Output::Lost(ticket, loss) => {
                    self.trace.push(format!("{place}: ticket {ticket} lost: {loss}"));
                    if let Some((of, _, lost)) = &mut instance.running
                        && *of == ticket
                    {
                        *lost = true;
                    }
                }
                Output::Watch(..) | Output::Returned(_) | Output::TookOver(_) | Output::Refused(_) => {}
            }
        }
        made
    }

    fn contend(&mut self, place: usize, patience: Patience) {
        let session = self.instances[place].session;
        // The expectation may be wrong; but only dead sessions are named as dead.
        let (guess, one) = (self.dice.place(4), self.dice.place(self.dead.len().max(1)));
        let expect = match (guess, self.dead.iter().nth(one)) {
            (0, _) => Expect::Held,
            (1, Some(dead)) => Expect::Dead(*dead),
            _ => Expect::Nothing,
        };
        self.with(place, |instance, context| {
            let ticket = Ticket::new(instance.next_ticket);
            instance.next_ticket += 1;
            instance.pending.insert(ticket, patience);
            instance.machine.contend(
                context,
                Self::candidate(session, ticket),
                WaitMode { patience, expect },
            );
        });
    }

    fn end_job(&mut self, place: usize) {
        if let Some((ticket, ..)) = self.instances[place].running.take() {
            self.trace.push(format!("{place}: ticket {ticket} ends"));
            // To a candidate that is or was seen in the queue; or as the machine finds.
            let queue = ready(self.store.waiters(lock(), 10, LIMIT));
            self.seen_in_queue.extend(queue.waiters.into_iter().map(|waiter| waiter.by));
            let one = self.dice.place(self.seen_in_queue.len() * 3 + 1);
            let successor = self.seen_in_queue.get(one).cloned().map(Box::new);
            let handback = Handback { successor, ..Handback::default() };
            self.with(place, |instance, context| instance.machine.ended(context, ticket, handback));
        }
    }

    /// A session ends, its job is dropped, it is declared dead, and every instance hears of it.
    fn die(&mut self, place: usize) {
        let (session, next) = (self.instances[place].session, self.open());
        self.trace.push(format!("{place}: session {session} is over"));
        self.instances[place].session = next;
        self.with(place, |instance, context| instance.machine.session_over(context.now, session));
        self.end_job(place);
        let declaration = Declaration {
            session,
            ground: Evidence::Operator,
            by: "pod".parse().unwrap(),
            why: Why::shortened("over"),
            tell: Vec::new(),
        };
        ready(self.store.declare(declaration, LIMIT));
        self.dead.insert(session);
        for other in 0..self.instances.len() {
            self.with(other, |instance, context| instance.machine.died(context.now, session));
        }
    }

    fn apply(&mut self, session: SessionId, op: &Op) -> OpReply {
        let store = self.store.clone();
        match op.clone() {
            Op::Look => OpReply::Seen(ready(store.locks(vec![lock()], LIMIT)).pop().unwrap()),
            Op::Peek => OpReply::Seen(ready(store.peek(vec![lock()], LIMIT)).pop().unwrap()),
            Op::Take { by, dead } => OpReply::Took(
                ready(store.take(vec![Take { lock: lock(), by: *by }], dead, LIMIT)).pop().unwrap(),
            ),
            Op::Confirm { session, ticket } => {
                let take = Take { lock: lock(), by: Self::candidate(session, ticket) };
                OpReply::Took(ready(store.take(vec![take], vec![], LIMIT)).pop().unwrap())
            }
            Op::Release { session, term, note, then, leaving } => {
                let release = Release { lock: lock(), session, term, note, then };
                let answer = ready(store.release(vec![release], LIMIT)).pop().unwrap();
                let left = !self.refuses.contains(&QueueWork::Leaving);
                if left {
                    let leaving = leaving.into_iter().map(|(session, ticket)| (lock(), session, ticket));
                    ready(store.stop_waiting(leaving.collect(), LIMIT));
                }
                OpReply::Released { answer, left }
            }
            Op::Poll { session, ticket } => OpReply::Polled {
                seen: ready(store.locks(vec![lock()], LIMIT)).pop().unwrap(),
                in_queue: ready(store.places(vec![(lock(), session, ticket)], LIMIT))
                    .pop()
                    .filter(|_| !self.refuses.contains(&QueueWork::Reading)),
            },
            Op::ReadQueue { most, .. } => OpReply::Queue(ready(store.waiters(lock(), most, LIMIT))),
            Op::Register(tickets) => {
                let waits = tickets.into_iter().map(|by| Wait { lock: lock(), by }).collect();
                ready(store.wait(waits, LIMIT));
                OpReply::Done
            }
            Op::Leave(left) => {
                let left = left.into_iter().map(|(session, ticket)| (lock(), session, ticket)).collect();
                ready(store.stop_waiting(left, LIMIT));
                OpReply::Done
            }
            Op::Inquire { session: of, .. } => {
                let _ = session;
                OpReply::Known(if self.dead.contains(&of) { Liveness::Dead } else { Liveness::Alive })
            }
        }
    }

    /// Lets the operation that is under way go on; or begins one.
    fn operate(&mut self, place: usize) -> bool {
        let Some((sent, op)) = self.instances[place].under_way.take() else {
            let next = self.with(place, |instance, context| instance.machine.next(context));
            if let NextOp::Do(op) = next {
                self.trace.push(format!("{place}: sends {op:?}"));
                self.instances[place].under_way = Some((self.clock.now(), op));
                return true;
            }
            return false;
        };
        let session = self.instances[place].session;
        let fate = if self.calm { 9 } else { self.dice.place(10) };
        let error =
            |applied| OpReply::Failed(Arc::new(StoreError::new("memory", "do it", applied, true, "chance")));
        let answer = match fate {
            _ if self.refuses.iter().any(|refused| refused.is(&op)) => error(Applied::No),
            // Lost, or late; the caller cannot tell.
            0 | 1 => {
                if fate == 1 {
                    self.late.push(Late(session, op.clone()));
                }
                error(Applied::Unknown)
            }
            2 => error(Applied::No),
            3 => {
                self.apply(session, &op);
                error(Applied::Unknown)
            }
            4 => {
                self.late.push(Late(session, op.clone()));
                self.apply(session, &op)
            }
            _ => self.apply(session, &op),
        };
        self.trace.push(format!("{place}: {op:?} -> {answer:?}"));
        self.with(place, |instance, context| instance.machine.answered(context, sent, op, answer));
        true
    }

    fn hear(&mut self) {
        while let Some(Some(hint)) = futures::StreamExt::next(&mut self.hints).now_or_never() {
            for arriving in &mut self.arriving {
                arriving.push_back(hint.clone());
            }
        }
    }

    fn hint(&mut self, place: usize) {
        self.hear();
        let lost = !self.calm && self.dice.below(4) == 0;
        let again = !self.calm && self.dice.below(8) == 0;
        let Some(hint) = self.arriving[place].pop_front() else { return };
        if again {
            self.arriving[place].push_back(hint.clone());
        }
        if lost {
            return;
        }
        match hint {
            Hint::News(News::Lock(_)) => {
                self.with(place, |instance, context| instance.machine.hint(context));
            }
            Hint::News(News::Handed(_)) => {
                self.with(place, |instance, context| instance.machine.handed(context));
            }
            Hint::News(News::Revoked(_)) => {
                self.with(place, |instance, context| instance.machine.revoked(context));
            }
            _ => {}
        }
    }

    fn audit(&mut self, place: usize) {
        let (session, asked) = (self.instances[place].session, self.clock.now());
        let held = ready(self.store.held_by(session, None, 10, LIMIT)).items;
        self.pass(1);
        self.with(place, |instance, context| {
            for held in &held {
                instance.machine.found(asked, context.now, session, held.ticket, held.term);
            }
            if let Some((_, term, _)) = instance.running
                && !held.iter().any(|held| held.term == term)
            {
                instance.machine.missed(asked, term);
            }
        });
    }

    fn pass(&mut self, millis: u64) {
        self.clock.0.fetch_add(millis, Ordering::Relaxed);
    }

    fn step(&mut self) {
        let place = self.dice.place(self.instances.len());
        match self.dice.place(24) {
            0 if self.instances[place].pending.len() < 3 => self.contend(place, Patience::Waits),
            1 if self.instances[place].pending.len() < 3 => self.contend(place, Patience::Once),
            2 => {
                let turn = self.dice.place(3);
                if let Some(ticket) = self.instances[place].pending.keys().nth(turn).copied() {
                    self.instances[place].pending.remove(&ticket);
                    self.trace.push(format!("{place}: ticket {ticket} leaves"));
                    self.with(place, |instance, context| instance.machine.leave(context.now, ticket));
                }
            }
            3 | 4 => self.end_job(place),
            5 if self.dice.below(6) == 0 => self.die(place),
            6 => self.audit(place),
            7..=9 => self.hint(place),
            10 if !self.late.is_empty() => {
                let late = self.dice.place(self.late.len());
                let Late(session, op) = self.late.swap_remove(late);
                self.trace.push(format!("late: {op:?}"));
                self.apply(session, &op);
            }
            11 => {
                let time = self.dice.below(400);
                self.pass(time);
            }
            _ => {
                self.operate(place);
            }
        }
        self.check();
    }

    fn check(&mut self) {
        let record = ready(self.store.locks(vec![lock()], LIMIT)).pop().unwrap().found();
        let mut running = 0;
        for (place, instance) in self.instances.iter().enumerate() {
            let Some((ticket, term, false)) = instance.running else { continue };
            running += 1;
            let ours =
                record.as_ref().is_some_and(|r| r.term == term && r.is_granted_to(instance.session, ticket));
            assert!(ours, "{place} runs for ticket {ticket} under {term}, and the record says {record:?}");
        }
        assert!(running <= 1, "two run at once");
    }

    /// Faults end; every ticket that waits is granted, and nothing is left in the store.
    fn settle(&mut self) {
        self.calm = true;
        // Operations that are still on their way arrive now.
        for Late(session, op) in std::mem::take(&mut self.late) {
            self.apply(session, &op);
        }
        for _ in 0..2000 {
            for place in 0..self.instances.len() {
                while !self.arriving[place].is_empty() {
                    self.hint(place);
                }
                self.hear();
                let mut operations = 0;
                while self.operate(place) {
                    self.check();
                    operations += 1;
                    assert!(operations < 100, "{place} does the same again and again");
                }
                self.end_job(place);
                self.audit(place);
            }
            self.pass(500);
            let waits = self.instances.iter().any(|instance| !instance.pending.is_empty());
            let done = self.instances.iter().all(|instance| instance.machine.is_done());
            if !waits && done && self.left_behind().is_none() {
                break;
            }
        }
        for (place, instance) in self.instances.iter().enumerate() {
            assert!(
                instance.pending.is_empty(),
                "{place}: {:?} still stand: {:?}",
                instance.pending,
                instance.machine
            );
            assert!(instance.machine.is_done(), "{place}: {:?}", instance.machine);
        }
        assert_eq!(self.left_behind(), None, "left behind");
    }

    /// Holder of the lock that is not dead.
    fn left_behind(&self) -> Option<Candidate> {
        let record = ready(self.store.locks(vec![lock()], LIMIT)).pop().unwrap().found();
        let held = record.and_then(|record| record.holding);
        held.map(|held| held.by).filter(|by| !self.dead.contains(&by.session))
    }
}

fn run(seed: u64, flaws: Flaws) -> Result<usize, String> {
    run_where(&[], seed, flaws)
}

/// The same in a store that does not do this.
fn run_where(refuses: &'static [QueueWork], seed: u64, flaws: Flaws) -> Result<usize, String> {
    let mut world = World::new(seed, 2 + usize::try_from(seed % 3).unwrap(), flaws);
    world.refuses = refuses;
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..600 {
            world.step();
        }
        world.settle();
    }));
    match outcome {
        Ok(()) => Ok(world.instances.iter().map(|instance| instance.granted).sum()),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            let last = world.trace.len().saturating_sub(60);
            Err(format!("seed {seed}: {said}\n{}", world.trace[last..].join("\n")))
        }
    }
}

#[test]
fn no_two_run_at_once_and_every_ticket_is_answered() {
    let mut granted = 0;
    for seed in 0..3000 {
        granted += run(seed, Flaws::default()).unwrap_or_else(|found| panic!("{found}"));
    }
    assert!(granted > 15_000, "only {granted} grants were tried");
}

#[cfg(tenure_sim)]
#[test]
fn a_machine_that_breaks_a_rule_is_noticed() {
    use crate::logic::flaw::Flaw;

    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found: Vec<_> = [Flaw::AnyTicket, Flaw::ReleaseMakesHolder, Flaw::HastyAudit]
        .into_iter()
        .filter(|flaw| (0..500).all(|seed| run(seed, Flaws::one(*flaw)).is_ok()))
        .collect();
    std::panic::set_hook(hook);
    assert_eq!(found, [], "nobody noticed");
}

/// Returns a world where one instance holds the lock, one has come to wait for it, and nothing goes wrong.
fn one_waits(mode: WaitMode) -> World {
    let mut world = World::new(1, 2, Flaws::default());
    world.calm = true;
    world.contend(0, Patience::Waits);
    world.sent(0);
    assert!(world.instances[0].running.is_some());
    let by = World::candidate(world.instances[1].session, Ticket::new(1));
    world.with(1, |instance, context| {
        instance.pending.insert(by.ticket, mode.patience);
        instance.next_ticket = 2;
        instance.machine.contend(context, by, mode);
    });
    world
}

impl World {
    /// Operations it sends until it waits for something to happen.
    fn sent(&mut self, place: usize) -> Vec<&'static str> {
        let mut sent = Vec::new();
        while self.operate(place) {
            sent.extend(self.instances[place].under_way.as_ref().map(|(_, op)| match op {
                Op::Look => "look",
                Op::Peek => "peek",
                Op::Poll { .. } => "poll",
                Op::Take { .. } => "take",
                Op::ReadQueue { .. } => "read the queue",
                Op::Register(_) => "register",
                Op::Leave(_) => "leave",
                Op::Release { .. } => "release",
                other => panic!("{other:?} is not expected here"),
            }));
        }
        sent
    }

    /// Frees the lock, behind its holder's back.
    fn release(&mut self, place: usize, term: Term) {
        let session = self.instances[place].session;
        let release = Release { lock: lock(), session, term, note: None, then: ReleaseTo::Free };
        ready(self.store.release(vec![release], LIMIT));
    }

    fn sent_at_the_next_poll(&mut self, place: usize) -> Vec<&'static str> {
        self.pass(u64::try_from(POLL.as_millis() * 3 / 2).unwrap());
        self.sent(place)
    }
}

/// Polls of thousands of successors are to fit into a few batches.
#[test]
fn a_successor_polls_and_leaves_the_queue_unread() {
    let mut world = one_waits(WaitMode::SUCCESSOR);
    assert_eq!(world.sent(1), ["register", "look"]);
    for _ in 0..3 {
        assert_eq!(world.sent_at_the_next_poll(1), ["look"]);
    }
    // Its place is looked for once a ttl.
    world.pass(30_000);
    assert_eq!(world.sent(1), ["poll"]);
    assert_eq!(world.sent_at_the_next_poll(1), ["look"]);
}

#[test]
fn a_waiter_whose_place_was_undone_takes_it_again() {
    for mode in [WaitMode::SUCCESSOR, WaitMode::WAITS] {
        let mut world = one_waits(mode);
        world.sent(1);
        world.sent_at_the_next_poll(1);
        let place = (lock(), world.instances[1].session, Ticket::new(1));
        for is_told in [true, false] {
            ready(world.store.stop_waiting(vec![place.clone()], LIMIT));
            if is_told {
                world.with(1, |instance, context| instance.machine.resync(context.now));
            } else {
                world.pass(30_000);
            }
            assert!(world.sent(1).contains(&"register"), "{mode:?}, {is_told}");
            assert_eq!(ready(world.store.places(vec![place.clone()], LIMIT)), [true]);
        }
    }
}

/// The next in the queue are watched, in case one of them dies with the lock.
#[test]
fn the_queue_is_read_for_each_holder_once() {
    let mut world = one_waits(WaitMode::WAITS);
    assert_eq!(world.sent(1), ["take", "register", "look"]);
    assert_eq!(world.sent_at_the_next_poll(1), ["read the queue", "look"]);
    assert_eq!(world.sent_at_the_next_poll(1), ["look"]);
    let session = world.open();
    let by = World::candidate(session, Ticket::new(1));
    let first = world.instances[0].session;
    let take = Take { lock: lock(), by };
    ready(world.store.take(vec![take], vec![first], LIMIT));
    assert_eq!(world.sent_at_the_next_poll(1), ["look"], "it sees another holder");
    assert_eq!(world.sent_at_the_next_poll(1), ["read the queue", "look"]);
    assert_eq!(world.sent_at_the_next_poll(1), ["poll"], "its place is looked for once a ttl");
    world.pass(30_000);
    assert_eq!(world.sent(1), ["read the queue", "look"], "those before it are forgotten otherwise");
}

/// Sessions before it in the queue may be dead, and more than are read.
#[test]
fn a_waiter_far_back_in_the_queue_takes_the_lock_in_the_end() {
    let mut world = one_waits(WaitMode::SUCCESSOR);
    let (session, first) = (world.open(), world.instances[0].running.unwrap());
    let by = |ticket| World::candidate(session, Ticket::new(ticket));
    let waits = (1..=QUEUE_READ as u64).map(|ticket| Wait { lock: lock(), by: by(ticket) }).collect();
    ready(world.store.wait(waits, LIMIT));
    world.pass(1);
    world.sent(1);
    world.release(0, first.1);
    assert_eq!(world.sent_at_the_next_poll(1), ["look", "read the queue"]);
    world.pass(1000);
    assert_eq!(world.sent(1)[..2], ["look", "take"]);
    assert!(world.instances[1].running.is_some());
}

/// An answer for one ticket says something about the lock. Whether another ticket may try depends on the queue.
#[test]
fn a_poll_of_one_that_left_does_not_let_the_next_try_before_others() {
    let mut world = one_waits(WaitMode::SUCCESSOR);
    world.sent(1);
    world.pass(1);
    let other = Wait { lock: lock(), by: World::candidate(world.open(), Ticket::new(1)) };
    ready(world.store.wait(vec![other], LIMIT));
    world.pass(1);
    let by = World::candidate(world.instances[1].session, Ticket::new(2));
    world.with(1, |instance, context| {
        instance.pending.insert(by.ticket, Patience::Waits);
        instance.machine.contend(context, by, WaitMode::SUCCESSOR);
    });
    world.pass(u64::try_from(super::queue::GATHERED.as_millis()).unwrap());
    assert_eq!(world.sent(1), ["register"]);
    let term = world.instances[0].running.unwrap().1;
    world.release(0, term);
    world.pass(u64::try_from(POLL.as_millis() * 3 / 2).unwrap());
    assert!(world.operate(1), "the poll is sent");
    world.with(1, |instance, context| {
        instance.pending.remove(&Ticket::new(1));
        instance.machine.leave(context.now, Ticket::new(1));
    });
    let sent = world.sent(1);
    assert!(!sent.contains(&"take"), "{sent:?}");
    assert!(world.instances[1].running.is_none(), "another stands before it");
}

/// An instance that finds it free reads which sessions were before it, takes it, and then reads which comes next.
#[test]
fn a_poll_that_finds_it_free_reads_the_queue_before_the_take() {
    let mut world = one_waits(WaitMode::SUCCESSOR);
    world.sent(1);
    let (_, term, _) = world.instances[0].running.unwrap();
    world.release(0, term);
    assert_eq!(world.sent_at_the_next_poll(1), ["look", "read the queue", "take", "read the queue"]);
    assert!(world.instances[1].running.is_some());
}
