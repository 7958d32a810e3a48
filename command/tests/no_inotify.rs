//! The command where the kernel gives no notice of changes: a user has so many instances of inotify, here none.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
};

use rustix::process::Signal;

use crate::cli::{
    Folder, LONG, Running, output, set_variables, stderr, stdout, tenure, until_lines, until_there,
};

/// The same command, and all that it starts, with at most so many instances of inotify: in a user namespace of its own.
fn limited(of: &Command, instances: u32) -> Command {
    let script = format!("echo {instances} > /proc/sys/user/max_inotify_instances && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "sh", "-c", &script, "sh"]).arg(of.get_program()).args(of.get_args());
    command.stdin(Stdio::null());
    set_variables(&mut command, of);
    command
}

/// Returns whether this machine lets its users have namespaces, and limits in them.
fn may_limit(test: &str) -> bool {
    let tried = output(&mut limited(&Command::new("true"), 0));
    if !tried.status.success() {
        println!("{test} was left out, since it cannot limit inotify here: {}", stderr(&tried));
    }
    tried.status.success()
}

/// With polls that no test waits for.
fn exec(folder: &Folder, script: &str) -> Command {
    let mut command = tenure(&folder.store());
    command.args(LONG).args(["exec", "--key", "k", "--", "sh", "-c", script]);
    command.env("TENURE_POLL_INTERVAL", "10m");
    command
}

/// Neither waits for a poll. A process that was killed is found by a look at all files.
#[test]
fn without_inotify_keys_are_handed_over_and_crashes_are_found() {
    if !may_limit("without_inotify_keys_are_handed_over_and_crashes_are_found") {
        return;
    }
    let folder = Folder::new("no-inotify");
    let begun = |name: &str| format!("echo > {}; exec sleep 600", folder.join(name).display());
    let first = Running::start(&mut limited(&exec(&folder, &begun("first")), 0));
    until_there(&folder.join("first"));
    let said = folder.join("said");
    let mut second = limited(&exec(&folder, &begun("second")), 0);
    let second = Running::start(second.stderr(File::create(&said).unwrap()));
    until_lines("it waits", &said, |said| said.iter().any(|line| line.contains("waiting: ")));
    first.signal(Signal::TERM);
    until_there(&folder.join("second"));
    let mut third = limited(&exec(&folder, "exit 7"), 0);
    let third = Running::start(third.stdout(Stdio::piped()).stderr(Stdio::piped()));
    second.signal(Signal::KILL);
    let (status, _, said) = third.output();
    assert_eq!(status.code(), Some(7), "{said}");
}

/// More processes than the user has instances of inotify: some hear of the key, the others look.
#[test]
fn many_that_wait_for_one_key_all_run_with_fewer_instances_of_inotify() {
    const MANY: usize = 24;

    if !may_limit("many_that_wait_for_one_key_all_run_with_fewer_instances_of_inotify") {
        return;
    }
    let folder = Folder::new("few-inotify");
    let all = "for _ in $(seq \"$MANY\"); do (\"$@\"; echo $? >> \"$CODES\") & done; wait";
    let one = exec(&folder, "echo >> \"$RUNS\"");
    let mut command = limited(&Command::new("sh"), 8);
    command.args(["-c", all, "sh"]).arg(one.get_program()).args(one.get_args());
    set_variables(&mut command, &one);
    let (codes, runs) = (folder.join("codes"), folder.join("runs"));
    command.env("MANY", MANY.to_string()).env("CODES", &codes).env("RUNS", &runs);
    let done = output(&mut command);
    let lines = |file| fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&codes), ["0"; MANY], "{}", stderr(&done));
    assert_eq!(lines(&runs).len(), MANY, "{}", stderr(&done));
}

/// The list is looked at, with or without: the only notice is that of the store, once.
#[test]
fn without_inotify_a_crontab_is_read_again() {
    if !may_limit("without_inotify_a_crontab_is_read_again") {
        return;
    }
    let folder = Folder::new("no-inotify-cron");
    let crontab = folder.join("crontab");
    let line = |name: &str| format!("# name: {name}\n@every 1s echo >> {}\n", folder.join(name).display());
    fs::write(&crontab, line("first")).unwrap();
    let mut command = tenure(&folder.store());
    command.args(LONG).args(["cron", "--file"]).arg(&crontab);
    let said = folder.join("said");
    let mut running = Running::start(limited(&command, 0).stderr(File::create(&said).unwrap()));
    until_there(&folder.join("first"));
    fs::write(&crontab, line("second")).unwrap();
    until_there(&folder.join("second"));
    running.signal(Signal::TERM);
    assert_eq!(running.join().code(), Some(0));
    let said = fs::read_to_string(&said).unwrap();
    assert_eq!(said.matches("no notice of crashes from the kernel").count(), 1, "{said}");
}

#[test]
fn without_inotify_the_doctor_names_the_limit() {
    if !may_limit("without_inotify_the_doctor_names_the_limit") {
        return;
    }
    let folder = Folder::new("no-inotify-doctor");
    assert!(output(tenure(&folder.store()).args(["exec", "--key", "k", "--", "true"])).status.success());
    let found = output(&mut limited(tenure(&folder.store()).args(["doctor", "--color", "never"]), 0));
    let report = stdout(&found);
    assert_eq!(found.status.code(), Some(1), "{report}");
    let is_found = report.lines().any(|line| line.starts_with("WARNING     inotify "));
    assert!(is_found && report.contains("fs.inotify.max_user_instances"), "{report}");
}
