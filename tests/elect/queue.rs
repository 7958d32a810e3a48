//! Standing in the queue: it decides nothing, and nobody who is dead stands in anybody's way.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tenure::{
    Elect, Guard,
    elect::{Acquired, Unlocked},
    sim::Dice,
    store::Store,
    testing::{Call, Course, Fault, Faulty, Intercept, Intercepted, Operation},
};
use tokio::{task::JoinHandle, time::Instant};

use crate::{
    elect::world::{SECOND, World},
    turns::{take_after_others_gave_up, take_turns},
};

/// Operations on the queue that a store may refuse for ever, and all of them.
const REFUSED: [&[Operation]; 5] = [
    &[Operation::Wait],
    &[Operation::StopWaiting],
    &[Operation::Waiters],
    &[Operation::Places],
    &[Operation::Wait, Operation::StopWaiting, Operation::Waiters, Operation::Places],
];

fn waits(elect: &Elect) -> JoinHandle<Guard> {
    let elect = elect.clone();
    tokio::spawn(async move { elect.acquire("k").await.unwrap() })
}

fn unreachable(faulty: &Intercepted<Faulty>) {
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
}

#[tokio::test(start_paused = true)]
async fn a_standby_whose_place_is_refused_takes_over_from_the_dead_and_the_closed_and_leads_again() {
    for refused in REFUSED {
        for dies in [true, false] {
            let world = World::new();
            let (first, of_first) = world.instance("a").await;
            let leads = first.campaign("k").start().unwrap();
            leads.led().await.unwrap();
            let (second, of_second) = world.instance("b").await;
            of_second.intercept().always(refused, Fault::Refused);
            let standby = second.campaign("k").start().unwrap();
            tokio::time::sleep(SECOND * 20).await;
            let before = Instant::now();
            // A ttl, and a poll.
            let most = if dies {
                unreachable(&of_first);
                SECOND * 36
            } else {
                first.close().await;
                SECOND * 6
            };
            standby.led().await.unwrap();
            assert!(before.elapsed() < most, "{refused:?}, dies: {dies}: {:?}", before.elapsed());
            for _ in 0..3 {
                let before = Instant::now();
                assert_eq!(second.unlock("k").await.unwrap(), Unlocked::Released);
                assert!(before.elapsed() < SECOND / 10, "{refused:?}: released after {:?}", before.elapsed());
                let before = Instant::now();
                standby.led().await.unwrap();
                // It rests for an interval, or until it is wanted no more.
                assert!(before.elapsed() < SECOND * 31, "{refused:?}: led after {:?}", before.elapsed());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_whose_places_are_refused_take_turns() {
    for refused in REFUSED {
        let world = World::new();
        let mut both = Vec::new();
        for name in ["a", "b"] {
            let (elect, faulty) = world.instance(name).await;
            faulty.intercept().always(refused, Fault::Refused);
            both.push(elect);
        }
        let mut guard = both[0].acquire("k").await.unwrap();
        for turn in 1..10 {
            let next = waits(&both[turn % 2]);
            tokio::time::sleep(SECOND * 7).await;
            assert!(!next.is_finished());
            let before = Instant::now();
            guard.release().await.unwrap();
            guard = next.await.unwrap();
            // Who is in no queue, or cannot be read there, is not told.
            let is_told =
                [Operation::Wait, Operation::Waiters].iter().all(|needed| !refused.contains(needed));
            let most = if is_told { SECOND / 2 } else { SECOND * 6 };
            assert!(before.elapsed() < most, "{refused:?}: {:?}", before.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gave_up_and_cannot_leave_the_queue_keeps_the_lock_from_nobody() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, faulty) = world.instance("b").await;
    let (third, _) = world.instance("c").await;
    faulty.intercept().always(&[Operation::StopWaiting], Fault::Refused);
    let guard = first.acquire("k").await.unwrap();
    for _ in 0..20 {
        let waiting = waits(&second);
        tokio::time::sleep(SECOND / 10).await;
        waiting.abort();
    }
    let next = waits(&third);
    // Leaving is given up; the places stay.
    tokio::time::sleep(SECOND * 120).await;
    let before = Instant::now();
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    // It is handed to a place of one that waits no more, and listens no more: its audits find that, which come once a
    // ttl, since it holds nothing.
    assert!(before.elapsed() < World::config("b").ttl() * 2, "{:?}", before.elapsed());
    tokio::time::sleep(SECOND * 120).await;
    let text = format!("{second:?}");
    assert!(text.contains("Keys { keys: 0 }"), "nothing of it is kept in the process: {text}");
}

/// As by a primary that has stood down: the next one answers.
#[tokio::test(start_paused = true)]
async fn a_queue_that_was_refused_once_is_read_again_before_the_lock_is_released_to_nobody() {
    let world = World::new();
    let (first, faulty) = world.instance("a").await;
    let (second, _) = world.instance("b").await;
    let guard = first.acquire("k").await.unwrap();
    let next = waits(&second);
    tokio::time::sleep(SECOND / 10).await;
    faulty.intercept().next(Operation::Waiters, Fault::Refused);
    let before = Instant::now();
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    assert!(before.elapsed() < SECOND, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_handed_to_one_who_has_just_given_up_is_passed_on_at_once() {
    let world = World::new();
    let (first, _) = world.instance("a").await;
    let (second, faulty) = world.instance("b").await;
    let (third, _) = world.instance("c").await;
    let guard = first.acquire("k").await.unwrap();
    let waiting = waits(&second);
    tokio::time::sleep(SECOND / 10).await;
    let next = waits(&third);
    tokio::time::sleep(SECOND / 10).await;
    // Its place is still there when the holder reads the queue.
    faulty.intercept().always(&[Operation::StopWaiting], Fault::Refused);
    waiting.abort();
    let before = Instant::now();
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    assert!(before.elapsed() < SECOND, "{:?}", before.elapsed());
}

/// Operations that two instances ask of the store, one after the other.
#[derive(Clone, Debug, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

/// Name of one of the two instances, and the operations of both.
#[derive(Debug)]
struct Asks(&'static str, Asked);

impl Asked {
    fn push(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

impl Intercept for Asks {
    fn decide(&self, call: &Call) -> Course {
        // What an instance does from time to time anyway; and nobody waits until somebody has left the queue.
        if !matches!(call.operation, Operation::Beat | Operation::HeldBy | Operation::StopWaiting) {
            self.1.push(format!("{}: {}", self.0, call.operation));
        }
        Course::PLAIN
    }
}

/// A queue, as it is when its holder releases the lock.
struct Scene {
    guard: Guard,
    waiting: JoinHandle<Guard>,
    asked: Asked,
    /// Instances that live on.
    _engines: Vec<Elect>,
}

/// A queue in which so many died before the one that waits, so long ago; or were out of reach for a minute, so long
/// ago.
async fn scene(world: &World, dead: usize, since: Duration, back: bool) -> Scene {
    let asked = Asked::default();
    let counted = async |name: &'static str| {
        let store: Arc<dyn Store> = Asks(name, asked.clone()).around(Arc::new(world.memory.clone()));
        world.on(store, World::config(name)).start().await.unwrap()
    };
    let holder = counted("holder").await;
    let guard = holder.acquire("k").await.unwrap();
    let mut others = Vec::new();
    for number in 0..dead {
        let (elect, faulty) = world.instance(&format!("standby-{number}")).await;
        let waiting = waits(&elect);
        tokio::time::sleep(SECOND / 20).await;
        others.push((elect, faulty, waiting));
    }
    let lives = counted("lives").await;
    let waiting = tokio::spawn({
        let (lives, asked) = (lives.clone(), asked.clone());
        async move {
            let guard = lives.acquire("k").await.unwrap();
            asked.push("granted".to_owned());
            guard
        }
    });
    tokio::time::sleep(SECOND / 20).await;
    for (_, faulty, _) in &others {
        unreachable(faulty);
    }
    if back {
        tokio::time::sleep(SECOND * 60).await;
        for (_, faulty, _) in &others {
            faulty.intercept().heal();
        }
    }
    let mut engines = vec![holder, lives];
    for (elect, _, waiting) in others {
        if back {
            engines.push(elect);
        } else {
            waiting.abort();
        }
    }
    // Not at the very instant of somebody's look.
    tokio::time::sleep(since + SECOND / 25).await;
    Scene { guard, waiting, asked, _engines: engines }
}

impl Scene {
    /// Releases the lock: how soon the other has it, and what was asked of the store until then.
    async fn hand_over(self) -> (Duration, Vec<String>) {
        let before = Instant::now();
        self.asked.0.lock().unwrap().clear();
        let (got, released) = tokio::join!(self.waiting, self.guard.release());
        released.unwrap();
        let took = before.elapsed();
        drop(got.unwrap());
        let asked = self.asked.0.lock().unwrap().clone();
        let until = asked.iter().position(|asked| asked == "granted").unwrap();
        (took, asked[..until].to_vec())
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_lock_comes_to_the_first_who_lives_at_once_however_many_died_before_it() {
    let (_, alone) = scene(&World::new(), 0, SECOND * 60, false).await.hand_over().await;
    for (dead, since) in
        [1, 3, 4, 9, 40, 100].into_iter().flat_map(|dead| [5, 35, 60, 3000].map(|s| (dead, s)))
    {
        let (took, sent) = scene(&World::new(), dead, SECOND * since, false).await.hand_over().await;
        assert!(took < SECOND / 10, "{dead} dead for {since} s: after {took:?}");
        // The rest of the queue is read where none of its first beats; and who waits may look for itself meanwhile.
        assert!(sent.len() <= alone.len() + 6, "{dead} dead for {since} s: {sent:?}, alone {alone:?}");
    }
}

/// The successor was seen to beat, and may have begun: the others wait for its death.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_handed_to_one_that_has_just_died_comes_to_the_next_within_a_ttl_and_a_poll() {
    let config = World::config("any");
    for (dead, since) in [1, 3, 10].into_iter().flat_map(|dead| [1, 4].map(|s| (dead, SECOND * s))) {
        let (took, _) = scene(&World::new(), dead, since, false).await.hand_over().await;
        let longest = config.ttl() + config.poll_interval();
        assert!(took <= longest, "{dead} dead for {since:?}: after {took:?}, not within {longest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_lock_comes_to_the_first_who_lives_at_once_after_an_outage_of_the_others() {
    let (_, alone) = scene(&World::new(), 0, SECOND * 60, false).await.hand_over().await;
    for standbys in [3, 6, 9, 40] {
        for since in [10, 60] {
            let (took, sent) = scene(&World::new(), standbys, SECOND * since, true).await.hand_over().await;
            assert!(took < SECOND / 10, "{standbys} are back: after {took:?}");
            assert!(sent.len() <= alone.len() + 2, "{standbys} are back: {sent:?}, alone {alone:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_places_of_dead_sessions_are_removed_by_those_who_read_the_queue() {
    let world = World::new();
    let Scene { guard, waiting, _engines, .. } = scene(&world, 20, SECOND * 300, false).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    tokio::time::sleep(SECOND * 10).await;
    let left = format!("{:?}", world.memory);
    assert!(left.contains("waiters: 0"), "{left}");
}

#[tokio::test(start_paused = true)]
async fn the_own_places_of_a_session_that_is_over_are_removed_when_the_store_is_back() {
    let world = World::new();
    let (holder, _) = world.instance("a").await;
    let _guard = holder.acquire("k").await.unwrap();
    let (other, faulty) = world.instance("b").await;
    let _waiting = waits(&other);
    tokio::time::sleep(SECOND).await;
    unreachable(&faulty);
    tokio::time::sleep(SECOND * 300).await;
    faulty.intercept().heal();
    tokio::time::sleep(SECOND * 20).await;
    let left = format!("{:?}", world.memory);
    assert!(left.contains("waiters: 1"), "the place of its new session: {left}");
}

/// Memory of a key that is contended must go when nobody wants it any more.
#[tokio::test(start_paused = true)]
async fn keys_that_were_contended_once_are_forgotten_while_their_holder_lives() {
    let world = World::new();
    let (holder, _) = world.instance("a").await;
    let (other, _) = world.instance("b").await;
    let leads = holder.acquire("leader").await.unwrap();
    let waiting = {
        let other = other.clone();
        tokio::spawn(async move { other.acquire("leader").await.unwrap() })
    };
    let contend = async |from: usize, to: usize| {
        for number in from..to {
            let key = format!("order-{number}");
            let guard = holder.acquire(&key).await.unwrap();
            assert!(matches!(other.key(&key).try_acquire().await.unwrap(), Acquired::Busy(_)));
            guard.release().await.unwrap();
        }
        tokio::time::sleep(SECOND * 60).await;
        [&holder, &other].map(|elect| format!("{elect:?}"))
    };
    // Lists of the latest are full by then.
    let after_1500 = contend(0, 1500).await;
    let after_3500 = contend(1500, 3500).await;
    for (some, many) in after_1500.iter().zip(&after_3500) {
        let (some, many) = (some.len(), many.len());
        assert!(many < some + some / 10, "after 1,500 keys {some} letters, after 3,500 {many}");
    }
    drop((leads, waiting));
}

/// Grants to others that asked later, during one wait: 50 are half of all that one instance has. Before a look was sure to
/// come in time, it was 96.
const MOST_PASSED_OVER: u64 = 50;

/// A store whose calls take up to three milliseconds each way.
#[derive(Debug)]
struct Late(Mutex<Dice>);

impl Intercept for Late {
    fn decide(&self, _: &Call) -> Course {
        let (mut dice, most) = (self.0.lock().unwrap(), Duration::from_millis(3));
        Course::PLAIN.late_by(dice.up_to(most)).answered_after(dice.up_to(most))
    }
}

/// Instances on one store, whose calls take time or none.
async fn fleet(many: u64, seed: u64, latency: bool) -> Vec<Elect> {
    let (world, mut fleet) = (World::new(), Vec::new());
    for place in 0..many {
        let memory: Arc<dyn Store> = Arc::new(world.memory.clone());
        let late = Late(Mutex::new(Dice::new(seed * 100 + place)));
        let store = if latency { late.around(memory) } else { memory };
        let config = World::config(&format!("pod-{place}"));
        fleet.push(world.on(store, config).start().await.unwrap());
    }
    fleet
}

/// However the waiters of a key and its holders meet, none waits for the poll, nor while others come again and again.
#[tokio::test(start_paused = true)]
async fn instances_that_take_turns_wait_for_no_poll() {
    for (instances, seed) in [2, 3, 8].into_iter().flat_map(|many| (1..=4).map(move |seed| (many, seed))) {
        for latency in [false, true] {
            let elects = fleet(instances, seed, latency).await;
            let worst = take_turns(&elects, 100, seed).await;
            let told = format!("{instances} instances, seed {seed}, latency {latency}: {worst:?}");
            println!("{told}");
            assert!(worst.wait < elects[0].config().poll_interval() / 2, "{told}");
            assert!(worst.passed_over <= MOST_PASSED_OVER, "{told}");
            for elect in elects {
                elect.close().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_others_gave_up_is_taken_without_a_poll() {
    for latency in [false, true] {
        let elects = fleet(3, 1, latency).await;
        let longest = take_after_others_gave_up([&elects[0], &elects[1], &elects[2]], 100).await;
        assert!(longest < elects[0].config().poll_interval() / 2, "{longest:?}, latency {latency}");
    }
}
