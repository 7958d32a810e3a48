//! Turns: what it costs that a lock changes hands, within an instance and between two.

use super::{
    queue::{holds, successor},
    *,
};
use crate::store::LockSeen;

fn running(world: &World, place: usize) -> Option<Ticket> {
    world.instances[place].running.map(|(ticket, ..)| ticket)
}

#[test]
fn a_lock_passes_from_ticket_to_ticket_of_an_instance_by_a_take_alone() {
    let mut world = holds();
    world.join(0);
    world.join(0);
    assert_eq!(world.sent(0), ["read the queue"]);
    for ticket in [2, 3] {
        world.ends(0, Handback::default());
        assert_eq!(world.sent(0), ["take"]);
        assert_eq!(running(&world, 0), Some(Ticket::new(ticket)));
    }
    world.ends(0, Handback::default());
    assert!(world.sent(0).contains(&"release"));
    assert_eq!(world.left_behind(), None);
}

#[test]
fn tickets_behind_their_own_instance_join_the_queue_after_a_second() {
    let mut world = holds();
    world.join(0);
    world.pass(999);
    assert!(!world.sent(0).contains(&"register"));
    let wakes = world.with(0, |instance, context| instance.machine.next(context));
    assert_eq!(wakes, NextOp::At(world.clock.now() + Duration::from_millis(1)));
    world.pass(1);
    assert_eq!(world.sent(0), ["register"]);
    assert_eq!(world.in_queue().len(), 1);
}

#[test]
fn tickets_behind_their_own_instance_join_the_queue_when_another_waits_and_stand_behind_it() {
    let mut world = holds();
    world.join(0);
    world.sent(0);
    let [stranger] = world.strangers(1)[..] else { unreachable!("one was asked for") };
    world.with(0, |instance, context| instance.machine.queue_hint(context));
    assert_eq!(world.sent(0), ["register", "read the queue"]);
    assert_eq!(world.in_queue()[0], stranger);
    world.ends(0, Handback::default());
    assert_eq!(successor(&world.perform(0)), Some(stranger));
}

#[test]
fn another_that_waits_unheard_is_given_the_lock_within_a_second_of_turns() {
    let mut world = holds();
    world.join(0);
    world.sent(0);
    let [stranger] = world.strangers(1)[..] else { unreachable!("one was asked for") };
    let began = world.clock.now();
    while world.instances[0].running.is_some() {
        assert!(world.clock.now().since(began) <= Duration::from_secs(1), "it is never given the lock");
        world.pass(100);
        world.join(0);
        world.ends(0, Handback::default());
        world.sent(0);
    }
    let LockSeen::Found(record) = ready(world.store.locks(vec![lock()], LIMIT)).remove(0) else {
        panic!("the lock has a record");
    };
    assert!(record.is_held_by(stranger), "{record:?}");
}

#[test]
fn a_lock_that_changes_hands_between_instances_costs_its_heir_a_look_and_a_release() {
    let mut world = holds();
    world.join(1);
    world.sent(1);
    world.ends(0, Handback::default());
    assert!(world.sent(0).contains(&"release"));
    world.with(1, |instance, context| instance.machine.handed(context));
    assert_eq!(world.sent(1), ["look", "read the queue"]);
    world.ends(1, Handback::default());
    assert_eq!(world.sent(1)[0], "release");
}

#[test]
fn a_ticket_that_comes_again_after_a_hand_over_joins_the_queue_and_does_not_try() {
    let mut world = handed_over();
    world.pass(99);
    assert!(!matches!(world.with(0, |instance, context| instance.machine.next(context)), NextOp::Idle));
    world.join(0);
    assert_eq!(world.sent(0), ["register"]);
    world.pass(10);
    assert_eq!(world.sent(0), ["look"]);
}

#[test]
fn a_ticket_that_comes_again_while_others_are_before_it_does_not_look_while_the_lock_changes_hands() {
    let (mut world, _) = has_its_turn();
    world.strangers(1);
    world.ends(1, Handback::default());
    world.sent(1);
    world.pass(10);
    world.join(1);
    assert_eq!(world.sent(1), ["register"]);
    world.pass(999);
    assert_eq!(world.sent(1), [""; 0]);
    world.pass(1);
    assert_eq!(world.sent(1), ["look"]);
}

#[test]
fn a_lock_that_was_handed_over_is_forgotten_soon() {
    let mut world = handed_over();
    world.pass(100);
    assert_eq!(world.with(0, |instance, context| instance.machine.next(context)), NextOp::Idle);
    assert!(world.instances[0].machine.is_done());
}

#[test]
fn a_place_that_had_its_turn_is_left_with_the_release() {
    let (mut world, stranger) = has_its_turn();
    assert_eq!(world.in_queue().len(), 2, "a job that ends at once releases the lock first");
    world.ends(1, Handback::default());
    while !matches!(world.perform(1), Op::Release { .. }) {}
    assert_eq!(world.in_queue(), [stranger]);
}

#[test]
fn a_place_that_could_not_be_left_with_the_release_is_left_later() {
    let (mut world, stranger) = has_its_turn();
    world.refuses = &[QueueWork::Leaving];
    world.ends(1, Handback::default());
    while !matches!(world.perform(1), Op::Release { .. }) {}
    assert_eq!(world.in_queue().len(), 2);
    world.refuses = &[];
    world.pass(2 * u64::try_from(FIRST_REST.as_millis()).unwrap());
    assert_eq!(world.sent(1), ["leave"]);
    assert_eq!(world.in_queue(), [stranger]);
}

/// A world in which the first instance has handed the lock to the second, which has not heard of it.
fn handed_over() -> World {
    let mut world = holds();
    world.join(1);
    world.sent(1);
    world.ends(0, Handback::default());
    world.sent(0);
    world
}

/// A world in which the second instance was handed the lock, and a stranger waits.
fn has_its_turn() -> (World, SessionId) {
    let mut world = handed_over();
    world.hears(1);
    world.sent(1);
    assert!(world.instances[1].running.is_some());
    let [stranger] = world.strangers(1)[..] else { unreachable!("one was asked for") };
    world.with(1, |instance, context| instance.machine.queue_hint(context));
    (world, stranger)
}

#[test]
fn tickets_that_waited_among_themselves_join_the_queue_in_their_order() {
    let mut world = holds();
    for _ in 0..3 {
        world.join(0);
    }
    let [stranger] = world.strangers(1)[..] else { unreachable!("one was asked for") };
    world.ends(0, Handback::default());
    while !matches!(world.perform(0), Op::Release { .. }) {}
    let Op::Register(tickets) = world.perform(0) else { panic!("the lock is another's") };
    assert_eq!(tickets.iter().map(|by| by.ticket.get()).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(world.in_queue()[0], stranger);
}

#[test]
fn a_lock_whose_heir_here_gives_up_is_released_on_the_condition_that_no_other_waits() {
    let mut world = holds();
    world.join(0);
    assert_eq!(world.sent(0), ["read the queue"]);
    let [stranger] = world.strangers(1)[..] else { unreachable!("one was asked for") };
    world.ends(0, Handback::default());
    world.with(0, |instance, context| {
        instance.pending.remove(&Ticket::new(2));
        instance.machine.leave(context.now, Ticket::new(2));
    });
    while !matches!(world.perform(0), Op::Release { then: ReleaseTo::HandTo(by), .. } if by.session == stranger)
    {
    }
}

#[test]
fn a_hand_over_told_during_another_look_is_looked_at_before_the_queue() {
    let mut world = holds();
    world.join(1);
    world.sent(1);
    world.hears(1);
    let session = world.instances[1].session;
    let mut op = world.begins(1);
    while op != Op::Look {
        let answer = world.apply(session, &op);
        world.answer(1, op, answer);
        op = world.begins(1);
    }
    let before = world.apply(session, &op);
    world.ends(0, Handback::default());
    world.sent(0);
    world.with(1, |instance, context| instance.machine.handed(context));
    world.answer(1, op, before);
    assert_eq!(world.sent(1)[0], "look");
    assert!(world.instances[1].running.is_some());
}

#[test]
fn a_ticket_that_looks_before_it_joins_looks_again_once_it_has_joined() {
    let mut world = holds();
    world.join(1);
    world.sent(1);
    world.with(1, |instance, context| {
        instance.pending.remove(&Ticket::new(1));
        instance.machine.leave(context.now, Ticket::new(1));
    });
    world.join(1);
    assert!(!world.sent(1).contains(&"register"), "it waits for others to join with it");
    let (_, term, _) = world.instances[0].running.unwrap();
    world.release(0, term);
    world.pass(10);
    assert_eq!(world.sent(1)[..2], ["register", "look"]);
    assert!(world.instances[1].running.is_some(), "it is free, and nobody says so");
}

#[test]
fn a_part_of_a_queue_that_has_run_out_is_read_again() {
    let mut world = holds();
    for _ in 0..=FIRST_IN_QUEUE {
        world.join(0);
    }
    world.pass(1000);
    world.sent(0);
    let [stranger] = world.strangers(1)[..] else { unreachable!("one was asked for") };
    for _ in 0..=FIRST_IN_QUEUE {
        world.join(0);
    }
    for _ in 0..FIRST_IN_QUEUE + 2 {
        world.ends(0, Handback::default());
        world.sent(0);
        if world.instances[0].running.is_none() {
            break;
        }
    }
    let record = ready(world.store.locks(vec![lock()], LIMIT)).remove(0).found().unwrap();
    assert!(record.is_held_by(stranger), "{record:?}");
}

#[test]
fn a_lock_whose_take_over_here_fails_goes_by_a_release() {
    for applied in [Applied::No, Applied::Unknown] {
        let mut world = holds();
        world.join(0);
        world.sent(0);
        world.strangers(1);
        world.ends(0, Handback::default());
        let take = world.begins(0);
        assert!(matches!(take, Op::Take { .. }), "{take:?}");
        let error = StoreError::new("memory", "take locks", applied, false, "it lacks the right");
        world.answer(0, take, OpReply::Failed(Arc::new(error)));
        // A failure has its pause.
        world.pass(200);
        while !matches!(world.perform(0), Op::Release { then: ReleaseTo::Free, .. }) {}
        assert!(world.tells_of_a_free_lock(), "{applied:?}");
    }
}

#[test]
fn a_lock_that_is_released_to_nobody_is_told_of_to_one_that_came_after_the_queue_was_read() {
    let mut world = holds();
    world.with(0, |instance, context| instance.machine.queue_hint(context));
    world.ends(0, Handback::default());
    assert!(matches!(world.perform(0), Op::ReadQueue { .. }));
    world.strangers(1);
    assert_eq!(successor(&world.perform(0)), None, "nobody was in the queue");
    assert!(world.tells_of_a_free_lock());
}

#[test]
fn a_waiter_whose_lock_bears_no_mark_joins_the_queue_again() {
    let mut world = one_waits(WaitMode::WAITS);
    world.sent(1);
    // It becomes free, which takes the mark away, and is another's before the waiter looks.
    let (_, term, _) = world.instances[0].running.unwrap();
    world.release(0, term);
    let take = Take { lock: lock(), by: World::candidate(world.open(), Ticket::new(1)) };
    ready(world.store.take(vec![take], vec![], LIMIT));
    world.hears(1);
    assert_eq!(world.sent(1).last(), Some(&"look"));
    world.pass(10);
    assert_eq!(world.sent(1), ["register", "look"]);
    let record = ready(world.store.locks(vec![lock()], LIMIT)).remove(0).found().unwrap();
    assert!(record.wanted, "{record:?}");
}

#[test]
fn a_try_of_one_that_handed_the_lock_over_is_refused_by_what_the_store_has_now_alone() {
    let mut world = handed_over();
    world.contend(0, Patience::Once);
    assert_eq!(world.sent(0), ["peek"], "a read costs less than a take that loses");
    assert!(world.instances[0].pending.is_empty());

    let mut world = handed_over();
    world.hears(1);
    world.sent(1);
    world.ends(1, Handback::default());
    world.sent(1);
    world.contend(0, Patience::Once);
    assert_eq!(world.sent(0), ["peek", "take"]);
    assert!(world.instances[0].running.is_some());
}
