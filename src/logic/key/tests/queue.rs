//! The queue decides nothing: an operation on it that fails keeps no ticket from the lock, and no session is given
//! the lock that was not seen to live.

use super::*;

/// Each sort of work on the queue that a store may refuse for ever, and all of them.
const REFUSED: [&[QueueWork]; 4] = [
    &[QueueWork::Standing],
    &[QueueWork::Leaving],
    &[QueueWork::Reading],
    &[QueueWork::Standing, QueueWork::Leaving, QueueWork::Reading],
];

impl World {
    /// Next operation of the machine.
    pub(super) fn begins(&mut self, place: usize) -> Op {
        match self.with(place, |instance, context| instance.machine.next(context)) {
            NextOp::Do(op) => op,
            other => panic!("it does something, and not {other:?}"),
        }
    }

    pub(super) fn answer(&mut self, place: usize, op: Op, answer: OpReply) {
        let now = self.clock.now();
        self.with(place, |instance, context| instance.machine.answered(context, now, op, answer));
    }

    /// Lets it do this now, as the store does it.
    pub(super) fn perform(&mut self, place: usize) -> Op {
        let op = self.begins(place);
        let answer = self.apply(self.instances[place].session, &op);
        self.answer(place, op.clone(), answer);
        op
    }

    /// Puts so many sessions into the queue, which no machine here has anything to do with.
    pub(super) fn strangers(&mut self, many: usize) -> Vec<SessionId> {
        let sessions: Vec<_> = (0..many).map(|_| self.open()).collect();
        for session in &sessions {
            let by = Self::candidate(*session, Ticket::new(1));
            ready(self.store.wait(vec![Wait { lock: lock(), by }], LIMIT));
            self.pass(1);
        }
        sessions
    }

    pub(super) fn ends(&mut self, place: usize, handback: Handback) {
        let (ticket, ..) = self.instances[place].running.take().expect("it runs");
        self.with(place, |instance, context| instance.machine.ended(context, ticket, handback));
    }

    pub(super) fn hears(&mut self, place: usize) {
        self.with(place, |instance, context| instance.machine.hint(context));
    }

    pub(super) fn join(&mut self, place: usize) {
        let session = self.instances[place].session;
        self.with(place, |instance, context| {
            let ticket = Ticket::new(instance.next_ticket);
            instance.next_ticket += 1;
            instance.pending.insert(ticket, Patience::Waits);
            instance.machine.contend(context, World::candidate(session, ticket), WaitMode::WAITS);
        });
    }

    /// Returns whether bells for any session have told that the lock is free.
    pub(super) fn tells_of_a_free_lock(&mut self) -> bool {
        self.hear();
        self.arriving.iter().flatten().any(|hint| *hint == Hint::News(News::Lock(lock())))
    }

    pub(super) fn in_queue(&self) -> Vec<SessionId> {
        let queue = ready(self.store.waiters(lock(), 1000, LIMIT));
        queue.waiters.iter().map(|waiter| waiter.by.session).collect()
    }
}

/// Returns a world where one instance holds the lock, and nothing else happens.
pub(super) fn holds() -> World {
    let mut world = World::new(1, 2, Flaws::default());
    world.calm = true;
    world.join(0);
    world.sent(0);
    assert!(world.instances[0].running.is_some());
    world
}

pub(super) fn successor(op: &Op) -> Option<SessionId> {
    match op {
        Op::Release { then: ReleaseTo::HandTo(by), .. } => Some(by.session),
        Op::Release { then: ReleaseTo::Free, .. } => None,
        other => panic!("it releases, and not {other:?}"),
    }
}

#[test]
fn a_waiter_refused_by_the_queue_takes_a_freed_lock_within_a_poll_and_takes_it_again() {
    for refuses in REFUSED {
        let mut world = one_waits(WaitMode::WAITS);
        world.refuses = refuses;
        world.sent(1);
        let (_, term, _) = world.instances[0].running.unwrap();
        // No hint notifies it.
        world.release(0, term);
        for _ in 0..POLL.as_millis() / 100 {
            world.pass(100);
            world.sent(1);
        }
        assert!(world.instances[1].running.is_some(), "{refuses:?}: it was free for a whole poll");
        for _ in 0..3 {
            world.ends(1, Handback::default());
            world.sent(1);
            assert_eq!(world.left_behind(), None, "{refuses:?}: it is released at once");
            world.join(1);
            world.sent(1);
            assert!(world.instances[1].running.is_some(), "{refuses:?}: it is free, and taken at once");
        }
    }
}

#[test]
fn a_waiter_refused_by_the_queue_takes_over_at_a_death_and_at_a_hint() {
    for refuses in REFUSED {
        let mut world = one_waits(WaitMode::WAITS);
        world.refuses = refuses;
        world.sent(1);
        world.die(0);
        world.sent(1);
        assert!(world.instances[1].running.is_some(), "{refuses:?}: its holder died");

        let mut world = one_waits(WaitMode::WAITS);
        world.refuses = refuses;
        world.sent(1);
        let (_, term, _) = world.instances[0].running.unwrap();
        world.release(0, term);
        world.hears(1);
        world.sent(1);
        assert!(world.instances[1].running.is_some(), "{refuses:?}: it was freed");
    }
}

#[test]
fn refused_queue_work_is_retried_at_the_pace_of_the_poll_and_leaving_is_given_up() {
    for refuses in REFUSED {
        let mut world = one_waits(WaitMode::WAITS);
        world.refuses = refuses;
        world.sent(1);
        let mut sent = 0;
        for _ in 0..3000 {
            world.pass(100);
            sent += world.sent(1).into_iter().filter(|sent| *sent != "look" && *sent != "poll").count();
        }
        // Five minutes are 60 polls.
        assert!(sent < 200, "{refuses:?}: {sent} in five minutes");
    }
    let mut world = one_waits(WaitMode::WAITS);
    world.sent(1);
    world.refuses = &[QueueWork::Leaving];
    world.instances[1].pending.clear();
    world.with(1, |instance, context| instance.machine.leave(context.now, Ticket::new(1)));
    for _ in 0..600 {
        world.pass(100);
        world.sent(1);
    }
    assert!(world.instances[1].machine.is_done(), "{:?}", world.instances[1].machine);
    assert_eq!(world.in_queue(), [world.instances[1].session], "its place is left behind");
}

#[test]
fn no_two_run_at_once_and_every_ticket_is_answered_also_where_the_queue_is_refused() {
    for refuses in REFUSED {
        for seed in 0..40 {
            run_where(refuses, seed, Flaws::default()).unwrap_or_else(|found| panic!("{refuses:?}: {found}"));
        }
    }
}

#[test]
fn a_release_goes_to_the_first_that_beats_however_far_back_it_is() {
    for (dead, silent) in [(0, 0), (1, 0), (3, 2), (0, 7), (4, 4), (0, 8), (40, 0), (0, 100)] {
        let mut world = holds();
        let gone = world.strangers(dead + silent);
        world.dead.extend(&gone[..dead]);
        world.overdue.extend(&gone[dead..]);
        let lives = world.strangers(1)[0];
        world.with(0, |instance, context| instance.machine.queue_hint(context));
        world.pass(60_000);
        world.ends(0, Handback::default());
        assert_eq!(world.perform(0), Op::ReadQueue { most: FIRST_IN_QUEUE, to: None });
        if dead + silent >= FIRST_IN_QUEUE {
            assert_eq!(world.perform(0), Op::ReadQueue { most: WHOLE_QUEUE, to: None });
        }
        assert_eq!(successor(&world.perform(0)), Some(lives), "{dead} dead and {silent} silent before it");
    }
}

#[test]
fn a_lock_is_released_to_nobody_where_nobody_beats() {
    let mut world = holds();
    let gone = world.strangers(50);
    world.dead.extend(&gone[..10]);
    world.overdue.extend(&gone[10..]);
    world.with(0, |instance, context| instance.machine.queue_hint(context));
    world.ends(0, Handback::default());
    assert!(matches!(world.perform(0), Op::ReadQueue { .. }));
    assert_eq!(world.perform(0), Op::ReadQueue { most: WHOLE_QUEUE, to: None });
    assert_eq!(successor(&world.perform(0)), None);
}

#[test]
fn a_queue_that_was_read_while_the_lock_was_held_is_judged_as_its_waiters_stand_at_the_release() {
    for (passes, falls_silent) in [(999, false), (999, true), (1000, false)] {
        let mut world = holds();
        let waits = world.strangers(2);
        world.with(0, |instance, context| instance.machine.queue_hint(context));
        assert_eq!(world.perform(0), Op::ReadQueue { most: FIRST_IN_QUEUE, to: None });
        world.pass(passes);
        if falls_silent {
            world.overdue.insert(waits[0]);
        }
        world.ends(0, Handback::default());
        if passes == 1000 {
            assert_eq!(world.perform(0), Op::ReadQueue { most: FIRST_IN_QUEUE, to: None }, "it is old");
        }
        assert_eq!(successor(&world.perform(0)), Some(waits[usize::from(falls_silent)]));
    }
}

#[test]
fn a_queue_of_which_nobody_is_given_the_lock_is_read_again_when_somebody_comes_and_at_the_release() {
    let mut world = holds();
    let silent = world.strangers(1);
    world.overdue.extend(silent);
    let queue_hint = |world: &mut World| {
        world.with(0, |instance, context| instance.machine.queue_hint(context));
    };
    queue_hint(&mut world);
    let read = Op::ReadQueue { most: FIRST_IN_QUEUE, to: None };
    assert_eq!(world.perform(0), read);
    let lives = world.strangers(1)[0];
    queue_hint(&mut world);
    assert_eq!(world.perform(0), read);
    world.overdue.insert(lives);
    let comes = world.strangers(1)[0];
    world.ends(0, Handback::default());
    assert_eq!(world.perform(0), read);
    assert_eq!(successor(&world.perform(0)), Some(comes));
}

#[test]
fn a_named_successor_is_given_the_lock_if_it_beats() {
    for lives in [true, false] {
        let mut world = holds();
        let first = world.strangers(1)[0];
        let (other, to) = (world.open(), "other".parse::<Holder>().unwrap());
        let by = Candidate { holder: to.clone(), ..World::candidate(other, Ticket::new(1)) };
        ready(world.store.wait(vec![Wait { lock: lock(), by }], LIMIT));
        if !lives {
            world.overdue.insert(other);
        }
        world.ends(0, Handback { to: Some(to.clone()), ..Handback::default() });
        assert_eq!(world.perform(0), Op::ReadQueue { most: WHOLE_QUEUE, to: Some(to) });
        assert_eq!(successor(&world.perform(0)), Some(if lives { other } else { first }));
    }
}

#[test]
fn a_release_does_not_wait_for_a_queue_that_cannot_be_read() {
    let mut world = holds();
    world.strangers(1);
    world.with(0, |instance, context| instance.machine.queue_hint(context));
    world.pass(60_000);
    world.ends(0, Handback::default());
    let read = world.begins(0);
    assert!(matches!(read, Op::ReadQueue { .. }), "{read:?}");
    let error = StoreError::new("memory", "read the queue", Applied::No, false, "it is refused");
    world.answer(0, read, OpReply::Failed(Arc::new(error)));
    assert_eq!(successor(&world.perform(0)), None, "at the same moment");
}

#[test]
fn the_places_of_the_dead_are_removed_by_whoever_reads_the_queue_and_of_the_overdue_never() {
    for holder_reads in [true, false] {
        let mut world = one_waits(WaitMode::WAITS);
        let gone = world.strangers(5);
        world.dead.extend(&gone[..2]);
        world.overdue.extend(&gone[2..]);
        world.sent(1);
        world.pass(60_000);
        if holder_reads {
            world.with(0, |instance, context| instance.machine.queue_hint(context));
            world.sent(0);
        } else {
            world.sent(1);
        }
        let stays: Vec<_> = gone[2..].iter().copied().chain([world.instances[1].session]).collect();
        assert_eq!(world.in_queue(), stays);
    }
}

#[test]
fn the_own_places_are_removed_when_the_session_is_over() {
    let mut world = one_waits(WaitMode::WAITS);
    world.sent(1);
    let old = world.instances[1].session;
    assert_eq!(world.in_queue(), [old]);
    world.die(1);
    // The store is out of reach for longer than leaving is tried.
    world.refuses = &[QueueWork::Leaving];
    let session = std::mem::replace(&mut world.instances[1].session, SessionId::from_u128(77));
    for _ in 0..600 {
        world.pass(100);
        let now = world.clock.now();
        let context = Context {
            now,
            current: None,
            known: &|_| None,
            beats: &|_| false,
            store_now: None,
            roll: world.dice.roll(),
        };
        if let NextOp::Do(op) = world.instances[1].machine.next(context) {
            let error = StoreError::new("memory", "leave", Applied::Unknown, true, "it is out of reach");
            world.instances[1].machine.answered(context, now, op, OpReply::Failed(Arc::new(error)));
        }
    }
    world.instances[1].session = session;
    world.refuses = &[];
    world.pass(u64::try_from(POLL.as_millis()).unwrap());
    world.sent(1);
    assert_eq!(world.in_queue(), []);
    assert!(world.instances[1].machine.is_done());
}

#[test]
fn waiters_that_do_not_beat_do_not_delay_those_behind_them() {
    for (silent, alive, back) in [(3, 0, 0), (3, 2, 100), (QUEUE_READ + 9, 0, 0), (QUEUE_READ - 1, 9, 50)] {
        let mut world = holds();
        let before = world.strangers(silent + alive);
        world.overdue.extend(&before[..silent]);
        world.join(1);
        world.sent(1);
        let (_, term, _) = world.instances[0].running.unwrap();
        world.release(0, term);
        world.hears(1);
        let before = world.clock.now();
        while world.instances[1].running.is_none() {
            world.sent(1);
            world.pass(1);
        }
        let took = u64::try_from(world.clock.now().since(before).as_millis()).unwrap() - 1;
        assert_eq!(took, back, "{silent} are silent before it, and {alive} are not");
    }
}

#[test]
fn a_waiter_that_knows_it_is_first_takes_a_freed_lock_without_reading_the_queue_again() {
    let mut world = one_waits(WaitMode::WAITS);
    world.sent(1);
    world.sent_at_the_next_poll(1);
    let (_, term, _) = world.instances[0].running.unwrap();
    world.release(0, term);
    world.hears(1);
    assert_eq!(world.sent(1)[..2], ["look", "take"]);
    assert!(world.instances[1].running.is_some());
}

/// The holder hands the lock to a ticket of the second instance, which has just given up.
fn handed_to_one_that_left() -> World {
    let mut world = one_waits(WaitMode::WAITS);
    world.sent(1);
    world.join(1);
    world.sent(1);
    let heir = World::candidate(world.instances[1].session, Ticket::new(1));
    let (_, term, _) = world.instances[0].running.unwrap();
    let (session, then) = (world.instances[0].session, ReleaseTo::HandTo(Box::new(heir)));
    let release = Release { lock: lock(), session, term, note: None, then };
    ready(world.store.release(vec![release], LIMIT));
    world.with(1, |instance, context| {
        instance.pending.remove(&Ticket::new(1));
        instance.machine.leave(context.now, Ticket::new(1));
        instance.machine.handed(context);
    });
    world
}

#[test]
fn the_next_of_an_instance_takes_the_place_of_one_that_gave_up() {
    let mut world = handed_to_one_that_left();
    let sent = world.sent(1);
    assert!(sent.contains(&"take") && !sent.contains(&"release"), "{sent:?}");
    assert_eq!(world.instances[1].running.map(|(ticket, ..)| ticket), Some(Ticket::new(2)));
    // If that one gives up as well, the lock goes on.
    let mut world = handed_to_one_that_left();
    while !matches!(world.perform(1), Op::Look | Op::Poll { .. }) {}
    world.with(1, |instance, context| {
        instance.pending.remove(&Ticket::new(2));
        instance.machine.leave(context.now, Ticket::new(2));
    });
    world.sent(1);
    assert_eq!(world.left_behind(), None);
}

#[test]
fn however_many_come_to_wait_the_lock_is_looked_at() {
    let mut world = one_waits(WaitMode::WAITS);
    world.sent(1);
    let mut looks = 0;
    for _ in 0..10 {
        world.join(1);
        world.hears(1);
        looks += u32::from(!matches!(world.perform(1), Op::Register(_)));
    }
    assert!(looks >= 5, "{looks} of 10");
}

#[test]
fn an_instance_whose_waiters_give_up_one_after_the_other_lets_the_lock_go() {
    let mut world = handed_to_one_that_left();
    world.join(1);
    loop {
        let op = world.begins(1);
        let is_take = matches!(op, Op::Take { .. });
        if is_take {
            world.with(1, |instance, context| {
                instance.pending.remove(&Ticket::new(2));
                instance.machine.leave(context.now, Ticket::new(2));
            });
        }
        let answer = world.apply(world.instances[1].session, &op);
        world.answer(1, op, answer);
        if is_take {
            break;
        }
    }
    let sent = world.sent(1);
    assert!(sent.contains(&"release"), "{sent:?}");
}
