//! Standard error that cannot be written, or is not read: the work goes on, and what is lost is counted.

use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use rustix::process::Signal;

use crate::cli::{Folder, Running, STEADY, tenure, until_lines, until_there};

/// Has a full disk for a log.
fn full(command: &mut Command) -> &mut Command {
    command.stderr(OpenOptions::new().write(true).open("/dev/full").unwrap())
}

#[test]
fn a_full_disk_of_the_log_keeps_no_program_from_running() {
    let folder = Folder::new("log-full");
    let begun = folder.join("begun");
    let exec = |script: &str| {
        let mut command = tenure(&folder.store());
        command.args(["exec", "--key", "k", "--", "sh", "-c", script]);
        command
    };
    let go = folder.join("go");
    let script = format!("echo > {}; until [ -e {} ]; do sleep 0.02; done", begun.display(), go.display());
    let mut first = Running::start(&mut exec(&script));
    until_there(&begun);
    // The second one has something to say: that it waits.
    let mut second = Running::start(full(&mut exec("exit 7")));
    std::fs::write(go, "").unwrap();
    assert_eq!(first.join().code(), Some(0));
    assert_eq!(second.join().code(), Some(7));
    // The mistake could not be told, and has its code all the same.
    let wrong = full(tenure(&folder.store()).args(["exec", "--key", "", "--", "true"])).status().unwrap();
    assert_eq!(wrong.code(), Some(64));
}

#[test]
fn a_log_that_nobody_reads_holds_up_no_job_and_its_loss_is_counted() {
    let folder = Folder::new("log-unread");
    let ran = folder.join("ran");
    // More than a pipe and all that may wait for it have room for.
    let script = format!("yes words | head -c 1500000 >&2; echo >> {}", ran.display());
    let mut command = tenure(&folder.store());
    command.args(STEADY).args(["cron", "@every 1s", "--name", "loud", "--", "sh", "-c", &script]);
    let mut running = Running::start(command.stderr(Stdio::piped()));
    until_lines("three runs", &ran, |ran| ran.len() >= 3);
    let mut said = BufReader::new(running.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let lost = said.find(|line| line.ends_with(" lines before this one are lost")).unwrap();
    assert!(lost.starts_with("tenure: "), "{lost}");
    let reader = std::thread::spawn(move || said.count());
    running.signal(Signal::TERM);
    assert_eq!(running.join().code(), Some(0));
    reader.join().unwrap();
}

/// As when the logger at the other end of a pipe has died.
#[test]
fn a_log_whose_reader_is_gone_holds_up_no_schedule() {
    let folder = Folder::new("log-gone");
    let ran = folder.join("ran");
    let script = format!("echo words >&2; echo >> {}", ran.display());
    let mut command = tenure(&folder.store());
    command.args(STEADY).args([
        "--log",
        "debug",
        "cron",
        "@every 1s",
        "--name",
        "tick",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let mut running = Running::start(command.stderr(Stdio::piped()));
    drop(running.0.stderr.take());
    until_lines("three runs", &ran, |ran| ran.len() >= 3);
    running.signal(Signal::TERM);
    assert_eq!(running.join().code(), Some(0));
}
