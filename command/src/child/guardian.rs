//! The guardian: starts CMD, and ends it with all its descendants before its lease ends, told or not.
//!
//! One thread without a runtime, which waits for four things: orders, the end of tenure, the end of a child, and a
//! timer that goes on while the machine is suspended.

mod sweep;
mod timer;

use std::{
    ffi::OsString,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    io::FdFlags,
    net::sockopt,
    process::{
        Pid, Signal, WaitStatus, kill_process, set_child_subreaper, set_parent_process_death_signal, setsid,
    },
};
use signal_hook::consts as signals;

use self::{sweep::Sweep, timer::Timer};
use super::{
    boot_time, kin, start,
    wire::{self, Heard, News, Order, Times, tell},
};
use crate::{exit::FAILED, say};

/// The first argument of this program as a guardian.
pub(super) const WORD: &str = "guardian";

/// Signals that must not end or stop it: what they are for, CMD gets as well.
const PASSED_OVER: [i32; 9] = [
    signals::SIGHUP,
    signals::SIGINT,
    signals::SIGQUIT,
    signals::SIGTERM,
    signals::SIGUSR1,
    signals::SIGUSR2,
    signals::SIGTSTP,
    signals::SIGTTIN,
    signals::SIGTTOU,
];

/// Signals of the terminal's keys, which it sends to all of its foreground group.
const KEYS: [i32; 3] = [signals::SIGINT, signals::SIGQUIT, signals::SIGTSTP];

/// A key of the terminal, by its signal.
struct Key {
    signal: i32,
    came: Arc<AtomicBool>,
}

/// Guards CMD until nothing of it is left.
pub(super) fn main(command: &[OsString]) -> u8 {
    // Its standard input is the socket to tenure; that of CMD comes over it.
    let control = io::stdin().as_fd().try_clone_to_owned();
    let begun = control.and_then(|control| {
        wait_readable(&control)?;
        // A user who starts this by hand gives it no socket.
        sockopt::socket_type(&control)?;
        Ok((wire::first_order(&control), control))
    });
    let (begin, control) = match begun {
        Ok((Some((Order::Begin { presence, key_lock, times }, descriptors)), control)) => {
            (Begin { presence, key_lock, times, descriptors }, control)
        }
        // Tenure has ended before it gave an order.
        Ok(_) => return FAILED,
        Err(_) => {
            say::say_now(format_args!("{WORD} is for tenure itself: use tenure exec"));
            return FAILED;
        }
    };
    match guard(command, begin, &control) {
        Ok(()) => 0,
        Err(error) => {
            tell(&control, News::Failed(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())));
            FAILED
        }
    }
}

/// The first order.
struct Begin {
    presence: bool,
    key_lock: bool,
    times: Times,
    descriptors: Vec<OwnedFd>,
}

fn guard(command: &[OsString], begin: Begin, control: &OwnedFd) -> io::Result<()> {
    // Frozen when tenure is killed, it would not notice: the kernel thaws it then.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    let mut descriptors = begin.descriptors.into_iter();
    let stdin = descriptors.next().ok_or(Errno::BADF)?;
    // Kept until this process ends: the proof of the session's death.
    let _presence = if begin.presence { descriptors.next() } else { None };
    let key_lock = if begin.key_lock { descriptors.next() } else { None };
    if boot_time() >= begin.times.grace_begins() {
        tell(control, News::Expired);
        tell(control, News::NoneLeft);
        return Ok(());
    }
    let ((children, keys), timer) = (prepare()?, Timer::new()?);
    // Of the keys that come before CMD is there, it hears from here; of the others from the terminal.
    let before: Vec<_> = keys.iter().filter(|key| key.came.load(Ordering::Relaxed)).collect();
    let child = start(command, stdin, key_lock.as_ref())?;
    for key in before {
        pass_on(child, key.signal);
    }
    // Out of tenure's process group, which `timeout -k`, `kill -9 0` and the like kill as a whole. A group in the same
    // session would not do: when CMD ends, the kernel would take that of a stopped tenure for an orphan, and hang up.
    setsid()?;
    // From here on it is CMD's alone.
    drop(key_lock);
    tell(control, News::Began(child));
    Guardian { control, child: Some(child), timer, times: begin.times, stopping: None }.run(children)
}

fn wait_readable(control: &OwnedFd) -> io::Result<()> {
    let mut wanted = [PollFd::new(control, PollFlags::IN)];
    loop {
        match poll(&mut wanted, None) {
            Err(Errno::INTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

/// Adopts orphans, and lives on where signals would end it, and notes which keys come. What was ignored before stays
/// so, for CMD inherits that.
fn prepare() -> io::Result<(UnixStream, Vec<Key>)> {
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let (ignored, mut keys) = (crate::signals::ignored(), Vec::new());
    for signal in PASSED_OVER {
        if !ignored.contains(&signal) {
            let came = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&came))?;
            keys.extend(KEYS.contains(&signal).then_some(Key { signal, came }));
        }
    }
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signals::SIGCHLD, write)?;
    Ok((read, keys))
}

/// Sends a signal to CMD, which is this process's child and not reaped: so the number is its own.
fn pass_on(child: i32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(child), Signal::from_named_raw(signal)) {
        let _ = kill_process(pid, signal);
    }
}

/// Starts what becomes CMD.
fn start(command: &[OsString], stdin: OwnedFd, key_lock: Option<&OwnedFd>) -> io::Result<i32> {
    if let Some(lock) = key_lock {
        // CMD and all it starts hold it.
        rustix::io::fcntl_setfd(lock, FdFlags::empty())?;
    }
    let own = std::process::id();
    let child = Command::new(super::guarded::this_program()?)
        .arg0("tenure")
        .arg(start::WORD)
        .arg(own.to_string())
        .args(command)
        .stdin(Stdio::from(stdin))
        .spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

struct Guardian<'a> {
    control: &'a OwnedFd,
    /// CMD, until it has ended.
    child: Option<i32>,
    timer: Timer,
    times: Times,
    stopping: Option<Sweep>,
}

impl Guardian<'_> {
    fn run(mut self, mut children: UnixStream) -> io::Result<()> {
        let mut tenure_lives = true;
        loop {
            for (pid, status) in kin::reap() {
                self.ended(pid, status);
            }
            // Before the timer is looked at: frozen for a while, this process has orders to hear that extend the lease.
            while tenure_lives {
                match wire::next_order(self.control) {
                    Heard::Something(order) => self.obey(order),
                    Heard::Nothing => break,
                    // Tenure is gone, however it went: no order extends the lease any more.
                    Heard::Gone => {
                        tenure_lives = false;
                        self.stop(Duration::ZERO);
                    }
                }
            }
            let now = boot_time();
            // The lease's end comes near, and no order has extended it.
            if self.stopping.is_none() && now >= self.acts_at() {
                tell(self.control, News::Expired);
                self.stop(self.times.kill_after);
            }
            if let Some(sweep) = &mut self.stopping {
                let step = sweep.step(now, self.times.end.saturating_sub(self.times.allowance));
                let is_over = sweep.is_over();
                for (pid, status) in step.ended {
                    self.ended(pid, status);
                }
                for pid in step.stuck {
                    tell(self.control, News::Stuck(pid));
                }
                if is_over {
                    tell(self.control, News::NoneLeft);
                    return Ok(());
                }
            }
            self.timer.set(self.next_look())?;
            let mut wanted = vec![
                PollFd::new(&children, PollFlags::IN),
                PollFd::from_borrowed_fd(self.timer.as_fd(), PollFlags::IN),
            ];
            if tenure_lives {
                wanted.push(PollFd::new(self.control, PollFlags::IN));
            }
            match poll(&mut wanted, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            drop(wanted);
            self.timer.clear();
            while children.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Extend { end } => self.times.end = self.times.end.max(end),
            Order::Stop { within } => self.stop(within),
            Order::Signal(number) => {
                if let Some(child) = self.child {
                    pass_on(child, number);
                }
            }
            Order::Begin { .. } => {}
        }
    }

    /// Ends them all: SIGTERM now, SIGKILL after that time.
    fn stop(&mut self, within: Duration) {
        let kill_at = boot_time() + within;
        match &mut self.stopping {
            Some(sweep) => sweep.hurry(kill_at),
            None => self.stopping = Some(Sweep::new(kill_at)),
        }
    }

    fn ended(&mut self, pid: i32, status: WaitStatus) {
        if self.child != Some(pid) {
            return;
        }
        self.child = None;
        let news = status
            .terminating_signal()
            .map_or_else(|| News::Exited(status.exit_status().unwrap_or_default()), News::Signaled);
        tell(self.control, news);
        // All that it left behind ends with it.
        self.stop(self.times.kill_after);
    }

    fn next_look(&self) -> Duration {
        match &self.stopping {
            Some(sweep) => sweep.next_step(boot_time()),
            None => self.acts_at(),
        }
    }

    /// Time at which it ends them by itself: a moment after tenure would have told it, so that tenure says why.
    fn acts_at(&self) -> Duration {
        self.times.grace_begins() + self.times.allowance / 4
    }
}
