//! The command where the kernel gives no notice of changes: a user has so many instances of inotify, here none.

use std::{
    fs::File,
    process::{Command, Stdio},
};

use rustix::process::Signal;

use crate::cli::{
    Folder, LONG, Running, output, set_variables, stderr, stdout, tenure, until_lines, until_there,
};

/// Lets a command have no instance of inotify, in a user namespace of its own.
const NONE: &str = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"";

/// The same command without inotify.
fn without(of: &Command) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "sh", "-c", NONE, "sh"]).arg(of.get_program()).args(of.get_args());
    command.stdin(Stdio::null());
    set_variables(&mut command, of);
    command
}

/// Returns whether this machine lets its users have namespaces, and limits in them.
fn may_limit(test: &str) -> bool {
    let tried = output(&mut without(&Command::new("true")));
    if !tried.status.success() {
        println!("{test} was left out, since it cannot limit inotify here: {}", stderr(&tried));
    }
    tried.status.success()
}

fn exec(folder: &Folder, script: &str) -> Command {
    let mut command = tenure(&folder.store());
    command.args(LONG).args(["exec", "--key", "k", "--", "sh", "-c", script]);
    without(&command)
}

/// A key that is given back is found by a poll, and that of a process that was killed by a look at all files.
#[test]
fn without_inotify_keys_are_handed_over_and_crashes_are_found() {
    if !may_limit("without_inotify_keys_are_handed_over_and_crashes_are_found") {
        return;
    }
    let folder = Folder::new("no-inotify");
    let begun = |name: &str| format!("echo > {}; exec sleep 600", folder.join(name).display());
    let first = Running::start(&mut exec(&folder, &begun("first")));
    until_there(&folder.join("first"));
    let said = folder.join("said");
    let mut second = exec(&folder, &begun("second"));
    let second = Running::start(second.stderr(File::create(&said).unwrap()));
    let notice = "the kernel gives no notice of changes, so the key is looked at every 500ms";
    until_lines("the notice", &said, |said| said.iter().any(|line| line.contains(notice)));
    first.signal(Signal::TERM);
    until_there(&folder.join("second"));
    let mut third = exec(&folder, "exit 7");
    let third = Running::start(third.stdout(Stdio::piped()).stderr(Stdio::piped()));
    second.signal(Signal::KILL);
    let (status, _, said) = third.output();
    assert_eq!(status.code(), Some(7), "{said}");
}

#[test]
fn without_inotify_the_doctor_names_the_limit() {
    if !may_limit("without_inotify_the_doctor_names_the_limit") {
        return;
    }
    let folder = Folder::new("no-inotify-doctor");
    assert!(output(tenure(&folder.store()).args(["exec", "--key", "k", "--", "true"])).status.success());
    let found = output(&mut without(tenure(&folder.store()).args(["doctor", "--color", "never"])));
    let report = stdout(&found);
    assert_eq!(found.status.code(), Some(1), "{report}");
    let is_found = report.lines().any(|line| line.starts_with("WARNING     inotify "));
    assert!(is_found && report.contains("fs.inotify.max_user_instances"), "{report}");
}
