//! The threads that the connections live on: one writes, one reads. They end when their queues are closed.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
};

use rusqlite::{Connection, ErrorCode};

use super::{
    Home,
    error::Trouble,
    queue::{Job, Queue},
    rows::{Failure, SqlRows},
};
use crate::{clock::Clock, error::Applied, sync::locked};

/// The most operations of one transaction.
const TOGETHER: usize = 256;

/// What a thread has. The connection is closed before the file counts as closed.
pub(super) struct Place {
    connection: Connection,
    home: Arc<Home>,
    queue: Arc<Queue>,
    clock: Arc<dyn Clock>,
}

/// Whatever ends the thread, nobody waits for it in vain.
struct Ending(Arc<Queue>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Starts the thread that writes. It ends after the one that reads: of connections that are closed at once none would
/// write the log back.
pub(super) fn writer(place: Place, reader: JoinHandle<()>) -> io::Result<JoinHandle<()>> {
    let mut writer = Writer { place, is_synced: true };
    start("tenure-write", move || {
        let _ending = Ending(Arc::clone(&writer.place.queue));
        while let Some(is_synced) = writer.place.queue.wait() {
            writer.write(is_synced);
        }
        if reader.join().is_err() {
            tracing::error!("a thread of the SQLite store panicked");
        }
    })
}

/// Starts the thread that reads.
pub(super) fn reader(place: Place) -> io::Result<JoinHandle<()>> {
    start("tenure-read", move || {
        let _ending = Ending(Arc::clone(&place.queue));
        while place.queue.wait().is_some() {
            place.read();
        }
    })
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

type Jobs = Vec<Box<dyn Job>>;

fn answer(jobs: Jobs, ended: &Result<(), (Trouble, Applied)>) {
    for job in jobs {
        job.answer(ended.clone());
    }
}

impl Place {
    pub(super) fn new(
        connection: Connection,
        home: Arc<Home>,
        queue: Arc<Queue>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { connection, home, queue, clock }
    }

    fn rows(&self) -> SqlRows<'_> {
        SqlRows { connection: &self.connection, files: self.home.files.as_deref() }
    }

    fn say(&self, sql: &str) -> Result<(), Failure> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn trouble(&self, failure: &Failure) -> Trouble {
        Trouble::of(self.home.file.path(), failure)
    }

    /// Reads for all who wait, as of one moment.
    fn read(&self) {
        let begun = self.say("BEGIN");
        let jobs = self.queue.begin(true, TOGETHER);
        if let Err(failure) = begun {
            return answer(jobs, &Err((self.trouble(&failure), Applied::No)));
        }
        let now = self.clock.wall();
        for mut job in jobs {
            let read = job.run(&mut self.rows(), now);
            job.answer(read.map_err(|failure| (self.trouble(&failure), Applied::No)));
        }
        self.roll_back();
    }

    fn roll_back(&self) {
        // Some errors have done so already.
        if !self.connection.is_autocommit()
            && let Err(failure) = self.say("ROLLBACK")
        {
            let error = self.trouble(&failure);
            tracing::warn!(?error, "a transaction could not be rolled back");
        }
    }
}

struct Writer {
    place: Place,
    /// Whether each commit is synced at present.
    is_synced: bool,
}

impl Writer {
    /// Writes for all who wait, in one transaction.
    fn write(&mut self, is_synced: bool) {
        let file = Arc::clone(&self.place.home.file);
        let gate = locked(&file.gate);
        if let Err(failure) = self.begin(is_synced) {
            if let Failure::Sqlite(error) = &failure
                && error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
            {
                // Whoever still waits for an answer waits for this, too.
                return;
            }
            let jobs = self.place.queue.begin(true, usize::MAX);
            return answer(jobs, &Err((self.place.trouble(&failure), Applied::No)));
        }
        // Also those that came meanwhile.
        let jobs = self.place.queue.begin(self.is_synced, TOGETHER);
        if !file.is_in_place() {
            self.place.roll_back();
            return answer(jobs, &Err((Trouble::replaced(file.path()), Applied::No)));
        }
        let Some(done) = self.run_all(jobs) else { return };
        let ended = match self.place.say("COMMIT") {
            Ok(()) => Ok(()),
            Err(failure) => {
                let trouble = self.place.trouble(&failure);
                self.place.roll_back();
                // The log may have it, and show it after a crash.
                Err((trouble, Applied::Unknown))
            }
        };
        drop(gate);
        if ended.is_ok() && done.iter().any(|job| job.has_rung()) {
            self.place.home.hints.announce();
        }
        answer(done, &ended);
    }

    /// Does these, each for itself. Answers those that failed, and returns the others, if there is a transaction to be
    /// committed.
    fn run_all(&self, mut jobs: Jobs) -> Option<Jobs> {
        loop {
            match self.run(jobs) {
                Ok(done) => return Some(done),
                Err(rest) => jobs = rest,
            }
            // For the sake of one SQLite has given up the whole transaction.
            if jobs.is_empty() {
                return None;
            }
            if let Err(failure) = self.place.say("BEGIN IMMEDIATE") {
                answer(jobs, &Err((self.place.trouble(&failure), Applied::No)));
                return None;
            }
        }
    }

    fn begin(&mut self, is_synced: bool) -> Result<(), Failure> {
        if is_synced != self.is_synced {
            // It takes effect when it is prepared, so it is prepared each time.
            let level = if is_synced { "FULL" } else { "NORMAL" };
            self.place.connection.execute_batch(&format!("PRAGMA synchronous = {level}"))?;
            self.is_synced = is_synced;
        }
        self.place.say("BEGIN IMMEDIATE")
    }

    /// The same within one transaction. Returns those that are still to be done if it was given up.
    fn run(&self, jobs: Jobs) -> Result<Jobs, Jobs> {
        // Nobody else could write since the transaction began.
        let now = self.place.clock.wall();
        let are_many = jobs.len() > 1;
        let mut done = Vec::with_capacity(jobs.len());
        let mut jobs = jobs.into_iter();
        while let Some(mut job) = jobs.next() {
            let Err(failure) = self.run_one(&mut *job, now, are_many) else {
                done.push(job);
                continue;
            };
            job.answer(Err((self.place.trouble(&failure), Applied::No)));
            if self.place.connection.is_autocommit() {
                return Err(done.into_iter().chain(jobs).collect());
            }
        }
        Ok(done)
    }

    fn run_one(
        &self,
        job: &mut dyn Job,
        now: crate::model::StoreTime,
        are_many: bool,
    ) -> Result<(), Failure> {
        let rows = &mut self.place.rows();
        if are_many {
            self.place.say("SAVEPOINT one")?;
        }
        let done = job.run(rows, now);
        if done.is_err() && !self.place.connection.is_autocommit() {
            if are_many {
                self.place.say("ROLLBACK TO one")?;
            } else {
                self.place.roll_back();
            }
        }
        if are_many && !self.place.connection.is_autocommit() {
            self.place.say("RELEASE one")?;
        }
        done
    }
}
