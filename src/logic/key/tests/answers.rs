//! Answers that are lost, late or unexpected, and what a machine does about them.

use super::*;
use crate::{logic::key::held::RELEASE_TRIES, store::StoreExt};

fn failed(applied: Applied) -> OpReply {
    OpReply::Failed(Arc::new(StoreError::new("memory", "do it", applied, true, "a test says so")))
}

/// A machine alone with its store: what it wants is looked at, and answered by hand.
struct Lone {
    world: World,
    session: SessionId,
}

impl Lone {
    fn new() -> Self {
        let mut world = World::new(1, 1, Flaws::default());
        world.calm = true;
        let session = world.instances[0].session;
        Self { world, session }
    }

    fn machine<T>(&mut self, step: impl FnOnce(&mut KeyMachine, Context<'_>) -> T) -> T {
        self.world.with(0, |instance, context| step(&mut instance.machine, context))
    }

    fn now(&self) -> Moment {
        self.world.clock.now()
    }

    fn contend(&mut self, mode: WaitMode) -> Ticket {
        let session = self.session;
        self.world.with(0, |instance, context| {
            let ticket = Ticket::new(instance.next_ticket);
            instance.next_ticket += 1;
            instance.pending.insert(ticket, mode.patience);
            instance.machine.contend(context, World::candidate(session, ticket), mode);
            ticket
        })
    }

    fn next(&mut self) -> NextOp {
        // Whatever rests has rested.
        self.world.pass(10_000);
        self.machine(KeyMachine::next)
    }

    fn begins(&mut self) -> Op {
        match self.next() {
            NextOp::Do(op) => op,
            other => panic!("it does something, and not {other:?}"),
        }
    }

    fn answer(&mut self, op: Op, answer: OpReply) {
        let now = self.now();
        self.machine(|machine, context| machine.answered(context, now, op, answer));
    }

    /// Begins what is expected, and answers as the store does.
    fn perform(&mut self, what: fn(&Op) -> bool) -> OpReply {
        let op = self.begins();
        assert!(what(&op), "{op:?} is not expected");
        let answer = self.world.apply(self.session, &op);
        self.answer(op, answer.clone());
        answer
    }

    fn acquire(&mut self) -> (Ticket, Term) {
        let ticket = self.contend(WaitMode::WAITS);
        self.perform(|op| matches!(op, Op::Take { .. }));
        let (_, term, _) = self.world.instances[0].running.expect("it was free");
        (ticket, term)
    }

    fn ended(&mut self, ticket: Ticket) {
        self.world.instances[0].running = None;
        self.machine(|machine, context| machine.ended(context, ticket, Handback::default()));
    }

    fn gives_up(&mut self, ticket: Ticket) {
        self.world.instances[0].pending.remove(&ticket);
        self.machine(|machine, context| machine.leave(context.now, ticket));
    }

    fn is_lost(&self) -> bool {
        self.world.instances[0].running.is_some_and(|(_, _, lost)| lost)
    }

    /// Another session takes the lock from this one, as an operator may let it.
    fn rob(&mut self) -> SessionId {
        let thief = self.world.open();
        let take = Take { lock: lock(), by: World::candidate(thief, Ticket::new(1)) };
        ready(self.world.store.take(vec![take], vec![self.session], LIMIT));
        thief
    }

    fn is_free(&self) -> bool {
        self.world.left_behind().is_none()
    }
}

fn is_look(op: &Op) -> bool {
    matches!(op, Op::Look)
}

fn is_release(op: &Op) -> bool {
    matches!(op, Op::Release { .. })
}

fn is_confirm(op: &Op) -> bool {
    matches!(op, Op::Confirm { .. })
}

/// Cases: the take that is applied, and the error of each.
#[test]
fn a_take_of_one_that_does_not_wait_is_looked_after_if_any_of_its_answers_was_lost() {
    use Applied::{No, Unknown};
    for tries in [[Unknown, No, No], [No, Unknown, No], [No, No, Unknown], [Unknown; 3]] {
        let mut one = Lone::new();
        one.contend(WaitMode::ONCE);
        for said in tries {
            let op = one.begins();
            if said == Unknown {
                one.world.apply(one.session, &op);
            }
            one.answer(op, failed(said));
        }
        assert!(one.world.instances[0].pending.is_empty(), "it was answered");
        assert!(!one.is_free(), "the store has granted it");
        one.perform(is_look);
        one.perform(is_release);
        assert!(one.is_free(), "{tries:?}");
    }
    let mut one = Lone::new();
    one.contend(WaitMode::ONCE);
    for _ in 0..3 {
        let op = one.begins();
        one.answer(op, failed(No));
    }
    assert!(one.machine(|machine, _| machine.is_done()), "all of them were refused");
}

#[test]
fn a_ticket_that_is_given_up_is_looked_after_if_its_take_was_not_answered() {
    let mut one = Lone::new();
    let ticket = one.contend(WaitMode::WAITS);
    let op = one.begins();
    one.world.apply(one.session, &op);
    one.answer(op, failed(Applied::Unknown));
    one.gives_up(ticket);
    one.perform(is_look);
    one.perform(is_release);
    assert!(one.is_free());
}

#[test]
fn a_ticket_that_is_given_up_is_looked_after_when_it_has_left_the_queue() {
    let mut one = Lone::new();
    let holder = one.world.open();
    let by = World::candidate(holder, Ticket::new(1));
    let taken = ready(one.world.store.take(vec![Take { lock: lock(), by }], vec![], LIMIT));
    let [TakeAnswer::Taken(record)] = &taken[..] else { panic!("{taken:?}") };
    let ticket = one.contend(WaitMode::WAITS);
    one.perform(|op| matches!(op, Op::Take { .. }));
    one.perform(|op| matches!(op, Op::Register(_)));
    one.perform(is_look);
    one.gives_up(ticket);
    let leave = one.begins();
    assert!(matches!(leave, Op::Leave(_)), "{leave:?}");
    // It is handed the lock before it has left.
    let then = ReleaseTo::HandTo(Box::new(World::candidate(one.session, ticket)));
    let release = Release { lock: lock(), session: holder, term: record.term, note: None, then };
    ready(one.world.store.release(vec![release], LIMIT));
    let left = one.world.apply(one.session, &leave);
    one.answer(leave, left);
    one.perform(is_look);
    while !one.is_free() {
        one.perform(|op| matches!(op, Op::Leave(_) | Op::ReadQueue { .. } | Op::Release { .. }));
    }
}

#[test]
fn the_audit_judges_no_key_while_something_is_undecided() {
    let mut one = Lone::new();
    let ticket = one.contend(WaitMode::WAITS);
    let op = one.begins();
    let taken = one.world.apply(one.session, &op);
    let OpReply::Took(taken) = taken else { panic!("{taken:?}") };
    let TakeAnswer::Taken(record) = taken else { panic!("it was free") };
    one.answer(op, failed(Applied::Unknown));
    one.gives_up(ticket);
    one.world.pass(1000);
    let asked = one.now();
    let session = one.session;
    one.machine(|machine, context| machine.found(asked, context.now, session, ticket, record.term));
    assert_eq!(one.begins(), Op::Look, "a look is to tell, and gives it back");
}

#[test]
fn the_audit_judges_no_key_that_changed_after_it_was_asked() {
    let mut one = Lone::new();
    let asked = one.now();
    one.world.pass(1);
    let (ticket, term) = one.acquire();
    one.machine(|machine, _| machine.missed(asked, term));
    assert_eq!(one.next(), NextOp::Idle, "it was granted after the page was read");
    let asked = one.now();
    one.world.pass(1);
    one.ended(ticket);
    one.perform(is_release);
    let session = one.session;
    one.machine(|machine, context| machine.found(asked, context.now, session, ticket, term));
    assert_eq!(one.next(), NextOp::Idle, "it was released after the page was read");
    assert!(one.machine(|machine, _| machine.is_done()));
}

#[test]
fn a_lock_that_the_audit_finds_and_no_job_wants_is_released() {
    let mut one = Lone::new();
    let by = World::candidate(one.session, Ticket::new(1));
    let taken = ready(one.world.store.take(vec![Take { lock: lock(), by }], vec![], LIMIT));
    let [TakeAnswer::Taken(record)] = &taken[..] else { panic!("{taken:?}") };
    one.world.pass(1);
    let (asked, session) = (one.now(), one.session);
    one.machine(|machine, context| machine.found(asked, context.now, session, Ticket::new(1), record.term));
    one.perform(is_release);
    assert!(one.is_free());
}

#[test]
fn a_lock_that_the_audit_misses_is_lost_only_after_a_confirming_write() {
    let mut one = Lone::new();
    let (_, term) = one.acquire();
    for robbed in [false, true] {
        one.world.pass(1);
        let asked = one.now();
        one.machine(|machine, _| machine.missed(asked, term));
        if robbed {
            one.rob();
        }
        let op = one.begins();
        assert!(is_confirm(&op), "{op:?}");
        assert!(!one.is_lost(), "nothing is known yet");
        let answer = one.world.apply(one.session, &op);
        one.answer(op, answer);
        assert_eq!(one.is_lost(), robbed);
    }
}

#[test]
fn a_lock_that_is_lost_keeps_others_of_this_instance_out_until_its_job_has_ended() {
    let mut one = Lone::new();
    let (ticket, term) = one.acquire();
    let thief = one.rob();
    let asked = one.now() + Duration::from_millis(1);
    one.world.pass(1);
    one.machine(|machine, _| machine.missed(asked, term));
    one.perform(is_confirm);
    assert!(one.is_lost());
    let next = one.contend(WaitMode::WAITS);
    assert_eq!(one.next(), NextOp::Idle, "it does not stand in the queue for what it could not take up");
    // It is granted all the same: it is passed on, since what lost the lock still runs.
    let record = ready(one.world.store.locks(vec![lock()], LIMIT)).pop().unwrap().found().unwrap();
    let then = ReleaseTo::HandTo(Box::new(World::candidate(one.session, next)));
    let release = Release { lock: lock(), session: thief, term: record.term, note: None, then };
    ready(one.world.store.release(vec![release], LIMIT));
    let record = ready(one.world.store.locks(vec![lock()], LIMIT)).pop().unwrap().found().unwrap();
    let asked = one.now();
    one.world.pass(1);
    let now = one.now();
    let session = one.session;
    one.machine(|machine, _| machine.found(asked, now, session, next, record.term));
    while !one.is_free() {
        one.perform(|op| matches!(op, Op::Leave(_) | Op::ReadQueue { .. } | Op::Release { .. }));
    }
    assert!(one.world.instances[0].pending.contains_key(&next));
    one.ended(ticket);
    while one.world.instances[0].running.is_none() {
        one.perform(|op| !is_release(op));
    }
}

#[test]
fn a_lock_granted_anew_by_a_confirming_write_is_released_under_its_new_term() {
    let mut one = Lone::new();
    let (ticket, term) = one.acquire();
    let release = Release { lock: lock(), session: one.session, term, note: None, then: ReleaseTo::Free };
    ready(one.world.store.release(vec![release], LIMIT));
    one.world.pass(1);
    let asked = one.now();
    one.machine(|machine, _| machine.missed(asked, term));
    one.perform(is_confirm);
    assert!(one.is_lost() && !one.is_free(), "it is held again, which keeps others out");
    one.ended(ticket);
    one.perform(is_release);
    assert!(one.is_free());
}

#[test]
fn locks_of_a_session_that_is_over_are_not_released() {
    let mut one = Lone::new();
    let (ticket, _) = one.acquire();
    one.session = one.world.open();
    one.world.instances[0].session = one.session;
    one.ended(ticket);
    assert_eq!(one.next(), NextOp::Idle);
    assert!(one.machine(|machine, _| machine.is_done()));
}

#[test]
fn a_hint_during_a_look_causes_another_look() {
    let mut one = Lone::new();
    let by = World::candidate(one.world.open(), Ticket::new(1));
    ready(one.world.store.take(vec![Take { lock: lock(), by }], vec![], LIMIT));
    one.contend(WaitMode::WAITS);
    one.perform(|op| matches!(op, Op::Take { .. }));
    one.perform(|op| matches!(op, Op::Register(_)));
    let look = one.begins();
    assert!(is_look(&look), "{look:?}");
    let held = one.world.apply(one.session, &look);
    one.machine(KeyMachine::hint);
    one.answer(look, held);
    let next = one.machine(KeyMachine::next);
    assert!(matches!(next, NextOp::Do(_)), "the answer was from before the hint: {next:?}");
}

/// An operation that the store refuses for a moment is repeated. One that it refuses for good is left to the
/// audit, and reported.
#[test]
fn a_release_that_is_refused_is_sent_again_a_few_times() {
    for refused in [1, RELEASE_TRIES - 1, RELEASE_TRIES] {
        let mut one = Lone::new();
        let (ticket, _) = one.acquire();
        one.ended(ticket);
        for _ in 0..refused {
            let op = one.begins();
            assert!(is_release(&op), "{op:?}");
            let damaged = Refusal::Damaged { field: "session".into(), problem: "is locked".into() };
            one.answer(op, OpReply::Released { answer: ReleaseAnswer::Refused(damaged), left: true });
            assert!(!matches!(one.machine(KeyMachine::next), NextOp::Do(_)), "it is given a moment");
        }
        if refused < RELEASE_TRIES {
            one.perform(is_release);
            assert!(one.is_free());
        }
        assert!(one.machine(|machine, _| machine.is_done()));
    }
}
