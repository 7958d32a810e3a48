//! A child under a lease: it is told when the lease is extended and when it ends, and nothing of it is left when this
//! returns.

use std::{iter, num::NonZero, os::fd::AsFd, pin::pin, sync::LazyLock, thread, time::Duration};

use tenure::{ElectConfig, elect::Lease};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use crate::{
    child::{Guarded, News, Program, Times, allowance, boot_time},
    exit::Failure,
    key_lock::KeyFile,
    say,
    signals::ReceivedSignal,
};

/// Time for the engine to say why a lease ended.
const MOMENT: Duration = Duration::from_secs(1);
/// An end that is later by less is the same one: it is read by two clocks, one after the other.
const SAME: Duration = Duration::from_millis(1);
/// The children that are being started at one time. Of a thousand that are due at once each would take the processor from
/// the others, and none would begin while its lease holds.
static STARTS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(2 * thread::available_parallelism().map_or(1, NonZero::get)));

/// Durations for ending a child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) stop_grace: Duration,
    /// From SIGTERM to SIGKILL, at most.
    pub(crate) kill_after: Duration,
    /// Between two looks at how long the lease holds.
    look: Duration,
}

impl Patience {
    /// Defaults `kill_after` to the whole `stop_grace`.
    pub(crate) fn of(config: &ElectConfig, kill_after: Option<Duration>) -> Result<Self, Failure> {
        let stop_grace = config.stop_grace();
        let kill_after = kill_after.unwrap_or(stop_grace);
        if kill_after > stop_grace {
            return Err(Failure::usage(format!(
                "--kill-after is {}, and at most stop_grace ({}): later the lease may end; a longer --stop-grace needs \
                 a longer --refresh-duration",
                humantime::format_duration(kill_after),
                humantime::format_duration(stop_grace),
            )));
        }
        let look = (config.refresh_interval() / 4).max(Duration::from_millis(5));
        Ok(Self { stop_grace, kill_after, look })
    }

    fn times(self, end: Duration) -> Times {
        Times {
            end,
            grace: self.stop_grace,
            allowance: allowance(self.stop_grace),
            kill_after: self.kill_after,
        }
    }

    /// Time after the lease was cancelled at which the guardian has had all the time there is.
    fn too_long(self) -> Duration {
        self.stop_grace.saturating_sub(allowance(self.stop_grace) / 4)
    }

    /// From SIGTERM to SIGKILL when the lease is cancelled: all have to be gone when the grace is over.
    fn at_the_end(self) -> Duration {
        self.kill_after.min(self.stop_grace.saturating_sub(allowance(self.stop_grace)))
    }
}

/// The exit status of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Exited(i32),
    Signaled(i32),
    /// The guardian was killed, and the child with it.
    Unknown,
}

impl Status {
    /// As a shell says it.
    pub(crate) fn code(self) -> u8 {
        let code = match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => 128 + signal,
            Self::Unknown => 128 + signal_hook::consts::SIGKILL,
        };
        u8::try_from(code & 0xff).unwrap_or(u8::MAX)
    }
}

/// The outcome of a child.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Status,
    /// Why it was ended, if the lease was lost before it ended by itself.
    pub(crate) loss: Option<String>,
}

/// A place among those that start; none if the lease ends before.
async fn place_to_start(lease: &Lease) -> Option<SemaphorePermit<'static>> {
    tokio::select! {
        biased;
        () = lease.cancelled() => None,
        place = STARTS.acquire() => place.ok(),
    }
}

/// The signals that have come until now: of these no process but this one knows.
fn until_now(signals: &mut Option<&mut mpsc::UnboundedReceiver<ReceivedSignal>>) -> Vec<i32> {
    let came = signals.iter_mut().flat_map(|signals| iter::from_fn(|| signals.try_recv().ok()));
    came.map(|came| came.signal).collect()
}

/// Runs a child under a lease.
///
/// It must not be dropped before it is done: the key would be given back while the child may run. Signals come from
/// `signals` while it runs.
pub(crate) async fn run(
    lease: &Lease,
    mut program: Program,
    key_file: Option<KeyFile>,
    patience: Patience,
    mut signals: Option<&mut mpsc::UnboundedReceiver<ReceivedSignal>>,
    on_stderr: impl FnOnce(std::process::ChildStderr),
) -> Result<Ended, Failure> {
    program.variables.extend([
        ("TENURE_KEY", lease.key().as_str().into()),
        ("TENURE_TERM", lease.term().get().to_string().into()),
    ]);
    let mut place = place_to_start(lease).await;
    let mut early = until_now(&mut signals);
    let mut ended = Ended { status: Status::Unknown, loss: None };
    if place.is_none() {
        ended.loss = Some(loss(lease).unwrap_or_else(|| "it was stopped before it had begun".to_owned()));
        return Ok(ended);
    }
    let presence = lease.presence();
    let key_lock = key_file.as_ref().map(|file| file.file().as_fd());
    let mut end = end_of(lease);
    let started = Guarded::start(program, presence.as_ref(), key_lock, patience.times(end));
    let mut child =
        started.map_err(|error| Failure::failed(format!("no process can be started: {error}")))?;
    // The guardian has them now. Frozen, this process must not keep the key's file from the next child.
    drop((presence, key_file));
    if let Some(stderr) = child.stderr.take() {
        on_stderr(stderr);
    }
    let (mut has_begun, mut has_ended, mut is_stopped, mut is_stuck) = (false, false, false, false);
    let key = lease.key().to_string();
    let tell_of = move |pid| say::say(stuck_sentence(pid, &key));
    let mut failure = None;
    let mut looks = tokio::time::interval(patience.look);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    // Set when the guardian has had all the time there is.
    let mut too_long = pin!(tokio::time::sleep(Duration::MAX));
    loop {
        tokio::select! {
            biased;
            news = child.news() => match news {
                Some(News::Began(_)) => {
                    has_begun = true;
                    drop(place.take());
                    for signal in early.drain(..) {
                        child.signal(signal);
                    }
                }
                Some(News::Exited(code)) => {
                    (ended.status, has_ended) = (Status::Exited(code), true);
                }
                Some(News::Signaled(signal)) => {
                    (ended.status, has_ended) = (Status::Signaled(signal), true);
                }
                // Said before the child is ended for it.
                Some(News::Expired) => ended.loss = Some(expired(lease).await),
                Some(News::Failed(error)) => failure = Some(std::io::Error::from_raw_os_error(error)),
                Some(News::Stuck(pid)) => {
                    tell_of(pid);
                    is_stuck = true;
                }
                Some(News::NoneLeft) => {
                    child.join();
                    return Ok(ended);
                }
                // The guardian is gone, and has not said that none is left.
                None => {
                    child.sweep(tell_of);
                    if has_begun {
                        return Ok(ended);
                    }
                    ended.loss = loss(lease);
                    let why = failure.map_or_else(|| "its guardian has ended".to_owned(), |why| why.to_string());
                    return match ended.loss {
                        Some(_) => Ok(ended),
                        None => Err(Failure::failed(format!("the child cannot be started: {why}"))),
                    };
                }
            },
            () = lease.cancelled(), if !is_stopped => {
                is_stopped = true;
                child.stop(patience.at_the_end());
                too_long.as_mut().reset(tokio::time::Instant::now() + patience.too_long());
                if !has_ended {
                    ended.loss = loss(lease).or(ended.loss);
                }
            }
            () = &mut too_long, if is_stopped => {
                if is_stuck {
                    child.stay(tell_of);
                } else {
                    // Its guardian does not answer: it may be frozen, or the machine too slow for it.
                    child.sweep(tell_of);
                }
                return Ok(ended);
            }
            came = next(&mut signals) => match came {
                Some(came) if came.child_has_it() => {}
                Some(came) if has_begun => child.signal(came.signal),
                Some(came) => early.push(came.signal),
                None => {}
            },
            _ = looks.tick(), if !is_stopped => {
                let now = end_of(lease);
                if now > end + SAME && !lease.is_cancelled() && child.extend(now) {
                    end = now;
                }
            }
        }
    }
}

fn loss(lease: &Lease) -> Option<String> {
    lease.loss().map(|loss| loss.to_string())
}

/// Says why a guardian ended its child by itself: the lease was not extended in time. A tenure that stood still is told
/// so by its engine in a moment; a guardian that is served late acts before the engine.
async fn expired(lease: &Lease) -> String {
    let _ = tokio::time::timeout(MOMENT, lease.cancelled()).await;
    loss(lease)
        .unwrap_or_else(|| "nothing extended the lease in time, and processor time is scarce".to_owned())
}

/// The end of a lease in boot time. Looked at in this order it is never too late.
fn end_of(lease: &Lease) -> Duration {
    let now = boot_time();
    now + lease.remaining()
}

async fn next(signals: &mut Option<&mut mpsc::UnboundedReceiver<ReceivedSignal>>) -> Option<ReceivedSignal> {
    match signals {
        Some(signals) => match signals.recv().await {
            // The thread that collects them does not end.
            None => std::future::pending().await,
            came => came,
        },
        None => std::future::pending().await,
    }
}

fn stuck_sentence(pid: i32, key: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or_else(
            || "unknown".to_owned(),
            |rest| rest.split_whitespace().collect::<Vec<_>>().join(" "),
        )
    };
    format!(
        "the process {pid} ({}, state {}, users {}) cannot be ended: waiting for its end, and not giving back the key \
         {key:?} before",
        field("Name:"),
        field("State:"),
        field("Uid:")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_killed_before_its_lease_ends_with_time_left_for_its_end() {
        let second = Duration::from_secs(1);
        for ttl in [3, 9, 30, 600].map(|seconds| second * seconds) {
            let config = ElectConfig::new("shop", "pod-1").unwrap();
            let config = config.with_refresh_duration(ttl).with_refresh_interval(second / 2);
            for kill_after in [None, Some(Duration::ZERO), Some(config.stop_grace())] {
                let patience = Patience::of(&config, kill_after).unwrap();
                let (grace, left) = (patience.stop_grace, allowance(patience.stop_grace));
                assert!(!left.is_zero() && patience.at_the_end() + left <= grace, "{patience:?}");
                // The command acts for a frozen guardian after that, and before the end.
                assert!(
                    patience.at_the_end() < patience.too_long() && patience.too_long() < grace,
                    "{patience:?}"
                );
            }
            assert!(Patience::of(&config, Some(config.stop_grace() + second)).is_err());
        }
    }
}
