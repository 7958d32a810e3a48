//! Log of this thread, which is where the runtime of a test has all its tasks.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing::{Dispatch, level_filters::LevelFilter, subscriber::DefaultGuard};

/// Text that was logged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[allow(dead_code, reason = "each test uses a part")]
impl Log {
    /// Keeps what is logged at info or above, until the guard is dropped.
    pub(crate) fn start() -> (Self, (DefaultGuard, Dispatch)) {
        Self::at(LevelFilter::INFO)
    }

    /// Keeps what is logged at this level or above, until the guard is dropped.
    pub(crate) fn at(level: LevelFilter) -> (Self, (DefaultGuard, Dispatch)) {
        // With one subscriber in the process, whoever passes a place that logs for the first time asks only
        // the subscriber of its own thread whether that place is of interest at all. With two, all are asked.
        let second = Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish());
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone());
        (log, (tracing::subscriber::set_default(subscriber.finish()), second))
    }

    /// All of it so far.
    pub(crate) fn text(&self) -> String {
        tenure::words::flush();
        String::from_utf8(self.0.lock().unwrap().clone()).expect("the log is text")
    }

    /// Tenure's own lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.text().lines().filter(|line| line.contains(" tenure::")).map(str::to_owned).collect()
    }

    /// Returns the lines that have all of these parts.
    pub(crate) fn with(&self, parts: &[&str]) -> Vec<String> {
        let has = |line: &String| parts.iter().all(|part| line.contains(part));
        self.lines().into_iter().filter(has).collect()
    }
}
