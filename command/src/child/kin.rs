//! All descendants of a process, and their end.

use std::{
    collections::BTreeSet,
    fmt, fs, io, mem,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, pidfd_open,
        pidfd_send_signal, wait, waitid, waitpid,
    },
};

/// Between two looks while processes are killed: a process that forks meanwhile is seen by the next.
pub(super) const LOOK: Duration = Duration::from_millis(2);
/// Between two looks while they may end by themselves, which the end of a child shortens.
pub(super) const PATIENT: Duration = Duration::from_millis(50);
/// A process that is still there so long after SIGKILL, and after so many looks, cannot be ended.
const STUCK: Duration = Duration::from_millis(500);
const LOOKS: u32 = 50;
/// Rounds over the same children of a process until a look at all processes is worth it.
const ROUNDS: u32 = 20;
/// Time after which the caller looks for something else to do.
const MOMENT: Duration = Duration::from_millis(100);

/// Returns whether a process that is still there cannot be ended: judged by a look that comes after many others, since
/// the process that looks may have stood still after it sent the signal.
pub(super) fn is_stuck(looks: u32, killing_for: Duration) -> bool {
    looks >= LOOKS && killing_for > STUCK
}

/// A process as the kernel lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    state: char,
    /// Of a process whose first thread has ended, others may go on.
    threads: u32,
    /// Time of its start: another process of the same pid started later.
    started: u64,
}

impl Process {
    fn is_over(self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }
}

/// Reads `/proc/PID/stat`. The name in parentheses may contain anything.
fn parse(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (_, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    Some(Process {
        pid: pid.parse().ok()?,
        state: fields.first()?.chars().next()?,
        threads: fields.get(17)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// Returns why descendants of this process could not be found and ended here, if that is so.
pub(super) fn is_blind() -> Option<String> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let stat = match fs::read("/proc/self/stat") {
        Ok(stat) => stat,
        Err(error) => {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound => ": mount it (mount -t proc proc /proc)",
                _ => crate::limit(&error),
            };
            return Some(format!("/proc cannot be read ({error}){remedy}"));
        }
    };
    if parse(&String::from_utf8_lossy(&stat)).is_none_or(|process| process.pid != own) {
        return Some(
            "/proc is that of another pid namespace: mount one of its own (unshare --mount-proc, or mount -t proc \
             proc /proc)"
                .to_owned(),
        );
    }
    fs::read("/proc/thread-self/children")
        .err()
        .map(|error| format!("/proc does not list the children of a process ({error}): use another kernel"))
}

fn look(pid: i32) -> Option<Process> {
    // The name may be cut in the middle of a letter.
    parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// The descendants of this process that have not ended; those of `except` and these themselves are left out.
///
/// The way is down from this process, so that the others of the host cost nothing. One that is born while this looks
/// may be missed: only [`has_children`] says that none is left.
pub(super) fn descendants(except: &BTreeSet<i32>) -> io::Result<Vec<Process>> {
    let mut open = children_of("self")?;
    let mut seen: BTreeSet<i32> = except.clone();
    let mut found = Vec::new();
    while let Some(pid) = open.pop() {
        if !seen.insert(pid) {
            continue;
        }
        // The children of a process that has just ended come to this one.
        open.extend(children_of(pid).unwrap_or_default());
        found.extend(look(pid).filter(|process| !process.is_over()));
    }
    Ok(found)
}

/// Opens that very process, to send it signals. `None` if it has ended.
pub(super) fn open(process: Process) -> Option<OwnedFd> {
    let descriptor = pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok()?;
    // Between the look and now it may have ended, and another may have its number.
    look(process.pid).is_some_and(|now| now.started == process.started).then_some(descriptor)
}

/// Sends a signal to that very process. Returns false if it may not be sent: the process belongs to another user.
pub(super) fn signal(process: Process, signal: Signal) -> bool {
    open(process).is_none_or(|descriptor| pidfd_send_signal(descriptor, signal) != Err(Errno::PERM))
}

/// Kills the descendants that are seen, but for these and theirs. Returns those that cannot be ended: all of them if it
/// is late, or else those that may not be killed. `None` if none is seen.
pub(super) fn kill_seen(except: &BTreeSet<i32>, is_late: bool) -> io::Result<Option<Vec<i32>>> {
    let seen = descendants(except)?;
    if seen.is_empty() {
        return Ok(None);
    }
    let cannot = seen.into_iter().filter(|process| !signal(*process, Signal::KILL) || is_late);
    Ok(Some(cannot.map(|process| process.pid).collect()))
}

/// Returns whether this process has children, ended or not. Without one, no process is left whose orphans it adopts:
/// that is certain, while a look at all processes may miss one that is born while it goes on.
pub(super) fn has_children() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, look), Err(Errno::CHILD))
}

/// The children of this process that are none of these, as the kernel lists them, those that have ended too. A
/// process that forks and ends is seen here by its child, which this process adopts.
pub(super) fn children_except(these: &BTreeSet<i32>) -> io::Result<Vec<i32>> {
    let mut children = children_of("self")?;
    children.retain(|child| !these.contains(child));
    Ok(children)
}

fn children_of(process: impl fmt::Display) -> io::Result<Vec<i32>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let listed = match fs::read_to_string(thread?.path().join("children")) {
            Ok(listed) => listed,
            // The thread has ended, and its children are another one's.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        children.extend(listed.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Ok(children)
}

/// Kills the children of this process that are none of these, then the orphans that come to it, and so on, as long as
/// that gets on, for a moment at most: the caller looks again. Collects those that have ended, and returns those that
/// may not be killed.
///
/// The kernel's list names children that are hidden in `/proc`, too, and is read in microseconds: a process that forks
/// and ends every millisecond does not get away, however many others there are. The number of a child that was not
/// collected is its own.
pub(super) fn kill_children(
    except: &BTreeSet<i32>,
    ended: &mut Vec<(i32, WaitStatus)>,
) -> io::Result<Vec<i32>> {
    let (mut refused, mut living, mut before) = (Vec::new(), Vec::new(), Vec::new());
    let (mut same, begun) = (0, Instant::now());
    while same < ROUNDS && begun.elapsed() < MOMENT {
        refused.clear();
        living.clear();
        for child in children_except(except)? {
            let Some(pid) = Pid::from_raw(child) else { continue };
            if let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::NOHANG) {
                ended.push((child, status));
            } else if kill_process(pid, Signal::KILL) == Err(Errno::PERM) {
                refused.push(child);
            } else {
                living.push(child);
            }
        }
        if living.is_empty() {
            break;
        }
        same = if living == before { same + 1 } else { 0 };
        mem::swap(&mut living, &mut before);
        rustix::thread::sched_yield();
    }
    Ok(refused)
}

/// Collects the children that have ended, of whatever group.
pub(super) fn reap() -> Vec<(i32, WaitStatus)> {
    let mut ended = Vec::new();
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        ended.push((pid.as_raw_nonzero().get(), status));
    }
    ended
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_mislead() {
        let stat = "42 (a) b (c) S 7 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 777 1 1";
        assert_eq!(parse(stat), Some(Process { pid: 42, state: 'S', threads: 1, started: 777 }));
    }

    #[test]
    fn descendants_are_found_however_deep_and_branches_left_out() {
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'sleep 600 & echo $$ $!; wait' & wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let top = i32::try_from(shell.id()).unwrap();
        let mut tree: Vec<i32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        tree.push(top);
        let found = |except: &[i32]| {
            let found = descendants(&except.iter().copied().collect()).unwrap();
            tree.iter().filter(|pid| found.iter().any(|process| process.pid == **pid)).count()
        };
        assert_eq!(tree.len(), 3, "{line}");
        assert_eq!((found(&[]), found(&[top])), (3, 0));
        for pid in &tree {
            kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
    }

    #[test]
    fn the_own_process_is_found_running_with_its_pid_and_start() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let seen = look(own).unwrap();
        assert_eq!(seen.pid, own);
        assert!(!seen.is_over() && seen.started > 0);
    }
}
