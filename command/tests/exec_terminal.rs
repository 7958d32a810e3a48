//! `tenure exec` on a terminal: keys reach the child as if tenure were not there.

use std::{fs::File, io::Write};

use rustix::process::Signal;

use crate::{
    cli::{Folder, Running, lines, tenure, until_lines, until_there},
    pty::{in_foreground, read_all, terminal},
};

/// Runs `tenure exec` in the foreground of a terminal of its own.
fn on(device: &File, folder: &Folder, script: &str) -> Running {
    let mut command = tenure(&folder.store());
    command.args(["exec", "--key", "k", "--", "sh", "-c", script]);
    Running::start(&mut in_foreground(device, &command))
}

#[test]
fn a_key_of_the_terminal_reaches_the_child_once() {
    let folder = Folder::new("terminal");
    let (mut keys, device) = terminal();
    let (begun, told, passed) = (folder.join("begun"), folder.join("told"), folder.join("passed"));
    // No trap forks: a signal reaches the whole group, and would end the child of a trap.
    let script = format!(
        "n=0; trap 'n=$((n + 1)); echo >> {0}; [ $n -lt 2 ] || exit 5' INT; trap 'echo > {1}' USR1; echo > {2}; \
         while :; do sleep 0.02; done",
        told.display(),
        passed.display(),
        begun.display()
    );
    let mut running = on(&device, &folder, &script);
    until_there(&begun);
    keys.write_all(b"\x03").unwrap();
    until_lines("the first interrupt", &told, |told| !told.is_empty());
    // Signals are passed on in the order in which they come: a second one of the same key would come before this.
    running.signal(Signal::USR1);
    until_there(&passed);
    assert_eq!(lines(&told).len(), 1);
    keys.write_all(b"\x03").unwrap();
    assert_eq!(running.join().code(), Some(5));
}

#[test]
fn the_terminal_is_that_of_the_child() {
    let folder = Folder::new("terminal-read");
    let (mut keys, device) = terminal();
    let shown = read_all(keys.try_clone().unwrap());
    let mut running =
        on(&device, &folder, "test -t 0 && test -t 1 && test -t 2 && read word && echo said:$word");
    keys.write_all(b"hello\n").unwrap();
    assert_eq!(running.join().code(), Some(0));
    drop(device);
    let shown: String = shown.iter().collect();
    assert!(shown.contains("said:hello"), "{shown:?}");
}

/// A terminal that is closed ends the child, and with it all.
#[test]
fn a_terminal_that_goes_ends_the_child() {
    let folder = Folder::new("terminal-gone");
    let (keys, device) = terminal();
    let begun = folder.join("begun");
    let script = format!("echo > {}; sleep 600", begun.display());
    let mut running = on(&device, &folder, &script);
    until_there(&begun);
    drop((keys, device));
    assert!(!running.join().success());
}
