//! The processes of the fleet: started, told, signalled, and gone when this is dropped.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use rustix::{
    fs::{Mode, OFlags},
    process::{
        Flock, FlockOffsetType, FlockType, Pid, Signal, WaitId, WaitIdOptions, fcntl_getlk, kill_process,
        waitid,
    },
};
use tenure::clock::Moment;
use tokio::sync::mpsc;

use super::{
    instance::{Order, Setup, now},
    message::{self, InstanceMessage},
};
use crate::exit::Failure;

/// The subcommand of this program that is one instance.
const SUBCOMMAND: &str = "demo-instance";

/// The byte of SQLite's file `-shm` that a writer has locked.
const WRITES: u64 = 120;
/// Attempts at stopping a process while it does not write.
const ATTEMPTS: u32 = 100;

/// A message from a process, or its end.
#[derive(Debug)]
pub(crate) enum Heard {
    Message(usize, Moment, InstanceMessage),
    /// All that it ever says has been heard.
    Ended(usize),
}

/// A change in the state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Exited(i32),
    Killed(i32),
    Stopped,
    Continued,
}

#[derive(Debug)]
struct Process {
    child: Child,
    pid: Pid,
    orders: Option<ChildStdin>,
    is_gone: bool,
}

/// All processes that were started.
#[derive(Debug)]
pub(crate) struct Crew {
    processes: Vec<Process>,
    heard: mpsc::UnboundedSender<Heard>,
    setup: Setup,
    /// Folder for what they write to stderr.
    logs: PathBuf,
}

impl Crew {
    pub(crate) fn new(setup: Setup, logs: PathBuf) -> (Self, mpsc::UnboundedReceiver<Heard>) {
        let (heard, hears) = mpsc::unbounded_channel();
        (Self { processes: Vec::new(), heard, setup, logs }, hears)
    }

    /// Starts another one. Returns its process id.
    pub(crate) fn start(&mut self, name: &str) -> Result<u32, Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::failed(format!("{name} cannot be started: {error}"));
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let log = File::create(self.log(name)).map_err(|error| failed(&error))?;
        let mut command = Command::new(program);
        // Settings of this command are not meant for them.
        for (variable, _) in std::env::vars_os() {
            if variable.to_str().is_some_and(|name| name.starts_with("TENURE_")) {
                command.env_remove(variable);
            }
        }
        command
            .arg0("tenure")
            .arg(SUBCOMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // Ctrl-C and Ctrl-Z are for the demo, which knows what to do.
            .process_group(0);
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let (orders, lines) = (child.stdin.take(), child.stdout.take());
        let (id, index) = (child.id(), self.processes.len());
        let pid = Pid::from_child(&child);
        self.processes.push(Process { child, pid, orders, is_gone: false });
        if let Some(lines) = lines {
            let heard = self.heard.clone();
            std::thread::Builder::new()
                .spawn(move || listen(index, lines, &heard))
                .map_err(|error| failed(&error))?;
        }
        let setup = Setup { holder: name.to_owned(), ..self.setup.clone() };
        let setup = serde_json::to_string(&setup).map_err(|error| failed(&error))?;
        self.tell(index, &setup);
        Ok(id)
    }

    /// Path of the file for its stderr.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    pub(crate) fn order(&mut self, index: usize, order: Order) {
        self.tell(index, order.word());
    }

    fn tell(&mut self, index: usize, line: &str) {
        if let Some(orders) = &mut self.processes[index].orders {
            // One that is gone is noticed by that.
            let _ = writeln!(orders, "{line}").and_then(|()| orders.flush());
        }
    }

    /// Kills it. Returns the moment before, at which it ran.
    pub(crate) fn kill(&self, index: usize) -> Moment {
        let before = now();
        self.signal(index, Signal::KILL);
        before
    }

    /// Stops it, and makes sure that it was not in the middle of a write to the file: it would keep the file locked,
    /// and keep all others from writing. Returns the moment before.
    pub(crate) fn freeze(&self, index: usize, database: Option<&Path>) -> Moment {
        let mut before = now();
        for _ in 0..ATTEMPTS {
            before = now();
            self.signal(index, Signal::STOP);
            let stopped = waitid(
                WaitId::Pid(self.processes[index].pid),
                WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
            );
            let writes =
                stopped.is_ok() && database.is_some_and(|path| writes(self.processes[index].pid, path));
            if !writes {
                break;
            }
            self.signal(index, Signal::CONT);
            std::thread::yield_now();
        }
        before
    }

    /// Lets it go on. Returns the moment before.
    pub(crate) fn thaw(&self, index: usize) -> Moment {
        let before = now();
        self.signal(index, Signal::CONT);
        before
    }

    fn signal(&self, index: usize, signal: Signal) {
        let process = &self.processes[index];
        // Its id is its own until it was waited for.
        if !process.is_gone {
            let _ = kill_process(process.pid, signal);
        }
    }

    /// Returns the changes in the state of the processes since the last call.
    pub(crate) fn fates(&mut self) -> Vec<(usize, Fate)> {
        let options =
            WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let mut fates = Vec::new();
        for (index, process) in self.processes.iter_mut().enumerate() {
            while !process.is_gone
                && let Ok(Some(status)) = waitid(WaitId::Pid(process.pid), options)
            {
                let fate = if status.stopped() {
                    Fate::Stopped
                } else if status.continued() {
                    Fate::Continued
                } else if let Some(code) = status.exit_status() {
                    Fate::Exited(code)
                } else {
                    Fate::Killed(status.terminating_signal().unwrap_or_default())
                };
                process.is_gone = matches!(fate, Fate::Exited(_) | Fate::Killed(_));
                fates.push((index, fate));
            }
        }
        fates
    }

    /// Kills all that are left, and waits until they are gone.
    pub(crate) fn end(&mut self) {
        for process in self.processes.iter_mut().filter(|process| !process.is_gone) {
            let _ = process.child.kill();
        }
        for process in self.processes.iter_mut().filter(|process| !process.is_gone) {
            let _ = process.child.wait();
            process.is_gone = true;
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.end();
    }
}

/// Passes on what a process says, until it says nothing more.
fn listen(index: usize, lines: impl io::Read, heard: &mpsc::UnboundedSender<Heard>) {
    for line in BufReader::new(lines).lines() {
        let Ok(line) = line else { break };
        if let Some((at, said)) = message::read(&line)
            && heard.send(Heard::Message(index, at, said)).is_err()
        {
            return;
        }
    }
    // The receiver may be gone.
    let _ = heard.send(Heard::Ended(index));
}

/// Returns whether a process has the file locked for writing. This process must not have the file open by SQLite:
/// closing it here would drop its locks.
fn writes(pid: Pid, database: &Path) -> bool {
    let mut shared = database.as_os_str().to_owned();
    shared.push("-shm");
    let Ok(file) = rustix::fs::open(PathBuf::from(shared), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
    else {
        return false;
    };
    let wanted = Flock {
        start: WRITES,
        length: 1,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    matches!(fcntl_getlk(&file, &wanted), Ok(Some(lock)) if lock.pid == Some(pid))
}
