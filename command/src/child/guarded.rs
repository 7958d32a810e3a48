//! Tenure's end of a guarded child.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, WaitId, WaitIdOptions, WaitOptions, set_child_subreaper, waitid, waitpid},
};
use tenure::store::Presence;
use tokio::{io::Interest, net::UnixStream};

use super::{
    guardian,
    kin::{self, LOOK, PATIENT},
    wire::{self, Heard, News, Order, Times},
};

/// A program with its arguments and surroundings.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) command: Vec<OsString>,
    /// Variables that it gets beside those of tenure.
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// Variables of tenure that it does not get.
    pub(crate) without: Vec<&'static str>,
    pub(crate) stdin: Input,
    /// In a process group of its own: not in tenure's, which the keys of a terminal reach.
    pub(crate) own_group: bool,
    pub(crate) stderr: Stdio,
}

/// Standard input of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Standard input of tenure.
    Same,
    Null,
}

/// Children that no sweep ends: guardians, and those that this process had from the start, as it may have from a shell
/// that became it. Whatever else its children are, they are orphans of guardians that were killed.
static SPARED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn spared() -> MutexGuard<'static, BTreeSet<i32>> {
    SPARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Spares the children that this process has now. None of them is ever collected, so their numbers stay theirs.
pub(super) fn spare_children() -> io::Result<()> {
    spared().extend(kin::children_except(&BTreeSet::new())?);
    Ok(())
}

/// Collects the orphans that have ended, which come to the first process of a pid namespace, whoever started them.
pub(super) fn collect_orphans() {
    let spared = spared();
    for pid in kin::children_except(&spared).unwrap_or_default().into_iter().filter_map(Pid::from_raw) {
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

/// Returns the path of this very program, also if its file was replaced meanwhile.
pub(super) fn this_program() -> io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Ok(running) } else { std::env::current_exe() }
}

/// A child under a guardian. Dropping it ends the child and all its descendants at once.
#[derive(Debug)]
pub(crate) struct Guarded {
    control: UnixStream,
    guardian: Child,
    /// Standard error of the child, if it is wanted.
    pub(crate) stderr: Option<std::process::ChildStderr>,
}

impl Guarded {
    /// Starts a program under a guardian.
    pub(crate) fn start(
        program: Program,
        presence: Option<&Presence>,
        key_lock: Option<BorrowedFd<'_>>,
        times: Times,
    ) -> io::Result<Self> {
        // Orphans of a guardian that is killed come here.
        set_child_subreaper(Some(rustix::process::getpid()))?;
        let (here, there) = wire::pair()?;
        let Program { command: arguments, variables, without, stdin, own_group, stderr } = program;
        let mut command = Command::new(this_program()?);
        command.arg0("tenure").arg(guardian::WORD).args(arguments);
        command.envs(variables);
        for name in without {
            command.env_remove(name);
        }
        command.stdin(Stdio::from(there)).stderr(stderr);
        let mut guardian = {
            // It is no orphan, also before it is known.
            let mut spared = spared();
            let guardian = command.spawn()?;
            spared.extend(i32::try_from(guardian.id()));
            guardian
        };
        // It holds the other end of the socket.
        drop(command);
        let stderr = guardian.stderr.take();
        let presence = presence.and_then(Presence::descriptor);
        let begun = open(stdin).and_then(|stdin| {
            let order =
                Order::Begin { presence: presence.is_some(), key_lock: key_lock.is_some(), own_group, times };
            let with: Vec<_> = [Some(stdin.as_fd()), presence, key_lock].into_iter().flatten().collect();
            begin(here, order, &with)
        });
        match begun {
            Ok(control) => Ok(Self { control, guardian, stderr }),
            Err(error) => {
                let _ = guardian.kill();
                collect(&mut guardian);
                Err(error)
            }
        }
    }

    /// Waits for what the guardian has to say; `None` if it is gone.
    ///
    /// # Cancel safety
    /// No message is lost.
    pub(crate) async fn news(&self) -> Option<News> {
        loop {
            self.control.readable().await.ok()?;
            let look = || match wire::next_news(&self.control) {
                Heard::Something(news) => Ok(Some(news)),
                Heard::Nothing => Err(io::ErrorKind::WouldBlock.into()),
                Heard::Gone => Ok(None),
            };
            match self.control.try_io(Interest::READABLE, look) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                heard => return heard.ok().flatten(),
            }
        }
    }

    /// Says until when the lease holds now, in boot time.
    ///
    /// Returns whether it was told. If not, a guardian that stands still has not read for long.
    pub(crate) fn extend(&self, end: Duration) -> bool {
        wire::order(&self.control, Order::Extend { end }).is_ok()
    }

    /// Ends it: SIGTERM, and after that time SIGKILL.
    pub(crate) fn stop(&self, within: Duration) {
        self.order(Order::Stop { within });
    }

    /// Passes a signal on to the child alone.
    pub(crate) fn signal(&self, signal: i32) {
        self.order(Order::Signal(signal));
    }

    fn order(&self, order: Order) {
        // If the guardian is gone, the next news say so.
        let _ = wire::order(&self.control, order);
    }

    /// Ends what a guardian has left that is gone, or does not answer, and waits until none is left. Tells of each that
    /// cannot be ended.
    ///
    /// On the caller's thread, as the others below: where a sweep is needed there may be no other to be had.
    pub(crate) fn sweep(mut self, stuck: impl Fn(i32)) {
        let _ = self.guardian.kill();
        // From now on it is an orphan as others: should it be the one that cannot be ended, those below it are.
        forget(&self.guardian);
        sweep_orphans(stuck);
    }

    /// Waits for the end of a guardian that has nothing left to guard.
    pub(crate) fn join(mut self) {
        collect(&mut self.guardian);
    }

    /// Waits for the end of a guardian that still has processes which cannot be ended.
    pub(crate) fn stay(self, stuck: impl Fn(i32)) {
        let Self { control, mut guardian, .. } = self;
        // Without orders, the guardian goes on until none is left.
        drop(control);
        collect(&mut guardian);
        sweep_orphans(stuck);
    }
}

/// Waits for the end of a guardian. Its number is free from then on, and may be the next guardian's at once: so no
/// other may start before this one is forgotten.
fn collect(guardian: &mut Child) {
    if let Some(pid) = i32::try_from(guardian.id()).ok().and_then(Pid::from_raw) {
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
        }
    }
    let mut spared = spared();
    let _ = guardian.wait();
    if let Ok(pid) = i32::try_from(guardian.id()) {
        spared.remove(&pid);
    }
}

/// Standard input, to be passed on.
fn open(input: Input) -> io::Result<OwnedFd> {
    match input {
        Input::Same => io::stdin().as_fd().try_clone_to_owned(),
        Input::Null => Ok(std::fs::File::open("/dev/null")?.into()),
    }
}

/// Gives the guardian what it needs to begin.
fn begin(here: OwnedFd, order: Order, with: &[BorrowedFd<'_>]) -> io::Result<UnixStream> {
    let control = UnixStream::from_std(here.into())?;
    wire::begin(&control, order, with)?;
    Ok(control)
}

fn forget(guardian: &Child) {
    if let Ok(pid) = i32::try_from(guardian.id()) {
        spared().remove(&pid);
    }
}

/// Kills the descendants that have no guardian, until none is left. Tells of each that cannot be ended.
fn sweep_orphans(stuck: impl Fn(i32)) {
    let (begin, mut empty, mut looks, mut named) = (Instant::now(), 0, 0, BTreeSet::new());
    loop {
        let is_late = kin::is_stuck(looks, begin.elapsed());
        looks += 1;
        // While they are looked for, no guardian is started.
        let spared = spared();
        let mut cannot = kin::kill_children(&spared, &mut Vec::new()).unwrap_or_default();
        let orphans = kin::kill_seen(&spared, is_late);
        let children = kin::children_except(&spared);
        let nobody = if spared.is_empty() {
            !kin::has_children()
        } else {
            matches!(orphans, Ok(None)) && children.as_ref().is_ok_and(Vec::is_empty)
        };
        cannot.extend(orphans.ok().flatten().unwrap_or_default());
        drop(spared);
        // The kernel's list may leave one out while another ends.
        empty = if nobody { empty + 1 } else { 0 };
        if empty == 2 {
            return;
        }
        if is_late {
            cannot.extend(children.unwrap_or_default());
        }
        for pid in cannot {
            if named.insert(pid) {
                stuck(pid);
            }
        }
        // A process that cannot be ended may be there for hours.
        std::thread::sleep(if named.is_empty() { LOOK } else { PATIENT });
    }
}
