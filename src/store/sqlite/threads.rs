//! The threads that the connections live on: one writes, one reads. They end when their backlogs are closed.

pub(super) mod backlog;
pub(super) mod call;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) mod deaths;
pub(super) mod trouble;

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use self::{
    backlog::{Backlog, Job},
    trouble::Trouble,
};
use super::{
    Home,
    file::{LOG_KEPT, header::beside, tables},
    rows::{Failure, SqlRows},
};
use crate::{clock::Clock, error::Applied, sync::locked, words};

/// The most operations of one transaction.
const TOGETHER: usize = 256;
/// A writer that has had the file locked for this long lets others have it: they look from time to time, and would find it
/// locked again.
const LONG: Duration = Duration::from_millis(10);
/// The pause in which others have it.
const REST: Duration = Duration::from_millis(2);
/// The commits between two looks at the length of the log.
const LOOKS_AT_LOG: u32 = 64;

/// The state of a thread. The connection is closed before the file counts as closed.
pub(super) struct Place {
    connection: Connection,
    home: Arc<Home>,
    backlog: Arc<Backlog>,
    clock: Arc<dyn Clock>,
}

/// Gives the backlog up when the thread ends, for whatever reason: no caller waits in vain.
struct Ending(Arc<Backlog>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Starts the thread that writes. It ends after the one that reads: of connections that are closed at once none would
/// write the log back.
pub(super) fn writer(place: Place, reader: JoinHandle<()>) -> io::Result<JoinHandle<()>> {
    let mut writer = Writer { place, is_synced: true, commits: 0 };
    start("tenure-write", move || {
        let _ending = Ending(Arc::clone(&writer.place.backlog));
        while let Some(is_synced) = writer.place.backlog.wait() {
            writer.write(is_synced);
        }
        if reader.join().is_err() {
            words::error!("a thread of the SQLite store panicked");
        }
    })
}

/// Starts the thread that reads.
pub(super) fn reader(place: Place) -> io::Result<JoinHandle<()>> {
    start("tenure-read", move || {
        let _ending = Ending(Arc::clone(&place.backlog));
        while place.backlog.wait().is_some() {
            place.read();
        }
    })
}

/// Starts a thread. The runtime's pool is the program's, and may be full of calls that never end.
fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let under = words::Under::current();
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || under.run(run));
    started.map_err(|error| io::Error::new(error.kind(), format!("no thread could be started: {error}")))
}

/// Does something on a thread of its own. An error says that there is none, or that it panicked.
pub(super) async fn elsewhere<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, is_done) = oneshot::channel();
    // An error says that no caller waits for it.
    start(name, move || drop(done.send(run())))?;
    is_done.await.map_err(|_| io::Error::other("it panicked"))
}

type Jobs = Vec<Box<dyn Job>>;
/// The outcome of a transaction.
type Ended = Result<(), (Trouble, Applied)>;

fn answer(jobs: Jobs, ended: &Ended) {
    for job in jobs {
        job.answer(ended.clone());
    }
}

impl Place {
    pub(super) fn new(
        connection: Connection,
        home: Arc<Home>,
        backlog: Arc<Backlog>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { connection, home, backlog, clock }
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

    /// Reads for all callers that wait, as of one moment.
    fn read(&self) {
        let begun = self.say("BEGIN");
        let jobs = self.backlog.begin(true, TOGETHER);
        if let Err(failure) = begun {
            return answer(jobs, &Err((self.trouble(&failure), Applied::No)));
        }
        if !self.home.file.is_in_place() {
            self.roll_back();
            return answer(jobs, &Err((Trouble::replaced(self.home.file.path()), Applied::No)));
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
            words::warn!(?error, "a transaction could not be rolled back");
        }
    }
}

struct Writer {
    place: Place,
    /// True if each commit is synced at present.
    is_synced: bool,
    commits: u32,
}

impl Writer {
    /// Writes for all callers that wait, in one transaction.
    fn write(&mut self, is_synced: bool) {
        let file = Arc::clone(&self.place.home.file);
        let gate = locked(&file.gate);
        let began = self.begin(is_synced);
        if let Err(failure) = &began
            && failure.code() == Some(ErrorCode::DatabaseBusy)
        {
            // A caller that still waits for an answer waits for this, too.
            self.place.backlog.held_up(self.place.trouble(failure));
            return;
        }
        self.place.backlog.goes_on();
        let began_at = self.place.clock.now();
        if let Some(trouble) =
            began.err().map(|failure| self.place.trouble(&failure)).or_else(|| self.forbidden())
        {
            self.place.roll_back();
            return answer(self.place.backlog.begin(true, usize::MAX), &Err((trouble, Applied::No)));
        }
        // Also the jobs that came meanwhile.
        let jobs = self.place.backlog.begin(self.is_synced, TOGETHER);
        let Some((done, ended)) = self.run_and_commit(jobs) else { return };
        self.cut_log();
        let took = self.place.clock.now().since(began_at);
        drop(gate);
        if ended.is_ok() {
            self.place.home.hints.announce(done.iter().flat_map(|job| job.rung()));
        }
        answer(done, &ended);
        if took >= LONG {
            thread::sleep(REST);
        }
    }

    /// Why nothing may be written any more, in a transaction that has begun.
    fn forbidden(&self) -> Option<Trouble> {
        let path = self.place.home.file.path();
        if !self.place.home.file.is_in_place() {
            return Some(Trouble::replaced(path));
        }
        match tables::version(&self.place.connection) {
            Ok(found) if found > tables::VERSION => Some(Trouble::newer(path, found)),
            Ok(_) => None,
            Err(error) => Some(self.place.trouble(&error.into())),
        }
    }

    /// Does these and commits what they wrote. Returns the jobs that are still to be answered, and how.
    fn run_and_commit(&self, jobs: Jobs) -> Option<(Jobs, Ended)> {
        let done = self.run_all(jobs)?;
        let Err(failure) = self.place.say("COMMIT") else { return Some((done, Ok(()))) };
        if failure.code() == Some(ErrorCode::DiskFull) {
            // The log cannot grow. What is in it may have room in the file, and then it begins anew. Of this transaction
            // nothing was written that counts.
            self.place.roll_back();
            if self.restart_log().is_ok() && self.place.say("BEGIN IMMEDIATE").is_ok() {
                let done = self.run_all(done)?;
                return Some(match self.place.say("COMMIT") {
                    Ok(()) => (done, Ok(())),
                    Err(failure) => self.commit_failed(done, &failure),
                });
            }
        }
        Some(self.commit_failed(done, &failure))
    }

    fn commit_failed(&self, done: Jobs, failure: &Failure) -> (Jobs, Ended) {
        let trouble = self.place.trouble(failure);
        self.place.roll_back();
        // The log may have it, and show it after a crash.
        (done, Err((trouble, Applied::Unknown)))
    }

    /// Has the log begin anew where the readers have never let it: else it would grow as long as a process reads.
    fn cut_log(&mut self) {
        self.commits = self.commits.wrapping_add(1);
        if !self.commits.is_multiple_of(LOOKS_AT_LOG) {
            return;
        }
        let log = std::fs::metadata(beside(self.place.home.file.path(), "-wal"));
        if log.is_ok_and(|log| log.len() > LOG_KEPT.into())
            && let Err(failure) = self.restart_log()
        {
            let error = self.place.trouble(&failure);
            words::debug!(?error, "the log could not begin anew");
        }
    }

    /// Writes all of the log into the file. Waits for its readers, as long as SQLite waits for any process.
    fn restart_log(&self) -> Result<(), Failure> {
        let restarted = self.place.connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
        Ok(restarted?)
    }

    /// Does these, each for itself. Answers the jobs that failed, and returns the others, if there is a transaction
    /// to be committed.
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

    /// The same within one transaction. Returns the jobs that are still to be done if it was given up.
    fn run(&self, jobs: Jobs) -> Result<Jobs, Jobs> {
        // No other writer could write since the transaction began.
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
        let is_open = done.is_err() && !self.place.connection.is_autocommit();
        if is_open && (!are_many || self.place.say("ROLLBACK TO one").is_err()) {
            // The writes of the job may not stay.
            self.place.roll_back();
        }
        if are_many && !self.place.connection.is_autocommit() {
            self.place.say("RELEASE one")?;
        }
        done
    }
}
