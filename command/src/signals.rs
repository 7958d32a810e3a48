//! Signals: those that this process ignores, and those that it gets, with their senders.

use std::{fs, io};

use futures::{FutureExt, future::BoxFuture};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{
        SignalsInfo,
        exfiltrator::origin::{Origin, WithOrigin},
    },
    low_level::siginfo::Cause,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use crate::exit::Failure;

/// Signals that are passed on to the child.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedSignal {
    pub(crate) signal: i32,
    pub(crate) from_terminal: bool,
}

impl ReceivedSignal {
    /// Returns whether the child has it, too, or its guardian, which passes it on: a terminal sends the signals of its
    /// keys to its whole foreground group, but SIGHUP to the leader of the session alone, which may be this process.
    pub(crate) const fn child_has_it(self) -> bool {
        self.from_terminal && self.signal != SIGHUP
    }
}

/// Waits for a signal that ends the program.
pub(crate) fn ended() -> Result<BoxFuture<'static, ()>, Failure> {
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::failed(format!("cannot install signal handlers: {error}")))
    };
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
    .boxed())
}

/// The signals that this process has ignored since it was started, as under `nohup`.
pub(crate) fn ignored() -> Vec<i32> {
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return Vec::new() };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).map_or_else(Vec::new, bits)
}

/// Signal 1 is the lowest bit.
fn bits(mask: u64) -> Vec<i32> {
    (1..=64).filter(|signal| mask >> (signal - 1) & 1 == 1).collect()
}

/// Collects signals from now on: none of them ends this process any more.
pub(crate) fn collect() -> io::Result<mpsc::UnboundedReceiver<ReceivedSignal>> {
    let ignored = ignored();
    let wanted: Vec<i32> = PASSED_ON.into_iter().filter(|signal| !ignored.contains(signal)).collect();
    let mut signals = SignalsInfo::<WithOrigin>::new(wanted)?;
    let (send, receive) = mpsc::unbounded_channel();
    let listen = move || {
        for origin in signals.forever() {
            if send.send(came(&origin)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("tenure-signals".to_owned()).spawn(listen)?;
    Ok(receive)
}

fn came(origin: &Origin) -> ReceivedSignal {
    // The kernel sends what a terminal is told by its keys, or by its end.
    ReceivedSignal { signal: origin.signal, from_terminal: matches!(origin.cause, Cause::Kernel) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_names_its_signals() {
        assert_eq!(bits(0), [0; 0]);
        assert_eq!(bits(0b1), [SIGHUP]);
        assert_eq!(bits(0x4001), [SIGHUP, SIGTERM]);
    }
}
