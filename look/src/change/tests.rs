//! Changes between two looks.

use std::time::Duration;

use super::*;
use tenure::{
    model::{Finish, Kind, RunId, ScheduleId, Skipped},
    store::{About, Candidate, Death, Holding, Nonce, Ticket},
};

const TTL: Duration = Duration::from_secs(30);

fn at(seconds: i64) -> StoreTime {
    StoreTime::from_millis(1_767_225_600_000 + seconds * 1000)
}

fn lock_id(key: &str) -> LockId {
    LockId { namespace: "n".parse().unwrap(), kind: Kind::Lock, key: key.parse().unwrap() }
}

fn held(key: &str, holder: &str, term: u64, since: i64) -> LockRecord {
    let by = Candidate::new(SessionId::from_u128(1), Ticket::new(1), TTL, holder.parse().unwrap());
    let mut record = LockRecord::new(lock_id(key), Term::new(term));
    record.holding = Some(Holding::new(by, at(since)));
    record
}

fn past(holder: &str, term: u64, from: i64, to: i64, how: Ended) -> Past {
    Past::new(holder.parse().unwrap(), Term::new(term), at(from), at(to), how)
}

fn of_locks(locks: impl IntoIterator<Item = LockRecord>) -> Records {
    let locks = locks.into_iter().map(|record| (record.id.clone(), record)).collect();
    Records { now: Some(at(100)), locks, ..Records::default() }
}

/// Each change as its time in seconds and its line without it.
fn describe(changes: &[Change]) -> Vec<(i64, String)> {
    let texts = changes.iter().map(|change| {
        let (word, rest) = change.what.describe();
        ((change.at.as_millis() - at(0).as_millis()) / 1000, format!("{word} {rest}"))
    });
    texts.collect()
}

fn between(
    old: impl IntoIterator<Item = LockRecord>,
    new: impl IntoIterator<Item = LockRecord>,
) -> Vec<(i64, String)> {
    describe(&changes(&of_locks(old), &of_locks(new)))
}

#[test]
fn unchanged_locks_are_not_told() {
    let same = [held("a", "pod-1", 1, 5), LockRecord::new(lock_id("b"), Term::new(3))];
    assert_eq!(between(same.clone(), same), []);
}

#[test]
fn a_key_that_changed_hands_between_two_looks_is_told_in_full() {
    let first = held("a", "pod-1", 1, 5);
    let mut last = held("a", "pod-3", 4, 30);
    last.past = vec![
        past("pod-2", 3, 20, 25, Ended::Died),
        past("pod-1", 1, 5, 10, Ended::Released),
        past("pod-0", 0, 1, 2, Ended::Released),
    ];
    assert_eq!(
        between([first], [last]),
        [
            (10, "released a by pod-1, term 1, released".to_owned()),
            (20, "acquired a by pod-2, term 3, after pod-1 (released)".to_owned()),
            (25, "lost a by pod-2, term 3, died".to_owned()),
            (30, "acquired a by pod-3, term 4, after pod-2 (died)".to_owned()),
        ]
    );
}

#[test]
fn a_new_key_is_told_with_all_who_had_it() {
    let mut new = LockRecord::new(lock_id("a"), Term::new(2));
    new.past = vec![past("pod-1", 2, 7, 8, Ended::HandedOver)];
    assert_eq!(
        between([], [new]),
        [
            (7, "acquired a by pod-1, term 2".to_owned()),
            (8, "released a by pod-1, term 2, handed over".to_owned()),
        ]
    );
}

#[test]
fn an_end_that_no_record_tells_is_told_all_the_same() {
    let lost = (100, "lost a by pod-1, term 1, its record shows no more".to_owned());
    assert_eq!(between([held("a", "pod-1", 1, 5)], []), std::slice::from_ref(&lost));
    let taken = held("a", "pod-2", 9, 90);
    let acquired = (90, "acquired a by pod-2, term 9".to_owned());
    assert_eq!(between([held("a", "pod-1", 1, 5)], [taken]), [acquired, lost]);
}

fn of_session(life: Liveness, death: Option<Death>) -> Records {
    let about = About::new("n".parse().unwrap(), "pod-1".parse().unwrap());
    let id = SessionId::from_u128(1);
    let mut record = SessionRecord::opened(id, about, Nonce::new(1), TTL, at(3));
    record.death = death;
    let sessions = [(id, (record, life))].into_iter().collect();
    Records { now: Some(at(100)), sessions, all_sessions: true, ..Records::default() }
}

fn death(why: Why) -> Death {
    Death { at: at(50), by: "pod-2".parse().unwrap(), why }
}

#[test]
fn instances_come_fall_silent_and_go() {
    let (none, alive, silent) =
        (Records::default(), of_session(Liveness::Alive, None), of_session(Liveness::Silent, None));
    let dead = of_session(Liveness::Dead, Some(death(Why::shortened("no beat"))));
    let closed = of_session(Liveness::Closed, Some(death(Death::own())));
    let tell = |old: &Records, new: &Records| describe(&changes(old, new));
    assert_eq!(tell(&none, &alive), [(3, "instance pod-1 has started: pid 0 on  ".to_owned())]);
    assert_eq!(tell(&alive, &alive), []);
    assert_eq!(tell(&alive, &silent), [(3, "instance pod-1 looks dead: this was its last beat".to_owned())]);
    assert_eq!(tell(&silent, &alive), [(3, "instance pod-1 beats again".to_owned())]);
    assert_eq!(tell(&silent, &dead), [(50, "instance pod-1 is dead, declared by pod-2: no beat".to_owned())]);
    assert_eq!(tell(&alive, &closed), [(50, "instance pod-1 has closed".to_owned())]);
    assert_eq!(tell(&dead, &dead), []);
    assert_eq!(tell(&none, &closed).len(), 2, "it came and went");
    let of_one_key = Records { all_sessions: false, ..alive };
    assert_eq!(tell(&none, &of_one_key), [], "a holder that was not looked at before may be old");
}

fn of_runs(runs: impl IntoIterator<Item = RunRecord>) -> Records {
    let runs = runs.into_iter().map(|run| (run.id.clone(), run)).collect();
    Records { now: Some(at(100)), runs, ..Records::default() }
}

fn schedule_id() -> ScheduleId {
    ScheduleId { namespace: "n".parse().unwrap(), name: "s".parse().unwrap() }
}

fn tick(instant: i64, attempt: u32, outcome: Option<Outcome>) -> RunRecord {
    let id = RunId::tick(schedule_id(), at(instant));
    let mut run =
        RunRecord::new(id, SessionId::from_u128(1), "pod-1".parse().unwrap(), Term::new(1), at(instant + 1));
    run.attempt = attempt;
    run.finish = outcome.map(|outcome| Finish::new(at(instant + 2), outcome));
    run
}

#[test]
fn runs_begin_and_end_and_are_left_out() {
    let tell = |old: Records, new: Records| describe(&changes(&old, &new));
    let begun = (11, "run s of 2026-01-01T00:00:10Z begun by pod-1".to_owned());
    let ended = (12, "run s of 2026-01-01T00:00:10Z failed by pod-1".to_owned());
    let on = || tick(10, 1, None);
    let failed = || tick(10, 1, Some(Outcome::Failed));
    assert_eq!(tell(of_runs([]), of_runs([on()])), std::slice::from_ref(&begun));
    assert_eq!(tell(of_runs([on()]), of_runs([failed()])), std::slice::from_ref(&ended));
    assert_eq!(tell(of_runs([]), of_runs([failed()])), [begun, ended]);
    assert_eq!(tell(of_runs([failed()]), of_runs([failed()])), []);
    let again = (11, "run s of 2026-01-01T00:00:10Z begun by pod-1, attempt 2".to_owned());
    assert_eq!(tell(of_runs([failed()]), of_runs([tick(10, 2, None)])), [again]);
    assert_eq!(tell(of_runs([on()]), of_runs([tick(5, 1, None), on()])), [], "that is an old one");
    let mut left_out = tick(20, 1, Some(Outcome::Skipped));
    left_out.skipped = Some(Skipped { from: at(15), count: 2, why: Why::shortened("late") });
    let not_run = (21, "not run s: 2 up to 2026-01-01T00:00:20Z: late".to_owned());
    assert_eq!(tell(of_runs([on()]), of_runs([on(), left_out])), [not_run]);
}

#[test]
fn a_pause_and_its_end_are_told() {
    let of = |pause: Option<Pause>| {
        let mut record = ScheduleRecord::new(schedule_id());
        record.pause = pause;
        let schedules = [(record.id.name.clone(), record)].into_iter().collect();
        Records { now: Some(at(100)), schedules, ..Records::default() }
    };
    let on = Pause::new(at(7), "ops".parse().unwrap(), Why::shortened("repairs"));
    let mut over = on.clone();
    over.until = Some(at(9));
    let tell = |old: &Records, new: &Records| describe(&changes(old, new));
    assert_eq!(tell(&of(None), &of(Some(on.clone()))), [(7, "paused s by ops: repairs".to_owned())]);
    assert_eq!(tell(&of(Some(on.clone())), &of(Some(on.clone()))), []);
    assert_eq!(tell(&of(Some(on)), &of(Some(over))), [(9, "resumed s".to_owned())]);
}

#[test]
fn a_document_says_its_kind() {
    let change = changes(&of_locks([]), &of_locks([held("a", "pod-1", 1, 5)])).pop().unwrap();
    let json = serde_json::to_value(&change).unwrap();
    assert_eq!(json["kind"], "acquired");
    assert_eq!(json["at"], "2026-01-01T00:00:05Z");
    assert_eq!(json["lock"]["key"], "a");
}

fn remembered(records: &Records, from: StoreTime) -> Vec<Change> {
    let memory = Memory {
        locks: records.locks.values(),
        sessions: records.sessions.values().map(|(record, _)| record),
        schedules: records.schedules.values(),
        runs: records.runs.values(),
    };
    since(memory, from, at(100))
}

#[test]
fn an_instance_first_seen_dead_is_told_to_have_died_but_not_started() {
    let about = About::new("n".parse().unwrap(), "pod-1".parse().unwrap());
    let mut record = SessionRecord::opened(SessionId::from_u128(7), about, Nonce::new(1), TTL, at(5));
    record.death = Some(Death { at: at(5), by: "pod-2".parse().unwrap(), why: Why::shortened("missing") });
    let mut records = Records::default();
    records.sessions.insert(record.id, (record, Liveness::Dead));
    let told = remembered(&records, at(0));
    assert!(matches!(told.as_slice(), [Change { what: ChangeKind::InstanceDied { .. }, .. }]), "{told:?}");
}

#[test]
fn the_last_hour_is_told_from_what_records_remember() {
    let mut lock = held("a", "pod-3", 4, 50);
    lock.past = vec![past("pod-2", 3, 20, 49, Ended::Died), past("pod-1", 1, 5, 20, Ended::HandedOver)];
    let mut records = of_locks([lock]);
    let mut schedule = ScheduleRecord::new(schedule_id());
    let mut pause = Pause::new(at(7), "ops".parse().unwrap(), Why::shortened("repairs"));
    pause.until = Some(at(60));
    schedule.pause = Some(pause);
    records.schedules.insert(schedule.id.name.clone(), schedule);
    let run = tick(51, 1, Some(Outcome::Failed));
    records.runs.insert(run.id.clone(), run);
    let described: Vec<_> = remembered(&records, at(20))
        .iter()
        .map(|change| {
            ((change.at.as_millis() - at(0).as_millis()) / 1000, change.what.describe().0, change.severity())
        })
        .collect();
    assert_eq!(
        described,
        [
            (20, "released", Severity::Other),
            (20, "acquired", Severity::Move),
            (49, "lost", Severity::Loss),
            (50, "acquired", Severity::Takeover),
            (52, "run", Severity::Other),
            (53, "run", Severity::Failure),
            (60, "resumed", Severity::Person),
        ]
    );
    assert_eq!(remembered(&records, at(0)).first().map(|change| change.what.describe().0), Some("acquired"));
    assert!(
        remembered(&records, at(7)).iter().any(|change| matches!(change.what, ChangeKind::Paused { .. }))
    );
}
