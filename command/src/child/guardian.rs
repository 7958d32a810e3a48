//! The guardian: starts CMD, and ends it with all its descendants before its lease ends, told or not.
//!
//! One thread without a runtime, which waits for four things: orders, the end of tenure, the end of a child, and a
//! timer that goes on while the machine is suspended.

mod delay;
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
        Pid, Signal, WaitStatus, kill_process, set_child_subreaper, set_parent_process_death_signal,
        setpriority_process, setsid,
    },
};
use signal_hook::consts as signals;

use self::{delay::Delay, sweep::Sweep, timer::Timer};
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
        wait_for(&mut [PollFd::new(&control, PollFlags::IN)])?;
        // A user who starts this by hand gives it no socket.
        sockopt::socket_type(&control)?;
        Ok((wire::first_order(&control), control))
    });
    let (begin, control) = match begun {
        Ok((Some((Order::Begin { presence, key_lock, own_group, times }, descriptors)), control)) => {
            (Begin { presence, key_lock, own_group, times, descriptors }, control)
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
    own_group: bool,
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
    let ((children, keys), timer) = (prepare()?, Timer::new()?);
    let mut times = begin.times;
    if !may_begin(control, &timer, &mut times)? {
        tell(control, News::NoneLeft);
        return Ok(());
    }
    // Of the keys that come before CMD is there, it hears from here; of the others from the terminal.
    let before: Vec<_> = keys.iter().filter(|key| key.came.load(Ordering::Relaxed)).collect();
    let child = start(command, stdin, key_lock.as_ref(), begin.own_group)?;
    for key in before {
        pass_on(child, key.signal);
    }
    // Out of tenure's process group, which `timeout -k`, `kill -9 0` and the like kill as a whole. A group in the same
    // session would not do: when CMD ends, the kernel would take that of a stopped tenure for an orphan, and hang up.
    setsid()?;
    // Where processor time is scarce, it comes before what it is to end. Not everybody may have that.
    let _ = setpriority_process(None, -20);
    // From here on it is CMD's alone.
    drop(key_lock);
    tell(control, News::Began(child));
    let guardian =
        Guardian { control, child: Some(child), timer, delay: Delay::of(times), times, stopping: None };
    guardian.run(children)
}

/// Waits until CMD may begin: when this process is late, orders that extend the lease may wait, or be on their way.
/// Returns false if it may not any more.
fn may_begin(control: &OwnedFd, timer: &Timer, times: &mut Times) -> io::Result<bool> {
    loop {
        loop {
            match wire::next_order(control) {
                Heard::Something(Order::Extend { end }) => times.extend(end),
                Heard::Something(Order::Stop { .. }) | Heard::Gone => return Ok(false),
                Heard::Something(_) => {}
                Heard::Nothing => break,
            }
        }
        let now = boot_time();
        if now < times.grace_begins() {
            return Ok(true);
        }
        if now >= times.end {
            tell(control, News::Expired);
            return Ok(false);
        }
        timer.set(times.end)?;
        let timer = PollFd::from_borrowed_fd(timer.as_fd(), PollFlags::IN);
        wait_for(&mut [PollFd::new(control, PollFlags::IN), timer])?;
    }
}

fn wait_for(wanted: &mut [PollFd<'_>]) -> io::Result<()> {
    loop {
        match poll(wanted, None) {
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
fn start(
    command: &[OsString],
    stdin: OwnedFd,
    key_lock: Option<&OwnedFd>,
    own_group: bool,
) -> io::Result<i32> {
    if let Some(lock) = key_lock {
        // CMD and all it starts hold it.
        rustix::io::fcntl_setfd(lock, FdFlags::empty())?;
    }
    let own = std::process::id();
    let mut child = Command::new(super::guarded::this_program()?);
    child.arg0("tenure").arg(start::WORD).arg(own.to_string()).args(command).stdin(Stdio::from(stdin));
    if own_group {
        child.process_group(0);
    }
    let child = child.spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

struct Guardian<'a> {
    control: &'a OwnedFd,
    /// CMD, until it has ended.
    child: Option<i32>,
    timer: Timer,
    delay: Delay,
    times: Times,
    stopping: Option<Sweep>,
}

impl Guardian<'_> {
    fn run(mut self, mut children: UnixStream) -> io::Result<()> {
        let (mut tenure_lives, mut timer_is_at, mut some_ended) = (true, boot_time(), true);
        loop {
            if some_ended {
                while children.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
                for (pid, status) in kin::reap() {
                    self.ended(pid, status);
                }
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
            if now >= timer_is_at {
                if self.stopping.is_none() {
                    self.delay.fade();
                }
                self.delay.seen(now.saturating_sub(timer_is_at));
            }
            // The lease's end comes near, and no order has extended it.
            if self.stopping.is_none() && now >= self.acts_at() {
                tell(self.control, News::Expired);
                self.stop(self.times.kill_after);
            }
            if let Some(sweep) = &mut self.stopping {
                let step = sweep.step(now, self.delay.kill_at(self.times));
                self.delay.seen(boot_time().saturating_sub(now));
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
            let next = self.next_look(now);
            // An order that extends the lease does not move it: it fires for nothing now and then, and shows how late
            // this process is served.
            if now >= timer_is_at || next < timer_is_at {
                self.timer.set(next)?;
                timer_is_at = next;
            }
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
            some_ended = !wanted[0].revents().is_empty();
            if !wanted[1].revents().is_empty() {
                self.timer.clear();
                // Where the parent of tenure had SIGCHLD blocked, it never comes.
                some_ended = true;
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Extend { end } => {
                self.times.extend(end);
                self.delay.extended(self.times);
            }
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

    fn next_look(&self, now: Duration) -> Duration {
        match &self.stopping {
            Some(sweep) => sweep.next_step(now),
            None => self.acts_at().min(now + self.delay.look()),
        }
    }

    /// Time at which it ends them by itself: a moment after tenure would have told it, so that tenure says why.
    fn acts_at(&self) -> Duration {
        let by_grace = self.times.grace_begins() + self.times.allowance / 4;
        by_grace.min(self.delay.kill_at(self.times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Times of a lease that ends in so long, and has a grace of a second.
    fn times(remaining: Duration) -> Times {
        Times { end: boot_time() + remaining, grace: SECOND, allowance: SECOND / 4, kill_after: SECOND }
    }

    #[test]
    fn a_late_guardian_reads_the_orders_that_wait_before_it_judges() {
        let begins = |remaining, orders: &[Order]| {
            let (tenure, guardian) = wire::pair().unwrap();
            for order in orders {
                wire::order(&tenure, *order).unwrap();
            }
            let mut times = times(remaining);
            (may_begin(&guardian, &Timer::new().unwrap(), &mut times).unwrap(), wire::next_news(&tenure))
        };
        let extend = Order::Extend { end: boot_time() + 60 * SECOND };
        assert_eq!(begins(60 * SECOND, &[]), (true, Heard::Nothing));
        assert_eq!(begins(Duration::ZERO, &[extend]), (true, Heard::Nothing));
        assert_eq!(begins(60 * SECOND, &[extend, Order::Stop { within: SECOND }]), (false, Heard::Nothing));
        // An extension may be on its way for as long as there is a lease.
        assert_eq!(begins(SECOND / 5, &[]), (false, Heard::Something(News::Expired)));
    }

    #[test]
    fn a_guardian_waits_for_the_order_that_extends_its_lease() {
        let (tenure, guardian) = wire::pair().unwrap();
        let waits = std::thread::spawn(move || {
            may_begin(&guardian, &Timer::new().unwrap(), &mut times(SECOND / 2)).unwrap()
        });
        wire::order(&tenure, Order::Extend { end: boot_time() + 60 * SECOND }).unwrap();
        assert!(waits.join().unwrap());
    }
}
