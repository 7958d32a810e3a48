//! A demo that runs, in a folder for temporary files of its own.

use std::{
    fmt, fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::wait::LIMIT;

/// The beginning of each promise.
pub(crate) const PROMISES: [&str; 7] = [
    "a task runs in one place at a time",
    "the tasks of a process that is killed run elsewhere within",
    "tasks of a frozen process move after its lease expires, within",
    "a process that resumes after its lease has ended notices it, and stops its jobs",
    "an instance that is drained ends with none",
    "all tasks run, spread evenly over the instances that take them",
    "every tick runs, and once unless its runner dies",
];

/// Fleets that may run at once: they wait more than they compute, and more of them would hold each other up.
const AT_ONCE: u32 = 3;
static TURNS: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());

/// A turn to run a fleet, until it is dropped.
struct Turn;

impl Turn {
    fn wait() -> Self {
        let (running, ended) = &TURNS;
        let running = running.lock().unwrap_or_else(PoisonError::into_inner);
        *ended.wait_while(running, |running| *running >= AT_ONCE).unwrap_or_else(PoisonError::into_inner) +=
            1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        TURNS.1.notify_one();
    }
}

/// A folder for temporary files, gone with this.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    _turn: Turn,
}

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = Turn::wait();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tenure-test-demo-{}-{number}", std::process::id());
        // In memory, as a demo does where nothing is said of it: no busy disk holds it up.
        let mut paths =
            [PathBuf::from("/dev/shm"), std::env::temp_dir()].map(|it| it.join(&name)).into_iter();
        let path = paths.find(|path| fs::create_dir(path).is_ok()).expect("one of them can be written to");
        Self { path, _turn: turn }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The command, with nothing set that is not meant.
pub(crate) fn command(program: &str, folder: &Folder) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TENURE_") {
            command.env_remove(name);
        }
    }
    command.env("TMPDIR", &folder.path).env("TERM", "xterm");
    // A store that is set for all commands is none for a demo.
    command.env("TENURE_STORE", "sqlite:/nowhere/in/use.db");
    command
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(raw(pid), signal).unwrap();
}

fn raw(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

pub(crate) struct Demo {
    child: Child,
    lines: Option<mpsc::Receiver<String>>,
    out: String,
    err: std::thread::JoinHandle<String>,
    folder: Folder,
}

impl Demo {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let folder = Folder::new();
        let mut command = command(env!("CARGO_BIN_EXE_tenure"), &folder);
        command
            .arg("demo")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let Ok(line) = line else { break };
                // No reader is left: the pipe is closed by that.
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let err = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            text
        });
        Self { child, lines: Some(lines), out: String::new(), err, folder }
    }

    /// Waits for a line with these words in it.
    pub(crate) fn wait_for(&mut self, words: &str) {
        self.wait_for_any(&[words]);
    }

    fn wait_for_any(&mut self, words: &[&str]) {
        while !words.iter().any(|words| self.out.contains(words)) {
            let line = self.lines.as_ref().unwrap().recv_timeout(LIMIT);
            let line = line.unwrap_or_else(|_| panic!("{words:?} is not in:\n{}", self.out));
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    /// Kills an instance that the demo itself does not kill in the same moment.
    pub(crate) fn kill_one(&mut self) {
        for pid in self.pids() {
            self.kill(pid);
            let [by_us, by_it] =
                ["was killed from outside", "is killed"].map(|how| format!("(pid {pid}) {how}"));
            self.wait_for_any(&[&by_us, &by_it]);
            if self.out.contains(&by_us) {
                return;
            }
        }
        panic!("the demo has killed them all: {}", self.out);
    }

    /// Kills an instance, unless it is gone: its number may be another's by now.
    pub(crate) fn kill(&self, pid: u32) {
        let Ok(process) = pidfd_open(raw(pid), PidfdFlags::empty()) else { return };
        if processes_of(&self.folder).contains(&pid) {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }

    /// Process ids of the first instances, in the order of their names.
    pub(crate) fn pids(&self) -> Vec<u32> {
        pids(&self.out)
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.child.id(), which);
    }

    pub(crate) fn close_output(&mut self) {
        self.lines = None;
    }

    pub(crate) fn wait(mut self) -> Over {
        for line in self.lines.iter().flatten() {
            self.out.push_str(&line);
            self.out.push('\n');
        }
        let status = self.child.wait().unwrap();
        Over { code: status.code(), out: self.out, err: self.err.join().unwrap(), folder: self.folder }
    }
}

/// A demo that is over.
pub(crate) struct Over {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    folder: Folder,
}

impl Over {
    /// Instances that are left: those whose environment has this folder in it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        processes_of(&self.folder)
    }

    pub(crate) fn assert_nothing_is_left(&self) {
        assert!(self.processes().is_empty(), "{self}");
        let left: Vec<_> = fs::read_dir(&self.folder.path).unwrap().map(|it| it.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}: {self}");
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "code {:?}\n{}\n{}", self.code, self.out, self.err)
    }
}

/// Processes that live and were started with this folder for temporary files.
pub(crate) fn processes_of(folder: &Folder) -> Vec<u32> {
    let wanted = format!("TMPDIR={}", folder.path.display());
    let of_folder = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let all = fs::read_dir("/proc").unwrap();
    let pids = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(of_folder).collect()
}

/// The process ids in `5 instances start: pids 123, 124`.
pub(crate) fn pids(out: &str) -> Vec<u32> {
    let line = out.lines().find_map(|line| line.split_once("instances start: pids "));
    let (_, pids) = line.expect("the first line names them");
    pids.split(", ").map(|pid| pid.parse().unwrap()).collect()
}
