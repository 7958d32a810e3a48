//! A child process that does not outlive its lease, whatever happens to tenure.
//!
//! ```text
//!  tenure ──────────────▶ guardian ─────────────▶ CMD ──▶ whatever it starts
//!   beats, says until      one thread, no runtime;     ends with the guardian (PDEATHSIG)
//!   when CMD may run       ends them all in time
//! ```
//!
//! Tenure and the guardian are tied by a socket: the process whose end closes is gone, however it went. Both adopt
//! orphans, so each can find and end every descendant when the other is killed.
//!
//! | event | end of CMD and of all that it started |
//! |---|---|
//! | the lease is lost, tenure runs | the guardian, told by tenure: SIGTERM, then SIGKILL |
//! | tenure is frozen | the guardian, by a timer of boot time: all are gone before the lease ends |
//! | tenure is killed | the guardian, at once; one that is stopped is thawed by the kernel (PDEATHSIG) |
//! | their process group is killed | the guardian, which has a session of its own |
//! | the guardian is killed | the kernel ends CMD, tenure the others |
//! | CMD ends | the guardian ends what CMD left behind |

mod guarded;
mod guardian;
mod kin;
mod start;
mod wire;

use std::{io, sync::Arc, time::Duration};

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Failure;

pub(crate) use guarded::{Guarded, Input, Program};
pub(crate) use wire::{News, Times};

/// Runs this process as a guardian or as what becomes CMD, if it was started as one. Then it never returns.
pub(crate) fn run_if_asked() -> Option<u8> {
    let mut arguments = std::env::args_os().skip(1);
    let word = arguments.next()?;
    match word.to_str()? {
        guardian::WORD => Some(guardian::main(&arguments.collect::<Vec<_>>())),
        start::WORD => Some(start::main(arguments)),
        _ => None,
    }
}

/// Makes ready for children, or refuses to work where they could not be found and ended.
pub(crate) fn prepare() -> Result<(), Failure> {
    let cannot = |why: String| Failure::failed(format!("a child could not be ended in time here: {why}"));
    kin::is_blind().map_or(Ok(()), |why| Err(cannot(why)))?;
    // Ignored, as a parent may have left it, children would be collected by the kernel, and their numbers be given to others.
    signal_hook::flag::register(signal_hook::consts::SIGCHLD, Arc::default())
        .and_then(|_| guarded::spare_children())
        .and_then(|()| if std::process::id() == 1 { collect_orphans() } else { Ok(()) })
        .map_err(|error| cannot(error.to_string()))
}

/// Collects, from now on, the orphans of others: they come to the first process of a container.
fn collect_orphans() -> io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    tokio::spawn(async move {
        while ended.recv().await.is_some() {
            guarded::collect_orphans();
        }
    });
    Ok(())
}

/// The time since the machine was booted, which goes on while it is suspended.
pub(crate) fn boot_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the head start of the killing: the time that may pass until the last descendant is gone.
pub(crate) fn allowance(stop_grace: Duration) -> Duration {
    (stop_grace / 4).clamp(Duration::from_millis(20), Duration::from_secs(1)).min(stop_grace / 2)
}
