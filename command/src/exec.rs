//! `tenure exec`: a program runs while this process holds a key.

use std::{ffi::OsString, mem, process::Stdio, sync::Arc, time::Duration};

use clap::Args;
use tenure::{
    Elect, Loss,
    elect::{Acquired, Busy, Guard, HeldBy},
    model::{Key, Kind, LockId, StoreTime, Why},
    store::{
        Ended::{Died, Forced},
        LockRecord, LockSeen, SessionSeen, StoreExt,
    },
};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    child::{self, Input, Program},
    common::Common,
    exit::{FAILED, Failure, HELD, LEASE_LOST, TIMED_OUT},
    key_lock::KeyFile,
    place::{OpenMode, OpenStore, has_secret},
    say,
    settings::Settings,
    signals::{self, ReceivedSignal},
    times,
    under::{self, Ended, Patience, Status},
};

/// Longest that a single look at the store may take.
const LOOK: Duration = Duration::from_secs(5);
/// Pause before a store is asked again whose file was locked.
const PAUSE: Duration = Duration::from_millis(100);

/// Run a program while holding a key
///
/// No other program that asks for the key runs meanwhile.
///
/// The program does not outlive its lease: if the lease is lost, the program and all processes that it started get
/// SIGTERM and then SIGKILL before another instance may hold the key; also if tenure itself is killed or frozen.
#[derive(Args, Debug)]
pub(crate) struct Exec {
    /// Key to hold
    #[arg(long, short, value_name = "KEY")]
    key: String,

    /// Do not wait for a living holder; one that looks dead is watched for up to one ttl
    #[arg(long, short, conflicts_with = "wait")]
    nonblock: bool,

    /// Longest wait [default: for ever]
    #[arg(long, short, value_name = "TIME")]
    wait: Option<String>,

    /// Longest time to hold the key: then the program and all that it started are ended, and the exit code is 124
    /// [default: no limit]
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,

    /// Exit code if the key could not be acquired; with 0 nothing is printed
    #[arg(long, short = 'E', value_name = "CODE", default_value_t = HELD)]
    conflict_exit_code: u8,

    /// Reason for holding the key, shown with its holder
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,

    /// Time between SIGTERM and SIGKILL [default and maximum: --stop-grace]
    #[arg(long, value_name = "TIME")]
    kill_after: Option<String>,

    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) async fn run(common: &Common, exec: Exec) -> Result<u8, Failure> {
    // From now on no signal ends this process without what it has to end first.
    let mut signals = signals::collect()
        .map_err(|error| Failure::failed(format!("signals cannot be received: {error}")))?;
    crate::logs::start(common, crate::common::Level::Error);
    child::prepare()?;
    let settings = Settings::of(common)?;
    let wait = exec.wait.as_deref().map(|text| times::duration("--wait", text)).transpose()?;
    let kill_after =
        exec.kill_after.as_deref().map(|text| times::duration("--kill-after", text)).transpose()?;
    let timeout = exec.timeout.as_deref().map(|text| times::duration("--timeout", text)).transpose()?;
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(Failure::usage(
            "--timeout is 0s, and must be longer: the program would be ended at once",
        ));
    }
    let patience = Patience::of(&settings.config, kill_after)?;
    let key = Key::new(&exec.key).map_err(|error| Failure::usage(format!("--key: {error}")))?;
    let lock = LockId { namespace: settings.config.namespace().clone(), kind: Kind::Lock, key };
    let deadline = wait.map(|wait| Instant::now() + wait);

    let patiently = Patiently { until: if exec.nonblock { Some(Instant::now()) } else { deadline } };
    let opened = async || {
        let place = OpenStore::open(&settings, OpenMode::ReadWrite).await?;
        let elect = Elect::builder(Arc::clone(&place.store), settings.config.clone())
            .program(concat!("tenure exec ", env!("CARGO_PKG_VERSION")))
            .start()
            .await?;
        Ok::<_, Failure>((place, elect))
    };
    let (place, elect) = tokio::select! {
        opened = patiently.ask(opened) => opened?,
        came = first(&mut signals) => return Ok(ended_by(came)),
    };
    let asked = KeyWait { exec: &exec, lock: &lock, timeout, deadline, place: &place, elect: &elect };
    let got = tokio::select! {
        got = patiently.ask(async || asked.guard().await) => got,
        // No child runs yet to which it would have to be passed.
        came = first(&mut signals) => Ok(Acquisition::Not(ended_by(came), None)),
        // Else it would wait for ever.
        failure = place.lost(&elect) => Err(failure),
    };
    let (guard, key_file) = match got {
        Ok(Acquisition::Guard(guard, key_file)) => (guard, key_file),
        not => {
            close(elect, place).await;
            return not.map(Acquisition::report);
        }
    };
    let without = without(&settings);
    let program = Program {
        command: exec.command,
        variables: vec![("TENURE_HOLDER", elect.config().holder().as_str().into())],
        without,
        stdin: Input::Same,
        own_group: false,
        stderr: Stdio::inherit(),
    };
    let lease = guard.lease();
    let ended = under::run(&lease, program, key_file, patience, Some(&mut signals), drop).await;
    let code = ended.map(|ended| code(&ended, &lock, lease.loss().as_ref()));
    if let Some(file) = &place.file {
        KeyFile::remove(file, &lock);
    }
    if let Err(error) = guard.release().await {
        say::say(format_args!(
            "could not release the key {:?}; it expires within {}: {error}",
            lock.key.as_str(),
            humantime::format_duration(elect.config().ttl())
        ));
    }
    close(elect, place).await;
    code
}

async fn close(elect: Elect, place: OpenStore) {
    elect.close().await;
    drop(elect);
    place.close().await;
}

/// Variables that the child does not inherit: those with a password in them.
pub(crate) fn without(settings: &Settings) -> Vec<&'static str> {
    let is_secret = settings.store.as_ref().is_some_and(|uri| has_secret(&uri.text))
        || std::env::var("TENURE_STORE").is_ok_and(|uri| has_secret(&uri));
    if is_secret { vec!["TENURE_STORE"] } else { Vec::new() }
}

/// As a shell says that a signal ended this process.
fn ended_by(came: ReceivedSignal) -> u8 {
    u8::try_from(128 + came.signal).unwrap_or(FAILED)
}

async fn first(signals: &mut mpsc::UnboundedReceiver<ReceivedSignal>) -> ReceivedSignal {
    match signals.recv().await {
        Some(came) => came,
        None => std::future::pending().await,
    }
}

/// The code of this process, and a sentence if it is not the child's.
fn code(ended: &Ended, lock: &LockId, why: Option<&Loss>) -> u8 {
    if let Some(loss) = &ended.loss {
        if let Some(Loss::TimedOut { after }) = why {
            let after = humantime::format_duration(*after);
            say::say(format_args!("the child took longer than --timeout ({after}), so it was ended"));
            return TIMED_OUT;
        }
        say::say(format_args!("lost the key {:?}, so the child was ended: {loss}", lock.key.as_str()));
        return LEASE_LOST;
    }
    if ended.status == Status::Unknown {
        say::say("the guardian of the child was killed, and the child with it");
    }
    ended.status.code()
}

/// Asks again while the store's file is locked by others: it is waited for like the key.
struct Patiently {
    /// None: for ever.
    until: Option<Instant>,
}

impl Patiently {
    async fn ask<T>(&self, mut ask: impl AsyncFnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        let mut is_said = false;
        loop {
            match ask().await {
                Err(failure)
                    if failure.is_locked && self.until.is_none_or(|until| Instant::now() < until) =>
                {
                    if !mem::replace(&mut is_said, true) {
                        say::say(format_args!("waiting: {failure}"));
                    }
                    // Some answers come at once, as while there is no session.
                    tokio::time::sleep(PAUSE).await;
                }
                answer => return answer,
            }
        }
    }
}

/// Outcome of asking for the key.
enum Acquisition {
    Guard(Guard, Option<KeyFile>),
    /// Not: the exit code, and why if that is not known.
    Not(u8, Option<String>),
}

impl Acquisition {
    /// Prints the reason and returns the exit code.
    fn report(self) -> u8 {
        match self {
            Self::Guard(..) => 0,
            Self::Not(code, reason) => {
                // A caller that asks for 0 does not count it as a failure: cron mails whatever is printed.
                if let Some(reason) = reason.filter(|_| code != 0) {
                    say::say(&reason);
                }
                code
            }
        }
    }
}

struct KeyWait<'a> {
    exec: &'a Exec,
    lock: &'a LockId,
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    place: &'a OpenStore,
    elect: &'a Elect,
}

impl KeyWait<'_> {
    fn not(&self, reason: String) -> Acquisition {
        Acquisition::Not(self.exec.conflict_exit_code, Some(reason))
    }

    fn request(&self) -> tenure::elect::KeyRequest {
        let mut request = self.elect.key(&self.lock.key);
        if let Some(why) = &self.exec.why {
            request = request.why(why);
        }
        match self.timeout {
            Some(timeout) => request.timeout(timeout),
            None => request,
        }
    }

    async fn guard(&self) -> Result<Acquisition, Failure> {
        let guard = match self.request().try_acquire().await? {
            Acquired::Guard(guard) => guard,
            Acquired::Busy(busy) => match self.wait_for(busy).await? {
                Ok(guard) => guard,
                Err(reason) => return Ok(self.not(reason)),
            },
        };
        let Some(file) = &self.place.file else { return Ok(Acquisition::Guard(guard, None)) };
        let mut key_file = KeyFile::open(file, self.lock)?;
        if key_file.try_lock()? {
            return Ok(Acquisition::Guard(guard, Some(key_file)));
        }
        let reason = format!(
            "a former child of the key {:?} is still there: {}",
            self.lock.key.as_str(),
            pids(&key_file.holders())
        );
        if self.exec.nonblock {
            guard.release().await?;
            return Ok(self.not(reason));
        }
        say::say(format_args!("waiting: {reason}"));
        let locked = key_file.lock();
        let locked = match self.deadline {
            None => locked.await,
            Some(deadline) => {
                let Ok(locked) = tokio::time::timeout_at(deadline, locked).await else {
                    guard.release().await?;
                    return Ok(self.not(reason));
                };
                locked
            }
        };
        // A key that was lost meanwhile starts no child.
        locked.map(|key_file| Acquisition::Guard(guard, Some(key_file)))
    }

    async fn wait_for(&self, busy: Busy) -> Result<Result<Guard, String>, Failure> {
        let reason = self.reason(&busy);
        if self.exec.nonblock {
            return match busy {
                Busy::Held(held) => match self.looks_dead(&held).await? {
                    Some(ttl) => self.wait_for_death(&held, ttl, reason).await,
                    None => Ok(Err(reason)),
                },
                _ => Ok(Err(reason)),
            };
        }
        say::say(format_args!("waiting: {reason}"));
        let guard = match self.deadline {
            None => Some(self.request().acquire().await?),
            Some(deadline) => {
                let time = deadline.saturating_duration_since(Instant::now());
                self.request().acquire_within(time).await?
            }
        };
        match guard {
            Some(guard) => Ok(Ok(guard)),
            None => Ok(Err(self.held_now().await?.unwrap_or(reason))),
        }
    }

    /// Waits for the death of that very holder. As soon as another has had the key since, however shortly, this gives
    /// up: of several machines that try once, one runs the program.
    async fn wait_for_death(
        &self,
        of: &HeldBy,
        ttl: Duration,
        reason: String,
    ) -> Result<Result<Guard, String>, Failure> {
        say::say(format_args!(
            "{reason}; it may be dead, checking for up to {}",
            humantime::format_duration(ttl)
        ));
        let mut watch = self.elect.watch(&self.lock.key)?;
        let another = async {
            loop {
                let held = watch.changed().await?.filter(|held| held.term != of.term);
                if let Some(held) = held.filter(|held| Some(held.session) != self.elect.health().session) {
                    return Ok::<_, tenure::elect::Error>(held);
                }
            }
        };
        let guard = tokio::select! {
            biased;
            guard = self.request().acquire_within(ttl + LOOK) => guard?,
            held = another => return Ok(Err(held_sentence(&held?))),
        };
        let Some(guard) = guard else { return Ok(Err(self.held_now().await?.unwrap_or(reason))) };
        let last = self.record().await?.and_then(|record| record.past.into_iter().next());
        let key = self.lock.key.as_str();
        let reason = match last.filter(|last| last.term == of.term) {
            Some(last) if matches!(last.how, Died | Forced) => return Ok(Ok(guard)),
            Some(last) => format!("{} was alive, and has released the key {key:?}", last.holder),
            None => format!("another has had the key {key:?} since {} looked dead", of.holder),
        };
        guard.release().await?;
        Ok(Err(reason))
    }

    fn reason(&self, busy: &Busy) -> String {
        match busy {
            Busy::Held(held) => held_sentence(held),
            Busy::Closed { until } => {
                format!("the key {:?} is kept closed until {}", self.lock.key.as_str(), times::local(*until))
            }
            _ => format!("this process already holds or waits for the key {:?}", self.lock.key.as_str()),
        }
    }

    async fn record(&self) -> Result<Option<LockRecord>, Failure> {
        let locks = self.place.store.locks(vec![self.lock.clone()], LOOK).await?;
        Ok(locks.into_iter().find_map(|seen| match seen {
            LockSeen::Found(record) => Some(record),
            _ => None,
        }))
    }

    /// Returns the present holder, which may be another by now.
    async fn held_now(&self) -> Result<Option<String>, Failure> {
        let holding = self.record().await?.and_then(|record| record.holding);
        Ok(holding.map(|held| {
            sentence(
                &self.lock.key,
                held.by.holder.as_str(),
                held.acquired_at,
                held.by.why.as_ref().map(Why::as_str),
            )
        }))
    }

    /// Returns the ttl of a holder whose last beat is older than that. The clocks may differ, so this is a hint and
    /// decides only whether the holder is watched.
    async fn looks_dead(&self, held: &HeldBy) -> Result<Option<Duration>, Failure> {
        let seen = self.place.store.observe(vec![held.session], LOOK).await?;
        let now = self.elect.health().store_time.map_or_else(times::now, |(now, _)| now);
        Ok(match seen.into_iter().next() {
            Some(SessionSeen::Alive(record)) => {
                Some(record.ttl).filter(|ttl| record.beat_at.plus(*ttl) < now)
            }
            // The lock's record has the ttl of a session that has none any more.
            Some(SessionSeen::Dead(_) | SessionSeen::Missing) => {
                let holding = self.record().await?.and_then(|record| record.holding);
                holding.map(|holding| holding.by.ttl)
            }
            _ => None,
        })
    }
}

fn held_sentence(held: &HeldBy) -> String {
    sentence(&held.lock.key, held.holder.as_str(), held.since, held.why.as_ref().map(Why::as_str))
}

fn sentence(key: &Key, holder: &str, since: StoreTime, why: Option<&str>) -> String {
    let why = why.map_or_else(String::new, |why| format!(", why: {why}"));
    crate::out::one_line(&format!(
        "the key {:?} is held by {holder} since {} ({}){why}",
        key.as_str(),
        times::local(since),
        times::ago(since, times::now())
    ))
}

fn pids(pids: &[i32]) -> String {
    if pids.is_empty() {
        return "a process that this user cannot see".to_owned();
    }
    let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
    format!("pid {}", pids.join(", "))
}
