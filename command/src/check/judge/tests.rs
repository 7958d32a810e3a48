//! Tests of the judgement.

use tenure::{
    model::{Finish, Outcome, Rules, RunId, RunRecord, ScheduleId, SessionId, Term, Why},
    store::{About, Definition, Nonce, Pause, ScheduleRecord, SessionRecord, Share},
};
use tenure_look::{Ledger, SessionStates};

use super::*;

const LIMITS: Limits = Limits { overdue: Duration::from_secs(600), failures: 3, instances: None };

fn at(minutes: i64) -> StoreTime {
    StoreTime::from_millis(1_767_225_600_000 + minutes * 60_000)
}

fn failed(minutes: i64) -> RunRecord {
    let id = ScheduleId { namespace: "n".parse().unwrap(), name: "s".parse().unwrap() };
    let (tick, holder) = (RunId::tick(id, at(minutes)), "pod-1".parse().unwrap());
    let mut run = RunRecord::new(tick, SessionId::from_u128(1), holder, Term::new(1), at(minutes));
    let mut finish = Finish::new(at(minutes), Outcome::Failed);
    finish.error = Some(Why::shortened("disk\nfull"));
    run.finish = Some(finish);
    run
}

fn look(failures: i64, due: Option<i64>, paused: bool) -> ScheduleView {
    let mut record = ScheduleRecord::new(failed(0).id.schedule);
    let (timing, policies) = (Rules::new("0 * * * * in UTC").unwrap(), Rules::new("p").unwrap());
    record.definition = Some(Definition::new(timing, policies, at(0), Term::new(1)));
    record.pause = paused.then(|| Pause::new(at(80), "ops".parse().unwrap(), Why::shortened("repairs")));
    let runs = (0..failures).rev().map(failed).collect();
    let ledger = Ledger { runs, is_all: true, read_at: at(100) };
    let mut look = ScheduleView::of(record, ledger, None, &SessionStates::default(), at(100));
    look.due = due.map(at);
    look
}

fn judged(look: &ScheduleView) -> (State, String) {
    let verdict = Verdict::of(schedule(look, LIMITS, at(100)), &["1 schedule".to_owned()]);
    (verdict.state, verdict.line)
}

#[test]
fn a_schedule_is_well_while_it_is_on_time_and_succeeds() {
    assert_eq!(judged(&look(0, None, false)), (State::Ok, "OK: 1 schedule".to_owned()));
    assert_eq!(judged(&look(0, Some(90), false)).0, State::Ok, "ten minutes are allowed");
}

#[test]
fn up_to_two_failures_are_a_warning_and_three_are_critical() {
    assert_eq!(
        judged(&look(1, None, false)),
        (State::Warning, "WARNING: s has failed once: disk\u{b7}full".to_owned())
    );
    assert_eq!(judged(&look(2, None, false)).0, State::Warning);
    assert_eq!(
        judged(&look(3, None, false)),
        (State::Critical, "CRITICAL: s has failed 3 times in a row: disk\u{b7}full".to_owned())
    );
}

#[test]
fn an_overdue_schedule_is_critical_and_named_before_its_failures() {
    let (state, line) = judged(&look(1, Some(89), false));
    assert_eq!(state, State::Critical);
    assert_eq!(line, "CRITICAL: s is overdue by 11 min, without an owner; s has failed once: disk\u{b7}full");
}

#[test]
fn a_schedule_that_is_paused_or_was_never_run_is_a_warning() {
    assert_eq!(
        judged(&look(0, None, true)),
        (State::Warning, "WARNING: s was paused 20 min ago by ops: repairs".to_owned())
    );
    let mut never = look(0, None, false);
    never.status.record.definition = None;
    assert_eq!(judged(&never).1, "WARNING: s was never run by any instance");
}

#[test]
fn a_key_without_a_holder_or_with_one_that_looks_dead_has_no_leader() {
    let key = Key::new("queue").unwrap();
    let holder =
        |life| Leader::Holder { name: "pod-1".to_owned(), life, beat: Some(Duration::from_secs(40)) };
    let judge = |one: &Leader| leader(&key, one).map_err(|finding| (finding.kind, finding.says));
    assert_eq!(judge(&holder(Liveness::Alive)), Ok("pod-1 holds \"queue\"".to_owned()));
    assert_eq!(judge(&holder(Liveness::Unreadable)), Ok("pod-1 holds \"queue\"".to_owned()));
    let dead = "pod-1 holds \"queue\" and looks dead: its last beat is 40 s old".to_owned();
    assert_eq!(judge(&holder(Liveness::Silent)), Err(("leader_looks_dead", dead)));
    assert_eq!(judge(&Leader::Nobody), Err(("no_leader", "the key \"queue\" is not held".to_owned())));
    assert_eq!(judge(&Leader::Never).unwrap_err().0, "unknown_key");
}

#[test]
fn a_line_has_room_for_ten_findings() {
    let one = Finding::few_instances(1, 2);
    let verdict = Verdict::of(vec![one; 12], &[]);
    assert_eq!((verdict.code, verdict.findings.len()), (2, 12));
    assert!(verdict.line.ends_with("; and 2 more"), "{}", verdict.line);
    assert!(verdict.line.starts_with("CRITICAL: 1 instance alive, 2 required; "), "{}", verdict.line);
    let unknown = Verdict::unknown("no server");
    assert_eq!((unknown.code, unknown.line.as_str()), (3, "UNKNOWN: no server"));
}

#[test]
fn an_instance_that_fails_in_a_spread_is_a_warning() {
    let about = About::new("n".parse().unwrap(), "pod-1".parse().unwrap());
    let ttl = Duration::from_secs(30);
    let mut session = SessionRecord::opened(SessionId::from_u128(1), about, Nonce::new(1), ttl, at(0));
    session.shares = vec![Share::new("mail".parse().unwrap())];
    let mut status = SpreadStatus::of_records("mail".parse().unwrap(), &[session], &[], at(0));
    assert_eq!(failing(&status).count(), 0);
    status.members[0].failing = true;
    let findings: Vec<_> = failing(&status).map(|finding| (finding.state, finding.says)).collect();
    let says = "pod-1 is failing: tasks of mail that it gave up run well elsewhere".to_owned();
    assert_eq!(findings, [(State::Warning, says)]);
}
