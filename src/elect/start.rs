//! Building and starting an engine.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{
    Elect, Engine, Error, Life,
    engine::Parts,
    entropy::Entropy,
    keeper::{self, KeeperThread},
    metrics,
    probe::Probe,
    runtime::Runtime,
    time, upkeep, wakes,
};
use crate::{
    ConfigError, StoreError,
    clock::{Clock, SystemClock},
    config::{ElectConfig, check_probe},
    logic::flaw::Flaws,
    store::{MemoryStore, Store},
};

/// An instance could not be started.
///
/// Printed with its cause, in one line; so its [`source`](std::error::Error::source) is nothing. The cause is in the
/// variant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration breaks a rule.
    Config(ConfigError),
    /// The store refused the session, or did not answer in time.
    Store(Arc<StoreError>),
    /// The store did not answer at all in time.
    NoAnswer {
        /// Time that was waited.
        waited: Duration,
    },
    /// The keeper's thread could not be started.
    Thread(Arc<std::io::Error>),
}

impl StartError {
    /// Returns whether starting may succeed later, with nothing changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config(_) => false,
            Self::Store(error) => error.is_retryable(),
            Self::NoAnswer { .. } | Self::Thread(_) => true,
        }
    }

    /// Returns whether the program or its configuration has to change.
    #[must_use]
    pub fn is_config(&self) -> bool {
        !self.is_retryable()
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => fmt::Display::fmt(error, f),
            Self::Store(error) => write!(f, "could not open a session: {error}"),
            Self::NoAnswer { waited } => write!(f, "the store did not answer within {waited:?}"),
            Self::Thread(error) => write!(f, "could not start the keeper's thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<MemoryStore> for Arc<dyn Store> {
    fn from(store: MemoryStore) -> Self {
        Arc::new(store)
    }
}

#[cfg(feature = "mongodb")]
impl From<crate::store::mongo::MongoStore> for Arc<dyn Store> {
    fn from(store: crate::store::mongo::MongoStore) -> Self {
        Arc::new(store)
    }
}

#[cfg(feature = "sqlite")]
impl From<crate::store::sqlite::SqliteStore> for Arc<dyn Store> {
    fn from(store: crate::store::sqlite::SqliteStore) -> Self {
        Arc::new(store)
    }
}

/// An engine to be started. Made by [`Elect::builder`].
#[derive(Debug)]
#[must_use = "an engine does nothing until it is started"]
pub struct Builder {
    store: Arc<dyn Store>,
    config: ElectConfig,
    clock: Arc<dyn Clock>,
    entropy: Entropy,
    flaws: Flaws,
    program: Option<String>,
    probe: Option<Duration>,
    #[cfg(tenure_sim)]
    tasks: Option<Arc<dyn super::Tasks>>,
}

impl Builder {
    pub(crate) fn new(store: Arc<dyn Store>, config: ElectConfig) -> Self {
        Self {
            store,
            config,
            clock: Arc::new(SystemClock::new()),
            entropy: Entropy::System,
            flaws: Flaws::default(),
            program: None,
            probe: None,
            #[cfg(tenure_sim)]
            tasks: None,
        }
    }

    /// Sets the name and version of the program in the session's record. Default: the name of its file.
    pub fn program(mut self, program: impl AsRef<str>) -> Self {
        self.program = Some(program.as_ref().to_owned());
        self
    }

    /// Ends the session on purpose when the program's runtime has run no task for so long: a wedged
    /// program does not keep its locks. Off by default, for a runtime may be busy for a good reason.
    pub const fn liveness_probe(mut self, patience: Duration) -> Self {
        self.probe = Some(patience);
        self
    }

    /// Uses this clock, which a test can turn.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Draws all random numbers from this seed, so that a run can be repeated. For tests only; two instances
    /// with one seed take each other for a clone.
    #[cfg(feature = "testing")]
    pub fn seed(mut self, seed: u64) -> Self {
        self.entropy = Entropy::seeded(seed);
        self
    }

    /// Spawns all tasks through this: a simulation stops them, or ends them all at once.
    #[cfg(tenure_sim)]
    #[doc(hidden)]
    pub fn tasks(mut self, tasks: Arc<dyn super::Tasks>) -> Self {
        self.tasks = Some(tasks);
        self
    }

    /// Breaks a rule, to see whether a test notices.
    #[cfg(tenure_sim)]
    #[doc(hidden)]
    pub const fn flaw(mut self, flaw: crate::logic::flaw::Flaw) -> Self {
        self.flaws = Flaws::one(flaw);
        self
    }

    /// Starts the instance, and waits until it has a session.
    ///
    /// # Errors
    /// As [`Elect::start`].
    ///
    /// # Panics
    /// Outside of a tokio runtime, and on one without timers.
    pub async fn start(self) -> Result<Elect, StartError> {
        let patience = self.config.refresh_duration();
        let elect = self.begin()?;
        let engine = elect.engine().clone();
        let mut troubles = engine.troubles();
        let refused = async {
            let refused = troubles
                .wait_for(|trouble| trouble.as_ref().is_some_and(|trouble| !trouble.error.is_retryable()));
            match refused.await {
                Ok(trouble) => trouble.as_ref().map(|trouble| trouble.error.clone()),
                Err(_) => None,
            }
        };
        let opened = async {
            tokio::select! {
                biased;
                session = engine.valid_session() => match session {
                    Ok(_) => Ok(()),
                    Err(Error::Store(error)) => Err(StartError::Store(error)),
                    Err(_) => Err(StartError::NoAnswer { waited: Duration::ZERO }),
                },
                Some(error) = refused => Err(StartError::Store(error)),
            }
        };
        if let Ok(opened) = tokio::time::timeout(patience, opened).await {
            opened.map(|()| elect)
        } else {
            let last = engine.troubles().borrow().as_ref().map(|trouble| trouble.error.clone());
            Err(last.map_or(StartError::NoAnswer { waited: patience }, StartError::Store))
        }
    }

    /// Starts the instance without waiting for a session: for programs that must come up before their store.
    ///
    /// # Errors
    /// The configuration breaks a rule, or the thread cannot be started.
    ///
    /// # Panics
    /// Outside of a tokio runtime, and on one without timers.
    pub fn begin(self) -> Result<Elect, StartError> {
        let runtime = Runtime::current();
        #[cfg(tenure_sim)]
        let (runtime, is_gated) = (runtime.behind(self.tasks.clone()), self.tasks.is_some());
        let Self { store, config, clock, entropy, flaws, program, probe, .. } = self;
        config.validate().and_then(|()| probe.map_or(Ok(()), check_probe)).map_err(StartError::Config)?;
        // Here, and not where the first job is to be stopped: it panics if the runtime has no timers.
        drop(tokio::time::sleep(Duration::ZERO));
        let passes = !clock.is_virtual();
        let has_thread = passes;
        // A simulation stops tasks, not threads.
        #[cfg(tenure_sim)]
        let has_thread = has_thread && !is_gated;
        let thread = has_thread.then(|| begin_threads().and_then(|()| KeeperThread::start())).transpose();
        let thread = thread.map_err(|error| StartError::Thread(Arc::new(error)))?;
        // Work on the program's own runtime stands still with it.
        let probe = (thread.is_some() || probe.is_some()).then(|| Probe::new(probe, clock.now()));
        let pulse = thread.is_some().then(|| Probe::new(None, clock.now()));
        let (keeper, commands) = mpsc::unbounded_channel();
        let parts = Parts {
            store,
            config,
            clock,
            passes,
            entropy,
            flaws,
            work: thread.as_ref().map_or_else(|| runtime.clone(), KeeperThread::runtime),
            runtime,
            host: host_name(),
            program: program.unwrap_or_else(program_name),
            probe,
            pulse,
        };
        let engine = Arc::new(Engine::new(parts, keeper));
        metrics::begin(&engine);
        engine.runtime.spawn(upkeep::stand_sentinel(Arc::downgrade(&engine)));
        if let Some(probe) = &engine.probe {
            engine.runtime.spawn(upkeep::show_alive(Arc::downgrade(&engine), probe.pace()));
        }
        if thread.is_some() {
            engine.work.spawn(upkeep::show_keeper(Arc::downgrade(&engine)));
        }
        let elect = Elect { life: Arc::new(Life { engine: engine.clone() }) };
        match thread {
            Some(thread) => thread.begin(engine, commands),
            None => keeper::keep_here(engine, commands),
        }
        Ok(elect)
    }
}

/// Starts the threads that all instances of a process share.
fn begin_threads() -> std::io::Result<()> {
    wakes::start()?;
    time::start()
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn host_name() -> String {
    std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME")).unwrap_or_default()
}

fn program_name() -> String {
    let file = std::env::current_exe().ok();
    let name = file.as_ref().and_then(|file| file.file_name());
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
