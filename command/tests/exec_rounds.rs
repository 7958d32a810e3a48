//! Rounds of the worst: tenure killed, tenure frozen, the guardian killed, with children that do not want to end. No
//! two children of a key may ever run at once, and none may be left.
//!
//! `TENURE_ROUNDS=100` for more than one round of each.

use std::{
    fs,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{
    cli::{
        Folder, Running, SHORT, STEADY, children, in_session, is_tenure, output, signal, tenure, until_there,
        with_variable,
    },
    rounds::rounds,
    wait::until_blocking,
};

/// The ttl of [`STEADY`].
const TTL: Duration = Duration::from_secs(30);

/// A child that forks twice, leaves its session, ignores what can be ignored, and has a crowd with it. It tells when
/// it has begun, and which earlier ones it finds: each environment is read once, as processes end meanwhile.
fn wild(folder: &Folder, crowd: u32) -> String {
    let path = folder.path().display();
    format!(
        "trap '' TERM HUP INT
        grep -lsz '^TENURE_TEST={path}$' /proc/[0-9]*/environ | while read environ; do
            term=$(grep -asz '^TENURE_TERM=' $environ | tr -d '\\000')
            [ -z \"$term\" ] || [ \"$term\" = \"TENURE_TERM=$TENURE_TERM\" ] || echo $environ $term >> {path}/overlap
        done
        (setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' &)
        i=0; while [ $i -lt {crowd} ]; do (sh -c 'trap \"\" TERM; sleep 600; sleep 600' &); i=$((i+1)); done
        echo $TENURE_TERM > {path}/begun-$TENURE_TERM
        while :; do sleep 1; done"
    )
}

fn start(folder: &Folder, crowd: u32, durations: &[&str]) -> Running {
    let mut command: Command = tenure(&folder.store());
    command.args(durations).args(["exec", "--key", "k", "--", "sh", "-c"]).arg(wild(folder, crowd));
    // As a service manager starts it: the kernel thaws no member of a group that has been an orphan before.
    Running::start(in_session(&command).env("TENURE_TEST", folder.path()).stderr(Stdio::null()))
}

/// The terms under which children have begun.
fn begun(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("begun-")).count()
}

fn until_begun(folder: &Folder, count: usize) {
    until_blocking("a child", || {
        let begun = begun(folder.path());
        if begun >= count { Ok(()) } else { Err(begun) }
    });
}

/// The processes of the children, without those of tenure, which have the variable, too.
fn left(folder: &Folder) -> Vec<i32> {
    let mut pids = with_variable(&format!("TENURE_TEST={}", folder.path().display()));
    pids.retain(|pid| !is_tenure(*pid));
    pids
}

fn until_none_is_left(folder: &Folder) {
    until_blocking("the end of all children", || {
        let left = left(folder);
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

/// A round: one process holds and one waits; something happens to the first; then the second runs, alone. Returns
/// the time between.
fn round(name: &str, crowd: u32, durations: &[&str], harm: impl Fn(&Running)) -> Duration {
    let folder = Folder::new(name);
    let first = start(&folder, crowd, durations);
    until_begun(&folder, 1);
    let second = start(&folder, 0, durations);
    until_blocking("the second in the queue", || {
        let threads = fs::read_dir(format!("/proc/{}/task", second.pid())).map_or(0, Iterator::count);
        if children(second.pid()).is_empty() && threads > 2 { Ok(()) } else { Err(threads) }
    });
    let harmed = Instant::now();
    harm(&first);
    until_begun(&folder, 2);
    let took = harmed.elapsed();
    let overlap = fs::read_to_string(folder.join("overlap")).unwrap_or_default();
    assert_eq!(overlap, "", "another child still ran");
    signal(first.pid(), Signal::CONT);
    // Killed by what it is to survive: only its guardian ends the child then.
    second.signal(Signal::KILL);
    drop(first);
    drop(second);
    until_none_is_left(&folder);
    took
}

fn rounds_of(name: &str, crowd: u32, durations: &[&str], harm: impl Fn(&Running)) -> Duration {
    let mut times: Vec<_> = (0..rounds()).map(|_| round(name, crowd, durations, &harm)).collect();
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{name}: {} rounds, the next child after {median:.1?}, {worst:.1?} at the worst", times.len());
    worst
}

/// The end of the process is proven: no instance waits for the end of its ttl.
fn is_proven(name: &str, crowd: u32, harm: impl Fn(&Running)) {
    let worst = rounds_of(name, crowd, &STEADY, harm);
    assert!(worst < TTL, "{worst:?}");
}

fn guardian(of: &Running) -> i32 {
    until_blocking("the guardian", || children(of.pid()).first().copied().ok_or("it has no child"))
}

#[test]
fn tenure_is_killed() {
    is_proven("killed", 0, |first| first.signal(Signal::KILL));
}

#[test]
fn tenure_is_killed_with_a_crowd() {
    is_proven("crowd", 200, |first| first.signal(Signal::KILL));
}

/// As `timeout -k`, a supervisor or `kill -9 -PGID` does.
#[test]
fn the_process_group_is_killed() {
    is_proven("group", 0, kill_group);
}

#[test]
fn the_guardian_is_frozen_and_tenure_killed() {
    is_proven("guardian-frozen-killed", 0, |first| {
        signal(guardian(first), Signal::STOP);
        first.signal(Signal::KILL);
    });
}

fn kill_group(of: &Running) {
    kill_process_group(Pid::from_raw(of.pid()).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_child_kills_its_own_process_group() {
    let folder = Folder::new("kills-group");
    let script = "(setsid sh -c 'trap \"\" TERM; echo > $TENURE_TEST/begun; sleep 600; sleep 600' &)
        while ! [ -e $TENURE_TEST/begun ]; do sleep 0.01; done; kill -9 0";
    let mut command = tenure(&folder.store());
    command.args(["exec", "--key", "k", "--", "sh", "-c", script]).process_group(0);
    let mut running = Running::start(command.env("TENURE_TEST", folder.path()));
    assert_eq!(running.join().signal(), Some(9));
    until_none_is_left(&folder);
}

/// Processes that fork and end at once, on a machine with many others: a look at all of them takes longer than one
/// lives.
#[test]
fn a_chain_of_forks_ends_with_tenure_among_a_thousand_processes() {
    let folder = Folder::new("chain");
    let others: Vec<_> = (0..1000).map(|_| Running::start(Command::new("sleep").arg("600"))).collect();
    let chain = "import os
open(os.environ['TENURE_TEST'] + '/begun', 'w').close()
if not os.fork():
    os.setsid()
    while True:
        if os.fork():
            os._exit(0)
os.wait()";
    for _ in 0..rounds() {
        let mut command = tenure(&folder.store());
        command.args(["exec", "--key", "k", "--", "python3", "-c", chain]).env("TENURE_TEST", folder.path());
        let running = Running::start(&mut command);
        until_there(&folder.join("begun"));
        running.signal(Signal::KILL);
        until_none_is_left(&folder);
        fs::remove_file(folder.join("begun")).unwrap();
    }
    drop(others);
}

/// Runs a script as the first process of a pid namespace; `None`, with a word, where that may not be made.
fn in_namespace(test: &str, options: &[&str], script: &str, folder: &Folder) -> Option<String> {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork"]);
    command.args(options);
    command.args(["sh", "-c", script]).env("TENURE", env!("CARGO_BIN_EXE_tenure"));
    let output = output(command.env("TENURE_STORE", folder.store()).env("TENURE_TEST", folder.path()));
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if said.contains("unshare failed") || said.contains("Operation not permitted") {
        println!("{test} was left out, since no namespace may be made here: {said}");
        return None;
    }
    Some(said)
}

#[test]
fn a_proc_of_another_pid_namespace_is_refused() {
    let folder = Folder::new("foreign");
    let script = "$TENURE exec --key k -- echo ran; echo code $?";
    if let Some(said) = in_namespace("a_proc_of_another", &[], script, &folder) {
        assert!(said.contains("/proc is that of another pid namespace: mount one of its own"), "{said}");
        assert!(said.contains("code 125") && !said.contains("ran"), "{said}");
    }
}

/// A program whose file its user may not read is hidden from others of that user, the guardian among them.
#[test]
fn a_child_that_is_hidden_ends_with_tenure() {
    let folder = Folder::new("hidden");
    let script = "cd $TENURE_TEST; mount -o remount,hidepid=ptraceable /proc || exit 1
        cp /bin/sh hidden; chmod 111 hidden; mkfifo said
        setpriv --bounding-set -all --inh-caps -all \
            $TENURE exec --key k -- ./hidden -c 'echo begun; while :; do sleep 1; done' > said &
        exec 3< said; read begun <&3; echo $begun; kill -9 $!
        # Its end, and that of all that it started: nobody has the other end open.
        timeout 20 cat <&3 && echo gone";
    if let Some(said) = in_namespace("a_child_that_is_hidden", &["--mount-proc"], script, &folder) {
        assert_eq!(said, "begun\ngone\n");
    }
}

#[test]
fn tenure_is_frozen() {
    rounds_of("frozen", 0, &SHORT, |first| first.signal(Signal::STOP));
}

#[test]
fn the_guardian_is_killed() {
    is_proven("guardian", 0, |first| signal(guardian(first), Signal::KILL));
}

/// Orphans of processes that others have put into its container come to the first process.
#[test]
fn as_the_first_process_tenure_collects_the_orphans_of_others() {
    let folder = Folder::new("orphans");
    let script = "(until [ -e $TENURE_TEST/begun ]; do sleep 0.02; done
        for i in 1 2 3 4 5; do (sleep 0.05 & echo $! >> $TENURE_TEST/orphans) done) &
        exec $TENURE exec --key k -- sh -c '
            echo > $TENURE_TEST/begun
            until [ \"$(wc -l 2>&- < $TENURE_TEST/orphans)\" = 5 ]; do sleep 0.02; done
            for pid in $(cat $TENURE_TEST/orphans); do
                timeout 20 sh -c \"while [ -e /proc/$pid ]; do sleep 0.02; done\" && echo collected
            done'";
    if let Some(said) = in_namespace("as_the_first_process", &["--mount-proc"], script, &folder) {
        assert_eq!(said, "collected\n".repeat(5));
    }
}

/// A control group whose processes have a tenth of a processor together.
struct Quota(std::path::PathBuf);

impl Quota {
    /// `None`, with a word, where none may be made.
    fn new(test: &str) -> Option<Self> {
        let name = format!("tenure-test-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpu").join(&name);
        let second = Path::new("/sys/fs/cgroup").join(&name);
        let made = if fs::create_dir(&first).is_ok() {
            let quota = Self(first);
            fs::write(quota.0.join("cpu.cfs_quota_us"), "10000").map(|()| quota)
        } else {
            fs::create_dir(&second).and_then(|()| {
                let quota = Self(second);
                fs::write(quota.0.join("cpu.max"), "10000 100000").map(|()| quota)
            })
        };
        made.inspect_err(|error| {
            println!("{test} was left out, since no control group may be made here: {error}");
        })
        .ok()
    }

    fn take(&self, pid: i32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Sixteen busy processes that do not end by SIGTERM, with tenure and the guardian under one limit of the processor.
#[test]
fn a_program_that_leaves_the_guardian_no_time_does_not_outlive_its_lease() {
    let Some(quota) = Quota::new("a_program_that_leaves_the_guardian_no_time") else { return };
    let folder = Folder::new("quota");
    let busy = "import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(4):
    os.fork()
while True:
    with open(f\"{os.environ['TENURE_TEST']}/ran-{os.getpid()}\", 'w') as file:
        file.write(f'{time.clock_gettime(time.CLOCK_BOOTTIME)}\\n')
    until = time.monotonic() + 0.02
    while time.monotonic() < until:
        pass";
    let mut command = tenure(&folder.store());
    command
        .args(SHORT)
        .args(["exec", "--key", "k", "--", "python3", "-c", busy])
        .env("TENURE_TEST", folder.path());
    let running = Running::start(command.stderr(Stdio::null()));
    let ran = || {
        let entries = fs::read_dir(folder.path()).unwrap().flatten();
        let files = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("ran-"));
        files.map(|file| fs::read_to_string(file.path()).unwrap_or_default()).collect::<Vec<_>>()
    };
    until_blocking("sixteen processes", || {
        let ran = ran();
        if ran.len() == 16 { Ok(()) } else { Err(ran) }
    });
    let guardian = guardian(&running);
    for pid in [running.pid(), guardian]
        .into_iter()
        .chain(with_variable(&format!("TENURE_TEST={}", folder.path().display())))
    {
        quota.take(pid);
    }
    running.signal(Signal::STOP);
    let boot_time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let lease_ends = boot_time.tv_sec as f64 + boot_time.tv_nsec as f64 / 1e9 + 6.0;
    until_none_is_left(&folder);
    let last = ran().iter().filter_map(|time| time.trim().parse::<f64>().ok()).fold(0.0, f64::max);
    assert!(last < lease_ends, "one ran until {last}, the lease until {lease_ends} at most");
    running.signal(Signal::CONT);
}

/// CMD itself ends with the guardian. What else it started may go on: that is said in the documentation.
#[test]
fn both_are_killed() {
    let folder = Folder::new("both");
    let mut command = tenure(&folder.store());
    command.args(["exec", "--key", "k", "--", "sleep", "600"]).env("TENURE_TEST", folder.path());
    let first = Running::start(&mut command);
    let guardian = guardian(&first);
    until_blocking("the child", || {
        let child = children(guardian).first().copied().filter(|child| !is_tenure(*child));
        child.ok_or("it has not begun")
    });
    first.signal(Signal::STOP);
    signal(guardian, Signal::KILL);
    first.signal(Signal::KILL);
    until_none_is_left(&folder);
}

/// By whatever names the kernel lists them: cut in the middle of a letter, or with a first thread that has ended.
#[test]
fn children_that_are_hard_to_see_end_with_tenure() {
    let threads = "import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(60, 0)";
    for word in ["name", "thread"] {
        if word == "thread" && !cfg!(target_arch = "x86_64") {
            continue;
        }
        let folder = Folder::new("unseen");
        let program = folder.join("ежедневный");
        // By another process: one that this one starts meanwhile would have it open for writing for a moment.
        assert!(output(Command::new("cp").arg("/bin/sleep").arg(&program)).status.success());
        let mut command = tenure(&folder.store());
        command.args(["exec", "--key", "k", "--"]).env("TENURE_TEST", folder.path());
        let running = match word {
            "name" => Running::start(command.arg(&program).arg("600")),
            _ => Running::start(command.args(["python3", "-c", threads])),
        };
        let marked = if word == "name" { "(ежеднев" } else { ") Z " };
        let is_it = |child: &i32| {
            let stat = fs::read(format!("/proc/{child}/stat")).unwrap_or_default();
            String::from_utf8_lossy(&stat).contains(marked)
        };
        let child = until_blocking("the child", || {
            let child = children(guardian(&running)).first().copied();
            child.filter(is_it).ok_or(child)
        });
        running.signal(Signal::KILL);
        until_blocking("its end", || if is_it(&child) { Err(child) } else { Ok(()) });
    }
}

/// The guardian ended the child while tenure stood still: the lease was the cause, whatever the child made of it.
#[test]
fn a_frozen_tenure_says_that_its_lease_ended() {
    for ending in ["trap 'exit 0' TERM", "trap '' TERM"] {
        let folder = Folder::new("frozen-says");
        let script = format!("{ending}; echo > $TENURE_TEST/begun; while :; do sleep 0.05; done");
        let mut command = tenure(&folder.store());
        command.args(SHORT).args(["exec", "--key", "k", "--", "sh", "-c", &script]);
        let running = Running::start(command.env("TENURE_TEST", folder.path()).stderr(Stdio::piped()));
        until_there(&folder.join("begun"));
        running.signal(Signal::STOP);
        until_none_is_left(&folder);
        running.signal(Signal::CONT);
        let (status, _, said) = running.output();
        assert_eq!(status.code(), Some(80), "{said}");
        assert!(said.contains("tenure: lost the key \"k\", so the child was ended: "), "{said}");
    }
}

/// A guardian that is frozen cannot do what it is told, so tenure does.
#[test]
fn the_guardian_is_frozen() {
    let folder = Folder::new("guardian-frozen");
    // Time that its guardian has for an order: one second.
    let mut first = start(&folder, 0, &[&STEADY[..], &["--stop-grace", "1s"]].concat());
    until_begun(&folder, 1);
    signal(guardian(&first), Signal::STOP);
    let mut force = tenure(&folder.store());
    force.args(["release", "k", "--force", "--yes"]);
    assert!(output(&mut force).status.success());
    assert_eq!(first.join().code(), Some(80));
    assert_eq!(left(&folder), [0; 0]);
}

/// Whenever a signal comes, from the first moment on, the command ends, and nothing is left of it.
#[test]
fn a_signal_at_any_moment_leaves_nobody() {
    let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
    for round in 0..rounds() * 10 {
        let folder = Folder::new("moment");
        let mut command = tenure(&folder.store());
        command.args(["exec", "--key", "k", "--", "sleep", "600"]).env("TENURE_TEST", folder.path());
        let mut running = Running::start(command.stderr(Stdio::null()));
        // Before that it may ignore what the runner of the tests ignores.
        until_blocking("the command itself", || {
            if is_tenure(running.pid()) { Ok(()) } else { Err("it is env as yet") }
        });
        std::thread::sleep(Duration::from_micros(u64::from(round) * 4_100 % 40_000));
        running.signal(signals[round as usize % signals.len()]);
        let status = running.join();
        assert!(!status.success(), "{status:?}");
        assert_eq!(left(&folder), [0; 0], "round {round}");
    }
}
