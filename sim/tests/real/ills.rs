//! Parts of a program that misbehave under its engine: its log, its recorder, its callbacks, its handler of commands,
//! its source of connection strings, and the runtime that its jobs run on.

use std::{
    io,
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use serde::{Deserialize, Serialize};
use tenure_sim::Dice;
use tokio::runtime::{Builder, Handle};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    Log,
    Metrics,
    Callbacks,
    Commands,
    Uri,
    Runtime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    /// At every call.
    Panics,
    /// For ever.
    Blocks,
    /// Each call takes up to ten seconds.
    Lags,
    /// A log is read at 40 bytes a second, a runtime is driven for 10 ms a second.
    Crawls,
}

/// A part that misbehaves, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ill(pub(crate) Part, pub(crate) How);

impl Ill {
    /// All ills of a program on a file, or on a server.
    pub(crate) fn all(on_a_server: bool) -> Vec<Self> {
        let mut parts = vec![Part::Log, Part::Metrics, Part::Callbacks];
        if on_a_server {
            parts.extend([Part::Commands, Part::Uri]);
        }
        let of = |part| [How::Panics, How::Blocks, How::Lags].map(|how| Self(part, how));
        let crawl = [Part::Log, Part::Runtime].map(|part| Self(part, How::Crawls));
        parts.into_iter().flat_map(of).chain(crawl).collect()
    }
}

impl FromStr for Ill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Self::all(true);
        let name = |ill: &Self| format!("{:?}-{:?}", ill.0, ill.1).to_lowercase();
        let found = all.iter().find(|ill| name(ill) == text).copied();
        found.ok_or_else(|| format!("{text} is none of {:?}", all.iter().map(name).collect::<Vec<_>>()))
    }
}

const ON_PURPOSE: &str = "on purpose";

/// Of one process. All is well until its engine has begun: a program whose log blocks before that never begins.
#[derive(Debug)]
pub(crate) struct Illness {
    ills: Vec<Ill>,
    has_begun: AtomicBool,
    dice: Mutex<Dice>,
}

impl Illness {
    pub(crate) fn new(ills: Vec<Ill>, seed: u64) -> Arc<Self> {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<&str>() != Some(&ON_PURPOSE) {
                report(panic);
            }
        }));
        Arc::new(Self { ills, has_begun: AtomicBool::new(false), dice: Mutex::new(Dice::new(seed)) })
    }

    pub(crate) fn begins(&self) {
        self.has_begun.store(true, Ordering::SeqCst);
    }

    /// Returns whether its own runtime is driven now and then only.
    pub(crate) fn is_undriven(&self) -> bool {
        self.ills.contains(&Ill(Part::Runtime, How::Crawls))
    }

    /// Called where code of this part runs, for so many bytes.
    pub(crate) fn strikes(&self, part: Part, bytes: usize) {
        if !self.has_begun.load(Ordering::SeqCst) {
            return;
        }
        let ills: Vec<_> = self.ills.iter().filter(|ill| ill.0 == part).map(|ill| ill.1).collect();
        if ills.is_empty() {
            return;
        }
        let draw = || {
            let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
            (ills[dice.place(ills.len())], dice.between(Duration::ZERO, Duration::from_secs(10)))
        };
        match draw() {
            (How::Panics, _) => std::panic::panic_any(ON_PURPOSE),
            (How::Blocks, _) => loop {
                std::thread::park();
            },
            (How::Lags, time) => std::thread::sleep(time),
            (How::Crawls, _) => {
                let time = Duration::from_secs(1) * u32::try_from(bytes).unwrap() / 40;
                std::thread::sleep(time);
            }
        }
    }

    /// The runtime of the program's own clients: the one given, if nothing is wrong with it.
    pub(crate) fn clients(&self, sound: &Handle) -> Handle {
        if self.ills.is_empty() {
            return sound.clone();
        }
        // Blocked for ever, it must not hold up its process.
        let own = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        std::mem::ManuallyDrop::new(own).handle().clone()
    }

    /// The runtime that the program's jobs run on: the one given, if nothing is wrong with it.
    pub(crate) fn runtime(&self, sound: &Handle) -> Handle {
        if !self.is_undriven() {
            return self.clients(sound);
        }
        let own = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = own.handle().clone();
        std::thread::spawn(move || {
            loop {
                own.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
                std::thread::sleep(Duration::from_millis(990));
            }
        });
        handle
    }
}

/// The log of a program.
#[derive(Debug)]
pub(crate) struct Log(pub(crate) Arc<Illness>);

impl<'a> MakeWriter<'a> for Log {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

impl io::Write for &Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.strikes(Part::Log, line.len());
        io::stderr().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The recorder of a program.
#[derive(Debug)]
pub(crate) struct Numbers(pub(crate) Arc<Illness>);

impl Recorder for Numbers {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.0.strikes(Part::Metrics, 0);
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.0.strikes(Part::Metrics, 0);
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.0.strikes(Part::Metrics, 0);
        Histogram::noop()
    }
}
