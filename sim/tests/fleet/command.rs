//! The command that simulates: what it prints, and what it refuses.

use std::{
    path::Path,
    process::{Command, Output},
};

use tenure_sim::Trouble;

use crate::example::binary;

fn simulate(arguments: &str) -> Output {
    Command::new(binary("simulate")).args(arguments.split_whitespace()).output().unwrap()
}

fn says(output: &[u8]) -> String {
    String::from_utf8(output.to_vec()).unwrap()
}

/// The number before that word in a line.
fn count(line: &str, word: &str) -> u64 {
    let before = line.split_once(&format!(" {word}")).unwrap_or_else(|| panic!("no {word} in {line:?}")).0;
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn two_runs_of_the_same_seeds_print_the_same_and_a_line_for_each_class() {
    let [first, second] = [(); 2].map(|()| simulate("--seeds 20..23 --hours 0.7 --schedules 0"));
    let (said, complained) = (says(&first.stdout), says(&first.stderr));
    assert!(first.status.success(), "{said}{complained}");
    assert_eq!(said, says(&second.stdout));
    let lines: Vec<_> = said.lines().collect();
    let [short, default, mixed, all, end] = lines[..] else { panic!("{said}") };
    for (class, line) in [("short", short), ("default", default), ("mixed", mixed), ("all", all)] {
        assert!(line.starts_with(class), "{line}");
        for what in ["store operations", "faults", "acquisitions", "hand-overs", "takeovers", "losses"] {
            assert!(count(line, what) > 0, "{line}");
        }
    }
    assert_eq!(count(all, "seeds"), 3);
    assert!(end.starts_with("0 violations, hash "), "{end}");
}

#[test]
fn runs_of_different_seeds_have_different_hashes() {
    let hash = |seed: u64| {
        let ran = simulate(&format!("--seeds {seed} --hours 0.1 --round 180"));
        says(&ran.stdout).rsplit_once("hash ").unwrap().1.to_owned()
    };
    assert_ne!(hash(2), hash(3));
}

#[test]
fn a_class_in_which_nothing_happened_shows_nothing_and_fails() {
    let ran = simulate("--seeds 2 --hours 0.1 --programs 0 --faults none");
    assert!(!ran.status.success());
    let complained = says(&ran.stderr);
    assert!(complained.contains("no takeover among the seeds of class default"), "{complained}");
}

#[test]
fn a_run_is_put_into_the_table_of_the_log() {
    let page = include_str!("../../RUNS.md");
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simulate.md");
    std::fs::write(&log, page).unwrap();
    let ran = simulate(&format!("--seeds 2..4 --hours 0.2 --programs 3 --log {}", log.display()));
    let written = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    let hash = says(&ran.stdout).rsplit_once("hash ").unwrap().1.trim().to_owned();
    let new: Vec<_> = written.lines().filter(|line| line.ends_with(&format!("| {hash} | 0 |"))).collect();
    let [row] = new[..] else { panic!("{written}") };
    assert!(row.contains("| 2..4 | 5 instances, 8 keys, 6 tasks, 3 schedules, all faults |"), "{row}");
    assert_eq!(written.replace(&format!("{row}\n"), ""), page, "all else is as it was");
    let ran = simulate(&format!("--seeds 2 --hours 0.2 --programs 3 --log {}", log.display()));
    assert!(
        !ran.status.success() && says(&ran.stderr).contains("could not write to"),
        "there is no such file"
    );
}

#[test]
fn wrong_arguments_are_refused_with_the_value_and_the_rule() {
    for (arguments, says_this) in [
        ("--hours 1", "--seeds A..B is missing"),
        ("--seeds 9..3", "--seeds 9..3: there is none in that range"),
        ("--seeds some", "--seeds some: seeds are numbers"),
        ("--seeds 1 --faults earthquakes", "`earthquakes` is no fault; there are: calls, hangs"),
        ("--seeds 1 --hours 0", "--hours 0: a number above 0"),
        ("--seeds 1 --instances 0", "--instances 0: at least one"),
        ("--seeds 1 --paces slow", "--paces slow: there are short, default, mixed"),
        ("--seeds 1 --color red", "`--color` is no option"),
        ("--seeds", "--seeds needs a value"),
    ] {
        let ran = simulate(arguments);
        let complained = says(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{arguments}");
        assert!(complained.contains(says_this), "{arguments}: {complained}");
    }
    assert!(simulate("--help").status.success());
}

#[test]
fn the_page_names_every_fault() {
    let page = include_str!("../../../docs/proof.md");
    for trouble in Trouble::ALL {
        let row = page.lines().find(|line| {
            let cell = line.split('|').nth(1).unwrap_or_default();
            line.starts_with("| `") && cell.contains(&format!("`{trouble}`"))
        });
        assert!(row.is_some(), "{trouble} is in no row of the table");
    }
}
