//! The command on a file that is replaced while it is in use.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
};

use crate::{
    cli::{Folder, Running, SHORT, tenure, until_lines, until_there, with_variable},
    wait::until_blocking,
};

/// Sentence of a store whose file is not there any more.
const REPLACED: &str = "the file was removed or replaced while it was in use: start this program again";

fn command(folder: &Folder, words: &[&str]) -> Command {
    let mut command = tenure(&folder.store());
    command.args(SHORT).args(words).env("TENURE_TEST", folder.path());
    command
}

/// As a supervisor needs it, which starts again what has ended.
#[test]
fn commands_that_wait_on_a_replaced_file_end_a_ttl_later_and_say_why() {
    let folder = Folder::new("replaced");
    let script = |name: &str| format!("echo >> {}; exec sleep 600", folder.join(name).display());
    let tasks = folder.join("tasks");
    fs::write(&tasks, "a\n").unwrap();
    let holds = script("holds");
    let mut holder = command(&folder, &["exec", "--key", "k", "--", "sh", "-c", &holds]);
    let mut holder = Running::start(holder.stderr(Stdio::null()));
    until_there(&folder.join("holds"));
    let start = |name: &str, words: &[&str]| {
        let said = folder.join(&format!("{name}-said"));
        Running::start(command(&folder, words).stderr(File::create(said).unwrap()).stdout(Stdio::null()))
    };
    let (ticks, runs) = (script("ticks"), script("runs"));
    let file = tasks.display().to_string();
    let mut others = [
        ("waiter", start("waiter", &["exec", "--key", "k", "--", "true"])),
        ("cron", start("cron", &["cron", "@every 1s", "--name", "beat", "--", "sh", "-c", &ticks])),
        ("spread", start("spread", &["spread", "--name", "s", "--tasks", &file, "--", "sh", "-c", &runs])),
    ];
    until_lines("the waiter", &folder.join("waiter-said"), |said| {
        said.iter().any(|line| line.contains("waiting: "))
    });
    until_there(&folder.join("ticks"));
    until_there(&folder.join("runs"));
    let copy = folder.join("copy.db");
    fs::copy(folder.join("tenure.db"), &copy).unwrap();
    fs::rename(copy, folder.join("tenure.db")).unwrap();
    for (name, running) in &mut others {
        let code = running.join().code();
        let said = fs::read_to_string(folder.join(&format!("{name}-said"))).unwrap();
        assert_eq!(code, Some(69), "{name}: {said}");
        let is_why = |line: &str| line.starts_with("tenure: ") && line.ends_with(REPLACED);
        assert!(said.lines().any(is_why), "{name}: {said}");
    }
    // The lease is lost.
    assert_eq!(holder.join().code(), Some(80));
    let variable = format!("TENURE_TEST={}", folder.path().display());
    until_blocking("the end of all children", || {
        let left = with_variable(&variable);
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}
