//! `tenure exec` on a terminal: keys reach the child as if tenure were not there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]
#![allow(clippy::disallowed_methods, reason = "processes run by the clock of the machine")]

mod cli;
mod pty;

use std::{
    fs::{self, File},
    io::{Read, Write},
    time::Duration,
};

use cli::{Folder, Running, until};
use pty::{in_foreground, terminal};

/// Runs `tenure exec` in the foreground of a terminal of its own.
fn on(device: &File, folder: &Folder, script: &str) -> Running {
    let mut command = cli::tenure(&folder.store());
    command.args(["exec", "--key", "k", "--", "sh", "-c", script]);
    Running::start(&mut in_foreground(device, &command))
}

fn lines(folder: &Folder, name: &str) -> usize {
    fs::read_to_string(folder.join(name)).unwrap_or_default().lines().count()
}

#[test]
fn a_key_of_the_terminal_reaches_the_child_once() {
    let folder = Folder::new("terminal");
    let (mut keys, device) = terminal();
    let path = folder.path().display();
    let script = format!(
        "trap 'echo >> {path}/told; [ $(wc -l < {path}/told) -lt 2 ] || exit 5' INT; echo > {path}/begun; \
         while :; do sleep 0.02; done"
    );
    let mut running = on(&device, &folder, &script);
    until("the child's beginning", || folder.join("begun").exists().then_some(()));
    keys.write_all(b"\x03").unwrap();
    until("the first interrupt", || (lines(&folder, "told") >= 1).then_some(()));
    // A second one of the same key would have come by now.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(lines(&folder, "told"), 1);
    keys.write_all(b"\x03").unwrap();
    assert_eq!(running.join().code(), Some(5));
}

#[test]
fn the_terminal_is_that_of_the_child() {
    let folder = Folder::new("terminal-read");
    let (mut keys, device) = terminal();
    let mut running =
        on(&device, &folder, "test -t 0 && test -t 1 && test -t 2 && read word && echo said:$word");
    keys.write_all(b"hello\n").unwrap();
    assert_eq!(running.join().code(), Some(0));
    let mut shown = [0; 1024];
    let read = keys.read(&mut shown).unwrap();
    let shown = String::from_utf8_lossy(&shown[..read]).into_owned();
    assert!(shown.contains("said:hello"), "{shown:?}");
}

/// A terminal that is closed ends the child, and with it all.
#[test]
fn a_terminal_that_goes_ends_the_child() {
    let folder = Folder::new("terminal-gone");
    let (keys, device) = terminal();
    let script = format!("echo > {}; sleep 600", folder.join("begun").display());
    let mut running = on(&device, &folder, &script);
    until("the child's beginning", || folder.join("begun").exists().then_some(()));
    drop((keys, device));
    assert!(!running.join().success());
}
