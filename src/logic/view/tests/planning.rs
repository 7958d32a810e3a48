//! Actions that a plan yields for one instance.

use super::*;
use crate::{
    model::{Kind, LockId},
    store::{Candidate, Closed, Ended, FailureRow, Holding, Note, Past},
};

/// By what was learned, with nothing of its own.
fn resolved(view: &SpreadView, me: &OwnMember, now: u64) -> Resolved {
    view.resolve(me, &BTreeMap::new(), BOUNDS, at(now))
}

fn taken(resolved: &Resolved) -> Vec<Key> {
    let taken = resolved.orders.iter().filter_map(|order| match order {
        SpreadAction::Take { key, .. } => Some(key.clone()),
        _ => None,
    });
    taken.collect()
}

fn joined(number: u128, of: Share) -> SessionSeen {
    SessionSeen::Alive(record(number, 1, vec![of]))
}

#[test]
fn reserved_tasks_go_to_the_latest_session_of_the_same_name() {
    let mut one = view(1);
    one.learns(&key(0), Some((9, 5)), at(0));
    one.saw(id(9), &dead(9, Death::own(), 60 * SECOND, 0), at(0), None);
    for (number, started) in [(2, 30), (3, 10), (4, 20)] {
        let mut back = record(number, 1, vec![share()]);
        back.about.holder = holder(9);
        back.started = StoreTime::from_millis(started);
        one.saw(id(number), &SessionSeen::Alive(back), at(0), None);
    }
    let successors = |started| {
        let me = OwnMember { holder: holder(9), started: StoreTime::from_millis(started), ..me(1) };
        let resolved = resolved(&one, &me, 5000);
        (taken(&resolved), resolved.targets)
    };
    let (orders, targets) = successors(25);
    assert_eq!((orders, targets[&id(2)]), (vec![], 1), "another of that name came later");
    assert_eq!(successors(35).0, [key(0)]);
}

#[test]
fn reserved_tasks_wait_while_their_returning_member_is_not_known_to_know_them() {
    let mut one = view(1);
    one.learns(&key(0), Some((9, 5)), at(0));
    one.saw(id(9), &dead(9, Death::own(), 60 * SECOND, 0), at(0), None);
    let mut back = record(2, 1, vec![Share { digest: 99, ..share() }]);
    back.about.holder = holder(9);
    one.saw(id(2), &SessionSeen::Alive(back), at(0), None);
    let waits = resolved(&one, &me(1), 5000);
    assert_eq!((taken(&waits), waits.successors.len()), (vec![], 0));
    assert_eq!(taken(&resolved(&one, &me(1), 60_000)), [key(0)], "until its time is over");
}

#[test]
fn a_record_that_is_read_is_as_old_as_it_says() {
    let now = StoreTime::from_millis(100_000);
    let settles = |acquired: i64, store_now| {
        let by = Candidate::new(id(1), Ticket::new(1), 30 * SECOND, holder(1));
        let holding = Some(Holding::new(by, StoreTime::from_millis(acquired)));
        let lock = LockId { namespace: "n".parse().unwrap(), kind: Kind::Task(spread()), key: key(0) };
        let record = LockRecord { holding, ..LockRecord::new(lock, Term::new(5)) };
        let mut one = view(1);
        one.read(&key(0), &LockSeen::Found(record), at(10_000), at(10_000), store_now);
        match one.task(&key(0)) {
            Some(TaskPlace::Held { settles, .. }) => settles.since(at(10_000)).as_millis(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(settles(0, Some(now)), 0, "it was granted long ago: it may move at once");
    assert_eq!(settles(99_500, Some(now)), 1500);
    assert_eq!(settles(100_000, Some(now)), 2000);
    assert_eq!(settles(0, None), 2000, "nobody knows how old it is");
}

#[test]
fn of_what_nobody_took_an_instance_takes_a_few_at_once_and_no_more_than_its_cap() {
    // They were planned for another, that does not take them.
    let mut one = view(300);
    for task in 0..300 {
        one.learns(&key(task), None, at(0));
    }
    one.saw(id(2), &alive(2, 1), at(0), None);
    let take = |share: Share, mine: &BTreeMap<Key, OwnTask>, now| {
        let me = OwnMember { share, ..me(1) };
        let resolved = one.resolve(&me, mine, BOUNDS, at(now));
        let successors = resolved.successors.clone();
        taken(&resolved).into_iter().filter(|key| successors[key] != Some(id(1))).count()
    };
    let none = BTreeMap::new();
    assert_eq!(take(share(), &none, 1999), 0, "they are not forgotten yet");
    assert_eq!(take(share(), &none, 5000), 32);
    let capped = |cap| Share { cap, ..share() };
    assert_eq!(take(capped(160), &none, 5000), 10, "its own 150 count");
    let mine = (1000..1005).map(|task| (key(task), OwnTask::Has)).collect();
    assert_eq!(take(capped(160), &mine, 5000), 5, "and what it has");
    assert_eq!(take(Share { draining: true, ..share() }, &none, 5000), 0);
    assert_eq!(take(Share { weight: 0, ..share() }, &none, 5000), 0);
}

#[test]
fn members_that_know_other_tasks_are_planned_what_both_know_and_nothing_else() {
    // Ten that both know, and three that each has for itself.
    let (mine, theirs) = (share_of(3..16), share_of(0..13));
    let mut one = view(0);
    one.set(&(3..16).map(key).collect());
    one.saw(id(2), &joined(2, theirs.clone()), at(0), None);
    for task in 3..16 {
        one.learns(&key(task), None, at(0));
    }
    // Tasks it has that are not known here count.
    for task in 0..3 {
        one.learns(&key(task), Some((2, 5)), at(0));
    }
    let me = OwnMember { share: mine.clone(), ..me(1) };
    let planned = resolved(&one, &me, 1000);
    let is_common = |key: &Key| digest::agree(&mine, &theirs, digest::part(key));
    for (key, successor) in &planned.successors {
        assert!(*successor == Some(id(1)) || is_common(key), "{key} to {successor:?}");
    }
    assert_eq!(planned.successors.len(), 13, "each is planned");
    assert_eq!((planned.targets[&id(1)], planned.targets[&id(2)]), (8, 5), "with three besides");
    // It lets go of them.
    for task in 0..3 {
        one.learns(&key(task), None, at(2000));
    }
    let planned = resolved(&one, &me, 3000);
    assert_eq!((planned.targets[&id(1)] + planned.targets[&id(2)], planned.targets[&id(2)] > 5), (13, true));
}

#[test]
fn with_a_member_of_another_plan_nothing_is_exchanged() {
    let mut one = view(30);
    let mut earlier = record(2, 1, vec![share()]);
    earlier.about.plan_version = PLAN_VERSION - 1;
    one.saw(id(2), &SessionSeen::Alive(earlier), at(0), None);
    let mut mine = BTreeMap::new();
    for task in 0..30 {
        one.learns(&key(task), Some((1, 5)), at(0));
        mine.insert(key(task), OwnTask::Has);
    }
    let rest = one.resolve(&me(1), &mine, BOUNDS, at(5000));
    assert_eq!((rest.orders, rest.targets[&id(2)]), (vec![], 0), "it gets nothing that another has");
    for task in 0..30 {
        one.learns(&key(task), Some((2, 6)), at(5000));
    }
    let rest = resolved(&one, &me(1), 10_000);
    assert_eq!((rest.orders, rest.targets[&id(2)]), (vec![], 30), "nor is anything of its own moved");
    // Of the tasks without an owner it gets its part: that is left to it, and taken if it does not come.
    for task in 0..30 {
        one.learns(&key(task), None, at(10_000));
    }
    let orphans = resolved(&one, &me(1), 11_000);
    assert_eq!((taken(&orphans).len(), orphans.targets[&id(2)]), (15, 15));
    assert_eq!(taken(&resolved(&one, &me(1), 15_000)).len(), 30);
}

#[test]
fn many_small_spreads_are_shared_out_evenly() {
    // Sessions as they come: any numbers.
    let ids = [0x1b, 0x7f32, 0x8001_0000, 0xffff_ffff_0000];
    for (tasks, even) in [(1, 12.5), (2, 25.0), (3, 37.5), (5, 62.5)] {
        let mut counts: BTreeMap<SessionId, usize> = BTreeMap::new();
        for number in 0..50 {
            let spread: SpreadName = format!("tenant-{number}").parse().unwrap();
            let mut one = SpreadView::new(spread.clone());
            one.set(&(0..tasks).map(key).collect());
            for task in 0..tasks {
                one.learns(&key(task), None, at(0));
            }
            let share = Share { digest: DIGEST, ..Share::new(spread) };
            for other in &ids[1..] {
                one.saw(id(*other), &joined(*other, share.clone()), at(0), None);
            }
            let planned = resolved(&one, &OwnMember { share, ..me(ids[0]) }, 100);
            for (session, target) in planned.targets {
                *counts.entry(session).or_default() += target;
            }
        }
        println!("50 spreads of {tasks} over 4: {:?}", counts.values().collect::<Vec<_>>());
        assert!(counts.values().all(|count| (*count as f64) < 2.0 * even), "{tasks}: {counts:?}");
    }
}

/// A task that its last holder gave up, and that rests for so long.
fn given_up(task: usize, by: u128, now: StoreTime, rest: Duration) -> LockSeen {
    let lock = LockId { namespace: "n".parse().unwrap(), kind: Kind::of_tasks(&spread()), key: key(task) };
    let note = Note::Failing(FailureRow::begun(now, &holder(by), "no route to host"));
    let term = Term::new(task as u64 + 1);
    let last = Past::new(holder(by), term, StoreTime::from_millis(0), now, Ended::Released);
    LockSeen::Found(LockRecord {
        past: vec![Past { note: Some(note), ..last }],
        closed: Some(Closed::for_length(now, rest)),
        ..LockRecord::new(lock, term)
    })
}

#[test]
fn no_task_that_runs_is_stopped_while_those_that_a_member_gave_up_rest() {
    let mut one = view(12);
    let store_now = StoreTime::from_millis(60_000);
    for number in 2..=3 {
        one.saw(id(number), &alive(number, 1), at(0), Some(store_now));
    }
    for task in 0..12 {
        one.learns(&key(task), Some((task as u128 / 4 + 1, task as u64 + 1)), at(0));
    }
    let mine: BTreeMap<_, _> = (0..4).map(|task| (key(task), OwnTask::Has)).collect();
    assert_eq!(one.resolve(&me(1), &mine, BOUNDS, at(5000)).successors, BTreeMap::new());
    for rest in 9..12 {
        one.read(&key(rest), &given_up(rest, 3, store_now, SECOND), at(5000), at(5000), Some(store_now));
    }
    let while_they_rest = one.resolve(&me(1), &mine, BOUNDS, at(5100));
    assert_eq!((while_they_rest.orders, while_they_rest.successors), (vec![], BTreeMap::new()));
    let after = one.resolve(&me(1), &mine, BOUNDS, at(6100)).successors;
    let after: Vec<_> = after.into_values().flatten().collect();
    assert!(after.len() == 3 && !after.contains(&id(3)), "to others, with nothing in exchange: {after:?}");
}

#[test]
fn a_member_gets_its_part_while_tasks_that_it_gave_up_rest_for_long() {
    let mut one = view(12);
    let store_now = StoreTime::from_millis(60_000);
    one.saw(id(2), &alive(2, 1), at(0), Some(store_now));
    for task in 0..12 {
        let seen = given_up(task, task as u128 % 2 + 1, store_now, SECOND * 600);
        let seen = if task < 4 { lock_of(&key(task), Some((id(2), 9))) } else { seen };
        one.read(&key(task), &seen, at(0), at(0), Some(store_now));
    }
    assert_eq!(resolved(&one, &me(1), 5000).targets, BTreeMap::from([(id(1), 2), (id(2), 2)]));
}
