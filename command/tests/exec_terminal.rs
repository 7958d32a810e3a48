//! `tenure exec` on a terminal: keys reach the child as if tenure were not there.

use std::{fs::File, io::Write, path::PathBuf, time::Instant};

use rustix::process::Signal;

use crate::{
    cli::{Folder, Running, children, lines, signal, tenure, until_lines, until_there},
    pty::{in_foreground, read_all, terminal},
    wait::LIMIT,
};

/// Runs `tenure exec` in the foreground of a terminal of its own.
fn on(device: &File, folder: &Folder, script: &str) -> Running {
    let mut command = tenure(&folder.store());
    command.args(["exec", "--key", "k", "--", "sh", "-c", script]);
    Running::start(&mut in_foreground(device, &command))
}

/// A child that notes each interrupt, and ends at the second.
struct Interrupted {
    begun: PathBuf,
    told: PathBuf,
    passed: PathBuf,
    keys: File,
    running: Running,
}

impl Interrupted {
    fn start(folder: &Folder) -> Self {
        let (keys, device) = terminal();
        let (begun, told, passed) = (folder.join("begun"), folder.join("told"), folder.join("passed"));
        // No trap forks: a signal reaches the whole group, and would end the child of a trap.
        let script = format!(
            "n=0; trap 'n=$((n + 1)); echo >> {0}; [ $n -lt 2 ] || exit 5' INT; trap 'echo > {1}' USR1; echo > {2}; \
             while :; do sleep 0.02; done",
            told.display(),
            passed.display(),
            begun.display()
        );
        let running = on(&device, folder, &script);
        Self { begun, told, passed, keys, running }
    }

    fn interrupt(&mut self) {
        self.keys.write_all(b"\x03").unwrap();
    }

    fn until_interrupted(&self) {
        until_lines("the first interrupt", &self.told, |told| !told.is_empty());
    }

    /// Looks whether the child had the key once, and ends it by another.
    fn had_one(mut self) {
        // Signals are passed on in the order in which they come: a second one of the same key would come before this.
        self.running.signal(Signal::USR1);
        until_there(&self.passed);
        assert_eq!(lines(&self.told).len(), 1);
        self.interrupt();
        assert_eq!(self.running.join().code(), Some(5));
    }
}

#[test]
fn a_key_of_the_terminal_reaches_the_child_once() {
    let folder = Folder::new("terminal");
    let mut child = Interrupted::start(&folder);
    until_there(&child.begun);
    child.interrupt();
    child.until_interrupted();
    child.had_one();
}

/// The child may run before tenure hears that it does: so the guardian stands still as it has started it.
#[test]
fn a_key_that_comes_as_the_child_begins_reaches_it_once() {
    let folder = Folder::new("terminal-begins");
    let mut child = Interrupted::start(&folder);
    let guardian = child_of(child.running.pid());
    child_of(guardian);
    signal(guardian, Signal::STOP);
    until_there(&child.begun);
    child.interrupt();
    child.until_interrupted();
    signal(guardian, Signal::CONT);
    child.had_one();
}

/// The child of a process, as soon as there is one.
fn child_of(pid: i32) -> i32 {
    let started = Instant::now();
    loop {
        if let [child, ..] = children(pid)[..] {
            return child;
        }
        assert!(started.elapsed() < LIMIT, "it has no child");
    }
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
