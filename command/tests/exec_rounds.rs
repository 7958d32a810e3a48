//! Rounds of the worst: tenure killed, tenure frozen, the guardian killed, with children that do not want to end. No
//! two children of a key may ever run at once, and none may be left.
//!
//! `TENURE_ROUNDS=100` for more than a few rounds of each.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]
#![allow(clippy::disallowed_methods, reason = "processes run by the clock of the machine")]

mod cli;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use cli::{Folder, Running, children, is_tenure, signal, tenure, until, with_variable};
use rustix::process::Signal;

fn rounds() -> u32 {
    std::env::var("TENURE_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap())
}

/// A child that forks twice, leaves its session, ignores what can be ignored, and has a crowd with it. It tells when
/// it has begun, and whom it finds of an earlier one.
fn wild(folder: &Folder, crowd: u32) -> String {
    let path = folder.path().display();
    format!(
        "trap '' TERM HUP INT
        grep -lsz '^TENURE_TEST={path}$' /proc/[0-9]*/environ | while read environ; do
            grep -qsz \"^TENURE_TERM=$TENURE_TERM$\" $environ || grep -qsz '^TENURE_TERM=' $environ && \
            ! grep -qsz \"^TENURE_TERM=$TENURE_TERM$\" $environ && echo $environ >> {path}/overlap
        done
        (setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' &)
        i=0; while [ $i -lt {crowd} ]; do (sh -c 'trap \"\" TERM; sleep 600; sleep 600' &); i=$((i+1)); done
        echo $TENURE_TERM > {path}/begun-$TENURE_TERM
        while :; do sleep 1; done"
    )
}

fn start(folder: &Folder, crowd: u32) -> Running {
    let mut command: Command = tenure(&folder.store());
    command.args([
        "--refresh-duration",
        "3s",
        "--refresh-interval",
        "500ms",
        "exec",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
    ]);
    command.arg(wild(folder, crowd)).env("TENURE_TEST", folder.path()).stderr(Stdio::null());
    Running::start(&mut command)
}

/// The terms under which children have begun.
fn begun(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("begun-")).count()
}

fn until_begun(folder: &Folder, count: usize) {
    until("a child", || (begun(folder.path()) >= count).then_some(()));
}

/// The processes of the children, without those of tenure, which have the variable, too.
fn left(folder: &Folder) -> Vec<i32> {
    let mut pids = with_variable(&format!("TENURE_TEST={}", folder.path().display()));
    pids.retain(|pid| !is_tenure(*pid));
    pids
}

struct Round {
    took: Duration,
}

/// One holds and one waits; something happens to the first; then the second runs, alone.
fn round(name: &str, crowd: u32, harm: impl Fn(&Running)) -> Round {
    let folder = Folder::new(name);
    let first = start(&folder, crowd);
    until_begun(&folder, 1);
    let second = start(&folder, 0);
    until("the second in line", || {
        (children(second.pid()).is_empty()
            && fs::read_dir(format!("/proc/{}/task", second.pid())).ok()?.count() > 2)
            .then_some(())
    });
    let harmed = Instant::now();
    harm(&first);
    until_begun(&folder, 2);
    let took = harmed.elapsed();
    let overlap = fs::read_to_string(folder.join("overlap")).unwrap_or_default();
    assert_eq!(overlap, "", "another child still ran");
    signal(first.pid(), Signal::CONT);
    // Killed by what it is to survive: only its guardian ends the child then.
    second.signal(Signal::KILL);
    drop(first);
    drop(second);
    until("the end of all children", || left(&folder).is_empty().then_some(()));
    Round { took }
}

fn rounds_of(name: &str, crowd: u32, within: Duration, harm: impl Fn(&Running)) {
    let mut times: Vec<_> = (0..rounds()).map(|_| round(name, crowd, &harm).took).collect();
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{name}: {} rounds, the next child after {median:.1?}, {worst:.1?} at the worst", times.len());
    assert!(worst < within, "{worst:?}");
}

fn guardian(of: &Running) -> i32 {
    until("the guardian", || children(of.pid()).first().copied())
}

#[test]
fn tenure_is_killed() {
    rounds_of("killed", 0, Duration::from_secs(3), |first| first.signal(Signal::KILL));
}

#[test]
fn tenure_is_killed_with_a_crowd() {
    rounds_of("crowd", 200, Duration::from_secs(5), |first| first.signal(Signal::KILL));
}

#[test]
fn tenure_is_frozen() {
    rounds_of("frozen", 0, Duration::from_secs(8), |first| first.signal(Signal::STOP));
}

#[test]
fn the_guardian_is_killed() {
    rounds_of("guardian", 0, Duration::from_secs(5), |first| signal(guardian(first), Signal::KILL));
}

/// CMD itself ends with the guardian. What else it started may go on: that is said in the documentation.
#[test]
fn both_are_killed() {
    let folder = Folder::new("both");
    let mut command = tenure(&folder.store());
    command.args(["exec", "--key", "k", "--", "sleep", "600"]).env("TENURE_TEST", folder.path());
    let first = Running::start(&mut command);
    until("the child", || (left(&folder).len() == 1).then_some(()));
    let guardian = guardian(&first);
    first.signal(Signal::STOP);
    signal(guardian, Signal::KILL);
    first.signal(Signal::KILL);
    until("the end of the child", || left(&folder).is_empty().then_some(()));
}

/// By whatever names the kernel lists them: cut in the middle of a letter, or with a first thread that has ended.
#[test]
fn children_that_are_hard_to_see_end_with_tenure() {
    let threads = "import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(60, 0)";
    for word in ["name", "thread"] {
        if word == "thread" && !cfg!(target_arch = "x86_64") {
            continue;
        }
        let folder = Folder::new("unseen");
        let program = folder.join("ежедневный");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut command = tenure(&folder.store());
        command.args(["exec", "--key", "k", "--"]).env("TENURE_TEST", folder.path());
        let running = match word {
            "name" => Running::start(command.arg(&program).arg("600")),
            _ => Running::start(command.args(["python3", "-c", threads])),
        };
        let child = until("the child", || {
            let child = *children(guardian(&running)).first()?;
            let stat = fs::read(format!("/proc/{child}/stat")).unwrap_or_default();
            let is_it = |part: &str| String::from_utf8_lossy(&stat).contains(part);
            is_it(if word == "name" { "(ежеднев" } else { ") Z " }).then_some(child)
        });
        running.signal(Signal::KILL);
        until("its end", || (!Path::new(&format!("/proc/{child}")).exists()).then_some(()));
    }
}

/// A guardian that is frozen cannot do what it is told, so tenure does.
#[test]
fn the_guardian_is_frozen() {
    let folder = Folder::new("guardian-frozen");
    let mut first = start(&folder, 0);
    until_begun(&folder, 1);
    signal(guardian(&first), Signal::STOP);
    let mut force = tenure(&folder.store());
    force.args(["release", "k", "--force", "--yes"]);
    assert!(cli::output(&mut force).status.success());
    assert_eq!(first.join().code(), Some(80));
    assert_eq!(left(&folder), [0; 0]);
}

/// Whenever a signal comes, from the first moment on, the command ends, and nothing is left of it.
#[test]
fn a_signal_at_any_moment_leaves_nobody() {
    let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
    for round in 0..rounds() * 10 {
        let folder = Folder::new("moment");
        let mut command = tenure(&folder.store());
        command.args(["exec", "--key", "k", "--", "sleep", "600"]).env("TENURE_TEST", folder.path());
        let mut running = Running::start(command.stderr(Stdio::null()));
        // Before that it may ignore what whoever runs the tests ignores.
        until("the command itself", || is_tenure(running.pid()).then_some(()));
        std::thread::sleep(Duration::from_micros(u64::from(round) * 1_700 % 40_000));
        running.signal(signals[round as usize % signals.len()]);
        let status = running.join();
        assert!(!status.success(), "{status:?}");
        assert_eq!(left(&folder), [0; 0], "round {round}");
    }
}
