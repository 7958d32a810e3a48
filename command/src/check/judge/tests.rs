//! Tests of the judgement.

use super::*;

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
