//! A session, step by step; and a session, an observer and a store that loses, delays and doubles what
//! they say to it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures::FutureExt;

use super::*;
use crate::{
    clock::Clock,
    dice::Dice,
    logic::watch::{Due, Named, Observation},
    model::{SessionId, StoreTime, Why},
    store::{About, BeatWrite, Declaration, MemoryStore, Open, SessionRecord, StoreExt},
};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TIMES: Times = Times {
    ttl: Duration::from_secs(30),
    interval: Duration::from_secs(5),
    stop_grace: Duration::from_secs(5),
    margin: Duration::from_millis(800),
};

fn at(millis: u64) -> Moment {
    Moment::after_start(Duration::from_millis(millis))
}

fn about() -> About {
    About::new("n".parse().unwrap(), "pod".parse().unwrap())
}

fn record(beat: u64, nonce: u64) -> SessionRecord {
    let at = StoreTime::from_millis(0);
    let opened = SessionRecord::opened(SessionId::from_u128(1), about(), Nonce::new(nonce), TIMES.ttl, at);
    SessionRecord { beat: Beat::new(beat), ..opened }
}

/// A machine whose attempts bear the nonces 1, 2, 3...
struct BeatScript {
    machine: SessionMachine,
    nonce: u64,
}

impl BeatScript {
    fn new() -> Self {
        Self { machine: SessionMachine::new(TIMES, Flaws::default(), at(0)), nonce: 0 }
    }

    fn step(&mut self, millis: u64, event: SessionEvent) -> Vec<Action> {
        self.nonce += 1;
        self.machine.step(at(millis), event, Nonce::new(self.nonce), 0)
    }

    fn answer(&mut self, millis: u64, nonce: u64, beat: u64, found: u64) -> Vec<Action> {
        let sighting = SessionSeen::Alive(record(beat, found));
        self.step(millis, SessionEvent::Answered(Nonce::new(nonce), Box::new(sighting)))
    }

    /// Opened by attempt 1, sent at 0 and answered at 100 ms.
    fn opened() -> Self {
        let mut script = Self::new();
        assert!(matches!(script.step(0, SessionEvent::Wake)[..], [Action::Open { .. }]));
        let actions = script.answer(100, 1, 0, 1);
        assert_eq!(actions, [Action::Extend { end: at(29_200), took: MS * 100, sound: true }]);
        script
    }
}

#[test]
fn the_end_counts_from_the_sending_of_the_attempt_that_is_on_record() {
    let mut script = BeatScript::new();
    script.step(0, SessionEvent::Wake);
    // The first attempt fails, the second one finds that the first had been applied.
    script.step(2_500, SessionEvent::Failed(Nonce::new(1)));
    let second = script.nonce;
    let actions = script.answer(3_000, second, 0, 1);
    assert_eq!(actions, [Action::Extend { end: at(29_200), took: MS * 3_000, sound: true }]);
    // No answer is waited for any more: the next beat is due.
    assert_eq!(script.machine.deadline(), Some(at(5_000)));
}

#[test]
fn beats_are_counted_from_the_opening_that_is_on_record() {
    let mut script = BeatScript::new();
    script.step(0, SessionEvent::Wake);
    script.step(2_500, SessionEvent::Failed(Nonce::new(1)));
    script.answer(3_000, 2, 0, 2);
    assert_eq!(script.machine.deadline(), Some(at(7_500)));
}

#[test]
fn a_store_that_has_answered_is_asked_again_soon_after_its_next_failure() {
    let mut script = BeatScript::opened();
    let mut now = 5_000;
    let mut nonce = beat_sent(&script.step(now, SessionEvent::Wake));
    for wait in [50, 100, 200, 400] {
        assert_eq!(script.step(now + 1, SessionEvent::Failed(nonce)), []);
        now += wait;
        assert_eq!(script.machine.deadline(), Some(at(now)));
        nonce = beat_sent(&script.step(now, SessionEvent::Wake));
    }
    script.answer(now + 1, nonce.get(), 9, nonce.get());
    let nonce = beat_sent(&script.step(10_000, SessionEvent::Wake));
    assert_eq!(script.step(10_001, SessionEvent::Failed(nonce)), []);
    assert_eq!(script.machine.deadline(), Some(at(10_050)));
}

#[test]
fn a_late_answer_is_not_the_one_that_is_waited_for() {
    let mut script = BeatScript::opened();
    let first = beat_sent(&script.step(5_000, SessionEvent::Wake));
    let second = beat_sent(&script.step(7_500, SessionEvent::Failed(first)));
    let actions = script.answer(8_000, first.get(), 1, first.get());
    assert!(matches!(actions[..], [Action::Extend { end, .. }] if end == at(34_200)), "{actions:?}");
    // The second is under way: no other is sent, and only the expiry warning is due.
    assert_eq!(script.machine.deadline(), Some(at(29_200)));
    script.answer(8_100, second.get(), 2, second.get());
    assert_eq!(script.machine.deadline(), Some(at(15_000)), "10 s is no more than half an interval later");
}

#[test]
fn a_beat_is_early_by_a_fiftieth_of_its_interval_at_most() {
    let mut machine = SessionMachine::new(TIMES, Flaws::default(), at(0));
    machine.step(at(0), SessionEvent::Wake, Nonce::new(1), u64::MAX);
    let answer = SessionEvent::Answered(Nonce::new(1), Box::new(SessionSeen::Alive(record(0, 1))));
    machine.step(at(100), answer, Nonce::new(2), u64::MAX);
    let due = machine.deadline().unwrap();
    assert!(due >= at(4_900) && due < at(4_901), "{due:?}");
}

#[test]
fn beats_are_due_at_a_fixed_phase_and_never_later() {
    let mut script = BeatScript::opened();
    assert_eq!(script.machine.deadline(), Some(at(5_000)));
    let actions = script.step(5_000, SessionEvent::Wake);
    let [Action::Beat { number, nonce, limit }] = actions[..] else { panic!("{actions:?}") };
    assert_eq!((number, limit), (Beat::new(1), MS * 2_500));
    // It takes four seconds to be answered; the next one is due all the same.
    let actions = script.answer(9_000, nonce.get(), 1, nonce.get());
    assert_eq!(actions, [Action::Extend { end: at(34_200), took: MS * 4_000, sound: true }]);
    assert_eq!(script.machine.deadline(), Some(at(10_000)));
}

#[test]
fn a_failed_beat_is_sent_again_under_another_number_and_nonce() {
    let mut script = BeatScript::opened();
    let first = script.step(5_000, SessionEvent::Wake);
    let [Action::Beat { nonce, .. }] = first[..] else { panic!("{first:?}") };
    // It hung for its whole limit: there is no further pause.
    let second = script.step(7_500, SessionEvent::Failed(nonce));
    let [Action::Beat { number, nonce: again, .. }] = second[..] else { panic!("{second:?}") };
    assert_eq!(number, Beat::new(2));
    assert_ne!(nonce, again);
    // One that is refused at once is given a moment.
    assert_eq!(script.step(7_501, SessionEvent::Failed(again)), []);
    assert!(script.machine.deadline().unwrap() > at(7_501));
}

#[test]
fn jobs_are_told_before_the_end_and_nothing_is_valid_after_it() {
    let mut script = BeatScript::opened();
    let beat = script.step(5_000, SessionEvent::Wake);
    let [Action::Beat { nonce, .. }] = beat[..] else { panic!("{beat:?}") };
    assert_eq!(script.step(24_199, SessionEvent::Wake), []);
    let expiring = script.step(24_200, SessionEvent::Wake);
    assert!(
        matches!(expiring[..], [Action::Expiring(Loss::Expired { unreachable_for, .. })] if unreachable_for == MS * 24_200)
    );
    // Reported once.
    assert_eq!(script.step(24_300, SessionEvent::Wake), []);
    // An answer that comes at the end is none (R10).
    let end = script.answer(29_200, nonce.get(), 1, nonce.get());
    assert!(
        matches!(end[..], [Action::End(Loss::Expired { unreachable_for, .. })] if unreachable_for == MS * 29_200)
    );
    assert!(script.machine.is_over());
    assert_eq!(script.step(29_300, SessionEvent::Wake), []);
}

#[test]
fn a_beat_that_is_answered_while_the_session_expires_saves_it() {
    let mut script = BeatScript::opened();
    let beat = script.step(5_000, SessionEvent::Wake);
    let [Action::Beat { nonce, .. }] = beat[..] else { panic!("{beat:?}") };
    script.step(24_200, SessionEvent::Failed(nonce));
    let again = script.nonce;
    let actions = script.answer(24_500, again, 2, again);
    let saved =
        matches!(actions[..], [Action::Extend { end, sound: true, .. }] if end == at(24_200 + 29_200));
    assert!(saved, "{actions:?}");
    // Expiring again, it says so again.
    let expiring = script.step(24_200 + 24_200, SessionEvent::Wake);
    assert!(expiring.iter().any(|action| matches!(action, Action::Expiring(_))), "{expiring:?}");
}

#[test]
fn attempts_take_less_than_half_of_what_is_left() {
    let mut script = BeatScript::opened();
    for (now, most) in [(5_000, 2_500), (26_000, 1_599), (28_200, 499), (29_100, 49)] {
        let mut script = BeatScript { machine: script.machine.clone(), nonce: script.nonce };
        let actions = script.step(now, SessionEvent::Wake);
        let limit = actions.iter().find_map(|action| match action {
            Action::Beat { limit, .. } => Some(*limit),
            _ => None,
        });
        assert!(limit.unwrap() <= MS * most, "{now}: {actions:?}");
    }
    script.step(5_000, SessionEvent::Wake);
}

#[test]
fn a_session_ends_when_its_record_is_dead_gone_or_beaten_by_another_instance() {
    let death = crate::store::Death {
        at: StoreTime::from_millis(0),
        by: "other".parse().unwrap(),
        why: Why::shortened("no beat"),
    };
    let declared_dead = Loss::DeclaredDead { by: death.by.clone(), why: death.why.clone() };
    let dead = SessionSeen::Dead(SessionRecord { death: Some(death), ..record(0, 1) });
    // Another copy of this machine has beaten in its place.
    let twin = SessionSeen::Alive(record(7, 7_777));
    for (sighting, loss) in [
        (dead, declared_dead),
        (SessionSeen::Missing, Loss::Vanished { found: "the session's record is gone".into() }),
        (twin, Loss::Vanished { found: "another instance beats for this session".into() }),
    ] {
        let mut script = BeatScript::opened();
        let beat = script.step(5_000, SessionEvent::Wake);
        let [Action::Beat { nonce, .. }] = beat[..] else { panic!("{beat:?}") };
        assert_eq!(
            script.step(5_100, SessionEvent::Answered(nonce, Box::new(sighting))),
            [Action::End(loss)]
        );
    }
}

#[test]
fn an_id_that_belongs_to_another_is_not_used() {
    for sighting in [SessionSeen::Alive(record(0, 7_777)), SessionSeen::Alive(record(3, 8_888))] {
        let mut script = BeatScript::new();
        script.step(0, SessionEvent::Wake);
        assert_eq!(
            script.step(10, SessionEvent::Answered(Nonce::new(1), Box::new(sighting))),
            [Action::Rename]
        );
        assert!(script.machine.is_over());
    }
}

#[test]
fn a_beat_that_somebody_wants_now_does_not_shift_the_phase() {
    let mut script = BeatScript::opened();
    let beat = script.step(1_000, SessionEvent::Hurry);
    let [Action::Beat { nonce, .. }] = beat[..] else { panic!("{beat:?}") };
    script.answer(1_100, nonce.get(), 1, nonce.get());
    assert_eq!(script.machine.deadline(), Some(at(5_000)));
}

fn beat_sent(actions: &[Action]) -> Nonce {
    match actions {
        [Action::Beat { nonce, .. }] => *nonce,
        other => panic!("a beat and nothing else, not {other:?}"),
    }
}

#[test]
fn a_twin_that_beat_under_the_same_number_ends_the_session_and_an_older_beat_does_not() {
    let mut script = BeatScript::opened();
    let nonce = beat_sent(&script.step(5_000, SessionEvent::Wake));
    // The number is as high as ours, and the mark is not ours: a twin wrote it.
    let mut twin = BeatScript { machine: script.machine.clone(), nonce: script.nonce };
    assert!(matches!(twin.answer(5_100, nonce.get(), 1, 7_777)[..], [Action::End(Loss::Vanished { .. })]));
    // It is lower: an attempt of ours that is forgotten. The beat was not applied, and is sent again.
    let again = script.answer(5_100, nonce.get(), 0, 7_777);
    assert_ne!(beat_sent(&again), nonce);
}

#[test]
fn an_answer_that_comes_twice_is_heard_once_more_and_ends_nothing() {
    let mut script = BeatScript::opened();
    let nonce = beat_sent(&script.step(5_000, SessionEvent::Wake));
    for millis in [5_100, 5_200] {
        let actions = script.answer(millis, nonce.get(), 1, nonce.get());
        assert!(matches!(actions[..], [Action::Extend { end, .. }] if end == at(34_200)), "{actions:?}");
    }
}

#[test]
fn an_answer_that_leaves_the_end_where_it_was_leaves_the_session_expiring() {
    let mut script = BeatScript::opened();
    let nonce = beat_sent(&script.step(5_000, SessionEvent::Wake));
    assert!(matches!(script.step(24_200, SessionEvent::Wake)[..], [Action::Expiring(_)]));
    // The opening is on record still: the end is as near as it was, and no job is notified again.
    let actions = script.answer(24_300, nonce.get(), 0, 1);
    assert!(
        matches!(actions[0], Action::Extend { end, sound: false, .. } if end == at(29_200)),
        "{actions:?}"
    );
    assert!(!actions.iter().any(|action| matches!(action, Action::Expiring(_))), "{actions:?}");
    assert!(script.machine.deadline().unwrap() <= at(29_200));
}

#[test]
fn the_store_has_been_silent_since_the_last_beat_that_was_answered_was_sent() {
    let mut script = BeatScript::opened();
    let nonce = beat_sent(&script.step(5_000, SessionEvent::Wake));
    script.answer(6_000, nonce.get(), 1, nonce.get());
    beat_sent(&script.step(10_000, SessionEvent::Wake));
    // Only the expiry warning is due, and then the end.
    assert_eq!(script.machine.deadline(), Some(at(29_200)));
    let expiring = script.step(29_200, SessionEvent::Wake);
    assert!(
        matches!(expiring[..], [Action::Expiring(Loss::Expired { unreachable_for, .. })] if unreachable_for == MS * 24_200)
    );
    assert_eq!(script.machine.deadline(), Some(at(34_200)));
}

#[test]
fn an_opening_is_tried_again_until_it_is_answered_in_time() {
    let mut script = BeatScript::new();
    let Some(Action::Open { nonce, limit }) = script.step(0, SessionEvent::Wake).pop() else {
        panic!("it opens")
    };
    assert_eq!(limit, LONGEST_ATTEMPT);
    // Of a short lease it takes less than half.
    let short = Times { ttl: SECOND * 3, margin: MS * 260, ..TIMES };
    let mut short = SessionMachine::new(short, Flaws::default(), at(0));
    let actions = short.step(at(0), SessionEvent::Wake, Nonce::new(1), 0);
    assert_eq!(actions, [Action::Open { nonce: Nonce::new(1), limit: MS * 2_740 * 9 / 20 }]);
    // The record was deleted again; and an attempt that is given a pause cannot be hurried.
    assert_eq!(script.step(10, SessionEvent::Answered(nonce, Box::new(SessionSeen::Missing))), []);
    assert_eq!(script.step(11, SessionEvent::Hurry), []);
    assert!(matches!(script.step(200, SessionEvent::Wake)[..], [Action::Open { .. }]));
    // An answer that comes when nothing is left of its lease opens nothing (R10).
    let mut late = BeatScript { machine: script.machine.clone(), nonce: script.nonce };
    assert_eq!(late.answer(29_200, 1, 0, 1), [Action::TooLate { took: MS * 29_200 }]);
    assert!(late.machine.is_over());
}

#[test]
fn a_session_that_is_heard_of_in_its_grace_is_sound_after_its_next_beat() {
    let mut script = BeatScript::new();
    script.step(0, SessionEvent::Wake);
    script.step(2_500, SessionEvent::Failed(Nonce::new(1)));
    let mut in_time = BeatScript { machine: script.machine.clone(), nonce: script.nonce };
    let actions = in_time.answer(24_199, 2, 0, 1);
    assert!(matches!(actions[0], Action::Extend { sound: true, .. }), "{actions:?}");
    // No job has to be notified, for none began; and a beat goes out at once.
    let actions = script.answer(24_200, 2, 0, 1);
    let [Action::Extend { end, sound: false, .. }, Action::Beat { nonce, .. }] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(end, at(29_200));
    let actions = script.answer(24_300, nonce.get(), 1, nonce.get());
    assert!(matches!(actions[..], [Action::Extend { sound: true, .. }]), "{actions:?}");
    // Without an answer it ends like any other.
    let expiring = script.step(24_200 + 24_200, SessionEvent::Wake);
    assert!(expiring.iter().any(|action| matches!(action, Action::Expiring(_))), "{expiring:?}");
}

/// Steps that are due, until that moment.
fn looks(script: &mut BeatScript, until: u64) {
    while script.machine.look_by() < at(until) {
        let now = script.machine.look_by();
        let actions = script.machine.step(now, SessionEvent::Wake, Nonce::new(999), 0);
        assert!(!actions.iter().any(|action| matches!(action, Action::End(_))), "{actions:?}");
    }
}

#[test]
fn a_loss_says_for_how_long_nothing_ran_here() {
    let lost = |stopped: u64, thawed: u64| {
        let mut script = BeatScript::opened();
        looks(&mut script, stopped);
        let mut actions = Vec::new();
        while !script.machine.is_over() {
            let now = script.machine.look_by().max(at(thawed));
            actions = script.machine.step(now, SessionEvent::Wake, Nonce::new(999), 0);
        }
        match &actions[..] {
            [Action::End(loss @ Loss::Expired { not_running_for, .. })] => {
                (*not_running_for, loss.to_string())
            }
            other => panic!("{other:?}"),
        }
    };
    // It looks each five seconds; when it was stopped in between is not known, so it says the least.
    let (stalled, text) = lost(6_000, 78_000);
    assert_eq!(stalled, MS * 68_000);
    assert_eq!(text, "expired: this process did not run for 68.0s");
    // The process was not stopped; and a short stop did not end the session.
    assert_eq!(
        lost(29_000, 0),
        (Duration::ZERO, "expired: no heartbeat was acknowledged for 29.2s".to_owned())
    );
    assert_eq!(
        lost(6_000, 20_000),
        (MS * 10_000, "expired: no heartbeat was acknowledged for 29.2s".to_owned())
    );
}

#[test]
fn a_standstill_before_the_last_answered_beat_is_forgotten() {
    let mut script = BeatScript::opened();
    // The process did not run for 20 s; the beat that was sent then is answered.
    let nonce = beat_sent(&script.step(20_000, SessionEvent::Wake));
    script.answer(20_100, nonce.get(), 1, nonce.get());
    looks(&mut script, 20_000 + 29_200);
    let end = script.step(20_000 + 29_200, SessionEvent::Wake);
    assert!(
        matches!(end[..], [Action::End(Loss::Expired { not_running_for, .. })] if not_running_for < SECOND),
        "{end:?}"
    );
}

#[test]
fn attempts_are_forgotten_when_there_are_too_many() {
    let mut script = BeatScript::new();
    let mut actions = script.step(0, SessionEvent::Wake);
    for turn in 1..200 {
        let [Action::Open { nonce, .. }] = actions[..] else { panic!("{actions:?}") };
        actions = script.step(turn * 2_500, SessionEvent::Failed(nonce));
    }
    assert_eq!(script.machine.nonces().len(), MOST_ATTEMPTS);
}

#[test]
fn requests_of_operators_are_passed_on() {
    let request = Request {
        lock: crate::model::LockId {
            namespace: about().namespace,
            kind: crate::model::Kind::Lock,
            key: "k".parse().unwrap(),
        },
        term: crate::model::Term::new(7),
        by: "operator".parse().unwrap(),
        why: Why::shortened("please"),
    };
    let mut script = BeatScript::opened();
    let nonce = beat_sent(&script.step(5_000, SessionEvent::Wake));
    let asked = SessionRecord { requests: vec![request.clone()], ..record(1, nonce.get()) };
    let actions = script.step(5_100, SessionEvent::Answered(nonce, Box::new(SessionSeen::Alive(asked))));
    assert_eq!(actions[1..], [Action::Requests(vec![request])]);
}

// ----- against an observer

#[derive(Debug, Default)]
struct Wall(AtomicU64);

impl Clock for Wall {
    fn now(&self) -> Moment {
        unreachable!("the store counts no leases")
    }

    fn wall(&self) -> StoreTime {
        StoreTime::from_millis(i64::try_from(self.0.load(Ordering::Relaxed)).unwrap())
    }
}

fn now<T>(answer: impl Future<Output = Result<T, crate::StoreError>>) -> T {
    answer.now_or_never().expect("the memory store answers at once").unwrap()
}

enum Message {
    Request(Action),
    Answer(Nonce, Option<SessionSeen>),
    Look(Moment),
    Declare(Moment, crate::store::Evidence),
    Seen(Moment, Option<SessionSeen>),
}

/// Time for which the session was still valid, for its holder, when it was declared dead. `None` if it was over by
/// then, or was not declared dead.
#[expect(clippy::too_many_lines, reason = "one world, told from its beginning to its end")]
fn overlap(seed: u64, flaws: Flaws) -> Option<Duration> {
    let mut dice = Dice::new(seed);
    let wall = Arc::new(Wall::default());
    let store = MemoryStore::new(wall.clone());
    let id = SessionId::from_u128(1);
    let limit = SECOND;
    // Rates in thousandths: two clocks differ by up to 2 %.
    let (rate, other_rate) = (990 + dice.below(21), 990 + dice.below(21));
    let here = |time: u64, rate: u64| at(time * rate / 1000);

    let mut machine = SessionMachine::new(TIMES, flaws, at(0));
    let (mut end, mut over) = (at(0), false);
    let mut observation = Observation::new(TIMES.ttl / 3, SECOND * 5, flaws, at(0));
    observation.name(Named { namespace: about().namespace, holder: about().holder, ttl: TIMES.ttl });
    let mut messages: Vec<(u64, Message)> = Vec::new();
    let mut nonce = 0;
    // How much of what is said is lost, and when the store stops to answer at all.
    let loss = dice.below(60);
    let mut silent_from = 20_000 + dice.below(60_000);
    let mut frozen_until = 0;
    let mut watching = true;
    let latency = |dice: &mut Dice| if dice.percent(15) { dice.below(9_000) } else { 1 + dice.below(300) };
    for time in (0..240_000).step_by(25) {
        wall.0.store(time, Ordering::Relaxed);
        let mut arrived = Vec::new();
        messages.retain_mut(|(when, message)| {
            let due = *when <= time;
            if due {
                arrived.push(std::mem::replace(message, Message::Look(at(0))));
            }
            !due
        });
        let mut events = Vec::new();
        for message in arrived {
            match message {
                Message::Request(action) => {
                    let (nonce, sighting) = match action {
                        Action::Open { nonce, .. } => {
                            let open = Open {
                                session: id,
                                nonce,
                                about: about(),
                                ttl: TIMES.ttl,
                                shares: Vec::new(),
                                drained: None,
                            };
                            (nonce, now(store.open(open, limit)))
                        }
                        Action::Beat { number, nonce, .. } => {
                            let beat = BeatWrite::new(id, number, nonce);
                            (nonce, now(store.beat(beat, limit)))
                        }
                        _ => unreachable!("only these are sent"),
                    };
                    if time < silent_from && !dice.percent(loss) {
                        messages.push((time + latency(&mut dice), Message::Answer(nonce, Some(sighting))));
                    }
                }
                Message::Answer(nonce, Some(sighting)) => {
                    events.push(SessionEvent::Answered(nonce, Box::new(sighting)));
                }
                Message::Answer(nonce, None) => events.push(SessionEvent::Failed(nonce)),
                Message::Look(sent) => {
                    let seen = now(store.observe(vec![id], limit)).pop();
                    messages.push((time + latency(&mut dice), Message::Seen(sent, seen)));
                }
                Message::Declare(sent, ground) => {
                    let declaration = Declaration {
                        session: id,
                        ground,
                        by: about().holder,
                        why: Why::shortened("no beat"),
                        tell: Vec::new(),
                    };
                    let seen = now(store.declare(declaration, limit));
                    if seen.is_dead() {
                        let holder = here(time, rate);
                        return (!over && holder < end).then(|| end.since(holder));
                    }
                    messages.push((time + latency(&mut dice), Message::Seen(sent, Some(seen))));
                }
                Message::Seen(sent, Some(seen)) => {
                    observation.answered(sent, here(time, other_rate), &seen, Some(wall.wall()));
                    watching = true;
                }
                Message::Seen(_, None) => {
                    observation.failed(here(time, other_rate), SECOND);
                    watching = true;
                }
            }
        }
        if dice.percent(1) && dice.percent(4) {
            frozen_until = time + dice.below(40_000);
        }
        if time >= silent_from && dice.percent(1) && dice.percent(2) {
            silent_from = time + dice.below(60_000);
        }
        if time >= frozen_until && !machine.is_over() {
            let holder = here(time, rate);
            if machine.deadline().is_some_and(|deadline| holder >= deadline) {
                events.push(SessionEvent::Wake);
            }
            for event in events {
                nonce += 1;
                for action in machine.step(holder, event, Nonce::new(nonce), dice.roll()) {
                    match action {
                        Action::Open { nonce, limit } | Action::Beat { nonce, limit, .. } => {
                            // It is given up at its limit, and may arrive much later, and again.
                            let gives_up = time + u64::try_from(limit.as_millis()).unwrap();
                            messages.push((gives_up, Message::Answer(nonce, None)));
                            if !dice.percent(loss / 2) {
                                messages.push((time + latency(&mut dice), Message::Request(action.clone())));
                            }
                            if dice.percent(5) {
                                messages.push((time + dice.below(60_000), Message::Request(action)));
                            }
                        }
                        Action::Extend { end: to, .. } => end = end.max(to),
                        Action::End(_) | Action::Rename | Action::TooLate { .. } => over = true,
                        Action::Requests(_) | Action::Expiring(_) => {}
                    }
                }
            }
        }
        if watching {
            let observer = here(time, other_rate);
            let message = match observation.due(observer) {
                Due::At(_) => continue,
                Due::Look => Message::Look(observer),
                Due::Declare(ground) => Message::Declare(observer, ground),
            };
            watching = false;
            messages.push((time + latency(&mut dice), message));
        }
    }
    None
}

#[test]
fn a_session_that_believes_it_lives_is_never_declared_dead() {
    for seed in 0..3000 {
        assert_eq!(overlap(seed, Flaws::default()), None, "seed {seed}");
    }
}

#[cfg(tenure_sim)]
#[test]
fn an_engine_that_breaks_a_rule_overlaps() {
    for flaw in [
        Flaw::EndFromAnswer,
        Flaw::StretchedTtl,
        Flaw::OwnTtl,
        Flaw::CountFromSending,
        Flaw::AnyBeat,
        Flaw::UnnamedBeat,
        Flaw::SameNonce,
    ] {
        let noticed = (0..3000).any(|seed| overlap(seed, Flaws::one(flaw)).is_some());
        assert!(noticed, "{flaw:?}");
    }
}
