//! Shared parts of the command's tests: a folder for each, and the binary with nothing but a test's own settings.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::wait::until_blocking;

/// A lease that no slow machine loses, and short times between heartbeats: they bring what is waited for.
pub(crate) const STEADY: [&str; 4] = ["--refresh-duration", "30s", "--refresh-interval", "500ms"];
/// A lease that no test waits for.
pub(crate) const LONG: [&str; 4] = ["--refresh-duration", "10m", "--refresh-interval", "500ms"];
/// A lease for a test that waits for its end. A machine that stands still for three seconds does not lose it.
pub(crate) const SHORT: [&str; 4] = ["--refresh-duration", "6s", "--refresh-interval", "500ms"];

/// A folder that goes with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tenure-{name}-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The URI of a store in it.
    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.join("tenure.db").display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The binary, without variables of the user who runs the tests.
pub(crate) fn tenure(store: &str) -> Command {
    let mut command = bare();
    command.env("TENURE_STORE", store);
    command
}

/// The binary without a store.
///
/// It gets its signals, also where the runner of the tests ignores some, as a shell does for what it runs in the
/// background.
pub(crate) fn bare() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_tenure")]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TENURE_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// The same command as the leader of a session of its own.
pub(crate) fn in_session(of: &Command) -> Command {
    let mut command = Command::new("setsid");
    command.arg(of.get_program()).args(of.get_args()).stdin(Stdio::null());
    set_variables(&mut command, of);
    command
}

/// Gives a command the variables of another.
pub(crate) fn set_variables(command: &mut Command, of: &Command) {
    for (name, value) in of.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Runs a command to its end.
pub(crate) fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A process that is killed with the test, if it has not ended.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    /// Waits for its end.
    pub(crate) fn join(&mut self) -> ExitStatus {
        until_blocking("the end of the process", || self.0.try_wait().unwrap().ok_or("it runs"))
    }

    /// Waits for its end, and reads what it wrote.
    pub(crate) fn output(mut self) -> (ExitStatus, String, String) {
        let status = self.join();
        let (mut out, mut err) = (String::new(), String::new());
        if let Some(mut pipe) = self.0.stdout.take() {
            pipe.read_to_string(&mut out).unwrap();
        }
        if let Some(mut pipe) = self.0.stderr.take() {
            pipe.read_to_string(&mut err).unwrap();
        }
        (status, out, err)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        self::signal(self.pid(), signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

/// Waits for a file.
pub(crate) fn until_there(file: &Path) {
    let name = file.display().to_string();
    until_blocking(&name, || if file.exists() { Ok(()) } else { Err("it is not there") });
}

/// Waits until the lines of a file are so, and returns them.
pub(crate) fn until_lines(what: &str, file: &Path, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
    until_blocking(what, || {
        let lines = lines(file);
        if is_so(&lines) { Ok(lines) } else { Err(lines) }
    })
}

/// The children of a process, as the kernel lists them.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}

/// The living processes that have this variable, as `NAME=VALUE`.
pub(crate) fn with_variable(variable: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()) && is_alive(*pid)
    })
    .collect()
}

/// Returns whether a process is there and has not ended.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The lines of a file, none if it is not there.
pub(crate) fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(ToOwned::to_owned).collect()
}

/// Returns whether a process is one of tenure itself.
pub(crate) fn is_tenure(pid: i32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| program.ends_with("tenure"))
}

/// Tasks, by the instance they run under.
pub(crate) type Tasks = BTreeMap<String, Vec<String>>;

/// Waits until the tasks run so.
pub(crate) fn until_tasks(what: &str, folder: &Folder, is_so: impl Fn(&Tasks) -> bool) {
    until_blocking(what, || {
        let running = running_tasks(folder);
        if is_so(&running) { Ok(()) } else { Err(running) }
    });
}

/// The tasks whose children run now.
pub(crate) fn running_tasks(folder: &Folder) -> Tasks {
    let mut found = Tasks::new();
    for pid in with_variable(&format!("TENURE_TEST={}", folder.path().display())) {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let environ = String::from_utf8_lossy(&environ).into_owned();
        let value = |name: &str| {
            environ.split('\0').find_map(|entry| entry.strip_prefix(name)).map(ToOwned::to_owned)
        };
        if let (Some(holder), Some(key), false) =
            (value("TENURE_HOLDER="), value("TENURE_KEY="), is_tenure(pid))
        {
            found.entry(holder).or_default().push(key);
        }
    }
    for tasks in found.values_mut() {
        tasks.sort();
    }
    found
}

pub(crate) fn all(running: &Tasks) -> Vec<String> {
    let mut all: Vec<_> = running.values().flatten().cloned().collect();
    all.sort();
    all
}
