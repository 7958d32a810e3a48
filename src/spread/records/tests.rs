//! Tests of a spread's status, as its records show it.

use std::time::Duration;

use super::*;
use crate::{
    model::{Holder, Key, Kind, LockId, Namespace, Term, Why},
    spread::Explanation,
    store::{About, Candidate, Closed, Death, Ended, FailureRow, Holding, Nonce, Note, Past, Ticket},
};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

fn at(seconds: i64) -> StoreTime {
    StoreTime::from_millis(1_763_784_813_000 + seconds * 1000)
}

fn topics() -> SpreadName {
    "topics".parse().unwrap()
}

fn session(number: u128, holder: &str, change: impl FnOnce(&mut Share)) -> SessionRecord {
    let about = About::new(Namespace::new("n").unwrap(), Holder::new(holder).unwrap());
    let mut share = Share::new(topics());
    change(&mut share);
    let opened = SessionRecord::opened(SessionId::from_u128(number), about, Nonce::new(1), TTL, at(0));
    SessionRecord { shares: vec![share], ..opened }
}

fn own_death(at_second: i64) -> Death {
    Death { at: at(at_second), by: "pod-1".parse().unwrap(), why: Death::own() }
}

fn task(key: &str) -> LockRecord {
    let id = LockId {
        namespace: Namespace::new("n").unwrap(),
        kind: Kind::of_tasks(&topics()),
        key: key.parse().unwrap(),
    };
    LockRecord::new(id, Term::new(7))
}

fn held_by(key: &str, session: &SessionRecord) -> LockRecord {
    let by = Candidate::new(session.id, Ticket::new(1), TTL, session.about.holder.clone());
    LockRecord { holding: Some(Holding::new(by, at(0))), ..task(key) }
}

fn past(holder: &str, note: Option<Note>) -> Past {
    let last = Past::new(holder.parse().unwrap(), Term::new(7), at(0), at(10), Ended::Released);
    Past { note, ..last }
}

fn failing_note() -> Note {
    let row = FailureRow::begun(at(0), &"pod-2".parse().unwrap(), "no route");
    Note::Failing(row.followed_by(&"pod-1".parse().unwrap(), "no route"))
}

fn sentences(sessions: &[SessionRecord], locks: &[LockRecord], key: &str, now: StoreTime) -> Vec<String> {
    let status = SpreadStatus::of_records(topics(), sessions, locks, now);
    let key: Key = key.parse().unwrap();
    let seen = locks.iter().find(|record| record.id.key == key);
    let seen = seen.map_or(LockSeen::Absent, |record| LockSeen::Found(record.clone()));
    Explanation::of_records(&status, sessions, key, &seen, now).sentences().to_vec()
}

#[test]
fn a_task_is_running_failing_moving_resting_or_done() {
    let alive = session(1, "pod-1", |share| share.reserved = TTL);
    let held = held_by("a", &alive);
    let state = |record: &LockRecord, session: Option<&SessionRecord>, now| {
        TaskState::of_record(record, session, at(now))
    };
    assert!(
        matches!(state(&held, Some(&alive), 0), TaskState::Running { session, .. } if session == alive.id)
    );
    assert!(
        matches!(state(&held, None, 0), TaskState::Running { .. }),
        "a session that is missing counts as alive"
    );
    let death = own_death(5);
    let closed = SessionRecord { death: Some(death.clone()), ..alive.clone() };
    assert!(matches!(state(&held, Some(&closed), 6), TaskState::Moving { from: Some(_), to: Some(_) }));
    let free = TaskState::Moving { from: None, to: None };
    assert_eq!(state(&held, Some(&closed), 36), free);
    let crashed = SessionRecord { death: Some(Death { why: Why::shortened("unbeaten"), ..death }), ..alive };
    assert_eq!(state(&held, Some(&crashed), 6), free);

    let resting = LockRecord {
        closed: Some(Closed::for_length(at(10), TTL)),
        past: vec![past("pod-1", Some(failing_note()))],
        ..task("b")
    };
    let TaskState::Resting { tries, error, until, .. } = state(&resting, None, 20) else {
        panic!("it rests");
    };
    assert_eq!((tries, error.as_str(), until), (2, "no route", Duration::from_secs(20)));
    assert_eq!(state(&resting, None, 41), free);
    let again = LockRecord { past: resting.past.clone(), ..held };
    assert!(matches!(state(&again, None, 59), TaskState::Failing { times: 2, of: None, .. }));
    assert!(matches!(state(&again, None, 60), TaskState::Running { .. }), "for a minute");
    let done = LockRecord { past: vec![past("pod-1", None)], ..resting };
    assert_eq!(state(&done, None, 20), TaskState::Done);
}

#[test]
fn members_are_those_alive_with_a_share_and_have_what_they_hold() {
    let (one, two) = (session(1, "pod-2", |_| ()), session(2, "pod-1", |share| share.draining = true));
    let other = SessionRecord { shares: Vec::new(), ..session(3, "pod-3", |_| ()) };
    let locks = [held_by("a", &one), held_by("b", &one), held_by("c", &other), task("d")];
    let status = SpreadStatus::of_records(topics(), &[one, two, other], &locks, at(1));
    let members: Vec<_> = status
        .members
        .iter()
        .map(|member| (member.holder.as_str(), member.tasks, member.share.draining))
        .collect();
    assert_eq!(members, [("pod-1", 0, true), ("pod-2", 2, false)]);
    assert_eq!((status.held(), status.tasks.len()), (3, 4));
}

#[test]
fn a_held_task_is_explained_by_its_holder() {
    let one = session(1, "pod-1", |share| share.cap = 3);
    let locks = [held_by("a", &one)];
    let sessions = [one];
    assert_eq!(
        sentences(&sessions, &locks, "a", at(1)),
        ["running on pod-1, under term 7", "pod-1 has 1 task and a cap of 3"]
    );
    assert_eq!(
        sentences(&sessions, &locks, "a", at(40))[0],
        "pod-1 has it and looks dead: its last beat is 40s old, and its ttl 30s; others take the task over when they have watched it for so long"
    );
    let missing = sentences(&[], &locks, "a", at(1));
    assert!(missing[0].contains("there is no readable record of its session"), "{missing:?}");
}

#[test]
fn a_free_task_is_explained_by_the_members_that_might_take_it() {
    let (full, draining) =
        (session(1, "pod-1", |share| share.cap = 1), session(2, "pod-2", |share| share.draining = true));
    let (free, paused) = (session(3, "pod-3", |_| ()), session(4, "pod-4", |share| share.paused = true));
    let locks = [held_by("a", &full), task("b")];
    let sessions = [full, draining, free, paused];
    assert_eq!(
        sentences(&sessions, &locks, "b", at(1)),
        [
            "moving: no instance has it yet",
            "pod-1 has 1 task and a cap of 1",
            "pod-2 drains",
            "pod-3 has 0 tasks and room for more: it takes it if it knows it",
            "pod-4 is paused",
        ]
    );
    let absent = sentences(&[], &[], "c", at(1));
    assert!(absent[0].starts_with("no instance has ever taken it"), "{absent:?}");
}

#[test]
fn a_resting_task_is_explained_by_its_failures() {
    let resting = LockRecord {
        closed: Some(Closed::for_length(at(10), TTL)),
        past: vec![past("pod-1", Some(failing_note()))],
        ..task("b")
    };
    let pods = [1, 2, 3].map(|number| session(number, &format!("pod-{number}"), |_| ()));
    let locks = [resting];
    let says = sentences(&pods, &locks, "b", at(20));
    assert_eq!(says[0], "resting until 04:14:13Z, given up 2 times by pod-2, pod-1: no route");
    assert_eq!(says[1], "other instances are preferred to pod-2, pod-1, where it failed or was revoked");
    assert!(says[2].starts_with("previously pod-1 had it under term 7, released (failing since"), "{says:?}");
    let alone = sentences(&pods[..2], &locks, "b", at(20));
    assert!(alone[1].starts_with("previously pod-1 had it"), "there are no others: {alone:?}");
    let [one, two, three] = pods;
    let anew = [SessionRecord { started: at(12), ..one.clone() }, two.clone(), three.clone()];
    assert!(sentences(&anew, &locks, "b", at(20))[1].contains("to pod-2, where"), "it was started anew");
    let ended = [one, SessionRecord { death: Some(own_death(12)), ..two }, three];
    assert!(sentences(&ended, &locks, "b", at(20))[1].contains("to pod-1, where"), "it has ended");
}

#[test]
fn a_member_that_ran_one_task_well_again_is_not_avoided_for_those_it_gave_up_before() {
    let [one, two, three] = [1, 2, 3].map(|number| session(number, &format!("pod-{number}"), |_| ()));
    let again = |key, by: &SessionRecord| {
        let held = held_by(key, by);
        let holding = held.holding.clone().map(|holding| Holding { acquired_at: at(20), ..holding });
        LockRecord { past: vec![past("pod-1", Some(failing_note()))], holding, ..held }
    };
    let locks = [again("a", &two), again("b", &one)];
    let sessions = [one, two, three];
    let is_avoided = |now| {
        let says = sentences(&sessions, &locks, "a", at(now));
        says.iter().any(|says| says.starts_with("other instances are preferred") && says.contains("pod-1"))
    };
    assert_eq!((is_avoided(79), is_avoided(80)), (true, false));
}

#[test]
fn the_explanation_of_a_task_without_room_begins_with_the_remedy() {
    let session = |number, cap| session(number, &format!("pod-{number}"), |share| share.cap = cap);
    let (one, two) = (session(1, 1), session(2, 1));
    let paused =
        SessionRecord { shares: vec![Share { paused: true, ..Share::new(topics()) }], ..session(3, 9) };
    let freed = LockRecord { past: vec![past("pod-1", None)], ..task("c") };
    let rested = LockRecord { closed: Some(Closed::for_length(at(10), SECOND * 12)), ..freed.clone() };
    let rested = LockRecord { id: task("e").id, ..rested };
    let locks = [held_by("a", &one), held_by("b", &two), freed, task("d"), rested];
    let says = |sessions: &[&SessionRecord], key| {
        let sessions: Vec<_> = sessions.iter().copied().cloned().collect();
        sentences(&sessions, &locks, key, at(25))[0].clone()
    };
    assert_eq!(
        says(&[&one, &two], "c"),
        "waiting for room for 15s: all 2 instances are full: raise the cap or add one"
    );
    assert!(says(&[&one, &two], "e").starts_with("waiting for room for 3s: "), "its rest apart");
    assert_eq!(says(&[&one], "d"), "waiting for room: the only instance is full: raise its cap or add one");
    assert_eq!(
        says(&[&one, &paused], "d"),
        "waiting for room: none of the 2 instances takes more: raise a cap or add one"
    );
    assert_eq!(says(&[], "d"), "waiting for room: no instance takes part: start one");
}

#[test]
fn a_task_that_fails_again_and_again_says_so_also_where_it_is_tried() {
    let one = session(1, "pod-1", |_| ());
    let tried = LockRecord { past: vec![past("pod-2", Some(failing_note()))], ..held_by("a", &one) };
    let says = sentences(&[one], &[tried], "a", at(20));
    assert_eq!(says[0], "failing on pod-1, given up 2 times before: no route");
}
